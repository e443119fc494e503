#include "quant/fit_group.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#define N ISO_GROUP_ELEMENTS

void iso_group_clean(const float *values, float *out_values) {
  const float most = FLT_MAX / 2;
  for (int i = 0; i < N; i++) {
    float value = isnan(values[i]) ? 0.0f : values[i];
    out_values[i] = value > most ? most : value < -most ? -most : value;
  }
}

float iso_group_peak(const float *values) {
  float peak = 0;
  for (int i = 0; i < N; i++)
    peak = fmaxf(peak, fabsf(values[i]));
  return peak;
}

float iso_group_quotient(float value, float scale) {
  return scale != 0 ? (float)((double)value / (double)scale) : 0.0f;
}

/* Weights relative to the largest, so that their unit means nothing; false when none is usable. */
static bool relative_weights(const float *importance, float *out_weights) {
  float largest = 0;
  for (int i = 0; i < N; i++)
    if (importance[i] > largest && importance[i] <= FLT_MAX)
      largest = importance[i];
  for (int i = 0; i < N; i++)
    out_weights[i] =
        importance[i] > 0 && importance[i] <= FLT_MAX ? importance[i] / largest : 0.0f;
  return largest > 0;
}

float iso_group_scale(const float *values, const float *importance, float scale, int zero,
                      iso_group_nearest nearest) {
  enum { STEPS = 64 };
  float weights[N], best = scale;
  if (!importance || !relative_weights(importance, weights))
    return scale;
  double least = DBL_MAX;
  for (int step = 0; step < STEPS; step++) {
    float candidate = scale * (1 - 0.5f * (float)step / STEPS);
    double error = 0;
    for (int i = 0; i < N; i++) {
      double rounded = nearest(iso_group_quotient(values[i], candidate), zero);
      double difference = rounded * (double)candidate - (double)values[i];
      error += (double)weights[i] * difference * difference;
    }
    if (error < least) {
      least = error;
      best = candidate;
    }
  }
  return best;
}
