/* Products of 9 rows or more by packed block-quantized weights, on Hopper's matrix unit.
 *
 * A first kernel writes the rows of x as f16, each scaled by a power of two so that its largest
 * value has f16's full range, in the order in which the second one wants them in shared memory: for
 * each Columns rows of x and each 64 columns, rows of 128 bytes whose 16-byte chunks are exchanged
 * by row. So one plain bulk copy brings a stage, with no tensor map.
 *
 * In the second, a block makes Tiles * 128 features of Columns rows of x over a part of K. One
 * thread keeps copies of weights going, from before x is there, another those of x. Two groups of 4
 * subgroups take half of the tiles each: a subgroup decodes its tiles to f16 in registers, where
 * the matrix unit takes them from, while the unit works on the stage before. A weight is rounded to
 * f16 (by 2^-12 of itself at most, where its scale and code have more bits); it must fit in f16,
 * and its block's scale below 512.
 *
 * The blocks of a cluster split K. In the end each adds up the sums of all of them for some of the
 * rows, undoes the row's scale, adds the bias and rounds to y's type. */
#ifndef ISOMER_CUDA_HOPPER_MATMUL_MANY_H
#define ISOMER_CUDA_HOPPER_MATMUL_MANY_H

#include "backends/cuda/hopper/hopper.cuh"
#include "backends/simt/matmul_packed.cuh"

enum {
  MANY_STAGE = 64, /* columns */
  MANY_GROUP = 128,
  MANY_THREADS = 3 * MANY_GROUP,
  MANY_WARPS = 8 /* that multiply */
};

struct matmul_many_arguments {
  simt_rows x, y;
  const float *bias;     /* NULL: none */
  const uint8_t *weight; /* packed */
  uint8_t *image;        /* of x, a multiple of 1,024 bytes */
  float *inverses;       /* undo the scales of x's rows */
  int64_t n_features, n_columns, n_rows;
  int32_t n_units, slab; /* slab: rows of x in one image tile */
  bool wide_y;           /* rows that can be written 4 values at a time */
};

/* ---- Preparing x
 * ---------------------------------------------------------------------------------- */

/* A row a block. Chunk c of 64 columns: of each 16, first columns 4 t and 4 t + 1 of all t, then
 * 4 t + 2 and 4 t + 3, which is the order of matmul_packed's codes. */
static __global__ void __launch_bounds__(256)
    matmul_many_prepare(const __grid_constant__ matmul_many_arguments a, int64_t padded_columns) {
  __shared__ float shared[8];
  simt_let_later_begin();
  simt_wait_for_earlier();
  int64_t row = blockIdx.x;
  const uint8_t *x = a.x.row(row);
  float largest = 0, scale, inverse;
  for (int64_t k = (int64_t)threadIdx.x * 4; k < a.n_columns; k += 256 * 4) {
    float v[4];
    simt_load4(a.x.scheme, x, k, v);
    largest =
        fmaxf(fmaxf(largest, fmaxf(fabsf(v[0]), fabsf(v[1]))), fmaxf(fabsf(v[2]), fabsf(v[3])));
  }
  mma_half_scale(simt_block_reduce(largest, shared, simt_max()), &scale, &inverse);
  if (threadIdx.x == 0)
    a.inverses[row] = inverse;
  int64_t tile = row / a.slab, r = row % a.slab;
  uint8_t *image = a.image + tile * a.slab * padded_columns * 2 + r * 128;
  for (int64_t k = (int64_t)threadIdx.x * 16; k < padded_columns; k += 256 * 16) {
    float v[16] = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (k + i * 4 < a.n_columns)
        simt_load4(a.x.scheme, x, k + i * 4, v + i * 4);
    uint8_t *stage = image + k / MANY_STAGE * a.slab * 128;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t words[4];
#pragma unroll
      for (int t = 0; t < 4; t++) {
        __half2 pair =
            __floats2half2_rn(v[4 * t + 2 * half] * scale, v[4 * t + 2 * half + 1] * scale);
        words[t] = *(uint32_t *)&pair;
      }
      int64_t chunk = (k % MANY_STAGE / 8 + half) ^ r % 8;
      *(uint4 *)(stage + chunk * 16) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

/* ---- The product
 * ------------------------------------------------------------------------------------ */

template <typename W, int Columns, int Tiles> struct matmul_many_shared {
  static constexpr int features = 128 * Tiles;
  static constexpr int x_bytes = Columns * 128, w_bytes = 8 * Tiles * W::unit_bytes;
  static constexpr int room = (Tiles == 1 ? 111 : 223) * 1024, x_depth = 4;
  static constexpr int w_fit = (room - x_depth * x_bytes) / w_bytes,
                       w_depth = w_fit < 6 ? w_fit : 6;
  static constexpr int w_at = x_depth * x_bytes;
  /* Sums on their way out: a row of x after another. */
  static constexpr int sums_row = features + 4;
  static constexpr int bytes = w_at + w_depth * w_bytes + 1024; /* to start at 1,024 */
  static_assert(sums_row * Columns * 4 <= w_at + w_depth * w_bytes && w_depth >= 2, "fits");
};

/* The four right words of a 16 x 16 part of a tile: half h of block b. */
template <typename W>
__device__ __forceinline__ void
matmul_many_decode(const uint32_t (&words)[4], const typename W::lane_codes &codes,
                   const matmul_block_scales &scales, int b, int h, uint32_t (&left)[4]) {
  constexpr float up = 1 << (9 - W::base); /* codes are taken 2^(base - 9) times as large */
#pragma unroll
  for (int r = 0; r < 2; r++) {
    int s = W::sub == 16 ? h : 0;
    __half2 scale = __float2half2_rn(scales.codes[s][r] * up);
    __half2 add = __float2half2_rn(W::minimum ? scales.add[s][r] : 0.0f);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t bits = W::pair(words, codes, b, r, 2 * h + i);
      __half2 lift = __float2half2_rn(W::odd_pairs_high && i ? 2048.0f : 32768.0f);
      __half2 offset = __float2half2_rn(-(float)W::offset * (float)(1 << W::base) * 0x1p-9f);
      __half2 code = __hfma2(*(__half2 *)&bits, lift, offset);
      __half2 value = W::minimum ? __hfma2(code, scale, add) : __hmul2(code, scale);
      left[i * 2 + r] = *(uint32_t *)&value;
    }
  }
}

/* Adds up what the blocks of a cluster have, for this block's share of rows, and writes y. */
template <int Columns, int Tiles>
__device__ __forceinline__ void matmul_many_store(const matmul_many_arguments &a, const float *sums,
                                                  int64_t first_row, int64_t first_feature,
                                                  int rank, int n_ranks) {
  constexpr int row_floats = 128 * Tiles + 4;
  int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
  int each = Columns / n_ranks, n_rows = (int)min(a.n_rows - first_row, (int64_t)Columns);
  for (int n = rank * each + warp; n < min((rank + 1) * each, n_rows); n += MANY_WARPS) {
    float inverse = a.inverses[first_row + n];
    uint8_t *y = a.y.row(first_row + n);
#pragma unroll
    for (int tile = 0; tile < Tiles; tile++) {
      const float *mine = sums + n * row_floats + tile * 128 + lane * 4;
      int64_t feature = first_feature + tile * 128 + lane * 4;
      float v[4] = {};
      for (int r = 0; r < n_ranks; r++) {
        float4 part = hopper_cluster_load(mine, r);
        v[0] += part.x, v[1] += part.y, v[2] += part.z, v[3] += part.w;
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
        v[i] = v[i] * inverse + (a.bias && feature + i < a.n_features ? a.bias[feature + i] : 0.0f);
      if (a.wide_y && feature < a.n_features)
        simt_store4(a.y.scheme, y, feature, v);
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (!a.wide_y && feature + i < a.n_features)
          simt_store(a.y.scheme, y, feature + i, v[i]);
    }
  }
}

/* Grid: parts of K, which are a cluster; tiles of features; tiles of rows of x. */
template <typename W, int Columns, int Tiles>
__global__ void __launch_bounds__(MANY_THREADS, Tiles == 1 ? 2 : 1)
    matmul_many(const __grid_constant__ matmul_many_arguments a) {
#if HOPPER_HAS_WGMMA
  typedef matmul_many_shared<W, Columns, Tiles> layout;
  extern __shared__ uint8_t dynamic[];
  __shared__ uint64_t x_full[layout::x_depth], x_free[layout::x_depth];
  __shared__ uint64_t w_full[layout::w_depth], w_free[layout::w_depth];
  uint8_t *shared = dynamic + (1024 - mma_shared_address(dynamic) % 1024) % 1024;
  uint8_t *w_shared = shared + layout::w_at;
  constexpr int stages = W::unit / MANY_STAGE; /* of x in a unit of weights */
  int64_t first_row = (int64_t)blockIdx.z * Columns;
  int64_t first_feature = (int64_t)blockIdx.y * layout::features;
  int begin = (int)((int64_t)a.n_units * blockIdx.x / gridDim.x);
  int n_units = (int)((int64_t)a.n_units * (blockIdx.x + 1) / gridDim.x) - begin;
  if (threadIdx.x == 0) {
    for (int i = 0; i < layout::x_depth; i++) {
      hopper_barrier_init(&x_full[i], 1);
      hopper_barrier_init(&x_free[i], MANY_WARPS);
    }
    for (int i = 0; i < layout::w_depth; i++) {
      hopper_barrier_init(&w_full[i], 1);
      hopper_barrier_init(&w_free[i], MANY_WARPS);
    }
    hopper_barrier_fence();
  }
  simt_let_later_begin();
  __syncthreads();

  if (threadIdx.x < MANY_GROUP) { /* copies */
    hopper_give_registers<24>();
    if (threadIdx.x == 0) {
      int64_t n_tiles = matmul_count(a.n_features - first_feature, 16);
      int tiles = (int)(n_tiles < 8 * Tiles ? n_tiles : 8 * Tiles);
      int64_t tile_bytes = (int64_t)a.n_units * W::unit_bytes;
      const uint8_t *weight =
          a.weight + first_feature / 16 * tile_bytes + (int64_t)begin * W::unit_bytes;
      for (int unit = 0; unit < n_units; unit++) {
        int w = unit % layout::w_depth;
        hopper_barrier_wait(&w_free[w], unit / layout::w_depth % 2 ^ 1);
        hopper_barrier_expect(&w_full[w], (uint32_t)(tiles * W::unit_bytes));
        for (int i = 0; i < tiles; i++)
          hopper_copy(w_shared + w * layout::w_bytes + i * W::unit_bytes,
                      weight + i * tile_bytes + (int64_t)unit * W::unit_bytes, W::unit_bytes,
                      &w_full[w]);
      }
    } else if (threadIdx.x == 32) {
      simt_wait_for_earlier(); /* x is not there before */
      const uint8_t *image =
          a.image + ((int64_t)blockIdx.z * a.n_units + begin) * stages * layout::x_bytes;
      for (int stage = 0; stage < n_units * stages; stage++) {
        int x = stage % layout::x_depth;
        hopper_barrier_wait(&x_free[x], stage / layout::x_depth % 2 ^ 1);
        hopper_barrier_expect(&x_full[x], layout::x_bytes);
        hopper_copy(shared + x * layout::x_bytes, image + (int64_t)stage * layout::x_bytes,
                    layout::x_bytes, &x_full[x]);
      }
    }
    __syncwarp();
    hopper_cluster_sync();
    hopper_cluster_sync();
  } else {
    hopper_take_registers<Tiles == 1 ? 104 : 240>();
    simt_wait_for_earlier();
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    float sums[Tiles][Columns / 2] = {};
    /* While the matrix unit works on one stage, the next one is decoded. */
    uint32_t left[2][Tiles][4][4];
    typename W::lane_codes codes[Tiles];
    const uint8_t *tile = nullptr;
    auto open = [&](int unit) {
      int w = unit % layout::w_depth;
      tile = w_shared + w * layout::w_bytes + warp * W::unit_bytes;
      hopper_barrier_wait(&w_full[w], unit / layout::w_depth % 2);
#pragma unroll
      for (int j = 0; j < Tiles; j++)
        W::open(tile + j * 8 * W::unit_bytes, lane, &codes[j]);
    };
    auto decode = [&](int stage, uint32_t(&out)[Tiles][4][4]) {
#pragma unroll
      for (int j = 0; j < Tiles; j++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          int b = stage * 2 + i;
          uint32_t words[4];
          matmul_block_scales scales;
          W::base_words(tile + j * 8 * W::unit_bytes, lane, b, words);
          W::scales(tile + j * 8 * W::unit_bytes, lane, b, codes[j], &scales);
          matmul_many_decode<W>(words, codes[j], scales, b, 0, out[j][2 * i]);
          matmul_many_decode<W>(words, codes[j], scales, b, 1, out[j][2 * i + 1]);
        }
    };
    if (n_units > 0) {
      open(0);
      decode(0, left[0]);
    }
    int x = 0;
    uint32_t x_phase = 0;
    for (int unit = 0; unit < n_units; unit++) {
#pragma unroll
      for (int stage = 0; stage < stages; stage++) {
        hopper_barrier_wait(&x_full[x], x_phase);
        uint64_t right = hopper_rows(shared + x * layout::x_bytes);
        hopper_product_begin();
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < Tiles; j++)
            hopper_product<simt_f16, Columns>::add(sums[j], left[stage % 2][j][i], right + 2 * i);
        hopper_product_commit();
        if (stage + 1 < stages) {
          decode(stage + 1, left[(stage + 1) % 2]);
        } else {
          __syncwarp();
          if (lane == 0)
            hopper_barrier_arrive(&w_free[unit % layout::w_depth]);
          if (unit + 1 < n_units) {
            open(unit + 1);
            decode(0, left[0]);
          }
        }
        hopper_product_wait<0>();
        if (lane == 0)
          hopper_barrier_arrive(&x_free[x]);
        if (++x == layout::x_depth)
          x = 0, x_phase ^= 1;
      }
    }
    hopper_sync(1, 2 * MANY_GROUP); /* sums go where x and weights were */
    float *out = (float *)shared;
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < Tiles; j++)
#pragma unroll
      for (int i = 0; i < Columns / 2; i++)
        out[(i / 4 * 8 + 2 * t + i % 2) * layout::sums_row + j * 128 + warp * 16 + g +
            i / 2 % 2 * 8] = sums[j][i];
    hopper_cluster_sync();
    matmul_many_store<Columns, Tiles>(a, out, first_row, first_feature, (int)blockIdx.x,
                                      (int)gridDim.x);
    hopper_cluster_sync(); /* others may still read from here */
  }
#endif
}

/* ---- Launching
 * --------------------------------------------------------------------------------------- */

enum { MANY_COLUMNS = 64, MANY_TILES = 1 };

/* Bytes of scratch, for this many rows or fewer. */
static inline uint64_t matmul_many_workspace(int64_t n_rows, int64_t n_columns) {
  uint64_t rows = (uint64_t)matmul_count(n_rows, MANY_COLUMNS) * MANY_COLUMNS;
  return rows * (uint64_t)matmul_count(n_columns, 256) * 256 * 2 + rows * 4 + 1024;
}

/* Blocks that split K: as many as leave the fewest multiprocessors idle; more cost more adding. */
static inline unsigned matmul_many_splits(int64_t tiles, int n_slots, int n_units) {
  unsigned best = 1;
  double best_time = 1e30;
  for (unsigned splits = 1; splits <= 8 && (int)splits * 2 <= n_units; splits *= 2) {
    double waves = (double)matmul_count(tiles * splits, n_slots);
    double time = waves * ((double)n_units / splits + 1.5) + (splits > 1 ? 0.5 : 0);
    if (time < best_time)
      best = splits, best_time = time;
  }
  return best;
}

template <typename W, int Columns, int Tiles>
iso_status matmul_many_multiply(iso_queue *queue, const char *name, unsigned splits,
                                const matmul_many_arguments &a) {
  typedef matmul_many_shared<W, Columns, Tiles> layout;
  dim3 grid(splits, (unsigned)matmul_count(a.n_features, layout::features),
            (unsigned)matmul_count(a.n_rows, Columns));
  if (grid.y > 65535 || grid.z > 65535)
    return simt_fail_size(name);
  return hopper_launch(queue, name, matmul_many<W, Columns, Tiles>, grid, dim3(MANY_THREADS),
                       splits, (size_t)layout::bytes, a);
}

/* `workspace` holds matmul_many_workspace() bytes. `splits`: 0 to choose. */
template <typename W, int Tiles = MANY_TILES>
iso_status matmul_many_run(iso_queue *queue, const char *name, int n_units, uint8_t *workspace,
                           matmul_many_arguments a, unsigned splits = 0) {
  if (a.n_rows == 0 || a.n_features == 0)
    return ISO_OK;
  a.n_units = (int32_t)matmul_count(a.n_columns, W::unit);
  a.slab = MANY_COLUMNS;
  a.image = workspace + (1024 - (uint64_t)(uintptr_t)workspace % 1024) % 1024;
  int64_t row_tiles = matmul_count(a.n_rows, MANY_COLUMNS);
  a.inverses = (float *)(a.image + row_tiles * MANY_COLUMNS * a.n_units * W::unit * 2);
  a.wide_y = simt_is_aligned(a.y, a.y.scheme == ISO_SCHEME_F32 ? 16 : 8) && a.n_features % 4 == 0;
  if (splits == 0)
    splits = matmul_many_splits(row_tiles * matmul_count(a.n_features, 128 * Tiles),
                                n_units * (Tiles == 1 ? 2 : 1), a.n_units);
  ISO_TRY(simt_launch_early(queue, "matmul.prepare", matmul_many_prepare, dim3((unsigned)a.n_rows),
                            dim3(256), 0, a, (int64_t)a.n_units * W::unit));
  return matmul_many_multiply<W, MANY_COLUMNS, Tiles>(queue, name, splits, a);
}

#endif
