/* Hyperparameters of a Hugging Face folder: config.json as transformers writes it, versions 4
 * (rope_theta, rope_scaling) and 5 (rope_parameters). */
#include "models/model.h"

#include "core/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct int_key {
  const char *key;
  size_t offset;
  int64_t min, max;
  bool required;
} int_key;

#define CONFIG(field) offsetof(iso_model_config, field)
static const int_key int_keys[] = {
    {"num_hidden_layers", CONFIG(n_layers), 1, ISO_MAX_LAYERS, true},
    {"hidden_size", CONFIG(hidden_size), 1, 1 << 20, true},
    {"intermediate_size", CONFIG(intermediate_size), 1, 1 << 24, true},
    {"vocab_size", CONFIG(vocabulary_size), 1, INT32_MAX, true},
    {"num_attention_heads", CONFIG(n_heads), 1, 1 << 14, true},
    {"num_key_value_heads", CONFIG(n_kv_heads), 1, 1 << 14, false},
    {"head_dim", CONFIG(head_dim), 1, 1 << 14, false},
    {"max_position_embeddings", CONFIG(context_length), 1, INT32_MAX, true},
    {"sliding_window", CONFIG(sliding_window), 0, INT32_MAX, false},
};

typedef struct float_key {
  const char *key;
  size_t offset;
  double min, max;
} float_key;

static const float_key float_keys[] = {
    {"rms_norm_eps", CONFIG(norm_epsilon), 0, 1},
    {"attn_logit_softcapping", CONFIG(attention_soft_cap), 0, 1e6},
    {"final_logit_softcapping", CONFIG(logit_soft_cap), 0, 1e6},
};

static iso_status read_numbers(const cJSON *json, iso_model_config *config) {
  for (size_t i = 0; i < sizeof int_keys / sizeof int_keys[0]; i++) {
    const int_key *row = &int_keys[i];
    int32_t *field = (int32_t *)((char *)config + row->offset);
    int64_t value = *field;
    bool required = row->required && value == 0; /* not where the type has a default */
    ISO_TRY(required ? iso_json_get_int(json, row->key, row->min, row->max, &value)
                     : iso_json_get_optional_int(json, row->key, row->min, row->max, &value));
    *field = (int32_t)value;
  }
  for (size_t i = 0; i < sizeof float_keys / sizeof float_keys[0]; i++) {
    const float_key *row = &float_keys[i];
    float *field = (float *)((char *)config + row->offset);
    double value = (double)*field;
    ISO_TRY(iso_json_get_optional_float(json, row->key, row->min, row->max, &value));
    *field = (float)value;
  }
  return ISO_OK;
}

static iso_status read_activation(const cJSON *json, iso_model_config *config) {
  static const struct {
    const char *name;
    iso_activation activation;
  } names[] = {
      {"silu", ISO_ACTIVATION_SILU},          {"swish", ISO_ACTIVATION_SILU},
      {"gelu", ISO_ACTIVATION_GELU_ERF},      {"gelu_pytorch_tanh", ISO_ACTIVATION_GELU_TANH},
      {"gelu_new", ISO_ACTIVATION_GELU_TANH}, {"relu", ISO_ACTIVATION_RELU}};
  const char *name = "silu";
  ISO_TRY(iso_json_get_optional_string(json, "hidden_act", &name));
  ISO_TRY(iso_json_get_optional_string(json, "hidden_activation", &name));
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(name, names[i].name) == 0) {
      config->activation = names[i].activation;
      return ISO_OK;
    }
  return iso_fail(ISO_ERROR_UNSUPPORTED, "hidden_act \"%.64s\" is not supported", name);
}

static iso_status read_factors(const cJSON *json, const char *key, int32_t pairs,
                               float **out_owned) {
  const cJSON *array = NULL;
  ISO_TRY(iso_json_get_array(json, key, &array));
  if (cJSON_GetArraySize(array) != pairs)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "%s has %d factors for %d rotary pairs", key,
                    cJSON_GetArraySize(array), pairs);
  free(*out_owned);
  *out_owned = malloc((size_t)pairs * sizeof **out_owned);
  if (!*out_owned)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %s", key);
  int32_t i = 0;
  const cJSON *item;
  cJSON_ArrayForEach(item, array) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble > 0))
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "%s holds a factor that is not a positive number",
                      key);
    (*out_owned)[i++] = (float)item->valuedouble;
  }
  return ISO_OK;
}

static iso_status read_scaling_type(const cJSON *json, iso_rope_scaling *out_scaling) {
  static const struct {
    const char *name;
    iso_rope_scaling scaling;
  } methods[] = {{"default", ISO_ROPE_SCALING_NONE},        {"linear", ISO_ROPE_SCALING_LINEAR},
                 {"dynamic", ISO_ROPE_SCALING_DYNAMIC_NTK}, {"llama3", ISO_ROPE_SCALING_LLAMA3},
                 {"yarn", ISO_ROPE_SCALING_YARN},           {"longrope", ISO_ROPE_SCALING_LONGROPE},
                 {"su", ISO_ROPE_SCALING_LONGROPE}};
  const char *name = "default";
  ISO_TRY(iso_json_get_optional_string(json, "type", &name));
  ISO_TRY(iso_json_get_optional_string(json, "rope_type", &name));
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
    if (strcmp(name, methods[i].name) == 0) {
      *out_scaling = methods[i].scaling;
      return ISO_OK;
    }
  return iso_fail(ISO_ERROR_UNSUPPORTED, "rope scaling \"%.64s\" is not supported", name);
}

/* One rope description: rope_scaling of version 4, or (a member of) rope_parameters of 5. */
static iso_status read_rope(iso_model *model, const cJSON *json, iso_rope_config *rope) {
  static const struct {
    const char *key;
    size_t offset;
  } floats[] = {{"rope_theta", offsetof(iso_rope_config, theta)},
                {"factor", offsetof(iso_rope_config, factor)},
                {"low_freq_factor", offsetof(iso_rope_config, low_frequency_factor)},
                {"high_freq_factor", offsetof(iso_rope_config, high_frequency_factor)},
                {"beta_fast", offsetof(iso_rope_config, beta_fast)},
                {"beta_slow", offsetof(iso_rope_config, beta_slow)},
                {"attention_factor", offsetof(iso_rope_config, attention_factor)},
                {"mscale", offsetof(iso_rope_config, mscale)},
                {"mscale_all_dim", offsetof(iso_rope_config, mscale_all_dim)}};
  for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
    float *field = (float *)((char *)rope + floats[i].offset);
    double value = (double)*field;
    ISO_TRY(iso_json_get_optional_float(json, floats[i].key, 0, 1e12, &value));
    *field = (float)value;
  }
  int64_t original = rope->original_context;
  ISO_TRY(
      iso_json_get_optional_int(json, "original_max_position_embeddings", 1, INT32_MAX, &original));
  rope->original_context = (int32_t)original;
  double partial = 1;
  ISO_TRY(iso_json_get_optional_float(json, "partial_rotary_factor", 0, 1, &partial));
  if (partial != 1)
    rope->rotary_dim = (int32_t)(model->config.head_dim * partial);
  ISO_TRY(read_scaling_type(json, &rope->scaling));
  /* transformers takes the longest position for it, whatever the file says beside. */
  if (rope->scaling == ISO_ROPE_SCALING_DYNAMIC_NTK)
    rope->original_context = model->config.context_length;
  bool truncate = true; /* the ramp's ends to whole pairs */
  ISO_TRY(iso_json_get_optional_bool(json, "truncate", &truncate));
  if (rope->scaling == ISO_ROPE_SCALING_YARN && !truncate)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "rope scaling yarn with truncate false is not supported");
  if (rope->scaling != ISO_ROPE_SCALING_LONGROPE)
    return ISO_OK;
  /* Published files leave the factor to the two context lengths. */
  if (rope->factor == 0.0f)
    rope->factor = (float)model->config.context_length / (float)rope->original_context;
  ISO_TRY(read_factors(json, "short_factor", rope->rotary_dim / 2, &model->short_factors));
  ISO_TRY(read_factors(json, "long_factor", rope->rotary_dim / 2, &model->long_factors));
  rope->short_factors = model->short_factors;
  rope->long_factors = model->long_factors;
  return ISO_OK;
}

static iso_status read_ropes(iso_model *model, const cJSON *json) {
  iso_model_config *config = &model->config;
  int64_t original = config->context_length;
  double partial = 1;
  ISO_TRY(
      iso_json_get_optional_int(json, "original_max_position_embeddings", 1, INT32_MAX, &original));
  ISO_TRY(iso_json_get_optional_float(json, "partial_rotary_factor", 0, 1, &partial));
  iso_rope_config rope = {.beta_fast = 32.0f,
                          .beta_slow = 1.0f,
                          .rotary_dim = (int32_t)(config->head_dim * partial),
                          .original_context = (int32_t)original};
  double theta = config->rope.theta != 0.0f ? (double)config->rope.theta : 10000;
  ISO_TRY(iso_json_get_optional_float(json, "rope_theta", 1, 1e12, &theta));
  rope.theta = (float)theta;
  config->rope = rope;
  double local_theta = 0;
  ISO_TRY(iso_json_get_optional_float(json, "rope_local_base_freq", 1, 1e12, &local_theta));
  if (local_theta != 0) {
    config->local_rope = rope;
    config->local_rope.theta = (float)local_theta;
  }
  const cJSON *scaling = NULL, *parameters = NULL, *part = NULL;
  ISO_TRY(iso_json_get_optional_object(json, "rope_scaling", &scaling));
  ISO_TRY(iso_json_get_optional_object(json, "rope_parameters", &parameters));
  if (!parameters)
    return scaling ? read_rope(model, scaling, &config->rope) : ISO_OK;
  ISO_TRY(iso_json_get_optional_object(parameters, "full_attention", &part));
  if (!part)
    return read_rope(model, parameters, &config->rope);
  ISO_TRY(read_rope(model, part, &config->rope));
  ISO_TRY(iso_json_get_object(parameters, "sliding_attention", &part));
  config->local_rope = rope;
  return read_rope(model, part, &config->local_rope);
}

static iso_status read_layer_types(const cJSON *json, iso_window_rule rule,
                                   iso_model_config *config) {
  bool use_window = rule == ISO_WINDOW_UNLESS_REFUSED;
  ISO_TRY(iso_json_get_optional_bool(json, "use_sliding_window", &use_window));
  if (!use_window || rule == ISO_WINDOW_NEVER)
    config->sliding_window = 0;
  int64_t pattern = 0;
  ISO_TRY(iso_json_get_optional_int(json, "sliding_window_pattern", 1, ISO_MAX_LAYERS, &pattern));
  config->window_pattern = (int32_t)pattern;
  const cJSON *types = NULL;
  ISO_TRY(iso_json_get_optional_array(json, "layer_types", &types));
  if (!types || config->sliding_window == 0)
    return ISO_OK;
  bool windowed[ISO_MAX_LAYERS] = {0};
  int n = 0;
  const cJSON *type;
  cJSON_ArrayForEach(type, types) {
    const char *name = cJSON_IsString(type) ? type->valuestring : "";
    bool is_local = strcmp(name, "sliding_attention") == 0;
    if (!is_local && strcmp(name, "full_attention") != 0)
      return iso_fail(
          ISO_ERROR_UNSUPPORTED,
          "layer_types has \"%.64s\"; sliding_attention and full_attention are supported", name);
    if (n < ISO_MAX_LAYERS)
      windowed[n] = is_local;
    n++;
  }
  return iso_config_take_windows(config, "layer_types", windowed, n);
}

/* Models with more than text keep the decoder's part apart. */
static iso_status find_decoder(const cJSON *root, const cJSON **out_json) {
  *out_json = NULL;
  ISO_TRY(iso_json_get_optional_object(root, "text_config", out_json));
  if (!*out_json)
    *out_json = root;
  return ISO_OK;
}

static iso_status check_causal(const cJSON *json) {
  bool bidirectional = false, causal = true;
  ISO_TRY(iso_json_get_optional_bool(json, "use_bidirectional_attention", &bidirectional));
  ISO_TRY(iso_json_get_optional_bool(json, "is_causal", &causal));
  return causal && !bidirectional
             ? ISO_OK
             : iso_fail(ISO_ERROR_UNSUPPORTED, "%s: attention to later tokens is not supported",
                        causal ? "use_bidirectional_attention" : "is_causal false");
}

static iso_pooling pooling_of(const char *mode) {
  return strcmp(mode, "mean") == 0        ? ISO_POOLING_MEAN
         : strcmp(mode, "lasttoken") == 0 ? ISO_POOLING_LAST
                                          : ISO_POOLING_OTHER;
}

/* Of models that are made for embeddings, a module of sentence-transformers: "pooling_mode", one
 * name or a list of those whose results are joined; before it a flag each, of which none is the
 * mean. */
static iso_status read_pooling(const cJSON *json, iso_pooling *out_pooling) {
  static const struct {
    const char *flag, *mode;
  } flags[] = {{"pooling_mode_cls_token", "cls"},
               {"pooling_mode_max_tokens", "max"},
               {"pooling_mode_mean_tokens", "mean"},
               {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
               {"pooling_mode_weightedmean_tokens", "weightedmean"},
               {"pooling_mode_lasttoken", "lasttoken"}};
  *out_pooling = ISO_POOLING_MEAN;
  const cJSON *mode = cJSON_GetObjectItemCaseSensitive(json, "pooling_mode");
  if (cJSON_IsArray(mode) && cJSON_GetArraySize(mode) == 1)
    mode = mode->child;
  if (mode) {
    *out_pooling = cJSON_IsString(mode) ? pooling_of(mode->valuestring) : ISO_POOLING_OTHER;
    return ISO_OK;
  }
  int n_modes = 0;
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
    bool is_set = false;
    ISO_TRY(iso_json_get_optional_bool(json, flags[i].flag, &is_set));
    if (is_set)
      *out_pooling = n_modes++ > 0 ? ISO_POOLING_OTHER : pooling_of(flags[i].mode);
  }
  return ISO_OK;
}

/* Whether the embeddings are nothing but pooled rows of length 1: else a module of its own, such as
 * Dense, comes behind these. */
static bool is_pooled_alone(const cJSON *modules) {
  static const char *const known[] = {"Transformer", "Pooling", "Normalize", "Dropout"};
  const cJSON *module;
  cJSON_ArrayForEach(module, modules) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(module, "type");
    const char *name = cJSON_IsString(type) ? type->valuestring : "";
    const char *dot = strrchr(name, '.');
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
      found |= strcmp(dot ? dot + 1 : name, known[i]) == 0;
    if (!found)
      return false;
  }
  return true;
}

static iso_status read_config(iso_model *model, const cJSON *root) {
  iso_model_config *config = &model->config;
  const char *type;
  ISO_TRY(iso_json_get_string(root, "model_type", &type));
  const iso_hf_type *hf_type = NULL;
  model->architecture = iso_architecture_find_hf(type, &hf_type);
  if (!model->architecture)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "model_type \"%.64s\" is not supported; known are: %s",
                    type, iso_architecture_names());
  if (hf_type->defaults)
    *config = *hf_type->defaults;
  snprintf(config->architecture, sizeof config->architecture, "%s", model->architecture->name);
  const char *name = "";
  ISO_TRY(iso_json_get_optional_string(root, "_name_or_path", &name));
  snprintf(config->name, sizeof config->name, "%s", name);
  const cJSON *json = NULL;
  ISO_TRY(find_decoder(root, &json));
  ISO_TRY(check_causal(json));
  config->norm_epsilon = 1e-6f;
  config->embedding_scale = 1.0f;
  ISO_TRY(read_numbers(json, config));
  if (config->n_kv_heads == 0)
    config->n_kv_heads = config->n_heads;
  if (config->head_dim == 0)
    config->head_dim = config->hidden_size / config->n_heads;
  if (config->head_dim == 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "hidden_size %d is smaller than %d heads",
                    config->hidden_size, config->n_heads);
  double scalar = 0;
  ISO_TRY(iso_json_get_optional_float(json, "query_pre_attn_scalar", 1e-6, 1e9, &scalar));
  if (scalar != 0)
    config->attention_scale = (float)(1 / sqrt(scalar));
  ISO_TRY(read_activation(json, config));
  ISO_TRY(read_layer_types(json, hf_type->window, config));
  return read_ropes(model, json);
}

static iso_status check_tie(const cJSON *root) {
  const cJSON *json = NULL;
  ISO_TRY(find_decoder(root, &json));
  bool tied = true;
  ISO_TRY(iso_json_get_optional_bool(json, "tie_word_embeddings", &tied));
  return tied ? ISO_OK
              : iso_fail(ISO_ERROR_CORRUPT_DATA,
                         "the model has no lm_head.weight, and config.json says by "
                         "tie_word_embeddings that embed_tokens.weight does not stand for it");
}

iso_status iso_config_read_hf(iso_model *model) {
  iso_model_config *config = &model->config;
  iso_status status = read_config(model, model->folder->config);
  if (status != ISO_OK)
    return iso_fail_context(status, "config.json");
  ISO_TRY(iso_fail_context(read_pooling(model->folder->pooling_config, &config->pooling),
                           "1_Pooling/config.json"));
  if (!is_pooled_alone(model->folder->modules))
    config->pooling = ISO_POOLING_OTHER;
  const iso_file_tensor *table = iso_model_find_tensor(model, "token_embd.weight");
  if (!table || table->n_dims != 2)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "the model has no embedding table embed_tokens.weight");
  /* Some configurations count fewer ids than the table has rows. */
  config->vocabulary_size = (int32_t)table->dims[0];
  config->tied_embeddings = iso_model_find_tensor(model, "output.weight") == NULL;
  if (config->tied_embeddings)
    ISO_TRY(check_tie(model->folder->config));
  config->attention_bias = iso_model_find_tensor(model, "blk.0.attn_q.bias") != NULL;
  ISO_TRY(model->architecture->configure(config, false));
  return iso_config_check(config);
}
