#include "tools/synth.h"

#include "tools/synth_rows.h"
#include "tools/tool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIED ISO_SYNTH_TIED
#define BIAS ISO_SYNTH_BIAS
#define POST_NORMS ISO_SYNTH_POST_NORMS
const iso_synth_shape iso_synth_shapes[] = {
#define ISO_SYNTH_SHAPE(name, architecture, ...) {name, #architecture, __VA_ARGS__},
#include "tools/synth_shapes.def"
#undef ISO_SYNTH_SHAPE
};
const int iso_synth_shape_count = (int)(sizeof iso_synth_shapes / sizeof iso_synth_shapes[0]);

/* ---- Tensors of a shape --------------------------------------------------------------------- */

typedef enum dim { NONE, VOCABULARY, HIDDEN, INTERMEDIATE, QUERY, KEY_VALUE, HEAD, PAIRS } dim;

typedef enum condition {
  ALWAYS,
  IF_UNTIED,
  IF_BIAS,
  IF_QK_NORM,
  IF_POST_NORMS,
  IF_ROPE_FACTORS /* frequency scaling, which GGUF files carry as a tensor */
} condition;

typedef struct tensor_row {
  const char *name; /* "%d" is the layer */
  iso_synth_kind kind;
  condition when;
  dim rows, columns; /* a vector has columns only */
} tensor_row;

static const tensor_row rows_before_layers[] = {
    {"token_embd.weight", ISO_SYNTH_MATRIX, ALWAYS, VOCABULARY, HIDDEN},
    {"rope_freqs.weight", ISO_SYNTH_ROPE_FACTORS, IF_ROPE_FACTORS, NONE, PAIRS},
    {NULL, ISO_SYNTH_MATRIX, ALWAYS, NONE, NONE},
};
static const tensor_row rows_of_layer[] = {
    {"blk.%d.attn_norm.weight", ISO_SYNTH_NORM, ALWAYS, NONE, HIDDEN},
    {"blk.%d.attn_q.weight", ISO_SYNTH_MATRIX, ALWAYS, QUERY, HIDDEN},
    {"blk.%d.attn_k.weight", ISO_SYNTH_MATRIX, ALWAYS, KEY_VALUE, HIDDEN},
    {"blk.%d.attn_v.weight", ISO_SYNTH_MATRIX, ALWAYS, KEY_VALUE, HIDDEN},
    {"blk.%d.attn_q.bias", ISO_SYNTH_BIAS_VECTOR, IF_BIAS, NONE, QUERY},
    {"blk.%d.attn_k.bias", ISO_SYNTH_BIAS_VECTOR, IF_BIAS, NONE, KEY_VALUE},
    {"blk.%d.attn_v.bias", ISO_SYNTH_BIAS_VECTOR, IF_BIAS, NONE, KEY_VALUE},
    {"blk.%d.attn_q_norm.weight", ISO_SYNTH_NORM, IF_QK_NORM, NONE, HEAD},
    {"blk.%d.attn_k_norm.weight", ISO_SYNTH_NORM, IF_QK_NORM, NONE, HEAD},
    {"blk.%d.attn_output.weight", ISO_SYNTH_MATRIX, ALWAYS, HIDDEN, QUERY},
    {"blk.%d.post_attention_norm.weight", ISO_SYNTH_NORM, IF_POST_NORMS, NONE, HIDDEN},
    {"blk.%d.ffn_norm.weight", ISO_SYNTH_NORM, ALWAYS, NONE, HIDDEN},
    {"blk.%d.ffn_gate.weight", ISO_SYNTH_MATRIX, ALWAYS, INTERMEDIATE, HIDDEN},
    {"blk.%d.ffn_up.weight", ISO_SYNTH_MATRIX, ALWAYS, INTERMEDIATE, HIDDEN},
    {"blk.%d.ffn_down.weight", ISO_SYNTH_MATRIX, ALWAYS, HIDDEN, INTERMEDIATE},
    {"blk.%d.post_ffw_norm.weight", ISO_SYNTH_NORM, IF_POST_NORMS, NONE, HIDDEN},
    {NULL, ISO_SYNTH_MATRIX, ALWAYS, NONE, NONE},
};
static const tensor_row rows_after_layers[] = {
    {"output_norm.weight", ISO_SYNTH_NORM, ALWAYS, NONE, HIDDEN},
    {"output.weight", ISO_SYNTH_MATRIX, IF_UNTIED, VOCABULARY, HIDDEN},
    {NULL, ISO_SYNTH_MATRIX, ALWAYS, NONE, NONE},
};

static int64_t size_of(const iso_model_config *config, dim which) {
  const int64_t sizes[] = {[NONE] = 1,
                           [VOCABULARY] = config->vocabulary_size,
                           [HIDDEN] = config->hidden_size,
                           [INTERMEDIATE] = config->intermediate_size,
                           [QUERY] = (int64_t)config->n_heads * config->head_dim,
                           [KEY_VALUE] = (int64_t)config->n_kv_heads * config->head_dim,
                           [HEAD] = config->head_dim,
                           [PAIRS] = config->rope.rotary_dim / 2};
  return sizes[which];
}

static bool applies(const iso_synth_model *model, condition when) {
  const iso_model_config *config = &model->config;
  const bool answers[] = {[ALWAYS] = true,
                          [IF_UNTIED] = !config->tied_embeddings,
                          [IF_BIAS] = config->attention_bias,
                          [IF_QK_NORM] = config->qk_norm,
                          [IF_POST_NORMS] = (model->shape->flags & ISO_SYNTH_POST_NORMS) != 0,
                          [IF_ROPE_FACTORS] =
                              model->is_gguf && config->rope.scaling != ISO_ROPE_SCALING_NONE};
  return answers[when];
}

/* ---- The list ------------------------------------------------------------------------------- */

static iso_status name_tensor(const iso_synth_model *model, const tensor_row *row, int layer,
                              iso_synth_tensor *out) {
  const char *mark = strstr(row->name, "%d");
  if (mark)
    snprintf(out->name, sizeof out->name, "%.*s%d%s", (int)(mark - row->name), row->name, layer,
             mark + 2);
  else
    snprintf(out->name, sizeof out->name, "%s", row->name);
  if (model->is_gguf || strcmp(out->name, "output.weight") == 0) {
    snprintf(out->file_name, sizeof out->file_name, "%s",
             model->is_gguf ? out->name : "lm_head.weight");
    return ISO_OK;
  }
  char bare[80];
  if (!iso_weight_hf_name(model->architecture, out->name, bare, sizeof bare))
    return iso_fail(ISO_ERROR_INTERNAL, "%s has no name in Hugging Face folders", out->name);
  snprintf(out->file_name, sizeof out->file_name, "model.%s", bare);
  return ISO_OK;
}

static iso_status add_tensor(iso_synth_model *model, const tensor_row *row, int layer) {
  const iso_model_config *config = &model->config;
  if (model->n_tensors == model->tensor_capacity) {
    int capacity = model->tensor_capacity ? 2 * model->tensor_capacity : 64;
    iso_synth_tensor *grown = reallocarray(model->tensors, (size_t)capacity, sizeof *grown);
    if (!grown)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %d tensors", capacity);
    model->tensors = grown;
    model->tensor_capacity = capacity;
  }
  iso_synth_tensor *tensor = &model->tensors[model->n_tensors];
  *tensor = (iso_synth_tensor){.kind = row->kind, .scheme = ISO_SCHEME_F32};
  if (row->rows != NONE)
    tensor->dims[tensor->n_dims++] = size_of(config, row->rows);
  int64_t columns = size_of(config, row->columns);
  tensor->dims[tensor->n_dims++] = columns;
  if (row->kind == ISO_SYNTH_MATRIX) {
    tensor->pair_rows =
        config->rope.interleaved && (strcmp(row->name, "blk.%d.attn_q.weight") == 0 ||
                                     strcmp(row->name, "blk.%d.attn_k.weight") == 0);
  } else if (!model->is_gguf) {
    tensor->scheme = model->recipe.scheme;
  }
  ISO_TRY(name_tensor(model, row, layer, tensor));
  if (row->kind == ISO_SYNTH_MATRIX) {
    iso_scheme wanted = iso_scheme_recipe_want(&model->recipe, tensor->name, config->n_layers,
                                               config->tied_embeddings);
    tensor->scheme = iso_scheme_recipe_fit(wanted, columns);
    iso_scheme_fallbacks_note(&model->fallbacks, wanted, tensor->scheme);
  }
  uint64_t row_bytes, n_rows = tensor->n_dims > 1 ? (uint64_t)tensor->dims[0] : 1;
  ISO_TRY(iso_scheme_row_bytes(tensor->scheme, columns, &row_bytes));
  model->bytes += n_rows * row_bytes;
  model->parameters += n_rows * (uint64_t)columns;
  model->n_tensors++;
  return ISO_OK;
}

static iso_status add_tensors(iso_synth_model *model, const tensor_row *rows, int layer) {
  for (; rows->name; rows++)
    if (applies(model, rows->when))
      ISO_TRY(add_tensor(model, rows, layer));
  return ISO_OK;
}

static iso_status find_shape(const char *name, const iso_synth_shape **out_shape) {
  char known[512] = "";
  size_t used = 0;
  for (int i = 0; i < iso_synth_shape_count; i++) {
    *out_shape = &iso_synth_shapes[i];
    if (strcmp(name, iso_synth_shapes[i].name) == 0)
      return ISO_OK;
    used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                             iso_synth_shapes[i].name);
  }
  return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "unknown shape \"%s\"; known are %s", name, known);
}

static iso_status check_recipe(const iso_scheme_recipe *how, const char *word, bool is_gguf) {
  if (!is_gguf && iso_scheme_get_info(how->scheme)->kind != ISO_SCHEME_KIND_PLAIN_FLOAT)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "safetensors has no type for %s; a folder takes f32, f16 or bf16, and a GGUF "
                    "file (an output without '/' at its end) takes every scheme",
                    word);
  return ISO_OK;
}

/* The configuration as a reader of the file will fill it in. */
static iso_status configure(iso_synth_model *model) {
  const iso_synth_shape *shape = model->shape;
  iso_model_config *config = &model->config;
  *config = (iso_model_config){
      .n_layers = shape->n_layers,
      .hidden_size = shape->hidden_size,
      .intermediate_size = shape->intermediate_size,
      .vocabulary_size = shape->vocabulary_size,
      .n_heads = shape->n_heads,
      .n_kv_heads = shape->n_kv_heads,
      .head_dim = shape->head_dim,
      .context_length = shape->context_length,
      .norm_epsilon = shape->norm_epsilon,
      .rope = {.theta = shape->rope_theta, .factor = 1, .rotary_dim = shape->head_dim},
      .sliding_window = shape->window,
      .embedding_scale = 1,
      .tied_embeddings = (shape->flags & ISO_SYNTH_TIED) != 0,
      .attention_bias = (shape->flags & ISO_SYNTH_BIAS) != 0};
  if (shape->rope_factor != 0) {
    config->rope.scaling = ISO_ROPE_SCALING_LLAMA3;
    config->rope.factor = shape->rope_factor;
    config->rope.low_frequency_factor = 1;
    config->rope.high_frequency_factor = 4;
    config->rope.original_context = 8192;
  }
  snprintf(config->architecture, sizeof config->architecture, "%s", shape->architecture);
  snprintf(config->name, sizeof config->name, "%s", shape->name);
  model->architecture = iso_architecture_find(shape->architecture);
  if (!model->architecture)
    return iso_fail(ISO_ERROR_INTERNAL, "shape %s has an unknown architecture", shape->name);
  return model->architecture->configure(config, model->is_gguf);
}

iso_status iso_synth_model_create(const char *shape, const char *scheme, bool is_gguf,
                                  uint64_t seed, iso_synth_model *out_model) {
  *out_model = (iso_synth_model){.is_gguf = is_gguf, .seed = seed};
  iso_scheme_recipe *how = &out_model->recipe;
  ISO_TRY(find_shape(shape, &out_model->shape));
  ISO_TRY(iso_scheme_recipe_parse(scheme, how));
  ISO_TRY(check_recipe(how, scheme, is_gguf));
  ISO_TRY(configure(out_model));
  ISO_TRY(add_tensors(out_model, rows_before_layers, 0));
  for (int layer = 0; layer < out_model->config.n_layers; layer++)
    ISO_TRY(add_tensors(out_model, rows_of_layer, layer));
  return add_tensors(out_model, rows_after_layers, 0);
}

void iso_synth_model_free(iso_synth_model *model) {
  free(model->tensors);
  *model = (iso_synth_model){0};
}
