/* Products of 8-bit weights in groups of 128 with rows rounded to 8 bits, on Hopper's matrix unit:
 * E4M3 with E4M3, int8 with int8.
 *
 * Rows of x are rounded with a scale for each 128 columns, of many rows of E4M3 with one for a row,
 * by what makes them or by a kernel of their own, and lie in the order of shared memory
 * (backends/simt/rounding.cuh), so that a plain bulk copy brings them.
 *
 * Packed weights are in the order in which the matrix unit takes its left operand from registers,
 * and nothing is decoded: two groups of 4 subgroups load tiles of 16 features and multiply. Sums of
 * 128 columns are scaled and added in f32. Of 64 rows that is done while the next 128 columns are
 * multiplied. Sums of 128 rows leave no registers for two products: one group adds while the other,
 * which begins each tile EIGHT_LAG groups of columns later, multiplies. Threads keep copies of
 * weights (from before x is there) and of x going.
 *
 * Blocks go from tile to tile; of 128 rows two side by side share the copies of x. Few rows by few
 * features: the blocks of a cluster split K and add their sums up in the end. Where the groups of
 * each row of a weight have one scale it multiplies whole sums, not each group's: 64 rows take as
 * long as their copies, nearly, and adding up is half of what runs beside those. */
#ifndef ISOMER_CUDA_HOPPER_MATMUL_EIGHT_H
#define ISOMER_CUDA_HOPPER_MATMUL_EIGHT_H

#include "backends/cuda/hopper/matmul_eight_make.cuh"
#include "backends/simt/matmul_packed.cuh"
#include "backends/simt/rounding.cuh"
#include <atomic>
#include <type_traits>

enum {
  EIGHT_GROUP = SIMT_ROUNDED_GROUP, /* columns that share a scale */
  EIGHT_SLAB = SIMT_SLAB,           /* rows of x in a part of the image */
  EIGHT_SLAB_BYTES = EIGHT_SLAB * EIGHT_GROUP,
  EIGHT_TILES = 8,       /* subgroups that multiply, a tile of 16 features each */
  EIGHT_LEAST_TILES = 5, /* of a block, of few rows */
  EIGHT_FEATURES = 16 * EIGHT_TILES,
  EIGHT_THREADS = 128 + 32 * EIGHT_TILES,
  EIGHT_WIDE = 128,       /* rows of x in a tile of many */
  EIGHT_LEAST_WIDE = 512, /* rows from which on such tiles keep all of the device busy */
  EIGHT_PAIR = 2,         /* blocks that share them */
  EIGHT_LAG = 2,          /* groups that the second half of a block is behind the first */
  EIGHT_CHAIN = 4,        /* groups one after another of which each is added beside the next */
  EIGHT_LAST = 4,         /* groups left when the next kernel may begin */
  EIGHT_BAND = 16,        /* tiles of rows that go over the weights together */
  EIGHT_SPLITS = 8,       /* blocks of a cluster at most */
  EIGHT_PARTS = 3         /* products of the same rows at most */
};

/* One product of those that a launch makes of the same rows. */
struct matmul_eight_part {
  const uint8_t *weight; /* packed */
  const float *bias;     /* NULL: none */
  simt_rows y;
  int64_t n_features;
  int32_t first_column; /* of tiles, behind those of the parts before */
  bool wide_y;          /* rows that can be written 8 values at a time */
  bool row_scales;      /* all groups of a row have one scale */
};

/* Rows rounded to 8 bits. */
struct matmul_eight_rows {
  uint8_t *image; /* [slab][group], EIGHT_SLAB_BYTES each, at a multiple of 1,024 */
  float *scales;  /* [slab][group][EIGHT_SLAB], or [row] where matmul_eight_by_row() */
  int64_t n_rows;
  int32_t n_groups;
};

struct matmul_eight_arguments {
  matmul_eight_rows x;
  matmul_eight_part parts[EIGHT_PARTS];
  int32_t n_parts;
  int32_t n_columns; /* of blocks of all parts */
  int32_t tiles;     /* of 16 features that a block makes */
};

/* Whether rows of x have one scale each. */
template <bool Float8> __host__ __device__ constexpr bool matmul_eight_by_row(int64_t n_rows) {
  return Float8 && n_rows >= EIGHT_LEAST_WIDE;
}

/* ---- Rounding x ------------------------------------------------------------------------------ */

template <bool Float8>
__device__ __forceinline__ uint32_t matmul_eight_word(float a, float b, float c, float d) {
  if constexpr (Float8) {
    return simt_e4m3_word(a, b, c, d);
  } else {
    return (uint32_t)(__float2int_rn(a) & 255) | (uint32_t)(__float2int_rn(b) & 255) << 8 |
           (uint32_t)(__float2int_rn(c) & 255) << 16 | (uint32_t)(__float2int_rn(d) & 255) << 24;
  }
}

/* 16 columns, and their largest magnitude; infinite where one is NaN. */
__device__ __forceinline__ float matmul_eight_load(const simt_rows &rows, const uint8_t *x,
                                                   int chunk, float (&v)[16]) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
    simt_load4(rows.scheme, x, (int64_t)chunk * 16 + i * 4, v + i * 4);
#pragma unroll
  for (int i = 0; i < 16; i++)
    largest = fmaxf(largest, simt_magnitude(v[i]));
  return largest;
}

/* A row a block, 16 columns a thread at a time. Of each 4 columns the middle ones change places, as
 * in packed weights. */
template <bool Float8, bool ByRow>
__global__ void __launch_bounds__(256)
    matmul_eight_round(const __grid_constant__ simt_rows rows, matmul_eight_rows a) {
  __shared__ float shared[8];
  simt_let_later_begin();
  simt_wait_for_earlier();
  int64_t row = blockIdx.x, slab = row / EIGHT_SLAB;
  int r = (int)(row % EIGHT_SLAB), chunks = a.n_groups * 8;
  const uint8_t *x = rows.row(row);
  constexpr float most = Float8 ? SIMT_E4M3_MOST : 127.0f;
  float v[16], largest = 0;
  simt_code_scale scale;
  if constexpr (ByRow) {
    for (int chunk = threadIdx.x; chunk < chunks; chunk += 256)
      largest = fmaxf(largest, matmul_eight_load(rows, x, chunk, v));
    scale = simt_code_scale(simt_block_reduce(largest, shared, simt_max()), most);
    if (threadIdx.x == 0)
      a.scales[row] = scale.scale;
  }
  /* All lanes of 8 neighbours, which have a group, are there or none is. */
  for (int chunk = threadIdx.x; chunk < chunks; chunk += 256) {
    largest = matmul_eight_load(rows, x, chunk, v);
    int64_t part = slab * a.n_groups + chunk / 8;
    if constexpr (!ByRow) {
      uint32_t neighbours = 0xffu << threadIdx.x % 32 / 8 * 8;
#pragma unroll
      for (int mask = 1; mask < 8; mask *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(neighbours, largest, mask));
      scale = simt_code_scale(largest, most);
      if (chunk % 8 == 0)
        a.scales[part * EIGHT_SLAB + r] = scale.scale;
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
      v[i] = v[i] * scale.lift * scale.inverse;
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
      words[i] = matmul_eight_word<Float8>(v[4 * i], v[4 * i + 2], v[4 * i + 1], v[4 * i + 3]);
    uint8_t *image = a.image + part * EIGHT_SLAB_BYTES + r * EIGHT_GROUP;
    *(uint4 *)(image + ((chunk ^ r) % 8) * 16) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

/* ---- The product ----------------------------------------------------------------------------- */

/* Shared memory. */
template <typename W, int Rows> struct matmul_eight_shared {
  static constexpr int slabs = Rows / EIGHT_SLAB;
  static constexpr int x_bytes = slabs * EIGHT_SLAB_BYTES, w_bytes = EIGHT_TILES * W::unit_bytes;
  static constexpr bool by_row = W::float8 && Rows == EIGHT_WIDE;
  static constexpr int scale_bytes = by_row ? 0 : Rows * 4; /* of x, a group */
  /* Sums on their way out: 16 x 16 a subgroup. */
  static constexpr int out_stride = 20, out_bytes = 16 * out_stride * 4;
  static constexpr int room = 226 * 1024 - 1024 - EIGHT_TILES * out_bytes;
  static constexpr int step = 2; /* groups of columns in a slot */
  static constexpr int fit = room / (step * (x_bytes + w_bytes + scale_bytes));
  static constexpr int depth = fit < 8 / step ? fit : 8 / step, n_groups = depth * step;
  static constexpr int w_at = n_groups * x_bytes, scales_at = w_at + n_groups * w_bytes;
  static constexpr int out_at = scales_at + n_groups * scale_bytes;
  static constexpr int bytes = out_at + EIGHT_TILES * out_bytes + 1024; /* to start at 1,024 */
  /* Sums of a split, a row of x after another, where x and weights were. */
  static constexpr int split_stride = EIGHT_FEATURES + 4;
  static_assert(W::unit == EIGHT_GROUP && W::unit_bytes % 16 == 0, "a unit is a group");
  static_assert(split_stride * EIGHT_SLAB * 4 <= scales_at, "fits");
};

/* What a block makes next: rows and features of a part, of these groups. */
struct matmul_eight_tile {
  int64_t row, feature;
  int part, begin, end;
};

/* The tile in a column of `width` features, `offset` further on. */
__device__ __forceinline__ matmul_eight_tile matmul_eight_tile_of(const matmul_eight_arguments &a,
                                                                  int64_t row, int column,
                                                                  int width, int offset, int begin,
                                                                  int end) {
  int part = 0;
#pragma unroll
  for (int i = 1; i < EIGHT_PARTS; i++)
    part += i < a.n_parts && column >= a.parts[i].first_column;
  return {row, (int64_t)(column - a.parts[part].first_column) * width + offset, part, begin, end};
}

/* The index-th of all tiles: a band of rows goes over all columns before the next one. */
template <int Rows>
__device__ __forceinline__ matmul_eight_tile matmul_eight_find(const matmul_eight_arguments &a,
                                                               int64_t index, int rank, int pair) {
  int64_t row_tiles = (a.x.n_rows + Rows - 1) / Rows, of_band = EIGHT_BAND * (int64_t)a.n_columns;
  int64_t band = index / of_band, rest = index % of_band;
  int64_t height = min(row_tiles - band * EIGHT_BAND, (int64_t)EIGHT_BAND);
  return matmul_eight_tile_of(a, (band * EIGHT_BAND + rest % height) * Rows, (int)(rest / height),
                              16 * a.tiles * pair, rank * 16 * a.tiles, 0, a.x.n_groups);
}

/* Adds up what the blocks of a cluster have, for this block's share of rows, and writes y up to
 * feature `end`. */
template <int Stride>
__device__ __forceinline__ void
matmul_eight_store(const matmul_eight_part &a, int64_t n_rows, int64_t end, const float *sums,
                   const matmul_eight_tile &tile, int rank, int n_ranks) {
  int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
  int each = (EIGHT_SLAB + n_ranks - 1) / n_ranks;
  int count = (int)min(n_rows - tile.row, (int64_t)EIGHT_SLAB);
  for (int64_t feature = tile.feature + lane * 4; feature < end; feature += EIGHT_FEATURES) {
    float bias[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (a.bias && feature + i < end)
        bias[i] = a.bias[feature + i];
    for (int n = rank * each + warp; n < min((rank + 1) * each, count); n += EIGHT_TILES) {
      const float *mine = sums + n * Stride + (feature - tile.feature);
      float v[4];
      hopper_cluster_sum<EIGHT_SPLITS>(mine, n_ranks, v);
#pragma unroll
      for (int i = 0; i < 4; i++)
        v[i] += bias[i];
      simt_store_some<4>(a.y.scheme, a.y.row(tile.row + n), feature, end, a.wide_y, v);
    }
  }
}

/* Writes a subgroup's 16 features, those before `end`, of all rows, 16 rows at a time by way of
 * `out`. */
template <int Rows, int Stride>
__device__ __forceinline__ void matmul_eight_write(const matmul_eight_part &a, int64_t n_rows,
                                                   int64_t end, const float *factors,
                                                   const float (&sums)[Rows / 2], float *out,
                                                   int64_t first_row, int64_t first_feature) {
  int lane = threadIdx.x % 32;
  int64_t feature = first_feature + lane % 2 * 8;
  float bias[8] = {};
#pragma unroll
  for (int i = 0; i < 8; i++)
    if (a.bias && feature + i < end)
      bias[i] = a.bias[feature + i];
#pragma unroll
  for (int part = 0; part < Rows / 16; part++) {
    int64_t row = first_row + part * 16 + lane / 2;
    __syncwarp();
    hopper_product_store<Rows / 2, Rows / 16>(sums, out, Stride, part);
    __syncwarp();
    if (row >= n_rows)
      continue;
    float v[8], factor = factors ? factors[row] : 1.0f;
#pragma unroll
    for (int i = 0; i < 8; i += 4)
      *(float4 *)(v + i) = *(const float4 *)(out + lane / 2 * Stride + lane % 2 * 8 + i);
#pragma unroll
    for (int i = 0; i < 8; i++)
      v[i] = v[i] * factor + bias[i];
    simt_store_some<8>(a.y.scheme, a.y.row(row), feature, end, a.wide_y, v);
  }
}

/* What the matrix unit adds up in, and a sum as f32. 128 products of int8 stay below 2^22, so that
 * their bits above those of 1.5 * 2^23 are it and the sum. */
__device__ __forceinline__ float matmul_eight_sum(float sum) { return sum; }
__device__ __forceinline__ float matmul_eight_sum(int32_t sum) {
  return __int_as_float(sum + 0x4b400000) - 0x1.8p23f;
}

/* What the matrix unit makes of a tile and a group of columns: sums that are not scaled. */
template <typename W, int Rows> struct matmul_eight_product {
  typename std::conditional<W::float8, float, int32_t>::type of[Rows / 2];

  /* Begins to multiply x by the weights in `left`, which must both stay meanwhile. */
  __device__ __forceinline__ void begin(const uint8_t *x, const uint32_t (&left)[4][4]) {
    uint64_t right = hopper_rows(x);
    hopper_product_begin();
#pragma unroll
    for (int i = 0; i < 4; i++)
      hopper_product_8(of, left[i], right + 2 * i, i > 0);
    hopper_product_commit();
  }
  /* Adds it to the sums, by the scales of x alone. */
  __device__ __forceinline__ void add(const uint8_t *of_x, int lane,
                                      float (&sums)[Rows / 2]) const {
#pragma unroll
    for (int j = 0; j < Rows / 8; j++) {
      float2 x = *(const float2 *)(of_x + lane % 4 * 8 + 32 * j);
      sums[4 * j] += matmul_eight_sum(of[4 * j]) * x.x;
      sums[4 * j + 1] += matmul_eight_sum(of[4 * j + 1]) * x.y;
      sums[4 * j + 2] += matmul_eight_sum(of[4 * j + 2]) * x.x;
      sums[4 * j + 3] += matmul_eight_sum(of[4 * j + 3]) * x.y;
    }
  }
  /* Adds it to the sums, by the scales of a unit of weights and of x (NULL: rows have them). */
  __device__ __forceinline__ void add(const uint8_t *unit, const uint8_t *of_x, int lane,
                                      float (&sums)[Rows / 2]) const {
    float2 w = *(const float2 *)(unit + W::scales_at + lane / 4 * 8);
#pragma unroll
    for (int j = 0; j < Rows / 8; j++) {
      float2 x = make_float2(1, 1);
      if (of_x)
        x = *(const float2 *)(of_x + lane % 4 * 8 + 32 * j);
      sums[4 * j] += matmul_eight_sum(of[4 * j]) * (w.x * x.x);
      sums[4 * j + 1] += matmul_eight_sum(of[4 * j + 1]) * (w.x * x.y);
      sums[4 * j + 2] += matmul_eight_sum(of[4 * j + 2]) * (w.y * x.x);
      sums[4 * j + 3] += matmul_eight_sum(of[4 * j + 3]) * (w.y * x.y);
    }
  }
};

/* What all threads of a block know. */
template <typename W, int Rows, bool Splits> struct matmul_eight_block {
  typedef matmul_eight_shared<W, Rows> layout;
  static constexpr int pair = !Splits && Rows == EIGHT_WIDE ? EIGHT_PAIR : 1;
  static constexpr int depth = layout::depth;
  static_assert(layout::slabs == pair || pair == 1, "each block of a pair copies a slab");

  const matmul_eight_arguments &a;
  uint8_t *shared;
  uint64_t *full, *empty; /* barriers of the slots */
  int rank;
  int64_t first, step, n_tiles;

  __device__ __forceinline__ matmul_eight_block(const matmul_eight_arguments &arguments,
                                                uint8_t *memory, uint64_t *filled, uint64_t *freed)
      : a(arguments), shared(memory), full(filled), empty(freed),
        rank(Splits ? blockIdx.x : blockIdx.x % pair), first(Splits ? 0 : blockIdx.x / pair),
        step(Splits ? 1 : gridDim.x / pair),
        n_tiles(Splits ? 1 : (arguments.x.n_rows + Rows - 1) / Rows * arguments.n_columns) {}

  /* Where a part of K begins: of long ones with a slot. */
  __device__ __forceinline__ int edge(int part) const {
    int n = a.x.n_groups, group = (int)((int64_t)n * part / gridDim.x);
    bool is_long = n >= 2 * layout::step * (int)gridDim.x;
    return is_long && group < n ? group / layout::step * layout::step : group;
  }
  __device__ __forceinline__ matmul_eight_tile find(int64_t index) const {
    if constexpr (Splits)
      return matmul_eight_tile_of(a, (int64_t)blockIdx.z * Rows, (int)blockIdx.y, 16 * a.tiles, 0,
                                  edge(rank), edge(rank + 1));
    else
      return matmul_eight_find<Rows>(a, index, rank, pair);
  }
  __device__ __forceinline__ uint8_t *x_of(int slot, int group = 0) const {
    return shared + (slot * layout::step + group) * layout::x_bytes;
  }
  __device__ __forceinline__ uint8_t *scales_of(int slot, int group = 0) const {
    return shared + layout::scales_at + (slot * layout::step + group) * layout::scale_bytes;
  }
  __device__ __forceinline__ uint8_t *weights_of(int slot, int tile, int group = 0) const {
    return shared + layout::w_at + slot * layout::step * layout::w_bytes +
           (tile * layout::step + group) * W::unit_bytes;
  }
};

/* The slot that a thread comes to next, and the phase that it waits for there. */
template <int Depth> struct matmul_eight_cursor {
  int slot;
  uint32_t phase;

  __device__ __forceinline__ void advance() {
    if (++slot == Depth)
      slot = 0, phase ^= 1;
  }
};

/* One thread's share of the weights, every other tile from `first_tile` on, from before x is there.
 * wait() is called when a slot of them is on its way. */
template <typename W, int Rows, bool Splits, typename F>
__device__ __forceinline__ void
matmul_eight_copy_weights(const matmul_eight_block<W, Rows, Splits> &block, int first_tile,
                          F wait) {
  typedef matmul_eight_shared<W, Rows> layout;
  matmul_eight_cursor<block.depth> at = {0, 1};
  const matmul_eight_arguments &a = block.a;
  for (int64_t index = block.first; index < block.n_tiles; index += block.step) {
    matmul_eight_tile tile = block.find(index);
    const matmul_eight_part &part = a.parts[tile.part];
    int64_t left = (part.n_features - tile.feature + 15) / 16;
    int tiles = (int)max(min(left, (int64_t)a.tiles), (int64_t)0);
    int64_t tile_bytes = (int64_t)a.x.n_groups * W::unit_bytes;
    const uint8_t *weight = part.weight + (tile.feature / 16 + first_tile) * tile_bytes +
                            (int64_t)tile.begin * W::unit_bytes;
    int mine = max(tiles - first_tile + 1, 0) / 2;
    for (int group = tile.begin; group < tile.end;
         group += layout::step, weight += layout::step * W::unit_bytes) {
      uint32_t bytes = (uint32_t)(min(tile.end - group, layout::step) * W::unit_bytes);
      uint64_t *full = &block.full[at.slot];
      uint8_t *to = block.weights_of(at.slot, first_tile);
      hopper_barrier_wait(&block.empty[at.slot], at.phase);
      hopper_barrier_expect(full, (uint32_t)mine * bytes);
#pragma unroll
      for (int i = 0; i < EIGHT_TILES; i += 2)
        if (first_tile + i < tiles)
          hopper_copy(to + i * layout::step * W::unit_bytes, weight + i * tile_bytes, bytes, full);
      if (index == block.first && group == tile.begin)
        wait();
      at.advance();
    }
  }
}

/* One thread copies x. */
template <typename W, int Rows, bool Splits>
__device__ __forceinline__ void
matmul_eight_copy_rows(const matmul_eight_block<W, Rows, Splits> &block) {
  typedef matmul_eight_shared<W, Rows> layout;
  constexpr int pair = block.pair;
  matmul_eight_cursor<block.depth> at = {0, 1};
  const matmul_eight_rows &x = block.a.x;
  auto copy = [](void *to, const void *from, uint32_t bytes, uint64_t *barrier) {
    if constexpr (pair > 1)
      hopper_copy_to_all(to, from, bytes, barrier, (1 << pair) - 1);
    else
      hopper_copy(to, from, bytes, barrier);
  };
  for (int64_t index = block.first; index < block.n_tiles; index += block.step) {
    matmul_eight_tile tile = block.find(index);
    for (int group = tile.begin; group < tile.end; group += layout::step) {
      int count = min(tile.end - group, layout::step), slot = at.slot;
      uint64_t *full = &block.full[slot];
      hopper_barrier_wait(&block.empty[slot], at.phase);
      hopper_barrier_expect(full, count * (layout::x_bytes + layout::scale_bytes));
      int own_slab = pair > 1 ? block.rank : 0;
      int64_t slab = min(tile.row / EIGHT_SLAB + own_slab, (x.n_rows - 1) / EIGHT_SLAB);
      int64_t from = (slab * x.n_groups + group) * EIGHT_SLAB;
#pragma unroll
      for (int i = 0; i < layout::step; i++) {
        if (i >= count)
          continue;
        copy(block.x_of(slot, i) + own_slab * EIGHT_SLAB_BYTES,
             x.image + (from + i * EIGHT_SLAB) * EIGHT_GROUP, EIGHT_SLAB_BYTES, full);
        if (layout::scale_bytes > 0)
          copy(block.scales_of(slot, i) + own_slab * EIGHT_SLAB * 4,
               x.scales + from + i * EIGHT_SLAB, EIGHT_SLAB * 4, full);
      }
      at.advance();
    }
  }
}

/* What a subgroup that multiplies has of its tile of 16 features. */
template <typename W, int Rows, bool Splits, bool RowScales> struct matmul_eight_work {
  typedef matmul_eight_block<W, Rows, Splits> block_type;
  typedef matmul_eight_shared<W, Rows> layout;
  const block_type &block;
  int warp, lane;
  matmul_eight_cursor<block_type::depth> at = {0, 0};
  float sums[Rows / 2];
  float2 row_scales; /* RowScales: of the features that this lane has sums of */

  __device__ __forceinline__ explicit matmul_eight_work(const block_type &of)
      : block(of), warp((int)threadIdx.x / 32 - 4), lane((int)threadIdx.x % 32) {}

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float &sum : sums)
      sum = 0;
  }
  /* The weights of a group of the slot that comes next. */
  __device__ __forceinline__ void load(int group, uint32_t (&left)[4][4]) {
    if (group == 0)
      hopper_barrier_wait(&block.full[at.slot], at.phase);
    const uint8_t *unit = block.weights_of(at.slot, warp, group);
#pragma unroll
    for (int b = 0; b < 4; b++) {
      uint4 v = *(const uint4 *)(unit + b * 512 + lane * 16);
      constexpr uint32_t flip = W::float8 ? 0 : 0x80808080u; /* codes are unsigned */
      left[b][0] = v.x ^ flip, left[b][1] = v.z ^ flip;
      left[b][2] = v.y ^ flip, left[b][3] = v.w ^ flip;
    }
  }
  __device__ __forceinline__ void add(const matmul_eight_product<W, Rows> &product, int slot,
                                      int group) {
    const uint8_t *unit = block.weights_of(slot, warp, group);
    const uint8_t *of_x = layout::by_row ? nullptr : block.scales_of(slot, group);
    if constexpr (RowScales) {
      row_scales = *(const float2 *)(unit + W::scales_at + lane / 4 * 8);
      product.add(of_x, lane, sums);
    } else {
      product.add(unit, of_x, lane, sums);
    }
  }
  /* When all is added. */
  __device__ __forceinline__ void finish() {
    if constexpr (RowScales)
#pragma unroll
      for (int i = 0; i < Rows / 2; i++)
        sums[i] *= i % 4 < 2 ? row_scales.x : row_scales.y;
  }
  __device__ __forceinline__ void release(int slot) {
    __syncwarp();
    if (block.pair > 1 && lane < block.pair)
      hopper_barrier_arrive_at(&block.empty[slot], lane);
    else if (block.pair == 1 && lane == 0)
      hopper_barrier_arrive(&block.empty[slot]);
  }

  /* Groups of columns, the product of each of which is added while the next is multiplied. */
  template <int Groups> __device__ __forceinline__ void chain() {
    matmul_eight_product<W, Rows> product[2];
    uint32_t left[2][4][4];
    int slots[2];
#pragma unroll
    for (int c = 0; c <= Groups; c++) {
      if (c < Groups) {
        int group = c % layout::step;
        slots[c % 2] = at.slot;
        load(group, left[c % 2]);
        product[c % 2].begin(block.x_of(at.slot, group), left[c % 2]);
        if ((c + 1) % layout::step == 0 || c + 1 == Groups)
          at.advance();
      }
      if (c == 0)
        continue;
      if (c < Groups)
        hopper_product_wait<1>();
      else
        hopper_product_wait<0>();
      int before = c - 1;
      add(product[before % 2], slots[before % 2], before % layout::step);
      if (c % layout::step == 0 || c == Groups)
        release(slots[before % 2]);
    }
  }
  /* n groups. The next kernel may begin when `last` of them are left. */
  __device__ __forceinline__ void multiply(int n, int last) {
    int i = 0;
    for (; i + EIGHT_CHAIN <= n; i += EIGHT_CHAIN) {
      if (n - i <= last)
        simt_let_later_begin();
      chain<EIGHT_CHAIN>();
    }
    for (; i < n; i += layout::step)
      if (i + layout::step <= n)
        chain<layout::step>();
      else
        chain<1>();
  }
  /* The same where registers hold one product: the two halves of a block multiply and add by turns.
   */
  __device__ __forceinline__ void multiply_by_turns(int n, int last) {
    matmul_eight_product<W, Rows> product;
    uint32_t left[2][4][4];
    bool leads = warp < EIGHT_TILES / 2;
    auto one = [&](int i, const uint32_t(&now)[4][4], uint32_t(&next)[4][4]) {
      int slot = at.slot, group = i % layout::step;
      bool is_last = group == layout::step - 1 || i + 1 == n;
      product.begin(block.x_of(slot, group), now);
      if (is_last)
        at.advance();
      if (leads && (i == EIGHT_LAG || (i + 1 == n && i < EIGHT_LAG)))
        hopper_arrive(2, 32 * EIGHT_TILES);
      if (i + 1 < n)
        load((i + 1) % layout::step, next);
      hopper_product_wait<0>();
      add(product, slot, group);
      if (is_last)
        release(slot);
    };
    if (!leads)
      hopper_sync(2, 32 * EIGHT_TILES);
    if (n > 0)
      load(0, left[0]);
    for (int i = 0; i < n; i += 2) {
      if (n - i <= last)
        simt_let_later_begin();
      one(i, left[0], left[1]);
      if (i + 1 < n)
        one(i + 1, left[1], left[0]);
    }
  }
};

/* Tiles of a block, by the subgroups that multiply. */
template <bool RowScales, typename W, int Rows, bool Splits>
__device__ __forceinline__ void
matmul_eight_multiply(const matmul_eight_block<W, Rows, Splits> &block) {
  typedef matmul_eight_shared<W, Rows> layout;
  const matmul_eight_arguments &a = block.a;
  matmul_eight_work<W, Rows, Splits, RowScales> work(block);
  const float *factors = layout::by_row ? a.x.scales : nullptr;
  for (int64_t index = block.first; index < block.n_tiles; index += block.step) {
    matmul_eight_tile tile = block.find(index);
    int last = index + block.step < block.n_tiles ? 0 : EIGHT_LAST;
    work.clear();
    if constexpr (Rows == EIGHT_SLAB)
      work.multiply(tile.end - tile.begin, last);
    else
      work.multiply_by_turns(tile.end - tile.begin, last);
    work.finish();
    const matmul_eight_part &part = a.parts[tile.part];
    int64_t end = min(part.n_features, tile.feature + 16 * a.tiles);
    if constexpr (Splits) {
      hopper_sync(1, 32 * EIGHT_TILES); /* sums go where x and weights were */
      float *to = (float *)block.shared;
      hopper_product_store(work.sums, to + work.warp * 16, layout::split_stride);
      hopper_cluster_sync();
      matmul_eight_store<layout::split_stride>(part, a.x.n_rows, end, to, tile, block.rank,
                                               (int)gridDim.x);
    } else {
      float *out = (float *)(block.shared + layout::out_at + work.warp * layout::out_bytes);
      matmul_eight_write<Rows, layout::out_stride>(part, a.x.n_rows, end, factors, work.sums, out,
                                                   tile.row, tile.feature + work.warp * 16);
    }
  }
}

/* Grid: Splits: parts of K, which are a cluster; columns of tiles; tiles of rows. Otherwise any
 * number of blocks, of 128 rows clusters of EIGHT_PAIR. */
template <typename W, int Rows, bool Splits, bool RowScales, typename Make>
__global__ void __launch_bounds__(EIGHT_THREADS, 1)
    matmul_eight(const __grid_constant__ matmul_eight_arguments a,
                 const __grid_constant__ Make make) {
#if HOPPER_HAS_WGMMA
  typedef matmul_eight_block<W, Rows, Splits> block_type;
  extern __shared__ uint8_t dynamic[];
  __shared__ uint64_t full[block_type::depth], empty[block_type::depth], made;
  block_type block(a, dynamic + (1024 - mma_shared_address(dynamic) % 1024) % 1024, full, empty);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int n_blocks = (int)(gridDim.x * gridDim.y * gridDim.z);
  if (threadIdx.x == 0) {
    for (int i = 0; i < block.depth; i++) {
      hopper_barrier_init(&full[i], 3); /* two threads that copy weights, one x */
      hopper_barrier_init(&empty[i], EIGHT_TILES * block.pair);
    }
    if (Make::makes)
      hopper_barrier_init(&made, 1);
    hopper_barrier_fence();
  }
  __syncthreads();
  if (block.pair > 1)
    hopper_cluster_sync(); /* others arrive at and copy to these barriers */

  if (threadIdx.x < 128) {
    hopper_give_registers<56>();
    if (warp < 2 && lane == 0) {
      matmul_eight_copy_weights(block, warp, [&]() {
        if constexpr (Make::makes) /* rows are made sooner while little is copied */
          hopper_barrier_wait(&made, 0);
      });
    } else if (warp == 2 && lane == 0) {
      simt_wait_for_earlier(); /* x is not there before */
      if constexpr (Make::makes) {
        make.meeting.wait(make.shares(n_blocks));
        hopper_barrier_arrive(&made);
      }
      matmul_eight_copy_rows(block);
      if constexpr (Make::makes)
        make.meeting.leave(n_blocks);
    }
    __syncwarp();
    if (Splits)
      hopper_cluster_sync();
  } else {
    hopper_take_registers<224>();
    if constexpr (Make::makes)
      make.make((int)((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x), n_blocks);
    else
      simt_wait_for_earlier();
    matmul_eight_multiply<RowScales>(block);
  }
  __syncwarp();
  if (Splits || block.pair > 1)
    hopper_cluster_meet(); /* others may still read from here, or arrive */
#endif
}

#endif
