#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"
#include <string.h>

/* Orders two numbers by their exact values; false if one of the two is none. */
static bool order_numbers(iso_jinja_value a, iso_jinja_value b, int *out_order) {
  int64_t integers[2];
  double numbers[2];
  bool integer_a = iso_jinja_as_integer(a, &integers[0]);
  bool integer_b = iso_jinja_as_integer(b, &integers[1]);
  if (integer_a && integer_b) {
    *out_order = (integers[0] > integers[1]) - (integers[0] < integers[1]);
    return true;
  }
  if (!iso_jinja_as_number(a, &numbers[0]) || !iso_jinja_as_number(b, &numbers[1]))
    return false;
  *out_order = (numbers[0] > numbers[1]) - (numbers[0] < numbers[1]);
  /* An integer that a double cannot hold was rounded; a double that it is rounded to is whole. */
  if (*out_order == 0 && (integer_a || integer_b)) {
    double whole = numbers[integer_a];
    int64_t exact = whole < 0x1p63 ? (int64_t)whole : INT64_MAX;
    int64_t integer = integers[integer_b];
    int rounded = whole < 0x1p63 ? (integer > exact) - (integer < exact) : -1;
    *out_order = integer_a ? rounded : -rounded;
  }
  return true;
}

static iso_status equal_lists(iso_jinja_session *session, const iso_jinja_list *a,
                              const iso_jinja_list *b, bool *out_equal) {
  *out_equal = a->count == b->count;
  for (uint32_t i = 0; *out_equal && i < a->count && i < b->count; i++) {
    ISO_TRY(iso_jinja_spend(session, 1));
    ISO_TRY(iso_jinja_equal(session, a->items[i], b->items[i], out_equal));
  }
  return ISO_OK;
}

static iso_status equal_dicts(iso_jinja_session *session, const iso_jinja_dict *a,
                              const iso_jinja_dict *b, bool *out_equal) {
  *out_equal = a->count == b->count;
  for (uint32_t i = 0; *out_equal && i < a->count; i++) {
    iso_jinja_value *other;
    ISO_TRY(iso_jinja_dict_find(session, b, a->entries[i].key, &other));
    *out_equal = other != NULL;
    if (other)
      ISO_TRY(iso_jinja_equal(session, a->entries[i].value, *other, out_equal));
  }
  return ISO_OK;
}

iso_status iso_jinja_equal(iso_jinja_session *session, iso_jinja_value a, iso_jinja_value b,
                           bool *out_equal) {
  int order;
  if (order_numbers(a, b, &order)) {
    *out_equal = order == 0 && !iso_jinja_is_nan(a) && !iso_jinja_is_nan(b);
    return ISO_OK;
  }
  *out_equal = false;
  if (a.kind != b.kind)
    return ISO_OK;
  switch (a.kind) {
  case ISO_JINJA_ABSENT:
  case ISO_JINJA_UNDEFINED:
  case ISO_JINJA_NONE:
    *out_equal = true;
    return ISO_OK;
  case ISO_JINJA_STRING:
    *out_equal = iso_jinja_same_text(a, b);
    return iso_jinja_spend(session, a.length == b.length ? a.length / 64 : 0);
  case ISO_JINJA_LIST:
  case ISO_JINJA_TUPLE:
  case ISO_JINJA_RANGE:
    ISO_TRY(iso_jinja_enter(session));
    ISO_TRY(equal_lists(session, a.list, b.list, out_equal));
    iso_jinja_leave(session);
    return ISO_OK;
  case ISO_JINJA_DICT:
    ISO_TRY(iso_jinja_enter(session));
    ISO_TRY(equal_dicts(session, a.dict, b.dict, out_equal));
    iso_jinja_leave(session);
    return ISO_OK;
  default: /* by identity */
    *out_equal = a.dict == b.dict;
    return ISO_OK;
  }
}

static int order_text(iso_jinja_value a, iso_jinja_value b) {
  size_t shared = a.length < b.length ? a.length : b.length;
  int order = shared ? memcmp(a.string, b.string, shared) : 0; /* UTF-8 sorts as code points do */
  return order ? order : (a.length > b.length) - (a.length < b.length);
}

static iso_status order_lists(iso_jinja_session *session, const iso_jinja_list *a,
                              const iso_jinja_list *b, const char *operation, int *out_order) {
  for (uint32_t i = 0; i < a->count && i < b->count; i++) {
    bool equal;
    ISO_TRY(iso_jinja_spend(session, 1));
    ISO_TRY(iso_jinja_equal(session, a->items[i], b->items[i], &equal));
    if (!equal)
      return iso_jinja_order(session, a->items[i], b->items[i], operation, out_order);
  }
  *out_order = (a->count > b->count) - (a->count < b->count);
  return ISO_OK;
}

iso_status iso_jinja_order(iso_jinja_session *session, iso_jinja_value a, iso_jinja_value b,
                           const char *operation, int *out_order) {
  if (order_numbers(a, b, out_order))
    return ISO_OK;
  if (a.kind == ISO_JINJA_UNDEFINED || b.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(session, a.kind == ISO_JINJA_UNDEFINED ? a : b);
  if (a.kind == ISO_JINJA_STRING && b.kind == ISO_JINJA_STRING) {
    *out_order = order_text(a, b);
    return iso_jinja_spend(session, 1 + (a.length < b.length ? a.length : b.length) / 64);
  }
  if (iso_jinja_is_list(a) && a.kind == b.kind) {
    ISO_TRY(iso_jinja_enter(session));
    ISO_TRY(order_lists(session, a.list, b.list, operation, out_order));
    iso_jinja_leave(session);
    return ISO_OK;
  }
  return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT,
                        "'%s' not supported between instances of '%s' and '%s'", operation,
                        iso_jinja_type_name(a), iso_jinja_type_name(b));
}

iso_status iso_jinja_contains(iso_jinja_session *session, iso_jinja_value container,
                              iso_jinja_value item, bool *out_contains) {
  *out_contains = false;
  if (container.kind == ISO_JINJA_UNDEFINED)
    return ISO_OK;
  if (container.kind == ISO_JINJA_STRING) {
    if (item.kind == ISO_JINJA_UNDEFINED)
      return iso_jinja_fail_undefined(session, item);
    if (item.kind != ISO_JINJA_STRING)
      return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT,
                            "'in <string>' requires string as left operand, not %s",
                            iso_jinja_type_name(item));
    *out_contains = iso_jinja_find(container, item, 0) != SIZE_MAX;
    return iso_jinja_spend(session, container.length / 64);
  }
  if (container.kind == ISO_JINJA_DICT) {
    iso_jinja_value *found;
    ISO_TRY(iso_jinja_check_hashable(session, item));
    ISO_TRY(iso_jinja_dict_find(session, container.dict, item, &found));
    *out_contains = found != NULL;
    return ISO_OK;
  }
  iso_jinja_list *list;
  ISO_TRY(iso_jinja_iterate(session, container, &list));
  ISO_TRY(iso_jinja_spend(session, list->count / 8));
  for (uint32_t i = 0; !*out_contains && i < list->count; i++)
    ISO_TRY(iso_jinja_equal(session, list->items[i], item, out_contains));
  return ISO_OK;
}
