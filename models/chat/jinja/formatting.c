/* Python's two ways to format: "%5.1f" % value and "{:>5}".format(value). Both read a small
 * specification and lay out one value; only the spelling of the specification differs. */
#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 100 };

typedef struct specification {
  iso_jinja_value fill; /* one character; empty for the default */
  char align;           /* < > ^ =, or 0 for the type's own */
  char sign;            /* + or space, else 0 */
  bool alternate, zero, comma;
  int64_t width, precision; /* precision -1 if not given */
  char type;                /* 0 if not given */
} specification;

/* A position in a format. */
typedef struct cursor {
  iso_jinja_session *session;
  iso_jinja_value text;
  size_t at;
} cursor;

static iso_status fail_format(iso_jinja_session *session, const char *what) {
  return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "format: %s", what);
}

static char peek(const cursor *c) { return c->at < c->text.length ? c->text.string[c->at] : 0; }

static bool skip(cursor *c, char character) {
  bool found = character && peek(c) == character;
  c->at += found;
  return found;
}

static iso_status read_count(cursor *c, int64_t most, int64_t *out_count) {
  int64_t count = 0;
  for (; peek(c) >= '0' && peek(c) <= '9'; c->at++) {
    count = count * 10 + (peek(c) - '0');
    if (count > most)
      return fail_format(c->session, "a width or precision is too large");
  }
  *out_count = count;
  return ISO_OK;
}

/* Lays `body`, whose first `sign_bytes` are a sign and prefix, out in the width. */
static iso_status lay_out(iso_jinja_session *session, iso_jinja_buffer *buffer,
                          const specification *spec, char align, iso_jinja_value body,
                          size_t sign_bytes) {
  int64_t length;
  ISO_TRY(iso_jinja_length(session, body, &length));
  int64_t missing = spec->width > length ? spec->width - length : 0;
  int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  iso_jinja_value fill = spec->fill.length ? spec->fill : iso_jinja_literal(spec->zero ? "0" : " ");
  if (align != '=')
    sign_bytes = 0;
  ISO_TRY(iso_jinja_append(session, buffer, body.string, sign_bytes));
  for (int64_t i = 0; i < before; i++)
    ISO_TRY(iso_jinja_print(session, buffer, fill));
  ISO_TRY(iso_jinja_append(session, buffer, body.string + sign_bytes, body.length - sign_bytes));
  for (int64_t i = before; i < missing; i++)
    ISO_TRY(iso_jinja_print(session, buffer, fill));
  return iso_jinja_spend(session, (uint64_t)missing / 8);
}

/* Copies digits with commas between thousands. */
static void group_thousands(const char *digits, char *out) {
  size_t whole = strspn(digits, "0123456789");
  for (size_t i = 0; i < whole; i++) {
    if (i && (whole - i) % 3 == 0)
      *out++ = ',';
    *out++ = digits[i];
  }
  strcpy(out, digits + whole);
}

static iso_status format_magnitude(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                   const specification *spec, bool negative, const char *prefix,
                                   const char *digits) {
  char body[1024], grouped[900];
  const char *sign = negative ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
  if (spec->comma && spec->width > 0 && (spec->align == '=' || (spec->zero && !spec->align)))
    return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED,
                          "format: padding between a sign and grouped digits is not supported");
  if (spec->comma) {
    group_thousands(digits, grouped);
    digits = grouped;
  }
  snprintf(body, sizeof body, "%s%s%s", sign, prefix, digits);
  char align = spec->align ? spec->align : spec->zero ? '=' : '>';
  return lay_out(session, buffer, spec, align, iso_jinja_literal(body),
                 strlen(sign) + strlen(prefix));
}

static iso_status format_integer(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                 const specification *spec, int64_t value) {
  char digits[80];
  const char *prefix = "";
  uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
  int least = spec->precision > 60 ? 60 : spec->precision < 1 ? 1 : (int)spec->precision;
  switch (spec->type) {
  case 'x':
    snprintf(digits, sizeof digits, "%.*" PRIx64, least, magnitude);
    prefix = spec->alternate ? "0x" : "";
    break;
  case 'X':
    snprintf(digits, sizeof digits, "%.*" PRIX64, least, magnitude);
    prefix = spec->alternate ? "0X" : "";
    break;
  case 'o':
    snprintf(digits, sizeof digits, "%.*" PRIo64, least, magnitude);
    prefix = spec->alternate ? "0o" : "";
    break;
  default:
    snprintf(digits, sizeof digits, "%.*" PRIu64, least, magnitude);
  }
  return format_magnitude(session, buffer, spec, value < 0, prefix, digits);
}

static iso_status format_float(iso_jinja_session *session, iso_jinja_buffer *buffer,
                               const specification *spec, double value) {
  bool percent = spec->type == '%', negative = signbit(value);
  char digits[600], pattern[8];
  snprintf(pattern, sizeof pattern, "%%%s.*%c", spec->alternate ? "#" : "",
           percent ? 'f' : spec->type);
  if (value != value)
    return format_magnitude(session, buffer, spec, false, "", "nan");
  snprintf(digits, sizeof digits, pattern, spec->precision < 0 ? 6 : (int)spec->precision,
           fabs(value) * (percent ? 100 : 1));
  if (percent)
    strcat(digits, "%");
  return format_magnitude(session, buffer, spec, negative, "", digits);
}

static iso_status format_text(iso_jinja_session *session, iso_jinja_buffer *buffer,
                              const specification *spec, char align, iso_jinja_value text) {
  if (spec->precision >= 0)
    text.length =
        (uint32_t)iso_jinja_codepoint_offset(text.string, text.length, (size_t)spec->precision);
  return lay_out(session, buffer, spec, spec->align ? spec->align : align, text, 0);
}

/* format(value, specification) of a string */
static iso_status format_string(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                const specification *spec, iso_jinja_value text) {
  if (spec->sign || spec->alternate || spec->comma || spec->align == '=')
    return fail_format(session, "a sign, '#', ',' or '=' is not for strings");
  return format_text(session, buffer, spec, '<', text);
}

static iso_status represent(iso_jinja_session *session, iso_jinja_value value,
                            iso_jinja_value *out_text) {
  iso_jinja_buffer text = {0};
  ISO_TRY(iso_jinja_represent(session, &text, value));
  *out_text = iso_jinja_buffer_string(&text);
  return ISO_OK;
}

/* One conversion of a percent format: the value as `spec->type` asks. */
static iso_status convert(iso_jinja_session *session, iso_jinja_buffer *buffer, specification *spec,
                          iso_jinja_value value) {
  int64_t integer;
  double number;
  iso_jinja_value text;
  if (spec->type == 's' || spec->type == 'r' || spec->type == 'a') {
    spec->zero = false;
    if (spec->type == 's')
      ISO_TRY(iso_jinja_to_string(session, value, &text));
    else
      ISO_TRY(represent(session, value, &text));
    for (uint32_t i = 0; i < text.length && spec->type == 'a'; i++)
      if ((unsigned char)text.string[i] > 0x7E)
        return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED,
                              "format: %%a is not supported beyond ASCII");
    return format_text(session, buffer, spec, '>', text);
  }
  if (value.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(session, value);
  if (strchr("diuxXo", spec->type)) {
    if (value.kind == ISO_JINJA_FLOAT && strchr("diu", spec->type) && isfinite(value.number)) {
      if (!(value.number >= -0x1p63 && value.number < 0x1p63))
        return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED, "an integer is beyond 64 bits");
      value = iso_jinja_integer((int64_t)value.number);
    }
    if (!iso_jinja_as_integer(value, &integer))
      return fail_format(session, "an integer conversion needs a number");
    return format_integer(session, buffer, spec, integer);
  }
  if (strchr("fFeEgG", spec->type)) {
    if (!iso_jinja_as_number(value, &number))
      return fail_format(session, "a float conversion needs a number");
    return format_float(session, buffer, spec, number);
  }
  if (spec->type != 'c')
    return fail_format(session, "unsupported conversion");
  char encoded[4];
  if (iso_jinja_as_integer(value, &integer)) {
    if (integer < 0 || integer > 0x10FFFF || (integer >= 0xD800 && integer < 0xE000))
      return fail_format(session, "%c argument is not a character");
    value = iso_jinja_string(encoded, iso_jinja_encode((uint32_t)integer, encoded));
  }
  if (value.kind != ISO_JINJA_STRING || iso_jinja_count_codepoints(value.string, value.length) != 1)
    return fail_format(session, "%c needs one character");
  spec->precision = -1;
  return format_text(session, buffer, spec, '>', value);
}

/* Draws values for a percent format. */
typedef struct supply {
  iso_jinja_value values;
  uint32_t used;
} supply;

static iso_status next_value(iso_jinja_session *session, supply *s, iso_jinja_value *out) {
  bool tuple = s->values.kind == ISO_JINJA_TUPLE;
  if (s->used >= (tuple ? s->values.list->count : 1))
    return fail_format(session, "not enough arguments for format string");
  *out = tuple ? s->values.list->items[s->used] : s->values;
  s->used++;
  return ISO_OK;
}

static iso_status read_star(cursor *c, supply *s, int64_t most, int64_t *out_count) {
  iso_jinja_value value;
  if (!skip(c, '*'))
    return read_count(c, most, out_count);
  ISO_TRY(next_value(c->session, s, &value));
  if (!iso_jinja_as_integer(value, out_count) || *out_count > most || *out_count < -most)
    return fail_format(c->session, "* needs a small int");
  return ISO_OK;
}

static iso_status read_mapping_key(cursor *c, iso_jinja_value values, iso_jinja_value *out) {
  size_t end = c->at;
  while (end < c->text.length && c->text.string[end] != ')')
    end++;
  if (end == c->text.length)
    return fail_format(c->session, "incomplete format key");
  if (values.kind != ISO_JINJA_DICT)
    return fail_format(c->session, "format requires a mapping");
  iso_jinja_value *found;
  ISO_TRY(
      iso_jinja_dict_find(c->session, values.dict, iso_jinja_part(c->text, c->at, end), &found));
  c->at = end + 1;
  if (!found)
    return fail_format(c->session, "a key is not in the mapping");
  *out = *found;
  return ISO_OK;
}

/* What follows a percent sign. */
static iso_status read_conversion(cursor *c, supply *s, iso_jinja_buffer *buffer) {
  specification spec = {.precision = -1};
  iso_jinja_value value = {.kind = ISO_JINJA_ABSENT};
  if (skip(c, '%'))
    return iso_jinja_append(c->session, buffer, "%", 1);
  if (skip(c, '('))
    ISO_TRY(read_mapping_key(c, s->values, &value));
  for (;;) {
    if (skip(c, '-'))
      spec.align = '<';
    else if (skip(c, '+'))
      spec.sign = '+';
    else if (skip(c, ' '))
      spec.sign = spec.sign ? spec.sign : ' ';
    else if (skip(c, '#'))
      spec.alternate = true;
    else if (skip(c, '0'))
      spec.zero = true;
    else
      break;
  }
  ISO_TRY(read_star(c, s, MAX_WIDTH, &spec.width));
  if (spec.width < 0) {
    spec.align = '<';
    spec.width = -spec.width;
  }
  if (skip(c, '.')) {
    ISO_TRY(read_star(c, s, MAX_PRECISION, &spec.precision));
    spec.precision = spec.precision < 0 ? 0 : spec.precision;
  }
  while (skip(c, 'l') || skip(c, 'h') || skip(c, 'L'))
    ;
  spec.type = peek(c);
  if (!spec.type)
    return fail_format(c->session, "incomplete format");
  c->at++;
  if (value.kind == ISO_JINJA_ABSENT)
    ISO_TRY(next_value(c->session, s, &value));
  spec.zero &= spec.align != '<';
  return convert(c->session, buffer, &spec, value);
}

iso_status iso_jinja_format_percent(iso_jinja_session *session, iso_jinja_value format,
                                    iso_jinja_value values, iso_jinja_value *out_text) {
  cursor c = {session, format, 0};
  supply s = {values, 0};
  iso_jinja_buffer buffer = {0};
  while (c.at < format.length) {
    const char *percent = memchr(format.string + c.at, '%', format.length - c.at);
    size_t end = percent ? (size_t)(percent - format.string) : format.length;
    ISO_TRY(iso_jinja_append(session, &buffer, format.string + c.at, end - c.at));
    c.at = end + 1;
    if (!percent)
      break;
    ISO_TRY(iso_jinja_spend(session, 1));
    ISO_TRY(read_conversion(&c, &s, &buffer));
  }
  /* What can be indexed may be a mapping, and of a mapping not all need be used. */
  bool indexed = values.kind == ISO_JINJA_DICT || values.kind == ISO_JINJA_LIST ||
                 values.kind == ISO_JINJA_RANGE || values.kind == ISO_JINJA_UNDEFINED;
  if (!indexed && s.used != (values.kind == ISO_JINJA_TUPLE ? values.list->count : 1))
    return fail_format(session, "not all arguments converted during string formatting");
  *out_text = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static iso_status read_specification(cursor *c, specification *spec) {
  uint32_t codepoint;
  size_t fill = c->at < c->text.length
                    ? iso_jinja_decode(c->text.string + c->at, c->text.length - c->at, &codepoint)
                    : 0;
  *spec = (specification){.precision = -1};
  if (fill && c->at + fill < c->text.length && c->text.string[c->at + fill] &&
      strchr("<>^=", c->text.string[c->at + fill])) {
    spec->fill = iso_jinja_part(c->text, c->at, c->at + fill);
    c->at += fill;
  }
  if (peek(c) && strchr("<>^=", peek(c)))
    spec->align = c->text.string[c->at++];
  if (peek(c) && strchr("+- ", peek(c)))
    spec->sign = c->text.string[c->at++];
  spec->alternate = skip(c, '#');
  spec->zero = skip(c, '0');
  ISO_TRY(read_count(c, MAX_WIDTH, &spec->width));
  spec->comma = skip(c, ',');
  if (skip(c, '.')) {
    if (peek(c) < '0' || peek(c) > '9')
      return fail_format(c->session, "the precision is missing");
    ISO_TRY(read_count(c, MAX_PRECISION, &spec->precision));
  }
  if (c->at < c->text.length)
    spec->type = c->text.string[c->at++];
  return c->at == c->text.length ? ISO_OK : fail_format(c->session, "invalid format specifier");
}

/* format(value, specification) */
static iso_status format_value(iso_jinja_session *session, iso_jinja_buffer *buffer,
                               iso_jinja_value value, iso_jinja_value text) {
  cursor c = {session, text, 0};
  specification spec;
  int64_t integer;
  double number;
  if (text.length == 0)
    return iso_jinja_print(session, buffer, value);
  ISO_TRY(read_specification(&c, &spec));
  if (value.kind == ISO_JINJA_STRING && (spec.type == 's' || !spec.type))
    return format_string(session, buffer, &spec, value);
  if (spec.comma && spec.type && strchr("xXo", spec.type))
    return fail_format(session, "',' is for decimal digits");
  bool for_float = spec.type && strchr("fFeEgG%", spec.type);
  if (iso_jinja_as_integer(value, &integer) && !for_float && spec.precision < 0 &&
      (!spec.type || strchr("dxXo", spec.type)))
    return format_integer(session, buffer, &spec, integer);
  if (iso_jinja_as_number(value, &number) && for_float)
    return format_float(session, buffer, &spec, number);
  if (value.kind == ISO_JINJA_FLOAT && !spec.type && spec.precision < 0) {
    iso_jinja_buffer digits = {0};
    ISO_TRY(iso_jinja_print_float(session, &digits, fabs(number)));
    ISO_TRY(iso_jinja_append(session, &digits, "", 1));
    return format_magnitude(session, buffer, &spec, signbit(number), "", digits.bytes);
  }
  return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT,
                        "format: unsupported format code for object of type '%s'",
                        iso_jinja_type_name(value));
}

/* Numbers the replacement fields that have no number. */
typedef struct field_supply {
  const iso_jinja_arguments *arguments;
  uint32_t next;
  bool numbers_given; /* by some field, so that none may be left to us */
} field_supply;

/* The argument that a field's name, up to its first '.' or '[', stands for. */
static iso_status find_argument(cursor *c, field_supply *s, iso_jinja_value name,
                                iso_jinja_value *out) {
  uint32_t position = s->next;
  bool number = name.length > 0;
  if (name.length == 0)
    s->next++;
  else
    position = 0;
  for (uint32_t i = 0; i < name.length; i++) {
    number &= name.string[i] >= '0' && name.string[i] <= '9' && i < 6;
    position = number ? position * 10 + (uint32_t)(name.string[i] - '0') : 0;
  }
  ISO_TRY(iso_jinja_spend(c->session, s->arguments->keyword_count / 8));
  s->numbers_given |= number;
  if (s->numbers_given && s->next > 0)
    return fail_format(c->session, "fields with and without a number");
  if (name.length == 0 || number) {
    if (position >= s->arguments->positional_count)
      return fail_format(c->session, "replacement index out of range");
    *out = s->arguments->positional[position];
    return ISO_OK;
  }
  for (uint32_t i = 0; i < s->arguments->keyword_count; i++) {
    if (iso_jinja_same_text(s->arguments->keywords[i].name, name)) {
      *out = s->arguments->keywords[i].value;
      return ISO_OK;
    }
  }
  return fail_format(c->session, "a replacement field names no argument");
}

/* The value of a field such as `user.name` or `0[key]`. */
static iso_status read_field(iso_jinja_session *session, iso_jinja_value field, field_supply *s,
                             iso_jinja_value *out) {
  cursor c = {session, field, 0};
  while (peek(&c) && peek(&c) != '.' && peek(&c) != '[')
    c.at++;
  ISO_TRY(find_argument(&c, s, iso_jinja_part(field, 0, c.at), out));
  while (c.at < field.length) {
    ISO_TRY(iso_jinja_spend(session, 1));
    bool attribute = skip(&c, '.');
    if (!attribute && !skip(&c, '['))
      return fail_format(session, "only '.' or '[' may follow ']' in a replacement field");
    size_t start = c.at;
    while (c.at < field.length &&
           (attribute ? peek(&c) != '.' && peek(&c) != '[' : peek(&c) != ']'))
      c.at++;
    iso_jinja_value key = iso_jinja_part(field, start, c.at);
    if (!attribute && !skip(&c, ']'))
      return fail_format(session, "missing ']' in a replacement field");
    if (attribute)
      ISO_TRY(iso_jinja_get_attribute(session, *out, key, out));
    else {
      cursor digits = {session, key, 0};
      int64_t index = 0;
      ISO_TRY(read_count(&digits, INT32_MAX, &index));
      bool number = key.length && digits.at == key.length;
      ISO_TRY(iso_jinja_get_item(session, *out, number ? iso_jinja_integer(index) : key, out));
    }
    if (out->kind == ISO_JINJA_UNDEFINED)
      return iso_jinja_fail_undefined(session, *out);
  }
  return ISO_OK;
}

/* field[!conversion][:specification], the braces around it removed. */
static iso_status format_field(iso_jinja_session *session, iso_jinja_value field, field_supply *s,
                               iso_jinja_buffer *buffer) {
  size_t colon = 0;
  while (colon < field.length && field.string[colon] != ':')
    colon++;
  size_t name = colon;
  char conversion = 0;
  if (colon >= 2 && field.string[colon - 2] == '!') {
    conversion = field.string[colon - 1];
    name = colon - 2;
  }
  iso_jinja_value value;
  ISO_TRY(read_field(session, iso_jinja_part(field, 0, name), s, &value));
  if (conversion == 'r')
    ISO_TRY(represent(session, value, &value));
  else if (conversion == 's')
    ISO_TRY(iso_jinja_to_string(session, value, &value));
  else if (conversion)
    return fail_format(session, "unknown conversion specifier");
  size_t start = colon < field.length ? colon + 1 : colon;
  return format_value(session, buffer, value, iso_jinja_part(field, start, field.length));
}

iso_status iso_jinja_format_braces(iso_jinja_session *session, iso_jinja_value format,
                                   const iso_jinja_arguments *arguments,
                                   iso_jinja_value *out_text) {
  iso_jinja_buffer buffer = {0};
  field_supply s = {.arguments = arguments};
  for (size_t at = 0; at < format.length;) {
    char brace = format.string[at];
    if (brace != '{' && brace != '}') {
      size_t end = at + 1;
      while (end < format.length && format.string[end] != '{' && format.string[end] != '}')
        end++;
      ISO_TRY(iso_jinja_append(session, &buffer, format.string + at, end - at));
      at = end;
      continue;
    }
    if (at + 1 < format.length && format.string[at + 1] == brace) {
      ISO_TRY(iso_jinja_append(session, &buffer, &brace, 1));
      at += 2;
      continue;
    }
    const char *close = brace == '{' ? memchr(format.string + at, '}', format.length - at) : NULL;
    if (!close)
      return fail_format(session, "a single brace in the format");
    size_t end = (size_t)(close - format.string);
    ISO_TRY(iso_jinja_spend(session, 1));
    ISO_TRY(format_field(session, iso_jinja_part(format, at + 1, end), &s, &buffer));
    at = end + 1;
  }
  *out_text = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}
