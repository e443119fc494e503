/* Q4_K: super-blocks of 4-bit codes; 6-bit scales and minimums for every 32 elements. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "quant/pack.h"

static void q4_k_decode(const iso_block_q4_k *block, float *out_values) {
  float super_scale = iso_half_to_float(block->scale);
  float super_minimum = iso_half_to_float(block->minimum);
  uint8_t scales[8], minimums[8];
  iso_q4_k_unpack_scales(block->scales, scales, minimums);
  for (int s = 0; s < 8; s++) {
    float scale = super_scale * (float)scales[s];
    float minimum = super_minimum * (float)minimums[s];
    const uint8_t *codes = block->codes + s / 2 * 32;
    for (int i = 0; i < 32; i++)
      *out_values++ = scale * (float)(codes[i] >> s % 2 * 4 & 15) - minimum;
  }
}

static void q4_k_encode(const float *values, const float *importance, iso_block_q4_k *out_block) {
  static const iso_super_format format = {
      .sub_elements = 32, .offset = 0, .top = 15, .low = 0, .high = 63, .has_minimums = true};
  iso_super_fit fit;
  iso_fit_super(&format, values, importance, &fit);
  out_block->scale = fit.scale;
  out_block->minimum = fit.minimum;
  iso_pack_six_bit(fit.scales, fit.minimums, out_block->scales);
  for (int i = 0; i < 128; i++) {
    const uint8_t *codes = fit.codes + i / 32 * 64 + i % 32;
    out_block->codes[i] = (uint8_t)(codes[0] | codes[32] << 4);
  }
}

ISO_DEFINE_BLOCK_CODEC(q4_k, 256)
