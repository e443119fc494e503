/* Scales of 32-element blocks, and the searches that super-blocks share.
 *
 * Both searches try a range of inverse scales. Each gives codes; with the codes fixed, the best
 * scale (and minimum) is a least-squares solution from a few sums, and so is its error. */
#include "quant/fit.h"

#include <float.h>
#include <math.h>

#include "quant/half.h"

/* Sums are kept in this many lanes: a fixed order of additions that compilers vectorize. */
enum { LANES = 8 };

/* Peaks below this are lost in any half scale, and their inverses could overflow. */
#define TINY 1e-30f

void iso_fit_load(const float *values, float limit, int count, float *out_values) {
  for (int i = 0; i < count; i++) {
    float value = values[i] == values[i] ? values[i] : 0;
    value = value < limit ? value : limit;
    out_values[i] = value > -limit ? value : -limit;
  }
}

void iso_fit_weigh(const float *importance, int count, float *out_weights) {
  float largest = 0;
  for (int i = 0; importance && i < count; i++)
    largest = importance[i] > largest ? importance[i] : largest;
  largest = largest < FLT_MAX ? largest : FLT_MAX;
  for (int i = 0; i < count; i++) {
    if (largest > 0) {
      float weight = importance[i] > 0 ? importance[i] : 0;
      out_weights[i] = (weight < largest ? weight : largest) / largest;
    } else {
      out_weights[i] = 1;
    }
  }
}

uint16_t iso_fit_half(float scale) {
  scale = scale < ISO_HALF_MAX ? scale : ISO_HALF_MAX;
  return iso_half_from_float(scale > -ISO_HALF_MAX ? scale : -ISO_HALF_MAX);
}

static float sum_lanes(const float lanes[LANES]) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

/* The value of largest magnitude, the first of equals. */
static float signed_peak(const float *x, int count) {
  float peak = 0;
  for (int i = 0; i < count; i++)
    peak = fabsf(x[i]) > fabsf(peak) ? x[i] : peak;
  return peak;
}

/* Improves *scale when the codes of `inverse` explain more than *gain of the squared sum. */
static bool try_scale(const float *x, const float *weights, int count, float inverse,
                      int half_range, int top, float *gain, float *scale) {
  float xq_lanes[LANES] = {0}, qq_lanes[LANES] = {0};
  for (int i = 0; i < count; i += LANES)
    for (int l = 0; l < LANES; l++) {
      float code = (float)iso_fit_code(x[i + l] * inverse, (float)half_range, (float)top);
      float q = code - (float)half_range, wq = weights[i + l] * q;
      xq_lanes[l] += x[i + l] * wq;
      qq_lanes[l] += wq * q;
    }
  float xq = sum_lanes(xq_lanes), qq = sum_lanes(qq_lanes);
  if (!(qq > 0 && xq * xq > *gain * qq))
    return false;
  *gain = xq * xq / qq;
  *scale = xq / qq;
  return true;
}

float iso_fit_scale(const float *x, const float *weights, int count, int half_range, int top) {
  float peak = signed_peak(x, count);
  if (fabsf(peak) < TINY)
    return 0;
  float gain = 0, scale = 0;
  for (int step = -9; step <= 9; step++) {
    float reach = ((float)half_range + 0.1f * (float)step) / peak;
    (void)try_scale(x, weights, count, -reach, half_range, top, &gain, &scale);
    (void)try_scale(x, weights, count, reach, half_range, top, &gain, &scale);
  }
  for (int round = 0; round < 4; round++)
    if (!try_scale(x, weights, count, iso_fit_inverse(scale), half_range, top, &gain, &scale))
      break;
  return scale;
}

typedef struct line_fit {
  float error, scale, minimum;
} line_fit;

/* Codes of y >= 0 from `inverse` and `start` (the value of code 0), then the least-squares line
 * with minimum <= ceiling; improves *best. */
static bool try_line(const float *y, const float *weights, int count, float inverse, float start,
                     int top, float ceiling, line_fit *best) {
  float w_lanes[LANES] = {0}, x_lanes[LANES] = {0}, xx_lanes[LANES] = {0};
  float q_lanes[LANES] = {0}, xq_lanes[LANES] = {0}, qq_lanes[LANES] = {0};
  for (int i = 0; i < count; i += LANES)
    for (int l = 0; l < LANES; l++) {
      float q = (float)iso_fit_code((y[i + l] - start) * inverse, 0, (float)top);
      float wx = weights[i + l] * y[i + l], wq = weights[i + l] * q;
      w_lanes[l] += weights[i + l];
      x_lanes[l] += wx;
      xx_lanes[l] += wx * y[i + l];
      q_lanes[l] += wq;
      xq_lanes[l] += wq * y[i + l];
      qq_lanes[l] += wq * q;
    }
  float w = sum_lanes(w_lanes), x = sum_lanes(x_lanes), xx = sum_lanes(xx_lanes);
  float q = sum_lanes(q_lanes), xq = sum_lanes(xq_lanes), qq = sum_lanes(qq_lanes);
  float determinant = w * qq - q * q;
  if (!(determinant > 0))
    return false;
  float scale = (w * xq - x * q) / determinant, minimum = (qq * x - q * xq) / determinant;
  if (minimum > ceiling) {
    minimum = ceiling;
    scale = (xq - ceiling * q) / qq;
  }
  float error =
      xx + scale * (scale * qq - 2 * xq) + minimum * (minimum * w - 2 * x + 2 * scale * q);
  if (!(scale > 0 && error < best->error))
    return false;
  *best = (line_fit){error, scale, minimum};
  return true;
}

void iso_fit_line(const float *x, const float *weights, int count, int top, bool any_minimum,
                  float *out_scale, float *out_minimum) {
  float low = any_minimum ? x[0] : fminf(x[0], 0), high = x[0];
  for (int i = 1; i < count; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  float range = high - low;
  *out_scale = 0;
  *out_minimum = low;
  if (range < TINY)
    return;
  /* Sums of x - low do not cancel when the range is small beside the values. */
  float y[ISO_SUPER_ELEMENTS];
  for (int i = 0; i < count; i++)
    y[i] = x[i] - low;
  float ceiling = any_minimum ? FLT_MAX : -low;
  line_fit best = {FLT_MAX, range / (float)top, 0};
  for (int step = -5; step <= 10; step++)
    (void)try_line(y, weights, count, ((float)top + 0.1f * (float)step) / range, 0, top, ceiling,
                   &best);
  for (int round = 0; round < 4; round++)
    if (!try_line(y, weights, count, 1 / best.scale, best.minimum, top, ceiling, &best))
      break;
  *out_scale = best.scale;
  *out_minimum = low + best.minimum;
}

uint16_t iso_fit_scaled_block(const float *values, const float *importance, int half_range,
                              uint8_t codes[ISO_BLOCK_ELEMENTS]) {
  float x[ISO_BLOCK_ELEMENTS], weights[ISO_BLOCK_ELEMENTS];
  int top = 2 * half_range - 1;
  iso_fit_load(values, ISO_HALF_MAX * (float)half_range, ISO_BLOCK_ELEMENTS, x);
  float scale = signed_peak(x, ISO_BLOCK_ELEMENTS) / (float)-half_range;
  if (importance) {
    iso_fit_weigh(importance, ISO_BLOCK_ELEMENTS, weights);
    scale = iso_fit_scale(x, weights, ISO_BLOCK_ELEMENTS, half_range, top);
    scale = iso_half_to_float(iso_fit_half(scale));
  }
  float inverse = iso_fit_inverse(scale);
  for (int i = 0; i < ISO_BLOCK_ELEMENTS; i++)
    codes[i] = iso_fit_code(x[i] * inverse, (float)half_range, (float)top);
  return iso_fit_half(scale);
}

void iso_fit_line_block(const float *values, const float *importance, int top, uint16_t *out_scale,
                        uint16_t *out_minimum, uint8_t codes[ISO_BLOCK_ELEMENTS]) {
  float x[ISO_BLOCK_ELEMENTS], weights[ISO_BLOCK_ELEMENTS];
  iso_fit_load(values, ISO_HALF_MAX, ISO_BLOCK_ELEMENTS, x);
  float low = x[0], high = x[0];
  for (int i = 1; i < ISO_BLOCK_ELEMENTS; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  float scale = (high - low) / (float)top, minimum = low;
  if (importance) {
    iso_fit_weigh(importance, ISO_BLOCK_ELEMENTS, weights);
    iso_fit_line(x, weights, ISO_BLOCK_ELEMENTS, top, true, &scale, &minimum);
    scale = iso_half_to_float(iso_fit_half(scale));
    minimum = iso_half_to_float(iso_fit_half(minimum));
  }
  float inverse = iso_fit_inverse(scale);
  for (int i = 0; i < ISO_BLOCK_ELEMENTS; i++)
    codes[i] = iso_fit_code((x[i] - minimum) * inverse, 0, (float)top);
  *out_scale = iso_fit_half(scale);
  *out_minimum = iso_fit_half(minimum);
}
