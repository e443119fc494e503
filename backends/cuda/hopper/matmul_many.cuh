/* Products of many rows by packed block-quantized weights, on Hopper's matrix unit.
 *
 * A first kernel writes the rows of x as f16, each scaled by a power of two so that its largest
 * value has f16's full range, in the order in which the second one wants them in shared memory: for
 * each Columns rows of x and each 64 columns, rows of 128 bytes whose 16-byte chunks are exchanged
 * by row. So one plain bulk copy brings a stage, with no tensor map.
 *
 * In the second, a block makes 128 features of Columns rows of x. One subgroup keeps the copies
 * going: stages of x, and units of the block's 8 tiles of weights. Two groups of 4 subgroups take 4
 * tiles each: a subgroup decodes its tile to f16 in registers, where the matrix unit takes it from,
 * while the unit works for the other group. Weights are decoded once for all rows of x. A weight is
 * rounded to f16 (by 2^-12 of itself at most, where its scale and code have more bits); it must fit
 * in f16, and its block's scale below 512.
 *
 * f32 sums over the whole of K; the row's scale, the bias and the rounding to y's type come last.
 */
#ifndef ISOMER_CUDA_HOPPER_MATMUL_MANY_H
#define ISOMER_CUDA_HOPPER_MATMUL_MANY_H

#include "backends/cuda/hopper/hopper.cuh"
#include "backends/simt/matmul_packed.cuh"

enum {
  MANY_FEATURES = 128,
  MANY_STAGE = 64,
  MANY_THREADS = 384,
  MANY_GROUP = 128,
  MANY_WARPS = 8
}; /* that multiply */

struct matmul_many_arguments {
  simt_rows x, y;
  const float *bias;     /* NULL: none */
  const uint8_t *weight; /* packed */
  uint8_t *image;        /* of x, a multiple of 1,024 bytes */
  float *inverses;       /* undo the scales of x's rows */
  int64_t n_features, n_columns, n_rows;
  int32_t n_units, slab; /* slab: rows of x in one image tile */
  bool wide_y;           /* 16-bit rows at multiples of 16 bytes */
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

template <typename W, int Columns> struct matmul_many_shared {
  static constexpr int x_bytes = Columns * 128, w_bytes = 8 * W::unit_bytes;
  static constexpr int w_depth = 2;
  static constexpr int room = 222 * 1024 - w_depth * w_bytes;
  static constexpr int x_depth = room / x_bytes > 6 ? 6 : room / x_bytes;
  static constexpr int w_at = x_depth * x_bytes;
  static constexpr int bytes = w_at + w_depth * w_bytes + 1024; /* to start at 1,024 */
  /* y on its way out: a row of 128 features and a chunk more for each row of x */
  static constexpr int y_row = MANY_FEATURES * 2 + 16;
  static_assert(y_row * Columns <= w_at, "y fits where x was");
  static_assert(x_depth >= 2 && bytes <= 225 * 1024, "fits in shared memory");
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

template <int Columns>
__device__ __forceinline__ void
matmul_many_store(const matmul_many_arguments &a, const float (&sums)[Columns / 2],
                  const float *inverses, uint8_t *shared, int64_t first_row, int64_t first_feature,
                  int warp) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  int n_rows = (int)min(a.n_rows - first_row, (int64_t)Columns);
  float bias[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    int64_t feature = first_feature + warp * 16 + g + r * 8;
    bias[r] = a.bias && feature < a.n_features ? a.bias[feature] : 0.0f;
  }
  constexpr int y_row = MANY_FEATURES * 2 + 16;
#pragma unroll
  for (int j = 0; j < Columns / 8; j++) {
    float values[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int n = 8 * j + 2 * t + i % 2;
      values[i] = sums[4 * j + i] * inverses[n] + bias[i / 2];
      int64_t feature = first_feature + warp * 16 + g + i / 2 * 8;
      if (!a.wide_y && n < n_rows && feature < a.n_features)
        simt_store(a.y.scheme, a.y.row(first_row + n), feature, values[i]);
    }
    if (a.wide_y) { /* 8 x 8 parts, transposed on their way */
      uint32_t words[2];
#pragma unroll
      for (int r = 0; r < 2; r++)
        if (a.y.scheme == ISO_SCHEME_F16) {
          __half2 pair = __floats2half2_rn(values[2 * r], values[2 * r + 1]);
          words[r] = *(uint32_t *)&pair;
        } else {
          __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * r], values[2 * r + 1]);
          words[r] = *(uint32_t *)&pair;
        }
      uint8_t *at = shared + (8 * j + lane % 8) * y_row + (warp * 2 + lane / 8 % 2) * 16;
#if HOPPER_HAS_WGMMA
      asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(
                       mma_shared_address(at)),
                   "r"(words[0]), "r"(words[1])
                   : "memory");
#endif
    }
  }
  if (!a.wide_y)
    return;
  hopper_sync(1, 2 * MANY_GROUP);
  for (int i = threadIdx.x - MANY_GROUP; i < n_rows * 16; i += 2 * MANY_GROUP) {
    int64_t feature = first_feature + i % 16 * 8;
    if (feature < a.n_features)
      *(uint4 *)(a.y.row(first_row + i / 16) + feature * 2) =
          *(const uint4 *)(shared + i / 16 * y_row + i % 16 * 16);
  }
}

/* Grid: tiles of rows of x, then of features. */
template <typename W, int Columns>
__global__ void __launch_bounds__(MANY_THREADS, 1)
    matmul_many(const __grid_constant__ matmul_many_arguments a) {
#if HOPPER_HAS_WGMMA
  typedef matmul_many_shared<W, Columns> layout;
  extern __shared__ uint8_t dynamic[];
  __shared__ uint64_t x_full[layout::x_depth], x_free[layout::x_depth];
  __shared__ uint64_t w_full[layout::w_depth], w_free[layout::w_depth];
  __shared__ float inverses[Columns];
  uint8_t *shared = dynamic + (1024 - mma_shared_address(dynamic) % 1024) % 1024;
  uint8_t *w_shared = shared + layout::w_at;
  constexpr int stages = W::unit / MANY_STAGE; /* of x in a unit of weights */
  int64_t first_row = (int64_t)blockIdx.x * Columns;
  int64_t first_feature = (int64_t)blockIdx.y * MANY_FEATURES;
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
      uint32_t tiles = (uint32_t)(n_tiles < 8 ? n_tiles : 8);
      int64_t tile_bytes = (int64_t)a.n_units * W::unit_bytes;
      const uint8_t *weight = a.weight + first_feature / 16 * tile_bytes;
      const uint8_t *image = a.image + (int64_t)blockIdx.x * a.n_units * stages * layout::x_bytes;
      int x = 0;
      uint32_t x_phase = 1;
      for (int unit = 0; unit < a.n_units; unit++) {
        int w = unit % layout::w_depth;
        hopper_barrier_wait(&w_free[w], unit / layout::w_depth % 2 ^ 1);
        hopper_barrier_expect(&w_full[w], tiles * W::unit_bytes);
        for (uint32_t i = 0; i < tiles; i++)
          hopper_copy(w_shared + w * layout::w_bytes + i * W::unit_bytes,
                      weight + i * tile_bytes + (int64_t)unit * W::unit_bytes, W::unit_bytes,
                      &w_full[w]);
        if (unit == 0)
          simt_wait_for_earlier(); /* x is not there before */
        for (int stage = 0; stage < stages; stage++) {
          hopper_barrier_wait(&x_free[x], x_phase);
          hopper_barrier_expect(&x_full[x], layout::x_bytes);
          hopper_copy(shared + x * layout::x_bytes,
                      image + ((int64_t)unit * stages + stage) * layout::x_bytes, layout::x_bytes,
                      &x_full[x]);
          if (++x == layout::x_depth)
            x = 0, x_phase ^= 1;
        }
      }
    }
  } else {
    hopper_take_registers<240>();
    simt_wait_for_earlier();
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    for (int i = threadIdx.x - MANY_GROUP; i < Columns; i += 2 * MANY_GROUP)
      inverses[i] = first_row + i < a.n_rows ? a.inverses[first_row + i] : 0.0f;
    float sums[Columns / 2] = {};
    /* While the matrix unit works on one stage, the next one is decoded. */
    uint32_t left[2][4][4];
    typename W::lane_codes codes;
    const uint8_t *tile = nullptr;
    auto open = [&](int unit) {
      int w = unit % layout::w_depth;
      tile = w_shared + w * layout::w_bytes + warp * W::unit_bytes;
      hopper_barrier_wait(&w_full[w], unit / layout::w_depth % 2);
      W::open(tile, lane, &codes);
    };
    auto decode = [&](int stage, uint32_t(&out)[4][4]) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        int b = stage * 2 + i;
        uint32_t words[4];
        matmul_block_scales scales;
        W::base_words(tile, lane, b, words);
        W::scales(tile, lane, b, codes, &scales);
        matmul_many_decode<W>(words, codes, scales, b, 0, out[2 * i]);
        matmul_many_decode<W>(words, codes, scales, b, 1, out[2 * i + 1]);
      }
    };
    open(0);
    decode(0, left[0]);
    int x = 0;
    uint32_t x_phase = 0;
    for (int unit = 0; unit < a.n_units; unit++) {
#pragma unroll
      for (int stage = 0; stage < stages; stage++) {
        hopper_barrier_wait(&x_full[x], x_phase);
        uint64_t right = hopper_rows(shared + x * layout::x_bytes);
        hopper_product_begin();
#pragma unroll
        for (int i = 0; i < 4; i++)
          hopper_product<simt_f16, Columns>::add(sums, left[stage % 2][i], right + 2 * i);
        hopper_product_commit();
        if (stage + 1 < stages) {
          decode(stage + 1, left[(stage + 1) % 2]);
        } else {
          __syncwarp();
          if (lane == 0)
            hopper_barrier_arrive(&w_free[unit % layout::w_depth]);
          if (unit + 1 < a.n_units) {
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
    hopper_sync(1, 2 * MANY_GROUP); /* y goes where x was */
    matmul_many_store<Columns>(a, sums, inverses, shared, first_row, first_feature, warp);
  }
#endif
}

/* ---- Launching
 * --------------------------------------------------------------------------------------- */

/* Bytes of scratch, for this many rows or fewer. */
static inline uint64_t matmul_many_workspace(int64_t n_rows, int64_t n_columns) {
  uint64_t rows = (uint64_t)matmul_count(n_rows, 256) * 256;
  return rows * (uint64_t)matmul_count(n_columns, 256) * 256 * 2 + rows * 4 + 1024;
}

template <typename W, int Columns>
iso_status matmul_many_multiply(iso_queue *queue, const char *name,
                                const matmul_many_arguments &a) {
  dim3 grid((unsigned)matmul_count(a.n_rows, Columns),
            (unsigned)matmul_count(a.n_features, MANY_FEATURES));
  if (grid.y > 65535)
    return simt_fail_size(name);
  return simt_launch_early(queue, name, matmul_many<W, Columns>, grid, dim3(MANY_THREADS),
                           (size_t)matmul_many_shared<W, Columns>::bytes, a);
}

/* `workspace` holds matmul_many_workspace() bytes. */
template <typename W>
iso_status matmul_many_run(iso_queue *queue, const char *name, int n_units, uint8_t *workspace,
                           matmul_many_arguments a) {
  if (a.n_rows == 0 || a.n_features == 0)
    return ISO_OK;
  a.n_units = (int32_t)matmul_count(a.n_columns, W::unit);
  a.image = workspace + (1024 - (uint64_t)(uintptr_t)workspace % 1024) % 1024;
  a.inverses = (float *)(a.image + matmul_count(a.n_rows, 256) * 256 * a.n_units * W::unit * 2);
  a.wide_y = a.y.scheme != ISO_SCHEME_F32 && simt_is_aligned(a.y, 16) && a.n_features % 8 == 0;
  int64_t tall = matmul_count(a.n_features, MANY_FEATURES);
  a.slab = a.n_rows <= 64                                                    ? 64
           : a.n_rows <= 128 || matmul_count(a.n_rows, 256) * tall < n_units ? 128
                                                                             : 256;
  ISO_TRY(simt_launch_early(queue, "matmul.prepare", matmul_many_prepare, dim3((unsigned)a.n_rows),
                            dim3(256), 0, a, (int64_t)a.n_units * W::unit));
  auto multiply = a.slab == 64    ? matmul_many_multiply<W, 64>
                  : a.slab == 128 ? matmul_many_multiply<W, 128>
                                  : matmul_many_multiply<W, 256>;
  return multiply(queue, name, a);
}

#endif
