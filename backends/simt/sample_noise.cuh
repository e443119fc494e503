/* The noise that tokens are drawn with, by the definitions of ops/sampling.h. */
#ifndef ISOMER_SIMT_SAMPLE_NOISE_H
#define ISOMER_SIMT_SAMPLE_NOISE_H

#include "backends/simt/simt.cuh"

static __device__ void simt_philox(uint64_t key, uint32_t x0, uint32_t x1, uint32_t out[4]) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32), x2 = 0, x3 = 0;
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xD2511F53u * x0, b = (uint64_t)0xCD9E8D57u * x2;
    x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
    x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
    x1 = (uint32_t)b;
    x3 = (uint32_t)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = x0, out[1] = x1, out[2] = x2, out[3] = x3;
}

/* v of a token's word. */
static __device__ float simt_uniform(uint32_t word) {
  float v = (float)(word >> 8) * 0x1p-24f + ((float)(word & 255) + 0.5f) * 0x1p-32f;
  return fminf(v, 1 - 0x1p-24f);
}

static __device__ double simt_gumbel(uint32_t word) {
  return -log(-log1p(-(double)simt_uniform(word)));
}

/* The same to 10^-4. */
static __device__ float simt_gumbel_nearly(uint32_t word) {
  float v = simt_uniform(word);
  float series = v * (1 + v * (0.5f + v * (1.0f / 3 + v * 0.25f)));
  return -__logf(v < 0.02f ? series : -__logf(1 - v));
}

#endif
