#include "server/tool_calls.h"

#include "core/json.h"
#include "models/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32 };

/* Sources: the models' own chat templates and cards. */
static const iso_tool_format formats[] = {
    /* <tool_call>{"name": ..., "arguments": {...}}</tool_call>, one each, or a list in one */
    {.name = "hermes",
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .key = "arguments",
     .sign = "<tool_call>"},
    /* [TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...] */
    {.name = "mistral",
     .begin = "[TOOL_CALLS]",
     .key = "arguments",
     .is_list = true,
     .special = true,
     .sign = "[TOOL_CALLS]"},
    /* {"name": ..., "parameters": {...}}, perhaps after the mark, several parted by ";" */
    {.name = "llama3",
     .begin = "<|python_tag|>",
     .bare = true,
     .key = "parameters",
     .special = true,
     .sign = "{\"name\": \"isomer_probe\", \"parameters\": "},
    /* <|tool_call|>[{"name": ..., "arguments": {...}}]<|/tool_call|> */
    {.name = "phi4",
     .begin = "<|tool_call|>",
     .end = "<|/tool_call|>",
     .key = "arguments",
     .is_list = true,
     .special = true,
     .sign = "<|tool|>"},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

const iso_tool_format *iso_tool_format_find(const char *name) {
  for (int i = 0; i < N_FORMATS; i++)
    if (strcmp(formats[i].name, name) == 0)
      return &formats[i];
  return NULL;
}

const char *iso_tool_format_names(void) { return "hermes, mistral, llama3, phi4"; }

/* The id is of the one length that Mistral's template takes. Phi's reads tools from the system's
 * message. */
static const char probe_messages[] =
    "[{\"role\":\"system\",\"content\":\"s\",\"tools\":\"[]\"},{\"role\":\"user\",\"content\":"
    "\"u\"},"
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":"
    "\"function\",\"function\":{\"name\":\"isomer_probe\",\"arguments\":{\"a\":\"b\"}}}]}]";
static const char probe_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"isomer_probe\",\"description\":\"d\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}}}}]";

const iso_tool_format *iso_tool_format_of(const iso_model *model) {
  const iso_chat_template *chat = iso_model_template_for(model, true);
  const iso_tool_format *found = NULL;
  cJSON *messages = NULL, *tools = NULL;
  char *text = NULL;
  size_t length = 0;
  if (!chat)
    return NULL;
  if (iso_json_parse(probe_messages, sizeof probe_messages - 1, MAX_DEPTH, &messages) == ISO_OK &&
      iso_json_parse(probe_tools, sizeof probe_tools - 1, MAX_DEPTH, &tools) == ISO_OK) {
    const iso_chat_input input = {
        .messages = messages, .tools = tools, .bos_token = "", .eos_token = ""};
    /* A template that refuses this knows no tools. */
    if (iso_chat_template_render(chat, &input, &text, &length) == ISO_OK)
      for (int i = 0; i < N_FORMATS && !found; i++)
        found = strstr(text, formats[i].sign) ? &formats[i] : NULL;
  }
  free(text);
  cJSON_Delete(messages);
  cJSON_Delete(tools);
  return found;
}

/* ---- Names ---- */

bool iso_tool_names_copy(const cJSON *tools, iso_tool_names *out_names) {
  *out_names = (iso_tool_names){0};
  int count = cJSON_GetArraySize(tools);
  if (!(out_names->names = calloc((size_t)count + 1, sizeof *out_names->names)))
    return false;
  for (const cJSON *tool = tools ? tools->child : NULL; tool; tool = tool->next) {
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(function ? function : tool, "name");
    if (!cJSON_IsString(name))
      continue;
    if (!(out_names->names[out_names->count] = strdup(name->valuestring))) {
      iso_tool_names_free(out_names);
      return false;
    }
    out_names->count++;
  }
  return true;
}

void iso_tool_names_free(iso_tool_names *names) {
  for (int i = 0; i < names->count; i++)
    free(names->names[i]);
  free(names->names);
  *names = (iso_tool_names){0};
}

static bool is_offered(const iso_tool_names *names, const char *name) {
  for (int i = 0; i < names->count; i++)
    if (strcmp(names->names[i], name) == 0)
      return true;
  return false;
}

/* ---- Spans of JSON ---- */

static bool is_blank(char byte) {
  return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static const char *skip_blank(const char *at, const char *end) {
  while (at < end && is_blank(*at))
    at++;
  return at;
}

/* The end of the value that begins at `at`, or NULL. It is checked by whoever parses it. */
static const char *value_end(const char *at, const char *end) {
  int depth = 0;
  bool quoted = false;
  for (; at < end; at++) {
    if (quoted) {
      quoted = *at != '"';
      if (*at == '\\')
        at++;
      else if (!quoted && depth == 0)
        return at + 1;
    } else if (*at == '"') {
      quoted = true;
    } else if (*at == '{' || *at == '[') {
      depth++;
    } else if (*at == '}' || *at == ']') {
      if (depth == 0)
        return at;
      if (--depth == 0)
        return at + 1;
    } else if (depth == 0 && (*at == ',' || is_blank(*at))) {
      return at;
    }
  }
  return depth == 0 && !quoted ? at : NULL;
}

/* The text of a member's value in an object that is known to be JSON: as the model wrote it, down
 * to the spelling of numbers. */
static bool member_text(const char *object, const char *end, const char *key, const char **out_text,
                        size_t *out_length) {
  size_t key_length = strlen(key);
  for (const char *at = skip_blank(object + 1, end); at < end && *at == '"';) {
    const char *key_end = value_end(at, end);
    const char *value = key_end ? skip_blank(key_end, end) : NULL;
    value = value && value < end ? skip_blank(value + 1, end) : NULL; /* past ':' */
    const char *after = value ? value_end(value, end) : NULL;
    if (!after)
      return false;
    if ((size_t)(key_end - at) == key_length + 2 && memcmp(at + 1, key, key_length) == 0) {
      *out_text = value;
      *out_length = (size_t)(after - value);
      return true;
    }
    at = skip_blank(after, end);
    if (at < end && *at == ',')
      at = skip_blank(at + 1, end);
  }
  return false;
}

/* ---- Calls ---- */

/* Nine letters and digits. */
static void make_id(const iso_tool_scan *scan, char out[10]) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
  char text[128];
  int length = snprintf(text, sizeof text, "%s/%d/%d", scan->seed, scan->choice, scan->n_calls);
  for (int i = 0; i < length && i < (int)sizeof text - 1; i++)
    hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
  for (int i = 0; i < 9; i++, hash /= 36)
    out[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
  out[9] = 0;
}

static bool take_values(iso_tool_scan *scan, const char *at, const char *end, bool indexed,
                        iso_json_writer *calls);

/* {"name": ..., "arguments" or "parameters": ...}, perhaps as {"function": {...}}. */
static bool take_object(iso_tool_scan *scan, const char *text, const char *end, const cJSON *object,
                        bool indexed, iso_json_writer *calls) {
  static const char *const keys[] = {"arguments", "parameters"};
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(object, "name");
  const char *inner = NULL, *arguments = "{}";
  size_t length = 2;
  if (!name && cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(object, "function")) &&
      member_text(text, end, "function", &inner, &length))
    return take_values(scan, inner, inner + length, indexed, calls);
  if (!cJSON_IsString(name) || !is_offered(scan->names, name->valuestring))
    return false;
  for (int i = 0; i < 2; i++) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, keys[i]);
    if (cJSON_IsString(value)) { /* JSON within JSON */
      arguments = value->valuestring;
      length = strlen(arguments);
    } else if (value &&
               (!cJSON_IsObject(value) || !member_text(text, end, keys[i], &arguments, &length))) {
      return false;
    }
    if (value)
      break;
  }
  if (scan->has_one && scan->n_calls > 0)
    return true;
  char id[10];
  make_id(scan, id);
  iso_json_begin(calls, NULL, '{');
  if (indexed)
    iso_json_int(calls, "index", scan->n_calls);
  iso_json_string(calls, "id", id);
  iso_json_string(calls, "type", "function");
  iso_json_begin(calls, "function", '{');
  iso_json_string(calls, "name", name->valuestring);
  iso_json_text(calls, "arguments", arguments, length);
  iso_json_end(calls, '}');
  iso_json_end(calls, '}');
  scan->n_calls++;
  return true;
}

/* Objects, or lists of them, one after another: whatever parts them is blank, ',' or ';'. */
static bool take_values(iso_tool_scan *scan, const char *at, const char *end, bool indexed,
                        iso_json_writer *calls) {
  int found = 0;
  for (;; found++) {
    while (at < end && (is_blank(*at) || *at == ',' || *at == ';'))
      at++;
    if (at == end)
      return found > 0;
    const char *after = *at == '{' || *at == '[' ? value_end(at, end) : NULL;
    cJSON *value = NULL;
    if (!after || iso_json_parse(at, (size_t)(after - at), MAX_DEPTH, &value) != ISO_OK)
      return false;
    bool ok = *at == '{' ? take_object(scan, at, after, value, indexed, calls)
                         : take_values(scan, at + 1, after - 1, indexed, calls);
    cJSON_Delete(value);
    if (!ok)
      return false;
    at = after;
  }
}

/* ---- The answer ---- */

static void drop(iso_tool_scan *scan, size_t count) {
  iso_printer *held = &scan->held;
  memmove(held->data, held->data + count, held->size - count);
  held->size -= count;
  scan->searched = 0;
}

static size_t without_blank_end(const char *text, size_t length) {
  while (length > 0 && is_blank(text[length - 1]))
    length--;
  return length;
}

/* Bytes of `text` that are certainly not part of `mark`, nor blank space before it. */
static size_t certain_length(const char *text, size_t length, const char *mark) {
  size_t mark_length = strlen(mark);
  size_t part = length < mark_length - 1 ? length : mark_length - 1;
  while (part > 0 && memcmp(text + length - part, mark, part) != 0)
    part--;
  return without_blank_end(text, length - part);
}

static void give_text(iso_tool_scan *scan, size_t count, iso_printer *content) {
  if (count > 0)
    iso_printer_append(content, scan->held.data, count);
  drop(scan, count);
}

/* Before a call. Returns whether there may be more to do. */
static bool scan_text(iso_tool_scan *scan, bool ended, iso_printer *content) {
  iso_printer *held = &scan->held;
  const char *mark = scan->format->begin;
  const char *start = skip_blank(held->data, held->data + held->size);
  bool blank = start == held->data + held->size;
  if (scan->format->bare && !scan->begun && !blank && *start == '{') {
    scan->in_call = scan->is_bare = true;
    scan->body = 0;
    return true;
  }
  const char *at = memmem(held->data, held->size, mark, strlen(mark));
  if (at) {
    size_t before = (size_t)(at - held->data), text = without_blank_end(held->data, before);
    give_text(scan, text, content);
    scan->body = before - text + strlen(mark);
    scan->begun = scan->in_call = true;
    return true;
  }
  if (ended) {
    give_text(scan, blank && scan->n_calls > 0 ? 0 : held->size, content);
    held->size = 0;
    return false;
  }
  size_t certain = certain_length(held->data, held->size, mark);
  scan->begun |= certain > 0;
  give_text(scan, certain, content);
  return false;
}

static bool scan_call(iso_tool_scan *scan, bool ended, bool indexed, iso_printer *content,
                      iso_json_writer *calls) {
  iso_printer *held = &scan->held;
  const char *mark = scan->is_bare ? NULL : scan->format->end, *at = NULL;
  size_t mark_length = mark ? strlen(mark) : 0;
  if (mark) {
    size_t from =
        scan->searched > scan->body + mark_length ? scan->searched - mark_length : scan->body;
    at = memmem(held->data + from, held->size - from, mark, mark_length);
    scan->searched = held->size;
  }
  if (!at && !ended)
    return false;
  size_t end = at ? (size_t)(at - held->data) : held->size;
  /* All that it holds are calls, or it is text. */
  iso_json_writer made = {.needs_comma = calls->needs_comma};
  int before = scan->n_calls;
  if (take_values(scan, held->data + scan->body, held->data + end, indexed, &made)) {
    if (made.text.data)
      iso_printer_append(&calls->text, made.text.data, made.text.size);
    calls->text.failed |= made.text.failed;
    calls->needs_comma = made.needs_comma;
  } else {
    scan->n_calls = before;
    iso_printer_append(content, held->data, end + (at ? mark_length : 0));
  }
  free(made.text.data);
  drop(scan, end + (at ? mark_length : 0));
  scan->in_call = scan->is_bare = false;
  scan->begun = true;
  return held->size > 0;
}

void iso_tool_scan_force(iso_tool_scan *scan) { scan->in_call = scan->is_bare = true; }

void iso_tool_scan_push(iso_tool_scan *scan, const char *text, size_t length, bool ended,
                        bool indexed, iso_printer *content, iso_json_writer *calls) {
  iso_printer_append(&scan->held, text, length);
  if (scan->held.failed) {
    content->failed = true;
    return;
  }
  if (!scan->held.data)
    return;
  while (scan->in_call ? scan_call(scan, ended, indexed, content, calls)
                       : scan_text(scan, ended, content))
    ;
}

void iso_tool_scan_free(iso_tool_scan *scan) {
  free(scan->held.data);
  scan->held = (iso_printer){0};
}
