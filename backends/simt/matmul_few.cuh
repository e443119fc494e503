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

#include "backends/simt/elementwise.cuh"
#include "backends/simt/matmul_packed.cuh"

enum {
  MATMUL_FEW_SUBGROUPS = 8,
  MATMUL_FEW_RESIDENT = 2, /* blocks a multiprocessor */
  MATMUL_FEW_MOST_PARTS = 3
};

/* Rows one stride apart. Arguments are kept short: a kernel of few microseconds waits for them. */
struct matmul_few_rows {
  uint8_t *data;
  int64_t stride;
  iso_scheme scheme;

  __host__ __device__ uint8_t *row(int64_t index) const { return data + index * stride; }
};

/* One product of those that a launch makes of the same rows. */
struct matmul_few_part {
  const uint8_t *weight; /* packed, or rows row_bytes apart */
  int64_t row_bytes;
  matmul_few_rows y;
  int n_features;
  const float *bias; /* NULL: none */
};

/* How the rows of x come about, where the launch makes them, too: x = rms_norm(sum = a + b). */
struct matmul_few_norm {
  matmul_few_rows a, b, sum; /* no data: x is there */
  const float *weight;
  float epsilon, weight_offset;
};

/* Groups of tiles of one part follow those of another; with glu, half of each group's tiles are of
 * part 0, the gate, and half of part 1, and glu = activation(y0) * y1 is written, too. */
struct matmul_few_arguments {
  int n_columns, n_rows; /* n_rows of x */
  int slab_rows;         /* rows of x that a block takes */
  int n_parts;
  int first_groups[MATMUL_FEW_MOST_PARTS + 1]; /* of each part; the last one is their number */
  bool has_glu;
  uint32_t activation;
  matmul_few_rows x;
  matmul_few_part parts[MATMUL_FEW_MOST_PARTS];
  matmul_few_rows glu;
  matmul_few_norm norm;
  /* Of grouped_matmul: row r of y is x's row r, or r / n_choices where x has one a token, times the
   * weight of expert experts[r]. NULL: one weight for all rows. */
  const int32_t *experts;
  int64_t expert_bytes;
  int32_t n_experts, n_choices;
  bool shares_x;
};

/* The tiles of a group: the first half of them are those of part 0 from first_tile on, the others
 * of part 1, the same part without glu. */
template <int Tiles> struct matmul_few_group {
  static constexpr int half = Tiles > 1 ? Tiles / 2 : 1;
  int parts[2], first_tiles[2];

  __device__ __forceinline__ void find(const matmul_few_arguments &a, int group) {
    int part = 0;
    if (a.has_glu) {
      parts[0] = 0, parts[1] = 1;
      first_tiles[0] = first_tiles[1] = group * half;
      return;
    }
    for (int i = 1; i < MATMUL_FEW_MOST_PARTS; i++)
      part += i < a.n_parts && group >= a.first_groups[i];
    parts[0] = parts[1] = part;
    first_tiles[0] = (group - a.first_groups[part]) * Tiles;
    first_tiles[1] = first_tiles[0] + half;
  }
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

  /* `from`: this lane's place in the unit's first row; n_left: rows there are from it on. */
  static __device__ __forceinline__ void copy(const uint8_t *from, int64_t row_bytes, int n_left,
                                              bool inside, int lane, uint8_t *ring) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      int r = i * 2 + lane / 16;
      bool exists = inside && r < n_left;
      mma_copy16(ring + r * 256 + (lane % 16 ^ r % 2 * 4) * 16,
                 exists ? from + 2 * i * row_bytes : from, exists ? 16 : 0);
    }
  }
};

/* Copies one unit after another of the tiles of a block's groups: all tiles of a unit, this
 * subgroup's units, then the next group. */
template <typename W, int Tiles> struct matmul_few_copier {
  typedef matmul_few_group<Tiles> groups;
  int group, unit, tile, n_units;
  int64_t weight_offset;  /* of the expert */
  const uint8_t *from[2]; /* of this lane, in each half's first tile */
  int64_t tile_bytes[2], row_bytes[2];
  int n_left[2]; /* features from that tile on */

  __device__ __forceinline__ void find(const matmul_few_arguments &a, int lane) {
    groups g;
    g.find(a, group);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const matmul_few_part &part = a.parts[g.parts[h]];
      row_bytes[h] = part.row_bytes;
      tile_bytes[h] = W::packed ? (int64_t)n_units * W::unit_bytes : 16 * row_bytes[h];
      from[h] = part.weight + weight_offset + g.first_tiles[h] * tile_bytes[h];
      from[h] += W::packed ? lane * 16 : lane / 16 * row_bytes[h] + lane % 16 * 16;
      n_left[h] = part.n_features - g.first_tiles[h] * 16;
    }
  }

  __device__ __forceinline__ void begin(const matmul_few_arguments &a, int64_t offset, int warp,
                                        int lane) {
    weight_offset = offset;
    n_units = (int)matmul_count(a.n_columns, W::unit);
    group = blockIdx.x, unit = warp, tile = 0;
    if (group < a.first_groups[a.n_parts])
      find(a, lane);
  }

  __device__ __forceinline__ void copy(const matmul_few_arguments &a, int n_groups, int warp,
                                       int lane, uint8_t *ring) {
    if (group < n_groups && unit < n_units) {
      int h = tile >= groups::half, i = h ? tile - groups::half : tile;
      const uint8_t *at = (h ? from[1] : from[0]) + i * (h ? tile_bytes[1] : tile_bytes[0]);
      int left = (h ? n_left[1] : n_left[0]) - i * 16;
      if constexpr (W::packed) {
        at += unit * W::unit_bytes;
        if (left > 0) {
#pragma unroll
          for (int b = 0; b < W::unit_bytes; b += 512)
            if (b + lane * 16 < W::unit_bytes)
              mma_copy16(ring + b + lane * 16, at + b);
        }
      } else {
        bool inside = unit * W::unit + lane % 16 * 8 < a.n_columns;
        W::copy(inside ? at + unit * W::unit * 2 : at, h ? row_bytes[1] : row_bytes[0],
                left > 0 ? left : 0, inside, lane, ring);
      }
      if (++tile == Tiles) {
        tile = 0;
        if ((unit += MATMUL_FEW_SUBGROUPS) >= n_units) {
          unit = warp;
          group += gridDim.x;
          if (group < n_groups)
            find(a, lane);
        }
      }
    }
    mma_copy_commit();
  }
};

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

  __device__ __forceinline__ void load(const matmul_few_arguments &a, const uint8_t *x,
                                       int64_t unit, int lane) {
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
  constexpr int fit = (W::packed ? 8192 : 12288) / W::unit_bytes;
  return fit > 8 ? 8 : fit > 2 ? fit : 2;
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
  static constexpr __host__ __device__ int bytes(int n_rows) {
    return work_bytes(n_rows) + MATMUL_FEW_SUBGROUPS * n_rows * partial_row * 4;
  }
};

/* Adds and normalises row n into shared memory, in the order of sums that rms_norm has; the first
 * block also stores it. */
__device__ __forceinline__ void matmul_few_make_row(const matmul_few_arguments &a, int n,
                                                    float *shared, uint8_t *made) {
  enum { VECTORS = 4, STRIDE = MATMUL_FEW_SUBGROUPS * 32 * 8 };
  const matmul_few_norm &norm = a.norm;
  int n_columns = a.n_columns, first = (int)threadIdx.x * 8;
  float v[VECTORS][8], sum = 0;
#pragma unroll
  for (int c = 0; c < VECTORS; c++)
    if (first + c * STRIDE < n_columns) {
      float w[8];
      simt_load8(norm.a.scheme, norm.a.row(n), first + c * STRIDE, v[c]);
      simt_load8(norm.b.scheme, norm.b.row(n), first + c * STRIDE, w);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        v[c][j] = simt_rounded(norm.sum.scheme, v[c][j] + w[j]);
        sum += v[c][j] * v[c][j];
      }
      if (blockIdx.x == 0)
        simt_store8(norm.sum.scheme, norm.sum.row(n), first + c * STRIDE, v[c]);
    }
  sum = simt_block_reduce(sum, shared, simt_sum());
  float scale = 1.0f / sqrtf(sum / (float)n_columns + norm.epsilon);
#pragma unroll
  for (int c = 0; c < VECTORS; c++)
    if (first + c * STRIDE < n_columns) {
      float w[8];
      simt_load8(ISO_SCHEME_F32, norm.weight, first + c * STRIDE, w);
#pragma unroll
      for (int j = 0; j < 8; j++)
        v[c][j] = v[c][j] * scale * (w[j] + norm.weight_offset);
      simt_store8(a.x.scheme, made, first + c * STRIDE, v[c]);
      if (blockIdx.x == 0)
        simt_store8(a.x.scheme, a.x.row(n), first + c * STRIDE, v[c]);
    }
  __syncthreads();
}

/* Grid: blocks that take turns at groups of Tiles tiles; slabs of rows of x. */
template <typename W, int Tiles, int Columns, int Planes>
__global__ void __launch_bounds__(MATMUL_FEW_SUBGROUPS * 32, MATMUL_FEW_RESIDENT)
    matmul_few(const __grid_constant__ matmul_few_arguments a) {
  typedef matmul_few_shared<W, Tiles, Columns, Planes> shared;
  extern __shared__ __align__(128) uint8_t memory[];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int first_row = (int)blockIdx.y * a.slab_rows;
  int n_rows = min(a.n_rows - first_row, a.slab_rows);
  int n_units = (int)matmul_count(a.n_columns, W::unit);
  int n_groups = a.first_groups[a.n_parts];
  uint8_t *ring = memory + warp * shared::subgroup_bytes(a.slab_rows);
  uint8_t *stage = ring + shared::ring_bytes;
  float *partial = (float *)(memory + shared::work_bytes(a.slab_rows));

  matmul_few_copier<W, Tiles> copier;
  auto copy = [&](int slot) { copier.copy(a, n_groups, warp, lane, ring + slot * W::unit_bytes); };
  simt_let_later_begin();
  int64_t weight_offset = 0;
  int x_row = first_row;
  if (a.experts) { /* which weight it is must be known first */
    simt_wait_for_earlier();
    int expert = a.experts[first_row];
    if (expert < 0 || expert >= a.n_experts) {
      const matmul_few_rows &y = a.parts[0].y;
      int step = (int)gridDim.x * MATMUL_FEW_SUBGROUPS * 32;
      for (int at = (int)blockIdx.x * MATMUL_FEW_SUBGROUPS * 32 + (int)threadIdx.x;
           at < a.parts[0].n_features; at += step)
        simt_store(y.scheme, y.row(first_row), at, NAN);
      return;
    }
    weight_offset = expert * a.expert_bytes;
    x_row = a.shares_x ? first_row / a.n_choices : first_row;
  }
  copier.begin(a, weight_offset, warp, lane);
#pragma unroll
  for (int i = 0; i < shared::depth; i++)
    copy(i);
  if (a.norm.sum.data)
    for (int i = (int)threadIdx.x * 32; i < (int)a.n_columns; i += MATMUL_FEW_SUBGROUPS * 32 * 32)
      simt_prefetch(a.norm.weight + i);
  simt_wait_for_earlier();

  const uint8_t *x = a.x.row(x_row);
  int64_t x_stride = a.x.stride;
  if (a.norm.sum.data) { /* rows of this launch's own making */
    uint8_t *made = memory + shared::bytes(a.slab_rows);
    x_stride = a.n_columns * simt_float_bytes(a.x.scheme);
    for (int n = 0; n < n_rows; n++)
      matmul_few_make_row(a, n, partial, made + n * x_stride);
    x = made;
  }

  /* The first row of the coming unit is on its way while this one is worked on. */
  matmul_few_raw<W> ahead;
  if (warp < n_units)
    ahead.load(a, x, warp, lane);
  int slot = 0;
  for (int group = blockIdx.x; group < n_groups; group += gridDim.x) {
    float totals[Tiles][Columns][4] = {};
    for (int unit = warp; unit < n_units; unit += MATMUL_FEW_SUBGROUPS) {
      matmul_few_fill<W, Columns, Planes>(a.x.scheme, ahead, 0, lane, stage);
      for (int n = 1; n < n_rows; n += 2) {
        matmul_few_raw<W> raw[2];
        raw[0].load(a, x + n * x_stride, unit, lane);
        raw[1].load(a, x + min(n + 1, n_rows - 1) * x_stride, unit, lane);
        matmul_few_fill<W, Columns, Planes>(a.x.scheme, raw[0], n, lane, stage);
        if (n + 1 < n_rows)
          matmul_few_fill<W, Columns, Planes>(a.x.scheme, raw[1], n + 1, lane, stage);
      }
      int next = unit + MATMUL_FEW_SUBGROUPS;
      ahead.load(a, x, next < n_units ? next : warp, lane);
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
    matmul_few_group<Tiles> tiles;
    constexpr int half = matmul_few_group<Tiles>::half;
    tiles.find(a, group);
    auto finish = [&](int n, int tile, int row) {
      int h = tile >= half;
      const matmul_few_part &part = a.parts[h ? tiles.parts[1] : tiles.parts[0]];
      int at = (h ? tiles.first_tiles[1] + tile - half : tiles.first_tiles[0] + tile) * 16 + row;
      if (at >= part.n_features)
        return 0.0f;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < MATMUL_FEW_SUBGROUPS; w++)
        sum += partial[(w * n_rows + n) * shared::partial_row + tile * 16 + row];
      sum = sum * (1 / W::unit_value) + (part.bias ? part.bias[at] : 0.0f);
      simt_store(part.y.scheme, part.y.row(first_row + n), at, sum);
      return simt_rounded(part.y.scheme, sum);
    };
    if (a.has_glu) {
      for (int i = threadIdx.x; i < half * 16 * n_rows; i += MATMUL_FEW_SUBGROUPS * 32) {
        int n = i / (half * 16), tile = i / 16 % half;
        int at = (tiles.first_tiles[0] + tile) * 16 + i % 16;
        float gate = finish(n, tile, i % 16), up = finish(n, half + tile, i % 16);
        if (at < a.parts[0].n_features)
          simt_store(a.glu.scheme, a.glu.row(first_row + n), at,
                     simt_activation(a.activation, gate) * up);
      }
    } else {
      for (int i = threadIdx.x; i < Tiles * 16 * n_rows; i += MATMUL_FEW_SUBGROUPS * 32)
        (void)finish(i / (Tiles * 16), i / 16 % Tiles, i % 16);
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
  a.slab_rows = a.experts ? 1 : a.n_rows < Columns * 8 ? a.n_rows : Columns * 8;
  while (a.slab_rows > 1 && shared::bytes(a.slab_rows) > shared_limit)
    a.slab_rows--;
  int64_t slabs = matmul_count(a.n_rows, a.slab_rows), groups = 0;
  for (int i = 0; i < a.n_parts; i++) {
    a.first_groups[i] = (int)groups;
    int64_t tiles = matmul_count(a.parts[i].n_features, 16);
    groups = a.has_glu ? matmul_count(tiles, Tiles / 2) : groups + matmul_count(tiles, Tiles);
    if (groups > 0x7fffffff)
      return simt_fail_size(name);
  }
  a.first_groups[a.n_parts] = (int)groups;
  size_t made_bytes = a.norm.sum.data ? (size_t)a.n_rows * (size_t)a.n_columns *
                                            (size_t)simt_float_bytes(a.x.scheme)
                                      : 0;
  if (groups == 0)
    return ISO_OK;
  if (slabs > 65535)
    return simt_fail_size(name);
  groups = groups < resident ? groups : resident;
  return simt_launch_early(queue, name, matmul_few<W, Tiles, Columns, Planes>,
                           dim3((unsigned)groups, (unsigned)slabs), dim3(MATMUL_FEW_SUBGROUPS * 32),
                           (size_t)shared::bytes(a.slab_rows) + made_bytes, a);
}

/* The most reuse of x that still leaves two blocks a multiprocessor. */
template <typename W, int Planes>
iso_status matmul_few_sized(iso_queue *queue, const char *name, int n_units, int shared_limit,
                            const matmul_few_arguments &a) {
  int resident = MATMUL_FEW_RESIDENT * n_units;
  int64_t tiles = 0;
  for (int i = 0; i < a.n_parts; i++)
    tiles += matmul_count(a.parts[i].n_features, 16);
  auto launch = tiles > 2 * resident            ? matmul_few_launch<W, 4, 1, Planes>
                : tiles > resident || a.has_glu ? matmul_few_launch<W, 2, 1, Planes>
                                                : matmul_few_launch<W, 1, 1, Planes>;
  return launch(queue, name, resident, shared_limit, a);
}

/* One plane holds 16-bit activations exactly, but for f16 with bf16 weights. */
template <typename W>
iso_status matmul_few_run(iso_queue *queue, const char *name, int n_units, int shared_limit,
                          const matmul_few_arguments &a) {
  if (a.n_rows == 0)
    return ISO_OK;
  bool exact = a.x.scheme == ISO_SCHEME_BF16 ||
               (a.x.scheme == ISO_SCHEME_F16 && !__is_same(typename W::value, simt_bf16));
  return (exact ? matmul_few_sized<W, 1> : matmul_few_sized<W, 2>)(queue, name, n_units,
                                                                   shared_limit, a);
}

#endif
