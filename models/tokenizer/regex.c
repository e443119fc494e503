#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/tokenizer/regex.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* Steps of one match before it is given up; the patterns of real models need a few a byte. */
#define MATCH_LIMIT 50000000u
/* Kilobytes of heap for the interpreter, bytes of stack for JIT code. */
#define HEAP_LIMIT_KIB (256u << 10)
#define JIT_STACK_FIRST (32u << 10)
#define JIT_STACK_MOST (64u << 20)

#define WORD_SET "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* Outside of a class, Oniguruma counts the superscripts and fractions of Latin-1 too. */
#define LONE_WORD_SET WORD_SET "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"
#define WORD "[" LONE_WORD_SET "]"

struct iso_regex {
  pcre2_code *code;
};

struct iso_matcher {
  pcre2_match_data *data;
  pcre2_match_context *context;
  pcre2_jit_stack *stack; /* NULL until a match needs more than the machine's own 32 KiB */
};

/* Where a translation stands. */
typedef struct translation {
  const char *pattern;
  size_t length, at;
  size_t in_class;     /* depth; a class within a class is a union with it */
  bool after_interval; /* the last item was {n,m} */
  iso_text out;
} translation;

static iso_status refuse(const translation *t, const char *construct) {
  return iso_fail(ISO_ERROR_UNSUPPORTED,
                  "regular expression: %s is not supported (byte %zu of \"%.*s\")", construct,
                  t->at, (int)(t->length > 200 ? 200 : t->length), t->pattern);
}

static iso_status emit(translation *t, const char *text) {
  return iso_text_append(&t->out, text, strlen(text));
}

/* The long property names that are neither scripts nor PCRE2's own names. */
static const struct {
  const char *name, *pcre2;
} property_names[] = {
    {"Letter", "L"},
    {"Mark", "M"},
    {"Number", "N"},
    {"Punctuation", "P"},
    {"Punct", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
    {"Other", "C"},
    {"Alpha", "Alphabetic"},
    {"Alphabetic", "Alphabetic"},
    {"Space", "White_Space"},
    {"White_Space", "White_Space"},
    {"Upper", "Uppercase"},
    {"Uppercase", "Uppercase"},
    {"Lower", "Lowercase"},
    {"Lowercase", "Lowercase"},
    {"Digit", "Nd"},
    {"Emoji", "Emoji"},
    {"Extended_Pictographic", "Extended_Pictographic"},
    {"Any", "Any"},
};

/* \p{Name}, \p{^Name}, \P{Name}; t->at is after the p. */
static iso_status translate_property(translation *t, char letter) {
  const char *open = t->pattern + t->at;
  const char *close =
      t->at < t->length && *open == '{' ? memchr(open, '}', t->length - t->at) : NULL;
  if (!close)
    return refuse(t, "\\p without {}");
  const char *name = open + 1;
  bool negated = letter == 'P';
  if (name < close && *name == '^') {
    negated = !negated;
    name++;
  }
  size_t size = (size_t)(close - name);
  for (size_t i = 0; i < size; i++)
    if (!isalnum((unsigned char)name[i]) && name[i] != '_')
      return refuse(t, "such a property name");
  t->at += (size_t)(close - open) + 1;
  ISO_TRY(emit(t, negated ? "\\P{" : "\\p{"));
  const char *known = NULL;
  for (size_t i = 0; i < sizeof property_names / sizeof *property_names; i++)
    if (strlen(property_names[i].name) == size &&
        strncasecmp(property_names[i].name, name, size) == 0)
      known = property_names[i].pcre2;
  if (known)
    ISO_TRY(emit(t, known));
  else if (size <= 2)
    ISO_TRY(iso_text_append(&t->out, name, size));
  else {
    ISO_TRY(emit(t, "sc:"));
    ISO_TRY(iso_text_append(&t->out, name, size));
  }
  return emit(t, "}");
}

/* \uHHHH */
static iso_status translate_code_point(translation *t) {
  if (t->length - t->at < 4)
    return refuse(t, "\\u without four digits");
  for (size_t i = 0; i < 4; i++)
    if (!isxdigit((unsigned char)t->pattern[t->at + i]))
      return refuse(t, "\\u without four digits");
  ISO_TRY(emit(t, "\\x{"));
  ISO_TRY(iso_text_append(&t->out, t->pattern + t->at, 4));
  t->at += 4;
  return emit(t, "}");
}

/* \xHH, \x{H...}: copied whole, so that its brace is not taken for an interval's. */
static iso_status translate_hex(translation *t) {
  size_t end = t->at + 2;
  if (end < t->length && t->pattern[end] == '{') {
    const char *close = memchr(t->pattern + end, '}', t->length - end);
    if (!close)
      return refuse(t, "\\x{ without }");
    end = (size_t)(close - t->pattern) + 1;
  }
  size_t start = t->at;
  t->at = end;
  return iso_text_append(&t->out, t->pattern + start, end - start);
}

static iso_status translate_escape(translation *t) {
  if (t->at + 1 >= t->length)
    return refuse(t, "a backslash at the end");
  unsigned char letter = (unsigned char)t->pattern[t->at + 1];
  char name[] = {'\\', (char)letter, 0};
  if (letter < 0x80 && !isalnum(letter)) {
    t->at += 2;
    return emit(t, name);
  }
  switch (letter) {
  case 'p':
  case 'P':
    t->at += 2;
    return translate_property(t, (char)letter);
  case 'u':
    t->at += 2;
    return translate_code_point(t);
  case 's':
  case 'S':
    t->at += 2;
    return emit(t, letter == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
  case 'w':
    t->at += 2;
    return emit(t, t->in_class ? WORD_SET : WORD);
  case 'W':
    if (t->in_class)
      return refuse(t, "\\W in a class");
    t->at += 2;
    return emit(t, "[^" LONE_WORD_SET "]");
  case 'b':
  case 'B':
    if (t->in_class)
      return refuse(t, "\\b in a class");
    t->at += 2;
    return emit(t, letter == 'b' ? "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))"
                                 : "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))");
  case 'v':
    t->at += 2;
    return emit(t, "\\x0b");
  case 'A':
  case 'z':
  case 'Z':
    if (t->in_class)
      return refuse(t, "an anchor in a class");
    t->at += 2;
    return emit(t, name);
  case 'n':
  case 'r':
  case 't':
  case 'f':
  case 'a':
  case 'e':
  case 'd':
  case 'D':
    t->at += 2;
    return emit(t, name);
  case 'x':
    return translate_hex(t);
  default:
    return refuse(t, letter < 0x80 ? name : "a backslash before a letter beyond ASCII");
  }
}

/* "(?...": only the option letters need work. Ruby's m is PCRE2's s; its scope ends with the
 * alternative, PCRE2's with the group, so options for "the rest" are taken at the start only. */
static iso_status translate_group(translation *t) {
  size_t start = t->at;
  t->at += 1;
  if (t->at < t->length && t->pattern[t->at] == '*')
    return refuse(t, "(*");
  ISO_TRY(emit(t, "("));
  if (t->at >= t->length || t->pattern[t->at] != '?')
    return ISO_OK;
  t->at++;
  ISO_TRY(emit(t, "?"));
  while (t->at < t->length && t->pattern[t->at] && strchr("imx-", t->pattern[t->at])) {
    char option[] = {t->pattern[t->at++], 0};
    ISO_TRY(emit(t, option[0] == 'm' ? "s" : option));
  }
  if (t->at >= t->length)
    return refuse(t, "an unfinished group");
  char next = t->pattern[t->at];
  if (next == ')') {
    if (start != 0)
      return refuse(t, "an option for the rest of a group");
  } else if (!next || !strchr(":=!><", next)) {
    char construct[] = {'(', '?', next, 0};
    return refuse(t, construct);
  }
  return ISO_OK; /* what follows is copied as it is */
}

static iso_status translate_in_class(translation *t) {
  char c = t->pattern[t->at], next = t->at + 1 < t->length ? t->pattern[t->at + 1] : 0;
  if (c == '[' && (next == ':' || next == '^' || next == ']'))
    return refuse(t, next == ':' ? "a POSIX class" : "a negated or empty class in a class");
  if (c == '&' && next == '&')
    return refuse(t, "&& in a class");
  t->at++;
  if (c == '[') {
    t->in_class++;
    return ISO_OK;
  }
  if (c == ']' && --t->in_class > 0)
    return ISO_OK;
  return iso_text_append(&t->out, &c, 1);
}

static iso_status translate_item(translation *t) {
  char c = t->pattern[t->at];
  if (c == '\\')
    return translate_escape(t);
  if (t->in_class)
    return translate_in_class(t);
  if (c == '(')
    return translate_group(t);
  if (c == '{' && t->at + 1 < t->length && t->pattern[t->at + 1] == ',')
    return refuse(t, "{,n}");
  if ((c == '+' || c == '?') && t->after_interval)
    return refuse(t, "{n,m}+ or {n,m}?");
  t->at++;
  ISO_TRY(iso_text_append(&t->out, &c, 1));
  if (c == '[') {
    t->in_class = 1;
    if (t->at < t->length && t->pattern[t->at] == '^') {
      t->at++;
      ISO_TRY(emit(t, "^"));
    }
    if (t->at < t->length && t->pattern[t->at] == ']')
      return refuse(t, "an empty class");
  }
  return ISO_OK;
}

static iso_status translate(translation *t) {
  while (t->at < t->length) {
    char c = t->pattern[t->at];
    bool interval = c == '}' && !t->in_class;
    ISO_TRY(translate_item(t));
    t->after_interval = interval;
  }
  return ISO_OK;
}

static iso_status compile(const char *pattern, size_t length, uint32_t options,
                          iso_regex **out_regex) {
  iso_regex *regex = calloc(1, sizeof *regex);
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (!regex || !context) {
    free(regex);
    pcre2_compile_context_free(context);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "regular expression: no memory");
  }
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error;
  PCRE2_SIZE offset;
  regex->code =
      pcre2_compile((PCRE2_SPTR)pattern, length, options | PCRE2_UTF, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (!regex->code) {
    PCRE2_UCHAR message[128];
    pcre2_get_error_message(error, message, sizeof message);
    free(regex);
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "regular expression \"%.*s\": %s (near byte %zu)",
                    (int)(length > 200 ? 200 : length), pattern, (const char *)message,
                    (size_t)offset);
  }
  /* Without JIT (no support, or no executable memory) the interpreter gives the same matches. */
  (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
  *out_regex = regex;
  return ISO_OK;
}

iso_status iso_regex_compile(const char *pattern, size_t length, iso_regex **out_regex) {
  *out_regex = NULL;
  translation t = {.pattern = pattern, .length = length};
  iso_status status = translate(&t);
  if (status == ISO_OK)
    status = compile(t.out.data ? t.out.data : "", t.out.length,
                     PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, out_regex);
  iso_text_free(&t.out);
  return status;
}

iso_status iso_regex_compile_literal(const char *text, size_t length, iso_regex **out_regex) {
  *out_regex = NULL;
  return compile(text, length, PCRE2_LITERAL, out_regex);
}

void iso_regex_destroy(iso_regex *regex) {
  if (!regex)
    return;
  pcre2_code_free(regex->code);
  free(regex);
}

iso_status iso_matcher_create(iso_matcher **out_matcher) {
  iso_matcher *matcher = calloc(1, sizeof *matcher);
  if (matcher) {
    matcher->data = pcre2_match_data_create(1, NULL);
    matcher->context = pcre2_match_context_create(NULL);
  }
  if (!matcher || !matcher->data || !matcher->context) {
    iso_matcher_destroy(matcher);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "regular expression: no memory");
  }
  pcre2_set_match_limit(matcher->context, MATCH_LIMIT);
  pcre2_set_heap_limit(matcher->context, HEAP_LIMIT_KIB);
  *out_matcher = matcher;
  return ISO_OK;
}

void iso_matcher_destroy(iso_matcher *matcher) {
  if (!matcher)
    return;
  pcre2_match_data_free(matcher->data);
  pcre2_match_context_free(matcher->context);
  pcre2_jit_stack_free(matcher->stack);
  free(matcher);
}

static int match_from(const iso_regex *regex, iso_matcher *matcher, const char *text, size_t length,
                      size_t from) {
  const uint32_t options = PCRE2_NO_UTF_CHECK;
  int found = pcre2_match(regex->code, (PCRE2_SPTR)text, length, from, options, matcher->data,
                          matcher->context);
  if (found != PCRE2_ERROR_JIT_STACKLIMIT || matcher->stack)
    return found;
  matcher->stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_MOST, NULL);
  if (!matcher->stack)
    return found;
  pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
  return pcre2_match(regex->code, (PCRE2_SPTR)text, length, from, options, matcher->data,
                     matcher->context);
}

iso_status iso_regex_next(const iso_regex *regex, iso_matcher *matcher, const char *text,
                          size_t length, iso_match *match) {
  size_t from = match->found ? match->end : 0;
  for (;;) {
    int found = match_from(regex, matcher, text, length, from);
    if (found == PCRE2_ERROR_NOMATCH) {
      match->found = false;
      return ISO_OK;
    }
    if (found < 0) {
      PCRE2_UCHAR message[128];
      pcre2_get_error_message(found, message, sizeof message);
      return iso_fail(ISO_ERROR_LIMIT, "regular expression: no match within bounds (%s)",
                      (const char *)message);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(matcher->data);
    size_t start = ends[0], end = ends[1];
    bool repeated = start == end && match->found && start == match->end;
    if (!repeated && start <= end) {
      *match = (iso_match){.start = start, .end = end, .found = true};
      return ISO_OK;
    }
    if (from >= length) {
      match->found = false;
      return ISO_OK;
    }
    uint32_t code_point;
    from += iso_utf8_decode(text + from, length - from, &code_point);
  }
}
