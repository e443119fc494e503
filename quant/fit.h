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

/* --- blocks of 32 ---
 * Without importances these give bit for bit what the format's reference encoder gives: the
 * extreme values set the scale. With importances the scale is searched. */

/* x[i] ~ scale * (codes[i] - half_range), codes below 2 * half_range. Returns scale, a half. */
uint16_t iso_fit_scaled_block(const float *values, const float *importance, int half_range,
                              uint8_t codes[ISO_BLOCK_ELEMENTS]);

/* x[i] ~ scale * codes[i] + minimum, codes up to `top`. */
void iso_fit_line_block(const float *values, const float *importance, int top, uint16_t *out_scale,
                        uint16_t *out_minimum, uint8_t codes[ISO_BLOCK_ELEMENTS]);

/* --- super-blocks of 256 --- */

/* Sub-blocks with a scale and a minimum each:
 *   x[i] ~ (scale * scales[s]) * codes[i] - minimum * minimums[s] */
typedef struct iso_affine_format {
  int sub_elements; /* 16 or 32 */
  int top;          /* codes lie in 0 .. top */
  int top_scale;    /* scales and minimums lie in 0 .. top_scale */
} iso_affine_format;

typedef struct iso_affine_block {
  uint16_t scale, minimum; /* half */
  uint8_t scales[16], minimums[16];
  uint8_t codes[ISO_SUPER_ELEMENTS];
} iso_affine_block;

void iso_fit_affine(const iso_affine_format *format, const float *values, const float *importance,
                    iso_affine_block *out_block);

/* 16 sub-blocks of 16 with a signed scale each:
 *   x[i] ~ (scale * scales[s]) * (codes[i] - half_range) */
typedef struct iso_symmetric_format {
  int half_range;  /* codes lie in 0 .. 2 * half_range - 1 */
  int scale_range; /* scales lie in -scale_range .. scale_range - 1 */
} iso_symmetric_format;

typedef struct iso_symmetric_block {
  uint16_t scale; /* half */
  int8_t scales[16];
  uint8_t codes[ISO_SUPER_ELEMENTS];
} iso_symmetric_block;

void iso_fit_symmetric(const iso_symmetric_format *format, const float *values,
                       const float *importance, iso_symmetric_block *out_block);

/* --- parts of the above, for encoders with codes of their own ---
 * `count` is a multiple of 8 up to ISO_SUPER_ELEMENTS. */

/* Copies values, NaN as 0, clamped to -limit .. limit. */
void iso_fit_load(const float *values, float limit, int count, float *out_values);

/* Importances divided by their largest, so that sums neither overflow nor vanish. All ones when
 * `importance` is NULL or has no positive number. */
void iso_fit_weigh(const float *importance, int count, float *out_weights);

/* 1 / scale, and 0 for 0, so that a zero scale gives one code for everything. */
static inline float iso_fit_inverse(float scale) { return scale == 0 ? 0 : 1 / scale; }

/* The stored code nearest to scaled + offset, ties up, in 0 .. top. NaN gives 0. */
static inline uint8_t iso_fit_code(float scaled, float offset, float top) {
  float shifted = scaled + (offset + 0.5f);
  shifted = shifted > 0 ? shifted : 0;
  return (uint8_t)(int)(shifted < top ? shifted : top);
}

/* The nearest half to a scale, saturated at the largest finite one. */
uint16_t iso_fit_half(float scale);

/* Best scale, of either sign, for loaded x[i] ~ scale * (code - half_range), codes in 0 .. top.
 * Zero for an all-zero block. */
float iso_fit_scale(const float *x, const float *weights, int count, int half_range, int top);

/* Best line for loaded x[i] ~ scale * code + minimum, codes in 0 .. top, scale >= 0; minimum <= 0
 * unless `any_minimum`. */
void iso_fit_line(const float *x, const float *weights, int count, int top, bool any_minimum,
                  float *out_scale, float *out_minimum);

#endif
