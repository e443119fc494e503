/* Calls of tools in what models write: every format, cut at every place, and what only looks so. */
#include "core/json.h"
#include "models/chat/chat_template.h"
#include "models/model.h"
#include "server/tool_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"weather\"}},"
                            "{\"type\":\"function\",\"function\":{\"name\":\"time\"}},{\"x\":5},"
                            "{\"name\":\"flat\"}]";

typedef struct answer_case {
  const char *format, *text;
  const char *content; /* that is left */
  const char *calls;   /* "name arguments|..." */
} answer_case;

static const answer_case cases[] = {
    {"hermes", "plain text, no call", "plain text, no call", ""},
    {"hermes",
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>", "",
     "weather {\"city\": \"Rome\"}|"},
    {"hermes",
     "Let me "
     "see.\n\n<tool_call>{\"name\":\"time\",\"arguments\":{}}</"
     "tool_call>\n<tool_call>{\"arguments\":"
     "{\"n\":12345678901234567890.10,\"s\":\"}</tool\"},\"name\":\"weather\"}</tool_call>\n",
     "Let me see.", "time {}|weather {\"n\":12345678901234567890.10,\"s\":\"}</tool\"}|"},
    {"hermes", "<tool_call>{\"name\": \"time\"}</tool_call> and then", " and then", "time {}|"},
    {"hermes",
     "<tool_call>[{\"name\": \"time\"}, {\"name\": \"flat\", \"parameters\": {}}]</tool_call>", "",
     "time {}|flat {}|"},
    {"hermes", "<tool_call>{\"name\": \"time\", \"arguments\": \"{\\\"a\\\": 1}\"}", "",
     "time {\"a\": 1}|"},
    /* Cut by the token limit, other names, no JSON: text. */
    {"hermes", "a <tool_call>{\"name\": \"time\", \"argu",
     "a <tool_call>{\"name\": \"time\", \"argu", ""},
    {"hermes", "<tool_call>{\"name\": \"delete_all\", \"arguments\": {}}</tool_call>",
     "<tool_call>{\"name\": \"delete_all\", \"arguments\": {}}</tool_call>", ""},
    {"hermes", "<tool_call>{\"name\": \"time\"} {</tool_call>",
     "<tool_call>{\"name\": \"time\"} {</tool_call>", ""},
    {"hermes", "<tool_call>{\"name\": \"time\", \"arguments\": [1]}</tool_call>",
     "<tool_call>{\"name\": \"time\", \"arguments\": [1]}</tool_call>", ""},
    {"hermes", "<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{\"name\": 5}</tool_call>", ""},
    {"hermes", "<tool_call></tool_call>", "<tool_call></tool_call>", ""},
    {"hermes", "<tool_", "<tool_", ""},
    {"hermes", "a < b <tool b", "a < b <tool b", ""},
    {"hermes", "  spaces stay  \n", "  spaces stay  \n", ""},
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}, {\"name\": "
     "\"time\", "
     "\"arguments\": {}}]",
     "", "weather {\"city\": \"Rome\"}|time {}|"},
    {"mistral", "[1, 2] are numbers [TOOL", "[1, 2] are numbers [TOOL", ""},
    {"llama3", "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}", "",
     "weather {\"city\": \"Rome\"}|"},
    {"llama3",
     "\n<|python_tag|>{\"name\": \"time\", \"parameters\": {}}; {\"name\": \"flat\", "
     "\"parameters\": {}}",
     "", "time {}|flat {}|"},
    {"llama3",
     "{\"type\": \"function\", \"function\": {\"name\": \"time\", \"arguments\": {\"a\": [1, "
     "{}]}}}",
     "", "time {\"a\": [1, {}]}|"},
    {"llama3", "{\"answer\": 42}", "{\"answer\": 42}", ""},
    {"llama3", "It is {\"name\": \"time\"}", "It is {\"name\": \"time\"}", ""},
    {"phi4", "<|tool_call|>[{\"name\": \"time\", \"arguments\": {}}]<|/tool_call|>", "",
     "time {}|"},
};

/* The answer in pieces of `step` bytes. With `has_one` its first call is all there is. */
static void check_case(const answer_case *row, const iso_tool_names *names, size_t step,
                       bool has_one) {
  iso_tool_scan scan = {.format = iso_tool_format_find(row->format),
                        .names = names,
                        .seed = "id",
                        .has_one = has_one};
  iso_printer content = {0}, seen = {0};
  iso_json_writer calls = {0};
  size_t length = strlen(row->text);
  assert_non_null(scan.format);
  iso_json_begin(&calls, NULL, '[');
  for (size_t at = 0; at < length; at += step)
    iso_tool_scan_push(&scan, row->text + at, step < length - at ? step : length - at, false, true,
                       &content, &calls);
  iso_tool_scan_push(&scan, "", 0, true, true, &content, &calls);
  iso_json_end(&calls, ']');
  assert_string_equal(content.data ? content.data : "", row->content);
  cJSON *root = NULL;
  assert_int_equal(iso_json_parse(calls.text.data, calls.text.size, 16, &root), ISO_OK);
  int count = 0;
  for (const cJSON *call = root->child; call; call = call->next, count++) {
    const cJSON *function = cJSON_GetObjectItem(call, "function");
    const char *arguments = cJSON_GetObjectItem(function, "arguments")->valuestring;
    assert_int_equal(cJSON_GetObjectItem(call, "index")->valueint, count);
    assert_int_equal(strlen(cJSON_GetObjectItem(call, "id")->valuestring), 9);
    assert_string_equal(cJSON_GetObjectItem(call, "type")->valuestring, "function");
    const char *const parts[] = {cJSON_GetObjectItem(function, "name")->valuestring, " ", arguments,
                                 "|"};
    for (int i = 0; i < 4; i++)
      iso_printer_append(&seen, parts[i], strlen(parts[i]));
  }
  assert_int_equal(count, scan.n_calls);
  const char *wanted = row->calls, *first_end = strchr(wanted, '|');
  assert_int_equal(seen.size,
                   has_one && first_end ? (size_t)(first_end + 1 - wanted) : strlen(wanted));
  assert_memory_equal(seen.data ? seen.data : "", wanted, seen.size);
  cJSON_Delete(root);
  free(content.data);
  free(seen.data);
  free(calls.text.data);
  iso_tool_scan_free(&scan);
}

static void calls_are_found_however_the_text_is_cut(void **state) {
  (void)state;
  cJSON *root = NULL;
  iso_tool_names names;
  assert_int_equal(iso_json_parse(tools, strlen(tools), 8, &root), ISO_OK);
  assert_true(iso_tool_names_copy(root, &names));
  assert_int_equal(names.count, 3);
  cJSON_Delete(root);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t step = 1; step < 100; step = step < 12 ? step + 1 : 2 * step)
      for (int has_one = 0; has_one < 2; has_one++)
        check_case(&cases[i], &names, step, has_one);
  iso_tool_names_free(&names);
}

/* The templates of real models say which format they use. */
static void templates_show_their_format(void **state) {
  static const struct {
    const char *file, *format;
  } rows[] = {{"qwen2_5", "hermes"},  {"qwen3", "hermes"},       {"llama3_1", "llama3"},
              {"llama3_2", "llama3"}, {"mistral_v3", "mistral"}, {"phi4_mini", "phi4"},
              {"smollm2", NULL},      {"gemma3", NULL},          {"llama3", NULL},
              {"llama2", NULL}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char path[512], *source = calloc(1, 1 << 16);
    snprintf(path, sizeof path, TEST_SOURCE_DIR "/tests/golden/chat/%s.jinja", rows[i].file);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t length = fread(source, 1, 1 << 16, file);
    fclose(file);
    iso_model model = {0};
    assert_int_equal(iso_chat_template_create(source, length, &model.chat_template), ISO_OK);
    const iso_tool_format *found = iso_tool_format_of(&model);
    print_message("%s: %s\n", rows[i].file, found ? found->name : "none");
    assert_string_equal(found ? found->name : "none", rows[i].format ? rows[i].format : "none");
    iso_chat_template_destroy(model.chat_template);
    free(source);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(calls_are_found_however_the_text_is_cut),
                                     cmocka_unit_test(templates_show_their_format)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
