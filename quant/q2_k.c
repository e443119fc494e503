/* Q2_K: super-blocks of 2-bit codes; 4-bit scales and minimums for every 16 elements. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"

static void q2_k_decode(const iso_block_q2_k *block, float *out_values) {
  float super_scale = iso_half_to_float(block->scale);
  float super_minimum = iso_half_to_float(block->minimum);
  for (int s = 0; s < 16; s++) {
    float scale = super_scale * (float)(block->scales[s] & 15);
    float minimum = super_minimum * (float)(block->scales[s] >> 4);
    const uint8_t *codes = block->codes + s / 8 * 32 + s % 2 * 16;
    int shift = s % 8 / 2 * 2;
    for (int i = 0; i < 16; i++)
      *out_values++ = scale * (float)(codes[i] >> shift & 3) - minimum;
  }
}

static void q2_k_encode(const float *values, const float *importance, iso_block_q2_k *out_block) {
  static const iso_super_format format = {
      .sub_elements = 16, .offset = 0, .top = 3, .low = 0, .high = 15, .has_minimums = true};
  iso_super_fit fit;
  iso_fit_super(&format, values, importance, &fit);
  out_block->scale = fit.scale;
  out_block->minimum = fit.minimum;
  for (int s = 0; s < 16; s++)
    out_block->scales[s] = (uint8_t)(fit.scales[s] | fit.minimums[s] << 4);
  for (int i = 0; i < 64; i++) {
    const uint8_t *codes = fit.codes + i / 32 * 128 + i % 32;
    out_block->codes[i] = (uint8_t)(codes[0] | codes[32] << 2 | codes[64] << 4 | codes[96] << 6);
  }
}

ISO_DEFINE_BLOCK_CODEC(q2_k, 256)
