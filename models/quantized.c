/* Which tensors of a folder are quantized, and where their codes, scales and zero points lie.
 *
 * Layouts, for a weight of N rows (outputs) and K columns, g columns a group:
 *   compressed-tensors  weight i8 or f8 [N, K], weight_scale [1], [N, 1], [N, K / g] or a 128x128
 *                       block each; or weight_packed i32 [N, K / 8], codes plus 8, weight_scale
 *                       [N, K / g], weight_zero_point i32 [N / 8, K / g], zero points plus 8
 *   fp8                 weight f8 [N, K], weight_scale_inv [ceil(N / 128), ceil(K / 128)], or
 *                       weight_scale
 *   gptq                qweight i32 [K / 8, N], scales [K / g, N], qzeros i32 [K / g, N / 8], zero
 *                       points less 1 (checkpoint_format gptq_v2: as they are), g_idx [K]
 *   awq                 qweight i32 [K, N / 8], scales [K / g, N], qzeros i32 [K / g, N / 8] */
#include "models/quantized.h"

#include "quant/blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { GROUP = ISO_GROUP_ELEMENTS, MAX_NAME = 512 };

typedef enum method { COMPRESSED_TENSORS, FP8, GPTQ, AWQ } method;

/* What quantization_config says. */
typedef struct plan {
  method method;
  bool blocks_128; /* scales of 128x128 blocks */
  bool zeros_less_one;
  bool has_zeros; /* compressed-tensors: all weights have zero points */
} plan;

/* ---- quantization_config ---------------------------------------------------------------------- */

static iso_status check_bits(int64_t bits, int64_t wanted, const char *layout) {
  if (bits == wanted)
    return ISO_OK;
  return iso_fail(ISO_ERROR_UNSUPPORTED, "%s of %lld bits is not supported; %lld bits are", layout,
                  (long long)bits, (long long)wanted);
}

static iso_status check_block(const cJSON *block) {
  const cJSON *rows = cJSON_GetArrayItem(block, 0), *columns = cJSON_GetArrayItem(block, 1);
  if (cJSON_GetArraySize(block) == 2 && cJSON_IsNumber(rows) && cJSON_IsNumber(columns) &&
      rows->valuedouble == GROUP && columns->valuedouble == GROUP)
    return ISO_OK;
  return iso_fail(ISO_ERROR_UNSUPPORTED, "FP8 weights in blocks of other than 128x128 are not "
                                         "supported");
}

static iso_status read_fp8(const cJSON *json, plan *out) {
  const cJSON *block = NULL;
  ISO_TRY(iso_json_get_optional_array(json, "weight_block_size", &block));
  out->blocks_128 = block != NULL;
  return block ? check_block(block) : ISO_OK;
}

static iso_status read_gptq(const cJSON *json, plan *out) {
  int64_t bits = 4;
  bool desc_act = false;
  const char *format = "gptq"; /* "format" is checkpoint_format's newer name */
  ISO_TRY(iso_json_get_int(json, "bits", 1, 64, &bits));
  ISO_TRY(check_bits(bits, 4, "GPTQ"));
  ISO_TRY(iso_json_get_optional_bool(json, "desc_act", &desc_act));
  if (desc_act)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "GPTQ with desc_act (columns in order of activation) is "
                                           "not supported; desc_act false is");
  ISO_TRY(iso_json_get_optional_string(json, "format", &format));
  ISO_TRY(iso_json_get_optional_string(json, "checkpoint_format", &format));
  if (strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "GPTQ checkpoint_format \"%.32s\" is not supported; gptq and gptq_v2 are",
                    format);
  out->zeros_less_one = strcmp(format, "gptq") == 0;
  return ISO_OK;
}

static iso_status read_awq(const cJSON *json, plan *out) {
  (void)out;
  int64_t bits = 4;
  bool zero_point = true;
  const char *version = "gemm";
  ISO_TRY(iso_json_get_optional_int(json, "w_bit", 1, 64, &bits));
  ISO_TRY(iso_json_get_optional_int(json, "bits", 1, 64, &bits));
  ISO_TRY(check_bits(bits, 4, "AWQ"));
  ISO_TRY(iso_json_get_optional_bool(json, "zero_point", &zero_point));
  ISO_TRY(iso_json_get_optional_string(json, "version", &version));
  if (strcasecmp(version, "gemm") != 0 || !zero_point)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "AWQ version \"%.32s\"%s is not supported; gemm with zero points is", version,
                    zero_point ? "" : " without zero points");
  return ISO_OK;
}

static iso_status read_group(const cJSON *group, const char *format, plan *out) {
  const cJSON *weights = NULL, *block = NULL;
  ISO_TRY(iso_json_get_object(group, "weights", &weights));
  int64_t bits = 0;
  const char *strategy = "", *actorder = "";
  bool symmetric = true;
  ISO_TRY(iso_json_get_optional_bool(weights, "symmetric", &symmetric));
  out->has_zeros &= !symmetric;
  ISO_TRY(iso_json_get_int(weights, "num_bits", 1, 64, &bits));
  ISO_TRY(check_bits(bits, strcmp(format, "pack-quantized") == 0 ? 4 : 8, format));
  ISO_TRY(iso_json_get_optional_string(weights, "strategy", &strategy));
  /* "group" and "dynamic" reorder columns through g_idx; "static" and "weight" do not. */
  if (cJSON_IsString(cJSON_GetObjectItemCaseSensitive(weights, "actorder")))
    ISO_TRY(iso_json_get_optional_string(weights, "actorder", &actorder));
  if (strcmp(actorder, "group") == 0 || strcmp(actorder, "dynamic") == 0)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "compressed-tensors with actorder \"%s\" is not "
                                           "supported",
                    actorder);
  if (strcmp(strategy, "block") != 0)
    return ISO_OK;
  out->blocks_128 = true;
  ISO_TRY(iso_json_get_array(weights, "block_structure", &block));
  return check_block(block);
}

/* Rotations (QuIP, SpinQuant) that are not part of the weights: values would have to be turned as
 * the model runs. */
static iso_status check_transforms(const cJSON *json) {
  const cJSON *transforms = NULL, *groups = NULL, *group, *apply;
  ISO_TRY(iso_json_get_optional_object(json, "transform_config", &transforms));
  ISO_TRY(iso_json_get_optional_object(transforms, "config_groups", &groups));
  cJSON_ArrayForEach(group, groups) {
    const cJSON *list = NULL;
    ISO_TRY(iso_json_get_array(group, "apply", &list));
    cJSON_ArrayForEach(apply, list) {
      const char *location = "";
      ISO_TRY(iso_json_get_string(apply, "location", &location));
      if (strncmp(location, "weight_", 7) != 0)
        return iso_fail(ISO_ERROR_UNSUPPORTED,
                        "transform_config turns values at \"%.32s\" as the model runs, which is "
                        "not supported",
                        location);
    }
  }
  return ISO_OK;
}

static iso_status read_compressed(const cJSON *json, plan *out) {
  static const char *const formats[] = {"int-quantized", "naive-quantized", "float-quantized",
                                        "pack-quantized"};
  const char *format = "";
  ISO_TRY(iso_json_get_string(json, "format", &format));
  ISO_TRY(check_transforms(json));
  bool known = false;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    known |= strcmp(format, formats[i]) == 0;
  if (!known)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "compressed-tensors format \"%.48s\" is not supported; int-quantized, "
                    "naive-quantized, float-quantized and pack-quantized are",
                    format);
  const cJSON *groups = NULL, *group;
  ISO_TRY(iso_json_get_object(json, "config_groups", &groups));
  out->has_zeros = groups->child != NULL;
  cJSON_ArrayForEach(group, groups) ISO_TRY(read_group(group, format, out));
  return ISO_OK;
}

static iso_status read_plan(const cJSON *json, plan *out) {
  static const struct {
    const char *name;
    method method;
    iso_status (*read)(const cJSON *json, plan *out);
  } methods[] = {{"compressed-tensors", COMPRESSED_TENSORS, read_compressed},
                 {"fp8", FP8, read_fp8},
                 {"gptq", GPTQ, read_gptq},
                 {"awq", AWQ, read_awq}};
  const char *name = NULL;
  ISO_TRY(iso_json_get_optional_string(json, "quant_method", &name));
  if (!name)
    return iso_fail(
        ISO_ERROR_UNSUPPORTED,
        "there is no quant_method, as in folders for MLX, whose layout is not supported");
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
    if (strcmp(name, methods[i].name) == 0) {
      out->method = methods[i].method;
      return methods[i].read(json, out);
    }
  return iso_fail(ISO_ERROR_UNSUPPORTED,
                  "quant_method \"%.48s\" is not supported; compressed-tensors, fp8, gptq and awq "
                  "are",
                  name);
}

/* ---- Tensors ---------------------------------------------------------------------------------- */

/* One weight while it is looked at; `stem` is its name up to the last dot, and the dot. */
typedef struct candidate {
  const iso_hf_folder *folder;
  const plan *plan;
  char stem[MAX_NAME];
  int64_t rows, columns;
} candidate;

static const iso_file_tensor *part(const candidate *c, const char *suffix) {
  char name[MAX_NAME + 32];
  snprintf(name, sizeof name, "%s%s", c->stem, suffix);
  return iso_safetensors_find_tensor(c->folder->weights, name);
}

static iso_status fail_shape(const candidate *c, const iso_file_tensor *tensor) {
  return iso_fail(ISO_ERROR_UNSUPPORTED,
                  "tensor %s is %s of %lld x %lld, which is no quantization of [%lld, %lld] that is "
                  "supported",
                  tensor->name, tensor->type_name, (long long)tensor->dims[0],
                  (long long)(tensor->n_dims > 1 ? tensor->dims[1] : 1), (long long)c->rows,
                  (long long)c->columns);
}

/* A word of eight nibbles each, [rows, columns]. */
static iso_status check_words(const candidate *c, const iso_file_tensor *tensor, int64_t rows,
                              int64_t columns) {
  if (tensor->scheme == ISO_SCHEME_I32 && tensor->n_dims == 2 && tensor->dims[0] == rows &&
      tensor->dims[1] == columns)
    return ISO_OK;
  return fail_shape(c, tensor);
}

/* Columns a group: all, or a multiple of 128 that divides them. */
static iso_status group_of(const candidate *c, int64_t groups, int64_t *out_group) {
  *out_group = groups > 0 ? c->columns / groups : 0;
  if (groups > 0 && c->columns % groups == 0 && *out_group % GROUP == 0)
    return ISO_OK;
  return iso_fail(ISO_ERROR_UNSUPPORTED,
                  "%s has %lld groups in %lld columns; groups of 128 and its multiples are "
                  "supported, others such as 32 and 64 are not",
                  c->stem, (long long)groups, (long long)c->columns);
}

static bool is_float(const iso_file_tensor *tensor) {
  return tensor && (tensor->scheme == ISO_SCHEME_F32 || tensor->scheme == ISO_SCHEME_F16 ||
                    tensor->scheme == ISO_SCHEME_BF16);
}

/* Scales [1], [N], [N, groups], [1, groups] or, when the configuration says so, of blocks. */
static iso_status row_scales(const candidate *c, const iso_file_tensor *tensor,
                             iso_quantized_grid *out) {
  int64_t n = tensor->dims[0], groups = tensor->n_dims > 1 ? tensor->dims[1] : 1;
  *out = (iso_quantized_grid){tensor, 1, groups, c->columns, 1};
  if (!is_float(tensor) || tensor->n_dims > 2)
    return fail_shape(c, tensor);
  if (c->plan->blocks_128) {
    *out = (iso_quantized_grid){tensor, GROUP, groups, GROUP, 1};
    bool fits = n == (c->rows + GROUP - 1) / GROUP && groups * GROUP == c->columns;
    return fits ? ISO_OK : fail_shape(c, tensor);
  }
  if (n != c->rows && n != 1)
    return fail_shape(c, tensor);
  out->row_group = n == 1 ? c->rows : 1;
  return group_of(c, groups, &out->column_group);
}

/* Scales [groups, N] of GPTQ and AWQ, and the zero points beside them. */
static iso_status column_scales(const candidate *c, iso_quantized_tensor *out) {
  const iso_file_tensor *scales = part(c, "scales"), *zeros = part(c, "qzeros");
  if (!is_float(scales) || !zeros || scales->n_dims != 2 || scales->dims[1] != c->rows)
    return scales ? fail_shape(c, scales)
                  : iso_fail(ISO_ERROR_CORRUPT_DATA, "%s has no scales or no qzeros", c->stem);
  int64_t group;
  ISO_TRY(group_of(c, scales->dims[0], &group));
  ISO_TRY(check_words(c, zeros, scales->dims[0], (c->rows + 7) / 8));
  out->scales = (iso_quantized_grid){scales, 1, 1, group, c->rows};
  out->zeros = (iso_quantized_grid){zeros, 8, 1, group, (c->rows + 7) / 8};
  return ISO_OK;
}

/* Columns in groups as they come, which is what desc_act false means. */
static iso_status check_order(const candidate *c, int64_t group) {
  const iso_file_tensor *order = part(c, "g_idx");
  if (!order)
    return ISO_OK;
  ISO_TRY(order->scheme == ISO_SCHEME_I32 && order->n_dims == 1 && order->dims[0] == c->columns
              ? ISO_OK
              : fail_shape(c, order));
  for (int64_t k = 0; k < c->columns; k++) {
    int32_t index;
    memcpy(&index, (const uint8_t *)order->data + k * 4, sizeof index);
    if (index != k / group)
      return iso_fail(ISO_ERROR_UNSUPPORTED, "%s reorders columns, which is not supported",
                      order->name);
  }
  return ISO_OK;
}

static iso_status read_gptq_tensor(candidate *c, const iso_file_tensor *codes,
                                   iso_quantized_tensor *out) {
  c->rows = codes->n_dims == 2 ? codes->dims[1] : 0;
  c->columns = codes->dims[0] * 8;
  ISO_TRY(check_words(c, codes, c->columns / 8, c->rows));
  ISO_TRY(column_scales(c, out));
  out->codes = (iso_quantized_grid){codes, 1, 1, 8, c->rows};
  out->code_order = ISO_NIBBLES_ALONG_COLUMNS;
  out->zero_order = ISO_NIBBLES_ALONG_ROWS;
  out->zero_offset = c->plan->zeros_less_one;
  return check_order(c, out->scales.column_group);
}

static iso_status read_awq_tensor(candidate *c, const iso_file_tensor *codes,
                                  iso_quantized_tensor *out) {
  c->rows = codes->n_dims == 2 ? codes->dims[1] * 8 : 0;
  c->columns = codes->dims[0];
  ISO_TRY(check_words(c, codes, c->columns, c->rows / 8));
  ISO_TRY(column_scales(c, out));
  out->codes = (iso_quantized_grid){codes, 8, 1, 1, c->rows / 8};
  out->code_order = out->zero_order = ISO_NIBBLES_AWQ;
  return ISO_OK;
}

static iso_status read_packed_tensor(candidate *c, const iso_file_tensor *codes,
                                     iso_quantized_tensor *out) {
  const iso_file_tensor *scales = part(c, "weight_scale"), *zeros = part(c, "weight_zero_point");
  c->rows = codes->dims[0];
  c->columns = codes->n_dims == 2 ? codes->dims[1] * 8 : 0;
  ISO_TRY(check_words(c, codes, c->rows, c->columns / 8));
  if (!scales)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "%s has no weight_scale", c->stem);
  ISO_TRY(row_scales(c, scales, &out->scales));
  out->codes = (iso_quantized_grid){codes, 1, c->columns / 8, 8, 1};
  out->code_order = ISO_NIBBLES_ALONG_COLUMNS;
  out->zero_order = ISO_NIBBLES_ALONG_ROWS;
  out->zero_offset = 8;
  if (!zeros && c->plan->has_zeros)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "%s has no weight_zero_point, and \"symmetric\" is false", c->stem);
  if (zeros) {
    int64_t groups = c->columns / out->scales.column_group;
    ISO_TRY(check_words(c, zeros, (c->rows + 7) / 8, groups));
    out->zeros = (iso_quantized_grid){zeros, 8, groups, out->scales.column_group, 1};
    out->zero_offset = 0;
  }
  return check_order(c, out->scales.column_group);
}

static iso_status read_byte_tensor(candidate *c, const iso_file_tensor *codes,
                                   const iso_file_tensor *scales, iso_quantized_tensor *out) {
  if (part(c, "weight_zero_point") || c->plan->has_zeros)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "8-bit weights with zero points (%sweight_zero_point) are not supported",
                    c->stem);
  c->rows = codes->dims[0];
  c->columns = codes->n_dims == 2 ? codes->dims[1] : 0;
  if (codes->n_dims != 2)
    return fail_shape(c, codes);
  out->codes = (iso_quantized_grid){codes, 1, c->columns, 1, 1};
  return row_scales(c, scales, &out->scales);
}

/* The file's end of a weight's name and what follows from it. */
static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length > end_length && strcmp(text + length - end_length, end) == 0;
}

/* False in *out_is when the tensor is none of this method's weights. */
static iso_status read_tensor(candidate *c, const iso_file_tensor *tensor,
                              iso_quantized_tensor *out, bool *out_is) {
  const char *suffix = strrchr(tensor->name, '.');
  *out_is = false;
  if (!suffix || (size_t)(suffix + 2 - tensor->name) > sizeof c->stem)
    return ISO_OK;
  snprintf(c->stem, (size_t)(suffix + 2 - tensor->name), "%s", tensor->name);
  if (ends_with(tensor->name, ".qweight") || ends_with(tensor->name, ".weight_packed")) {
    *out_is = true;
    out->tensor.scheme = ISO_SCHEME_I4_G128;
    return c->plan->method == GPTQ  ? read_gptq_tensor(c, tensor, out)
           : c->plan->method == AWQ ? read_awq_tensor(c, tensor, out)
                                    : read_packed_tensor(c, tensor, out);
  }
  bool is_f8 = strcmp(tensor->type_name, "F8_E4M3") == 0;
  if (!ends_with(tensor->name, ".weight") || (!is_f8 && tensor->scheme != ISO_SCHEME_I8))
    return ISO_OK;
  const iso_file_tensor *scales = part(c, "weight_scale_inv");
  if (!scales)
    scales = part(c, "weight_scale");
  if (!scales)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "tensor %s has no weight_scale beside it",
                    tensor->name);
  *out_is = true;
  out->tensor.scheme = is_f8 ? ISO_SCHEME_F8_G128 : ISO_SCHEME_I8_G128;
  return read_byte_tensor(c, tensor, scales, out);
}

/* Name, shape and size of the repacked tensor. */
static iso_status describe(const candidate *c, iso_quantized_tensor *out) {
  const iso_scheme_info *info = iso_scheme_get_info(out->tensor.scheme);
  const iso_file_tensor *codes = out->codes.tensor;
  char name[MAX_NAME + 8];
  if (c->columns % GROUP != 0)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "%s has %lld columns; quantized weights need whole groups of 128", c->stem,
                    (long long)c->columns);
  snprintf(name, sizeof name, "%sweight", c->stem);
  out->tensor.name = strdup(name);
  if (!out->tensor.name)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a tensor name");
  out->tensor.type_name = info->name;
  out->tensor.n_dims = 2;
  for (int i = 0; i < ISO_MAX_DIMS; i++)
    out->tensor.dims[i] = i == 0 ? c->rows : i == 1 ? c->columns : 1;
  out->tensor.shard = codes->shard;
  out->tensor.offset = codes->offset;
  return iso_file_tensor_measure(&out->tensor, info->block_elements, info->block_bytes);
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const iso_quantized_tensor *)a)->tensor.name,
                ((const iso_quantized_tensor *)b)->tensor.name);
}

/* By name. */
static iso_status list_tensors(const iso_hf_folder *folder, const plan *p, iso_quantized *out) {
  uint64_t count = iso_safetensors_tensor_count(folder->weights);
  out->tensors = calloc(count ? count : 1, sizeof *out->tensors);
  if (!out->tensors)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %llu tensor records",
                    (unsigned long long)count);
  for (uint64_t i = 0; i < count; i++) {
    candidate c = {.folder = folder, .plan = p};
    iso_quantized_tensor found = {0};
    bool is = false;
    ISO_TRY(read_tensor(&c, iso_safetensors_tensor_at(folder->weights, i), &found, &is));
    if (!is)
      continue;
    iso_status status = describe(&c, &found);
    if (found.tensor.name)
      out->tensors[out->count++] = found; /* the name is freed with the list */
    ISO_TRY(status);
  }
  if (out->count > 0)
    qsort(out->tensors, out->count, sizeof *out->tensors, compare_names);
  return ISO_OK;
}

iso_status iso_quantized_open(const iso_hf_folder *folder, iso_quantized *out_quantized) {
  *out_quantized = (iso_quantized){0};
  const cJSON *json = NULL;
  ISO_TRY(iso_json_get_optional_object(folder->config, "quantization_config", &json));
  if (!json) /* MLX's name */
    json = cJSON_GetObjectItemCaseSensitive(folder->config, "quantization");
  if (!cJSON_IsObject(json))
    return ISO_OK;
  plan p = {0};
  iso_status status = read_plan(json, &p);
  if (status != ISO_OK)
    return iso_fail_context(status, "quantization_config");
  status = list_tensors(folder, &p, out_quantized);
  if (status != ISO_OK)
    iso_quantized_close(out_quantized);
  return status;
}

void iso_quantized_close(iso_quantized *quantized) {
  for (uint64_t i = 0; i < quantized->count; i++)
    free((char *)(uintptr_t)quantized->tensors[i].tensor.name);
  free(quantized->tensors);
  *quantized = (iso_quantized){0};
}

const iso_file_tensor *iso_quantized_find(const iso_quantized *quantized, const char *name) {
  iso_quantized_tensor key = {.tensor.name = name};
  const iso_quantized_tensor *found =
      quantized->count ? bsearch(&key, quantized->tensors, quantized->count,
                                 sizeof *quantized->tensors, compare_names)
                       : NULL;
  return found ? &found->tensor : NULL;
}

bool iso_quantized_has_part(const iso_quantized *quantized, const char *name) {
  char whole[MAX_NAME + 8];
  const char *suffix = strrchr(name, '.');
  if (!suffix || suffix + 1 - name > MAX_NAME || strcmp(suffix, ".bias") == 0)
    return false;
  snprintf(whole, sizeof whole, "%.*sweight", (int)(suffix + 1 - name), name);
  return iso_quantized_find(quantized, whole) != NULL;
}

const iso_quantized_tensor *iso_quantized_of(const iso_quantized *quantized,
                                             const iso_file_tensor *tensor) {
  for (uint64_t i = 0; i < quantized->count; i++)
    if (tensor == &quantized->tensors[i].tensor)
      return &quantized->tensors[i];
  return NULL;
}
