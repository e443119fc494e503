/* Q8_0: 32 signed bytes and a scale. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"

#include <math.h>

enum { TOP = 127 };

static void q8_0_decode(const iso_block_q8_0 *block, float *out_values) {
  float scale = iso_half_to_float(block->scale);
  for (int i = 0; i < 32; i++)
    out_values[i] = (float)block->codes[i] * scale;
}

/* The scale that makes the largest magnitude code 127 or -127. */
static float peak_scale(const float *x) {
  float peak = 0;
  for (int i = 0; i < 32; i++)
    peak = fabsf(x[i]) > peak ? fabsf(x[i]) : peak;
  return peak / TOP;
}

/* Nearest integer, ties away from zero, in -127 .. 127. */
static int8_t signed_code(float scaled) {
  float magnitude = fabsf(scaled);
  magnitude = magnitude < TOP ? magnitude : TOP;
  int code = (int)magnitude;
  code += magnitude - (float)code >= 0.5f;
  return (int8_t)(scaled < 0 ? -code : code);
}

static void q8_0_encode(const float *values, const float *importance, iso_block_q8_0 *out_block) {
  float x[32], weights[32];
  iso_fit_load(values, ISO_HALF_MAX * TOP, 32, x);
  float scale = peak_scale(x);
  if (importance) {
    iso_fit_weigh(importance, 32, weights);
    scale = iso_half_to_float(iso_fit_half(iso_fit_scale(x, weights, 32, TOP, 2 * TOP)));
  }
  out_block->scale = iso_fit_half(scale);
  float inverse = iso_fit_inverse(scale);
  for (int i = 0; i < 32; i++)
    out_block->codes[i] = signed_code(x[i] * inverse);
}

ISO_DEFINE_BLOCK_CODEC(q8_0, 32)
