/* Scales of 32-element blocks, and the searches that super-blocks share.
 *
 * Both searches try a range of inverse scales. Each gives codes; with the codes fixed, the best
 * scale (and minimum) is a least-squares solution from a few sums, and so is its error. */
#include "quant/fit.h"

#include <float.h>
#include <math.h>

#include "quant/half.h"
#include "quant/lanes.h"

/* The searches stretch the plain scale by these factors, in steps of SEARCH_STEP: towards fewer
 * codes in use, and towards clipped extremes. Finer or wider steps gain little. */
#define SEARCH_STEP 0.03f
enum { SCALE_FIRST = -8, SCALE_LAST = 8, LINE_FIRST = -4, LINE_LAST = 10, REFINEMENTS = 3 };

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

float iso_fit_peak(const float *x, int count) {
  float peak = 0;
  for (int i = 0; i < count; i++)
    peak = fabsf(x[i]) > fabsf(peak) ? x[i] : peak;
  return peak;
}

typedef struct scale_fit {
  float gain, scale; /* gain: how much of the squared sum is explained */
} scale_fit;

/* Takes the codes that `inverse` gives if they explain more than *best does. */
static bool try_scale(const float *x, const float *weights, int count, float inverse, int offset,
                      int top, scale_fit *best) {
  iso_lanes xq_lanes = {0}, qq_lanes = {0};
  for (int i = 0; i < count; i += ISO_LANES) {
    iso_lanes value = iso_lanes_load(x + i);
    iso_lanes code = iso_lanes_code(value * inverse + ((float)offset + 0.5f), (float)top);
    iso_lanes q = code - (float)offset, wq = iso_lanes_load(weights + i) * q;
    xq_lanes += value * wq;
    qq_lanes += q * wq;
  }
  float xq = iso_lanes_sum(xq_lanes), qq = iso_lanes_sum(qq_lanes);
  if (!(qq > 0 && xq * xq > best->gain * qq))
    return false;
  *best = (scale_fit){xq * xq / qq, xq / qq};
  return true;
}

float iso_fit_scale(const float *x, const float *weights, int count, int offset, int top) {
  float peak = iso_fit_peak(x, count);
  if (fabsf(peak) < ISO_FIT_TINY)
    return 0;
  scale_fit best = {0, 0};
  for (int step = SCALE_FIRST; step <= SCALE_LAST; step++) {
    float inverse = (float)offset * (1 + SEARCH_STEP * (float)step) / peak;
    (void)try_scale(x, weights, count, -inverse, offset, top, &best);
    (void)try_scale(x, weights, count, inverse, offset, top, &best);
  }
  for (int round = 0; round < REFINEMENTS; round++)
    if (!try_scale(x, weights, count, iso_fit_inverse(best.scale), offset, top, &best))
      break;
  return best.scale;
}

/* Values counted from their minimum, so that sums do not cancel when the range is small beside
 * the values, and the sums that no candidate changes. */
typedef struct line_problem {
  const float *weights;
  int count, top;
  float ceiling; /* largest minimum, counted likewise */
  float w, x, xx;
  float values[ISO_BLOCK_ELEMENTS];
} line_problem;

typedef struct line_fit {
  float error, scale, minimum;
} line_fit;

static void line_set_up(line_problem *p, const float *x, float low) {
  iso_lanes w_lanes = {0}, x_lanes = {0}, xx_lanes = {0};
  for (int i = 0; i < p->count; i += ISO_LANES) {
    iso_lanes value = iso_lanes_load(x + i) - low, w = iso_lanes_load(p->weights + i);
    memcpy(p->values + i, &value, sizeof value);
    w_lanes += w;
    x_lanes += w * value;
    xx_lanes += w * value * value;
  }
  p->w = iso_lanes_sum(w_lanes);
  p->x = iso_lanes_sum(x_lanes);
  p->xx = iso_lanes_sum(xx_lanes);
}

/* Takes the best line through the codes that `inverse` and `start`, the value of code 0, give if
 * it has less error than *best. */
static bool try_line(const line_problem *p, float inverse, float start, line_fit *best) {
  iso_lanes q_lanes = {0}, xq_lanes = {0}, qq_lanes = {0};
  for (int i = 0; i < p->count; i += ISO_LANES) {
    iso_lanes value = iso_lanes_load(p->values + i);
    iso_lanes code = iso_lanes_code((value - start) * inverse + 0.5f, (float)p->top);
    iso_lanes wq = iso_lanes_load(p->weights + i) * code;
    q_lanes += wq;
    xq_lanes += wq * value;
    qq_lanes += wq * code;
  }
  float q = iso_lanes_sum(q_lanes), xq = iso_lanes_sum(xq_lanes), qq = iso_lanes_sum(qq_lanes);
  if (!(p->w > 0))
    return false;
  /* When all weight lies on one code, sums cannot tell the slope: keep the one that was tried. */
  float determinant = p->w * qq - q * q, scale = 1 / inverse;
  if (determinant > 1e-5f * p->w * qq)
    scale = (p->w * xq - p->x * q) / determinant;
  float minimum = (p->x - scale * q) / p->w;
  if (minimum > p->ceiling) {
    minimum = p->ceiling;
    scale = qq > 0 ? (xq - minimum * q) / qq : scale;
  }
  float error =
      p->xx + scale * (scale * qq - 2 * xq) + minimum * (minimum * p->w - 2 * p->x + 2 * scale * q);
  if (!(scale > 0 && error < best->error))
    return false;
  *best = (line_fit){error, scale, minimum};
  return true;
}

static void find_range(const float *x, int count, float *out_low, float *out_high) {
  float low = x[0], high = x[0];
  for (int i = 1; i < count; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  *out_low = low;
  *out_high = high;
}

void iso_fit_line(const float *x, const float *weights, int count, int top, bool any_minimum,
                  float *out_scale, float *out_minimum) {
  float low, high;
  find_range(x, count, &low, &high);
  low = any_minimum || low < 0 ? low : 0;
  *out_scale = 0;
  *out_minimum = low;
  float range = high - low;
  if (range < ISO_FIT_TINY)
    return;
  line_problem problem = {
      .weights = weights, .count = count, .top = top, .ceiling = any_minimum ? FLT_MAX : -low};
  line_set_up(&problem, x, low);
  line_fit best = {FLT_MAX, range / (float)top, 0};
  for (int step = LINE_FIRST; step <= LINE_LAST; step++)
    (void)try_line(&problem, ((float)top * (1 + SEARCH_STEP * (float)step)) / range, 0, &best);
  for (int round = 0; round < REFINEMENTS; round++)
    if (!try_line(&problem, 1 / best.scale, best.minimum, &best))
      break;
  *out_scale = best.scale;
  *out_minimum = low + best.minimum;
}

uint16_t iso_fit_scaled_block(const float *values, const float *importance, int half_range,
                              uint8_t codes[ISO_BLOCK_ELEMENTS]) {
  float x[ISO_BLOCK_ELEMENTS], weights[ISO_BLOCK_ELEMENTS];
  float offset = (float)half_range, top = (float)(2 * half_range - 1);
  iso_fit_load(values, ISO_HALF_MAX * offset, ISO_BLOCK_ELEMENTS, x);
  float scale = iso_fit_peak(x, ISO_BLOCK_ELEMENTS) / -offset;
  if (importance) {
    iso_fit_weigh(importance, ISO_BLOCK_ELEMENTS, weights);
    scale = iso_fit_scale(x, weights, ISO_BLOCK_ELEMENTS, half_range, 2 * half_range - 1);
    scale = iso_half_to_float(iso_fit_half(scale));
  }
  float inverse = iso_fit_inverse(scale);
  for (int i = 0; i < ISO_BLOCK_ELEMENTS; i++)
    codes[i] = (uint8_t)iso_fit_code(x[i] * inverse, offset, top);
  return iso_fit_half(scale);
}

void iso_fit_line_block(const float *values, const float *importance, int top, uint16_t *out_scale,
                        uint16_t *out_minimum, uint8_t codes[ISO_BLOCK_ELEMENTS]) {
  float x[ISO_BLOCK_ELEMENTS], weights[ISO_BLOCK_ELEMENTS], minimum, high;
  iso_fit_load(values, ISO_HALF_MAX, ISO_BLOCK_ELEMENTS, x);
  find_range(x, ISO_BLOCK_ELEMENTS, &minimum, &high);
  float scale = (high - minimum) / (float)top;
  if (importance) {
    iso_fit_weigh(importance, ISO_BLOCK_ELEMENTS, weights);
    iso_fit_line(x, weights, ISO_BLOCK_ELEMENTS, top, true, &scale, &minimum);
    scale = iso_half_to_float(iso_fit_half(scale));
    minimum = iso_half_to_float(iso_fit_half(minimum));
  }
  float inverse = iso_fit_inverse(scale);
  for (int i = 0; i < ISO_BLOCK_ELEMENTS; i++)
    codes[i] = (uint8_t)iso_fit_code((x[i] - minimum) * inverse, 0, (float)top);
  *out_scale = iso_fit_half(scale);
  *out_minimum = iso_fit_half(minimum);
}
