/* Chat templates: any bytes as a template, and the rest of the bytes as the conversation's JSON
 * where they parse. Small limits, so that a run which is slow is a finding. */
#include <stdlib.h>
#include <string.h>
#include "models/chat/chat_template.h"

static const char conversation[] =
    "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"H\\u00e9 <b>\"},"
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdef123\",\"function\":"
    "{\"name\":\"f\",\"arguments\":{\"a\":1.5,\"b\":[null,true]}}}]},"
    "{\"role\":\"tool\",\"content\":\"2\"}]";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *split = size ? memchr(data, 0, size) : NULL;
  size_t source_length = split ? (size_t)(split - data) : size;
  const char *json = split ? (const char *)split + 1 : conversation;
  size_t json_length = split ? size - source_length - 1 : sizeof conversation - 1;
  iso_chat_template *chat_template = NULL;
  if (iso_chat_template_create((const char *)data, source_length, &chat_template) != ISO_OK)
    return 0;
  cJSON *messages = cJSON_ParseWithLength(json, json_length);
  (void)iso_chat_keep_number_spelling(messages, json, json_length);
  iso_chat_input input = {
      .messages = messages,
      .tools = messages,
      .add_generation_prompt = true,
      .bos_token = "<s>",
      .eos_token = "</s>",
      .now = 1753012800,
      .limits = {.steps = 200000, .memory_bytes = 8 << 20, .output_bytes = 1 << 20}};
  char *text = NULL;
  size_t length = 0;
  if (iso_chat_template_render(chat_template, &input, &text, &length) == ISO_OK)
    free(text);
  cJSON_Delete(messages);
  iso_chat_template_destroy(chat_template);
  return 0;
}
