/* Paged attention of few query rows a sequence: decoding. Memory-bound: every cache row is read
 * once for all the query heads that share it.
 *
 * A tile is up to 8 columns: rows of one sequence times the query heads of one key head. A block
 * takes a tile and a split of the positions; its subgroups take turns at 16 positions each, with
 * several steps on their way in a ring of their own, and keep running maxima, sums and weighted
 * values. Scores are keys (left operand) times queries (right), the result values^T times weights,
 * so that a column of scores and of results is in the same lanes. Queries and weights are two
 * 16-bit planes each, so neither loses anything to the matrix unit.
 *
 * The last block of a tile to be done merges its splits and writes y. Lengths are read on the
 * device: grids depend on the numbers of rows, sequences and blocks alone.
 *
 * Partial results lie by token and a row of no sequence becomes zeros; or, ByTile, where only the
 * short sequences of a batch are for these kernels, by place among their tiles, a second kernel
 * merges them, and other rows are left alone. */
#ifndef ISOMER_SIMT_ATTENTION_SPLIT_H
#define ISOMER_SIMT_ATTENTION_SPLIT_H

#include "backends/simt/attention_paged.cuh"

enum { SPLIT_SUBGROUPS = 4, SPLIT_STEP = 16, SPLIT_COLUMNS = 8 };

struct attention_split_plan {
  int tile_rows, head_tiles; /* head_tiles: tiles that a group of heads takes */
  int n_tiles, n_splits;
  uint64_t workspace_bytes;
};

/* Partial results: for each (row, head, split) `dim` values, the maximum (in units of log 2) and
 * the sum. `slots`: blocks that run at once (attention_split_slots()). */
static inline attention_split_plan attention_split_of(int64_t slots, int64_t n_tokens,
                                                      int64_t n_sequences, int64_t n_heads,
                                                      int64_t n_kv_heads, int64_t capacity,
                                                      int64_t dim) {
  attention_split_plan plan = {};
  int group = (int)(n_heads / n_kv_heads);
  plan.tile_rows = group >= SPLIT_COLUMNS ? 1 : SPLIT_COLUMNS / group;
  plan.head_tiles = (group + SPLIT_COLUMNS - 1) / SPLIT_COLUMNS;
  int64_t n_tiles = n_tokens / plan.tile_rows + n_sequences;
  n_tiles = n_tiles < n_tokens ? n_tiles : n_tokens;
  int64_t items = n_tiles * plan.head_tiles * n_kv_heads, wanted = 2 * slots;
  int64_t round = SPLIT_SUBGROUPS * SPLIT_STEP, rounds = (capacity + round - 1) / round;
  int64_t most = items > 0 ? wanted / items + 1 : 1;
  plan.n_tiles = (int)n_tiles;
  plan.n_splits = 1;
  /* Starting and ending a block costs about 3 rounds, merging a split a twentieth. What counts is
   * the time of contexts as long as they may be, plus, of several sequences, that of contexts half
   * as long on average, of which the longest come first: all rounds, and half of a block's. */
  float best = INFINITY;
  for (int64_t n = 1; n <= most && n <= (rounds > 1 ? rounds : 1); n++) {
    int64_t waves = (items * n + slots - 1) / slots, each = 3 + (rounds + n - 1) / n;
    float time = (float)(waves * each) + 0.05f * (float)n;
    float all = (float)items * (3 * (float)n + (float)rounds / 2) / (float)slots;
    float longest = (float)each;
    if (n_sequences > 1)
      time += all + longest / 2 > longest ? all + longest / 2 : longest;
    if (time < best)
      best = time, plan.n_splits = (int)n;
  }
  /* n_splits <= wanted / items + 1 and items >= n_tiles, at any size. */
  uint64_t entries = (uint64_t)((n_tiles + wanted) * plan.tile_rows + 1) * (uint64_t)n_heads;
  plan.workspace_bytes = entries * (uint64_t)(dim + 2) * sizeof(float);
  return plan;
}

/* How a step's rows of a cache lie in shared memory and enter products. Sums are of 16 positions
 * (rows) by 8 columns; queries lie as [32 elements][plane][column][t] of 16 bytes, 8 elements each.
 * These are 16-bit floats. */
template <typename V, int Dim> struct split_floats {
  typedef V value;
  static constexpr int planes = 2, tile_bytes = SPLIT_STEP * attention_rows<Dim>::stride;
  static constexpr int depth = tile_bytes >= 8192 ? 2 : tile_bytes >= 4096 ? 3 : 5;
  /* Nothing to do for these; see split_f8. */
  struct state {};
  static __device__ __forceinline__ void settle(uint8_t *, int, const attention_tile &, int) {}
  template <int Tiles>
  static __device__ __forceinline__ void weigh(const uint8_t *, int, state *, float (&)[4],
                                               float (&)[Tiles][4]) {}
  static __device__ __forceinline__ float unit(const state &) { return 1; }

  static __device__ __forceinline__ void copy(const uint8_t *from, int64_t row_bytes, int position,
                                              const attention_tile &tile, int lane, uint8_t *to) {
    attention_rows<Dim>::template copy<SPLIT_STEP>(from, row_bytes, position, tile.first, tile.last,
                                                   lane, to);
  }
  /* Bytes from element 0 of a query to element k. */
  static __device__ __forceinline__ int query_at(int k) {
    return k / 32 * 1024 + k % 32 / 8 * 16 + k % 8 / 4 * 8;
  }
  static __device__ __forceinline__ void score(const uint8_t *keys, const uint8_t *queries,
                                               int lane, float (&sums)[4]) {
    int g = lane / 4, t = lane % 4;
    float low_sums[4] = {};
#pragma unroll
    for (int b = 0; b < Dim / 32; b++) {
      uint4 low_rows = *(const uint4 *)(keys + attention_rows<Dim>::at(g, b * 4 + t));
      uint4 high_rows = *(const uint4 *)(keys + attention_rows<Dim>::at(g + 8, b * 4 + t));
      const uint32_t first[4] = {low_rows.x, high_rows.x, low_rows.y, high_rows.y};
      const uint32_t second[4] = {low_rows.z, high_rows.z, low_rows.w, high_rows.w};
#pragma unroll
      for (int plane = 0; plane < 2; plane++) {
        uint4 q = *(const uint4 *)(queries + b * 1024 + plane * 512 + g * 64 + t * 16);
        mma_add<V>(plane ? low_sums : sums, first, q.x, q.y);
        mma_add<V>(plane ? low_sums : sums, second, q.z, q.w);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      sums[i] += low_sums[i];
  }
  /* The element that register i of result d belongs to. */
  static __device__ __forceinline__ int element(int d, int g, int i) {
    return d * 16 + g + i / 2 * 8;
  }
  /* weights: rounded, what rounding left; each of positions 0-7, 8-15. */
  static __device__ __forceinline__ void gather(const uint8_t *values, int, const attention_tile &,
                                                int lane, const uint32_t (&high)[2],
                                                const uint32_t (&low)[2],
                                                float (&result)[Dim / 16][4]) {
#pragma unroll
    for (int d = 0; d < Dim / 16; d++) {
      uint32_t left[4];
      mma_load_transposed(
          left, values + attention_rows<Dim>::at(lane % 8 + lane / 16 * 8, 2 * d + lane / 8 % 2));
      mma_add<V>(result[d], left, high[0], high[1]);
      mma_add<V>(result[d], left, low[0], low[1]);
    }
  }
};

/* A step's rows, which lie one after another as in the cache. */
template <int Bytes>
__device__ __forceinline__ void split_copy_whole(const uint8_t *from, int lane, uint8_t *to) {
#pragma unroll
  for (int i = lane; i < Bytes / 16; i += 32)
    mma_copy16(to + i * 16, from + i * 16);
}

/* Q8_0: rows one after another as in the cache. Codes are exact as f16; keys' scales multiply the
 * sums of their blocks, values' scales their codes, rounded to f16. */
template <int Dim> struct split_q8_0 {
  typedef simt_f16 value;
  static constexpr int planes = 1, blocks = Dim / 32, row = blocks * 34;
  static constexpr int tile_bytes = SPLIT_STEP * row;
  /* Decoding takes as long as the copies: 3 leave room for twice as many blocks as 5. */
  static constexpr int depth = tile_bytes >= 2048 ? 3 : 5;
  static_assert(row % 4 == 0 && tile_bytes % 16 == 0, "rows start at words, steps at chunks");
  /* Nothing to do for these; see split_f8. */
  struct state {};
  static __device__ __forceinline__ void settle(uint8_t *, int, const attention_tile &, int) {}
  template <int Tiles>
  static __device__ __forceinline__ void weigh(const uint8_t *, int, state *, float (&)[4],
                                               float (&)[Tiles][4]) {}
  static __device__ __forceinline__ float unit(const state &) { return 1; }

  static __device__ __forceinline__ void copy(const uint8_t *from, int64_t, int,
                                              const attention_tile &, int lane, uint8_t *to) {
    split_copy_whole<tile_bytes>(from, lane, to);
  }
  static __device__ __forceinline__ int query_at(int k) {
    return k / 32 * 512 + k % 16 / 4 * 16 + k % 32 / 16 * 8;
  }
  /* Codes 4 i .. of block b of a row; blocks of even index start at odd halfwords. */
  static __device__ __forceinline__ uint32_t codes(const uint8_t *row_data, int b, int i) {
    const uint8_t *at = row_data + b * 34 + 2 + i * 4;
    uint32_t word =
        b % 2 ? *(const uint32_t *)at
              : __byte_perm(*(const uint32_t *)(at - 2), *(const uint32_t *)(at + 2), 0x5432);
    return word;
  }
  static __device__ __forceinline__ uint32_t bits(__half2 pair) { return *(uint32_t *)&pair; }
  static __device__ __forceinline__ float scale(const uint8_t *row_data, int b) {
    return __half2float(*(const __half *)(row_data + b * 34));
  }
  static __device__ __forceinline__ void score(const uint8_t *keys, const uint8_t *queries,
                                               int lane, float (&sums)[4]) {
    int g = lane / 4, t = lane % 4;
    const uint8_t *rows[2] = {keys + g * row, keys + (g + 8) * row};
#pragma unroll
    for (int b = 0; b < blocks; b++) {
      uint32_t left[2][4];
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          uint32_t word = codes(rows[r], b, t + 4 * h);
          left[h][r] = bits(attention_halves<0, 1>(word));
          left[h][2 + r] = bits(attention_halves<2, 3>(word));
        }
      uint4 q = *(const uint4 *)(queries + b * 512 + g * 64 + t * 16);
      float of_block[4] = {};
      mma_add<simt_f16>(of_block, left[0], q.x, q.y);
      mma_add<simt_f16>(of_block, left[1], q.z, q.w);
#pragma unroll
      for (int i = 0; i < 4; i++)
        sums[i] += scale(rows[i / 2], b) * of_block[i];
    }
  }
  static __device__ __forceinline__ int element(int d, int g, int i) {
    return d / 2 * 32 + 4 * g + d % 2 * 2 + i / 2;
  }
  static __device__ __forceinline__ void gather(const uint8_t *values, int position,
                                                const attention_tile &tile, int lane,
                                                const uint32_t (&high)[2], const uint32_t (&)[2],
                                                float (&result)[Dim / 16][4]) {
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int b = 0; b < blocks; b++) {
      uint32_t left[2][4];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        int p = 2 * t + 8 * h;
        const uint8_t *first = values + p * row, *second = first + row;
        /* What lies at positions that are not seen may be anything. */
        __half zero = __float2half_rn(0.0f), scales[2] = {zero, zero};
        if (position + p >= tile.first && position + p <= tile.last)
          scales[0] = *(const __half *)(first + b * 34);
        if (position + p + 1 >= tile.first && position + p + 1 <= tile.last)
          scales[1] = *(const __half *)(second + b * 34);
        __half2 both = __halves2half2(scales[0], scales[1]);
        uint32_t one = codes(first, b, g), other = codes(second, b, g);
        uint32_t even = __byte_perm(one, other, 0x5140), odd = __byte_perm(one, other, 0x7362);
        left[0][2 * h] = bits(__hmul2(attention_halves<0, 1>(even), both));
        left[0][2 * h + 1] = bits(__hmul2(attention_halves<2, 3>(even), both));
        left[1][2 * h] = bits(__hmul2(attention_halves<0, 1>(odd), both));
        left[1][2 * h + 1] = bits(__hmul2(attention_halves<2, 3>(odd), both));
      }
      mma_add<simt_f16>(result[2 * b], left[0], high[0], high[1]);
      mma_add<simt_f16>(result[2 * b + 1], left[1], high[0], high[1]);
    }
  }
};

/* F8_G128, heads of 128: rows one after another as in the cache, a scale and 128 codes. Codes are
 * exact as f16; keys' scales multiply the sums of their rows, values' scales the weights of theirs.
 * Rows are 33 words, so row r begins at bank r: a lane takes the words that are in no other's bank
 * then, and the order of elements in products follows from that. */
struct split_f8 {
  typedef simt_f16 value;
  static constexpr int planes = 1, row = 132, tile_bytes = SPLIT_STEP * row, depth = 3;
  static_assert(tile_bytes % 16 == 0, "steps start at chunks");
  /* A power of two above all values' scales so far, by which those that weights meet are divided
   * lest a weight leave f16's range; the result is what it multiplies. */
  struct state {
    float base = 0, inverse = 0;
  };

  static __device__ __forceinline__ void copy(const uint8_t *from, int64_t, int,
                                              const attention_tile &, int lane, uint8_t *to) {
    split_copy_whole<tile_bytes>(from, lane, to);
  }
  /* Lane t of four takes elements 32 t .. of a row, 4 of them for each of 8 products. */
  static __device__ __forceinline__ int query_at(int k) {
    return k % 32 / 8 * 512 + k / 32 * 16 + k % 8 * 2;
  }
  static __device__ __forceinline__ uint32_t bits(__half2 pair) { return *(uint32_t *)&pair; }
  static __device__ __forceinline__ uint32_t word(const uint8_t *row_data, int i) {
    return *(const uint32_t *)(row_data + 4 + i * 4);
  }
  static __device__ __forceinline__ float scale(const uint8_t *row_data) {
    return *(const float *)row_data;
  }
  static __device__ __forceinline__ void score(const uint8_t *keys, const uint8_t *queries,
                                               int lane, float (&sums)[4]) {
    int g = lane / 4, t = lane % 4;
    const uint8_t *rows[2] = {keys + g * row, keys + (g + 8) * row};
#pragma unroll
    for (int b = 0; b < 4; b++) {
      uint32_t left[2][4];
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          uint32_t codes = word(rows[r], 8 * t + 2 * b + h);
          left[h][r] = bits(attention_e4m3<false>(codes));
          left[h][2 + r] = bits(attention_e4m3<true>(codes));
        }
      uint4 q = *(const uint4 *)(queries + b * 512 + g * 64 + t * 16);
      mma_add<simt_f16>(sums, left[0], q.x, q.y);
      mma_add<simt_f16>(sums, left[1], q.z, q.w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      sums[i] *= scale(rows[i / 2]);
  }
  /* Values of positions that are not seen may be anything, NaN included: they become zeros. */
  static __device__ __forceinline__ void settle(uint8_t *values, int position,
                                                const attention_tile &tile, int lane) {
    if (position >= tile.first && position + SPLIT_STEP - 1 <= tile.last)
      return;
#pragma unroll 1
    for (int p = 0; p < SPLIT_STEP; p++)
      if (position + p < tile.first || position + p > tile.last)
#pragma unroll 1
        for (int i = lane; i < row / 4; i += 32)
          *(uint32_t *)(values + p * row + i * 4) = 0;
    __syncwarp();
  }
  template <int Tiles>
  static __device__ __forceinline__ void weigh(const uint8_t *values, int lane, state *s,
                                               float (&weights)[4], float (&result)[Tiles][4]) {
    float scales[2] = {scale(values + lane / 4 * row), scale(values + (lane / 4 + 8) * row)};
    uint32_t top = mma_subgroup_max(__float_as_uint(fmaxf(scales[0], scales[1])));
    if (top > __float_as_uint(s->base)) { /* all lanes or none, and seldom */
      float base = __uint_as_float((top & 0x7f800000u) + 0x00800000u);
      float shrink = s->base / base;
      *s = {base, 1 / base};
#pragma unroll
      for (int d = 0; d < Tiles; d++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          result[d][i] *= shrink;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      weights[i] *= scales[i / 2] * s->inverse;
  }
  static __device__ __forceinline__ float unit(const state &s) { return s.base; }
  /* Lane g of eight takes words 8 (g / 2) + g % 2 + 2 b of a row, so that no two of a step's rows
   * 2 t meet in a bank. */
  static __device__ __forceinline__ int element(int d, int g, int i) {
    return (8 * (g / 2) + g % 2 + d / 2 * 2) * 4 + d % 2 * 2 + i / 2;
  }
  static __device__ __forceinline__ void gather(const uint8_t *values, int, const attention_tile &,
                                                int lane, const uint32_t (&high)[2],
                                                const uint32_t (&)[2], float (&result)[8][4]) {
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int b = 0; b < 4; b++) {
      uint32_t left[2][4];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const uint8_t *first = values + (2 * t + 8 * h) * row;
        int at = 8 * (g / 2) + g % 2 + 2 * b;
        uint32_t one = word(first, at), other = word(first + row, at);
        uint32_t even = __byte_perm(one, other, 0x5140), odd = __byte_perm(one, other, 0x7362);
        left[0][2 * h] = bits(attention_e4m3<false>(even));
        left[0][2 * h + 1] = bits(attention_e4m3<true>(even));
        left[1][2 * h] = bits(attention_e4m3<false>(odd));
        left[1][2 * h + 1] = bits(attention_e4m3<true>(odd));
      }
      mma_add<simt_f16>(result[2 * b], left[0], high[0], high[1]);
      mma_add<simt_f16>(result[2 * b + 1], left[1], high[0], high[1]);
    }
  }
};

template <typename Cache, int Dim> struct attention_split_shared {
  static constexpr int tile_bytes = Cache::tile_bytes, depth = Cache::depth;
  static constexpr int ring_bytes = depth * 2 * tile_bytes;
  static constexpr int query_bytes = Dim * 2 * Cache::planes * SPLIT_COLUMNS;
  static constexpr int partial_bytes = SPLIT_SUBGROUPS * SPLIT_COLUMNS * (Dim + 4) * 4;
  static constexpr int work_bytes = query_bytes + SPLIT_SUBGROUPS * ring_bytes;
  static constexpr int bytes = work_bytes > partial_bytes ? work_bytes : partial_bytes;
  /* Blocks that a multiprocessor holds, with what they have besides; registers allow 4. */
  static constexpr int fit = 227 * 1024 / (bytes + 2048), per_unit = fit < 1   ? 1
                                                                     : fit < 4 ? fit
                                                                               : 4;
};

/* Blocks that run at once over a cache of this type. */
static inline int64_t attention_split_slots(int n_units, iso_scheme scheme, int64_t dim) {
  bool is_q8_0 = scheme == ISO_SCHEME_Q8_0;
  if (scheme == ISO_SCHEME_F8_G128)
    return (int64_t)attention_split_shared<split_f8, 128>::per_unit * n_units;
  int per_unit = is_q8_0      ? dim == 64    ? attention_split_shared<split_q8_0<64>, 64>::per_unit
                                : dim == 128 ? attention_split_shared<split_q8_0<128>, 128>::per_unit
                                             : attention_split_shared<split_q8_0<256>, 256>::per_unit
                 : dim == 64  ? attention_split_shared<split_floats<simt_f16, 64>, 64>::per_unit
                 : dim <= 128 ? attention_split_shared<split_floats<simt_f16, 128>, 128>::per_unit
                              : attention_split_shared<split_floats<simt_f16, 256>, 256>::per_unit;
  return (int64_t)per_unit * n_units;
}

/* A subgroup adds up the splits of a (row, head) and writes y. Other blocks wrote them: a split
 * without positions as zeros. */
template <int Dim>
__device__ __forceinline__ void attention_merge_row(const float *mine, int n_splits,
                                                    iso_scheme scheme, uint8_t *y) {
  int lane = threadIdx.x % 32;
  float highest = -INFINITY, whole = 0, sums[Dim / 32] = {};
  for (int s = lane; s < n_splits; s += 32)
    highest = fmaxf(highest, __ldcg(mine + s * (Dim + 2) + Dim));
  highest = simt_subgroup_reduce(highest, simt_max());
  for (int base = 0; base < n_splits;
       base += 32) { /* a lane a split, then all of a split's values */
    float maximum = -INFINITY, total = 0;
    if (base + lane < n_splits) {
      maximum = __ldcg(mine + (base + lane) * (Dim + 2) + Dim);
      total = __ldcg(mine + (base + lane) * (Dim + 2) + Dim + 1);
    }
    float factor = maximum == -INFINITY ? 0.0f : exp2f(maximum - highest);
    whole += total * factor;
    int count = min(n_splits - base, 32);
#pragma unroll 8
    for (int i = 0; i < count; i++) {
      float of_split = simt_shuffle(factor, i);
#pragma unroll
      for (int j = 0; j < Dim / 32; j++)
        sums[j] += __ldcg(mine + (base + i) * (Dim + 2) + lane + j * 32) * of_split;
    }
  }
  whole = simt_subgroup_reduce(whole, simt_sum());
#pragma unroll
  for (int j = 0; j < Dim / 32; j++)
    simt_store(scheme, y, lane + j * 32, sums[j] / whole);
}

/* Whether a token is some sequence's; for all lanes of a subgroup together. */
__device__ __forceinline__ bool attention_is_covered(const attention_operands &o, int token) {
  bool covered = false;
  for (int s = threadIdx.x % 32; s < o.n_sequences; s += 32)
    covered |= token >= o.query_start[s] && token - o.query_start[s] < o.query_length[s];
  return __any_sync(0xffffffffu, covered);
}

/* Zeros in the rows of no sequence, of those that block `index` of `count` looks at. */
__device__ __forceinline__ void attention_clear_rows(const attention_operands &o, int index,
                                                     int count) {
  int lane = threadIdx.x % 32;
  for (int token = index + (int)threadIdx.x / 32 * count; token < o.n_tokens;
       token += SPLIT_SUBGROUPS * count) {
    if (attention_is_covered(o, token))
      continue;
    for (int head = 0; head < o.n_heads; head++)
      for (int e = lane; e < o.y.n_columns; e += 32)
        simt_store(o.y.scheme, o.y.row((int64_t)token * o.n_heads + head), e, 0.0f);
  }
}

/* Whether a block is the last of its tile's splits to get here, and all that others have written is
 * there. */
__device__ __forceinline__ bool attention_is_last_split(uint32_t *counters) {
  __shared__ bool is_last;
  uint32_t *counter = counters + (int64_t)blockIdx.z * gridDim.y + blockIdx.y;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    is_last = atomicAdd(counter, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!is_last)
    return false;
  __threadfence();
  if (threadIdx.x == 0)
    *counter = 0;
  return true;
}

/* Grid: splits, (key head, tile of its heads), tiles. */
template <typename Cache, int Dim, bool ByTile>
__global__ void __launch_bounds__(SPLIT_SUBGROUPS * 32,
                                  attention_split_shared<Cache, Dim>::per_unit)
    attention_split(const __grid_constant__ attention_operands o, int tile_rows, int head_tiles,
                    float *partial, uint32_t *counters) {
  typedef attention_split_shared<Cache, Dim> shared;
  typedef typename Cache::value V;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ float query_scales[SPLIT_COLUMNS];
  __shared__ uint32_t counts[SPLIT_SUBGROUPS][SIMT_SUBGROUP];
  __shared__ float maxima[SPLIT_SUBGROUPS][SPLIT_COLUMNS], totals[SPLIT_SUBGROUPS][SPLIT_COLUMNS];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  int kv_head = blockIdx.y / head_tiles, n_splits = gridDim.x;
  int heads = min(o.group, SPLIT_COLUMNS);
  int first_head = blockIdx.y % head_tiles * SPLIT_COLUMNS;
  heads = min(heads, o.group - first_head);
  first_head += kv_head * o.group;
  simt_let_later_begin();
  if (!o.settled)
    simt_wait_for_earlier();
  attention_tile tile;
  if constexpr (ByTile) /* the merge counts tiles as they come */
    tile = attention_find_tile(o, blockIdx.z, tile_rows);
  else
    tile = attention_find_longest(o, blockIdx.z, tile_rows, counts[warp]);
  bool clears = blockIdx.x == 0 && blockIdx.y == 0;
  if (tile.sequence < 0) {
    simt_wait_for_earlier();
    if (clears)
      attention_clear_rows(o, blockIdx.z, gridDim.z);
    return;
  }

  /* This split's positions, in whole steps of all subgroups. */
  int base = tile.first / SPLIT_STEP * SPLIT_STEP, round = SPLIT_SUBGROUPS * SPLIT_STEP;
  int rounds = (tile.last - base) / round + 1, each = (rounds + n_splits - 1) / n_splits;
  int begin = base + (int)blockIdx.x * each * round;
  int end = min(begin + each * round, tile.last + 1);
  const int32_t *table = o.block_table + (int64_t)tile.sequence * o.n_blocks;
  uint8_t *ring = memory + shared::query_bytes + warp * shared::ring_bytes;
  int n_steps =
      begin + warp * SPLIT_STEP < end ? (end - 1 - begin - warp * SPLIT_STEP) / round + 1 : 0;
  int first_position = begin + warp * SPLIT_STEP;
  int page = attention_page(o, table, first_position, tile.last); /* of the next step to copy */
  auto copy = [&](int step, int slot) {
    if (step < n_steps) {
      int position = first_position + step * round;
      uint8_t *at = ring + slot * 2 * shared::tile_bytes;
      const uint8_t *keys = attention_row(o, o.k, page, kv_head, position);
      const uint8_t *values = attention_row(o, o.v, page, kv_head, position);
      page = attention_page(o, table, position + round, tile.last);
      Cache::copy(keys, o.k.row_bytes, position, tile, lane, at);
      Cache::copy(values, o.v.row_bytes, position, tile, lane, at + shared::tile_bytes);
    }
    mma_copy_commit();
  };
  /* Rows of earlier steps may be there before this launch's turn. */
  int asked = 0, new_first = tile.position - tile.row;
  while (o.settled && asked < shared::depth && asked < n_steps &&
         first_position + asked * round + SPLIT_STEP <= new_first) {
    copy(asked, asked);
    asked++;
  }
  simt_wait_for_earlier();
  for (; asked < shared::depth; asked++)
    copy(asked, asked);
  if (clears)
    attention_clear_rows(o, blockIdx.z, gridDim.z);

  /* Queries as planes. */
  for (int n = warp; n < SPLIT_COLUMNS; n += SPLIT_SUBGROUPS) {
    int row = n / heads, head = first_head + n % heads;
    bool exists = row < tile.n_rows && row < tile_rows;
    const uint8_t *q = o.q.row((int64_t)(tile.token + (exists ? row : 0)) * o.n_heads + head);
    float values[(Dim + 127) / 128][4] = {}, largest = 0, scale = 1, inverse = 1;
#pragma unroll
    for (int c = 0; c < (Dim + 127) / 128; c++) {
      int k = c * 128 + lane * 4;
      if (exists && k < Dim)
        simt_load4(o.q.scheme, q, k, values[c]);
#pragma unroll
      for (int i = 0; i < 4; i++)
        largest = fmaxf(largest, fabsf(values[c][i]));
    }
    if constexpr (!__is_same(V, simt_bf16))
      mma_half_scale(simt_subgroup_reduce(largest, simt_max()), &scale, &inverse);
    if (lane == 0)
      query_scales[n] = inverse;
#pragma unroll
    for (int c = 0; c < (Dim + 127) / 128; c++) {
      int k = c * 128 + lane * 4;
      uint32_t high[2], low[2];
      for (int p = 0; p < 2; p++)
        mma_split<V>(values[c][2 * p] * scale, values[c][2 * p + 1] * scale, &high[p], &low[p]);
      uint8_t *at = memory + n * 64 + Cache::query_at(k);
      if (k < Dim) {
        *(uint2 *)at = make_uint2(high[0], high[1]);
        if (Cache::planes == 2)
          *(uint2 *)(at + 512) = make_uint2(low[0], low[1]);
      }
    }
  }
  __syncthreads();

  /* This lane's two columns: what they see, and how scores become exponents of 2. */
  float score_scale[2], slope[2];
  int column_position[2], column_first[2], column_last[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int n = 2 * t + i, row = n / heads;
    bool exists = row < tile.n_rows && row < tile_rows;
    score_scale[i] = o.scale * query_scales[n];
    slope[i] = o.slopes && exists ? o.slopes[first_head + n % heads] : 0.0f;
    int position = column_position[i] = tile.position + row, window = (int)o.window;
    column_first[i] = window > 0 && position >= window ? position - window + 1 : 0;
    column_last[i] = !exists ? -1 : o.causal ? position : tile.context - 1;
  }

  const float LOG2_E = 1.4426950408889634f;
  float maximum[2] = {-INFINITY, -INFINITY}, total[2] = {};
  float result[Dim / 16][4] = {};
  typename Cache::state state;
  for (int step = 0, slot = 0; step < n_steps; step++) {
    int position = first_position + step * round;
    uint8_t *keys = ring + slot * 2 * shared::tile_bytes, *values = keys + shared::tile_bytes;
    mma_copy_wait<shared::depth - 1>();
    __syncwarp();
    Cache::settle(values, position, tile, lane);
    float sums[4] = {};
    Cache::score(keys, memory, lane, sums);
    /* Element i: position g + i / 2 * 8, column i % 2 of the lane's. */
    float scores[4], highest[2] = {maximum[0], maximum[1]};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int p = position + g + i / 2 * 8, c = i % 2;
      float score = sums[i] * score_scale[c];
      if (o.soft_cap > 0)
        score = o.soft_cap * tanhf(score / o.soft_cap);
      score = (score + slope[c] * (float)(p - column_position[c])) * LOG2_E;
      scores[i] = p >= column_first[c] && p <= column_last[c] ? score : -INFINITY;
      highest[c] = fmaxf(highest[c], scores[i]);
    }
    float shrink[2];
#pragma unroll
    for (int c = 0; c < 2; c++) {
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2)
        highest[c] = fmaxf(highest[c], simt_shuffle_xor(highest[c], mask));
      shrink[c] = maximum[c] == highest[c] ? 1.0f : exp2f(maximum[c] - highest[c]);
      maximum[c] = highest[c];
      total[c] *= shrink[c];
    }
    float weights[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      weights[i] = scores[i] == -INFINITY ? 0.0f : exp2f(scores[i] - maximum[i % 2]);
      total[i % 2] += weights[i];
    }
    Cache::weigh(values, lane, &state, weights, result);
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
    Cache::gather(values, position, tile, lane, high, low, result);
    __syncwarp();
    copy(step + shared::depth, slot);
    slot = slot + 1 == shared::depth ? 0 : slot + 1;
  }
#pragma unroll
  for (int c = 0; c < 2; c++)
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2)
      total[c] += simt_shuffle_xor(total[c], mask);

  /* Merge the subgroups; [subgroup][column][Dim + 4]. */
  mma_copy_wait<0>();
  __syncthreads();
  float *mine = (float *)memory + warp * SPLIT_COLUMNS * (Dim + 4);
#pragma unroll
  for (int d = 0; d < Dim / 16; d++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      mine[(2 * t + i % 2) * (Dim + 4) + Cache::element(d, g, i)] =
          result[d][i] * Cache::unit(state);
  if (g == 0)
#pragma unroll
    for (int c = 0; c < 2; c++)
      maxima[warp][2 * t + c] = maximum[c], totals[warp][2 * t + c] = total[c];
  __syncthreads();
  int n_columns = min(tile_rows, tile.n_rows) * heads;
  for (int n = warp; n < n_columns; n += SPLIT_SUBGROUPS) {
    int64_t head = first_head + n % heads;
    int64_t slot = (ByTile ? (int64_t)blockIdx.z * tile_rows : tile.token) + n / heads;
    float *out = partial + ((slot * o.n_heads + head) * n_splits + blockIdx.x) * (Dim + 2);
    float highest = -INFINITY, whole = 0, factors[SPLIT_SUBGROUPS];
#pragma unroll
    for (int w = 0; w < SPLIT_SUBGROUPS; w++)
      highest = fmaxf(highest, maxima[w][n]);
#pragma unroll
    for (int w = 0; w < SPLIT_SUBGROUPS; w++) {
      factors[w] = maxima[w][n] == -INFINITY ? 0.0f : exp2f(maxima[w][n] - highest);
      whole += totals[w][n] * factors[w];
    }
    bool is_all = !ByTile && n_splits == 1;
    uint8_t *y = o.y.row(slot * o.n_heads + head);
#pragma unroll
    for (int e = lane; e < Dim; e += 32) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < SPLIT_SUBGROUPS; w++)
        sum += ((float *)memory)[(w * SPLIT_COLUMNS + n) * (Dim + 4) + e] * factors[w];
      if (is_all)
        simt_store(o.y.scheme, y, e, sum / whole);
      else
        out[e] = sum;
    }
    if (lane == 0 && !is_all)
      out[Dim] = highest, out[Dim + 1] = whole;
  }
  if (!ByTile && n_splits > 1 && attention_is_last_split(counters))
    for (int n = warp; n < n_columns; n += SPLIT_SUBGROUPS) {
      int64_t index = ((int64_t)tile.token + n / heads) * o.n_heads + first_head + n % heads;
      attention_merge_row<Dim>(partial + index * n_splits * (Dim + 2), n_splits, o.y.scheme,
                               o.y.row(index));
    }
}

/* One subgroup a (row, head) of the tiles. */
template <int Dim>
__global__ void __launch_bounds__(128)
    attention_merge(const __grid_constant__ attention_operands o, int n_rows, int tile_rows,
                    int n_splits, const float *partial) {
  int64_t index = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
  if (index >= (int64_t)n_rows * o.n_heads)
    return;
  simt_let_later_begin();
  simt_wait_for_earlier();
  int row = (int)(index / o.n_heads);
  attention_tile tile = attention_find_tile(o, row / tile_rows, tile_rows);
  if (tile.sequence < 0 || row % tile_rows >= tile.n_rows)
    return;
  int64_t to = ((int64_t)tile.token + row % tile_rows) * o.n_heads + index % o.n_heads;
  attention_merge_row<Dim>(partial + index * n_splits * (Dim + 2), n_splits, o.y.scheme,
                           o.y.row(to));
}

template <typename Cache, int Dim, bool ByTile = false>
iso_status attention_split_launch(iso_queue *queue, const attention_operands &o,
                                  const attention_split_plan &plan, uint8_t *workspace) {
  typedef attention_split_shared<Cache, Dim> shared;
  if (o.n_tokens == 0)
    return ISO_OK;
  int64_t groups = (int64_t)plan.n_tiles * o.n_kv_heads * plan.head_tiles;
  if (plan.n_splits > 1 && groups > SIMT_COUNTERS) /* splits are for fewer groups than this */
    return simt_fail_size("paged_attention");
  ISO_TRY(
      simt_launch_early(queue, "paged_attention.split", attention_split<Cache, Dim, ByTile>,
                        dim3((unsigned)plan.n_splits, (unsigned)(o.n_kv_heads * plan.head_tiles),
                             (unsigned)plan.n_tiles),
                        dim3(SPLIT_SUBGROUPS * 32), (size_t)shared::bytes, o, plan.tile_rows,
                        plan.head_tiles, (float *)workspace, simt_queue_counters(queue)));
  if (!ByTile)
    return ISO_OK;
  int rows = plan.n_tiles * plan.tile_rows;
  return simt_launch_early(queue, "paged_attention.merge", attention_merge<Dim>,
                           dim3((unsigned)(((int64_t)rows * o.n_heads + 3) / 4)), dim3(128), 0, o,
                           rows, plan.tile_rows, plan.n_splits, (const float *)workspace);
}

#endif
