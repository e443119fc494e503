/* Products of few rows of activations, at the speed at which weights come from memory.
 *
 * A block takes all of a multiprocessor. It computes Tiles * 16 output features at a time, of up to
 * 8 rows of x. Its subgroups share the weight's columns: each walks its own units, for all tiles,
 * and has several units on the way from memory in a ring of its own, so that no subgroup waits for
 * another until partial sums are added, those of several groups of tiles at once. The ring is
 * filled before anything else is looked at. */
#ifndef ISOMER_SIMT_MATMUL_FEW_H
#define ISOMER_SIMT_MATMUL_FEW_H

#include "backends/simt/elementwise.cuh"
#include "backends/simt/matmul_few_ways.cuh"

enum {
  MATMUL_FEW_SUBGROUPS = 16, /* half as many where shared memory is short */
  MATMUL_FEW_MUCH_SHARED = 160 << 10,
  MATMUL_FEW_MOST_PARTS = 3,
  MATMUL_FEW_MOST_BATCH = 8, /* groups of tiles whose partial sums are added at once */
  /* Units that a subgroup has on their way, and their bytes: rows of x come behind them. */
  MATMUL_FEW_LEAST_DEPTH = 2,
  MATMUL_FEW_MOST_DEPTH = 4,
  MATMUL_FEW_FLOAT8_DEPTH = 3,
  MATMUL_FEW_RING_BYTES = 5120,
  /* As if a block had these many threads: then one of 128 threads and 168 registers each, as that
   * of attention_one() is, runs beside it. */
  MATMUL_FEW_THREADS_WITH_ROOM = 768,
  /* Of eight columns a thread, where a launch makes its rows: 16 subgroups, 8,192 columns. */
  MATMUL_FEW_NORM_VECTORS = 2
};

static inline int matmul_few_subgroups(int shared_limit) {
  return shared_limit >= MATMUL_FEW_MUCH_SHARED ? MATMUL_FEW_SUBGROUPS : MATMUL_FEW_SUBGROUPS / 2;
}

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
  int n_stages;          /* units of x that a subgroup keeps: all of its own, or one */
  int batch;             /* groups of which partial sums are kept before they are added */
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

/* What is known of a launch when its kernel is compiled. One: it is of one row, everything is in
 * bf16 and a block has all of its subgroups, so that nothing is left to find out: half the code. */
template <bool One> struct matmul_few_known {
  static __device__ __forceinline__ int subgroups() {
    return One ? (int)MATMUL_FEW_SUBGROUPS : (int)blockDim.x / 32;
  }
  static __device__ __forceinline__ int threads() { return subgroups() * 32; }
  static __device__ __forceinline__ int rows(int n) { return One ? 1 : n; }
  static __device__ __forceinline__ iso_scheme scheme(iso_scheme given) {
    return One ? ISO_SCHEME_BF16 : given;
  }
};

/* The groups that a block takes: every step-th from the first on. */
struct matmul_few_turns {
  int first, end, step;

  __device__ __forceinline__ int count() const { return (end - first + step - 1) / step; }
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
  static constexpr bool packed = false, integers = false, float8 = false;
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
template <typename W, int Tiles, bool One> struct matmul_few_copier {
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

  __device__ __forceinline__ void begin(const matmul_few_arguments &a,
                                        const matmul_few_turns &turns, int64_t offset, int warp,
                                        int lane) {
    weight_offset = offset;
    n_units = (int)matmul_count(a.n_columns, W::unit);
    group = turns.first, unit = warp, tile = 0;
    if (group < turns.end)
      find(a, lane);
  }

  __device__ __forceinline__ bool is_there(const matmul_few_turns &turns) const {
    return group < turns.end && unit < n_units;
  }
  /* This lane's place in the coming unit; features from its tile on. */
  __device__ __forceinline__ const uint8_t *locate(int *out_left) const {
    int h = tile >= groups::half, i = h ? tile - groups::half : tile;
    *out_left = (h ? n_left[1] : n_left[0]) - i * 16;
    return (h ? from[1] : from[0]) + i * (h ? tile_bytes[1] : tile_bytes[0]);
  }
  __device__ __forceinline__ void advance(const matmul_few_arguments &a,
                                          const matmul_few_turns &turns, int warp, int lane) {
    if (++tile < Tiles)
      return;
    tile = 0;
    if ((unit += matmul_few_known<One>::subgroups()) < n_units)
      return;
    unit = warp;
    group += turns.step;
    if (group < turns.end)
      find(a, lane);
  }

  __device__ __forceinline__ void copy(const matmul_few_arguments &a, const matmul_few_turns &turns,
                                       int warp, int lane, uint8_t *ring) {
    if (is_there(turns)) {
      int left;
      const uint8_t *at = locate(&left);
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
        W::copy(inside ? at + unit * W::unit * 2 : at,
                tile >= groups::half ? row_bytes[1] : row_bytes[0], left > 0 ? left : 0, inside,
                lane, ring);
      }
      advance(a, turns, warp, lane);
    }
    mma_copy_commit();
  }
};

template <typename W, int Tiles, int Planes> struct matmul_few_shared {
  typedef matmul_few_way<W, Planes> way;
  static constexpr int partial_row = Tiles * 16 + 4; /* floats */
  static constexpr int ring_units = MATMUL_FEW_RING_BYTES / W::unit_bytes;
  static constexpr int depth = W::float8                             ? MATMUL_FEW_FLOAT8_DEPTH
                               : ring_units < MATMUL_FEW_LEAST_DEPTH ? MATMUL_FEW_LEAST_DEPTH
                               : ring_units > MATMUL_FEW_MOST_DEPTH  ? MATMUL_FEW_MOST_DEPTH
                                                                     : ring_units;
  static constexpr __host__ __device__ int stage_bytes(int n_rows) {
    return way::table_bytes + n_rows * way::row_bytes;
  }
  static __host__ __device__ int partial_bytes(int n_subgroups, int n_rows) { /* of a group */
    return n_subgroups * n_rows * partial_row * 4;
  }
  static __host__ __device__ int subgroup_bytes(const matmul_few_arguments &a) {
    return depth * W::unit_bytes + a.n_stages * stage_bytes(a.slab_rows);
  }
  static __host__ __device__ int bytes(const matmul_few_arguments &a, int n_subgroups) {
    return n_subgroups * subgroup_bytes(a) + a.batch * partial_bytes(n_subgroups, a.slab_rows);
  }
};

/* This thread's part of what rms_norm multiplies by. */
struct matmul_few_norm_weights {
  float of[MATMUL_FEW_NORM_VECTORS][8];

  __device__ __forceinline__ void load(const matmul_few_arguments &a) {
#pragma unroll
    for (int c = 0; c < MATMUL_FEW_NORM_VECTORS; c++) {
      int first = (c * MATMUL_FEW_SUBGROUPS * 32 + (int)threadIdx.x) * 8;
      if (first < a.n_columns)
        simt_load8(ISO_SCHEME_F32, a.norm.weight, first, of[c]);
    }
  }
};

/* Adds and normalises row n into shared memory, in the order of sums that rms_norm has; the first
 * block also stores it. */
__device__ __forceinline__ void matmul_few_make_row(const matmul_few_arguments &a, int n,
                                                    const matmul_few_norm_weights &weights,
                                                    float *shared, uint8_t *made) {
  enum { VECTORS = MATMUL_FEW_NORM_VECTORS, STRIDE = MATMUL_FEW_SUBGROUPS * 32 * 8 };
  const matmul_few_norm &norm = a.norm;
  int n_columns = a.n_columns, first = (int)threadIdx.x * 8;
  float v[VECTORS][8], w[VECTORS][8], sum = 0;
#pragma unroll
  for (int c = 0; c < VECTORS; c++)
    if (first + c * STRIDE < n_columns) {
      simt_load8(norm.a.scheme, norm.a.row(n), first + c * STRIDE, v[c]);
      simt_load8(norm.b.scheme, norm.b.row(n), first + c * STRIDE, w[c]);
    }
#pragma unroll
  for (int c = 0; c < VECTORS; c++)
    if (first + c * STRIDE < n_columns) {
#pragma unroll
      for (int j = 0; j < 8; j++) {
        v[c][j] = simt_rounded(norm.sum.scheme, v[c][j] + w[c][j]);
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
#pragma unroll
      for (int j = 0; j < 8; j++)
        v[c][j] = v[c][j] * scale * (weights.of[c][j] + norm.weight_offset);
      simt_store8(a.x.scheme, made, first + c * STRIDE, v[c]);
      if (blockIdx.x == 0)
        simt_store8(a.x.scheme, a.x.row(n), first + c * STRIDE, v[c]);
    }
  __syncthreads();
}

/* The same of one row in bf16, both terms of which are asked for before either is looked at: loads
 * of a type that is not known wait for each other. Columns beyond the row add zeros. */
__device__ __forceinline__ void matmul_few_make_one(const matmul_few_arguments &a,
                                                    const matmul_few_norm_weights &weights,
                                                    float *shared, uint8_t *made) {
  enum { VECTORS = MATMUL_FEW_NORM_VECTORS, STRIDE = MATMUL_FEW_SUBGROUPS * 32 };
  const matmul_few_norm &norm = a.norm;
  const uint4 *terms = (const uint4 *)norm.a.data, *others = (const uint4 *)norm.b.data;
  int n_vectors = a.n_columns / 8, first = (int)threadIdx.x;
  uint4 v[VECTORS], w[VECTORS];
#pragma unroll
  for (int c = 0; c < VECTORS; c++) {
    bool exists = first + c * STRIDE < n_vectors;
    v[c] = exists ? terms[first + c * STRIDE] : make_uint4(0, 0, 0, 0);
    w[c] = exists ? others[first + c * STRIDE] : make_uint4(0, 0, 0, 0);
  }
  float sum = 0;
#pragma unroll
  for (int c = 0; c < VECTORS && c * STRIDE < n_vectors; c++) {
    uint32_t *to = &v[c].x, *from = &w[c].x;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float x[2], y[2];
      simt_load2(ISO_SCHEME_BF16, to + j, x);
      simt_load2(ISO_SCHEME_BF16, from + j, y);
      to[j] = mma_pack<simt_bf16>(x[0] + y[0], x[1] + y[1]);
      simt_load2(ISO_SCHEME_BF16, to + j, x);
      sum += x[0] * x[0];
      sum += x[1] * x[1];
    }
    if (blockIdx.x == 0 && first + c * STRIDE < n_vectors)
      ((uint4 *)norm.sum.data)[first + c * STRIDE] = v[c];
  }
  sum = simt_subgroup_reduce(sum, simt_sum());
  if (threadIdx.x % SIMT_SUBGROUP == 0)
    shared[threadIdx.x / SIMT_SUBGROUP] = sum;
  __syncthreads();
  sum = shared[0];
#pragma unroll
  for (int i = 1; i < MATMUL_FEW_SUBGROUPS; i++)
    sum += shared[i];
  float scale = 1.0f / sqrtf(sum / (float)a.n_columns + norm.epsilon);
#pragma unroll
  for (int c = 0; c < VECTORS; c++)
    if (first + c * STRIDE < n_vectors) {
      uint32_t *to = &v[c].x;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float x[2];
        simt_load2(ISO_SCHEME_BF16, to + j, x);
        to[j] = mma_pack<simt_bf16>(x[0] * scale * (weights.of[c][2 * j] + norm.weight_offset),
                                    x[1] * scale * (weights.of[c][2 * j + 1] + norm.weight_offset));
      }
      ((uint4 *)made)[first + c * STRIDE] = v[c];
      if (blockIdx.x == 0)
        ((uint4 *)a.x.data)[first + c * STRIDE] = v[c];
    }
  __syncthreads();
}

/* Adds up the partial sums of `count` groups of this block, from the `done`-th on, and writes y. A
 * thread takes a feature; with glu, gate and up of one are half a subgroup apart. */
template <typename W, int Tiles, int Planes, bool One>
__device__ __forceinline__ void
matmul_few_finish(const matmul_few_arguments &a, const matmul_few_turns &turns,
                  const float *partial, int done, int count, int first_row, int n_rows) {
  typedef matmul_few_shared<W, Tiles, Planes> shared;
  typedef matmul_few_known<One> known;
  constexpr int half = matmul_few_group<Tiles>::half, each = Tiles * 16;
  int n_subgroups = known::subgroups();
  for (int at = (int)threadIdx.x; at < count * n_rows * each; at += known::threads()) {
    int i = at / (n_rows * each), n = at / each % n_rows, in_group = at % each;
    int h = a.has_glu ? at / 16 % 2 : in_group >= half * 16;
    int feature = a.has_glu ? in_group / 32 * 16 + at % 16 : in_group - h * half * 16;
    matmul_few_group<Tiles> tiles;
    tiles.find(a, turns.first + (done + i) * turns.step);
    const matmul_few_part &part = a.parts[h ? tiles.parts[1] : tiles.parts[0]];
    int to = (h ? tiles.first_tiles[1] : tiles.first_tiles[0]) * 16 + feature;
    bool exists = to < part.n_features;
    const float *sums =
        partial + (i * n_subgroups * n_rows + n) * shared::partial_row + h * half * 16 + feature;
    float sum = 0;
#pragma unroll(One ? MATMUL_FEW_SUBGROUPS : 8)
    for (int w = 0; w < n_subgroups; w++)
      sum += sums[w * n_rows * shared::partial_row];
    sum = sum * (1 / shared::way::unit_value) + (part.bias && exists ? part.bias[to] : 0.0f);
    if (exists)
      simt_store(known::scheme(part.y.scheme), part.y.row(first_row + n), to, sum);
    if (!a.has_glu)
      continue;
    float value = simt_rounded(known::scheme(part.y.scheme), sum), up = simt_shuffle_xor(value, 16);
    if (exists && h == 0)
      simt_store(known::scheme(a.glu.scheme), a.glu.row(first_row + n), to,
                 simt_activation(a.activation, value) * up);
  }
}

/* What a block does for its groups, and a slab of rows of x. */
template <typename W, int Tiles, int Planes, bool One>
__device__ __forceinline__ void matmul_few_block(const matmul_few_arguments &a,
                                                 const matmul_few_turns &turns) {
  typedef matmul_few_shared<W, Tiles, Planes> shared;
  typedef typename shared::way way;
  typedef matmul_few_known<One> known;
  extern __shared__ __align__(128) uint8_t memory[];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_subgroups = known::subgroups();
  int slab_rows = known::rows(a.slab_rows), first_row = One ? 0 : (int)blockIdx.y * slab_rows;
  int n_rows = known::rows(min(a.n_rows - first_row, slab_rows));
  iso_scheme of_x = known::scheme(a.x.scheme);
  int n_units = (int)matmul_count(a.n_columns, W::unit);
  uint8_t *ring = memory + warp * shared::subgroup_bytes(a);
  float *partial = (float *)(memory + n_subgroups * shared::subgroup_bytes(a));

  matmul_few_copier<W, Tiles, One> copier;
  auto copy = [&](int slot) { copier.copy(a, turns, warp, lane, ring + slot * W::unit_bytes); };
  simt_let_later_begin();
  int64_t weight_offset = 0;
  int x_row = first_row;
  if (!One && a.experts) { /* which weight it is must be known first */
    simt_wait_for_earlier();
    int expert = a.experts[first_row];
    if (expert < 0 || expert >= a.n_experts) {
      const matmul_few_rows &y = a.parts[0].y;
      for (int at = (int)(blockIdx.x * blockDim.x + threadIdx.x); at < a.parts[0].n_features;
           at += (int)(gridDim.x * blockDim.x))
        simt_store(y.scheme, y.row(first_row), at, NAN);
      return;
    }
    weight_offset = expert * a.expert_bytes;
    x_row = a.shares_x ? first_row / a.n_choices : first_row;
  }
  copier.begin(a, turns, weight_offset, warp, lane);
#pragma unroll
  for (int i = 0; i < shared::depth; i++)
    copy(i);
  matmul_few_norm_weights weights;
  if (a.norm.sum.data)
    weights.load(a);
  int n_mine = turns.count();
  simt_wait_for_earlier();

  const uint8_t *x = a.x.row(x_row);
  int64_t x_stride = a.x.stride;
  if (a.norm.sum.data) { /* rows of this launch's own making */
    uint8_t *made = memory + shared::bytes(a, n_subgroups);
    x_stride = a.n_columns * simt_float_bytes(of_x);
    if constexpr (One)
      matmul_few_make_one(a, weights, partial, made);
    else
      for (int n = 0; n < n_rows; n++)
        matmul_few_make_row(a, first_row + n, weights, partial, made + n * x_stride);
    x = made;
  }

  /* The first row of the coming unit is on its way while this one is worked on. */
  typename way::raw ahead;
  if (warp < n_units)
    ahead.load(of_x, a.n_columns, x, warp, lane);
  int slot = 0;
  for (int done = 0; done < n_mine; done += a.batch) {
    int count = min(a.batch, n_mine - done);
    for (int i = 0; i < count; i++) {
      float totals[Tiles][way::sums] = {};
      uint8_t *stage = ring + shared::depth * W::unit_bytes;
      bool fills = done + i == 0 || a.n_stages == 1;
      for (int unit = warp; unit < n_units; unit += n_subgroups) {
        if (fills) {
          way::fill(of_x, ahead, 0, lane, stage);
          for (int n = 1; n < n_rows; n += 2) {
            typename way::raw raw[2];
            raw[0].load(of_x, a.n_columns, x + n * x_stride, unit, lane);
            raw[1].load(of_x, a.n_columns, x + min(n + 1, n_rows - 1) * x_stride, unit, lane);
            way::fill(of_x, raw[0], n, lane, stage);
            if (n + 1 < n_rows)
              way::fill(of_x, raw[1], n + 1, lane, stage);
          }
          int next = unit + n_subgroups;
          ahead.load(of_x, a.n_columns, x, next < n_units ? next : warp, lane);
          __syncwarp();
        }
#pragma unroll
        for (int tile = 0; tile < Tiles; tile++) {
          mma_copy_wait<shared::depth - 1>();
          __syncwarp();
          way::template unit<One>(ring + slot * W::unit_bytes, stage, n_rows, lane, totals[tile]);
          __syncwarp();
          copy(slot);
          slot = slot + 1 == shared::depth ? 0 : slot + 1;
        }
        if (a.n_stages > 1)
          stage += shared::stage_bytes(slab_rows);
      }
      /* Partial sums of the subgroups: [group][subgroup][row of x][feature]. */
      float *mine = partial + (i * n_subgroups + warp) * n_rows * shared::partial_row;
#pragma unroll
      for (int tile = 0; tile < Tiles; tile++)
        way::template each<One>(lane, totals[tile], [&](int n, int feature, float sum) {
          if (n < n_rows)
            mine[n * shared::partial_row + tile * 16 + feature] = sum;
        });
    }
    __syncthreads();
    matmul_few_finish<W, Tiles, Planes, One>(a, turns, partial, done, count, first_row, n_rows);
    if (done + count < n_mine)
      __syncthreads();
  }
  mma_copy_wait<0>();
}

/* Threads for which the registers of a multiprocessor must do. */
template <typename W, bool One> constexpr int matmul_few_threads() {
  return One && W::float8 ? MATMUL_FEW_THREADS_WITH_ROOM : MATMUL_FEW_SUBGROUPS * 32;
}

/* Grid: blocks that take turns at groups of Tiles tiles; slabs of rows of x. */
template <typename W, int Tiles, int Planes, bool One>
__global__ void __launch_bounds__((matmul_few_threads<W, One>()), 1)
    matmul_few(const __grid_constant__ matmul_few_arguments a) {
  matmul_few_block<W, Tiles, Planes, One>(
      a, {(int)blockIdx.x, a.first_groups[a.n_parts], (int)gridDim.x});
}

/* The same of parts of two schemes: the first n_blocks blocks are for those before `part`. */
template <typename W, typename Other, bool One>
__global__ void __launch_bounds__(MATMUL_FEW_SUBGROUPS * 32, 1)
    matmul_few_pair(const __grid_constant__ matmul_few_arguments a, int part, int n_blocks) {
  int block = (int)blockIdx.x, middle = a.first_groups[part];
  if (block < n_blocks)
    matmul_few_block<W, 1, 1, One>(a, {block, middle, n_blocks});
  else
    matmul_few_block<Other, 1, 1, One>(
        a, {middle + block - n_blocks, a.first_groups[a.n_parts], (int)gridDim.x - n_blocks});
}

/* Shares out the shared memory of a block that takes `mine` groups: first x, kept where several
 * groups meet it, then units on their way, then partial sums. */
template <typename W, int Tiles, int Planes>
void matmul_few_fit(matmul_few_arguments *a, int n_subgroups, int mine, int room) {
  typedef matmul_few_shared<W, Tiles, Planes> shared;
  int each = (int)matmul_count(matmul_count(a->n_columns, W::unit), n_subgroups);
  auto fits = [&](int n_stages) {
    a->n_stages = n_stages, a->batch = 1;
    return shared::bytes(*a, n_subgroups) <= room;
  };
  while (!(mine > 1 && fits(each)) && !fits(1) && a->slab_rows > 1)
    a->slab_rows--;
  int spare =
      (room - shared::bytes(*a, n_subgroups)) / shared::partial_bytes(n_subgroups, a->slab_rows);
  int most = mine < MATMUL_FEW_MOST_BATCH ? mine : MATMUL_FEW_MOST_BATCH;
  a->batch = spare + 1 < most ? spare + 1 : most;
}

/* Numbers the groups of all parts; how many there are, too many to number beyond 2^31 - 1. */
static inline int64_t matmul_few_groups(matmul_few_arguments *a, int n_tiles) {
  int64_t groups = 0;
  for (int i = 0; i < a->n_parts; i++) {
    a->first_groups[i] = (int)groups;
    int64_t tiles = matmul_count(a->parts[i].n_features, 16);
    groups = a->has_glu ? matmul_count(tiles, n_tiles / 2) : groups + matmul_count(tiles, n_tiles);
    if (groups > 0x7fffffff)
      return groups;
  }
  a->first_groups[a->n_parts] = (int)groups;
  return groups;
}

/* Whether this is what matmul_few_known<true> knows. */
static inline bool matmul_few_is_one(const matmul_few_arguments &a, int shared_limit) {
  auto is_bf16 = [](const matmul_few_rows &rows) { return rows.scheme == ISO_SCHEME_BF16; };
  bool is = a.n_rows == 1 && !a.experts && is_bf16(a.x) &&
            matmul_few_subgroups(shared_limit) == MATMUL_FEW_SUBGROUPS;
  for (int i = 0; i < a.n_parts; i++)
    is &= is_bf16(a.parts[i].y);
  if (a.norm.sum.data)
    is &= is_bf16(a.norm.a) && is_bf16(a.norm.b) && is_bf16(a.norm.sum);
  return is && (!a.has_glu || is_bf16(a.glu));
}

/* Of the rows that a launch makes. */
static inline size_t matmul_few_made_bytes(const matmul_few_arguments &a) {
  return a.norm.sum.data
             ? (size_t)a.n_rows * (size_t)a.n_columns * (size_t)simt_float_bytes(a.x.scheme)
             : 0;
}

template <typename W, int Tiles, int Planes, bool One>
iso_status matmul_few_launch(iso_queue *queue, const char *name, int n_units, int shared_limit,
                             matmul_few_arguments a) {
  typedef matmul_few_shared<W, Tiles, Planes> shared;
  typedef typename shared::way way;
  a.slab_rows = a.experts ? 1 : a.n_rows < way::most_rows ? a.n_rows : way::most_rows;
  int64_t groups = matmul_few_groups(&a, Tiles);
  if (groups > 0x7fffffff)
    return simt_fail_size(name);
  if (groups == 0)
    return ISO_OK;
  size_t made_bytes = matmul_few_made_bytes(a);
  int mine = (int)matmul_count(groups, n_units), n_subgroups = matmul_few_subgroups(shared_limit);
  groups = groups < n_units ? groups : n_units;
  matmul_few_fit<W, Tiles, Planes>(&a, n_subgroups, mine, shared_limit - (int)made_bytes);
  int64_t slabs = matmul_count(a.n_rows, a.slab_rows);
  if (slabs > 65535)
    return simt_fail_size(name);
  return simt_launch_early(queue, name, matmul_few<W, Tiles, Planes, One>,
                           dim3((unsigned)groups, (unsigned)slabs), dim3(n_subgroups * 32),
                           (size_t)shared::bytes(a, n_subgroups) + made_bytes, a);
}

/* Tiles that the busiest block has. */
static inline int64_t matmul_few_load(matmul_few_arguments a, int n_tiles, int n_blocks) {
  return matmul_count(matmul_few_groups(&a, n_tiles), n_blocks) * n_tiles;
}

/* The most tiles at once that still leave all blocks nearly as much to do. */
template <typename W, int Planes, bool One>
iso_status matmul_few_sized(iso_queue *queue, const char *name, int n_units, int shared_limit,
                            const matmul_few_arguments &a) {
  int tiles = 4;
  for (int fewer = 2; fewer >= (a.has_glu ? 2 : 1); fewer /= 2)
    if (matmul_few_load(a, fewer, n_units) * 100 < matmul_few_load(a, tiles, n_units) * 97)
      tiles = fewer;
  auto launch = tiles == 4   ? matmul_few_launch<W, 4, Planes, One>
                : tiles == 2 ? matmul_few_launch<W, 2, Planes, One>
                             : matmul_few_launch<W, 1, Planes, One>;
  return launch(queue, name, n_units, shared_limit, a);
}

/* Rows that matmul_few_pair() takes, of 16-bit activations. */
template <typename W, typename Other> constexpr int matmul_few_pair_rows() {
  int mine = matmul_few_way<W, 1>::most_rows, other = matmul_few_way<Other, 1>::most_rows;
  return mine < other ? mine : other;
}

/* Products of which the parts from `part` on are of another scheme. Blocks, of 2 units or more, are
 * shared out so that the busiest of either kind have about as many bytes. */
template <typename W, typename Other>
iso_status matmul_few_run_pair(iso_queue *queue, const char *name, int n_units, int shared_limit,
                               matmul_few_arguments a, int part) {
  typedef matmul_few_shared<W, 1, 1> shared;
  typedef matmul_few_shared<Other, 1, 1> other_shared;
  static_assert(W::unit == Other::unit, "subgroups share columns alike");
  int64_t groups = matmul_few_groups(&a, 1);
  if (groups > 0x7fffffff)
    return simt_fail_size(name);
  int middle = a.first_groups[part], rest = (int)groups - middle, n_blocks = 1;
  int64_t least = INT64_MAX;
  for (int n = 1; n < n_units; n++) {
    int64_t mine = matmul_count(middle, n) * W::unit_bytes;
    int64_t others = matmul_count(rest, n_units - n) * Other::unit_bytes;
    int64_t busiest = mine > others ? mine : others;
    if (busiest < least)
      least = busiest, n_blocks = n;
  }
  a.slab_rows = a.n_rows;
  int n_subgroups = matmul_few_subgroups(shared_limit);
  size_t made_bytes = matmul_few_made_bytes(a);
  matmul_few_arguments other = a;
  int room = shared_limit - (int)made_bytes;
  matmul_few_fit<W, 1, 1>(&a, n_subgroups, (int)matmul_count(middle, n_blocks), room);
  matmul_few_fit<Other, 1, 1>(&other, n_subgroups, (int)matmul_count(rest, n_units - n_blocks),
                              room);
  auto least_of = [](int x, int y) { return x < y ? x : y; };
  a.slab_rows = least_of(a.slab_rows, other.slab_rows);
  a.n_stages = least_of(a.n_stages, other.n_stages);
  a.batch = least_of(a.batch, other.batch);
  int bytes = shared::bytes(a, n_subgroups), others = other_shared::bytes(a, n_subgroups);
  auto kernel = matmul_few_is_one(a, shared_limit) ? matmul_few_pair<W, Other, true>
                                                   : matmul_few_pair<W, Other, false>;
  return simt_launch_early(
      queue, name, kernel, dim3((unsigned)n_units, (unsigned)matmul_count(a.n_rows, a.slab_rows)),
      dim3(n_subgroups * 32), (size_t)(bytes > others ? bytes : others) + made_bytes, a, part,
      n_blocks);
}

/* One plane holds 16-bit activations exactly, but for f16 with bf16 weights. */
template <typename W>
iso_status matmul_few_run(iso_queue *queue, const char *name, int n_units, int shared_limit,
                          const matmul_few_arguments &a) {
  if (a.n_rows == 0)
    return ISO_OK;
  bool exact = a.x.scheme == ISO_SCHEME_BF16 ||
               (a.x.scheme == ISO_SCHEME_F16 && !__is_same(typename W::value, simt_bf16));
  auto sized = matmul_few_is_one(a, shared_limit) ? matmul_few_sized<W, 1, true>
               : exact                            ? matmul_few_sized<W, 1, false>
                                                  : matmul_few_sized<W, 2, false>;
  return sized(queue, name, n_units, shared_limit, a);
}

#endif
