/* What the benchmarks of single CPU kernels share: a device, operands, clocks and medians. */
#ifndef ISOMER_BENCH_KERNELS_CPU_BENCH_H
#define ISOMER_BENCH_KERNELS_CPU_BENCH_H

#include "backends/cpu/cpu.h"
#include "bench/reads.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct cpu_bench {
  const iso_backend *backend;
  iso_device *device;
  iso_queue *queue;
} cpu_bench;

static inline void cpu_bench_log(iso_log_level level, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (level <= ISO_LOG_NOTICE)
    vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

/* Ends the program when a step has failed. */
static inline void cpu_bench_check(iso_status status, const char *what) {
  if (status == ISO_OK)
    return;
  fprintf(stderr, "%s: %s\n", what, iso_status_message());
  exit(1);
}

/* Opens the device with `n_threads` (0: the default); ISOMER_CPU_ISA holds. */
static inline void cpu_bench_open(cpu_bench *out_bench, uint32_t n_threads) {
  static const iso_host host = {sizeof(iso_host), ISO_ABI_VERSION, iso_fail_at, cpu_bench_log};
  iso_device_options options = {.size = sizeof options, .n_threads = n_threads};
  cpu_bench *b = out_bench;
  b->backend = iso_cpu_backend_query(ISO_ABI_VERSION, &host);
  cpu_bench_check(b->backend->driver->open(0, &options, &b->device), "open");
  cpu_bench_check(b->backend->queue->create(b->device, &b->queue), "queue");
}

static inline void cpu_bench_close(cpu_bench *b) {
  b->backend->queue->destroy(b->queue);
  b->backend->device->close(b->device);
}

/* A buffer of zeros. */
static inline iso_buffer *cpu_bench_alloc(cpu_bench *b, uint64_t bytes) {
  iso_buffer *buffer;
  cpu_bench_check(b->backend->memory->alloc(b->device, ISO_MEMORY_DEVICE, bytes, &buffer), "alloc");
  memset(buffer->data, 0, bytes);
  return buffer;
}

/* Dense rows at the start of a buffer. */
static inline iso_tensor cpu_bench_tensor(iso_buffer *buffer, iso_scheme scheme, uint32_t n_dims,
                                          const int64_t *dims) {
  iso_tensor tensor = {.buffer = buffer, .scheme = scheme, .n_dims = n_dims};
  uint64_t row_bytes;
  cpu_bench_check(iso_scheme_row_bytes(scheme, dims[n_dims - 1], &row_bytes), "row");
  int64_t stride = (int64_t)row_bytes;
  for (uint32_t i = n_dims; i-- > 0;) {
    tensor.dims[i] = dims[i];
    tensor.strides[i] = i == n_dims - 1 ? iso_scheme_get_info(scheme)->block_bytes : stride;
    stride *= i == n_dims - 1 ? 1 : dims[i];
  }
  return tensor;
}

/* The record that the core would choose among those of layout PLAIN, or ends the program. */
static inline const iso_kernel *cpu_bench_choose(cpu_bench *b, const iso_op_arguments *arguments,
                                                 iso_scheme scheme) {
  const iso_kernel *best = NULL;
  for (uint32_t i = 0; i < b->backend->kernel_count; i++) {
    const iso_kernel *kernel = &b->backend->kernels[i];
    const char *detail;
    if (kernel->op == arguments->op && kernel->layout == ISO_LAYOUT_PLAIN &&
        (!kernel->schemes || kernel->schemes & ISO_SCHEME_BIT(scheme)) &&
        (!best || kernel->rank > best->rank) &&
        (!kernel->check || kernel->check(b->device, arguments, &detail) == ISO_ACCEPTED))
      best = kernel;
  }
  if (!best)
    cpu_bench_check(iso_fail(ISO_ERROR_UNSUPPORTED, "no kernel accepts this case"), "choose");
  return best;
}

static inline double cpu_bench_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline int cpu_bench_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts the samples; `share` 0.5 is the median. */
static inline double cpu_bench_quantile(double *samples, int count, double share) {
  qsort(samples, (size_t)count, sizeof *samples, cpu_bench_compare);
  return samples[(int)(share * (count - 1) + 0.5)];
}

typedef struct cpu_bench_read_job {
  const uint8_t *data;
  uint64_t bytes;
  bench_read read;
} cpu_bench_read_job;

static inline void cpu_bench_read_task(void *context, uint32_t thread, uint32_t n_threads) {
  cpu_bench_read_job *job = context;
  int64_t begin, end;
  iso_cpu_share((int64_t)job->bytes, 4096, thread, n_threads, &begin, &end);
  job->read(job->data + begin, (uint64_t)(end - begin));
}

/* Seconds for all threads to read a span of memory once. */
static inline double cpu_bench_time_read(cpu_bench *b, const uint8_t *data, uint64_t bytes) {
  cpu_bench_read_job job = {data, bytes / 4096 * 4096, bench_best_read(b->device->cpu_features)};
  double start = cpu_bench_now();
  iso_cpu_parallel(b->device->pool, UINT32_MAX, cpu_bench_read_task, &job);
  return cpu_bench_now() - start;
}

#endif
