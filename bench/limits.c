/* What this machine can do at most: the floor under every kernel's time.
 *
 *   limits [-t threads] [--json]
 *
 * Read bandwidth of memory and of each cache, and operations a second (a multiply-add is two) of
 * the instructions that kernels are made of, on one thread and on all. Each number is the best of
 * a few short runs; all take some seconds. Instructions that the CPU or the system lacks are left
 * out. Caches are asked for half of what the system says they hold. */
#include "backends/cpu/threads.h"
#include "backends/cpu/tier.h"
#include "bench/reads.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define RUN_SECONDS 0.08
#define RUNS 3
#define MEMORY_BYTES (UINT64_C(1) << 30)

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- Work: each returns what it did, in bytes or operations ---------------------------------- */

typedef bench_read limit_work;

#if defined(__x86_64__)
/* Ten independent sums, so that latency does not show; the empty asm keeps every step. */
#define STEPS 20000
#define DEFINE_PEAK(name, features, type, zero, step, operations)                                  \
  __attribute__((target(features))) static double name(const uint8_t *data, uint64_t bytes) {      \
    (void)data, (void)bytes;                                                                       \
    type s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero, s5 = zero, s6 = zero, s7 = zero;   \
    type s8 = zero, s9 = zero, a = zero, b = zero;                                                 \
    __asm__ volatile("" : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4));                       \
    __asm__ volatile("" : "+v"(s5), "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9));                       \
    for (int n = 0; n < STEPS; n++) {                                                              \
      step(s0), step(s1), step(s2), step(s3), step(s4);                                            \
      step(s5), step(s6), step(s7), step(s8), step(s9);                                            \
      __asm__ volatile("" : "+v"(a), "+v"(b));                                                     \
    }                                                                                              \
    __asm__ volatile("" ::"v"(s0), "v"(s1), "v"(s2), "v"(s3), "v"(s4), "v"(s5), "v"(s6), "v"(s7),  \
                     "v"(s8), "v"(s9));                                                            \
    return (double)(operations)*10 * STEPS;                                                        \
  }
#define F32_AVX2(s) s = _mm256_fmadd_ps(a, b, s)
#define F32_AVX512(s) s = _mm512_fmadd_ps(a, b, s)
/* Of the sum itself: a product of a and b would be computed once for all ten. */
#define INT16_AVX2(s) s = _mm256_add_epi32(s, _mm256_madd_epi16(a, s))
#define INT8_AVX512(s) s = _mm512_dpbusd_epi32(s, a, b)
#define BF16_AVX512(s) s = _mm512_dpbf16_ps(s, (__m512bh)a, (__m512bh)b)
DEFINE_PEAK(f32_avx2, "avx2,fma", __m256, _mm256_setzero_ps(), F32_AVX2, 16)
DEFINE_PEAK(f32_avx512, "avx512f", __m512, _mm512_setzero_ps(), F32_AVX512, 32)
DEFINE_PEAK(int16_avx2, "avx2", __m256i, _mm256_setzero_si256(), INT16_AVX2, 32)
DEFINE_PEAK(int8_avx512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), INT8_AVX512, 128)
DEFINE_PEAK(bf16_avx512, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(), BF16_AVX512, 64)

/* Full tiles. */
__attribute__((target("amx-tile"))) static void begin_tiles(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  __asm__ volatile("" ::"r"(&config) : "memory");
  _tile_loadconfig(&config);
}

/* Six tiles of sums. */
#define ADD_TILES(add)                                                                             \
  add(0, 6, 7);                                                                                    \
  add(1, 6, 7);                                                                                    \
  add(2, 6, 7);                                                                                    \
  add(3, 6, 7);                                                                                    \
  add(4, 6, 7);                                                                                    \
  add(5, 6, 7)
#define DEFINE_TILES(name, features, add, operations)                                              \
  __attribute__((target(features))) static double name(const uint8_t *data, uint64_t bytes) {      \
    (void)data, (void)bytes;                                                                       \
    begin_tiles();                                                                                 \
    for (int n = 0; n < STEPS / 10; n++) {                                                         \
      ADD_TILES(add);                                                                              \
    }                                                                                              \
    _tile_release();                                                                               \
    return (double)(operations)*16 * 16 * 6 * (STEPS / 10);                                        \
  }
DEFINE_TILES(int8_amx, "amx-tile,amx-int8", _tile_dpbssd, 128)
DEFINE_TILES(bf16_amx, "amx-tile,amx-bf16", _tile_dpbf16ps, 64)

/* Four of sums, of operands from the first-level cache: half of that or less while another guest of
 * the machine has the other half of a core. */
#define LOAD_AND_ADD(sum, add)                                                                     \
  _tile_loadd(5, data + at + (sum)*TILE, 64);                                                      \
  add(sum, 4, 5)
#define TILE 1024
#define DEFINE_LOADED_TILES(name, features, add, operations)                                       \
  __attribute__((target(features))) static double name(const uint8_t *data, uint64_t bytes) {      \
    (void)bytes;                                                                                   \
    begin_tiles();                                                                                 \
    for (int n = 0, at = 0; n < STEPS / 10; n++, at = (at + 4 * TILE) % (16 * TILE)) {             \
      _tile_loadd(4, data + 16 * TILE + at / 4, 64);                                               \
      LOAD_AND_ADD(0, add);                                                                        \
      LOAD_AND_ADD(1, add);                                                                        \
      LOAD_AND_ADD(2, add);                                                                        \
      LOAD_AND_ADD(3, add);                                                                        \
    }                                                                                              \
    _tile_release();                                                                               \
    return (double)(operations)*16 * 16 * 4 * (STEPS / 10);                                        \
  }
DEFINE_LOADED_TILES(int8_amx_loads, "amx-tile,amx-int8", _tile_dpbssd, 128)
DEFINE_LOADED_TILES(bf16_amx_loads, "amx-tile,amx-bf16", _tile_dpbf16ps, 64)
#endif

/* ---- Limits --------------------------------------------------------------------------------- */

typedef enum limit_place { REGISTERS, L2, L3, MEMORY } limit_place;

typedef struct limit {
  const char *key, *title;
  limit_place place;
  uint32_t needs; /* ISO_CPU_HAS_ bits */
  limit_work work;
} limit;

static const limit limits[] = {
    {"read_memory", "memory, read", MEMORY, 0, NULL},
    {"read_l3", "L3 cache, read", L3, 0, NULL},
    {"read_l2", "L2 cache, read", L2, 0, NULL},
#if defined(__x86_64__)
    {"f32_avx2", "f32 multiply-add, AVX2", REGISTERS, ISO_CPU_HAS_AVX2 | ISO_CPU_HAS_FMA, f32_avx2},
    {"int16_avx2", "int16 vpmaddwd and add, AVX2", REGISTERS, ISO_CPU_HAS_AVX2, int16_avx2},
    {"f32_avx512", "f32 multiply-add, AVX-512", REGISTERS, ISO_CPU_HAS_AVX512F, f32_avx512},
    {"bf16_avx512", "bf16 vdpbf16ps, AVX-512", REGISTERS,
     ISO_CPU_HAS_AVX512F | ISO_CPU_HAS_AVX512_BF16, bf16_avx512},
    {"int8_avx512", "int8 vpdpbusd, AVX-512 VNNI", REGISTERS,
     ISO_CPU_HAS_AVX512F | ISO_CPU_HAS_AVX512_VNNI, int8_avx512},
    {"bf16_amx", "bf16 tdpbf16ps, AMX", REGISTERS, ISO_CPU_HAS_AMX_TILE | ISO_CPU_HAS_AMX_BF16,
     bf16_amx},
    {"bf16_amx_loads", "bf16 tdpbf16ps and loads, AMX", REGISTERS,
     ISO_CPU_HAS_AMX_TILE | ISO_CPU_HAS_AMX_BF16, bf16_amx_loads},
    {"int8_amx", "int8 tdpbssd, AMX", REGISTERS, ISO_CPU_HAS_AMX_TILE | ISO_CPU_HAS_AMX_INT8,
     int8_amx},
    {"int8_amx_loads", "int8 tdpbssd and loads, AMX", REGISTERS,
     ISO_CPU_HAS_AMX_TILE | ISO_CPU_HAS_AMX_INT8, int8_amx_loads},
#endif
};

static uint64_t cache_bytes(int name, uint64_t fallback) {
  long bytes = sysconf(name);
  return bytes > 0 ? (uint64_t)bytes : fallback;
}

/* Bytes that each of n_threads reads again and again. */
static uint64_t share_of(limit_place place, uint32_t n_threads) {
  uint64_t l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, UINT64_C(1) << 20);
  uint64_t bytes = 0;
  if (place == MEMORY)
    bytes = MEMORY_BYTES / n_threads;
  else if (place == L3)
    bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE, UINT64_C(16) << 20) / 2 / n_threads;
  else if (place == L2)
    bytes = l2 / 2;
  /* A share of the third level that the second holds would measure that. */
  if (place == L3 && bytes < 2 * l2)
    bytes = 2 * l2;
  return bytes / 4096 * 4096;
}

typedef struct limit_job {
  iso_cpu_pool *pool;
  limit_work work;
  const uint8_t *data;
  uint64_t bytes;
  double seconds;
  _Atomic double done;
} limit_job;

static void limit_task(void *context, uint32_t thread, uint32_t n_threads) {
  limit_job *job = context;
  const uint8_t *data = job->data + thread * job->bytes;
  job->work(data, job->bytes < MEMORY_BYTES / 64 ? job->bytes : 0); /* warms caches and clock */
  iso_cpu_barrier(job->pool, n_threads);
  double start = now(), done = 0, seconds;
  /* Of memory a part at a time, so that a run ends when it should. */
  uint64_t part = job->bytes < (UINT64_C(4) << 20) ? job->bytes : UINT64_C(4) << 20, at = 0;
  do {
    done += job->work(data + at, part);
    at = at + 2 * part <= job->bytes ? at + part : 0;
    seconds = now() - start;
  } while (seconds < job->seconds);
  double rate = done / seconds, old = atomic_load(&job->done);
  while (!atomic_compare_exchange_weak(&job->done, &old, old + rate)) {
  }
}

/* Bytes or operations a second; the best run. */
static double measure(iso_cpu_pool *pool, const limit *what, limit_work read, uint32_t n_threads,
                      const uint8_t *data) {
  double best = 0;
  for (int run = 0; run < RUNS; run++) {
    limit_job job = {.pool = pool,
                     .work = what->work ? what->work : read,
                     .data = data,
                     .bytes = share_of(what->place, n_threads),
                     .seconds = what->place == MEMORY ? 2 * RUN_SECONDS : RUN_SECONDS};
    iso_cpu_parallel(pool, n_threads, limit_task, &job);
    double rate = atomic_load(&job.done);
    best = rate > best ? rate : best;
  }
  return best;
}

/* ---- Report --------------------------------------------------------------------------------- */

static void print_limit(const limit *what, double one, double all, bool json, bool *first) {
  if (json) {
    printf("%s\n  \"%s\": {\"one\": %.4g, \"all\": %.4g}", *first ? "" : ",", what->key, one, all);
  } else {
    const char *unit = what->place == REGISTERS ? "GOP/s" : "GB/s";
    printf("| %-30s | %-5s | %10.1f | %10.1f |\n", what->title, unit, one / 1e9, all / 1e9);
  }
  *first = false;
  fflush(stdout);
}

int main(int argc, char **argv) {
  uint32_t n_threads = 0;
  bool json = false;
  for (int i = 1; i < argc; i++) {
    char *end = NULL;
    if (strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (strcmp(argv[i], "-t") == 0 && i + 1 < argc) {
      long value = strtol(argv[++i], &end, 10);
      n_threads = *end || value < 1 || value > ISO_CPU_MAX_THREADS ? UINT32_MAX : (uint32_t)value;
    } else {
      n_threads = UINT32_MAX;
    }
  }
  if (n_threads == UINT32_MAX) {
    fprintf(stderr, "usage: limits [-t threads] [--json]; threads are 1 to %u\n",
            ISO_CPU_MAX_THREADS);
    return 2;
  }
  uint32_t n_cpus;
  iso_cpu_machine machine;
  iso_cpu_machine_detect(&machine);
  if (!n_threads)
    n_threads = iso_cpu_default_threads(&n_cpus);
  iso_cpu_pool *pool;
  uint64_t bytes = MEMORY_BYTES + n_threads * (share_of(L3, n_threads) + share_of(L2, n_threads));
  uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED || iso_cpu_pool_create(n_threads, &pool) != ISO_OK) {
    fprintf(stderr, "limits: no %llu MiB of memory, or not %u threads here\n",
            (unsigned long long)bytes >> 20, n_threads);
    return 1;
  }
  madvise(data, bytes, MADV_HUGEPAGE);
  memset(data, 1, bytes);
  bool first = true;
  if (json)
    printf("{\n  \"cpu\": \"%s\",\n  \"threads\": %u,", machine.brand, n_threads);
  else
    printf("| %s | | one thread | %3u threads |\n|---|---|---:|---:|\n", machine.brand, n_threads);
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    if ((machine.features & limits[i].needs) != limits[i].needs)
      continue;
    limit_work read = bench_best_read(machine.features);
    double one = measure(pool, &limits[i], read, 1, data);
    double all = n_threads > 1 ? measure(pool, &limits[i], read, n_threads, data) : one;
    print_limit(&limits[i], one, all, json, &first);
  }
  if (json)
    printf("\n}\n");
  iso_cpu_pool_destroy(pool);
  munmap(data, bytes);
  return 0;
}
