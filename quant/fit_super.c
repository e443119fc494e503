/* Super-blocks: sub-block scales are small integers that one half multiplies.
 *
 * First every sub-block is fitted alone. Then the integers and the halves are chosen in turn,
 * each with the other fixed and with the codes that really follow from both: neighbours of every
 * integer are tried, then the halves are solved by least squares. */
#include <float.h>
#include <math.h>

#include "quant/fit.h"
#include "quant/half.h"

enum { LANES = 8, MAX_SUBS = 16, ROUNDS = 2 };

static float sum_lanes(const float lanes[LANES]) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

static float round_half(float value) { return iso_half_to_float(iso_fit_half(value)); }

/* Weighted squared error of x ~ scale * (code - offset) + minimum with the nearest codes. */
static float code_error(const float *x, const float *weights, int count, float scale, float minimum,
                        int offset, int top) {
  float inverse = iso_fit_inverse(scale), lanes[LANES] = {0};
  for (int i = 0; i < count; i += LANES)
    for (int l = 0; l < LANES; l++) {
      float code = (float)iso_fit_code((x[i + l] - minimum) * inverse, (float)offset, (float)top);
      float difference = scale * (code - (float)offset) + minimum - x[i + l];
      lanes[l] += weights[i + l] * difference * difference;
    }
  return sum_lanes(lanes);
}

static void choose_codes(const float *x, int count, float scale, float minimum, int offset, int top,
                         uint8_t *out_codes) {
  float inverse = iso_fit_inverse(scale);
  for (int i = 0; i < count; i++)
    out_codes[i] = iso_fit_code((x[i] - minimum) * inverse, (float)offset, (float)top);
}

static int clamp(int value, int low, int high) {
  return value < low ? low : value > high ? high : value;
}

/* --- scale and minimum --- */

typedef struct affine_state {
  const iso_affine_format *format;
  float x[ISO_SUPER_ELEMENTS], weights[ISO_SUPER_ELEMENTS];
  float scale, minimum;                     /* halves, as floats */
  int scales[MAX_SUBS], minimums[MAX_SUBS]; /* integers */
} affine_state;

static float affine_error(const affine_state *s, int sub, int scale, int minimum) {
  int n = s->format->sub_elements;
  return code_error(s->x + sub * n, s->weights + sub * n, n, s->scale * (float)scale,
                    -s->minimum * (float)minimum, 0, s->format->top);
}

static float affine_total_error(const affine_state *s) {
  float error = 0;
  for (int sub = 0; sub < ISO_SUPER_ELEMENTS / s->format->sub_elements; sub++)
    error += affine_error(s, sub, s->scales[sub], s->minimums[sub]);
  return error;
}

static void affine_choose_integers(affine_state *s) {
  int top = s->format->top_scale;
  for (int sub = 0; sub < ISO_SUPER_ELEMENTS / s->format->sub_elements; sub++) {
    int scale = s->scales[sub], minimum = s->minimums[sub];
    float best = FLT_MAX;
    for (int m = clamp(minimum - 1, 0, top); m <= clamp(minimum + 1, 0, top); m++)
      for (int k = clamp(scale - 1, 0, top); k <= clamp(scale + 1, 0, top); k++) {
        float error = affine_error(s, sub, k, m);
        if (error < best) {
          best = error;
          s->scales[sub] = k;
          s->minimums[sub] = m;
        }
      }
  }
}

/* Solves the two halves with codes and integers fixed; keeps them where that helps. */
static void affine_refit_halves(affine_state *s) {
  int n = s->format->sub_elements;
  double aa = 0, bb = 0, ab = 0, xa = 0, xb = 0;
  for (int sub = 0; sub < ISO_SUPER_ELEMENTS / n; sub++) {
    const float *x = s->x + sub * n, *weights = s->weights + sub * n;
    uint8_t codes[32];
    choose_codes(x, n, s->scale * (float)s->scales[sub], -s->minimum * (float)s->minimums[sub], 0,
                 s->format->top, codes);
    for (int i = 0; i < n; i++) {
      double a = s->scales[sub] * codes[i], b = -s->minimums[sub], w = weights[i];
      aa += w * a * a;
      bb += w * b * b;
      ab += w * a * b;
      xa += w * a * x[i];
      xb += w * b * x[i];
    }
  }
  double determinant = aa * bb - ab * ab;
  affine_state old = {.scale = s->scale, .minimum = s->minimum};
  float before = affine_total_error(s);
  if (determinant > 1e-9 * aa * bb) {
    s->scale = round_half((float)fmax((xa * bb - xb * ab) / determinant, 0));
    s->minimum = round_half((float)fmax((xb * aa - xa * ab) / determinant, 0));
  } else if (aa > 0) {
    s->scale = round_half((float)fmax((xa - s->minimum * ab) / aa, 0));
  }
  if (!(affine_total_error(s) < before)) {
    s->scale = old.scale;
    s->minimum = old.minimum;
  }
}

void iso_fit_affine(const iso_affine_format *format, const float *values, const float *importance,
                    iso_affine_block *out_block) {
  affine_state s = {.format = format};
  int n = format->sub_elements, subs = ISO_SUPER_ELEMENTS / n;
  iso_fit_load(values, ISO_HALF_MAX * (float)format->top_scale, ISO_SUPER_ELEMENTS, s.x);
  iso_fit_weigh(importance, ISO_SUPER_ELEMENTS, s.weights);
  float scales[MAX_SUBS], minimums[MAX_SUBS], top_scale = 0, top_minimum = 0;
  for (int sub = 0; sub < subs; sub++) {
    iso_fit_line(s.x + sub * n, s.weights + sub * n, n, format->top, false, &scales[sub],
                 &minimums[sub]);
    top_scale = fmaxf(top_scale, scales[sub]);
    top_minimum = fmaxf(top_minimum, -minimums[sub]);
  }
  s.scale = round_half(top_scale / (float)format->top_scale);
  s.minimum = round_half(top_minimum / (float)format->top_scale);
  for (int sub = 0; sub < subs; sub++) {
    float top = (float)format->top_scale;
    s.scales[sub] = iso_fit_code(scales[sub] * iso_fit_inverse(s.scale), 0, top);
    s.minimums[sub] = iso_fit_code(-minimums[sub] * iso_fit_inverse(s.minimum), 0, top);
  }
  for (int round = 0; round < ROUNDS; round++) {
    affine_choose_integers(&s);
    affine_refit_halves(&s);
  }
  out_block->scale = iso_fit_half(s.scale);
  out_block->minimum = iso_fit_half(s.minimum);
  for (int sub = 0; sub < subs; sub++) {
    out_block->scales[sub] = (uint8_t)s.scales[sub];
    out_block->minimums[sub] = (uint8_t)s.minimums[sub];
    choose_codes(s.x + sub * n, n, s.scale * (float)s.scales[sub],
                 -s.minimum * (float)s.minimums[sub], 0, format->top, out_block->codes + sub * n);
  }
}

/* --- scale alone --- */

typedef struct symmetric_state {
  const iso_symmetric_format *format;
  float x[ISO_SUPER_ELEMENTS], weights[ISO_SUPER_ELEMENTS];
  float scale;
  int scales[MAX_SUBS];
} symmetric_state;

enum { SUB = 16 };

static float symmetric_error(const symmetric_state *s, int sub, int scale) {
  int half_range = s->format->half_range;
  return code_error(s->x + sub * SUB, s->weights + sub * SUB, SUB, s->scale * (float)scale, 0,
                    half_range, 2 * half_range - 1);
}

static float symmetric_total_error(const symmetric_state *s) {
  float error = 0;
  for (int sub = 0; sub < MAX_SUBS; sub++)
    error += symmetric_error(s, sub, s->scales[sub]);
  return error;
}

static void symmetric_choose_integers(symmetric_state *s) {
  int low = -s->format->scale_range, high = s->format->scale_range - 1;
  for (int sub = 0; sub < MAX_SUBS; sub++) {
    int scale = s->scales[sub];
    float best = FLT_MAX;
    for (int k = clamp(scale - 1, low, high); k <= clamp(scale + 1, low, high); k++) {
      float error = symmetric_error(s, sub, k);
      if (error < best) {
        best = error;
        s->scales[sub] = k;
      }
    }
  }
}

static void symmetric_refit_half(symmetric_state *s) {
  int half_range = s->format->half_range;
  double aa = 0, xa = 0;
  for (int sub = 0; sub < MAX_SUBS; sub++) {
    const float *x = s->x + sub * SUB, *weights = s->weights + sub * SUB;
    uint8_t codes[SUB];
    choose_codes(x, SUB, s->scale * (float)s->scales[sub], 0, half_range, 2 * half_range - 1,
                 codes);
    for (int i = 0; i < SUB; i++) {
      double a = s->scales[sub] * (codes[i] - half_range), w = weights[i];
      aa += w * a * a;
      xa += w * a * x[i];
    }
  }
  if (!(aa > 0))
    return;
  float old = s->scale, before = symmetric_total_error(s);
  s->scale = round_half((float)(xa / aa));
  if (!(symmetric_total_error(s) < before))
    s->scale = old;
}

void iso_fit_symmetric(const iso_symmetric_format *format, const float *values,
                       const float *importance, iso_symmetric_block *out_block) {
  symmetric_state s = {.format = format};
  int half_range = format->half_range, scale_range = format->scale_range;
  iso_fit_load(values, ISO_HALF_MAX * (float)half_range * (float)scale_range, ISO_SUPER_ELEMENTS,
               s.x);
  iso_fit_weigh(importance, ISO_SUPER_ELEMENTS, s.weights);
  float scales[MAX_SUBS], peak = 0;
  for (int sub = 0; sub < MAX_SUBS; sub++) {
    scales[sub] =
        iso_fit_scale(s.x + sub * SUB, s.weights + sub * SUB, SUB, half_range, 2 * half_range - 1);
    peak = fabsf(scales[sub]) > fabsf(peak) ? scales[sub] : peak;
  }
  s.scale = round_half(peak / (float)-scale_range);
  float inverse = iso_fit_inverse(s.scale);
  for (int sub = 0; sub < MAX_SUBS; sub++)
    s.scales[sub] =
        iso_fit_code(scales[sub] * inverse, (float)scale_range, (float)(2 * scale_range - 1)) -
        scale_range;
  for (int round = 0; round < ROUNDS; round++) {
    symmetric_choose_integers(&s);
    symmetric_refit_half(&s);
  }
  out_block->scale = iso_fit_half(s.scale);
  for (int sub = 0; sub < MAX_SUBS; sub++) {
    out_block->scales[sub] = (int8_t)s.scales[sub];
    choose_codes(s.x + sub * SUB, SUB, s.scale * (float)s.scales[sub], 0, half_range,
                 2 * half_range - 1, out_block->codes + sub * SUB);
  }
}
