/* How long the device has nothing to do between one replayed step and the next, which is the host's
 * time: with ISOMER_CUDA_GAPS=1 a queue tells it when it is destroyed. */
#ifndef ISOMER_BACKENDS_CUDA_GAPS_H
#define ISOMER_BACKENDS_CUDA_GAPS_H

#include <cuda_runtime.h>
#include <stdint.h>

constexpr uint32_t CUDA_GAPS = 1024;

/* Of one queue, all zero at first. */
struct cuda_gaps {
  bool on;
  uint32_t n_replays, n_gaps; /* gaps: in all; the latest CUDA_GAPS are kept */
  cudaEvent_t begin[2], end[2];
  float us[CUDA_GAPS];
};

void cuda_gaps_create(cuda_gaps *gaps); /* as the environment says */
/* Around each replay on `stream`. Failures turn the measurement off. */
void cuda_gaps_before(cuda_gaps *gaps, cudaStream_t stream);
void cuda_gaps_after(cuda_gaps *gaps, cudaStream_t stream);
/* Tells the median, if there are any. */
void cuda_gaps_destroy(cuda_gaps *gaps);

#endif
