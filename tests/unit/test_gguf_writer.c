#include "check.h"

#include "models/formats/gguf_writer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/isomer-gguf-XXXXXX";

static int set_up(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  return rmdir(folder); /* fails when a test left a file behind */
}

static void test_round_trip(void **state) {
  (void)state;
  char *path = iso_file_join(folder, "model.gguf");
  iso_gguf_writer *w;
  CHECK(iso_gguf_writer_create(path, &w));
  CHECK(iso_gguf_writer_add_string(w, "general.architecture", "llama"));
  CHECK(iso_gguf_writer_add_tensor(w, "a", ISO_SCHEME_F32, 2, (int64_t[]){3, 5}));
  CHECK(iso_gguf_writer_add_u32(w, "u32", 42));
  CHECK(iso_gguf_writer_add_u64(w, "u64", UINT64_C(1) << 40));
  CHECK(iso_gguf_writer_add_f32(w, "f32", 1e-5f));
  CHECK(iso_gguf_writer_add_bool(w, "bool", true));
  CHECK(iso_gguf_writer_add_i32_array(w, "i32s", (int32_t[]){1, -2, 3}, 3));
  CHECK(iso_gguf_writer_add_f32_array(w, "f32s", (float[]){0.5f}, 1));
  iso_text_view words[] = {{"one", 3}, {"", 0}, {"t\0o", 3}};
  CHECK(iso_gguf_writer_add_string_array(w, "strings", words, 3));
  CHECK(iso_gguf_writer_add_tensor(w, "b", ISO_SCHEME_Q8_0, 3, (int64_t[]){2, 1, 64}));
  CHECK(iso_gguf_writer_add_tensor(w, "c", ISO_SCHEME_I8, 1, (int64_t[]){1}));
  uint8_t bytes[136];
  for (size_t i = 0; i < sizeof bytes; i++)
    bytes[i] = (uint8_t)(i * 7 + 1);
  CHECK(iso_gguf_writer_append(w, bytes, 59));
  CHECK(iso_gguf_writer_append(w, bytes, 0));
  CHECK(iso_gguf_writer_append(w, bytes + 59, 1));
  CHECK(iso_gguf_writer_append(w, bytes, 136));
  CHECK(iso_gguf_writer_append(w, bytes, 1));
  assert_false(iso_file_exists(path));
  CHECK(iso_gguf_writer_finish(w));
  iso_gguf_writer_destroy(w);

  iso_gguf *g;
  CHECK(iso_gguf_open(path, &g));
  assert_non_null(iso_gguf_shard_map(g, 0)->data);
  assert_int_equal(iso_gguf_version(g), 3);
  assert_int_equal(iso_gguf_value_count(g), 8);
  int64_t integer;
  double number;
  bool flag;
  iso_text_view text;
  CHECK(iso_gguf_get_string(g, "general.architecture", &text));
  assert_true(iso_text_view_equals(text, "llama"));
  CHECK(iso_gguf_get_int(g, "u32", 42, 42, &integer));
  CHECK(iso_gguf_get_int(g, "u64", INT64_C(1) << 40, INT64_C(1) << 40, &integer));
  CHECK(iso_gguf_get_float(g, "f32", 0, 1, &number));
  assert_true((float)number == 1e-5f);
  CHECK(iso_gguf_get_bool(g, "bool", &flag));
  assert_true(flag);
  const iso_gguf_value *array;
  CHECK(iso_gguf_get_int_array(g, "i32s", &array));
  assert_true(array->count == 3 && iso_gguf_value_int(array, 1) == -2);
  CHECK(iso_gguf_get_float_array(g, "f32s", &array));
  assert_true(array->count == 1 && iso_gguf_value_float(array, 0) == 0.5);
  iso_text_view *strings;
  uint64_t count;
  CHECK(iso_gguf_get_string_array(g, "strings", &strings, &count));
  assert_int_equal(count, 3);
  assert_true(strings[2].length == 3 && memcmp(strings[2].data, "t\0o", 3) == 0);
  free(strings);
  assert_int_equal(iso_gguf_tensor_count(g), 3);
  static const uint64_t sizes[] = {60, 136, 1};
  for (uint64_t i = 0; i < 3; i++) {
    const iso_file_tensor *tensor = iso_gguf_tensor_at(g, i);
    assert_int_equal(tensor->bytes, sizes[i]);
    assert_int_equal(tensor->offset % 32, 0);
    assert_memory_equal(tensor->data, bytes, sizes[i]);
  }
  const iso_file_tensor *b = iso_gguf_find_tensor(g, "b");
  assert_true(b->n_dims == 3 && b->dims[0] == 2 && b->dims[1] == 1 && b->dims[2] == 64);

  /* Copied value by value, with another alignment, the metadata is the same. */
  char *copy_path = iso_file_join(folder, "copy.gguf");
  CHECK(iso_gguf_writer_create(copy_path, &w));
  for (uint64_t i = 0; i < iso_gguf_value_count(g); i++)
    CHECK(iso_gguf_writer_add_value(w, iso_gguf_value_at(g, i)));
  CHECK(iso_gguf_writer_add_u32(w, "general.alignment", 128));
  CHECK(iso_gguf_writer_add_tensor(w, "a", ISO_SCHEME_I8, 1, (int64_t[]){1}));
  CHECK(iso_gguf_writer_add_tensor(w, "b", ISO_SCHEME_I8, 1, (int64_t[]){1}));
  CHECK(iso_gguf_writer_append(w, bytes, 1));
  CHECK(iso_gguf_writer_append(w, bytes + 1, 1));
  CHECK(iso_gguf_writer_finish(w));
  iso_gguf_writer_destroy(w);
  iso_gguf *copy;
  CHECK(iso_gguf_open(copy_path, &copy));
  assert_int_equal(iso_gguf_value_count(copy), 9);
  for (uint64_t i = 0; i < 8; i++) {
    const iso_gguf_value *left = iso_gguf_value_at(g, i), *right = iso_gguf_value_at(copy, i);
    assert_string_equal(left->key, right->key);
    assert_true(left->type == right->type && left->is_array == right->is_array);
    assert_true(left->count == right->count && left->bytes == right->bytes);
    assert_memory_equal(left->data, right->data, left->bytes);
  }
  assert_int_equal(iso_gguf_tensor_at(copy, 1)->offset % 128, 0);
  assert_int_equal(*(const uint8_t *)iso_gguf_tensor_at(copy, 1)->data, bytes[1]);
  iso_gguf_close(copy);
  iso_gguf_close(g);
  unlink(copy_path);
  unlink(path);
  free(copy_path);
  free(path);
}

static void test_empty_file_round_trip(void **state) {
  (void)state;
  char *path = iso_file_join(folder, "empty.gguf");
  iso_gguf_writer *w;
  CHECK(iso_gguf_writer_create(path, &w));
  CHECK(iso_gguf_writer_finish(w));
  iso_gguf_writer_destroy(w);
  iso_gguf *g;
  CHECK(iso_gguf_open(path, &g));
  assert_int_equal(iso_gguf_value_count(g) + iso_gguf_tensor_count(g), 0);
  iso_gguf_close(g);
  unlink(path);
  free(path);
}

static void refuse(iso_status status, iso_status code, const char *part) {
  if (status != code || !strstr(iso_status_message(), part))
    fail_msg("status %s (%s), wanted %s with \"%s\"", iso_status_name(status), iso_status_message(),
             iso_status_name(code), part);
}

static void test_misuse(void **state) {
  (void)state;
  char *path = iso_file_join(folder, "bad.gguf");
  iso_gguf_writer *w;
  const int64_t dims[] = {2, 2, 2, 2, 2};
  CHECK(iso_gguf_writer_create(path, &w));
  refuse(iso_gguf_writer_add_tensor(w, "t", ISO_SCHEME_F32, 5, dims), ISO_ERROR_CORRUPT_DATA,
         "5 dimensions");
  refuse(iso_gguf_writer_add_tensor(w, "t", ISO_SCHEME_F32, 0, dims), ISO_ERROR_CORRUPT_DATA,
         "0 dimensions");
  refuse(iso_gguf_writer_add_tensor(w, "t", ISO_SCHEME_Q4_K, 1, dims), ISO_ERROR_CORRUPT_DATA,
         "not whole q4_k blocks");
  refuse(iso_gguf_writer_add_tensor(w, "t", ISO_SCHEME_COUNT, 1, dims), ISO_ERROR_UNSUPPORTED,
         "scheme");
  CHECK(iso_gguf_writer_add_tensor(w, "t", ISO_SCHEME_I8, 1, dims));
  CHECK(iso_gguf_writer_append(w, "x", 1));
  refuse(iso_gguf_writer_add_u32(w, "late", 1), ISO_ERROR_INVALID_ARGUMENT, "too late");
  refuse(iso_gguf_writer_append(w, "xyz", 2), ISO_ERROR_INVALID_ARGUMENT, "more than tensor");
  refuse(iso_gguf_writer_append(w, "x", 1), ISO_ERROR_INVALID_ARGUMENT, "an earlier write failed");
  refuse(iso_gguf_writer_finish(w), ISO_ERROR_INVALID_ARGUMENT, "an earlier write failed");
  iso_gguf_writer_destroy(w);

  CHECK(iso_gguf_writer_create(path, &w));
  CHECK(iso_gguf_writer_add_tensor(w, "t", ISO_SCHEME_I8, 1, dims));
  CHECK(iso_gguf_writer_append(w, "x", 1));
  refuse(iso_gguf_writer_finish(w), ISO_ERROR_INVALID_ARGUMENT, "0 of 1 tensors");
  iso_gguf_writer_destroy(w);

  CHECK(iso_gguf_writer_create(path, &w));
  CHECK(iso_gguf_writer_add_u32(w, "k", 1));
  CHECK(iso_gguf_writer_add_bool(w, "k", true));
  refuse(iso_gguf_writer_finish(w), ISO_ERROR_CORRUPT_DATA, "\"k\" comes twice");
  iso_gguf_writer_destroy(w);

  CHECK(iso_gguf_writer_create(path, &w));
  CHECK(iso_gguf_writer_add_tensor(w, "t", ISO_SCHEME_I8, 1, dims));
  CHECK(iso_gguf_writer_add_tensor(w, "t", ISO_SCHEME_I8, 1, dims));
  refuse(iso_gguf_writer_append(w, "xy", 2), ISO_ERROR_CORRUPT_DATA, "\"t\" comes twice");
  iso_gguf_writer_destroy(w);

  CHECK(iso_gguf_writer_create(path, &w));
  CHECK(iso_gguf_writer_add_u32(w, "general.alignment", 48));
  refuse(iso_gguf_writer_finish(w), ISO_ERROR_CORRUPT_DATA, "not a power of two");
  iso_gguf_writer_destroy(w);
  assert_false(iso_file_exists(path));
  iso_gguf_writer_destroy(NULL);
  free(path);
}

/* Shard `number` of `count`, holding one tensor. */
static char *write_shard(const char *name, uint32_t number, uint32_t count, const char *tensor,
                         uint32_t total_tensors) {
  char *path = iso_file_join(folder, name);
  iso_gguf_writer *w;
  CHECK(iso_gguf_writer_create(path, &w));
  if (number == 0)
    CHECK(iso_gguf_writer_add_string(w, "general.architecture", "llama"));
  CHECK(iso_gguf_writer_add_u32(w, "split.no", number));
  CHECK(iso_gguf_writer_add_u32(w, "split.count", count));
  CHECK(iso_gguf_writer_add_u32(w, "split.tensors.count", total_tensors));
  CHECK(iso_gguf_writer_add_tensor(w, tensor, ISO_SCHEME_I8, 1, (int64_t[]){4}));
  CHECK(iso_gguf_writer_append(w, tensor, 2));
  CHECK(iso_gguf_writer_append(w, "..", 2));
  CHECK(iso_gguf_writer_finish(w));
  iso_gguf_writer_destroy(w);
  return path;
}

static void take_away(char *path) {
  unlink(path);
  free(path);
}

static void test_split(void **state) {
  (void)state;
  char *paths[3] = {write_shard("m-00001-of-00003.gguf", 0, 3, "t0", 3),
                    write_shard("m-00002-of-00003.gguf", 1, 3, "t1", 3),
                    write_shard("m-00003-of-00003.gguf", 2, 3, "t2", 3)};
  iso_gguf *g;
  CHECK(iso_gguf_open(paths[0], &g));
  assert_int_equal(iso_gguf_shard_count(g), 3);
  assert_int_equal(iso_gguf_tensor_count(g), 3);
  for (uint32_t i = 0; i < 3; i++) {
    char name[] = {'t', (char)('0' + i), 0};
    const iso_file_tensor *tensor = iso_gguf_find_tensor(g, name);
    assert_int_equal(tensor->shard, i);
    assert_memory_equal(tensor->data, name, 2);
    assert_ptr_equal(iso_gguf_shard_map(g, i)->data + tensor->offset, tensor->data);
  }
  iso_text_view text;
  CHECK(iso_gguf_get_string(g, "general.architecture", &text));
  iso_gguf_close(g);

  refuse(iso_gguf_open(paths[1], &g), ISO_ERROR_INVALID_ARGUMENT, "open the first");
  assert_null(g);
  char *data;
  size_t size;
  CHECK(iso_file_read(paths[0], 1 << 20, &data, &size));
  refuse(iso_gguf_open_memory(data, size, &g), ISO_ERROR_UNSUPPORTED, "cannot be read from memory");
  free(data);

  take_away(paths[2]);
  refuse(iso_gguf_open(paths[0], &g), ISO_ERROR_NOT_FOUND, "m-00003-of-00003.gguf");
  paths[2] = write_shard("m-00003-of-00003.gguf", 1, 3, "t2", 3);
  refuse(iso_gguf_open(paths[0], &g), ISO_ERROR_CORRUPT_DATA, "says that it is shard 2 of 3");
  take_away(paths[2]);
  paths[2] = write_shard("m-00003-of-00003.gguf", 2, 4, "t2", 3);
  refuse(iso_gguf_open(paths[0], &g), ISO_ERROR_CORRUPT_DATA, "says that it is shard 3 of 4");
  take_away(paths[2]);
  paths[2] = write_shard("m-00003-of-00003.gguf", 2, 3, "t0", 3);
  refuse(iso_gguf_open(paths[0], &g), ISO_ERROR_CORRUPT_DATA, "\"t0\" comes twice");
  take_away(paths[2]);
  paths[2] = write_shard("m-00003-of-00003.gguf", 0, 1, "t2", 3);
  refuse(iso_gguf_open(paths[0], &g), ISO_ERROR_CORRUPT_DATA, "says that it is shard 1 of 1");
  for (int i = 0; i < 3; i++)
    take_away(paths[i]);

  paths[0] = write_shard("m-00001-of-00002.gguf", 0, 2, "t0", 3);
  paths[1] = write_shard("m-00002-of-00002.gguf", 1, 2, "t1", 3);
  refuse(iso_gguf_open(paths[0], &g), ISO_ERROR_CORRUPT_DATA,
         "the shards hold 2 tensors, split.tensors.count says 3");
  take_away(paths[0]);
  take_away(paths[1]);
  paths[0] = write_shard("renamed.gguf", 0, 2, "t0", 2);
  refuse(iso_gguf_open(paths[0], &g), ISO_ERROR_INVALID_ARGUMENT, "-00001-of-00002.gguf");
  take_away(paths[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_empty_file_round_trip),
      cmocka_unit_test(test_misuse),
      cmocka_unit_test(test_split),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
