/* Quantized activations, SSE2: words as activations_avx2.c makes them, bit for bit. */
#include "backends/cpu/matmul/product.h"

#include <emmintrin.h>
#include <string.h>

#define VECTORS (ISO_ACTIVATION_BLOCK / 4)

/* The largest magnitude of 32 values, found among the bits: NaN is above infinity. */
static float largest_of(const float *x) {
  int32_t lanes[4] = {0}, most = 0;
  for (int i = 0; i < ISO_ACTIVATION_BLOCK; i++) {
    int32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffff;
    lanes[i % 4] = bits > lanes[i % 4] ? bits : lanes[i % 4];
  }
  for (int i = 0; i < 4; i++)
    most = lanes[i] > most ? lanes[i] : most;
  float largest;
  memcpy(&largest, &most, sizeof largest);
  return largest;
}

/* Sum of the lanes. */
static int32_t sum_of(__m128i sums) {
  sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0xb1)));
}

/* Two quads, with their middle words in each other's place. */
static void store_quads(__m128i first, __m128i second, uint8_t *out, int64_t step) {
  __m128i words = _mm_packs_epi32(first, second);
  words = _mm_shufflehi_epi16(_mm_shufflelo_epi16(words, 0xd8), 0xd8);
  _mm_storel_epi64((__m128i *)(void *)out, words);
  _mm_storel_epi64((__m128i *)(void *)(out + step), _mm_unpackhi_epi64(words, words));
}

void iso_baseline_quantize_words(const iso_product_kernel *kernel, const float *x, int64_t count,
                                 int64_t row, const iso_panel *panel) {
  int64_t quad_bytes = 4 * (int64_t)kernel->value_bytes, step = quad_bytes * panel->rows;
  uint8_t *values = panel->values + quad_bytes * row;
  float *scales = panel->scales + row;
  int32_t *corrections = panel->corrections + row;
  int n_sums = kernel->sub_shift == 4 ? 2 : 1;
  for (int64_t k = 0; k < count; k += ISO_ACTIVATION_BLOCK, scales += panel->rows) {
    float largest = largest_of(x + k);
    /* Below this the inverse would overflow; such a block is zero to every product. */
    bool zero = largest < 1e-30f;
    float inverse = zero ? 0.0f : (float)ISO_ACTIVATION_MAXIMUM / largest;
    *scales = zero ? 0.0f : largest * (1.0f / (float)ISO_ACTIVATION_MAXIMUM);
    __m128i halves[2] = {_mm_setzero_si128(), _mm_setzero_si128()};
    for (int i = 0; i < VECTORS; i += 2, values += 2 * step) {
      __m128i q[2];
      for (int j = 0; j < 2; j++)
        q[j] = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + k + 4 * (i + j)), _mm_set1_ps(inverse)));
      halves[i / (VECTORS / 2)] =
          _mm_add_epi32(halves[i / (VECTORS / 2)], _mm_add_epi32(q[0], q[1]));
      store_quads(q[0], q[1], values, step);
    }
    int32_t sums[2] = {sum_of(halves[0]), sum_of(halves[1])};
    if (n_sums == 1)
      sums[0] += sums[1];
    for (int i = 0; i < n_sums; i++, corrections += panel->rows) {
      float minimum_factor = *scales * (float)sums[i];
      int32_t start = -kernel->offset * sums[i];
      memcpy(corrections, kernel->minimum ? (const void *)&minimum_factor : &start, 4);
    }
  }
}
