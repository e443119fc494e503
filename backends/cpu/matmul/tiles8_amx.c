/* Products of many rows in 8 bits on AMX tiles, tier amx: where a graph allows that of its
 * operands.
 *
 * One int8 on both sides, summed in int32, under one scale for a stretch of elements of a row. 16
 * cycles for 16 x 16 x 64: the floor is 2,048 operations a cycle.
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
 * Activations are panels of 16 rows; a step of a panel is a tile, 64 bytes of each row. Quantized
 * weights of 64 columns are decoded for all of K, up to SPAN, before they are multiplied: beside
 * products it took them half their speed (backends/cpu/README.md). tile_rotation.inc decodes,
 * tile_span.inc multiplies. Where 8 bits under such a scale lose too much, tiles16_amx.c is asked.
 */
#include "backends/cpu/matmul/vector_avx512.h"

#include "backends/cpu/matmul/product.h"

#include <string.h>

#include "backends/cpu/matmul/tile_product.inc"

#include "backends/cpu/matmul/tile_codes.inc"

#include "backends/cpu/matmul/tile_rotation.inc"

#include "backends/cpu/matmul/tile_span.inc"

/* Elements of quantized weights: the activations of CALL_ROWS and a tile, over so many, fit the
 * second level. */
#define SPAN 2048
#define GROUPS BLOCK_TILES

/* ---- Quantized activations ------------------------------------------------------------------ */

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

/* ---- Products ------------------------------------------------------------------------------- */

/* Missing groups give what their memory holds. Sums stay below 127 127 STRETCH. A panel has room
 * for a scale a block of activations, and uses one a row. */
static void int8_many(const iso_product_call *call) {
  multiply_span((span_form){.stretch = STRETCH,
                            .elements = STEP,
                            .tile_bytes = BLOCK_TILES * STRETCH_BYTES,
                            .group = STRETCH_BYTES,
                            .stride = 64,
                            .step = TILE_BYTES,
                            .scales = STRETCH_CODES},
                call);
}

INTEGER_SCHEMES(DEFINE_EXPAND)

#define QUANTIZED(name)                                                                            \
  SPAN_KERNEL(name), .value_bytes = 1, .sub_shift = 5, .prepare = int8_prepare,                    \
                     .prepare_bf16 = int8_prepare_bf16, .many = int8_many

const iso_product_kernel *iso_amx_tile8_kernel(iso_scheme scheme) {
  static const iso_product_kernel kernels[ISO_SCHEME_COUNT] = {INTEGER_SCHEMES(QUANTIZED_KERNEL)};
  return iso_product_kernel_of(kernels, scheme);
}
