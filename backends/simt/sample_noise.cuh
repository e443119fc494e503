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

static __device__ double simt_gumbel(uint64_t seed, uint32_t draw, int32_t token) {
  uint32_t words[4];
  simt_philox(seed, (uint32_t)token / 4, draw, words);
  int which = token % 4;
  uint32_t word = which == 0 ? words[0] : which == 1 ? words[1] : which == 2 ? words[2] : words[3];
  float v = (float)(word >> 8) * 0x1p-24f + ((float)(word & 255) + 0.5f) * 0x1p-32f;
  v = fminf(v, 1 - 0x1p-24f);
  return -log(-log1p(-(double)v));
}

#endif
