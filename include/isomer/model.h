/* Models: files in, configuration + tokenizer + chat template + weights + graph out. */
#ifndef ISOMER_MODEL_H
#define ISOMER_MODEL_H

#include <isomer/graph.h>
#include <isomer/plan.h>

ISO_BEGIN_DECLS

typedef struct iso_model iso_model;
typedef struct iso_tokenizer iso_tokenizer;
typedef struct iso_chat_template iso_chat_template;

/* How rotary frequencies are scaled past the trained context. */
typedef enum iso_rope_scaling {
  ISO_ROPE_SCALING_NONE,
  ISO_ROPE_SCALING_LINEAR,      /* positions divided by `factor` */
  ISO_ROPE_SCALING_DYNAMIC_NTK, /* theta grown for the context in use */
  ISO_ROPE_SCALING_LLAMA3,      /* Llama 3.1: low frequencies divided, high ones kept */
  ISO_ROPE_SCALING_YARN,        /* arXiv:2309.00071 */
  ISO_ROPE_SCALING_LONGROPE     /* arXiv:2402.13753: a factor a pair, short and long */
} iso_rope_scaling;

typedef struct iso_rope_config {
  iso_rope_scaling scaling;
  bool interleaved;
  int32_t rotary_dim; /* elements of a head that rotate */
  float theta;
  float factor;
  float low_frequency_factor, high_frequency_factor; /* LLAMA3 */
  float beta_fast, beta_slow;                        /* YARN */
  float attention_factor; /* magnitude; 0: derived from `factor` as the method's paper says */
  float mscale, mscale_all_dim; /* YARN, as DeepSeek uses it; 0: absent */
  int32_t original_context;
  const float *short_factors; /* LONGROPE: rotary_dim / 2 each, owned by the model */
  const float *long_factors;
  /* Divides each pair's frequency, on top of `scaling`; NULL: none. Llama 3.1 GGUF files carry
   * their scaling so. */
  const float *frequency_factors;
} iso_rope_config;

/* What becomes of the final hidden rows of a text that is embedded. */
typedef enum iso_pooling {
  ISO_POOLING_MEAN, /* where the files do not say */
  ISO_POOLING_LAST, /* the last token's row */
  ISO_POOLING_OTHER /* something else: embeddings are refused */
} iso_pooling;

#define ISO_MAX_LAYERS 1024

/* Hyperparameters in one vocabulary, whatever the file calls them. */
typedef struct iso_model_config {
  char architecture[32]; /* "llama", "qwen2", "qwen3", "gemma3" */
  char name[128];        /* as the file states it, "" if it does not */
  int32_t n_layers, hidden_size, intermediate_size, vocabulary_size;
  int32_t n_heads, n_kv_heads, head_dim;
  int32_t context_length; /* trained, in tokens */
  float norm_epsilon;
  iso_rope_config rope;
  iso_rope_config local_rope; /* for sliding-window layers where it differs (Gemma 3) */
  int32_t sliding_window;     /* 0: none */
  int32_t window_pattern;     /* every n-th layer attends globally, others in the window; 0: all global */
  float attention_scale;      /* 0: 1 / sqrt(head_dim) */
  float attention_soft_cap, logit_soft_cap; /* 0: none */
  float embedding_scale;                    /* 1: none */
  float norm_weight_offset;                 /* 1 where the file stores gain - 1 */
  iso_activation activation;
  bool tied_embeddings, attention_bias, qk_norm;
  int32_t n_experts, n_experts_used; /* 0: dense */
  iso_pooling pooling;
} iso_model_config;

typedef struct iso_model_options {
  iso_progress_callback progress; /* NULL: none */
  void *progress_context;
  bool no_tokenizer; /* do not need one: bench, inspect */
} iso_model_options;

/* Opens a GGUF file (the first of a split set) or a Hugging Face folder. Files are mapped; no
 * weight is read. Errors name the file and what is wrong. `options` may be NULL. */
ISO_MUST_CHECK ISO_API iso_status iso_model_open(const char *path, const iso_model_options *options,
                                                 iso_model **out_model);
ISO_API void iso_model_close(iso_model *model);

ISO_API const iso_model_config *iso_model_get_config(const iso_model *model);
/* NULL when the model was opened without one. */
ISO_API const iso_tokenizer *iso_model_get_tokenizer(const iso_model *model);
/* The default chat template; NULL when the files carry none. */
ISO_API const iso_chat_template *iso_model_get_chat_template(const iso_model *model);

/* One tensor of the model, for inspection: as its files have it, or, where a quantized folder has a
 * matrix in several (codes, scales, zero points), what they make together. */
typedef struct iso_model_tensor {
  const char *name; /* as the file names it, or as it is named unquantized; the model's own */
  iso_scheme scheme;
  uint32_t n_dims;
  int64_t dims[ISO_MAX_DIMS];
  uint64_t bytes;
} iso_model_tensor;
ISO_API uint32_t iso_model_tensor_count(const iso_model *model);
ISO_API void iso_model_get_tensor(const iso_model *model, uint32_t index, iso_model_tensor *out);

/* ---- Adapters ------------------------------------------------------------------------------ */

/* A LoRA adapter (arXiv:2106.09685) of a model's attention and MLP projections: W x becomes
 * W x + scale * B (A x). */
typedef struct iso_adapter iso_adapter;
/* Opens a Hugging Face PEFT folder or a GGUF file of type "adapter" for this model, which outlives
 * it. What is not supported (DoRA, biases, other modules, ...) or does not fit is refused by name. */
ISO_MUST_CHECK ISO_API iso_status iso_adapter_open(const iso_model *model, const char *path,
                                                   iso_adapter **out_adapter);
ISO_API void iso_adapter_close(iso_adapter *adapter);
/* Most adapters of one graph. */
#define ISO_MAX_ADAPTERS 256

/* ---- Graphs -------------------------------------------------------------------------------- */

/* Bounds and choices of a graph. */
typedef struct iso_model_graph_options {
  int32_t max_tokens;     /* bound of T: rows a step */
  int32_t max_sequences;  /* bound of S */
  int32_t max_logit_rows; /* bound of R */
  int32_t n_pages, page_size; /* of the KV pool */
  int32_t max_context;        /* tokens of one sequence; block tables have its pages */
  iso_scheme kv_scheme;       /* f32, f16, bf16, q8_0, f8_g128 */
  iso_scheme activation;      /* f32, f16, bf16 */
  bool samples;               /* also draw a token of each row of logits */
  uint32_t operand_bits;      /* of the layers' products, see the op; 0 or 8 */
  /* Among which each row may choose one, or none. They outlive what serves the weights. */
  const iso_adapter *const *adapters;
  int32_t n_adapters;
} iso_model_graph_options;

/* Names of a model graph's inputs and outputs; all indices are i32.
 *
 *   token_ids [T]  positions [T]  kv_slots [T]  block_table [S, ceil(max_context / page_size)]
 *   query_start [S]  query_length [S]  context_length [S]  logit_rows [R]
 *   logits [R, vocabulary] f32 (output)   hidden [T, hidden] (output: after the final norm)
 *
 * With `samples` also the operands of the sample op, its history one token long, and its output:
 *
 *   sample_parameters [R, 8] f32  sample_state [R, 4]  sample_history [R, 1]  tokens [R] (output)
 *
 * With adapters also adapters [A, 1]: of each row the number of its adapter, counted from 1, or 0
 * for none. Steps in which A is 0 run as without adapters.
 *
 * States are "k_cache.<layer>" and "v_cache.<layer>", [pages, n_kv_heads, page_size, head_dim]. */
ISO_MUST_CHECK ISO_API iso_status iso_model_build_graph(const iso_model *model,
                                                        const iso_model_graph_options *options,
                                                        iso_graph **out_graph);

/* Serves the graph's weights, computed tables (rotary frequencies) among them, for graphs built
 * with these options. The model outlives it. */
ISO_MUST_CHECK ISO_API iso_status iso_model_weights(const iso_model *model,
                                                    const iso_model_graph_options *options,
                                                    iso_weight_provider *out_provider);
/* Frees what iso_model_weights() made, after the executors that used it are created; weights that
 * stayed in place (see iso_weight_provider) live on in the model. */
ISO_API void iso_model_weights_release(iso_weight_provider *provider);

ISO_END_DECLS
#endif
