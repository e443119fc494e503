#include "models/chat/jinja/call.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"
#include <ctype.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fewest significant digits that read back as the same number. Any 15 digits come through a
 * normal double unchanged, so that where fewer do the rest are zeros. */
static void print_shortest(double number, char *out_text, size_t size) {
  int exponent;
  bool power_of_two = fabs(frexp(number, &exponent)) == 0.5;
  for (int precision = fabs(number) < DBL_MIN ? 0 : 14; precision < 17; precision++) {
    snprintf(out_text, size, "%.*e", precision, number);
    if (strtod(out_text, NULL) == number)
      return;
    /* Doubles are twice as far apart above a power of two: what is next may be near enough. */
    char *last = strchr(out_text, 'e') - 1;
    if (power_of_two && precision == 15 && *last != '9' && ++*last &&
        strtod(out_text, NULL) == number)
      return;
  }
}

iso_status iso_jinja_print_float(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                 double number) {
  if (isnan(number) || isinf(number))
    return iso_jinja_append_text(session, buffer,
                                 isnan(number) ? "nan"
                                 : number < 0  ? "-inf"
                                               : "inf");
  char scientific[40];
  ISO_TRY(iso_jinja_spend(session, 8));
  print_shortest(number, scientific, sizeof scientific);
  char digits[24];
  int count = 0;
  char *exponent_text = strchr(scientific, 'e');
  for (const char *c = scientific; c < exponent_text; c++)
    if (isdigit((unsigned char)*c))
      digits[count++] = *c;
  while (count > 1 && digits[count - 1] == '0')
    count--;
  int exponent = (int)strtol(exponent_text + 1, NULL, 10);

  char text[48];
  int used = 0;
  if (signbit(number))
    text[used++] = '-';
  if (exponent < -4 || exponent >= 16) {
    text[used++] = digits[0];
    if (count > 1)
      used += snprintf(text + used, sizeof text - (size_t)used, ".%.*s", count - 1, digits + 1);
    snprintf(text + used, sizeof text - (size_t)used, "e%c%02d", exponent < 0 ? '-' : '+',
             abs(exponent));
  } else if (exponent < 0) {
    snprintf(text + used, sizeof text - (size_t)used, "0.%.*s%.*s", -exponent - 1, "000", count,
             digits);
  } else {
    int whole = exponent + 1;
    for (int i = 0; i < whole; i++)
      text[used++] = i < count ? digits[i] : '0';
    snprintf(text + used, sizeof text - (size_t)used, ".%.*s", count > whole ? count - whole : 1,
             count > whole ? digits + whole : "0");
  }
  return iso_jinja_append_text(session, buffer, text);
}

static iso_status represent_codepoint(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                      uint32_t codepoint, char quote) {
  static const char escapes[] = "\tt\nn\rr\\\\";
  char text[16];
  const char *escape = codepoint && codepoint < 0x80 ? strchr(escapes, (int)codepoint) : NULL;
  if (codepoint == (uint32_t)quote)
    snprintf(text, sizeof text, "\\%c", quote);
  else if (escape && (escape - escapes) % 2 == 0)
    snprintf(text, sizeof text, "\\%c", escape[1]);
  else if (iso_jinja_is_printable(codepoint))
    return iso_jinja_append_codepoint(session, buffer, codepoint);
  else if (codepoint < 0x100)
    snprintf(text, sizeof text, "\\x%02" PRIx32, codepoint);
  else if (codepoint < 0x10000)
    snprintf(text, sizeof text, "\\u%04" PRIx32, codepoint);
  else
    snprintf(text, sizeof text, "\\U%08" PRIx32, codepoint);
  return iso_jinja_append_text(session, buffer, text);
}

static iso_status represent_string(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                   iso_jinja_value text) {
  bool has_single = memchr(text.string, '\'', text.length) != NULL;
  char quote = has_single && !memchr(text.string, '"', text.length) ? '"' : '\'';
  ISO_TRY(iso_jinja_append(session, buffer, &quote, 1));
  ISO_TRY(iso_jinja_spend(session, text.length / 8));
  for (size_t at = 0; at < text.length;) {
    uint32_t codepoint;
    at += iso_jinja_decode(text.string + at, text.length - at, &codepoint);
    ISO_TRY(represent_codepoint(session, buffer, codepoint, quote));
  }
  return iso_jinja_append(session, buffer, &quote, 1);
}

static iso_status represent_list(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                 iso_jinja_value value) {
  bool tuple = value.kind == ISO_JINJA_TUPLE;
  ISO_TRY(iso_jinja_append_text(session, buffer, tuple ? "(" : "["));
  for (uint32_t i = 0; i < value.list->count; i++) {
    if (i)
      ISO_TRY(iso_jinja_append_text(session, buffer, ", "));
    ISO_TRY(iso_jinja_represent(session, buffer, value.list->items[i]));
  }
  if (tuple && value.list->count == 1)
    ISO_TRY(iso_jinja_append_text(session, buffer, ","));
  return iso_jinja_append_text(session, buffer, tuple ? ")" : "]");
}

static iso_status represent_dict(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                 const iso_jinja_dict *dict) {
  ISO_TRY(iso_jinja_append_text(session, buffer, "{"));
  for (uint32_t i = 0; i < dict->count; i++) {
    if (i)
      ISO_TRY(iso_jinja_append_text(session, buffer, ", "));
    ISO_TRY(iso_jinja_represent(session, buffer, dict->entries[i].key));
    ISO_TRY(iso_jinja_append_text(session, buffer, ": "));
    ISO_TRY(iso_jinja_represent(session, buffer, dict->entries[i].value));
  }
  return iso_jinja_append_text(session, buffer, "}");
}

static iso_status represent_object(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                   iso_jinja_value value) {
  char text[32];
  iso_jinja_value name;
  switch (value.kind) {
  case ISO_JINJA_UNDEFINED:
    return iso_jinja_append_text(session, buffer, "Undefined");
  case ISO_JINJA_NONE:
    return iso_jinja_append_text(session, buffer, "None");
  case ISO_JINJA_BOOLEAN:
    return iso_jinja_append_text(session, buffer, value.boolean ? "True" : "False");
  case ISO_JINJA_INTEGER:
    snprintf(text, sizeof text, "%" PRId64, value.integer);
    return iso_jinja_append_text(session, buffer, text);
  case ISO_JINJA_FLOAT:
    return iso_jinja_print_float(session, buffer, value.number);
  case ISO_JINJA_STRING:
    if (!(value.flags & ISO_JINJA_MARKUP))
      return represent_string(session, buffer, value);
    ISO_TRY(iso_jinja_append_text(session, buffer, "Markup("));
    ISO_TRY(represent_string(session, buffer, value));
    return iso_jinja_append_text(session, buffer, ")");
  case ISO_JINJA_LIST:
  case ISO_JINJA_TUPLE:
    return represent_list(session, buffer, value);
  case ISO_JINJA_RANGE:
    return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED,
                          "printing a range is not supported; make it a list");
  case ISO_JINJA_DICT:
    return represent_dict(session, buffer, value.dict);
  case ISO_JINJA_NAMESPACE:
    ISO_TRY(iso_jinja_append_text(session, buffer, "<Namespace "));
    ISO_TRY(represent_dict(session, buffer, value.dict));
    return iso_jinja_append_text(session, buffer, ">");
  case ISO_JINJA_MACRO:
    name = iso_jinja_macro_name(value.macro);
    ISO_TRY(iso_jinja_append_text(session, buffer, "<Macro "));
    if (name.kind == ISO_JINJA_NONE)
      return iso_jinja_append_text(session, buffer, "anonymous>");
    ISO_TRY(iso_jinja_represent(session, buffer, name));
    return iso_jinja_append_text(session, buffer, ">");
  default:
    ISO_TRY(iso_jinja_append_text(session, buffer, "<"));
    ISO_TRY(iso_jinja_append_text(session, buffer, iso_jinja_type_name(value)));
    return iso_jinja_append_text(session, buffer, ">");
  }
}

iso_status iso_jinja_represent(iso_jinja_session *session, iso_jinja_buffer *buffer,
                               iso_jinja_value value) {
  ISO_TRY(iso_jinja_enter(session));
  ISO_TRY(represent_object(session, buffer, value));
  iso_jinja_leave(session);
  return ISO_OK;
}

iso_status iso_jinja_print(iso_jinja_session *session, iso_jinja_buffer *buffer,
                           iso_jinja_value value) {
  if (value.kind == ISO_JINJA_STRING)
    return iso_jinja_append(session, buffer, value.string, value.length);
  if (value.kind == ISO_JINJA_UNDEFINED)
    return ISO_OK;
  return iso_jinja_represent(session, buffer, value);
}

iso_status iso_jinja_to_string(iso_jinja_session *session, iso_jinja_value value,
                               iso_jinja_value *out_string) {
  *out_string = value;
  if (value.kind == ISO_JINJA_STRING)
    return ISO_OK;
  iso_jinja_buffer buffer = {0};
  ISO_TRY(iso_jinja_print(session, &buffer, value));
  *out_string = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}
