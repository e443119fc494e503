/* Products of 8-bit weights in groups of 128 with rows rounded to 8 bits, on Hopper's matrix unit:
 * E4M3 with E4M3, int8 with int8.
 *
 * A first kernel rounds the rows of x, to E4M3 with a scale for a row, to int8 with one for each 128
 * columns, and writes them in the order of shared memory: for each 64 rows and each 128 columns, rows of 128 bytes whose
 * 16-byte chunks are exchanged by row, so that a plain bulk copy brings them.
 *
 * In the second a block makes 128 features of 64 or 128 rows. Packed weights are in the order in
 * which the matrix unit takes its left operand from registers, and nothing is decoded: two groups
 * of 4 subgroups load 16 features a subgroup and multiply. Sums of 128 columns are scaled and added
 * in f32, by one group while the other, which begins each tile EIGHT_LAG groups of columns later,
 * multiplies. Threads keep copies of weights (from before x is there) and of x going.
 *
 * Two blocks side by side go from tile to tile and share the copies of x. Few rows by few features:
 * the blocks of a cluster split K and add their sums up in the end. */
#ifndef ISOMER_CUDA_HOPPER_MATMUL_EIGHT_H
#define ISOMER_CUDA_HOPPER_MATMUL_EIGHT_H

#include "backends/cuda/hopper/hopper.cuh"
#include "backends/simt/matmul_packed.cuh"
#include <atomic>
#include <type_traits>

enum {
  EIGHT_GROUP = 128,    /* columns that share a scale */
  EIGHT_SLAB = 64,      /* rows of x in a part of the image */
  EIGHT_SLAB_BYTES = EIGHT_SLAB * EIGHT_GROUP,
  EIGHT_TILES = 8,      /* of 16 features, a subgroup each */
  EIGHT_FEATURES = 16 * EIGHT_TILES,
  EIGHT_THREADS = 128 + 32 * EIGHT_TILES,
  EIGHT_WIDE = 128,     /* rows of x in a tile of many */
  EIGHT_PAIR = 2,       /* blocks that share them */
  EIGHT_LAG = 2,        /* groups that the second half of a block is behind the first */
  EIGHT_BAND = 16,      /* tiles of rows that go over the weights together */
  EIGHT_SPLITS = 8,     /* blocks of a cluster at most */
  EIGHT_PARTS = 3       /* products of the same rows at most */
};

/* One product of those that a launch makes of the same rows. */
struct matmul_eight_part {
  const uint8_t *weight; /* packed */
  const float *bias;     /* NULL: none */
  simt_rows y;
  int64_t n_features;
  int32_t first_column; /* of tiles, behind those of the parts before */
  bool wide_y;          /* rows that can be written 8 values at a time */
};

/* Rows rounded to 8 bits. */
struct matmul_eight_rows {
  uint8_t *image; /* [slab][group], EIGHT_SLAB_BYTES each, at a multiple of 1,024 */
  float *scales;  /* of int8 [slab][group][EIGHT_SLAB], of E4M3 [row] */
  int64_t n_rows;
  int32_t n_groups;
};

struct matmul_eight_arguments {
  matmul_eight_rows x;
  matmul_eight_part parts[EIGHT_PARTS];
  int32_t n_parts;
  int32_t n_columns; /* of tiles of all parts */
};

/* ---- Rounding x ------------------------------------------------------------------------------ */

template <bool Float8>
__device__ __forceinline__ uint32_t matmul_eight_word(float a, float b, float c, float d) {
  if constexpr (Float8) {
    uint16_t low = 0, high = 0;
#if HOPPER_HAS_WGMMA
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
#endif
    return low | (uint32_t)high << 16;
  } else {
    return (uint32_t)(__float2int_rn(a) & 255) | (uint32_t)(__float2int_rn(b) & 255) << 8 |
           (uint32_t)(__float2int_rn(c) & 255) << 16 | (uint32_t)(__float2int_rn(d) & 255) << 24;
  }
}

/* The scale of numbers up to `largest`, NaN where there are NaNs or infinities, and what brings
 * numbers to codes: `lift` times `inverse`, in two steps lest the inverse of a small one overflow. */
struct matmul_eight_scale {
  float scale, lift, inverse;
};
template <bool Float8>
__device__ __forceinline__ matmul_eight_scale matmul_eight_scale_of(float largest) {
  constexpr float most = Float8 ? 448.0f : 127.0f;
  float lift = largest < 0x1p-60f ? 0x1p60f : 1.0f;
  return {largest == INFINITY ? NAN : largest * lift / most / lift, lift,
          largest > 0 ? most / (largest * lift) : 0.0f};
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
    largest = fmaxf(largest, v[i] == v[i] ? fabsf(v[i]) : INFINITY);
  return largest;
}

/* A row a block, 16 columns a thread at a time. Of each 4 columns the middle ones change places, as
 * in packed weights. */
template <bool Float8>
__global__ void __launch_bounds__(256)
    matmul_eight_round(const __grid_constant__ simt_rows rows, matmul_eight_rows a) {
  __shared__ float shared[8];
  simt_let_later_begin();
  simt_wait_for_earlier();
  int64_t row = blockIdx.x, slab = row / EIGHT_SLAB;
  int r = (int)(row % EIGHT_SLAB), chunks = a.n_groups * 8;
  const uint8_t *x = rows.row(row);
  float v[16], largest = 0;
  matmul_eight_scale scale;
  if constexpr (Float8) {
    for (int chunk = threadIdx.x; chunk < chunks; chunk += 256)
      largest = fmaxf(largest, matmul_eight_load(rows, x, chunk, v));
    scale = matmul_eight_scale_of<Float8>(simt_block_reduce(largest, shared, simt_max()));
    if (threadIdx.x == 0)
      a.scales[row] = scale.scale;
  }
  /* All lanes of 8 neighbours, which have a group, are there or none is. */
  for (int chunk = threadIdx.x; chunk < chunks; chunk += 256) {
    largest = matmul_eight_load(rows, x, chunk, v);
    int64_t part = slab * a.n_groups + chunk / 8;
    if constexpr (!Float8) {
      uint32_t neighbours = 0xffu << threadIdx.x % 32 / 8 * 8;
#pragma unroll
      for (int mask = 1; mask < 8; mask *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(neighbours, largest, mask));
      scale = matmul_eight_scale_of<Float8>(largest);
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

template <typename W, int Rows> struct matmul_eight_shared {
  static constexpr int slabs = Rows / EIGHT_SLAB;
  static constexpr int x_bytes = slabs * EIGHT_SLAB_BYTES, w_bytes = EIGHT_TILES * W::unit_bytes;
  static constexpr int scale_bytes = W::float8 ? 0 : Rows * 4; /* of x, a group */
  /* Sums on their way out: 16 x 16 a subgroup. */
  static constexpr int out_stride = 20, out_bytes = 16 * out_stride * 4;
  static constexpr int room = 226 * 1024 - 1024 - EIGHT_TILES * out_bytes;
  static constexpr int fit = room / (x_bytes + w_bytes + scale_bytes), depth = fit < 8 ? fit : 8;
  static constexpr int w_at = depth * x_bytes, scales_at = w_at + depth * w_bytes;
  static constexpr int out_at = scales_at + depth * scale_bytes;
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

/* The tile in a column of tiles of `width` features, `offset` further on. */
__device__ __forceinline__ matmul_eight_tile
matmul_eight_tile_of(const matmul_eight_arguments &a, int64_t row, int column, int width, int offset,
                     int begin, int end) {
  int part = 0;
#pragma unroll
  for (int i = 1; i < EIGHT_PARTS; i++)
    part += i < a.n_parts && column >= a.parts[i].first_column;
  return {row, (int64_t)(column - a.parts[part].first_column) * width + offset, part, begin, end};
}

/* The index-th of all tiles: a band of rows goes over all columns before the next one. */
template <int Rows>
__device__ __forceinline__ matmul_eight_tile
matmul_eight_find(const matmul_eight_arguments &a, int64_t index, int rank, int pair) {
  int64_t row_tiles = (a.x.n_rows + Rows - 1) / Rows, of_band = EIGHT_BAND * (int64_t)a.n_columns;
  int64_t band = index / of_band, rest = index % of_band;
  int64_t height = min(row_tiles - band * EIGHT_BAND, (int64_t)EIGHT_BAND);
  return matmul_eight_tile_of(a, (band * EIGHT_BAND + rest % height) * Rows, (int)(rest / height),
                              EIGHT_FEATURES * pair, rank * EIGHT_FEATURES, 0, a.x.n_groups);
}

/* Adds up what the blocks of a cluster have, for this block's share of rows, and writes y. */
template <int Stride>
__device__ __forceinline__ void matmul_eight_store(const matmul_eight_part &a, int64_t n_rows,
                                                   const float *row_scales, const float *sums,
                                                   const matmul_eight_tile &tile, int rank,
                                                   int n_ranks) {
  int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
  int each = (EIGHT_SLAB + n_ranks - 1) / n_ranks;
  int count = (int)min(n_rows - tile.row, (int64_t)EIGHT_SLAB);
  int64_t feature = tile.feature + lane * 4;
  float bias[4] = {};
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (a.bias && feature + i < a.n_features)
      bias[i] = a.bias[feature + i];
  for (int n = rank * each + warp; n < min((rank + 1) * each, count); n += EIGHT_TILES) {
    const float *mine = sums + n * Stride + lane * 4;
    float v[4], scale = row_scales ? row_scales[tile.row + n] : 1.0f;
    hopper_cluster_sum<EIGHT_SPLITS>(mine, n_ranks, v);
#pragma unroll
    for (int i = 0; i < 4; i++)
      v[i] = v[i] * scale + bias[i];
    simt_store_some<4>(a.y.scheme, a.y.row(tile.row + n), feature, a.n_features, a.wide_y, v);
  }
}

/* Writes a subgroup's 16 features of all rows, 16 rows at a time by way of `out`. */
template <int Rows, int Stride>
__device__ __forceinline__ void matmul_eight_write(const matmul_eight_part &a, int64_t n_rows,
                                                   const float *row_scales,
                                                   const float (&sums)[Rows / 2], float *out,
                                                   int64_t first_row, int64_t first_feature) {
  int lane = threadIdx.x % 32;
  int64_t feature = first_feature + lane % 2 * 8;
  float bias[8] = {};
#pragma unroll
  for (int i = 0; i < 8; i++)
    if (a.bias && feature + i < a.n_features)
      bias[i] = a.bias[feature + i];
#pragma unroll
  for (int part = 0; part < Rows / 16; part++) {
    int64_t row = first_row + part * 16 + lane / 2;
    __syncwarp();
    hopper_product_store<Rows / 2, Rows / 16>(sums, out, Stride, part);
    __syncwarp();
    if (row >= n_rows)
      continue;
    float v[8], scale = row_scales ? row_scales[row] : 1.0f;
#pragma unroll
    for (int i = 0; i < 8; i += 4)
      *(float4 *)(v + i) = *(const float4 *)(out + lane / 2 * Stride + lane % 2 * 8 + i);
#pragma unroll
    for (int i = 0; i < 8; i++)
      v[i] = v[i] * scale + bias[i];
    simt_store_some<8>(a.y.scheme, a.y.row(row), feature, a.n_features, a.wide_y, v);
  }
}

/* What the matrix unit adds up in, and a sum as f32. 128 products of int8 stay below 2^22, so that
 * their bits above those of 1.5 * 2^23 are it and the sum. */
__device__ __forceinline__ float matmul_eight_sum(float sum) { return sum; }
__device__ __forceinline__ float matmul_eight_sum(int32_t sum) {
  return __int_as_float(sum + 0x4b400000) - 0x1.8p23f;
}

/* One group of columns: weights in `left` times the x of slot `s`, added to the sums when scaled.
 * Meanwhile the weights of the next one are loaded. */
template <typename W, int Rows, typename Load>
__device__ __forceinline__ void
matmul_eight_step(const uint8_t *shared, int s, int lane, int warp, const uint32_t (&left)[4][4],
                  Load load_next, float (&sums)[Rows / 2]) {
  typedef matmul_eight_shared<W, Rows> layout;
  typename std::conditional<W::float8, float, int32_t>::type part[Rows / 2];
  uint64_t right = hopper_rows(shared + s * layout::x_bytes);
  hopper_product_begin();
#pragma unroll
  for (int i = 0; i < 4; i++)
    hopper_product_8(part, left[i], right + 2 * i, i > 0);
  hopper_product_commit();
  int g = lane / 4, t = lane % 4;
  const uint8_t *unit = shared + layout::w_at + s * layout::w_bytes + warp * W::unit_bytes;
  float2 w = *(const float2 *)(unit + W::scales_at + g * 8);
  const float *of_x = (const float *)(shared + layout::scales_at + s * layout::scale_bytes) + 2 * t;
  load_next();
  hopper_product_wait<0>();
#pragma unroll
  for (int j = 0; j < Rows / 8; j++) {
    float2 x = W::float8 ? make_float2(1, 1) : *(const float2 *)(of_x + 8 * j);
    sums[4 * j] += matmul_eight_sum(part[4 * j]) * (w.x * x.x);
    sums[4 * j + 1] += matmul_eight_sum(part[4 * j + 1]) * (w.x * x.y);
    sums[4 * j + 2] += matmul_eight_sum(part[4 * j + 2]) * (w.y * x.x);
    sums[4 * j + 3] += matmul_eight_sum(part[4 * j + 3]) * (w.y * x.y);
  }
}

/* Grid: Splits: parts of K, which are a cluster; columns of tiles; tiles of rows. Otherwise any
 * number of clusters of EIGHT_PAIR blocks. */
template <typename W, int Rows, bool Splits>
__global__ void __launch_bounds__(EIGHT_THREADS, 1)
    matmul_eight(const __grid_constant__ matmul_eight_arguments a) {
#if HOPPER_HAS_WGMMA
  typedef matmul_eight_shared<W, Rows> layout;
  constexpr int pair = Splits ? 1 : EIGHT_PAIR, depth = layout::depth;
  constexpr int x_rows = Rows / pair; /* that this block copies */
  static_assert(EIGHT_SLAB % x_rows == 0, "of one slab");
  extern __shared__ uint8_t dynamic[];
  __shared__ uint64_t full[depth], empty[depth];
  uint8_t *shared = dynamic + (1024 - mma_shared_address(dynamic) % 1024) % 1024;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int rank = Splits ? blockIdx.x : blockIdx.x % pair;
  int64_t first = Splits ? 0 : blockIdx.x / pair, step = Splits ? 1 : gridDim.x / pair;
  int64_t n_tiles = Splits ? 1 : (a.x.n_rows + Rows - 1) / Rows * a.n_columns;
  auto find = [&](int64_t index) {
    if constexpr (Splits)
      return matmul_eight_tile_of(a, (int64_t)blockIdx.z * Rows, (int)blockIdx.y, EIGHT_FEATURES, 0,
                                  (int)((int64_t)a.x.n_groups * rank / gridDim.x),
                                  (int)((int64_t)a.x.n_groups * (rank + 1) / gridDim.x));
    else
      return matmul_eight_find<Rows>(a, index, rank, pair);
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i < depth; i++) {
      hopper_barrier_init(&full[i], 4); /* three threads that copy weights, one x */
      hopper_barrier_init(&empty[i], EIGHT_TILES * pair);
    }
    hopper_barrier_fence();
  }
  simt_let_later_begin();
  __syncthreads();
  if (pair > 1)
    hopper_cluster_sync(); /* others arrive at and copy to these barriers */

  if (threadIdx.x < 128) { /* copies */
    hopper_give_registers<56>();
    int s = 0;
    uint32_t phase = 1;
    auto advance = [&]() {
      if (++s == depth)
        s = 0, phase ^= 1;
    };
    /* Three threads share the weights. */
    if (warp != 1 && lane == 0) {
      int first_tile = max(warp - 1, 0);
      for (int64_t index = first; index < n_tiles; index += step) {
        matmul_eight_tile tile = find(index);
        const matmul_eight_part &part = a.parts[tile.part];
        int64_t left = (part.n_features - tile.feature + 15) / 16;
        int tiles = (int)max(min(left, (int64_t)EIGHT_TILES), (int64_t)0);
        int64_t tile_bytes = (int64_t)a.x.n_groups * W::unit_bytes;
        const uint8_t *weight = part.weight + (tile.feature / 16 + first_tile) * tile_bytes +
                                (int64_t)tile.begin * W::unit_bytes;
        uint32_t bytes = (uint32_t)(max(tiles - first_tile + 2, 0) / 3 * W::unit_bytes);
        for (int group = tile.begin; group < tile.end; group++, weight += W::unit_bytes) {
          uint8_t *to = shared + layout::w_at + s * layout::w_bytes + first_tile * W::unit_bytes;
          hopper_barrier_wait(&empty[s], phase);
          hopper_barrier_expect(&full[s], bytes);
#pragma unroll
          for (int i = 0; i < EIGHT_TILES; i += 3)
            if (first_tile + i < tiles)
              hopper_copy(to + i * W::unit_bytes, weight + i * tile_bytes, W::unit_bytes, &full[s]);
          advance();
        }
      }
    } else if (warp == 1 && lane == 0) {
      simt_wait_for_earlier(); /* x is not there before */
      auto copy = [](void *to, const void *from, uint32_t bytes, uint64_t *barrier) {
        if constexpr (pair > 1)
          hopper_copy_to_all(to, from, bytes, barrier, (1 << pair) - 1);
        else
          hopper_copy(to, from, bytes, barrier);
      };
      for (int64_t index = first; index < n_tiles; index += step) {
        matmul_eight_tile tile = find(index);
        for (int group = tile.begin; group < tile.end; group++) {
          hopper_barrier_wait(&empty[s], phase);
          hopper_barrier_expect(&full[s], layout::x_bytes + layout::scale_bytes);
          int row = pair > 1 ? rank * x_rows : 0, within = row % EIGHT_SLAB;
          int64_t slab = min((tile.row + row) / EIGHT_SLAB, (a.x.n_rows - 1) / EIGHT_SLAB);
          int64_t at = (slab * a.x.n_groups + group) * EIGHT_SLAB + within;
          uint8_t *to = shared + s * layout::x_bytes + row * EIGHT_GROUP;
          copy(to, a.x.image + at * EIGHT_GROUP, x_rows * EIGHT_GROUP, &full[s]);
          if (layout::scale_bytes > 0)
            copy(shared + layout::scales_at + s * layout::scale_bytes + row * 4, a.x.scales + at,
                 x_rows * 4, &full[s]);
          advance();
        }
      }
    }
    __syncwarp();
    if (Splits)
      hopper_cluster_sync();
  } else {
    hopper_take_registers<224>();
    simt_wait_for_earlier();
    warp -= 4;
    bool leads = warp < EIGHT_TILES / 2;
    float *out = (float *)(shared + layout::out_at + warp * layout::out_bytes);
    const float *row_scales = W::float8 ? a.x.scales : nullptr;
    int s = 0;
    uint32_t phase = 0, left[2][4][4];
    auto load = [&](uint32_t(&to)[4][4]) { /* the weights of the slot that comes next */
      hopper_barrier_wait(&full[s], phase);
      const uint8_t *unit = shared + layout::w_at + s * layout::w_bytes + warp * W::unit_bytes;
#pragma unroll
      for (int b = 0; b < 4; b++) {
        uint4 v = *(const uint4 *)(unit + b * 512 + lane * 16);
        constexpr uint32_t flip = W::float8 ? 0 : 0x80808080u; /* codes are unsigned */
        to[b][0] = v.x ^ flip, to[b][1] = v.z ^ flip, to[b][2] = v.y ^ flip, to[b][3] = v.w ^ flip;
      }
    };
    for (int64_t index = first; index < n_tiles; index += step) {
      matmul_eight_tile tile = find(index);
      float sums[Rows / 2];
#pragma unroll
      for (int i = 0; i < Rows / 2; i++)
        sums[i] = 0;
      int n = tile.end - tile.begin;
      auto multiply = [&](int i, const uint32_t(&now)[4][4], uint32_t(&next)[4][4]) {
        int slot = s;
        matmul_eight_step<W, Rows>(
            shared, slot, lane, warp, now,
            [&]() {
              if (++s == depth)
                s = 0, phase ^= 1;
              if (leads && (i == EIGHT_LAG || (i + 1 == n && i < EIGHT_LAG)))
                hopper_arrive(2, 32 * EIGHT_TILES);
              if (i + 1 < n)
                load(next);
            },
            sums);
        __syncwarp();
        if (pair > 1 && lane < pair)
          hopper_barrier_arrive_at(&empty[slot], lane);
        else if (pair == 1 && lane == 0)
          hopper_barrier_arrive(&empty[slot]);
      };
      if (!leads)
        hopper_sync(2, 32 * EIGHT_TILES);
      if (n > 0)
        load(left[0]);
      for (int i = 0; i < n; i += 2) {
        multiply(i, left[0], left[1]);
        if (i + 1 < n)
          multiply(i + 1, left[1], left[0]);
      }
      if constexpr (Splits) {
        hopper_sync(1, 32 * EIGHT_TILES); /* sums go where x and weights were */
        float *to = (float *)shared;
        hopper_product_store(sums, to + warp * 16, layout::split_stride);
        hopper_cluster_sync();
        matmul_eight_store<layout::split_stride>(a.parts[tile.part], a.x.n_rows, row_scales, to,
                                                 tile, rank, (int)gridDim.x);
      } else {
        matmul_eight_write<Rows, layout::out_stride>(a.parts[tile.part], a.x.n_rows, row_scales,
                                                     sums, out, tile.row,
                                                     tile.feature + warp * 16);
      }
    }
  }
  __syncwarp();
  if (Splits || pair > 1)
    hopper_cluster_meet(); /* others may still read from here, or arrive */
#endif
}

/* ---- Launching ------------------------------------------------------------------------------- */

/* Bytes of scratch, for this many rows or fewer. */
static inline uint64_t matmul_eight_workspace(int64_t n_rows, int64_t n_columns) {
  uint64_t parts = (uint64_t)matmul_count(n_rows, EIGHT_SLAB) *
                   (uint64_t)matmul_count(n_columns, EIGHT_GROUP);
  return parts * (EIGHT_SLAB_BYTES + EIGHT_SLAB * 4) + 1024;
}

/* Clusters of so many blocks that the device runs at once. */
template <typename W, int Rows, bool Splits>
int matmul_eight_clusters(iso_queue *queue, unsigned blocks) {
  static std::atomic<int> known[EIGHT_SPLITS + 1]; /* the cards of a machine are alike */
  int count = known[blocks].load(std::memory_order_relaxed);
  if (count == 0) {
    count = hopper_clusters(queue, matmul_eight<W, Rows, Splits>, EIGHT_THREADS, blocks,
                            matmul_eight_shared<W, Rows>::bytes);
    known[blocks].store(count, std::memory_order_relaxed);
  }
  return count;
}

/* Rounds the rows of x to `out`, which lies in matmul_eight_workspace() bytes. */
template <bool Float8>
iso_status matmul_eight_prepare(iso_queue *queue, const simt_rows &x, int64_t n_rows,
                                uint8_t *workspace, matmul_eight_rows *out) {
  out->n_rows = n_rows;
  out->n_groups = (int32_t)(x.n_columns / EIGHT_GROUP);
  out->image = workspace + (1024 - (uint64_t)(uintptr_t)workspace % 1024) % 1024;
  int64_t parts = matmul_count(n_rows, EIGHT_SLAB) * out->n_groups;
  out->scales = (float *)(out->image + parts * EIGHT_SLAB_BYTES);
  return simt_launch_early(queue, "matmul.eight.round", matmul_eight_round<Float8>,
                           dim3((unsigned)n_rows), dim3(256), 0, x, *out);
}

/* Blocks that split K of `tiles` products, 1 for none. A block's start and end take as long as 6
 * groups, adding up what others have 2 more. */
template <typename W>
unsigned matmul_eight_splits(iso_queue *queue, int64_t tiles, int n_groups) {
  unsigned best = 1;
  int64_t alone = EIGHT_PAIR * matmul_eight_clusters<W, EIGHT_SLAB, false>(queue, EIGHT_PAIR);
  int64_t best_time = matmul_count(tiles, alone) * n_groups + 6;
  for (unsigned splits = 2; splits <= EIGHT_SPLITS && (int)splits <= n_groups; splits++) {
    int64_t waves = matmul_count(tiles, matmul_eight_clusters<W, EIGHT_SLAB, true>(queue, splits));
    int64_t time = waves * (matmul_count(n_groups, splits) + 8);
    if (time < best_time)
      best = splits, best_time = time;
  }
  return best;
}

/* Lets the parts' tiles of `width` features follow one another. */
static inline void matmul_eight_place(matmul_eight_arguments *a, int width) {
  a->n_columns = 0;
  for (int i = 0; i < a->n_parts; i++) {
    matmul_eight_part &part = a->parts[i];
    part.first_column = a->n_columns;
    part.wide_y = simt_is_aligned(part.y, 16) && part.n_features % 8 == 0;
    a->n_columns += (int32_t)matmul_count(part.n_features, width);
  }
}

template <typename W, int Rows>
iso_status matmul_eight_walk(iso_queue *queue, const char *name, matmul_eight_arguments a) {
  matmul_eight_place(&a, EIGHT_FEATURES * EIGHT_PAIR);
  int64_t tiles = matmul_count(a.x.n_rows, Rows) * a.n_columns;
  int64_t most = matmul_eight_clusters<W, Rows, false>(queue, EIGHT_PAIR);
  return hopper_launch(queue, name, matmul_eight<W, Rows, false>,
                       dim3((unsigned)(EIGHT_PAIR * (tiles < most ? tiles : most))),
                       dim3(EIGHT_THREADS), EIGHT_PAIR, (size_t)matmul_eight_shared<W, Rows>::bytes, a);
}

/* From here on tiles of 128 rows keep all of the device busy. */
enum { EIGHT_LEAST_WIDE = 512 };

/* Makes all parts, of one feature or more each. */
template <typename W>
iso_status matmul_eight_run(iso_queue *queue, const char *name, matmul_eight_arguments a) {
  if (a.x.n_rows >= EIGHT_LEAST_WIDE)
    return matmul_eight_walk<W, EIGHT_WIDE>(queue, name, a);
  int64_t row_tiles = matmul_count(a.x.n_rows, EIGHT_SLAB);
  matmul_eight_place(&a, EIGHT_FEATURES);
  unsigned splits = matmul_eight_splits<W>(queue, row_tiles * a.n_columns, a.x.n_groups);
  if (splits == 1)
    return matmul_eight_walk<W, EIGHT_SLAB>(queue, name, a);
  if (a.n_columns > 65535)
    return simt_fail_size(name);
  return hopper_launch(queue, name, matmul_eight<W, EIGHT_SLAB, true>,
                       dim3(splits, (unsigned)a.n_columns, (unsigned)row_tiles),
                       dim3(EIGHT_THREADS), splits,
                       (size_t)matmul_eight_shared<W, EIGHT_SLAB>::bytes, a);
}

#endif
