/* The vector operations of the product kernels, 16 rows wide: AVX-512 with VNNI.
 *
 * vector_avx2.h has the same names 8 rows wide, vector_baseline.h 4. A kernel template includes one
 * of them and is written once. `vec` holds integers or bytes, `vecf` one float a row. */
#ifndef ISOMER_BACKENDS_CPU_MATMUL_VECTOR_AVX512_H
#define ISOMER_BACKENDS_CPU_MATMUL_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#if !defined(VEC_NAME) /* integer8_avx512.c has its own, and activations of one plane */
#define VEC_NAME(name) iso_avx512_##name
#endif
#define VEC_QUANTIZE_ONE(bits) NULL
#define VEC_LANES 16
/* Vectors of accumulators a tile of 4 activation rows holds in registers. */
#define VEC_INTEGER_TILE 2
#define VEC_FLOAT_TILE 4
/* Elements of an expanded tile, 32 KiB: two thirds of a first-level cache of today, and fast from
 * the second level too. */
#define VEC_FLOAT_STRETCH 128
/* Up to how many rows a group is streamed for each panel, and how many rows such a panel has at
 * most: as many as registers hold sums for. */
#define VEC_FEW_ROWS(sub) 64
#define VEC_FEW_PANEL_ROWS 6
/* iso_product_kernel.ahead_rows: where a code is a byte and a dot product does all of it, later
 * than elsewhere. Measured on a Zen 4; see README.md. */
#define VEC_AHEAD_ROWS(codes_are_bytes) ((codes_are_bytes) ? 5 : 3)
#define VEC_FLOAT_AHEAD_ROWS 3
#define VEC_FLOAT_FEW_ROWS 64
#define VEC_FLOAT_FEW_PANEL_ROWS 6
#define VEC_LOAD_ROW iso_avx512_load_row
#define VEC_STORE_ROW iso_avx512_store_row
typedef __m512i vec;
typedef __m512 vecf;

static inline vec vec_load(const void *from) { return _mm512_loadu_si512(from); }
static inline void vec_store(void *to, vec a) { _mm512_storeu_si512(to, a); }
static inline vec vec_zero(void) { return _mm512_setzero_si512(); }
static inline vec vec_all(uint8_t byte) { return _mm512_set1_epi8((char)byte); }
static inline vec vec_all_word(const void *from) {
  return _mm512_set1_epi32(*(const int32_t *)from);
}
static inline vec vec_all_int(int32_t value) { return _mm512_set1_epi32(value); }
static inline vec vec_and(vec a, vec b) { return _mm512_and_si512(a, b); }
static inline vec vec_or(vec a, vec b) { return _mm512_or_si512(a, b); }
/* Shifts of 32-bit lanes by a constant. */
#define vec_left(a, bits) _mm512_slli_epi32(a, bits)
#define vec_right(a, bits) _mm512_srli_epi32(a, bits)
/* Entry `index` (0 to 15) of a table of 16 bytes, for each byte. */
static inline vec vec_look_up(const uint8_t table[16], vec index) {
  return _mm512_shuffle_epi8(
      _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table)), index);
}

/* Four codes a row, as an expanded stretch holds them. */
typedef vec vec_codes;
#define VEC_CODE_BYTES 1
static inline vec_codes vec_widen(vec codes) { return codes; }
static inline vec_codes vec_codes_load(const uint8_t *from) { return vec_load(from); }
static inline void vec_codes_store(uint8_t *to, vec_codes codes) { vec_store(to, codes); }

#if defined(VEC_ONE_PLANE)
/* Activations as the dot product takes them: four int8. */
#define VEC_QUANTIZE iso_avx2_quantize_bytes
#define VEC_QUAD_BYTES 4

typedef struct vec_sum {
  vec sum;
} vec_sum;
static inline vec_sum vec_sum_from(vec start) { return (vec_sum){start}; }
static inline vec vec_sum_of(vec_sum sum) { return sum.sum; }
static inline void vec_dot(vec_sum *sum, vec_codes codes, const uint8_t *x) {
  sum->sum = _mm512_dpbusd_epi32(sum->sum, codes, vec_all_word(x));
}
#else
/* Four high planes, four low ones. */
#define VEC_QUANTIZE iso_avx2_quantize_planes
#define VEC_QUAD_BYTES 8

/* Sums of products of unsigned codes and 15-bit activations, exact in 32 bits, one for each plane
 * of the activations. */
typedef struct vec_sum {
  vec high, low;
} vec_sum;
static inline vec_sum vec_sum_from(vec start) { return (vec_sum){vec_zero(), start}; }
static inline vec vec_sum_of(vec_sum sum) {
  return _mm512_add_epi32(_mm512_slli_epi32(sum.high, 7), sum.low);
}
/* Adds four codes a row times four activations at `x`. */
static inline void vec_dot(vec_sum *sum, vec_codes codes, const uint8_t *x) {
  sum->high = _mm512_dpbusd_epi32(sum->high, codes, vec_all_word(x));
  sum->low = _mm512_dpbusd_epi32(sum->low, codes, vec_all_word(x + 4));
}
#endif

/* The sum of `few`; vector_avx2.h has another. */
typedef vec_sum vec_few_sum;
static inline vec_few_sum vec_few_sum_from(vec_sum start) { return start; }
static inline vec_sum vec_few_sum_of(vec_few_sum sum) { return sum; }
static inline void vec_few_dot(int bits, int index, bool last, vec_few_sum *sum, vec codes,
                               const uint8_t *x) {
  (void)bits, (void)index, (void)last;
  vec_dot(sum, vec_widen(codes), x);
}

static inline vecf vecf_zero(void) { return _mm512_setzero_ps(); }
static inline vecf vecf_load(const float *from) { return _mm512_loadu_ps(from); }
static inline void vecf_store(float *to, vecf a) { _mm512_storeu_ps(to, a); }
static inline vecf vecf_all(const float *from) { return _mm512_set1_ps(*from); }
static inline vecf vecf_mul(vecf a, vecf b) { return _mm512_mul_ps(a, b); }
static inline vecf vecf_negate(vecf a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
/* a b + c, rounded once. */
static inline vecf vecf_fma(vecf a, vecf b, vecf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vecf vecf_from_int(vec a) { return _mm512_cvtepi32_ps(a); }
static inline vecf vecf_from_bits(vec a) { return _mm512_castsi512_ps(a); }
/* Sixteen halves, unsigned bytes or signed bytes, one a row. */
static inline vecf vecf_load_half(const void *from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}
static inline vecf vecf_load_u8(const void *from) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from)));
}
static inline vecf vecf_load_i8(const void *from) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
}
/* Bits shift to shift + 3 (0 or 4, a constant) of sixteen bytes, one a row. */
#define vecf_load_nibble(from, shift)                                                              \
  _mm512_cvtepi32_ps(_mm512_and_si512(                                                             \
      _mm512_srli_epi32(                                                                           \
          _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(from))), shift),    \
      _mm512_set1_epi32(15)))

/* A macro: compilers take a function that only prefetches for one without effect. */
#define vec_prefetch(at) _mm_prefetch((const char *)(at), _MM_HINT_T1)

#endif
