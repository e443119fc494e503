/* What is expected of a case: the reference's outputs, and how far from them rounding may lead.
 *
 * Products of activations with weights may round in three ways that are not faults:
 *  - a sum of f32 terms rounds with every addition, in proportion to the sum of the absolute
 *    terms: the `magnitude` (attention and combine_experts sum products as well);
 *  - activations may be rounded to the float type in which the weight is stored, when they have
 *    another: by at most u |x|, u = 2^-11 for f16 and 2^-8 for bf16;
 *  - for block-quantized weights, activations may be rounded to 8 bits, with one scale for up to
 *    256 neighbours of a row: by at most d / 2, d = max |x| / 127 over them. With operand_bits 8
 *    the weights may be, too, both with a scale for up to operand_neighbours, or to bf16, and
 * activations of f8_g128 weights may be rounded to E4M3 instead, with a scale for a row: by at most
 * 2^-4 |x|, or half a step of subnormal numbers. With operand_bits 16 the weights may be rounded to
 * bf16. Taking each rounding error as uniform between its bounds [-e, e], its variance is e^2 / 3,
 * so the `deviation` of a result is sqrt(sum over k of w_k^2 e_k^2 / 3). Errors of different k are
 * independent, so the sum over k is close to normal, and a result beyond six deviations, or a row
 * whose root mean square is well above its own, is a fault. Both are themselves computed by the
 * reference, as products of other inputs: |x| with |w|, and e^2 / 3 with w^2. */
#include "ops/conform/case.h"
#include "ops/shape.h"
#include <isomer/reference.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SCALE_GROUP = 256 }; /* most elements that share an 8-bit scale, where nothing is said */

/* Bits to which both sides may be rounded; or 0. */
static uint32_t bits_of_both(const iso_case *test) {
  return test->arguments.op == ISO_OP_MATMUL ? test->attributes.matmul.operand_bits : 0;
}

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

/* Largest rounding of a float activation to the weight's type, relative to it. */
static double float_rounding(iso_scheme activation, iso_scheme weight) {
  if (activation == weight)
    return 0;
  return weight == ISO_SCHEME_F16 ? 0x1p-11 : weight == ISO_SCHEME_BF16 ? 0x1p-8 : 0;
}

static double largest_of(const float *values, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++)
    largest = fmax(largest, fabs(values[i]));
  return largest;
}

/* Turns rows of activations, or of weights, into the variances of their roundings. */
static void to_variance(float *values, int64_t n_rows, int64_t n_columns, const iso_case *test,
                        uint32_t input) {
  iso_scheme activation = test->arguments.inputs[0].scheme;
  iso_scheme weight = test->arguments.inputs[1].scheme;
  bool block = iso_scheme_get_info(weight)->kind == ISO_SCHEME_KIND_BLOCK;
  bool e4m3 = bits_of_both(test) == 8 && weight == ISO_SCHEME_F8_G128 && input == 0;
  int64_t group =
      bits_of_both(test) == 8 ? test->attributes.matmul.operand_neighbours : SCALE_GROUP;
  if (group < 1)
    group = 1; /* a case may say 0: every number has a scale of its own */
  bool to_bf16 = bits_of_both(test) == 16 && input == 1;
  double rounding = to_bf16 ? 0x1p-8 : float_rounding(activation, weight), of_row = 0;
  for (int64_t start = 0; start < n_rows * n_columns;) {
    int64_t left = n_columns - start % n_columns;
    int64_t n = left < group ? left : group;
    double largest = largest_of(values + start, n);
    if (start % n_columns == 0)
      of_row = largest_of(values + start, n_columns);
    for (int64_t i = 0; i < n; i++) {
      double bound = block && !to_bf16 ? largest / 127 / 2 : rounding * fabs(values[start + i]);
      if (e4m3) /* a step is 2^-9 where the largest is 448 */
        bound = fmax(bound, fmax(fabs(values[start + i]) * 0x1p-4, of_row / 448 * 0x1p-10));
      values[start + i] = (float)(bound * bound / 3);
    }
    start += n;
  }
}

/* What stands in for an input when the op is run for a magnitude or a deviation. */
typedef enum stand_in { ITSELF, ABSOLUTE, SQUARE, VARIANCE, ABSENT } stand_in;

static const stand_in magnitude_inputs[ISO_OP_COUNT][ISO_MAX_INPUTS] = {
    [ISO_OP_MATMUL] = {ABSOLUTE, ABSOLUTE, ABSOLUTE},
    [ISO_OP_GROUPED_MATMUL] = {ABSOLUTE, ABSOLUTE},
    [ISO_OP_COMBINE_EXPERTS] = {ABSOLUTE, ABSOLUTE},
    [ISO_OP_PAGED_ATTENTION] = {ITSELF, ITSELF, ABSOLUTE},
};

static const stand_in deviation_inputs[ISO_OP_COUNT][ISO_MAX_INPUTS] = {
    [ISO_OP_MATMUL] = {VARIANCE, SQUARE, ABSENT},
    [ISO_OP_GROUPED_MATMUL] = {VARIANCE, SQUARE},
};

static const stand_in weight_deviation_inputs[ISO_MAX_INPUTS] = {SQUARE, VARIANCE, ABSENT};

static bool is_listed(const stand_in inputs[ISO_MAX_INPUTS]) {
  for (int i = 0; i < ISO_MAX_INPUTS; i++)
    if (inputs[i] != ITSELF)
      return true;
  return false;
}

/* An input in f32 and dense, changed; `tensor` becomes its description. Caller frees. */
static iso_status substitute(const iso_case *test, const iso_case_data *data, uint32_t input,
                             stand_in how, iso_tensor *tensor, float **out_values) {
  const iso_tensor *original = &test->arguments.inputs[input];
  int64_t n_rows = iso_case_rows(original), n_columns = iso_case_columns(original);
  float *values = *out_values = decode(original, data->inputs[input]);
  if (!values)
    return no_memory();
  if (how == VARIANCE)
    to_variance(values, n_rows, n_columns, test, input);
  for (int64_t i = 0; i < n_rows * n_columns && how != VARIANCE; i++)
    values[i] = how == SQUARE ? values[i] * values[i] : fabsf(values[i]);
  tensor->scheme = ISO_SCHEME_F32;
  return iso_dense_strides(ISO_SCHEME_F32, tensor->n_dims, tensor->dims, tensor->strides);
}

/* Runs the op with stand-ins; the first output is dense f32 in *out_values, which the caller
 * frees. */
static iso_status run_with(const iso_case *test, const iso_case_data *data,
                           const stand_in how[ISO_MAX_INPUTS], float **out_values) {
  iso_op_arguments arguments = test->arguments;
  arguments.attributes = &test->attributes;
  const void *inputs[ISO_MAX_INPUTS];
  float *values[ISO_MAX_INPUTS] = {0};
  iso_status status = ISO_OK;
  for (uint32_t i = 0; i < arguments.n_inputs && status == ISO_OK; i++) {
    iso_tensor *tensor = &arguments.inputs[i];
    if (how[i] == ABSENT)
      tensor->n_dims = 0;
    else if (how[i] != ITSELF && tensor->n_dims > 0)
      status = substitute(test, data, i, how[i], tensor, &values[i]);
    inputs[i] = values[i] ? (const void *)values[i] : data->inputs[i];
  }
  iso_tensor *y = &arguments.outputs[0];
  y->scheme = ISO_SCHEME_F32;
  if (status == ISO_OK)
    status = iso_dense_strides(ISO_SCHEME_F32, y->n_dims, y->dims, y->strides);
  *out_values = malloc((size_t)(iso_case_rows(y) * iso_case_columns(y) + 1) * sizeof(float));
  void *outputs[ISO_MAX_OUTPUTS] = {*out_values};
  if (status == ISO_OK)
    status = *out_values ? iso_reference_run(&arguments, inputs, outputs) : no_memory();
  for (uint32_t i = 0; i < arguments.n_inputs; i++)
    free(values[i]);
  return status;
}

iso_status iso_expectation_complete(const iso_case *test, iso_expectation *expectation) {
  iso_op op = test->arguments.op;
  const iso_tensor *y = &test->arguments.outputs[0];
  const iso_case_data *data = &expectation->data;
  ISO_TRY(run_reference(test, &expectation->data));
  if (is_listed(magnitude_inputs[op]))
    ISO_TRY(run_with(test, data, magnitude_inputs[op], &expectation->magnitude));
  if (!is_listed(deviation_inputs[op]))
    return ISO_OK;
  ISO_TRY(run_with(test, data, deviation_inputs[op], &expectation->deviation));
  int64_t n = iso_case_rows(y) * iso_case_columns(y);
  float *of_weights = NULL;
  iso_status status = ISO_OK;
  if (bits_of_both(test) != 0 &&
      iso_scheme_get_info(test->arguments.inputs[1].scheme)->kind == ISO_SCHEME_KIND_BLOCK)
    status = run_with(test, data, weight_deviation_inputs, &of_weights);
  for (int64_t i = 0; i < n && status == ISO_OK; i++)
    expectation->deviation[i] =
        sqrtf(expectation->deviation[i] + (of_weights ? of_weights[i] : 0.0f));
  free(of_weights);
  return status;
}

iso_status iso_expectation_create(const iso_case *test, uint64_t seed, iso_expectation *out) {
  *out = (iso_expectation){0};
  iso_status status = iso_case_fill(test, seed, &out->data);
  if (status == ISO_OK)
    status = iso_expectation_complete(test, out);
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
