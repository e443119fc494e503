/* FP8 E4M3 (OCP 8-bit floating point, "FN": no infinities): exact to f32, nearest even from it. */
#ifndef ISOMER_QUANT_E4M3_H
#define ISOMER_QUANT_E4M3_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "quant/half.h"

#define ISO_E4M3_MAX 448.0f

/* A half has a wider exponent: the bits moved into place are the value by 2^8, subnormals too. */
static inline float iso_e4m3_to_f32(uint8_t code) {
  if ((code & 0x7f) == 0x7f)
    return NAN;
  return iso_half_to_float((uint16_t)((code & 0x80) << 8 | (code & 0x7f) << 7)) * 0x1p8f;
}

/* Saturates; NaN stays NaN. */
static inline uint8_t iso_e4m3_from_f32(float value) {
  uint8_t sign = signbit(value) ? 0x80 : 0;
  float magnitude = fabsf(value);
  if (isnan(value))
    return 0x7f;
  if (magnitude >= ISO_E4M3_MAX)
    return sign | 0x7e;
  if (magnitude < 0x1p-6f) /* steps of 2^-9; 8 of them are the first normal code */
    return (uint8_t)(sign | (uint8_t)lrintf(magnitude * 0x1p9f));
  uint32_t bits;
  memcpy(&bits, &magnitude, sizeof bits);
  bits = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20;
  uint32_t code = bits - ((127 - 7) << 3);
  return (uint8_t)(sign | (code > 0x7e ? 0x7e : code));
}

#endif
