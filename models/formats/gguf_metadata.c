#include "models/formats/gguf_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file is little-endian and values are copied out of it as they lie. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "GGUF reading needs a little-endian host");

enum { MAX_NAME_BYTES = 65535 }; /* of a key, by the specification */

typedef enum type_kind { KIND_INT, KIND_FLOAT, KIND_BOOL, KIND_STRING, KIND_ARRAY } type_kind;

static const struct {
  const char *name;
  type_kind kind;
  uint32_t bytes; /* least bytes of one element */
} types[ISO_GGUF_TYPE_COUNT] = {
    [ISO_GGUF_U8] = {"u8", KIND_INT, 1},
    [ISO_GGUF_I8] = {"i8", KIND_INT, 1},
    [ISO_GGUF_U16] = {"u16", KIND_INT, 2},
    [ISO_GGUF_I16] = {"i16", KIND_INT, 2},
    [ISO_GGUF_U32] = {"u32", KIND_INT, 4},
    [ISO_GGUF_I32] = {"i32", KIND_INT, 4},
    [ISO_GGUF_F32] = {"f32", KIND_FLOAT, 4},
    [ISO_GGUF_BOOL] = {"bool", KIND_BOOL, 1},
    [ISO_GGUF_STRING] = {"string", KIND_STRING, 8},
    [ISO_GGUF_ARRAY] = {"array", KIND_ARRAY, 12},
    [ISO_GGUF_U64] = {"u64", KIND_INT, 8},
    [ISO_GGUF_I64] = {"i64", KIND_INT, 8},
    [ISO_GGUF_F64] = {"f64", KIND_FLOAT, 8},
};

const char *iso_gguf_type_name(iso_gguf_type type) {
  return (unsigned)type < ISO_GGUF_TYPE_COUNT ? types[type].name : "unknown";
}

iso_status iso_gguf_fail(iso_status code, uint64_t offset, const char *format, ...) {
  char what[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  return iso_fail(code, "GGUF: %s at byte %llu", what, (unsigned long long)offset);
}

static iso_status take(gguf_cursor *cursor, uint64_t bytes, const void **out_data) {
  *out_data = cursor->data + cursor->offset;
  if (bytes > cursor->size - cursor->offset)
    return iso_gguf_fail(
        ISO_ERROR_CORRUPT_DATA, cursor->offset, "%llu bytes are needed, %llu are left in the file",
        (unsigned long long)bytes, (unsigned long long)(cursor->size - cursor->offset));
  cursor->offset += bytes;
  return ISO_OK;
}

iso_status iso_gguf_take_u32(gguf_cursor *cursor, uint32_t *out_value) {
  const void *data;
  ISO_TRY(take(cursor, sizeof *out_value, &data));
  memcpy(out_value, data, sizeof *out_value);
  return ISO_OK;
}

iso_status iso_gguf_take_u64(gguf_cursor *cursor, uint64_t *out_value) {
  const void *data;
  ISO_TRY(take(cursor, sizeof *out_value, &data));
  memcpy(out_value, data, sizeof *out_value);
  return ISO_OK;
}

static iso_status take_string(gguf_cursor *cursor, iso_text_view *out_text) {
  const void *data;
  ISO_TRY(iso_gguf_take_u64(cursor, &out_text->length));
  ISO_TRY(take(cursor, out_text->length, &data));
  out_text->data = data;
  return ISO_OK;
}

iso_status iso_gguf_take_name(gguf_cursor *cursor, iso_text_view *out_name) {
  uint64_t start = cursor->offset;
  ISO_TRY(take_string(cursor, out_name));
  if (out_name->length < 1 || out_name->length > MAX_NAME_BYTES)
    return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, start,
                         "a name of %llu bytes, 1 to %d are possible,",
                         (unsigned long long)out_name->length, MAX_NAME_BYTES);
  for (uint64_t i = 0; i < out_name->length; i++) {
    uint8_t c = (uint8_t)out_name->data[i];
    if (c < 0x20 || c == 0x7f)
      return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, start + 8 + i, "control character in a name");
  }
  return ISO_OK;
}

static iso_status take_type(gguf_cursor *cursor, iso_gguf_type *out_type) {
  uint32_t type;
  ISO_TRY(iso_gguf_take_u32(cursor, &type));
  if (type >= ISO_GGUF_TYPE_COUNT)
    return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, cursor->offset - 4, "unknown value type %u", type);
  *out_type = (iso_gguf_type)type;
  return ISO_OK;
}

static iso_status take_elements(gguf_cursor *cursor, iso_gguf_value *value) {
  uint64_t least;
  if (__builtin_mul_overflow(value->count, types[value->type].bytes, &least) ||
      least > cursor->size - cursor->offset)
    return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, cursor->offset,
                         "%llu elements of type %s do not fit in the %llu bytes left",
                         (unsigned long long)value->count, types[value->type].name,
                         (unsigned long long)(cursor->size - cursor->offset));
  value->data = cursor->data + cursor->offset;
  value->offset = cursor->offset;
  if (value->type == ISO_GGUF_STRING) {
    iso_text_view text;
    for (uint64_t i = 0; i < value->count; i++)
      ISO_TRY(take_string(cursor, &text));
  } else {
    cursor->offset += least;
  }
  value->bytes = cursor->offset - value->offset;
  if (value->type == ISO_GGUF_BOOL)
    for (uint64_t i = 0; i < value->count; i++)
      if (value->data[i] > 1)
        return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, value->offset + i, "a bool of %u",
                             value->data[i]);
  return ISO_OK;
}

static iso_status take_value(gguf_cursor *cursor, iso_gguf_value *value) {
  ISO_TRY(take_type(cursor, &value->type));
  value->count = 1;
  value->is_array = value->type == ISO_GGUF_ARRAY;
  if (value->is_array) {
    ISO_TRY(take_type(cursor, &value->type));
    if (value->type == ISO_GGUF_ARRAY)
      return iso_gguf_fail(ISO_ERROR_UNSUPPORTED, cursor->offset - 4, "an array of arrays");
    ISO_TRY(iso_gguf_take_u64(cursor, &value->count));
  }
  return take_elements(cursor, value);
}

static iso_status take_pairs(gguf_cursor *cursor, uint64_t count, iso_text_view *keys,
                             gguf_metadata *metadata) {
  for (uint64_t i = 0; i < count; i++) {
    iso_text_view key = {0};
    ISO_TRY(iso_gguf_take_name(cursor, &key));
    iso_status status = take_value(cursor, &metadata->values[i]);
    if (status != ISO_OK)
      return iso_fail_context(status, "key \"%.*s\"", key.length < 80 ? (int)key.length : 80,
                              key.data);
    keys[i] = key;
  }
  uint32_t duplicate;
  iso_status status = iso_name_index_build(keys, (uint32_t)count, &metadata->keys, &duplicate);
  if (duplicate != UINT32_MAX)
    return iso_gguf_fail(status, (uint64_t)((const uint8_t *)keys[duplicate].data - cursor->data),
                         "the key \"%.*s\" comes twice, again",
                         keys[duplicate].length < 80 ? (int)keys[duplicate].length : 80,
                         keys[duplicate].data);
  ISO_TRY(status);
  for (uint64_t i = 0; i < count; i++)
    metadata->values[i].key = metadata->keys.names[i];
  metadata->count = count;
  return ISO_OK;
}

iso_status iso_gguf_take_metadata(gguf_cursor *cursor, uint64_t count,
                                  gguf_metadata *out_metadata) {
  enum { LEAST_PAIR_BYTES = 8 + 1 + 4 + 1, MAX_PAIRS = 1 << 20 };
  *out_metadata = (gguf_metadata){0};
  if (count > (cursor->size - cursor->offset) / LEAST_PAIR_BYTES || count > MAX_PAIRS)
    return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, cursor->offset,
                         "%llu keys are not possible in the %llu bytes", (unsigned long long)count,
                         (unsigned long long)(cursor->size - cursor->offset));
  if (count == 0)
    return ISO_OK;
  gguf_metadata metadata = {.values = calloc(count, sizeof *metadata.values)};
  iso_text_view *keys = calloc(count, sizeof *keys);
  iso_status status = metadata.values && keys
                          ? take_pairs(cursor, count, keys, &metadata)
                          : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "GGUF: no memory for %llu keys",
                                     (unsigned long long)count);
  free(keys);
  if (status == ISO_OK)
    *out_metadata = metadata;
  else
    iso_gguf_metadata_clear(&metadata);
  return status;
}

void iso_gguf_metadata_clear(gguf_metadata *metadata) {
  free(metadata->values);
  iso_name_index_clear(&metadata->keys);
  *metadata = (gguf_metadata){0};
}

const iso_gguf_value *iso_gguf_metadata_find(const gguf_metadata *metadata, const char *key) {
  uint32_t ordinal = iso_name_index_find(&metadata->keys, key);
  return ordinal == UINT32_MAX ? NULL : &metadata->values[ordinal];
}

#define LOAD(type, value, index)                                                                   \
  type loaded;                                                                                     \
  memcpy(&loaded, (value)->data + (index) * sizeof loaded, sizeof loaded)

int64_t iso_gguf_value_int(const iso_gguf_value *value, uint64_t index) {
  switch (value->type) {
  case ISO_GGUF_BOOL:
  case ISO_GGUF_U8:
    return value->data[index];
  case ISO_GGUF_I8:
    return (int8_t)value->data[index];
  case ISO_GGUF_U16: {
    LOAD(uint16_t, value, index);
    return loaded;
  }
  case ISO_GGUF_I16: {
    LOAD(int16_t, value, index);
    return loaded;
  }
  case ISO_GGUF_U32: {
    LOAD(uint32_t, value, index);
    return loaded;
  }
  case ISO_GGUF_I32: {
    LOAD(int32_t, value, index);
    return loaded;
  }
  case ISO_GGUF_I64: {
    LOAD(int64_t, value, index);
    return loaded;
  }
  case ISO_GGUF_U64: {
    LOAD(uint64_t, value, index);
    return loaded > INT64_MAX ? INT64_MAX : (int64_t)loaded;
  }
  default:
    return 0;
  }
}

double iso_gguf_value_float(const iso_gguf_value *value, uint64_t index) {
  switch (value->type) {
  case ISO_GGUF_F32: {
    LOAD(float, value, index);
    return (double)loaded;
  }
  case ISO_GGUF_F64: {
    LOAD(double, value, index);
    return loaded;
  }
  default:
    return (double)iso_gguf_value_int(value, index);
  }
}

/* *out_value is NULL when an optional key is absent. */
static iso_status find_kind(const gguf_metadata *metadata, const char *key, bool required,
                            type_kind kind, bool array, const iso_gguf_value **out_value) {
  static const char *const kind_names[] = {"an integer", "a float", "a bool", "a string"};
  static const char *const array_names[] = {"an array of integers", "an array of floats",
                                            "an array of bools", "an array of strings"};
  const iso_gguf_value *value = iso_gguf_metadata_find(metadata, key);
  *out_value = value;
  if (!value)
    return required ? iso_fail(ISO_ERROR_NOT_FOUND, "GGUF: key \"%s\" is missing", key) : ISO_OK;
  if (types[value->type].kind != kind || value->is_array != array)
    return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, value->offset, "key \"%s\" is %s%s, not %s,", key,
                         value->is_array ? "an array of " : "", types[value->type].name,
                         array ? array_names[kind] : kind_names[kind]);
  return ISO_OK;
}

iso_status iso_gguf_metadata_int(const gguf_metadata *metadata, const char *key, bool required,
                                 int64_t min, int64_t max, int64_t *out_value) {
  const iso_gguf_value *value;
  ISO_TRY(find_kind(metadata, key, required, KIND_INT, false, &value));
  if (!value)
    return ISO_OK;
  int64_t number = iso_gguf_value_int(value, 0);
  /* A u64 that is clamped to INT64_MAX must not pass for it. */
  bool clamped = value->type == ISO_GGUF_U64 && value->data[7] > 0x7f;
  if (clamped || number < min || number > max)
    return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, value->offset,
                         "key \"%s\" is %s%lld, not in %lld..%lld,", key, clamped ? "above " : "",
                         (long long)number, (long long)min, (long long)max);
  *out_value = number;
  return ISO_OK;
}

iso_status iso_gguf_metadata_alignment(const gguf_metadata *metadata, uint64_t *out_alignment) {
  enum { DEFAULT_ALIGNMENT = 32, LEAST_ALIGNMENT = 8, MAX_ALIGNMENT = 1 << 16 };
  int64_t alignment = DEFAULT_ALIGNMENT;
  ISO_TRY(iso_gguf_metadata_int(metadata, "general.alignment", false, LEAST_ALIGNMENT,
                                MAX_ALIGNMENT, &alignment));
  if ((alignment & (alignment - 1)) != 0)
    return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA,
                         iso_gguf_metadata_find(metadata, "general.alignment")->offset,
                         "general.alignment is %lld, not a power of two,", (long long)alignment);
  *out_alignment = (uint64_t)alignment;
  return ISO_OK;
}

static iso_status get_float(const iso_gguf *gguf, const char *key, bool required, double min,
                            double max, double *out_value) {
  const iso_gguf_value *value;
  ISO_TRY(find_kind(iso_gguf_metadata(gguf), key, required, KIND_FLOAT, false, &value));
  if (!value)
    return ISO_OK;
  double number = iso_gguf_value_float(value, 0);
  if (!(number >= min && number <= max))
    return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, value->offset, "key \"%s\" is %g, not in %g..%g,",
                         key, number, min, max);
  *out_value = number;
  return ISO_OK;
}

static iso_status get_bool(const iso_gguf *gguf, const char *key, bool required, bool *out_value) {
  const iso_gguf_value *value;
  ISO_TRY(find_kind(iso_gguf_metadata(gguf), key, required, KIND_BOOL, false, &value));
  if (value)
    *out_value = value->data[0] != 0;
  return ISO_OK;
}

/* The string at `data`, whose length was checked when the file was opened. */
static iso_text_view string_at(const uint8_t *data) {
  iso_text_view text = {.data = (const char *)data + sizeof text.length};
  memcpy(&text.length, data, sizeof text.length);
  return text;
}

static iso_status get_string(const iso_gguf *gguf, const char *key, bool required,
                             iso_text_view *out_value) {
  const iso_gguf_value *value;
  ISO_TRY(find_kind(iso_gguf_metadata(gguf), key, required, KIND_STRING, false, &value));
  if (value)
    *out_value = string_at(value->data);
  return ISO_OK;
}

static iso_status get_array(const iso_gguf *gguf, const char *key, bool required, type_kind kind,
                            const iso_gguf_value **out_array) {
  const iso_gguf_value *value;
  ISO_TRY(find_kind(iso_gguf_metadata(gguf), key, required, kind, true, &value));
  if (value)
    *out_array = value;
  return ISO_OK;
}

static iso_status get_strings(const iso_gguf *gguf, const char *key, bool required,
                              iso_text_view **out_strings, uint64_t *out_count) {
  const iso_gguf_value *value = NULL;
  ISO_TRY(get_array(gguf, key, required, KIND_STRING, &value));
  if (!value)
    return ISO_OK;
  iso_text_view *strings = calloc(value->count ? value->count : 1, sizeof *strings);
  if (!strings)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "GGUF: no memory for the %llu strings of \"%s\"",
                    (unsigned long long)value->count, key);
  const uint8_t *data = value->data;
  for (uint64_t i = 0; i < value->count; i++) {
    strings[i] = string_at(data);
    data = (const uint8_t *)strings[i].data + strings[i].length;
  }
  *out_strings = strings;
  *out_count = value->count;
  return ISO_OK;
}

iso_status iso_gguf_get_int(const iso_gguf *gguf, const char *key, int64_t min, int64_t max,
                            int64_t *out_value) {
  return iso_gguf_metadata_int(iso_gguf_metadata(gguf), key, true, min, max, out_value);
}
iso_status iso_gguf_get_optional_int(const iso_gguf *gguf, const char *key, int64_t min,
                                     int64_t max, int64_t *out_value) {
  return iso_gguf_metadata_int(iso_gguf_metadata(gguf), key, false, min, max, out_value);
}
iso_status iso_gguf_get_float(const iso_gguf *gguf, const char *key, double min, double max,
                              double *out_value) {
  return get_float(gguf, key, true, min, max, out_value);
}
iso_status iso_gguf_get_optional_float(const iso_gguf *gguf, const char *key, double min,
                                       double max, double *out_value) {
  return get_float(gguf, key, false, min, max, out_value);
}
iso_status iso_gguf_get_bool(const iso_gguf *gguf, const char *key, bool *out_value) {
  return get_bool(gguf, key, true, out_value);
}
iso_status iso_gguf_get_optional_bool(const iso_gguf *gguf, const char *key, bool *out_value) {
  return get_bool(gguf, key, false, out_value);
}
iso_status iso_gguf_get_string(const iso_gguf *gguf, const char *key, iso_text_view *out_value) {
  return get_string(gguf, key, true, out_value);
}
iso_status iso_gguf_get_optional_string(const iso_gguf *gguf, const char *key,
                                        iso_text_view *out_value) {
  return get_string(gguf, key, false, out_value);
}
iso_status iso_gguf_get_int_array(const iso_gguf *gguf, const char *key,
                                  const iso_gguf_value **out_array) {
  return get_array(gguf, key, true, KIND_INT, out_array);
}
iso_status iso_gguf_get_optional_int_array(const iso_gguf *gguf, const char *key,
                                           const iso_gguf_value **out_array) {
  return get_array(gguf, key, false, KIND_INT, out_array);
}
iso_status iso_gguf_get_float_array(const iso_gguf *gguf, const char *key,
                                    const iso_gguf_value **out_array) {
  return get_array(gguf, key, true, KIND_FLOAT, out_array);
}
iso_status iso_gguf_get_optional_float_array(const iso_gguf *gguf, const char *key,
                                             const iso_gguf_value **out_array) {
  return get_array(gguf, key, false, KIND_FLOAT, out_array);
}
iso_status iso_gguf_get_string_array(const iso_gguf *gguf, const char *key,
                                     iso_text_view **out_strings, uint64_t *out_count) {
  return get_strings(gguf, key, true, out_strings, out_count);
}
iso_status iso_gguf_get_optional_string_array(const iso_gguf *gguf, const char *key,
                                              iso_text_view **out_strings, uint64_t *out_count) {
  return get_strings(gguf, key, false, out_strings, out_count);
}
