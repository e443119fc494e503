/* The vector operations of the product kernels, 8 rows wide: AVX2 with FMA and F16C.
 * vector_avx512.h says what each one does. */
#ifndef ISOMER_BACKENDS_CPU_MATMUL_VECTOR_AVX2_H
#define ISOMER_BACKENDS_CPU_MATMUL_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define VEC_NAME(name) iso_avx2_##name
#define VEC_LANES 8
#define VEC_INTEGER_TILE 2
#define VEC_FLOAT_TILE 2
/* 16 KiB: half of the first-level cache of CPUs that have no AVX-512. */
#define VEC_FLOAT_STRETCH 64
/* Scales of 16 elements take longer to decode than to read once they are expanded. Measured, as
 * VEC_AHEAD_ROWS, on a Zen 3; one row of bytes or floats loses by asking on a Zen 4. */
#define VEC_FEW_ROWS(sub) ((sub) == 16 ? 6 : 12)
#define VEC_FEW_PANEL_ROWS 4
#define VEC_AHEAD_ROWS(codes_are_bytes) ((codes_are_bytes) ? 2 : 1)
#define VEC_FLOAT_AHEAD_ROWS 2
#define VEC_FLOAT_FEW_ROWS 1
#define VEC_FLOAT_FEW_PANEL_ROWS 1
#define VEC_QUANTIZE iso_avx2_quantize_words
#define VEC_QUAD_BYTES 8
/* Codes that vec_few_dot takes as bytes want other activations than vec_dot does. */
#define VEC_QUANTIZE_ONE(bits) ((bits) == 8 ? NULL : iso_avx2_quantize_planes)
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

/* Four codes a row as 16 bits, the first and third, the second and fourth: products of bytes
 * (maddubs) would saturate, and take twice the instructions for activations of 15 bits. */
typedef struct vec_codes {
  vec even, odd;
} vec_codes;
#define VEC_CODE_BYTES 2
static inline vec_codes vec_widen(vec codes) {
  return (vec_codes){_mm256_and_si256(codes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(codes, 8)};
}
/* Into registers: GCC would rather read them again for each use, and loads are the limit. */
static inline vec_codes vec_codes_load(const uint8_t *from) {
  vec_codes codes = {vec_load(from), vec_load(from + sizeof(vec))};
  __asm__("" : "+x"(codes.even), "+x"(codes.odd));
  return codes;
}
static inline void vec_codes_store(uint8_t *to, vec_codes codes) {
  vec_store(to, codes.even);
  vec_store(to + sizeof(vec), codes.odd);
}

/* Keeps sums in their order: GCC would balance them into trees, and spill. */
#define KEEP_ORDER(sum) __asm__("" : "+x"(sum))

typedef struct vec_sum {
  vec sum;
} vec_sum;
static inline vec_sum vec_sum_from(vec start) { return (vec_sum){start}; }
static inline vec vec_sum_of(vec_sum sum) { return sum.sum; }
static inline void vec_dot(vec_sum *sum, vec_codes codes, const uint8_t *x) {
  sum->sum = _mm256_add_epi32(sum->sum, _mm256_madd_epi16(codes.even, vec_all_word(x)));
  sum->sum = _mm256_add_epi32(sum->sum, _mm256_madd_epi16(codes.odd, vec_all_word(x + 4)));
  KEEP_ORDER(sum->sum);
}

/* The sum of `few`. Codes of a few bits remain bytes: as many products with each plane of the
 * activations as 16 bits hold are added there, which saves widening every code for one use. */
typedef struct vec_few_sum {
  vec sum, high, low;
} vec_few_sum;
static inline vec_few_sum vec_few_sum_from(vec_sum start) {
  return (vec_few_sum){start.sum, start.sum, start.sum};
}
static inline vec_sum vec_few_sum_of(vec_few_sum sum) { return (vec_sum){sum.sum}; }
/* Adds a row's quad `index` of a sub-block, of codes of `bits` bits. */
static inline __attribute__((always_inline)) void
vec_few_dot(int bits, int index, bool last, vec_few_sum *sum, vec codes, const uint8_t *x) {
  if (bits > 6) {
    vec_sum words = {sum->sum};
    vec_dot(&words, vec_widen(codes), x);
    sum->sum = words.sum;
    return;
  }
  /* Each is 2 * 127 * (2^bits - 1) at most. */
  int depth = bits <= 4 ? 8 : bits == 5 ? 4 : 2;
  vec high = _mm256_maddubs_epi16(codes, vec_all_word(x));
  vec low = _mm256_maddubs_epi16(codes, vec_all_word(x + 4));
  sum->high = index % depth ? _mm256_add_epi16(sum->high, high) : high;
  sum->low = index % depth ? _mm256_add_epi16(sum->low, low) : low;
  KEEP_ORDER(sum->high);
  KEEP_ORDER(sum->low);
  if (!last && (index + 1) % depth)
    return;
  high = _mm256_madd_epi16(sum->high, _mm256_set1_epi16(1 << 7));
  low = _mm256_madd_epi16(sum->low, _mm256_set1_epi16(1));
  sum->sum = _mm256_add_epi32(sum->sum, _mm256_add_epi32(high, low));
  KEEP_ORDER(sum->sum);
}

static inline vecf vecf_zero(void) { return _mm256_setzero_ps(); }
static inline vecf vecf_load(const float *from) { return _mm256_loadu_ps(from); }
static inline void vecf_store(float *to, vecf a) { _mm256_storeu_ps(to, a); }
static inline vecf vecf_all(const float *from) { return _mm256_broadcast_ss(from); }
static inline vecf vecf_mul(vecf a, vecf b) { return _mm256_mul_ps(a, b); }
static inline vecf vecf_negate(vecf a) { return -a; }
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
