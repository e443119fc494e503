/* The vector operations of the product kernels, 8 rows wide: AVX2 with FMA and F16C.
 * vector_avx512.h says what each one does. */
#ifndef ISOMER_BACKENDS_CPU_MATMUL_VECTOR_AVX2_H
#define ISOMER_BACKENDS_CPU_MATMUL_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define VEC_NAME(name) iso_avx2_##name
#define VEC_LANES 8
#define VEC_INTEGER_TILE 1
#define VEC_FLOAT_TILE 2
#define VEC_FEW_ROWS 1
#define VEC_QUANTIZE iso_avx2_quantize_words
#define VEC_QUAD_BYTES 8
#define VEC_LOAD_ROW iso_avx2_load_row
#define VEC_STORE_ROW iso_avx2_store_row

typedef __m256i vec;
typedef __m256 vecf;

static inline vec vec_load(const void *from) { return _mm256_loadu_si256((const __m256i *)from); }
static inline void vec_store(void *to, vec a) { _mm256_storeu_si256(to, a); }
static inline vec vec_zero(void) { return _mm256_setzero_si256(); }
static inline vec vec_all(uint8_t byte) { return _mm256_set1_epi8((char)byte); }
static inline vec vec_all_word(const void *from) {
  return _mm256_castps_si256(_mm256_broadcast_ss(from));
}
static inline vec vec_all_int(int32_t value) { return _mm256_set1_epi32(value); }
static inline vec vec_and(vec a, vec b) { return _mm256_and_si256(a, b); }
static inline vec vec_or(vec a, vec b) { return _mm256_or_si256(a, b); }
#define vec_left(a, bits) _mm256_slli_epi32(a, bits)
#define vec_right(a, bits) _mm256_srli_epi32(a, bits)
static inline vec vec_look_up(const uint8_t table[16], vec index) {
  return _mm256_shuffle_epi8(
      _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table)), index);
}

/* Codes are widened to 16 bits, as products of bytes (maddubs) would saturate there, and take twice
 * the instructions for activations of 15 bits. */
typedef struct vec_sum {
  vec sum;
} vec_sum;
static inline vec_sum vec_sum_from(vec start) { return (vec_sum){start}; }
static inline vec vec_sum_of(vec_sum sum) { return sum.sum; }
static inline void vec_dot(vec_sum *sum, vec codes, const uint8_t *x) {
  const vec first = _mm256_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1, 0,
                                     -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1);
  vec low = _mm256_shuffle_epi8(codes, first);
  vec high = _mm256_shuffle_epi8(_mm256_srli_epi32(codes, 16), first);
  sum->sum = _mm256_add_epi32(sum->sum, _mm256_madd_epi16(low, vec_all_word(x)));
  sum->sum = _mm256_add_epi32(sum->sum, _mm256_madd_epi16(high, vec_all_word(x + 4)));
  /* Keeps the sums in this order: GCC would balance them into trees, and spill. */
  __asm__("" : "+x"(sum->sum));
}

static inline vecf vecf_zero(void) { return _mm256_setzero_ps(); }
static inline vecf vecf_load(const float *from) { return _mm256_loadu_ps(from); }
static inline void vecf_store(float *to, vecf a) { _mm256_storeu_ps(to, a); }
static inline vecf vecf_all(const float *from) { return _mm256_broadcast_ss(from); }
static inline vecf vecf_mul(vecf a, vecf b) { return _mm256_mul_ps(a, b); }
static inline vecf vecf_negate(vecf a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
static inline vecf vecf_fma(vecf a, vecf b, vecf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vecf vecf_from_int(vec a) { return _mm256_cvtepi32_ps(a); }
static inline vecf vecf_from_bits(vec a) { return _mm256_castsi256_ps(a); }
static inline vecf vecf_load_half(const void *from) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}
static inline vecf vecf_load_u8(const void *from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from)));
}
static inline vecf vecf_load_i8(const void *from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
}
#define vecf_load_nibble(from, shift)                                                              \
  _mm256_cvtepi32_ps(_mm256_and_si256(                                                             \
      _mm256_srli_epi32(                                                                           \
          _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(from))), shift),    \
      _mm256_set1_epi32(15)))

/* A macro: compilers take a function that only prefetches for one without effect. */
#define vec_prefetch(at) _mm_prefetch((const char *)(at), _MM_HINT_T1)

#endif
