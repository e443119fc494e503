/* How rows of x meet a unit of a weight in matmul_few(): two ways.
 *
 * Each way says how a row of a unit lies in shared memory (fill), how a subgroup adds one unit of
 * one tile to its sums (unit), and which row of x and feature of the tile a sum belongs to (each).
 *
 * In floats the rows of x are the right operand of the matrix unit as one or two 16-bit planes
 * whose sum has 22 bits (16 with bf16 weights): f32 activations lose nothing that f32 sums would
 * keep. Codes and their scales are exact.
 *
 * Integers are for 16-bit activations and codes that are integers. Of each 32 columns x becomes
 * integers of 15 bits under a power of two, so that bf16 values down to 2^-6 of the largest are
 * exact. Two planes, x = 128 * high + low, are neighbouring columns of the right operand, and
 * integer sums of both are exact: half the instructions, where few rows leave columns unused. */
#ifndef ISOMER_SIMT_MATMUL_FEW_WAYS_H
#define ISOMER_SIMT_MATMUL_FEW_WAYS_H

#include "backends/simt/matmul_packed.cuh"

/* ---- Floats ------------------------------------------------------------------------------------
 */

/* A unit of x: a table of floats, what undoes each row's scale in this unit, then the sums of each
 * sub-block, a float a row, where codes or minimums need them. Then rows: for each 32 columns the
 * high plane and the low one, 4 lanes' 16 bytes each; rows are half a line of banks apart. */
template <typename W, int Planes> struct matmul_few_floats {
  typedef typename W::value V;
  static constexpr int most_rows = 8, sums = 4;
  static constexpr int block_bytes = Planes * 64, row_bytes = W::blocks * block_bytes + 64;
  static constexpr bool has_sums = W::offset != 0 || W::minimum;
  static constexpr int table_bytes = (1 + (has_sums ? W::unit / W::sub : 0)) * most_rows * 4;
  /* E4M3 numbers are made halves of the same value, bytes that lie side by side at once. */
  static constexpr bool float8 = W::float8;
  static constexpr float unit_value = float8 ? 1 : W::unit_value;

  /* A lane's values of one row of x in one unit, as they come from memory: columns 4 lane .. of
   * each 128. Kept until the unit before has been worked on. */
  struct raw {
    uint4 words[W::unit / 128];

    __device__ __forceinline__ void load(iso_scheme scheme, int n_columns, const uint8_t *x,
                                         int64_t unit, int lane) {
#pragma unroll
      for (int c = 0; c < W::unit / 128; c++) {
        int64_t k = unit * W::unit + c * 128 + lane * 4;
        words[c] = make_uint4(0, 0, 0, 0);
        if (k < n_columns && scheme == ISO_SCHEME_F32)
          words[c] = *(const uint4 *)(x + k * 4);
        if (k < n_columns && scheme != ISO_SCHEME_F32)
          *(uint2 *)&words[c] = *(const uint2 *)(x + k * 2);
      }
    }
  };

  static __device__ __forceinline__ void fill(iso_scheme scheme, const raw &from, int n, int lane,
                                              uint8_t *stage) {
    float v[W::unit / 128][4], scale = 1, inverse = 1;
#pragma unroll
    for (int c = 0; c < W::unit / 128; c++)
      simt_load4(scheme, &from.words[c], 0, v[c]);
    if constexpr (!__is_same(V, simt_bf16)) {
      float largest = 0;
#pragma unroll
      for (int c = 0; c < W::unit / 128; c++)
        largest = fmaxf(fmaxf(largest, fmaxf(fabsf(v[c][0]), fabsf(v[c][1]))),
                        fmaxf(fabsf(v[c][2]), fabsf(v[c][3])));
      largest = __uint_as_float(mma_subgroup_max(__float_as_uint(largest)));
      mma_half_scale(largest, &scale, &inverse);
    }
    float odd_scale = W::odd_pairs_high ? scale * 0.0625f : scale, *table = (float *)stage;
    if (lane == 0)
      table[n] = inverse;
#pragma unroll
    for (int c = 0; c < W::unit / 128; c++) {
      uint32_t high[2], low[2];
      constexpr int second = float8 ? 2 : 1, third = 3 - second;
      mma_split<V>(v[c][0] * scale, v[c][second] * scale, &high[0], &low[0]);
      mma_split<V>(v[c][third] * odd_scale, v[c][3] * odd_scale, &high[1], &low[1]);
      int block = c * 4 + lane / 8, i = lane % 8;
      uint8_t *at = stage + table_bytes + n * row_bytes + block * block_bytes +
                    (W::packed ? i % 4 * 16 + i / 4 * 8 : i / 2 * 16 + i % 2 * 8);
      *(uint2 *)at = make_uint2(high[0], high[1]);
      if constexpr (Planes == 2)
        *(uint2 *)(at + 64) = make_uint2(low[0], low[1]);
      if constexpr (has_sums) {
        float sum = (v[c][0] + v[c][1]) + (v[c][2] + v[c][3]);
#pragma unroll
        for (int mask = 1; mask < W::sub / 4; mask *= 2)
          sum += simt_shuffle_xor(sum, mask);
        if (lane % (W::sub / 4) == 0)
          table[(1 + c * 128 / W::sub + lane / (W::sub / 4)) * most_rows + n] =
              sum * scale * (W::minimum ? W::unit_value : -W::unit_value * (float)W::offset);
      }
    }
  }

  template <bool One>
  static __device__ __forceinline__ void unit(const uint8_t *ring, const uint8_t *stage, int n_rows,
                                              int lane, float (&totals)[sums]) {
    const float *table = (const float *)stage;
    int g = lane / 4, t = lane % 4;
    /* columns beyond the rows repeat the last one */
    const uint8_t *row = stage + table_bytes + min(g, n_rows - 1) * row_bytes + t * 16;
    float unit_sums[4] = {};
    if constexpr (float8)
      add_float8(ring, row, lane, unit_sums);
    else if constexpr (W::packed)
      add_packed(ring, table, row, lane, unit_sums);
    else
      add_plain(ring, row, lane, unit_sums);
    float2 inverse = *(const float2 *)(table + 2 * t);
#pragma unroll
    for (int i = 0; i < 4; i++)
      totals[i] += unit_sums[i] * (i % 2 ? inverse.y : inverse.x);
  }

  static __device__ __forceinline__ void add_plain(const uint8_t *ring, const uint8_t *row,
                                                   int lane, float (&unit_sums)[4]) {
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int b = 0; b < W::blocks; b++) {
      uint4 upper = *(const uint4 *)(ring + g * 256 + ((b * 4 + t) ^ g % 2 * 4) * 16);
      uint4 lower = *(const uint4 *)(ring + (g + 8) * 256 + ((b * 4 + t) ^ g % 2 * 4) * 16);
      const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y};
      const uint32_t second[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
      for (int plane = 0; plane < Planes; plane++) {
        uint4 x = *(const uint4 *)(row + b * block_bytes + plane * 64);
        mma_add<V>(unit_sums, first, x.x, x.y);
        mma_add<V>(unit_sums, second, x.z, x.w);
      }
    }
  }

  /* Block b of packed weights as left operands, of its two halves. */
  template <typename Codes>
  static __device__ __forceinline__ void read_block(const uint8_t *ring, const Codes &codes,
                                                    int lane, int b, uint32_t (&left)[2][4]) {
    uint32_t words[4];
    W::base_words(ring, lane, b, words);
#pragma unroll
    for (int p = 0; p < 4; p++)
#pragma unroll
      for (int r = 0; r < 2; r++)
        if constexpr (float8)
          left[p / 2][p % 2 * 2 + r] = mma_e4m3_pair(words[r * 2 + p / 2] >> p % 2 * 16);
        else
          left[p / 2][p % 2 * 2 + r] = W::pair(words, codes, b, r, p);
  }

  /* A unit is a group, whose scale multiplies the sum of all of its blocks. */
  static __device__ __forceinline__ void add_float8(const uint8_t *ring, const uint8_t *row,
                                                    int lane, float (&unit_sums)[4]) {
    static_assert(!float8 || W::unit == W::block_elements, "one scale a unit");
    typename W::lane_codes codes = {};
    float sums[2][4] = {}; /* of blocks by turns, which need not wait for each other */
#pragma unroll
    for (int b = 0; b < W::blocks; b++) {
      uint32_t left[2][4];
      read_block(ring, codes, lane, b, left);
#pragma unroll
      for (int plane = 0; plane < Planes; plane++) {
        uint4 x = *(const uint4 *)(row + b * block_bytes + plane * 64);
        mma_add<V>(sums[b % 2], left[0], x.x, x.y);
        mma_add<V>(sums[b % 2], left[1], x.z, x.w);
      }
    }
    matmul_sub_scales scales;
    W::scales(ring, lane, 0, 0, codes, &scales);
#pragma unroll
    for (int i = 0; i < 4; i++)
      unit_sums[i] = scales.codes[i / 2] * (sums[0][i] + sums[1][i]);
  }

  static __device__ __forceinline__ void add_packed(const uint8_t *ring, const float *table,
                                                    const uint8_t *row, int lane,
                                                    float (&unit_sums)[4]) {
    int t = lane % 4;
    typename W::lane_codes codes;
    W::open(ring, lane, &codes);
#pragma unroll
    for (int b = 0; b < W::blocks; b++) {
      uint32_t left[2][4];
      read_block(ring, codes, lane, b, left);
      uint4 x[Planes];
#pragma unroll
      for (int plane = 0; plane < Planes; plane++)
        x[plane] = *(const uint4 *)(row + b * block_bytes + plane * 64);
#pragma unroll
      for (int s = 0; s < 32 / W::sub; s++) {
        matmul_sub_scales scales;
        W::scales(ring, lane, b, s, codes, &scales);
        float2 of_x = {};
        if constexpr (has_sums)
          of_x = *(const float2 *)(table + (1 + b * (32 / W::sub) + s) * most_rows + 2 * t);
        float block_sums[4] = {};
        if constexpr (!W::minimum)
          block_sums[0] = block_sums[2] = of_x.x, block_sums[1] = block_sums[3] = of_x.y;
#pragma unroll
        for (int plane = 0; plane < Planes; plane++) {
          if (W::sub == 32 || s == 0)
            mma_add<V>(block_sums, left[0], x[plane].x, x[plane].y);
          if (W::sub == 32 || s == 1)
            mma_add<V>(block_sums, left[1], x[plane].z, x[plane].w);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
          unit_sums[i] += scales.codes[i / 2] * block_sums[i];
          if constexpr (W::minimum)
            unit_sums[i] += scales.add[i / 2] * (i % 2 ? of_x.y : of_x.x);
        }
      }
    }
  }

  /* f(row of x, feature of the tile, sum) */
  template <bool One, typename F>
  static __device__ __forceinline__ void each(int lane, const float (&totals)[sums], F f) {
#pragma unroll
    for (int i = 0; i < sums; i++)
      f(lane % 4 * 2 + i % 2, lane / 4 + i / 2 * 8, totals[i]);
  }
};

/* ---- Integers ----------------------------------------------------------------------------------
 */

/* Column g of the right operand is of row g / (2 subs) of x, sub-block g / 2 % subs of the 32
 * columns (the other one's values are zero there), plane g % 2, so that lane 4 g + t has both
 * planes' sums of row t / subs, sub-block t % subs.
 *
 * A row of a unit: for each pair of 32-column blocks the high plane and the low one, 4 lanes' 16
 * bytes each, four bytes in the order of W::quad(); then what undoes each block's scale, with
 * minimums for each sub-block and before the sum of its values. */
template <typename W> struct matmul_few_integers {
  static constexpr int subs = 32 / W::sub, rows_each = 4 / subs, products = 2;
  /* Where a unit is one super-block, its scales multiply the sums of all of its sub-blocks. */
  static constexpr bool late = W::super && W::unit == W::block_elements;
  static constexpr int most_rows = products * rows_each, sums = products * 2;
  static constexpr int entry_at = W::blocks * 64, entry_bytes = W::minimum ? 8 * subs : 4;
  static constexpr int table_bytes = 0, row_bytes = entry_at + W::blocks * entry_bytes + 16;
  static constexpr float unit_value = W::quad_value;
  /* Of a lane's four columns the last two are these many after the first two. */
  static constexpr int apart = W::quads_are_neighbours ? 2 : 16;

  /* A lane's values of one row of x in one unit: lane 8 b + 2 t + h has bytes of quad h of lane t
   * of block b of each 128 columns. */
  struct raw {
    uint2 words[W::unit / 128];

    __device__ __forceinline__ void load(iso_scheme, int n_columns, const uint8_t *x, int64_t unit,
                                         int lane) {
      int t = lane % 8 / 2, h = lane % 2;
#pragma unroll
      for (int c = 0; c < W::unit / 128; c++) {
        uint32_t k = (uint32_t)unit * W::unit + c * 128 + lane / 8 * 32 + t * 4 + h * (18 - apart);
        const uint32_t *at = (const uint32_t *)x + k / 2;
        words[c] = make_uint2(0, 0);
        if (k < (uint32_t)n_columns)
          words[c].x = at[0];
        if (k + apart < (uint32_t)n_columns)
          words[c].y = at[apart / 2];
      }
    }
  };

  /* 1.5 times 2^23: a number below 2^22 and this have the nearest integer in their last bits. */
  static constexpr float rounder = 12582912.0f;

  /* The highest bits of the exponent as f32 of the largest of 8 lanes' values in 16 bits, whose
   * bits order as magnitudes do, NaN above all. */
  static __device__ __forceinline__ uint32_t largest_exponent(iso_scheme scheme, uint2 words) {
    uint32_t most = __vmaxu2(words.x & 0x7fff7fffu, words.y & 0x7fff7fffu);
    most = max(most & 0xffffu, most >> 16);
#pragma unroll
    for (int mask = 1; mask < 8; mask *= 2)
      most = max(most, simt_shuffle_xor(most, mask));
    if (scheme == ISO_SCHEME_F16)
      most = __float_as_uint(__half2float(__ushort_as_half((uint16_t)most))) >> 16;
    return most >> 7;
  }

  static __device__ __forceinline__ void fill(iso_scheme scheme, const raw &from, int n, int lane,
                                              uint8_t *stage) {
    uint8_t *row = stage + n * row_bytes;
#pragma unroll
    for (int c = 0; c < W::unit / 128; c++) {
      float v[4];
      simt_load4(scheme, &from.words[c], 0, v);
      uint32_t exponent = max(largest_exponent(scheme, from.words[c]), 14u);
      float scale = __uint_as_float((267 - exponent) << 23); /* the largest is below 2^14 */
      float inverse = exponent == 255 ? NAN : __uint_as_float((exponent - 13) << 23);
      uint32_t q[4]; /* in the lower half, the rounder's bits above it */
#pragma unroll
      for (int i = 0; i < 4; i++)
        q[i] = __float_as_uint(__fmaf_rn(v[i], scale, rounder));
      uint32_t even = __byte_perm(q[0], q[2], 0x5410), odd = __byte_perm(q[1], q[3], 0x5410);
      int block = c * 4 + lane / 8, t = lane % 8 / 2, h = lane % 2;
      uint8_t *at = row + block / 2 * 128 + t * 16 + block % 2 * 8 + h * 4;
      *(uint32_t *)at = __byte_perm(even << 1, odd << 1, 0x7531);
      *(uint32_t *)(at + 64) = __byte_perm(even, odd, 0x6420) & 0x7f7f7f7fu;
      float *entry = (float *)(row + entry_at + block * entry_bytes);
      if constexpr (W::minimum) {
        const uint32_t taken = 2 * 0x4b400000u; /* two rounders' bits */
        int sum[2] = {(int)(q[0] + q[1] - taken), (int)(q[2] + q[3] - taken)};
        if constexpr (subs == 1)
          sum[0] += sum[1];
#pragma unroll
        for (int s = 0; s < subs; s++) {
#pragma unroll
          for (int mask = 1; mask < 8; mask *= 2)
            sum[s] += simt_shuffle_xor(sum[s], mask);
          if (lane % 8 == 0)
            entry[s * 2] = (float)sum[s] * inverse * W::quad_value, entry[s * 2 + 1] = inverse;
        }
      } else if (lane % 8 == 0) {
        *entry = inverse;
      }
    }
  }

  template <bool One>
  static __device__ __forceinline__ void unit(const uint8_t *ring, const uint8_t *stage, int n_rows,
                                              int lane, float (&totals)[sums]) {
    if constexpr (One)
      add_one(ring, stage, lane, totals);
    else if (n_rows <= rows_each)
      add<1>(ring, stage, n_rows, lane, totals);
    else
      add<products>(ring, stage, n_rows, lane, totals);
  }

  /* Of blocks b and b + 1, this lane's sub-block: the sum of values, what undoes the scale. */
  static __device__ __forceinline__ void read_entries(const uint8_t *entries, int b,
                                                      float2 (&out)[2]) {
    if constexpr (W::minimum && subs == 1) {
      float4 v = *(const float4 *)(entries + b * 8);
      out[0] = make_float2(v.x, v.y), out[1] = make_float2(v.z, v.w);
    } else if constexpr (W::minimum) {
      out[0] = *(const float2 *)(entries + b * 16);
      out[1] = *(const float2 *)(entries + b * 16 + 16);
    } else {
      float2 v = *(const float2 *)(entries + b * 4);
      out[0] = make_float2(0, v.x), out[1] = make_float2(0, v.y);
    }
  }

  /* One row: the columns that more rows would have are of its other blocks. Of rows_each blocks,
   * which follow one another into the same sums, each is met by columns of its own and by zeros in
   * the others, so that a lane has the sums of one of them, and one scale for all. */
  static __device__ __forceinline__ void add_one(const uint8_t *ring, const uint8_t *stage,
                                                 int lane, float (&totals)[sums]) {
    int g = lane / 4, t = lane % 4, sub = t % subs, mine = t / subs; /* of the sums */
    int column = g / (2 * subs);                                     /* of x */
    uint32_t mask = subs == 1 ? 0xffffffffu : g / 2 % 2 ? 0xff00ff00u : 0x00ff00ffu;
    const uint8_t *row = stage + column / 2 * 128 + g % 2 * 64 + t * 16 + column % 2 * 8;
    const uint8_t *entries = stage + entry_at + mine * entry_bytes + (W::minimum ? sub * 8 : 0);
    typename W::lane_codes codes;
    W::open(ring, lane, &codes);
    float of_codes[2] = {}, of_minimums[2] = {};
#pragma unroll
    for (int b = 0; b < W::blocks; b += rows_each) {
      uint2 x = *(const uint2 *)(row + b / 2 * 128);
      x.x &= mask, x.y &= mask;
      int found[4] = {};
#pragma unroll
      for (int i = 0; i < rows_each; i++) {
        uint32_t words[4], left[4];
        W::base_words(ring, lane, b + i, words);
#pragma unroll
        for (int r = 0; r < 4; r++)
          left[r] = W::quad(words, codes, b + i, r % 2, r / 2);
        mma_add_integers<(W::offset > 0)>(found, left, column == i ? x.x : 0,
                                          column == i ? x.y : 0);
      }
      matmul_sub_scales scales;
      W::template scales<!late>(ring, lane, b + mine, sub, codes, &scales);
      float2 of_x = make_float2(0, 0); /* the sum of values, what undoes the scale */
      if constexpr (W::minimum)
        of_x = *(const float2 *)(entries + b * entry_bytes);
      else
        of_x.y = *(const float *)(entries + b * entry_bytes);
#pragma unroll
      for (int r = 0; r < 2; r++) {
        of_codes[r] += (float)(found[2 * r] * 128 + found[2 * r + 1]) * (scales.codes[r] * of_x.y);
        if constexpr (W::minimum)
          of_minimums[r] += scales.add[r] * of_x.x;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      totals[r] += late ? codes.super[r][0] * of_codes[r] : of_codes[r];
      if constexpr (W::minimum)
        totals[r] += late ? codes.super[r][1] * of_minimums[r] : of_minimums[r];
    }
  }

  template <int Products>
  static __device__ __forceinline__ void add(const uint8_t *ring, const uint8_t *stage, int n_rows,
                                             int lane, float (&totals)[sums]) {
    int g = lane / 4, t = lane % 4, sub = t % subs;
    uint32_t mask = subs == 1 ? 0xffffffffu : g / 2 % 2 ? 0xff00ff00u : 0x00ff00ffu;
    const uint8_t *rows[Products], *entries[Products];
#pragma unroll
    for (int c = 0; c < Products; c++) { /* columns beyond the rows repeat the last one */
      int first = c * rows_each, last = n_rows - 1;
      rows[c] = stage + min(first + g / (2 * subs), last) * row_bytes + g % 2 * 64 + t * 16;
      entries[c] =
          stage + min(first + t / subs, last) * row_bytes + entry_at + (W::minimum ? sub * 8 : 0);
    }
    typename W::lane_codes codes;
    W::open(ring, lane, &codes);
    float of_codes[Products][2] = {}, of_minimums[Products][2] = {};
#pragma unroll
    for (int b = 0; b < W::blocks; b += 2) {
      uint4 x[Products];
      float2 of_x[Products][2];
#pragma unroll
      for (int c = 0; c < Products; c++) {
        x[c] = *(const uint4 *)(rows[c] + b / 2 * 128);
        read_entries(entries[c], b, of_x[c]);
      }
#pragma unroll
      for (int i = 0; i < 2; i++) {
        uint32_t words[4], left[4];
        W::base_words(ring, lane, b + i, words);
#pragma unroll
        for (int r = 0; r < 4; r++)
          left[r] = W::quad(words, codes, b + i, r % 2, r / 2);
        matmul_sub_scales scales;
        W::template scales<!late>(ring, lane, b + i, sub, codes, &scales);
#pragma unroll
        for (int c = 0; c < Products; c++) {
          int found[4] = {};
          mma_add_integers<(W::offset > 0)>(found, left, (i ? x[c].z : x[c].x) & mask,
                                            (i ? x[c].w : x[c].y) & mask);
#pragma unroll
          for (int r = 0; r < 2; r++) {
            float sum = (float)(found[2 * r] * 128 + found[2 * r + 1]);
            of_codes[c][r] += sum * (scales.codes[r] * of_x[c][i].y);
            if constexpr (W::minimum)
              of_minimums[c][r] += scales.add[r] * of_x[c][i].x;
          }
        }
      }
    }
#pragma unroll
    for (int c = 0; c < Products; c++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        totals[2 * c + r] += late ? codes.super[r][0] * of_codes[c][r] : of_codes[c][r];
        if constexpr (W::minimum)
          totals[2 * c + r] += late ? codes.super[r][1] * of_minimums[c][r] : of_minimums[c][r];
      }
  }

  template <bool One, typename F>
  static __device__ __forceinline__ void each(int lane, const float (&totals)[sums], F f) {
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int c = 0; c < (One ? 1 : products); c++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float sum = totals[2 * c + r];
        if constexpr (One || subs == 2)
          sum += simt_shuffle_xor(sum, 1);
        if constexpr (One)
          sum += simt_shuffle_xor(sum, 2);
        if (t % (One ? 4 : subs) == 0)
          f(One ? 0 : c * rows_each + t / subs, g + r * 8, sum);
      }
  }
};

template <bool Integers, typename W, int Planes> struct matmul_few_choice {
  typedef matmul_few_floats<W, Planes> way;
};
template <typename W, int Planes> struct matmul_few_choice<true, W, Planes> {
  typedef matmul_few_integers<W> way;
};
template <typename W, int Planes>
using matmul_few_way = typename matmul_few_choice<W::integers && Planes == 1, W, Planes>::way;

#endif
