/* Inline half and bfloat16 conversions: the bodies behind iso_f16_*() and iso_bf16_*() in
 * quant.h, for loops that want them inlined. Portable integer code, independent of the
 * flush-to-zero state of the calling thread. */
#ifndef ISOMER_QUANT_HALF_H
#define ISOMER_QUANT_HALF_H

#include <stdint.h>
#include <string.h>

static inline float iso_float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t iso_float_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Exact. A signalling NaN becomes quiet and keeps its payload, as in F16C hardware. */
static inline float iso_half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16;
  uint32_t magnitude = half & 0x7fff;
  uint32_t subnormal = iso_float_to_bits((float)(int32_t)magnitude * 0x1p-24f);
  uint32_t normal = (magnitude << 13) + (magnitude < 0x7c00 ? 112u << 23 : 224u << 23);
  uint32_t quiet = magnitude > 0x7c00 ? 0x00400000 : 0;
  return iso_float_from_bits(sign | quiet | (magnitude < 0x0400 ? subnormal : normal));
}

/* Round to nearest even; past 65519.99 infinity; NaN becomes quiet and keeps its high payload. */
static inline uint16_t iso_half_from_float(float value) {
  uint32_t bits = iso_float_to_bits(value);
  uint32_t sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7fffffff;
  /* The sum's unit in the last place is 2^-24, the step of half subnormals: the adder rounds. */
  uint32_t subnormal = iso_float_to_bits(iso_float_from_bits(magnitude) + 0.5f) - 0x3f000000;
  uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
  uint32_t special = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : 0x7c00;
  return (uint16_t)(sign | (magnitude >= 0x477ff000 ? special : finite));
}

/* Exact: the bits, widened. */
static inline float iso_bfloat_to_float(uint16_t bfloat) {
  return iso_float_from_bits((uint32_t)bfloat << 16);
}

/* Round to nearest even; NaN becomes quiet and keeps its high payload. */
static inline uint16_t iso_bfloat_from_float(float value) {
  uint32_t bits = iso_float_to_bits(value);
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

#endif
