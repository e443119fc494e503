/* The CPU backend's thread pool: fork and join of short loops.
 *
 * Why not OpenMP: each library would bring a runtime of its own, and their threads would spin
 * beside each other; a model step has hundreds of fork-joins of 10 to 100 us, so workers must
 * stay hot between two of them, and must sleep when the server idles. Here a worker spins for
 * about 30 us after its work and then sleeps in the kernel.
 *
 * Determinism: how work is split over threads may vary, as a busy pool runs a task on its
 * caller alone. A task must compute the same values for any n_threads. */
#ifndef ISOMER_BACKENDS_CPU_THREADS_H
#define ISOMER_BACKENDS_CPU_THREADS_H

#include "backends/cpu/topology.h"

#include <isomer/backend.h>

typedef struct iso_cpu_pool iso_cpu_pool;

/* Runs as thread `thread` of `n_threads`; thread 0 is the caller. */
typedef void (*iso_cpu_task)(void *context, uint32_t thread, uint32_t n_threads);

/* A pool of `n_threads` (0: the default), its caller counted. More than four times the CPUs, or
 * more than ISO_CPU_MAX_THREADS, is refused. */
ISO_MUST_CHECK iso_status iso_cpu_pool_create(uint32_t n_threads, iso_cpu_pool **out_pool);
/* No task may be running. NULL is allowed. */
void iso_cpu_pool_destroy(iso_cpu_pool *pool);

/* Gives each thread but the caller a CPU of its own, the list's first aside: that is left for the
 * caller. A pool of more threads than the list has CPUs is refused. */
ISO_MUST_CHECK iso_status iso_cpu_pool_pin(iso_cpu_pool *pool, const iso_cpu_list *list);
uint32_t iso_cpu_pool_size(const iso_cpu_pool *pool);

/* Runs `task` on up to `max_threads` threads and returns when all have. With max_threads 1 it is
 * a plain call. Any thread may call; while another thread's task runs, or from inside a task, it
 * runs on the caller alone. */
void iso_cpu_parallel(iso_cpu_pool *pool, uint32_t max_threads, iso_cpu_task task, void *context);

/* The same for a task whose threads take items from a common counter until none is left: one that
 * comes when all are taken, as where other programs hold its CPU, is not waited for. The task may
 * run on any of the threads, thread 0 among them, and has no barriers. */
void iso_cpu_parallel_items(iso_cpu_pool *pool, uint32_t max_threads, iso_cpu_task task,
                            void *context);

/* Inside a task of iso_cpu_parallel(): waits until all its n_threads threads have come here. */
void iso_cpu_barrier(iso_cpu_pool *pool, uint32_t n_threads);

/* The share of thread `thread` in `total` items, in whole granules: [*out_begin, *out_end). */
static inline void iso_cpu_share(int64_t total, int64_t granule, uint32_t thread,
                                 uint32_t n_threads, int64_t *out_begin, int64_t *out_end) {
  int64_t granules = (total + granule - 1) / granule;
  int64_t begin = granules * thread / n_threads * granule;
  int64_t end = granules * (thread + 1) / n_threads * granule;
  *out_begin = begin < total ? begin : total;
  *out_end = end < total ? end : total;
}

/* How many threads are worth waking for `work` units when one needs at least `per_thread`. */
static inline uint32_t iso_cpu_threads_for(const iso_cpu_pool *pool, int64_t work,
                                           int64_t per_thread) {
  int64_t wanted = work / per_thread;
  uint32_t size = iso_cpu_pool_size(pool);
  return wanted < 1 ? 1 : wanted < size ? (uint32_t)wanted : size;
}

#endif
