/* Messages as chat templates want them, and their tokens. */
#include "server/job.h"

#include "core/json.h"
#include "models/model.h"
#include <stdlib.h>
#include <string.h>

static bool out_of_memory(iso_api_error *refusal) {
  return iso_refuse(refusal, 503, NULL, "out_of_memory", "out of memory");
}

/* ---- Shape ---- */

/* Templates ask whether there is such a key; a list of no calls would say that there are some. */
static void drop_empty(cJSON *message) {
  cJSON *next;
  for (cJSON *item = message->child; item; item = next) {
    next = item->next;
    bool no_calls = cJSON_IsArray(item) && !item->child && strcmp(item->string, "tool_calls") == 0;
    if (cJSON_IsNull(item) || no_calls)
      cJSON_Delete(cJSON_DetachItemViaPointer(message, item));
  }
}

/* What a model thought goes by three names; templates read the first two. */
static bool copy_reasoning(cJSON *message) {
  static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
  const cJSON *found = NULL;
  for (int i = 0; i < 3 && !found; i++)
    found = cJSON_GetObjectItemCaseSensitive(message, names[i]);
  if (!found)
    return true;
  for (int i = 0; i < 2; i++) {
    cJSON *copy;
    if (cJSON_GetObjectItemCaseSensitive(message, names[i]))
      continue;
    copy = cJSON_Duplicate(found, true);
    if (!copy || !cJSON_AddItemToObject(message, names[i], copy))
      return false;
  }
  return true;
}

/* [{"type": "text", "text": ...}, ...] becomes one string, parts joined by line ends. */
static bool join_parts(cJSON *message, iso_api_error *refusal) {
  cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
  if (!content || cJSON_IsString(content))
    return true;
  if (!cJSON_IsArray(content))
    return iso_refuse(refusal, 400, "messages", "invalid_type",
                      "a message's 'content' must be a string or an array of parts");
  iso_printer text = {0};
  for (const cJSON *part = content->child; part; part = part->next) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(part, "type");
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(part, "text");
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "text") != 0 || !cJSON_IsString(value)) {
      free(text.data);
      return iso_refuse(refusal, 400, "messages", "unsupported",
                        "a message's part must be {\"type\": \"text\", \"text\": ...}: this model "
                        "reads text only");
    }
    if (part != content->child)
      iso_printer_append(&text, "\n", 1);
    iso_printer_append(&text, value->valuestring, strlen(value->valuestring));
  }
  cJSON *joined = text.failed ? NULL : cJSON_CreateString(text.data ? text.data : "");
  free(text.data);
  if (!joined || !cJSON_ReplaceItemInObjectCaseSensitive(message, "content", joined))
    return out_of_memory(refusal);
  return true;
}

/* Of a function that takes none some clients send no text, or nothing. */
static bool has_arguments(const cJSON *arguments) {
  const char *text = cJSON_IsString(arguments) ? arguments->valuestring : "-";
  return arguments && !cJSON_IsNull(arguments) && text[strspn(text, " \t\r\n")];
}

static bool set_no_arguments(cJSON *function) {
  cJSON *none = cJSON_CreateObject();
  cJSON_DeleteItemFromObjectCaseSensitive(function, "arguments");
  if (none && cJSON_AddItemToObject(function, "arguments", none))
    return true;
  cJSON_Delete(none);
  return false;
}

/* OpenAI's clients send a call's arguments as JSON text; templates want the object. */
static bool open_arguments(cJSON *message, uint64_t *values, iso_api_error *refusal) {
  cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
  for (cJSON *call = cJSON_IsArray(calls) ? calls->child : NULL; call; call = call->next) {
    cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function"), *parsed = NULL;
    cJSON *arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments");
    if (cJSON_IsObject(function) && !has_arguments(arguments)) {
      if (!set_no_arguments(function))
        return out_of_memory(refusal);
      continue;
    }
    if (!cJSON_IsString(arguments))
      continue;
    size_t length = strlen(arguments->valuestring);
    iso_status status = iso_json_parse_within(arguments->valuestring, length, 32, values, &parsed);
    if (status == ISO_ERROR_OUT_OF_MEMORY || (status == ISO_ERROR_LIMIT && *values == 0))
      return iso_body_refuse(status, *values, refusal);
    if (status != ISO_OK)
      continue; /* the template gets the text as it is */
    if (!cJSON_IsObject(parsed) ||
        iso_chat_keep_number_spelling(parsed, arguments->valuestring, length) != ISO_OK ||
        !cJSON_ReplaceItemInObjectCaseSensitive(function, "arguments", parsed))
      cJSON_Delete(parsed);
  }
  return true;
}

/* Of an assistant's message calls may be all; other roles that templates know always say something,
 * and what templates say of its lack is about themselves. */
static bool check_content(const cJSON *message, int place, const char *role,
                          iso_api_error *refusal) {
  bool needs_some =
      strcmp(role, "user") == 0 || strcmp(role, "system") == 0 || strcmp(role, "tool") == 0;
  return !needs_some || cJSON_GetObjectItemCaseSensitive(message, "content") ||
         iso_refuse(refusal, 400, "messages", "missing_required_parameter",
                    "'messages[%d]', of the role '%s', has no 'content'", place, role);
}

static bool normalise(cJSON *messages, iso_api_error *refusal) {
  if (!messages)
    return iso_refuse(refusal, 400, "messages", "missing_required_parameter",
                      "'messages' is missing");
  if (!cJSON_IsArray(messages) || !messages->child)
    return iso_refuse(refusal, 400, "messages", "invalid_type",
                      "'messages' must be an array of at least one message");
  uint64_t values = ISO_BODY_MAX_VALUES; /* of all arguments */
  int place = 0;
  for (cJSON *message = messages->child; message; message = message->next) {
    if (!cJSON_IsObject(message))
      return iso_refuse(refusal, 400, "messages", "invalid_type", "a message must be an object");
    drop_empty(message);
    cJSON *role = cJSON_GetObjectItemCaseSensitive(message, "role");
    if (!cJSON_IsString(role))
      return iso_refuse(refusal, 400, "messages", "invalid_type",
                        "a message must have a 'role', a string");
    /* OpenAI's newer name for what templates call the system. */
    if (strcmp(role->valuestring, "developer") == 0)
      strcpy(role->valuestring, "system");
    if (!check_content(message, place++, role->valuestring, refusal) ||
        !join_parts(message, refusal))
      return false;
    if (!copy_reasoning(message))
      return out_of_memory(refusal);
    if (!open_arguments(message, &values, refusal))
      return false;
  }
  return true;
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

/* {"name": ..., "arguments": ...}, under the format's name for those. */
static void write_call(const cJSON *call, const char *key, iso_json_writer *w) {
  const cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(function, "name");
  char *arguments = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(function, "arguments"));
  w->needs_comma = false;
  iso_json_begin(w, NULL, '{');
  iso_json_string(w, "name", cJSON_IsString(name) ? name->valuestring : "");
  iso_json_raw(w, key, arguments ? arguments : "{}");
  iso_json_end(w, '}');
  cJSON_free(arguments);
}

static void append(iso_json_writer *w, const char *text) {
  iso_printer_append(&w->text, text, text ? strlen(text) : 0);
}

/* Puts a message's calls behind its text, in the way in which the model writes them; plainly where
 * that is not known. */
static bool write_calls(cJSON *message, const iso_tool_format *format) {
  bool has_marks = format && !format->bare, is_list = has_marks && format->is_list;
  const char *begin = has_marks ? format->begin : "", *end = has_marks ? format->end : NULL;
  const char *between = is_list ? ", " : has_marks ? "\n" : "; ";
  const cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
  const cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
  iso_json_writer w = {0};
  if (cJSON_IsString(content) && *content->valuestring) {
    append(&w, content->valuestring);
    append(&w, "\n");
  }
  append(&w, is_list ? begin : "");
  append(&w, is_list ? "[" : "");
  for (const cJSON *call = calls->child; call; call = call->next) {
    append(&w, call != calls->child ? between : "");
    append(&w, is_list ? "" : begin);
    write_call(call, format ? format->key : "arguments", &w);
    append(&w, is_list ? "" : end);
  }
  append(&w, is_list ? "]" : "");
  append(&w, is_list ? end : "");
  cJSON *written = w.text.failed ? NULL : cJSON_CreateString(w.text.data);
  free(w.text.data);
  if (!written)
    return false;
  cJSON_DeleteItemFromObjectCaseSensitive(message, "tool_calls");
  cJSON_DeleteItemFromObjectCaseSensitive(message, "content");
  if (cJSON_AddItemToObject(message, "content", written))
    return true;
  cJSON_Delete(written);
  return false;
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
    if (has_calls(message) && !write_calls(message, format))
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
