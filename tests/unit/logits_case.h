/* Logits against those of another implementation. */
#ifndef ISOMER_TESTS_LOGITS_CASE_H
#define ISOMER_TESTS_LOGITS_CASE_H

#include <math.h>

/* The largest error of a row of n, relative to its largest logit. */
static double worst_error(const float *found, const float *expected, int32_t n) {
  double worst = 0, largest = 0;
  for (int32_t i = 0; i < n; i++) {
    double error = fabs((double)found[i] - (double)expected[i]);
    if (!(error <= worst)) /* NaN counts as worst */
      worst = error;
    if (fabs((double)expected[i]) > largest)
      largest = fabs((double)expected[i]);
  }
  return worst / largest;
}

#endif
