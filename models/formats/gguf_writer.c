#include "models/formats/gguf_writer.h"
#include "models/formats/gguf_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct declared_tensor {
  size_t name_start; /* in the text of `infos` */
  uint64_t name_length;
  uint64_t bytes;
  size_t offset_place; /* where in `infos` its offset goes, once the alignment is known */
} declared_tensor;

/* A section of the header, built in memory. */
typedef struct section {
  FILE *stream;
  char *text; /* valid once the stream is closed */
  size_t size;
  uint64_t count; /* pairs or tensors */
} section;

struct iso_gguf_writer {
  iso_file_writer *file;
  section pairs;
  section infos;
  declared_tensor *tensors;
  uint64_t capacity;
  uint64_t alignment;
  uint64_t current;  /* tensor being written */
  uint64_t position; /* bytes of it so far */
  bool header_written;
  bool broken; /* a write failed: nothing more is taken */
};

iso_status iso_gguf_writer_create(const char *path, iso_gguf_writer **out_writer) {
  *out_writer = NULL;
  iso_gguf_writer *writer = calloc(1, sizeof *writer);
  if (!writer)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to write %s", path);
  writer->pairs.stream = open_memstream(&writer->pairs.text, &writer->pairs.size);
  writer->infos.stream = open_memstream(&writer->infos.text, &writer->infos.size);
  iso_status status = iso_file_writer_create(path, &writer->file);
  if (status == ISO_OK && (!writer->pairs.stream || !writer->infos.stream))
    status = iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to write %s", path);
  if (status == ISO_OK)
    *out_writer = writer;
  else
    iso_gguf_writer_destroy(writer);
  return status;
}

void iso_gguf_writer_destroy(iso_gguf_writer *writer) {
  if (!writer)
    return;
  if (writer->pairs.stream)
    fclose(writer->pairs.stream);
  if (writer->infos.stream)
    fclose(writer->infos.stream);
  free(writer->pairs.text);
  free(writer->infos.text);
  free(writer->tensors);
  iso_file_writer_destroy(writer->file);
  free(writer);
}

/* Errors of a memory stream stick, and are found when it is closed. */
static void put(section *part, const void *data, uint64_t bytes) {
  if (bytes > 0)
    (void)fwrite(data, 1, bytes, part->stream);
}
static void put_u32(section *part, uint32_t value) { put(part, &value, sizeof value); }
static void put_u64(section *part, uint64_t value) { put(part, &value, sizeof value); }

static void put_string(section *part, const char *data, uint64_t length) {
  put_u64(part, length);
  put(part, data, length);
}

static iso_status fail_if_written(const iso_gguf_writer *writer, const char *what) {
  if (writer->header_written)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "GGUF: \"%s\" comes too late, tensor data has been written", what);
  return ISO_OK;
}

static iso_status add(iso_gguf_writer *writer, const char *key, iso_gguf_type type, bool is_array,
                      uint64_t count, const void *data, uint64_t bytes) {
  ISO_TRY(fail_if_written(writer, key));
  section *pairs = &writer->pairs;
  put_string(pairs, key, strlen(key));
  if (is_array) {
    put_u32(pairs, ISO_GGUF_ARRAY);
    put_u32(pairs, type);
    put_u64(pairs, count);
  } else {
    put_u32(pairs, type);
  }
  put(pairs, data, bytes);
  pairs->count++;
  return ISO_OK;
}

iso_status iso_gguf_writer_add_u32(iso_gguf_writer *writer, const char *key, uint32_t value) {
  return add(writer, key, ISO_GGUF_U32, false, 1, &value, sizeof value);
}
iso_status iso_gguf_writer_add_u64(iso_gguf_writer *writer, const char *key, uint64_t value) {
  return add(writer, key, ISO_GGUF_U64, false, 1, &value, sizeof value);
}
iso_status iso_gguf_writer_add_f32(iso_gguf_writer *writer, const char *key, float value) {
  return add(writer, key, ISO_GGUF_F32, false, 1, &value, sizeof value);
}
iso_status iso_gguf_writer_add_bool(iso_gguf_writer *writer, const char *key, bool value) {
  uint8_t byte = value;
  return add(writer, key, ISO_GGUF_BOOL, false, 1, &byte, 1);
}
iso_status iso_gguf_writer_add_string(iso_gguf_writer *writer, const char *key, const char *value) {
  ISO_TRY(add(writer, key, ISO_GGUF_STRING, false, 1, NULL, 0));
  put_string(&writer->pairs, value, strlen(value));
  return ISO_OK;
}
iso_status iso_gguf_writer_add_i32_array(iso_gguf_writer *writer, const char *key,
                                         const int32_t *values, uint64_t count) {
  return add(writer, key, ISO_GGUF_I32, true, count, values, count * sizeof *values);
}
iso_status iso_gguf_writer_add_f32_array(iso_gguf_writer *writer, const char *key,
                                         const float *values, uint64_t count) {
  return add(writer, key, ISO_GGUF_F32, true, count, values, count * sizeof *values);
}
iso_status iso_gguf_writer_add_string_array(iso_gguf_writer *writer, const char *key,
                                            const iso_text_view *values, uint64_t count) {
  ISO_TRY(add(writer, key, ISO_GGUF_STRING, true, count, NULL, 0));
  for (uint64_t i = 0; i < count; i++)
    put_string(&writer->pairs, values[i].data, values[i].length);
  return ISO_OK;
}
iso_status iso_gguf_writer_add_value(iso_gguf_writer *writer, const iso_gguf_value *value) {
  return add(writer, value->key, value->type, value->is_array, value->count, value->data,
             value->bytes);
}

iso_status iso_gguf_writer_add_tensor(iso_gguf_writer *writer, const char *name, iso_scheme scheme,
                                      int n_dims, const int64_t *dims) {
  ISO_TRY(fail_if_written(writer, name));
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  if (!info || info->gguf_type < 0)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "GGUF: tensor \"%s\" has the scheme %s, which the format "
                    "does not have",
                    name, info ? info->name : "unknown");
  iso_file_tensor facts = {.name = name, .type_name = info->name, .n_dims = n_dims};
  for (int i = 0; i < n_dims && i < ISO_MAX_DIMS; i++)
    facts.dims[i] = dims[i];
  ISO_TRY(iso_file_tensor_measure(&facts, info->block_elements, info->block_bytes));
  section *infos = &writer->infos;
  if (infos->count == writer->capacity) {
    uint64_t capacity = writer->capacity ? 2 * writer->capacity : 64;
    declared_tensor *tensors = reallocarray(writer->tensors, capacity, sizeof *tensors);
    if (!tensors)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "GGUF: no memory for %llu tensors",
                      (unsigned long long)capacity);
    writer->tensors = tensors;
    writer->capacity = capacity;
  }
  declared_tensor *tensor = &writer->tensors[infos->count++];
  *tensor = (declared_tensor){.name_length = strlen(name), .bytes = facts.bytes};
  tensor->name_start = (size_t)ftello(infos->stream) + sizeof(uint64_t);
  put_string(infos, name, tensor->name_length);
  put_u32(infos, (uint32_t)n_dims);
  for (int i = n_dims - 1; i >= 0; i--) /* innermost first in the file */
    put_u64(infos, (uint64_t)dims[i]);
  put_u32(infos, (uint32_t)info->gguf_type);
  tensor->offset_place = (size_t)ftello(infos->stream);
  put_u64(infos, 0);
  return ISO_OK;
}

static iso_status close_section(section *part) {
  bool broken = ferror(part->stream) != 0;
  broken |= fclose(part->stream) != 0;
  part->stream = NULL;
  return broken ? iso_fail(ISO_ERROR_OUT_OF_MEMORY, "GGUF: no memory for the header") : ISO_OK;
}

/* The reader's own rules, applied to what is about to be written. */
static iso_status check_pairs(iso_gguf_writer *writer) {
  gguf_cursor cursor = {.data = (const uint8_t *)writer->pairs.text, .size = writer->pairs.size};
  gguf_metadata metadata;
  ISO_TRY(iso_gguf_take_metadata(&cursor, writer->pairs.count, &metadata));
  iso_status status = iso_gguf_metadata_alignment(&metadata, &writer->alignment);
  iso_gguf_metadata_clear(&metadata);
  return status;
}

static iso_status check_names(const iso_gguf_writer *writer) {
  uint64_t count = writer->infos.count;
  iso_text_view *names = calloc(count ? count : 1, sizeof *names);
  if (!names)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "GGUF: no memory for %llu names",
                    (unsigned long long)count);
  iso_status status = ISO_OK;
  for (uint64_t i = 0; i < count && status == ISO_OK; i++) {
    gguf_cursor cursor = {.data = (const uint8_t *)writer->infos.text,
                          .size = writer->infos.size,
                          .offset = writer->tensors[i].name_start - sizeof(uint64_t)};
    status = iso_gguf_take_name(&cursor, &names[i]);
  }
  iso_name_index index = {0};
  uint32_t duplicate;
  if (status == ISO_OK)
    status = iso_name_index_build(names, (uint32_t)count, &index, &duplicate);
  iso_name_index_clear(&index);
  free(names);
  return iso_fail_context(status, "tensors");
}

static uint64_t padding(uint64_t offset, uint64_t alignment) {
  return (alignment - offset % alignment) % alignment;
}

static iso_status write_header(iso_gguf_writer *writer) {
  writer->header_written = true;
  ISO_TRY(close_section(&writer->pairs));
  ISO_TRY(close_section(&writer->infos));
  ISO_TRY(check_pairs(writer));
  ISO_TRY(check_names(writer));
  uint64_t offset = 0;
  for (uint64_t i = 0; i < writer->infos.count; i++) {
    const declared_tensor *tensor = &writer->tensors[i];
    memcpy(writer->infos.text + tensor->offset_place, &offset, sizeof offset);
    if (__builtin_add_overflow(offset, tensor->bytes, &offset) ||
        __builtin_add_overflow(offset, padding(offset, writer->alignment), &offset))
      return iso_fail(ISO_ERROR_LIMIT, "GGUF: the size of all tensors overflows");
  }
  struct {
    char magic[4];
    uint32_t version;
    uint64_t tensor_count, pair_count;
  } start = {{'G', 'G', 'U', 'F'}, 3, writer->infos.count, writer->pairs.count};
  ISO_TRY(iso_file_writer_append(writer->file, &start, sizeof start));
  ISO_TRY(iso_file_writer_append(writer->file, writer->pairs.text, writer->pairs.size));
  ISO_TRY(iso_file_writer_append(writer->file, writer->infos.text, writer->infos.size));
  return iso_file_writer_pad(writer->file,
                             padding(iso_file_writer_offset(writer->file), writer->alignment));
}

static iso_status append(iso_gguf_writer *writer, const void *data, uint64_t bytes) {
  if (!writer->header_written)
    ISO_TRY(write_header(writer));
  if (writer->current == writer->infos.count ||
      bytes > writer->tensors[writer->current].bytes - writer->position)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "GGUF: %llu bytes are more than tensor %llu of %llu has left",
                    (unsigned long long)bytes, (unsigned long long)writer->current,
                    (unsigned long long)writer->infos.count);
  ISO_TRY(iso_file_writer_append(writer->file, data, bytes));
  writer->position += bytes;
  if (writer->position < writer->tensors[writer->current].bytes)
    return ISO_OK;
  writer->position = 0;
  writer->current++;
  return iso_file_writer_pad(writer->file,
                             padding(iso_file_writer_offset(writer->file), writer->alignment));
}

static iso_status fail_if_broken(const iso_gguf_writer *writer) {
  return writer->broken ? iso_fail(ISO_ERROR_INVALID_ARGUMENT, "GGUF: an earlier write failed")
                        : ISO_OK;
}

iso_status iso_gguf_writer_append(iso_gguf_writer *writer, const void *data, uint64_t bytes) {
  ISO_TRY(fail_if_broken(writer));
  iso_status status = append(writer, data, bytes);
  writer->broken = status != ISO_OK;
  return status;
}

iso_status iso_gguf_writer_finish(iso_gguf_writer *writer) {
  ISO_TRY(fail_if_broken(writer));
  iso_status status = writer->header_written ? ISO_OK : write_header(writer);
  if (status == ISO_OK && writer->current != writer->infos.count)
    status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "GGUF: %llu of %llu tensors were written whole",
                      (unsigned long long)writer->current, (unsigned long long)writer->infos.count);
  if (status == ISO_OK)
    status = iso_file_writer_commit(writer->file);
  writer->broken = status != ISO_OK;
  return status;
}
