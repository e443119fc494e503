/* Rotary positions of many rows: a thread has 16 columns, 8 pairs, of some heads of a token, and
 * their sines once for all of them. */
#include "backends/simt/rope.cuh"

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
  simt_store8(cache_scheme, cached, t.first, v);
  simt_store8(cache_scheme, cached, t.second, v + 8);
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
  int chunks = (int)f.v.n_columns / 8;
  for (int i = in_token; i < f.k.n_heads * chunks; i += of_token) {
    int head = i / chunks, column = i % chunks * 8;
    uint8_t *cached = rope_cache_row(f, f.v_cache, token, head);
    float v[8];
    simt_load8(f.v.scheme, f.v.row((int64_t)token * f.k.n_heads + head), column, v);
    if (cached)
      simt_store8(f.v_cache.scheme, cached, column, v);
  }
}

bool is_even(const rope_operands &o) {
  return simt_is_aligned(o.x, 16) && simt_is_aligned(o.y, 16) && o.x.n_columns % COLUMNS == 0 &&
         o.x.n_columns / COLUMNS * SLOTS <= THREADS && o.n_pairs * 2 == o.x.n_columns;
}

bool is_even(const rope_cache &c) {
  return ((uint64_t)(uintptr_t)c.data | (uint64_t)c.row_bytes) % 16 == 0;
}

} /* namespace */

bool rope_many_takes(const rope_fused &f) {
  int64_t n_tokens = f.q.n_heads > 0 ? f.q.y.n_rows / f.q.n_heads : 0;
  if (n_tokens < LEAST_TOKENS || n_tokens > INT32_MAX || !is_even(f.q))
    return false;
  return !f.k.x.data || (is_even(f.k) && f.k.x.n_columns == f.q.x.n_columns &&
                         f.k.interleaved == f.q.interleaved && f.k.magnitude == f.q.magnitude &&
                         simt_is_aligned(f.v, 16) && f.v.n_columns % 8 == 0 && is_even(f.k_cache) &&
                         is_even(f.v_cache));
}

iso_status rope_many(iso_queue *queue, const char *name, const rope_fused &f) {
  int n_tokens = (int)(f.q.y.n_rows / f.q.n_heads), groups = (int)f.q.x.n_columns / COLUMNS;
  int tokens = THREADS / (groups * SLOTS);
  return simt_launch_early(queue, name, f.q.interleaved ? rope_rows<true> : rope_rows<false>,
                           dim3((unsigned)((n_tokens + tokens - 1) / tokens)), dim3(THREADS), 0, f,
                           n_tokens, groups);
}
