#include "models/chat/jinja/numbers.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static int digit_value(char c) {
  return is_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
}

/* Takes off the white space around the string, that beyond ASCII included; of a string with
 * separators, which are white space elsewhere, nothing is left. A digit of another script, which
 * Python would read, is refused. */
static iso_status trim(iso_jinja_session *session, iso_jinja_value *text) {
  ISO_TRY(iso_jinja_spend(session, text->length / 16));
  for (size_t at = 0; at < text->length;) {
    uint32_t codepoint;
    at += iso_jinja_decode(text->string + at, text->length - at, &codepoint);
    if (codepoint > 0x7F && iso_jinja_is_decimal(codepoint))
      return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED,
                            "numbers in digits beyond ASCII are not supported");
    if (codepoint >= 0x1C && codepoint <= 0x1F)
      text->length = 0;
  }
  size_t end = iso_jinja_length_before_trailing_space(text->string, text->length);
  *text = iso_jinja_part(*text, iso_jinja_leading_space(text->string, end), end);
  return ISO_OK;
}

/* The base that a prefix such as "0x" asks for; 0 without one. */
static int64_t prefix_base(const char *digits, size_t length) {
  char letter = length > 2 && digits[0] == '0' ? digits[1] | 32 : 0;
  return letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
}

iso_status iso_jinja_integer_from_text(iso_jinja_session *session, iso_jinja_value text,
                                       int64_t base, iso_jinja_value *out_integer) {
  *out_integer = (iso_jinja_value){.kind = ISO_JINJA_ABSENT};
  ISO_TRY(trim(session, &text));
  size_t at = text.length && (text.string[0] == '-' || text.string[0] == '+');
  bool negative = at && text.string[0] == '-', overflow = false, zeros = true;
  int64_t prefixed = prefix_base(text.string + at, text.length - at), value = 0;
  bool bare = base == 0 && !prefixed; /* then a leading zero is allowed in zero alone */
  if (prefixed && (base == prefixed || base == 0)) {
    base = prefixed;
    at += 2 + (text.string[at + 2] == '_');
  }
  base = bare ? 10 : base;
  size_t first = at;
  for (; at < text.length; at++) {
    if (text.string[at] == '_' && at > first && text.string[at - 1] != '_' && at + 1 < text.length)
      continue;
    int digit = digit_value(text.string[at]);
    if (digit >= base)
      return ISO_OK;
    zeros &= digit == 0;
    overflow |= __builtin_mul_overflow(value, base, &value) ||
                __builtin_add_overflow(value, negative ? -digit : digit, &value);
  }
  if (at == first || (bare && !zeros && text.string[first] == '0'))
    return ISO_OK;
  if (overflow)
    return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED, "an integer is beyond 64 bits");
  *out_integer = iso_jinja_integer(value);
  return ISO_OK;
}

iso_status iso_jinja_float_from_text(iso_jinja_session *session, iso_jinja_value text,
                                     iso_jinja_value *out_float) {
  *out_float = (iso_jinja_value){.kind = ISO_JINJA_ABSENT};
  ISO_TRY(trim(session, &text));
  char *plain, *end;
  size_t used = 0;
  ISO_JINJA_NEW(session, plain, (size_t)text.length + 1);
  for (size_t at = 0; at < text.length; at++) {
    char c = text.string[at];
    bool between = at > 0 && at + 1 < text.length && is_digit(text.string[at - 1]) &&
                   is_digit(text.string[at + 1]);
    if (c == 0 || (c == '_' && !between) || is_ascii_space(c) || strchr("xX(pP", c))
      return ISO_OK; /* C reads hexadecimal floats and nan(), Python does not */
    if (c != '_')
      plain[used++] = c;
  }
  double number = strtod(plain, &end);
  if (used > 0 && end == plain + used)
    *out_float = iso_jinja_float(number);
  return ISO_OK;
}
