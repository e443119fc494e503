#include "server/json_writer.h"

#include "models/tokenizer/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void iso_printer_append(iso_printer *printer, const char *bytes, size_t length) {
  if (printer->failed || length == 0)
    return;
  if (printer->capacity - printer->size <= length) {
    size_t wanted = 2 * printer->capacity + length + 256;
    char *grown = realloc(printer->data, wanted);
    if (!grown) {
      printer->failed = true;
      return;
    }
    printer->data = grown;
    printer->capacity = wanted;
  }
  memcpy(printer->data + printer->size, bytes, length);
  printer->size += length;
  printer->data[printer->size] = 0;
}

static void put(iso_json_writer *w, const char *text) {
  iso_printer_append(&w->text, text, strlen(text));
}

static void put_escaped(iso_json_writer *w, const char *bytes, size_t length) {
  put(w, "\"");
  size_t plain = 0; /* bytes before `i` not yet written */
  for (size_t i = 0; i < length;) {
    unsigned char byte = (unsigned char)bytes[i];
    uint32_t code_point;
    bool is_cut;
    size_t taken = iso_utf8_decode(bytes + i, length - i, &code_point);
    if (taken && byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7F) {
      i += taken;
      continue;
    }
    iso_printer_append(&w->text, bytes + plain, i - plain);
    if (!taken)
      put(w, "\xEF\xBF\xBD");
    else if (byte == '"' || byte == '\\')
      iso_printer_add(&w->text, "\\%c", byte);
    else if (byte == '\n')
      put(w, "\\n");
    else
      iso_printer_add(&w->text, "\\u%04x", byte);
    i += taken ? 1 : iso_utf8_ill_formed(bytes + i, length - i, &is_cut);
    plain = i;
  }
  iso_printer_append(&w->text, bytes + plain, length - plain);
  put(w, "\"");
}

static void begin_value(iso_json_writer *w, const char *key) {
  if (w->needs_comma)
    put(w, ",");
  w->needs_comma = true;
  if (key) {
    put_escaped(w, key, strlen(key));
    put(w, ":");
  }
}

void iso_json_begin(iso_json_writer *w, const char *key, char bracket) {
  begin_value(w, key);
  iso_printer_append(&w->text, &bracket, 1);
  w->needs_comma = false;
}

void iso_json_end(iso_json_writer *w, char bracket) {
  iso_printer_append(&w->text, &bracket, 1);
  w->needs_comma = true;
}

void iso_json_null(iso_json_writer *w, const char *key) {
  begin_value(w, key);
  put(w, "null");
}

void iso_json_bool(iso_json_writer *w, const char *key, bool value) {
  begin_value(w, key);
  put(w, value ? "true" : "false");
}

void iso_json_int(iso_json_writer *w, const char *key, int64_t value) {
  begin_value(w, key);
  iso_printer_add(&w->text, "%lld", (long long)value);
}

void iso_json_number(iso_json_writer *w, const char *key, double value) {
  if (isnan(value)) {
    iso_json_null(w, key);
    return;
  }
  if (isinf(value))
    value = value > 0 ? 1e308 : -1e308;
  begin_value(w, key);
  iso_printer_add(&w->text, "%.9g", value);
}

void iso_json_string(iso_json_writer *w, const char *key, const char *value) {
  if (value)
    iso_json_text(w, key, value, strlen(value));
  else
    iso_json_null(w, key);
}

void iso_json_raw(iso_json_writer *w, const char *key, const char *json) {
  begin_value(w, key);
  put(w, json);
}

void iso_json_text(iso_json_writer *w, const char *key, const char *bytes, size_t length) {
  begin_value(w, key);
  put_escaped(w, bytes, length);
}
