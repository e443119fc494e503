#include "backends/cuda/gaps.h"
#include "backends/cuda/cuda.h"
#include <stdlib.h>
#include <string.h>

void cuda_gaps_create(cuda_gaps *gaps) {
  const char *wanted = getenv("ISOMER_CUDA_GAPS");
  gaps->on = wanted && strcmp(wanted, "1") == 0;
  for (int i = 0; i < 2 && gaps->on; i++)
    gaps->on = cudaEventCreate(&gaps->begin[i]) == cudaSuccess &&
               cudaEventCreate(&gaps->end[i]) == cudaSuccess;
}

/* The event of a replay is used again two replays later: the one before must be done by then. A gap
 * that is not over when the next one begins is none: steps overlap. */
void cuda_gaps_before(cuda_gaps *gaps, cudaStream_t stream) {
  if (!gaps->on)
    return;
  uint32_t now = gaps->n_replays % 2, before = now ^ 1;
  float ms;
  if (gaps->n_replays >= 2 &&
      cudaEventElapsedTime(&ms, gaps->end[now], gaps->begin[before]) == cudaSuccess)
    gaps->us[gaps->n_gaps++ % CUDA_GAPS] = ms * 1e3f;
  (void)cudaGetLastError();
  gaps->on = cudaEventRecord(gaps->begin[now], stream) == cudaSuccess;
}

void cuda_gaps_after(cuda_gaps *gaps, cudaStream_t stream) {
  if (gaps->on)
    gaps->on = cudaEventRecord(gaps->end[gaps->n_replays++ % 2], stream) == cudaSuccess;
}

static int compare(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return x < y ? -1 : x > y;
}

void cuda_gaps_destroy(cuda_gaps *gaps) {
  uint32_t n = gaps->n_gaps < CUDA_GAPS ? gaps->n_gaps : CUDA_GAPS;
  qsort(gaps->us, n, sizeof gaps->us[0], compare);
  if (n > 0)
    cuda_host->log(ISO_LOG_NOTICE,
                   "cuda: nothing to do between replayed steps for %.1f us (median of %u; a tenth "
                   "of them above %.1f us)",
                   (double)gaps->us[n / 2], n, (double)gaps->us[n - 1 - n / 10]);
  for (int i = 0; i < 2; i++) {
    if (gaps->begin[i])
      (void)cudaEventDestroy(gaps->begin[i]);
    if (gaps->end[i])
      (void)cudaEventDestroy(gaps->end[i]);
  }
}
