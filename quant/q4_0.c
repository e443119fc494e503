/* Q4_0: 32 codes of 4 bits around 8, and a scale. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"

static void q4_0_decode(const iso_block_q4_0 *block, float *out_values) {
  float scale = iso_half_to_float(block->scale);
  for (int i = 0; i < 16; i++) {
    out_values[i] = (float)((block->codes[i] & 15) - 8) * scale;
    out_values[i + 16] = (float)((block->codes[i] >> 4) - 8) * scale;
  }
}

static void q4_0_encode(const float *values, const float *importance, iso_block_q4_0 *out_block) {
  uint8_t codes[32];
  out_block->scale = iso_fit_scaled_block(values, importance, 8, codes);
  for (int i = 0; i < 16; i++)
    out_block->codes[i] = (uint8_t)(codes[i] | codes[i + 16] << 4);
}

ISO_DEFINE_BLOCK_CODEC(q4_0, 32)
