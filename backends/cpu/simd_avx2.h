/* simd.h for AVX2, FMA and F16C: 8 floats. */
#include <immintrin.h>

#define V_WIDTH 8
#define V_HAS_FMA 1
typedef __m256 vfloat;
typedef __m256 vmask;

static inline __m256i v_first_(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vfloat v_set(float a) { return _mm256_set1_ps(a); }
static inline vfloat v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, vfloat a) { _mm256_storeu_ps(p, a); }
static inline vfloat v_load_n(const float *p, int count) {
  return _mm256_maskload_ps(p, v_first_(count));
}
static inline void v_store_n(float *p, int count, vfloat a) {
  _mm256_maskstore_ps(p, v_first_(count), a);
}
static inline vfloat v_add(vfloat a, vfloat b) { return _mm256_add_ps(a, b); }
static inline vfloat v_sub(vfloat a, vfloat b) { return _mm256_sub_ps(a, b); }
static inline vfloat v_mul(vfloat a, vfloat b) { return _mm256_mul_ps(a, b); }
static inline vfloat v_div(vfloat a, vfloat b) { return _mm256_div_ps(a, b); }
static inline vfloat v_fma(vfloat a, vfloat b, vfloat c) { return _mm256_fmadd_ps(a, b, c); }
static inline vfloat v_max(vfloat a, vfloat b) { return _mm256_max_ps(a, b); }
static inline vfloat v_min(vfloat a, vfloat b) { return _mm256_min_ps(a, b); }
static inline vfloat v_abs(vfloat a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline vmask v_less(vfloat a, vfloat b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
static inline vfloat v_select(vmask m, vfloat a, vfloat b) { return _mm256_blendv_ps(b, a, m); }
static inline vfloat v_round(vfloat a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vfloat v_power2_(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
/* In two steps, as 2^n itself may lie outside the normal floats. */
static inline vfloat v_scale2(vfloat a, vfloat n) {
  __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  return v_mul(v_mul(a, v_power2_(half)), v_power2_(_mm256_sub_epi32(whole, half)));
}
static inline vfloat v_swap_pairs(vfloat a) { return _mm256_permute_ps(a, 0xb1); }
static inline float v_sum(vfloat a) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
static inline float v_largest(vfloat a) {
  __m128 most = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}
static inline void v_sum4(float *p, vfloat a, vfloat b, vfloat c, vfloat d) {
  __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
}
static inline void v_sum16(float *p, int64_t stride, vfloat v[4][4]) {
  for (int r = 0; r < 4; r++)
    v_sum4(p + r * stride, v[r][0], v[r][1], v[r][2], v[r][3]);
}
static inline vfloat v_iota(void) { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }

static inline vfloat v_load_f16(const uint16_t *p) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline void v_store_f16(uint16_t *p, vfloat a) {
  _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
static inline vfloat v_load_bf16(const uint16_t *p) {
  __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)p);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
static inline vfloat v_load_bf16_even(const uint16_t *p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p), 16));
}
static inline vfloat v_load_bf16_odd(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)p),
                                              _mm256_set1_epi32((int32_t)0xffff0000u)));
}
static inline void v_store_bf16(uint16_t *p, vfloat a) {
  __m256i bits = _mm256_castps_si256(a);
  __m256i high = _mm256_srli_epi32(bits, 16);
  __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
  _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi32(_mm256_castsi256_si128(rounded),
                                                          _mm256_extracti128_si256(rounded, 1)));
}
static inline vfloat v_set_f16(uint16_t bits) {
  return _mm256_cvtph_ps(_mm_set1_epi16((int16_t)bits));
}
static inline vfloat v_load_e4m3(const uint8_t *p) {
  __m128i codes = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p));
  __m128i low = _mm_set1_epi16(0x7f), magnitudes = _mm_and_si128(codes, low);
  __m128i halves =
      _mm_or_si128(_mm_slli_epi16(_mm_andnot_si128(low, codes), 8), _mm_slli_epi16(magnitudes, 7));
  return _mm256_cvtph_ps(_mm_or_si128(halves, _mm_cmpeq_epi16(magnitudes, low)));
}
static inline vfloat v_load_i8(const int8_t *p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
