/* Q5_1: 32 codes of 5 bits, a scale and a minimum. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "quant/pack.h"

static void q5_1_decode(const iso_block_q5_1 *block, float *out_values) {
  float scale = iso_half_to_float(block->scale);
  float minimum = iso_half_to_float(block->minimum);
  uint8_t codes[32];
  iso_unpack_five_bit(block->high, block->codes, codes);
  for (int i = 0; i < 32; i++)
    out_values[i] = (float)codes[i] * scale + minimum;
}

static void q5_1_encode(const float *values, const float *importance, iso_block_q5_1 *out_block) {
  uint8_t codes[32];
  iso_fit_line_block(values, importance, 31, &out_block->scale, &out_block->minimum, codes);
  iso_pack_five_bit(codes, out_block->high, out_block->codes);
}

ISO_DEFINE_BLOCK_CODEC(q5_1, 32)
