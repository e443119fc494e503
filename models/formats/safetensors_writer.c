#include "models/formats/safetensors.h"
#include "core/json.h"
#include "models/formats/safetensors_dtype.h"

#include <stdlib.h>
#include <string.h>

struct iso_safetensors_writer {
  iso_file_writer *file;
  cJSON *header;     /* NULL once written */
  uint64_t declared; /* bytes of all tensors */
  uint64_t appended;
  bool broken;
};

iso_status iso_safetensors_writer_create(const char *path, iso_safetensors_writer **out_writer) {
  *out_writer = NULL;
  iso_safetensors_writer *writer = calloc(1, sizeof *writer);
  if (!writer || !(writer->header = cJSON_CreateObject())) {
    free(writer);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to write %s", path);
  }
  iso_status status = iso_file_writer_create(path, &writer->file);
  if (status == ISO_OK)
    *out_writer = writer;
  else
    iso_safetensors_writer_destroy(writer);
  return status;
}

void iso_safetensors_writer_destroy(iso_safetensors_writer *writer) {
  if (!writer)
    return;
  cJSON_Delete(writer->header);
  iso_file_writer_destroy(writer->file);
  free(writer);
}

static bool add_numbers(cJSON *entry, const char *key, const int64_t *values, int count) {
  cJSON *array = cJSON_AddArrayToObject(entry, key);
  for (int i = 0; i < count && array; i++)
    if (!cJSON_AddItemToArray(array, cJSON_CreateNumber((double)values[i])))
      array = NULL;
  return array != NULL;
}

iso_status iso_safetensors_writer_add_tensor(iso_safetensors_writer *writer, const char *name,
                                             iso_scheme scheme, int n_dims, const int64_t *dims) {
  /* Numbers of the header are written as doubles of at most 15 digits. */
  const uint64_t most_bytes = UINT64_C(1000000000000000) - 1;
  if (!writer->header)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "safetensors: \"%s\" comes too late, tensor data has been written", name);
  const safetensors_dtype *dtype = iso_safetensors_dtype_from_scheme(scheme);
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  if (!dtype)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "safetensors: tensor \"%s\" has the scheme %s, which the "
                    "format does not have",
                    name, info ? info->name : "unknown");
  iso_file_tensor facts = {.name = name, .type_name = dtype->name, .n_dims = n_dims};
  for (int i = 0; i < n_dims && i < ISO_MAX_DIMS; i++)
    facts.dims[i] = dims[i];
  ISO_TRY(iso_file_tensor_measure(&facts, 1, dtype->bytes));
  if (facts.bytes > most_bytes - writer->declared)
    return iso_fail(ISO_ERROR_LIMIT, "safetensors: more than %llu bytes of tensors",
                    (unsigned long long)most_bytes);
  int64_t offsets[2] = {(int64_t)writer->declared, (int64_t)(writer->declared + facts.bytes)};
  cJSON *entry = cJSON_AddObjectToObject(writer->header, name);
  if (!entry || !cJSON_AddStringToObject(entry, "dtype", dtype->name) ||
      !add_numbers(entry, "shape", dims, n_dims) ||
      !add_numbers(entry, "data_offsets", offsets, 2)) {
    writer->broken = true;
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "safetensors: no memory for \"%s\"", name);
  }
  writer->declared += facts.bytes;
  return ISO_OK;
}

static iso_status put_header(iso_safetensors_writer *writer, const char *text) {
  enum { DATA_ALIGNMENT = 64 };
  static const char spaces[DATA_ALIGNMENT] = "                                "
                                             "                                ";
  size_t length = strlen(text);
  /* The reader's own rules, applied to what is about to be written. */
  cJSON *checked;
  iso_status status = iso_json_parse(text, length, 3, &checked);
  cJSON_Delete(checked);
  if (status != ISO_OK)
    return iso_fail_context(status, "safetensors: the names of tensors must be unique UTF-8");
  size_t padding = (DATA_ALIGNMENT - (8 + length) % DATA_ALIGNMENT) % DATA_ALIGNMENT;
  uint64_t padded = length + padding;
  ISO_TRY(iso_file_writer_append(writer->file, &padded, sizeof padded));
  ISO_TRY(iso_file_writer_append(writer->file, text, length));
  return iso_file_writer_append(writer->file, spaces, padding);
}

static iso_status write_header(iso_safetensors_writer *writer) {
  char *text = cJSON_PrintUnformatted(writer->header);
  cJSON_Delete(writer->header);
  writer->header = NULL;
  if (!text)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "safetensors: no memory for the header");
  iso_status status = put_header(writer, text);
  cJSON_free(text);
  return status;
}

static iso_status append(iso_safetensors_writer *writer, const void *data, uint64_t bytes) {
  if (writer->header)
    ISO_TRY(write_header(writer));
  if (bytes > writer->declared - writer->appended)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "safetensors: %llu bytes are more than the %llu that the tensors have left",
                    (unsigned long long)bytes,
                    (unsigned long long)(writer->declared - writer->appended));
  ISO_TRY(iso_file_writer_append(writer->file, data, bytes));
  writer->appended += bytes;
  return ISO_OK;
}

iso_status iso_safetensors_writer_append(iso_safetensors_writer *writer, const void *data,
                                         uint64_t bytes) {
  if (writer->broken)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "safetensors: an earlier write failed");
  iso_status status = append(writer, data, bytes);
  writer->broken = status != ISO_OK;
  return status;
}

iso_status iso_safetensors_writer_finish(iso_safetensors_writer *writer) {
  ISO_TRY(iso_safetensors_writer_append(writer, NULL, 0));
  if (writer->appended != writer->declared) {
    writer->broken = true;
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "safetensors: %llu of %llu bytes were written",
                    (unsigned long long)writer->appended, (unsigned long long)writer->declared);
  }
  return iso_file_writer_commit(writer->file);
}
