/* What the CUDA kernel benchmarks share: the few objects of the backend that kernels want, random
 * data, timing by replayed graphs, and the machine's copy bandwidth.
 *
 * The programs stand alone: nvcc, this repository and a card are all they need. Each checks its
 * kernels against sums in double on the CPU, with outputs poisoned before, and times only what has
 * passed. */
#ifndef ISOMER_BENCH_CUDA_H
#define ISOMER_BENCH_CUDA_H

#include "backends/simt/simt.cuh"
#include <isomer/quant.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#define BENCH_TRY(call)                                                                            \
  do {                                                                                             \
    cudaError_t bench_error_ = (call);                                                             \
    if (bench_error_ != cudaSuccess) {                                                             \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(bench_error_));      \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static iso_status bench_fail(iso_status code, const char *file, int line, const char *format, ...) {
  va_list list;
  va_start(list, format);
  printf("%s:%d: ", file, line);
  vprintf(format, list);
  printf("\n");
  va_end(list);
  return code;
}
static const iso_host bench_host = {sizeof bench_host, ISO_ABI_VERSION, bench_fail, nullptr};
const iso_host *cuda_host = &bench_host;
iso_status cuda_failure(cudaError_t error, const char *what, const char *file, int line) {
  return bench_fail(ISO_ERROR_DEVICE, file, line, "%s: %s", what, cudaGetErrorString(error));
}
iso_status cuda_launched(iso_queue *, const char *name) {
  cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? ISO_OK : cuda_failure(error, name, __FILE__, __LINE__);
}

iso_status simt_flush_deferred(iso_queue *, simt_deferred *) { return ISO_OK; }

struct bench_card {
  iso_device device = {};
  iso_queue queue = {};
  cudaDeviceProp properties;
  double copy_bytes_per_us; /* read and written */
};

static uint64_t bench_state = 0x9E3779B97F4A7C15;
static uint64_t bench_random() { /* SplitMix64 */
  uint64_t z = (bench_state += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}
static double bench_uniform() { return ((double)(bench_random() >> 11) + 0.5) * 0x1p-53; }
static float bench_normal() {
  return (float)(sqrt(-2 * log(bench_uniform())) * cos(6.283185307179586 * bench_uniform()));
}

template <typename T> static T *bench_device(const T *from, size_t count) {
  T *to;
  BENCH_TRY(cudaMalloc(&to, count * sizeof(T) + 256));
  if (from)
    BENCH_TRY(cudaMemcpy(to, from, count * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

/* Median microseconds of one call of `enqueue(i)`, of `n_calls` calls recorded as one graph. */
template <typename F> static double bench_time(bench_card *card, int n_calls, F enqueue) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t start, stop;
  BENCH_TRY(cudaStreamBeginCapture(card->queue.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < n_calls; i++)
    if (enqueue(i) != ISO_OK)
      exit(1);
  BENCH_TRY(cudaStreamEndCapture(card->queue.stream, &graph));
  BENCH_TRY(cudaGraphInstantiate(&exec, graph, 0));
  BENCH_TRY(cudaEventCreate(&start));
  BENCH_TRY(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < 9; i++) {
    BENCH_TRY(cudaEventRecord(start, card->queue.stream));
    BENCH_TRY(cudaGraphLaunch(exec, card->queue.stream));
    BENCH_TRY(cudaEventRecord(stop, card->queue.stream));
    BENCH_TRY(cudaEventSynchronize(stop));
    float ms;
    BENCH_TRY(cudaEventElapsedTime(&ms, start, stop));
    if (i >= 2)
      times.push_back(ms);
  }
  for (size_t i = 1; i < times.size(); i++)
    for (size_t j = i; j > 0 && times[j] < times[j - 1]; j--)
      std::swap(times[j], times[j - 1]);
  BENCH_TRY(cudaGraphExecDestroy(exec));
  BENCH_TRY(cudaGraphDestroy(graph));
  BENCH_TRY(cudaEventDestroy(start));
  BENCH_TRY(cudaEventDestroy(stop));
  return times[times.size() / 2] * 1e3 / n_calls;
}

static __global__ void bench_copy(const uint4 *from, uint4 *to, size_t n) {
  size_t step = (size_t)gridDim.x * blockDim.x, i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step) {
    uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a, to[i + step] = b, to[i + 2 * step] = c, to[i + 3 * step] = d;
  }
  for (; i < n; i += step)
    to[i] = from[i];
}

static void bench_open(bench_card *card) {
  BENCH_TRY(cudaSetDevice(0));
  BENCH_TRY(cudaGetDeviceProperties(&card->properties, 0));
  card->device.generation = card->properties.major * 10 + card->properties.minor;
  card->device.n_units = card->properties.multiProcessorCount;
  card->device.shared_bytes = (int)card->properties.sharedMemPerBlockOptin;
  card->device.starts_early = card->device.generation >= 90;
  card->device.l2_bytes = card->properties.l2CacheSize;
  card->queue.device = &card->device;
  BENCH_TRY(cudaStreamCreateWithFlags(&card->queue.stream, cudaStreamNonBlocking));
  size_t counters = SIMT_COUNTERS * sizeof *card->queue.counters;
  BENCH_TRY(cudaMalloc(&card->queue.counters, counters));
  BENCH_TRY(cudaMemset(card->queue.counters, 0, counters));
  size_t bytes = 1ull << 30;
  uint8_t *a = bench_device<uint8_t>(nullptr, bytes), *b = bench_device<uint8_t>(nullptr, bytes);
  double us = bench_time(card, 4, [&](int) {
    bench_copy<<<card->device.n_units * 8, 512, 0, card->queue.stream>>>((const uint4 *)a,
                                                                         (uint4 *)b, bytes / 16);
    return cuda_launched(&card->queue, "copy");
  });
  card->copy_bytes_per_us = 2 * (double)bytes / us;
  BENCH_TRY(cudaFree(a));
  BENCH_TRY(cudaFree(b));
  printf("%s, %d multiprocessors, copy %.0f GB/s (read and written)\n", card->properties.name,
         card->device.n_units, card->copy_bytes_per_us / 1e3);
}

static void bench_repeat(void *data, size_t have, size_t want) {
  for (; have > 0 && have < want; have *= 2)
    memcpy((uint8_t *)data + have, data, have < want - have ? have : want - have);
}

/* Random rows of any weight scheme, values of about 0.01 to 1, decoded by `iso_scheme_decode_row`.
 */
[[maybe_unused]] static std::vector<uint8_t> bench_weight(iso_scheme scheme, int64_t n_rows,
                                                          int64_t n_columns) {
  static const struct {
    iso_scheme scheme;
    int halves[2];
  } fields[] = {
      {ISO_SCHEME_Q4_0, {0, -1}},  {ISO_SCHEME_Q4_1, {0, 2}},    {ISO_SCHEME_Q5_0, {0, -1}},
      {ISO_SCHEME_Q5_1, {0, 2}},   {ISO_SCHEME_Q8_0, {0, -1}},   {ISO_SCHEME_IQ4_NL, {0, -1}},
      {ISO_SCHEME_Q2_K, {80, 82}}, {ISO_SCHEME_Q3_K, {108, -1}}, {ISO_SCHEME_Q4_K, {0, 2}},
      {ISO_SCHEME_Q5_K, {0, 2}},   {ISO_SCHEME_Q6_K, {208, -1}}};
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  /* The first blocks are random, and repeated for the rest. */
  size_t n_blocks = (size_t)n_rows * n_columns / info->block_elements;
  size_t distinct = n_blocks < (1 << 17) - 1 ? n_blocks : (1 << 17) - 1;
  std::vector<uint8_t> data(n_blocks * info->block_bytes + 8);
  for (size_t i = 0; i < distinct * info->block_bytes; i++)
    data[i] = (uint8_t)bench_random();
  for (size_t i = 0; i < distinct && info->kind != ISO_SCHEME_KIND_BLOCK; i++) {
    float value = bench_normal() * 0.05f;
    uint16_t bits = scheme == ISO_SCHEME_F16 ? iso_f16_from_f32(value) : iso_bf16_from_f32(value);
    memcpy(&data[i * info->block_bytes], &bits, 2);
  }
  for (auto &f : fields)
    for (int h = 0; f.scheme == scheme && h < 2; h++)
      for (size_t i = 0; i < distinct && f.halves[h] >= 0; i++) {
        uint16_t bits = iso_f16_from_f32((float)(0.002 + 0.01 * bench_uniform()));
        memcpy(&data[i * info->block_bytes + f.halves[h]], &bits, 2);
      }
  bench_repeat(data.data(), distinct * info->block_bytes, n_blocks * info->block_bytes);
  return data;
}

#endif
