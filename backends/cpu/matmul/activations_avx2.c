/* Quantized activations, AVX2. */
#include "backends/cpu/matmul/product.h"

#include <immintrin.h>
#include <string.h>

/* How far ahead of their use activations are asked for; they are new to the core that does it. */
#define PREFETCH_VALUES 192

/* Scale of 32 values, by which the largest becomes `largest_value`, and its inverse. The largest
 * magnitude is found among the bits, which order as integers with NaN above infinity: nothing that
 * is not finite gets lost. */
static inline __attribute__((always_inline)) float
block_scale(const __m256 x[4], float largest_value, float *out_inverse) {
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
  *out_inverse = largest_value / maximum;
  return maximum * (1.0f / largest_value);
}

/* Puts 32 values where a row's quads lie, eight of them, `step` bytes apart. */
typedef void (*store_quads)(const __m256i values[4], uint8_t *out, int64_t step);

static inline __attribute__((always_inline)) void store_words(const __m256i values[4], uint8_t *out,
                                                              int64_t step) {
  for (int i = 0; i < 4; i += 2) {
    /* Words in order but for the middle quads, which change places; so do the middle words. */
    __m256i words = _mm256_packs_epi32(values[i], values[i + 1]);
    words = _mm256_permute4x64_epi64(words, 0xd8);
    words = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
    int64_t quads[4];
    _mm256_storeu_si256((__m256i *)(void *)quads, words);
    for (int j = 0; j < 4; j++, out += step)
      memcpy(out, &quads[j], 8);
  }
}

static inline __attribute__((always_inline)) void store_planes(const __m256i values[4],
                                                               uint8_t *out, int64_t step) {
  const __m256i half = _mm256_set1_epi32(1 << (ISO_PLANE_BITS - 1));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  __m256i high[4], low[4];
  for (int i = 0; i < 4; i++) {
    high[i] = _mm256_srai_epi32(_mm256_add_epi32(values[i], half), ISO_PLANE_BITS);
    low[i] = _mm256_sub_epi32(values[i], _mm256_slli_epi32(high[i], ISO_PLANE_BITS));
  }
  int32_t words[2][8];
  for (int plane = 0; plane < 2; plane++) {
    const __m256i *q = plane ? low : high;
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    _mm256_storeu_si256((__m256i *)(void *)words[plane], _mm256_permutevar8x32_epi32(bytes, order));
  }
  for (int i = 0; i < 8; i++, out += step) {
    memcpy(out, &words[0][i], 4);
    memcpy(out + 4, &words[1][i], 4);
  }
}

static inline __attribute__((always_inline)) void store_bytes(const __m256i values[4], uint8_t *out,
                                                              int64_t step) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(values[0], values[1]),
                                     _mm256_packs_epi32(values[2], values[3]));
  int32_t quads[8];
  _mm256_storeu_si256((__m256i *)(void *)quads, _mm256_permutevar8x32_epi32(bytes, order));
  for (int i = 0; i < 8; i++, out += step)
    memcpy(out, &quads[i], 4);
}

/* Sum of sixteen values. */
static inline int32_t sum_of(__m256i a, __m256i b) {
  __m256i sums = _mm256_add_epi32(a, b);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

static inline __attribute__((always_inline)) void quantize(const iso_product_kernel *kernel,
                                                           const float *x, int64_t count,
                                                           int64_t row, const iso_panel *panel,
                                                           float largest_value, store_quads store) {
  int64_t quad_bytes = 4 * (int64_t)kernel->value_bytes;
  uint8_t *values = panel->values + quad_bytes * row;
  float *scales = panel->scales + row;
  int32_t *corrections = panel->corrections + row;
  int n_sums = kernel->sub_shift == 4 ? 2 : 1;
  for (int64_t k = 0; k < count; k += ISO_ACTIVATION_BLOCK) {
    __m256 v[4];
    _mm_prefetch((const char *)(x + k + PREFETCH_VALUES), _MM_HINT_T0);
    _mm_prefetch((const char *)(x + k + PREFETCH_VALUES + 16), _MM_HINT_T0);
    for (int i = 0; i < 4; i++)
      v[i] = _mm256_loadu_ps(x + k + 8 * i);
    float inverse, scale = block_scale(v, largest_value, &inverse);
    __m256i q[4];
    for (int i = 0; i < 4; i++)
      q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
    store(q, values, quad_bytes * panel->rows);
    values += 8 * quad_bytes * panel->rows;
    *scales = scale;
    scales += panel->rows;
    if (!kernel->minimum && !kernel->offset)
      continue;
    int32_t sums[2] = {sum_of(q[0], q[1]), sum_of(q[2], q[3])};
    if (n_sums == 1)
      sums[0] += sums[1];
    for (int i = 0; i < n_sums; i++, corrections += panel->rows) {
      float minimum_factor = scale * (float)sums[i];
      int32_t start = -kernel->offset * sums[i];
      memcpy(corrections, kernel->minimum ? (const void *)&minimum_factor : &start, 4);
    }
  }
}

void iso_avx2_quantize_planes(const iso_product_kernel *kernel, const float *x, int64_t count,
                              int64_t row, const iso_panel *panel) {
  quantize(kernel, x, count, row, panel, (float)ISO_ACTIVATION_MAXIMUM, store_planes);
}

void iso_avx2_quantize_words(const iso_product_kernel *kernel, const float *x, int64_t count,
                             int64_t row, const iso_panel *panel) {
  quantize(kernel, x, count, row, panel, (float)ISO_ACTIVATION_MAXIMUM, store_words);
}

void iso_avx2_quantize_bytes(const iso_product_kernel *kernel, const float *x, int64_t count,
                             int64_t row, const iso_panel *panel) {
  quantize(kernel, x, count, row, panel, 127.0f, store_bytes);
}
