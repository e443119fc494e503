/* Rotary positions of many rows: a thread has 16 columns, 8 pairs, of some heads of a token, and
 * their sines once for all of them. */
#include "backends/simt/encode.cuh"
#include "backends/simt/rope.cuh"
#include "quant/blocks.h"

namespace {

enum { THREADS = 128, SLOTS = 8, COLUMNS = 16, LEAST_TOKENS = 256 };

/* A thread's columns of a head and how they turn. Interleaved, its pairs are neighbours and its
 * columns lie together; otherwise the second of each pair is half a head behind the first. */
template <bool Interleaved> struct turn {
  int first, second; /* columns of the two vectors */
  float sine[8], cosine[8];

  __device__ void rotate(float (&v)[COLUMNS]) const {
#pragma unroll
    for (int j = 0; j < 8; j++)
      rope_turn(sine[j], cosine[j], &v[Interleaved ? 2 * j : j],
                &v[Interleaved ? 2 * j + 1 : 8 + j]);
  }
};

/* A thread's columns of a row of 128, which neighbouring 8 threads have, as f8_g128. */
__device__ void store_f8(uint8_t *cached, const float (&v)[COLUMNS], int first, int second) {
  uint32_t head = 0xffu << threadIdx.x % SIMT_SUBGROUP / 8 * 8;
  float largest = 0;
#pragma unroll
  for (int j = 0; j < COLUMNS; j++)
    largest = fmaxf(largest, fabsf(simt_f8_value(v[j])));
#pragma unroll
  for (int mask = 1; mask < 8; mask *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(head, largest, mask));
  float scale = simt_f8_scale(largest);
  auto *block = (iso_block_f8_g128 *)cached;
  if (first == 0)
    block->scale = scale;
#pragma unroll
  for (int i = 0; i < COLUMNS; i += 4) {
    uint32_t word = 0;
#pragma unroll
    for (int j = 0; j < 4; j++)
      word |= (uint32_t)simt_f8_code(simt_f8_value(v[i + j]), scale) << j * 8;
    *(uint32_t *)(block->codes + (i < 8 ? first + i : second + i - 8)) = word;
  }
}

__device__ void store_columns(iso_scheme scheme, uint8_t *cached, const float (&v)[COLUMNS],
                              int first, int second) {
  if (scheme == ISO_SCHEME_F8_G128) {
    store_f8(cached, v, first, second);
  } else {
    simt_store8(scheme, cached, first, v);
    simt_store8(scheme, cached, second, v + 8);
  }
}

/* A row of x to y and, rounded as it is there, to `cached` if that is not NULL. */
template <bool Interleaved>
__device__ void turn_row(const turn<Interleaved> &t, const rope_operands &o, int64_t row,
                         iso_scheme cache_scheme, uint8_t *cached) {
  const uint8_t *x = o.x.row(row);
  uint8_t *y = o.y.row(row);
  float v[COLUMNS];
  simt_load8(o.x.scheme, x, t.first, *(float(*)[8])v);
  simt_load8(o.x.scheme, x, t.second, *(float(*)[8])(v + 8));
  t.rotate(v);
  simt_store8(o.y.scheme, y, t.first, v);
  simt_store8(o.y.scheme, y, t.second, v + 8);
  if (!cached)
    return;
#pragma unroll
  for (int j = 0; j < COLUMNS; j++)
    v[j] = simt_rounded(o.y.scheme, v[j]);
  store_columns(cache_scheme, cached, v, t.first, t.second);
}

/* Grid: tokens, as many a block as its threads have columns for. */
template <bool Interleaved>
__global__ void __launch_bounds__(THREADS)
    rope_rows(const __grid_constant__ rope_fused f, int n_tokens, int groups) {
  simt_begin();
  int of_token = groups * SLOTS, in_token = (int)threadIdx.x % of_token;
  int in_block = (int)threadIdx.x / of_token, tokens = THREADS / of_token;
  int token = (int)blockIdx.x * tokens + in_block;
  if (in_block >= tokens || token >= n_tokens)
    return;
  int group = in_token % groups, slot = in_token / groups;
  turn<Interleaved> t;
  t.first = group * (Interleaved ? COLUMNS : 8);
  t.second = t.first + (Interleaved ? 8 : groups * 8);
#pragma unroll
  for (int j = 0; j < 8; j++)
    rope_angle(f.q, token, group * 8 + j, &t.sine[j], &t.cosine[j]);
  for (int head = slot; head < f.q.n_heads; head += SLOTS)
    turn_row(t, f.q, (int64_t)token * f.q.n_heads + head, ISO_SCHEME_F32, nullptr);
  if (!f.k.x.data)
    return;
  for (int head = slot; head < f.k.n_heads; head += SLOTS)
    turn_row(t, f.k, (int64_t)token * f.k.n_heads + head, f.k_cache.scheme,
             rope_cache_row(f, f.k_cache, token, head));
  for (int head = slot; head < f.k.n_heads; head += SLOTS) {
    uint8_t *cached = rope_cache_row(f, f.v_cache, token, head);
    const uint8_t *row = f.v.row((int64_t)token * f.k.n_heads + head);
    for (int column = group * COLUMNS; cached && column < f.v.n_columns;
         column += groups * COLUMNS) {
      float v[COLUMNS];
      simt_load8(f.v.scheme, row, column, *(float(*)[8])v);
      simt_load8(f.v.scheme, row, column + 8, *(float(*)[8])(v + 8));
      store_columns(f.v_cache.scheme, cached, v, column, column + 8);
    }
  }
}

bool is_even(const rope_operands &o) {
  return simt_is_aligned(o.x, 16) && simt_is_aligned(o.y, 16) && o.x.n_columns % COLUMNS == 0 &&
         o.x.n_columns / COLUMNS * SLOTS <= THREADS && o.n_pairs * 2 == o.x.n_columns;
}

/* `groups`: threads that have a head of keys; those of f8_g128 find a scale in eights. */
bool is_even(const rope_cache &c, int64_t n_columns, int64_t groups) {
  uint64_t bits = (uint64_t)(uintptr_t)c.data | (uint64_t)c.row_bytes;
  return c.scheme == ISO_SCHEME_F8_G128
             ? bits % 4 == 0 && n_columns == 128 && groups % 8 == 0
             : (ISO_SCHEME_BIT(c.scheme) & SIMT_FLOATS) && bits % 16 == 0;
}

} /* namespace */

bool rope_many_takes(const rope_fused &f) {
  int64_t n_tokens = f.q.n_heads > 0 ? f.q.y.n_rows / f.q.n_heads : 0;
  int64_t groups = f.q.x.n_columns / COLUMNS;
  if (n_tokens < LEAST_TOKENS || n_tokens > INT32_MAX || !is_even(f.q))
    return false;
  return !f.k.x.data ||
         (is_even(f.k) && f.k.x.n_columns == f.q.x.n_columns && f.k.positions == f.q.positions &&
          f.k.frequencies == f.q.frequencies && f.k.interleaved == f.q.interleaved &&
          f.k.magnitude == f.q.magnitude && simt_is_aligned(f.v, 16) &&
          f.v.n_columns % COLUMNS == 0 && is_even(f.k_cache, f.k.x.n_columns, groups) &&
          is_even(f.v_cache, f.v.n_columns, groups));
}

iso_status rope_many(iso_queue *queue, const char *name, const rope_fused &f) {
  int n_tokens = (int)(f.q.y.n_rows / f.q.n_heads), groups = (int)f.q.x.n_columns / COLUMNS;
  int tokens = THREADS / (groups * SLOTS);
  return simt_launch_early(queue, name, f.q.interleaved ? rope_rows<true> : rope_rows<false>,
                           dim3((unsigned)((n_tokens + tokens - 1) / tokens)), dim3(THREADS), 0, f,
                           n_tokens, groups);
}
