/* attention_split() for what decoding nearly always is, in half the instructions: 16-bit
 * activations, pages of a power of two whose rows lie one after another, groups of at most 8 heads,
 * no window, soft cap or slopes.
 *
 * A ring holds keys of a step and values of a step by turns, `tiles` of them, and each is asked for
 * anew as soon as it was used: a ring of two always has one on its way, and four blocks of such
 * rings fit a multiprocessor. */
#ifndef ISOMER_SIMT_ATTENTION_DECODE_H
#define ISOMER_SIMT_ATTENTION_DECODE_H

#include "backends/simt/attention_split.cuh"
#include "backends/simt/rounding.cuh"

/* Rows of 16-bit floats; queries are of the same type, so one plane is all of them. */
template <typename V, int Dim> struct decode_floats {
  typedef V value;
  typedef split_floats<V, Dim> split;
  static constexpr int row_bytes = Dim * 2, tile_bytes = SPLIT_STEP * row_bytes;
  static constexpr int tiles = Dim == 128 ? 2 : 4;
  static_assert(attention_rows<Dim>::stride == row_bytes, "no gaps between rows");

  static __device__ __forceinline__ void copy(const uint8_t *from, int lane, uint8_t *to) {
    constexpr int chunks = Dim / 8, rows = 32 / chunks;
    int row = lane / chunks, chunk = lane % chunks;
#pragma unroll
    for (int i = 0; i < SPLIT_STEP / rows; i++)
      mma_copy16(to + attention_rows<Dim>::at(row + i * rows, chunk), from + i * 512 + lane * 16);
  }
  /* Bytes from element 0 of a query to element k; [32 elements][column][t], 8 elements each. */
  static __device__ __forceinline__ int query_at(int k) {
    return k / 32 * 512 + k % 32 / 8 * 16 + k % 8 / 4 * 8;
  }
  static __device__ __forceinline__ void score(const uint8_t *keys, const uint8_t *queries,
                                               int lane, float (&sums)[4]) {
    int g = lane / 4, t = lane % 4;
    float others[4] = {};
#pragma unroll
    for (int b = 0; b < Dim / 32; b++) {
      uint4 low_rows = *(const uint4 *)(keys + attention_rows<Dim>::at(g, b * 4 + t));
      uint4 high_rows = *(const uint4 *)(keys + attention_rows<Dim>::at(g + 8, b * 4 + t));
      const uint32_t first[4] = {low_rows.x, high_rows.x, low_rows.y, high_rows.y};
      const uint32_t second[4] = {low_rows.z, high_rows.z, low_rows.w, high_rows.w};
      uint4 q = *(const uint4 *)(queries + b * 512 + g * 64 + t * 16);
      mma_add<V>(sums, first, q.x, q.y);
      mma_add<V>(others, second, q.z, q.w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      sums[i] += others[i];
  }
  /* What lies behind the last position may be anything: it becomes zeros. */
  static __device__ __forceinline__ void settle(uint8_t *values, int n_seen, int lane) {
    constexpr int chunks = Dim / 8;
#pragma unroll 1
    for (int i = n_seen * chunks + lane; i < SPLIT_STEP * chunks; i += 32)
      *(uint4 *)(values + attention_rows<Dim>::at(i / chunks, i % chunks)) = make_uint4(0, 0, 0, 0);
  }
};

/* Rows of blocks, as split_q8_0 and split_f8 have them. */
template <typename Split> struct decode_blocks {
  typedef typename Split::value value;
  typedef Split split;
  static constexpr int row_bytes = Split::row, tile_bytes = Split::tile_bytes, tiles = 6;

  static __device__ __forceinline__ void copy(const uint8_t *from, int lane, uint8_t *to) {
    split_copy_whole<tile_bytes>(from, lane, to);
  }
  static __device__ __forceinline__ int query_at(int k) { return Split::query_at(k); }
  static __device__ __forceinline__ void score(const uint8_t *keys, const uint8_t *queries,
                                               int lane, float (&sums)[4]) {
    Split::score(keys, queries, lane, sums);
  }
  static __device__ __forceinline__ void settle(uint8_t *values, int n_seen, int lane) {
#pragma unroll 1
    for (int i = n_seen * (row_bytes / 4) + lane; i < SPLIT_STEP * row_bytes / 4; i += 32)
      *(uint32_t *)(values + i * 4) = 0;
  }
};

template <typename Cache, int Dim> struct attention_decode_shared {
  static constexpr int tile_bytes = Cache::tile_bytes, tiles = Cache::tiles;
  static constexpr int ring_bytes = tiles * tile_bytes;
  static constexpr int query_bytes = Dim * 2 * SPLIT_COLUMNS;
  static constexpr int partial_bytes = SPLIT_SUBGROUPS * SPLIT_COLUMNS * (Dim + 4) * 4;
  static constexpr int work_bytes = query_bytes + SPLIT_SUBGROUPS * ring_bytes;
  static constexpr int bytes = work_bytes > partial_bytes ? work_bytes : partial_bytes;
  /* Blocks that a multiprocessor holds, with what they have besides; registers allow 4. */
  static constexpr int fit = 227 * 1024 / (bytes + 2048), per_unit = fit < 4 ? fit : 4;
};

/* What is known of a launch besides; of each of the 8 columns, 4 bits. */
struct attention_decode_shape {
  uint32_t rows, heads; /* of the tile and of the group */
  int32_t tile_shift;   /* rows of a tile, as a power of two */
  int32_t bucket_shift; /* from a context to 32 steps of length */
  int32_t units;        /* multiprocessors, where all blocks run at once; else 0 */

  __device__ __forceinline__ int row(int column) const { return (int)(rows >> column * 4 & 15); }
  __device__ __forceinline__ int head(int column) const { return (int)(heads >> column * 4 & 15); }
};

/* attention_find_longest(), where pages are a power of two and nothing but the context bounds what
 * is seen. */
struct attention_decode_share {
  int length, context, bucket, tiles;

  __device__ __forceinline__ attention_decode_share(const attention_operands &o,
                                                    const attention_decode_shape &shape,
                                                    int sequence) {
    length = 0, context = 0;
    if (sequence < o.n_sequences)
      length = o.query_length[sequence], context = o.context_length[sequence];
    context = min(max(context, 0), o.n_blocks << o.page_shift);
    bucket = 31 - min(context >> shape.bucket_shift, 31);
    tiles = (length + (1 << shape.tile_shift) - 1) >> shape.tile_shift;
  }
};

__device__ __forceinline__ attention_tile attention_decode_find(const attention_operands &o,
                                                                const attention_decode_shape &shape,
                                                                int index, uint32_t *counts) {
  attention_tile tile = {};
  tile.sequence = -1;
  int lane = threadIdx.x % 32;
  counts[lane] = 0;
  __syncwarp();
#pragma unroll 1
  for (int base = 0; base < o.n_sequences; base += 32) {
    attention_decode_share share(o, shape, base + lane);
    if (share.tiles > 0)
      atomicAdd(&counts[share.bucket], (uint32_t)share.tiles);
  }
  __syncwarp();
  int of_bucket = (int)counts[lane], sum = attention_prefix_sum(of_bucket);
  uint32_t reach = __ballot_sync(0xffffffffu, index < sum);
  if (reach == 0)
    return tile;
  int chosen = __ffs((int)reach) - 1;
  index -= simt_shuffle(sum - of_bucket, chosen);
#pragma unroll 1
  for (int base = 0; base < o.n_sequences; base += 32) {
    attention_decode_share share(o, shape, base + lane);
    int tiles = share.bucket == chosen ? share.tiles : 0;
    int up_to = attention_prefix_sum(tiles), total = simt_shuffle(up_to, 31);
    if (index >= total) {
      index -= total;
      continue;
    }
    int owner = __ffs((int)__ballot_sync(0xffffffffu, index < up_to)) - 1;
    int length = simt_shuffle(share.length, owner);
    tile.sequence = base + owner;
    tile.row = (index - simt_shuffle(up_to - tiles, owner)) << shape.tile_shift;
    tile.n_rows = min(1 << shape.tile_shift, length - tile.row);
    tile.token = o.query_start[tile.sequence] + tile.row;
    tile.context = simt_shuffle(share.context, owner);
    tile.position = tile.context - length + tile.row;
    tile.last = tile.position + tile.n_rows - 1;
    break;
  }
  return tile;
}

/* Finite, so that differences are numbers where nothing was seen. */
#define DECODE_LOWEST (-3e38f)

/* Whether some row that this subgroup would clear is of no sequence; such are seldom. */
__device__ __forceinline__ bool attention_decode_clears(const attention_operands &o, int index,
                                                        int count) {
  bool is_bare = false;
  for (int token = index + (int)threadIdx.x / 32 * count; token < o.n_tokens;
       token += SPLIT_SUBGROUPS * count)
    is_bare |= !attention_is_covered(o, token);
  return is_bare;
}

/* attention_clear_rows(), of rounded rows. */
template <int Dim>
__device__ __forceinline__ void attention_decode_clear_rounded(const attention_operands &o,
                                                               const simt_rounded_rows &rounded,
                                                               int index, int count) {
  const float zeros[4] = {};
  for (int token = index + (int)threadIdx.x / 32 * count; token < o.n_tokens;
       token += SPLIT_SUBGROUPS * count) {
    if (attention_is_covered(o, token))
      continue;
    for (int head = 0; head < o.n_heads; head++)
      simt_round(rounded, token, head * Dim + threadIdx.x % 32 * 4, zeros);
  }
}

/* Queries to shared memory, as the cache's rows meet them, and what undoes their scales. */
template <typename Cache, int Dim>
__device__ __forceinline__ void
attention_decode_queries(const attention_operands &o, const attention_decode_shape &shape,
                         const attention_tile &tile, iso_scheme scheme, int first_head,
                         uint8_t *queries, float *inverses) {
  typedef typename Cache::value V;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, k = lane * 4;
#pragma unroll
  for (int n = warp; n < SPLIT_COLUMNS; n += SPLIT_SUBGROUPS) {
    float v[4] = {}, scale = 1, inverse = 1;
    int64_t row = (int64_t)(tile.token + shape.row(n)) * o.n_heads + first_head + shape.head(n);
    if (shape.row(n) < tile.n_rows && k < Dim)
      simt_load4(scheme, o.q.data + row * o.q.strides[0], k, v);
    if constexpr (!__is_same(V, simt_bf16)) {
      float largest = 0;
#pragma unroll
      for (int i = 0; i < 4; i++)
        largest = fmaxf(largest, fabsf(v[i]));
      mma_half_scale(simt_subgroup_reduce(largest, simt_max()), &scale, &inverse);
    }
    if (lane == 0)
      inverses[n] = inverse;
    if (k < Dim)
      *(uint2 *)(queries + n * 64 + Cache::query_at(k)) = make_uint2(
          mma_pack<V>(v[0] * scale, v[1] * scale), mma_pack<V>(v[2] * scale, v[3] * scale));
  }
}

/* This lane's two columns: running maxima (in units of log 2) and sums, and weighted values. */
template <typename Cache, int Dim> struct attention_decode_state {
  typedef typename Cache::value V;
  typedef typename Cache::split split;
  float score_scale[2], maximum[2] = {DECODE_LOWEST, DECODE_LOWEST}, total[2] = {}, shrink[2];
  int last[2]; /* position up to which a column sees */
  float result[Dim / 16][4] = {};
  typename split::state of_values;

  /* From scores of positions g and g + 8 behind `position` to weights. */
  __device__ __forceinline__ void weigh(int position, int lane, float (&scores)[4]) {
    float highest[2] = {maximum[0], maximum[1]};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      bool is_seen = position + lane / 4 + i / 2 * 8 <= last[i % 2];
      scores[i] = is_seen ? scores[i] * score_scale[i % 2] : -INFINITY;
      highest[i % 2] = fmaxf(highest[i % 2], scores[i]);
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
      scores[i] = attention_exp2(scores[i] - maximum[i % 2]);
      total[i % 2] += scores[i];
    }
  }
  __device__ __forceinline__ void add(const uint8_t *values, int position,
                                      const attention_tile &tile, int lane, float (&weights)[4]) {
    split::weigh(values, lane, &of_values, weights, result);
    uint32_t high[2], low[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      mma_split<V>(weights[2 * half], weights[2 * half + 1], &high[half], &low[half]);
      high[half] = mma_transpose(high[half]), low[half] = mma_transpose(low[half]);
    }
    if (__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) /* seldom, later on */
#pragma unroll
      for (int d = 0; d < Dim / 16; d++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          result[d][i] *= shrink[i % 2];
    split::gather(values, position, tile, lane, high, low, result);
  }
  /* To this subgroup's part of shared memory, [column][Dim + 4]. */
  __device__ __forceinline__ void store(float *sums, float *maxima, float *totals, int lane) {
    int g = lane / 4, t = lane % 4;
    float unit = split::unit(of_values);
#pragma unroll
    for (int d = 0; d < Dim / 16; d++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        sums[(2 * t + i % 2) * (Dim + 4) + split::element(d, g, i)] = result[d][i] * unit;
#pragma unroll
    for (int c = 0; c < 2; c++) {
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2)
        total[c] += simt_shuffle_xor(total[c], mask);
      if (g == 0)
        maxima[2 * t + c] = maximum[c], totals[2 * t + c] = total[c];
    }
  }
};

/* Adds up the subgroups' sums of this split: y, rounded, too, where that is asked for, or where
 * there are several splits, what the last block of the tile merges. */
template <int Dim>
__device__ __forceinline__ void
attention_decode_finish(const attention_operands &o, const attention_decode_shape &shape,
                        const attention_tile &tile, iso_scheme scheme, int first_head,
                        const float *sums, const float *maxima, const float *totals,
                        const simt_rounded_rows &rounded, float *partial) {
  int n_columns = tile.n_rows * o.group, e = threadIdx.x % 32 * 4, n_splits = gridDim.x;
#pragma unroll 1
  for (int n = threadIdx.x / 32; n < n_columns; n += SPLIT_SUBGROUPS) {
    int64_t index = (int64_t)(tile.token + shape.row(n)) * o.n_heads + first_head + shape.head(n);
    float highest = DECODE_LOWEST, whole = 0, sum[4] = {};
#pragma unroll
    for (int w = 0; w < SPLIT_SUBGROUPS; w++)
      highest = fmaxf(highest, maxima[w * SPLIT_COLUMNS + n]);
#pragma unroll
    for (int w = 0; w < SPLIT_SUBGROUPS; w++) {
      float factor = attention_exp2(maxima[w * SPLIT_COLUMNS + n] - highest);
      whole += totals[w * SPLIT_COLUMNS + n] * factor;
      if (e >= Dim)
        continue;
      float4 v = *(const float4 *)(sums + (w * SPLIT_COLUMNS + n) * (Dim + 4) + e);
      sum[0] += v.x * factor, sum[1] += v.y * factor;
      sum[2] += v.z * factor, sum[3] += v.w * factor;
    }
    if (e >= Dim)
      continue;
    if (n_splits == 1) {
      float inverse = 1 / whole;
#pragma unroll
      for (float &v : sum)
        v *= inverse;
      simt_store4(scheme, o.y.data + index * o.y.strides[0], e, sum);
      if constexpr (Dim == SIMT_ROUNDED_GROUP) {
        if (!rounded.image)
          continue;
#pragma unroll
        for (float &v : sum)
          v = simt_rounded(scheme, v);
        simt_round(rounded, tile.token + shape.row(n), (first_head + shape.head(n)) * Dim + e, sum);
      }
      continue;
    }
    float *out = partial + (index * n_splits + blockIdx.x) * (Dim + 2);
    *(float2 *)(out + e) = make_float2(sum[0], sum[1]);
    *(float2 *)(out + e + 2) = make_float2(sum[2], sum[3]);
    if (e == 0)
      out[Dim] = highest, out[Dim + 1] = whole;
  }
}

/* What a block takes. Blocks that all run at once come to multiprocessors by turns: every other
 * turn goes backwards, lest one get the longest of each. */
struct attention_decode_place {
  int kv_head, tile;

  __device__ __forceinline__ explicit attention_decode_place(const attention_decode_shape &shape) {
    kv_head = blockIdx.y, tile = blockIdx.z;
    if (shape.units == 0)
      return;
    int index = tile * (int)gridDim.y + kv_head, n_blocks = (int)(gridDim.y * gridDim.z);
    int turn = index / shape.units, first = turn * shape.units;
    if (turn % 2)
      index = first + min(shape.units, n_blocks - first) - 1 - (index - first);
    tile = index / (int)gridDim.y, kv_head = index % (int)gridDim.y;
  }
};

/* Grid: splits, key heads, tiles. */
template <typename Cache, typename Act, int Dim>
__global__ void __launch_bounds__(SPLIT_SUBGROUPS * 32,
                                  attention_decode_shared<Cache, Dim>::per_unit)
    attention_decode(const __grid_constant__ attention_operands o, attention_decode_shape shape,
                     simt_rounded_rows rounded, float *partial, uint32_t *counters) {
  typedef attention_decode_shared<Cache, Dim> shared;
  constexpr iso_scheme scheme = __is_same(Act, simt_bf16) ? ISO_SCHEME_BF16 : ISO_SCHEME_F16;
  constexpr int round = SPLIT_SUBGROUPS * SPLIT_STEP; /* positions */
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ float query_scales[SPLIT_COLUMNS];
  __shared__ uint32_t counts[SPLIT_SUBGROUPS][SIMT_SUBGROUP];
  __shared__ float maxima[SPLIT_SUBGROUPS * SPLIT_COLUMNS], totals[SPLIT_SUBGROUPS * SPLIT_COLUMNS];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  attention_decode_place place(shape);
  int kv_head = place.kv_head, first_head = kv_head * o.group, n_splits = gridDim.x;
  simt_let_later_begin();
  if (!o.settled)
    simt_wait_for_earlier();
  attention_tile tile = attention_decode_find(o, shape, place.tile, counts[warp]);
  bool clears =
      blockIdx.x == 0 && blockIdx.y == 0 && attention_decode_clears(o, blockIdx.z, gridDim.z);
  auto clear = [&]() {
    attention_clear_rows(o, blockIdx.z, gridDim.z);
    if constexpr (Dim == SIMT_ROUNDED_GROUP)
      if (rounded.image)
        attention_decode_clear_rounded<Dim>(o, rounded, blockIdx.z, gridDim.z);
  };
  if (tile.sequence < 0) {
    simt_wait_for_earlier();
    if (clears)
      clear();
    return;
  }

  /* This split's positions, in whole steps of all subgroups. */
  int rounds = tile.last / round + 1;
  int each = n_splits == 1 ? rounds : (rounds + n_splits - 1) / n_splits;
  int begin = (int)blockIdx.x * each * round, end = min(begin + each * round, tile.last + 1);
  int first_position = begin + warp * SPLIT_STEP;
  int n_steps = first_position < end ? (end - 1 - first_position) / round + 1 : 0;
  const int32_t *table = o.block_table + (int64_t)tile.sequence * o.n_blocks;
  int page = attention_page<true>(o, table, first_position, tile.last); /* of the next step */
  uint8_t *ring = memory + shared::query_bytes + warp * shared::ring_bytes;
  const uint8_t *values_from = nullptr;
  int asked = 0, asked_slot = 0; /* keys and values by turns */
  auto ask = [&]() {
    uint8_t *to = ring + asked_slot * shared::tile_bytes;
    int step = asked / 2;
    if (step < n_steps && asked % 2 == 0) {
      int position = first_position + step * round;
      int64_t at = page * o.k.page_bytes + kv_head * o.k.head_bytes +
                   (position & (o.page_size - 1)) * Cache::row_bytes;
      values_from = o.v.data + at;
      page = attention_page<true>(o, table, position + round, tile.last);
      Cache::copy(o.k.data + at, lane, to);
    } else if (step < n_steps) {
      Cache::copy(values_from, lane, to);
    }
    mma_copy_commit();
    asked++;
    asked_slot = asked_slot + 1 == shared::tiles ? 0 : asked_slot + 1;
  };
  /* Rows of earlier steps may be there before this launch's turn. */
  int new_first = tile.position - tile.row;
#pragma unroll 1
  while (o.settled && asked < shared::tiles && asked / 2 < n_steps &&
         first_position + asked / 2 * round + SPLIT_STEP <= new_first)
    ask();
  simt_wait_for_earlier();
#pragma unroll 1
  while (asked < shared::tiles)
    ask();
  attention_decode_queries<Cache, Dim>(o, shape, tile, scheme, first_head, memory, query_scales);
  if (clears)
    clear();
  __syncthreads();

  attention_decode_state<Cache, Dim> state;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int n = lane % 4 * 2 + i, row = shape.row(n);
    state.score_scale[i] = o.scale * query_scales[n] * 1.4426950408889634f; /* exponents of 2 */
    state.last[i] = row < tile.n_rows ? tile.position + row : -1;
  }
  int slot = 0;
  auto wait = [&]() { /* for the oldest tile */
                      mma_copy_wait<shared::tiles - 1>();
                      __syncwarp();
                      return ring + slot * shared::tile_bytes;
  };
  auto done = [&]() { /* with it */
                      __syncwarp();
                      ask();
                      slot = slot + 1 == shared::tiles ? 0 : slot + 1;
  };
#pragma unroll 1
  for (int step = 0; step < n_steps; step++) {
    int position = first_position + step * round;
    float weights[4] = {};
    Cache::score(wait(), memory, lane, weights);
    done();
    state.weigh(position, lane, weights);
    uint8_t *values = wait();
    if (position + SPLIT_STEP - 1 > tile.last) {
      Cache::settle(values, tile.last + 1 - position, lane);
      __syncwarp();
    }
    state.add(values, position, tile, lane, weights);
    done();
  }

  mma_copy_wait<0>();
  __syncthreads(); /* sums go where tiles were */
  float *sums = (float *)memory;
  state.store(sums + warp * SPLIT_COLUMNS * (Dim + 4), maxima + warp * SPLIT_COLUMNS,
              totals + warp * SPLIT_COLUMNS, lane);
  __syncthreads();
  attention_decode_finish<Dim>(o, shape, tile, scheme, first_head, sums, maxima, totals, rounded,
                               partial);
  if (n_splits == 1 || !attention_is_last_split(counters))
    return;
  for (int n = warp; n < tile.n_rows * o.group; n += SPLIT_SUBGROUPS) {
    int64_t index = (int64_t)(tile.token + shape.row(n)) * o.n_heads + first_head + shape.head(n);
    attention_merge_row<Dim>(partial + index * n_splits * (Dim + 2), n_splits, scheme,
                             o.y.data + index * o.y.strides[0]);
  }
}

/* Longer contexts have not been timed: attention_split() reads more of one at a time. */
enum { DECODE_MOST_POSITIONS = 2048 };

/* Whether attention_decode() does for this, of activations of a type and caches of `row_bytes`. */
static inline bool attention_decode_takes(const attention_operands &o, iso_scheme scheme,
                                          int64_t row_bytes) {
  return o.group <= SPLIT_COLUMNS && o.page_shift >= 0 &&
         ((int64_t)o.n_blocks << o.page_shift) <= DECODE_MOST_POSITIONS && o.soft_cap == 0 &&
         !o.slopes && o.window == 0 && o.causal && o.q.scheme == scheme && o.y.scheme == scheme &&
         o.q.n_dims == 1 && o.y.n_dims == 1 && simt_is_aligned(o.q, 8) && simt_is_aligned(o.y, 8) &&
         o.k.row_bytes == row_bytes && o.v.row_bytes == row_bytes &&
         o.k.head_bytes == o.v.head_bytes && o.k.page_bytes == o.v.page_bytes;
}

template <typename Cache, typename Act, int Dim>
iso_status attention_decode_launch(iso_queue *queue, const attention_operands &o,
                                   const attention_split_plan &plan, uint8_t *workspace) {
  typedef attention_decode_shared<Cache, Dim> shared;
  if (o.n_tokens == 0)
    return ISO_OK;
  int64_t groups = (int64_t)plan.n_tiles * o.n_kv_heads;
  if (plan.n_splits > 1 && groups > SIMT_COUNTERS) /* splits are for fewer groups than this */
    return simt_fail_size("paged_attention");
  attention_decode_shape shape = {};
  for (int n = 0; n < SPLIT_COLUMNS; n++) {
    shape.rows |= (uint32_t)(n / o.group) << n * 4;
    shape.heads |= (uint32_t)(n % o.group) << n * 4;
  }
  while (1 << shape.tile_shift < plan.tile_rows)
    shape.tile_shift++;
  while (((int64_t)o.n_blocks << o.page_shift) >> shape.bucket_shift > 31)
    shape.bucket_shift++;
  simt_rounded_rows rounded = {};
  if (plan.n_splits == 1 && Dim == SIMT_ROUNDED_GROUP)
    rounded = simt_take_rounding(simt_queue_deferred(queue));
  int64_t n_units = simt_n_units(queue->device);
  if (plan.n_splits == 1 && groups <= shared::per_unit * n_units)
    shape.units = (int32_t)n_units;
  return simt_launch_early(
      queue, "paged_attention.decode", attention_decode<Cache, Act, Dim>,
      dim3((unsigned)plan.n_splits, (unsigned)o.n_kv_heads, (unsigned)plan.n_tiles),
      dim3(SPLIT_SUBGROUPS * 32), (size_t)shared::bytes, o, shape, rounded, (float *)workspace,
      simt_queue_counters(queue));
}

#endif
