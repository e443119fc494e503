/* Packed weights back as rows of 16-bit floats, for products whose arithmetic outweighs that. */
#ifndef ISOMER_SIMT_MATMUL_UNPACK_H
#define ISOMER_SIMT_MATMUL_UNPACK_H

#include "backends/simt/matmul_packed.cuh"

enum { MATMUL_UNPACK_SUBGROUPS = 8 };

/* Half h of block b, row r of the lane's two: columns 4 t .. 4 t + 3 of those 16. Codes are taken
 * as W::lifted of themselves, exactly; a value is its code times its scale in f32. */
template <typename W>
__device__ __forceinline__ void
matmul_values(const uint32_t (&words)[4], const typename W::lane_codes &codes,
              const matmul_block_scales &scales, int b, int r, int h, float (&out)[4]) {
  int s = W::sub == 16 ? h : 0;
  float scale = scales.codes[s][r] * W::unlift, add = W::minimum ? scales.add[s][r] : 0.0f;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    uint32_t bits = W::pair(words, codes, b, r, 2 * h + i);
    __half2 lift = __float2half2_rn(W::odd_pairs_high && i ? W::lift / 16 : W::lift);
    __half2 offset = __float2half2_rn(-(float)W::offset * W::lifted);
    float2 code = __half22float2(__hfma2(*(__half2 *)&bits, lift, offset));
    out[2 * i] = fmaf(code.x, scale, add), out[2 * i + 1] = fmaf(code.y, scale, add);
  }
}

/* Calls f(row, column, four values) for all that a lane has of a unit: row 0 or 8 of those 16 that
 * start at its g, columns from 4 t on. `rows`: bits of which of the two are wanted. */
template <typename W, typename F>
__device__ __forceinline__ void matmul_each_value(const uint8_t *unit, int lane, uint32_t rows,
                                                  F f) {
  typename W::lane_codes codes;
  W::open(unit, lane, &codes);
#pragma unroll
  for (int b = 0; b < W::blocks; b++) {
    uint32_t words[4];
    matmul_block_scales scales;
    W::base_words(unit, lane, b, words);
    W::scales(unit, lane, b, codes, &scales);
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        if (rows >> r & 1) {
          float v[4];
          matmul_values<W>(words, codes, scales, b, r, h, v);
          f(r * 8, b * 32 + h * 16 + lane % 4 * 4, v);
        }
  }
}

/* One subgroup a unit, tiles in order from the first of `packed` on. `out`: rows of n_columns
 * values, a multiple of 4. */
template <typename W, typename V>
__global__ void __launch_bounds__(MATMUL_UNPACK_SUBGROUPS * 32)
    matmul_unpack(const uint8_t *packed, int64_t n_rows, int64_t n_columns, V *out) {
  int lane = threadIdx.x % 32;
  int n_units = (int)matmul_count(n_columns, W::unit);
  int64_t index = (int64_t)blockIdx.x * MATMUL_UNPACK_SUBGROUPS + threadIdx.x / 32;
  int64_t tile = index / n_units, first_column = index % n_units * W::unit;
  simt_let_later_begin();
  /* Earlier kernels may still read what is overwritten. */
  simt_wait_for_earlier();
  if (tile * 16 >= n_rows)
    return;
  matmul_each_value<W>(packed + index * W::unit_bytes, lane, 3,
                       [&](int below, int at, const float(&v)[4]) {
                         int64_t row = tile * 16 + lane / 4 + below, column = first_column + at;
                         if (row < n_rows && column < n_columns)
                           *(uint2 *)(out + row * n_columns + column) =
                               make_uint2(mma_pack<V>(v[0], v[1]), mma_pack<V>(v[2], v[3]));
                       });
}

#endif
