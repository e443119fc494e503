#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"
#include "models/chat/jinja/value.h"
#include <string.h>

static const char *const type_names[ISO_JINJA_KIND_COUNT] = {
    [ISO_JINJA_ABSENT] = "nothing",      [ISO_JINJA_UNDEFINED] = "Undefined",
    [ISO_JINJA_NONE] = "NoneType",       [ISO_JINJA_BOOLEAN] = "bool",
    [ISO_JINJA_INTEGER] = "int",         [ISO_JINJA_FLOAT] = "float",
    [ISO_JINJA_STRING] = "str",          [ISO_JINJA_LIST] = "list",
    [ISO_JINJA_TUPLE] = "tuple",         [ISO_JINJA_RANGE] = "range",
    [ISO_JINJA_GENERATOR] = "generator", [ISO_JINJA_DICT] = "dict",
    [ISO_JINJA_NAMESPACE] = "Namespace", [ISO_JINJA_FUNCTION] = "function",
    [ISO_JINJA_METHOD] = "method",       [ISO_JINJA_MACRO] = "Macro",
    [ISO_JINJA_LOOP] = "LoopContext",    [ISO_JINJA_CYCLER] = "Cycler",
    [ISO_JINJA_JOINER] = "Joiner",
};

const char *iso_jinja_type_name(iso_jinja_value value) { return type_names[value.kind]; }

iso_jinja_value iso_jinja_literal(const char *text) { return iso_jinja_string(text, strlen(text)); }

iso_jinja_value iso_jinja_undefined_because(const char *sentence) {
  return iso_jinja_undefined(ISO_JINJA_SENTENCE, iso_jinja_literal(sentence));
}

bool iso_jinja_is_text(iso_jinja_value value, const char *text) {
  return value.kind == ISO_JINJA_STRING && value.length == strlen(text) &&
         memcmp(value.string, text, value.length) == 0;
}

bool iso_jinja_same_text(iso_jinja_value a, iso_jinja_value b) {
  return a.length == b.length && (a.length == 0 || memcmp(a.string, b.string, a.length) == 0);
}

bool iso_jinja_is_true(iso_jinja_value value) {
  switch (value.kind) {
  case ISO_JINJA_ABSENT:
  case ISO_JINJA_UNDEFINED:
  case ISO_JINJA_NONE:
    return false;
  case ISO_JINJA_BOOLEAN:
    return value.boolean;
  case ISO_JINJA_INTEGER:
    return value.integer != 0;
  case ISO_JINJA_FLOAT:
    return value.number != 0;
  case ISO_JINJA_STRING:
    return value.length > 0;
  case ISO_JINJA_LIST:
  case ISO_JINJA_TUPLE:
  case ISO_JINJA_RANGE:
    return value.list->count > 0;
  case ISO_JINJA_DICT:
    return value.dict->count > 0;
  default:
    return true;
  }
}

bool iso_jinja_as_integer(iso_jinja_value value, int64_t *out_integer) {
  if (value.kind == ISO_JINJA_INTEGER)
    *out_integer = value.integer;
  else if (value.kind == ISO_JINJA_BOOLEAN)
    *out_integer = value.boolean;
  else
    return false;
  return true;
}

bool iso_jinja_as_number(iso_jinja_value value, double *out_number) {
  int64_t integer;
  if (value.kind == ISO_JINJA_FLOAT)
    *out_number = value.number;
  else if (iso_jinja_as_integer(value, &integer))
    *out_number = (double)integer;
  else
    return false;
  return true;
}

iso_status iso_jinja_fail_undefined(iso_jinja_session *session, iso_jinja_value undefined) {
  int length = undefined.length > 200 ? 200 : (int)undefined.length;
  const char *name = undefined.string ? undefined.string : "";
  if (undefined.flags == ISO_JINJA_SENTENCE)
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "%.*s", length, name);
  if (undefined.flags == ISO_JINJA_ABSENT)
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "'%.*s' is undefined", length, name);
  if (!undefined.string)
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "'%s object' has no such element",
                          type_names[undefined.flags]);
  return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "'%s object' has no attribute '%.*s'",
                        type_names[undefined.flags], length, name);
}

iso_status iso_jinja_list_create(iso_jinja_session *session, iso_jinja_kind kind, uint32_t capacity,
                                 iso_jinja_value *out_value) {
  iso_jinja_list *list;
  ISO_JINJA_NEW(session, list, 1);
  if (capacity)
    ISO_JINJA_NEW(session, list->items, capacity);
  list->capacity = capacity;
  *out_value = (iso_jinja_value){.kind = (uint8_t)kind, .list = list};
  return ISO_OK;
}

iso_status iso_jinja_list_append(iso_jinja_session *session, iso_jinja_list *list,
                                 iso_jinja_value item) {
  ISO_TRY(iso_jinja_spend(session, 1));
  ISO_TRY(iso_jinja_grow(session, &list->items, list->count, &list->capacity, sizeof item));
  list->items[list->count++] = item;
  return ISO_OK;
}

iso_status iso_jinja_dict_create(iso_jinja_session *session, iso_jinja_kind kind,
                                 iso_jinja_value *out_value) {
  iso_jinja_dict *dict;
  ISO_JINJA_NEW(session, dict, 1);
  *out_value = (iso_jinja_value){.kind = (uint8_t)kind, .dict = dict};
  return ISO_OK;
}

iso_status iso_jinja_dict_find(iso_jinja_session *session, const iso_jinja_dict *dict,
                               iso_jinja_value key, iso_jinja_value **out_found) {
  uint64_t long_key = key.kind == ISO_JINJA_STRING ? key.length / 64 : 0;
  *out_found = NULL;
  ISO_TRY(iso_jinja_spend(session, dict->count / 8 + dict->count * long_key));
  for (uint32_t i = 0; i < dict->count; i++) {
    bool equal;
    if (key.kind == ISO_JINJA_STRING)
      equal = dict->entries[i].key.kind == ISO_JINJA_STRING &&
              iso_jinja_same_text(dict->entries[i].key, key);
    else
      ISO_TRY(iso_jinja_equal(session, dict->entries[i].key, key, &equal));
    if (equal) {
      *out_found = &dict->entries[i].value;
      return ISO_OK;
    }
  }
  return ISO_OK;
}

iso_status iso_jinja_check_hashable(iso_jinja_session *session, iso_jinja_value key) {
  if (key.kind == ISO_JINJA_LIST || key.kind == ISO_JINJA_DICT)
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "unhashable type: '%s'",
                          iso_jinja_type_name(key));
  if (key.kind != ISO_JINJA_TUPLE)
    return ISO_OK;
  ISO_TRY(iso_jinja_enter(session)); /* a tuple may hold another many times over */
  ISO_TRY(iso_jinja_spend(session, key.list->count));
  for (uint32_t i = 0; i < key.list->count; i++)
    ISO_TRY(iso_jinja_check_hashable(session, key.list->items[i]));
  iso_jinja_leave(session);
  return ISO_OK;
}

iso_status iso_jinja_dict_set(iso_jinja_session *session, iso_jinja_dict *dict, iso_jinja_value key,
                              iso_jinja_value value) {
  ISO_TRY(iso_jinja_check_hashable(session, key));
  iso_jinja_value *found;
  ISO_TRY(iso_jinja_dict_find(session, dict, key, &found));
  if (found) {
    *found = value;
    return ISO_OK;
  }
  ISO_TRY(iso_jinja_spend(session, 1));
  ISO_TRY(
      iso_jinja_grow(session, &dict->entries, dict->count, &dict->capacity, sizeof *dict->entries));
  dict->entries[dict->count++] = (iso_jinja_entry){key, value};
  return ISO_OK;
}

static iso_status split_characters(iso_jinja_session *session, iso_jinja_value text,
                                   iso_jinja_list *list) {
  uint32_t codepoint;
  for (size_t at = 0, taken; at < text.length; at += taken) {
    taken = iso_jinja_decode(text.string + at, text.length - at, &codepoint);
    ISO_TRY(iso_jinja_list_append(session, list, iso_jinja_part(text, at, at + taken)));
  }
  return ISO_OK;
}

iso_status iso_jinja_iterate(iso_jinja_session *session, iso_jinja_value value,
                             iso_jinja_list **out_list) {
  if (iso_jinja_is_sequence(value)) {
    *out_list = value.list;
    return ISO_OK;
  }
  iso_jinja_value made;
  ISO_TRY(iso_jinja_list_create(session, ISO_JINJA_LIST, 0, &made));
  *out_list = made.list;
  switch (value.kind) {
  case ISO_JINJA_UNDEFINED:
    return ISO_OK;
  case ISO_JINJA_GENERATOR:
    *made.list = *value.list;
    *value.list = (iso_jinja_list){0};
    return ISO_OK;
  case ISO_JINJA_STRING:
    return split_characters(session, value, made.list);
  case ISO_JINJA_DICT:
    for (uint32_t i = 0; i < value.dict->count; i++)
      ISO_TRY(iso_jinja_list_append(session, made.list, value.dict->entries[i].key));
    return ISO_OK;
  default:
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "'%s' object is not iterable",
                          iso_jinja_type_name(value));
  }
}

iso_status iso_jinja_length(iso_jinja_session *session, iso_jinja_value value,
                            int64_t *out_length) {
  switch (value.kind) {
  case ISO_JINJA_UNDEFINED:
    *out_length = 0;
    return ISO_OK;
  case ISO_JINJA_STRING:
    *out_length = (int64_t)iso_jinja_count_codepoints(value.string, value.length);
    return iso_jinja_spend(session, value.length / 16);
  case ISO_JINJA_LIST:
  case ISO_JINJA_TUPLE:
  case ISO_JINJA_RANGE:
    *out_length = value.list->count;
    return ISO_OK;
  case ISO_JINJA_DICT:
    *out_length = value.dict->count;
    return ISO_OK;
  default:
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "object of type '%s' has no len()",
                          iso_jinja_type_name(value));
  }
}
