/* GGUF files, versions 2 and 3, little-endian, whole or split (ggml/docs/gguf.md).
 *
 * The file is mapped; metadata and tensors are pointers into it. Opening checks everything once:
 * counts against the bytes that are left before memory is taken for them, every length, type,
 * dimension, offset and overlap. What is broken is refused with the byte offset. A reader is
 * immutable: any number of threads may use it. */
#ifndef ISOMER_MODELS_FORMATS_GGUF_H
#define ISOMER_MODELS_FORMATS_GGUF_H

#include "core/file.h"
#include "models/formats/file_tensor.h"
#include "models/formats/text_view.h"

typedef struct iso_gguf iso_gguf;

/* Opens a file, and with it every shard of a split one: `path` is then its first shard,
 * "name-00001-of-0000N.gguf", and the others lie beside it. */
ISO_MUST_CHECK iso_status iso_gguf_open(const char *path, iso_gguf **out_gguf);
/* Reads an unsplit file from memory, which must outlive the reader. */
ISO_MUST_CHECK iso_status iso_gguf_open_memory(const void *data, uint64_t size,
                                               iso_gguf **out_gguf);
/* Unmaps and frees; NULL is fine. */
void iso_gguf_close(iso_gguf *gguf);

/* Format version of the first shard: 2 or 3. */
uint32_t iso_gguf_version(const iso_gguf *gguf);
uint32_t iso_gguf_shard_count(const iso_gguf *gguf);
/* The mapping of a shard, for iso_file_map_advise(); a closed map for memory. */
const iso_file_map *iso_gguf_shard_map(const iso_gguf *gguf, uint32_t shard);

/* Tensors of all shards, in file order. */
uint64_t iso_gguf_tensor_count(const iso_gguf *gguf);
const iso_file_tensor *iso_gguf_tensor_at(const iso_gguf *gguf, uint64_t index);
/* NULL when there is none of that name. */
const iso_file_tensor *iso_gguf_find_tensor(const iso_gguf *gguf, const char *name);

/* Metadata value types; numbers are the file's. */
typedef enum iso_gguf_type {
  ISO_GGUF_U8 = 0,
  ISO_GGUF_I8 = 1,
  ISO_GGUF_U16 = 2,
  ISO_GGUF_I16 = 3,
  ISO_GGUF_U32 = 4,
  ISO_GGUF_I32 = 5,
  ISO_GGUF_F32 = 6,
  ISO_GGUF_BOOL = 7,
  ISO_GGUF_STRING = 8,
  ISO_GGUF_ARRAY = 9,
  ISO_GGUF_U64 = 10,
  ISO_GGUF_I64 = 11,
  ISO_GGUF_F64 = 12,
  ISO_GGUF_TYPE_COUNT = 13
} iso_gguf_type;

/* "u32", "string", ...; "unknown" when out of range. */
const char *iso_gguf_type_name(iso_gguf_type type);

/* One key and its value, as it lies in the file (unaligned, little-endian). */
typedef struct iso_gguf_value {
  const char *key;
  iso_gguf_type type;  /* of one element: never ARRAY */
  bool is_array;       /* arrays do not nest */
  uint64_t count;      /* elements; 1 unless is_array */
  const uint8_t *data; /* the first element */
  uint64_t bytes;      /* of all elements */
  uint64_t offset;     /* of data, in the first shard */
} iso_gguf_value;

/* Metadata of the first shard, in file order. */
uint64_t iso_gguf_value_count(const iso_gguf *gguf);
const iso_gguf_value *iso_gguf_value_at(const iso_gguf *gguf, uint64_t index);
/* NULL when the key is absent. */
const iso_gguf_value *iso_gguf_find(const iso_gguf *gguf, const char *key);

/* Element `index` (< count) of a value whose type is an integer or BOOL; a u64 beyond INT64_MAX
 * reads as INT64_MAX. 0 for other types. */
int64_t iso_gguf_value_int(const iso_gguf_value *value, uint64_t index);
/* Element `index` (< count) of a value of any numeric type. */
double iso_gguf_value_float(const iso_gguf_value *value, uint64_t index);

/* Typed look-ups. `get` needs the key; `get_optional` leaves *out_value as it was when the key is
 * absent. Both refuse a value of another kind or outside [min, max], naming key and offset.
 * Integers may be stored in any integer type, floats in either. */
ISO_MUST_CHECK iso_status iso_gguf_get_int(const iso_gguf *gguf, const char *key, int64_t min,
                                           int64_t max, int64_t *out_value);
ISO_MUST_CHECK iso_status iso_gguf_get_optional_int(const iso_gguf *gguf, const char *key,
                                                    int64_t min, int64_t max, int64_t *out_value);
ISO_MUST_CHECK iso_status iso_gguf_get_float(const iso_gguf *gguf, const char *key, double min,
                                             double max, double *out_value);
ISO_MUST_CHECK iso_status iso_gguf_get_optional_float(const iso_gguf *gguf, const char *key,
                                                      double min, double max, double *out_value);
ISO_MUST_CHECK iso_status iso_gguf_get_bool(const iso_gguf *gguf, const char *key, bool *out_value);
ISO_MUST_CHECK iso_status iso_gguf_get_optional_bool(const iso_gguf *gguf, const char *key,
                                                     bool *out_value);
ISO_MUST_CHECK iso_status iso_gguf_get_string(const iso_gguf *gguf, const char *key,
                                              iso_text_view *out_value);
ISO_MUST_CHECK iso_status iso_gguf_get_optional_string(const iso_gguf *gguf, const char *key,
                                                       iso_text_view *out_value);
/* Arrays of integers or of floats, read with iso_gguf_value_int() and _float(). */
ISO_MUST_CHECK iso_status iso_gguf_get_int_array(const iso_gguf *gguf, const char *key,
                                                 const iso_gguf_value **out_array);
ISO_MUST_CHECK iso_status iso_gguf_get_optional_int_array(const iso_gguf *gguf, const char *key,
                                                          const iso_gguf_value **out_array);
ISO_MUST_CHECK iso_status iso_gguf_get_float_array(const iso_gguf *gguf, const char *key,
                                                   const iso_gguf_value **out_array);
ISO_MUST_CHECK iso_status iso_gguf_get_optional_float_array(const iso_gguf *gguf, const char *key,
                                                            const iso_gguf_value **out_array);
/* An array of strings: *out_strings is malloc'ed, the caller frees it; the text stays in the file.
 */
ISO_MUST_CHECK iso_status iso_gguf_get_string_array(const iso_gguf *gguf, const char *key,
                                                    iso_text_view **out_strings,
                                                    uint64_t *out_count);
ISO_MUST_CHECK iso_status iso_gguf_get_optional_string_array(const iso_gguf *gguf, const char *key,
                                                             iso_text_view **out_strings,
                                                             uint64_t *out_count);

#endif
