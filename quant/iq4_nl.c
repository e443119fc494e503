/* IQ4_NL: 32 codes of 4 bits that pick from 16 fixed, unevenly spaced levels, and a scale. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"

#include <math.h>

static const int8_t levels[16] = ISO_IQ4_NL_VALUES;

static void iq4_nl_decode(const iso_block_iq4_nl *block, float *out_values) {
  float scale = iso_half_to_float(block->scale);
  for (int i = 0; i < 16; i++) {
    out_values[i] = (float)levels[block->codes[i] & 15] * scale;
    out_values[i + 16] = (float)levels[block->codes[i] >> 4] * scale;
  }
}

/* Codes of the levels nearest to x * inverse: the number of midpoints that lie below. */
static void choose_codes(const float x[32], float inverse, int out_codes[32]) {
  for (int i = 0; i < 32; i++)
    out_codes[i] = 0;
  for (int k = 0; k < 15; k++) {
    float midpoint = 0.5f * (float)(levels[k] + levels[k + 1]);
    for (int i = 0; i < 32; i++)
      out_codes[i] += x[i] * inverse > midpoint;
  }
}

/* Best scale, of either sign, by trying inverses that put the peak on or near an outer level. */
static float choose_scale(const float x[32], const float weights[32]) {
  float peak = 0, best_gain = 0, best_scale = 0;
  for (int i = 0; i < 32; i++)
    peak = fabsf(x[i]) > fabsf(peak) ? x[i] : peak;
  if (fabsf(peak) < 1e-30f)
    return 0;
  for (int step = 0; step < 2 * 16; step++) {
    float reach = (step % 2 ? -1.0f : 1.0f) * (85.0f + 4.0f * (float)(step / 2));
    int codes[32];
    choose_codes(x, reach / peak, codes);
    float xq = 0, qq = 0;
    for (int i = 0; i < 32; i++) {
      float q = levels[codes[i]], wq = weights[i] * q;
      xq += wq * x[i];
      qq += wq * q;
    }
    if (qq > 0 && xq * xq > best_gain * qq) {
      best_gain = xq * xq / qq;
      best_scale = xq / qq;
    }
  }
  return best_scale;
}

static void iq4_nl_encode(const float *values, const float *importance,
                          iso_block_iq4_nl *out_block) {
  float x[32], weights[32];
  int codes[32];
  iso_fit_load(values, ISO_HALF_MAX * 127, 32, x);
  iso_fit_weigh(importance, 32, weights);
  out_block->scale = iso_fit_half(choose_scale(x, weights));
  choose_codes(x, iso_fit_inverse(iso_half_to_float(out_block->scale)), codes);
  for (int i = 0; i < 16; i++)
    out_block->codes[i] = (uint8_t)(codes[i] | codes[i + 16] << 4);
}

ISO_DEFINE_BLOCK_CODEC(iq4_nl, 32)
