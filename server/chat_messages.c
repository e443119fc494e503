/* Messages as chat templates want them, and their tokens. */
#include "server/job.h"

#include "core/json.h"
#include "models/chat/chat_template.h"
#include "models/tokenizer/lookup.h"
#include "models/tokenizer/tokenizer.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Private-use characters that mark the text of a special token within what the user wrote; such
 * text is tokenized as text. The user's own marks are dropped first. */
#define MARK_BEGIN "\xEE\x80\x80" /* U+E000 */
#define MARK_END "\xEE\x80\x81"   /* U+E001 */
enum { MARK_LENGTH = 3 };

static bool out_of_memory(iso_api_error *refusal) {
  return iso_refuse(refusal, 503, NULL, "out_of_memory", "out of memory");
}

/* ---- Special tokens in the user's text ---- */

struct iso_special_texts {
  iso_trie trie;
};

iso_status iso_special_texts_create(const iso_tokenizer *tokenizer,
                                    iso_special_texts **out_specials) {
  int32_t size = iso_tokenizer_vocabulary_size(tokenizer);
  iso_special_texts *made = calloc(1, sizeof *made);
  iso_entry *entries = calloc((size_t)size + 1, sizeof *entries);
  iso_status status =
      made && entries ? ISO_OK : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for special tokens");
  size_t count = 0;
  for (int32_t id = 0; id < size && status == ISO_OK; id++) {
    size_t length = 0;
    const char *text = iso_tokenizer_token_text(tokenizer, id, &length);
    if (iso_tokenizer_is_control(tokenizer, id) && text && length > 0)
      entries[count++] = (iso_entry){text, (uint32_t)length, id};
  }
  if (status == ISO_OK)
    status = iso_trie_build(entries, count, &made->trie);
  free(entries);
  if (status != ISO_OK)
    free(made);
  else
    *out_specials = made;
  return status;
}

void iso_special_texts_destroy(iso_special_texts *specials) {
  if (specials)
    iso_trie_free(&specials->trie);
  free(specials);
}

/* Bytes of the longest special token that begins at `at`; 0: none does. */
static size_t special_length(const iso_special_texts *specials, const char *at, size_t room) {
  size_t length;
  return iso_trie_longest(&specials->trie, at, room, &length) >= 0 ? length : 0;
}

static bool is_mark(const char *at, size_t room) {
  return room >= MARK_LENGTH &&
         (memcmp(at, MARK_BEGIN, MARK_LENGTH) == 0 || memcmp(at, MARK_END, MARK_LENGTH) == 0);
}

/* Replaces a text where it holds special tokens or marks. */
static bool mark_text(char **text_place, const iso_special_texts *specials, bool *marked) {
  const char *text = *text_place;
  size_t length = strlen(text);
  iso_printer out = {0};
  size_t plain = 0;
  for (size_t i = 0; i < length;) {
    size_t taken = special_length(specials, text + i, length - i);
    bool mark = !taken && is_mark(text + i, length - i);
    if (!taken && !mark) {
      i++;
      continue;
    }
    iso_printer_append(&out, text + plain, i - plain);
    if (taken) {
      iso_printer_append(&out, MARK_BEGIN, MARK_LENGTH);
      iso_printer_append(&out, text + i, taken);
      iso_printer_append(&out, MARK_END, MARK_LENGTH);
    }
    i += mark ? MARK_LENGTH : taken;
    plain = i;
    *marked = true;
  }
  if (plain == 0)
    return true;
  iso_printer_append(&out, text + plain, length - plain);
  char *made = out.failed ? NULL : out.data ? out.data : strdup("");
  if (!made) {
    free(out.data);
    return false;
  }
  free(*text_place);
  *text_place = made;
  return true;
}

/* Every string below `item`, keys too, for templates write out whole objects; JSON nests at most 64
 * deep. Numbers keep their spelling in `valuestring`. */
static bool mark_strings(cJSON *item, const iso_special_texts *specials, bool *marked) {
  if (item->string && !mark_text(&item->string, specials, marked))
    return false;
  if (cJSON_IsString(item))
    return mark_text(&item->valuestring, specials, marked);
  for (cJSON *child = item->child; child; child = child->next)
    if (!mark_strings(child, specials, marked))
      return false;
  return true;
}

/* ---- Shape ---- */

static void drop_nulls(cJSON *message) {
  cJSON *next;
  for (cJSON *item = message->child; item; item = next) {
    next = item->next;
    if (cJSON_IsNull(item))
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

/* OpenAI's clients send a call's arguments as JSON text; templates want the object. */
static bool open_arguments(cJSON *message, uint64_t *values, iso_api_error *refusal) {
  cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
  for (cJSON *call = cJSON_IsArray(calls) ? calls->child : NULL; call; call = call->next) {
    cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function"), *parsed = NULL;
    cJSON *arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments");
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

static bool normalise(cJSON *messages, iso_api_error *refusal) {
  if (!messages)
    return iso_refuse(refusal, 400, "messages", "missing_required_parameter",
                      "'messages' is missing");
  if (!cJSON_IsArray(messages) || !messages->child)
    return iso_refuse(refusal, 400, "messages", "invalid_type",
                      "'messages' must be an array of at least one message");
  uint64_t values = ISO_BODY_MAX_VALUES; /* of all arguments */
  for (cJSON *message = messages->child; message; message = message->next) {
    if (!cJSON_IsObject(message))
      return iso_refuse(refusal, 400, "messages", "invalid_type", "a message must be an object");
    drop_nulls(message);
    cJSON *role = cJSON_GetObjectItemCaseSensitive(message, "role");
    if (!cJSON_IsString(role))
      return iso_refuse(refusal, 400, "messages", "invalid_type",
                        "a message must have a 'role', a string");
    /* OpenAI's newer name for what templates call the system. */
    if (strcmp(role->valuestring, "developer") == 0)
      strcpy(role->valuestring, "system");
    if (!join_parts(message, refusal))
      return false;
    if (!copy_reasoning(message))
      return out_of_memory(refusal);
    if (!open_arguments(message, &values, refusal))
      return false;
  }
  return true;
}

/* ---- Tokens ---- */

typedef struct id_list {
  int32_t *ids;
  size_t count;
} id_list;

static iso_status add_ids(id_list *list, const int32_t *ids, size_t count) {
  int32_t *grown = realloc(list->ids, (list->count + count + 1) * sizeof *grown);
  if (!grown)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a prompt's tokens");
  list->ids = grown;
  if (count)
    memcpy(grown + list->count, ids, count * sizeof *ids);
  list->count += count;
  return ISO_OK;
}

/* A piece from within a text. It is encoded after a line end, which is taken off again, so that
 * SentencePiece adds no space as it does at the start of a text. */
static iso_status encode_inner(const iso_tokenizer *tokenizer, const char *text, size_t length,
                               uint32_t flags, id_list *list) {
  int32_t *line = NULL, *ids = NULL;
  size_t n_line = 0, count = 0;
  char *whole = malloc(length + 1);
  if (!whole)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a prompt");
  whole[0] = '\n';
  memcpy(whole + 1, text, length);
  iso_status status = iso_tokenizer_encode(tokenizer, "\n", 1, 0, &line, &n_line);
  if (status == ISO_OK)
    status = iso_tokenizer_encode(tokenizer, whole, length + 1, flags, &ids, &count);
  if (status == ISO_OK && (count < n_line || memcmp(ids, line, n_line * sizeof *ids) != 0)) {
    free(ids); /* the line end has merged with what follows */
    ids = NULL;
    n_line = 0;
    status = iso_tokenizer_encode(tokenizer, text, length, flags, &ids, &count);
  }
  if (status == ISO_OK)
    status = add_ids(list, ids + n_line, count - n_line);
  free(whole);
  free(line);
  free(ids);
  return status;
}

/* Splits at the marks: between a begin and an end mark is text, whatever it looks like. */
static iso_status encode_marked(const iso_tokenizer *tokenizer, const char *text, size_t length,
                                uint32_t flags, id_list *list) {
  const char *end = text + length;
  bool literal = false;
  for (const char *at = text; at < end; literal = !literal) {
    const char *stop = strstr(at, literal ? MARK_END : MARK_BEGIN);
    size_t piece = stop ? (size_t)(stop - at) : (size_t)(end - at);
    if (at == text && piece > 0) {
      int32_t *ids = NULL;
      size_t count = 0;
      iso_status status = iso_tokenizer_encode(tokenizer, at, piece, flags, &ids, &count);
      if (status == ISO_OK)
        status = add_ids(list, ids, count);
      free(ids);
      ISO_TRY(status);
    } else if (piece > 0) {
      ISO_TRY(encode_inner(tokenizer, at, piece,
                           literal ? 0 : flags & ~(uint32_t)ISO_TOKENIZE_ADD_SPECIAL, list));
    }
    at = stop ? stop + MARK_LENGTH : end;
  }
  return ISO_OK;
}

static char *special_text(const iso_tokenizer *tokenizer, int32_t id) {
  size_t length = 0;
  const char *text = iso_tokenizer_token_text(tokenizer, id, &length);
  return strndup(text ? text : "", text ? length : 0);
}

static iso_status render(const iso_model *model, const iso_fields *fields, char **out_text,
                         size_t *out_length) {
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(model);
  char *bos = special_text(tokenizer, iso_tokenizer_bos_id(tokenizer));
  char *eos = special_text(tokenizer, iso_tokenizer_eos_id(tokenizer));
  iso_chat_input input = {.messages = fields->messages,
                          .tools = fields->tools,
                          .add_generation_prompt = fields->add_generation_prompt,
                          .bos_token = bos,
                          .eos_token = eos,
                          .extra = fields->template_variables,
                          .now = time(NULL)};
  iso_status status = bos && eos ? iso_chat_template_render(iso_model_get_chat_template(model),
                                                            &input, out_text, out_length)
                                 : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a prompt");
  free(bos);
  free(eos);
  return status;
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

bool iso_chat_tokenize(const iso_model *model, const iso_special_texts *specials,
                       const iso_fields *fields, bool must_show_tools, int32_t **out_ids,
                       size_t *out_count, iso_api_error *refusal) {
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(model);
  /* Parts of the request's own tree. */
  cJSON *messages = (cJSON *)fields->messages, *tools = (cJSON *)fields->tools;
  bool marked = false, shows_tools = true;
  if (!check_shapes(model, fields, refusal) || !normalise(messages, refusal))
    return false;
  if (!mark_strings(messages, specials, &marked) ||
      (tools && !mark_strings(tools, specials, &marked)))
    return out_of_memory(refusal);
  char *text = NULL;
  size_t length = 0;
  id_list list = {0};
  iso_status status = render(model, fields, &text, &length);
  /* Templates write BOS themselves where the model wants it; the tokenizer adds no second one. */
  uint32_t flags = ISO_TOKENIZE_PARSE_SPECIAL;
  if (fields->add_special_tokens)
    flags |= ISO_TOKENIZE_ADD_SPECIAL;
  if (status == ISO_OK && must_show_tools)
    status = find_tools(model, fields, text, &shows_tools);
  if (!shows_tools) {
    free(text);
    return iso_refuse(refusal, 400, "tools", "unsupported",
                      "this model's chat template has no place for tools: it would not see them. "
                      "Force a call with 'tool_choice', or describe them in a message and have the "
                      "server look for calls with --tool-calls");
  }
  if (status == ISO_OK)
    status = marked ? encode_marked(tokenizer, text, length, flags, &list)
                    : iso_tokenizer_encode(tokenizer, text, length, flags, &list.ids, &list.count);
  free(text);
  if (status != ISO_OK) {
    free(list.ids);
    return iso_refuse(refusal, status == ISO_ERROR_OUT_OF_MEMORY ? 503 : 400, "messages",
                      "invalid_value", "%s", iso_status_message());
  }
  *out_ids = list.ids;
  *out_count = list.count;
  return true;
}
