/* Reading memory as fast as a CPU can: what bench/limits and the kernels' benchmarks hold times
 * against. */
#ifndef ISOMER_BENCH_READS_H
#define ISOMER_BENCH_READS_H

#include "backends/cpu/tier.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Reads `bytes` at `data`, aligned to 64, and returns how many they were. */
typedef double (*bench_read)(const uint8_t *data, uint64_t bytes);

static double bench_read_words(const uint8_t *data, uint64_t bytes) {
  uint64_t sums[8] = {0};
  for (uint64_t i = 0; i + 64 <= bytes; i += 64)
    for (uint64_t j = 0; j < 8; j++) {
      uint64_t word;
      memcpy(&word, data + i + 8 * j, 8);
      sums[j] |= word;
    }
  for (int j = 0; j < 8; j++)
    __asm__ volatile("" ::"r"(sums[j]));
  return (double)bytes;
}

#if defined(__x86_64__)
#define BENCH_DEFINE_READ(name, features, type, load, join)                                        \
  __attribute__((target(features))) static double name(const uint8_t *data, uint64_t bytes) {      \
    type sums[4];                                                                                  \
    memset(sums, 0, sizeof sums);                                                                  \
    for (uint64_t i = 0; i + 4 * sizeof(type) <= bytes; i += 4 * sizeof(type))                     \
      for (uint64_t j = 0; j < 4; j++)                                                             \
        sums[j] = join(sums[j], load((const void *)(data + i + j * sizeof(type))));                \
    for (int j = 0; j < 4; j++)                                                                    \
      __asm__ volatile("" ::"v"(sums[j]));                                                         \
    return (double)bytes;                                                                          \
  }
BENCH_DEFINE_READ(bench_read_avx2, "avx2", __m256i, _mm256_load_si256, _mm256_or_si256)
BENCH_DEFINE_READ(bench_read_avx512, "avx512f", __m512i, _mm512_load_si512, _mm512_or_si512)
#endif

/* The widest reads of a machine with these ISO_CPU_HAS_ bits. */
static inline bench_read bench_best_read(uint32_t features) {
#if defined(__x86_64__)
  if (features & ISO_CPU_HAS_AVX512F)
    return bench_read_avx512;
  if (features & ISO_CPU_HAS_AVX2)
    return bench_read_avx2;
#endif
  (void)features;
  return bench_read_words;
}

#endif
