/* Transcendental functions on vectors, the same polynomials on every tier. Coefficients are
 * minimax fits of our own (relative error), evaluated in f32. */
#ifndef ISOMER_BACKENDS_CPU_SIMD_MATH_H
#define ISOMER_BACKENDS_CPU_SIMD_MATH_H

#include "backends/cpu/simd.h"

#include <math.h>

/* e^x within 2 ulp; NaN stays, overflow gives infinity, underflow goes through the subnormals.
 * x = n ln 2 + r with ln 2 in two parts, the first exact when multiplied by n. */
static inline vfloat v_exp(vfloat x) {
  x = v_min(v_set(90.0f), v_max(v_set(-106.0f), x));
  vfloat n = v_round(v_mul(x, v_set(1.44269504f)));
  vfloat r = v_fma(n, v_set(-0.693359375f), x);
  r = v_fma(n, v_set(2.12194440e-4f), r);
  vfloat q = v_set(1.381454008e-03f);
  q = v_fma(q, r, v_set(8.368745108e-03f));
  q = v_fma(q, r, v_set(4.166839079e-02f));
  q = v_fma(q, r, v_set(1.666652040e-01f));
  q = v_fma(q, r, v_set(4.999999343e-01f));
  vfloat e = v_add(v_fma(q, v_mul(r, r), r), v_set(1.0f));
  return v_scale2(e, n);
}

/* Within 3 ulp: an odd polynomial near zero, where the exponentials would cancel. */
static inline vfloat v_tanh(vfloat x) {
  vfloat size = v_abs(x), square = v_mul(x, x);
  vfloat t = v_set(2.147540049e-03f);
  t = v_fma(t, square, v_set(-8.182677619e-03f));
  t = v_fma(t, square, v_set(2.170296877e-02f));
  t = v_fma(t, square, v_set(-5.394720461e-02f));
  t = v_fma(t, square, v_set(1.333320977e-01f));
  t = v_fma(t, square, v_set(-3.333333091e-01f));
  vfloat near = v_fma(v_mul(t, square), x, x);
  vfloat e = v_exp(v_add(size, size));
  vfloat far = v_sub(v_set(1.0f), v_div(v_set(2.0f), v_add(e, v_set(1.0f))));
  far = v_select(v_less(x, v_set(0.0f)), v_sub(v_set(0.0f), far), far);
  return v_select(v_less(size, v_set(0.625f)), near, far);
}

/* erfc(z) for z >= 0, as e^(-z^2) times a polynomial in 1 / (1 + z / 3); relative error 1e-6
 * where the result is above 1e-12. */
static inline vfloat v_erfc(vfloat z) {
  z = v_min(v_set(10.0f), z);
  vfloat t = v_div(v_set(1.0f), v_fma(z, v_set(1.0f / 3.0f), v_set(1.0f)));
  static const float COEFFICIENTS[] = {
      -3.010761561e-01f, 5.584816820e-01f, -4.747232140e-01f, 4.351574107e-01f, -2.186285326e-02f,
      2.006372946e-01f,  1.690125442e-01f, 1.891231054e-01f,  1.879902309e-01f, 2.069652822e-06f};
  vfloat p = v_set(5.725788733e-02f);
  for (int i = 0; i < (int)(sizeof COEFFICIENTS / sizeof COEFFICIENTS[0]); i++)
    p = v_fma(p, t, v_set(COEFFICIENTS[i]));
  return v_mul(p, v_exp(v_sub(v_set(0.0f), v_mul(z, z))));
}

/* Sine and cosine, within 2 ulp of the larger of the two. x = n pi / 2 + r with pi / 2 in three
 * parts: one FMA with the first is exact, so |x| may be as large as 1e6. Lanes beyond, and tiers
 * without FMA, go through the C library. */
static inline void v_sincos(vfloat x, vfloat *out_sin, vfloat *out_cos) {
#if V_HAS_FMA
  if (v_largest(v_abs(x)) < 1e6f) {
    vfloat n = v_round(v_mul(x, v_set(0.636619772f)));
    vfloat r = v_fma(n, v_set(-1.57079637f), x);
    r = v_fma(n, v_set(4.37113883e-08f), r);
    r = v_fma(n, v_set(1.71512451e-15f), r);
    vfloat u = v_mul(r, r);
    vfloat s = v_fma(v_set(-1.951665581e-04f), u, v_set(8.332173543e-03f));
    s = v_fma(s, u, v_set(-1.666665487e-01f));
    s = v_fma(v_mul(s, u), r, r);
    vfloat c = v_fma(v_set(2.443773010e-05f), u, v_set(-1.388736145e-03f));
    c = v_fma(c, u, v_set(4.166664675e-02f));
    c = v_fma(v_mul(c, u), u, v_fma(u, v_set(-0.5f), v_set(1.0f)));
    /* The quarter turn n mod 4 as 0, 0.25, +-0.5 or -0.25. */
    vfloat turn = v_mul(n, v_set(0.25f)), zero = v_set(0.0f);
    turn = v_sub(turn, v_round(turn));
    vfloat half = v_set(0.4f), quarter = v_set(0.2f);
    vmask is_odd = v_less(v_abs(v_sub(v_abs(turn), v_set(0.25f))), v_set(0.1f));
    vfloat sine = v_select(is_odd, c, s), cosine = v_select(is_odd, s, c);
    sine = v_select(v_less(turn, v_sub(zero, quarter)), v_sub(zero, sine),
                    v_select(v_less(half, turn), v_sub(zero, sine), sine));
    cosine = v_select(v_less(quarter, turn), v_sub(zero, cosine),
                      v_select(v_less(turn, v_sub(zero, half)), v_sub(zero, cosine), cosine));
    *out_sin = sine;
    *out_cos = cosine;
    return;
  }
#endif
  float values[V_WIDTH], sines[V_WIDTH], cosines[V_WIDTH];
  v_store(values, x);
  for (int i = 0; i < V_WIDTH; i++) {
    sines[i] = sinf(values[i]);
    cosines[i] = cosf(values[i]);
  }
  *out_sin = v_load(sines);
  *out_cos = v_load(cosines);
}

static inline vfloat v_sigmoid(vfloat x) {
  return v_div(v_set(1.0f), v_add(v_set(1.0f), v_exp(v_sub(v_set(0.0f), x))));
}
static inline vfloat v_silu(vfloat x) {
  return v_div(x, v_add(v_set(1.0f), v_exp(v_sub(v_set(0.0f), x))));
}
/* 0.5 (1 + tanh(u)) is sigmoid(2 u), which keeps its precision for negative u. */
static inline vfloat v_gelu_tanh(vfloat x) {
  vfloat u = v_mul(
      x, v_fma(v_mul(x, x), v_set(2.0f * 0.7978845608f * 0.044715f), v_set(2.0f * 0.7978845608f)));
  return v_mul(x, v_sigmoid(u));
}
static inline vfloat v_gelu_erf(vfloat x) {
  vfloat tail = v_mul(v_set(0.5f), v_erfc(v_mul(v_abs(x), v_set(0.7071067812f))));
  return v_mul(x, v_select(v_less(x, v_set(0.0f)), tail, v_sub(v_set(1.0f), tail)));
}

#endif
