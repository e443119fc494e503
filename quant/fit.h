/* Choosing scales: the arithmetic that every block encoder shares.
 *
 * An encoder looks for the scale (and minimum) whose nearest codes leave the least weighted
 * squared error, sum of w[i] * (x[i] - decoded[i])^2. Weights are the caller's importances, or
 * one each: the plain mean squared error. With w[i] the mean square of the activation that
 * meets weight i, the sum is the expected squared error of a dot product with uncorrelated
 * activations, so importances are used as they come.
 *
 * Pure functions, no allocation, any thread. `values` are raw: NaN counts as 0 and magnitudes
 * are clamped to what the scheme can hold. `importance` is NULL or one weight an element;
 * negative and NaN weights count as 0. Codes come out as stored, from 0 up. */
#ifndef ISOMER_QUANT_FIT_H
#define ISOMER_QUANT_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/blocks.h"

/* Largest finite half; no scale exceeds it. */
#define ISO_HALF_MAX 65504.0f
/* Magnitudes below this are zero under any half scale, and their inverses could overflow. */
#define ISO_FIT_TINY 1e-30f

/* --- blocks of 32 ---
 * Without importances these give bit for bit what the format's reference encoder gives: the
 * extreme values set the scale. With importances the scale is searched. */

/* x[i] ~ scale * (codes[i] - half_range), codes below 2 * half_range. Returns scale, a half. */
uint16_t iso_fit_scaled_block(const float *values, const float *importance, int half_range,
                              uint8_t codes[ISO_BLOCK_ELEMENTS]);

/* x[i] ~ scale * codes[i] + minimum, codes up to `top`. */
void iso_fit_line_block(const float *values, const float *importance, int top, uint16_t *out_scale,
                        uint16_t *out_minimum, uint8_t codes[ISO_BLOCK_ELEMENTS]);

/* --- super-blocks of 256 ---
 * With s the sub-block of element i:
 *   x[i] ~ (scale * scales[s]) * (codes[i] - offset) - minimum * minimums[s] */

typedef struct iso_super_format {
  int sub_elements;  /* 16 or 32 */
  int offset, top;   /* codes lie in 0 .. top */
  int low, high;     /* scales lie in low .. high, minimums in 0 .. high */
  bool has_minimums; /* when false, every minimum is 0 */
} iso_super_format;

typedef struct iso_super_fit {
  uint16_t scale, minimum; /* half */
  int8_t scales[16], minimums[16];
  uint8_t codes[ISO_SUPER_ELEMENTS];
} iso_super_fit;

void iso_fit_super(const iso_super_format *format, const float *values, const float *importance,
                   iso_super_fit *out_fit);

/* --- parts of the above, for encoders with codes of their own ---
 * x and weights come from iso_fit_load and iso_fit_weigh, which take any count; the searches take
 * a multiple of 4 up to ISO_BLOCK_ELEMENTS. */

/* Copies values, NaN as 0, clamped to -limit .. limit. */
void iso_fit_load(const float *values, float limit, int count, float *out_values);

/* Importances divided by their largest, so that sums neither overflow nor vanish. All ones when
 * `importance` is NULL or has no positive number. */
void iso_fit_weigh(const float *importance, int count, float *out_weights);

/* 1 / scale, and 0 for 0, so that a zero scale gives one code for everything. */
static inline float iso_fit_inverse(float scale) { return scale == 0 ? 0 : 1 / scale; }

/* The code nearest to scaled + offset, ties up, in 0 .. top. NaN gives 0. */
static inline int iso_fit_code(float scaled, float offset, float top) {
  float shifted = scaled + (offset + 0.5f);
  shifted = shifted > 0 ? shifted : 0;
  return (int)(shifted < top ? shifted : top);
}

/* The nearest half to a scale, saturated at the largest finite one. */
uint16_t iso_fit_half(float scale);

/* The value of largest magnitude, the first of equals. */
float iso_fit_peak(const float *x, int count);

/* Best scale, of either sign, for x[i] ~ scale * (code - offset), codes in 0 .. top. Zero for an
 * all-zero block. */
float iso_fit_scale(const float *x, const float *weights, int count, int offset, int top);

/* Best line for x[i] ~ scale * code + minimum, codes in 0 .. top, scale >= 0; minimum <= 0
 * unless `any_minimum`. */
void iso_fit_line(const float *x, const float *weights, int count, int top, bool any_minimum,
                  float *out_scale, float *out_minimum);

#endif
