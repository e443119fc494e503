#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "models/formats/gguf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A file under construction. */
typedef struct builder {
  uint8_t bytes[4096];
  size_t size;
} builder;

static void put(builder *b, const void *data, size_t size) {
  assert_true(b->size + size <= sizeof b->bytes);
  memcpy(b->bytes + b->size, data, size);
  b->size += size;
}
static void put_u8(builder *b, uint8_t value) { put(b, &value, 1); }
static void put_u16(builder *b, uint16_t value) { put(b, &value, 2); }
static void put_u32(builder *b, uint32_t value) { put(b, &value, 4); }
static void put_u64(builder *b, uint64_t value) { put(b, &value, 8); }
static void put_f32(builder *b, float value) { put(b, &value, 4); }
static void put_f64(builder *b, double value) { put(b, &value, 8); }
static void put_string(builder *b, const char *text) {
  put_u64(b, strlen(text));
  put(b, text, strlen(text));
}
static void put_key(builder *b, const char *key, uint32_t type) {
  put_string(b, key);
  put_u32(b, type);
}
static void put_array(builder *b, const char *key, uint32_t type, uint64_t count) {
  put_key(b, key, ISO_GGUF_ARRAY);
  put_u32(b, type);
  put_u64(b, count);
}
static void put_header(builder *b, uint64_t tensors, uint64_t pairs) {
  b->size = 0;
  put(b, "GGUF", 4);
  put_u32(b, 3);
  put_u64(b, tensors);
  put_u64(b, pairs);
}
static void put_tensor(builder *b, const char *name, uint32_t n_dims, const uint64_t *dims,
                       uint32_t type, uint64_t offset) {
  put_string(b, name);
  put_u32(b, n_dims);
  for (uint32_t i = 0; i < n_dims; i++)
    put_u64(b, dims[i]);
  put_u32(b, type);
  put_u64(b, offset);
}
static void put_zeros(builder *b, size_t size) {
  for (size_t i = 0; i < size; i++)
    put_u8(b, 0);
}
static void pad(builder *b, size_t alignment) {
  while (b->size % alignment)
    put_u8(b, 0);
}

enum { TYPE_F32 = 0, TYPE_Q4_0 = 2 };

/* Opens an exact heap copy, so that the address sanitizer sees a read past the end. */
static iso_status open_copy(const builder *b, uint8_t **out_copy, iso_gguf **out_gguf) {
  *out_copy = malloc(b->size ? b->size : 1);
  assert_non_null(*out_copy);
  memcpy(*out_copy, b->bytes, b->size);
  return iso_gguf_open_memory(*out_copy, b->size, out_gguf);
}

static void refuse_code(const builder *b, iso_status code, const char *part) {
  uint8_t *copy;
  iso_gguf *gguf = (iso_gguf *)1;
  iso_status status = open_copy(b, &copy, &gguf);
  if (status != code)
    fail_msg("status %s, wanted %s with \"%s\": %s", iso_status_name(status), iso_status_name(code),
             part, iso_status_message());
  assert_null(gguf);
  if (!strstr(iso_status_message(), part))
    fail_msg("message \"%s\" lacks \"%s\"", iso_status_message(), part);
  free(copy);
}

static void refuse(const builder *b, const char *part) {
  refuse_code(b, ISO_ERROR_CORRUPT_DATA, part);
}

/* One F32 tensor "t" of 8 elements and one key; 32 bytes of data. */
static void build_small(builder *b) {
  put_header(b, 1, 1);
  put_key(b, "k", ISO_GGUF_U32);
  put_u32(b, 7);
  put_tensor(b, "t", 1, (uint64_t[]){8}, TYPE_F32, 0);
  pad(b, 32);
  put_zeros(b, 32);
}

/* A value of each type, arrays and two tensors. Where the tensors' data start. */
static size_t build_values(builder *b) {
  put_header(b, 2, 19);
  put_key(b, "u8", ISO_GGUF_U8), put_u8(b, 200);
  put_key(b, "i8", ISO_GGUF_I8), put_u8(b, 0x80);
  put_key(b, "u16", ISO_GGUF_U16), put_u16(b, 60000);
  put_key(b, "i16", ISO_GGUF_I16), put_u16(b, 0xffff);
  put_key(b, "u32", ISO_GGUF_U32), put_u32(b, 4000000000u);
  put_key(b, "i32", ISO_GGUF_I32), put_u32(b, UINT32_MAX);
  put_key(b, "f32", ISO_GGUF_F32), put_f32(b, 0.5f);
  put_key(b, "bool", ISO_GGUF_BOOL), put_u8(b, 1);
  put_key(b, "string", ISO_GGUF_STRING), put_string(b, "llama");
  put_key(b, "u64", ISO_GGUF_U64), put_u64(b, UINT64_MAX);
  put_key(b, "i64", ISO_GGUF_I64), put_u64(b, (uint64_t)INT64_MIN);
  put_key(b, "f64", ISO_GGUF_F64), put_f64(b, 1e300);
  put_array(b, "strings", ISO_GGUF_STRING, 3);
  put_string(b, "a"), put_string(b, ""), put_string(b, "ccc");
  put_array(b, "i32s", ISO_GGUF_I32, 2), put_u32(b, 5), put_u32(b, UINT32_MAX - 1);
  put_array(b, "f32s", ISO_GGUF_F32, 1), put_f32(b, -2);
  put_array(b, "bools", ISO_GGUF_BOOL, 2), put_u8(b, 0), put_u8(b, 1);
  put_array(b, "none", ISO_GGUF_STRING, 0);
  put_key(b, "nan", ISO_GGUF_F32), put_u32(b, 0x7fc00000);
  put_key(b, "general.alignment", ISO_GGUF_U32), put_u32(b, 64);
  put_tensor(b, "q", 2, (uint64_t[]){64, 3}, TYPE_Q4_0, 64);
  put_tensor(b, "f", 4, (uint64_t[]){2, 1, 2, 3}, TYPE_F32, 0); /* data order differs */
  pad(b, 64);
  size_t data_start = b->size;
  put_zeros(b, 64 + 3 * 36);
  return data_start;
}

static void check_scalars(const iso_gguf *g) {
  static const struct {
    const char *key;
    int64_t value;
  } ints[] = {{"u8", 200},          {"i8", -128}, {"u16", 60000},    {"i16", -1},
              {"u32", 4000000000u}, {"i32", -1},  {"i64", INT64_MIN}};
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
    int64_t value;
    assert_int_equal(iso_gguf_get_int(g, ints[i].key, INT64_MIN, INT64_MAX, &value), ISO_OK);
    assert_true(value == ints[i].value);
    assert_string_equal(
        iso_gguf_value_at(g, (uint64_t)(iso_gguf_find(g, ints[i].key) - iso_gguf_value_at(g, 0)))
            ->key,
        ints[i].key);
  }
  int64_t integer = 3;
  double number = 3;
  bool flag = false;
  iso_text_view text = {0};
  assert_int_equal(iso_gguf_get_int(g, "u64", 0, INT64_MAX, &integer), ISO_ERROR_CORRUPT_DATA);
  assert_true(iso_gguf_value_int(iso_gguf_find(g, "u64"), 0) == INT64_MAX);
  assert_int_equal(iso_gguf_get_int(g, "u8", 0, 199, &integer), ISO_ERROR_CORRUPT_DATA);
  assert_non_null(strstr(iso_status_message(), "key \"u8\" is 200, not in 0..199, at byte"));
  assert_int_equal(iso_gguf_get_int(g, "f32", 0, 9, &integer), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_gguf_get_int(g, "i32s", 0, 9, &integer), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_gguf_get_int(g, "missing", 0, 9, &integer), ISO_ERROR_NOT_FOUND);
  assert_int_equal(iso_gguf_get_optional_int(g, "missing", 0, 9, &integer), ISO_OK);
  assert_int_equal(integer, 3);
  assert_int_equal(iso_gguf_get_float(g, "f32", 0, 1, &number), ISO_OK);
  assert_true(number == 0.5);
  assert_int_equal(iso_gguf_get_float(g, "f64", 0, 1e301, &number), ISO_OK);
  assert_int_equal(iso_gguf_get_float(g, "f64", 0, 1, &number), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_gguf_get_float(g, "nan", -1e30, 1e30, &number), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_gguf_get_float(g, "u8", 0, 999, &number), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_gguf_get_optional_float(g, "missing", 0, 1, &number), ISO_OK);
  assert_int_equal(iso_gguf_get_bool(g, "bool", &flag), ISO_OK);
  assert_true(flag);
  assert_int_equal(iso_gguf_get_bool(g, "u8", &flag), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_gguf_get_optional_bool(g, "missing", &flag), ISO_OK);
  assert_int_equal(iso_gguf_get_string(g, "string", &text), ISO_OK);
  assert_true(iso_text_view_equals(text, "llama"));
  assert_false(iso_text_view_equals(text, "llam"));
  assert_int_equal(iso_gguf_get_string(g, "strings", &text), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_gguf_get_optional_string(g, "missing", &text), ISO_OK);
}

static void check_arrays(const iso_gguf *g) {
  iso_text_view *strings;
  uint64_t count;
  assert_int_equal(iso_gguf_get_string_array(g, "strings", &strings, &count), ISO_OK);
  assert_int_equal(count, 3);
  assert_true(iso_text_view_equals(strings[0], "a") && iso_text_view_equals(strings[1], "") &&
              iso_text_view_equals(strings[2], "ccc"));
  free(strings);
  assert_int_equal(iso_gguf_get_string_array(g, "none", &strings, &count), ISO_OK);
  assert_int_equal(count, 0);
  free(strings);
  assert_int_equal(iso_gguf_get_string_array(g, "i32s", &strings, &count), ISO_ERROR_CORRUPT_DATA);
  assert_non_null(strstr(iso_status_message(), "is an array of i32, not an array of strings"));
  assert_int_equal(iso_gguf_get_string_array(g, "string", &strings, &count),
                   ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_gguf_get_optional_string_array(g, "missing", &strings, &count), ISO_OK);
  const iso_gguf_value *array = NULL;
  assert_int_equal(iso_gguf_get_int_array(g, "i32s", &array), ISO_OK);
  assert_int_equal(array->count, 2);
  assert_true(iso_gguf_value_int(array, 0) == 5 && iso_gguf_value_int(array, 1) == -2);
  assert_int_equal(iso_gguf_get_float_array(g, "f32s", &array), ISO_OK);
  assert_true(iso_gguf_value_float(array, 0) == -2);
  assert_int_equal(iso_gguf_get_float_array(g, "i32s", &array), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_gguf_get_int_array(g, "strings", &array), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_gguf_get_optional_int_array(g, "missing", &array), ISO_OK);
  assert_int_equal(iso_gguf_get_optional_float_array(g, "missing", &array), ISO_OK);
  assert_true(iso_gguf_value_int(iso_gguf_find(g, "bools"), 1) == 1);
  assert_true(iso_gguf_value_int(iso_gguf_find(g, "f32"), 0) == 0);
}

static void test_values(void **state) {
  (void)state;
  builder b;
  size_t data_start = build_values(&b);
  uint8_t *copy;
  iso_gguf *g;
  if (open_copy(&b, &copy, &g) != ISO_OK)
    fail_msg("%s", iso_status_message());
  assert_int_equal(iso_gguf_version(g), 3);
  assert_int_equal(iso_gguf_shard_count(g), 1);
  assert_null(iso_gguf_shard_map(g, 0)->data);
  assert_int_equal(iso_gguf_value_count(g), 19);
  check_scalars(g);
  check_arrays(g);
  assert_int_equal(iso_gguf_tensor_count(g), 2);
  const iso_file_tensor *q = iso_gguf_tensor_at(g, 0);
  assert_string_equal(q->name, "q");
  assert_string_equal(q->type_name, "q4_0");
  assert_int_equal(q->scheme, ISO_SCHEME_Q4_0);
  assert_int_equal(q->n_dims, 2);
  assert_true(q->dims[0] == 3 && q->dims[1] == 64 && q->dims[2] == 1);
  assert_int_equal(q->bytes, 3 * 36);
  assert_int_equal(q->offset, data_start + 64);
  assert_ptr_equal(q->data, copy + data_start + 64);
  const iso_file_tensor *f = iso_gguf_find_tensor(g, "f");
  assert_ptr_equal(f, iso_gguf_tensor_at(g, 1));
  assert_true(f->dims[0] == 3 && f->dims[1] == 2 && f->dims[2] == 1 && f->dims[3] == 2);
  assert_null(iso_gguf_find_tensor(g, "g"));
  assert_null(iso_gguf_find(g, ""));
  iso_gguf_close(g);
  free(copy);
}

static void test_header(void **state) {
  (void)state;
  builder b;
  build_small(&b);
  uint8_t *copy;
  iso_gguf *g;
  assert_int_equal(open_copy(&b, &copy, &g), ISO_OK);
  iso_gguf_close(g);
  free(copy);
  size_t whole = b.size;
  for (size_t size = 0; size < whole; size++) { /* cut anywhere: an error, never a crash */
    b.size = size;
    refuse(&b, "at byte");
  }
  b.size = whole;
  b.bytes[0] = 'g';
  refuse(&b, "not a GGUF file");
  static const struct {
    uint8_t version[4];
    const char *part;
  } versions[] = {{{1, 0, 0, 0}, "version 1, only 2 and 3 are read"},
                  {{4, 0, 0, 0}, "version 4,"},
                  {{0, 0, 0, 0}, "version 0,"},
                  {{0, 0, 0, 3}, "big-endian"},
                  {{0, 0, 0, 2}, "big-endian"}};
  build_small(&b);
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
    memcpy(b.bytes + 4, versions[i].version, 4);
    refuse_code(&b, ISO_ERROR_UNSUPPORTED, versions[i].part);
  }
  memcpy(b.bytes + 4, "\2\0\0\0", 4);
  assert_int_equal(open_copy(&b, &copy, &g), ISO_OK);
  assert_int_equal(iso_gguf_version(g), 2);
  iso_gguf_close(g);
  free(copy);
}

/* Sets the limit of the address space and returns the one before: memory taken on the word of a
 * count then shows as "out of memory". Sanitizers reserve terabytes and go without it. */
static uint64_t set_memory_limit(uint64_t bytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return bytes;
#else
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
  uint64_t before = limit.rlim_cur;
  limit.rlim_cur = bytes;
  assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
  return before;
#endif
}

static void test_counts(void **state) {
  (void)state;
  builder b;
  static const uint64_t counts[] = {UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 60,
                                    UINT64_C(1) << 30, 1000};
  uint64_t unlimited = set_memory_limit(UINT64_C(256) << 20);
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    put_header(&b, counts[i], 0);
    put_zeros(&b, 136); /* 160 bytes in all */
    refuse(&b, "tensors are not possible in the 136 bytes at byte 8");
    put_header(&b, 0, counts[i]);
    put_zeros(&b, 136);
    refuse(&b, "keys are not possible in the 136 bytes");
    put_header(&b, 0, 1);
    put_array(&b, "a", ISO_GGUF_U64, counts[i]);
    put_zeros(&b, 64);
    refuse(&b, "elements of type u64 do not fit in the 64 bytes left at byte 49");
    put_header(&b, 0, 1);
    put_array(&b, "a", ISO_GGUF_STRING, counts[i]);
    put_zeros(&b, 64);
    refuse(&b, "elements of type string do not fit");
    put_header(&b, 0, 1);
    put_key(&b, "a", ISO_GGUF_STRING);
    put_u64(&b, counts[i]);
    put_zeros(&b, 64);
    refuse(&b, "64 are left in the file at byte 45");
    put_header(&b, 0, 1);
    put_u64(&b, counts[i]); /* the key's own length */
    put_zeros(&b, 64);
    refuse(&b, "64 are left in the file at byte 32");
  }
  put_header(&b, 0, 1);
  put_array(&b, "a", ISO_GGUF_STRING, 3);
  put_string(&b, "x");
  put_u64(&b, UINT64_MAX - 4); /* offset + length would wrap */
  put_zeros(&b, 64);
  refuse(&b, "are left in the file");
  set_memory_limit(unlimited);
}

static void test_metadata_errors(void **state) {
  (void)state;
  builder b;
  put_header(&b, 0, 1);
  put_key(&b, "k", 13), put_zeros(&b, 32);
  refuse(&b, "key \"k\": GGUF: unknown value type 13 at byte 33");
  put_header(&b, 0, 1);
  put_array(&b, "k", 13, 0), put_zeros(&b, 32);
  refuse(&b, "unknown value type 13 at byte 37");
  put_header(&b, 0, 1);
  put_array(&b, "k", ISO_GGUF_ARRAY, 1), put_zeros(&b, 32);
  refuse_code(&b, ISO_ERROR_UNSUPPORTED, "array of arrays at byte 37");
  put_header(&b, 0, 1);
  put_key(&b, "k", ISO_GGUF_BOOL), put_u8(&b, 2);
  refuse(&b, "a bool of 2 at byte 37");
  put_header(&b, 0, 1);
  put_key(&b, "", ISO_GGUF_U32), put_u32(&b, 0);
  refuse(&b, "a name of 0 bytes");
  put_header(&b, 0, 1);
  put_key(&b, "a\nb", ISO_GGUF_U32), put_u32(&b, 0);
  refuse(&b, "control character in a name at byte 33");
  put_header(&b, 0, 3);
  put_key(&b, "same", ISO_GGUF_U32), put_u32(&b, 0);
  put_key(&b, "other", ISO_GGUF_U32), put_u32(&b, 0);
  size_t again = b.size + 8;
  put_key(&b, "same", ISO_GGUF_U8), put_u8(&b, 0);
  char part[80];
  snprintf(part, sizeof part, "the key \"same\" comes twice, again at byte %zu", again);
  refuse(&b, part);
  static const uint32_t alignments[] = {0, 1, 4, 24, 33, 131072, UINT32_MAX};
  for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
    put_header(&b, 0, 1);
    put_key(&b, "general.alignment", ISO_GGUF_U32), put_u32(&b, alignments[i]);
    refuse(&b, "general.alignment");
  }
  put_header(&b, 0, 1);
  put_key(&b, "general.alignment", ISO_GGUF_STRING), put_string(&b, "32");
  refuse(&b, "key \"general.alignment\" is string, not an integer, at byte");
}

/* One tensor of the given description, then `data_bytes` of data. */
static void build_tensor(builder *b, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                         uint64_t offset, size_t data_bytes) {
  put_header(b, 1, 0);
  put_tensor(b, "w", n_dims, dims, type, offset);
  pad(b, 32);
  put_zeros(b, data_bytes);
}

static void test_tensor_errors(void **state) {
  (void)state;
  builder b;
  build_tensor(&b, 0, NULL, TYPE_F32, 0, 64);
  refuse(&b, "tensor \"w\" has 0 dimensions");
  build_tensor(&b, 5, (uint64_t[]){1, 1, 1, 1, 1}, TYPE_F32, 0, 64);
  refuse(&b, "tensor \"w\" has 5 dimensions, 1 to 4 are possible, at byte 33");
  static const uint64_t bad_dims[] = {0, (uint64_t)-1, (UINT64_C(1) << 42) + 1, UINT64_C(1) << 63,
                                      (UINT64_C(1) << 31) + 1};
  for (size_t i = 0; i < sizeof bad_dims / sizeof *bad_dims; i++) {
    build_tensor(&b, 2, (uint64_t[]){1, bad_dims[i]}, TYPE_F32, 0, 64);
    refuse(&b, "tensor \"w\" has a dimension of");
    refuse(&b, "at byte 45");
  }
  uint64_t large = UINT64_C(1) << 31;
  build_tensor(&b, 4, (uint64_t[]){large, large, large, large}, TYPE_F32, 0, 64);
  refuse(&b, "size of tensor \"w\" overflows");
  build_tensor(&b, 3, (uint64_t[]){large, large / 4, 1}, TYPE_F32, 0, 64);
  refuse(&b, "runs past the end of the file");
  build_tensor(&b, 2, (uint64_t[]){33, 2}, TYPE_Q4_0, 0, 64);
  refuse(&b, "tensor \"w\" has rows of 33 elements, not whole q4_0 blocks of 32");
  static const uint32_t unknown[] = {4, 5, 31, 99, UINT32_MAX};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    char part[80];
    snprintf(part, sizeof part, "tensor \"w\" has the unknown type %u at byte 45", unknown[i]);
    build_tensor(&b, 1, (uint64_t[]){32}, unknown[i], 0, 64);
    refuse_code(&b, ISO_ERROR_UNSUPPORTED, part);
  }
  build_tensor(&b, 1, (uint64_t[]){256}, 23, 0, 64);
  refuse_code(&b, ISO_ERROR_UNSUPPORTED,
              "tensor \"w\" is stored as IQ4_XS, which is not supported");
  build_tensor(&b, 1, (uint64_t[]){17}, TYPE_F32, 0, 64);
  refuse(&b, "runs past the end of the file");
  build_tensor(&b, 1, (uint64_t[]){8}, TYPE_F32, 64, 64);
  refuse(&b, "runs past the end of the file");
  build_tensor(&b, 1, (uint64_t[]){8}, TYPE_F32, UINT64_MAX - 31, 64);
  refuse(&b, "runs past the end of the file");
  build_tensor(&b, 1, (uint64_t[]){4}, TYPE_F32, 16, 64);
  refuse(&b, "not aligned to 32");
  build_tensor(&b, 1, (uint64_t[]){8}, TYPE_F32, 0, 0);
  b.size = 60; /* ends before the data section starts */
  refuse(&b, "the file ends before its data");
  put_header(&b, 1, 0);
  put_tensor(&b, "\x1b[2J", 1, (uint64_t[]){8}, TYPE_F32, 0);
  refuse(&b, "control character in a name");
}

static void build_pair(builder *b, const char *first, uint64_t first_offset, const char *second,
                       uint64_t second_offset) {
  put_header(b, 2, 0);
  put_tensor(b, first, 1, (uint64_t[]){16}, TYPE_F32, first_offset);
  put_tensor(b, second, 1, (uint64_t[]){16}, TYPE_F32, second_offset);
  pad(b, 32);
  put_zeros(b, 128);
}

static void test_tensors_together(void **state) {
  (void)state;
  builder b;
  build_pair(&b, "x", 0, "y", 32);
  refuse(&b, "tensors \"x\" and \"y\" overlap at byte 128");
  build_pair(&b, "x", 64, "y", 64);
  refuse(&b, "overlap");
  build_pair(&b, "x", 32, "y", 0);
  refuse(&b, "tensors \"y\" and \"x\" overlap");
  build_pair(&b, "same", 0, "same", 64);
  refuse(&b, "the tensor name \"same\" comes twice, again at byte 68");
  build_pair(&b, "x", 64, "y", 0);
  uint8_t *copy;
  iso_gguf *g;
  assert_int_equal(open_copy(&b, &copy, &g), ISO_OK);
  iso_gguf_close(g);
  free(copy);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values),        cmocka_unit_test(test_header),
      cmocka_unit_test(test_counts),        cmocka_unit_test(test_metadata_errors),
      cmocka_unit_test(test_tensor_errors), cmocka_unit_test(test_tensors_together),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
