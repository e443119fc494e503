/* simd.h for AVX-512: 16 floats. */
#include <immintrin.h>

#define V_WIDTH 16
#define V_HAS_FMA 1
typedef __m512 vfloat;
typedef __mmask16 vmask;

static inline __mmask16 v_first_(int count) { return (__mmask16)((1u << count) - 1); }

static inline vfloat v_set(float a) { return _mm512_set1_ps(a); }
static inline vfloat v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, vfloat a) { _mm512_storeu_ps(p, a); }
static inline vfloat v_load_n(const float *p, int count) {
  return _mm512_maskz_loadu_ps(v_first_(count), p);
}
static inline void v_store_n(float *p, int count, vfloat a) {
  _mm512_mask_storeu_ps(p, v_first_(count), a);
}
static inline vfloat v_add(vfloat a, vfloat b) { return _mm512_add_ps(a, b); }
static inline vfloat v_sub(vfloat a, vfloat b) { return _mm512_sub_ps(a, b); }
static inline vfloat v_mul(vfloat a, vfloat b) { return _mm512_mul_ps(a, b); }
static inline vfloat v_div(vfloat a, vfloat b) { return _mm512_div_ps(a, b); }
static inline vfloat v_fma(vfloat a, vfloat b, vfloat c) { return _mm512_fmadd_ps(a, b, c); }
static inline vfloat v_max(vfloat a, vfloat b) { return _mm512_max_ps(a, b); }
static inline vfloat v_min(vfloat a, vfloat b) { return _mm512_min_ps(a, b); }
static inline vfloat v_abs(vfloat a) { return _mm512_abs_ps(a); }
static inline vmask v_less(vfloat a, vfloat b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline vfloat v_select(vmask m, vfloat a, vfloat b) { return _mm512_mask_blend_ps(m, b, a); }
static inline vfloat v_round(vfloat a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vfloat v_scale2(vfloat a, vfloat n) { return _mm512_scalef_ps(a, n); }
static inline vfloat v_swap_pairs(vfloat a) { return _mm512_permute_ps(a, 0xb1); }
static inline float v_sum(vfloat a) { return _mm512_reduce_add_ps(a); }
static inline float v_largest(vfloat a) { return _mm512_reduce_max_ps(a); }
static inline void v_sum4(float *p, vfloat a, vfloat b, vfloat c, vfloat d) {
  __m256 halves[4] = {
      _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)),
      _mm256_add_ps(_mm512_castps512_ps256(b), _mm512_extractf32x8_ps(b, 1)),
      _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1)),
      _mm256_add_ps(_mm512_castps512_ps256(d), _mm512_extractf32x8_ps(d, 1)),
  };
  __m256 sums =
      _mm256_hadd_ps(_mm256_hadd_ps(halves[0], halves[1]), _mm256_hadd_ps(halves[2], halves[3]));
  _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
}
/* Pairs of lanes of two vectors are added, 32, 64 and 128 bits wide, until each lane is a sum. */
static inline void v_sum16(float *p, int64_t stride, vfloat v[4][4]) {
  __m512 rows[4];
  for (int r = 0; r < 4; r++) {
    __m512d low = _mm512_castps_pd(
        _mm512_add_ps(_mm512_unpacklo_ps(v[r][0], v[r][1]), _mm512_unpackhi_ps(v[r][0], v[r][1])));
    __m512d high = _mm512_castps_pd(
        _mm512_add_ps(_mm512_unpacklo_ps(v[r][2], v[r][3]), _mm512_unpackhi_ps(v[r][2], v[r][3])));
    rows[r] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)),
                            _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
  }
  for (int r = 0; r < 4; r += 2)
    rows[r / 2] = _mm512_add_ps(_mm512_shuffle_f32x4(rows[r], rows[r + 1], 0x88),
                                _mm512_shuffle_f32x4(rows[r], rows[r + 1], 0xdd));
  __m512 sums = _mm512_add_ps(_mm512_shuffle_f32x4(rows[0], rows[1], 0x88),
                              _mm512_shuffle_f32x4(rows[0], rows[1], 0xdd));
  _mm_storeu_ps(p, _mm512_castps512_ps128(sums));
  _mm_storeu_ps(p + stride, _mm512_extractf32x4_ps(sums, 1));
  _mm_storeu_ps(p + 2 * stride, _mm512_extractf32x4_ps(sums, 2));
  _mm_storeu_ps(p + 3 * stride, _mm512_extractf32x4_ps(sums, 3));
}
static inline vfloat v_iota(void) {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

static inline vfloat v_load_f16(const uint16_t *p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline void v_store_f16(uint16_t *p, vfloat a) {
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
static inline vfloat v_load_bf16(const uint16_t *p) {
  __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
static inline vfloat v_load_bf16_even(const uint16_t *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
static inline vfloat v_load_bf16_odd(const uint16_t *p) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int32_t)0xffff0000u)));
}
/* Not vcvtneps2bf16, which flushes subnormals to zero. */
static inline void v_store_bf16(uint16_t *p, vfloat a) {
  __m512i bits = _mm512_castps_si512(a);
  __m512i high = _mm512_srli_epi32(bits, 16);
  __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(rounded));
}
static inline vfloat v_set_f16(uint16_t bits) {
  return _mm512_cvtph_ps(_mm256_set1_epi16((int16_t)bits));
}
static inline vfloat v_load_e4m3(const uint8_t *p) {
  __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
  __m256i low = _mm256_set1_epi16(0x7f), magnitudes = _mm256_and_si256(codes, low);
  __m256i halves = _mm256_or_si256(_mm256_slli_epi16(_mm256_andnot_si256(low, codes), 8),
                                   _mm256_slli_epi16(magnitudes, 7));
  return _mm512_cvtph_ps(_mm256_or_si256(halves, _mm256_cmpeq_epi16(magnitudes, low)));
}
static inline vfloat v_load_i8(const int8_t *p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
