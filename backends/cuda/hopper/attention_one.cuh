/* Attention of one token of one sequence over f16 and bf16 caches, which takes as long as its
 * waits: there are few bytes and fewer operations. Where rotations and kv_write come right before,
 * it does their work, too, and no launch is between them.
 *
 * A cluster takes a key head. Its subgroups take turns at 16 positions, whose keys and values go
 * from memory straight to the registers from which the matrix unit takes its left operand: keys as
 * rows of which lane t of four takes every fourth chunk of 16 bytes, values as rows of positions
 * whose halves are paired on the way. Rows of earlier steps are asked for, and angles known, before
 * the launch's turn. Blocks add up their subgroups and send each block of the cluster its share of
 * all outputs, so that one barrier of the cluster is what merging costs. */
#ifndef ISOMER_CUDA_ATTENTION_ONE_H
#define ISOMER_CUDA_ATTENTION_ONE_H

#include "backends/cuda/hopper/hopper.cuh"
#include "backends/simt/attention_paged.cuh"
#include "backends/simt/rope.cuh"

enum { ONE_STEP = 16, ONE_HEADS = 8 };

/* What is rotated and stored ahead of attention, heads one stride apart. */
struct attention_one_rope {
  const uint8_t *q, *k, *v;
  uint8_t *q_out, *k_out;
  int64_t q_stride, k_stride, v_stride, q_out_stride, k_out_stride;
  const int32_t *position, *slot;
  const float *frequencies;
  float magnitude;
  uint32_t interleaved;
};

/* A subgroup's keys and values of a step. */
template <int Dim> struct attention_one_rows {
  uint4 keys[2][Dim / 32], values[4][Dim / 64];

  /* Lane 4 g + t: keys g and g + 8, chunks t, t + 4 ... */
  __device__ __forceinline__ void load_keys(const attention_operands &o, int page, int kv_head,
                                            int position, int lane) {
    const uint8_t *row = attention_row<true>(o, o.k, page, kv_head, position);
    row += lane / 4 * o.k.row_bytes + lane % 4 * 16;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int b = 0; b < Dim / 32; b++)
        keys[h][b] = __ldcg((const uint4 *)(row + h * 8 * o.k.row_bytes + b * 64));
  }
  /* Values 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, chunks g, g + 8. */
  __device__ __forceinline__ void load_values(const attention_operands &o, int page, int kv_head,
                                              int position, int lane) {
    const uint8_t *row = attention_row<true>(o, o.v, page, kv_head, position);
    row += lane % 4 * 2 * o.v.row_bytes + lane / 4 * 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int c = 0; c < Dim / 64; c++)
        values[i][c] = __ldcg((const uint4 *)(row + (i / 2 * 8 + i % 2) * o.v.row_bytes + c * 128));
  }
  /* Of the last step: the token's own key and value take their row, and values behind them, which
   * may be anything, become zeros. */
  __device__ __forceinline__ void settle(const uint4 *key, const uint4 *value, int last, int lane) {
#pragma unroll
    for (int h = 0; h < 2; h++)
      if (lane / 4 + h * 8 == last)
#pragma unroll
        for (int b = 0; b < Dim / 32; b++)
          keys[h][b] = key[b * 4 + lane % 4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int row = i / 2 * 8 + lane % 4 * 2 + i % 2;
#pragma unroll
      for (int c = 0; c < Dim / 64; c++) {
        if (row == last)
          values[i][c] = value[c * 8 + lane / 4];
        if (row > last)
          values[i][c] = make_uint4(0, 0, 0, 0);
      }
    }
  }

  /* Sums of keys g and g + 8 by queries 2 t and 2 t + 1, which lie in rows of Stride chunks. */
  template <typename V, int Stride>
  __device__ __forceinline__ void score(const uint4 *queries, int n_heads, int lane,
                                        float (&sums)[4]) const {
    int g = lane / 4, t = lane % 4;
    float others[4] = {};
#pragma unroll
    for (int b = 0; b < Dim / 32; b++) {
      uint4 q = make_uint4(0, 0, 0, 0);
      if (g < n_heads)
        q = queries[g * Stride + b * 4 + t];
      const uint32_t first[4] = {keys[0][b].x, keys[1][b].x, keys[0][b].y, keys[1][b].y};
      const uint32_t second[4] = {keys[0][b].z, keys[1][b].z, keys[0][b].w, keys[1][b].w};
      mma_add<V>(sums, first, q.x, q.y);
      mma_add<V>(others, second, q.z, q.w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      sums[i] += others[i];
  }

  /* Elements 2 w and 2 w + 1 of what this lane has of value row i. */
  __device__ __forceinline__ uint32_t word(int i, int w) const {
    const uint4 &chunk = values[i][w / 4];
    return w % 4 == 0 ? chunk.x : w % 4 == 1 ? chunk.y : w % 4 == 2 ? chunk.z : chunk.w;
  }
  /* Adds values by weights. Result d is of the lane's elements d (registers 0 and 1) and
   * d + Dim / 16 (2 and 3), columns 2 t and 2 t + 1. */
  template <typename V>
  __device__ __forceinline__ void gather(const uint32_t (&high)[2], const uint32_t (&low)[2],
                                         float (&result)[Dim / 16][4]) const {
#pragma unroll
    for (int d = 0; d < Dim / 16; d++) {
      uint32_t left[4];
#pragma unroll
      for (int r = 0; r < 4; r++) { /* halves of positions, then of elements */
        int e = d + r % 2 * (Dim / 16), i = r / 2 * 2;
        left[r] = __byte_perm(word(i, e / 2), word(i + 1, e / 2), e % 2 ? 0x7632 : 0x5410);
      }
      mma_add<V>(result[d], left, high[0], high[1]);
      mma_add<V>(result[d], left, low[0], low[1]);
    }
  }
  /* The column of a head's values that the lane's element e is. */
  static __device__ __forceinline__ int column(int e, int lane) {
    return e / 8 * 64 + lane / 4 * 8 + e % 8;
  }
};

/* Two pairs of a row of 16-bit floats: words j of its first and of its second half, each a pair, or
 * the first and the second elements of both the two pairs. */
template <typename V, int Dim> struct attention_one_pairs {
  uint32_t words[2];

  __device__ __forceinline__ void load(const uint8_t *row, int j) {
    words[0] = __ldcg((const uint32_t *)row + j);
    words[1] = __ldcg((const uint32_t *)row + Dim / 4 + j);
  }
  __device__ __forceinline__ void store(uint8_t *row, int j) const {
    ((uint32_t *)row)[j] = words[0];
    ((uint32_t *)row)[Dim / 4 + j] = words[1];
  }
  static __device__ __forceinline__ int index(bool interleaved, int j, int i) {
    return interleaved ? i * (Dim / 4) + j : 2 * j + i;
  }
  __device__ __forceinline__ void turn(bool interleaved, const float (&sine)[2],
                                       const float (&cosine)[2]) {
    constexpr iso_scheme scheme = __is_same(V, simt_bf16) ? ISO_SCHEME_BF16 : ISO_SCHEME_F16;
    float a[2], b[2];
    simt_load2(scheme, &words[0], a);
    simt_load2(scheme, &words[1], b);
    if (interleaved) {
      rope_turn(sine[0], cosine[0], &a[0], &a[1]);
      rope_turn(sine[1], cosine[1], &b[0], &b[1]);
    } else {
      rope_turn(sine[0], cosine[0], &a[0], &b[0]);
      rope_turn(sine[1], cosine[1], &a[1], &b[1]);
    }
    words[0] = mma_pack<V>(a[0], a[1]), words[1] = mma_pack<V>(b[0], b[1]);
  }
};

template <int Dim, int Ranks, int Subgroups> struct attention_one_shared {
  static constexpr int query_stride = Dim / 8 + 4; /* chunks; rows 16 banks apart */
  uint4 queries[ONE_HEADS * query_stride];
  uint4 fresh[2][Dim / 8]; /* the token's own key and value */
  float4 partial[Subgroups][ONE_HEADS][Dim / 4 + 1];
  float maxima[Subgroups][ONE_HEADS], totals[Subgroups][ONE_HEADS];
  /* Sent by the cluster's blocks: [four outputs of this block's share][rank]. */
  float4 sums[ONE_HEADS * Dim / 4];
  float2 statistics[ONE_HEADS * Dim / 4]; /* maximum, total */
  alignas(8) uint64_t arrived;
};

/* What a thread has to do with the token's own key (subgroup 0) or value (1). */
struct attention_one_own {
  const uint8_t *from;   /* NULL: nothing */
  uint8_t *stored, *out; /* where it is stored, and a rotated key written; NULL: nowhere */
  int home;              /* the place of the cache where attention looks, -1: nowhere */
};

__device__ __forceinline__ const uint8_t *attention_one_row(const attention_operands &o,
                                                            bool is_key, int place, int kv_head) {
  return attention_row<true>(o, is_key ? o.k : o.v, place >> o.page_shift, kv_head, place);
}

template <bool Rotates>
__device__ __forceinline__ attention_one_own attention_one_find_own(const attention_operands &o,
                                                                    const attention_one_rope &r,
                                                                    bool is_key, int position,
                                                                    int kv_head) {
  attention_one_own own = {};
  own.home = -1;
  if (position >= 0)
    own.home = attention_page<true>(o, o.block_table, position, position) << o.page_shift |
               (position & (o.page_size - 1));
  if (Rotates) {
    int slot = *r.slot;
    if (slot >= 0 && slot >> o.page_shift < o.n_pages)
      own.stored = (uint8_t *)attention_one_row(o, is_key, slot, kv_head);
    if (slot == own.home)
      own.home = -1;
    own.from = is_key ? r.k + kv_head * r.k_stride : r.v + kv_head * r.v_stride;
    own.out = is_key ? r.k_out + kv_head * r.k_out_stride : nullptr;
  } else if (own.home >= 0) {
    own.from = attention_one_row(o, is_key, own.home, kv_head);
  }
  return own;
}

/* The launch's turn: queries, and in the block that has the token's own position its key and value,
 * come to shared memory. */
template <typename V, int Dim, int Subgroups, bool Rotates, typename Shared>
__device__ __forceinline__ void
attention_one_begin(const attention_operands &o, const attention_one_rope &r, int position,
                    int kv_head, bool is_first, bool is_owner, Shared &shared) {
  constexpr int items = Dim / 4;
  int j = (int)threadIdx.x % items;
  bool is_key = threadIdx.x < 32;
  float sine[2], cosine[2];
  if (Rotates) {
    float frequencies[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
      frequencies[i] = r.frequencies[attention_one_pairs<V, Dim>::index(r.interleaved, j, i)];
#pragma unroll
    for (int i = 0; i < 2; i++)
      rope_angle(*r.position, frequencies[i], r.magnitude, &sine[i], &cosine[i]);
  }
  attention_one_own own = {};
  if (is_owner && threadIdx.x < 64 && threadIdx.x % 32 < items)
    own = attention_one_find_own<Rotates>(o, r, is_key, position, kv_head);
  simt_wait_for_earlier();

  attention_one_pairs<V, Dim> mine;
  if (own.from)
    mine.load(own.from, j);
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < o.group * items; i += Subgroups * 32) {
    int head = i / items;
    int64_t row = kv_head * o.group + head;
    attention_one_pairs<V, Dim> pairs;
    pairs.load(Rotates ? r.q + row * r.q_stride : o.q.data + row * o.q.strides[0], j);
    if (Rotates)
      pairs.turn(r.interleaved, sine, cosine);
    if (Rotates && is_first)
      pairs.store(r.q_out + row * r.q_out_stride, j);
    pairs.store((uint8_t *)(shared.queries + head * Shared::query_stride), j);
  }
  if (own.from) {
    if (own.out) {
      mine.turn(r.interleaved, sine, cosine);
      mine.store(own.out, j);
    }
    if (own.stored)
      mine.store(own.stored, j);
    if (Rotates && own.home >= 0) /* attention looks elsewhere */
      mine.load(attention_one_row(o, is_key, own.home, kv_head), j);
    mine.store((uint8_t *)shared.fresh[threadIdx.x / 32], j);
  }
  __syncthreads();
}

/* Finite, so that differences are numbers where nothing was seen. */
#define ONE_LOWEST (-3e38f)

/* A column's running maximum (in units of log 2) and sum, and weighted values. */
template <int Dim> struct attention_one_state {
  float maximum[2] = {ONE_LOWEST, ONE_LOWEST}, total[2] = {};
  float result[Dim / 16][4] = {};

  /* From sums of keys g and g + 8 of the step to weights of this lane's two columns; result shrinks
   * as they say. `last`: the row of the step up to which keys are seen. */
  __device__ __forceinline__ void weigh(const float (&sums)[4], float scale, int last,
                                        bool is_first, int lane, float (&weights)[4]) {
    float highest[2] = {maximum[0], maximum[1]}, shrink[2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      weights[i] = lane / 4 + i / 2 * 8 <= last ? sums[i] * scale : -INFINITY;
      highest[i % 2] = fmaxf(highest[i % 2], weights[i]);
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2)
        highest[c] = fmaxf(highest[c], simt_shuffle_xor(highest[c], mask));
      shrink[c] = attention_exp2(maximum[c] - highest[c]);
      maximum[c] = highest[c];
      total[c] *= shrink[c];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      weights[i] = attention_exp2(weights[i] - maximum[i % 2]);
      total[i % 2] += weights[i];
    }
    if (!is_first)
#pragma unroll
      for (int d = 0; d < Dim / 16; d++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          result[d][i] *= shrink[i % 2];
  }

  /* To this subgroup's part of shared memory. */
  template <typename Shared>
  __device__ __forceinline__ void store(Shared &shared, int warp, int lane, int n_heads) {
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int c = 0; c < 2; c++) {
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2)
        total[c] += simt_shuffle_xor(total[c], mask);
      int head = 2 * t + c;
      if (head >= n_heads)
        continue;
      if (g == 0)
        shared.maxima[warp][head] = maximum[c], shared.totals[warp][head] = total[c];
#pragma unroll
      for (int e = 0; e < Dim / 8; e += 4) { /* half the elements are in registers 0 and 1 */
        int i = e / (Dim / 16) * 2 + c, d = e % (Dim / 16);
        shared.partial[warp][head][attention_one_rows<Dim>::column(e, lane) / 4] =
            make_float4(result[d][i], result[d + 1][i], result[d + 2][i], result[d + 3][i]);
      }
    }
  }
};

/* Adds up the block's subgroups, and sends each block of the cluster its share: of every Ranks
 * times four outputs, four. */
template <int Dim, int Ranks, int Subgroups>
__device__ __forceinline__ void
attention_one_send(attention_one_shared<Dim, Ranks, Subgroups> &shared, int n_heads, int rank) {
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < n_heads * (Dim / 4); i += Subgroups * 32) {
    int head = i / (Dim / 4), at = i % (Dim / 4);
    float highest = ONE_LOWEST, total = 0;
#pragma unroll
    for (int w = 0; w < Subgroups; w++)
      highest = fmaxf(highest, shared.maxima[w][head]);
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < Subgroups; w++) {
      float factor = attention_exp2(shared.maxima[w][head] - highest);
      float4 of_subgroup = shared.partial[w][head][at];
      total += shared.totals[w][head] * factor;
      sum.x += of_subgroup.x * factor, sum.y += of_subgroup.y * factor;
      sum.z += of_subgroup.z * factor, sum.w += of_subgroup.w * factor;
    }
    int place = i / Ranks * Ranks + rank;
    hopper_cluster_send(&shared.sums[place], &shared.arrived, i % Ranks, sum);
    hopper_cluster_send(&shared.statistics[place], &shared.arrived, i % Ranks,
                        make_float2(highest, total));
  }
}

/* Adds up the cluster's blocks and writes this one's share of y. */
template <typename V, int Dim, int Ranks, int Subgroups>
__device__ __forceinline__ void
attention_one_finish(const attention_operands &o,
                     attention_one_shared<Dim, Ranks, Subgroups> &shared, int kv_head, int rank,
                     bool has_row) {
  int i = (int)threadIdx.x;
  if (i >= o.group * (Dim / 4) / Ranks)
    return;
  hopper_barrier_wait(&shared.arrived, 0);
  float2 statistics[Ranks];
  float highest = ONE_LOWEST, total = 0;
#pragma unroll
  for (int r = 0; r < Ranks; r++) {
    statistics[r] = shared.statistics[i * Ranks + r];
    highest = fmaxf(highest, statistics[r].x);
  }
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int r = 0; r < Ranks; r++) {
    float factor = attention_exp2(statistics[r].x - highest);
    float4 of_rank = shared.sums[i * Ranks + r];
    total += statistics[r].y * factor;
    sum.x += of_rank.x * factor, sum.y += of_rank.y * factor;
    sum.z += of_rank.z * factor, sum.w += of_rank.w * factor;
  }
  float inverse = has_row ? __fdividef(1, total) : 0.0f; /* a row of no sequence becomes zeros */
  int index = i * Ranks + rank;
  uint8_t *y = o.y.data + (kv_head * o.group + index / (Dim / 4)) * o.y.strides[0];
  ((uint2 *)y)[index % (Dim / 4)] = make_uint2(mma_pack<V>(sum.x * inverse, sum.y * inverse),
                                               mma_pack<V>(sum.z * inverse, sum.w * inverse));
}

/* Grid: Ranks blocks for each key head, a cluster. */
template <typename V, int Dim, int Ranks, int Subgroups, bool Rotates>
__global__ void __launch_bounds__(Subgroups * 32)
    attention_one(const __grid_constant__ attention_operands o,
                  const __grid_constant__ attention_one_rope r) {
  typedef attention_one_shared<Dim, Ranks, Subgroups> shared_type;
  __shared__ shared_type shared;
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  int rank = (int)blockIdx.x % Ranks, kv_head = (int)blockIdx.x / Ranks;
  simt_let_later_begin();
  if (threadIdx.x == 0) {
    hopper_barrier_init(&shared.arrived, 1);
    hopper_barrier_fence();
    hopper_barrier_expect(&shared.arrived, (uint32_t)(o.group * (Dim / 4) * 24));
  }
  hopper_cluster_arrive();
  if (!o.settled)
    simt_wait_for_earlier();
  constexpr int stride = Ranks * Subgroups;
  int step = rank + Ranks * warp, capacity = o.n_blocks * o.page_size;
  /* What lies where the sequence has not come to yet is of no account, so rows do not wait for its
   * length. */
  int length = o.query_length[0], context = o.context_length[0];
  attention_one_rows<Dim> rows;
  if (step * ONE_STEP < capacity) {
    int page = attention_page<true>(o, o.block_table, step * ONE_STEP, capacity - 1);
    rows.load_keys(o, page, kv_head, step * ONE_STEP, lane);
    rows.load_values(o, page, kv_head, step * ONE_STEP, lane);
  }
  bool has_row = length > 0;
  int position = has_row ? min(context, capacity) - 1 : -1; /* the token's own */
  int n_steps = position >= 0 ? position / ONE_STEP + 1 : 0;
  bool is_owner = (n_steps > 0 ? (n_steps - 1) % Ranks : 0) == rank;
  attention_one_begin<V, Dim, Subgroups, Rotates>(o, r, position, kv_head, rank == 0, is_owner,
                                                  shared);

  attention_one_state<Dim> state;
  float scale = o.scale * 1.4426950408889634f; /* exponents of 2 */
  for (bool is_first = true; step < n_steps; is_first = false) {
    int last = position - step * ONE_STEP;
    if (last < ONE_STEP)
      rows.settle(shared.fresh[0], shared.fresh[1], last, lane);
    float sums[4] = {}, weights[4];
    rows.template score<V, shared_type::query_stride>(shared.queries, o.group, lane, sums);
    step += stride;
    int page = 0;
    if (step < n_steps) {
      page = attention_page<true>(o, o.block_table, step * ONE_STEP, position);
      rows.load_keys(o, page, kv_head, step * ONE_STEP, lane);
    }
    state.weigh(sums, scale, last, is_first, lane, weights);
    uint32_t high[2], low[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      mma_split<V>(weights[2 * half], weights[2 * half + 1], &high[half], &low[half]);
      high[half] = mma_transpose(high[half]), low[half] = mma_transpose(low[half]);
    }
    rows.template gather<V>(high, low, state.result);
    if (step < n_steps)
      rows.load_values(o, page, kv_head, step * ONE_STEP, lane);
  }
  state.store(shared, warp, lane, o.group);
  __syncthreads();
  hopper_cluster_wait(); /* all blocks of the cluster are there to be sent to */
  attention_one_send(shared, o.group, rank);
  attention_one_finish<V>(o, shared, kv_head, rank, has_row);
}

#endif
