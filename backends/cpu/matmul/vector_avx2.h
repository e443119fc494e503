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
#define VEC_DOT_UNSIGNED 0

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
static inline vec vec_add(vec a, vec b) { return _mm256_add_epi32(a, b); }
static inline vec vec_and(vec a, vec b) { return _mm256_and_si256(a, b); }
static inline vec vec_or(vec a, vec b) { return _mm256_or_si256(a, b); }
#define vec_left(a, bits) _mm256_slli_epi32(a, bits)
#define vec_right(a, bits) _mm256_srli_epi32(a, bits)
static inline vec vec_look_up(const uint8_t table[16], vec index) {
  return _mm256_shuffle_epi8(
      _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table)), index);
}

/* maddubs adds two products in 16 bits and saturates there. Activations are within +-127, so a
 * pair is at most 2 x 127 x (2^bits - 1), and 2^(7 - bits) pairs still fit: 8 pairs of 4-bit
 * codes 30,480, 4 of 5 bits 31,496, 2 of 6 bits 32,004. Codes of 8 bits are made signed, and the
 * sign moves to the activation: a pair of |-128| x 127 is 32,512. */
static inline void vec_dot(vec *sum, vec *narrow, vec codes, vec activations, int bits, int step,
                           int steps) {
  vec pairs;
  int run = 1;
  if (bits == 8) {
    vec level = _mm256_xor_si256(codes, vec_all(0x80));
    pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(level), _mm256_sign_epi8(activations, level));
  } else {
    pairs = _mm256_maddubs_epi16(codes, activations);
    run = 1 << (bits < 4 ? 3 : 7 - bits);
  }
  if (step % run != 0)
    pairs = _mm256_add_epi16(*narrow, pairs);
  /* Keeps the sums in this order: GCC would balance them into trees, and spill. */
  __asm__("" : "+x"(pairs));
  *narrow = pairs;
  if (step % run == run - 1 || step == steps - 1)
    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
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
#define vec_prefetch(at) _mm_prefetch((const char *)(at), _MM_HINT_T0)

#endif
