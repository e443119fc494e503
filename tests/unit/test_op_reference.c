/* What golden vectors cannot show: bad indices, empty batches, memory that must not be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "ops/rules.h"
#include "ops/shape.h"
#include <isomer/reference.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Arguments being put together; each operand is its own exact allocation, so that a sanitizer
 * sees every access outside. */
typedef struct bench {
  iso_op_arguments arguments;
  iso_any_attributes attributes;
  void *inputs[ISO_MAX_INPUTS], *outputs[ISO_MAX_OUTPUTS];
} bench;

static bench *begin(iso_op op) {
  bench *b = calloc(1, sizeof *b);
  b->arguments = (iso_op_arguments){.size = sizeof b->arguments, .op = op};
  b->arguments.attributes = &b->attributes;
  iso_op_default_attributes(op, &b->attributes);
  return b;
}

static void *operand(iso_tensor *tensor, iso_scheme scheme, uint32_t n_dims, const int64_t *dims) {
  tensor->scheme = scheme;
  tensor->n_dims = n_dims;
  iso_shape shape = {.n_dims = n_dims};
  for (uint32_t d = 0; d < n_dims; d++) {
    tensor->dims[d] = dims[d];
    shape.dims[d] = iso_dim_constant(dims[d]);
  }
  uint64_t bytes;
  assert_int_equal(iso_dense_strides(scheme, n_dims, dims, tensor->strides), ISO_OK);
  assert_int_equal(iso_shape_bytes(&shape, scheme, &bytes), ISO_OK);
  return calloc(bytes ? bytes : 1, 1);
}

#define DIMS(...)                                                                                  \
  sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]) { __VA_ARGS__ }

static void *input(bench *b, iso_scheme scheme, size_t n_dims, const int64_t *dims) {
  uint32_t i = b->arguments.n_inputs++;
  return b->inputs[i] = operand(&b->arguments.inputs[i], scheme, (uint32_t)n_dims, dims);
}

static void *output(bench *b, iso_scheme scheme, size_t n_dims, const int64_t *dims) {
  uint32_t i = b->arguments.n_outputs++;
  return b->outputs[i] = operand(&b->arguments.outputs[i], scheme, (uint32_t)n_dims, dims);
}

static iso_status run(bench *b) {
  return iso_reference_run(&b->arguments, (const void *const *)b->inputs, b->outputs);
}

static void end(bench *b) {
  for (uint32_t i = 0; i < b->arguments.n_inputs; i++)
    free(b->inputs[i]);
  for (uint32_t i = 0; i < b->arguments.n_outputs; i++)
    free(b->outputs[i]);
  free(b);
}

static void assert_index_error(bench *b, int32_t *index, int32_t bad, const char *message) {
  int32_t good = *index;
  *index = bad;
  assert_int_equal(run(b), ISO_ERROR_INVALID_ARGUMENT);
  if (!strstr(iso_status_message(), message))
    fail_msg("got \"%s\", want \"%s\"", iso_status_message(), message);
  *index = good;
  assert_int_equal(run(b), ISO_OK);
}

/* What a device draws from NaN is no token, and the step after it may have begun. */
static void test_ids_of_no_row(void **state) {
  (void)state;
  static const int32_t outside[] = {5, -1, INT32_MAX, INT32_MIN};
  bench *b = begin(ISO_OP_EMBEDDING);
  int32_t *ids = input(b, ISO_SCHEME_I32, DIMS(3));
  input(b, ISO_SCHEME_Q4_K, DIMS(5, 256));
  float *y = output(b, ISO_SCHEME_F32, DIMS(3, 256));
  for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
    ids[1] = outside[i];
    assert_int_equal(run(b), ISO_OK);
    for (int column = 0; column < 3 * 256; column++)
      assert_int_equal(isnan(y[column]) != 0, column / 256 == 1);
  }
  end(b);
}

static void test_bad_rows(void **state) {
  (void)state;
  bench *b = begin(ISO_OP_GATHER_ROWS);
  input(b, ISO_SCHEME_BF16, DIMS(3, 7));
  int32_t *rows = input(b, ISO_SCHEME_I32, DIMS(2));
  output(b, ISO_SCHEME_BF16, DIMS(2, 7));
  assert_index_error(b, &rows[1], 3, "gather_rows: rows[1] is 3, must be 0 to 2");
  end(b);
  b = begin(ISO_OP_ROPE);
  input(b, ISO_SCHEME_F32, DIMS(2, 1, 8));
  int32_t *positions = input(b, ISO_SCHEME_I32, DIMS(2));
  input(b, ISO_SCHEME_F32, DIMS(4));
  output(b, ISO_SCHEME_F32, DIMS(2, 1, 8));
  assert_index_error(b, &positions[1], -7, "rope: positions[1] is -7");
  end(b);
  b = begin(ISO_OP_GROUPED_MATMUL);
  input(b, ISO_SCHEME_F32, DIMS(2, 1, 8));
  input(b, ISO_SCHEME_F32, DIMS(4, 3, 8));
  int32_t *experts = input(b, ISO_SCHEME_I32, DIMS(2, 2));
  output(b, ISO_SCHEME_F32, DIMS(2, 2, 3));
  assert_index_error(b, &experts[3], 4, "grouped_matmul: experts[3] is 4, must be 0 to 3");
  end(b);
}

static void test_bad_slots(void **state) {
  (void)state;
  bench *b = begin(ISO_OP_KV_WRITE);
  input(b, ISO_SCHEME_F32, DIMS(2, 1, 32));
  input(b, ISO_SCHEME_F32, DIMS(2, 1, 4));
  int32_t *slots = input(b, ISO_SCHEME_I32, DIMS(2));
  void *k = input(b, ISO_SCHEME_Q8_0, DIMS(3, 1, 4, 32));
  void *v = input(b, ISO_SCHEME_F16, DIMS(3, 1, 4, 4));
  free(output(b, ISO_SCHEME_Q8_0, DIMS(3, 1, 4, 32)));
  free(output(b, ISO_SCHEME_F16, DIMS(3, 1, 4, 4)));
  b->outputs[0] = k;
  b->outputs[1] = v;
  assert_index_error(b, &slots[0], 12, "kv_write: slots[0] is 12, must be -1 to 11");
  assert_index_error(b, &slots[1], -2, "slots[1] is -2");
  b->outputs[0] = b->outputs[1] = NULL;
  end(b);
}

/* Two pages of four rows, one sequence; pages hold NaN wherever nothing was written. */
static bench *attention(int32_t **table, int32_t **start, int32_t **length, int32_t **context,
                        float **keys, float **y) {
  bench *b = begin(ISO_OP_PAGED_ATTENTION);
  float *q = input(b, ISO_SCHEME_F32, DIMS(3, 2, 4));
  *keys = input(b, ISO_SCHEME_F32, DIMS(2, 1, 4, 4));
  float *values = input(b, ISO_SCHEME_F32, DIMS(2, 1, 4, 4));
  *table = input(b, ISO_SCHEME_I32, DIMS(1, 2));
  *start = input(b, ISO_SCHEME_I32, DIMS(1));
  *length = input(b, ISO_SCHEME_I32, DIMS(1));
  *context = input(b, ISO_SCHEME_I32, DIMS(1));
  *y = output(b, ISO_SCHEME_F32, DIMS(3, 2, 4));
  for (int i = 0; i < 24; i++)
    q[i] = (float)i / 8;
  for (int i = 0; i < 32; i++) {
    bool written = i < 4 || i >= 16; /* page 1 and the first row of page 0 */
    (*keys)[i] = written ? (float)(i % 5) : NAN;
    values[i] = written ? 1.0f : NAN;
  }
  (*table)[0] = 1;
  (*table)[1] = 0;
  **length = 2;
  **context = 5;
  memset(*y, 0xFF, 24 * sizeof(float));
  return b;
}

static void test_attention_bounds(void **state) {
  (void)state;
  int32_t *table, *start, *length, *context;
  float *keys, *y;
  bench *b = attention(&table, &start, &length, &context, &keys, &y);
  assert_int_equal(run(b), ISO_OK);
  for (int i = 0; i < 24; i++)
    assert_true(fabsf(y[i] - (i < 16 ? 1.0f : 0.0f)) < 1e-6f);
  assert_index_error(b, table, 2, "paged_attention: block_table[0] is 2, must be 0 to 1");
  assert_index_error(b, table, -1, "block_table[0] is -1");
  assert_index_error(b, start, 2, "query_start[0] is 2, must be 0 to 1");
  assert_index_error(b, length, 4, "query_length[0] is 4, must be 0 to 3");
  assert_index_error(b, length, -1, "query_length[0] is -1");
  assert_index_error(b, context, 1, "context_length[0] is 1, must be 2 to 8");
  assert_index_error(b, context, 9, "context_length[0] is 9");
  end(b);
}

/* Pages before every row's window and after the context, and all of an idle sequence, may be
 * anything: they are not read. */
static void test_attention_reads_no_more(void **state) {
  (void)state;
  int32_t *table, *start, *length, *context;
  float *keys, *y;
  bench *b = attention(&table, &start, &length, &context, &keys, &y);
  b->attributes.paged_attention.window = 1;
  *length = 1;
  table[0] = -5;
  assert_int_equal(run(b), ISO_OK);
  assert_true(y[0] == 1.0f && y[8] == 0.0f);
  *context = 4;
  table[0] = 1;
  table[1] = 99;
  assert_int_equal(run(b), ISO_OK);
  *length = 0;
  *context = *start = table[0] = -1;
  assert_int_equal(run(b), ISO_OK);
  assert_true(y[0] == 0.0f);
  end(b);
}

static void test_argmax_of_nan(void **state) {
  (void)state;
  bench *b = begin(ISO_OP_ARGMAX);
  float *x = input(b, ISO_SCHEME_F32, DIMS(3, 3));
  int32_t *y = output(b, ISO_SCHEME_I32, DIMS(3));
  const float rows[] = {NAN, -INFINITY, NAN, NAN, NAN, NAN, 1, NAN, 1};
  memcpy(x, rows, sizeof rows);
  assert_int_equal(run(b), ISO_OK);
  assert_int_equal(y[0], 1);
  assert_int_equal(y[1], 0);
  assert_int_equal(y[2], 0);
  end(b);
}

static void test_empty_batches(void **state) {
  (void)state;
  bench *b = begin(ISO_OP_MATMUL);
  input(b, ISO_SCHEME_BF16, DIMS(0, 32));
  input(b, ISO_SCHEME_Q8_0, DIMS(4, 32));
  output(b, ISO_SCHEME_F32, DIMS(0, 4));
  assert_int_equal(run(b), ISO_OK);
  end(b);
  b = begin(ISO_OP_PAGED_ATTENTION);
  input(b, ISO_SCHEME_F32, DIMS(0, 2, 4));
  input(b, ISO_SCHEME_F32, DIMS(2, 1, 4, 4));
  input(b, ISO_SCHEME_F32, DIMS(2, 1, 4, 4));
  input(b, ISO_SCHEME_I32, DIMS(0, 2));
  for (int i = 0; i < 3; i++)
    input(b, ISO_SCHEME_I32, DIMS(0));
  output(b, ISO_SCHEME_F32, DIMS(0, 2, 4));
  assert_int_equal(run(b), ISO_OK);
  end(b);
}

static void test_packed_weights_are_refused(void **state) {
  (void)state;
  bench *b = begin(ISO_OP_MATMUL);
  input(b, ISO_SCHEME_F32, DIMS(1, 4));
  input(b, ISO_SCHEME_F32, DIMS(4, 4));
  output(b, ISO_SCHEME_F32, DIMS(1, 4));
  b->arguments.inputs[1].layout = 7;
  assert_int_equal(run(b), ISO_ERROR_UNSUPPORTED);
  assert_non_null(strstr(iso_status_message(), "layout 7"));
  end(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ids_of_no_row),
      cmocka_unit_test(test_bad_rows),
      cmocka_unit_test(test_bad_slots),
      cmocka_unit_test(test_attention_bounds),
      cmocka_unit_test(test_attention_reads_no_more),
      cmocka_unit_test(test_argmax_of_nan),
      cmocka_unit_test(test_empty_batches),
      cmocka_unit_test(test_packed_weights_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
