#include "models/chat/messages.h"

#include "core/json.h"
#include "models/chat/chat_template.h"
#include "models/tokenizer/text.h"
#include <string.h>

/* Nested values of a call's arguments. */
enum { MAX_DEPTH = 32 };

static iso_status out_of_memory(void) {
  return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a message");
}

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
static iso_status copy_reasoning(cJSON *message) {
  static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
  const cJSON *found = NULL;
  for (int i = 0; i < 3 && !found; i++)
    found = cJSON_GetObjectItemCaseSensitive(message, names[i]);
  for (int i = 0; found && i < 2; i++) {
    if (cJSON_GetObjectItemCaseSensitive(message, names[i]))
      continue;
    cJSON *copy = cJSON_Duplicate(found, true);
    if (!copy || !cJSON_AddItemToObject(message, names[i], copy)) {
      cJSON_Delete(copy);
      return out_of_memory();
    }
  }
  return ISO_OK;
}

/* [{"type": "text", "text": ...}, ...] as one text, parts joined by line ends, and a NUL. */
static iso_status join_texts(const cJSON *content, iso_text *out_text) {
  for (const cJSON *part = content->child; part; part = part->next) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(part, "type");
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(part, "text");
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "text") != 0 || !cJSON_IsString(value))
      return iso_fail(ISO_ERROR_UNSUPPORTED,
                      "a message's part must be {\"type\": \"text\", \"text\": ...}: this model "
                      "reads text only");
    if (part != content->child)
      ISO_TRY(iso_text_append(out_text, "\n", 1));
    ISO_TRY(iso_text_append(out_text, value->valuestring, strlen(value->valuestring)));
  }
  return iso_text_append(out_text, "", 1);
}

static iso_status join_parts(cJSON *message) {
  const cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
  iso_text text = {0};
  if (!content || cJSON_IsString(content))
    return ISO_OK;
  if (!cJSON_IsArray(content))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "a message's 'content' must be a string or an array of parts");
  iso_status status = join_texts(content, &text);
  cJSON *joined = status == ISO_OK ? cJSON_CreateString(text.data) : NULL;
  iso_text_free(&text);
  ISO_TRY(status);
  if (joined && cJSON_ReplaceItemInObjectCaseSensitive(message, "content", joined))
    return ISO_OK;
  cJSON_Delete(joined);
  return out_of_memory();
}

/* Of a function that takes none some clients send no text, or nothing. */
static bool has_arguments(const cJSON *arguments) {
  const char *text = cJSON_IsString(arguments) ? arguments->valuestring : "-";
  return arguments && !cJSON_IsNull(arguments) && text[strspn(text, " \t\r\n")];
}

static iso_status set_no_arguments(cJSON *function) {
  cJSON *none = cJSON_CreateObject();
  cJSON_DeleteItemFromObjectCaseSensitive(function, "arguments");
  if (none && cJSON_AddItemToObject(function, "arguments", none))
    return ISO_OK;
  cJSON_Delete(none);
  return out_of_memory();
}

/* OpenAI's clients send a call's arguments as JSON text; templates want the object. */
static iso_status open_arguments(cJSON *function, uint64_t *values) {
  cJSON *arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments"), *parsed = NULL;
  if (!cJSON_IsObject(function))
    return ISO_OK;
  if (!has_arguments(arguments))
    return set_no_arguments(function);
  if (!cJSON_IsString(arguments))
    return ISO_OK;
  size_t length = strlen(arguments->valuestring);
  iso_status status =
      iso_json_parse_within(arguments->valuestring, length, MAX_DEPTH, values, &parsed);
  if (status == ISO_ERROR_OUT_OF_MEMORY || (status == ISO_ERROR_LIMIT && *values == 0))
    return status;
  if (status != ISO_OK)
    return ISO_OK; /* the template gets the text as it is */
  if (!cJSON_IsObject(parsed) ||
      iso_chat_keep_number_spelling(parsed, arguments->valuestring, length) != ISO_OK ||
      !cJSON_ReplaceItemInObjectCaseSensitive(function, "arguments", parsed))
    cJSON_Delete(parsed);
  return ISO_OK;
}

/* Of an assistant's message calls may be all; other roles that templates know always say something,
 * and what templates say of its lack is about themselves. */
static iso_status check_content(const cJSON *message, int place, const char *role) {
  bool needs_some =
      strcmp(role, "user") == 0 || strcmp(role, "system") == 0 || strcmp(role, "tool") == 0;
  return !needs_some || cJSON_GetObjectItemCaseSensitive(message, "content")
             ? ISO_OK
             : iso_fail(ISO_ERROR_NOT_FOUND, "'messages[%d]', of the role '%s', has no 'content'",
                        place, role);
}

static iso_status tidy(cJSON *message, int place, uint64_t *values) {
  if (!cJSON_IsObject(message))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a message must be an object");
  drop_empty(message);
  cJSON *role = cJSON_GetObjectItemCaseSensitive(message, "role");
  if (!cJSON_IsString(role))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a message must have a 'role', a string");
  /* OpenAI's newer name for what templates call the system. */
  if (strcmp(role->valuestring, "developer") == 0)
    strcpy(role->valuestring, "system");
  ISO_TRY(check_content(message, place, role->valuestring));
  ISO_TRY(join_parts(message));
  ISO_TRY(copy_reasoning(message));
  const cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
  for (const cJSON *call = cJSON_IsArray(calls) ? calls->child : NULL; call; call = call->next)
    ISO_TRY(open_arguments(cJSON_GetObjectItemCaseSensitive(call, "function"), values));
  return ISO_OK;
}

iso_status iso_chat_tidy_messages(cJSON *messages, uint64_t *values) {
  int place = 0;
  for (cJSON *message = messages->child; message; message = message->next)
    ISO_TRY(tidy(message, place++, values));
  return ISO_OK;
}
