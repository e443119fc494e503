/* How far an output may be from the reference's. Limits follow from the storage types and from the
 * length of sums, never from the device.
 *
 * A float element may differ from the reference by the sum of
 *  - one unit in the last place of its type, since both sides round once at the end;
 *  - the rounding of f32 arithmetic: 2^-24 times a number of roundings times their magnitude. An
 *    ELEMENTWISE op has at most ROUNDINGS of them; a sum of n terms adds a random walk of length
 *    n, so a REDUCTION has ROUNDINGS + 4 sqrt(n). Magnitudes are sums of absolute terms for
 *    products and attention, and the largest value of the row elsewhere;
 *  - six deviations of what rounding inputs to storage types does (ops/conform/expect.c), and for
 *    8-bit activations 2^-11 of the value, as their scales may be kept in f16.
 * Where there is a deviation, the root mean square of the errors of a row, and of all, must fit
 * its own. */
#include "ops/conform/case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double ROUNDINGS = 32, F32_ROUNDING = 0x1p-24, DEVIATIONS = 6;

/* One row of an output under comparison; limits[i] is the limit for element i. */
typedef struct row_check {
  const iso_case *test;
  const iso_expectation *expectation;
  uint32_t output;
  iso_scheme scheme;
  int64_t row, n;
  float *want, *got, *limits;
} row_check;

typedef struct verdict {
  uint64_t n_wrong;
  double worst; /* largest error in units of its limit */
  int64_t row, column;
  double got, want, limit;
} verdict;

/* Sums over elements of squares: errors, deviations, and what else an element may be off. */
typedef struct tally {
  int64_t n;
  double error, deviation, other;
} tally;

double iso_case_last_place(iso_scheme scheme) {
  return scheme == ISO_SCHEME_F16 ? 0x1p-10 : scheme == ISO_SCHEME_BF16 ? 0x1p-7 : 0x1p-23;
}

static double root_mean_square(const float *values, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += isfinite(values[i]) ? (double)values[i] * values[i] : 0;
  return sqrt(sum / (double)n);
}

static double largest_finite(const float *values, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++)
    if (isfinite(values[i]))
      largest = fmax(largest, fabs(values[i]));
  return largest;
}

/* Number of terms in the sums of a REDUCTION. */
static double sum_length(const iso_case *test) {
  const iso_tensor *inputs = test->arguments.inputs;
  switch (test->arguments.op) {
  case ISO_OP_PAGED_ATTENTION:
    return (double)(inputs[3].dims[1] * inputs[1].dims[2] + iso_case_columns(&inputs[0]));
  case ISO_OP_COMBINE_EXPERTS:
    return (double)inputs[0].dims[1];
  default:
    return (double)iso_case_columns(&inputs[0]);
  }
}

static double roundings(const iso_case *test) {
  bool reduction = iso_op_get_info(test->arguments.op)->tolerance == ISO_TOLERANCE_REDUCTION;
  return ROUNDINGS + (reduction ? 4 * sqrt(sum_length(test)) : 0);
}

static bool is_half(iso_scheme scheme) {
  return scheme == ISO_SCHEME_F16 || scheme == ISO_SCHEME_BF16;
}

/* Relative deviation of attention weights when queries and weights may be rounded as the cache is
 * stored: exp of a score, whose terms have each been rounded. q8_0 queries are off by about 0.5%
 * of a deviation, so that a score of unit deviation is, too. Queries of f32 are not rounded to 16
 * bits, since scores of models are up to hundreds, nor are those of the cache's own type: then
 * there is what rounding the weights of values does. */
static double attention_rounding(const iso_case *test) {
  iso_scheme queries = test->arguments.inputs[0].scheme;
  double worst = 0;
  for (uint32_t i = 1; i <= 2; i++) {
    iso_scheme scheme = test->arguments.inputs[i].scheme;
    bool of_weights = scheme == queries || (queries == ISO_SCHEME_F32 && is_half(scheme));
    if (scheme != ISO_SCHEME_F32)
      worst = fmax(worst, (scheme == ISO_SCHEME_F16 ? 0x1p-10 : 0x1p-7) / (of_weights ? 2 : 1));
  }
  return worst;
}

/* Largest magnitude in the row of an input that belongs to this row of the output. */
static double input_scale(const row_check *check, uint32_t input) {
  const iso_tensor *tensor = &check->test->arguments.inputs[input];
  float *values = check->limits; /* not in use yet */
  iso_scheme_decode_row(tensor->scheme,
                        check->expectation->data.inputs[input] +
                            iso_case_row_offset(tensor, check->row),
                        values, check->n);
  return largest_finite(values, check->n);
}

/* Magnitude of the numbers whose rounding shows in a row: those of the result, or larger ones
 * that cancelled on the way. */
static double row_scale(const row_check *check) {
  double largest = largest_finite(check->want, check->n);
  switch (check->test->arguments.op) {
  case ISO_OP_ACTIVATE: /* 1 + tanh(x) and 1 + erf(x) for negative x */
    return fmax(largest, input_scale(check, 0));
  case ISO_OP_GLU:
    return fmax(largest, input_scale(check, 0) * input_scale(check, 1));
  case ISO_OP_LAYER_NORM: { /* x - mean */
    double scale = input_scale(check, 0), mean = 0, squares = 0;
    for (int64_t i = 0; i < check->n; i++)
      mean += check->limits[i] / (double)check->n;
    for (int64_t i = 0; i < check->n; i++)
      squares += (check->limits[i] - mean) * (check->limits[i] - mean);
    double deviation =
        sqrt(squares / (double)check->n + check->test->attributes.layer_norm.epsilon);
    return largest * fmax(1, scale / fmax(deviation, 1e-30));
  }
  default:
    return largest;
  }
}

static void limit_floats(row_check *check) {
  const iso_case *test = check->test;
  const float *magnitude = check->output == 0 ? check->expectation->magnitude : NULL;
  const float *deviation = check->output == 0 ? check->expectation->deviation : NULL;
  bool block = deviation &&
               iso_scheme_get_info(test->arguments.inputs[1].scheme)->kind == ISO_SCHEME_KIND_BLOCK;
  double relative = iso_case_last_place(check->scheme) + (block ? 0x1p-11 : 0);
  double arithmetic = roundings(test) * F32_ROUNDING;
  double scale = row_scale(check);
  double row_deviation = test->arguments.op == ISO_OP_PAGED_ATTENTION
                             ? attention_rounding(test) * root_mean_square(check->want, check->n)
                             : 0;
  double least = check->scheme == ISO_SCHEME_F16 ? 0x1p-24 : 0x1p-126; /* subnormal steps */
  int64_t first = check->row * check->n;
  for (int64_t i = 0; i < check->n; i++)
    check->limits[i] = (float)(least + relative * fabs(check->want[i]) +
                               arithmetic * (magnitude ? magnitude[first + i] : scale) +
                               DEVIATIONS * (deviation ? deviation[first + i] : row_deviation));
}

/* An encoder may break ties another way, one code up or down: of E4M3 an eighth of the number that
 * a code stands for at most, and 2^-9 of numbers whose largest is 448. */
static void limit_codes(row_check *check) {
  int64_t block = iso_scheme_get_info(check->scheme)->block_elements;
  bool e4m3 = check->scheme == ISO_SCHEME_F8_G128;
  for (int64_t start = 0; start < check->n; start += block) {
    double largest = largest_finite(check->want + start, block);
    for (int64_t i = start; i < start + block; i++) {
      double step =
          e4m3 ? fmax(fabs((double)check->want[i]) / 8, largest / 448 * 0x1p-9) : largest / 127;
      check->limits[i] = (float)(1.01 * step);
    }
  }
}

/* Another way to choose scales may differ in every code: what counts is the error against the
 * rows that were encoded, which may be at most a tenth larger than the reference's. */
static bool check_encoding(const row_check *check, verdict *out) {
  const iso_tensor *x = &check->test->arguments.inputs[0];
  float *source = check->limits; /* not needed otherwise */
  iso_scheme_decode_row(x->scheme,
                        check->expectation->data.inputs[0] + iso_case_row_offset(x, check->row),
                        source, check->n);
  double got = 0, want = 0;
  for (int64_t i = 0; i < check->n; i++) {
    got += ((double)check->got[i] - source[i]) * ((double)check->got[i] - source[i]);
    want += ((double)check->want[i] - source[i]) * ((double)check->want[i] - source[i]);
  }
  got = sqrt(got / (double)check->n);
  want = sqrt(want / (double)check->n);
  double limit = 1.1 * want + 1e-6 * largest_finite(source, check->n);
  if (got <= limit)
    return true;
  *out = (verdict){1, got / limit, check->row, -1, got, want, limit};
  return false;
}

static void check_elements(const row_check *check, verdict *out) {
  for (int64_t i = 0; i < check->n; i++) {
    double got = check->got[i], want = check->want[i], limit = check->limits[i];
    if (got == want || (isnan(got) && isnan(want)))
      continue;
    double ratio = fabs(got - want) / limit;
    if (ratio <= 1)
      continue;
    out->n_wrong++;
    if (isnan(ratio))
      ratio = INFINITY;
    if (ratio > out->worst || out->n_wrong == 1) {
      *out = (verdict){out->n_wrong, ratio, check->row, i, got, want, limit};
    }
  }
}

/* The errors of many elements against their deviations: six of them are far for one element, and
 * too much for all. The room for chance shrinks with the number of elements. */
static void judge(const tally *sums, int64_t row, verdict *out) {
  if (sums->n == 0 || sums->deviation == 0)
    return;
  double n = (double)sums->n, error = sqrt(sums->error / n);
  double limit = sqrt(sums->deviation / n) * (1.2 + 4 / sqrt(n)) + sqrt(sums->other / n);
  if (error > limit && out->n_wrong == 0) /* a wrong element says more */
    *out = (verdict){1, error / limit, row, -1, error, 0, limit};
}

/* Judges a row with a deviation, and adds it to the sums of the whole output. */
static void check_row(const row_check *check, tally *whole, verdict *out) {
  if (check->output != 0 || !check->expectation->deviation)
    return;
  const float *deviation = check->expectation->deviation + check->row * check->n;
  const float *magnitude = check->expectation->magnitude + check->row * check->n;
  double relative = iso_case_last_place(check->scheme) + 0x1p-11;
  double arithmetic = roundings(check->test) * F32_ROUNDING;
  tally sums = {.n = check->n};
  for (int64_t i = 0; i < check->n; i++) {
    double error = (double)check->got[i] - check->want[i];
    double other = relative * fabs(check->want[i]) + arithmetic * magnitude[i];
    sums.error += error * error;
    sums.deviation += (double)deviation[i] * deviation[i];
    sums.other += other * other;
  }
  judge(&sums, check->row, out);
  whole->n += sums.n;
  whole->error += sums.error;
  whole->deviation += sums.deviation;
  whole->other += sums.other;
}

static void compare_row(row_check *check, const uint8_t *got, const uint8_t *want,
                        uint64_t row_bytes, tally *whole, verdict *out) {
  iso_op op = check->test->arguments.op;
  if (memcmp(got, want, (size_t)row_bytes) == 0)
    return;
  iso_scheme_decode_row(check->scheme, got, check->got, check->n);
  iso_scheme_decode_row(check->scheme, want, check->want, check->n);
  const iso_op_info *info = iso_op_get_info(op);
  bool exact = info->tolerance == ISO_TOLERANCE_EXACT || op == ISO_OP_CONVERT ||
               check->scheme == ISO_SCHEME_I32;
  if (op == ISO_OP_QUANTIZE_ROWS) {
    (void)check_encoding(check, out);
    return;
  }
  if (exact)
    memset(check->limits, 0, (size_t)check->n * sizeof *check->limits);
  else if (iso_scheme_get_info(check->scheme)->kind == ISO_SCHEME_KIND_BLOCK)
    limit_codes(check);
  else
    limit_floats(check);
  uint64_t n_wrong = out->n_wrong;
  check_elements(check, out);
  if (!exact)
    check_row(check, whole, out);
  else if (check->scheme == ISO_SCHEME_I32 && out->n_wrong == n_wrong) /* beyond f32's integers */
    *out = (verdict){n_wrong + 1, INFINITY, check->row, 0, check->got[0], check->want[0], 0};
}

/* "[2, 17]" of a row and a column; "[2] as a whole" for a row, " as a whole" for all. */
static void format_place(const iso_tensor *tensor, int64_t row, int64_t column, char *out,
                         size_t capacity) {
  int64_t index[ISO_MAX_DIMS];
  if (row < 0) {
    snprintf(out, capacity, " as a whole");
    return;
  }
  for (uint32_t d = tensor->n_dims - 1; d-- > 0;) {
    index[d] = row % tensor->dims[d];
    row /= tensor->dims[d];
  }
  size_t used = (size_t)snprintf(out, capacity, "[");
  for (uint32_t d = 0; d + 1 < tensor->n_dims; d++)
    used +=
        (size_t)snprintf(out + used, capacity - used, "%s%lld", d ? ", " : "", (long long)index[d]);
  if (column >= 0)
    snprintf(out + used, capacity - used, "%s%lld]", tensor->n_dims > 1 ? ", " : "",
             (long long)column);
  else
    snprintf(out + used, capacity - used, "] as a whole");
}

static bool report(const iso_case *test, uint32_t output, const verdict *found, char *out_detail) {
  const iso_tensor *tensor = &test->arguments.outputs[output];
  const char *name = iso_op_get_info(test->arguments.op)->outputs[output].name;
  char place[128];
  if (found->n_wrong == 0)
    return true;
  format_place(tensor, found->row, found->column, place, sizeof place);
  long long n_wrong = (long long)found->n_wrong;
  if (found->column >= 0)
    snprintf(out_detail, ISO_CASE_DETAIL,
             "%s%s is %.8g, wanted %.8g within %.3g; %lld of %lld elements are off", name, place,
             found->got, found->want, found->limit, n_wrong,
             (long long)(iso_case_rows(tensor) * iso_case_columns(tensor)));
  else
    snprintf(out_detail, ISO_CASE_DETAIL, "%s%s is off by %.4g (root mean square), limit %.4g",
             name, place, found->got, found->limit);
  return false;
}

bool iso_case_compare(const iso_case *test, const iso_expectation *expectation, uint32_t output,
                      const uint8_t *bytes, char *out_detail) {
  const iso_tensor *tensor = &test->arguments.outputs[output];
  int64_t n = iso_case_columns(tensor);
  uint64_t row_bytes = 0;
  float *scratch = calloc((size_t)n * 3 + 1, sizeof *scratch);
  if (!scratch || iso_scheme_row_bytes(tensor->scheme, n, &row_bytes) != ISO_OK) {
    free(scratch);
    snprintf(out_detail, ISO_CASE_DETAIL, "no host memory to compare");
    return false;
  }
  row_check check = {.test = test,
                     .expectation = expectation,
                     .output = output,
                     .scheme = tensor->scheme,
                     .n = n,
                     .want = scratch,
                     .got = scratch + n,
                     .limits = scratch + 2 * n};
  verdict found = {0};
  tally whole = {0};
  for (check.row = 0; check.row < iso_case_rows(tensor); check.row++) {
    uint64_t offset = iso_case_row_offset(tensor, check.row);
    compare_row(&check, bytes + offset, expectation->data.outputs[output] + offset, row_bytes,
                &whole, &found);
  }
  judge(&whole, -1, &found);
  free(scratch);
  return report(test, output, &found, out_detail);
}
