#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "core/file.h"
#include "core/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static cJSON *parse(const char *text) {
  cJSON *root;
  iso_status status = iso_json_parse(text, strlen(text), 16, &root);
  if (status != ISO_OK)
    fail_msg("%s: %s", text, iso_status_message());
  assert_non_null(root);
  return root;
}

/* The text must be refused with `code`, the message holding `part`. */
static void refuse_bytes(const char *text, size_t length, iso_status code, const char *part) {
  cJSON *root = (cJSON *)1;
  /* An exact heap copy: a read past the end is then seen by the address sanitizer. */
  char *copy = malloc(length ? length : 1);
  assert_non_null(copy);
  memcpy(copy, text, length);
  iso_status status = iso_json_parse(copy, length, 16, &root);
  free(copy);
  if (status != code)
    fail_msg("%s: status %s, wanted %s (%s)", text, iso_status_name(status), iso_status_name(code),
             iso_status_message());
  assert_null(root);
  if (!strstr(iso_status_message(), part))
    fail_msg("%s: message \"%s\" lacks \"%s\"", text, iso_status_message(), part);
}

static void refuse(const char *text, const char *part) {
  refuse_bytes(text, strlen(text), ISO_ERROR_CORRUPT_DATA, part);
}

static void test_values(void **state) {
  (void)state;
  cJSON *root =
      parse("\xef\xbb\xbf {\"a\": [1, -2.5e+3, 0, true, false, null], \"b\": {},\n"
            "\"\\u00e9\\ud83d\\ude00\": \"x\\n\\\"\\/\", \"c\": [], \"d\": \"\xc3\xa9\"} ");
  const cJSON *array = cJSON_GetObjectItemCaseSensitive(root, "a");
  assert_int_equal(cJSON_GetArraySize(array), 6);
  assert_true(cJSON_GetArrayItem(array, 1)->valuedouble == -2500.0);
  const char *text;
  assert_int_equal(iso_json_get_string(root, "\xc3\xa9\xf0\x9f\x98\x80", &text), ISO_OK);
  assert_string_equal(text, "x\n\"/");
  cJSON_Delete(root);
  static const char *const scalars[] = {"1",
                                        "\xef\xbb\xbf"
                                        "1",
                                        "-0",
                                        "\"\"",
                                        "null",
                                        " [ ] ",
                                        "{}",
                                        "0.5E-2",
                                        "1e308"};
  for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
    cJSON_Delete(parse(scalars[i]));
}

static void test_syntax_errors(void **state) {
  (void)state;
  static const struct {
    const char *text, *part;
  } cases[] = {
      {"", "ends early at byte 0"},
      {"  \n ", "ends early at byte 4 (line 2)"},
      {"{} x", "after the end of the value at byte 3"},
      {"1 2", "after the end"},
      {"{\"a\":1}}", "after the end"},
      {"[1,]", "value is needed here at byte 3"},
      {"[1 2]", "',' or ']'"},
      {"[1}", "',' or ']'"},
      {"{\"a\":1]", "',' or '}'"},
      {"{\"a\":1,}", "key in quotes"},
      {"{a:1}", "key in quotes is needed here at byte 1"},
      {"{\"a\" 1}", "':' is needed"},
      {"{\"a\":", "ends early"},
      {"[", "ends early"},
      {"tru", "value is needed"},
      {"'a'", "value is needed"},
      {"[NaN]", "NaN and Infinity are not JSON at byte 1"},
      {"{\"a\":\nInfinity}", "NaN and Infinity are not JSON at byte 6 (line 2)"},
      {"-Infinity", "NaN and Infinity"},
      {"-NaN", "NaN and Infinity"},
      {"nan", "value is needed"},
      {"01", "may not start with 0"},
      {"-", "needs a digit"},
      {"+1", "value is needed"},
      {".5", "value is needed"},
      {"1.", "digit after its point"},
      {"1e", "digit in its exponent"},
      {"0x10", "after the end"},
      {"[1e309]", "number out of range at byte 1"},
      {"{\"k\":[0,-1e999]}", "number out of range at byte 8"},
      {"{\"top_p\": 1e999}", "number out of range at byte 10"},
      {"{\"a\": 1, \"a\": 1e999}", "duplicate key at byte 9"},
      {"1234567890123456789012345678901234567890123456789012345678901234", "more than 63"},
      {"\"abc", "string without an end at byte 0"},
      {"\"\\", "unknown escape"},
      {"\"\\x41\"", "unknown escape"},
      {"\"\\u12\"", "four hexadecimal digits"},
      {"\"\\u12g4\"", "four hexadecimal digits"},
      {"\"a\tb\"", "control character"},
      {"\"\\ud800\"", "lone high surrogate at byte 1"},
      {"\"\\ud800\\n\"", "lone high surrogate"},
      {"\"\\ud800\\ud800\"", "lone high surrogate"},
      {"\"\\udc00\"", "lone low surrogate"},
      {"\"\\u0000\"", "NUL"},
      {"{\"a\\u0000b\":1}", "NUL"},
      {"\"\x80\"", "invalid UTF-8 at byte 1"},
      {"\"\xc0\x80\"", "invalid UTF-8"},
      {"\"\xc3\"", "invalid UTF-8"},
      {"\"\xe0\x9f\xbf\"", "invalid UTF-8"},
      {"\"\xed\xa0\x80\"", "invalid UTF-8"},
      {"\"\xf4\x90\x80\x80\"", "invalid UTF-8"},
      {"\"\xf5\x80\x80\x80\"", "invalid UTF-8"},
      {"\"\xf0\x9f\x98", "invalid UTF-8"},
      {"{\"a\":1,\"a\":2}", "duplicate key at byte 7"},
      {"{\"b\":{\"a\":1},\"c\":[{\"x\":[],\n\"a\":{\"q\":1},\"\\u0061\":2}]}",
       "duplicate key at byte 39 (line 2)"},
      {"{\"\":1,\"\":2}", "duplicate key"},
      {"{\"longer than eight\":1,\"longer than nine\":1,\"longer than eight\":1}",
       "duplicate key at byte 44"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    refuse(cases[i].text, cases[i].part);
  refuse_bytes("\"a\0b\"", 5, ISO_ERROR_CORRUPT_DATA, "control character");
  refuse_bytes("[1]\0", 4, ISO_ERROR_CORRUPT_DATA, "after the end");
  refuse_bytes("\0", 1, ISO_ERROR_CORRUPT_DATA, "value is needed");
}

static void test_depth(void **state) {
  (void)state;
  cJSON *root = parse("[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]"); /* 16, the limit of parse() */
  cJSON_Delete(root);
  refuse_bytes("[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", 35, ISO_ERROR_LIMIT,
               "nested too deep at byte 16");
  size_t length = 4u << 20;
  char *bomb = malloc(length);
  assert_non_null(bomb);
  memset(bomb, '[', length);
  assert_int_equal(iso_json_parse(bomb, length, ISO_JSON_MAX_DEPTH, &root), ISO_ERROR_LIMIT);
  for (size_t i = 0; i + 5 <= length; i += 5)
    memcpy(bomb + i, "{\"a\":", 5);
  assert_int_equal(iso_json_parse(bomb, length, ISO_JSON_MAX_DEPTH, &root), ISO_ERROR_LIMIT);
  /* The deepest allowed text is built, walked and freed. */
  memset(bomb, '[', ISO_JSON_MAX_DEPTH);
  memset(bomb + ISO_JSON_MAX_DEPTH, ']', ISO_JSON_MAX_DEPTH);
  assert_int_equal(iso_json_parse(bomb, 2 * ISO_JSON_MAX_DEPTH, ISO_JSON_MAX_DEPTH, &root), ISO_OK);
  cJSON_Delete(root);
  free(bomb);
  assert_int_equal(iso_json_parse("1", 1, 0, &root), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_json_parse("1", 1, ISO_JSON_MAX_DEPTH + 1, &root),
                   ISO_ERROR_INVALID_ARGUMENT);
}

static void test_too_many_values(void **state) {
  (void)state;
  size_t length = 2 * ((size_t)ISO_JSON_MAX_VALUES + 1) + 1;
  char *text = malloc(length);
  assert_non_null(text);
  for (size_t i = 0; i < length; i++)
    text[i] = i % 2 ? '0' : ',';
  text[0] = '[';
  text[length - 1] = ']';
  cJSON *root;
  assert_int_equal(iso_json_parse(text, length, 4, &root), ISO_ERROR_LIMIT);
  assert_null(root);
  free(text);
}

static void test_values_of_several_texts(void **state) {
  (void)state;
  uint64_t values = 7;
  cJSON *root;
  assert_int_equal(iso_json_parse_within("[1,2]", 5, 4, &values, &root), ISO_OK);
  cJSON_Delete(root);
  assert_int_equal(values, 4);
  assert_int_equal(iso_json_parse_within("[1,2", 4, 4, &values, &root), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_parse_within("[[[]]]", 6, 2, &values, &root), ISO_ERROR_LIMIT);
  assert_int_equal(values, 4);
  assert_int_equal(iso_json_parse_within("[1,2,3]", 7, 4, &values, &root), ISO_OK);
  cJSON_Delete(root);
  assert_int_equal(values, 0);
  assert_int_equal(iso_json_parse_within("1", 1, 4, &values, &root), ISO_ERROR_LIMIT);
  assert_null(root);
}

/* A vocabulary-sized object, its keys in any order, costs about as much as parsing it. */
static void test_large_object(void **state) {
  (void)state;
  enum { KEYS = 200000 };
  char *text = malloc(KEYS * 32u);
  assert_non_null(text);
  size_t length = 0;
  for (uint32_t i = 0; i < KEYS; i++)
    length += (size_t)sprintf(text + length, "%c\"sameprefix%08x\":%u", i ? ',' : '{',
                              i * 2654435761u, i);
  text[length++] = '}';
  struct timespec start, end;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
  cJSON *root;
  assert_int_equal(iso_json_parse(text, length, 4, &root), ISO_OK);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  cJSON_Delete(root);
  double seconds =
      (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
  assert_true(seconds < 3.0); /* quadratic would be minutes */
  text[length - 1] = ',';
  length += (size_t)sprintf(text + length, "\"sameprefix00000000\":1}");
  refuse_bytes(text, length, ISO_ERROR_CORRUPT_DATA, "duplicate key");
  free(text);
}

static void test_getters(void **state) {
  (void)state;
  cJSON *root = parse("{\"i\":42,\"f\":0.5,\"big\":9007199254740994,\"huge\":1e300,\"s\":\"text\","
                      "\"t\":true,\"n\":null,\"a\":[1],\"o\":{}}");
  int64_t i = 7;
  double f = 7;
  bool t = false;
  const char *s = NULL;
  const cJSON *node = NULL;
  assert_int_equal(iso_json_get_int(root, "i", 0, 42, &i), ISO_OK);
  assert_int_equal(i, 42);
  assert_int_equal(iso_json_get_int(root, "i", 43, 50, &i), ISO_ERROR_CORRUPT_DATA);
  assert_non_null(strstr(iso_status_message(), "\"i\" is 42, not in 43..50"));
  assert_int_equal(iso_json_get_int(root, "f", 0, 9, &i), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_get_int(root, "big", 0, INT64_MAX, &i), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_get_int(root, "huge", 0, INT64_MAX, &i), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_get_int(root, "s", 0, 9, &i), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_get_int(root, "n", 0, 9, &i), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_get_int(root, "none", 0, 9, &i), ISO_ERROR_NOT_FOUND);
  assert_non_null(strstr(iso_status_message(), "\"none\""));
  assert_int_equal(iso_json_get_int(NULL, "i", 0, 9, &i), ISO_ERROR_NOT_FOUND);
  assert_int_equal(iso_json_get_optional_int(root, "none", 0, 9, &i), ISO_OK);
  assert_int_equal(iso_json_get_optional_int(root, "n", 0, 9, &i), ISO_OK);
  assert_int_equal(i, 42);
  assert_int_equal(iso_json_get_optional_int(root, "s", 0, 9, &i), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_get_float(root, "f", 0, 1, &f), ISO_OK);
  assert_true(f == 0.5);
  assert_int_equal(iso_json_get_float(root, "f", 0.6, 1, &f), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_get_optional_float(root, "x", 0, 1, &f), ISO_OK);
  assert_int_equal(iso_json_get_bool(root, "t", &t), ISO_OK);
  assert_true(t);
  assert_int_equal(iso_json_get_bool(root, "i", &t), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_get_optional_bool(root, "n", &t), ISO_OK);
  assert_int_equal(iso_json_get_string(root, "s", &s), ISO_OK);
  assert_string_equal(s, "text");
  assert_int_equal(iso_json_get_string(root, "i", &s), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_get_optional_string(root, "S", &s), ISO_OK); /* keys have case */
  assert_int_equal(iso_json_get_array(root, "a", &node), ISO_OK);
  assert_true(cJSON_IsArray(node));
  assert_int_equal(iso_json_get_array(root, "o", &node), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_get_object(root, "o", &node), ISO_OK);
  assert_true(cJSON_IsObject(node));
  assert_int_equal(iso_json_get_object(root, "a", &node), ISO_ERROR_CORRUPT_DATA);
  assert_int_equal(iso_json_get_optional_array(root, "n", &node), ISO_OK);
  assert_int_equal(iso_json_get_optional_object(root, "none", &node), ISO_OK);
  cJSON_Delete(root);
}

static void test_read_file(void **state) {
  (void)state;
  char path[] = "/tmp/isomer-json-XXXXXX";
  int descriptor = mkstemp(path);
  assert_true(descriptor >= 0);
  assert_int_equal(write(descriptor, "{\"a\": 1}", 8), 8);
  cJSON *root;
  assert_int_equal(iso_json_read_file(path, 8, 4, &root), ISO_OK);
  cJSON_Delete(root);
  assert_int_equal(iso_json_read_file(path, 7, 4, &root), ISO_ERROR_LIMIT);
  assert_null(root);
  assert_int_equal(write(descriptor, "]", 1), 1);
  assert_int_equal(iso_json_read_file(path, 100, 4, &root), ISO_ERROR_CORRUPT_DATA);
  assert_non_null(strstr(iso_status_message(), path));
  close(descriptor);
  unlink(path);
  assert_int_equal(iso_json_read_file(path, 100, 4, &root), ISO_ERROR_NOT_FOUND);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_syntax_errors),
      cmocka_unit_test(test_depth),
      cmocka_unit_test(test_too_many_values),
      cmocka_unit_test(test_values_of_several_texts),
      cmocka_unit_test(test_large_object),
      cmocka_unit_test(test_getters),
      cmocka_unit_test(test_read_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
