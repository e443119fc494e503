/* json.dumps as transformers calls it for |tojson. */
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/sort.h"
#include "models/chat/jinja/text.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct writer {
  iso_jinja_session *session;
  iso_jinja_buffer *buffer;
  const iso_jinja_json_style *style;
  uint32_t level;
} writer;

static iso_status write_value(writer *w, iso_jinja_value value);

static iso_status write_text(writer *w, const char *text) {
  return iso_jinja_append_text(w->session, w->buffer, text);
}

static iso_status write_escape(writer *w, uint32_t codepoint) {
  static const char escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt";
  const char *escape = codepoint && codepoint < 0x80 ? strchr(escapes, (int)codepoint) : NULL;
  char text[16];
  if (escape && (escape - escapes) % 2 == 0)
    snprintf(text, sizeof text, "\\%c", escape[1]);
  else if (codepoint >= 0x10000)
    snprintf(text, sizeof text, "\\u%04" PRIx32 "\\u%04" PRIx32,
             0xD800 + ((codepoint - 0x10000) >> 10), 0xDC00 + ((codepoint - 0x10000) & 0x3FF));
  else
    snprintf(text, sizeof text, "\\u%04" PRIx32, codepoint);
  return write_text(w, text);
}

static iso_status write_string(writer *w, iso_jinja_value value) {
  ISO_TRY(write_text(w, "\""));
  size_t plain = 0; /* start of the run that needs no escape */
  for (size_t at = 0; at < value.length;) {
    uint32_t codepoint;
    size_t start = at;
    at += iso_jinja_decode(value.string + at, value.length - at, &codepoint);
    bool escaped = codepoint < ' ' || codepoint == '"' || codepoint == '\\' ||
                   (w->style->ascii && codepoint > 0x7E);
    if (!escaped)
      continue;
    ISO_TRY(iso_jinja_append(w->session, w->buffer, value.string + plain, start - plain));
    ISO_TRY(write_escape(w, codepoint));
    plain = at;
  }
  ISO_TRY(iso_jinja_spend(w->session, value.length / 16));
  ISO_TRY(iso_jinja_append(w->session, w->buffer, value.string + plain, value.length - plain));
  return write_text(w, "\"");
}

static iso_status write_line_break(writer *w) {
  if (!w->style->indented)
    return ISO_OK;
  ISO_TRY(write_text(w, "\n"));
  for (uint32_t i = 0; i < w->level; i++)
    ISO_TRY(iso_jinja_print(w->session, w->buffer, w->style->indent));
  return ISO_OK;
}

/* What goes before item `index` of a list or dict. */
static iso_status write_separator(writer *w, uint32_t index) {
  if (index)
    ISO_TRY(iso_jinja_print(w->session, w->buffer, w->style->item_separator));
  return write_line_break(w);
}

static iso_status write_list(writer *w, const iso_jinja_list *list) {
  ISO_TRY(write_text(w, "["));
  w->level++;
  for (uint32_t i = 0; i < list->count; i++) {
    ISO_TRY(write_separator(w, i));
    ISO_TRY(write_value(w, list->items[i]));
  }
  w->level--;
  if (list->count)
    ISO_TRY(write_line_break(w));
  return write_text(w, "]");
}

static iso_status write_float(writer *w, double number) {
  if (isnan(number) || isinf(number))
    return write_text(w, isnan(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity");
  return iso_jinja_print_float(w->session, w->buffer, number);
}

static iso_status write_key(writer *w, iso_jinja_value key) {
  if (key.kind == ISO_JINJA_STRING)
    return write_string(w, key);
  if (key.kind < ISO_JINJA_NONE || key.kind > ISO_JINJA_FLOAT)
    return iso_jinja_fail(w->session, ISO_ERROR_INVALID_ARGUMENT,
                          "tojson: keys must be str, int, float, bool or None, not %s",
                          iso_jinja_type_name(key));
  ISO_TRY(write_text(w, "\""));
  ISO_TRY(write_value(w, key));
  return write_text(w, "\"");
}

static iso_status write_dict(writer *w, const iso_jinja_dict *dict) {
  iso_jinja_list *order = NULL; /* of (key, value) where keys are sorted */
  if (w->style->sort_keys)
    ISO_TRY(iso_jinja_sorted_items(w->session, dict, &order));
  ISO_TRY(write_text(w, "{"));
  w->level++;
  for (uint32_t i = 0; i < dict->count; i++) {
    const iso_jinja_value *pair = order ? order->items[i].list->items : &dict->entries[i].key;
    ISO_TRY(write_separator(w, i));
    ISO_TRY(write_key(w, pair[0]));
    ISO_TRY(iso_jinja_print(w->session, w->buffer, w->style->key_separator));
    ISO_TRY(write_value(w, order ? pair[1] : dict->entries[i].value));
  }
  w->level--;
  if (dict->count)
    ISO_TRY(write_line_break(w));
  return write_text(w, "}");
}

static iso_status write_plain(writer *w, iso_jinja_value value) {
  switch (value.kind) {
  case ISO_JINJA_NONE:
    return write_text(w, "null");
  case ISO_JINJA_BOOLEAN:
    return write_text(w, value.boolean ? "true" : "false");
  case ISO_JINJA_INTEGER:
    return iso_jinja_represent(w->session, w->buffer, value);
  case ISO_JINJA_FLOAT:
    return write_float(w, value.number);
  case ISO_JINJA_STRING:
    return write_string(w, value);
  case ISO_JINJA_LIST:
  case ISO_JINJA_TUPLE:
    return write_list(w, value.list);
  case ISO_JINJA_DICT:
    return write_dict(w, value.dict);
  case ISO_JINJA_UNDEFINED:
    return iso_jinja_fail_undefined(w->session, value);
  default:
    return iso_jinja_fail(w->session, ISO_ERROR_INVALID_ARGUMENT,
                          "tojson: object of type %s is not JSON serializable",
                          iso_jinja_type_name(value));
  }
}

static iso_status write_value(writer *w, iso_jinja_value value) {
  ISO_TRY(iso_jinja_enter(w->session));
  ISO_TRY(write_plain(w, value));
  iso_jinja_leave(w->session);
  return ISO_OK;
}

iso_status iso_jinja_print_json(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                iso_jinja_value value, const iso_jinja_json_style *style) {
  writer w = {session, buffer, style, 0};
  return write_value(&w, value);
}
