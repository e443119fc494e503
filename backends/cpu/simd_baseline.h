/* simd.h for any target: 4 floats in the compiler's own vectors (SSE2, NEON, ...). */
#include "quant/e4m3.h"
#include "quant/half.h"

#define V_WIDTH 4
#define V_HAS_FMA 0
typedef float vfloat __attribute__((vector_size(16)));
typedef int32_t vint_ __attribute__((vector_size(16)));
typedef vint_ vmask;

static inline vint_ v_bits_(vfloat a) {
  vint_ bits;
  memcpy(&bits, &a, sizeof bits);
  return bits;
}
static inline vfloat v_from_bits_(vint_ bits) {
  vfloat a;
  memcpy(&a, &bits, sizeof a);
  return a;
}

static inline vfloat v_set(float a) { return (vfloat){a, a, a, a}; }
static inline vfloat v_load_n(const float *p, int count) {
  vfloat a = {0};
  for (int i = 0; i < count; i++)
    a[i] = p[i];
  return a;
}
static inline void v_store_n(float *p, int count, vfloat a) {
  for (int i = 0; i < count; i++)
    p[i] = a[i];
}
static inline vfloat v_load(const float *p) {
  vfloat a;
  memcpy(&a, p, sizeof a);
  return a;
}
static inline void v_store(float *p, vfloat a) { memcpy(p, &a, sizeof a); }
static inline vfloat v_add(vfloat a, vfloat b) { return a + b; }
static inline vfloat v_sub(vfloat a, vfloat b) { return a - b; }
static inline vfloat v_mul(vfloat a, vfloat b) { return a * b; }
static inline vfloat v_div(vfloat a, vfloat b) { return a / b; }
static inline vfloat v_fma(vfloat a, vfloat b, vfloat c) { return a * b + c; }
static inline vfloat v_select(vmask m, vfloat a, vfloat b) {
  return v_from_bits_((m & v_bits_(a)) | (~m & v_bits_(b)));
}
static inline vmask v_less(vfloat a, vfloat b) { return a < b; }
static inline vfloat v_max(vfloat a, vfloat b) { return v_select(a > b, a, b); }
static inline vfloat v_min(vfloat a, vfloat b) { return v_select(a < b, a, b); }
static inline vfloat v_abs(vfloat a) { return v_from_bits_(v_bits_(a) & 0x7fffffff); }
/* Adding 1.5 2^23 leaves no room for a fraction. */
static inline vfloat v_round(vfloat a) { return (a + 12582912.0f) - 12582912.0f; }
static inline vfloat v_power2_(vint_ n) { return v_from_bits_((n + 127) << 23); }
static inline vfloat v_scale2(vfloat a, vfloat n) {
  vint_ whole = __builtin_convertvector(n, vint_), half = whole >> 1;
  return a * v_power2_(half) * v_power2_(whole - half);
}
static inline vfloat v_swap_pairs(vfloat a) { return (vfloat){a[1], a[0], a[3], a[2]}; }
static inline float v_sum(vfloat a) { return (a[0] + a[2]) + (a[1] + a[3]); }
static inline float v_largest(vfloat a) {
  float left = a[0] > a[2] ? a[0] : a[2], right = a[1] > a[3] ? a[1] : a[3];
  return left > right ? left : right;
}
static inline void v_sum4(float *p, vfloat a, vfloat b, vfloat c, vfloat d) {
  p[0] = v_sum(a);
  p[1] = v_sum(b);
  p[2] = v_sum(c);
  p[3] = v_sum(d);
}
static inline void v_sum16(float *p, int64_t stride, vfloat v[4][4]) {
  for (int r = 0; r < 4; r++)
    v_sum4(p + r * stride, v[r][0], v[r][1], v[r][2], v[r][3]);
}
static inline vfloat v_iota(void) { return (vfloat){0, 1, 2, 3}; }

/* iso_half_to_float(), four at a time; NaN stays NaN. */
static inline vfloat v_load_f16(const uint16_t *p) {
  vint_ half = {p[0], p[1], p[2], p[3]}, magnitude = half & 0x7fff;
  vint_ subnormal = v_bits_(__builtin_convertvector(magnitude, vfloat) * 0x1p-24f);
  vint_ normal = (magnitude << 13) + (112 << 23) + ((magnitude >= 0x7c00) & (112 << 23));
  vint_ is_subnormal = magnitude < 0x0400;
  return v_from_bits_((half & 0x8000) << 16 | (is_subnormal & subnormal) |
                      (~is_subnormal & normal));
}
static inline void v_store_f16(uint16_t *p, vfloat a) {
  for (int i = 0; i < V_WIDTH; i++)
    p[i] = iso_f16_from_f32(a[i]);
}
static inline vfloat v_load_bf16(const uint16_t *p) {
  return v_from_bits_((vint_){p[0], p[1], p[2], p[3]} << 16);
}
static inline vfloat v_load_bf16_even(const uint16_t *p) {
  return v_from_bits_((vint_){p[0], p[2], p[4], p[6]} << 16);
}
static inline vfloat v_load_bf16_odd(const uint16_t *p) {
  return v_from_bits_((vint_){p[1], p[3], p[5], p[7]} << 16);
}
static inline void v_store_bf16(uint16_t *p, vfloat a) {
  for (int i = 0; i < V_WIDTH; i++)
    p[i] = iso_bf16_from_f32(a[i]);
}
static inline vfloat v_set_f16(uint16_t bits) { return v_set(iso_half_to_float(bits)); }
static inline vfloat v_load_e4m3(const uint8_t *p) {
  vfloat values = {iso_e4m3_to_f32(p[0]), iso_e4m3_to_f32(p[1]), iso_e4m3_to_f32(p[2]),
                   iso_e4m3_to_f32(p[3])};
  return values * 0x1p-8f;
}
static inline vfloat v_load_i8(const int8_t *p) { return (vfloat){p[0], p[1], p[2], p[3]}; }
