/* Products of many rows in 8 bits on AMX tiles, tier amx: where a graph allows that of its
 * operands.
 *
 * BF16 weights: one bf16 for a number on both sides, summed in f32. 16 cycles for 16 x 16 x 32: the
 * floor is 1,024 operations a cycle.
 *
 * Quantized weights: one int8 on both sides, summed in int32, under one scale for a stretch of 256
 * elements of a row. 16 cycles for 16 x 16 x 64: the floor is 2,048 operations a cycle.
 *
 * Five of the eight tiles are used, or six: three of sums or more, as one takes 52 cycles until the
 * next product can add to it, and one of each side. A tile that is written while the last one of
 * that name is still in use needs another in hardware, of which a core that two threads share has
 * none left for a program that uses all eight: loads and products then wait for each other, and
 * take three times as long.
 *
 * Activations are panels of 16 rows; a step of a panel is a tile, 64 bytes of each row. Quantized
 * weights are requantized for a stretch of 48 columns at a time, which stays in the first-level
 * cache while all activations pass by from the second. Sums of a stretch are scaled and added while
 * the tiles multiply the next rows, else that would take half as long again. */
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

#include "backends/cpu/matmul/tile_codes.inc"

/* Rows of a call, over which scaling overlaps with products. */
#define CALL_ROWS 256

/* ---- BF16 weights --------------------------------------------------------------------------- */

#define BF16_STRETCH 256

static void bf16_prepare(const iso_product_kernel *kernel, const float *x, int64_t count,
                         int64_t row, const iso_panel *panel) {
  (void)kernel;
  uint8_t *out = panel->values + row * 64;
  for (int64_t k = 0; k < count; k += 32, out += TILE_BYTES)
    vec_store(out, (vec)_mm512_cvtne2ps_pbh(vecf_load(x + k + 16), vecf_load(x + k)));
}

static void bf16_many(const uint8_t *weights, uint64_t stride, int64_t n_groups, int64_t count,
                      const iso_panel *panel, float *sums) {
  (void)stride, (void)n_groups;
  bf16_panels(weights, count, 1, panel, sums);
}

/* ---- Quantized activations ------------------------------------------------------------------ */

#define TILE_GROUPS 3
#define WIDTH (TILE_GROUPS * GROUP)
/* An expanded stretch of a group: a tile for each step, then the scales of 16 columns. */
#define STRETCH_CODES (STRETCH / STEP * TILE_BYTES)
#define STRETCH_BYTES (STRETCH_CODES + 64)
#define LARGEST 127

static void int8_prepare(const iso_product_kernel *kernel, const float *x, int64_t count,
                         int64_t row, const iso_panel *panel) {
  (void)kernel;
  uint8_t *out = panel->values + row * 64;
  float largest = largest_magnitude(x, count);
  /* Below this the inverse would overflow; such a stretch is zero to every product. */
  bool zero = largest < 1e-30f;
  vecf inverse = _mm512_set1_ps(zero ? 0.0f : (float)LARGEST / largest);
  panel->scales[row] = zero ? 0.0f : largest * (1.0f / (float)LARGEST);
  for (int64_t k = 0; k < count; k += STEP, out += TILE_BYTES)
    for (int i = 0; i < STEP; i += 16) {
      vec value = _mm512_cvtps_epi32(vecf_mul(vecf_load(x + k + i), inverse));
      _mm_storeu_si128((__m128i *)(void *)(out + i), _mm512_cvtepi32_epi8(value));
    }
}

/* ---- Quantized weights ---------------------------------------------------------------------- */

/* Four codes of each row times `ratio` plus `start`, both in words of 8 bits behind the point, to
 * the byte before it. `start` has a half for rounding, and takes what codes are stored plus. */
INLINE void requantize_quad(vec codes, vec ratio, vec start, uint8_t *out) {
  vec even = _mm512_mullo_epi16(vec_and(codes, _mm512_set1_epi16(255)), ratio);
  vec odd = _mm512_mullo_epi16(_mm512_srli_epi16(codes, 8), ratio);
  even = _mm512_srli_epi16(_mm512_add_epi16(even, start), 8);
  odd = _mm512_add_epi16(odd, start);
  vec_store(out, _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, even, odd));
}

/* Results are within +-127 for the scale is a bound's; words may wrap on the way there. */
INLINE void requantize_portion(scheme_traits traits, const uint8_t *halves, const uint8_t *portion,
                               vecf inverse, uint8_t *out, int64_t k) {
  const vec half = _mm512_set1_epi16(128), zero = _mm512_set1_epi16((int16_t)traits.offset);
  inverse = vecf_mul(inverse, _mm512_set1_ps(256));
#pragma GCC unroll 4
  for (int part = 0; part < traits.parts; part++, k += 32) {
    vec codes[8];
    traits.codes(portion + traits.byte_bytes, part, codes);
    uint8_t *target = out + k / STEP * TILE_BYTES + k % STEP / 4 * 64;
    int subs = 32 / traits.sub;
#pragma GCC unroll 2
    for (int s = 0; s < subs; s++) {
      vecf scale, minimum;
      traits.scales(halves, portion, 0, part * subs + s, &scale, &minimum);
      vec ratio = both_words(vecf_mul(scale, inverse));
      vec start = traits.minimum ? _mm512_add_epi16(half, both_words(vecf_mul(minimum, inverse)))
                                 : _mm512_sub_epi16(half, _mm512_mullo_epi16(ratio, zero));
      int end = (s + 1) * traits.sub / 4;
#pragma GCC unroll 8
      for (int j = s * traits.sub / 4; j < end; j++)
        requantize_quad(codes[j], ratio, start, target + j * 64);
    }
  }
}

INLINE void expand(scheme_traits traits, const uint8_t *group, int64_t begin, int64_t count,
                   uint8_t *out) {
  expand_stretch(traits, 2 * center_of(traits) - 1, LARGEST, requantize_portion, group, begin,
                 count, out, (float *)(void *)(out + STRETCH_CODES));
}

/* ---- Quantized products --------------------------------------------------------------------- */

/* Sums of 16 rows, of three groups each. */
typedef int32_t tile_sums[TILE_GROUPS][TILE_BYTES / 4];

/* Rows [row, end) of 16, scaled and added. */
INLINE void add_rows(const tile_sums tiles, int64_t row, int64_t end, const vecf *scale,
                     const float *x_scales, float *sums) {
  for (; row < end; row++) {
    vecf x_scale = vecf_all(x_scales + row);
#pragma GCC unroll 3
    for (int g = 0; g < TILE_GROUPS; g++) {
      float *out = sums + row * WIDTH + g * GROUP;
      vecf sum = vecf_from_int(vec_load(&tiles[g][row * 16]));
      vecf_store(out, vecf_fma(sum, vecf_mul(scale[g], x_scale), vecf_load(out)));
    }
  }
}

/* One step of 16 rows times three groups. */
INLINE void int8_step(const uint8_t *x, const uint8_t *weights, uint64_t stride) {
  tile_load(3, x, 64);
  tile_load(4, weights, 64);
  tile_dot_int8(0, 3, 4);
  tile_load(4, weights + stride, 64);
  tile_dot_int8(1, 3, 4);
  tile_load(4, weights + 2 * stride, 64);
  tile_dot_int8(2, 3, 4);
}

/* Missing groups give what their memory holds. Sums stay below 127 127 256. A panel has room for a
 * scale a block of activations, and uses one a row. */
static void int8_many(const uint8_t *weights, uint64_t stride, int64_t n_groups, int64_t count,
                      const iso_panel *panel, float *sums) {
  (void)n_groups;
  _Alignas(64) tile_sums tiles[2];
  const float *scales = panel->scales;
  vecf scale[TILE_GROUPS];
  tile_fence();
  for (int g = 0; g < TILE_GROUPS; g++)
    scale[g] =
        vecf_load((const float *)(const void *)(weights + (uint64_t)g * stride + STRETCH_CODES));
  int64_t steps = count / STEP, step_rows = (16 + steps - 1) / steps, n = panel->rows / 16;
  const uint8_t *x = panel->values;
  for (int64_t i = 0; i < n; i++) {
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    for (int64_t k = 0, row = 0; k < steps; k++, row += step_rows, x += TILE_BYTES) {
      int8_step(x, weights + k * TILE_BYTES, stride);
      if (i > 0) /* the rows before */
        add_rows(tiles[(i + 1) % 2], row, row + step_rows < 16 ? row + step_rows : 16, scale,
                 scales, sums);
    }
    if (i > 0) {
      scales += PANEL_ROWS * count / ISO_ACTIVATION_BLOCK;
      sums += PANEL_ROWS * WIDTH;
    }
    tile_store(0, tiles[i % 2][0], 64);
    tile_store(1, tiles[i % 2][1], 64);
    tile_store(2, tiles[i % 2][2], 64);
    tile_fence();
  }
  add_rows(tiles[(n + 1) % 2], 0, 16, scale, scales, sums);
}

INTEGER_SCHEMES(DEFINE_EXPAND)

#define QUANTIZED_KERNEL(NAME, name, block, parts, sub, offset, minimum, half_bytes, byte_bytes,   \
                         code_bytes, class)                                                        \
  [ISO_SCHEME_##NAME] = {.panel_rows = PANEL_ROWS,                                                 \
                         .whole_panels = true,                                                     \
                         .call_rows = CALL_ROWS,                                                   \
                         .value_bytes = 1,                                                         \
                         .sub_shift = 5,                                                           \
                         .tile_groups = TILE_GROUPS,                                               \
                         .item_tiles = 4,                                                          \
                         .stretch_elements = STRETCH,                                              \
                         .stretch_stride = STRETCH_BYTES,                                          \
                         .tile_bytes = TILE_GROUPS * STRETCH_BYTES,                                \
                         .prepare = int8_prepare,                                                  \
                         .load = iso_amx_load_row,                                                 \
                         .store = iso_amx_store_row,                                               \
                         .expand = name##_expand,                                                  \
                         .many = int8_many,                                                        \
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
                                                            .prepare = bf16_prepare,
                                                            .load = iso_amx_load_row,
                                                            .store = iso_amx_store_row,
                                                            .many = bf16_many,
                                                            .begin = tile_begin,
                                                            .end = tile_end},
  };
  return (unsigned)scheme < ISO_SCHEME_COUNT && kernels[scheme].value_bytes ? &kernels[scheme]
                                                                            : NULL;
}
