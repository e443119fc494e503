/* Filters on strings and numbers; each as jinja2 documents it. */
#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/filters.h"
#include "models/chat/jinja/numbers.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/strings.h"
#include "models/chat/jinja/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static iso_status subject_text(iso_jinja_call *call, iso_jinja_value *out_text) {
  return iso_jinja_to_string(call->session, call->subject, out_text);
}

static iso_status filter_string(iso_jinja_call *call, iso_jinja_value *out) {
  return subject_text(call, out);
}

static iso_status filter_trim(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value text;
  ISO_TRY(subject_text(call, &text));
  return iso_jinja_strip(call, text, ISO_JINJA_STRIP_BOTH, out);
}

static iso_status filter_upper(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(subject_text(call, out));
  return iso_jinja_change_case(call->session, *out, ISO_JINJA_UPPER, out);
}

static iso_status filter_lower(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(subject_text(call, out));
  return iso_jinja_change_case(call->session, *out, ISO_JINJA_LOWER, out);
}

static iso_status filter_capitalize(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(subject_text(call, out));
  return iso_jinja_change_case(call->session, *out, ISO_JINJA_CAPITALIZED, out);
}

/* Words start after white space, hyphens and opening brackets. */
static bool is_word_break(uint32_t c) {
  return iso_jinja_is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
}

static iso_status filter_title(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value text, part;
  iso_jinja_buffer buffer = {0};
  ISO_TRY(subject_text(call, &text));
  for (size_t at = 0, first, end; at < text.length; at = end) {
    uint32_t c;
    first = at + iso_jinja_decode(text.string + at, text.length - at, &c);
    bool word = !is_word_break(c);
    for (end = first; end < text.length && word;) {
      uint32_t bytes = iso_jinja_decode(text.string + end, text.length - end, &c);
      word = !is_word_break(c);
      end += word ? bytes : 0;
    }
    ISO_TRY(iso_jinja_change_case(call->session, iso_jinja_part(text, at, first), ISO_JINJA_UPPER,
                                  &part));
    ISO_TRY(iso_jinja_print(call->session, &buffer, part));
    ISO_TRY(iso_jinja_change_case(call->session, iso_jinja_part(text, first, end), ISO_JINJA_LOWER,
                                  &part));
    ISO_TRY(iso_jinja_print(call->session, &buffer, part));
    ISO_TRY(iso_jinja_spend(call->session, 1));
  }
  *out = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

static iso_status filter_replace(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value text, old, new;
  int64_t count;
  ISO_TRY(subject_text(call, &text));
  ISO_TRY(iso_jinja_to_string(call->session, call->bound[0], &old));
  ISO_TRY(iso_jinja_to_string(call->session, call->bound[1], &new));
  iso_jinja_allow_none(call, 2);
  ISO_TRY(iso_jinja_integer_argument(call, 2, -1, &count));
  return iso_jinja_replace(call->session, text, old, new, count, out);
}

static iso_status filter_indent(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value text, indent, lines;
  iso_jinja_buffer buffer = {0}, spaces = {0};
  bool first = iso_jinja_boolean_argument(call, 1, false);
  bool blank = iso_jinja_boolean_argument(call, 2, false);
  if (call->subject.kind != ISO_JINJA_STRING)
    return iso_jinja_fail_call(call, "needs a string, not %s", iso_jinja_type_name(call->subject));
  text = call->subject;
  indent = call->bound[0];
  if (indent.kind != ISO_JINJA_STRING) {
    int64_t width;
    ISO_TRY(iso_jinja_integer_argument(call, 0, 4, &width));
    ISO_TRY(iso_jinja_append_repeated(call->session, &spaces, ' ', width > 0 ? (size_t)width : 0));
    indent = iso_jinja_buffer_string(&spaces);
  }
  ISO_TRY(iso_jinja_split_lines(call->session, text, false, &lines));
  /* A newline is added before splitting, so text that ends in one keeps an empty last line. */
  if (text.length == 0 || text.string[text.length - 1] == '\n')
    ISO_TRY(iso_jinja_list_append(call->session, lines.list, iso_jinja_literal("")));
  for (uint32_t i = 0; i < lines.list->count; i++) {
    iso_jinja_value line = lines.list->items[i];
    if (i)
      ISO_TRY(iso_jinja_append(call->session, &buffer, "\n", 1));
    if (i == 0 ? first : blank || line.length)
      ISO_TRY(iso_jinja_print(call->session, &buffer, indent));
    ISO_TRY(iso_jinja_print(call->session, &buffer, line));
  }
  *out = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

static iso_status filter_center(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value text;
  int64_t width;
  ISO_TRY(subject_text(call, &text));
  ISO_TRY(iso_jinja_integer_argument(call, 0, 80, &width));
  return iso_jinja_pad(call->session, text, width, iso_jinja_literal(" "), ISO_JINJA_PAD_BOTH, out);
}

static iso_status filter_truncate(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value text, end;
  int64_t length, leeway, end_length, text_length;
  *out = text = call->subject;
  ISO_TRY(iso_jinja_integer_argument(call, 0, 255, &length));
  ISO_TRY(iso_jinja_string_argument(call, 2, "...", &end));
  iso_jinja_allow_none(call, 3);
  ISO_TRY(iso_jinja_integer_argument(call, 3, 5, &leeway));
  ISO_TRY(iso_jinja_length(call->session, end, &end_length));
  ISO_TRY(iso_jinja_length(call->session, text, &text_length));
  if (length < end_length || leeway < 0)
    return iso_jinja_fail_call(call, "the length must be at least that of the ending");
  if (text_length <= length || text_length - length <= leeway)
    return ISO_OK;
  if (text.kind != ISO_JINJA_STRING)
    return iso_jinja_fail_call(call, "needs a string, not %s", iso_jinja_type_name(text));
  size_t cut = iso_jinja_codepoint_offset(text.string, text.length, (size_t)(length - end_length));
  if (!iso_jinja_boolean_argument(call, 1, false)) { /* back to a whole word */
    const char *space = cut ? memrchr(text.string, ' ', cut) : NULL;
    cut = space ? (size_t)(space - text.string) : cut;
  }
  iso_jinja_buffer buffer = {0};
  ISO_TRY(iso_jinja_append(call->session, &buffer, text.string, cut));
  ISO_TRY(iso_jinja_print(call->session, &buffer, end));
  *out = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

static iso_status filter_format(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value format, values;
  const iso_jinja_arguments *arguments = call->arguments;
  ISO_TRY(subject_text(call, &format));
  if (arguments->keyword_count && arguments->positional_count)
    return iso_jinja_fail_call(call, "positional and keyword arguments cannot be mixed");
  if (arguments->keyword_count) {
    ISO_TRY(iso_jinja_dict_create(call->session, ISO_JINJA_DICT, &values));
    for (uint32_t i = 0; i < arguments->keyword_count; i++)
      ISO_TRY(iso_jinja_dict_set(call->session, values.dict, arguments->keywords[i].name,
                                 arguments->keywords[i].value));
  } else {
    ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_TUPLE, 0, &values));
    for (uint32_t i = 0; i < arguments->positional_count; i++)
      ISO_TRY(iso_jinja_list_append(call->session, values.list, arguments->positional[i]));
  }
  return iso_jinja_format_percent(call->session, format, values, out);
}

static iso_status filter_safe(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(subject_text(call, out));
  out->flags |= ISO_JINJA_MARKUP;
  return ISO_OK;
}

static iso_status filter_escape(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_escape(call->session, call->subject, out);
}

/* Bound as transformers' own tojson: ensure_ascii indent separators sort_keys. */
static iso_status filter_tojson(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value indent = call->bound[1], separators = call->bound[2];
  iso_jinja_buffer buffer = {0}, spaces = {0};
  int64_t width;
  iso_jinja_json_style style = {.ascii = iso_jinja_boolean_argument(call, 0, false),
                                .sort_keys = iso_jinja_boolean_argument(call, 3, false),
                                .indented =
                                    iso_jinja_given(call, 1) && indent.kind != ISO_JINJA_NONE,
                                .indent = indent,
                                .key_separator = iso_jinja_literal(": ")};
  style.item_separator = iso_jinja_literal(style.indented ? "," : ", ");
  if (style.indented && indent.kind != ISO_JINJA_STRING) {
    ISO_TRY(iso_jinja_integer_argument(call, 1, 0, &width));
    ISO_TRY(iso_jinja_append_repeated(call->session, &spaces, ' ', width > 0 ? (size_t)width : 0));
    style.indent = iso_jinja_buffer_string(&spaces);
  }
  if (iso_jinja_given(call, 2) && separators.kind != ISO_JINJA_NONE) {
    if (!iso_jinja_is_sequence(separators) || separators.list->count != 2 ||
        separators.list->items[0].kind != ISO_JINJA_STRING ||
        separators.list->items[1].kind != ISO_JINJA_STRING)
      return iso_jinja_fail_call(call, "separators must be two strings");
    style.item_separator = separators.list->items[0];
    style.key_separator = separators.list->items[1];
  }
  ISO_TRY(iso_jinja_print_json(call->session, &buffer, call->subject, &style));
  *out = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

static iso_status filter_default(iso_jinja_call *call, iso_jinja_value *out) {
  bool missing = call->subject.kind == ISO_JINJA_UNDEFINED ||
                 (iso_jinja_boolean_argument(call, 1, false) && !iso_jinja_is_true(call->subject));
  *out = !missing                   ? call->subject
         : iso_jinja_given(call, 0) ? call->bound[0]
                                    : iso_jinja_literal("");
  return ISO_OK;
}

static iso_status integer_from_float(iso_jinja_call *call, double number, iso_jinja_value *out) {
  if (!(number >= -0x1p63 && number < 0x1p63))
    return iso_jinja_fail(call->session, ISO_ERROR_UNSUPPORTED, "an integer is beyond 64 bits");
  *out = iso_jinja_integer((int64_t)number);
  return ISO_OK;
}

static iso_status filter_int(iso_jinja_call *call, iso_jinja_value *out) {
  int64_t base, integer;
  iso_jinja_value subject = call->subject;
  ISO_TRY(iso_jinja_integer_argument(call, 1, 10, &base));
  *out = iso_jinja_given(call, 0) ? call->bound[0] : iso_jinja_integer(0);
  if (subject.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(call->session, subject);
  if (iso_jinja_as_integer(subject, &integer)) {
    *out = iso_jinja_integer(integer);
    return ISO_OK;
  }
  if (subject.kind == ISO_JINJA_STRING) {
    iso_jinja_value read = {.kind = ISO_JINJA_ABSENT};
    if (base == 0 || (base >= 2 && base <= 36))
      ISO_TRY(iso_jinja_integer_from_text(call->session, subject, base, &read));
    if (read.kind == ISO_JINJA_ABSENT)
      ISO_TRY(iso_jinja_float_from_text(call->session, subject, &read));
    if (read.kind == ISO_JINJA_INTEGER)
      *out = read;
    subject = read;
  }
  return subject.kind == ISO_JINJA_FLOAT && isfinite(subject.number)
             ? integer_from_float(call, subject.number, out)
             : ISO_OK;
}

static iso_status filter_float(iso_jinja_call *call, iso_jinja_value *out) {
  double number;
  *out = iso_jinja_given(call, 0) ? call->bound[0] : iso_jinja_float(0);
  if (call->subject.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(call->session, call->subject);
  iso_jinja_value read = {.kind = ISO_JINJA_ABSENT};
  if (call->subject.kind == ISO_JINJA_STRING)
    ISO_TRY(iso_jinja_float_from_text(call->session, call->subject, &read));
  else if (iso_jinja_as_number(call->subject, &number))
    read = iso_jinja_float(number);
  if (read.kind == ISO_JINJA_FLOAT)
    *out = read;
  return ISO_OK;
}

static iso_status filter_abs(iso_jinja_call *call, iso_jinja_value *out) {
  double number;
  if (!iso_jinja_as_number(call->subject, &number))
    return iso_jinja_fail_call(call, "bad operand type: '%s'", iso_jinja_type_name(call->subject));
  if (number >= 0)
    return iso_jinja_operate(call->session, ISO_JINJA_ADD, iso_jinja_integer(0), call->subject,
                             out);
  return iso_jinja_negate(call->session, call->subject, out);
}

/* Rounds half to even on the exact decimal value, as Python's round() and C's printf do. */
static double round_common(double number, int precision) {
  char text[700];
  if (!isfinite(number) || number == 0)
    return number;
  if (precision >= 0) {
    snprintf(text, sizeof text, "%.*f", precision, number);
    return strtod(text, NULL);
  }
  snprintf(text, sizeof text, "%.30e", number);
  int digits = (int)strtol(strchr(text, 'e') + 1, NULL, 10) + 1 + precision;
  if (digits > 0) {
    snprintf(text, sizeof text, "%.*e", digits - 1, number);
    return strtod(text, NULL);
  }
  /* To nothing, or to one unit where the number is over half of it. */
  snprintf(text, sizeof text, "5e%d", -precision - 1);
  bool up = digits == 0 && fabs(number) > strtod(text, NULL);
  snprintf(text, sizeof text, "%de%d", up, -precision);
  return copysign(strtod(text, NULL), number);
}

/* The same for an integer and -1 to -18 digits; the result stays an integer. */
static int64_t round_integer(int64_t number, int64_t digits) {
  int64_t unit = 1;
  for (; digits > 0; digits--)
    unit *= 10;
  int64_t remainder = number % unit, toward_zero = number - remainder, away;
  int64_t excess = remainder < 0 ? -remainder : remainder;
  bool up = excess > unit - excess || (excess == unit - excess && toward_zero / unit % 2);
  bool fits = !__builtin_add_overflow(toward_zero, number < 0 ? -unit : unit, &away);
  return up && fits ? away : toward_zero;
}

static iso_status filter_round(iso_jinja_call *call, iso_jinja_value *out) {
  int64_t precision, integer;
  double number;
  iso_jinja_value method;
  ISO_TRY(iso_jinja_integer_argument(call, 0, 0, &precision));
  ISO_TRY(iso_jinja_string_argument(call, 1, "common", &method));
  if (!iso_jinja_as_number(call->subject, &number))
    return iso_jinja_fail_call(call, "type %s cannot be rounded",
                               iso_jinja_type_name(call->subject));
  if (precision > 300 || precision < -300)
    return iso_jinja_fail_call(call, "the precision is out of range");
  bool common = iso_jinja_is_text(method, "common"), ceiling = iso_jinja_is_text(method, "ceil");
  if (!common && !ceiling && !iso_jinja_is_text(method, "floor"))
    return iso_jinja_fail_call(call, "method must be common, ceil or floor");
  if (common && iso_jinja_as_integer(call->subject, &integer)) {
    *out = iso_jinja_integer(precision >= 0     ? integer
                             : precision >= -18 ? round_integer(integer, -precision)
                                                : 0);
    return ISO_OK;
  }
  double unit = pow(10, (double)precision);
  double rounded = common    ? round_common(number, (int)precision)
                   : ceiling ? ceil(number * unit)
                             : floor(number * unit);
  if (common ? isinf(rounded) && isfinite(number) : !isfinite(rounded))
    return iso_jinja_fail_call(call, "the rounded number is out of range");
  /* Python's ceil() and floor() are integers, so that zero has no sign. */
  *out = iso_jinja_float(common ? rounded : (rounded + 0.0) / unit);
  return ISO_OK;
}

const iso_jinja_builtin iso_jinja_text_filters[] = {
    {"abs", filter_abs, "", 0},
    {"capitalize", filter_capitalize, "", 0},
    {"center", filter_center, "width", 0},
    {"d", filter_default, "default_value boolean", 0},
    {"default", filter_default, "default_value boolean", 0},
    {"e", filter_escape, "", 0},
    {"escape", filter_escape, "", 0},
    {"float", filter_float, "default", 0},
    {"format", filter_format, NULL, 0},
    {"indent", filter_indent, "width first blank", 0},
    {"int", filter_int, "default base", 0},
    {"lower", filter_lower, "", 0},
    {"replace", filter_replace, "old new count", 2},
    {"round", filter_round, "precision method", 0},
    {"safe", filter_safe, "", 0},
    {"string", filter_string, "", 0},
    {"title", filter_title, "", 0},
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", filter_trim, "chars", 0},
    {"truncate", filter_truncate, "length killwords end leeway", 0},
    {"upper", filter_upper, "", 0},
};
const size_t iso_jinja_text_filter_count =
    sizeof iso_jinja_text_filters / sizeof *iso_jinja_text_filters;
