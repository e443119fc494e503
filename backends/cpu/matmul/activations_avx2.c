/* Activations in two int8 planes, AVX2. */
#include "backends/cpu/matmul/product.h"

#include <immintrin.h>
#include <string.h>

/* How far ahead of their use activations are asked for; they are new to the core that does it. */
#define PREFETCH_VALUES 192

/* Scale of 32 values and its inverse. The largest magnitude is found among the bits, which order
 * as integers with NaN above infinity: nothing that is not finite gets lost. */
static float block_scale(const __m256 x[4], float *out_inverse) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_and_si256(_mm256_castps_si256(x[0]), magnitude);
  for (int i = 1; i < 4; i++)
    largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(x[i]), magnitude));
  __m128i most =
      _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
  float maximum = _mm_cvtss_f32(_mm_castsi128_ps(most));
  /* Below this the inverse would overflow; such a block is zero to every product. */
  if (maximum < 1e-30f) {
    *out_inverse = 0.0f;
    return 0.0f;
  }
  *out_inverse = (float)ISO_ACTIVATION_MAXIMUM / maximum;
  return maximum * (1.0f / (float)ISO_ACTIVATION_MAXIMUM);
}

/* Four vectors of eight integers within +-127, as 32 bytes in order. */
static __m256i narrow(const __m256i q[4]) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])), order);
}

/* Sums of the first and the last 16 of 32 signed bytes. */
static void sum_halves(__m256i bytes, int32_t out_sums[2]) {
  /* Sums of 8 bytes that were made unsigned, plus 128 each. */
  uint64_t eights[4];
  _mm256_storeu_si256((__m256i *)(void *)eights,
                      _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80)),
                                      _mm256_setzero_si256()));
  out_sums[0] = (int32_t)(eights[0] + eights[1]) - 2048;
  out_sums[1] = (int32_t)(eights[2] + eights[3]) - 2048;
}

void iso_avx2_quantize_row(const iso_product_kernel *kernel, const float *x, int64_t count,
                           int64_t row, const iso_panel *panel) {
  uint8_t *values = panel->values + 8 * row;
  float *scales = panel->scales + row;
  int32_t *corrections = panel->corrections + row;
  for (int64_t k = 0; k < count; k += ISO_ACTIVATION_BLOCK) {
    __m256 v[4];
    _mm_prefetch((const char *)(x + k + PREFETCH_VALUES), _MM_HINT_T0);
    _mm_prefetch((const char *)(x + k + PREFETCH_VALUES + 16), _MM_HINT_T0);
    for (int i = 0; i < 4; i++)
      v[i] = _mm256_loadu_ps(x + k + 8 * i);
    float inverse, scale = block_scale(v, &inverse);
    __m256i high[4], low[4];
    for (int i = 0; i < 4; i++) {
      __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
      const __m256i half = _mm256_set1_epi32(1 << (ISO_PLANE_BITS - 1));
      high[i] = _mm256_srai_epi32(_mm256_add_epi32(q, half), ISO_PLANE_BITS);
      low[i] = _mm256_sub_epi32(q, _mm256_slli_epi32(high[i], ISO_PLANE_BITS));
    }
    __m256i high_bytes = narrow(high), low_bytes = narrow(low);
    int32_t words[2][8];
    _mm256_storeu_si256((__m256i *)(void *)words[0], high_bytes);
    _mm256_storeu_si256((__m256i *)(void *)words[1], low_bytes);
    for (int i = 0; i < 8; i++, values += 8 * panel->rows) {
      memcpy(values, &words[0][i], 4);
      memcpy(values + 4, &words[1][i], 4);
    }
    *scales = scale;
    scales += panel->rows;
    if (!kernel->minimum && !kernel->offset)
      continue;
    int32_t high_sums[2], sums[2];
    sum_halves(high_bytes, high_sums);
    sum_halves(low_bytes, sums);
    for (int i = 0; i < 2; i++)
      sums[i] += high_sums[i] * (1 << ISO_PLANE_BITS);
    int n_sums = kernel->sub_shift == 4 ? 2 : 1;
    if (n_sums == 1)
      sums[0] += sums[1];
    for (int i = 0; i < n_sums; i++, corrections += panel->rows) {
      float minimum_factor = scale * (float)sums[i];
      int32_t start = -kernel->offset * sums[i];
      memcpy(corrections, kernel->minimum ? (const void *)&minimum_factor : &start, 4);
    }
  }
}
