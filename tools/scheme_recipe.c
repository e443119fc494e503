#include "tools/scheme_recipe.h"

#include <stdio.h>
#include <string.h>

iso_status iso_scheme_recipe_parse(const char *word, iso_scheme_recipe *out_recipe) {
  *out_recipe =
      (iso_scheme_recipe){.is_mixed = strcmp(word, "q4_k_m") == 0, .scheme = ISO_SCHEME_Q4_K};
  if (!out_recipe->is_mixed && !iso_scheme_from_name(word, &out_recipe->scheme))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "--scheme %s is unknown; f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k to "
                    "q6_k, iq4_nl and q4_k_m are known",
                    word);
  if (iso_scheme_get_info(out_recipe->scheme)->kind == ISO_SCHEME_KIND_PLAIN_INT)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--scheme %s holds integers, weights are not",
                    word);
  return ISO_OK;
}

bool iso_scheme_recipe_file_type(const iso_scheme_recipe *recipe, uint32_t *out_file_type) {
  /* Of those with mixtures of several sizes the least is what has one scheme throughout. */
  static const struct {
    iso_scheme scheme;
    uint32_t file_type;
  } types[] = {{ISO_SCHEME_F32, 0},   {ISO_SCHEME_F16, 1},    {ISO_SCHEME_BF16, 32},
               {ISO_SCHEME_Q8_0, 7},  {ISO_SCHEME_Q4_0, 2},   {ISO_SCHEME_Q4_1, 3},
               {ISO_SCHEME_Q5_0, 8},  {ISO_SCHEME_Q5_1, 9},   {ISO_SCHEME_Q2_K, 10},
               {ISO_SCHEME_Q3_K, 11}, {ISO_SCHEME_Q4_K, 14},  {ISO_SCHEME_Q5_K, 16},
               {ISO_SCHEME_Q6_K, 18}, {ISO_SCHEME_IQ4_NL, 25}};
  enum { Q4_K_M = 15 };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].scheme == recipe->scheme) {
      *out_file_type = recipe->is_mixed ? Q4_K_M : types[i].file_type;
      return true;
    }
  return false;
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* llama.cpp's Q4_K_M: more bits for the head, and for the value and down projections of the first
 * and last eighth of the layers and every third between. */
static iso_scheme mixed_scheme(const char *name, int32_t n_layers, bool tied_embeddings) {
  bool is_head = strcmp(name, "output.weight") == 0 ||
                 (tied_embeddings && strcmp(name, "token_embd.weight") == 0);
  int layer;
  if (sscanf(name, "blk.%d.", &layer) != 1)
    return is_head ? ISO_SCHEME_Q6_K : ISO_SCHEME_Q4_K;
  int eighth = n_layers / 8;
  bool more_bits = layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
  bool sensitive = ends_with(name, ".attn_v.weight") || ends_with(name, ".ffn_down.weight");
  return sensitive && more_bits ? ISO_SCHEME_Q6_K : ISO_SCHEME_Q4_K;
}

iso_scheme iso_scheme_recipe_want(const iso_scheme_recipe *recipe, const char *name,
                                  int32_t n_layers, bool tied_embeddings) {
  return recipe->is_mixed ? mixed_scheme(name, n_layers, tied_embeddings) : recipe->scheme;
}

static iso_scheme fallback_scheme(iso_scheme scheme) {
  switch (scheme) {
  case ISO_SCHEME_Q2_K:
  case ISO_SCHEME_Q3_K:
    return ISO_SCHEME_Q4_0;
  case ISO_SCHEME_Q4_K:
    return ISO_SCHEME_Q5_0;
  case ISO_SCHEME_Q5_K:
    return ISO_SCHEME_Q5_1;
  case ISO_SCHEME_Q6_K:
    return ISO_SCHEME_Q8_0;
  default:
    return ISO_SCHEME_F16;
  }
}

iso_scheme iso_scheme_recipe_fit(iso_scheme wanted, int64_t columns) {
  iso_scheme scheme = wanted;
  while (columns % iso_scheme_get_info(scheme)->block_elements != 0)
    scheme = fallback_scheme(scheme);
  return scheme;
}

void iso_scheme_fallbacks_note(iso_scheme_fallbacks *fallbacks, iso_scheme wanted, iso_scheme got) {
  if (got == wanted)
    return;
  fallbacks->n[wanted]++;
  fallbacks->got[wanted] = got;
}

void iso_scheme_fallbacks_print(const iso_scheme_fallbacks *fallbacks) {
  for (int i = 0; i < ISO_SCHEME_COUNT; i++)
    if (fallbacks->n[i])
      fprintf(stderr,
              "isomer: the rows of %d matrices are not whole %s blocks of %u; they are %s, as "
              "llama.cpp has them\n",
              fallbacks->n[i], iso_scheme_get_info((iso_scheme)i)->name,
              iso_scheme_get_info((iso_scheme)i)->block_elements,
              iso_scheme_get_info(fallbacks->got[i])->name);
}
