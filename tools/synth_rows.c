#include "tools/synth_rows.h"

#include "ops/sampling.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers drawn for a scheme and row length: enough that segments rarely meet again, few enough
 * that they stay in a core's cache. */
enum { POOL_ELEMENTS = 1 << 17, PLAIN_SEGMENT = 64, MAX_SEGMENT = 256 };

/* Philox counters end in what they are for. */
enum { FOR_SEGMENTS = 1, FOR_ROWS = 2, FOR_VECTORS = 3 };

uint64_t iso_synth_key(uint64_t seed, const char *name) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (int i = 0; i < 8; i++)
    hash = (hash ^ (seed >> 8 * i & 255)) * UINT64_C(1099511628211);
  for (; *name; name++)
    hash = (hash ^ (uint8_t)*name) * UINT64_C(1099511628211);
  return hash;
}

/* Sum of four 16-bit halves, centred: Irwin-Hall, close to a normal deviate, of variance 1/3 in
 * units of 2^16. */
static float near_normal(uint32_t a, uint32_t b) {
  int32_t sum = (int32_t)(a & 0xffff) + (int32_t)(a >> 16) + (int32_t)(b & 0xffff) +
                (int32_t)(b >> 16) - 2 * 0xffff;
  return (float)sum * 0x1p-16f * 1.7320508f;
}

iso_status iso_synth_segments_create(uint64_t seed, iso_scheme scheme, int64_t columns,
                                     iso_synth_segments *out_segments) {
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  iso_synth_segments *self = out_segments;
  *self = (iso_synth_segments){.scheme = scheme, .columns = columns};
  self->elements = info->block_elements > 1 ? info->block_elements : PLAIN_SEGMENT;
  self->bytes = self->elements / info->block_elements * info->block_bytes;
  self->count = POOL_ELEMENTS / self->elements;
  self->data = malloc((size_t)self->count * self->bytes);
  if (!self->data)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for random segments");
  uint64_t key = iso_synth_key(seed, info->name);
  float deviation = 1.0f / sqrtf((float)columns);
  for (uint32_t i = 0; i < self->count; i++) {
    float values[MAX_SEGMENT];
    for (uint32_t k = 0; k < self->elements; k += 2) {
      uint32_t counter[4] = {i, k, (uint32_t)columns, FOR_SEGMENTS}, words[4];
      iso_philox(key, counter, words);
      values[k] = near_normal(words[0], words[1]) * deviation;
      values[k + 1] = near_normal(words[2], words[3]) * deviation;
    }
    iso_scheme_encode_row(scheme, values, NULL, self->data + (size_t)i * self->bytes,
                          self->elements);
  }
  return ISO_OK;
}

void iso_synth_segments_free(iso_synth_segments *segments) {
  free(segments->data);
  *segments = (iso_synth_segments){0};
}

/* Index of the segment at `position` of a matrix that has no more segments than were drawn: an odd
 * factor permutes the indices, so none comes twice. */
static uint32_t permuted_index(uint64_t key, uint64_t position) {
  return (uint32_t)((key >> 32 | 1) * position + key);
}

void iso_synth_fill_row(const iso_synth_segments *segments, uint64_t key, int64_t n_rows,
                        int64_t row, uint8_t *out_row) {
  const iso_scheme_info *info = iso_scheme_get_info(segments->scheme);
  uint64_t left = (uint64_t)segments->columns / info->block_elements * info->block_bytes;
  uint64_t per_row = (left + segments->bytes - 1) / segments->bytes;
  bool distinct = per_row * (uint64_t)n_rows <= segments->count;
  uint32_t words[4] = {0};
  for (uint32_t i = 0; i < per_row; i++) {
    uint32_t counter[4] = {(uint32_t)row, i / 8, 0, FOR_ROWS};
    if (i % 8 == 0 && !distinct)
      iso_philox(key, counter, words);
    uint32_t index = distinct ? permuted_index(key, (uint64_t)row * per_row + i)
                              : words[i % 8 / 2] >> 16 * (i % 2);
    size_t bytes = left < segments->bytes ? left : segments->bytes;
    index &= segments->count - 1;
    memcpy(out_row, segments->data + (size_t)index * segments->bytes, bytes);
    out_row += bytes;
    left -= bytes;
  }
}

void iso_synth_fill_vector(uint64_t key, float center, int64_t count, float *out_values) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t counter[4] = {(uint32_t)i, 0, 0, FOR_VECTORS}, words[4];
    iso_philox(key, counter, words);
    out_values[i] = center + (float)((int32_t)(words[0] % 33) - 16) / 64.0f;
  }
}
