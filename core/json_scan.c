#include "core/json_scan.h"
#include "core/json.h"

#include <string.h>

/* cJSON copies a number into a buffer of 64 bytes. */
enum { MAX_NUMBER_CHARACTERS = 63 };

typedef struct scanner {
  const char *text;
  size_t length;
  size_t position;
  size_t key_position; /* of the key of the value about to start, or NO_KEY */
  uint64_t value_count;
  uint64_t find_ordinal; /* stop when this value starts */
  int max_depth;
  int depth;
  uint8_t is_object[ISO_JSON_MAX_DEPTH];
} scanner;

#define NO_KEY SIZE_MAX

iso_status iso_json_fail(iso_status code, const char *text, size_t offset, const char *what) {
  size_t line = 1;
  for (const char *p = text; (p = memchr(p, '\n', offset - (size_t)(p - text))); p++)
    line++;
  return iso_fail(code, "JSON: %s at byte %zu (line %zu)", what, offset, line);
}

static iso_status fail_here(const scanner *s, const char *what) {
  return iso_json_fail(ISO_ERROR_CORRUPT_DATA, s->text, s->position, what);
}

/* The byte at the position, or NUL at the end: NUL itself is never valid. */
static char peek(const scanner *s) { return s->position < s->length ? s->text[s->position] : 0; }

static void skip_space(scanner *s) {
  for (;;) {
    char c = peek(s);
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
      return;
    s->position++;
  }
}

static int hex_value(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads the four digits after "\u" at `offset`; -1 when they are not there. */
static int32_t read_hex4(const scanner *s, size_t offset) {
  if (s->length < 4 || offset > s->length - 4)
    return -1;
  int32_t value = 0;
  for (size_t i = 0; i < 4; i++) {
    int digit = hex_value(s->text[offset + i]);
    if (digit < 0)
      return -1;
    value = value * 16 + digit;
  }
  return value;
}

static iso_status scan_escape(scanner *s) {
  char c = s->position + 1 < s->length ? s->text[s->position + 1] : 0;
  if (c != 'u') {
    if (c == 0 || !strchr("\"\\/bfnrt", c))
      return fail_here(s, "unknown escape");
    s->position += 2;
    return ISO_OK;
  }
  int32_t unit = read_hex4(s, s->position + 2);
  if (unit < 0)
    return fail_here(s, "\\u needs four hexadecimal digits");
  if (unit == 0)
    return fail_here(s, "a string may not hold NUL (\\u0000)");
  if (unit >= 0xdc00 && unit <= 0xdfff)
    return fail_here(s, "lone low surrogate");
  if (unit >= 0xd800 && unit <= 0xdbff) {
    const char *next = s->text + s->position + 6;
    int32_t low = s->length - s->position >= 12 && next[0] == '\\' && next[1] == 'u'
                      ? read_hex4(s, s->position + 8)
                      : -1;
    if (low < 0xdc00 || low > 0xdfff)
      return fail_here(s, "lone high surrogate");
    s->position += 6;
  }
  s->position += 6;
  return ISO_OK;
}

/* One UTF-8 sequence of two to four bytes: shortest form, no surrogates, at most U+10FFFF. */
static iso_status scan_utf8(scanner *s) {
  const uint8_t *p = (const uint8_t *)s->text + s->position;
  size_t left = s->length - s->position;
  size_t bytes = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
  uint8_t low = 0x80, high = 0xbf; /* range of the second byte */
  if (p[0] == 0xe0)
    low = 0xa0;
  else if (p[0] == 0xed)
    high = 0x9f;
  else if (p[0] == 0xf0)
    low = 0x90;
  else if (p[0] == 0xf4)
    high = 0x8f;
  bool valid = p[0] >= 0xc2 && p[0] <= 0xf4 && left >= bytes && p[1] >= low && p[1] <= high;
  for (size_t i = 2; valid && i < bytes; i++)
    valid = (p[i] & 0xc0) == 0x80;
  if (!valid)
    return fail_here(s, "invalid UTF-8");
  s->position += bytes;
  return ISO_OK;
}

static iso_status scan_string(scanner *s) {
  size_t start = s->position++;
  while (s->position < s->length) {
    uint8_t c = (uint8_t)s->text[s->position];
    if (c == '"') {
      s->position++;
      return ISO_OK;
    }
    if (c == '\\')
      ISO_TRY(scan_escape(s));
    else if (c < 0x20)
      return fail_here(s, "control character in a string");
    else if (c < 0x80)
      s->position++;
    else
      ISO_TRY(scan_utf8(s));
  }
  s->position = start;
  return fail_here(s, "string without an end");
}

static bool skip_digits(scanner *s) {
  size_t start = s->position;
  while (peek(s) >= '0' && peek(s) <= '9')
    s->position++;
  return s->position > start;
}

static iso_status scan_number(scanner *s) {
  size_t start = s->position;
  s->position += peek(s) == '-';
  if (peek(s) == 'I' || peek(s) == 'N')
    return fail_here(s, "NaN and Infinity are not JSON");
  bool leading_zero = peek(s) == '0';
  size_t first_digit = s->position;
  if (!skip_digits(s))
    return fail_here(s, "a number needs a digit");
  if (leading_zero && s->position > first_digit + 1)
    return fail_here(s, "a number may not start with 0");
  if (peek(s) == '.') {
    s->position++;
    if (!skip_digits(s))
      return fail_here(s, "a number needs a digit after its point");
  }
  if (peek(s) == 'e' || peek(s) == 'E') {
    s->position++;
    s->position += peek(s) == '+' || peek(s) == '-';
    if (!skip_digits(s))
      return fail_here(s, "a number needs a digit in its exponent");
  }
  if (s->position - start > MAX_NUMBER_CHARACTERS) {
    s->position = start;
    return fail_here(s, "a number of more than 63 characters");
  }
  return ISO_OK;
}

static iso_status scan_word(scanner *s) {
  static const char *const words[] = {"true", "false", "null"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t length = strlen(words[i]);
    if (s->length - s->position >= length && memcmp(s->text + s->position, words[i], length) == 0) {
      s->position += length;
      return ISO_OK;
    }
  }
  if (peek(s) == 'N' || peek(s) == 'I')
    return fail_here(s, "NaN and Infinity are not JSON");
  return fail_here(s, s->position < s->length ? "a value is needed here" : "the text ends early");
}

static iso_status scan_key(scanner *s) {
  skip_space(s);
  if (peek(s) != '"')
    return fail_here(s, "a key in quotes is needed here");
  s->key_position = s->position;
  ISO_TRY(scan_string(s));
  skip_space(s);
  if (peek(s) != ':')
    return fail_here(s, "':' is needed after a key");
  s->position++;
  return ISO_OK;
}

/* Scans one scalar, or opens a container. *out_complete: the value ends here. */
static iso_status scan_value_start(scanner *s, bool *out_complete) {
  *out_complete = true;
  skip_space(s);
  char c = peek(s);
  if (c == '"')
    return scan_string(s);
  if (c == '-' || (c >= '0' && c <= '9'))
    return scan_number(s);
  if (c != '{' && c != '[')
    return scan_word(s);
  if (s->depth >= s->max_depth)
    return iso_json_fail(ISO_ERROR_LIMIT, s->text, s->position, "nested too deep");
  s->is_object[s->depth++] = c == '{';
  s->position++;
  skip_space(s);
  s->key_position = NO_KEY;
  if (peek(s) == (c == '{' ? '}' : ']')) {
    s->position++;
    s->depth--;
    return ISO_OK;
  }
  *out_complete = false;
  return c == '{' ? scan_key(s) : ISO_OK;
}

/* After a complete value: closes containers until one goes on (a comma) or the root is done. */
static iso_status scan_value_end(scanner *s) {
  while (s->depth > 0) {
    bool object = s->is_object[s->depth - 1];
    skip_space(s);
    char c = peek(s);
    if (c == ',') {
      s->position++;
      s->key_position = NO_KEY;
      return object ? scan_key(s) : ISO_OK;
    }
    if (c != (object ? '}' : ']'))
      return fail_here(s, object ? "',' or '}' is needed here" : "',' or ']' is needed here");
    s->position++;
    s->depth--;
  }
  return ISO_OK;
}

size_t iso_json_mark_length(const char *text, size_t length) {
  return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static iso_status scan_document(scanner *s) {
  s->position = iso_json_mark_length(s->text, s->length);
  do {
    skip_space(s);
    if (s->value_count == s->find_ordinal)
      return ISO_OK;
    s->value_count++;
    bool complete;
    ISO_TRY(scan_value_start(s, &complete));
    if (complete)
      ISO_TRY(scan_value_end(s));
  } while (s->depth > 0);
  skip_space(s);
  if (s->position < s->length)
    return fail_here(s, "bytes after the end of the value");
  return ISO_OK;
}

iso_status iso_json_scan(const char *text, size_t length, int max_depth,
                         uint64_t *out_value_count) {
  scanner s = {.text = text,
               .length = length,
               .key_position = NO_KEY,
               .find_ordinal = UINT64_MAX,
               .max_depth = max_depth};
  ISO_TRY(scan_document(&s));
  *out_value_count = s.value_count;
  return ISO_OK;
}

size_t iso_json_scan_find(const char *text, size_t length, uint64_t ordinal, bool wants_key) {
  scanner s = {.text = text,
               .length = length,
               .key_position = NO_KEY,
               .find_ordinal = ordinal,
               .max_depth = ISO_JSON_MAX_DEPTH};
  (void)scan_document(&s);
  return wants_key && s.key_position != NO_KEY ? s.key_position : s.position;
}
