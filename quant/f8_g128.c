/* F8_G128: 128 codes of FP8 E4M3 and a scale in full. */
#include "quant/codec.h"
#include "quant/e4m3.h"
#include "quant/fit_group.h"

static void f8_g128_decode(const iso_block_f8_g128 *block, float *out_values) {
  for (int i = 0; i < ISO_GROUP_ELEMENTS; i++)
    out_values[i] = iso_e4m3_to_f32(block->codes[i]) * block->scale;
}

static float nearest(float quotient, int zero) {
  (void)zero;
  return iso_e4m3_to_f32(iso_e4m3_from_f32(quotient));
}

static void f8_g128_encode(const float *values, const float *importance,
                           iso_block_f8_g128 *out_block) {
  float x[ISO_GROUP_ELEMENTS];
  iso_group_clean(values, x);
  out_block->scale =
      iso_group_scale(x, importance, iso_group_peak(x) / ISO_E4M3_MAX, 0, nearest);
  for (int i = 0; i < ISO_GROUP_ELEMENTS; i++)
    out_block->codes[i] = iso_e4m3_from_f32(iso_group_quotient(x[i], out_block->scale));
}

ISO_DEFINE_BLOCK_CODEC(f8_g128, ISO_GROUP_ELEMENTS)
