/* Request fields: every row of the table absent, null, of every wrong type and out of range. */
#include "core/json.h"
#include "server/fields.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define B(NAME) (1u << ISO_BODY_##NAME)
#define GENERATE (B(CHAT) | B(COMPLETION) | B(VLLM) | B(TGI_PARAMETERS))
#define ALL (GENERATE | B(TGI) | B(EMBEDDING) | B(TOKENIZE) | B(DETOKENIZE))

static const struct {
  const char *name, *kind;
  double min, max;
  unsigned bodies;
} rows[] = {
#define ISO_FIELD(name, member, kind, min, max, bodies, help) {name, #kind, min, max, bodies},
#include "server/fields.def"
#undef ISO_FIELD
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static bool is(int row, const char *kind) { return strcmp(rows[row].kind, kind) == 0; }
static bool is_number(int row) { return is(row, "INT") || is(row, "LONG") || is(row, "NUMBER"); }

static bool read(iso_body body, const char *json, iso_fields *fields, iso_api_error *error) {
  cJSON *root = NULL;
  assert_int_equal(iso_json_parse(json, strlen(json), 16, &root), ISO_OK);
  iso_fields_init(fields);
  bool ok = iso_fields_read(root, body, fields, error);
  cJSON_Delete(root);
  return ok;
}

/* Reads {"name": value} and says whether it was taken; a refusal is a 400 that names the field. */
static bool takes(int row, iso_body body, const char *value) {
  char json[256];
  iso_fields fields;
  iso_api_error error = {0};
  snprintf(json, sizeof json, "{\"%s\": %s}", rows[row].name, value);
  bool ok = read(body, json, &fields, &error);
  if (!ok) {
    assert_int_equal(error.status, 400);
    assert_string_equal(error.param, rows[row].name);
    assert_string_equal(error.type, "invalid_request_error");
    assert_non_null(strstr(error.message, rows[row].name));
    assert_non_null(error.code);
  }
  return ok;
}

static void every_field_is_checked(void **state) {
  (void)state;
  for (int row = 0; row < N_ROWS; row++)
    for (int b = 0; b < ISO_BODY_COUNT; b++) {
      iso_body body = (iso_body)b;
      if (!(rows[row].bodies >> b & 1))
        continue;
      bool any = is(row, "JSON") || is(row, "IGNORED"), refused = is(row, "REFUSED");
      char above[64], below[64];
      snprintf(above, sizeof above, "%.17g", rows[row].max * 2 + 1);
      snprintf(below, sizeof below, "%.17g", rows[row].min - fabs(rows[row].min) - 1);
      assert_true(takes(row, body, "null"));
      assert_int_equal(takes(row, body, "\"text\""), any || is(row, "STRING"));
      assert_int_equal(takes(row, body, "true"), any || is(row, "BOOL"));
      assert_int_equal(takes(row, body, "false"), any || refused || is(row, "BOOL"));
      assert_int_equal(takes(row, body, "[1]"), any);
      assert_int_equal(takes(row, body, "{}"), any);
      assert_int_equal(takes(row, body, "0.5"),
                       any || (is(row, "NUMBER") && rows[row].min <= .5 && rows[row].max >= .5));
      assert_int_equal(takes(row, body, "1e300"), any);
      assert_int_equal(takes(row, body, "-1e300"), any);
      if (is_number(row)) {
        assert_false(takes(row, body, above));
        assert_false(takes(row, body, below));
        snprintf(above, sizeof above, "%.17g", rows[row].max);
        snprintf(below, sizeof below, "%.17g", rows[row].min);
        assert_true(takes(row, body, above));
        assert_true(takes(row, body, below));
      }
    }
}

static void names_are_unique_within_a_body(void **state) {
  (void)state;
  for (int i = 0; i < N_ROWS; i++)
    for (int k = 0; k < i; k++)
      assert_false((rows[i].bodies & rows[k].bodies) && strcmp(rows[i].name, rows[k].name) == 0);
}

static void values_arrive(void **state) {
  (void)state;
  iso_fields fields;
  iso_api_error error;
  assert_true(read(ISO_BODY_CHAT,
                   "{\"temperature\": 0.25, \"n\": 3, \"seed\": -7, \"stream\": true, "
                   "\"model\": \"m\", \"top_p\": null, \"user\": 5}",
                   &fields, &error));
  assert_true(fields.temperature == .25);
  assert_int_equal(fields.n, 3);
  assert_true(fields.seed == -7);
  assert_true(fields.stream);
  assert_true(fields.top_p == 1);
  assert_int_equal(fields.max_tokens, -1);
  assert_true(iso_fields_given(&fields, ISO_BODY_CHAT, "seed"));
  assert_false(iso_fields_given(&fields, ISO_BODY_CHAT, "top_p"));
  assert_false(iso_fields_given(&fields, ISO_BODY_CHAT, "no such"));
}

static void unknown_names_meet_the_nearest(void **state) {
  (void)state;
  iso_fields fields;
  iso_api_error error;
  assert_false(read(ISO_BODY_CHAT, "{\"temprature\": 1}", &fields, &error));
  assert_non_null(strstr(error.message, "'temperature'"));
  assert_string_equal(error.param, "temprature");
  assert_false(read(ISO_BODY_CHAT, "{\"something quite else\": 1}", &fields, &error));
  assert_non_null(strstr(error.message, "/openapi.json"));
  assert_false(read(ISO_BODY_EMBEDDING, "{\"temperature\": 1}", &fields, &error));
  assert_false(read(ISO_BODY_CHAT, "[]", &fields, &error));
  assert_int_equal(error.status, 400);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_field_is_checked), cmocka_unit_test(names_are_unique_within_a_body),
      cmocka_unit_test(values_arrive), cmocka_unit_test(unknown_names_meet_the_nearest)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
