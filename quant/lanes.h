/* Four floats side by side, in the vector notation that gcc and clang share: the searches keep
 * their sums in fixed lanes, so the order of additions, and with it every result, is the same on
 * any machine, with or without vector instructions. */
#ifndef ISOMER_QUANT_LANES_H
#define ISOMER_QUANT_LANES_H

#include <stdint.h>
#include <string.h>

enum { ISO_LANES = 4 };
typedef float iso_lanes __attribute__((vector_size(16)));
typedef int32_t iso_int_lanes __attribute__((vector_size(16)));

static inline iso_lanes iso_lanes_load(const float *from) {
  iso_lanes lanes;
  memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

static inline float iso_lanes_sum(iso_lanes lanes) {
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

/* `yes` where the mask is all ones, 0 elsewhere. */
static inline iso_lanes iso_lanes_keep(iso_int_lanes mask, iso_lanes yes) {
  return (iso_lanes)(mask & (iso_int_lanes)yes);
}

/* shifted truncated to an integer in 0 .. top; NaN is 0. */
static inline iso_lanes iso_lanes_code(iso_lanes shifted, float top) {
  iso_lanes tops = {top, top, top, top};
  shifted = iso_lanes_keep(shifted > 0, shifted);
  iso_int_lanes below = shifted < tops;
  shifted = iso_lanes_keep(below, shifted) + iso_lanes_keep(~below, tops);
  return __builtin_convertvector(__builtin_convertvector(shifted, iso_int_lanes), iso_lanes);
}

#endif
