/* Scales of groups of 128, kept in full precision. */
#ifndef ISOMER_QUANT_FIT_GROUP_H
#define ISOMER_QUANT_FIT_GROUP_H

#include "quant/blocks.h"

/* The code nearest to `quotient`, as a number, for the codes a scheme has with this zero point. */
typedef float (*iso_group_nearest)(float quotient, int zero);

/* NaN becomes zero, and magnitudes end where a rounded-up product is still finite. */
void iso_group_clean(const float *values, float *out_values);
float iso_group_peak(const float *values);
/* value / scale, 0 for a scale of 0. */
float iso_group_quotient(float value, float scale);
/* `scale` as it is without importances. With them, the scale from half of it up to it whose codes
 * have the least sum of importance times squared error. */
float iso_group_scale(const float *values, const float *importance, float scale, int zero,
                      iso_group_nearest nearest);

#endif
