/* Q3_K: super-blocks of 3-bit codes around 4; a 6-bit signed scale for every 16 elements. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"

static void q3_k_decode(const iso_block_q3_k *block, float *out_values) {
  float super_scale = iso_half_to_float(block->scale);
  int8_t scales[16];
  iso_q3_k_unpack_scales(block->scales, scales);
  for (int s = 0; s < 16; s++) {
    float scale = super_scale * (float)scales[s];
    const uint8_t *codes = block->codes + s / 8 * 32 + s % 2 * 16;
    const uint8_t *high = block->high + s % 2 * 16;
    int shift = s % 8 / 2 * 2;
    for (int i = 0; i < 16; i++) {
      int code = (codes[i] >> shift & 3) | (high[i] >> s / 2 & 1) << 2;
      *out_values++ = scale * (float)(code - 4);
    }
  }
}

/* Inverse of iso_q3_k_unpack_scales(). */
static void pack_scales(const int8_t scales[16], uint8_t out_packed[12]) {
  memset(out_packed, 0, 12);
  for (int i = 0; i < 16; i++) {
    int stored = scales[i] + 32;
    out_packed[i % 8] = (uint8_t)(out_packed[i % 8] | (stored & 15) << i / 8 * 4);
    out_packed[8 + i % 4] = (uint8_t)(out_packed[8 + i % 4] | stored >> 4 << i / 4 * 2);
  }
}

static void q3_k_encode(const float *values, const float *importance, iso_block_q3_k *out_block) {
  static const iso_super_format format = {
      .sub_elements = 16, .offset = 4, .top = 7, .low = -32, .high = 31};
  iso_super_fit fit;
  iso_fit_super(&format, values, importance, &fit);
  out_block->scale = fit.scale;
  pack_scales(fit.scales, out_block->scales);
  memset(out_block->codes, 0, sizeof out_block->codes);
  memset(out_block->high, 0, sizeof out_block->high);
  for (int i = 0; i < 256; i++) {
    uint8_t *low = &out_block->codes[i / 128 * 32 + i % 32];
    uint8_t *high = &out_block->high[i % 32];
    *low = (uint8_t)(*low | (fit.codes[i] & 3) << i % 128 / 32 * 2);
    *high = (uint8_t)(*high | fit.codes[i] >> 2 << i / 32);
  }
}

ISO_DEFINE_BLOCK_CODEC(q3_k, 256)
