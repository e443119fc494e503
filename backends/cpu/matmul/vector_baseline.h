/* The vector operations of the product kernels, 4 rows wide: SSE2, which every x86-64 has.
 * vector_avx512.h says what each one does. */
#ifndef ISOMER_BACKENDS_CPU_MATMUL_VECTOR_BASELINE_H
#define ISOMER_BACKENDS_CPU_MATMUL_VECTOR_BASELINE_H

#include "backends/cpu/simd.h"

#include <emmintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define VEC_NAME(name) iso_baseline_##name
#define VEC_LANES 4
#define VEC_INTEGER_TILE 2
#define VEC_FLOAT_TILE 2
/* 16 KiB, as for AVX2. */
#define VEC_FLOAT_STRETCH 64
#define VEC_FEW_ROWS(sub) 1
#define VEC_FEW_PANEL_ROWS 1
#define VEC_AHEAD_ROWS(codes_are_bytes) 3
#define VEC_FLOAT_AHEAD_ROWS 3
#define VEC_FLOAT_FEW_ROWS 1
#define VEC_FLOAT_FEW_PANEL_ROWS 1
#define VEC_QUANTIZE iso_baseline_quantize_words
#define VEC_QUAD_BYTES 8
#define VEC_QUANTIZE_ONE(bits) NULL
#define VEC_LOAD_ROW iso_baseline_load_row
#define VEC_STORE_ROW iso_baseline_store_row

typedef __m128i vec;
typedef __m128 vecf;

static inline vec vec_load(const void *from) { return _mm_loadu_si128((const __m128i *)from); }
static inline void vec_store(void *to, vec a) { _mm_storeu_si128(to, a); }
static inline vec vec_zero(void) { return _mm_setzero_si128(); }
static inline vec vec_all(uint8_t byte) { return _mm_set1_epi8((char)byte); }
static inline vec vec_all_word(const void *from) {
  int32_t word;
  memcpy(&word, from, sizeof word);
  return _mm_set1_epi32(word);
}
static inline vec vec_all_int(int32_t value) { return _mm_set1_epi32(value); }
static inline vec vec_and(vec a, vec b) { return _mm_and_si128(a, b); }
static inline vec vec_or(vec a, vec b) { return _mm_or_si128(a, b); }
#define vec_left(a, bits) _mm_slli_epi32(a, bits)
#define vec_right(a, bits) _mm_srli_epi32(a, bits)
/* Entries of two tables of bytes, one of the low and one of the high nibbles of 16 bytes, which are
 * the low and high bytes of `pairs`. There is no instruction that looks bytes up, and comparing
 * them with all that they may be takes longer than to load words one by one. */
static inline vec vec_look_up_nibbles(const uint16_t pairs[256], const uint8_t *from, bool high) {
  vec first = vec_zero(), second = vec_zero();
#define INSERT(i)                                                                                  \
  first = _mm_insert_epi16(first, pairs[from[i]], i);                                              \
  second = _mm_insert_epi16(second, pairs[from[8 + i]], i)
  INSERT(0);
  INSERT(1);
  INSERT(2);
  INSERT(3);
  INSERT(4);
  INSERT(5);
  INSERT(6);
  INSERT(7);
#undef INSERT
  const vec low = _mm_set1_epi16(0xff);
  return high ? _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8))
              : _mm_packus_epi16(vec_and(first, low), vec_and(second, low));
}
#define VEC_LOOK_UP_NIBBLES vec_look_up_nibbles

/* Four codes a row as 16 bits, in the order of vector_avx2.h. */
typedef struct vec_codes {
  vec even, odd;
} vec_codes;
#define VEC_CODE_BYTES 2
static inline vec_codes vec_widen(vec codes) {
  return (vec_codes){_mm_and_si128(codes, _mm_set1_epi16(0xff)), _mm_srli_epi16(codes, 8)};
}
static inline vec_codes vec_codes_load(const uint8_t *from) {
  return (vec_codes){vec_load(from), vec_load(from + sizeof(vec))};
}
static inline void vec_codes_store(uint8_t *to, vec_codes codes) {
  vec_store(to, codes.even);
  vec_store(to + sizeof(vec), codes.odd);
}

typedef struct vec_sum {
  vec sum;
} vec_sum;
static inline vec_sum vec_sum_from(vec start) { return (vec_sum){start}; }
static inline vec vec_sum_of(vec_sum sum) { return sum.sum; }
static inline void vec_dot(vec_sum *sum, vec_codes codes, const uint8_t *x) {
  sum->sum = _mm_add_epi32(sum->sum, _mm_madd_epi16(codes.even, vec_all_word(x)));
  sum->sum = _mm_add_epi32(sum->sum, _mm_madd_epi16(codes.odd, vec_all_word(x + 4)));
  /* In their order: GCC would balance sums into trees, and spill. */
  __asm__("" : "+x"(sum->sum));
}

typedef vec_sum vec_few_sum;
static inline vec_few_sum vec_few_sum_from(vec_sum start) { return start; }
static inline vec_sum vec_few_sum_of(vec_few_sum sum) { return sum; }
static inline void vec_few_dot(int bits, int index, bool last, vec_few_sum *sum, vec codes,
                               const uint8_t *x) {
  (void)bits, (void)index, (void)last;
  vec_dot(sum, vec_widen(codes), x);
}

static inline vecf vecf_zero(void) { return _mm_setzero_ps(); }
static inline vecf vecf_load(const float *from) { return _mm_loadu_ps(from); }
static inline void vecf_store(float *to, vecf a) { _mm_storeu_ps(to, a); }
static inline vecf vecf_all(const float *from) { return _mm_set1_ps(*from); }
static inline vecf vecf_mul(vecf a, vecf b) { return _mm_mul_ps(a, b); }
static inline vecf vecf_negate(vecf a) { return -a; }
/* Rounded twice. */
static inline vecf vecf_fma(vecf a, vecf b, vecf c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
static inline vecf vecf_from_int(vec a) { return _mm_cvtepi32_ps(a); }
static inline vecf vecf_from_bits(vec a) { return _mm_castsi128_ps(a); }
static inline vecf vecf_load_half(const void *from) { return v_load_f16(from); }
static __attribute__((noinline, cold)) void vecf_load_any_halves(const void *first,
                                                                 const void *second, vecf out[2]) {
  out[0] = v_load_f16(first);
  out[1] = v_load_f16(second);
}
/* Numbers that are subnormal, infinite or NaN take most of what a half takes: where none of the
 * eight is, as in nearly all weights, their exponents are raised by 112 and that is all. */
static inline void vecf_load_halves(const void *first, const void *second, vecf out[2]) {
  const vec halves = _mm_unpacklo_epi64(_mm_loadl_epi64(first), _mm_loadl_epi64(second));
  const vec without_sign = _mm_add_epi16(halves, halves);
  const vec from_normal = _mm_add_epi16(without_sign, _mm_set1_epi16(0x7800)); /* 2^-14: -2^15 */
  if (_mm_movemask_epi8(_mm_cmpgt_epi16(from_normal, _mm_set1_epi16(0x6fff)))) {
    vecf_load_any_halves(first, second, out);
    return;
  }
  const vec sign_and_shifted = vec_and(_mm_srai_epi16(halves, 3), _mm_set1_epi16((short)0x8fff));
  const vec high = _mm_add_epi16(sign_and_shifted, _mm_set1_epi16(112 << 7));
  const vec low = _mm_slli_epi16(halves, 13);
  out[0] = vecf_from_bits(_mm_unpacklo_epi16(low, high));
  out[1] = vecf_from_bits(_mm_unpackhi_epi16(low, high));
}
#define VEC_LOAD_HALVES vecf_load_halves
static inline vec vec_load_u8(const void *from) {
  vec words = _mm_unpacklo_epi8(vec_all_word(from), vec_zero());
  return _mm_unpacklo_epi16(words, vec_zero());
}
static inline vecf vecf_load_u8(const void *from) { return _mm_cvtepi32_ps(vec_load_u8(from)); }
static inline vecf vecf_load_i8(const void *from) {
  return _mm_cvtepi32_ps(_mm_srai_epi32(_mm_slli_epi32(vec_load_u8(from), 24), 24));
}
#define vecf_load_nibble(from, shift)                                                              \
  _mm_cvtepi32_ps(vec_and(vec_right(vec_load_u8(from), shift), vec_all_int(15)))

/* A macro: compilers take a function that only prefetches for one without effect. */
#define vec_prefetch(at) _mm_prefetch((const char *)(at), _MM_HINT_T1)

#endif
