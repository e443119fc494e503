/* Encoding of f8_g128 as quant/f8_g128.c does it. */
#ifndef ISOMER_SIMT_ENCODE_H
#define ISOMER_SIMT_ENCODE_H

#include "backends/simt/simt.cuh"

/* What is encoded of a value: NaN as zero, infinities as what a scale has room for. */
__device__ inline float simt_f8_value(float value) {
  const float most = 3.402823466e+38f / 2;
  return value == value ? fminf(fmaxf(value, -most), most) : 0.0f;
}

/* The scale of 128 values, the largest of which is given; a quotient in f32 is the one in f64,
 * rounded. */
__device__ inline float simt_f8_scale(float largest) { return __fdiv_rn(largest, 448.0f); }

/* The nearest E4M3 code, even among equals, as quant/e4m3.h has it. */
__device__ inline uint8_t simt_e4m3_of(float value) {
  uint32_t sign = __float_as_uint(value) >> 24 & 0x80;
  float magnitude = fabsf(value);
  if (magnitude >= 448.0f)
    return (uint8_t)(sign | 0x7e);
  if (magnitude < 0x1p-6f) /* steps of 2^-9; 8 of them are the first normal code */
    return (uint8_t)(sign | (uint32_t)__float2int_rn(magnitude * 0x1p9f));
  uint32_t bits = __float_as_uint(magnitude);
  bits = (bits + 0x7ffffu + (bits >> 20 & 1)) >> 20;
  return (uint8_t)(sign | min(bits - ((127 - 7) << 3), 0x7eu));
}

/* Four of them, nearest and never above 448, in the bytes of a word. */
__device__ __forceinline__ uint32_t simt_e4m3_word(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return low | (uint32_t)high << 16;
#else
  return simt_e4m3_of(a) | (uint32_t)simt_e4m3_of(b) << 8 | (uint32_t)simt_e4m3_of(c) << 16 |
         (uint32_t)simt_e4m3_of(d) << 24;
#endif
}

__device__ inline uint8_t simt_f8_code(float value, float scale) {
  return simt_e4m3_of(scale != 0 ? __fdiv_rn(value, scale) : 0.0f);
}

#endif
