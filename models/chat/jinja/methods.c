/* Methods of dicts, lists, tuples and jinja2's own objects. Those that would change an object
 * are refused as in jinja2's immutable sandbox, but for list.append, which older templates use
 * and which can only reach values of this one render. */
#include "models/chat/jinja/methods.h"
#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/sort.h"

static iso_status method_refused(iso_jinja_call *call, iso_jinja_value *out) {
  (void)out;
  return iso_jinja_fail_call(call, "access to this method of '%s' object is unsafe",
                             iso_jinja_type_name(call->subject));
}

static iso_status method_items(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_LIST, 0, out));
  for (uint32_t i = 0; i < call->subject.dict->count; i++) {
    iso_jinja_entry entry = call->subject.dict->entries[i];
    iso_jinja_value pair;
    ISO_TRY(iso_jinja_pair(call->session, entry.key, entry.value, &pair));
    ISO_TRY(iso_jinja_list_append(call->session, out->list, pair));
  }
  return ISO_OK;
}

static iso_status method_keys(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_LIST, 0, out));
  for (uint32_t i = 0; i < call->subject.dict->count; i++)
    ISO_TRY(iso_jinja_list_append(call->session, out->list, call->subject.dict->entries[i].key));
  return ISO_OK;
}

static iso_status method_values(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_LIST, 0, out));
  for (uint32_t i = 0; i < call->subject.dict->count; i++)
    ISO_TRY(iso_jinja_list_append(call->session, out->list, call->subject.dict->entries[i].value));
  return ISO_OK;
}

static iso_status method_get(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value *found;
  ISO_TRY(iso_jinja_dict_find(call->session, call->subject.dict, call->bound[0], &found));
  *out = found ? *found : iso_jinja_given(call, 1) ? call->bound[1] : iso_jinja_none();
  return ISO_OK;
}

static iso_status method_copy_dict(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(iso_jinja_dict_create(call->session, ISO_JINJA_DICT, out));
  for (uint32_t i = 0; i < call->subject.dict->count; i++)
    ISO_TRY(iso_jinja_dict_set(call->session, out->dict, call->subject.dict->entries[i].key,
                               call->subject.dict->entries[i].value));
  return ISO_OK;
}

static iso_status method_append(iso_jinja_call *call, iso_jinja_value *out) {
  *out = iso_jinja_none();
  return iso_jinja_list_append(call->session, call->subject.list, call->bound[0]);
}

static iso_status method_copy_list(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_LIST, 0, out));
  for (uint32_t i = 0; i < call->subject.list->count; i++)
    ISO_TRY(iso_jinja_list_append(call->session, out->list, call->subject.list->items[i]));
  return ISO_OK;
}

static iso_status method_count(iso_jinja_call *call, iso_jinja_value *out) {
  int64_t count = 0;
  ISO_TRY(iso_jinja_spend(call->session, call->subject.list->count / 8));
  for (uint32_t i = 0; i < call->subject.list->count; i++) {
    bool equal;
    ISO_TRY(iso_jinja_equal(call->session, call->subject.list->items[i], call->bound[0], &equal));
    count += equal;
  }
  *out = iso_jinja_integer(count);
  return ISO_OK;
}

static iso_status method_index(iso_jinja_call *call, iso_jinja_value *out) {
  ISO_TRY(iso_jinja_spend(call->session, call->subject.list->count / 8));
  for (uint32_t i = 0; i < call->subject.list->count; i++) {
    bool equal;
    ISO_TRY(iso_jinja_equal(call->session, call->subject.list->items[i], call->bound[0], &equal));
    if (equal) {
      *out = iso_jinja_integer(i);
      return ISO_OK;
    }
  }
  return iso_jinja_fail_call(call, "the value is not in the %s",
                             iso_jinja_type_name(call->subject));
}

static iso_status method_cycle(iso_jinja_call *call, iso_jinja_value *out) {
  uint32_t count = call->arguments->positional_count;
  if (count == 0)
    return iso_jinja_fail_call(call, "needs at least one item");
  *out = call->arguments->positional[call->subject.loop->index % count];
  return ISO_OK;
}

/* Whether the arguments differ from those of the call before. */
static iso_status method_changed(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_loop *loop = call->subject.loop;
  iso_jinja_value now;
  bool same;
  ISO_TRY(iso_jinja_list_create(call->session, ISO_JINJA_TUPLE, 0, &now));
  for (uint32_t i = 0; i < call->arguments->positional_count; i++)
    ISO_TRY(iso_jinja_list_append(call->session, now.list, call->arguments->positional[i]));
  ISO_TRY(iso_jinja_equal(call->session, now, loop->changed, &same));
  loop->changed = now;
  *out = iso_jinja_boolean(!same);
  return ISO_OK;
}

static iso_status method_next(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_cycler *cycler = call->subject.cycler;
  *out = cycler->items->items[cycler->position];
  cycler->position = (cycler->position + 1) % cycler->items->count;
  return ISO_OK;
}

static iso_status method_reset(iso_jinja_call *call, iso_jinja_value *out) {
  call->subject.cycler->position = 0;
  *out = iso_jinja_none();
  return ISO_OK;
}

static const iso_jinja_builtin dict_methods[] = {
    {"clear", method_refused, NULL, 0},   {"copy", method_copy_dict, "", 0},
    {"get", method_get, "/ /", 1},        {"items", method_items, "", 0},
    {"keys", method_keys, "", 0},         {"pop", method_refused, NULL, 0},
    {"popitem", method_refused, NULL, 0}, {"setdefault", method_refused, NULL, 0},
    {"update", method_refused, NULL, 0},  {"values", method_values, "", 0},
};

static const iso_jinja_builtin list_methods[] = {
    {"append", method_append, "/", 1},   {"clear", method_refused, NULL, 0},
    {"copy", method_copy_list, "", 0},   {"count", method_count, "/", 1},
    {"extend", method_refused, NULL, 0}, {"index", method_index, "/", 1},
    {"insert", method_refused, NULL, 0}, {"pop", method_refused, NULL, 0},
    {"remove", method_refused, NULL, 0}, {"reverse", method_refused, NULL, 0},
    {"sort", method_refused, NULL, 0},
};

static const iso_jinja_builtin tuple_methods[] = {
    {"count", method_count, "/", 1},
    {"index", method_index, "/", 1},
};

static const iso_jinja_builtin loop_methods[] = {
    {"changed", method_changed, NULL, 0},
    {"cycle", method_cycle, NULL, 0},
};

static const iso_jinja_builtin cycler_methods[] = {
    {"next", method_next, "", 0},
    {"reset", method_reset, "", 0},
};

const iso_jinja_builtin *iso_jinja_find_method(iso_jinja_value object, iso_jinja_value name) {
  switch (object.kind) {
  case ISO_JINJA_STRING:
    return iso_jinja_find_builtin(iso_jinja_string_methods, iso_jinja_string_method_count, name);
  case ISO_JINJA_DICT:
    return iso_jinja_find_builtin(dict_methods, sizeof dict_methods / sizeof *dict_methods, name);
  case ISO_JINJA_LIST:
    return iso_jinja_find_builtin(list_methods, sizeof list_methods / sizeof *list_methods, name);
  case ISO_JINJA_TUPLE:
  case ISO_JINJA_RANGE:
    return iso_jinja_find_builtin(tuple_methods, sizeof tuple_methods / sizeof *tuple_methods,
                                  name);
  case ISO_JINJA_LOOP:
    return iso_jinja_find_builtin(loop_methods, sizeof loop_methods / sizeof *loop_methods, name);
  case ISO_JINJA_CYCLER:
    return iso_jinja_find_builtin(cycler_methods, sizeof cycler_methods / sizeof *cycler_methods,
                                  name);
  default:
    return NULL;
  }
}
