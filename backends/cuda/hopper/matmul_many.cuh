/* Products of 9 rows or more by packed block-quantized weights, on Hopper's matrix unit.
 *
 * A first kernel writes the rows of x as f16, each scaled by a power of two so that its largest
 * value has f16's full range, in the order in which the second one wants them in shared memory: for
 * each 64 rows of x and each 64 columns, rows of 128 bytes whose 16-byte chunks are exchanged
 * by row. So one plain bulk copy brings a stage, with no tensor map.
 *
 * In the second, a block makes 256 features of 64 rows of x over a part of K. One thread keeps
 * copies of weights going, from before x is there, another those of x. Four groups of 4 subgroups
 * take a tile of 16 features a subgroup, which decodes it to f16 in registers, where the matrix
 * unit takes it from, while the unit works on the stage before. A weight is rounded to
 * f16 (by 2^-12 of itself at most, where its scale and code have more bits); it must fit in f16,
 * and its block's scale below 512.
 *
 * The blocks of a cluster split K. In the end each adds up the sums of all of them for some of the
 * rows, undoes the row's scale, adds the bias and rounds to y's type. */
#ifndef ISOMER_CUDA_HOPPER_MATMUL_MANY_H
#define ISOMER_CUDA_HOPPER_MATMUL_MANY_H

#include "backends/cuda/hopper/hopper.cuh"
#include "backends/simt/matmul_packed.cuh"
#include <atomic>

enum {
  MANY_STAGE = 64,   /* columns */
  MANY_COLUMNS = 64, /* rows of x in a tile */
  MANY_GROUP = 128,  /* threads */
  MANY_GROUPS = 4,   /* that multiply; another one copies */
  MANY_FEATURES = 64 * MANY_GROUPS,
  MANY_THREADS = (1 + MANY_GROUPS) * MANY_GROUP,
  MANY_SPLITS = 8 /* blocks of a cluster at most */
};

/* A tile of rows that go to one expert. */
struct matmul_many_group {
  int32_t expert;       /* -1: no tile; n_experts: rows that name none and become NaN */
  int32_t first, count; /* within the rows in order of their experts */
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
  /* Of grouped_matmul: a group for each tile of rows, and which row of y comes at each place; its
   * row of x is the same, or that over n_choices where x has one a token. NULL: as they lie. */
  const matmul_many_group *groups;
  const int32_t *order;
  int64_t expert_bytes;
  int32_t n_experts, n_choices;
  bool shares_x;
};

/* ---- Preparing x ----------------------------------------------------------------------------- */

/* A row a block, as f16 or, unscaled, bf16. Chunk c of 64 columns: in order, or of each 16, first
 * columns 4 t and 4 t + 1 of all t, then 4 t + 2 and 4 t + 3, which is the order of
 * matmul_packed's codes. */
template <typename V, bool InOrder>
__global__ void __launch_bounds__(256)
    matmul_many_prepare(const __grid_constant__ matmul_many_arguments a, int64_t padded_columns) {
  __shared__ float shared[8];
  simt_let_later_begin();
  simt_wait_for_earlier();
  int64_t row = blockIdx.x, x_row = row;
  if (a.groups) {
    matmul_many_group group = a.groups[row / a.slab];
    if (group.expert < 0 || row % a.slab >= group.count)
      return;
    x_row = a.order[group.first + row % a.slab];
    x_row = a.shares_x ? x_row / a.n_choices : x_row;
  }
  const uint8_t *x = a.x.row(x_row);
  int64_t tile = row / a.slab, r = row % a.slab;
  uint8_t *image = a.image + tile * a.slab * padded_columns * 2 + r * 128;
  auto load = [&](int64_t k, float(&v)[16]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (k + i * 4 < a.n_columns)
        simt_load4(a.x.scheme, x, k + i * 4, v + i * 4);
      else
        v[4 * i] = v[4 * i + 1] = v[4 * i + 2] = v[4 * i + 3] = 0;
  };
  /* The first columns of a thread stay in registers. */
  int64_t first = (int64_t)threadIdx.x * 16;
  constexpr int64_t STEP = 256 * 16;
  float kept[2][16], largest = 0, scale, inverse;
  auto look = [&](const float(&v)[16]) {
#pragma unroll
    for (int i = 0; i < 16; i++)
      largest = fmaxf(largest, fabsf(v[i]));
  };
#pragma unroll
  for (int i = 0; i < 2; i++)
    load(first + i * STEP, kept[i]);
  look(kept[0]), look(kept[1]);
  for (int64_t k = first + 2 * STEP; k < a.n_columns; k += STEP) {
    float v[16];
    load(k, v);
    look(v);
  }
  if constexpr (__is_same(V, simt_bf16))
    scale = inverse = 1;
  else
    mma_half_scale(simt_block_reduce(largest, shared, simt_max()), &scale, &inverse);
  if (threadIdx.x == 0)
    a.inverses[row] = inverse;
  auto put = [&](int64_t k, const float(&v)[16]) {
    uint8_t *stage = image + k / MANY_STAGE * a.slab * 128;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t words[4];
#pragma unroll
      for (int t = 0; t < 4; t++) {
        int i = InOrder ? 8 * half + 2 * t : 4 * t + 2 * half;
        words[t] = mma_pack<V>(v[i] * scale, v[i + 1] * scale);
      }
      int64_t chunk = (k % MANY_STAGE / 8 + half) ^ r % 8;
      *(uint4 *)(stage + chunk * 16) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  };
#pragma unroll
  for (int i = 0; i < 2; i++)
    if (first + i * STEP < padded_columns)
      put(first + i * STEP, kept[i]);
  for (int64_t k = first + 2 * STEP; k < padded_columns; k += STEP) {
    float v[16];
    load(k, v);
    put(k, v);
  }
}

/* ---- The product ----------------------------------------------------------------------------- */

template <typename W> struct matmul_many_shared {
  static constexpr int tiles = 4 * MANY_GROUPS;
  static constexpr int x_bytes = MANY_COLUMNS * 128, w_bytes = tiles * W::unit_bytes;
  static constexpr int room = 223 * 1024, x_depth = 6;
  static constexpr int w_fit = (room - x_depth * x_bytes) / w_bytes;
  static constexpr int w_depth = w_fit < 6 ? w_fit : 6, w_at = x_depth * x_bytes;
  /* Sums on their way out: a row of x after another. */
  static constexpr int sums_row = MANY_FEATURES + 4;
  static constexpr int bytes = w_at + w_depth * w_bytes + 1024; /* to start at 1,024 */
  static_assert(sums_row * MANY_COLUMNS * 4 <= w_at + w_depth * w_bytes && w_depth >= 2, "fits");
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
static __device__ __forceinline__ void
matmul_many_store(const matmul_many_arguments &a, const float *sums, int64_t first_row,
                  int64_t first_feature, const matmul_many_group &group, int rank, int n_ranks) {
  constexpr int row_floats = MANY_FEATURES + 4;
  int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
  int each = (MANY_COLUMNS + n_ranks - 1) / n_ranks;
  bool is_nan = a.groups && group.expert == a.n_experts;
  for (int n = rank * each + warp; n < min((rank + 1) * each, group.count); n += 4 * MANY_GROUPS) {
    float inverse = a.inverses[first_row + n];
    uint8_t *y = a.y.row(a.order ? a.order[group.first + n] : first_row + n);
#pragma unroll
    for (int part = 0; part < MANY_FEATURES / 128; part++) {
      const float *mine = sums + n * row_floats + part * 128 + lane * 4;
      int64_t feature = first_feature + part * 128 + lane * 4;
      float v[4];
      hopper_cluster_sum<MANY_SPLITS>(mine, n_ranks, v);
#pragma unroll
      for (int i = 0; i < 4; i++)
        v[i] = is_nan ? NAN
                      : v[i] * inverse +
                            (a.bias && feature + i < a.n_features ? a.bias[feature + i] : 0.0f);
      simt_store_some<4>(a.y.scheme, y, feature, a.n_features, a.wide_y, v);
    }
  }
}

/* Grid: parts of K, which are a cluster; tiles of features; tiles of rows of x. */
template <typename W>
__global__ void __launch_bounds__(MANY_THREADS, 1)
    matmul_many(const __grid_constant__ matmul_many_arguments a) {
#if HOPPER_HAS_WGMMA
  typedef matmul_many_shared<W> layout;
  extern __shared__ uint8_t dynamic[];
  __shared__ uint64_t x_full[layout::x_depth], x_free[layout::x_depth];
  __shared__ uint64_t w_full[layout::w_depth], w_free[layout::w_depth];
  uint8_t *shared = dynamic + (1024 - mma_shared_address(dynamic) % 1024) % 1024;
  uint8_t *w_shared = shared + layout::w_at;
  constexpr int stages = W::unit / MANY_STAGE; /* of x in a unit of weights */
  int64_t first_row = (int64_t)blockIdx.z * MANY_COLUMNS;
  int64_t first_feature = (int64_t)blockIdx.y * MANY_FEATURES;
  int begin = (int)((int64_t)a.n_units * blockIdx.x / gridDim.x);
  int n_units = (int)((int64_t)a.n_units * (blockIdx.x + 1) / gridDim.x) - begin;
  if (threadIdx.x == 0) {
    for (int i = 0; i < layout::x_depth; i++) {
      hopper_barrier_init(&x_full[i], 1);
      hopper_barrier_init(&x_free[i], layout::tiles);
    }
    for (int i = 0; i < layout::w_depth; i++) {
      hopper_barrier_init(&w_full[i], 1);
      hopper_barrier_init(&w_free[i], layout::tiles);
    }
    hopper_barrier_fence();
  }
  simt_let_later_begin();
  matmul_many_group group = {0, 0, (int32_t)min(a.n_rows - first_row, (int64_t)MANY_COLUMNS)};
  if (a.groups) {
    simt_wait_for_earlier();
    group = a.groups[blockIdx.z];
    if (group.expert < 0)
      return;
    n_units = group.expert == a.n_experts ? 0 : n_units;
  }
  __syncthreads();

  if (threadIdx.x < MANY_GROUP) { /* copies */
    hopper_give_registers<24>();
    if (threadIdx.x == 0) {
      int64_t n_tiles = matmul_count(a.n_features - first_feature, 16);
      int tiles = (int)(n_tiles < layout::tiles ? n_tiles : layout::tiles);
      int64_t tile_bytes = (int64_t)a.n_units * W::unit_bytes;
      const uint8_t *weight = a.weight + group.expert * a.expert_bytes +
                              first_feature / 16 * tile_bytes + (int64_t)begin * W::unit_bytes;
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
    hopper_take_registers<112>();
    simt_wait_for_earlier();
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    float sums[MANY_COLUMNS / 2]; /* the first product sets them */
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
    if (n_units > 0) {
      open(0);
      decode(0, left[0]);
    }
    int x = 0, before = -1; /* slots of this stage and of the one before */
    uint32_t x_phase = 0;
    for (int unit = 0; unit < n_units; unit++) {
#pragma unroll
      for (int stage = 0; stage < stages; stage++) {
        hopper_barrier_wait(&x_full[x], x_phase);
        uint64_t right = hopper_rows(shared + x * layout::x_bytes);
        hopper_product_begin();
#pragma unroll
        for (int i = 0; i < 4; i++)
          hopper_product<simt_f16, MANY_COLUMNS>::add(sums, left[stage % 2][i], right + 2 * i,
                                                      unit + stage + i > 0);
        hopper_product_commit();
        /* The stage before is done: its slot and its registers are free. */
        hopper_product_wait<1>();
        if (lane == 0 && before >= 0)
          hopper_barrier_arrive(&x_free[before]);
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
        before = x;
        if (++x == layout::x_depth)
          x = 0, x_phase ^= 1;
      }
    }
    hopper_product_wait<0>();
    hopper_sync(1, MANY_GROUPS * MANY_GROUP); /* sums go where x and weights were */
    float *out = (float *)shared;
#pragma unroll
    for (float &sum : sums)
      sum = n_units > 0 ? sum : 0.0f;
    hopper_product_store(sums, out + warp * 16, layout::sums_row);
    hopper_cluster_sync();
    matmul_many_store(a, out, first_row, first_feature, group, (int)blockIdx.x, (int)gridDim.x);
    hopper_cluster_sync(); /* others may still read from here */
  }
#endif
}

/* ---- Launching ------------------------------------------------------------------------------- */

/* Bytes of scratch, for this many rows or fewer. */
static inline uint64_t matmul_many_workspace(int64_t n_rows, int64_t n_columns) {
  uint64_t rows = (uint64_t)matmul_count(n_rows, MANY_COLUMNS) * MANY_COLUMNS;
  return rows * (uint64_t)matmul_count(n_columns, 256) * 256 * 2 + rows * 4 + 1024;
}

/* Clusters of so many blocks that the device runs at once. */
template <typename W> int matmul_many_clusters(iso_queue *queue, unsigned blocks) {
  static std::atomic<int> known[MANY_SPLITS + 1]; /* the cards of a machine are alike */
  int count = known[blocks].load(std::memory_order_relaxed);
  if (count == 0) {
    count = hopper_clusters(queue, matmul_many<W>, MANY_THREADS, blocks,
                            matmul_many_shared<W>::bytes);
    known[blocks].store(count, std::memory_order_relaxed);
  }
  return count;
}

/* Blocks that split K of `tiles` products. A block's start and end take as long as 6 stages, adding
 * up what others have 2 more. */
template <typename W> unsigned matmul_many_splits(iso_queue *queue, int64_t tiles, int n_units) {
  constexpr int64_t stages = W::unit / MANY_STAGE;
  unsigned best = 1;
  int64_t best_time = INT64_MAX;
  for (unsigned splits = 1; splits <= MANY_SPLITS && (int)splits <= n_units; splits++) {
    int64_t waves = matmul_count(tiles, matmul_many_clusters<W>(queue, splits));
    int64_t time = waves * (matmul_count(n_units, splits) * stages + 6 + (splits > 1 ? 2 : 0));
    if (time < best_time)
      best = splits, best_time = time;
  }
  return best;
}

template <typename W>
iso_status matmul_many_multiply(iso_queue *queue, const char *name, unsigned splits,
                                int64_t row_tiles, const matmul_many_arguments &a) {
  typedef matmul_many_shared<W> layout;
  dim3 grid(splits, (unsigned)matmul_count(a.n_features, MANY_FEATURES), (unsigned)row_tiles);
  if (grid.y > 65535 || grid.z > 65535)
    return simt_fail_size(name);
  return hopper_launch(queue, name, matmul_many<W>, grid, dim3(MANY_THREADS), splits,
                       (size_t)layout::bytes, a);
}

static inline void matmul_many_place(matmul_many_arguments *a, int64_t row_tiles, int unit,
                                     uint8_t *workspace) {
  a->n_units = (int32_t)matmul_count(a->n_columns, unit);
  a->slab = MANY_COLUMNS;
  a->image = workspace + (1024 - (uint64_t)(uintptr_t)workspace % 1024) % 1024;
  a->inverses = (float *)(a->image + row_tiles * MANY_COLUMNS * a->n_units * unit * 2);
  a->wide_y =
      simt_is_aligned(a->y, a->y.scheme == ISO_SCHEME_F32 ? 16 : 8) && a->n_features % 4 == 0;
}

/* `workspace` holds matmul_many_workspace() bytes. `splits`: 0 to choose. */
template <typename W>
iso_status matmul_many_run(iso_queue *queue, const char *name, uint8_t *workspace,
                           matmul_many_arguments a, unsigned splits = 0) {
  if (a.n_rows == 0 || a.n_features == 0)
    return ISO_OK;
  int64_t row_tiles = matmul_count(a.n_rows, MANY_COLUMNS);
  matmul_many_place(&a, row_tiles, W::unit, workspace);
  if (splits == 0)
    splits = matmul_many_splits<W>(queue, row_tiles * matmul_count(a.n_features, MANY_FEATURES),
                                   a.n_units);
  ISO_TRY(simt_launch_early(queue, "matmul.prepare", matmul_many_prepare<simt_f16, false>, dim3((unsigned)a.n_rows),
                            dim3(256), 0, a, (int64_t)a.n_units * W::unit));
  return matmul_many_multiply<W>(queue, name, splits, row_tiles, a);
}

/* ---- Rows of many experts -------------------------------------------------------------------- */

enum { MANY_MOST_EXPERTS = 1024 };

/* Tiles of rows that there may be, with one for those that name no expert. */
static inline int64_t matmul_many_groups(int64_t n_rows, int64_t n_experts) {
  int64_t most = n_rows / MANY_COLUMNS + n_experts + 1;
  return most < n_rows ? most : n_rows;
}

/* Puts rows in order of their experts and cuts them into tiles. One block. */
static __global__ void __launch_bounds__(1024)
    matmul_many_sort(const int32_t *experts, int n_rows, int n_experts, int n_groups,
                     matmul_many_group *groups, int32_t *order) {
  __shared__ int counts[MANY_MOST_EXPERTS + 1], rows[MANY_MOST_EXPERTS + 1];
  __shared__ int tiles[MANY_MOST_EXPERTS + 2];
  simt_begin();
  auto expert_of = [&](int row) {
    int expert = experts[row];
    return expert < 0 || expert >= n_experts ? n_experts : expert;
  };
  for (int e = threadIdx.x; e <= n_experts; e += 1024)
    counts[e] = 0;
  __syncthreads();
  for (int row = threadIdx.x; row < n_rows; row += 1024)
    atomicAdd(&counts[expert_of(row)], 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    int row = 0, tile = 0;
    for (int e = 0; e <= n_experts; e++) {
      rows[e] = row, tiles[e] = tile;
      row += counts[e], tile += (counts[e] + MANY_COLUMNS - 1) / MANY_COLUMNS;
    }
    tiles[n_experts + 1] = tile;
  }
  __syncthreads();
  for (int e = threadIdx.x; e <= n_experts; e += 1024)
    for (int i = 0; i < tiles[e + 1] - tiles[e]; i++)
      groups[tiles[e] + i] = {e, rows[e] + i * MANY_COLUMNS,
                              min(counts[e] - i * MANY_COLUMNS, (int)MANY_COLUMNS)};
  for (int i = tiles[n_experts + 1] + threadIdx.x; i < n_groups; i += 1024)
    groups[i] = {-1, 0, 0};
  __syncthreads();
  for (int row = threadIdx.x; row < n_rows; row += 1024)
    order[atomicAdd(&rows[expert_of(row)], 1)] = row;
}

static inline uint64_t matmul_many_grouped_workspace(int64_t n_rows, int64_t n_experts,
                                                     int64_t n_columns) {
  int64_t n_groups = matmul_many_groups(n_rows, n_experts);
  return matmul_many_workspace(n_groups * MANY_COLUMNS, n_columns) +
         (uint64_t)n_groups * sizeof(matmul_many_group) + (uint64_t)n_rows * sizeof(int32_t);
}

/* Puts rows in order of their experts and writes their image. With experts, n_experts, n_choices
 * and shares_x; columns in order for plain weights of V, else in that of packed ones. */
template <typename V, bool InOrder>
iso_status matmul_many_order(iso_queue *queue, uint8_t *workspace, const int32_t *experts,
                             int64_t n_groups, int unit, matmul_many_arguments *a) {
  matmul_many_place(a, n_groups, unit, workspace);
  auto *groups = (matmul_many_group *)(a->inverses + n_groups * MANY_COLUMNS);
  auto *order = (int32_t *)(groups + n_groups);
  a->groups = groups, a->order = order;
  ISO_TRY(simt_launch_early(queue, "grouped_matmul.sort", matmul_many_sort, dim3(1), dim3(1024), 0,
                            experts, (int)a->n_rows, a->n_experts, (int)n_groups, groups, order));
  return simt_launch_early(queue, "grouped_matmul.prepare", matmul_many_prepare<V, InOrder>,
                           dim3((unsigned)(n_groups * MANY_COLUMNS)), dim3(256), 0, *a,
                           (int64_t)a->n_units * unit);
}

/* The same for grouped_matmul, with expert_bytes besides. */
template <typename W>
iso_status matmul_many_run_grouped(iso_queue *queue, const char *name, uint8_t *workspace,
                                   const int32_t *experts, matmul_many_arguments a) {
  if (a.n_rows == 0 || a.n_features == 0)
    return ISO_OK;
  int64_t n_groups = matmul_many_groups(a.n_rows, a.n_experts);
  ISO_TRY((matmul_many_order<simt_f16, false>(queue, workspace, experts, n_groups, W::unit, &a)));
  return matmul_many_multiply<W>(queue, name, 1, n_groups, a);
}

#endif
