/* Inside of a model: what the readers fill in and the graph builders use. */
#ifndef ISOMER_MODELS_MODEL_H
#define ISOMER_MODELS_MODEL_H

#include <isomer/model.h>

#include "models/chat/chat_template.h"
#include "models/chat/special_texts.h"
#include "models/formats/gguf.h"
#include "models/formats/hf_folder.h"
#include "models/quantized.h"

typedef struct iso_model_builder iso_model_builder;

/* A tensor's name here (GGUF's spelling) and in a Hugging Face folder. "%d" is the layer. */
typedef struct iso_weight_name {
  const char *name;
  const char *hf_name;
} iso_weight_name;

/* When the layers of a config.json with a "sliding_window" have one. */
typedef enum iso_window_rule {
  ISO_WINDOW_UNLESS_REFUSED, /* not where "use_sliding_window" is false */
  ISO_WINDOW_ON_REQUEST,     /* where "use_sliding_window" is true */
  ISO_WINDOW_NEVER           /* the model's code does not look */
} iso_window_rule;

/* A model_type of config.json, and what transformers takes for what the file leaves out. */
typedef struct iso_hf_type {
  const char *name;
  iso_window_rule window;
  const iso_model_config *defaults; /* NULL: none; of the rope only theta */
} iso_hf_type;

/* One architecture: models/<name>.c defines it, architectures.def lists it. */
typedef struct iso_architecture {
  const char *name; /* general.architecture of GGUF files */
  iso_hf_type hf_types[4];
  /* Names that differ from the common ones in weights.c; ends with a NULL name. */
  const iso_weight_name *hf_names;
  /* Sets what the architecture implies and no file states. `is_gguf` tells the two file families
   * apart where converters change values. */
  iso_status (*configure)(iso_model_config *config, bool is_gguf);
  /* Appends the graph; failures stick to the graph or to builder->status. */
  void (*build)(iso_model_builder *builder);
} iso_architecture;

/* A 1-D tensor in f32, whatever the file stores: norms and biases. */
typedef struct iso_model_parameter {
  const iso_file_tensor *tensor;
  float *values; /* owned */
} iso_model_parameter;

struct iso_model {
  iso_model_config config;
  const iso_architecture *architecture;
  iso_gguf *gguf; /* one of these two is set */
  iso_hf_folder *folder;
  iso_quantized quantized;                                 /* of the folder */
  float *short_factors, *long_factors, *frequency_factors; /* owned; config points at them */
  const iso_file_tensor **tensors; /* those that iso_model_get_tensor() tells of; n_tensors */
  uint32_t n_tensors;
  iso_model_parameter *parameters;
  uint32_t n_parameters;
  iso_tokenizer *tokenizer;
  iso_chat_template *chat_template;
  iso_chat_template *tool_template; /* for conversations with tools; NULL: the other serves both */
  iso_special_texts *special_texts; /* where there is a template */
};

/* Bytes and elements of all tensors that iso_model_get_tensor() tells of. */
uint64_t iso_model_weight_bytes(const iso_model *model);
uint64_t iso_model_weight_elements(const iso_model *model);

/* Of the tokenizer; NULL where there is no chat template. */
const iso_special_texts *iso_model_get_special_texts(const iso_model *model);

/* The template for conversations with or without tools; NULL where there is none. */
const iso_chat_template *iso_model_template_for(const iso_model *model, bool has_tools);

/* Renders a conversation with the model's chat template, which there must be: `input` says all but
 * the texts of special tokens and the time. As iso_chat_template_render() otherwise. */
ISO_MUST_CHECK iso_status iso_model_render_chat(const iso_model *model, const iso_chat_input *input,
                                                char **out_text, size_t *out_length);

/* The entry of architectures.def for a GGUF architecture; NULL when there is none. */
const iso_architecture *iso_architecture_find(const char *name);
/* The same for a config.json model_type, and the type's own entry in it. */
const iso_architecture *iso_architecture_find_hf(const char *name, const iso_hf_type **out_type);
/* "llama, qwen2, ..." for messages. */
const char *iso_architecture_names(void);

/* A tensor's name in Hugging Face folders, without the decoder's prefix ("model."), as in
 * "layers.3.mlp.up_proj.weight"; false when they have no such tensor. The head is beside the
 * decoder and has none. */
bool iso_weight_hf_name(const iso_architecture *architecture, const char *name, char *out_name,
                        size_t capacity);

/* Prefixes of the decoder in Hugging Face folders, "" among them; NULL past the last. */
const char *iso_weight_hf_prefix(size_t index);

/* Fill model->config from the open file; names of missing or absurd keys are in the error. */
ISO_MUST_CHECK iso_status iso_config_read_gguf(iso_model *model);
ISO_MUST_CHECK iso_status iso_config_read_hf(iso_model *model);
/* Which layers have the sliding window, one by one, as the pattern of "every n-th layer is global":
 * the only form that published models use. `name` is what the file calls the list. */
ISO_MUST_CHECK iso_status iso_config_take_windows(iso_model_config *config, const char *name,
                                                  const bool *windowed, int n_layers);
/* Checks that sizes agree with each other, after either reader. */
ISO_MUST_CHECK iso_status iso_config_check(const iso_model_config *config);

/* Tensors of the files in order, whichever format holds them. */
uint64_t iso_model_file_tensor_count(const iso_model *model);
const iso_file_tensor *iso_model_file_tensor(const iso_model *model, uint64_t index);
/* A tensor of the files by its GGUF-style name; NULL when absent. */
const iso_file_tensor *iso_model_find_tensor(const iso_model *model, const char *name);
/* Lists what iso_model_get_tensor() tells of, once, at open. */
ISO_MUST_CHECK iso_status iso_model_list_tensors(iso_model *model);
/* Converts norms and biases to f32 once, at open. */
ISO_MUST_CHECK iso_status iso_model_load_parameters(iso_model *model);

#endif
