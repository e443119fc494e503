/* The reference against golden vectors made with an independent framework
 * (tests/golden/ops/generate.py). Every op has a file; every case runs twice, with dense operands
 * and with gaps between the rows of activations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "core/json.h"
#include "ops/rules.h"
#include "ops/shape.h"
#include <isomer/reference.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP_BYTES = 64, GAP_FILL = 0xA5 };

static const char *context = "";

/* A tensor of the file: its dense bytes, and where they are given to the op. */
typedef struct golden_tensor {
  iso_tensor meta; /* dense */
  uint8_t *bytes;
  uint64_t n_bytes;
} golden_tensor;

static int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

static golden_tensor read_tensor(const cJSON *entry) {
  golden_tensor tensor = {0};
  if (cJSON_IsNull(entry))
    return tensor;
  const char *name, *hex;
  const cJSON *dims, *dim;
  assert_int_equal(iso_json_get_string(entry, "scheme", &name), ISO_OK);
  assert_int_equal(iso_json_get_string(entry, "hex", &hex), ISO_OK);
  assert_int_equal(iso_json_get_array(entry, "dims", &dims), ISO_OK);
  assert_true(iso_scheme_from_name(name, &tensor.meta.scheme));
  iso_shape shape = {0};
  cJSON_ArrayForEach(dim, dims) {
    tensor.meta.dims[tensor.meta.n_dims++] = (int64_t)dim->valuedouble;
    shape.dims[shape.n_dims++] = iso_dim_constant((int64_t)dim->valuedouble);
  }
  assert_int_equal(iso_dense_strides(tensor.meta.scheme, tensor.meta.n_dims, tensor.meta.dims,
                                     tensor.meta.strides),
                   ISO_OK);
  assert_int_equal(iso_shape_bytes(&shape, tensor.meta.scheme, &tensor.n_bytes), ISO_OK);
  assert_int_equal(strlen(hex), 2 * tensor.n_bytes);
  tensor.bytes = malloc(tensor.n_bytes + 1);
  for (uint64_t i = 0; i < tensor.n_bytes; i++)
    tensor.bytes[i] = (uint8_t)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
  return tensor;
}

static int64_t count_rows(const iso_tensor *tensor) {
  int64_t rows = 1;
  for (uint32_t d = 0; d + 1 < tensor->n_dims; d++)
    rows *= tensor->dims[d];
  return rows;
}

static uint64_t row_bytes(const iso_tensor *tensor) {
  uint64_t bytes;
  assert_int_equal(iso_scheme_row_bytes(tensor->scheme, tensor->dims[tensor->n_dims - 1], &bytes),
                   ISO_OK);
  return bytes;
}

/* A copy whose rows are `gap` bytes apart, at an odd address; `out_meta` describes it. */
static uint8_t *spread(const golden_tensor *tensor, uint64_t gap, iso_tensor *out_meta) {
  *out_meta = tensor->meta;
  if (tensor->meta.n_dims == 0)
    return NULL;
  uint64_t bytes = row_bytes(&tensor->meta), rows = (uint64_t)count_rows(&tensor->meta);
  uint8_t *copy = malloc(rows * (bytes + gap) + 1);
  memset(copy, GAP_FILL, rows * (bytes + gap) + 1);
  for (uint64_t r = 0; r < rows; r++)
    memcpy(copy + 1 + r * (bytes + gap), tensor->bytes + r * bytes, bytes);
  int64_t stride = (int64_t)(bytes + gap);
  for (uint32_t d = tensor->meta.n_dims - 1; d-- > 0;) {
    out_meta->strides[d] = stride;
    stride *= tensor->meta.dims[d];
  }
  return copy;
}

static void read_attributes(const iso_op_info *info, iso_op op, const cJSON *values,
                            iso_any_attributes *out) {
  iso_op_default_attributes(op, out);
  const cJSON *value;
  cJSON_ArrayForEach(value, values) {
    const iso_attribute_info *attribute = NULL;
    for (uint32_t i = 0; i < info->n_attributes; i++)
      if (strcmp(info->attributes[i].name, value->string) == 0)
        attribute = &info->attributes[i];
    if (!attribute)
      fail_msg("%s: no attribute %s", context, value->string);
    float as_float = (float)value->valuedouble;
    uint32_t as_integer = (uint32_t)value->valuedouble;
    memcpy((char *)out + attribute->offset,
           strcmp(attribute->type, "float") == 0 ? (void *)&as_float : (void *)&as_integer, 4);
  }
}

/* How far a value may be from the golden one: the last digit of its scheme, or one step of a
 * block, since encoders may break ties differently. */
static double allowance(iso_scheme scheme, double wanted, double largest) {
  static const double digits[] = {
      [ISO_SCHEME_F32] = 2e-6, [ISO_SCHEME_F16] = 0x1p-10, [ISO_SCHEME_BF16] = 0x1p-7};
  if (scheme == ISO_SCHEME_I32)
    return 0;
  if (scheme > ISO_SCHEME_BF16)
    return largest / (scheme == ISO_SCHEME_Q8_0 ? 120 : 7);
  return digits[scheme] * fabs(wanted) + 1e-7 * largest;
}

static void compare(const golden_tensor *wanted, const iso_tensor *meta, const uint8_t *got,
                    uint64_t gap) {
  int64_t columns = meta->dims[meta->n_dims - 1];
  uint64_t bytes = row_bytes(meta);
  float *want_row = malloc((size_t)columns * sizeof *want_row);
  float *got_row = malloc((size_t)columns * sizeof *got_row);
  for (int64_t r = 0; r < count_rows(meta); r++) {
    const uint8_t *row = got + (uint64_t)r * (bytes + gap);
    iso_scheme_decode_row(meta->scheme, wanted->bytes + (uint64_t)r * bytes, want_row, columns);
    iso_scheme_decode_row(meta->scheme, row, got_row, columns);
    double largest = 0;
    for (int64_t i = 0; i < columns; i++)
      largest = fmax(largest, fabs(want_row[i]));
    for (int64_t i = 0; i < columns; i++) {
      double limit = allowance(meta->scheme, want_row[i], largest);
      if (!(fabs((double)got_row[i] - want_row[i]) <= limit) &&
          !(isnan(want_row[i]) && isnan(got_row[i])))
        fail_msg("%s: row %lld column %lld is %.9g, wanted %.9g", context, (long long)r,
                 (long long)i, (double)got_row[i], (double)want_row[i]);
    }
    for (uint64_t i = 0; i < gap; i++)
      assert_int_equal(row[bytes + i], GAP_FILL);
  }
  free(want_row);
  free(got_row);
}

static void run_case(iso_op op, const cJSON *entry, uint64_t activation_gap) {
  const iso_op_info *info = iso_op_get_info(op);
  golden_tensor inputs[ISO_MAX_INPUTS] = {0}, outputs[ISO_MAX_OUTPUTS] = {0};
  const void *input_addresses[ISO_MAX_INPUTS] = {0};
  void *output_addresses[ISO_MAX_OUTPUTS] = {0};
  uint8_t *copies[ISO_MAX_INPUTS + ISO_MAX_OUTPUTS] = {0};
  iso_any_attributes attributes;
  read_attributes(info, op, cJSON_GetObjectItem(entry, "attributes"), &attributes);
  iso_op_arguments arguments = {
      .size = sizeof arguments, .op = op, .n_outputs = info->n_outputs, .attributes = &attributes};
  const cJSON *item;
  cJSON_ArrayForEach(item, cJSON_GetObjectItem(entry, "inputs")) {
    uint32_t i = arguments.n_inputs++;
    assert_true(i < info->n_inputs);
    inputs[i] = read_tensor(item);
    uint64_t gap = info->inputs[i].kind == ISO_OPERAND_ACTIVATION ? activation_gap : 0;
    copies[i] = spread(&inputs[i], gap, &arguments.inputs[i]);
    input_addresses[i] = copies[i] ? copies[i] + 1 : NULL;
  }
  uint32_t n_outputs = 0;
  uint64_t gaps[ISO_MAX_OUTPUTS] = {0};
  cJSON_ArrayForEach(item, cJSON_GetObjectItem(entry, "outputs")) {
    uint32_t i = n_outputs++;
    outputs[i] = read_tensor(item);
    gaps[i] = info->outputs[i].kind == ISO_OPERAND_ACTIVATION ? activation_gap : 0;
    uint8_t *copy = spread(&outputs[i], gaps[i], &arguments.outputs[i]);
    copies[ISO_MAX_INPUTS + i] = copy;
    for (int64_t r = 0; r < count_rows(&outputs[i].meta); r++)
      memset(copy + 1 + (uint64_t)r * (row_bytes(&outputs[i].meta) + gaps[i]), 0xFF,
             row_bytes(&outputs[i].meta));
    int32_t alias = info->outputs[i].alias_of;
    output_addresses[i] = alias >= 0 ? copies[alias] + 1 : copy + 1;
  }
  assert_int_equal(n_outputs, info->n_outputs);
  if (iso_reference_run(&arguments, input_addresses, output_addresses) != ISO_OK)
    fail_msg("%s: %s", context, iso_status_message());
  for (uint32_t i = 0; i < n_outputs; i++)
    compare(&outputs[i], &arguments.outputs[i], output_addresses[i], gaps[i]);
  for (uint32_t i = 0; i < ISO_MAX_INPUTS; i++)
    free(inputs[i].bytes);
  for (uint32_t i = 0; i < ISO_MAX_OUTPUTS; i++)
    free(outputs[i].bytes);
  for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++)
    free(copies[i]);
}

static void test_op(void **state) {
  iso_op op = (iso_op)(uintptr_t)*state;
  const iso_op_info *info = iso_op_get_info(op);
  char path[512], name[256];
  snprintf(path, sizeof path, "%s/tests/golden/ops/%s.json", TEST_SOURCE_DIR, info->name);
  cJSON *root;
  if (iso_json_read_file(path, 1 << 22, 16, &root) != ISO_OK)
    fail_msg("%s", iso_status_message());
  const cJSON *cases, *entry;
  assert_int_equal(iso_json_get_array(root, "cases", &cases), ISO_OK);
  int n_cases = 0;
  cJSON_ArrayForEach(entry, cases) {
    const char *case_name;
    assert_int_equal(iso_json_get_string(entry, "name", &case_name), ISO_OK);
    snprintf(name, sizeof name, "%s, %s", info->name, case_name);
    context = name;
    run_case(op, entry, 0);
    run_case(op, entry, GAP_BYTES);
    n_cases++;
  }
  assert_true(n_cases >= 2);
  cJSON_Delete(root);
}

int main(void) {
  struct CMUnitTest tests[ISO_OP_COUNT];
  for (int op = 0; op < ISO_OP_COUNT; op++)
    tests[op] = (struct CMUnitTest){iso_op_get_info((iso_op)op)->name, test_op, NULL, NULL,
                                    (void *)(uintptr_t)op};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
