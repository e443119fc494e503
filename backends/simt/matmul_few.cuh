/* Products of few rows of activations, at the speed at which weights come from memory.
 *
 * A block of 8 subgroups computes Tiles * 16 output features of up to Columns * 8 rows of x. Its
 * subgroups share the weight's columns: each walks its own units, for all tiles, and has several
 * units on the way from memory in a ring of its own, so that no subgroup waits for another until
 * the partial sums are added. The ring is filled before anything else is looked at.
 *
 * The rows of x are the right operand of the matrix unit, as two 16-bit planes whose sum has 22
 * bits (16 with bf16 weights): f32 activations lose nothing that f32 sums would keep. Codes and
 * their scales are exact. */
#ifndef ISOMER_SIMT_MATMUL_FEW_H
#define ISOMER_SIMT_MATMUL_FEW_H

#include "backends/simt/matmul_packed.cuh"

enum { MATMUL_FEW_SUBGROUPS = 8, MATMUL_FEW_RESIDENT = 2 /* blocks a multiprocessor */ };

struct matmul_few_arguments {
  simt_rows x, y;
  const float *bias;     /* NULL: none */
  const uint8_t *weight; /* packed, or rows row_bytes apart */
  int64_t row_bytes;
  int64_t n_features, n_columns, n_rows; /* n_rows of x */
  int slab_rows;                         /* rows of x that a block takes */
  /* Of grouped_matmul: row r of y is x's row r, or r / n_choices where x has one a token, times the
   * weight of expert experts[r]. NULL: one weight for all rows. */
  const int32_t *experts;
  int64_t expert_bytes;
  int32_t n_experts, n_choices;
  bool shares_x;
};

/* A plain weight of 16-bit floats as a source of units of 16 rows by 128 columns. Lane 4 g + t owns
 * columns 8 t .. 8 t + 7 of each 32. In the ring, rows lie one after another, with the halves of
 * odd rows swapped so that no two rows meet in a memory bank. */
template <typename V> struct matmul_plain {
  typedef V value;
  static constexpr bool packed = false;
  static constexpr int unit = 128, unit_bytes = 16 * 128 * 2, blocks = 4, sub = 128;
  static constexpr bool odd_pairs_high = false, minimum = false;
  static constexpr int offset = 0;
  static constexpr float unit_value = 1;

  static __device__ __forceinline__ void copy(const matmul_few_arguments &a, const uint8_t *weight,
                                              int64_t tile, int64_t unit_index, int lane,
                                              uint8_t *ring) {
    int chunk = lane % 16;
    int64_t column = unit_index * unit + chunk * 8;
    int bytes = column < a.n_columns ? 16 : 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      int r = i * 2 + lane / 16;
      int64_t row = min(tile * 16 + r, a.n_features - 1);
      mma_copy16(ring + r * 256 + (chunk ^ r % 2 * 4) * 16,
                 weight + row * a.row_bytes + (bytes ? column * 2 : 0), bytes);
    }
  }
};

template <typename W>
__device__ __forceinline__ void matmul_few_copy(const matmul_few_arguments &a,
                                                const uint8_t *weight, int64_t tile, int64_t unit,
                                                int64_t n_units, int lane, uint8_t *ring) {
  if (tile * 16 >= a.n_features)
    return;
  if constexpr (W::packed) {
    const uint8_t *from = weight + (tile * n_units + unit) * W::unit_bytes;
#pragma unroll
    for (int i = 0; i < W::unit_bytes; i += 512)
      if (i + lane * 16 < W::unit_bytes)
        mma_copy16(ring + i + lane * 16, from + i + lane * 16);
  } else {
    W::copy(a, weight, tile, unit, lane, ring);
  }
}

/* How rows of x lie in shared memory, a unit at a time: for each row and 32 columns the high plane
 * and the low one, 4 lanes' 16 bytes each; rows are half a line of banks apart. Before them a table
 * of floats: what undoes each row's scale in this unit, then the sums of each sub-block, a float a
 * row, where codes or minimums need them. */
template <typename W, int Columns, int Planes> struct matmul_few_stage {
  static constexpr int block_bytes = Planes * 64, row_bytes = W::blocks * block_bytes + 64;
  static constexpr int width = Columns * 8;
  static constexpr bool has_sums = W::offset != 0 || W::minimum;
  static constexpr int table_bytes = (1 + (has_sums ? W::unit / W::sub : 0)) * width * 4;
};

/* A lane's values of one row of x in one unit, as they come from memory: columns 4 lane .. of each
 * 128. Kept until the unit before has been worked on. */
template <typename W> struct matmul_few_raw {
  uint4 words[W::unit / 128];

  __device__ __forceinline__ void load(const matmul_few_arguments &a, int64_t row, int64_t unit,
                                       int lane) {
    const uint8_t *x = a.x.row(row);
#pragma unroll
    for (int c = 0; c < W::unit / 128; c++) {
      int64_t k = unit * W::unit + c * 128 + lane * 4;
      words[c] = make_uint4(0, 0, 0, 0);
      if (k < a.n_columns && a.x.scheme == ISO_SCHEME_F32)
        words[c] = *(const uint4 *)(x + k * 4);
      if (k < a.n_columns && a.x.scheme != ISO_SCHEME_F32)
        *(uint2 *)&words[c] = *(const uint2 *)(x + k * 2);
    }
  }
};

/* Puts row n of a unit into the stage. */
template <typename W, int Columns, int Planes>
__device__ __forceinline__ void matmul_few_fill(iso_scheme scheme, const matmul_few_raw<W> &raw,
                                                int n, int lane, uint8_t *stage) {
  typedef matmul_few_stage<W, Columns, Planes> layout;
  float v[W::unit / 128][4], scale = 1, inverse = 1;
#pragma unroll
  for (int c = 0; c < W::unit / 128; c++)
    simt_load4(scheme, &raw.words[c], 0, v[c]);
  if constexpr (!__is_same(typename W::value, simt_bf16)) {
    float largest = 0;
#pragma unroll
    for (int c = 0; c < W::unit / 128; c++)
      largest = fmaxf(fmaxf(largest, fmaxf(fabsf(v[c][0]), fabsf(v[c][1]))),
                      fmaxf(fabsf(v[c][2]), fabsf(v[c][3])));
    mma_half_scale(simt_subgroup_reduce(largest, simt_max()), &scale, &inverse);
  }
  float odd_scale = W::odd_pairs_high ? scale * 0.0625f : scale, *table = (float *)stage;
  if (lane == 0)
    table[n] = inverse;
#pragma unroll
  for (int c = 0; c < W::unit / 128; c++) {
    uint32_t high[2], low[2];
    mma_split<typename W::value>(v[c][0] * scale, v[c][1] * scale, &high[0], &low[0]);
    mma_split<typename W::value>(v[c][2] * odd_scale, v[c][3] * odd_scale, &high[1], &low[1]);
    int block = c * 4 + lane / 8, i = lane % 8;
    uint8_t *at = stage + layout::table_bytes + n * layout::row_bytes +
                  block * layout::block_bytes +
                  (W::packed ? i % 4 * 16 + i / 4 * 8 : i / 2 * 16 + i % 2 * 8);
    *(uint2 *)at = make_uint2(high[0], high[1]);
    if constexpr (Planes == 2)
      *(uint2 *)(at + 64) = make_uint2(low[0], low[1]);
    if constexpr (layout::has_sums) {
      float sum = (v[c][0] + v[c][1]) + (v[c][2] + v[c][3]);
#pragma unroll
      for (int mask = 1; mask < W::sub / 4; mask *= 2)
        sum += simt_shuffle_xor(sum, mask);
      if (lane % (W::sub / 4) == 0)
        table[(1 + c * 128 / W::sub + lane / (W::sub / 4)) * layout::width + n] =
            sum * scale * (W::minimum ? W::unit_value : -W::unit_value * (float)W::offset);
    }
  }
}

/* Adds one unit of one tile to its sums. */
template <typename W, int Columns, int Planes>
__device__ __forceinline__ void matmul_few_unit(const uint8_t *ring, const uint8_t *stage,
                                                int n_rows, int lane, float (&totals)[Columns][4]) {
  typedef matmul_few_stage<W, Columns, Planes> layout;
  const float *table = (const float *)stage;
  typedef typename W::value V;
  int g = lane / 4, t = lane % 4;
  const uint8_t *rows[Columns];
#pragma unroll
  for (int c = 0; c < Columns; c++) /* columns beyond the rows repeat the last one */
    rows[c] = stage + layout::table_bytes + min(c * 8 + g, n_rows - 1) * layout::row_bytes + t * 16;
  float unit_sums[Columns][4] = {};
  if constexpr (!W::packed) {
#pragma unroll
    for (int b = 0; b < W::blocks; b++) {
      uint4 upper = *(const uint4 *)(ring + g * 256 + ((b * 4 + t) ^ g % 2 * 4) * 16);
      uint4 lower = *(const uint4 *)(ring + (g + 8) * 256 + ((b * 4 + t) ^ g % 2 * 4) * 16);
      const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y};
      const uint32_t second[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
      for (int c = 0; c < Columns; c++)
#pragma unroll
        for (int plane = 0; plane < Planes; plane++) {
          uint4 x = *(const uint4 *)(rows[c] + b * layout::block_bytes + plane * 64);
          mma_add<V>(unit_sums[c], first, x.x, x.y);
          mma_add<V>(unit_sums[c], second, x.z, x.w);
        }
    }
  } else {
    typename W::lane_codes codes;
    W::open(ring, lane, &codes);
#pragma unroll
    for (int b = 0; b < W::blocks; b++) {
      uint32_t words[4], left[2][4];
      W::base_words(ring, lane, b, words);
#pragma unroll
      for (int p = 0; p < 4; p++)
#pragma unroll
        for (int r = 0; r < 2; r++)
          left[p / 2][p % 2 * 2 + r] = W::pair(words, codes, b, r, p);
      matmul_block_scales scales;
      W::scales(ring, lane, b, codes, &scales);
#pragma unroll
      for (int c = 0; c < Columns; c++) {
        uint4 x[Planes];
#pragma unroll
        for (int plane = 0; plane < Planes; plane++)
          x[plane] = *(const uint4 *)(rows[c] + b * layout::block_bytes + plane * 64);
#pragma unroll
        for (int s = 0; s < 32 / W::sub; s++) {
          float2 of_x = {};
          if constexpr (layout::has_sums)
            of_x = *(const float2 *)(table + (1 + b * (32 / W::sub) + s) * layout::width + c * 8 +
                                     2 * t);
          float sums[4] = {};
          if constexpr (!W::minimum)
            sums[0] = sums[2] = of_x.x, sums[1] = sums[3] = of_x.y;
#pragma unroll
          for (int plane = 0; plane < Planes; plane++) {
            if (W::sub == 32 || s == 0)
              mma_add<V>(sums, left[0], x[plane].x, x[plane].y);
            if (W::sub == 32 || s == 1)
              mma_add<V>(sums, left[1], x[plane].z, x[plane].w);
          }
#pragma unroll
          for (int i = 0; i < 4; i++) {
            unit_sums[c][i] += scales.codes[s][i / 2] * sums[i];
            if constexpr (W::minimum)
              unit_sums[c][i] += scales.add[s][i / 2] * (i % 2 ? of_x.y : of_x.x);
          }
        }
      }
    }
  }
#pragma unroll
  for (int c = 0; c < Columns; c++) {
    float2 inverse = *(const float2 *)(table + c * 8 + 2 * t);
#pragma unroll
    for (int i = 0; i < 4; i++)
      totals[c][i] += unit_sums[c][i] * (i % 2 ? inverse.y : inverse.x);
  }
}

/* Units that a subgroup has on their way: what fits, and at least two. */
template <typename W> constexpr int matmul_few_depth() {
  return W::unit_bytes >= 4096 ? 3 : 8192 / W::unit_bytes > 8 ? 8 : 8192 / W::unit_bytes;
}

template <typename W, int Tiles, int Columns, int Planes> struct matmul_few_shared {
  static constexpr int depth = matmul_few_depth<W>();
  static constexpr int ring_bytes = depth * W::unit_bytes;
  static constexpr int partial_row = Tiles * 16 + 4; /* floats */
  static constexpr __host__ __device__ int subgroup_bytes(int n_rows) {
    typedef matmul_few_stage<W, Columns, Planes> layout;
    return ring_bytes + layout::table_bytes + n_rows * layout::row_bytes;
  }
  static constexpr __host__ __device__ int work_bytes(int n_rows) {
    return MATMUL_FEW_SUBGROUPS * subgroup_bytes(n_rows);
  }
  static constexpr int bytes(int n_rows) {
    return work_bytes(n_rows) + MATMUL_FEW_SUBGROUPS * n_rows * partial_row * 4;
  }
};

/* Grid: blocks that take turns at groups of Tiles tiles; slabs of rows of x. */
template <typename W, int Tiles, int Columns, int Planes>
__global__ void __launch_bounds__(MATMUL_FEW_SUBGROUPS * 32, MATMUL_FEW_RESIDENT)
    matmul_few(const __grid_constant__ matmul_few_arguments a) {
  typedef matmul_few_shared<W, Tiles, Columns, Planes> shared;
  extern __shared__ __align__(128) uint8_t memory[];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int64_t first_row = (int64_t)blockIdx.y * a.slab_rows;
  int n_rows = (int)min(a.n_rows - first_row, (int64_t)a.slab_rows);
  int n_units = (int)matmul_count(a.n_columns, W::unit);
  int n_groups = (int)matmul_count(matmul_count(a.n_features, 16), Tiles);
  uint8_t *ring = memory + warp * shared::subgroup_bytes(a.slab_rows);
  uint8_t *stage = ring + shared::ring_bytes;
  float *partial = (float *)(memory + shared::work_bytes(a.slab_rows));

  const uint8_t *weight = a.weight;
  /* The next unit to copy: this subgroup's units of all tiles of a group, then the next group. */
  int copy_group = blockIdx.x, copy_unit = warp, copy_tile = 0;
  auto copy = [&](int slot) {
    if (copy_group < n_groups && copy_unit < n_units) {
      matmul_few_copy<W>(a, weight, (int64_t)copy_group * Tiles + copy_tile, copy_unit, n_units,
                         lane, ring + slot * W::unit_bytes);
      if (++copy_tile == Tiles) {
        copy_tile = 0;
        if ((copy_unit += MATMUL_FEW_SUBGROUPS) >= n_units) {
          copy_unit = warp;
          copy_group += gridDim.x;
        }
      }
    }
    mma_copy_commit();
  };
  simt_let_later_begin();
  int64_t x_row = first_row;
  if (a.experts) { /* which weight it is must be known first */
    simt_wait_for_earlier();
    int expert = a.experts[first_row];
    if (expert < 0 || expert >= a.n_experts) {
      int64_t step = (int64_t)gridDim.x * MATMUL_FEW_SUBGROUPS * 32;
      for (int64_t at = (int64_t)blockIdx.x * MATMUL_FEW_SUBGROUPS * 32 + threadIdx.x;
           at < a.n_features; at += step)
        simt_store(a.y.scheme, a.y.row(first_row), at, NAN);
      return;
    }
    weight += expert * a.expert_bytes;
    x_row = a.shares_x ? first_row / a.n_choices : first_row;
  }
#pragma unroll
  for (int i = 0; i < shared::depth; i++)
    copy(i);
  simt_wait_for_earlier();

  /* The first row of the coming unit is on its way while this one is worked on. */
  matmul_few_raw<W> ahead;
  if (warp < n_units)
    ahead.load(a, x_row, warp, lane);
  int slot = 0;
  for (int group = blockIdx.x; group < n_groups; group += gridDim.x) {
    float totals[Tiles][Columns][4] = {};
    for (int unit = warp; unit < n_units; unit += MATMUL_FEW_SUBGROUPS) {
      matmul_few_fill<W, Columns, Planes>(a.x.scheme, ahead, 0, lane, stage);
      for (int n = 1; n < n_rows; n += 2) {
        matmul_few_raw<W> raw[2];
        raw[0].load(a, x_row + n, unit, lane);
        raw[1].load(a, x_row + min(n + 1, n_rows - 1), unit, lane);
        matmul_few_fill<W, Columns, Planes>(a.x.scheme, raw[0], n, lane, stage);
        if (n + 1 < n_rows)
          matmul_few_fill<W, Columns, Planes>(a.x.scheme, raw[1], n + 1, lane, stage);
      }
      int next = unit + MATMUL_FEW_SUBGROUPS;
      ahead.load(a, x_row, next < n_units ? next : warp, lane);
      __syncwarp();
#pragma unroll
      for (int tile = 0; tile < Tiles; tile++) {
        mma_copy_wait<shared::depth - 1>();
        __syncwarp();
        matmul_few_unit<W, Columns, Planes>(ring + slot * W::unit_bytes, stage, n_rows, lane,
                                            totals[tile]);
        __syncwarp();
        copy(slot);
        slot = slot + 1 == shared::depth ? 0 : slot + 1;
      }
    }

    /* Partial sums of the subgroups: [subgroup][row of x][feature]. */
#pragma unroll
    for (int tile = 0; tile < Tiles; tile++)
#pragma unroll
      for (int c = 0; c < Columns; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          int n = c * 8 + lane % 4 * 2 + i % 2, feature = tile * 16 + lane / 4 + i / 2 * 8;
          if (n < n_rows)
            partial[(warp * n_rows + n) * shared::partial_row + feature] = totals[tile][c][i];
        }
    __syncthreads();
    for (int i = threadIdx.x; i < Tiles * 16 * n_rows; i += MATMUL_FEW_SUBGROUPS * 32) {
      int n = i / (Tiles * 16), feature = i % (Tiles * 16);
      int64_t at = (int64_t)group * Tiles * 16 + feature;
      if (at >= a.n_features)
        continue;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < MATMUL_FEW_SUBGROUPS; w++)
        sum += partial[(w * n_rows + n) * shared::partial_row + feature];
      sum = sum * (1 / W::unit_value) + (a.bias ? a.bias[at] : 0.0f);
      simt_store(a.y.scheme, a.y.row(first_row + n), at, sum);
    }
    if (group + (int)gridDim.x < n_groups)
      __syncthreads();
  }
  mma_copy_wait<0>();
}

template <typename W, int Tiles, int Columns, int Planes>
iso_status matmul_few_launch(iso_queue *queue, const char *name, int resident, int shared_limit,
                             matmul_few_arguments a) {
  typedef matmul_few_shared<W, Tiles, Columns, Planes> shared;
  a.slab_rows = a.experts ? 1 : (int)(a.n_rows < Columns * 8 ? a.n_rows : Columns * 8);
  while (a.slab_rows > 1 && shared::bytes(a.slab_rows) > shared_limit)
    a.slab_rows--;
  int64_t slabs = matmul_count(a.n_rows, a.slab_rows);
  int64_t groups = matmul_count(matmul_count(a.n_features, 16), Tiles);
  if (slabs > 65535 || groups > 0x7fffffff || a.n_columns > 0x7fffffff)
    return simt_fail_size(name);
  groups = groups < resident ? groups : resident;
  return simt_launch_early(queue, name, matmul_few<W, Tiles, Columns, Planes>,
                           dim3((unsigned)groups, (unsigned)slabs), dim3(MATMUL_FEW_SUBGROUPS * 32),
                           (size_t)shared::bytes(a.slab_rows), a);
}

/* The most reuse of x that still leaves two blocks a multiprocessor. */
template <typename W, int Planes>
iso_status matmul_few_sized(iso_queue *queue, const char *name, int n_units, int shared_limit,
                            const matmul_few_arguments &a) {
  int resident = MATMUL_FEW_RESIDENT * n_units;
  int64_t tiles = matmul_count(a.n_features, 16);
  auto launch = tiles > 2 * resident ? matmul_few_launch<W, 4, 1, Planes>
                : tiles > resident   ? matmul_few_launch<W, 2, 1, Planes>
                                     : matmul_few_launch<W, 1, 1, Planes>;
  return launch(queue, name, resident, shared_limit, a);
}

/* One plane holds 16-bit activations exactly, but for f16 with bf16 weights. */
template <typename W>
iso_status matmul_few_run(iso_queue *queue, const char *name, int n_units, int shared_limit,
                          const matmul_few_arguments &a) {
  if (a.n_rows == 0 || a.n_features == 0)
    return ISO_OK;
  bool exact = a.x.scheme == ISO_SCHEME_BF16 ||
               (a.x.scheme == ISO_SCHEME_F16 && !__is_same(typename W::value, simt_bf16));
  return (exact ? matmul_few_sized<W, 1> : matmul_few_sized<W, 2>)(queue, name, n_units,
                                                                   shared_limit, a);
}

#endif
