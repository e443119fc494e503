/* Global functions: jinja2's own, and the two that transformers adds. */
#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"
#include <string.h>

enum { MAX_RANGE = 100000 }; /* what jinja2's sandbox allows */

static iso_status function_range(iso_jinja_call *call, iso_jinja_value *out) {
  int64_t start = 0, stop, step;
  ISO_TRY(iso_jinja_integer_argument(call, 0, 0, &stop));
  if (iso_jinja_given(call, 1)) {
    start = stop;
    ISO_TRY(iso_jinja_integer_argument(call, 1, 0, &stop));
  }
  ISO_TRY(iso_jinja_integer_argument(call, 2, 1, &step));
  if (step == 0)
    return iso_jinja_fail_call(call, "the step must not be zero");
  int64_t distance;
  if (__builtin_sub_overflow(stop, start, &distance))
    return iso_jinja_fail_call(call, "the bounds are too far apart");
  int64_t count =
      (distance > 0) == (step > 0) && distance ? distance / step + (distance % step != 0) : 0;
  if (count > MAX_RANGE)
    return iso_jinja_fail(call->session, ISO_ERROR_LIMIT, "range has over %d items", MAX_RANGE);
  ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_RANGE, (uint32_t)count, out));
  for (int64_t i = 0; i < count; i++)
    ISO_TRY(iso_jinja_list_append(call->session, out->list, iso_jinja_integer(start + i * step)));
  return ISO_OK;
}

/* From a dict or a list of pairs, then keywords. */
static iso_status fill_dict(iso_jinja_call *call, iso_jinja_dict *dict) {
  const iso_jinja_arguments *arguments = call->arguments;
  if (arguments->positional_count > 1)
    return iso_jinja_fail_call(call, "takes at most 1 positional argument");
  for (uint32_t p = 0; p < arguments->positional_count; p++) {
    iso_jinja_value from = arguments->positional[p];
    iso_jinja_list *pairs, *pair;
    for (uint32_t i = 0; from.kind == ISO_JINJA_DICT && i < from.dict->count; i++)
      ISO_TRY(iso_jinja_dict_set(call->session, dict, from.dict->entries[i].key,
                                 from.dict->entries[i].value));
    if (from.kind == ISO_JINJA_DICT)
      break;
    ISO_TRY(iso_jinja_iterate(call->session, from, &pairs));
    for (uint32_t i = 0; i < pairs->count; i++) {
      ISO_TRY(iso_jinja_iterate(call->session, pairs->items[i], &pair));
      if (pair->count != 2)
        return iso_jinja_fail_call(call, "element %u is not a pair", i);
      ISO_TRY(iso_jinja_dict_set(call->session, dict, pair->items[0], pair->items[1]));
    }
  }
  for (uint32_t i = 0; i < arguments->keyword_count; i++)
    ISO_TRY(iso_jinja_dict_set(call->session, dict, arguments->keywords[i].name,
                               arguments->keywords[i].value));
  return ISO_OK;
}

static iso_status function_dict(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(iso_jinja_dict_create(call->session, ISO_JINJA_DICT, out));
  return fill_dict(call, out->dict);
}

static iso_status function_namespace(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(iso_jinja_dict_create(call->session, ISO_JINJA_NAMESPACE, out));
  return fill_dict(call, out->dict);
}

static iso_status function_joiner(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_joiner *joiner;
  ISO_JINJA_NEW(call->session, joiner, 1);
  ISO_TRY(iso_jinja_string_argument(call, 0, ", ", &joiner->separator));
  *out = (iso_jinja_value){.kind = ISO_JINJA_JOINER, .joiner = joiner};
  return ISO_OK;
}

static iso_status function_cycler(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value items;
  iso_jinja_cycler *cycler;
  if (call->arguments->positional_count == 0)
    return iso_jinja_fail_call(call, "needs at least one item");
  ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_LIST, 0, &items));
  for (uint32_t i = 0; i < call->arguments->positional_count; i++)
    ISO_TRY(iso_jinja_list_append(call->session, items.list, call->arguments->positional[i]));
  ISO_JINJA_NEW(call->session, cycler, 1);
  cycler->items = items.list;
  *out = (iso_jinja_value){.kind = ISO_JINJA_CYCLER, .cycler = cycler};
  return ISO_OK;
}

static iso_status function_raise_exception(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(iso_jinja_to_string(call->session, call->bound[0], out));
  return iso_jinja_fail(call->session, ISO_ERROR_INVALID_ARGUMENT, "the template refuses: %.*s",
                        (int)(out->length > 600 ? 600 : out->length), out->string);
}

/* datetime.now().strftime(format): local time without a zone, so %z and %Z are empty and %f is
 * the microseconds of a whole second. */
static iso_status function_strftime_now(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value format;
  iso_jinja_buffer plain = {0}, text = {0};
  struct tm now;
  ISO_TRY(iso_jinja_string_argument(call, 0, NULL, &format));
  if (memchr(format.string, 0, format.length))
    return iso_jinja_fail_call(call, "the format has a NUL");
  if (!localtime_r(&call->session->now, &now))
    return iso_jinja_fail_call(call, "the time cannot be broken down");
  for (uint32_t i = 0; i < format.length; i++) {
    char next = i + 1 < format.length ? format.string[i + 1] : 0;
    bool own = format.string[i] == '%' && next && strchr("fzZ", next);
    if (own && next == 'f')
      ISO_TRY(iso_jinja_append_text(call->session, &plain, "000000"));
    if (!own)
      ISO_TRY(iso_jinja_append(call->session, &plain, format.string + i,
                               format.string[i] == '%' && next ? 2 : 1));
    i += own || (format.string[i] == '%' && next);
  }
  /* A trailing mark tells an empty result from one that does not fit. */
  ISO_TRY(iso_jinja_append(call->session, &plain, "|", 2));
  size_t capacity = plain.length * 32 + 256;
  char *bytes = iso_jinja_allocate(call->session, capacity, 1);
  if (!bytes)
    return iso_jinja_allocation_status(call->session);
  size_t length = strftime(bytes, capacity, plain.bytes, &now);
  if (length == 0)
    return iso_jinja_fail_call(call, "the result is too long");
  ISO_TRY(iso_jinja_append(call->session, &text, bytes, length - 1));
  *out = iso_jinja_buffer_string(&text);
  return ISO_OK;
}

static const iso_jinja_builtin functions[] = {
    {"cycler", function_cycler, NULL, 0},
    {"dict", function_dict, NULL, 0},
    {"joiner", function_joiner, "sep", 0},
    {"namespace", function_namespace, NULL, 0},
    {"raise_exception", function_raise_exception, "message", 1},
    {"range", function_range, "/ / /", 1},
    {"strftime_now", function_strftime_now, "format", 1},
};

const iso_jinja_builtin *iso_jinja_find_function(iso_jinja_value name) {
  return iso_jinja_find_builtin(functions, sizeof functions / sizeof *functions, name);
}
