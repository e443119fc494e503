/* Products of many rows in 8 bits on AMX tiles, tier amx: where a graph allows that of its
 * operands.
 *
 * BF16 weights: one bf16 for a number on both sides, summed in f32. 16 cycles for 16 x 16 x 32: the
 * floor is 1,024 operations a cycle.
 *
 * Quantized weights: one int8 on both sides, summed in int32, under one scale for a stretch of
 * elements of a row. 16 cycles for 16 x 16 x 64: the floor is 2,048 operations a cycle.
 *
 * One scale for so many elements would cost far more accuracy than one for 32, for a model's
 * activations have channels many times larger than the rest. So both sides are rotated first: each
 * 32 elements go through a Hadamard matrix, which spreads a channel over all of them and leaves
 * products as they are, times 32. Rotated, activations lose less under one scale for 256 than as
 * they are with one for 32 (backends/cpu/README.md).
 *
 * Six of the eight tiles are used: four of sums, as one takes 52 cycles until the next product can
 * add to it, and one of each side. A tile that is written while the last one of that name is still
 * in use needs another in hardware, of which a core that two threads share has none left for a
 * program that uses all eight: loads and products then wait for each other, and take three times as
 * long.
 *
 * Activations are panels of 16 rows; a step of a panel is a tile, 64 bytes of each row. A stretch
 * of 64 columns of weights stays in the first-level cache while all activations pass by from the
 * second. */
#include "backends/cpu/matmul/vector_avx512.h"

#include "backends/cpu/matmul/product.h"

#include <string.h>

#if defined(ISO_TILES_HEADER)
#include ISO_TILES_HEADER
#else
#include "backends/cpu/matmul/tiles.h"
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#pragma GCC optimize("O1")
#endif

#include "backends/cpu/matmul/tile_product.inc"

#include "backends/cpu/matmul/tile_codes.inc"

/* Rows of a call, over which vectors overlap with products. */
#define CALL_ROWS 512

/* ---- BF16 weights --------------------------------------------------------------------------- */

#define BF16_STRETCH 256

static void bf16_prepare(const iso_product_kernel *kernel, const float *x, int64_t count,
                         int64_t row, const iso_panel *panel) {
  (void)kernel;
  uint8_t *out = panel->values + row * 64;
  for (int64_t k = 0; k < count; k += 32, out += TILE_BYTES)
    vec_store(out, (vec)_mm512_cvtne2ps_pbh(vecf_load(x + k + 16), vecf_load(x + k)));
}

static void bf16_copy(const iso_product_kernel *kernel, const uint16_t *x, int64_t count,
                      int64_t row, const iso_panel *panel) {
  (void)kernel;
  uint8_t *out = panel->values + row * 64;
  for (int64_t k = 0; k < count; k += 32, out += TILE_BYTES)
    vec_store(out, vec_load(x + k));
}

static void bf16_many(const iso_product_call *call) { bf16_rows(TILE_BF16, call); }

/* ---- Quantized activations ------------------------------------------------------------------ */

#define STRETCH 256
#define STEP 64
#define LARGEST 127
/* What a rotation multiplies products with. */
#define ROTATED 32

/* A stage of rotation within a vector: `swapped` has the numbers that change places, `minus` says
 * which are taken from their partner. */
INLINE vecf butterfly(vecf value, vecf swapped, __mmask16 minus) {
  return _mm512_mask_sub_ps(_mm512_add_ps(swapped, value), minus, swapped, value);
}

INLINE vecf rotate_vector(vecf x) {
  x = butterfly(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
  x = butterfly(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
  x = butterfly(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
  return butterfly(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
}

INLINE vecf load_bf16(const uint16_t *from) {
  __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)from);
  return vecf_from_bits(vec_left(_mm512_cvtepu16_epi32(halves), 16));
}

/* Rotates a stretch and rounds it to +-127. The largest magnitude is found among the bits: NaN is
 * above infinity, and nothing that is not finite gets lost. */
INLINE void prepare_stretch(const float *x, const uint16_t *x_bf16, int64_t count, int64_t row,
                            const iso_panel *panel) {
  const vec magnitude = vec_all_int(0x7fffffff);
  const vec order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  uint8_t *out = panel->values + row * 64;
  float rotated[STRETCH];
  vec largest_bits = vec_zero();
  for (int64_t k = 0; k < count; k += 32) {
    vecf a = rotate_vector(x ? vecf_load(x + k) : load_bf16(x_bf16 + k));
    vecf b = rotate_vector(x ? vecf_load(x + k + 16) : load_bf16(x_bf16 + k + 16));
    vecf sum = _mm512_add_ps(a, b), difference = _mm512_sub_ps(a, b);
    vecf_store(rotated + k, sum);
    vecf_store(rotated + k + 16, difference);
    largest_bits = _mm512_max_epi32(largest_bits, vec_and(_mm512_castps_si512(sum), magnitude));
    largest_bits =
        _mm512_max_epi32(largest_bits, vec_and(_mm512_castps_si512(difference), magnitude));
  }
  int32_t bits = _mm512_reduce_max_epi32(largest_bits);
  float largest;
  memcpy(&largest, &bits, sizeof largest);
  /* Below this the inverse would overflow; such a stretch is zero to every product. */
  bool zero = largest < 1e-30f;
  vecf inverse = _mm512_set1_ps(zero ? 0.0f : (float)LARGEST / largest);
  panel->scales[row] = zero ? 0.0f : largest * (1.0f / (float)(LARGEST * ROTATED));
  for (int64_t k = 0; k < count; k += STEP, out += TILE_BYTES) {
    vec value[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
      value[i] = _mm512_cvtps_epi32(vecf_mul(vecf_load(rotated + k + i * 16), inverse));
    vec bytes = _mm512_packs_epi16(_mm512_packs_epi32(value[0], value[1]),
                                   _mm512_packs_epi32(value[2], value[3]));
    vec_store(out, _mm512_permutexvar_epi32(order, bytes));
  }
}

static void int8_prepare(const iso_product_kernel *kernel, const float *x, int64_t count,
                         int64_t row, const iso_panel *panel) {
  (void)kernel;
  prepare_stretch(x, NULL, count, row, panel);
}

static void int8_prepare_bf16(const iso_product_kernel *kernel, const uint16_t *x, int64_t count,
                              int64_t row, const iso_panel *panel) {
  (void)kernel;
  prepare_stretch(NULL, x, count, row, panel);
}

/* ---- Quantized weights ---------------------------------------------------------------------- */

/* An expanded stretch of a group: a tile for each step, then the scales of 16 columns. */
#define STRETCH_CODES (STRETCH / STEP * TILE_BYTES)
#define STRETCH_BYTES (STRETCH_CODES + 64)
/* What halves of a part that have scales of their own are brought to: 32 words add up to 15 bits.
 */
#define LARGEST_WORD 1000
#define PARTS (STRETCH / 32)

/* A group on its way, part by part of 32 elements: first all are rotated, which tells the scale,
 * then all are rounded to it. */
typedef struct rotation {
  /* A part rotated: places 0 and 2, then 1 and 3 of every four elements, in 15 bits. */
  vec words[PARTS][16];
  vecf units[PARTS];    /* of the words, a column each */
  vecf means[PARTS];    /* place 0, in place of its word, where a scheme has minimums */
  vecf largest, poison; /* of what is rotated so far; NaN where something was not finite */
  vecf inverse;
} rotation;

/* Whether place 0 of a rotated part has more bits than its words. */
INLINE bool has_means(scheme_traits traits) { return traits.minimum && traits.sub == 32; }

/* Adds and subtracts words `half` apart. */
INLINE void rotate_words(vec words[16], int half) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++)
    if (!(i & half)) {
      vec a = words[i], b = words[i | half];
      words[i] = _mm512_add_epi16(a, b);
      words[i | half] = _mm512_sub_epi16(a, b);
    }
}

/* Adds and subtracts the two words of a lane. */
INLINE vec rotate_lane(vec words) {
  vec swapped = _mm512_rol_epi32(words, 16);
  return _mm512_mask_sub_epi16(_mm512_add_epi16(swapped, words), 0xaaaaaaaa, swapped, words);
}

/* Sums and differences of neighbouring codes, shifted as if they had 8 bits. Codes are unsigned:
 * what they are stored plus shows in the first word of what is rotated together, and only there. */
INLINE void pair_codes(scheme_traits traits, const uint8_t *portion, int part, vec words[16]) {
  const int unit = 1 << (8 - bits_of(traits)), stored = center_of(traits) * unit;
  const vec plus = _mm512_set1_epi16((int16_t)(unit | unit << 8));
  const vec minus = _mm512_set1_epi16((int16_t)(unit | (-unit & 255) << 8));
  vec codes[8];
  traits.codes(portion + traits.byte_bytes, part, codes);
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) {
    words[j] = _mm512_maddubs_epi16(codes[j], plus);
    words[8 + j] = _mm512_maddubs_epi16(codes[j], minus);
  }
  rotate_words(words, 1);
  rotate_words(words, 2);
  words[0] = _mm512_sub_epi16(words[0], _mm512_set1_epi16((int16_t)(8 * stored)));
  words[4] = _mm512_sub_epi16(words[4], _mm512_set1_epi16((int16_t)(8 * stored)));
}

/* Halves of a part under scales of their own are brought to one unit, which is returned. */
INLINE vecf unite_halves(scheme_traits traits, vec words[16], const vecf scale[2],
                         const vecf minimum[2]) {
  const vecf center = _mm512_set1_ps(128.0f);
  vecf bound = vecf_zero();
#pragma GCC unroll 2
  for (int s = 0; s < 2; s++) {
    vecf reach = vecf_mul(scale[s], center);
    bound = _mm512_max_ps(bound, _mm512_abs_ps(_mm512_add_ps(minimum[s], reach)));
    bound = _mm512_max_ps(bound, _mm512_abs_ps(_mm512_sub_ps(minimum[s], reach)));
  }
  __mmask16 some = _mm512_cmp_ps_mask(bound, _mm512_set1_ps(1e-30f), _CMP_NLT_UQ);
  vecf inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(LARGEST_WORD), bound);
#pragma GCC unroll 2
  for (int s = 0; s < 2; s++) {
    /* Words take four bits more before they are multiplied. */
    vec ratio = both_words(vecf_mul(vecf_mul(scale[s], inverse), _mm512_set1_ps(2048.0f)));
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
      if ((i & 4) == 4 * s)
        words[i] = _mm512_mulhrs_epi16(_mm512_slli_epi16(words[i], 4), ratio);
    if (traits.minimum)
      words[4 * s] = _mm512_add_epi16(
          words[4 * s], both_words(vecf_mul(minimum[s], vecf_mul(inverse, _mm512_set1_ps(8.0f)))));
  }
  return vecf_mul(bound, _mm512_set1_ps(1.0f / LARGEST_WORD));
}

/* A value is scale * (code - center) + minimum here, of codes as if they had 8 bits. */
INLINE void part_scales(scheme_traits traits, const uint8_t *halves, const uint8_t *portion,
                        int part, vecf scale[2], vecf minimum[2], vecf *poison) {
  const int subs = 32 / traits.sub;
  const vecf unit = _mm512_set1_ps(1.0f / (float)(1 << (8 - bits_of(traits))));
#pragma GCC unroll 2
  for (int s = 0; s < subs; s++) {
    traits.scales(halves, portion, 0, part * subs + s, &scale[s], &minimum[s]);
    scale[s] = vecf_mul(scale[s], unit);
    *poison = vecf_fma(vecf_zero(), scale[s], *poison);
    if (traits.minimum) {
      *poison = vecf_fma(vecf_zero(), minimum[s], *poison);
      minimum[s] = vecf_fma(scale[s], _mm512_set1_ps(128.0f), minimum[s]);
    }
  }
}

INLINE void rotate_part(scheme_traits traits, const uint8_t *halves, const uint8_t *portion,
                        int part, rotation *state, int64_t at) {
  const vec lower = vec_all_int(0xffff);
  vec words[16], largest = vec_zero();
  vecf scale[2], minimum[2], mean = vecf_zero();
  vecf poison = at ? state->poison : vecf_zero();
  part_scales(traits, halves, portion, part, scale, minimum, &poison);
  pair_codes(traits, portion, part, words);
  vecf unit = traits.sub == 16 ? unite_halves(traits, words, scale, minimum) : scale[0];
  rotate_words(words, 4);
#pragma GCC unroll 16
  for (int j = 0; j < 16; j++) {
    words[j] = rotate_lane(words[j]);
    state->words[at][j] = words[j];
    if (has_means(traits) && j == 0)
      words[j] = _mm512_andnot_si512(lower, words[j]);
    largest = _mm512_max_epu16(largest, _mm512_abs_epi16(words[j]));
  }
  largest = _mm512_max_epu32(vec_and(largest, lower), vec_right(largest, 16));
  /* A ratio is at most one, so small words keep their unit. */
  largest = _mm512_max_epu32(largest, vec_all_int(LARGEST + 1));
  vecf magnitude = vecf_mul(vecf_from_int(largest), _mm512_abs_ps(unit));
  if (has_means(traits)) {
    vec first = _mm512_srai_epi32(vec_left(state->words[at][0], 16), 16);
    mean = vecf_fma(vecf_from_int(first), unit, vecf_mul(minimum[0], _mm512_set1_ps(ROTATED)));
    magnitude = _mm512_max_ps(magnitude, _mm512_abs_ps(mean));
    state->means[at] = mean;
  }
  state->largest = at ? _mm512_max_ps(state->largest, magnitude) : magnitude;
  state->poison = poison;
  state->units[at] = unit;
}

/* The scale of a group whose parts are all rotated; NaN where it has such a number. */
INLINE void end_rotation(rotation *state, uint8_t *out) {
  const vecf most = _mm512_set1_ps(LARGEST);
  __mmask16 some = _mm512_cmp_ps_mask(state->largest, _mm512_set1_ps(1e-30f), _CMP_NLT_UQ);
  vecf scale = _mm512_maskz_div_ps(some, state->largest, most);
  vecf_store((float *)(void *)(out + STRETCH_CODES), _mm512_add_ps(scale, state->poison));
  state->inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(LARGEST * 32768.0f), state->largest);
}

INLINE void round_part(scheme_traits traits, const rotation *state, int64_t at, uint8_t *out) {
  vecf ratios = vecf_mul(state->units[at], state->inverse);
  vec ratio = both_words(_mm512_min_ps(ratios, _mm512_set1_ps(32767)));
  out += at / 2 * TILE_BYTES + at % 2 * (TILE_BYTES / 2);
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) {
    vec even = _mm512_mulhrs_epi16(state->words[at][j], ratio);
    vec odd = _mm512_mulhrs_epi16(state->words[at][8 + j], ratio);
    vec bytes = join_bytes(even, odd);
    if (has_means(traits) && j == 0) {
      const vecf step = _mm512_set1_ps(1.0f / 32768);
      vec mean = _mm512_cvtps_epi32(vecf_mul(state->means[at], vecf_mul(state->inverse, step)));
      bytes = _mm512_mask_blend_epi8(0x1111111111111111, bytes, mean);
    }
    vec_store(out + j * 64, bytes);
  }
}

INLINE void advance(scheme_traits traits, iso_ahead *ahead, int64_t units) {
  rotation *state = (rotation *)(void *)ahead->scratch;
  const int64_t parts = ahead->count / 32;
  for (; units > 0 && ahead->unit < ahead->units; units--, ahead->unit++) {
    int64_t group = ahead->unit / (2 * parts), at = ahead->unit % (2 * parts);
    uint8_t *out = ahead->out + group * STRETCH_BYTES;
    if (at >= parts) {
      if (at == parts)
        end_rotation(state, out);
      round_part(traits, state, at - parts, out);
      continue;
    }
    packed_part from = part_at(traits, ahead->groups + (uint64_t)group * ahead->group_bytes,
                               ahead->begin + 32 * at);
    PREFETCH_LATER(traits, from, ahead->later);
#define ROTATE(part) rotate_part(traits, from.halves, from.portion, part, state, at)
    WITH_CONSTANT_PART(traits, from.part, ROTATE);
#undef ROTATE
  }
}

/* ---- Quantized products --------------------------------------------------------------------- */

/* Missing groups give what their memory holds. Sums stay below 127 127 STRETCH. A panel has room
 * for a scale a block of activations, and uses one a row. */
INLINE void int8_rows(const iso_product_call *call, iso_product_advance advance_) {
  vecf scale[BLOCK_TILES];
  for (int g = 0; g < BLOCK_TILES; g++)
    scale[g] = vecf_load(
        (const float *)(const void *)(call->stretches + g * STRETCH_BYTES + STRETCH_CODES));
  const tile_weights form = {STRETCH_BYTES, 64, TILE_BYTES, STEP, scale};
  multiply_rows(TILE_INT8, call, form, advance_);
}

INTEGER_SCHEMES(DEFINE_SCHEME)

#define QUANTIZED_KERNEL(NAME, name, block, parts, sub, offset, minimum, half_bytes, byte_bytes,   \
                         code_bytes, class)                                                        \
  [ISO_SCHEME_##NAME] = {.panel_rows = PANEL_ROWS,                                                 \
                         .whole_panels = true,                                                     \
                         .call_rows = CALL_ROWS,                                                   \
                         .value_bytes = 1,                                                         \
                         .sub_shift = 5,                                                           \
                         .tile_groups = BLOCK_TILES,                                               \
                         .item_tiles = 4,                                                          \
                         .stretch_elements = STRETCH,                                              \
                         .stretch_stride = STRETCH_BYTES,                                          \
                         .tile_bytes = BLOCK_TILES * STRETCH_BYTES,                                \
                         .ahead_units = 2,                                                         \
                         .scratch_bytes = sizeof(rotation),                                        \
                         .prepare = int8_prepare,                                                  \
                         .prepare_bf16 = int8_prepare_bf16,                                        \
                         .load = iso_amx_load_row,                                                 \
                         .store = iso_amx_store_row,                                               \
                         .advance = name##_advance,                                                \
                         .many = name##_many,                                                      \
                         .begin = tile_begin,                                                      \
                         .end = tile_end},

const iso_product_kernel *iso_amx_tile8_kernel(iso_scheme scheme) {
  static const iso_product_kernel kernels[ISO_SCHEME_COUNT] = {
      INTEGER_SCHEMES(QUANTIZED_KERNEL)[ISO_SCHEME_BF16] = {.panel_rows = PANEL_ROWS,
                                                            .whole_panels = true,
                                                            .call_rows = CALL_ROWS,
                                                            .value_bytes = 2,
                                                            .tile_groups = 1,
                                                            .item_tiles = 4,
                                                            .stretch_elements = BF16_STRETCH,
                                                            .ahead_units = BF16_AHEAD_UNITS,
                                                            .prepare = bf16_prepare,
                                                            .prepare_bf16 = bf16_copy,
                                                            .load = iso_amx_load_row,
                                                            .store = iso_amx_store_row,
                                                            .advance = bf16_advance,
                                                            .many = bf16_many,
                                                            .begin = tile_begin,
                                                            .end = tile_end},
  };
  return (unsigned)scheme < ISO_SCHEME_COUNT && kernels[scheme].value_bytes ? &kernels[scheme]
                                                                            : NULL;
}
