/* What is expected of a case: the reference's outputs, and how far from them rounding may lead.
 *
 * Products of activations with weights may round in three ways that are not faults:
 *  - a sum of f32 terms rounds with every addition, in proportion to the sum of the absolute
 *    terms: the `magnitude`;
 *  - activations may be rounded to the float type in which the weight is stored, when they have
 *    another: by at most u |x|, u = 2^-11 for f16 and 2^-8 for bf16;
 *  - for block-quantized weights, activations may be rounded to 8 bits, with one scale for up to
 *    256 neighbours of a row: by at most d / 2, d = max |x| / 127 over them.
 * Taking each rounding error as uniform between its bounds [-e, e], its variance is e^2 / 3, so
 * the `deviation` of a result is sqrt(sum over k of w_k^2 e_k^2 / 3). Errors of different k are
 * independent, so the sum over k is close to normal, and a result beyond six deviations, or a row
 * whose root mean square is well above its own, is a fault. Both are themselves computed by the
 * reference, as products of other inputs: |x| with |w|, and e^2 / 3 with w^2. */
#include "ops/conform/case.h"
#include "ops/shape.h"
#include <isomer/reference.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ACTIVATION_GROUP = 256 }; /* most elements that share an 8-bit scale */

static iso_status no_memory(void) {
  return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for what a case expects");
}

static iso_status run_reference(const iso_case *test, iso_case_data *data) {
  iso_op_arguments arguments = test->arguments;
  arguments.attributes = &test->attributes;
  return iso_reference_run(&arguments, (const void *const *)data->inputs,
                           (void *const *)data->outputs);
}

/* All elements of an operand in a dense array. */
static float *decode(const iso_tensor *tensor, const uint8_t *bytes) {
  int64_t n_rows = iso_case_rows(tensor), n_columns = iso_case_columns(tensor);
  float *values = malloc((size_t)(n_rows * n_columns + 1) * sizeof *values);
  for (int64_t r = 0; r < n_rows && values; r++)
    iso_scheme_decode_row(tensor->scheme, bytes + iso_case_row_offset(tensor, r),
                          values + r * n_columns, n_columns);
  return values;
}

static void to_magnitude(float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] = fabsf(values[i]);
}

static void to_square(float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] *= values[i];
}

/* Largest rounding of a float activation to the weight's type, relative to it. */
static double float_rounding(iso_scheme activation, iso_scheme weight) {
  if (activation == weight)
    return 0;
  return weight == ISO_SCHEME_F16 ? 0x1p-11 : weight == ISO_SCHEME_BF16 ? 0x1p-8 : 0;
}

/* Turns rows of activations into the variances of their roundings. */
static void to_variance(float *values, int64_t n_rows, int64_t n_columns, iso_scheme activation,
                        iso_scheme weight) {
  bool block = iso_scheme_get_info(weight)->kind == ISO_SCHEME_KIND_BLOCK;
  double rounding = float_rounding(activation, weight);
  for (int64_t start = 0; start < n_rows * n_columns;) {
    int64_t left = n_columns - start % n_columns;
    int64_t n = left < ACTIVATION_GROUP ? left : ACTIVATION_GROUP;
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
      largest = fmax(largest, fabs(values[start + i]));
    for (int64_t i = 0; i < n; i++) {
      double bound = block ? largest / 127 / 2 : rounding * fabs(values[start + i]);
      values[start + i] = (float)(bound * bound / 3);
    }
    start += n;
  }
}

/* The case's op on other float inputs; `x` and `w` are dense and stand for the first two. */
static iso_status product(const iso_case *test, const iso_case_data *data, float *x, float *w,
                          float *bias, float **out_values) {
  iso_op_arguments arguments = test->arguments;
  arguments.attributes = &test->attributes;
  const void *inputs[ISO_MAX_INPUTS] = {x, w};
  iso_tensor *operands[] = {&arguments.inputs[0], &arguments.inputs[1], &arguments.outputs[0]};
  for (int i = 0; i < 3; i++) {
    operands[i]->scheme = ISO_SCHEME_F32;
    ISO_TRY(iso_dense_strides(ISO_SCHEME_F32, operands[i]->n_dims, operands[i]->dims,
                              operands[i]->strides));
  }
  if (test->arguments.op == ISO_OP_MATMUL && !bias)
    arguments.inputs[2].n_dims = 0;
  for (uint32_t i = 2; i < arguments.n_inputs; i++)
    inputs[i] = i == 2 && bias ? (const void *)bias : data->inputs[i];
  const iso_tensor *y = &arguments.outputs[0];
  *out_values = malloc((size_t)(iso_case_rows(y) * iso_case_columns(y) + 1) * sizeof(float));
  void *outputs[ISO_MAX_OUTPUTS] = {*out_values};
  return *out_values ? iso_reference_run(&arguments, inputs, outputs) : no_memory();
}

static iso_status expect_magnitude(const iso_case *test, iso_expectation *expectation) {
  const iso_tensor *inputs = test->arguments.inputs;
  bool has_bias = test->arguments.op == ISO_OP_MATMUL && inputs[2].n_dims > 0;
  float *values[3] = {0};
  iso_status status = ISO_OK;
  for (int i = 0; i < (has_bias ? 3 : 2) && status == ISO_OK; i++) {
    values[i] = decode(&inputs[i], expectation->data.inputs[i]);
    if (values[i])
      to_magnitude(values[i], iso_case_rows(&inputs[i]) * iso_case_columns(&inputs[i]));
    else
      status = no_memory();
  }
  if (status == ISO_OK)
    status =
        product(test, &expectation->data, values[0], values[1], values[2], &expectation->magnitude);
  for (int i = 0; i < 3; i++)
    free(values[i]);
  return status;
}

static iso_status expect_deviation(const iso_case *test, iso_expectation *expectation) {
  const iso_tensor *inputs = test->arguments.inputs, *y = &test->arguments.outputs[0];
  float *x = decode(&inputs[0], expectation->data.inputs[0]);
  float *w = decode(&inputs[1], expectation->data.inputs[1]);
  iso_status status = x && w ? ISO_OK : no_memory();
  if (status == ISO_OK) {
    to_variance(x, iso_case_rows(&inputs[0]), iso_case_columns(&inputs[0]), inputs[0].scheme,
                inputs[1].scheme);
    to_square(w, iso_case_rows(&inputs[1]) * iso_case_columns(&inputs[1]));
    status = product(test, &expectation->data, x, w, NULL, &expectation->deviation);
  }
  free(x);
  free(w);
  for (int64_t i = 0; status == ISO_OK && i < iso_case_rows(y) * iso_case_columns(y); i++)
    expectation->deviation[i] = sqrtf(expectation->deviation[i]);
  return status;
}

static bool is_product(iso_op op) { return op == ISO_OP_MATMUL || op == ISO_OP_GROUPED_MATMUL; }

iso_status iso_expectation_create(const iso_case *test, uint64_t seed, iso_expectation *out) {
  *out = (iso_expectation){0};
  iso_status status = iso_case_fill(test, seed, &out->data);
  if (status == ISO_OK)
    status = run_reference(test, &out->data);
  if (status == ISO_OK && is_product(test->arguments.op))
    status = expect_magnitude(test, out);
  if (status == ISO_OK && is_product(test->arguments.op))
    status = expect_deviation(test, out);
  if (status != ISO_OK)
    iso_expectation_free(out);
  return iso_fail_context(status, "case \"%s\"", test->text);
}

void iso_expectation_free(iso_expectation *expectation) {
  iso_case_data_free(&expectation->data);
  free(expectation->magnitude);
  free(expectation->deviation);
  *expectation = (iso_expectation){0};
}
