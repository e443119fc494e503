/* Hyperparameters of a GGUF file: keys "<architecture>.<name>" (ggml/docs/gguf.md). */
#include "models/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest key: an architecture's name (31) and a suffix of this file. */
enum { KEY_BYTES = 128 };

static void make_key(const iso_model *model, const char *suffix, char *out_key) {
  snprintf(out_key, KEY_BYTES, "%s.%s", model->architecture->name, suffix);
}

/* A row of the tables below; `required` ones must be in the file. */
typedef struct int_key {
  const char *suffix;
  size_t offset; /* in iso_model_config */
  int64_t min, max;
  bool required;
} int_key;

#define CONFIG(field) offsetof(iso_model_config, field)
static const int_key int_keys[] = {
    {"block_count", CONFIG(n_layers), 1, ISO_MAX_LAYERS, true},
    {"embedding_length", CONFIG(hidden_size), 1, 1 << 20, true},
    {"feed_forward_length", CONFIG(intermediate_size), 1, 1 << 24, true},
    {"attention.head_count", CONFIG(n_heads), 1, 1 << 14, true},
    {"attention.head_count_kv", CONFIG(n_kv_heads), 1, 1 << 14, false},
    {"attention.key_length", CONFIG(head_dim), 1, 1 << 14, false},
    {"context_length", CONFIG(context_length), 1, INT32_MAX, true},
    {"attention.sliding_window", CONFIG(sliding_window), 0, INT32_MAX, false},
    {"rope.dimension_count", CONFIG(rope.rotary_dim), 2, 1 << 14, false},
    {"rope.scaling.original_context_length", CONFIG(rope.original_context), 1, INT32_MAX, false},
};

typedef struct float_key {
  const char *suffix;
  size_t offset;
  double min, max;
} float_key;

static const float_key float_keys[] = {
    {"attention.layer_norm_rms_epsilon", CONFIG(norm_epsilon), 0, 1},
    {"rope.freq_base", CONFIG(rope.theta), 1, 1e12},
    {"rope.scale_linear", CONFIG(rope.factor), 1e-6, 1e6}, /* before scaling.factor */
    {"rope.scaling.factor", CONFIG(rope.factor), 1e-6, 1e6},
    {"rope.scaling.attn_factor", CONFIG(rope.attention_factor), 0, 1e6},
    {"rope.scaling.yarn_beta_fast", CONFIG(rope.beta_fast), 0, 1e6},
    {"rope.scaling.yarn_beta_slow", CONFIG(rope.beta_slow), 0, 1e6},
    {"attn_logit_softcapping", CONFIG(attention_soft_cap), 0, 1e6},
    {"final_logit_softcapping", CONFIG(logit_soft_cap), 0, 1e6},
};

static iso_status read_numbers(iso_model *model) {
  char key[KEY_BYTES];
  for (size_t i = 0; i < sizeof int_keys / sizeof int_keys[0]; i++) {
    const int_key *row = &int_keys[i];
    int32_t *field = (int32_t *)((char *)&model->config + row->offset);
    int64_t value = *field;
    make_key(model, row->suffix, key);
    ISO_TRY(row->required ? iso_gguf_get_int(model->gguf, key, row->min, row->max, &value)
                          : iso_gguf_get_optional_int(model->gguf, key, row->min, row->max, &value));
    *field = (int32_t)value;
  }
  for (size_t i = 0; i < sizeof float_keys / sizeof float_keys[0]; i++) {
    const float_key *row = &float_keys[i];
    float *field = (float *)((char *)&model->config + row->offset);
    double value = (double)*field;
    make_key(model, row->suffix, key);
    ISO_TRY(iso_gguf_get_optional_float(model->gguf, key, row->min, row->max, &value));
    *field = (float)value;
  }
  return ISO_OK;
}

static iso_status read_scaling(iso_model *model) {
  static const struct {
    const char *name;
    iso_rope_scaling scaling;
  } methods[] = {{"none", ISO_ROPE_SCALING_NONE},
                 {"linear", ISO_ROPE_SCALING_LINEAR},
                 {"yarn", ISO_ROPE_SCALING_YARN},
                 {"longrope", ISO_ROPE_SCALING_LONGROPE}};
  char key[KEY_BYTES];
  make_key(model, "rope.scaling.type", key);
  iso_text_view name = {NULL, 0};
  ISO_TRY(iso_gguf_get_optional_string(model->gguf, key, &name));
  /* The first files name no method, as there was one: a factor by itself is linear. */
  if (!name.data && model->config.rope.factor != 1.0f)
    model->config.rope.scaling = ISO_ROPE_SCALING_LINEAR;
  if (!name.data)
    return ISO_OK;
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
    if (iso_text_view_equals(name, methods[i].name)) {
      model->config.rope.scaling = methods[i].scaling;
      return ISO_OK;
    }
  return iso_fail(ISO_ERROR_UNSUPPORTED, "%s is \"%.*s\"; known are none, linear, yarn, longrope",
                  key, (int)(name.length < 64 ? name.length : 64), name.data);
}

/* How llama.cpp bends a method further, which no method here does: refused unless it says no more
 * than what the method does anyway. A negative share of extrapolation stands for that, too. */
static iso_status check_bent_scaling(const iso_model *model) {
  static const struct {
    const char *suffix;
    double of_yarn, of_others;
  } keys[] = {{"rope.scaling.yarn_ext_factor", 1, 0},
              {"rope.scaling.yarn_attn_factor", 1, 1},
              {"rope.scaling.yarn_log_multiplier", 0, 0}};
  bool is_yarn = model->config.rope.scaling == ISO_ROPE_SCALING_YARN;
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    double wanted = is_yarn ? keys[i].of_yarn : keys[i].of_others, value = wanted;
    char key[KEY_BYTES];
    make_key(model, keys[i].suffix, key);
    ISO_TRY(iso_gguf_get_optional_float(model->gguf, key, -1e6, 1e6, &value));
    if (value != wanted && !(i == 0 && value < 0))
      return iso_fail(ISO_ERROR_UNSUPPORTED, "%s is %g; only %g is supported", key, value, wanted);
  }
  return ISO_OK;
}

/* Factors a pair that some files carry as tensors. */
static iso_status read_factors(iso_model *model, const char *name, float **out_owned) {
  const iso_file_tensor *tensor = iso_gguf_find_tensor(model->gguf, name);
  if (!tensor)
    return ISO_OK;
  int64_t pairs = model->config.rope.rotary_dim / 2;
  if (tensor->n_dims != 1 || tensor->dims[0] != pairs || tensor->scheme >= ISO_SCHEME_COUNT)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "tensor %s does not have one number for each of the "
                    "%lld rotary pairs", name, (long long)pairs);
  *out_owned = malloc((size_t)pairs * sizeof **out_owned);
  if (!*out_owned)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for tensor %s", name);
  iso_scheme_decode_row(tensor->scheme, tensor->data, *out_owned, pairs);
  for (int64_t i = 0; i < pairs; i++)
    if (!((*out_owned)[i] > 0.0f))
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "tensor %s holds a factor that is not positive", name);
  return ISO_OK;
}

static iso_status read_rope(iso_model *model) {
  iso_model_config *config = &model->config;
  if (config->rope.rotary_dim == 0)
    config->rope.rotary_dim = config->head_dim;
  ISO_TRY(read_scaling(model));
  ISO_TRY(check_bent_scaling(model));
  ISO_TRY(read_factors(model, "rope_freqs.weight", &model->frequency_factors));
  ISO_TRY(read_factors(model, "rope_factors_short.weight", &model->short_factors));
  ISO_TRY(read_factors(model, "rope_factors_long.weight", &model->long_factors));
  config->rope.frequency_factors = model->frequency_factors;
  config->rope.short_factors = model->short_factors;
  config->rope.long_factors = model->long_factors;
  if (model->short_factors && model->long_factors)
    config->rope.scaling = ISO_ROPE_SCALING_LONGROPE;
  if (config->rope.original_context == 0)
    config->rope.original_context = config->context_length;
  return ISO_OK;
}

/* Layers with the sliding window where they are not each but the architecture's n-th: another n (0:
 * all are), or a flag a layer; and the rotary base that they alone have. */
static iso_status read_windows(iso_model *model) {
  iso_model_config *config = &model->config;
  char key[KEY_BYTES];
  double theta = 0;
  make_key(model, "rope.freq_base_swa", key);
  ISO_TRY(iso_gguf_get_optional_float(model->gguf, key, 1, 1e12, &theta));
  if (theta != 0)
    config->local_rope =
        (iso_rope_config){.theta = (float)theta, .rotary_dim = config->rope.rotary_dim};
  make_key(model, "attention.sliding_window_pattern", key);
  const iso_gguf_value *value = iso_gguf_find(model->gguf, key);
  if (!value || config->sliding_window == 0)
    return ISO_OK;
  int64_t pattern = 0;
  if (!value->is_array) {
    ISO_TRY(iso_gguf_get_int(model->gguf, key, 0, ISO_MAX_LAYERS, &pattern));
    config->window_pattern = pattern ? (int32_t)pattern : config->n_layers + 1;
    return ISO_OK;
  }
  if (value->type != ISO_GGUF_BOOL)
    ISO_TRY(iso_gguf_get_int_array(model->gguf, key, &value));
  bool windowed[ISO_MAX_LAYERS] = {0};
  for (uint64_t i = 0; i < value->count && i < ISO_MAX_LAYERS; i++)
    windowed[i] = iso_gguf_value_int(value, i) != 0;
  int n = value->count < INT32_MAX ? (int)value->count : INT32_MAX;
  return iso_config_take_windows(config, key, windowed, n);
}

/* Of models that are made for embeddings. */
static iso_status read_pooling(iso_model *model) {
  static const iso_pooling types[] = {ISO_POOLING_MEAN, ISO_POOLING_MEAN, ISO_POOLING_OTHER,
                                      ISO_POOLING_LAST, ISO_POOLING_OTHER};
  char key[KEY_BYTES];
  bool causal = true;
  make_key(model, "attention.causal", key);
  ISO_TRY(iso_gguf_get_optional_bool(model->gguf, key, &causal));
  if (!causal)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "%s is false: attention to later tokens is not supported",
                    key);
  int64_t type = 0; /* none, mean, cls, last, rank */
  make_key(model, "pooling_type", key);
  ISO_TRY(iso_gguf_get_optional_int(model->gguf, key, 0, 4, &type));
  model->config.pooling = types[type];
  return ISO_OK;
}

static void copy_name(iso_model *model) {
  iso_text_view name = {"", 0};
  const iso_gguf_value *value = iso_gguf_find(model->gguf, "general.name");
  if (value && iso_gguf_get_string(model->gguf, "general.name", &name) != ISO_OK)
    name = (iso_text_view){"", 0};
  snprintf(model->config.name, sizeof model->config.name, "%.*s",
           (int)(name.length < 127 ? name.length : 127), name.data);
}

/* What GGUF files hold beside models. */
static iso_status check_type(const iso_model *model) {
  static const struct {
    const char *type, *sentence;
  } others[] = {
      {"adapter", "a LoRA adapter; give the model that it is for, and this with --lora"},
      {"mmproj", "the part of a model that sees images, which is not supported; give the other part"},
      {"imatrix", "an importance matrix; give the model that it was made for"},
  };
  iso_text_view type = {"", 0};
  ISO_TRY(iso_gguf_get_optional_string(model->gguf, "general.type", &type));
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (iso_text_view_equals(type, others[i].type))
      return iso_fail(ISO_ERROR_UNSUPPORTED, "this is %s", others[i].sentence);
  return ISO_OK;
}

iso_status iso_config_read_gguf(iso_model *model) {
  iso_model_config *config = &model->config;
  iso_text_view name;
  ISO_TRY(check_type(model));
  ISO_TRY(iso_gguf_get_string(model->gguf, "general.architecture", &name));
  snprintf(config->architecture, sizeof config->architecture, "%.*s",
           (int)(name.length < 31 ? name.length : 31), name.data);
  model->architecture = iso_architecture_find(config->architecture);
  if (!model->architecture)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "architecture \"%s\" is not supported; known are: %s",
                    config->architecture, iso_architecture_names());
  copy_name(model);
  config->rope = (iso_rope_config){.theta = 10000.0f, .factor = 1.0f, .beta_fast = 32.0f,
                                   .beta_slow = 1.0f};
  config->norm_epsilon = 1e-5f;
  config->embedding_scale = 1.0f;
  ISO_TRY(read_numbers(model));
  if (config->n_kv_heads == 0)
    config->n_kv_heads = config->n_heads;
  if (config->head_dim == 0) {
    if (config->hidden_size % config->n_heads != 0)
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "embedding_length %d is not a multiple of %d heads",
                      config->hidden_size, config->n_heads);
    config->head_dim = config->hidden_size / config->n_heads;
  }
  ISO_TRY(read_rope(model));
  ISO_TRY(read_windows(model));
  ISO_TRY(read_pooling(model));
  const iso_file_tensor *table = iso_gguf_find_tensor(model->gguf, "token_embd.weight");
  if (!table || table->n_dims != 2)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "the model has no embedding table token_embd.weight");
  config->vocabulary_size = (int32_t)table->dims[0];
  config->tied_embeddings = iso_gguf_find_tensor(model->gguf, "output.weight") == NULL;
  config->attention_bias = iso_gguf_find_tensor(model->gguf, "blk.0.attn_q.bias") != NULL;
  ISO_TRY(model->architecture->configure(config, true));
  return iso_config_check(config);
}
