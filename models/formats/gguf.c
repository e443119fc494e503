#include "models/formats/gguf.h"
#include "models/formats/gguf_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 1 << 20 };

typedef struct gguf_shard {
  iso_file_map map; /* closed when the bytes are the caller's */
  const uint8_t *data;
  uint64_t size;
  uint32_t version;
  uint64_t alignment;
  gguf_metadata metadata; /* kept for the first shard only */
} gguf_shard;

struct iso_gguf {
  gguf_shard *shards;
  uint32_t shard_count;
  iso_file_tensor *tensors;
  iso_text_view *tensor_names; /* while opening */
  uint64_t tensor_count;
  iso_name_index names;
};

static iso_status take_header(gguf_cursor *cursor, gguf_shard *shard, uint64_t *out_tensor_count,
                              uint64_t *out_pair_count) {
  static const uint32_t magic = 0x46554747; /* "GGUF" */
  uint32_t mark;
  ISO_TRY(iso_gguf_take_u32(cursor, &mark));
  if (mark != magic)
    return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, 0, "not a GGUF file: no \"GGUF\"");
  ISO_TRY(iso_gguf_take_u32(cursor, &shard->version));
  uint32_t swapped = __builtin_bswap32(shard->version);
  if (swapped >= 1 && swapped <= 3)
    return iso_gguf_fail(ISO_ERROR_UNSUPPORTED, 4,
                         "a big-endian file (version %u); convert it to "
                         "little-endian: version",
                         swapped);
  if (shard->version < 2 || shard->version > 3)
    return iso_gguf_fail(ISO_ERROR_UNSUPPORTED, 4, "version %u, only 2 and 3 are read; version",
                         shard->version);
  ISO_TRY(iso_gguf_take_u64(cursor, out_tensor_count));
  return iso_gguf_take_u64(cursor, out_pair_count);
}

/* Types that other runtimes write and no scheme is for (ggml/docs/gguf.md). */
static iso_status refuse_type(uint64_t offset, int shown, const char *tensor, uint32_t type) {
  static const struct {
    uint32_t type;
    const char *name;
  } foreign[] = {{9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
                 {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {25, "I16"},
                 {27, "I64"},   {28, "F64"},   {29, "IQ1_M"},   {34, "TQ1_0"},  {35, "TQ2_0"},
                 {39, "MXFP4"}, {40, "NVFP4"}, {41, "Q1_0"}};
  for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
    if (foreign[i].type == type)
      return iso_gguf_fail(
          ISO_ERROR_UNSUPPORTED, offset,
          "tensor \"%.*s\" is stored as %s, which is not supported; files in Q4_K_M "
          "and other types are to be had of most models,",
          shown, tensor, foreign[i].name);
  return iso_gguf_fail(ISO_ERROR_UNSUPPORTED, offset, "tensor \"%.*s\" has the unknown type %u",
                       shown, tensor, type);
}

/* Reads one tensor description; `data` is still to be set, `offset` is relative to the data
 * section. */
static iso_status take_tensor(gguf_cursor *cursor, iso_text_view *out_name,
                              iso_file_tensor *tensor) {
  uint64_t start = cursor->offset;
  ISO_TRY(iso_gguf_take_name(cursor, out_name));
  int shown = out_name->length < 80 ? (int)out_name->length : 80;
  uint32_t n_dims;
  ISO_TRY(iso_gguf_take_u32(cursor, &n_dims));
  if (n_dims < 1 || n_dims > ISO_MAX_DIMS)
    return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, cursor->offset - 4,
                         "tensor \"%.*s\" has %u dimensions, 1 to %d are possible,", shown,
                         out_name->data, n_dims, ISO_MAX_DIMS);
  tensor->n_dims = (int)n_dims;
  for (int i = 0; i < ISO_MAX_DIMS; i++)
    tensor->dims[i] = 1;
  for (uint32_t i = 0; i < n_dims; i++) { /* innermost first in the file */
    uint64_t dim;
    ISO_TRY(iso_gguf_take_u64(cursor, &dim));
    if (dim < 1 || dim > (uint64_t)ISO_MAX_DIM)
      return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, cursor->offset - 8,
                           "tensor \"%.*s\" has a dimension of %lld, 1 to %lld are possible,",
                           shown, out_name->data, (long long)dim, (long long)ISO_MAX_DIM);
    tensor->dims[n_dims - 1 - i] = (int64_t)dim;
  }
  uint32_t type;
  ISO_TRY(iso_gguf_take_u32(cursor, &type));
  if (!iso_scheme_from_gguf(type, &tensor->scheme))
    return refuse_type(cursor->offset - 4, shown, out_name->data, type);
  const iso_scheme_info *info = iso_scheme_get_info(tensor->scheme);
  tensor->type_name = info->name;
  ISO_TRY(iso_gguf_take_u64(cursor, &tensor->offset));
  /* The name gets its NUL only when the index is built. */
  char name[96];
  snprintf(name, sizeof name, "%.*s", shown, out_name->data);
  tensor->name = name;
  iso_status status = iso_file_tensor_measure(tensor, info->block_elements, info->block_bytes);
  tensor->name = NULL;
  if (status != ISO_OK)
    return iso_gguf_fail(status, start, "%s,", iso_status_message());
  return ISO_OK;
}

/* Turns offsets relative to the data section into places in the file, and checks them. */
static iso_status place_tensors(const gguf_shard *shard, uint64_t header_bytes,
                                iso_file_tensor *tensors, const iso_text_view *names,
                                uint64_t count) {
  uint64_t data_start = (header_bytes + shard->alignment - 1) / shard->alignment * shard->alignment;
  if (count > 0 && data_start > shard->size)
    return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, shard->size, "the file ends before its data");
  for (uint64_t i = 0; i < count; i++) {
    iso_file_tensor *tensor = &tensors[i];
    uint64_t room = shard->size - data_start;
    int shown = names[i].length < 80 ? (int)names[i].length : 80;
    if (tensor->offset % shard->alignment != 0)
      return iso_gguf_fail(ISO_ERROR_CORRUPT_DATA, data_start,
                           "tensor \"%.*s\" lies %llu bytes into the data, which is not aligned to "
                           "%llu; the data starts",
                           shown, names[i].data, (unsigned long long)tensor->offset,
                           (unsigned long long)shard->alignment);
    if (tensor->offset > room || tensor->bytes > room - tensor->offset)
      return iso_gguf_fail(
          ISO_ERROR_CORRUPT_DATA, data_start,
          "tensor \"%.*s\" has %llu bytes, %llu bytes into the data, and runs past "
          "the end of the file (is the download complete?); the data starts",
          shown, names[i].data, (unsigned long long)tensor->bytes,
          (unsigned long long)tensor->offset);
    tensor->offset += data_start;
    tensor->data = shard->data + tensor->offset;
  }
  return ISO_OK;
}

/* Parses a shard and appends its tensors to the reader. */
static iso_status parse_shard(iso_gguf *gguf, uint32_t shard_index) {
  enum { LEAST_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8 };
  gguf_shard *shard = &gguf->shards[shard_index];
  gguf_cursor cursor = {.data = shard->data, .size = shard->size};
  uint64_t tensor_count, pair_count;
  ISO_TRY(take_header(&cursor, shard, &tensor_count, &pair_count));
  if (tensor_count > (cursor.size - cursor.offset) / LEAST_TENSOR_BYTES ||
      tensor_count > MAX_TENSORS - gguf->tensor_count)
    return iso_gguf_fail(
        ISO_ERROR_CORRUPT_DATA, 8, "%llu tensors are not possible in the %llu bytes",
        (unsigned long long)tensor_count, (unsigned long long)(cursor.size - cursor.offset));
  ISO_TRY(iso_gguf_take_metadata(&cursor, pair_count, &shard->metadata));
  ISO_TRY(iso_gguf_metadata_alignment(&shard->metadata, &shard->alignment));
  if (tensor_count == 0)
    return ISO_OK;

  uint64_t first = gguf->tensor_count, total = first + tensor_count;
  iso_file_tensor *tensors = reallocarray(gguf->tensors, total, sizeof *tensors);
  if (tensors)
    gguf->tensors = tensors;
  iso_text_view *names = reallocarray(gguf->tensor_names, total, sizeof *names);
  if (names)
    gguf->tensor_names = names;
  if (!tensors || !names)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "GGUF: no memory for %llu tensors",
                    (unsigned long long)total);
  for (uint64_t i = first; i < total; i++) {
    tensors[i] = (iso_file_tensor){.shard = shard_index};
    ISO_TRY(take_tensor(&cursor, &names[i], &tensors[i]));
  }
  gguf->tensor_count = total;
  return place_tensors(shard, cursor.offset, tensors + first, names + first, tensor_count);
}

/* What spans shards: unique names, no overlaps. */
static iso_status index_tensors(iso_gguf *gguf) {
  uint32_t duplicate;
  iso_status status = iso_name_index_build(gguf->tensor_names, (uint32_t)gguf->tensor_count,
                                           &gguf->names, &duplicate);
  if (duplicate != UINT32_MAX) {
    const iso_text_view *name = &gguf->tensor_names[duplicate];
    const uint8_t *start = gguf->shards[gguf->tensors[duplicate].shard].data;
    return iso_gguf_fail(status, (uint64_t)((const uint8_t *)name->data - start),
                         "the tensor name \"%.*s\" comes twice, again",
                         name->length < 80 ? (int)name->length : 80, name->data);
  }
  ISO_TRY(status);
  for (uint64_t i = 0; i < gguf->tensor_count; i++)
    gguf->tensors[i].name = gguf->names.names[i];
  free(gguf->tensor_names);
  gguf->tensor_names = NULL;
  return iso_fail_context(iso_file_tensor_check_overlap(gguf->tensors, gguf->tensor_count), "GGUF");
}

/* The number of shards that a first shard calls for; 1 for a whole file. */
static iso_status read_split(const gguf_metadata *metadata, int64_t *out_count, int64_t *out_number,
                             int64_t *out_tensors) {
  *out_count = 1;
  *out_number = 0;
  *out_tensors = -1;
  ISO_TRY(iso_gguf_metadata_int(metadata, "split.count", false, 0, UINT16_MAX, out_count));
  if (*out_count <= 1) {
    *out_count = 1;
    return ISO_OK;
  }
  ISO_TRY(iso_gguf_metadata_int(metadata, "split.no", true, 0, *out_count - 1, out_number));
  return iso_gguf_metadata_int(metadata, "split.tensors.count", false, 0, INT32_MAX, out_tensors);
}

/* Opens shards 1 to count - 1; the first is parsed. */
static iso_status open_other_shards(iso_gguf *gguf, const char *path, int64_t count,
                                    int64_t tensor_count) {
  char suffix[32];
  int suffix_length = snprintf(suffix, sizeof suffix, "-00001-of-%05d.gguf", (int)count);
  size_t length = strlen(path);
  if (length < (size_t)suffix_length || strcmp(path + length - suffix_length, suffix) != 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "GGUF: the first of %lld split files must have a name that ends in %s",
                    (long long)count, suffix);
  gguf_shard *shards = reallocarray(gguf->shards, (size_t)count, sizeof *shards);
  if (!shards)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "GGUF: no memory for %lld shards", (long long)count);
  gguf->shards = shards;
  for (uint32_t i = 1; i < count; i++) {
    char *shard_path = NULL;
    if (asprintf(&shard_path, "%.*s-%05u-of-%05d.gguf", (int)(length - suffix_length), path, i + 1,
                 (int)count) < 0)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "GGUF: no memory for a path");
    gguf_shard *shard = &gguf->shards[i];
    *shard = (gguf_shard){0};
    gguf->shard_count = i + 1;
    iso_status status = iso_file_map_open(shard_path, &shard->map);
    if (status == ISO_OK) {
      shard->data = shard->map.data;
      shard->size = shard->map.size;
      status = parse_shard(gguf, i);
      int64_t own_count, number, ignored;
      if (status == ISO_OK)
        status = read_split(&shard->metadata, &own_count, &number, &ignored);
      if (status == ISO_OK && (own_count != count || number != i))
        status = iso_fail(ISO_ERROR_CORRUPT_DATA, "it says that it is shard %lld of %lld",
                          (long long)number + 1, (long long)own_count);
      iso_gguf_metadata_clear(&shard->metadata);
    }
    status = iso_fail_context(status, "shard %u of %d, %s", i + 1, (int)count, shard_path);
    free(shard_path);
    ISO_TRY(status);
  }
  if (tensor_count >= 0 && (uint64_t)tensor_count != gguf->tensor_count)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "GGUF: the shards hold %llu tensors, split.tensors.count says %lld",
                    (unsigned long long)gguf->tensor_count, (long long)tensor_count);
  return ISO_OK;
}

/* `map` is taken over. `path` is NULL for memory. */
static iso_status open_first(const char *path, iso_file_map map, const void *data, uint64_t size,
                             iso_gguf **out_gguf) {
  iso_gguf *gguf = calloc(1, sizeof *gguf);
  if (gguf)
    gguf->shards = calloc(1, sizeof *gguf->shards);
  if (!gguf || !gguf->shards) {
    free(gguf);
    iso_file_map_close(&map);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "GGUF: no memory for a reader");
  }
  gguf->shards[0] = (gguf_shard){.map = map, .data = data, .size = size};
  gguf->shard_count = 1;
  int64_t count, number, tensor_count;
  iso_status status = parse_shard(gguf, 0);
  if (status == ISO_OK)
    status = read_split(&gguf->shards[0].metadata, &count, &number, &tensor_count);
  if (status == ISO_OK && count > 1) {
    if (number != 0)
      status =
          iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                   "GGUF: this is shard %lld of %lld; open the first, ...-00001-of-%05lld.gguf",
                   (long long)number + 1, (long long)count, (long long)count);
    else if (!path)
      status = iso_fail(ISO_ERROR_UNSUPPORTED, "GGUF: a split file cannot be read from memory");
    else
      status = open_other_shards(gguf, path, count, tensor_count);
  }
  if (status == ISO_OK)
    status = index_tensors(gguf);
  if (status != ISO_OK) {
    iso_gguf_close(gguf);
    return status;
  }
  *out_gguf = gguf;
  return ISO_OK;
}

iso_status iso_gguf_open(const char *path, iso_gguf **out_gguf) {
  *out_gguf = NULL;
  iso_file_map map;
  ISO_TRY(iso_file_map_open(path, &map));
  return iso_fail_context(open_first(path, map, map.data, map.size, out_gguf), "%s", path);
}

iso_status iso_gguf_open_memory(const void *data, uint64_t size, iso_gguf **out_gguf) {
  *out_gguf = NULL;
  return open_first(NULL, (iso_file_map){0}, data, size, out_gguf);
}

void iso_gguf_close(iso_gguf *gguf) {
  if (!gguf)
    return;
  for (uint32_t i = 0; i < gguf->shard_count; i++) {
    iso_gguf_metadata_clear(&gguf->shards[i].metadata);
    iso_file_map_close(&gguf->shards[i].map);
  }
  free(gguf->shards);
  free(gguf->tensors);
  free(gguf->tensor_names);
  iso_name_index_clear(&gguf->names);
  free(gguf);
}

uint32_t iso_gguf_version(const iso_gguf *gguf) { return gguf->shards[0].version; }
uint32_t iso_gguf_shard_count(const iso_gguf *gguf) { return gguf->shard_count; }

const iso_file_map *iso_gguf_shard_map(const iso_gguf *gguf, uint32_t shard) {
  return &gguf->shards[shard].map;
}

uint64_t iso_gguf_tensor_count(const iso_gguf *gguf) { return gguf->tensor_count; }

const iso_file_tensor *iso_gguf_tensor_at(const iso_gguf *gguf, uint64_t index) {
  return &gguf->tensors[index];
}

const iso_file_tensor *iso_gguf_find_tensor(const iso_gguf *gguf, const char *name) {
  uint32_t ordinal = iso_name_index_find(&gguf->names, name);
  return ordinal == UINT32_MAX ? NULL : &gguf->tensors[ordinal];
}

const gguf_metadata *iso_gguf_metadata(const iso_gguf *gguf) { return &gguf->shards[0].metadata; }
uint64_t iso_gguf_value_count(const iso_gguf *gguf) { return gguf->shards[0].metadata.count; }

const iso_gguf_value *iso_gguf_value_at(const iso_gguf *gguf, uint64_t index) {
  return &gguf->shards[0].metadata.values[index];
}

const iso_gguf_value *iso_gguf_find(const iso_gguf *gguf, const char *key) {
  return iso_gguf_metadata_find(&gguf->shards[0].metadata, key);
}
