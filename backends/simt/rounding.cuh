/* Rows that the kernel which makes them rounds to E4M3 as well, for the product that takes them
 * next (simt_rounding of fusion.h): a scale for each 128 columns of a row, and codes in the order
 * in which that product's kernel copies them.
 *
 * For each 128 columns rows of 128 bytes follow one another, whose 16-byte chunks are exchanged by
 * row: chunk c of row r is at c ^ r % 8. Of each 4 columns the middle ones change places, as in
 * packed weights (matmul_packed.cuh). */
#ifndef ISOMER_SIMT_ROUNDING_H
#define ISOMER_SIMT_ROUNDING_H

#include "backends/simt/encode.cuh"

constexpr float SIMT_E4M3_MOST = 448.0f;

/* The scale of numbers up to `largest`, NaN where there are NaNs or infinities, and what brings
 * numbers to codes up to `most`: `lift` times `inverse`, in two steps lest the inverse of a small
 * one overflow. */
struct simt_code_scale {
  float scale, lift, inverse;

  simt_code_scale() = default;
  __device__ __forceinline__ simt_code_scale(float largest, float most) {
    lift = largest < 0x1p-60f ? 0x1p60f : 1.0f;
    inverse = largest > 0 ? most / (largest * lift) : 0.0f;
    scale = largest == INFINITY ? NAN : largest * lift / most / lift;
  }
};

/* The magnitude of a value, infinite where it is NaN: a maximum that NaNs do not escape. */
__device__ __forceinline__ float simt_magnitude(float value) {
  return value == value ? fabsf(value) : INFINITY;
}

/* Rounds N values of a row, 4 or 8. The lanes that have the 128 columns of a group, side by side,
 * are all there or none is. */
template <int N>
__device__ __forceinline__ void simt_round(const simt_rounded_rows &rows, int row, int column,
                                           const float (&v)[N]) {
  constexpr int lanes = SIMT_ROUNDED_GROUP / N;
  uint32_t neighbours = 0xffffffffu >> (32 - lanes) << threadIdx.x % 32 / lanes * lanes;
  float largest = 0;
#pragma unroll
  for (float value : v)
    largest = fmaxf(largest, simt_magnitude(value));
#pragma unroll
  for (int mask = 1; mask < lanes; mask *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(neighbours, largest, mask));
  simt_code_scale scale(largest, SIMT_E4M3_MOST);
  int at = column / SIMT_ROUNDED_GROUP * SIMT_SLAB + row;
  if (column % SIMT_ROUNDED_GROUP == 0)
    rows.scales[at] = scale.scale;
  uint32_t words[N / 4];
#pragma unroll
  for (int i = 0; i < N / 4; i++) {
    float of[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
      of[j] = v[4 * i + j] * scale.lift * scale.inverse;
    words[i] = simt_e4m3_word(of[0], of[2], of[1], of[3]);
  }
  uint8_t *to = rows.image + at * SIMT_ROUNDED_GROUP + ((column / 16 ^ row) % 8) * 16 + column % 16;
  if constexpr (N == 8)
    *(uint2 *)to = make_uint2(words[0], words[1]);
  else
    *(uint32_t *)to = words[0];
}

#endif
