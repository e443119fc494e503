/* Methods of strings, as Python documents those of str. */
#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/methods.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/strings.h"
#include "models/chat/jinja/text.h"
#include <string.h>

static iso_status method_strip(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_strip(call, call->subject, ISO_JINJA_STRIP_BOTH, out);
}
static iso_status method_lstrip(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_strip(call, call->subject, ISO_JINJA_STRIP_LEFT, out);
}
static iso_status method_rstrip(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_strip(call, call->subject, ISO_JINJA_STRIP_RIGHT, out);
}

static iso_status method_upper(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_change_case(call->session, call->subject, ISO_JINJA_UPPER, out);
}
static iso_status method_lower(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_change_case(call->session, call->subject, ISO_JINJA_LOWER, out);
}
static iso_status method_capitalize(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_change_case(call->session, call->subject, ISO_JINJA_CAPITALIZED, out);
}

static iso_status method_casefold(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_change_case(call->session, call->subject, ISO_JINJA_FOLDED, out);
}
static iso_status method_title(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_change_case(call->session, call->subject, ISO_JINJA_TITLE, out);
}
static iso_status method_swapcase(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_change_case(call->session, call->subject, ISO_JINJA_SWAPPED, out);
}

static iso_status method_replace(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value old, new;
  int64_t count;
  ISO_TRY(iso_jinja_string_argument(call, 0, NULL, &old));
  ISO_TRY(iso_jinja_string_argument(call, 1, NULL, &new));
  ISO_TRY(iso_jinja_integer_argument(call, 2, -1, &count));
  return iso_jinja_replace(call->session, call->subject, old, new, count, out);
}

/* Splits at white space; what is left after the last split keeps the space at its end. */
static iso_status split_words(iso_jinja_call *call, iso_jinja_value text, int64_t splits,
                              iso_jinja_list *list) {
  size_t at = iso_jinja_leading_space(text.string, text.length);
  while (at < text.length) {
    size_t end = at;
    uint32_t codepoint;
    while (end < text.length) {
      size_t taken = iso_jinja_decode(text.string + end, text.length - end, &codepoint);
      if (iso_jinja_is_space(codepoint))
        break;
      end += taken;
    }
    if (splits-- == 0)
      end = text.length;
    ISO_TRY(iso_jinja_list_append(call->session, list, iso_jinja_part(text, at, end)));
    at = end + iso_jinja_leading_space(text.string + end, text.length - end);
  }
  return ISO_OK;
}

static iso_status split_at(iso_jinja_call *call, iso_jinja_value text, iso_jinja_value separator,
                           int64_t splits, iso_jinja_list *list) {
  size_t at = 0, found;
  while (splits-- != 0 && (found = iso_jinja_find(text, separator, at)) != SIZE_MAX) {
    ISO_TRY(iso_jinja_list_append(call->session, list, iso_jinja_part(text, at, found)));
    at = found + separator.length;
  }
  return iso_jinja_list_append(call->session, list, iso_jinja_part(text, at, text.length));
}

/* Reads (sep, maxsplit); *out_words where the separator is None. */
static iso_status read_split(iso_jinja_call *call, iso_jinja_value *separator, int64_t *splits,
                             bool *out_words) {
  iso_jinja_allow_none(call, 0);
  ISO_TRY(iso_jinja_string_argument(call, 0, NULL, separator));
  ISO_TRY(iso_jinja_integer_argument(call, 1, -1, splits));
  *out_words = !iso_jinja_given(call, 0);
  if (!*out_words && separator->length == 0)
    return iso_jinja_fail_call(call, "empty separator");
  return iso_jinja_spend(call->session, call->subject.length / 16);
}

static iso_status method_split(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value separator;
  int64_t splits;
  bool words;
  ISO_TRY(read_split(call, &separator, &splits, &words));
  ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_LIST, 0, out));
  return words ? split_words(call, call->subject, splits, out->list)
               : split_at(call, call->subject, separator, splits, out->list);
}

/* Joins the first pieces again until `splits` are left, which is what splitting from the right
 * means where pieces cannot overlap. */
static iso_status method_rsplit(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value separator, text = call->subject, pieces;
  int64_t splits;
  bool words;
  ISO_TRY(read_split(call, &separator, &splits, &words));
  ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_LIST, 0, &pieces));
  if (words)
    ISO_TRY(split_words(call, text, -1, pieces.list));
  else
    ISO_TRY(split_at(call, text, separator, -1, pieces.list));
  ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_LIST, 0, out));
  uint32_t count = pieces.list->count;
  uint32_t joined = splits >= 0 && splits < count ? count - (uint32_t)splits : 0;
  if (joined) { /* from the very start, spaces too */
    iso_jinja_value last = pieces.list->items[joined - 1];
    size_t end = (size_t)(last.string - text.string) + last.length;
    ISO_TRY(iso_jinja_list_append(call->session, out->list, iso_jinja_part(text, 0, end)));
  }
  for (uint32_t i = joined; i < count; i++)
    ISO_TRY(iso_jinja_list_append(call->session, out->list, pieces.list->items[i]));
  return ISO_OK;
}

static iso_status method_splitlines(iso_jinja_call *call, iso_jinja_value *out) {
  int64_t keep_ends;
  ISO_TRY(iso_jinja_integer_argument(call, 0, 0, &keep_ends));
  return iso_jinja_split_lines(call->session, call->subject, keep_ends != 0, out);
}

static bool has_affix(iso_jinja_value text, iso_jinja_value affix, bool at_end) {
  return affix.length <= text.length &&
         (affix.length == 0 || memcmp(text.string + (at_end ? text.length - affix.length : 0),
                                      affix.string, affix.length) == 0);
}

/* The subject between the code points that arguments `first` and the next one give; *out_inside
 * is false when the start is past the end. */
static iso_status subject_range(iso_jinja_call *call, uint32_t first, iso_jinja_value *out_text,
                                size_t *out_start, bool *out_inside) {
  int64_t start, end, length;
  ISO_TRY(iso_jinja_length(call->session, call->subject, &length));
  iso_jinja_allow_none(call, first);
  iso_jinja_allow_none(call, first + 1);
  ISO_TRY(iso_jinja_integer_argument(call, first, 0, &start));
  ISO_TRY(iso_jinja_integer_argument(call, first + 1, length, &end));
  start += start < 0 ? length : 0;
  end += end < 0 ? length : 0;
  start = start < 0 ? 0 : start;
  end = end < 0 ? 0 : end > length ? length : end;
  *out_inside = start <= end;
  if (!*out_inside)
    start = end;
  iso_jinja_value text = call->subject;
  size_t from = iso_jinja_codepoint_offset(text.string, text.length, (size_t)start);
  size_t to = iso_jinja_codepoint_offset(text.string, text.length, (size_t)end);
  *out_text = iso_jinja_part(text, from, to);
  *out_start = from;
  return ISO_OK;
}

static iso_status match_affix(iso_jinja_call *call, bool at_end, iso_jinja_value *out) {
  iso_jinja_value affix = call->bound[0], text;
  size_t start;
  bool inside, found = false;
  ISO_TRY(subject_range(call, 1, &text, &start, &inside));
  bool several = affix.kind == ISO_JINJA_TUPLE;
  for (uint32_t i = 0; i < (several ? affix.list->count : 1) && !found; i++) {
    if (several)
      call->bound[0] = affix.list->items[i];
    iso_jinja_value one;
    ISO_TRY(iso_jinja_string_argument(call, 0, NULL, &one));
    found = inside && has_affix(text, one, at_end);
  }
  *out = iso_jinja_boolean(found);
  return ISO_OK;
}

static iso_status method_startswith(iso_jinja_call *call, iso_jinja_value *out) {
  return match_affix(call, false, out);
}
static iso_status method_endswith(iso_jinja_call *call, iso_jinja_value *out) {
  return match_affix(call, true, out);
}

static iso_status method_removeprefix(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value affix, text = call->subject;
  ISO_TRY(iso_jinja_string_argument(call, 0, NULL, &affix));
  ISO_TRY(iso_jinja_spend(call->session, affix.length / 64));
  *out = has_affix(text, affix, false) ? iso_jinja_part(text, affix.length, text.length) : text;
  return ISO_OK;
}
static iso_status method_removesuffix(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value affix, text = call->subject;
  ISO_TRY(iso_jinja_string_argument(call, 0, NULL, &affix));
  ISO_TRY(iso_jinja_spend(call->session, affix.length / 64));
  *out = has_affix(text, affix, true) ? iso_jinja_part(text, 0, text.length - affix.length) : text;
  return ISO_OK;
}

/* Code point index of the first or last occurrence in the range; -1 if none. */
static iso_status find_index(iso_jinja_call *call, bool last, int64_t *out_index) {
  iso_jinja_value needle, text;
  size_t start, found = SIZE_MAX;
  bool inside;
  ISO_TRY(iso_jinja_string_argument(call, 0, NULL, &needle));
  ISO_TRY(subject_range(call, 1, &text, &start, &inside));
  if (last) /* tries every position */
    ISO_TRY(iso_jinja_spend(call->session, ((uint64_t)needle.length / 64 + 1) * text.length / 8));
  if (inside)
    found = last ? iso_jinja_find_last(text, needle, text.length) : iso_jinja_find(text, needle, 0);
  *out_index = found == SIZE_MAX
                   ? -1
                   : (int64_t)iso_jinja_count_codepoints(call->subject.string, start + found);
  return ISO_OK;
}

static iso_status method_find(iso_jinja_call *call, iso_jinja_value *out) {
  int64_t index;
  ISO_TRY(find_index(call, false, &index));
  *out = iso_jinja_integer(index);
  return ISO_OK;
}
static iso_status method_rfind(iso_jinja_call *call, iso_jinja_value *out) {
  int64_t index;
  ISO_TRY(find_index(call, true, &index));
  *out = iso_jinja_integer(index);
  return ISO_OK;
}
static iso_status method_index(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(method_find(call, out));
  return out->integer < 0 ? iso_jinja_fail_call(call, "substring not found") : ISO_OK;
}

static iso_status method_rindex(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(method_rfind(call, out));
  return out->integer < 0 ? iso_jinja_fail_call(call, "substring not found") : ISO_OK;
}

static iso_status method_count(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value needle, text;
  size_t start, at = 0, found;
  bool inside;
  int64_t count = 0;
  ISO_TRY(iso_jinja_string_argument(call, 0, NULL, &needle));
  ISO_TRY(subject_range(call, 1, &text, &start, &inside));
  if (needle.length == 0)
    count = (int64_t)iso_jinja_count_codepoints(text.string, text.length) + 1;
  while (needle.length && (found = iso_jinja_find(text, needle, at)) != SIZE_MAX) {
    count++;
    at = found + needle.length;
  }
  ISO_TRY(iso_jinja_spend(call->session, (uint64_t)count / 8));
  *out = iso_jinja_integer(inside ? count : 0);
  return ISO_OK;
}

static iso_status method_join(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  iso_jinja_buffer buffer = {0};
  ISO_TRY(iso_jinja_iterate(call->session, call->bound[0], &list));
  for (uint32_t i = 0; i < list->count; i++) {
    ISO_TRY(iso_jinja_spend(call->session, 1));
    if (list->items[i].kind != ISO_JINJA_STRING)
      return iso_jinja_fail_call(call, "item %u must be str, not %s", i,
                                 iso_jinja_type_name(list->items[i]));
    if (i)
      ISO_TRY(iso_jinja_print(call->session, &buffer, call->subject));
    ISO_TRY(iso_jinja_print(call->session, &buffer, list->items[i]));
  }
  *out = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

static iso_status method_format(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_format_braces(call->session, call->subject, call->arguments, out);
}

/* (before, separator, after); the whole text at the far end where there is no separator. */
static iso_status partition(iso_jinja_call *call, bool last, iso_jinja_value *out) {
  iso_jinja_value separator, text = call->subject, empty = iso_jinja_literal("");
  ISO_TRY(iso_jinja_string_argument(call, 0, NULL, &separator));
  if (separator.length == 0)
    return iso_jinja_fail_call(call, "empty separator");
  ISO_TRY(iso_jinja_spend(call->session, ((uint64_t)separator.length / 64 + 1) * text.length / 8));
  size_t found =
      last ? iso_jinja_find_last(text, separator, text.length) : iso_jinja_find(text, separator, 0);
  iso_jinja_value parts[3] = {last ? empty : text, empty, last ? text : empty};
  if (found != SIZE_MAX) {
    parts[0] = iso_jinja_part(text, 0, found);
    parts[1] = separator;
    parts[2] = iso_jinja_part(text, found + separator.length, text.length);
  }
  ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_TUPLE, 3, out));
  for (int i = 0; i < 3; i++)
    ISO_TRY(iso_jinja_list_append(call->session, out->list, parts[i]));
  return ISO_OK;
}

static iso_status method_partition(iso_jinja_call *call, iso_jinja_value *out) {
  return partition(call, false, out);
}
static iso_status method_rpartition(iso_jinja_call *call, iso_jinja_value *out) {
  return partition(call, true, out);
}

/* Whether the text is not empty and all of it passes. */
static iso_status check_all(iso_jinja_call *call, bool (*passes)(uint32_t), iso_jinja_value *out) {
  iso_jinja_value text = call->subject;
  bool all = text.length > 0;
  ISO_TRY(iso_jinja_spend(call->session, text.length / 32));
  for (size_t at = 0; all && at < text.length;) {
    uint32_t codepoint;
    at += iso_jinja_decode(text.string + at, text.length - at, &codepoint);
    all = passes(codepoint);
  }
  *out = iso_jinja_boolean(all);
  return ISO_OK;
}

static iso_status method_isalpha(iso_jinja_call *call, iso_jinja_value *out) {
  return check_all(call, iso_jinja_is_letter, out);
}
static iso_status method_isdecimal(iso_jinja_call *call, iso_jinja_value *out) {
  return check_all(call, iso_jinja_is_decimal, out);
}
static iso_status method_isdigit(iso_jinja_call *call, iso_jinja_value *out) {
  return check_all(call, iso_jinja_is_digit, out);
}
static iso_status method_isalnum(iso_jinja_call *call, iso_jinja_value *out) {
  return check_all(call, iso_jinja_is_letter_or_number, out);
}
static iso_status method_isspace(iso_jinja_call *call, iso_jinja_value *out) {
  return check_all(call, iso_jinja_is_space, out);
}
static iso_status method_isupper(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_has_case(call->session, call->subject, true, out);
}
static iso_status method_islower(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_has_case(call->session, call->subject, false, out);
}

static iso_status pad(iso_jinja_call *call, iso_jinja_pad_side side, iso_jinja_value *out) {
  int64_t width, fill_length;
  iso_jinja_value fill;
  ISO_TRY(iso_jinja_integer_argument(call, 0, 0, &width));
  ISO_TRY(iso_jinja_string_argument(call, 1, " ", &fill));
  ISO_TRY(iso_jinja_length(call->session, fill, &fill_length));
  if (fill_length != 1)
    return iso_jinja_fail_call(call, "the fill must be exactly one character");
  return iso_jinja_pad(call->session, call->subject, width, fill, side, out);
}

static iso_status method_ljust(iso_jinja_call *call, iso_jinja_value *out) {
  return pad(call, ISO_JINJA_PAD_RIGHT, out);
}
static iso_status method_rjust(iso_jinja_call *call, iso_jinja_value *out) {
  return pad(call, ISO_JINJA_PAD_LEFT, out);
}
static iso_status method_center(iso_jinja_call *call, iso_jinja_value *out) {
  return pad(call, ISO_JINJA_PAD_BOTH, out);
}

/* Zeros go between a sign and the rest. */
static iso_status method_zfill(iso_jinja_call *call, iso_jinja_value *out) {
  int64_t width;
  iso_jinja_value text = call->subject, padded;
  iso_jinja_buffer buffer = {0};
  bool sign = text.length && (text.string[0] == '-' || text.string[0] == '+');
  ISO_TRY(iso_jinja_integer_argument(call, 0, 0, &width));
  ISO_TRY(iso_jinja_pad(call->session, iso_jinja_part(text, sign, text.length),
                        width < sign ? width : width - sign, iso_jinja_literal("0"),
                        ISO_JINJA_PAD_LEFT, &padded));
  ISO_TRY(iso_jinja_append(call->session, &buffer, text.string, sign));
  ISO_TRY(iso_jinja_print(call->session, &buffer, padded));
  *out = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

/* Methods of str that no template is known to use. */
static iso_status method_missing(iso_jinja_call *call, iso_jinja_value *out) {
  (void)out;
  return iso_jinja_fail(call->session, ISO_ERROR_UNSUPPORTED,
                        "the string method '%s' is not supported", call->builtin->name);
}

const iso_jinja_builtin iso_jinja_string_methods[] = {
    {"capitalize", method_capitalize, "", 0},
    {"casefold", method_casefold, "", 0},
    {"center", method_center, "/ /", 1},
    {"count", method_count, "/ / /", 1},
    {"encode", method_missing, NULL, 0},
    {"endswith", method_endswith, "/ / /", 1},
    {"expandtabs", method_missing, NULL, 0},
    {"find", method_find, "/ / /", 1},
    {"format", method_format, NULL, 0},
    {"format_map", method_missing, NULL, 0},
    {"index", method_index, "/ / /", 1},
    {"isalnum", method_isalnum, "", 0},
    {"isalpha", method_isalpha, "", 0},
    {"isascii", method_missing, NULL, 0},
    {"isdecimal", method_isdecimal, "", 0},
    {"isdigit", method_isdigit, "", 0},
    {"isidentifier", method_missing, NULL, 0},
    {"islower", method_islower, "", 0},
    {"isnumeric", method_missing, NULL, 0},
    {"isprintable", method_missing, NULL, 0},
    {"isspace", method_isspace, "", 0},
    {"istitle", method_missing, NULL, 0},
    {"isupper", method_isupper, "", 0},
    {"join", method_join, "/", 1},
    {"ljust", method_ljust, "/ /", 1},
    {"lower", method_lower, "", 0},
    {"lstrip", method_lstrip, "/", 0},
    {"maketrans", method_missing, NULL, 0},
    {"partition", method_partition, "/", 1},
    {"removeprefix", method_removeprefix, "/", 1},
    {"removesuffix", method_removesuffix, "/", 1},
    {"replace", method_replace, "/ / /", 2},
    {"rfind", method_rfind, "/ / /", 1},
    {"rindex", method_rindex, "/ / /", 1},
    {"rjust", method_rjust, "/ /", 1},
    {"rpartition", method_rpartition, "/", 1},
    {"rsplit", method_rsplit, "sep maxsplit", 0},
    {"rstrip", method_rstrip, "/", 0},
    {"split", method_split, "sep maxsplit", 0},
    {"splitlines", method_splitlines, "keepends", 0},
    {"startswith", method_startswith, "/ / /", 1},
    {"strip", method_strip, "/", 0},
    {"swapcase", method_swapcase, "", 0},
    {"title", method_title, "", 0},
    {"translate", method_missing, NULL, 0},
    {"upper", method_upper, "", 0},
    {"zfill", method_zfill, "/", 1},
};
const size_t iso_jinja_string_method_count =
    sizeof iso_jinja_string_methods / sizeof *iso_jinja_string_methods;
