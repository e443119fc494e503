/* The engine: a model placed on devices, and text generation on it. */
#ifndef ISOMER_ENGINE_H
#define ISOMER_ENGINE_H

#include <isomer/device.h>
#include <isomer/model.h>

ISO_BEGIN_DECLS

/* ---- Runtime: one model, planned and loaded, that runs ragged batches ---------------------- */

typedef struct iso_runtime iso_runtime;

typedef struct iso_runtime_options {
  const char *devices; /* "cpu", "cuda:0,cpu"; NULL: "cpu" */
  const char *split;   /* layers a device, "16,16"; NULL: even */
  int32_t n_threads;   /* 0: one a physical core */
  bool allow_fallback; /* ops a device refuses run on the host backend, logged; false: an error */
  int32_t context;     /* tokens of one sequence; 0: the trained context, at most 4,096 */
  int32_t max_tokens;  /* rows a step; 0: 512 */
  int32_t max_sequences; /* 0: 1 */
  int32_t max_logit_rows; /* rows a step that may want logits; 0: one a sequence */
  int32_t n_pages;       /* KV pool; 0: enough for max_sequences full contexts */
  int32_t page_size;     /* tokens; 0: 64 */
  iso_scheme kv_scheme;  /* ISO_SCHEME_F32 (0) by default */
  bool keep_all;         /* every value readable after a step; for verify */
  iso_progress_callback progress;
  void *progress_context;
} iso_runtime_options;

/* Opens devices, plans, allocates and packs. Checks before loading that weights, cache and
 * scratch fit and otherwise says what is needed, what is free and which context would fit. The
 * model must outlive the runtime. */
ISO_MUST_CHECK ISO_API iso_status iso_runtime_create(const iso_model *model,
                                                     const iso_runtime_options *options,
                                                     iso_runtime **out_runtime);
ISO_API void iso_runtime_destroy(iso_runtime *runtime);

/* What a sequence of a batch adds in one step. */
typedef struct iso_batch_sequence {
  int32_t n_tokens; /* rows, >= 1 */
  const int32_t *tokens;
  int32_t position;        /* of the first row: tokens already cached */
  const int32_t *pages;    /* pages of the sequence, in order, covering position + n_tokens */
  int32_t n_pages;
  bool all_logits; /* logits for every row; false: for the last row only */
  bool no_logits;  /* none: a prompt chunk that is not the last */
} iso_batch_sequence;

/* Runs one step. Logit rows come in batch order. */
ISO_MUST_CHECK ISO_API iso_status iso_runtime_step(iso_runtime *runtime,
                                                   const iso_batch_sequence *sequences,
                                                   int32_t n_sequences);
/* Logits of row `row` of the latest step, vocabulary_size floats on the host, valid until the
 * next step. */
ISO_API const float *iso_runtime_logits(const iso_runtime *runtime, int32_t row);

ISO_API const iso_model *iso_runtime_get_model(const iso_runtime *runtime);
ISO_API const iso_plan *iso_runtime_get_plan(const iso_runtime *runtime);
ISO_API iso_executor *iso_runtime_get_executor(iso_runtime *runtime);
/* The options in force, defaults filled in. */
ISO_API const iso_runtime_options *iso_runtime_get_options(const iso_runtime *runtime);
/* One line that names what really runs where. */
ISO_API const char *iso_runtime_describe(const iso_runtime *runtime);

/* ---- Sampling ------------------------------------------------------------------------------ */

/* Order: penalties, temperature, top-k, top-p, min-p, draw. See docs/sampling.md. */
typedef struct iso_sampling {
  float temperature; /* 0: greedy */
  int32_t top_k;     /* 0: off */
  float top_p;       /* 1: off */
  float min_p;       /* 0: off */
  float repetition_penalty; /* 1: off; over prompt and output */
  float presence_penalty;   /* 0: off; over the output */
  float frequency_penalty;  /* 0: off; over the output */
  uint64_t seed;
} iso_sampling;
/* Greedy, everything off. */
ISO_API iso_sampling iso_sampling_default(void);

/* ---- Generation: one sequence on a runtime of its own -------------------------------------- */

typedef struct iso_session iso_session;

typedef enum iso_stop_reason {
  ISO_STOP_END,     /* the model ended its answer */
  ISO_STOP_LENGTH,  /* max_tokens or the context limit */
  ISO_STOP_STRING,  /* a stop string */
  ISO_STOP_CANCELLED /* a callback returned false */
} iso_stop_reason;

/* Whole UTF-8 pieces as they appear, not NUL-terminated. Return false to stop. */
typedef bool (*iso_text_callback)(void *context, const char *text, size_t length);

typedef struct iso_generation_options {
  iso_sampling sampling;
  int32_t max_tokens; /* 0: up to the context limit */
  bool ignore_end;    /* go on after an end token; for benches */
  const char *const *stop; /* strings that end the answer and are not part of it */
  int32_t n_stop;
  iso_text_callback on_text; /* NULL: none */
  /* Asked before each step, prompt chunks too; false stops. NULL: never asked. */
  bool (*keep_going)(void *context);
  void *context; /* of both */
} iso_generation_options;

typedef struct iso_generation_result {
  iso_stop_reason reason;
  int32_t n_prompt; /* tokens evaluated, cached ones not counted */
  int32_t n_output;
  double prompt_us, output_us;
} iso_generation_result;

ISO_MUST_CHECK ISO_API iso_status iso_session_create(iso_runtime *runtime,
                                                     iso_session **out_session);
ISO_API void iso_session_destroy(iso_session *session);
/* Continues from `ids` (the whole conversation; the longest prefix already cached is used again)
 * and generates. Output ids are appended to the session. One thread at a time. */
ISO_MUST_CHECK ISO_API iso_status iso_session_generate(iso_session *session, const int32_t *ids,
                                                       int32_t n_ids,
                                                       const iso_generation_options *options,
                                                       iso_generation_result *out_result);
/* Ids cached so far, prompt and output. */
ISO_API const int32_t *iso_session_ids(const iso_session *session, int32_t *out_count);

ISO_END_DECLS
#endif
