/* Products of many rows on AMX tiles, tier amx: bf16 times bf16, summed in f32.
 *
 * One bf16 has 8 bits and a model's greedy text shows it, so a number is two of them: high, rounded
 * to nearest, and low, what is left, rounded. With x = xh + xl and w = wh + wl the products are
 * xh wh, xl wh and xh wl; xl wl is below 2^-16 of the whole and left out. BF16 weights have no low
 * part. Each product of 32 x 32 x 32 is four tile products of 16 cycles, so the floor is 341
 * operations a cycle, 512 with BF16 weights: less than what a tile could do, and more than four
 * times what dot products of bytes in two planes can.
 *
 * Sums of int8 tiles were considered: 32 elements share a scale, so sums would leave a half-filled
 * tile to be scaled after each product, which costs as much in vector instructions as the three
 * products here. f32 weights stay with AVX-512.
 *
 * Activations are panels of 32 rows: for each 32 elements the tiles xh[0:16], xh[16:32], xl[0:16],
 * xl[16:32]. Weights of a tile of 32 or 64 columns are expanded for a stretch that, with its panel,
 * fits the first-level cache. BF16 weights are used where they are packed. */
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

#define INLINE static inline __attribute__((always_inline))
#define PANEL_ROWS 32
#define TILE_BYTES 1024
/* Of 32 elements of a panel: four tiles. */
#define PANEL_STEP_BYTES (4 * TILE_BYTES)
/* Elements of a stretch, and bytes of 32 elements of an expanded tile: tiles of high parts, then
 * tiles of low parts. */
#define STRETCH 128
#define HALF_STRETCH 64
#define STEP_BYTES (4 * TILE_BYTES)
#define HALF_STEP_BYTES (8 * TILE_BYTES)

/* Two bf16 vectors, `even` in the low halves of words, rounded to nearest even. */
INLINE vec pairs_of(vecf even, vecf odd) {
  static const uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(vec_load(order), (vec)_mm512_cvtne2ps_pbh(odd, even));
}

/* What a number rounded to bf16 leaves; nothing where that is not finite. */
INLINE vecf rest_of(vecf value, vec rounded) {
  __mmask16 infinite = _mm512_fpclass_ps_mask(_mm512_castsi512_ps(rounded), 0x99);
  vecf rest = _mm512_sub_ps(value, _mm512_castsi512_ps(rounded));
  return _mm512_maskz_mov_ps(_mm512_knot(infinite), rest);
}

/* High and low parts of two vectors, in pairs. */
INLINE void split_pairs(vecf even, vecf odd, uint8_t *out_high, uint8_t *out_low) {
  vec high = pairs_of(even, odd);
  vecf even_rest = rest_of(even, vec_left(high, 16));
  vecf odd_rest = rest_of(odd, vec_and(high, vec_all_int((int32_t)0xffff0000)));
  vec_store(out_high, high);
  vec_store(out_low, pairs_of(even_rest, odd_rest));
}

/* 32 elements of a row to its 64 bytes of a tile of high parts and of one of low parts. */
static void prepare(const iso_product_kernel *kernel, const float *x, int64_t count, int64_t row,
                    const iso_panel *panel) {
  (void)kernel;
  uint8_t *out = panel->values + row / 16 * TILE_BYTES + row % 16 * 64;
  for (int64_t k = 0; k < count; k += 32, out += PANEL_STEP_BYTES) {
    vecf first = vecf_load(x + k), last = vecf_load(x + k + 16);
    __m512bh high = _mm512_cvtne2ps_pbh(last, first);
    __m256i high_first = _mm512_castsi512_si256((vec)high);
    __m256i high_last = _mm512_extracti64x4_epi64((vec)high, 1);
    vecf first_rest = rest_of(first, vec_left(_mm512_cvtepu16_epi32(high_first), 16));
    vecf last_rest = rest_of(last, vec_left(_mm512_cvtepu16_epi32(high_last), 16));
    vec_store(out, (vec)high);
    vec_store(out + 2 * TILE_BYTES, (vec)_mm512_cvtne2ps_pbh(last_rest, first_rest));
  }
}

/* Four codes of each row to two pairs of elements. */
INLINE void expand_quad(vec codes, vecf scale, vecf minimum, uint8_t *out) {
  const vec byte = vec_all_int(255);
  vec quad[4] = {vec_and(codes, byte), vec_and(vec_right(codes, 8), byte),
                 vec_and(vec_right(codes, 16), byte), vec_right(codes, 24)};
  vecf values[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    values[i] = vecf_fma(vecf_from_int(quad[i]), scale, minimum);
  split_pairs(values[0], values[1], out, out + 2 * TILE_BYTES);
  split_pairs(values[2], values[3], out + 64, out + 2 * TILE_BYTES + 64);
}

typedef void (*decode_codes)(const uint8_t *codes, int part, vec out[8]);
typedef void (*decode_scales)(const uint8_t *halves, const uint8_t *bytes, int lane, int sub,
                              vecf *out_scale, vecf *out_minimum);

typedef struct scheme_traits {
  int block, parts, sub; /* elements of a block, parts of 32 in a portion, elements of a scale */
  float offset;
  bool minimum;
  uint32_t half_bytes, byte_bytes, code_bytes;
} scheme_traits;

INLINE void expand_portion(scheme_traits traits, decode_codes codes_of, decode_scales scales_of,
                           const uint8_t *halves, const uint8_t *portion, uint8_t *out) {
#pragma GCC unroll 4
  for (int part = 0; part < traits.parts; part++) {
    vec codes[8];
    codes_of(portion + traits.byte_bytes, part, codes);
    int subs = 32 / traits.sub;
#pragma GCC unroll 2
    for (int s = 0; s < subs; s++) {
      vecf scale, minimum;
      scales_of(halves, portion, 0, part * subs + s, &scale, &minimum);
      if (!traits.minimum)
        minimum = vecf_mul(scale, _mm512_set1_ps(-traits.offset));
      int end = (s + 1) * traits.sub / 4;
#pragma GCC unroll 8
      for (int j = s * traits.sub / 4; j < end; j++)
        expand_quad(codes[j], scale, minimum, out + part * STEP_BYTES + j * 2 * 64);
    }
  }
}

/* 16 columns, a group: every fourth tile. */
INLINE void expand(scheme_traits traits, decode_codes codes_of, decode_scales scales_of,
                   const uint8_t *group, int64_t begin, int64_t count, uint8_t *out) {
  uint32_t portion_bytes = traits.byte_bytes + traits.code_bytes;
  int64_t portion = 32 * traits.parts;
  for (int64_t k = begin; k < begin + count; k += portion, out += traits.parts * STEP_BYTES) {
    iso_packed_block at = iso_packed_block_at(group, k / traits.block, traits.half_bytes,
                                              (uint32_t)(traits.block / portion) * portion_bytes);
    at.body += (uint64_t)(k % traits.block / portion) * portion_bytes;
    expand_portion(traits, codes_of, scales_of, at.halves, at.body, out);
  }
}

/* 64 columns of halves: four tiles of high parts and four of low ones for 32 elements. */
static void f16_expand(const uint8_t *group, int64_t begin, int64_t count, uint8_t *out) {
  for (int64_t k = 0; k < count; k += 2)
    for (int column = 0; column < ISO_CPU_FLOAT_ROWS; column += 16) {
      const uint8_t *halves = group + ((begin + k) * ISO_CPU_FLOAT_ROWS + column) * 2;
      uint8_t *to = out + k / 32 * HALF_STEP_BYTES + column / 16 * TILE_BYTES + k % 32 / 2 * 64;
      split_pairs(vecf_load_half(halves), vecf_load_half(halves + ISO_CPU_FLOAT_ROWS * 2), to,
                  to + 4 * TILE_BYTES);
    }
}

/* 32 rows times 32 columns, whose two tiles are `second` bytes apart; `low` is the way from high
 * to low parts, 0 where there are none. Four tiles of sums, two of activations, two of weights. */
INLINE void many_square(const uint8_t *x, const uint8_t *weights, int64_t count, int step,
                        int stride, int second, int low, float *sums, int width) {
  int row_bytes = width * (int)sizeof(float);
  tile_load(0, sums, row_bytes);
  tile_load(1, sums + 16, row_bytes);
  tile_load(2, sums + 16 * width, row_bytes);
  tile_load(3, sums + 16 * width + 16, row_bytes);
  for (int64_t k = 0; k < count; k += 32, x += PANEL_STEP_BYTES, weights += step) {
    tile_load(4, x + 2 * TILE_BYTES, 64);
    tile_load(5, x + 3 * TILE_BYTES, 64);
    tile_load(6, weights, stride);
    tile_load(7, weights + second, stride);
    tile_dot_bf16(0, 4, 6);
    tile_dot_bf16(1, 4, 7);
    tile_dot_bf16(2, 5, 6);
    tile_dot_bf16(3, 5, 7);
    tile_load(4, x, 64);
    tile_load(5, x + TILE_BYTES, 64);
    tile_dot_bf16(0, 4, 6);
    tile_dot_bf16(1, 4, 7);
    tile_dot_bf16(2, 5, 6);
    tile_dot_bf16(3, 5, 7);
    if (low) {
      tile_load(6, weights + low, stride);
      tile_load(7, weights + low + second, stride);
      tile_dot_bf16(0, 4, 6);
      tile_dot_bf16(1, 4, 7);
      tile_dot_bf16(2, 5, 6);
      tile_dot_bf16(3, 5, 7);
    }
  }
  tile_store(0, sums, row_bytes);
  tile_store(1, sums + 16, row_bytes);
  tile_store(2, sums + 16 * width, row_bytes);
  tile_store(3, sums + 16 * width + 16, row_bytes);
}

static void quantized_many(const uint8_t *weights, uint64_t stride, int64_t n_groups, int64_t count,
                           const iso_panel *panel, float *sums) {
  (void)stride, (void)n_groups;
  many_square(panel->values, weights, count, STEP_BYTES, 64, TILE_BYTES, 2 * TILE_BYTES, sums, 32);
}

static void f16_many(const uint8_t *weights, uint64_t stride, int64_t n_groups, int64_t count,
                     const iso_panel *panel, float *sums) {
  (void)stride, (void)n_groups;
  for (int half = 0; half < 2; half++)
    many_square(panel->values, weights + half * 2 * TILE_BYTES, count, HALF_STEP_BYTES, 64,
                TILE_BYTES, 4 * TILE_BYTES, sums + 32 * half, 64);
}

static void bf16_many(const uint8_t *weights, uint64_t stride, int64_t n_groups, int64_t count,
                      const iso_panel *panel, float *sums) {
  (void)stride, (void)n_groups;
  for (int half = 0; half < 2; half++)
    many_square(panel->values, weights + half * 128, count, STEP_BYTES, 256, 64, 0,
                sums + 32 * half, 64);
}

#include "backends/cpu/matmul/schemes.inc"

#define DEFINE_EXPAND(NAME, name, block, parts, sub, offset, minimum, half_bytes, byte_bytes,      \
                      code_bytes, class)                                                           \
  static void name##_expand(const uint8_t *group, int64_t begin, int64_t count, uint8_t *out) {    \
    expand(                                                                                        \
        (scheme_traits){block, parts, sub, offset, minimum, half_bytes, byte_bytes, code_bytes},   \
        name##_codes, name##_scales, group, begin, count, out);                                    \
  }
INTEGER_SCHEMES(DEFINE_EXPAND)

#define TILE_KERNEL(groups, stretch, bytes, expand_, many_)                                        \
  {                                                                                                \
    .panel_rows = PANEL_ROWS, .whole_panels = true, .value_bytes = 4, .tile_groups = groups,       \
    .stretch_elements = stretch, .stretch_stride = TILE_BYTES, .tile_bytes = bytes,                \
    .prepare = prepare, .expand = expand_, .many = many_, .begin = tile_begin, .end = tile_end     \
  }
#define QUANTIZED_KERNEL(NAME, name, block, parts, sub, offset, minimum, half_bytes, byte_bytes,   \
                         code_bytes, class)                                                        \
  [ISO_SCHEME_##NAME] =                                                                            \
      TILE_KERNEL(2, STRETCH, STRETCH / 32 * STEP_BYTES, name##_expand, quantized_many),

const iso_product_kernel *iso_amx_tile_kernel(iso_scheme scheme) {
  static const iso_product_kernel kernels[ISO_SCHEME_COUNT] = {
      INTEGER_SCHEMES(QUANTIZED_KERNEL)[ISO_SCHEME_F16] =
          TILE_KERNEL(1, HALF_STRETCH, HALF_STRETCH / 32 * HALF_STEP_BYTES, f16_expand, f16_many),
      [ISO_SCHEME_BF16] = TILE_KERNEL(1, STRETCH, 0, NULL, bf16_many),
  };
  return (unsigned)scheme < ISO_SCHEME_COUNT && kernels[scheme].value_bytes ? &kernels[scheme]
                                                                            : NULL;
}
