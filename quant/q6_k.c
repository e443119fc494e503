/* Q6_K: super-blocks of 6-bit codes around 32; an 8-bit signed scale for every 16 elements. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"

static void q6_k_decode(const iso_block_q6_k *block, float *out_values) {
  float super_scale = iso_half_to_float(block->scale);
  for (int s = 0; s < 16; s++) {
    float scale = super_scale * (float)block->scales[s];
    const uint8_t *codes = block->codes + s / 8 * 64 + s % 4 * 16;
    const uint8_t *high = block->high + s / 8 * 32 + s % 2 * 16;
    int low_shift = s % 8 / 4 * 4, high_shift = s % 8 / 2 * 2;
    for (int i = 0; i < 16; i++) {
      int code = (codes[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
      *out_values++ = scale * (float)(code - 32);
    }
  }
}

static void q6_k_encode(const float *values, const float *importance, iso_block_q6_k *out_block) {
  static const iso_super_format format = {
      .sub_elements = 16, .offset = 32, .top = 63, .low = -128, .high = 127};
  iso_super_fit fit;
  iso_fit_super(&format, values, importance, &fit);
  out_block->scale = fit.scale;
  memcpy(out_block->scales, fit.scales, sizeof out_block->scales);
  for (int i = 0; i < 128; i++) {
    const uint8_t *codes = fit.codes + i / 64 * 128 + i % 64;
    out_block->codes[i] = (uint8_t)((codes[0] & 15) | (codes[64] & 15) << 4);
  }
  for (int i = 0; i < 64; i++) {
    const uint8_t *codes = fit.codes + i / 32 * 128 + i % 32;
    out_block->high[i] =
        (uint8_t)(codes[0] >> 4 | codes[32] >> 4 << 2 | codes[64] >> 4 << 4 | codes[96] >> 4 << 6);
  }
}

ISO_DEFINE_BLOCK_CODEC(q6_k, 256)
