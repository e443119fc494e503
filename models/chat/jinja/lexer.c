#include "models/chat/jinja/lexer.h"
#include "models/chat/jinja/literals.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"
#include <string.h>

enum { MAX_BRACKETS = 256 };

typedef struct lexer {
  iso_jinja_session *session;
  const char *source;
  size_t length, at;
  uint32_t line;
  bool line_starting; /* what was read last ended in a newline */
  iso_jinja_token *tokens;
  uint32_t count, capacity;
  char brackets[MAX_BRACKETS]; /* closing brackets that are due, innermost last */
  uint32_t bracket_count;
} lexer;

static iso_status fail(lexer *l, const char *what) {
  l->session->line = l->line;
  return iso_jinja_fail(l->session, ISO_ERROR_CORRUPT_DATA, "%s", what);
}

static iso_status push(lexer *l, iso_jinja_token_kind kind, iso_jinja_value value) {
  ISO_TRY(iso_jinja_grow(l->session, &l->tokens, l->count, &l->capacity, sizeof *l->tokens));
  l->tokens[l->count++] = (iso_jinja_token){(uint8_t)kind, l->line, value};
  return ISO_OK;
}

static bool starts(const lexer *l, size_t at, const char *text) {
  size_t length = strlen(text);
  return length <= l->length - at && memcmp(l->source + at, text, length) == 0;
}

static char peek(const lexer *l, size_t at) { return at < l->length ? l->source[at] : 0; }

/* Moves on to `to`, counting lines. */
static void advance(lexer *l, size_t to) {
  for (size_t i = l->at; i < to; i++)
    l->line += l->source[i] == '\n';
  if (to > l->at)
    l->line_starting = l->source[to - 1] == '\n';
  l->at = to;
}

static size_t skip_space(const lexer *l, size_t at) {
  return at + iso_jinja_leading_space(l->source + at, l->length - at);
}

/* If a tag's end `close` (such as "%}"), with its white space sign, is at `at`: the end of what
 * it takes; else 0. */
static size_t match_close(const lexer *l, size_t at, const char *close, bool block) {
  char sign = peek(l, at);
  bool signed_close = (sign == '-' || (sign == '+' && block)) && starts(l, at + 1, close);
  if (!signed_close && !starts(l, at, close))
    return 0;
  size_t end = at + signed_close + 2;
  if (signed_close)
    return sign == '-' ? skip_space(l, end) : end;
  return block && peek(l, end) == '\n' ? end + 1 : end;
}

/* Emits the text before a tag that starts at `tag`, without what the tag's sign and place take. */
static iso_status push_text_before(lexer *l, size_t tag, bool variable) {
  size_t length = tag - l->at;
  const char *text = l->source + l->at;
  char sign = peek(l, tag + 2);
  if (sign == '-') {
    length = iso_jinja_length_before_trailing_space(text, length);
  } else if (sign != '+' && !variable) {
    const char *newline = length ? memrchr(text, '\n', length) : NULL;
    size_t line = newline ? (size_t)(newline - text) + 1 : 0;
    if ((line > 0 || l->line_starting) &&
        iso_jinja_leading_space(text + line, length - line) == length - line)
      length = line;
  }
  if (length)
    ISO_TRY(push(l, ISO_JINJA_TOKEN_TEXT, iso_jinja_string(text, length)));
  advance(l, tag);
  return ISO_OK;
}

/* If a block tag of one word starts at `at`: where its closing "%}" or "-%}" is to be; else 0. */
static size_t match_word_tag(const lexer *l, size_t at, const char *word) {
  if (!starts(l, at, "{%"))
    return 0;
  at += 2;
  if (peek(l, at) == '-' || peek(l, at) == '+')
    at++;
  at = skip_space(l, at);
  return starts(l, at, word) ? skip_space(l, at + strlen(word)) : 0;
}

static iso_status read_raw(lexer *l, size_t content) {
  advance(l, content);
  for (size_t at = content; at < l->length; at++) {
    size_t close = match_word_tag(l, at, "endraw");
    size_t end = close ? match_close(l, close, "%}", true) : 0;
    if (!end)
      continue;
    ISO_TRY(push_text_before(l, at, false));
    advance(l, end);
    return ISO_OK;
  }
  return fail(l, "missing end of raw directive");
}

static iso_status read_comment(lexer *l) {
  size_t start = l->at + 2;
  if (peek(l, start) == '-' || peek(l, start) == '+')
    start++;
  for (size_t at = start; at < l->length; at++) {
    size_t end = match_close(l, at, "#}", true);
    if (end) {
      advance(l, end);
      return ISO_OK;
    }
  }
  return fail(l, "missing end of comment tag");
}

static bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         (unsigned char)c >= 0x80;
}

static iso_status read_operator(lexer *l) {
  /* The longest spelling first. */
  static const char *const operators[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "/",
                                          "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                          "<",  ">",  "=",  ".",  ":",  "|",  ",", ";"};
  const char *found = NULL;
  for (size_t i = 0; !found && i < sizeof operators / sizeof *operators; i++)
    if (starts(l, l->at, operators[i]))
      found = operators[i];
  if (!found)
    return fail(l, "unexpected character in a tag");
  static const char opening[] = "([{", closing[] = ")]}";
  const char *bracket = strchr(opening, found[0]);
  if (bracket) {
    if (l->bracket_count == MAX_BRACKETS)
      return fail(l, "brackets are nested too deeply");
    l->brackets[l->bracket_count++] = closing[bracket - opening];
  } else if (strchr(closing, found[0])) {
    if (l->bracket_count == 0 || l->brackets[--l->bracket_count] != found[0])
      return fail(l, "a closing bracket does not match");
  }
  ISO_TRY(push(l, ISO_JINJA_TOKEN_OPERATOR, iso_jinja_literal(found)));
  advance(l, l->at + strlen(found));
  return ISO_OK;
}

/* One token inside a tag; the position is not at white space. */
static iso_status read_token(lexer *l) {
  iso_jinja_value value;
  size_t end;
  char first = peek(l, l->at);
  bool after_dot = l->at > 0 && l->source[l->at - 1] == '.';
  l->session->line = l->line;
  if (first >= '0' && first <= '9') {
    ISO_TRY(
        iso_jinja_read_number(l->session, l->source, l->length, l->at, !after_dot, &value, &end));
  } else if (first == '\'' || first == '"') {
    ISO_TRY(iso_jinja_read_string(l->session, l->source, l->length, l->at, &value, &end));
  } else if (is_name_byte(first)) {
    for (end = l->at; is_name_byte(peek(l, end)); end++)
      ;
    ISO_TRY(push(l, ISO_JINJA_TOKEN_NAME, iso_jinja_string(l->source + l->at, end - l->at)));
    advance(l, end);
    return ISO_OK;
  } else {
    return read_operator(l);
  }
  ISO_TRY(push(l, ISO_JINJA_TOKEN_CONSTANT, value));
  advance(l, end);
  return ISO_OK;
}

static iso_status read_tag(lexer *l, bool variable) {
  const char *close = variable ? "}}" : "%}";
  ISO_TRY(push(l, variable ? ISO_JINJA_TOKEN_OPEN_VARIABLE : ISO_JINJA_TOKEN_OPEN_BLOCK,
               iso_jinja_none()));
  char sign = peek(l, l->at + 2);
  advance(l, l->at + 2 + (sign == '-' || sign == '+'));
  l->bracket_count = 0;
  while (l->at < l->length) {
    size_t end = l->bracket_count == 0 ? match_close(l, l->at, close, !variable) : 0;
    if (end) {
      ISO_TRY(push(l, variable ? ISO_JINJA_TOKEN_CLOSE_VARIABLE : ISO_JINJA_TOKEN_CLOSE_BLOCK,
                   iso_jinja_none()));
      advance(l, end);
      return ISO_OK;
    }
    size_t text = skip_space(l, l->at);
    if (text > l->at)
      advance(l, text);
    else
      ISO_TRY(read_token(l));
  }
  return fail(l, "the template ends inside a tag");
}

/* Where the next tag starts; the source's length if there is none. */
static size_t find_tag(const lexer *l) {
  for (size_t at = l->at; at + 1 < l->length; at++)
    if (l->source[at] == '{' && strchr("{%#", l->source[at + 1]) && l->source[at + 1])
      return at;
  return l->length;
}

static iso_status tokenize(lexer *l) {
  while (l->at < l->length) {
    size_t tag = find_tag(l);
    if (tag == l->length) {
      ISO_TRY(push(l, ISO_JINJA_TOKEN_TEXT, iso_jinja_string(l->source + l->at, tag - l->at)));
      advance(l, tag);
      break;
    }
    bool variable = l->source[tag + 1] == '{';
    ISO_TRY(push_text_before(l, tag, variable));
    size_t raw = match_word_tag(l, tag, "raw");
    if (raw && (starts(l, raw, "%}") || starts(l, raw, "-%}")))
      ISO_TRY(read_raw(l, starts(l, raw, "%}") ? raw + 2 : skip_space(l, raw + 3)));
    else if (l->source[tag + 1] == '#')
      ISO_TRY(read_comment(l));
    else
      ISO_TRY(read_tag(l, variable));
  }
  return push(l, ISO_JINJA_TOKEN_END, iso_jinja_none());
}

/* The source with CR LF and CR as LF, and without one newline at its end. */
static iso_status normalize(iso_jinja_session *session, const char *source, size_t length,
                            iso_jinja_buffer *buffer) {
  for (size_t at = 0; at < length;) {
    const char *end = memchr(source + at, '\r', length - at);
    size_t stop = end ? (size_t)(end - source) : length;
    ISO_TRY(iso_jinja_append(session, buffer, source + at, stop - at));
    if (!end)
      break;
    ISO_TRY(iso_jinja_append(session, buffer, "\n", 1));
    at = stop + 1 + (stop + 1 < length && source[stop + 1] == '\n');
  }
  if (buffer->length && buffer->bytes[buffer->length - 1] == '\n')
    buffer->length--;
  return ISO_OK;
}

iso_status iso_jinja_tokenize(iso_jinja_session *session, const char *source, size_t length,
                              iso_jinja_token **out_tokens) {
  iso_jinja_buffer text = {0};
  ISO_TRY(normalize(session, source, length, &text));
  lexer l = {.session = session,
             .source = text.bytes,
             .length = text.length,
             .line = 1,
             .line_starting = true};
  ISO_TRY(tokenize(&l));
  *out_tokens = l.tokens;
  return ISO_OK;
}
