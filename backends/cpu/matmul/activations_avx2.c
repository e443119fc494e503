/* int8 activations, AVX2; every higher tier uses this one too, so that tiers agree bit for bit. */
#include "backends/cpu/matmul/product.h"

#include <immintrin.h>
#include <string.h>

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
  *out_inverse = 127.0f / maximum;
  return maximum / 127.0f;
}

void iso_avx2_quantize_row(const iso_product_kernel *kernel, const float *x, int64_t elements,
                           int64_t panel_rows, uint8_t *values, float *scales,
                           int32_t *corrections) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int64_t k = 0; k < elements; k += ISO_ACTIVATION_BLOCK) {
    __m256 v[4];
    for (int i = 0; i < 4; i++)
      v[i] = _mm256_loadu_ps(x + k + 8 * i);
    float inverse, scale = block_scale(v, &inverse);
    __m256i q[4];
    for (int i = 0; i < 4; i++)
      q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, order);
    int32_t words[8];
    _mm256_storeu_si256((__m256i *)(void *)words, bytes);
    for (int i = 0; i < 8; i++, values += 4 * panel_rows)
      memcpy(values, &words[i], 4);
    *scales = scale;
    scales += panel_rows;
    if (!kernel->minimum && !kernel->offset)
      continue;
    /* Sums of 8 bytes that were made unsigned, plus 128 each. */
    uint64_t eights[4];
    _mm256_storeu_si256((__m256i *)(void *)eights,
                        _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80)),
                                        _mm256_setzero_si256()));
    int32_t sums[2] = {(int32_t)(eights[0] + eights[1]) - 2048,
                       (int32_t)(eights[2] + eights[3]) - 2048};
    int n_sums = kernel->sub_elements == 16 ? 2 : 1;
    if (n_sums == 1)
      sums[0] += sums[1];
    for (int i = 0; i < n_sums; i++, corrections += panel_rows) {
      float minimum_factor = scale * (float)sums[i];
      int32_t start = -kernel->offset * sums[i];
      memcpy(corrections, kernel->minimum ? (const void *)&minimum_factor : &start, 4);
    }
  }
}
