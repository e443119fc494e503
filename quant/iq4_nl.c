/* IQ4_NL: 32 codes of 4 bits that pick from 16 fixed, unevenly spaced levels, and a scale. */
#include <math.h>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "quant/lanes.h"

static const int8_t levels[16] = ISO_IQ4_NL_VALUES;

static void iq4_nl_decode(const iso_block_iq4_nl *block, float *out_values) {
  float scale = iso_half_to_float(block->scale);
  for (int i = 0; i < 16; i++) {
    out_values[i] = (float)levels[block->codes[i] & 15] * scale;
    out_values[i + 16] = (float)levels[block->codes[i] >> 4] * scale;
  }
}

/* A value takes the first level plus the step at every midpoint below it. */
static iso_lanes nearest_level(iso_lanes scaled) {
  iso_lanes level = (iso_lanes){0} + (float)levels[0];
  for (int k = 0; k < 15; k++) {
    iso_lanes step = (iso_lanes){0} + (float)(levels[k + 1] - levels[k]);
    level += iso_lanes_keep(scaled > 0.5f * (float)(levels[k] + levels[k + 1]), step);
  }
  return level;
}

static uint8_t nearest_code(float scaled) {
  int code = 0;
  for (int k = 0; k < 15; k++)
    code += scaled > 0.5f * (float)(levels[k] + levels[k + 1]);
  return (uint8_t)code;
}

/* Best scale, of either sign: the peak is tried from 85, well inside the outermost levels, to 151,
 * where it is clipped. */
static float choose_scale(const float x[32], const float weights[32]) {
  float peak = iso_fit_peak(x, 32), best_gain = 0, best_scale = 0;
  if (fabsf(peak) < ISO_FIT_TINY)
    return 0;
  for (int step = 0; step < 2 * 12; step++) {
    float reach = (step % 2 ? -1.0f : 1.0f) * (85 + 6 * (float)(step / 2));
    iso_lanes xq_lanes = {0}, qq_lanes = {0};
    for (int i = 0; i < 32; i += ISO_LANES) {
      iso_lanes value = iso_lanes_load(x + i), q = nearest_level(value * (reach / peak));
      iso_lanes wq = iso_lanes_load(weights + i) * q;
      xq_lanes += wq * value;
      qq_lanes += wq * q;
    }
    float xq = iso_lanes_sum(xq_lanes), qq = iso_lanes_sum(qq_lanes);
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
  iso_fit_load(values, ISO_HALF_MAX * 127, 32, x);
  iso_fit_weigh(importance, 32, weights);
  out_block->scale = iso_fit_half(choose_scale(x, weights));
  float inverse = iso_fit_inverse(iso_half_to_float(out_block->scale));
  for (int i = 0; i < 16; i++)
    out_block->codes[i] =
        (uint8_t)(nearest_code(x[i] * inverse) | nearest_code(x[i + 16] * inverse) << 4);
}

ISO_DEFINE_BLOCK_CODEC(iq4_nl, 32)
