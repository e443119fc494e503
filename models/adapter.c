/* LoRA adapters (arXiv:2106.09685): y = W x + scale * B (A x), from a Hugging Face PEFT folder
 * (adapter_config.json, adapter_model.safetensors) or a GGUF file of type "adapter"
 * (ggml/docs/gguf.md, llama.cpp's convert_lora_to_gguf.py). Every tensor of the file must belong to
 * a matrix of the model that can have one. */
#include "models/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
  MAX_RANK = 1024,
  RANK_MULTIPLE = 8, /* so that rows are whole vectors */
  MAX_CONFIG_BYTES = 1 << 20,
  MAX_CONFIG_DEPTH = 16
};

/* Matrices of a layer that can have an adapter. */
static const char *const bases[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                    "ffn_gate", "ffn_up", "ffn_down"};
enum { N_BASES = sizeof bases / sizeof bases[0] };

/* One adapted matrix [out, in]. */
typedef struct adapter_module {
  char name[64];                /* of the matrix, GGUF's spelling */
  const iso_file_tensor *a, *b; /* [rank, in], [out, rank] */
  float scale;
} adapter_module;

/* How the rows of q and k in a file lie to those of the model, whose rotary pairs may be apart or
 * next to each other. */
typedef enum row_order { ORDER_SAME, ORDER_PAIRS_JOIN, ORDER_PAIRS_PART } row_order;

struct iso_adapter {
  const iso_model *model;
  iso_gguf *gguf; /* one of these two is set */
  iso_safetensors *tensors;
  row_order order;
  adapter_module *modules;
  uint32_t n_modules;
};

/* What a reader knows of a file beside its tensors. */
typedef struct adapter_facts {
  int64_t rank; /* 0: each tensor's own */
  double alpha; /* 0: the scale is 1 */
  bool is_rank_stabilized;
} adapter_facts;

/* ---- Modules ------------------------------------------------------------------------------- */

static const iso_file_tensor *find(const iso_adapter *adapter, const char *name) {
  return adapter->gguf ? iso_gguf_find_tensor(adapter->gguf, name)
                       : iso_safetensors_find_tensor(adapter->tensors, name);
}

/* A tensor of a matrix: `part` is 'A' or 'B'. */
static const iso_file_tensor *find_part(const iso_adapter *adapter, const char *matrix, char part) {
  char bare[128], name[256];
  if (adapter->gguf) {
    snprintf(name, sizeof name, "%s.lora_%c", matrix, part == 'A' ? 'a' : 'b');
    return find(adapter, name);
  }
  if (!iso_weight_hf_name(adapter->model->architecture, matrix, bare, sizeof bare))
    return NULL;
  const char *end = strrchr(bare, '.'); /* ".weight" */
  for (size_t i = 0; iso_weight_hf_prefix(i); i++) {
    snprintf(name, sizeof name, "base_model.model.%s%.*s.lora_%c.weight", iso_weight_hf_prefix(i),
             (int)(end - bare), bare, part);
    const iso_file_tensor *tensor = find(adapter, name);
    if (tensor)
      return tensor;
  }
  return NULL;
}

static iso_status check_shape(const iso_file_tensor *tensor, int64_t rows, int64_t columns) {
  if (tensor->n_dims == 2 && tensor->dims[0] == rows && tensor->dims[1] == columns)
    return ISO_OK;
  return iso_fail(ISO_ERROR_CORRUPT_DATA,
                  "tensor %s is [%lld, %lld] in %d dimensions; this model and rank ask for "
                  "[%lld, %lld]",
                  tensor->name, (long long)tensor->dims[0], (long long)tensor->dims[1],
                  tensor->n_dims, (long long)rows, (long long)columns);
}

static iso_status check_module(const adapter_module *module, const adapter_facts *facts,
                               const iso_file_tensor *matrix) {
  const iso_file_tensor *const parts[] = {module->a, module->b};
  if (!module->a || !module->b)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "%s has an adapter's %s without its %s", module->name,
                    module->a ? "A" : "B", module->a ? "B" : "A");
  for (int i = 0; i < 2; i++)
    if (parts[i]->scheme >= ISO_SCHEME_COUNT)
      return iso_fail(ISO_ERROR_UNSUPPORTED, "tensor %s is stored as %s, which is not supported",
                      parts[i]->name, parts[i]->type_name);
  int64_t rank = facts->rank > 0 ? facts->rank : module->a->dims[0];
  if (rank > MAX_RANK)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "tensor %s has a rank of %lld; at most %d is supported",
                    module->a->name, (long long)rank, MAX_RANK);
  ISO_TRY(check_shape(module->a, rank, matrix->dims[1]));
  return check_shape(module->b, matrix->dims[0], rank);
}

static iso_status add_module(iso_adapter *adapter, const adapter_facts *facts, const char *name) {
  adapter_module *module = &adapter->modules[adapter->n_modules];
  const iso_file_tensor *matrix = iso_model_find_tensor(adapter->model, name);
  if (!matrix)
    return ISO_OK;
  snprintf(module->name, sizeof module->name, "%s", name);
  module->a = find_part(adapter, name, 'A');
  module->b = find_part(adapter, name, 'B');
  if (!module->a && !module->b)
    return ISO_OK;
  ISO_TRY(check_module(module, facts, matrix));
  double rank = (double)module->a->dims[0];
  double divisor = facts->is_rank_stabilized ? sqrt(rank) : rank;
  module->scale = facts->alpha != 0 ? (float)(facts->alpha / divisor) : 1.0f;
  adapter->n_modules++;
  return ISO_OK;
}

static bool has_tensor(const iso_adapter *adapter, const iso_file_tensor *tensor) {
  for (uint32_t i = 0; i < adapter->n_modules; i++)
    if (adapter->modules[i].a == tensor || adapter->modules[i].b == tensor)
      return true;
  return false;
}

/* Every tensor is one of a module's two. */
static iso_status check_all_used(const iso_adapter *adapter) {
  uint64_t count = adapter->gguf ? iso_gguf_tensor_count(adapter->gguf)
                                 : iso_safetensors_tensor_count(adapter->tensors);
  if (count == 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "the adapter has no tensors");
  for (uint64_t i = 0; count != 2 * (uint64_t)adapter->n_modules && i < count; i++) {
    const iso_file_tensor *tensor = adapter->gguf ? iso_gguf_tensor_at(adapter->gguf, i)
                                                  : iso_safetensors_tensor_at(adapter->tensors, i);
    if (!has_tensor(adapter, tensor))
      return iso_fail(ISO_ERROR_UNSUPPORTED,
                      "tensor %s belongs to no matrix of this model that can have an adapter: the "
                      "q, k, v and output projections of attention and the gate, up and down "
                      "projections of the MLP can",
                      tensor->name);
  }
  return ISO_OK;
}

static iso_status read_modules(iso_adapter *adapter, const adapter_facts *facts) {
  int32_t n_layers = adapter->model->config.n_layers;
  adapter->modules = calloc((size_t)n_layers * N_BASES, sizeof *adapter->modules);
  if (!adapter->modules)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for an adapter's list of matrices");
  for (int32_t layer = 0; layer < n_layers; layer++)
    for (size_t i = 0; i < N_BASES; i++) {
      char name[64];
      snprintf(name, sizeof name, "blk.%d.%s.weight", layer, bases[i]);
      ISO_TRY(add_module(adapter, facts, name));
    }
  return check_all_used(adapter);
}

/* Whether files of this kind hold q and k with the pairs that rotate next to each other. */
static iso_status joins_pairs(const iso_model *model, bool is_gguf, bool *out_joins) {
  iso_model_config config = model->config;
  config.rope.interleaved = false;
  ISO_TRY(model->architecture->configure(&config, is_gguf));
  *out_joins = config.rope.interleaved;
  return ISO_OK;
}

static iso_status find_order(iso_adapter *adapter) {
  bool joins;
  ISO_TRY(joins_pairs(adapter->model, adapter->gguf != NULL, &joins));
  if (joins != adapter->model->config.rope.interleaved)
    adapter->order = joins ? ORDER_PAIRS_PART : ORDER_PAIRS_JOIN;
  return ISO_OK;
}

/* ---- GGUF ---------------------------------------------------------------------------------- */

/* A string of the metadata that must have this value. */
static iso_status need_text(const iso_gguf *gguf, const char *key, const char *wanted) {
  iso_text_view text;
  ISO_TRY(iso_gguf_get_string(gguf, key, &text));
  if (text.length == strlen(wanted) && memcmp(text.data, wanted, text.length) == 0)
    return ISO_OK;
  return iso_fail(ISO_ERROR_UNSUPPORTED, "%s is \"%.*s\"; in an adapter of this model it is \"%s\"",
                  key, (int)(text.length < 64 ? text.length : 64), text.data, wanted);
}

static iso_status open_gguf(const char *path, iso_adapter *adapter) {
  adapter_facts facts = {0};
  ISO_TRY(iso_gguf_open(path, &adapter->gguf));
  ISO_TRY(need_text(adapter->gguf, "general.type", "adapter"));
  ISO_TRY(need_text(adapter->gguf, "adapter.type", "lora"));
  ISO_TRY(need_text(adapter->gguf, "general.architecture", adapter->model->architecture->name));
  ISO_TRY(iso_gguf_get_float(adapter->gguf, "adapter.lora.alpha", -1e6, 1e6, &facts.alpha));
  static const char *const activated = "adapter.alora.invocation_tokens"; /* only behind these */
  if (iso_gguf_find(adapter->gguf, activated))
    return iso_fail(ISO_ERROR_UNSUPPORTED, "adapters with %s are not supported", activated);
  return read_modules(adapter, &facts);
}

/* ---- PEFT ---------------------------------------------------------------------------------- */

/* Anything but absent, null, false, and an empty list, object or string. */
static bool is_set(const cJSON *value) {
  if (!value || cJSON_IsNull(value) || cJSON_IsFalse(value))
    return false;
  return !((cJSON_IsArray(value) || cJSON_IsObject(value)) && !value->child) &&
         !(cJSON_IsString(value) && value->valuestring[0] == 0);
}

/* What would change the product, or the model beside it. */
static iso_status check_plain(const cJSON *config) {
  static const char *const refused[] = {
      "use_dora",          "use_qalora",        "use_bdlora",
      "fan_in_fan_out",    "lora_bias",         "modules_to_save",
      "rank_pattern",      "alpha_pattern",     "arrow_config",
      "layer_replication", "target_parameters", "trainable_token_indices",
      "kasa_config",       "monteclora_config", "alora_invocation_tokens"};
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
    if (is_set(cJSON_GetObjectItemCaseSensitive(config, refused[i])))
      return iso_fail(ISO_ERROR_UNSUPPORTED, "adapters with \"%s\" are not supported", refused[i]);
  const char *type = "", *bias = "none";
  ISO_TRY(iso_json_get_string(config, "peft_type", &type));
  ISO_TRY(iso_json_get_optional_string(config, "bias", &bias));
  if (strcmp(type, "LORA") != 0)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "peft_type \"%.48s\" is not supported; LORA is", type);
  if (strcmp(bias, "none") != 0)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "bias \"%.48s\" is not supported; none is", bias);
  /* These start from another base than the model's, unless they were converted when saved. */
  static const char *const inits[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
  const cJSON *init = cJSON_GetObjectItemCaseSensitive(config, "init_lora_weights");
  for (size_t i = 0; cJSON_IsString(init) && i < sizeof inits / sizeof inits[0]; i++)
    if (strncmp(init->valuestring, inits[i], strlen(inits[i])) == 0)
      return iso_fail(ISO_ERROR_UNSUPPORTED,
                      "init_lora_weights \"%.48s\" changes the base model; convert the adapter to "
                      "a plain LoRA",
                      init->valuestring);
  return ISO_OK;
}

static const char *after_last_dot(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot ? dot + 1 : name;
}

/* Whether a module of this name, as PEFT spells it ("q_proj"), has tensors in some layer. */
static bool has_target(const iso_adapter *adapter, const char *target) {
  for (uint32_t i = 0; i < adapter->n_modules; i++) {
    char name[128];
    if (!iso_weight_hf_name(adapter->model->architecture, adapter->modules[i].name, name,
                            sizeof name))
      continue;
    *strrchr(name, '.') = 0; /* ".weight" */
    if (strcmp(after_last_dot(name), after_last_dot(target)) == 0)
      return true;
  }
  return false;
}

/* What the configuration lists must be in the file; patterns in place of a list say too little. */
static iso_status check_targets(const iso_adapter *adapter, const cJSON *config) {
  const cJSON *targets = cJSON_GetObjectItemCaseSensitive(config, "target_modules"), *target;
  if (!cJSON_IsArray(targets))
    return ISO_OK;
  cJSON_ArrayForEach(target, targets) {
    const char *name = cJSON_IsString(target) ? target->valuestring : "";
    if (!has_target(adapter, name))
      return iso_fail(ISO_ERROR_CORRUPT_DATA,
                      "target_modules has \"%.64s\", for which there are no tensors", name);
  }
  return ISO_OK;
}

static iso_status read_config(const cJSON *config, adapter_facts *out_facts) {
  if (!cJSON_IsObject(config))
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "adapter_config.json is no JSON object");
  ISO_TRY(check_plain(config));
  ISO_TRY(iso_json_get_int(config, "r", 1, MAX_RANK, &out_facts->rank));
  ISO_TRY(iso_json_get_float(config, "lora_alpha", -1e6, 1e6, &out_facts->alpha));
  return iso_json_get_optional_bool(config, "use_rslora", &out_facts->is_rank_stabilized);
}

static iso_status read_folder(const cJSON *config, const char *path, iso_adapter *adapter) {
  adapter_facts facts = {0};
  char file[4096];
  ISO_TRY(read_config(config, &facts));
  if (snprintf(file, sizeof file, "%s/adapter_model.safetensors", path) >= (int)sizeof file)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the path is longer than %zu bytes", sizeof file);
  ISO_TRY(iso_safetensors_open(file, &adapter->tensors));
  ISO_TRY(read_modules(adapter, &facts));
  /* PEFT scales by 0 then, and llama.cpp by 1. */
  for (uint32_t i = 0; facts.alpha == 0 && i < adapter->n_modules; i++)
    adapter->modules[i].scale = 0;
  return check_targets(adapter, config);
}

static iso_status open_folder(const char *path, iso_adapter *adapter) {
  char file[4096];
  cJSON *config = NULL;
  if (snprintf(file, sizeof file, "%s/adapter_config.json", path) >= (int)sizeof file)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the path is longer than %zu bytes", sizeof file);
  ISO_TRY(iso_json_read_file(file, MAX_CONFIG_BYTES, MAX_CONFIG_DEPTH, &config));
  iso_status status = read_folder(config, path, adapter);
  cJSON_Delete(config);
  return status;
}

/* ---- Life ---------------------------------------------------------------------------------- */

iso_status iso_adapter_open(const iso_model *model, const char *path, iso_adapter **out_adapter) {
  struct stat info;
  if (stat(path, &info) != 0)
    return iso_fail(ISO_ERROR_NOT_FOUND, "adapter %s: no such file or folder", path);
  iso_adapter *adapter = calloc(1, sizeof *adapter);
  if (!adapter)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to open adapter %s", path);
  adapter->model = model;
  iso_status status = S_ISDIR(info.st_mode) ? open_folder(path, adapter) : open_gguf(path, adapter);
  if (status == ISO_OK)
    status = find_order(adapter);
  if (status != ISO_OK) {
    iso_adapter_close(adapter);
    return iso_fail_context(status, "adapter %s", path);
  }
  *out_adapter = adapter;
  return ISO_OK;
}

void iso_adapter_close(iso_adapter *adapter) {
  if (!adapter)
    return;
  free(adapter->modules);
  iso_gguf_close(adapter->gguf);
  iso_safetensors_close(adapter->tensors);
  free(adapter);
}

iso_status iso_adapters_check(const iso_adapter *const *adapters, int32_t n_adapters,
                              const iso_model *model) {
  if (n_adapters < 0 || n_adapters > ISO_MAX_ADAPTERS)
    return iso_fail(ISO_ERROR_LIMIT, "%d adapters; at most %d can be had", n_adapters,
                    ISO_MAX_ADAPTERS);
  for (int32_t i = 0; i < n_adapters; i++)
    if (!adapters || !adapters[i])
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "adapter %d of %d is NULL", i + 1, n_adapters);
    else if (adapters[i]->model != model)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "adapter %d was opened for another model", i + 1);
  return ISO_OK;
}

/* ---- Weights ------------------------------------------------------------------------------- */

static const adapter_module *find_module(const iso_adapter *adapter, const char *name,
                                         size_t length) {
  for (uint32_t i = 0; i < adapter->n_modules; i++)
    if (strncmp(adapter->modules[i].name, name, length) == 0 &&
        adapter->modules[i].name[length] == 0)
      return &adapter->modules[i];
  return NULL;
}

static int64_t common_rank(const iso_adapter *const *adapters, int32_t n_adapters, const char *name,
                           size_t length) {
  int64_t rank = 0;
  for (int32_t i = 0; i < n_adapters; i++) {
    const adapter_module *module = find_module(adapters[i], name, length);
    if (module && module->a->dims[0] > rank)
      rank = module->a->dims[0];
  }
  return (rank + RANK_MULTIPLE - 1) / RANK_MULTIPLE * RANK_MULTIPLE;
}

int64_t iso_adapters_rank(const iso_adapter *const *adapters, int32_t n_adapters,
                          const char *name) {
  return common_rank(adapters, n_adapters, name, strlen(name));
}

/* The first of the adapters that change a matrix. */
static const adapter_module *find_first(const iso_adapter *const *adapters, int32_t n_adapters,
                                        const char *name, size_t length) {
  const adapter_module *module = NULL;
  for (int32_t i = 0; i < n_adapters && !module; i++)
    module = find_module(adapters[i], name, length);
  return module;
}

uint64_t iso_adapters_bytes(const iso_adapter *const *adapters, int32_t n_adapters) {
  uint64_t bytes = 0;
  for (int32_t i = 0; i < n_adapters; i++)
    for (uint32_t m = 0; m < adapters[i]->n_modules; m++) {
      const adapter_module *module = &adapters[i]->modules[m];
      size_t length = strlen(module->name);
      if (find_first(adapters, n_adapters, module->name, length) == module)
        bytes += (1 + (uint64_t)n_adapters) * sizeof(float) *
                 (uint64_t)common_rank(adapters, n_adapters, module->name, length) *
                 (uint64_t)(module->a->dims[1] + module->b->dims[0]);
    }
  return bytes;
}

/* The row of the file that is row `row` of the model: pair i of a head is elements 2i and 2i + 1
 * where pairs are joined, i and i + head_dim / 2 where they are apart. */
static int64_t source_row(const iso_adapter *adapter, const char *name, int64_t row) {
  bool rotates = strstr(name, ".attn_q.") || strstr(name, ".attn_k.");
  if (adapter->order == ORDER_SAME || !rotates)
    return row;
  int64_t dim = adapter->model->config.head_dim, half = dim / 2, at = row % dim;
  int64_t from =
      adapter->order == ORDER_PAIRS_JOIN ? at % 2 * half + at / 2 : at % half * 2 + at / half;
  return row - at + from;
}

static void read_row(const iso_file_tensor *tensor, int64_t row, float *out) {
  const uint8_t *data = tensor->data;
  iso_scheme_decode_row(tensor->scheme,
                        data + (uint64_t)row * (tensor->bytes / (uint64_t)tensor->dims[0]), out,
                        tensor->dims[1]);
}

/* One adapter's part of a weight, which is zero where it says nothing. */
static void fill_down(const adapter_module *module, float *out, int64_t columns) {
  for (int64_t row = 0; row < module->a->dims[0]; row++)
    read_row(module->a, row, out + row * columns);
}

static void fill_up(const iso_adapter *adapter, const adapter_module *module, float *out,
                    int64_t rank) {
  for (int64_t row = 0; row < module->b->dims[0]; row++) {
    read_row(module->b, source_row(adapter, module->name, row), out + row * rank);
    for (int64_t i = 0; i < module->b->dims[1]; i++)
      out[row * rank + i] *= module->scale;
  }
}

iso_status iso_adapters_weight(const iso_adapter *const *adapters, int32_t n_adapters,
                               const char *name, iso_host_weight *out_weight, float **out_values,
                               bool *out_is) {
  size_t length = strlen(name), end = sizeof ISO_ADAPTER_DOWN - 1;
  bool is_down = length > end && strcmp(name + length - end, ISO_ADAPTER_DOWN) == 0;
  bool is_up = length > end && strcmp(name + length - end, ISO_ADAPTER_UP) == 0;
  int64_t rank = is_down || is_up ? common_rank(adapters, n_adapters, name, length - end) : 0;
  *out_is = rank > 0;
  if (!*out_is)
    return ISO_OK;
  const adapter_module *module = find_first(adapters, n_adapters, name, length - end);
  int64_t rows = is_down ? rank : module->b->dims[0];
  int64_t columns = is_down ? module->a->dims[1] : rank;
  uint64_t count;
  if (__builtin_mul_overflow((uint64_t)rows, (uint64_t)columns, &count) ||
      __builtin_mul_overflow(count, 1 + (uint64_t)n_adapters, &count) ||
      count > SIZE_MAX / sizeof(float))
    return iso_fail(ISO_ERROR_LIMIT, "%s of %d adapters is too large", name, n_adapters);
  float *values = calloc(count, sizeof *values);
  if (!values)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %s of %d adapters", name, n_adapters);
  for (int32_t i = 0; i < n_adapters; i++) {
    module = find_module(adapters[i], name, length - end);
    float *part = values + (1 + i) * rows * columns;
    if (module && is_down)
      fill_down(module, part, columns);
    else if (module)
      fill_up(adapters[i], module, part, rank);
  }
  *out_values = values;
  *out_weight = (iso_host_weight){.size = sizeof *out_weight,
                                  .scheme = ISO_SCHEME_F32,
                                  .n_dims = 3,
                                  .dims = {1 + n_adapters, rows, columns},
                                  .data = values,
                                  .bytes = count * sizeof *values};
  return ISO_OK;
}
