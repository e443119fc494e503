/* One vector of floats: the words in which kernel bodies that serve every tier are written.
 *
 * A body is a file `<name>.inc`; `<name>_baseline.c`, `<name>_avx2.c` and `<name>_avx512.c`
 * define TIER and include it, and the compiler's flags for that file pick the width here:
 *
 *   V_WIDTH            floats in a vfloat
 *   v_load, v_store    unaligned; v_load_n and v_store_n touch only the first `count` < V_WIDTH
 *                      floats, and load zero into the others
 *   v_load_f16, ...    the same from and to 16-bit floats, rounding to nearest even
 *   v_load_bf16_even, v_load_bf16_odd
 *                      every other one of 2 V_WIDTH elements, from the first or the second on
 *   v_load_i8          V_WIDTH signed bytes, by value; v_set_f16 one 16-bit float in every lane
 *   v_load_e4m3        V_WIDTH codes of FP8 E4M3, times 2^-8; exact, NaN stays NaN
 *   v_fma(a, b, c)     a b + c, one rounding where the tier has FMA, two on baseline
 *   v_max, v_min       the second operand where either is NaN
 *   v_less(a, b)       a vmask, false where either is NaN; v_select(m, a, b) is m ? a : b
 *   v_round            to the nearest integer, |x| < 2^22
 *   v_scale2(x, n)     x 2^n, n an integer in [-252, 252]; subnormal and infinite results arise
 *   v_swap_pairs       1, 0, 3, 2, ...
 *   v_sum, v_largest   over the lanes
 *   v_sum4             the sums of four vectors, stored next to each other
 *   v_sum16            those of four times four, each four `stride` floats from the last
 *   v_iota             0, 1, 2, ... */
#ifndef ISOMER_BACKENDS_CPU_SIMD_H
#define ISOMER_BACKENDS_CPU_SIMD_H

#include <isomer/quant.h>

#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "backends/cpu/simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "backends/cpu/simd_avx2.h"
#else
#include "backends/cpu/simd_baseline.h"
#endif

/* ---- Rows of any float scheme --------------------------------------------------------------- */

/* `count` elements from element `index` of a row; V_WIDTH when there are that many. Lanes past
 * the count are zero. */
static inline vfloat v_get(iso_scheme scheme, const void *row, int64_t index, int64_t count) {
  if (scheme == ISO_SCHEME_F32) {
    const float *source = (const float *)row + index;
    return count >= V_WIDTH ? v_load(source) : v_load_n(source, (int)count);
  }
  const uint16_t *source = (const uint16_t *)row + index;
  uint16_t tail[V_WIDTH] = {0};
  if (count < V_WIDTH) {
    memcpy(tail, source, (size_t)count * sizeof *source);
    source = tail;
  }
  return scheme == ISO_SCHEME_F16 ? v_load_f16(source) : v_load_bf16(source);
}

static inline void v_put(iso_scheme scheme, void *row, int64_t index, int64_t count, vfloat value) {
  if (scheme == ISO_SCHEME_F32) {
    float *target = (float *)row + index;
    if (count >= V_WIDTH)
      v_store(target, value);
    else
      v_store_n(target, (int)count, value);
    return;
  }
  uint16_t tail[V_WIDTH];
  uint16_t *target = (uint16_t *)row + index, *place = count < V_WIDTH ? tail : target;
  if (scheme == ISO_SCHEME_F16)
    v_store_f16(place, value);
  else
    v_store_bf16(place, value);
  if (count < V_WIDTH)
    memcpy(target, tail, (size_t)count * sizeof *target);
}

#endif
