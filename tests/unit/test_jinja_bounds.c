/* Hostile templates and inputs: each must end in an error within its bound, or do no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "models/chat/chat_template.h"

static const char conversation[] =
    "[{\"role\": \"user\", \"content\": \"Hi\\u00e9 \\ud83d\\ude00\", \"n\": 1, \"x\": 1.0}]";

/* Renders on the conversation above; `*out_text` is the caller's, NULL on failure. */
static iso_status render(const char *source, iso_chat_limits limits, char **out_text) {
  iso_chat_template *chat_template = NULL;
  size_t length = 0;
  *out_text = NULL;
  iso_status status = iso_chat_template_create(source, strlen(source), &chat_template);
  if (status != ISO_OK)
    return status;
  cJSON *messages = cJSON_Parse(conversation);
  assert_non_null(messages);
  iso_chat_input input = {.messages = messages, .limits = limits};
  status = iso_chat_template_render(chat_template, &input, out_text, &length);
  if (status == ISO_OK)
    assert_int_equal(length, strlen(*out_text));
  cJSON_Delete(messages);
  iso_chat_template_destroy(chat_template);
  return status;
}

static void expect_failure(const char *source, iso_status expected) {
  char *text;
  iso_status status = render(source, (iso_chat_limits){0}, &text);
  if (status != expected)
    print_error("%s: %s\n", source, status == ISO_OK ? text : iso_status_message());
  assert_int_equal(status, expected);
  assert_null(strchr(iso_status_message(), '\n'));
}

static void expect_text(const char *source, const char *expected) {
  char *text;
  if (render(source, (iso_chat_limits){0}, &text) != ISO_OK)
    fail_msg("%s: %s", source, iso_status_message());
  assert_string_equal(text, expected);
  free(text);
}

static void test_endless_work_is_stopped(void **state) {
  (void)state;
  static const char *const templates[] = {
      /* loops */
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set l = [1] %}{% for x in l %}{{ l.append(x) or '' }}{% endfor %}",
      "{% for a in range(99999) if a < 0 %}{% endfor %}{% for i in range(99999) %}"
      "{{ range(99999)|sum }}{% endfor %}",
      /* recursion */
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{% if n %}{{ f(n + 1) }}{{ f(n + 1) }}{% endif %}{% endmacro %}{{ f(1) }}",
      "{% macro f() %}{% call g() %}{% endcall %}{% endmacro %}"
      "{% macro g() %}{{ caller() }}{{ f() }}{% endmacro %}{{ f() }}",
      "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
      "{% set l = [] %}{{ l.append(l) }}{{ l }}",
      "{% set l = [] %}{{ l.append(l) }}{{ l|tojson }}",
      "{% set l = [] %}{% set m = [] %}{{ l.append(l) }}{{ m.append(m) }}{{ l == m }}",
      "{% set n = namespace(v=[]) %}{% for i in range(9999) %}{% set n.v = [n.v] %}{% endfor %}"
      "{{ n.v|tojson }}",
      /* growth */
      "{{ 'a' * 999999999999 }}",
      "{{ [0] * 999999999999 }}",
      "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}"
      "{% endfor %}",
      "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(99) %}"
      "{% set n.s = n.s.replace('a', n.s) %}{% endfor %}",
      "{{ '%1000000s' % 'a' * 1000 }}",
      "{{ 'a'.center(99999999999) }}",
      "{{ 'a'|indent(99999999999, true) }}",
      "{{ [1]|slice(99999999999)|list }}",
      "{{ [[1]]|tojson(indent=99999999999) }}",
      "{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}",
      "{{ range(999999999) }}",
      /* slow look-ups */
      "{% set s = 'a' * 999999 %}{% for i in range(99999) %}{{ s.rfind('b' ~ s[1:]) }}"
      "{% endfor %}",
      "{% set s = 'a' * 999999 %}{% for i in range(99999) %}{{ s[-1] }}{% endfor %}",
      "{{ range(99999)|map('string')|unique|list|length }}",
  };
  for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
    clock_t start = clock();
    expect_failure(templates[i], ISO_ERROR_LIMIT);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (seconds > 20)
      fail_msg("%s took %.1f s", templates[i], seconds);
  }
}

/* Work whose pieces seem to be nothing: each of these does some 10^8 of them and more for few
 * nodes, so that only paying for the pieces stops it. */
static void test_small_work_is_counted(void **state) {
  (void)state;
#define OFTEN(body) "{% for i in range(5000) %}{% if " body " %}{% endif %}{% endfor %}"
#define LIST "{% set l = range(50000)|list %}{% set m = range(50000)|list %}"
#define TEXT "{% set s = 'x' * 1000 * 1000 %}{% set t = s ~ 'a' %}{% set u = s ~ 'b' %}"
  static const char *const templates[] = {
      LIST OFTEN("l == m"),
      LIST OFTEN("l < m"),
      LIST OFTEN("l|sum"),
      LIST OFTEN("l|reject|list"),
      "{% set l = [''] * 50000 %}" OFTEN("l|join"),
      "{% set l = [''] * 50000 %}" OFTEN("''.join(l)"),
      TEXT OFTEN("t == u"),
      TEXT OFTEN("t < u"),
      TEXT OFTEN("u.removeprefix(t)"),
      TEXT OFTEN("t.islower()"),
      TEXT OFTEN("t is lower"),
      TEXT OFTEN("'z'.strip(t)"),
      TEXT "{% set d = {t: 1, s ~ 'c': 1, s ~ 'd': 1} %}" OFTEN("u in d"),
      TEXT "{% set p = 'n.' * 100000 ~ 'n' %}{% set n = namespace() %}{% set n.n = n %}"
           "{% set o = [n] %}" OFTEN("o|map(attribute=p)|list"),
      "{% set n = namespace() %}{% set n.n = n %}{% set f = '{0' ~ '.n' * 100000 ~ '.z!s}' %}"
      "{% set n.z = 1 %}" OFTEN("f.format(n)"),
      "{% set t = (1,) * 1000 %}{% set t = (t,) * 1000 %}{% set t = (t,) * 1000 %}{{ t in {} }}",
      "{% set l = [0.1234567890123456] * 5000 %}" OFTEN("l|string"),
  };
#undef OFTEN
#undef LIST
#undef TEXT
  for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
    char *text;
    iso_status status = render(templates[i], (iso_chat_limits){.steps = 4000000}, &text);
    free(text);
    if (status != ISO_ERROR_LIMIT)
      fail_msg("%s: %s", templates[i], status == ISO_OK ? "done" : iso_status_message());
  }
}

static void test_limits_are_the_caller_s(void **state) {
  (void)state;
  char *text;
  const char *source = "{% for i in range(100) %}{{ 'abcdefghij' }}{% endfor %}";
  assert_int_equal(render(source, (iso_chat_limits){0}, &text), ISO_OK);
  free(text);
  assert_int_equal(render(source, (iso_chat_limits){.steps = 100}, &text), ISO_ERROR_LIMIT);
  assert_int_equal(render(source, (iso_chat_limits){.output_bytes = 999}, &text), ISO_ERROR_LIMIT);
  assert_int_equal(render(source, (iso_chat_limits){.output_bytes = 1000}, &text), ISO_OK);
  free(text);
  assert_int_equal(render(source, (iso_chat_limits){.memory_bytes = 1000}, &text), ISO_ERROR_LIMIT);
  assert_int_equal(render(source, (iso_chat_limits){.depth = 2}, &text), ISO_ERROR_LIMIT);
  assert_string_equal(iso_status_message(), "chat template line 1: nested too deeply; does a macro "
                                            "or a value contain itself?");
}

/* `count` times `open`, then `middle`, then `count` times `close`. */
static char *nest(const char *open, const char *middle, const char *close, size_t count) {
  size_t length = (strlen(open) + strlen(close)) * count + strlen(middle) + 1;
  char *text = malloc(length), *end = text;
  assert_non_null(text);
  for (size_t i = 0; i < count; i++)
    end = stpcpy(end, open);
  end = stpcpy(end, middle);
  for (size_t i = 0; i < count; i++)
    end = stpcpy(end, close);
  return text;
}

static void test_deep_source_is_refused(void **state) {
  (void)state;
  static const char *const nests[][5] = {
      {"{{ ", "(", "1", ")", " }}"},
      {"{{ ", "[", "1", "]", " }}"},
      {"{{ ", "{1:", "1", "}", " }}"},
      {"{{ ", "f(", "1", ")", " }}"},
      {"{{ ", "a[", "1", "]", " }}"},
      {"{{ ", "not ", "1", "", " }}"},
      {"{{ ", "-", "1", "", " }}"},
      {"{{ ", "1 if 1 else ", "1", "", " }}"},
      {"{% set ", "(", "a", ",)", " = 1 %}"},
      {"", "{% if 1 %}", "1", "{% endif %}", ""},
      {"", "{% for x in y %}", "1", "{% endfor %}", ""},
      {"", "{% macro f() %}", "1", "{% endmacro %}", ""},
  };
  for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
    for (size_t count = 1000; count <= 100000; count *= 100) {
      char *middle = nest(nests[i][1], nests[i][2], nests[i][3], count);
      char *source = malloc(strlen(middle) + 40);
      assert_non_null(source);
      stpcpy(stpcpy(stpcpy(source, nests[i][0]), middle), nests[i][4]);
      char *text;
      iso_status status = render(source, (iso_chat_limits){0}, &text);
      if (status != ISO_ERROR_LIMIT && status != ISO_ERROR_CORRUPT_DATA)
        fail_msg("%zu levels of %s: %s", count, nests[i][1], iso_status_message());
      free(source);
      free(middle);
    }
  }
}

/* Long chains nest to the left without nesting in the source. */
static void test_long_chains(void **state) {
  (void)state;
  static const char *const links[] = {" + 1", "|abs", " and 1", " if 1 else 2", "[0:]", " ~ 1"};
  for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
    char *chain = nest("", "{{ 1", links[i], 100000);
    char *source = malloc(strlen(chain) + 4), *text;
    assert_non_null(source);
    stpcpy(stpcpy(source, chain), " }}");
    iso_status status = render(source, (iso_chat_limits){0}, &text);
    assert_true(status == ISO_OK || status == ISO_ERROR_LIMIT);
    free(text);
    free(source);
    free(chain);
  }
}

static void test_messages_name_the_line(void **state) {
  (void)state;
  static const struct {
    const char *source, *message;
    iso_status status;
  } cases[] = {
      {"a\n{{ b }}\n{{ c.d }}", "chat template line 3: 'c' is undefined",
       ISO_ERROR_INVALID_ARGUMENT},
      {"\n\n{% if x %}", "chat template line 3: expected 'endif', found the end of the template",
       ISO_ERROR_CORRUPT_DATA},
      {"{#\n\n#}\n{{ raise_exception('no\nway') }}",
       "chat template line 4: the template refuses: no way", ISO_ERROR_INVALID_ARGUMENT},
      {"{{ messages[0].role.nope() }}",
       "chat template line 1: 'str object' has no attribute 'nope'", ISO_ERROR_INVALID_ARGUMENT},
      {"\n{{ 1 + }}", "chat template line 2: expected an expression, found the end of the tag",
       ISO_ERROR_CORRUPT_DATA},
      {"{{ 'a\n' | nofilter }}", "chat template line 2: no filter named 'nofilter'",
       ISO_ERROR_UNSUPPORTED},
      {"\n{% include 'x' %}", "chat template line 2: no such tag here, found 'include'",
       ISO_ERROR_CORRUPT_DATA},
      {"{% for x in y recursive %}{% endfor %}",
       "chat template line 1: recursive loops are refused, found 'recursive'",
       ISO_ERROR_UNSUPPORTED},
      {"{{ 9223372036854775807 + 1 }}", "chat template line 1: an integer is beyond 64 bits",
       ISO_ERROR_UNSUPPORTED},
      {"{% break %}", "chat template line 1: 'break' outside a loop, found the end of the tag",
       ISO_ERROR_CORRUPT_DATA},
      {"{{ 'a'|replace('a') }}", "chat template line 1: replace: needs 2 argument(s)",
       ISO_ERROR_INVALID_ARGUMENT},
      {"{{ 'a'|trim(wrong=1) }}",
       "chat template line 1: trim: got an unexpected keyword argument 'wrong'",
       ISO_ERROR_INVALID_ARGUMENT},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expect_failure(cases[i].source, cases[i].status);
    assert_string_equal(iso_status_message(), cases[i].message);
  }
}

static void test_bad_arguments(void **state) {
  (void)state;
  iso_chat_template *chat_template = NULL;
  char *text = NULL;
  size_t length = 0;
  assert_int_equal(iso_chat_template_create(NULL, 0, &chat_template), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_chat_template_create("", (size_t)1 << 40, &chat_template), ISO_ERROR_LIMIT);
  assert_int_equal(iso_chat_template_create("", 0, &chat_template), ISO_OK);
  iso_chat_input input = {0};
  assert_int_equal(iso_chat_template_render(chat_template, &input, &text, &length),
                   ISO_ERROR_INVALID_ARGUMENT);
  cJSON *object = cJSON_CreateObject(), *array = cJSON_CreateArray();
  input.messages = object;
  assert_int_equal(iso_chat_template_render(chat_template, &input, &text, &length),
                   ISO_ERROR_INVALID_ARGUMENT);
  input = (iso_chat_input){.messages = array, .tools = object};
  assert_int_equal(iso_chat_template_render(chat_template, &input, &text, &length),
                   ISO_ERROR_INVALID_ARGUMENT);
  input = (iso_chat_input){.messages = array, .extra = array};
  assert_int_equal(iso_chat_template_render(chat_template, &input, &text, &length),
                   ISO_ERROR_INVALID_ARGUMENT);
  input = (iso_chat_input){.messages = array};
  assert_int_equal(iso_chat_template_render(chat_template, &input, &text, &length), ISO_OK);
  assert_string_equal(text, "");
  free(text);
  cJSON_Delete(object);
  cJSON_Delete(array);
  iso_chat_template_destroy(chat_template);
  iso_chat_template_destroy(NULL);
}

static void test_what_older_templates_do(void **state) {
  (void)state;
  /* jinja2's immutable sandbox would refuse the append. */
  expect_text("{% set l = [] %}{% set x = l.append('a') %}{{ l }}", "['a']");
  expect_text("{{ messages[0].n }} {{ messages[0].x }} {{ tools }} {{ bos_token is defined }}",
              "1 1 None False");
  expect_text("{{ strftime_now('%Y')|length }}", "4");
}

/* Bytes that are no UTF-8 pass through unchanged and count as one character each. */
static void test_invalid_utf8(void **state) {
  (void)state;
  expect_text("{{ 'a\xff\xe4\xbd' }}|{{ 'a\xff\xe4\xbd'|length }}|{{ '\xff \xc3'|upper|trim }}|"
              "{{ 'x\xf0\x9f'[::-1] }}|{{ '\x80 '.strip() }}",
              "a\xff\xe4\xbd|4|\xff \xc3|\x9f\xf0x|\x80");
}

static void test_number_spelling(void **state) {
  (void)state;
  static const char json[] = "[{\"a\": 1.0, \"s\": \"\\\"2.0 \\\\\", \"b\": [-1, 1e2, "
                             "9007199254740993], \"c\": 123456789012345678901}]";
  cJSON *messages = cJSON_Parse(json);
  assert_non_null(messages);
  assert_int_equal(iso_chat_keep_number_spelling(messages, json, strlen(json)), ISO_OK);
  cJSON *copy = cJSON_Duplicate(messages, true);
  iso_chat_template *chat_template = NULL;
  char *text = NULL;
  size_t length = 0;
  assert_int_equal(iso_chat_template_create("{{ messages|tojson }}", 21, &chat_template), ISO_OK);
  iso_chat_input input = {.messages = copy};
  assert_int_equal(iso_chat_template_render(chat_template, &input, &text, &length), ISO_OK);
  assert_string_equal(text, "[{\"a\": 1.0, \"s\": \"\\\"2.0 \\\\\", \"b\": [-1, 100.0, "
                            "9007199254740993], \"c\": 1.2345678901234568e+20}]");
  free(text);
  assert_int_equal(iso_chat_keep_number_spelling(messages, "[]", 2), ISO_ERROR_INVALID_ARGUMENT);
  cJSON_Delete(copy);
  cJSON_Delete(messages);
  iso_chat_template_destroy(chat_template);
}

enum { THREADS = 4, RENDERS = 50 };

static void *render_often(void *shared) {
  cJSON *messages = cJSON_Parse(conversation);
  iso_chat_input input = {.messages = messages};
  size_t same = 0;
  for (int i = 0; i < RENDERS; i++) {
    char *text = NULL;
    size_t length = 0;
    if (iso_chat_template_render(shared, &input, &text, &length) == ISO_OK)
      same += strcmp(text, "Hi\xc3\xa9 \xf0\x9f\x98\x80 user 012") == 0;
    free(text);
  }
  cJSON_Delete(messages);
  return (void *)same;
}

static void test_threads_share_a_template(void **state) {
  (void)state;
  static const char source[] =
      "{% macro f(m) %}{{ m.content ~ ' ' ~ m.role }}{% endmacro %}{{ f(messages[0]) }} "
      "{% set ns = namespace(n=0) %}{% for i in range(3) %}{{ ns.n }}{% set ns.n = ns.n + 1 %}"
      "{% endfor %}";
  iso_chat_template *chat_template = NULL;
  assert_int_equal(iso_chat_template_create(source, sizeof source - 1, &chat_template), ISO_OK);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, render_often, chat_template), 0);
  for (int i = 0; i < THREADS; i++) {
    void *same = NULL;
    assert_int_equal(pthread_join(threads[i], &same), 0);
    assert_int_equal((size_t)same, RENDERS);
  }
  iso_chat_template_destroy(chat_template);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_endless_work_is_stopped),
      cmocka_unit_test(test_small_work_is_counted),
      cmocka_unit_test(test_limits_are_the_caller_s),
      cmocka_unit_test(test_deep_source_is_refused),
      cmocka_unit_test(test_long_chains),
      cmocka_unit_test(test_messages_name_the_line),
      cmocka_unit_test(test_bad_arguments),
      cmocka_unit_test(test_what_older_templates_do),
      cmocka_unit_test(test_invalid_utf8),
      cmocka_unit_test(test_number_spelling),
      cmocka_unit_test(test_threads_share_a_template),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
