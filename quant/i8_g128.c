/* I8_G128: 128 codes of 8 bits and a scale in full. */
#include "quant/codec.h"
#include "quant/fit_group.h"

#include <math.h>

static void i8_g128_decode(const iso_block_i8_g128 *block, float *out_values) {
  for (int i = 0; i < ISO_GROUP_ELEMENTS; i++)
    out_values[i] = (float)block->codes[i] * block->scale;
}

static float nearest(float quotient, int zero) {
  (void)zero;
  return rintf(fminf(fmaxf(quotient, -127.0f), 127.0f));
}

static void i8_g128_encode(const float *values, const float *importance,
                           iso_block_i8_g128 *out_block) {
  float x[ISO_GROUP_ELEMENTS];
  iso_group_clean(values, x);
  out_block->scale = iso_group_scale(x, importance, iso_group_peak(x) / 127.0f, 0, nearest);
  for (int i = 0; i < ISO_GROUP_ELEMENTS; i++)
    out_block->codes[i] = (int8_t)nearest(iso_group_quotient(x[i], out_block->scale), 0);
}

ISO_DEFINE_BLOCK_CODEC(i8_g128, ISO_GROUP_ELEMENTS)
