/* `isomer synth`: random-weight models of published shapes.
 *
 * A model is a list of tensors made from a shape, and bytes made row by row from the seed; so a
 * file of any size takes a few megabytes of memory to write. A tensor's values depend on the seed,
 * its name and its scheme only: the same shape, seed and plain scheme give one and the same model
 * as a GGUF file and as a Hugging Face folder. */
#ifndef ISOMER_TOOLS_SYNTH_H
#define ISOMER_TOOLS_SYNTH_H

#include "core/progress.h"
#include "models/formats/text_view.h"
#include "models/model.h"
#include "tools/scheme_recipe.h"

typedef struct iso_synth_shape {
  const char *name, *architecture;
  int32_t n_layers, hidden_size, intermediate_size, n_heads, n_kv_heads, head_dim;
  int32_t vocabulary_size, context_length;
  float rope_theta, norm_epsilon;
  int32_t window;
  float rope_factor;
  uint32_t flags; /* ISO_SYNTH_... */
} iso_synth_shape;

enum { ISO_SYNTH_TIED = 1, ISO_SYNTH_BIAS = 2, ISO_SYNTH_POST_NORMS = 4 };

extern const iso_synth_shape iso_synth_shapes[];
extern const int iso_synth_shape_count;

/* ---- What a shape consists of --------------------------------------------------------------- */

typedef enum iso_synth_kind {
  ISO_SYNTH_MATRIX,
  ISO_SYNTH_NORM,
  ISO_SYNTH_BIAS_VECTOR,
  ISO_SYNTH_ROPE_FACTORS
} iso_synth_kind;

typedef struct iso_synth_tensor {
  char name[64];      /* GGUF's, from which the values come */
  char file_name[96]; /* as the file will name it */
  iso_synth_kind kind;
  iso_scheme scheme;
  bool pair_rows; /* rows of a head are reordered so that rotary pairs are neighbours */
  int n_dims;
  int64_t dims[2];
} iso_synth_tensor;

typedef struct iso_synth_model {
  const iso_synth_shape *shape;
  const iso_architecture *architecture;
  iso_model_config config; /* as a reader of the file will see it */
  iso_scheme_recipe recipe;
  bool is_gguf;
  uint64_t seed;
  iso_synth_tensor *tensors;
  int n_tensors, tensor_capacity;
  uint64_t parameters, bytes; /* of all tensors */
  iso_scheme_fallbacks fallbacks;
} iso_synth_model;

/* Lists the tensors of a shape. `scheme` is one of schemes.def's floats and blocks, or "q4_k_m";
 * a Hugging Face folder takes plain floats only. Free with iso_synth_model_free(), after a failure
 * too. */
ISO_MUST_CHECK iso_status iso_synth_model_create(const char *shape, const char *scheme,
                                                 bool is_gguf, uint64_t seed,
                                                 iso_synth_model *out_model);
void iso_synth_model_free(iso_synth_model *model);

/* ---- Where tensors go ----------------------------------------------------------------------- */

/* A writer of either format. */
typedef struct iso_synth_sink {
  void *writer;
  iso_status (*add_tensor)(void *writer, const char *name, iso_scheme scheme, int n_dims,
                           const int64_t *dims);
  iso_status (*append)(void *writer, const void *data, uint64_t bytes);
} iso_synth_sink;

/* Declares all tensors and appends their bytes. CANCELLED after Ctrl-C. */
ISO_MUST_CHECK iso_status iso_synth_write_tensors(const iso_synth_model *model,
                                                  const iso_synth_sink *sink);

ISO_MUST_CHECK iso_status iso_synth_write_gguf(const iso_synth_model *model, const char *path);
/* Makes the folder if it is not there. After a failure, what was written is removed. */
ISO_MUST_CHECK iso_status iso_synth_write_folder(const iso_synth_model *model, const char *path);

/* ---- The tokenizer that goes with them ------------------------------------------------------ */

/* Byte-level BPE with GPT-2's alphabet: 256 bytes, a few merges, three special tokens, and unused
 * tokens up to the shape's vocabulary. */
typedef struct iso_synth_vocabulary {
  iso_text_view *tokens; /* by id */
  int32_t *types;        /* iso_token_type, by id */
  iso_text_view *merges; /* "left right" */
  size_t n_tokens, n_merges;
  int32_t first_special; /* ISO_SYNTH_SPECIAL_COUNT ids from here, by iso_synth_special */
  char *storage;         /* what the views point into */
} iso_synth_vocabulary;

typedef enum iso_synth_special {
  ISO_SYNTH_END_OF_TEXT,
  ISO_SYNTH_MESSAGE_START,
  ISO_SYNTH_MESSAGE_END,
  ISO_SYNTH_SPECIAL_COUNT
} iso_synth_special;

extern const char *const iso_synth_special_texts[ISO_SYNTH_SPECIAL_COUNT];
/* A chat template over these special tokens. */
extern const char iso_synth_chat_template[];

/* Free with iso_synth_vocabulary_free(), after a failure too. */
ISO_MUST_CHECK iso_status iso_synth_vocabulary_create(int32_t size,
                                                      iso_synth_vocabulary *out_vocabulary);
void iso_synth_vocabulary_free(iso_synth_vocabulary *vocabulary);

#endif
