/* Where a graph's weights come from: tensors of the files by name, norms and biases widened to
 * f32, and rotary tables computed from the configuration. */
#include "models/adapter.h"
#include "models/builder.h"
#include "ops/rope_scaling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Common Hugging Face names, without the prefix of the decoder ("model."). */
static const iso_weight_name common_names[] = {
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"blk.%d.attn_norm.weight", "layers.%d.input_layernorm.weight"},
    {"blk.%d.ffn_norm.weight", "layers.%d.post_attention_layernorm.weight"},
    {"blk.%d.attn_q.weight", "layers.%d.self_attn.q_proj.weight"},
    {"blk.%d.attn_k.weight", "layers.%d.self_attn.k_proj.weight"},
    {"blk.%d.attn_v.weight", "layers.%d.self_attn.v_proj.weight"},
    {"blk.%d.attn_q.bias", "layers.%d.self_attn.q_proj.bias"},
    {"blk.%d.attn_k.bias", "layers.%d.self_attn.k_proj.bias"},
    {"blk.%d.attn_v.bias", "layers.%d.self_attn.v_proj.bias"},
    {"blk.%d.attn_output.weight", "layers.%d.self_attn.o_proj.weight"},
    {"blk.%d.attn_output.bias", "layers.%d.self_attn.o_proj.bias"},
    {"blk.%d.attn_q_norm.weight", "layers.%d.self_attn.q_norm.weight"},
    {"blk.%d.attn_k_norm.weight", "layers.%d.self_attn.k_norm.weight"},
    {"blk.%d.ffn_gate.weight", "layers.%d.mlp.gate_proj.weight"},
    {"blk.%d.ffn_up.weight", "layers.%d.mlp.up_proj.weight"},
    {"blk.%d.ffn_down.weight", "layers.%d.mlp.down_proj.weight"},
    {"blk.%d.ffn_gate.bias", "layers.%d.mlp.gate_proj.bias"},
    {"blk.%d.ffn_up.bias", "layers.%d.mlp.up_proj.bias"},
    {"blk.%d.ffn_down.bias", "layers.%d.mlp.down_proj.bias"},
    {NULL, NULL},
};

/* Where a folder may keep the decoder: alone, or inside a model with other parts. */
static const char *const hf_prefixes[] = {"model.", "language_model.model.",
                                          "model.language_model.", ""};

const char *iso_weight_hf_prefix(size_t index) {
  return index < sizeof hf_prefixes / sizeof hf_prefixes[0] ? hf_prefixes[index] : NULL;
}

/* If `name` matches a pattern with "%d" in place of a number, yields the number. */
static bool match_pattern(const char *pattern, const char *name, int *out_layer) {
  const char *mark = strstr(pattern, "%d");
  if (!mark)
    return strcmp(pattern, name) == 0;
  size_t before = (size_t)(mark - pattern);
  if (strncmp(pattern, name, before) != 0)
    return false;
  char *end;
  long layer = strtol(name + before, &end, 10);
  *out_layer = (int)layer;
  return end != name + before && strcmp(end, mark + 2) == 0;
}

static const char *hf_pattern(const iso_weight_name *names, const char *name, int *out_layer) {
  for (; names && names->name; names++)
    if (match_pattern(names->name, name, out_layer))
      return names->hf_name;
  return NULL;
}

bool iso_weight_hf_name(const iso_architecture *architecture, const char *name, char *out_name,
                        size_t capacity) {
  int layer = 0;
  const char *pattern = hf_pattern(architecture->hf_names, name, &layer);
  if (!pattern)
    pattern = hf_pattern(common_names, name, &layer);
  if (!pattern)
    return false;
  const char *mark = strstr(pattern, "%d");
  if (mark)
    snprintf(out_name, capacity, "%.*s%d%s", (int)(mark - pattern), pattern, layer, mark + 2);
  else
    snprintf(out_name, capacity, "%s", pattern);
  return true;
}

/* A tensor by its full name, as it was before quantization. */
static const iso_file_tensor *find_full_name(const iso_model *model, const char *name) {
  const iso_file_tensor *tensor = iso_quantized_find(&model->quantized, name);
  return tensor ? tensor : iso_safetensors_find_tensor(model->folder->weights, name);
}

static const iso_file_tensor *find_in_folder(const iso_model *model, const char *name) {
  if (strcmp(name, "output.weight") == 0) {
    const iso_file_tensor *head = find_full_name(model, "lm_head.weight");
    return head ? head : find_full_name(model, "language_model.lm_head.weight");
  }
  char bare[128], full[192];
  if (!iso_weight_hf_name(model->architecture, name, bare, sizeof bare))
    return NULL;
  for (size_t i = 0; iso_weight_hf_prefix(i); i++) {
    snprintf(full, sizeof full, "%s%s", iso_weight_hf_prefix(i), bare);
    const iso_file_tensor *tensor = find_full_name(model, full);
    if (tensor)
      return tensor;
  }
  return NULL;
}

const iso_file_tensor *iso_model_find_tensor(const iso_model *model, const char *name) {
  return model->gguf ? iso_gguf_find_tensor(model->gguf, name) : find_in_folder(model, name);
}

uint64_t iso_model_file_tensor_count(const iso_model *model) {
  return model->gguf ? iso_gguf_tensor_count(model->gguf)
                     : iso_safetensors_tensor_count(model->folder->weights);
}

const iso_file_tensor *iso_model_file_tensor(const iso_model *model, uint64_t index) {
  return model->gguf ? iso_gguf_tensor_at(model->gguf, index)
                     : iso_safetensors_tensor_at(model->folder->weights, index);
}

iso_status iso_model_list_tensors(iso_model *model) {
  uint64_t count = iso_model_file_tensor_count(model);
  model->tensors = calloc(count + model->quantized.count + 1, sizeof *model->tensors);
  if (!model->tensors)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a list of %llu tensors",
                    (unsigned long long)count);
  for (uint64_t i = 0; i < count; i++) {
    const iso_file_tensor *tensor = iso_model_file_tensor(model, i);
    if (!iso_quantized_has_part(&model->quantized, tensor->name))
      model->tensors[model->n_tensors++] = tensor;
  }
  for (uint64_t i = 0; i < model->quantized.count; i++)
    model->tensors[model->n_tensors++] = &model->quantized.tensors[i].tensor;
  return ISO_OK;
}

iso_status iso_model_load_parameters(iso_model *model) {
  uint64_t count = iso_model_file_tensor_count(model);
  model->parameters = calloc(count ? count : 1, sizeof *model->parameters);
  if (!model->parameters)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %llu tensor records",
                    (unsigned long long)count);
  for (uint64_t i = 0; i < count; i++) {
    const iso_file_tensor *tensor = iso_model_file_tensor(model, i);
    if (tensor->n_dims != 1 || tensor->scheme >= ISO_SCHEME_COUNT)
      continue;
    float *values = malloc((size_t)tensor->dims[0] * sizeof *values);
    if (!values)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for tensor %s", tensor->name);
    iso_scheme_decode_row(tensor->scheme, tensor->data, values, tensor->dims[0]);
    model->parameters[model->n_parameters++] = (iso_model_parameter){tensor, values};
  }
  return ISO_OK;
}

/* What a weight provider carries: the model, its rotary tables for one context length, the
 * quantized tensors that are in use, repacked, and the adapters with the weight of theirs that is
 * in use. */
typedef struct provider {
  const iso_model *model;
  float *tables[2]; /* global, local */
  void **repacked;  /* one a quantized tensor, NULL when not in use */
  const iso_adapter *const *adapters;
  int32_t n_adapters;
  float *adapted;
} provider;

static void serve_vector(iso_host_weight *out, const float *values, int64_t length) {
  *out = (iso_host_weight){.size = sizeof *out,
                           .scheme = ISO_SCHEME_F32,
                           .n_dims = 1,
                           .dims = {length},
                           .data = values,
                           .bytes = (uint64_t)length * sizeof *values};
}

static iso_status repack(provider *self, const iso_quantized_tensor *quantized,
                         const void **out_data) {
  void **slot = &self->repacked[quantized - self->model->quantized.tensors];
  if (!*slot) {
    *slot = malloc((size_t)quantized->tensor.bytes);
    if (!*slot)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to repack %s", quantized->tensor.name);
    iso_quantized_repack(quantized, *slot);
  }
  *out_data = *slot;
  return ISO_OK;
}

static iso_status get(void *context, const char *name, iso_host_weight *out_weight,
                      bool *out_stays) {
  provider *self = context;
  const iso_model *model = self->model;
  *out_stays = false;
  if (strcmp(name, ISO_ROPE_TABLE) == 0 || strcmp(name, ISO_ROPE_LOCAL_TABLE) == 0) {
    bool local = strcmp(name, ISO_ROPE_LOCAL_TABLE) == 0;
    const iso_rope_config *rope = local ? &model->config.local_rope : &model->config.rope;
    serve_vector(out_weight, self->tables[local], rope->rotary_dim / 2);
    return ISO_OK;
  }
  bool is_of_adapters;
  free(self->adapted);
  self->adapted = NULL;
  ISO_TRY(iso_adapters_weight(self->adapters, self->n_adapters, name, out_weight, &self->adapted,
                              &is_of_adapters));
  if (is_of_adapters)
    return ISO_OK;
  const iso_file_tensor *tensor = iso_model_find_tensor(model, name);
  if (!tensor)
    return iso_fail(ISO_ERROR_NOT_FOUND, "the model has no tensor %s", name);
  *out_stays = true;
  for (uint32_t i = 0; i < model->n_parameters; i++)
    if (model->parameters[i].tensor == tensor) {
      serve_vector(out_weight, model->parameters[i].values, tensor->dims[0]);
      return ISO_OK;
    }
  *out_weight = (iso_host_weight){.size = sizeof *out_weight,
                                  .scheme = tensor->scheme,
                                  .n_dims = (uint32_t)tensor->n_dims,
                                  .data = tensor->data,
                                  .bytes = tensor->bytes};
  memcpy(out_weight->dims, tensor->dims, sizeof out_weight->dims);
  const iso_quantized_tensor *quantized = iso_quantized_of(&model->quantized, tensor);
  *out_stays = !quantized;
  return quantized ? repack(self, quantized, &out_weight->data) : ISO_OK;
}

/* Once packed, a weight's pages of the file need not stay resident. */
static void done(void *context, const char *name) {
  const provider *self = context;
  const iso_file_tensor *tensor = iso_model_find_tensor(self->model, name);
  if (!tensor || tensor->n_dims == 1)
    return;
  const iso_quantized_tensor *quantized = iso_quantized_of(&self->model->quantized, tensor);
  if (quantized) {
    void **slot = &self->repacked[quantized - self->model->quantized.tensors];
    free(*slot);
    *slot = NULL;
    tensor = quantized->codes.tensor;
  }
  const iso_file_map *map = self->model->gguf
                                ? iso_gguf_shard_map(self->model->gguf, tensor->shard)
                                : iso_safetensors_shard_map(
                                      self->model->folder->weights, tensor->shard);
  if (map)
    iso_file_map_advise(map, tensor->offset, tensor->bytes, ISO_FILE_DONT_NEED);
}

iso_status iso_rope_table_create(const iso_rope_config *rope, int32_t context, float **out_table,
                                 float *out_magnitude) {
  float *table = calloc((size_t)rope->rotary_dim / 2 + 1, sizeof *table);
  if (!table)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a rotary table");
  iso_status status = iso_rope_frequencies(rope, context, table, out_magnitude);
  if (status != ISO_OK) {
    free(table);
    return status;
  }
  for (int32_t i = 0; rope->frequency_factors && i < rope->rotary_dim / 2; i++)
    table[i] /= rope->frequency_factors[i];
  *out_table = table;
  return ISO_OK;
}

iso_status iso_model_weights(const iso_model *model, const iso_model_graph_options *options,
                             iso_weight_provider *out_provider) {
  provider *self = calloc(1, sizeof *self);
  if (!self)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a weight provider");
  self->model = model;
  self->adapters = options->adapters;
  self->n_adapters = options->n_adapters;
  self->repacked = calloc(model->quantized.count + 1, sizeof *self->repacked);
  if (!self->repacked) {
    free(self);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a weight provider");
  }
  *out_provider = (iso_weight_provider){.context = self, .get = get, .done = done};
  float magnitude;
  iso_status status = iso_rope_table_create(&model->config.rope, options->max_context,
                                            &self->tables[0], &magnitude);
  if (status == ISO_OK && model->config.local_rope.theta != 0.0f)
    status = iso_rope_table_create(&model->config.local_rope, options->max_context,
                                   &self->tables[1], &magnitude);
  if (status != ISO_OK)
    iso_model_weights_release(out_provider);
  return status;
}

void iso_model_weights_release(iso_weight_provider *out_provider) {
  provider *self = out_provider->context;
  if (!self)
    return;
  free(self->tables[0]);
  free(self->tables[1]);
  for (uint64_t i = 0; i < self->model->quantized.count; i++)
    free(self->repacked[i]);
  free(self->repacked);
  free(self->adapted);
  free(self);
  *out_provider = (iso_weight_provider){0};
}
