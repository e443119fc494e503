/* Which scheme each tensor of a model gets when a user names one word: a scheme of schemes.def for
 * all matrices, or "q4_k_m", a mixture. */
#ifndef ISOMER_TOOLS_SCHEME_RECIPE_H
#define ISOMER_TOOLS_SCHEME_RECIPE_H

#include <isomer/quant.h>

typedef struct iso_scheme_recipe {
  bool is_mixed;
  iso_scheme scheme; /* of most matrices */
} iso_scheme_recipe;

/* Refuses unknown words and schemes of integers. */
ISO_MUST_CHECK iso_status iso_scheme_recipe_parse(const char *word, iso_scheme_recipe *out_recipe);

/* "general.file_type" of a GGUF file that is made so: the type of most of its tensors, by the file
 * types that ggml/docs/gguf.md lists. Other programs do not open a file without it. False where
 * the list has no such type. */
bool iso_scheme_recipe_file_type(const iso_scheme_recipe *recipe, uint32_t *out_file_type);

/* What the recipe wants for a matrix, by its name in GGUF files ("blk.3.attn_v.weight"), and what
 * fits: where a row is not whole blocks, the scheme that llama.cpp takes instead. */
iso_scheme iso_scheme_recipe_want(const iso_scheme_recipe *recipe, const char *name,
                                  int32_t n_layers, bool tied_embeddings);
iso_scheme iso_scheme_recipe_fit(iso_scheme wanted, int64_t columns);

/* How often a matrix got another scheme than was wanted, for a notice to the user. */
typedef struct iso_scheme_fallbacks {
  int n[ISO_SCHEME_COUNT]; /* by the scheme that was wanted */
  iso_scheme got[ISO_SCHEME_COUNT];
} iso_scheme_fallbacks;
void iso_scheme_fallbacks_note(iso_scheme_fallbacks *fallbacks, iso_scheme wanted, iso_scheme got);
/* A line on stderr for each scheme that did not fit everywhere. */
void iso_scheme_fallbacks_print(const iso_scheme_fallbacks *fallbacks);

#endif
