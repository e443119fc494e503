/* Filters on lists and dicts; each as jinja2 documents it. Where jinja2 gives a generator, so do
 * these, but with all its items made at once. */
#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/filters.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/sort.h"
#include "models/chat/jinja/text.h"
#include <string.h>

static iso_status subject_list(iso_jinja_call *call, iso_jinja_list **out_list) {
  return iso_jinja_iterate(call->session, call->subject, out_list);
}

static iso_status new_list(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_list_create(call->session, ISO_JINJA_LIST, 0, out);
}

static iso_status new_generator(iso_jinja_call *call, iso_jinja_value *out) {
  return iso_jinja_list_create(call->session, ISO_JINJA_GENERATOR, 0, out);
}

static iso_status filter_list(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  ISO_TRY(subject_list(call, &list));
  ISO_TRY(new_list(call, out));
  for (uint32_t i = 0; i < list->count; i++)
    ISO_TRY(iso_jinja_list_append(call->session, out->list, list->items[i]));
  return ISO_OK;
}

static iso_status filter_length(iso_jinja_call *call, iso_jinja_value *out) {
  int64_t length;
  ISO_TRY(iso_jinja_length(call->session, call->subject, &length));
  *out = iso_jinja_integer(length);
  return ISO_OK;
}

static iso_status filter_first(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  ISO_TRY(subject_list(call, &list));
  *out = list->count ? list->items[0] : iso_jinja_undefined_because("first of an empty sequence");
  return ISO_OK;
}

static iso_status filter_last(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  if (call->subject.kind == ISO_JINJA_GENERATOR)
    return iso_jinja_fail_call(call, "'generator' object is not reversible");
  ISO_TRY(subject_list(call, &list));
  *out = list->count ? list->items[list->count - 1]
                     : iso_jinja_undefined_because("last of an empty sequence");
  return ISO_OK;
}

static iso_status filter_reverse(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  iso_jinja_buffer buffer = {0};
  bool text = call->subject.kind == ISO_JINJA_STRING;
  ISO_TRY(subject_list(call, &list));
  if (call->subject.kind == ISO_JINJA_GENERATOR) /* which jinja2 makes a list of first */
    ISO_TRY(new_list(call, out));
  else if (!text)
    ISO_TRY(new_generator(call, out));
  for (uint32_t i = list->count; i-- > 0;) {
    if (text)
      ISO_TRY(iso_jinja_print(call->session, &buffer, list->items[i]));
    else
      ISO_TRY(iso_jinja_list_append(call->session, out->list, list->items[i]));
  }
  if (text)
    *out = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

/* The value at a path such as "function.name" or "0.text", undefined where it ends early; the
 * item itself where no attribute was given. An integer attribute is an index. */
static iso_status get_path(iso_jinja_session *session, iso_jinja_value item, iso_jinja_value path,
                           iso_jinja_value *out) {
  *out = item;
  if (path.kind == ISO_JINJA_ABSENT || path.kind == ISO_JINJA_NONE)
    return ISO_OK;
  if (path.kind != ISO_JINJA_STRING)
    return iso_jinja_get_item(session, item, path, out);
  for (size_t at = 0; at <= path.length;) {
    ISO_TRY(iso_jinja_spend(session, 1));
    const char *dot = memchr(path.string + at, '.', path.length - at);
    size_t end = dot ? (size_t)(dot - path.string) : path.length;
    iso_jinja_value key = iso_jinja_part(path, at, end);
    int64_t index = 0;
    bool digits = key.length > 0 && key.length < 10;
    for (uint32_t i = 0; i < key.length && digits; i++) {
      digits = key.string[i] >= '0' && key.string[i] <= '9';
      index = index * 10 + (key.string[i] - '0');
    }
    ISO_TRY(iso_jinja_get_item(session, *out, digits ? iso_jinja_integer(index) : key, out));
    at = end + 1;
  }
  return ISO_OK;
}

static iso_status filter_join(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  iso_jinja_value separator = iso_jinja_literal("");
  iso_jinja_buffer buffer = {0};
  ISO_TRY(subject_list(call, &list));
  if (iso_jinja_given(call, 0))
    ISO_TRY(iso_jinja_to_string(call->session, call->bound[0], &separator));
  for (uint32_t i = 0; i < list->count; i++) {
    iso_jinja_value item;
    ISO_TRY(iso_jinja_spend(call->session, 1));
    ISO_TRY(get_path(call->session, list->items[i], call->bound[1], &item));
    if (i)
      ISO_TRY(iso_jinja_print(call->session, &buffer, separator));
    ISO_TRY(iso_jinja_print(call->session, &buffer, item));
  }
  *out = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

static iso_status filter_items(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(new_generator(call, out));
  if (call->subject.kind == ISO_JINJA_UNDEFINED)
    return ISO_OK;
  if (call->subject.kind != ISO_JINJA_DICT)
    return iso_jinja_fail_call(call, "can only get item pairs from a mapping");
  for (uint32_t i = 0; i < call->subject.dict->count; i++) {
    iso_jinja_entry entry = call->subject.dict->entries[i];
    iso_jinja_value pair;
    ISO_TRY(iso_jinja_pair(call->session, entry.key, entry.value, &pair));
    ISO_TRY(iso_jinja_list_append(call->session, out->list, pair));
  }
  return ISO_OK;
}

/* Positional arguments from `start` on, and all keyword arguments. */
static iso_jinja_arguments arguments_from(const iso_jinja_call *call, uint32_t start) {
  iso_jinja_arguments rest = *call->arguments;
  rest.positional += start;
  rest.positional_count -= start;
  return rest;
}

static iso_jinja_value keyword(const iso_jinja_call *call, const char *name) {
  for (uint32_t i = 0; i < call->arguments->keyword_count; i++)
    if (iso_jinja_is_text(call->arguments->keywords[i].name, name))
      return call->arguments->keywords[i].value;
  return (iso_jinja_value){.kind = ISO_JINJA_ABSENT};
}

/* map('filter', ...) or map(attribute='path', default=value) */
static iso_status filter_map(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  iso_jinja_value path = keyword(call, "attribute"), fallback = keyword(call, "default");
  bool by_filter = call->arguments->positional_count > 0;
  if (!by_filter && path.kind == ISO_JINJA_ABSENT)
    return iso_jinja_fail_call(call, "needs a filter or an attribute");
  ISO_TRY(new_generator(call, out));
  if (!iso_jinja_is_true(call->subject)) /* None, too, is an empty list here and in choose() */
    return ISO_OK;
  ISO_TRY(subject_list(call, &list));
  for (uint32_t i = 0; i < list->count; i++) {
    iso_jinja_value item;
    if (by_filter) {
      iso_jinja_arguments rest = arguments_from(call, 1);
      ISO_TRY(iso_jinja_call_filter(call->session, call->arguments->positional[0], list->items[i],
                                    &rest, &item));
    } else {
      ISO_TRY(get_path(call->session, list->items[i], path, &item));
      if (item.kind == ISO_JINJA_UNDEFINED && fallback.kind != ISO_JINJA_ABSENT)
        item = fallback;
    }
    ISO_TRY(iso_jinja_list_append(call->session, out->list, item));
  }
  return ISO_OK;
}

/* select, reject: ('test', ...); selectattr, rejectattr: ('path', 'test', ...). Without a test
 * the value's truth decides. */
static iso_status choose(iso_jinja_call *call, bool by_attribute, bool wanted,
                         iso_jinja_value *out) {
  iso_jinja_list *list;
  const iso_jinja_arguments *arguments = call->arguments;
  iso_jinja_value path = {.kind = ISO_JINJA_ABSENT};
  if (by_attribute && arguments->positional_count == 0)
    return iso_jinja_fail_call(call, "needs an attribute");
  if (by_attribute)
    path = arguments->positional[0];
  ISO_TRY(new_generator(call, out));
  if (!iso_jinja_is_true(call->subject))
    return ISO_OK;
  ISO_TRY(subject_list(call, &list));
  for (uint32_t i = 0; i < list->count; i++) {
    iso_jinja_value item;
    ISO_TRY(iso_jinja_spend(call->session, 1));
    ISO_TRY(get_path(call->session, list->items[i], path, &item));
    bool passed = iso_jinja_is_true(item);
    if (arguments->positional_count > by_attribute) {
      iso_jinja_arguments rest = arguments_from(call, 1 + by_attribute);
      ISO_TRY(iso_jinja_call_test(call->session, arguments->positional[by_attribute], item, &rest,
                                  &passed));
    }
    if (passed == wanted)
      ISO_TRY(iso_jinja_list_append(call->session, out->list, list->items[i]));
  }
  return ISO_OK;
}

static iso_status filter_select(iso_jinja_call *call, iso_jinja_value *out) {
  return choose(call, false, true, out);
}
static iso_status filter_reject(iso_jinja_call *call, iso_jinja_value *out) {
  return choose(call, false, false, out);
}
static iso_status filter_selectattr(iso_jinja_call *call, iso_jinja_value *out) {
  return choose(call, true, true, out);
}
static iso_status filter_rejectattr(iso_jinja_call *call, iso_jinja_value *out) {
  return choose(call, true, false, out);
}

/* What an item is compared by: its attribute, without regard to case unless asked for. */
static iso_status sort_key(iso_jinja_call *call, iso_jinja_value item, iso_jinja_value path,
                           bool case_sensitive, iso_jinja_value *out) {
  ISO_TRY(get_path(call->session, item, path, out));
  if (out->kind == ISO_JINJA_STRING && !case_sensitive)
    return iso_jinja_change_case(call->session, *out, ISO_JINJA_LOWER, out);
  return ISO_OK;
}

/* The keys of a path of attributes with commas, as a list: comparing lists, Python orders only
 * what differs, so that equal values need no order. */
static iso_status sort_keys(iso_jinja_call *call, iso_jinja_value item, iso_jinja_value paths,
                            bool case_sensitive, iso_jinja_value *out) {
  bool several = paths.kind == ISO_JINJA_STRING;
  ISO_TRY(new_list(call, out));
  for (size_t at = 0; at <= (several ? paths.length : 0);) {
    const char *comma = several ? memchr(paths.string + at, ',', paths.length - at) : NULL;
    size_t end = comma ? (size_t)(comma - paths.string) : paths.length;
    iso_jinja_value key, path = several ? iso_jinja_part(paths, at, end) : paths;
    ISO_TRY(sort_key(call, item, path, case_sensitive, &key));
    ISO_TRY(iso_jinja_list_append(call->session, out->list, key));
    at = end + 1;
  }
  return ISO_OK;
}

typedef iso_status key_function(iso_jinja_call *call, iso_jinja_value item, iso_jinja_value path,
                                bool case_sensitive, iso_jinja_value *out);

/* The list with its sort keys. */
static iso_status keyed_items(iso_jinja_call *call, const iso_jinja_list *list, key_function *key,
                              iso_jinja_value path, bool case_sensitive,
                              iso_jinja_sort_item **out_items) {
  iso_jinja_sort_item *items;
  ISO_JINJA_NEW(call->session, items, list->count);
  for (uint32_t i = 0; i < list->count; i++) {
    items[i].value = list->items[i];
    ISO_TRY(key(call, list->items[i], path, case_sensitive, &items[i].key));
  }
  *out_items = items;
  return ISO_OK;
}

/* Sorts a keyed list into a new list. */
static iso_status sort_into(iso_jinja_call *call, iso_jinja_sort_item *items, uint32_t count,
                            bool descending, iso_jinja_value *out) {
  ISO_TRY(iso_jinja_sort(call->session, items, count, descending));
  ISO_TRY(new_list(call, out));
  for (uint32_t i = 0; i < count; i++)
    ISO_TRY(iso_jinja_list_append(call->session, out->list, items[i].value));
  return ISO_OK;
}

static iso_status filter_sort(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  iso_jinja_sort_item *items;
  ISO_TRY(subject_list(call, &list));
  ISO_TRY(keyed_items(call, list, sort_keys, call->bound[2],
                      iso_jinja_boolean_argument(call, 1, false), &items));
  return sort_into(call, items, list->count, iso_jinja_boolean_argument(call, 0, false), out);
}

static iso_status filter_dictsort(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value pairs, by;
  iso_jinja_sort_item *items;
  if (call->subject.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(call->session, call->subject);
  ISO_TRY(filter_items(call, &pairs));
  ISO_TRY(iso_jinja_string_argument(call, 1, "key", &by));
  bool by_value = iso_jinja_is_text(by, "value");
  if (!by_value && !iso_jinja_is_text(by, "key"))
    return iso_jinja_fail_call(call, "by must be 'key' or 'value'");
  ISO_TRY(keyed_items(call, pairs.list, sort_key, iso_jinja_integer(by_value),
                      iso_jinja_boolean_argument(call, 0, false), &items));
  return sort_into(call, items, pairs.list->count, iso_jinja_boolean_argument(call, 2, false), out);
}

/* The least (direction -1) or greatest (1) item; the first of equals. */
static iso_status extreme(iso_jinja_call *call, int direction, iso_jinja_value *out) {
  iso_jinja_list *list;
  iso_jinja_sort_item *items;
  ISO_TRY(subject_list(call, &list));
  ISO_TRY(keyed_items(call, list, sort_key, call->bound[1],
                      iso_jinja_boolean_argument(call, 0, false), &items));
  uint32_t best = 0;
  for (uint32_t i = 1; i < list->count; i++) {
    int order = 0;
    ISO_TRY(iso_jinja_order(call->session, items[i].key, items[best].key, "<", &order));
    if (direction > 0 ? order > 0 : order < 0)
      best = i;
  }
  *out = list->count ? items[best].value
                     : iso_jinja_undefined_because("no aggregated item, the sequence was empty");
  return ISO_OK;
}

static iso_status filter_min(iso_jinja_call *call, iso_jinja_value *out) {
  return extreme(call, -1, out);
}
static iso_status filter_max(iso_jinja_call *call, iso_jinja_value *out) {
  return extreme(call, 1, out);
}

static iso_status filter_unique(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  iso_jinja_value seen, key;
  ISO_TRY(subject_list(call, &list));
  ISO_TRY(new_generator(call, out));
  ISO_TRY(iso_jinja_dict_create(call->session, ISO_JINJA_DICT, &seen));
  for (uint32_t i = 0; i < list->count; i++) {
    uint32_t before = seen.dict->count;
    ISO_TRY(sort_key(call, list->items[i], call->bound[1],
                     iso_jinja_boolean_argument(call, 0, false), &key));
    ISO_TRY(iso_jinja_dict_set(call->session, seen.dict, key, iso_jinja_none()));
    if (seen.dict->count > before)
      ISO_TRY(iso_jinja_list_append(call->session, out->list, list->items[i]));
  }
  return ISO_OK;
}

static iso_status filter_sum(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  ISO_TRY(subject_list(call, &list));
  *out = iso_jinja_given(call, 1) ? call->bound[1] : iso_jinja_integer(0);
  for (uint32_t i = 0; i < list->count; i++) {
    iso_jinja_value item;
    ISO_TRY(iso_jinja_spend(call->session, 1));
    ISO_TRY(get_path(call->session, list->items[i], call->bound[0], &item));
    ISO_TRY(iso_jinja_operate(call->session, ISO_JINJA_ADD, *out, item, out));
  }
  return ISO_OK;
}

/* (key, items) tuples in order of key; the key as the first item of its group spells it. */
static iso_status filter_groupby(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  iso_jinja_sort_item *items;
  bool case_sensitive = iso_jinja_boolean_argument(call, 2, false);
  ISO_TRY(subject_list(call, &list));
  ISO_TRY(keyed_items(call, list, sort_key, call->bound[0], case_sensitive, &items));
  for (uint32_t i = 0; i < list->count; i++)
    if (items[i].key.kind == ISO_JINJA_UNDEFINED && iso_jinja_given(call, 1))
      items[i].key = call->bound[1];
  ISO_TRY(iso_jinja_sort(call->session, items, list->count, false));
  ISO_TRY(new_list(call, out));
  iso_jinja_value group = {0}, pair, key;
  for (uint32_t i = 0; i < list->count; i++) {
    bool same = false;
    if (i)
      ISO_TRY(iso_jinja_equal(call->session, items[i].key, items[i - 1].key, &same));
    if (!same) {
      ISO_TRY(get_path(call->session, items[i].value, call->bound[0], &key));
      key = key.kind == ISO_JINJA_UNDEFINED ? items[i].key : key;
      ISO_TRY(new_list(call, &group));
      ISO_TRY(iso_jinja_pair(call->session, key, group, &pair));
      ISO_TRY(iso_jinja_list_append(call->session, out->list, pair));
    }
    ISO_TRY(iso_jinja_list_append(call->session, group.list, items[i].value));
  }
  return ISO_OK;
}

static iso_status filter_batch(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  iso_jinja_value row = {0};
  int64_t size;
  ISO_TRY(subject_list(call, &list));
  ISO_TRY(iso_jinja_integer_argument(call, 0, 0, &size));
  ISO_TRY(new_generator(call, out));
  if (size < 1)
    return iso_jinja_fail_call(call, "the line count must be positive");
  for (uint32_t i = 0; i < list->count; i++) {
    if (i % size == 0) {
      ISO_TRY(new_list(call, &row));
      ISO_TRY(iso_jinja_list_append(call->session, out->list, row));
    }
    ISO_TRY(iso_jinja_list_append(call->session, row.list, list->items[i]));
  }
  bool fill = iso_jinja_given(call, 1) && call->bound[1].kind != ISO_JINJA_NONE;
  while (fill && list->count && row.list->count < size)
    ISO_TRY(iso_jinja_list_append(call->session, row.list, call->bound[1]));
  return ISO_OK;
}

/* As many columns as asked for, the first ones longer where the items do not divide evenly. */
static iso_status filter_slice(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_list *list;
  int64_t columns;
  ISO_TRY(subject_list(call, &list));
  ISO_TRY(iso_jinja_integer_argument(call, 0, 0, &columns));
  ISO_TRY(new_generator(call, out));
  if (columns < 1)
    return iso_jinja_fail_call(call, "the slice count must be positive");
  bool fill = iso_jinja_given(call, 1) && call->bound[1].kind != ISO_JINJA_NONE;
  int64_t each = list->count / columns, longer = list->count % columns;
  uint32_t next = 0;
  for (int64_t column = 0; column < columns; column++) {
    iso_jinja_value row;
    ISO_TRY(new_list(call, &row));
    for (int64_t i = 0; i < each + (column < longer); i++)
      ISO_TRY(iso_jinja_list_append(call->session, row.list, list->items[next++]));
    if (fill && column >= longer)
      ISO_TRY(iso_jinja_list_append(call->session, row.list, call->bound[1]));
    ISO_TRY(iso_jinja_list_append(call->session, out->list, row));
  }
  return ISO_OK;
}

const iso_jinja_builtin iso_jinja_list_filters[] = {
    {"batch", filter_batch, "linecount fill_with", 1},
    {"count", filter_length, "", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"first", filter_first, "", 0},
    {"groupby", filter_groupby, "attribute default case_sensitive", 1},
    {"items", filter_items, "", 0},
    {"join", filter_join, "d attribute", 0},
    {"last", filter_last, "", 0},
    {"length", filter_length, "", 0},
    {"list", filter_list, "", 0},
    {"map", filter_map, NULL, 0},
    {"max", filter_max, "case_sensitive attribute", 0},
    {"min", filter_min, "case_sensitive attribute", 0},
    {"reject", filter_reject, NULL, 0},
    {"rejectattr", filter_rejectattr, NULL, 0},
    {"reverse", filter_reverse, "", 0},
    {"select", filter_select, NULL, 0},
    {"selectattr", filter_selectattr, NULL, 0},
    {"slice", filter_slice, "slices fill_with", 1},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
};
const size_t iso_jinja_list_filter_count =
    sizeof iso_jinja_list_filters / sizeof *iso_jinja_list_filters;

const iso_jinja_builtin *iso_jinja_find_filter(iso_jinja_value name) {
  const iso_jinja_builtin *found =
      iso_jinja_find_builtin(iso_jinja_text_filters, iso_jinja_text_filter_count, name);
  return found ? found
               : iso_jinja_find_builtin(iso_jinja_list_filters, iso_jinja_list_filter_count, name);
}
