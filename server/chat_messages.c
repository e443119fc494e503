/* Conversations, and their tokens. */
#include "server/job.h"

#include "core/json.h"
#include "models/chat/chat_template.h"
#include "models/chat/messages.h"
#include "models/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool out_of_memory(iso_api_error *refusal) {
  return iso_refuse(refusal, 503, NULL, "out_of_memory", "out of memory");
}

/* ---- Shape ---- */

static bool normalise(cJSON *messages, iso_api_error *refusal) {
  static const struct {
    iso_status status;
    const char *code;
  } codes[] = {{ISO_ERROR_NOT_FOUND, "missing_required_parameter"},
               {ISO_ERROR_UNSUPPORTED, "unsupported"}};
  const char *code = "invalid_type";
  if (!messages)
    return iso_refuse(refusal, 400, "messages", "missing_required_parameter",
                      "'messages' is missing");
  if (!cJSON_IsArray(messages) || !messages->child)
    return iso_refuse(refusal, 400, "messages", "invalid_type",
                      "'messages' must be an array of at least one message");
  uint64_t values = ISO_BODY_MAX_VALUES; /* of all arguments */
  iso_status status = iso_chat_tidy_messages(messages, &values);
  if (status == ISO_ERROR_OUT_OF_MEMORY)
    return out_of_memory(refusal);
  if (status == ISO_ERROR_LIMIT)
    return iso_body_refuse(status, values, refusal);
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (codes[i].status == status)
      code = codes[i].code;
  return status == ISO_OK || iso_refuse(refusal, 400, "messages", code, "%s", iso_status_message());
}

/* ---- Calls as text ---- */

static bool has_calls(const cJSON *message) {
  const cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
  return cJSON_IsArray(calls) && calls->child;
}

/* Whether the template writes calls where `tools` are offered. Where it refuses to be asked, nobody
 * knows: then messages stay as they are. */
static bool shows_calls(const iso_model *model, const cJSON *tools) {
  static const char probe[] =
      "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"\","
      "\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":"
      "\"isomer_probe\",\"arguments\":{}}}]}]";
  cJSON *messages = NULL;
  char *text = NULL;
  size_t length = 0;
  bool ok = iso_json_parse(probe, sizeof probe - 1, 8, &messages) == ISO_OK;
  const iso_chat_input input = {.messages = messages, .tools = tools};
  ok = ok && iso_model_render_chat(model, &input, &text, &length) == ISO_OK;
  bool found = ok && strstr(text, "isomer_probe");
  cJSON_Delete(messages);
  free(text);
  return found || !ok;
}

/* What stands around the calls of an answer and around each of them, by the format. */
static cJSON *describe(const iso_tool_format *format) {
  bool has_marks = format && !format->bare, is_list = has_marks && format->is_list;
  const char *begin = has_marks ? format->begin : "";
  const char *end = has_marks && format->end ? format->end : "";
  const char *between = is_list ? ", " : has_marks ? "\n" : "; ";
  const struct {
    const char *name, *value, *rest;
  } rows[] = {{"open", is_list ? begin : "", is_list ? (*end ? "[" : " [") : ""},
              {"begin", is_list ? "" : begin, has_marks && !is_list ? "\n" : ""},
              {"between", between, ""},
              {"end", has_marks && !is_list ? "\n" : "", is_list ? "" : end},
              {"close", is_list ? "]" : "", is_list ? end : ""},
              {"key", format ? format->key : "arguments", ""}};
  cJSON *values = cJSON_CreateObject();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[64];
    snprintf(text, sizeof text, "%s%s", rows[i].value, rows[i].rest);
    if (!values || !cJSON_AddStringToObject(values, rows[i].name, text)) {
      cJSON_Delete(values);
      return NULL;
    }
  }
  return values;
}

/* Puts a message's calls behind its text, in the way in which the model writes them; plainly where
 * that is not known. In a template's words, for JSON as templates write it. */
static iso_status write_calls(cJSON *message, const iso_tool_format *format) {
  static const char source[] =
      "{% set m = messages[0] %}{% if m.content %}{{ m.content ~ '\\n' }}{% endif %}{{ open }}"
      "{% for call in m.tool_calls %}{% if not loop.first %}{{ between }}{% endif %}{{ begin }}"
      "{{ {'name': call.function.name, key: call.function.arguments} | tojson }}{{ end }}"
      "{% endfor %}{{ close }}";
  iso_chat_template *writer = NULL;
  char *text = NULL;
  size_t length;
  cJSON *values = describe(format), *list = cJSON_CreateArray(), *content = NULL;
  iso_status status = ISO_ERROR_OUT_OF_MEMORY;
  if (values && cJSON_AddItemReferenceToArray(list, message))
    status = iso_chat_template_create(source, sizeof source - 1, &writer);
  const iso_chat_input input = {.messages = list, .extra = values};
  if (status == ISO_OK)
    status = iso_chat_template_render(writer, &input, &text, &length);
  if (status == ISO_OK) {
    content = cJSON_CreateString(text);
    cJSON_DeleteItemFromObjectCaseSensitive(message, "tool_calls");
    cJSON_DeleteItemFromObjectCaseSensitive(message, "content");
    if (!content || !cJSON_AddItemToObject(message, "content", content)) {
      cJSON_Delete(content);
      status = ISO_ERROR_OUT_OF_MEMORY;
    }
  }
  iso_chat_template_destroy(writer);
  cJSON_Delete(list);
  cJSON_Delete(values);
  free(text);
  return status;
}

/* A template without a place for calls would leave out what was asked of the tools whose answers
 * follow, or refuse a message that is nothing else. */
static bool write_unshown_calls(const iso_model *model, const iso_tool_format *format,
                                cJSON *messages, const cJSON *tools) {
  bool any = false;
  for (const cJSON *message = messages->child; message; message = message->next)
    any = any || has_calls(message);
  if (!any || shows_calls(model, tools))
    return true;
  for (cJSON *message = messages->child; message; message = message->next)
    /* What is no call stays for the template. */
    if (has_calls(message) && write_calls(message, format) == ISO_ERROR_OUT_OF_MEMORY)
      return false;
  return true;
}

/* ---- Tokens ---- */

static iso_status render(const iso_model *model, const iso_fields *fields, char **out_text,
                         size_t *out_length) {
  const iso_chat_input input = {.messages = fields->messages,
                                .tools = fields->tools,
                                .add_generation_prompt = fields->add_generation_prompt,
                                .extra = fields->template_variables};
  return iso_model_render_chat(model, &input, out_text, out_length);
}

/* Whether a template says something else where there are no tools. */
static iso_status find_tools(const iso_model *model, const iso_fields *fields, const char *text,
                             bool *out_found) {
  iso_fields without = *fields;
  without.tools = NULL;
  char *other = NULL;
  size_t length;
  ISO_TRY(render(model, &without, &other, &length));
  *out_found = strcmp(text, other) != 0;
  free(other);
  return ISO_OK;
}

static bool check_shapes(const iso_model *model, const iso_fields *fields, iso_api_error *refusal) {
  if (!iso_model_get_chat_template(model))
    return iso_refuse(refusal, 400, "messages", "unsupported",
                      "this model has no chat template; use /v1/completions");
  if (fields->tools && !cJSON_IsArray(fields->tools))
    return iso_refuse(refusal, 400, "tools", "invalid_type", "'tools' must be an array");
  for (const cJSON *tool = fields->tools ? fields->tools->child : NULL; tool; tool = tool->next)
    if (!cJSON_IsObject(tool))
      return iso_refuse(refusal, 400, "tools", "invalid_type", "a tool must be an object");
  if (fields->template_variables && !cJSON_IsObject(fields->template_variables))
    return iso_refuse(refusal, 400, "chat_template_kwargs", "invalid_type",
                      "'chat_template_kwargs' must be an object");
  return true;
}

bool iso_chat_tokenize(const iso_model *model, const iso_tool_format *format,
                       const iso_fields *fields, bool must_show_tools, int32_t **out_ids,
                       size_t *out_count, iso_api_error *refusal) {
  const iso_special_texts *specials = iso_model_get_special_texts(model);
  /* Parts of the request's own tree. */
  cJSON *messages = (cJSON *)fields->messages, *tools = (cJSON *)fields->tools;
  bool marked = false, shows_tools = true;
  if (!check_shapes(model, fields, refusal) || !normalise(messages, refusal))
    return false;
  if (iso_special_texts_mark(specials, messages, &marked) != ISO_OK ||
      (tools && iso_special_texts_mark(specials, tools, &marked) != ISO_OK))
    return out_of_memory(refusal);
  if (!write_unshown_calls(model, format, messages, tools))
    return out_of_memory(refusal);
  char *text = NULL;
  size_t length = 0;
  iso_status status = render(model, fields, &text, &length);
  if (status == ISO_OK && must_show_tools)
    status = find_tools(model, fields, text, &shows_tools);
  if (!shows_tools) {
    free(text);
    return iso_refuse(refusal, 400, "tools", "unsupported",
                      "this model's chat template has no place for tools: it would not see them. "
                      "Force a call with 'tool_choice', or describe them in a message and have the "
                      "server look for calls with --tool-calls");
  }
  /* Templates write BOS themselves where the model wants it; the tokenizer adds no second one. */
  if (status == ISO_OK)
    status = iso_special_texts_encode(iso_model_get_tokenizer(model), text, length, marked,
                                      fields->add_special_tokens ? ISO_TOKENIZE_ADD_SPECIAL : 0,
                                      out_ids, out_count);
  free(text);
  return status == ISO_OK || iso_refuse(refusal, status == ISO_ERROR_OUT_OF_MEMORY ? 503 : 400,
                                        "messages", "invalid_value", "%s", iso_status_message());
}
