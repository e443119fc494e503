/* Rotary positions of rows of many sequences that decode, of heads of 128 16-bit floats: a subgroup
 * rotates a head of a token, 4 columns a lane, or stores one of values. Sines, and the places of
 * cached rows, are found before the launch's turn where positions and slots are settled. */
#include "backends/simt/encode.cuh"
#include "backends/simt/rope.cuh"
#include "quant/blocks.h"

namespace {

enum { COLUMNS = 128, SUBGROUPS = 4, THREADS = SUBGROUPS * SIMT_SUBGROUP, LEAST_TOKENS = 32 };

/* Pairs 2 l and 2 l + 1 of lane l, as two words: interleaved, a word is a pair; otherwise one has
 * the first of both, the other the second, half a head behind. */
struct lane_columns {
  int first, second;
};

/* A row of 128, of which each lane of a subgroup has its columns, as f8_g128. */
__device__ __forceinline__ void store_f8(uint8_t *cached, lane_columns at, const float (&v)[4]) {
  float largest = 0, of[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    of[j] = simt_f8_value(v[j]);
    largest = fmaxf(largest, fabsf(of[j]));
  }
  float scale = simt_f8_scale(simt_subgroup_reduce(largest, simt_max()));
  uint32_t codes[4];
#pragma unroll
  for (int j = 0; j < 4; j++)
    codes[j] = simt_f8_code(of[j], scale);
  auto *block = (iso_block_f8_g128 *)cached;
  if (threadIdx.x % SIMT_SUBGROUP == 0)
    block->scale = scale;
  *(uint16_t *)(block->codes + at.first) = (uint16_t)(codes[0] | codes[1] << 8);
  *(uint16_t *)(block->codes + at.second) = (uint16_t)(codes[2] | codes[3] << 8);
}

/* Grid: heads of queries, keys and values, as many a block as it has subgroups; tokens. */
template <bool Interleaved>
__global__ void __launch_bounds__(THREADS) turn_heads(const __grid_constant__ rope_fused f) {
  simt_let_later_begin();
  if (!f.q.settled || !f.k.settled)
    simt_wait_for_earlier();
  int head = (int)(blockIdx.x * SUBGROUPS + threadIdx.x / SIMT_SUBGROUP);
  int lane = (int)threadIdx.x % SIMT_SUBGROUP;
  bool is_query = head < f.q.n_heads, is_value = head >= f.q.n_heads + f.k.n_heads;
  if (head >= f.q.n_heads + 2 * f.k.n_heads)
    return;
  const rope_operands &o = is_query ? f.q : f.k;
  const rope_cache &cache = is_value ? f.v_cache : f.k_cache;
  const simt_rows &x = is_value ? f.v : o.x;
  head -= is_query ? 0 : is_value ? f.q.n_heads + f.k.n_heads : f.q.n_heads;
  int64_t token = blockIdx.y, row = token * o.n_heads + head;
  uint8_t *cached = is_query ? nullptr : rope_cache_row(f, cache, token, head);
  lane_columns at = {2 * lane, COLUMNS / 2 + 2 * lane};
  if (Interleaved)
    at = {4 * lane, 4 * lane + 2};
  float sine[2], cosine[2], v[4];
  if (!is_value)
#pragma unroll
    for (int j = 0; j < 2; j++)
      rope_angle(o, token, 2 * lane + j, &sine[j], &cosine[j]);
  simt_wait_for_earlier();
  const uint8_t *from = x.row(row);
  simt_load2(x.scheme, (const uint32_t *)(from + at.first * 2), v);
  simt_load2(x.scheme, (const uint32_t *)(from + at.second * 2), v + 2);
  if (!is_value) {
#pragma unroll
    for (int j = 0; j < 2; j++)
      rope_turn(sine[j], cosine[j], &v[Interleaved ? 2 * j : j],
                &v[Interleaved ? 2 * j + 1 : 2 + j]);
    uint8_t *y = o.y.row(row);
    simt_store2(o.y.scheme, y, at.first, v[0], v[1]);
    simt_store2(o.y.scheme, y, at.second, v[2], v[3]);
#pragma unroll
    for (float &value : v)
      value = simt_rounded(o.y.scheme, value);
  }
  if (!cached)
    return;
  if (cache.scheme == ISO_SCHEME_F8_G128) {
    store_f8(cached, at, v);
  } else {
    simt_store2(cache.scheme, cached, at.first, v[0], v[1]);
    simt_store2(cache.scheme, cached, at.second, v[2], v[3]);
  }
}

bool is_whole(const simt_rows &rows) {
  return rows.n_columns == COLUMNS && rows.scheme != ISO_SCHEME_F32 && simt_is_aligned(rows, 4);
}
bool is_whole(const rope_operands &o) {
  return is_whole(o.x) && o.y.n_columns == COLUMNS && simt_is_aligned(o.y, 8) &&
         o.n_pairs * 2 == COLUMNS;
}
bool is_whole(const rope_cache &c) {
  uint64_t bits = (uint64_t)(uintptr_t)c.data | (uint64_t)c.row_bytes;
  return c.scheme == ISO_SCHEME_F8_G128 ? bits % 4 == 0
                                        : (ISO_SCHEME_BIT(c.scheme) & SIMT_FLOATS) && bits % 8 == 0;
}

} /* namespace */

bool rope_heads_take(const rope_fused &f) {
  int64_t n_tokens = f.q.n_heads > 0 ? f.q.y.n_rows / f.q.n_heads : 0;
  return n_tokens >= LEAST_TOKENS && n_tokens <= 65535 && is_whole(f.q) && is_whole(f.k) &&
         is_whole(f.v) && f.q.interleaved == f.k.interleaved && is_whole(f.k_cache) &&
         is_whole(f.v_cache);
}

iso_status rope_heads(iso_queue *queue, const char *name, const rope_fused &f) {
  unsigned heads = (unsigned)(f.q.n_heads + 2 * f.k.n_heads);
  unsigned n_tokens = (unsigned)(f.q.y.n_rows / f.q.n_heads);
  return simt_launch_early(queue, name, f.q.interleaved ? turn_heads<true> : turn_heads<false>,
                           dim3((heads + SUBGROUPS - 1) / SUBGROUPS, n_tokens), dim3(THREADS), 0,
                           f);
}
