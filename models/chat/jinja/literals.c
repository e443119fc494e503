#include "models/chat/jinja/literals.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"
#include <stdlib.h>
#include <string.h>

typedef struct span {
  const char *source;
  size_t length;
} span;

static int digit_value(span s, size_t at) {
  char c = at < s.length ? s.source[at] : 0;
  if (c >= '0' && c <= '9')
    return c - '0';
  if ((c | 32) >= 'a' && (c | 32) <= 'f')
    return (c | 32) - 'a' + 10;
  return 99;
}

/* The end of a run of digits in `base`, single underscores between them allowed. */
static size_t digits_end(span s, size_t at, int base) {
  while (digit_value(s, at) < base ||
         (at < s.length && s.source[at] == '_' && digit_value(s, at + 1) < base))
    at++;
  return at;
}

/* The end of a float's fraction and exponent; `at` itself when there is neither. */
static size_t fraction_end(span s, size_t at) {
  if (at < s.length && s.source[at] == '.' && digit_value(s, at + 1) < 10)
    at = digits_end(s, at + 1, 10);
  if (at < s.length && (s.source[at] | 32) == 'e') {
    size_t digits = at + 1;
    if (digits < s.length && (s.source[digits] == '+' || s.source[digits] == '-'))
      digits++;
    if (digit_value(s, digits) < 10)
      at = digits_end(s, digits, 10);
  }
  return at;
}

static iso_status read_float(iso_jinja_session *session, const char *text, size_t length,
                             iso_jinja_value *out_value) {
  char plain[128];
  size_t used = 0;
  for (size_t i = 0; i < length; i++) {
    if (text[i] == '_')
      continue;
    if (used == sizeof plain - 1)
      return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED, "a number has too many digits");
    plain[used++] = text[i];
  }
  plain[used] = 0;
  *out_value = iso_jinja_float(strtod(plain, NULL));
  return ISO_OK;
}

iso_status iso_jinja_read_number(iso_jinja_session *session, const char *source, size_t length,
                                 size_t start, bool float_allowed, iso_jinja_value *out_value,
                                 size_t *out_end) {
  span s = {source, length};
  size_t whole = digits_end(s, start, 10);
  *out_end = fraction_end(s, whole);
  if (float_allowed && *out_end > whole)
    return read_float(session, source + start, *out_end - start, out_value);

  int base = 10;
  size_t first = start;
  if (source[start] == '0') {
    char letter = start + 1 < length ? source[start + 1] | 32 : 0;
    int based = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    size_t digits = start + 2;
    if (based && digits < length && source[digits] == '_')
      digits++;
    if (based && digit_value(s, digits) < based) {
      base = based;
      first = digits;
    } else {
      whole = digits_end(s, start, 1); /* zeros only: 007 is not a number */
    }
  }
  if (base != 10)
    whole = digits_end(s, first, base);
  int64_t value = 0;
  for (size_t at = first; at < whole; at++)
    if (source[at] != '_' && (__builtin_mul_overflow(value, base, &value) ||
                              __builtin_add_overflow(value, digit_value(s, at), &value)))
      return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED, "an integer is beyond 64 bits");
  *out_value = iso_jinja_integer(value);
  *out_end = whole;
  return ISO_OK;
}

/* Reads a numeric escape of up to `most` digits; `*at` is its first digit. */
static iso_status read_numeric_escape(iso_jinja_session *session, span s, size_t *at, int base,
                                      int least, int most, iso_jinja_buffer *buffer) {
  uint32_t codepoint = 0;
  int count = 0;
  for (; count < most && digit_value(s, *at) < base; count++)
    codepoint = codepoint * (uint32_t)base + (uint32_t)digit_value(s, (*at)++);
  if (count < least || codepoint > 0x10FFFF || (codepoint >= 0xD800 && codepoint < 0xE000))
    return iso_jinja_fail(session, ISO_ERROR_CORRUPT_DATA, "a string has a bad escape");
  return iso_jinja_append_codepoint(session, buffer, codepoint);
}

/* Reads the escape whose letter is at `*at`. */
static iso_status read_escape(iso_jinja_session *session, span s, size_t *at,
                              iso_jinja_buffer *buffer) {
  static const char simple[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
  char letter = s.source[*at];
  if (letter >= '0' && letter <= '7')
    return read_numeric_escape(session, s, at, 8, 1, 3, buffer);
  (*at)++;
  const char *found = letter ? strchr(simple, letter) : NULL;
  switch (letter) {
  case '\n':
    return ISO_OK;
  case 'x':
    return read_numeric_escape(session, s, at, 16, 2, 2, buffer);
  case 'u':
    return read_numeric_escape(session, s, at, 16, 4, 4, buffer);
  case 'U':
    return read_numeric_escape(session, s, at, 16, 8, 8, buffer);
  case 'N':
    return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED, "\\N escapes are not supported");
  default:
    if (found && (found - simple) % 2 == 0)
      return iso_jinja_append(session, buffer, found + 1, 1);
    ISO_TRY(iso_jinja_append(session, buffer, "\\", 1)); /* unknown: kept as it is */
    return iso_jinja_append(session, buffer, &letter, 1);
  }
}

iso_status iso_jinja_read_string(iso_jinja_session *session, const char *source, size_t length,
                                 size_t start, iso_jinja_value *out_value, size_t *out_end) {
  span s = {source, length};
  char quote = source[start];
  iso_jinja_buffer buffer = {0};
  for (size_t at = start + 1; at < length;) {
    if (source[at] == quote) {
      *out_value = iso_jinja_buffer_string(&buffer);
      *out_end = at + 1;
      return ISO_OK;
    }
    if (source[at] == '\\' && at + 1 < length) {
      at++;
      ISO_TRY(read_escape(session, s, &at, &buffer));
    } else {
      ISO_TRY(iso_jinja_append(session, &buffer, source + at, 1));
      at++;
    }
  }
  return iso_jinja_fail(session, ISO_ERROR_CORRUPT_DATA, "a string is not closed");
}
