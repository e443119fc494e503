/* Q5_0: 32 codes of 5 bits around 16, and a scale. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "quant/pack.h"

static void q5_0_decode(const iso_block_q5_0 *block, float *out_values) {
  float scale = iso_half_to_float(block->scale);
  uint8_t codes[32];
  iso_unpack_five_bit(block->high, block->codes, codes);
  for (int i = 0; i < 32; i++)
    out_values[i] = (float)(codes[i] - 16) * scale;
}

static void q5_0_encode(const float *values, const float *importance, iso_block_q5_0 *out_block) {
  uint8_t codes[32];
  out_block->scale = iso_fit_scaled_block(values, importance, 16, codes);
  iso_pack_five_bit(codes, out_block->high, out_block->codes);
}

ISO_DEFINE_BLOCK_CODEC(q5_0, 32)
