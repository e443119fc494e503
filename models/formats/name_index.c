#include "models/formats/name_index.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b, void *context) {
  const char *const *names = context;
  uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
  int order = strcmp(names[left], names[right]);
  return order ? order : (left > right) - (left < right);
}

iso_status iso_name_index_build(const iso_text_view *names, uint32_t count,
                                iso_name_index *out_index, uint32_t *out_duplicate) {
  *out_index = (iso_name_index){0};
  *out_duplicate = UINT32_MAX;
  if (count == 0)
    return ISO_OK;
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; i++)
    if (__builtin_add_overflow(total, names[i].length + 1, &total))
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "names too long");
  iso_name_index index = {malloc(total), calloc(count, sizeof *index.names),
                          calloc(count, sizeof *index.order), count};
  if (!index.bytes || !index.names || !index.order) {
    iso_name_index_clear(&index);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %u names", count);
  }
  char *end = index.bytes;
  for (uint32_t i = 0; i < count; i++) {
    index.names[i] = end;
    index.order[i] = i;
    memcpy(end, names[i].data, names[i].length);
    end[names[i].length] = 0;
    end += names[i].length + 1;
  }
  qsort_r(index.order, count, sizeof *index.order, compare, index.names);
  for (uint32_t i = 1; i < count; i++)
    if (strcmp(index.names[index.order[i - 1]], index.names[index.order[i]]) == 0) {
      *out_duplicate = index.order[i];
      iso_status status = iso_fail(ISO_ERROR_CORRUPT_DATA, "the name \"%s\" comes twice",
                                   index.names[index.order[i]]);
      iso_name_index_clear(&index);
      return status;
    }
  *out_index = index;
  return ISO_OK;
}

void iso_name_index_clear(iso_name_index *index) {
  free(index->bytes);
  free(index->names);
  free(index->order);
  *index = (iso_name_index){0};
}

uint32_t iso_name_index_find(const iso_name_index *index, const char *name) {
  uint32_t low = 0, high = index->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    int order = strcmp(name, index->names[index->order[middle]]);
    if (order == 0)
      return index->order[middle];
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return UINT32_MAX;
}
