/* A program that uses the library may set a locale with a comma for a point and letters that have
 * no other case, as i has none of ASCII in Turkish: nothing is read or written otherwise for it.
 * The locale is made here, since few systems have one installed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "core/json.h"
#include "models/chat/chat_template.h"
#include "ops/conform/case.h"
#include <isomer/graph.h>
#include <isomer/quant.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/isomer-locale-XXXXXX";

static void put(const char *name, const char *text) {
  char path[64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
  assert_int_equal(fclose(file), 0);
}

static int make_locale(void **state) {
  (void)state;
  static const char source[] = "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\n"
                               "grouping 3;3\nEND LC_NUMERIC\n"
                               "LC_CTYPE\nupper <U0041>\nlower <U0061>\n"
                               "toupper (<U0061>,<U0041>)\ntolower (<U0041>,<U0061>)\n"
                               "END LC_CTYPE\n";
  /* A map of its own, since the system's are in a package that need not be installed. */
  static const char charmap[] = "<code_set_name> ANSI_X3.4-1968\nCHARMAP\n"
                                "<U0000>..<U007F> /x00 ASCII\nEND CHARMAP\n";
  char command[256];
  assert_non_null(mkdtemp(folder));
  put("source", source);
  put("charmap", charmap);
  snprintf(command, sizeof command,
           "cd %s && localedef -c -f ./charmap -i ./source ./xx_comma >log 2>&1", folder);
  (void)!system(command); /* which warns of the categories left out */
  assert_int_equal(setenv("LOCPATH", folder, 1), 0);
  if (!setlocale(LC_ALL, "xx_comma"))
    fail_msg("localedef made no locale: see %s/log", folder);
  char text[16];
  snprintf(text, sizeof text, "%.1f", 1.5);
  assert_string_equal(text, "1,5");
  return 0;
}

static int remove_locale(void **state) {
  (void)state;
  char command[64];
  setlocale(LC_ALL, "C");
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static void test_templates(void **state) {
  (void)state;
  static const char source[] =
      "{{ 1.5 }} {{ [2.25, 1e-7]|tojson }} {{ '%.2f' % 0.125 }} {{ '3.25'|float }} "
      "{{ 2.675|round(2) }} {{ '{:,.1f}'.format(1234.5) }} {{ x }} {{ strftime_now('%B %A') }}";
  cJSON *extra = NULL, *messages = cJSON_CreateArray();
  assert_int_equal(iso_json_parse("{\"x\": 6.125}", 12, 4, &extra), ISO_OK);
  iso_chat_template *chat_template = NULL;
  char *text = NULL;
  size_t length;
  assert_int_equal(iso_chat_template_create(source, sizeof source - 1, &chat_template), ISO_OK);
  const iso_chat_input input = {.messages = messages, .extra = extra, .now = 1753012800};
  assert_int_equal(iso_chat_template_render(chat_template, &input, &text, &length), ISO_OK);
  assert_string_equal(text, "1.5 [2.25, 1e-07] 0.12 3.25 2.67 1,234.5 6.125 July Sunday");
  free(text);
  iso_chat_template_destroy(chat_template);
  cJSON_Delete(extra);
  cJSON_Delete(messages);
  /* The thread has its own locale again. */
  char own[16];
  snprintf(own, sizeof own, "%.1f", 1.5);
  assert_string_equal(own, "1,5");
}

static void test_scheme_names(void **state) {
  (void)state;
  for (int i = 0; i < ISO_SCHEME_COUNT; i++) {
    char name[32];
    iso_scheme found = ISO_SCHEME_COUNT;
    snprintf(name, sizeof name, "%s", iso_scheme_get_info((iso_scheme)i)->name);
    for (char *c = name; *c; c++)
      *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 32) : *c;
    assert_true(iso_scheme_from_name(name, &found));
    assert_int_equal(found, i);
  }
  iso_scheme none;
  assert_false(iso_scheme_from_name("q4_", &none));
  assert_false(iso_scheme_from_name("q4_00", &none));
}

static void test_graphs(void **state) {
  (void)state;
  iso_graph *graph;
  char *text;
  assert_int_equal(iso_graph_create(&graph), ISO_OK);
  const iso_shape rows = {.n_dims = 2, .dims = {iso_dim_constant(2), iso_dim_constant(32)}};
  const iso_shape row = {.n_dims = 1, .dims = {iso_dim_constant(32)}};
  iso_value x = iso_graph_input(graph, "x", ISO_SCHEME_F32, rows);
  iso_value weight = iso_graph_weight(graph, "w", ISO_SCHEME_F32, row);
  iso_rms_norm_attributes attributes;
  iso_op_default_attributes(ISO_OP_RMS_NORM, &attributes);
  attributes.epsilon = 0.5f;
  iso_value y = iso_graph_apply(graph, ISO_OP_RMS_NORM, &attributes, ISO_SCHEME_F32, 2, x, weight);
  iso_graph_output(graph, y, "y");
  assert_int_equal(iso_graph_finish(graph), ISO_OK);
  assert_int_equal(iso_graph_print(graph, &text), ISO_OK);
  assert_non_null(strstr(text, "epsilon=0.5}"));
  free(text);
  iso_graph_destroy(graph);
}

static void test_cases(void **state) {
  (void)state;
  iso_case test;
  assert_int_equal(iso_case_parse("rms_norm *=2 D=96 epsilon=0.5", &test), ISO_OK);
  iso_rms_norm_attributes attributes;
  memcpy(&attributes, &test.attributes, sizeof attributes);
  assert_true(attributes.epsilon == 0.5f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_templates),
      cmocka_unit_test(test_scheme_names),
      cmocka_unit_test(test_graphs),
      cmocka_unit_test(test_cases),
  };
  return cmocka_run_group_tests(tests, make_locale, remove_locale);
}
