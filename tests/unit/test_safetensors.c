#include "check.h"

#include "models/formats/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/isomer-safetensors-XXXXXX";

static int set_up(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  return rmdir(folder); /* fails when a test left a file behind */
}

static void refuse(iso_status status, iso_status code, const char *part) {
  if (status != code || !strstr(iso_status_message(), part))
    fail_msg("status %s (%s), wanted %s with \"%s\"", iso_status_name(status), iso_status_message(),
             iso_status_name(code), part);
}

/* A file of a header and `data_bytes` bytes of data, on the heap and exact in size. */
static uint8_t *build(const char *header, uint64_t claimed_length, uint64_t data_bytes,
                      uint64_t *out_size) {
  uint64_t length = strlen(header);
  uint8_t *bytes = malloc(8 + length + data_bytes);
  assert_non_null(bytes);
  memcpy(bytes, &claimed_length, 8);
  memcpy(bytes + 8, header, length);
  for (uint64_t i = 0; i < data_bytes; i++)
    bytes[8 + length + i] = (uint8_t)i;
  *out_size = 8 + length + data_bytes;
  return bytes;
}

static void refuse_header(const char *header, uint64_t data_bytes, iso_status code,
                          const char *part) {
  uint64_t size;
  uint8_t *bytes = build(header, strlen(header), data_bytes, &size);
  iso_safetensors *reader = (iso_safetensors *)1;
  refuse(iso_safetensors_open_memory(bytes, size, &reader), code, part);
  assert_null(reader);
  free(bytes);
}

static void test_values(void **state) {
  (void)state;
  static const char header[] =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,2,1],\"data_offsets\":[0,8]},"
      "\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[20,24]},"
      "\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]}}   ";
  uint64_t size;
  uint8_t *bytes = build(header, sizeof header - 1, 32, &size);
  iso_safetensors *reader;
  CHECK(iso_safetensors_open_memory(bytes, size, &reader));
  assert_int_equal(iso_safetensors_tensor_count(reader), 4);
  assert_int_equal(iso_safetensors_shard_count(reader), 1);
  assert_null(iso_safetensors_shard_map(reader, 0)->data);
  const iso_file_tensor *b = iso_safetensors_find_tensor(reader, "b");
  assert_ptr_equal(b, iso_safetensors_tensor_at(reader, 0));
  assert_string_equal(b->name, "b");
  assert_string_equal(b->type_name, "BF16");
  assert_int_equal(b->scheme, ISO_SCHEME_BF16);
  assert_true(b->n_dims == 2 && b->dims[0] == 2 && b->dims[1] == 3 && b->dims[2] == 1);
  assert_int_equal(b->bytes, 12);
  assert_ptr_equal(b->data, bytes + 8 + sizeof header - 1 + 8);
  assert_int_equal(*(const uint8_t *)b->data, 8);
  const iso_file_tensor *a = iso_safetensors_find_tensor(reader, "a");
  assert_true(a->n_dims == 4 && a->dims[2] == 2 && a->scheme == ISO_SCHEME_F32);
  const iso_file_tensor *f8 = iso_safetensors_find_tensor(reader, "f8");
  assert_int_equal(f8->scheme, ISO_SCHEME_COUNT);
  assert_string_equal(f8->type_name, "F8_E4M3");
  const iso_file_tensor *scalar = iso_safetensors_find_tensor(reader, "scalar");
  assert_true(scalar->n_dims == 1 && scalar->dims[0] == 1 && scalar->bytes == 8);
  assert_null(iso_safetensors_find_tensor(reader, "__metadata__"));
  iso_safetensors_close(reader);
  for (uint64_t cut = 0; cut < size; cut++) {
    uint8_t *copy = malloc(cut ? cut : 1);
    memcpy(copy, bytes, cut);
    assert_int_equal(iso_safetensors_open_memory(copy, cut, &reader), ISO_ERROR_CORRUPT_DATA);
    free(copy);
  }
  free(bytes);
  uint8_t *empty = build("{}", 2, 0, &size);
  CHECK(iso_safetensors_open_memory(empty, size, &reader));
  assert_int_equal(iso_safetensors_tensor_count(reader), 0);
  iso_safetensors_close(reader);
  iso_safetensors_close(NULL);
  free(empty);
}

static void test_header_length(void **state) {
  (void)state;
  static const uint64_t lengths[] = {3, 1000, UINT64_C(1) << 40, UINT64_MAX, UINT64_MAX - 7};
  iso_safetensors *reader;
  uint64_t size;
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    uint8_t *bytes = build("{}", lengths[i], 0, &size);
    refuse(iso_safetensors_open_memory(bytes, size, &reader), ISO_ERROR_CORRUPT_DATA,
           "does not fit in the file's 10");
    free(bytes);
  }
  uint8_t *bytes = build("{}", 0, 0, &size);
  refuse(iso_safetensors_open_memory(bytes, size, &reader), ISO_ERROR_CORRUPT_DATA,
         "does not start with '{'");
  free(bytes);
  /* A header over the format's limit, all there: refused before it is parsed. */
  uint64_t length = 100000001;
  uint8_t *large = calloc(1, 8 + length);
  assert_non_null(large);
  memcpy(large, &length, 8);
  refuse(iso_safetensors_open_memory(large, 8 + length, &reader), ISO_ERROR_LIMIT,
         "a header of 100000001 bytes");
  free(large);
}

#define ONE(fields) "{\"t\":{" fields "}}"
#define F32_8(shape, offsets) ONE("\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets)

static void test_malformed(void **state) {
  (void)state;
  static const struct {
    const char *header;
    uint64_t data_bytes;
    const char *part;
  } cases[] = {
      {" {}", 0, "does not start with '{'"},
      {"[]", 0, "does not start with '{'"},
      {"{} x", 0, "header, bytes counted from 8: JSON: bytes after the end of the value at byte 3"},
      {"{\"t\":1}", 0, "tensor \"t\": it must be an object"},
      {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
      {"{\"__metadata__\":[]}", 0, "__metadata__"},
      {ONE("\"shape\":[2],\"data_offsets\":[0,8]"), 8, "\"dtype\" is missing"},
      {ONE("\"dtype\":\"F32\",\"data_offsets\":[0,8]"), 8, "\"shape\" is missing"},
      {ONE("\"dtype\":\"F32\",\"shape\":[2]"), 8, "\"data_offsets\" is missing"},
      {ONE("\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]"), 8, "\"dtype\" must be a string"},
      {F32_8("2", "[0,8]"), 8, "\"shape\" must be an array"},
      {F32_8("[-2]", "[0,8]"), 8, "a dimension of its shape"},
      {F32_8("[0]", "[0,0]"), 0, "a dimension of its shape"},
      {F32_8("[2.5]", "[0,8]"), 8, "a dimension of its shape"},
      {F32_8("[\"2\"]", "[0,8]"), 8, "a dimension of its shape"},
      {F32_8("[4398046511105]", "[0,8]"), 8, "a dimension of its shape"},
      {F32_8("[1e300]", "[0,8]"), 8, "a dimension of its shape"},
      {F32_8("[2147483648,2147483648,4]", "[0,8]"), 8, "size of tensor \"t\" overflows"},
      {F32_8("[2]", "0"), 8, "\"data_offsets\" must be an array"},
      {F32_8("[2]", "[]"), 8, "data_offsets must be two places"},
      {F32_8("[2]", "[0]"), 8, "data_offsets must be two places"},
      {F32_8("[2]", "[0,8,9]"), 8, "a begin and an end"},
      {F32_8("[2]", "[8,0]"), 8, "a begin and an end, in order"},
      {F32_8("[2]", "[0,16]"), 8, "two places in the 8 bytes"},
      {F32_8("[2]", "[-8,0]"), 8, "two places in the 8 bytes"},
      {F32_8("[2]", "[0.5,8]"), 8, "two places in the 8 bytes"},
      {F32_8("[2]", "[0,1e400]"), 8, "number out of range"},
      {F32_8("[3]", "[0,8]"), 8, "its dtype and shape make 12 bytes, its data_offsets 8"},
      {F32_8("[1]", "[0,8]"), 8, "its dtype and shape make 4 bytes, its data_offsets 8"},
      {F32_8("[2]", "[0,8]"), 9, "has 9 bytes of data, its tensors 8"},
      {F32_8("[2]", "[1,9]"), 9, "has 9 bytes of data, its tensors 8"},
      {"{\"t\":{},\"t\":{}}", 0, "duplicate key at byte 8"},
      {"{\"a\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]},"
       "\"b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
       6, "tensors \"a\" and \"b\" overlap"},
      {"{\"a\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]},"
       "\"b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
       8, "overlap"},
      {"{\"a\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]},"
       "\"b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[5,9]}}",
       9, "has 9 bytes of data, its tensors 8"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    refuse_header(cases[i].header, cases[i].data_bytes, ISO_ERROR_CORRUPT_DATA, cases[i].part);
  refuse_header(ONE("\"dtype\":\"F7\",\"shape\":[2],\"data_offsets\":[0,8]"), 8,
                ISO_ERROR_UNSUPPORTED, "tensor \"t\": the dtype \"F7\" is not known");
  refuse_header(F32_8("[1,1,1,1,2]", "[0,8]"), 8, ISO_ERROR_UNSUPPORTED, "more than 4 dimensions");
  refuse_header(F32_8("[[2]]", "[0,8]"), 8, ISO_ERROR_LIMIT, "nested too deep");
}

static char *put_file(const char *name, const void *data, uint64_t bytes) {
  char *path = iso_file_join(folder, name);
  iso_file_writer *writer;
  CHECK(iso_file_writer_create(path, &writer));
  CHECK(iso_file_writer_append(writer, data, bytes));
  CHECK(iso_file_writer_commit(writer));
  iso_file_writer_destroy(writer);
  return path;
}

/* A file that holds I8 tensors of two bytes, named by the letters of `names`. */
static char *put_shard(const char *name, const char *names) {
  char *path = iso_file_join(folder, name);
  iso_safetensors_writer *writer;
  CHECK(iso_safetensors_writer_create(path, &writer));
  for (const char *letter = names; *letter; letter++)
    CHECK(iso_safetensors_writer_add_tensor(writer, (char[]){*letter, 0}, ISO_SCHEME_I8, 1,
                                            (int64_t[]){2}));
  for (const char *letter = names; *letter; letter++)
    CHECK(iso_safetensors_writer_append(writer, (char[]){*letter, *letter}, 2));
  CHECK(iso_safetensors_writer_finish(writer));
  iso_safetensors_writer_destroy(writer);
  return path;
}

static void take_away(char *path) {
  assert_int_equal(unlink(path), 0);
  free(path);
}

static void refuse_index(const char *text, iso_status code, const char *part) {
  char *path = put_file("model.safetensors.index.json", text, strlen(text));
  iso_safetensors *reader = (iso_safetensors *)1;
  refuse(iso_safetensors_open_index(path, &reader), code, part);
  assert_null(reader);
  take_away(path);
}

static void test_index(void **state) {
  (void)state;
  char *first = put_shard("model-00001-of-00002.safetensors", "ab");
  char *second = put_shard("model-00002-of-00002.safetensors", "c");
  static const char good[] = "{\"metadata\":{\"total_size\":6},\"weight_map\":{"
                             "\"c\":\"model-00002-of-00002.safetensors\","
                             "\"a\":\"model-00001-of-00002.safetensors\","
                             "\"b\":\"model-00001-of-00002.safetensors\"}}";
  char *index = put_file("index.json", good, sizeof good - 1);
  iso_safetensors *reader;
  CHECK(iso_safetensors_open_index(index, &reader));
  assert_int_equal(iso_safetensors_shard_count(reader), 2);
  assert_int_equal(iso_safetensors_tensor_count(reader), 3);
  const iso_file_tensor *c = iso_safetensors_find_tensor(reader, "c");
  assert_int_equal(c->shard, 1);
  assert_memory_equal(c->data, "cc", 2);
  assert_ptr_equal(iso_safetensors_shard_map(reader, 1)->data + c->offset, c->data);
  iso_safetensors_close(reader);
  take_away(index);

  refuse_index("{}", ISO_ERROR_CORRUPT_DATA, "\"weight_map\" is missing");
  refuse_index("{\"weight_map\":{}}", ISO_ERROR_CORRUPT_DATA, "weight_map is empty");
  refuse_index("{\"weight_map\":{\"a\":1}}", ISO_ERROR_CORRUPT_DATA, "\"a\" must name a file");
  static const char *const bad_names[] = {
      "../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "",
      ".safetensors",     "model.bin"};
  for (size_t i = 0; i < sizeof bad_names / sizeof *bad_names; i++) {
    char text[200];
    snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", bad_names[i]);
    refuse_index(text, ISO_ERROR_CORRUPT_DATA, "not a .safetensors file of the same folder");
  }
  refuse_index("{\"weight_map\":{\"a\":\"gone.safetensors\"}}", ISO_ERROR_NOT_FOUND,
               "gone.safetensors: No such file");
  refuse_index("{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\"}}",
               ISO_ERROR_CORRUPT_DATA, "names 1 shards, but model-00001-of-00002.safetensors is");
  refuse_index("{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
               "\"d\":\"model-00002-of-00002.safetensors\"}}",
               ISO_ERROR_CORRUPT_DATA, "tensor \"d\" is not in model-00002-of-00002.safetensors");
  refuse_index("{\"weight_map\":{\"c\":\"model-00001-of-00002.safetensors\","
               "\"a\":\"model-00002-of-00002.safetensors\"}}",
               ISO_ERROR_CORRUPT_DATA, "is not in model-0000");
  take_away(second);
  second = put_shard("model-00002-of-00002.safetensors", "a");
  refuse_index(good, ISO_ERROR_CORRUPT_DATA, "\"a\" comes twice");
  take_away(second);
  second = put_file("model-00002-of-00002.safetensors", "version https://git-lfs", 23);
  refuse_index(good, ISO_ERROR_CORRUPT_DATA, "Git-LFS pointer");
  take_away(second);
  take_away(first);
}

static void test_writer(void **state) {
  (void)state;
  char *path = iso_file_join(folder, "out.safetensors");
  iso_safetensors_writer *w;
  CHECK(iso_safetensors_writer_create(path, &w));
  CHECK(iso_safetensors_writer_add_tensor(w, "model.\"quoted\"\n\xc3\xa9", ISO_SCHEME_F16, 2,
                                          (int64_t[]){2, 3}));
  CHECK(iso_safetensors_writer_add_tensor(w, "x", ISO_SCHEME_F32, 4, (int64_t[]){1, 1, 1, 1}));
  refuse(iso_safetensors_writer_add_tensor(w, "q", ISO_SCHEME_Q8_0, 1, (int64_t[]){32}),
         ISO_ERROR_UNSUPPORTED, "q8_0");
  refuse(iso_safetensors_writer_add_tensor(w, "q", ISO_SCHEME_F32, 1, (int64_t[]){0}),
         ISO_ERROR_CORRUPT_DATA, "dimension of 0");
  CHECK(iso_safetensors_writer_append(w, "0123456789a", 11));
  CHECK(iso_safetensors_writer_append(w, "bcdef", 5)); /* across the two tensors */
  refuse(iso_safetensors_writer_add_tensor(w, "y", ISO_SCHEME_I8, 1, (int64_t[]){1}),
         ISO_ERROR_INVALID_ARGUMENT, "too late");
  CHECK(iso_safetensors_writer_finish(w));
  iso_safetensors_writer_destroy(w);
  iso_safetensors *reader;
  CHECK(iso_safetensors_open(path, &reader));
  const iso_file_tensor *t = iso_safetensors_find_tensor(reader, "model.\"quoted\"\n\xc3\xa9");
  assert_non_null(t);
  assert_int_equal(t->offset % 64, 0);
  assert_true(t->scheme == ISO_SCHEME_F16 && t->dims[0] == 2 && t->dims[1] == 3);
  assert_memory_equal(t->data, "0123456789ab", 12);
  assert_memory_equal(iso_safetensors_find_tensor(reader, "x")->data, "cdef", 4);
  iso_safetensors_close(reader);
  take_away(path);

  path = iso_file_join(folder, "bad.safetensors");
  CHECK(iso_safetensors_writer_create(path, &w));
  CHECK(iso_safetensors_writer_add_tensor(w, "x", ISO_SCHEME_I8, 1, (int64_t[]){2}));
  CHECK(iso_safetensors_writer_append(w, "0", 1));
  refuse(iso_safetensors_writer_finish(w), ISO_ERROR_INVALID_ARGUMENT, "1 of 2 bytes");
  iso_safetensors_writer_destroy(w);
  CHECK(iso_safetensors_writer_create(path, &w));
  CHECK(iso_safetensors_writer_add_tensor(w, "x", ISO_SCHEME_I8, 1, (int64_t[]){2}));
  refuse(iso_safetensors_writer_append(w, "0123", 3), ISO_ERROR_INVALID_ARGUMENT,
         "3 bytes are more than the 2");
  refuse(iso_safetensors_writer_append(w, "0", 1), ISO_ERROR_INVALID_ARGUMENT, "earlier write");
  iso_safetensors_writer_destroy(w);
  CHECK(iso_safetensors_writer_create(path, &w));
  CHECK(iso_safetensors_writer_add_tensor(w, "x", ISO_SCHEME_I8, 1, (int64_t[]){2}));
  CHECK(iso_safetensors_writer_add_tensor(w, "x", ISO_SCHEME_I8, 1, (int64_t[]){2}));
  refuse(iso_safetensors_writer_append(w, "0123", 4), ISO_ERROR_CORRUPT_DATA, "duplicate key");
  iso_safetensors_writer_destroy(w);
  iso_safetensors_writer_destroy(NULL);
  assert_false(iso_file_exists(path));
  free(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values),    cmocka_unit_test(test_header_length),
      cmocka_unit_test(test_malformed), cmocka_unit_test(test_index),
      cmocka_unit_test(test_writer),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
