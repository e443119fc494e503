/* Rotary positions: what the kernels of rope.cu and rope_many.cu share. */
#ifndef ISOMER_SIMT_ROPE_H
#define ISOMER_SIMT_ROPE_H

#include "backends/simt/simt.cuh"

struct rope_operands {
  simt_rows x, y;
  const int32_t *positions;
  const float *frequencies;
  int32_t n_heads, n_pairs, pairs_of_head; /* the latter with those that are only copied */
  uint32_t interleaved;
  float magnitude;
  bool settled; /* positions, and of fused kernels slots, are there before the launch's turn */
};

/* A cache of plain floats or F8_G128. */
struct rope_cache {
  uint8_t *data;
  iso_scheme scheme;
  int64_t row_bytes;
};

/* Queries to rotate and, unless k.x.data is NULL, keys to rotate and keys and values to store. */
struct rope_fused {
  rope_operands q, k;
  simt_rows v;
  rope_cache k_cache, v_cache;
  const int32_t *slots;
  int32_t page_size;
  int64_t n_slots;
};

/* The cache row of a head of a token; NULL when it is not stored. */
__device__ inline uint8_t *rope_cache_row(const rope_fused &f, const rope_cache &c, int64_t token,
                                          int64_t head) {
  int32_t slot = f.slots[token];
  if (slot < 0 || slot >= f.n_slots)
    return nullptr;
  int64_t page = slot / f.page_size;
  return c.data + ((page * f.k.n_heads + head) * f.page_size + slot % f.page_size) * c.row_bytes;
}

__device__ inline void rope_angle(int32_t position, float frequency, float magnitude, float *sine,
                                  float *cosine) {
  sincosf(__fmul_rn((float)position, frequency), sine, cosine);
  *sine *= magnitude, *cosine *= magnitude;
}
__device__ inline void rope_angle(const rope_operands &o, int64_t token, int pair, float *sine,
                                  float *cosine) {
  rope_angle(o.positions[token], o.frequencies[pair], o.magnitude, sine, cosine);
}

/* Every kernel contracts alike: results are the same whichever runs. */
__device__ inline void rope_turn(float sine, float cosine, float *a, float *b) {
  float x = *a, y = *b;
  *a = __fmaf_rn(x, cosine, -__fmul_rn(y, sine));
  *b = __fmaf_rn(x, sine, __fmul_rn(y, cosine));
}

/* With keys and values, rows of heads of 128, a subgroup a head. rope_heads() after
 * rope_heads_take(). */
bool rope_heads_take(const rope_fused &f);
iso_status rope_heads(iso_queue *queue, const char *name, const rope_fused &f);

/* Many rows, some at a time in vectors. rope_many() after rope_many_takes(). */
bool rope_many_takes(const rope_fused &f);
iso_status rope_many(iso_queue *queue, const char *name, const rope_fused &f);

#endif
