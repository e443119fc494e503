/* Traces: what is written is read, and nothing broken is taken for a trace. */
#include "check.h"

#include "engine/trace.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/isomer-trace-XXXXXX";
static char path[64];

static int set_up(void **state) {
  (void)state;
  if (!mkdtemp(folder))
    return -1;
  snprintf(path, sizeof path, "%s/trace", folder);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  unlink(path);
  return rmdir(folder); /* fails when a test left a file behind */
}

static const int32_t tokens[] = {5, 0, 9};
static const float rows[] = {1, 2, 3, 4, 5, -6};
static const iso_trace_output output[] = {{7, 0.5f}, {0, 2}};

static iso_trace_model model_of(void) {
  return (iso_trace_model){.model = "tiny, llama",
                           .device = "cpu \xC2\xA9\n",
                           .fingerprint = 42,
                           .n_layers = 2,
                           .vocabulary_size = 10,
                           .n_tokens = 3};
}

static iso_trace_value_info info_of(const char *name, int64_t n_rows, int64_t n_columns) {
  iso_trace_value_info info = {.op = "matmul",
                               .kernel = "matmul.test",
                               .n_rows = n_rows,
                               .n_columns = n_columns,
                               .layer = 1,
                               .rounding = 0.25};
  snprintf(info.name, sizeof info.name, "%s", name);
  return info;
}

/* Steps of two tokens and of one; three values; two tokens of output. */
static void write_trace(void) {
  iso_trace_writer *writer;
  iso_trace_model model = model_of();
  iso_trace_value_info wide = info_of("a", 2, 3), narrow = info_of("b", 1, 1);
  CHECK(iso_trace_writer_create(path, &model, tokens, &writer));
  CHECK(iso_trace_write_step(writer, 0, 2));
  CHECK(iso_trace_write_value(writer, &wide, rows));
  CHECK(iso_trace_write_value(writer, &narrow, rows + 5));
  CHECK(iso_trace_write_step(writer, 2, 1));
  CHECK(iso_trace_write_value(writer, &narrow, rows));
  CHECK(iso_trace_write_output(writer, output, 2));
  CHECK(iso_trace_writer_finish(writer));
  iso_trace_writer_destroy(writer);
}

static uint8_t *read_bytes(uint64_t *out_size) {
  char *data;
  size_t size;
  CHECK(iso_file_read(path, 1 << 20, &data, &size));
  *out_size = size;
  return (uint8_t *)data;
}

static void test_round_trip(void **state) {
  (void)state;
  iso_trace *trace;
  write_trace();
  CHECK(iso_trace_open(path, &trace));
  assert_string_equal(trace->model->model, "tiny, llama");
  assert_string_equal(trace->model->device, "cpu ???");
  assert_int_equal(trace->model->fingerprint, 42);
  assert_memory_equal(trace->tokens, tokens, sizeof tokens);
  assert_int_equal(trace->n_steps, 2);
  assert_int_equal(trace->n_values, 3);
  assert_int_equal(trace->steps[0].n_values, 2);
  assert_int_equal(trace->steps[1].first_token, 2);
  assert_int_equal(trace->steps[1].first_value, 2);
  const iso_trace_value *value = iso_trace_find(trace, 0, "a", 1);
  assert_ptr_equal(value, &trace->values[0]);
  assert_memory_equal(value->values, rows, sizeof rows);
  assert_true(value->info->rounding == 0.25);
  assert_int_equal(value->info->layer, 1);
  assert_string_equal(value->info->kernel, "matmul.test");
  assert_true(*iso_trace_find(trace, 0, "b", 0)->values == -6);
  assert_true(*iso_trace_find(trace, 1, "b", 77)->values == 1);
  assert_null(iso_trace_find(trace, 1, "a", 0));
  assert_int_equal(trace->n_output, 2);
  assert_memory_equal(trace->output, output, sizeof output);
  iso_trace_close(trace);
}

static void test_unfinished_file_does_not_appear(void **state) {
  (void)state;
  iso_trace_writer *writer;
  iso_trace_model model = model_of();
  unlink(path);
  CHECK(iso_trace_writer_create(path, &model, tokens, &writer));
  CHECK(iso_trace_write_step(writer, 0, 2));
  iso_trace_writer_destroy(writer);
  assert_false(iso_file_exists(path));
}

/* Opens a copy that ends where its bytes end, so that reading on would show. */
static iso_status open_copy(const uint8_t *data, uint64_t size) {
  uint8_t *copy = malloc(size ? size : 1);
  iso_trace *trace = NULL;
  assert_non_null(copy);
  memcpy(copy, data, size);
  iso_status status = iso_trace_open_memory(copy, size, &trace);
  if (status == ISO_OK)
    iso_trace_close(trace);
  free(copy);
  return status;
}

static void test_every_truncation_is_refused(void **state) {
  (void)state;
  uint64_t size;
  write_trace();
  uint8_t *data = read_bytes(&size);
  CHECK(open_copy(data, size));
  for (uint64_t n = 0; n < size; n++)
    assert_int_equal(open_copy(data, n), ISO_ERROR_CORRUPT_DATA);
  free(data);
}

static void test_any_byte_may_be_wrong(void **state) {
  (void)state;
  static const uint8_t values[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
  uint64_t size, n_refused = 0;
  write_trace();
  uint8_t *data = read_bytes(&size);
  for (uint64_t i = 0; i < size; i++) {
    uint8_t original = data[i];
    for (size_t v = 0; v < sizeof values; v++) {
      data[i] = values[v];
      n_refused += open_copy(data, size) != ISO_OK;
    }
    data[i] = original;
  }
  assert_true(n_refused > size); /* most of it is structure, text and sizes */
  free(data);
}

/* Byte offsets in the file that write_trace() makes. */
enum {
  MODEL_HEAD = 16,
  MODEL_BODY = MODEL_HEAD + 16,
  TOKENS = MODEL_BODY + 280,
  STEP_BODY = TOKENS + 16 + 16, /* three tokens and padding; a head */
  VALUE_HEAD = STEP_BODY + 8,
  VALUE_BODY = VALUE_HEAD + 16
};

static void refuse_change(uint64_t offset, const void *bytes, uint64_t n, iso_status code,
                          const char *part) {
  uint64_t size;
  uint8_t *data = read_bytes(&size);
  memcpy(data + offset, bytes, n);
  if (open_copy(data, size) != code || !strstr(iso_status_message(), part))
    fail_msg("a change at %d: %s, wanted \"%s\"", (int)offset, iso_status_message(), part);
  free(data);
}

static void test_refusals(void **state) {
  (void)state;
  const int32_t version = 2, many = 1 << 30, minus = -1, big = 10;
  const int64_t huge = INT64_C(1) << 61, two = 2, zero = 0;
  const double nan_value = NAN;
  write_trace();
  refuse_change(0, "X", 1, ISO_ERROR_CORRUPT_DATA, "no trace");
  refuse_change(8, &version, 4, ISO_ERROR_UNSUPPORTED, "version 2");
  refuse_change(MODEL_HEAD, &version, 4, ISO_ERROR_CORRUPT_DATA, "not the first");
  refuse_change(MODEL_HEAD + 8, &huge, 8, ISO_ERROR_CORRUPT_DATA, "ends early");
  refuse_change(MODEL_BODY, "\x1B", 1, ISO_ERROR_CORRUPT_DATA, "no text");
  refuse_change(MODEL_BODY + 272, &many, 4, ISO_ERROR_CORRUPT_DATA, "model's size");
  refuse_change(MODEL_BODY + 264, &minus, 4, ISO_ERROR_CORRUPT_DATA, "without layers");
  refuse_change(TOKENS, &big, 4, ISO_ERROR_CORRUPT_DATA, "outside the vocabulary");
  refuse_change(STEP_BODY, &many, 4, ISO_ERROR_CORRUPT_DATA, "does not follow");
  refuse_change(STEP_BODY + 4, &many, 4, ISO_ERROR_CORRUPT_DATA, "does not follow");
  refuse_change(VALUE_HEAD, &many, 4, ISO_ERROR_CORRUPT_DATA, "unknown kind");
  refuse_change(VALUE_BODY + 160, &huge, 8, ISO_ERROR_CORRUPT_DATA, "value's size");
  refuse_change(VALUE_BODY + 160, &zero, 8, ISO_ERROR_CORRUPT_DATA, "value's size");
  refuse_change(VALUE_BODY + 168, &two, 8, ISO_ERROR_CORRUPT_DATA, "value's size");
  refuse_change(VALUE_BODY + 176, &big, 4, ISO_ERROR_CORRUPT_DATA, "layer or rounding");
  refuse_change(VALUE_BODY + 184, &nan_value, 8, ISO_ERROR_CORRUPT_DATA, "layer or rounding");
}

static void test_more_bytes_are_refused(void **state) {
  (void)state;
  uint64_t size;
  write_trace();
  uint8_t *data = read_bytes(&size);
  uint8_t *longer = calloc(1, size + 16);
  assert_non_null(longer);
  memcpy(longer, data, size);
  assert_int_equal(open_copy(longer, size + 8), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(open_copy(longer, size + 16), ISO_ERROR_CORRUPT_DATA);
  free(longer);
  free(data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_unfinished_file_does_not_appear),
      cmocka_unit_test(test_every_truncation_is_refused),
      cmocka_unit_test(test_any_byte_may_be_wrong),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_more_bytes_are_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
