#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"
#include <string.h>

/* A real attribute: a method, or a field of one of jinja's own objects; absent if none. */
static iso_status own_attribute(iso_jinja_session *session, iso_jinja_value object,
                                iso_jinja_value name, iso_jinja_value *out_value) {
  *out_value = (iso_jinja_value){.kind = ISO_JINJA_ABSENT};
  if (object.kind == ISO_JINJA_LOOP) {
    ISO_TRY(iso_jinja_loop_attribute(session, object.loop, name, out_value));
    if (out_value->kind != ISO_JINJA_ABSENT)
      return ISO_OK;
  }
  if (object.kind == ISO_JINJA_NAMESPACE) {
    iso_jinja_value *found;
    ISO_TRY(iso_jinja_dict_find(session, object.dict, name, &found));
    if (found)
      *out_value = *found;
    return ISO_OK;
  }
  if (object.kind == ISO_JINJA_MACRO && iso_jinja_is_text(name, "name")) {
    *out_value = iso_jinja_macro_name(object.macro);
    return ISO_OK;
  }
  if (object.kind == ISO_JINJA_CYCLER && iso_jinja_is_text(name, "current")) {
    *out_value = object.cycler->items->items[object.cycler->position];
    return ISO_OK;
  }
  const iso_jinja_builtin *builtin = iso_jinja_find_method(object, name);
  if (builtin) {
    iso_jinja_method *method;
    ISO_JINJA_NEW(session, method, 1);
    *method = (iso_jinja_method){builtin, object};
    *out_value = (iso_jinja_value){.kind = ISO_JINJA_METHOD, .method = method};
  }
  return ISO_OK;
}

static iso_status string_item(iso_jinja_session *session, iso_jinja_value text, int64_t index,
                              iso_jinja_value *out_value) {
  ISO_TRY(iso_jinja_spend(session, text.length / 16));
  if (index < 0)
    index += (int64_t)iso_jinja_count_codepoints(text.string, text.length);
  if (index < 0 || index >= text.length)
    return ISO_OK;
  size_t start = iso_jinja_codepoint_offset(text.string, text.length, (size_t)index);
  if (start == text.length)
    return ISO_OK;
  uint32_t codepoint;
  *out_value = iso_jinja_part(
      text, start, start + iso_jinja_decode(text.string + start, text.length - start, &codepoint));
  return ISO_OK;
}

/* object[key] proper; absent if the object has no such item. */
static iso_status own_item(iso_jinja_session *session, iso_jinja_value object, iso_jinja_value key,
                           iso_jinja_value *out_value) {
  int64_t index;
  *out_value = (iso_jinja_value){.kind = ISO_JINJA_ABSENT};
  if (object.kind == ISO_JINJA_DICT) {
    iso_jinja_value *found;
    ISO_TRY(iso_jinja_dict_find(session, object.dict, key, &found));
    if (found)
      *out_value = *found;
  } else if (iso_jinja_as_integer(key, &index)) {
    if (object.kind == ISO_JINJA_STRING)
      return string_item(session, object, index, out_value);
    if (!iso_jinja_is_sequence(object))
      return ISO_OK;
    index += index < 0 ? object.list->count : 0;
    if (index >= 0 && index < object.list->count)
      *out_value = object.list->items[index];
  }
  return ISO_OK;
}

typedef iso_status look_up(iso_jinja_session *session, iso_jinja_value object, iso_jinja_value key,
                           iso_jinja_value *out_value);

static iso_status get(iso_jinja_session *session, iso_jinja_value object, iso_jinja_value key,
                      look_up *first, look_up *second, iso_jinja_value *out_value) {
  if (object.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(session, object);
  ISO_TRY(first(session, object, key, out_value));
  if (out_value->kind == ISO_JINJA_ABSENT && key.kind == ISO_JINJA_STRING)
    ISO_TRY(second(session, object, key, out_value));
  if (out_value->kind == ISO_JINJA_ABSENT)
    *out_value = iso_jinja_undefined(object.kind, key);
  return ISO_OK;
}

iso_status iso_jinja_get_attribute(iso_jinja_session *session, iso_jinja_value object,
                                   iso_jinja_value name, iso_jinja_value *out_value) {
  return get(session, object, name, own_attribute, own_item, out_value);
}

iso_status iso_jinja_get_item(iso_jinja_session *session, iso_jinja_value object,
                              iso_jinja_value key, iso_jinja_value *out_value) {
  return get(session, object, key, own_item, own_attribute, out_value);
}

/* A slice's bounds as Python's slice.indices() clamps them. */
typedef struct slice {
  int64_t start, step, count;
} slice;

static int64_t clamp(int64_t index, int64_t length, int64_t lowest, int64_t highest) {
  if (index < 0)
    index += length;
  return index < lowest ? lowest : index > highest ? highest : index;
}

static iso_status resolve_slice(iso_jinja_session *session, const iso_jinja_value parts[3],
                                int64_t length, slice *out_slice) {
  int64_t numbers[3] = {0, 0, 1};
  bool given[3];
  for (int i = 0; i < 3; i++) {
    given[i] = parts[i].kind != ISO_JINJA_NONE;
    if (given[i] && !iso_jinja_as_integer(parts[i], &numbers[i]))
      return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT,
                            "slice indices must be int or None, not %s",
                            iso_jinja_type_name(parts[i]));
  }
  int64_t step = numbers[2];
  if (step == 0)
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "slice step cannot be zero");
  bool forward = step > 0;
  int64_t lowest = forward ? 0 : -1, highest = forward ? length : length - 1;
  int64_t start = given[0] ? clamp(numbers[0], length, lowest, highest) : forward ? 0 : highest;
  int64_t stop = given[1] ? clamp(numbers[1], length, lowest, highest) : forward ? highest : -1;
  int64_t distance = forward ? stop - start : start - stop;
  /* A step beyond the length takes one item; so clamped, it cannot overflow. */
  step = step > length ? length + 1 : step < -length ? -length - 1 : step;
  int64_t stride = forward ? step : -step;
  *out_slice = (slice){start, step, distance > 0 ? (distance + stride - 1) / stride : 0};
  return ISO_OK;
}

static iso_status slice_string(iso_jinja_session *session, iso_jinja_value text, slice s,
                               iso_jinja_value *out_value) {
  iso_jinja_list *characters;
  iso_jinja_buffer buffer = {0};
  if (s.step == 1 && s.count > 0) {
    size_t start = iso_jinja_codepoint_offset(text.string, text.length, (size_t)s.start);
    size_t rest = text.length - start;
    size_t taken = iso_jinja_codepoint_offset(text.string + start, rest, (size_t)s.count);
    *out_value = iso_jinja_part(text, start, start + taken);
    return iso_jinja_spend(session, text.length / 16);
  }
  ISO_TRY(iso_jinja_iterate(session, text, &characters));
  for (int64_t i = 0; i < s.count; i++)
    ISO_TRY(iso_jinja_print(session, &buffer, characters->items[s.start + i * s.step]));
  *out_value = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

iso_status iso_jinja_get_slice(iso_jinja_session *session, iso_jinja_value object,
                               iso_jinja_value start, iso_jinja_value stop, iso_jinja_value step,
                               iso_jinja_value *out_value) {
  if (object.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(session, object);
  if (object.kind != ISO_JINJA_STRING && !iso_jinja_is_sequence(object))
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "'%s' object cannot be sliced",
                          iso_jinja_type_name(object));
  int64_t length;
  slice s = {0};
  ISO_TRY(iso_jinja_length(session, object, &length));
  ISO_TRY(resolve_slice(session, (iso_jinja_value[]){start, stop, step}, length, &s));
  if (object.kind == ISO_JINJA_STRING)
    return slice_string(session, object, s, out_value);
  ISO_TRY(
      iso_jinja_list_create(session, (iso_jinja_kind)object.kind, (uint32_t)s.count, out_value));
  for (int64_t i = 0; i < s.count; i++)
    ISO_TRY(
        iso_jinja_list_append(session, out_value->list, object.list->items[s.start + i * s.step]));
  return ISO_OK;
}
