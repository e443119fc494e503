/* Products of 9 to 32 rows with plain 16-bit weights. As many bytes as the weights have must pass,
 * and nothing else should take time.
 *
 * What counts is that all multiprocessors have equal shares, and that x, which every block reads,
 * is little beside its weights. A block makes up to 256 features of all rows, in two halves, each
 * by a group of 4 subgroups, whose width is chosen so that blocks nearly fill the device. A half is
 * of one of up to three products of the same rows; or the first is of gate and the second the same
 * features of up, and the block has their glu as well.
 *
 * One thread keeps a ring of slots full. It asks for weights, which no kernel writes, before it
 * waits for the kernel ahead, so that a kernel's start, and what small kernels stand between two
 * products, pass while weights are on their way. Blocks begin at different columns, lest all ask
 * for the same part of x at once.
 *
 * Few tiles of features: the blocks of a cluster split K, and each adds up some rows of all through
 * the others' shared memory, in the order of their ranks. */
#ifndef ISOMER_CUDA_HOPPER_MATMUL_ROWS_H
#define ISOMER_CUDA_HOPPER_MATMUL_ROWS_H

#include "backends/cuda/hopper/hopper.cuh"
#include "backends/simt/elementwise.cuh"
#include "backends/simt/matmul_packed.cuh"

enum {
  ROWS_MOST = 64,
  ROWS_PARTS = 3,
  ROWS_SPLITS = 8,
  ROWS_SUBGROUPS = 8, /* that multiply; one more copies */
  ROWS_THREADS = 32 * (ROWS_SUBGROUPS + 1),
  ROWS_COLUMNS = 64 /* of a step: 128 bytes of a row */
};

/* One product of those that a launch makes of the same rows. */
struct matmul_rows_part {
  const uint8_t *weight;
  int64_t weight_stride; /* bytes */
  const float *bias;     /* NULL: none */
  simt_rows y;
  int32_t n_features;
  int32_t first_half; /* behind those of the parts before */
  bool wide_y;        /* rows that can be written 4 values at a time */
};

struct matmul_rows_arguments {
  hopper_map weights[ROWS_PARTS], x_map;
  simt_rows x;
  matmul_rows_part parts[ROWS_PARTS];
  simt_rows glu; /* of two parts of as many features; no data: none */
  uint32_t activation;
  bool wide_glu;
  int32_t n_parts, n_rows, n_steps;
};

/* Features of half `half` of a block; some or all of them may not be there. */
struct matmul_rows_half {
  int part, feature;
};
template <int Width>
__device__ __forceinline__ matmul_rows_half matmul_rows_find(const matmul_rows_arguments &a,
                                                             int tile, int half) {
  if (a.glu.data)
    return {half, tile * Width};
  int index = 2 * tile + half, part = 0;
#pragma unroll
  for (int i = 1; i < ROWS_PARTS; i++)
    part += i < a.n_parts && index >= a.parts[i].first_half;
  return {part, (index - a.parts[part].first_half) * Width};
}

/* ---- The product ----------------------------------------------------------------------------- */

template <int Width> struct matmul_rows_shared {
  static constexpr int x_bytes = ROWS_MOST * 128, half_bytes = Width * 128;
  static constexpr int slot_bytes = x_bytes + 2 * half_bytes;
  static constexpr int fit = 225 * 1024 / slot_bytes, depth = fit < 8 ? fit : 8;
  static constexpr int bytes = depth * slot_bytes + 1024; /* to start at 1,024 */
  /* Sums, a row of x after another, where x and weights were; 8 more bring rows of 4 lanes to banks
   * of their own. */
  static constexpr int stride = 2 * Width + 8;
  static_assert(ROWS_MOST * stride * 4 <= depth * slot_bytes, "fits");
};

/* Writes four values and returns them as they are stored. */
__device__ __forceinline__ void matmul_rows_put(const matmul_rows_part &part, int row, int feature,
                                                float (&v)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (part.bias && feature + i < part.n_features)
      v[i] += part.bias[feature + i];
  simt_store_some<4>(part.y.scheme, part.y.row(row), feature, part.n_features, part.wide_y, v);
#pragma unroll
  for (int i = 0; i < 4; i++)
    v[i] = simt_rounded(part.y.scheme, v[i]);
}

/* Adds up what the blocks of a cluster have, for this block's share of rows, and writes it. */
template <int Width>
__device__ __forceinline__ void matmul_rows_store(const matmul_rows_arguments &a, const float *sums,
                                                  int tile, int rank, int n_ranks) {
  constexpr int quads = Width / 4, stride = matmul_rows_shared<Width>::stride;
  int each = (a.n_rows + n_ranks - 1) / n_ranks, first = rank * each;
  int n = min(first + each, a.n_rows) - first;
  matmul_rows_half halves[2] = {matmul_rows_find<Width>(a, tile, 0),
                                matmul_rows_find<Width>(a, tile, 1)};
  for (int i = threadIdx.x; i < n * quads; i += 32 * ROWS_SUBGROUPS) {
    int row = first + i / quads, column = i % quads * 4;
    float v[2][4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const matmul_rows_part &part = a.parts[halves[h].part];
      hopper_cluster_sum<ROWS_SPLITS>(sums + row * stride + h * Width + column, n_ranks, v[h]);
      matmul_rows_put(part, row, halves[h].feature + column, v[h]);
    }
    if (a.glu.data) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        v[0][j] = simt_activation(a.activation, v[0][j]) * v[1][j];
      simt_store_some<4>(a.glu.scheme, a.glu.row(row), halves[0].feature + column,
                         a.parts[0].n_features, a.wide_glu, v[0]);
    }
  }
}

/* Grid: parts of K, which are a cluster; tiles of features. */
template <typename V, int Width>
__global__ void __launch_bounds__(ROWS_THREADS, 1)
    matmul_rows(const __grid_constant__ matmul_rows_arguments a) {
#if HOPPER_HAS_WGMMA
  typedef matmul_rows_shared<Width> layout;
  constexpr int depth = layout::depth;
  extern __shared__ uint8_t dynamic[];
  __shared__ uint64_t full[depth], empty[depth];
  uint8_t *shared = dynamic + (1024 - mma_shared_address(dynamic) % 1024) % 1024;
  int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  int tile = blockIdx.y, rank = blockIdx.x, n_ranks = gridDim.x;
  int begin = (int)((int64_t)a.n_steps * rank / n_ranks);
  int n = (int)((int64_t)a.n_steps * (rank + 1) / n_ranks) - begin; /* 1 or more */
  float *out = (float *)shared;
  if (threadIdx.x == 0) {
    for (int i = 0; i < depth; i++) {
      hopper_barrier_init(&full[i], 1);
      hopper_barrier_init(&empty[i], ROWS_SUBGROUPS);
    }
    hopper_barrier_fence();
  }
  simt_let_later_begin();
  __syncthreads();

  if (warp == ROWS_SUBGROUPS) { /* copies */
    if (hopper_elect()) {
      matmul_rows_half halves[2] = {matmul_rows_find<Width>(a, tile, 0),
                                    matmul_rows_find<Width>(a, tile, 1)};
      bool there[2];
      for (int h = 0; h < 2; h++)
        there[h] = halves[h].feature < a.parts[halves[h].part].n_features;
      uint32_t bytes = layout::x_bytes + (there[0] + there[1]) * layout::half_bytes;
      int s = 0, ahead = min(n, depth), turn = tile * 5 % n;
      uint32_t phase = 0;
      auto column = [&](int i) {
        int step = i + turn < n ? i + turn : i + turn - n;
        return (begin + step) * ROWS_COLUMNS;
      };
      auto copy_weights = [&](int i, int slot) {
        uint8_t *to = shared + slot * layout::slot_bytes + layout::x_bytes;
        hopper_barrier_expect(&full[slot], bytes);
#pragma unroll
        for (int h = 0; h < 2; h++)
          if (there[h])
            hopper_copy_box(to + h * layout::half_bytes, &a.weights[halves[h].part], column(i),
                            halves[h].feature, &full[slot]);
      };
      auto copy_x = [&](int i, int slot) {
        hopper_copy_box(shared + slot * layout::slot_bytes, &a.x_map, column(i), 0, &full[slot]);
      };
      for (int i = 0; i < ahead; i++)
        copy_weights(i, i);
      simt_wait_for_earlier(); /* x is not there before */
      for (int i = 0; i < ahead; i++)
        copy_x(i, i);
      for (int i = depth; i < n; i++) {
        hopper_barrier_wait(&empty[s], phase);
        copy_weights(i, s);
        copy_x(i, s);
        if (++s == depth)
          s = 0, phase ^= 1;
      }
    }
    __syncwarp();
  } else {
    simt_wait_for_earlier();
    float sums[Width / 2];
    int s = 0, half = warp / 4;
    uint32_t phase = 0;
    for (int i = 0; i < n; i++) {
      hopper_barrier_wait(&full[s], phase);
      const uint8_t *slot = shared + s * layout::slot_bytes;
      uint64_t left = hopper_rows(slot);
      uint64_t right = hopper_rows(slot + layout::x_bytes + half * layout::half_bytes);
      hopper_product_begin();
#pragma unroll
      for (int j = 0; j < 4; j++)
        hopper_product_shared<V>(sums, left + 2 * j, right + 2 * j, i + j > 0);
      hopper_product_commit();
      hopper_product_wait<1>(); /* a step runs on while the next slot is waited for */
      __syncwarp();
      if (lane == 0 && i > 0)
        hopper_barrier_arrive(&empty[s == 0 ? depth - 1 : s - 1]);
      if (++s == depth)
        s = 0, phase ^= 1;
    }
    hopper_product_wait<0>();
    hopper_sync(1, 32 * ROWS_SUBGROUPS); /* sums go where x and weights were */
    int g = lane / 4, t = lane % 4;
    float *to = out + (warp % 4 * 16 + g) * layout::stride + half * Width + 2 * t;
#pragma unroll
    for (int j = 0; j < Width / 8; j++) {
      *(float2 *)(to + 8 * j) = make_float2(sums[4 * j], sums[4 * j + 1]);
      *(float2 *)(to + 8 * layout::stride + 8 * j) = make_float2(sums[4 * j + 2], sums[4 * j + 3]);
    }
    if (n_ranks == 1)
      hopper_sync(1, 32 * ROWS_SUBGROUPS);
  }
  if (n_ranks > 1)
    hopper_cluster_sync();
  if (warp < ROWS_SUBGROUPS)
    matmul_rows_store<Width>(a, out, tile, rank, n_ranks);
  __syncwarp();
  if (n_ranks > 1)
    hopper_cluster_meet(); /* others may still read from here */
#endif
}

/* ---- Launching ------------------------------------------------------------------------------- */

/* Lets the parts' halves follow one another; returns the number of tiles. */
static inline int matmul_rows_place(matmul_rows_arguments *a, int width) {
  int halves = 0;
  for (int i = 0; i < a->n_parts; i++) {
    matmul_rows_part &part = a->parts[i];
    part.first_half = halves;
    part.wide_y = simt_is_aligned(part.y, 16) && part.n_features % 4 == 0;
    halves += (int)matmul_count(part.n_features, width);
  }
  if (a->glu.data) {
    a->wide_glu = simt_is_aligned(a->glu, 16) && a->parts[0].n_features % 4 == 0;
    return (int)matmul_count(a->parts[0].n_features, width);
  }
  return (halves + 1) / 2;
}

/* How a product is cut. Its cost is what a multiprocessor takes in, in rows of a step, and what
 * starting and adding up take, in the same; blocks that do not run at once take turns. */
struct matmul_rows_cut {
  int width;
  unsigned splits;
  int64_t cost;
};
enum { ROWS_START = 400, ROWS_ADD = 800 };

template <typename V, int Width>
void matmul_rows_try(iso_queue *queue, matmul_rows_arguments *a, matmul_rows_cut *best) {
  static std::atomic<int> known[ROWS_SPLITS + 1]; /* the cards of a machine are alike */
  int tiles = matmul_rows_place(a, Width);
  for (unsigned splits = 1; splits <= ROWS_SPLITS && (int)splits * 2 <= a->n_steps + 1; splits++) {
    int count = known[splits].load(std::memory_order_relaxed);
    if (count == 0) {
      count = hopper_clusters(queue, matmul_rows<V, Width>, ROWS_THREADS, splits,
                              matmul_rows_shared<Width>::bytes);
      known[splits].store(count, std::memory_order_relaxed);
    }
    int64_t steps = matmul_count(a->n_steps, splits);
    int64_t cost = matmul_count(tiles, count) *
                   (steps * (2 * Width + ROWS_MOST) + ROWS_START + (splits > 1 ? ROWS_ADD : 0));
    if (cost < best->cost)
      *best = {Width, splits, cost};
  }
}

template <typename V, int Width>
iso_status matmul_rows_launch(iso_queue *queue, const char *name, matmul_rows_arguments *a,
                              unsigned splits) {
  int tiles = matmul_rows_place(a, Width);
  if (tiles > 65535)
    return simt_fail_size(name);
  for (int i = 0; i < a->n_parts; i++)
    if (!hopper_describe(&a->weights[i], a->parts[i].weight, a->parts[i].n_features, a->x.n_columns,
                         a->parts[i].weight_stride, Width))
      return iso_backend_fail(cuda_host, ISO_ERROR_DEVICE,
                              "%s: the driver cannot describe a weight to the copy engine", name);
  return hopper_launch(queue, name, matmul_rows<V, Width>, dim3(splits, (unsigned)tiles),
                       dim3(ROWS_THREADS), splits, (size_t)matmul_rows_shared<Width>::bytes, *a);
}

constexpr matmul_rows_cut ROWS_BEST = {0, 0, INT64_MAX};

/* Makes all parts, of one feature or more each, for 1 to ROWS_MOST rows. x, weights, and rows of
 * both start at multiples of 16 bytes. */
template <typename V>
iso_status matmul_rows_run(iso_queue *queue, const char *name, matmul_rows_arguments a,
                           matmul_rows_cut cut = ROWS_BEST) {
  a.n_rows = (int32_t)a.x.n_rows;
  a.n_steps = (int32_t)matmul_count(a.x.n_columns, ROWS_COLUMNS);
  if (!hopper_describe(&a.x_map, a.x.data, a.n_rows, a.x.n_columns, a.x.strides[0], ROWS_MOST))
    return iso_backend_fail(cuda_host, ISO_ERROR_DEVICE,
                            "%s: the driver cannot describe rows to the copy engine", name);
  if (cut.width == 0) {
    matmul_rows_try<V, 64>(queue, &a, &cut);
    matmul_rows_try<V, 96>(queue, &a, &cut);
    matmul_rows_try<V, 112>(queue, &a, &cut);
    matmul_rows_try<V, 128>(queue, &a, &cut);
  }
  return cut.width == 64    ? matmul_rows_launch<V, 64>(queue, name, &a, cut.splits)
         : cut.width == 96  ? matmul_rows_launch<V, 96>(queue, name, &a, cut.splits)
         : cut.width == 112 ? matmul_rows_launch<V, 112>(queue, name, &a, cut.splits)
                            : matmul_rows_launch<V, 128>(queue, name, &a, cut.splits);
}

#endif
