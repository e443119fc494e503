/* Times the CPU's matrix products against the limits of the machine it runs on.
 *
 *   bench_cpu_matmul [--isa avx2|avx512|amx] [--threads n] [--schemes q8_0,q4_0] [--rows 1,512]
 *                    [--n 4096] [--k 4096] [--megabytes 256] [--seconds 0.5] [--bits 8]
 *                    [--activation f32|bf16]
 *
 * For each scheme and number of rows: the median time, the bytes of packed weights read a second
 * and their share of the read bandwidth, the multiply-adds (two operations each) a second and
 * their share of the tier's peak. Weights rotate through copies larger than the caches, as a
 * model's do; --megabytes 0 keeps one copy, to see what is not memory. --bits is the op's
 * operand_bits. The limits are measured first, on the same threads. */
#include "backends/cpu/cpu.h"
#include "bench/reads.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of the bandwidth measurement. */
#define READ_BYTES (UINT64_C(512) << 20)
#define MAX_SAMPLES 4096

static void print_log(iso_log_level level, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (level <= ISO_LOG_NOTICE)
    vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

static void check(iso_status status, const char *what) {
  if (status == ISO_OK)
    return;
  fprintf(stderr, "%s: %s\n", what, iso_status_message());
  exit(1);
}

/* With one thread its CPU time is read, which does not count what other programs take. */
static clockid_t clock_id = CLOCK_MONOTONIC;

static double now(void) {
  struct timespec time;
  clock_gettime(clock_id, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* ---- Limits --------------------------------------------------------------------------------- */

typedef struct limit_job {
  iso_cpu_pool *pool;
  const uint8_t *data;
  uint64_t bytes;
  int kind; /* 0 read, 1 f32 multiply-adds, 2 int8 dot products */
  iso_cpu_tier tier;
  bench_read read;
  volatile uint64_t sink;
} limit_job;

#define PEAK_STEPS 2000000

#if defined(__x86_64__)
/* Ten independent sums in registers, so that latency does not show. */
#define DEFINE_PEAK(name, features, type, zero, step)                                              \
  __attribute__((target(features))) static uint64_t name(void) {                                   \
    type s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero, s5 = zero, s6 = zero, s7 = zero;   \
    type s8 = zero, s9 = zero, a = zero, b = zero;                                                 \
    __asm__ volatile("" : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4));                       \
    __asm__ volatile("" : "+v"(s5), "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9));                       \
    for (int n = 0; n < PEAK_STEPS / 10; n++) {                                                    \
      step(s0), step(s1), step(s2), step(s3), step(s4);                                            \
      step(s5), step(s6), step(s7), step(s8), step(s9);                                            \
      __asm__ volatile("" : "+v"(a), "+v"(b));                                                     \
    }                                                                                              \
    __asm__ volatile("" ::"v"(s0), "v"(s1), "v"(s2), "v"(s3), "v"(s4), "v"(s5), "v"(s6), "v"(s7),  \
                     "v"(s8), "v"(s9));                                                            \
    return 0;                                                                                      \
  }
#define F32_AVX2(s) s = _mm256_fmadd_ps(a, b, s)
#define F32_AVX512(s) s = _mm512_fmadd_ps(a, b, s)
/* Of the sum itself: a product of a and b would be computed once for all ten. */
#define INT8_AVX2(s) s = _mm256_add_epi16(s, _mm256_maddubs_epi16(a, s))
#define INT8_AVX512(s) s = _mm512_dpbusd_epi32(s, a, b)
DEFINE_PEAK(peak_f32_avx2, "avx2,fma", __m256, _mm256_setzero_ps(), F32_AVX2)
DEFINE_PEAK(peak_f32_avx512, "avx512f", __m512, _mm512_setzero_ps(), F32_AVX512)
DEFINE_PEAK(peak_int8_avx2, "avx2", __m256i, _mm256_setzero_si256(), INT8_AVX2)
DEFINE_PEAK(peak_int8_avx512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), INT8_AVX512)
#endif

static void limit_task(void *context, uint32_t thread, uint32_t n_threads) {
  limit_job *job = context;
  uint64_t result = 0;
#if defined(__x86_64__)
  bool wide = job->tier >= ISO_CPU_TIER_AVX512;
  if (job->kind == 1)
    result = wide ? peak_f32_avx512() : peak_f32_avx2();
  else if (job->kind == 2)
    result = wide ? peak_int8_avx512() : peak_int8_avx2();
#endif
  if (job->kind == 0) {
    int64_t begin, end;
    iso_cpu_share((int64_t)job->bytes, 4096, thread, n_threads, &begin, &end);
    job->read(job->data + begin, (uint64_t)(end - begin));
  }
  job->sink = result;
}

/* Units a second of a limit, best of a few. */
static double measure_limit(limit_job *job, int kind, double units) {
  double best = 1e30;
  job->kind = kind;
  for (int i = 0; i < 7; i++) {
    double start = now();
    iso_cpu_parallel(job->pool, iso_cpu_pool_size(job->pool), limit_task, job);
    double time = now() - start;
    best = time < best ? time : best;
  }
  return units / best;
}

/* ---- Products ------------------------------------------------------------------------------- */

typedef struct options {
  const char *isa, *schemes, *rows;
  int64_t n, k, megabytes;
  uint32_t threads, bits;
  iso_scheme activation;
  double seconds;
} options;

typedef struct bench {
  const iso_backend *backend;
  iso_device *device;
  iso_queue *queue;
  double bandwidth, peak_f32, peak_int8;
} bench;

static iso_buffer *allocate(bench *b, uint64_t bytes) {
  iso_buffer *buffer;
  check(b->backend->memory->alloc(b->device, ISO_MEMORY_DEVICE, bytes, &buffer), "alloc");
  memset(buffer->data, 0, bytes);
  return buffer;
}

static iso_tensor tensor_of(iso_buffer *buffer, iso_scheme scheme, int64_t rows, int64_t columns) {
  uint64_t row_bytes;
  check(iso_scheme_row_bytes(scheme, columns, &row_bytes), "row");
  iso_tensor tensor = {.buffer = buffer, .scheme = scheme, .n_dims = 2};
  tensor.dims[0] = rows;
  tensor.dims[1] = columns;
  tensor.strides[0] = (int64_t)row_bytes;
  tensor.strides[1] = iso_scheme_get_info(scheme)->block_bytes;
  return tensor;
}

/* The record that the core would choose: the highest rank that accepts. */
static const iso_kernel *choose(bench *b, const iso_op_arguments *arguments, uint32_t layout) {
  const iso_kernel *best = NULL;
  for (uint32_t i = 0; i < b->backend->kernel_count; i++) {
    const iso_kernel *kernel = &b->backend->kernels[i];
    const char *detail;
    if (kernel->op == ISO_OP_MATMUL && kernel->layout == layout &&
        (kernel->schemes & ISO_SCHEME_BIT(arguments->inputs[1].scheme)) &&
        (!best || kernel->rank > best->rank) &&
        (!kernel->check || kernel->check(b->device, arguments, &detail) == ISO_ACCEPTED))
      best = kernel;
  }
  return best;
}

static void bench_product(bench *b, const options *o, iso_scheme scheme, int64_t m) {
  iso_op_arguments arguments = {.size = sizeof arguments, .op = ISO_OP_MATMUL, .n_inputs = 3};
  iso_matmul_attributes attributes = {
      .size = sizeof attributes, .operand_bits = o->bits, .operand_neighbours = 256};
  arguments.n_outputs = 1;
  arguments.attributes = &attributes;
  iso_buffer *x = allocate(b, (uint64_t)(m * o->k) * sizeof(float));
  iso_buffer *y = allocate(b, (uint64_t)(m * o->n) * sizeof(float));
  for (int64_t i = 0; i < m * o->k; i++)
    iso_scheme_encode_row(o->activation, &(float){(float)(i * 7 % 31 - 15) / 16}, NULL,
                          x->data + i * iso_scheme_get_info(o->activation)->block_bytes, 1);
  arguments.inputs[0] = tensor_of(x, o->activation, m, o->k);
  arguments.inputs[1] = tensor_of(NULL, scheme, o->n, o->k);
  arguments.outputs[0] = tensor_of(y, o->activation, m, o->n);
  const iso_kernel *kernel = choose(b, &arguments, 1);
  if (!kernel)
    kernel = choose(b, &arguments, ISO_LAYOUT_PLAIN);
  iso_host_weight weight = {.size = sizeof weight, .scheme = scheme, .n_dims = 2};
  weight.dims[0] = o->n;
  weight.dims[1] = o->k;
  weight.bytes = (uint64_t)(o->n * arguments.inputs[1].strides[0]);
  uint8_t *source = malloc(weight.bytes);
  if (!source)
    exit(1);
  /* Rows alike, of numbers: bytes as they come would make scales that are denormal, which some CPUs
   * multiply a hundred times slower. */
  float *row = malloc((size_t)o->k * sizeof *row);
  if (!row)
    exit(1);
  for (int64_t i = 0; i < o->k; i++)
    row[i] = (float)(i * 7 % 29 - 14) / 256;
  iso_scheme_encode_row(scheme, row, NULL, source, o->k);
  free(row);
  for (int64_t i = 1; i < o->n; i++)
    memcpy(source + i * arguments.inputs[1].strides[0], source,
           (size_t)arguments.inputs[1].strides[0]);
  weight.data = source;
  uint64_t bytes = weight.bytes;
  if (kernel->packed_bytes)
    check(kernel->packed_bytes(b->device, &weight, &bytes), "packed_bytes");
  uint64_t stride = (bytes + 63) / 64 * 64,
           copies = (uint64_t)o->megabytes * (1 << 20) / stride + 1;
  iso_buffer *weights = allocate(b, copies * stride);
  double pack_start = now();
  for (uint64_t i = 0; i < copies; i++)
    if (kernel->pack)
      check(kernel->pack(b->queue, &weight, weights, i * stride), "pack");
    else
      memcpy(weights->data + i * stride, source, bytes);
  double pack_time = now() - pack_start;
  arguments.inputs[1].buffer = weights;
  arguments.inputs[1].layout = kernel->layout;
  arguments.workspace_bytes = kernel->workspace(b->device, &arguments);
  arguments.workspace = allocate(b, arguments.workspace_bytes + 64);

  static double samples[MAX_SAMPLES];
  int count = 0;
  double end = now() + o->seconds;
  for (; count < MAX_SAMPLES && (count < 3 || now() < end); count++) {
    arguments.inputs[1].offset = (uint64_t)count % copies * stride;
    double start = now();
    check(kernel->launch(b->queue, &arguments), kernel->name);
    samples[count] = now() - start;
  }
  qsort(samples, (size_t)count, sizeof(double), compare_doubles);
  double time = samples[count / 2], low = samples[count / 10];
  double rate = (double)bytes / time, operations = 2.0 * (double)m * (double)(o->n * o->k) / time;
  double peak = strstr(kernel->name, "integer") ? b->peak_int8 : b->peak_f32;
  printf("%-22s %-7s m %4d  %9.3f ms (10%% below %9.3f)  %6.2f GB/s %4.0f%%  %7.1f GOP/s %4.0f%%"
         "  pack %.2f GB/s\n",
         kernel->name, iso_scheme_get_info(scheme)->name, (int)m, 1e3 * time, 1e3 * low,
         1e-9 * rate, 100 * rate / b->bandwidth, 1e-9 * operations, 100 * operations / peak,
         1e-9 * (double)(weight.bytes * copies) / pack_time);
  b->backend->memory->free(b->device, arguments.workspace);
  b->backend->memory->free(b->device, weights);
  b->backend->memory->free(b->device, x);
  b->backend->memory->free(b->device, y);
  free(source);
}

static void open_device(bench *b, const options *o) {
  static const iso_host host = {sizeof(iso_host), ISO_ABI_VERSION, iso_fail_at, print_log};
  iso_device_options device_options = {sizeof device_options, o->threads};
  if (o->isa)
    setenv("ISOMER_CPU_ISA", o->isa, 1);
  b->backend = iso_cpu_backend_query(ISO_ABI_VERSION, &host);
  check(b->backend->driver->open(0, &device_options, &b->device), "open");
  check(b->backend->queue->create(b->device, &b->queue), "queue");
  iso_buffer *data = allocate(b, READ_BYTES);
  limit_job job = {.pool = b->device->pool, .data = data->data, .bytes = READ_BYTES};
  job.tier = b->device->tier;
  job.read = bench_best_read(b->device->cpu_features);
  double threads = iso_cpu_pool_size(job.pool);
  if (iso_cpu_pool_size(job.pool) == 1)
    clock_id = CLOCK_THREAD_CPUTIME_ID;
  double lanes = job.tier >= ISO_CPU_TIER_AVX512 ? 16 : 8;
  b->bandwidth = measure_limit(&job, 0, (double)READ_BYTES);
  b->peak_f32 = measure_limit(&job, 1, 2 * lanes * PEAK_STEPS * threads);
  b->peak_int8 = measure_limit(&job, 2, 8 * lanes * PEAK_STEPS * threads);
  printf("%s, %s, %d threads: read %.1f GB/s, f32 %.0f GFLOP/s, int8 %.0f GOP/s\n",
         b->device->info.name, iso_cpu_tier_name(job.tier), (int)threads, 1e-9 * b->bandwidth,
         1e-9 * b->peak_f32, 1e-9 * b->peak_int8);
  b->backend->memory->free(b->device, data);
}

int main(int argc, char **argv) {
  options o = {.schemes = "q8_0,q4_0,q4_1,q4_k,q6_k,bf16,f16,f32",
               .rows = "1,4,16,512",
               .n = 4096,
               .k = 4096,
               .megabytes = 256,
               .threads = 1,
               .activation = ISO_SCHEME_F32,
               .seconds = 0.5};
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (strcmp(name, "--isa") == 0)
      o.isa = value;
    else if (strcmp(name, "--threads") == 0)
      o.threads = (uint32_t)atoi(value);
    else if (strcmp(name, "--bits") == 0)
      o.bits = (uint32_t)atoi(value);
    else if (strcmp(name, "--schemes") == 0)
      o.schemes = value;
    else if (strcmp(name, "--rows") == 0)
      o.rows = value;
    else if (strcmp(name, "--n") == 0)
      o.n = atoll(value);
    else if (strcmp(name, "--k") == 0)
      o.k = atoll(value);
    else if (strcmp(name, "--megabytes") == 0)
      o.megabytes = atoll(value);
    else if (strcmp(name, "--seconds") == 0)
      o.seconds = atof(value);
    else if (strcmp(name, "--activation") == 0 && !iso_scheme_from_name(value, &o.activation))
      return 1;
  }
  bench b = {0};
  open_device(&b, &o);
  char *schemes = strdup(o.schemes), *scheme_state;
  for (char *name = strtok_r(schemes, ",", &scheme_state); name;
       name = strtok_r(NULL, ",", &scheme_state)) {
    iso_scheme scheme;
    if (!iso_scheme_from_name(name, &scheme)) {
      fprintf(stderr, "unknown scheme %s\n", name);
      return 1;
    }
    char *rows = strdup(o.rows), *row_state;
    for (char *row = strtok_r(rows, ",", &row_state); row; row = strtok_r(NULL, ",", &row_state))
      bench_product(&b, &o, scheme, atoll(row));
    free(rows);
  }
  free(schemes);
  b.backend->queue->destroy(b.queue);
  b.backend->device->close(b.device);
  return 0;
}
