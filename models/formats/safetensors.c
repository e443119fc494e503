#include "models/formats/safetensors.h"
#include "core/json.h"
#include "models/formats/name_index.h"
#include "models/formats/safetensors_dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  LENGTH_BYTES = 8,             /* the header's length comes first */
  MAX_HEADER_BYTES = 100000000, /* the format's own limit */
  MAX_INDEX_BYTES = 100000000,
  MAX_HEADER_DEPTH = 3 /* header, tensor, shape */
};

typedef struct safetensors_shard {
  iso_file_map map; /* closed when the bytes are the caller's */
  const uint8_t *data;
  uint64_t size;
  uint64_t data_start;
  cJSON *header; /* while opening: owns the tensors' names */
} safetensors_shard;

struct iso_safetensors {
  safetensors_shard *shards;
  uint32_t shard_count;
  iso_file_tensor *tensors;
  uint32_t tensor_count;
  iso_name_index names;
};

static iso_status read_header(safetensors_shard *shard) {
  uint64_t length;
  if (shard->size < LENGTH_BYTES)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "safetensors: %llu bytes are too few for the length of the header",
                    (unsigned long long)shard->size);
  memcpy(&length, shard->data, LENGTH_BYTES);
  if (length > shard->size - LENGTH_BYTES)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "safetensors: a header of %llu bytes at byte 8 does not fit in the file's %llu "
                    "(is the download complete?)",
                    (unsigned long long)length, (unsigned long long)shard->size);
  if (length > MAX_HEADER_BYTES)
    return iso_fail(ISO_ERROR_LIMIT, "safetensors: a header of %llu bytes, at most %d are possible",
                    (unsigned long long)length, MAX_HEADER_BYTES);
  const char *text = (const char *)shard->data + LENGTH_BYTES;
  if (length == 0 || text[0] != '{')
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "safetensors: the header at byte 8 does not start with '{'");
  iso_status status = iso_json_parse(text, length, MAX_HEADER_DEPTH, &shard->header);
  if (status != ISO_OK)
    return iso_fail_context(status, "safetensors: header, bytes counted from 8");
  shard->data_start = LENGTH_BYTES + length;
  return ISO_OK;
}

/* "data_offsets": [begin, end), relative to the data section. */
static iso_status place_tensor(const safetensors_shard *shard, const cJSON *entry,
                               iso_file_tensor *tensor) {
  const cJSON *offsets;
  ISO_TRY(iso_json_get_array(entry, "data_offsets", &offsets));
  double room = (double)(shard->size - shard->data_start);
  double places[2];
  const cJSON *item = offsets->child;
  for (int i = 0; i < 2; i++, item = item->next) {
    if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble > room ||
        item->valuedouble != (double)(uint64_t)item->valuedouble)
      return iso_fail(ISO_ERROR_CORRUPT_DATA,
                      "data_offsets must be two places in the %.0f bytes of data (is the download "
                      "complete?)",
                      room);
    places[i] = item->valuedouble;
  }
  if (item || places[0] > places[1])
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "data_offsets must be a begin and an end, in order");
  uint64_t bytes = (uint64_t)(places[1] - places[0]);
  if (bytes != tensor->bytes)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "its dtype and shape make %llu bytes, its data_offsets %llu",
                    (unsigned long long)tensor->bytes, (unsigned long long)bytes);
  tensor->offset = shard->data_start + (uint64_t)places[0];
  tensor->data = shard->data + tensor->offset;
  return ISO_OK;
}

static iso_status read_tensor(const safetensors_shard *shard, const cJSON *entry,
                              iso_file_tensor *tensor) {
  if (!cJSON_IsObject(entry))
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "it must be an object");
  const char *dtype_name;
  ISO_TRY(iso_json_get_string(entry, "dtype", &dtype_name));
  const safetensors_dtype *dtype = iso_safetensors_dtype_from_name(dtype_name);
  if (!dtype)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "the dtype \"%.40s\" is not known", dtype_name);
  tensor->type_name = dtype->name;
  tensor->scheme = dtype->scheme;
  const cJSON *shape;
  ISO_TRY(iso_json_get_array(entry, "shape", &shape));
  for (int i = 0; i < ISO_MAX_DIMS; i++)
    tensor->dims[i] = 1;
  for (const cJSON *item = shape->child; item; item = item->next) {
    if (tensor->n_dims == ISO_MAX_DIMS)
      return iso_fail(ISO_ERROR_UNSUPPORTED, "it has more than %d dimensions", ISO_MAX_DIMS);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1 && item->valuedouble <= ISO_MAX_DIM) ||
        item->valuedouble != (double)(int64_t)item->valuedouble)
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "a dimension of its shape is not in 1..%lld",
                      (long long)ISO_MAX_DIM);
    tensor->dims[tensor->n_dims++] = (int64_t)item->valuedouble;
  }
  if (tensor->n_dims == 0)
    tensor->n_dims = 1;
  ISO_TRY(iso_file_tensor_measure(tensor, 1, dtype->bytes));
  return place_tensor(shard, entry, tensor);
}

static iso_status check_metadata(const cJSON *metadata) {
  bool valid = cJSON_IsObject(metadata);
  for (const cJSON *item = valid ? metadata->child : NULL; item; item = item->next)
    valid = valid && cJSON_IsString(item);
  return valid ? ISO_OK
               : iso_fail(ISO_ERROR_CORRUPT_DATA,
                          "safetensors: __metadata__ must be an object of strings");
}

/* Parses a shard and appends its tensors to the reader. */
static iso_status parse_shard(iso_safetensors *reader, uint32_t shard_index) {
  safetensors_shard *shard = &reader->shards[shard_index];
  ISO_TRY(read_header(shard));
  uint32_t count = 0; /* ISO_JSON_MAX_VALUES bounds it */
  for (const cJSON *entry = shard->header->child; entry; entry = entry->next)
    count += strcmp(entry->string, "__metadata__") != 0;
  if (count > ISO_JSON_MAX_VALUES - reader->tensor_count)
    return iso_fail(ISO_ERROR_LIMIT, "safetensors: more than %u tensors", ISO_JSON_MAX_VALUES);
  if (count > 0) {
    uint32_t total = reader->tensor_count + count;
    iso_file_tensor *tensors = reallocarray(reader->tensors, total, sizeof *tensors);
    if (!tensors)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "safetensors: no memory for %u tensors", total);
    reader->tensors = tensors;
  }
  for (const cJSON *entry = shard->header->child; entry; entry = entry->next) {
    if (strcmp(entry->string, "__metadata__") == 0) {
      ISO_TRY(check_metadata(entry));
      continue;
    }
    iso_file_tensor *tensor = &reader->tensors[reader->tensor_count++];
    *tensor = (iso_file_tensor){.name = entry->string, .shard = shard_index};
    iso_status status = read_tensor(shard, entry, tensor);
    if (status == ISO_ERROR_NOT_FOUND) /* a field, not a file */
      status = ISO_ERROR_CORRUPT_DATA;
    if (status != ISO_OK)
      return iso_fail_context(status, "safetensors: tensor \"%.80s\"", entry->string);
  }
  return ISO_OK;
}

/* The format allows no holes. Tensors are known to lie inside their data sections and not to
 * overlap, so that their sum tells. */
static iso_status check_holes(const iso_safetensors *reader) {
  uint64_t *sums = calloc(reader->shard_count, sizeof *sums);
  if (!sums)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "safetensors: no memory for %u shards",
                    reader->shard_count);
  for (uint32_t i = 0; i < reader->tensor_count; i++)
    sums[reader->tensors[i].shard] += reader->tensors[i].bytes;
  iso_status status = ISO_OK;
  for (uint32_t i = 0; i < reader->shard_count && status == ISO_OK; i++) {
    uint64_t room = reader->shards[i].size - reader->shards[i].data_start;
    if (sums[i] != room)
      status = iso_fail(ISO_ERROR_CORRUPT_DATA,
                        "safetensors: shard %u has %llu bytes of data, its tensors %llu", i + 1,
                        (unsigned long long)room, (unsigned long long)sums[i]);
  }
  free(sums);
  return status;
}

/* What spans shards: unique names, no overlaps, no holes. The headers are freed. */
static iso_status index_tensors(iso_safetensors *reader) {
  iso_text_view *names = calloc(reader->tensor_count ? reader->tensor_count : 1, sizeof *names);
  if (!names)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "safetensors: no memory for %u tensors",
                    reader->tensor_count);
  for (uint32_t i = 0; i < reader->tensor_count; i++)
    names[i] = (iso_text_view){reader->tensors[i].name, strlen(reader->tensors[i].name)};
  uint32_t duplicate;
  iso_status status = iso_name_index_build(names, reader->tensor_count, &reader->names, &duplicate);
  free(names);
  if (status != ISO_OK)
    return iso_fail_context(status, "safetensors: tensors");
  for (uint32_t i = 0; i < reader->tensor_count; i++)
    reader->tensors[i].name = reader->names.names[i];
  for (uint32_t i = 0; i < reader->shard_count; i++) {
    cJSON_Delete(reader->shards[i].header);
    reader->shards[i].header = NULL;
  }
  status = iso_file_tensor_check_overlap(reader->tensors, reader->tensor_count);
  return status != ISO_OK ? iso_fail_context(status, "safetensors") : check_holes(reader);
}

static iso_status create_reader(uint32_t shard_count, iso_safetensors **out_reader) {
  iso_safetensors *reader = calloc(1, sizeof *reader);
  if (reader)
    reader->shards = calloc(shard_count, sizeof *reader->shards);
  if (!reader || !reader->shards) {
    free(reader);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "safetensors: no memory for %u shards", shard_count);
  }
  reader->shard_count = shard_count;
  *out_reader = reader;
  return ISO_OK;
}

static iso_status open_shard(iso_safetensors *reader, uint32_t index, const char *path) {
  safetensors_shard *shard = &reader->shards[index];
  ISO_TRY(iso_file_map_open(path, &shard->map));
  shard->data = shard->map.data;
  shard->size = shard->map.size;
  return iso_fail_context(parse_shard(reader, index), "%s", path);
}

/* Hands the reader out, or closes it. */
static iso_status conclude(iso_status status, iso_safetensors *reader,
                           iso_safetensors **out_reader) {
  if (status == ISO_OK)
    *out_reader = reader;
  else
    iso_safetensors_close(reader);
  return status;
}

iso_status iso_safetensors_open(const char *path, iso_safetensors **out_reader) {
  *out_reader = NULL;
  iso_safetensors *reader = NULL;
  ISO_TRY(create_reader(1, &reader));
  iso_status status = open_shard(reader, 0, path);
  if (status == ISO_OK)
    status = iso_fail_context(index_tensors(reader), "%s", path);
  return conclude(status, reader, out_reader);
}

iso_status iso_safetensors_open_memory(const void *data, uint64_t size,
                                       iso_safetensors **out_reader) {
  *out_reader = NULL;
  iso_safetensors *reader = NULL;
  ISO_TRY(create_reader(1, &reader));
  reader->shards[0].data = data;
  reader->shards[0].size = size;
  iso_status status = parse_shard(reader, 0);
  if (status == ISO_OK)
    status = index_tensors(reader);
  return conclude(status, reader, out_reader);
}

static int compare_files(const void *a, const void *b) {
  return strcmp((*(const cJSON *const *)a)->valuestring, (*(const cJSON *const *)b)->valuestring);
}

/* A shard's name must be that of a file beside the index, nothing that leads elsewhere. */
static iso_status check_shard_name(const cJSON *entry) {
  static const char suffix[] = ".safetensors";
  if (!cJSON_IsString(entry))
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "weight_map: \"%.80s\" must name a file",
                    entry->string);
  const char *name = entry->valuestring;
  size_t length = strlen(name), end = sizeof suffix - 1;
  if (strchr(name, '/') || length <= end || strcmp(name + length - end, suffix) != 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "weight_map: \"%.80s\" is in \"%.80s\", which is not a .safetensors file of "
                    "the same folder",
                    entry->string, name);
  return ISO_OK;
}

/* "...-00002-of-00005.safetensors": there must be five. */
static iso_status check_shard_total(const char *name, uint32_t shard_count) {
  unsigned number, total;
  int end = 0;
  const char *mark = strstr(name, "-of-");
  if (!mark || mark - name < 6 ||
      sscanf(mark - 6, "-%5u-of-%5u.safetensors%n", &number, &total, &end) != 2 || end == 0)
    return ISO_OK;
  if (total != shard_count)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "weight_map names %u shards, but %.80s is one of %u",
                    shard_count, name, total);
  return ISO_OK;
}

/* Sorts the entries of a weight map by file; *out_shard_count files. */
static iso_status sort_entries(const cJSON *weight_map, const cJSON ***out_entries,
                               uint32_t *out_count, uint32_t *out_shard_count) {
  uint32_t count = 0;
  for (const cJSON *entry = weight_map->child; entry; entry = entry->next, count++)
    ISO_TRY(check_shard_name(entry));
  if (count == 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "weight_map is empty");
  const cJSON **entries = calloc(count, sizeof *entries);
  if (!entries)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %u entries", count);
  uint32_t index = 0;
  for (const cJSON *entry = weight_map->child; entry; entry = entry->next)
    entries[index++] = entry;
  qsort(entries, count, sizeof *entries, compare_files);
  *out_shard_count = 1;
  for (uint32_t i = 1; i < count; i++)
    *out_shard_count += compare_files(&entries[i - 1], &entries[i]) != 0;
  *out_entries = entries;
  *out_count = count;
  return ISO_OK;
}

/* Opens the files of the sorted entries, then looks for every entry's tensor. */
static iso_status open_entries(iso_safetensors *reader, const char *folder,
                               const cJSON *const *entries, uint32_t count) {
  uint32_t shard = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0 && compare_files(&entries[i - 1], &entries[i]) == 0)
      continue;
    ISO_TRY(check_shard_total(entries[i]->valuestring, reader->shard_count));
    char *path = iso_file_join(folder, entries[i]->valuestring);
    if (!path)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a path");
    iso_status status = open_shard(reader, shard++, path);
    free(path);
    ISO_TRY(status);
  }
  ISO_TRY(index_tensors(reader));
  shard = 0;
  for (uint32_t i = 0; i < count; i++) {
    shard += i > 0 && compare_files(&entries[i - 1], &entries[i]) != 0;
    const iso_file_tensor *tensor = iso_safetensors_find_tensor(reader, entries[i]->string);
    if (!tensor || tensor->shard != shard)
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "tensor \"%.80s\" is not in %s, as weight_map says",
                      entries[i]->string, entries[i]->valuestring);
  }
  return ISO_OK;
}

static iso_status open_weight_map(const char *index_path, const cJSON *weight_map,
                                  iso_safetensors **out_reader) {
  const cJSON **entries = NULL;
  uint32_t count = 0, shard_count = 0;
  ISO_TRY(sort_entries(weight_map, &entries, &count, &shard_count));
  const char *slash = strrchr(index_path, '/');
  char *folder = slash ? strndup(index_path, (size_t)(slash - index_path + 1)) : strdup(".");
  iso_safetensors *reader = NULL;
  iso_status status = folder ? create_reader(shard_count, &reader)
                             : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a path");
  if (status == ISO_OK)
    status = open_entries(reader, folder, entries, count);
  free(folder);
  free(entries);
  return conclude(status, reader, out_reader);
}

iso_status iso_safetensors_open_index(const char *index_path, iso_safetensors **out_reader) {
  enum { MAX_DEPTH = 8 }; /* the metadata of an index is free in form */
  *out_reader = NULL;
  cJSON *index;
  ISO_TRY(iso_json_read_file(index_path, MAX_INDEX_BYTES, MAX_DEPTH, &index));
  const cJSON *weight_map;
  iso_status status = iso_json_get_object(index, "weight_map", &weight_map);
  if (status == ISO_ERROR_NOT_FOUND) /* a field, not a file */
    status = ISO_ERROR_CORRUPT_DATA;
  if (status == ISO_OK)
    status = open_weight_map(index_path, weight_map, out_reader);
  cJSON_Delete(index);
  return iso_fail_context(status, "%s", index_path);
}

void iso_safetensors_close(iso_safetensors *reader) {
  if (!reader)
    return;
  for (uint32_t i = 0; i < reader->shard_count; i++) {
    cJSON_Delete(reader->shards[i].header);
    iso_file_map_close(&reader->shards[i].map);
  }
  free(reader->shards);
  free(reader->tensors);
  iso_name_index_clear(&reader->names);
  free(reader);
}

uint64_t iso_safetensors_tensor_count(const iso_safetensors *reader) {
  return reader->tensor_count;
}

const iso_file_tensor *iso_safetensors_tensor_at(const iso_safetensors *reader, uint64_t index) {
  return &reader->tensors[index];
}

const iso_file_tensor *iso_safetensors_find_tensor(const iso_safetensors *reader,
                                                   const char *name) {
  uint32_t ordinal = iso_name_index_find(&reader->names, name);
  return ordinal == UINT32_MAX ? NULL : &reader->tensors[ordinal];
}

uint32_t iso_safetensors_shard_count(const iso_safetensors *reader) { return reader->shard_count; }

const iso_file_map *iso_safetensors_shard_map(const iso_safetensors *reader, uint32_t shard) {
  return &reader->shards[shard].map;
}
