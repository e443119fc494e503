/* I4_G128: 128 codes of 4 bits, a scale and a zero point. */
#include "quant/codec.h"
#include "quant/fit_group.h"

#include <math.h>

static void i4_g128_decode(const iso_block_i4_g128 *block, float *out_values) {
  uint32_t bits = block->scale_zero & ~ISO_I4_ZERO_MASK;
  int zero = (int)(block->scale_zero & ISO_I4_ZERO_MASK);
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  for (int i = 0; i < ISO_GROUP_ELEMENTS; i++) {
    int byte = block->codes[i / 64 * 32 + i % 32];
    out_values[i] = (float)((i % 64 < 32 ? byte & 15 : byte >> 4) - zero) * scale;
  }
}

static float nearest(float quotient, int zero) {
  return rintf(fminf(fmaxf(quotient, (float)-zero), (float)(15 - zero)));
}

static void i4_g128_encode(const float *values, const float *importance,
                           iso_block_i4_g128 *out_block) {
  float x[ISO_GROUP_ELEMENTS], low = 0, high = 0;
  iso_group_clean(values, x);
  for (int i = 0; i < ISO_GROUP_ELEMENTS; i++) {
    low = fminf(low, x[i]);
    high = fmaxf(high, x[i]);
  }
  float scale = (float)(((double)high - (double)low) / 15);
  int zero = (int)rintf(-iso_group_quotient(low, scale));
  scale = iso_group_scale(x, importance, scale, zero, nearest);
  uint32_t bits;
  memcpy(&bits, &scale, sizeof bits);
  bits = (bits + ISO_I4_ZERO_MASK / 2 + 1) & ~ISO_I4_ZERO_MASK;
  memcpy(&scale, &bits, sizeof scale);
  *out_block = (iso_block_i4_g128){.scale_zero = bits | (uint32_t)zero};
  for (int i = 0; i < ISO_GROUP_ELEMENTS; i++) {
    unsigned code = (unsigned)((int)nearest(iso_group_quotient(x[i], scale), zero) + zero);
    uint8_t *byte = &out_block->codes[i / 64 * 32 + i % 32];
    *byte = (uint8_t)(*byte | code << (i % 64 < 32 ? 0 : 4));
  }
}

ISO_DEFINE_BLOCK_CODEC(i4_g128, ISO_GROUP_ELEMENTS)
