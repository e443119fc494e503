/* Super-blocks: sub-block scales are small integers that one half multiplies.
 *
 * First every sub-block is fitted alone. Then integers and halves are chosen in turn, each with
 * the other fixed and judged by the codes that really follow from both: the neighbours of every
 * integer are tried, then the halves are solved by least squares. */
#include "quant/fit.h"
#include "quant/half.h"
#include "quant/lanes.h"

enum { MAX_SUBS = 16, ROUNDS = 2, REACH = 1 };

typedef struct super_state {
  const iso_super_format *format;
  int subs;
  float scale, minimum;                     /* halves, as floats */
  int scales[MAX_SUBS], minimums[MAX_SUBS]; /* integers */
  float x[ISO_SUPER_ELEMENTS], weights[ISO_SUPER_ELEMENTS];
} super_state;

/* The nearest half; -0, which a block of zeros would give, becomes 0. */
static float round_half(float value) { return iso_half_to_float(iso_fit_half(value)) + 0.0f; }

static int clamp(int value, int low, int high) {
  return value < low ? low : value > high ? high : value;
}

/* Weighted squared error of one sub-block under these integers, with the nearest codes. */
static float sub_error(const super_state *s, int sub, int scale_integer, int minimum_integer) {
  const iso_super_format *f = s->format;
  const float *x = s->x + sub * f->sub_elements, *weights = s->weights + sub * f->sub_elements;
  float scale = s->scale * (float)scale_integer, minimum = s->minimum * (float)minimum_integer;
  float inverse = iso_fit_inverse(scale);
  iso_lanes sum = {0};
  for (int i = 0; i < f->sub_elements; i += ISO_LANES) {
    iso_lanes shifted = iso_lanes_load(x + i) + minimum;
    iso_lanes code = iso_lanes_code(shifted * inverse + ((float)f->offset + 0.5f), (float)f->top);
    iso_lanes difference = (code - (float)f->offset) * scale - shifted;
    sum += iso_lanes_load(weights + i) * difference * difference;
  }
  return iso_lanes_sum(sum);
}

static float total_error(const super_state *s) {
  float error = 0;
  for (int sub = 0; sub < s->subs; sub++)
    error += sub_error(s, sub, s->scales[sub], s->minimums[sub]);
  return error;
}

static void choose_codes(const super_state *s, int sub, uint8_t *out_codes) {
  const iso_super_format *f = s->format;
  float minimum = s->minimum * (float)s->minimums[sub];
  float inverse = iso_fit_inverse(s->scale * (float)s->scales[sub]);
  for (int i = 0; i < f->sub_elements; i++)
    out_codes[i] = (uint8_t)iso_fit_code((s->x[sub * f->sub_elements + i] + minimum) * inverse,
                                         (float)f->offset, (float)f->top);
}

/* Moves every pair of integers to the best within reach. */
static void choose_integers(super_state *s) {
  const iso_super_format *f = s->format;
  int minimum_reach = f->has_minimums ? REACH : 0;
  for (int sub = 0; sub < s->subs; sub++) {
    int first_scale = clamp(s->scales[sub] - REACH, f->low, f->high);
    int last_scale = clamp(s->scales[sub] + REACH, f->low, f->high);
    int first_minimum = clamp(s->minimums[sub] - minimum_reach, 0, f->high);
    int last_minimum = clamp(s->minimums[sub] + minimum_reach, 0, f->high);
    float best = sub_error(s, sub, s->scales[sub], s->minimums[sub]);
    for (int minimum = first_minimum; minimum <= last_minimum; minimum++)
      for (int scale = first_scale; scale <= last_scale; scale++) {
        float error = sub_error(s, sub, scale, minimum);
        if (error < best) {
          best = error;
          s->scales[sub] = scale;
          s->minimums[sub] = minimum;
        }
      }
  }
}

/* Solves x ~ scale * a + minimum * b for the two halves, a and b from the present codes and
 * integers; keeps the solution if its nearest codes lessen the error. */
static void choose_halves(super_state *s) {
  const iso_super_format *f = s->format;
  double aa = 0, bb = 0, ab = 0, xa = 0, xb = 0;
  for (int sub = 0; sub < s->subs; sub++) {
    uint8_t codes[ISO_BLOCK_ELEMENTS];
    choose_codes(s, sub, codes);
    for (int i = 0; i < f->sub_elements; i++) {
      double x = s->x[sub * f->sub_elements + i], w = s->weights[sub * f->sub_elements + i];
      double a = s->scales[sub] * (codes[i] - f->offset), b = -s->minimums[sub];
      aa += w * a * a;
      bb += w * b * b;
      ab += w * a * b;
      xa += w * a * x;
      xb += w * b * x;
    }
  }
  float scale = s->scale, minimum = s->minimum, before = total_error(s);
  double determinant = aa * bb - ab * ab;
  if (determinant > 1e-9 * aa * bb) {
    s->scale = round_half((float)((xa * bb - xb * ab) / determinant));
    double solved = (xb * aa - xa * ab) / determinant;
    s->minimum = solved > 0 ? round_half((float)solved) : 0;
  } else if (aa > 0) {
    s->scale = round_half((float)((xa - minimum * ab) / aa));
  }
  if (!(total_error(s) < before)) {
    s->scale = scale;
    s->minimum = minimum;
  }
}

/* Fits every sub-block alone and rounds the results to integers. */
static void choose_first(super_state *s) {
  const iso_super_format *f = s->format;
  float scales[MAX_SUBS], minimums[MAX_SUBS] = {0};
  for (int sub = 0; sub < s->subs; sub++) {
    const float *x = s->x + sub * f->sub_elements, *weights = s->weights + sub * f->sub_elements;
    if (f->has_minimums)
      iso_fit_line(x, weights, f->sub_elements, f->top, false, &scales[sub], &minimums[sub]);
    else
      scales[sub] = iso_fit_scale(x, weights, f->sub_elements, f->offset, f->top);
  }
  /* The largest gets the integer of largest magnitude. */
  float full = (float)(f->low < 0 ? f->low : f->high);
  s->scale = round_half(iso_fit_peak(scales, s->subs) / full);
  s->minimum = round_half(-iso_fit_peak(minimums, s->subs) / (float)f->high);
  float scale_inverse = iso_fit_inverse(s->scale), minimum_inverse = iso_fit_inverse(s->minimum);
  for (int sub = 0; sub < s->subs; sub++) {
    s->scales[sub] =
        iso_fit_code(scales[sub] * scale_inverse, (float)-f->low, (float)(f->high - f->low)) +
        f->low;
    s->minimums[sub] = iso_fit_code(-minimums[sub] * minimum_inverse, 0, (float)f->high);
  }
}

void iso_fit_super(const iso_super_format *format, const float *values, const float *importance,
                   iso_super_fit *out_fit) {
  super_state s = {.format = format, .subs = ISO_SUPER_ELEMENTS / format->sub_elements};
  /* Within this limit every scale and minimum that fits the values is a finite half. */
  iso_fit_load(values, ISO_HALF_MAX * (float)format->high, ISO_SUPER_ELEMENTS, s.x);
  iso_fit_weigh(importance, ISO_SUPER_ELEMENTS, s.weights);
  choose_first(&s);
  for (int round = 0; round < ROUNDS; round++) {
    choose_integers(&s);
    choose_halves(&s);
  }
  out_fit->scale = iso_fit_half(s.scale);
  out_fit->minimum = iso_fit_half(s.minimum);
  for (int sub = 0; sub < s.subs; sub++) {
    out_fit->scales[sub] = (int8_t)s.scales[sub];
    out_fit->minimums[sub] = (int8_t)s.minimums[sub];
    choose_codes(&s, sub, out_fit->codes + sub * format->sub_elements);
  }
}
