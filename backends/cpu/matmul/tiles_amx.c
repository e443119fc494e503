/* Products of many rows on AMX tiles, tier amx. f32 and F16 weights stay with AVX-512.
 *
 * One bf16 or int8 has 8 bits and a model's greedy text shows it, so a number is two of them.
 *
 * BF16 weights: bf16 times bf16, summed in f32. An activation is high, rounded to nearest, plus
 * low, what is left, rounded; a weight is one bf16. Two tile products of 16 cycles for 16 x 16 x
 * 32: the floor is 512 operations a cycle.
 *
 * Quantized weights: int8 times int8, summed in int32. Tiles only pay when they run along K, but
 * weights have a scale for 16 or 32 elements. So both sides are brought to 15 bits under one scale
 * for 256 elements of a row: value = scale * (high * 2^7 + low). Of high high, high low, low high
 * and low low the first three are multiplied; the last is below the rounding of the values. Three
 * products of 16 cycles for 16 x 16 x 64: the floor is 682 operations a cycle, against 341 for
 * three products of bf16 planes, which this replaced. Half a tile for each scale of 32 and sums
 * scaled outside of tiles costs more vector instructions than that.
 *
 * Activations are panels of 16 rows. A step of a panel is 64 bytes of each row: a tile of high and
 * one of low planes. BF16 weights are used where they are packed; quantized ones are requantized
 * for a stretch at a time, which with its panel fits the first-level cache. Five or six of the
 * eight tiles are used: tiles8_amx.c says why. */
#include "backends/cpu/matmul/vector_avx512.h"

#include "backends/cpu/matmul/product.h"

#include <string.h>

#include "backends/cpu/matmul/tile_product.inc"

#include "backends/cpu/matmul/tile_codes.inc"

#define PANEL_STEP_BYTES (2 * TILE_BYTES)

/* ---- BF16 weights --------------------------------------------------------------------------- */

#define BF16_STRETCH 128

/* What a number rounded to bf16 leaves; nothing where that is not finite. */
INLINE vecf rest_of(vecf value, vec rounded) {
  __mmask16 infinite = _mm512_fpclass_ps_mask(_mm512_castsi512_ps(rounded), 0x99);
  vecf rest = _mm512_sub_ps(value, _mm512_castsi512_ps(rounded));
  return _mm512_maskz_mov_ps(_mm512_knot(infinite), rest);
}

/* 32 elements of a row to its 64 bytes of a tile of high parts and of one of low parts. */
static void bf16_prepare(const iso_product_kernel *kernel, const float *x, int64_t count,
                         int64_t row, const iso_panel *panel) {
  (void)kernel;
  uint8_t *out = panel->values + row * 64;
  for (int64_t k = 0; k < count; k += 32, out += PANEL_STEP_BYTES) {
    vecf first = vecf_load(x + k), last = vecf_load(x + k + 16);
    __m512bh high = _mm512_cvtne2ps_pbh(last, first);
    __m256i high_first = _mm512_castsi512_si256((vec)high);
    __m256i high_last = _mm512_extracti64x4_epi64((vec)high, 1);
    vecf first_rest = rest_of(first, vec_left(_mm512_cvtepu16_epi32(high_first), 16));
    vecf last_rest = rest_of(last, vec_left(_mm512_cvtepu16_epi32(high_last), 16));
    vec_store(out, (vec)high);
    vec_store(out + TILE_BYTES, (vec)_mm512_cvtne2ps_pbh(last_rest, first_rest));
  }
}

static void bf16_many(const iso_product_call *call) { bf16_rows(TILE_BF16_PAIRS, call); }

/* ---- Quantized activations ------------------------------------------------------------------ */

/* Elements that share a scale on both sides, and of a step. */
#define STRETCH 256
#define STEP 64

/* The largest magnitude of `count` numbers, which are whole vectors, found among the bits: NaN is
 * above infinity, and nothing that is not finite gets lost. */
INLINE float largest_magnitude(const float *x, int64_t count) {
  const vec magnitude = vec_all_int(0x7fffffff);
  vec largest = vec_zero();
  for (int64_t k = 0; k < count; k += 16)
    largest = _mm512_max_epi32(largest, vec_and(vec_load(x + k), magnitude));
  int32_t bits = _mm512_reduce_max_epi32(largest);
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

/* An expanded stretch of a group: for each step a tile of high and one of low planes, then the
 * scales of 16 columns. */
#define STRETCH_CODES (STRETCH / STEP * 2 * TILE_BYTES)
#define STRETCH_BYTES (STRETCH_CODES + 64)
#define GROUPS 2

/* A row of a panel: its scale is that of the stretch, in the panel's first scales. */
static void int8_prepare(const iso_product_kernel *kernel, const float *x, int64_t count,
                         int64_t row, const iso_panel *panel) {
  (void)kernel;
  uint8_t *out = panel->values + row * 64;
  float largest = largest_magnitude(x, count);
  /* Below this the inverse would overflow; such a stretch is zero to every product. */
  bool zero = largest < 1e-30f;
  vecf inverse = _mm512_set1_ps(zero ? 0.0f : (float)ISO_ACTIVATION_MAXIMUM / largest);
  panel->scales[row] = zero ? 0.0f : largest * (1.0f / (float)ISO_ACTIVATION_MAXIMUM);
  const vec half = vec_all_int(1 << (ISO_PLANE_BITS - 1));
  for (int64_t k = 0; k < count; k += STEP, out += PANEL_STEP_BYTES)
    for (int i = 0; i < STEP; i += 16) {
      vec value = _mm512_cvtps_epi32(vecf_mul(vecf_load(x + k + i), inverse));
      vec high = _mm512_srai_epi32(_mm512_add_epi32(value, half), ISO_PLANE_BITS);
      vec low = _mm512_sub_epi32(value, vec_left(high, ISO_PLANE_BITS));
      _mm_storeu_si128((__m128i *)(void *)(out + i), _mm512_cvtepi32_epi8(high));
      _mm_storeu_si128((__m128i *)(void *)(out + TILE_BYTES + i), _mm512_cvtepi32_epi8(low));
    }
}

/* ---- Quantized weights ---------------------------------------------------------------------- */

/* A bound on the magnitudes of a portion's weights, for codes of 0 to `top` where there are
 * minimums, and NaN or 0. */
INLINE void bound_portion(scheme_traits traits, int top, const uint8_t *halves,
                          const uint8_t *portion, vecf *bound, vecf *poison) {
  const vecf center = _mm512_set1_ps((float)center_of(traits));
  int n_subs = traits.parts * 32 / traits.sub;
#pragma GCC unroll 8
  for (int sub = 0; sub < n_subs; sub++) {
    vecf scale, minimum;
    traits.scales(halves, portion, 0, sub, &scale, &minimum);
    vecf reach = vecf_mul(scale, center);
    *poison = vecf_fma(vecf_zero(), reach, *poison);
    *bound = _mm512_max_ps(*bound, _mm512_abs_ps(reach));
    if (traits.minimum) {
      *poison = vecf_fma(vecf_zero(), minimum, *poison);
      *bound = _mm512_max_ps(*bound, _mm512_abs_ps(minimum));
      vecf last = vecf_fma(scale, _mm512_set1_ps((float)top), minimum);
      *bound = _mm512_max_ps(*bound, _mm512_abs_ps(last));
    }
  }
}

/* Four codes of each row as 15-bit values and those as planes. A word of `ratio` is
 * 2^15 scale / (what codes are shifted by, times the stretch's scale). */
INLINE void requantize_quad(vec codes, int center, int shift, vec ratio, vec minimum,
                            uint8_t *out_high, uint8_t *out_low) {
  const vec zero = _mm512_set1_epi16((int16_t)center);
  const vec half = _mm512_set1_epi16(1 << (ISO_PLANE_BITS - 1));
  vec words[2] = {vec_and(codes, _mm512_set1_epi16(255)), _mm512_srli_epi16(codes, 8)};
  vec high[2], low[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    vec shifted = _mm512_slli_epi16(_mm512_sub_epi16(words[i], zero), (unsigned)shift);
    vec value = _mm512_add_epi16(_mm512_mulhrs_epi16(shifted, ratio), minimum);
    high[i] = _mm512_srai_epi16(_mm512_add_epi16(value, half), ISO_PLANE_BITS);
    low[i] = _mm512_sub_epi16(value, _mm512_slli_epi16(high[i], ISO_PLANE_BITS));
  }
  vec_store(out_high, join_bytes(high[0], high[1]));
  vec_store(out_low, join_bytes(low[0], low[1]));
}

INLINE void requantize_part(scheme_traits traits, const packed_part *from, int part, vecf inverse,
                            uint8_t *high) {
  const int center = center_of(traits), subs = 32 / traits.sub;
  /* Shifted codes have 15 bits with the sign. */
  const int shift = __builtin_clz((unsigned)center) - 17;
  const vecf unit = _mm512_set1_ps((float)(1 << (15 - shift)));
  vec codes[8];
  traits.codes(from->portion + traits.byte_bytes, part, codes);
#pragma GCC unroll 2
  for (int s = 0; s < subs; s++) {
    vecf scale, minimum;
    traits.scales(from->halves, from->portion, 0, part * subs + s, &scale, &minimum);
    scale = vecf_mul(scale, inverse);
    vec added = vec_zero();
    if (traits.minimum)
      added =
          both_words(vecf_fma(scale, _mm512_set1_ps((float)center), vecf_mul(minimum, inverse)));
    vec ratio = both_words(vecf_mul(scale, unit));
    int end = (s + 1) * traits.sub / 4;
#pragma GCC unroll 8
    for (int j = s * traits.sub / 4; j < end; j++)
      requantize_quad(codes[j], center, shift, ratio, added, high + j * 64,
                      high + TILE_BYTES + j * 64);
  }
}

/* The scale of a stretch a column, NaN where the stretch has such a number, and its inverse. The
 * bound is for a little more than the largest code, so that ratios have 15 bits. */
INLINE vecf scale_stretch(scheme_traits traits, const uint8_t *group, int64_t begin, int64_t count,
                          uint8_t *out) {
  vecf bound = vecf_zero(), poison = vecf_zero();
  for (int64_t k = begin; k < begin + count; k += 32 * traits.parts) {
    packed_part from = part_at(traits, group, k);
    bound_portion(traits, 2 * center_of(traits), from.halves, from.portion, &bound, &poison);
  }
  const vecf most = _mm512_set1_ps((float)ISO_ACTIVATION_MAXIMUM);
  __mmask16 some = _mm512_cmp_ps_mask(bound, _mm512_set1_ps(1e-30f), _CMP_NLT_UQ);
  vecf_store((float *)(void *)(out + STRETCH_CODES),
             _mm512_add_ps(_mm512_maskz_div_ps(some, bound, most), poison));
  return _mm512_maskz_div_ps(some, most, bound);
}

INLINE void advance(scheme_traits traits, iso_ahead *ahead, int64_t units) {
  vecf *inverse = (vecf *)(void *)ahead->scratch;
  const int64_t parts = ahead->count / 32;
  for (; units > 0 && ahead->unit < ahead->units; units--, ahead->unit++) {
    int64_t group = ahead->unit / parts, at = ahead->unit % parts;
    const uint8_t *codes = ahead->groups + (uint64_t)group * ahead->group_bytes;
    uint8_t *out = ahead->out + group * STRETCH_BYTES;
    if (at == 0)
      *inverse = scale_stretch(traits, codes, ahead->begin, ahead->count, out);
    packed_part from = part_at(traits, codes, ahead->begin + 32 * at);
    uint8_t *high = out + at / 2 * 2 * TILE_BYTES + at % 2 * (TILE_BYTES / 2);
    PREFETCH_LATER(traits, from, ahead->later);
#define REQUANTIZE(part) requantize_part(traits, &from, part, *inverse, high)
    WITH_CONSTANT_PART(traits, from.part, REQUANTIZE);
#undef REQUANTIZE
  }
}

/* ---- Quantized products --------------------------------------------------------------------- */

/* Sums stay below 2^31: 127 127 256 2^7 and two times 127 64 256. A missing second group gives what
 * its memory holds. A panel has room for a scale a block of activations, and uses one a row. Both
 * sides are high 2^7 + low, and one of the 2^7 is in the scale. */
INLINE void int8_rows(const iso_product_call *call, iso_product_advance advance_) {
  vecf scale[GROUPS];
  for (int g = 0; g < GROUPS; g++)
    scale[g] = vecf_mul(vecf_load((const float *)(const void *)(call->stretches +
                                                                g * STRETCH_BYTES + STRETCH_CODES)),
                        _mm512_set1_ps(1 << ISO_PLANE_BITS));
  const tile_weights form = {STRETCH_BYTES, 64, 2 * TILE_BYTES, STEP, scale};
  multiply_rows(TILE_INT8_PLANES, call, form, advance_);
}

/* The functions of a scheme. */
#define DEFINE_SCHEME(NAME, name, ...)                                                             \
  static void name##_advance(iso_ahead *ahead, int64_t units) {                                    \
    advance(SCHEME_TRAITS(name, __VA_ARGS__), ahead, units);                                       \
  }                                                                                                \
  static void name##_many(const iso_product_call *call) { int8_rows(call, name##_advance); }
INTEGER_SCHEMES(DEFINE_SCHEME)

#define QUANTIZED(name)                                                                            \
  .value_bytes = 2, .sub_shift = 5, .item_tiles = 8, .ahead_units = 1, .scratch_bytes = 64,        \
  .prepare = int8_prepare, .load = iso_avx512_load_row, .store = iso_avx512_store_row,             \
  .advance = name##_advance, .many = name##_many

const iso_product_kernel *iso_amx_tile_kernel(iso_scheme scheme) {
  static const iso_product_kernel kernels[ISO_SCHEME_COUNT] = {
      INTEGER_SCHEMES(QUANTIZED_KERNEL)[ISO_SCHEME_BF16] = {
          BF16_KERNEL, .value_bytes = 4, .stretch_elements = BF16_STRETCH, .prepare = bf16_prepare,
          .load = iso_avx512_load_row, .store = iso_avx512_store_row}};
  return iso_product_kernel_of(kernels, scheme);
}
