/* From the text of a case to the arguments of an op. */
#include "ops/conform/case.h"
#include "core/c_locale.h"
#include "ops/shape.h"
#include <isomer/reference.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the words of a case say, before shapes are made of them. */
typedef struct builder {
  iso_case *test;
  const iso_op_info *info;
  int64_t letters[128]; /* -1: not given */
  uint32_t n_leading;   /* UINT32_MAX: not given */
  int64_t leading[ISO_MAX_DIMS];
  bool second_is_row; /* "?=row" */
  int64_t gap;
  iso_scheme rows, cache;
  /* Schemes of operands; ISO_SCHEME_COUNT: not given, ABSENT: none. */
  iso_scheme inputs[ISO_MAX_INPUTS], outputs[ISO_MAX_OUTPUTS];
} builder;

#define ABSENT ((iso_scheme)(ISO_SCHEME_COUNT + 1))

static iso_status bad_word(const builder *b, const char *key, const char *value) {
  return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s=%s means nothing to %s", key, value,
                  b->info->name);
}

static bool parse_integer(const char *text, int64_t most, int64_t *out_value) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  *out_value = value;
  return end != text && *end == 0 && errno == 0 && value >= 0 && value <= most;
}

static bool parse_leading(builder *b, const char *value) {
  b->n_leading = 0;
  if (strcmp(value, "none") == 0)
    return true;
  char copy[64], *rest = NULL;
  if (snprintf(copy, sizeof copy, "%s", value) >= (int)sizeof copy)
    return false;
  for (char *size = strtok_r(copy, "x", &rest); size; size = strtok_r(NULL, "x", &rest))
    if (b->n_leading == ISO_MAX_DIMS - 1 ||
        !parse_integer(size, ISO_MAX_DIM, &b->leading[b->n_leading++]))
      return false;
  return true;
}

static bool parse_attribute(builder *b, const iso_attribute_info *attribute, const char *value) {
  char *end;
  double number = strtod(value, &end);
  iso_scheme scheme;
  if (end == value || *end != 0) {
    if (strcmp(attribute->name, "scheme") != 0 || !iso_scheme_from_name(value, &scheme))
      return false;
    number = scheme;
  }
  uint8_t *field = (uint8_t *)&b->test->attributes + attribute->offset;
  if (strcmp(attribute->type, "float") == 0) {
    float as_float = (float)number;
    memcpy(field, &as_float, sizeof as_float);
    return true;
  }
  if (!(number >= 0 && number <= UINT32_MAX) || number != floor(number))
    return false;
  uint32_t as_integer = (uint32_t)number;
  memcpy(field, &as_integer, sizeof as_integer);
  return true;
}

static bool parse_name(const char *value, const char *const *names, int n_names, int *out_index) {
  for (int i = 0; i < n_names; i++)
    if (strcmp(value, names[i]) == 0) {
      *out_index = i;
      return true;
    }
  return false;
}

/* Words that mean the same for every op. False when `key` is none of them. */
static bool parse_common(builder *b, const char *key, const char *value, bool *out_fine) {
  static const char *const fills[ISO_FILL_COUNT] = {"normal",  "large", "tiny", "extreme",
                                                    "outlier", "ties",  "sharp"};
  static const char *const batches[ISO_BATCH_COUNT] = {"mixed", "prefill", "decode", "serve",
                                                       "full"};
  int index = 0;
  if (strcmp(key, "fill") == 0) {
    *out_fine = parse_name(value, fills, ISO_FILL_COUNT, &index);
    b->test->fill = (iso_fill)index;
  } else if (strcmp(key, "batch") == 0) {
    *out_fine = parse_name(value, batches, ISO_BATCH_COUNT, &index);
    b->test->batch = (iso_batch)index;
  } else if (strcmp(key, "gap") == 0) {
    *out_fine = parse_integer(value, 4096, &b->gap) && b->gap % 4 == 0;
  } else if (strcmp(key, "rows") == 0) {
    *out_fine = iso_scheme_from_name(value, &b->rows);
  } else if (strcmp(key, "cache") == 0) {
    *out_fine = iso_scheme_from_name(value, &b->cache);
  } else if (strcmp(key, "*") == 0) {
    *out_fine = parse_leading(b, value);
  } else if (strcmp(key, "?") == 0) {
    b->second_is_row = strcmp(value, "row") == 0;
    *out_fine = b->second_is_row || strcmp(value, "same") == 0;
  } else if (key[0] >= 'A' && key[0] <= 'Z' && key[1] == 0) {
    *out_fine = parse_integer(value, ISO_MAX_DIM, &b->letters[(size_t)key[0]]);
  } else {
    return false;
  }
  return true;
}

static iso_status parse_word(builder *b, const char *key, const char *value) {
  bool fine = false;
  if (parse_common(b, key, value, &fine))
    return fine ? ISO_OK : bad_word(b, key, value);
  for (uint32_t i = 0; i < b->info->n_attributes; i++)
    if (strcmp(key, b->info->attributes[i].name) == 0)
      return parse_attribute(b, &b->info->attributes[i], value) ? ISO_OK : bad_word(b, key, value);
  iso_scheme scheme = ABSENT;
  fine = strcmp(value, "none") == 0 || iso_scheme_from_name(value, &scheme);
  for (uint32_t i = 0; i < b->info->n_inputs && fine; i++)
    if (strcmp(key, b->info->inputs[i].name) == 0) {
      b->inputs[i] = scheme;
      return ISO_OK;
    }
  for (uint32_t i = 0; i < b->info->n_outputs && fine; i++)
    if (strcmp(key, b->info->outputs[i].name) == 0) {
      b->outputs[i] = scheme;
      return ISO_OK;
    }
  return bad_word(b, key, value);
}

static iso_status set_strides(const builder *b, const iso_operand_info *operand,
                              iso_tensor *tensor) {
  ISO_TRY(iso_dense_strides(tensor->scheme, tensor->n_dims, tensor->dims, tensor->strides));
  if (b->gap == 0 || operand->kind != ISO_OPERAND_ACTIVATION || tensor->n_dims < 2)
    return ISO_OK;
  int64_t stride = tensor->strides[tensor->n_dims - 2] + b->gap;
  for (uint32_t d = tensor->n_dims - 1; d-- > 0;) {
    tensor->strides[d] = stride;
    if (__builtin_mul_overflow(stride, tensor->dims[d], &stride))
      return iso_fail(ISO_ERROR_LIMIT, "%s is larger than can be", operand->name);
  }
  return ISO_OK;
}

static iso_scheme input_scheme(const builder *b, uint32_t index) {
  const iso_operand_info *operand = &b->info->inputs[index];
  if (b->inputs[index] != ISO_SCHEME_COUNT)
    return b->inputs[index];
  if (operand->optional)
    return ABSENT;
  if (operand->kind == ISO_OPERAND_INDEX)
    return ISO_SCHEME_I32;
  if (operand->kind == ISO_OPERAND_KV)
    return b->cache;
  return operand->kind == ISO_OPERAND_ACTIVATION ? b->rows : ISO_SCHEME_F32;
}

/* Shape of an input from the letters. */
static iso_status input_shape(const builder *b, const iso_operand_info *operand,
                              iso_shape *out_shape) {
  const char *letters = operand->dims;
  *out_shape = (iso_shape){0};
  if (*letters == '*' || *letters == '?') {
    if (b->n_leading == UINT32_MAX)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: no *= is given", b->info->name);
    for (uint32_t d = 0; d < b->n_leading && !(*letters == '?' && b->second_is_row); d++)
      out_shape->dims[out_shape->n_dims++] = iso_dim_constant(b->leading[d]);
    letters++;
  }
  for (; *letters && out_shape->n_dims < ISO_MAX_DIMS; letters++) {
    bool digit = *letters >= '0' && *letters <= '9';
    int64_t size = digit ? *letters - '0' : b->letters[(size_t)*letters];
    if (size < 0)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s: no %c= is given", b->info->name, *letters);
    out_shape->dims[out_shape->n_dims++] = iso_dim_constant(size);
  }
  return ISO_OK;
}

static void set_tensor(iso_tensor *tensor, const iso_shape *shape, iso_scheme scheme) {
  tensor->scheme = scheme;
  tensor->n_dims = shape->n_dims;
  for (uint32_t d = 0; d < shape->n_dims; d++)
    tensor->dims[d] = shape->dims[d].size;
}

static iso_status build(builder *b) {
  iso_op_arguments *arguments = &b->test->arguments;
  iso_shape shapes[ISO_MAX_INPUTS], output_shapes[ISO_MAX_OUTPUTS];
  const iso_shape *pointers[ISO_MAX_INPUTS] = {0};
  iso_scheme schemes[ISO_MAX_INPUTS], output_schemes[ISO_MAX_OUTPUTS];
  for (uint32_t i = 0; i < b->info->n_inputs; i++) {
    schemes[i] = input_scheme(b, i);
    if (schemes[i] == ABSENT)
      continue;
    ISO_TRY(input_shape(b, &b->info->inputs[i], &shapes[i]));
    pointers[i] = &shapes[i];
    set_tensor(&arguments->inputs[i], &shapes[i], schemes[i]);
  }
  iso_scheme activation = b->outputs[0] < ISO_SCHEME_COUNT ? b->outputs[0] : b->rows;
  ISO_TRY(iso_op_infer(arguments->op, pointers, schemes, &b->test->attributes, activation,
                       output_shapes, output_schemes));
  for (uint32_t i = 0; i < b->info->n_inputs; i++)
    if (pointers[i])
      ISO_TRY(set_strides(b, &b->info->inputs[i], &arguments->inputs[i]));
  for (uint32_t i = 0; i < b->info->n_outputs; i++) {
    set_tensor(&arguments->outputs[i], &output_shapes[i], output_schemes[i]);
    ISO_TRY(set_strides(b, &b->info->outputs[i], &arguments->outputs[i]));
  }
  return ISO_OK;
}

static iso_status parse(const char *text, iso_case *test) {
  char copy[ISO_CASE_TEXT];
  *test = (iso_case){.arguments = {.size = sizeof test->arguments}};
  if (snprintf(test->text, sizeof test->text, "%s", text) >= (int)sizeof test->text)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a case has at most %d characters",
                    ISO_CASE_TEXT - 1);
  memcpy(copy, test->text, sizeof copy);
  char *rest = NULL, *name = strtok_r(copy, " ", &rest);
  iso_op_arguments *arguments = &test->arguments;
  if (!name || !iso_op_from_name(name, &arguments->op))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "there is no op \"%s\"", name ? name : "");
  builder b = {.test = test,
               .info = iso_op_get_info(arguments->op),
               .n_leading = UINT32_MAX,
               .rows = ISO_SCHEME_F32,
               .cache = ISO_SCHEME_F32};
  iso_op_default_attributes(arguments->op, &test->attributes);
  arguments->n_inputs = b.info->n_inputs;
  arguments->n_outputs = b.info->n_outputs;
  for (size_t i = 0; i < sizeof b.letters / sizeof b.letters[0]; i++)
    b.letters[i] = -1;
  for (int i = 0; i < ISO_MAX_INPUTS; i++)
    b.inputs[i] = ISO_SCHEME_COUNT;
  for (int i = 0; i < ISO_MAX_OUTPUTS; i++)
    b.outputs[i] = ISO_SCHEME_COUNT;
  for (char *word = strtok_r(NULL, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    char *equals = strchr(word, '=');
    if (!equals)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "\"%s\" is not key=value", word);
    *equals = 0;
    ISO_TRY(parse_word(&b, word, equals + 1));
  }
  ISO_TRY(build(&b));
  iso_op_arguments checked = *arguments;
  checked.attributes = &test->attributes;
  return iso_op_validate(&checked);
}

iso_status iso_case_parse(const char *text, iso_case *out_case) {
  iso_c_locale locale = iso_c_locale_enter();
  iso_status status = parse(text, out_case);
  iso_c_locale_leave(locale);
  return iso_fail_context(status, "case \"%.*s\"", ISO_CASE_TEXT, text);
}

/* ---- Geometry
 * ------------------------------------------------------------------------------------ */

int64_t iso_case_rows(const iso_tensor *tensor) {
  int64_t rows = 1;
  for (uint32_t d = 0; d + 1 < tensor->n_dims; d++)
    rows *= tensor->dims[d];
  return tensor->n_dims ? rows : 0;
}

int64_t iso_case_columns(const iso_tensor *tensor) {
  return tensor->n_dims ? tensor->dims[tensor->n_dims - 1] : 0;
}

uint64_t iso_case_row_offset(const iso_tensor *tensor, int64_t row) {
  int64_t offset = 0;
  for (uint32_t d = tensor->n_dims - 1; d-- > 0;) {
    offset += row % tensor->dims[d] * tensor->strides[d];
    row /= tensor->dims[d];
  }
  return (uint64_t)offset;
}

uint64_t iso_case_span(const iso_tensor *tensor) {
  int64_t rows = iso_case_rows(tensor);
  uint64_t row_bytes;
  if (rows == 0 ||
      iso_scheme_row_bytes(tensor->scheme, iso_case_columns(tensor), &row_bytes) != ISO_OK)
    return 0;
  return iso_case_row_offset(tensor, rows - 1) + row_bytes;
}
