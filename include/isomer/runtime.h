/* The runtime: a model placed on devices, running ragged batches step by step. */
#ifndef ISOMER_RUNTIME_H
#define ISOMER_RUNTIME_H

#include <isomer/device.h>
#include <isomer/model.h>

ISO_BEGIN_DECLS

typedef struct iso_runtime iso_runtime;

typedef struct iso_runtime_options {
  const char *devices;   /* "cpu", "cuda:0,cpu"; NULL: "cpu" */
  const char *split;     /* layers a device, "16,16"; NULL: even */
  int32_t n_threads;     /* 0: one a physical core */
  bool allow_fallback;   /* ops a device refuses run on the host backend, logged; false: an error */
  int32_t context;       /* tokens of one sequence; 0: the trained context, at most 4,096 */
  int32_t max_tokens;    /* rows a step; 0: 512, on a large GPU up to 2,048 */
  int32_t max_sequences; /* 0: 1 */
  int32_t max_logit_rows; /* rows a step that may want logits; 0: one a sequence */
  int32_t n_pages;        /* KV pool; 0: enough for max_sequences full contexts */
  int32_t page_size;      /* tokens; 0: 64 */
  /* Type of the key-value cache: "f32", "f16", "bf16", "q8_0" or, for heads of whole 128s,
   * "f8_g128". NULL: that of the activations. In the options in force it is never NULL. */
  const char *kv_type;
  bool keep_all;          /* every value readable after a step; for verify */
  iso_progress_callback progress;
  void *progress_context;
  /* Type of the values between ops: "f32", "bf16" or "f16". NULL: f32, or bf16 where every device
   * is a GPU. "int8" or "fp8": as NULL, and products may round their operands to 8 bits
   * (operand_bits of matmul: to E4M3 where weights are, else to int8), which costs accuracy. In
   * the options in force it is never NULL. */
  const char *activation;
  const char *cpu_affinity; /* CPUs for the CPU's threads, as in iso_device_options; or NULL */
  /* Adapters of the model that sequences may name. Their weights are copied: they may be closed
   * once the runtime is there, and the pointer is not kept. */
  const iso_adapter *const *adapters;
  int32_t n_adapters;
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
  int32_t position;     /* of the first row: tokens already cached */
  const int32_t *pages; /* pages of the sequence, in order, covering position + n_tokens */
  int32_t n_pages;
  bool all_logits; /* logits for every row; false: for the last row only */
  bool no_logits;  /* none: a prompt chunk that is not the last */
  int32_t adapter; /* which of the options' changes the rows, counted from 1; 0: none */
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

ISO_END_DECLS
#endif
