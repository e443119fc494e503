/* Renders the templates and snippets of tests/golden/chat and compares them byte for byte with
 * what jinja2 made of them (generate.py there). A null expectation is a refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "models/chat/chat_template.h"

static char *read_golden(const char *name, size_t *out_length) {
  char path[512];
  snprintf(path, sizeof path, "%s/tests/golden/chat/%s", TEST_SOURCE_DIR, name);
  FILE *file = fopen(path, "rb");
  if (!file)
    fail_msg("cannot open %s", path);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  long size = ftell(file);
  assert_true(size >= 0);
  rewind(file);
  char *text = malloc((size_t)size + 1);
  assert_non_null(text);
  assert_int_equal(fread(text, 1, (size_t)size, file), size);
  text[size] = 0;
  fclose(file);
  *out_length = (size_t)size;
  return text;
}

static cJSON *read_json(const char *name) {
  size_t length;
  char *text = read_golden(name, &length);
  cJSON *root = cJSON_ParseWithLength(text, length);
  assert_non_null(root);
  assert_int_equal(iso_chat_keep_number_spelling(root, text, length), ISO_OK);
  free(text);
  return root;
}

static const cJSON *get(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

static iso_chat_input input_from_json(const cJSON *given, const cJSON *root) {
  const cJSON *prompt = get(given, "add_generation_prompt");
  return (iso_chat_input){.messages = get(given, "messages"),
                          .tools = get(given, "tools"),
                          .add_generation_prompt = !prompt || cJSON_IsTrue(prompt),
                          .bos_token = "<s>",
                          .eos_token = "</s>",
                          .extra = get(given, "extra"),
                          .now = (time_t)get(root, "now")->valuedouble};
}

/* Returns 1 and says what differs unless the render is as expected. */
static int check(const char *name, const char *source, size_t length, const iso_chat_input *input,
                 const cJSON *expected) {
  iso_chat_template *chat_template = NULL;
  char *text = NULL;
  size_t text_length = 0;
  iso_status status = iso_chat_template_create(source, length, &chat_template);
  if (status == ISO_OK)
    status = iso_chat_template_render(chat_template, input, &text, &text_length);
  iso_chat_template_destroy(chat_template);
  int differs;
  if (cJSON_IsNull(expected)) {
    differs = status == ISO_OK || !strstr(iso_status_message(), "chat template line ") ||
              strchr(iso_status_message(), '\n');
    if (differs)
      print_error("%s: not refused as it should be (%s)\n", name, text ? text : "no text");
  } else {
    differs = status != ISO_OK || text_length != strlen(expected->valuestring) ||
              memcmp(text, expected->valuestring, text_length) != 0;
    if (differs)
      print_error("%s:\n--- expected\n%s\n--- got\n%s\n", name, expected->valuestring,
                  status == ISO_OK ? text : iso_status_message());
  }
  free(text);
  return differs;
}

static void test_published_templates(void **state) {
  (void)state;
  cJSON *root = read_json("templates.json");
  int differing = 0, checked = 0;
  for (const cJSON *file = get(root, "expected")->child; file; file = file->next) {
    size_t length;
    char *source = read_golden(file->string, &length);
    for (const cJSON *expected = file->child; expected; expected = expected->next, checked++) {
      char name[200];
      snprintf(name, sizeof name, "%s on '%s'", file->string, expected->string);
      iso_chat_input input = input_from_json(get(get(root, "inputs"), expected->string), root);
      differing += check(name, source, length, &input, expected);
    }
    free(source);
  }
  assert_int_equal(differing, 0);
  assert_true(checked > 250);
  cJSON_Delete(root);
}

static void test_language(void **state) {
  (void)state;
  cJSON *root = read_json("language.json");
  iso_chat_input input = input_from_json(get(root, "input"), root);
  int differing = 0, checked = 0;
  for (const cJSON *item = get(root, "cases")->child; item; item = item->next, checked++) {
    const char *source = get(item, "source")->valuestring;
    differing += check(source, source, strlen(source), &input, get(item, "expected"));
  }
  assert_int_equal(differing, 0);
  assert_true(checked > 120);
  cJSON_Delete(root);
}

int main(void) {
  setenv("TZ", "UTC", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_published_templates),
      cmocka_unit_test(test_language),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
