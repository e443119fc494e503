/* What the CPU's thread pool costs: a barrier, a fork and join, and idling.
 *
 *   bench_cpu_threads [--threads 1,2] [--neighbours 0,2]
 *
 * Neighbours are threads of this program that only burn time, as other programs on the same CPUs
 * would. Each number is of many repetitions: what the median one took, and the mean, which is
 * what a step pays. Then the pool is left alone for a second, and the CPU time it used is read. */
#include "bench/kernels/cpu_bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define ROUNDS 20000
/* Barriers timed together, so that the clock's own cost does not show. */
#define BATCH 20

static double samples[ROUNDS];

typedef struct barrier_job {
  iso_cpu_pool *pool;
  int rounds;
} barrier_job;

static void barrier_task(void *context, uint32_t thread, uint32_t n_threads) {
  barrier_job *job = context;
  for (int i = 0; i < job->rounds; i++) {
    double start = thread ? 0 : cpu_bench_now();
    for (int j = 0; j < BATCH; j++)
      iso_cpu_barrier(job->pool, n_threads);
    if (!thread)
      samples[i] = (cpu_bench_now() - start) / BATCH;
  }
}

static void empty_task(void *context, uint32_t thread, uint32_t n_threads) {
  (void)context, (void)thread, (void)n_threads;
}

static void *neighbour_main(void *argument) {
  while (atomic_load_explicit((atomic_bool *)argument, memory_order_relaxed)) {
  }
  return NULL;
}

static double cpu_seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void report(const char *what, uint32_t n_threads, int n_neighbours, double mean, int count) {
  printf("| %-13s | %2u | %2d | %8.3f | %8.3f | %8.3f |\n", what, n_threads, n_neighbours,
         1e6 * cpu_bench_quantile(samples, count, 0.5),
         1e6 * cpu_bench_quantile(samples, count, 0.99), 1e6 * mean);
  fflush(stdout);
}

static void bench_pool(uint32_t n_threads, int n_neighbours) {
  enum { MOST = 64 };
  cpu_bench b = {0};
  pthread_t neighbours[MOST];
  atomic_bool busy = true;
  int started = 0;
  cpu_bench_open(&b, n_threads);
  iso_cpu_pool *pool = b.device->pool;
  while (started < n_neighbours && started < MOST &&
         pthread_create(&neighbours[started], NULL, neighbour_main, &busy) == 0)
    started++;
  int rounds = started ? ROUNDS / 100 : ROUNDS / 10;
  barrier_job job = {pool, rounds};
  double start = cpu_bench_now();
  iso_cpu_parallel(pool, n_threads, barrier_task, &job);
  report("barrier", n_threads, started, (cpu_bench_now() - start) / rounds / BATCH, rounds);
  rounds = started ? ROUNDS / 20 : ROUNDS;
  start = cpu_bench_now();
  for (int i = 0; i < rounds; i++) {
    double began = cpu_bench_now();
    iso_cpu_parallel(pool, n_threads, empty_task, NULL);
    samples[i] = cpu_bench_now() - began;
  }
  report("fork and join", n_threads, started, (cpu_bench_now() - start) / rounds, rounds);
  atomic_store(&busy, false);
  for (int i = 0; i < started; i++)
    pthread_join(neighbours[i], NULL);
  double before = cpu_seconds();
  sleep(1);
  printf("| idle for 1 s  | %2u |    |          |          | %8.3f |\n", n_threads,
         1e6 * (cpu_seconds() - before));
  cpu_bench_close(&b);
}

int main(int argc, char **argv) {
  const char *threads = "1,2", *neighbours = "0";
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--threads") == 0)
      threads = argv[i + 1];
    else if (strcmp(argv[i], "--neighbours") == 0)
      neighbours = argv[i + 1];
  }
  printf("| | threads | neighbours | median us | 99%% us | mean us |\n"
         "|---|---:|---:|---:|---:|---:|\n");
  char *list = strdup(neighbours), *state;
  for (char *count = list ? strtok_r(list, ",", &state) : NULL; count;
       count = strtok_r(NULL, ",", &state)) {
    char *sizes = strdup(threads), *size_state;
    for (char *size = sizes ? strtok_r(sizes, ",", &size_state) : NULL; size;
         size = strtok_r(NULL, ",", &size_state))
      bench_pool((uint32_t)atoi(size), atoi(count));
    free(sizes);
  }
  free(list);
  return 0;
}
