/* Q4_1: 32 codes of 4 bits, a scale and a minimum. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"

static void q4_1_decode(const iso_block_q4_1 *block, float *out_values) {
  float scale = iso_half_to_float(block->scale);
  float minimum = iso_half_to_float(block->minimum);
  for (int i = 0; i < 16; i++) {
    out_values[i] = (float)(block->codes[i] & 15) * scale + minimum;
    out_values[i + 16] = (float)(block->codes[i] >> 4) * scale + minimum;
  }
}

static void q4_1_encode(const float *values, const float *importance, iso_block_q4_1 *out_block) {
  uint8_t codes[32];
  iso_fit_line_block(values, importance, 15, &out_block->scale, &out_block->minimum, codes);
  for (int i = 0; i < 16; i++)
    out_block->codes[i] = (uint8_t)(codes[i] | codes[i + 16] << 4);
}

ISO_DEFINE_BLOCK_CODEC(q4_1, 32)
