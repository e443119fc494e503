#include "backends/cpu/threads.h"

#include "backends/cpu/cpu.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS 30000
#define CACHE_LINE 64

/* ---- A word that threads wait on: spin, then sleep ------------------------------------------ */

typedef struct wait_word {
  _Alignas(CACHE_LINE) atomic_uint value;
  atomic_uint sleepers;
} wait_word;

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* Counts the word up. The change and the read of `sleepers` are sequentially consistent, as are
 * their counterparts in word_wait(): either the waiter sees the new value or it is woken. */
static void word_raise(wait_word *word) {
  atomic_fetch_add(&word->value, 1);
  if (atomic_load(&word->sleepers))
    syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Returns the value once it differs from `old`. */
static uint32_t word_wait(wait_word *word, uint32_t old) {
  uint32_t value;
  int64_t deadline = 0;
  for (uint32_t i = 1;; i++) {
    value = atomic_load_explicit(&word->value, memory_order_acquire);
    if (value != old)
      return value;
    relax();
    if (i % 64)
      continue;
    int64_t now = now_ns();
    if (!deadline)
      deadline = now + SPIN_NS;
    else if (now > deadline)
      break;
  }
  atomic_fetch_add(&word->sleepers, 1);
  while ((value = atomic_load(&word->value)) == old)
    syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
  atomic_fetch_sub(&word->sleepers, 1);
  return value;
}

/* ---- The pool ------------------------------------------------------------------------------- */

typedef struct worker {
  wait_word ticket; /* raised for each task this worker may take part in */
  iso_cpu_pool *pool;
  pthread_t handle;
  uint32_t index; /* its thread number in tasks, from 1 */
  uint32_t last;  /* generation of the last task it took part in */
} worker;

/* A task is open while its gate is: the high bit says closed, the rest counts workers inside. One
 * that comes to a closed gate leaves at once, and has seen nothing of the task. */
#define GATE_CLOSED 0x80000000u

struct iso_cpu_pool {
  uint32_t n_threads;
  pthread_mutex_t lock; /* held by the caller whose task runs */
  /* The task: written while the gate is closed and nobody inside, read by those inside. */
  iso_cpu_task task;
  void *context;
  uint32_t n_active, generation;
  atomic_bool stop; /* a worker late for an earlier ticket may look while it is set */
  _Alignas(CACHE_LINE) atomic_uint gate;
  atomic_uint remaining;                    /* workers that have yet to take part */
  wait_word done;                           /* raised when one of the two becomes zero */
  _Alignas(CACHE_LINE) atomic_uint arrived; /* threads at the barrier */
  wait_word phase;                          /* counts barriers passed */
  worker workers[];                         /* n_threads - 1 */
};

static void take_part(worker *self) {
  iso_cpu_pool *pool = self->pool;
  uint32_t gate = atomic_fetch_add_explicit(&pool->gate, 1, memory_order_acq_rel);
  if (!(gate & GATE_CLOSED) && self->index < pool->n_active && self->last != pool->generation) {
    self->last = pool->generation;
    pool->task(pool->context, self->index, pool->n_active);
    if (atomic_fetch_sub_explicit(&pool->remaining, 1, memory_order_acq_rel) == 1)
      word_raise(&pool->done);
  }
  if (atomic_fetch_sub_explicit(&pool->gate, 1, memory_order_acq_rel) == (GATE_CLOSED | 1))
    word_raise(&pool->done);
}

static void *worker_main(void *argument) {
  worker *self = argument;
  uint32_t ticket = 0;
  for (;;) {
    ticket = word_wait(&self->ticket, ticket);
    if (self->pool->stop)
      return NULL;
    take_part(self);
  }
}

/* Waits until a counter that workers lower, the closed bit aside, is zero. */
static void wait_for_zero(iso_cpu_pool *pool, atomic_uint *counter) {
  for (;;) {
    uint32_t done = atomic_load(&pool->done.value);
    if ((atomic_load(counter) & ~GATE_CLOSED) == 0)
      return;
    word_wait(&pool->done, done);
  }
}

static void run_task(iso_cpu_pool *pool, uint32_t max_threads, iso_cpu_task task, void *context,
                     bool all) {
  uint32_t n_threads = max_threads < pool->n_threads ? max_threads : pool->n_threads;
  if (n_threads <= 1 || pthread_mutex_trylock(&pool->lock) != 0) {
    task(context, 0, 1);
    return;
  }
  pool->task = task;
  pool->context = context;
  pool->n_active = n_threads;
  pool->generation++;
  atomic_store_explicit(&pool->remaining, n_threads - 1, memory_order_relaxed);
  atomic_fetch_and_explicit(&pool->gate, ~GATE_CLOSED, memory_order_acq_rel);
  for (uint32_t i = 0; i < n_threads - 1; i++)
    word_raise(&pool->workers[i].ticket);
  task(context, 0, n_threads);
  if (all)
    wait_for_zero(pool, &pool->remaining);
  atomic_fetch_or_explicit(&pool->gate, GATE_CLOSED, memory_order_acq_rel);
  wait_for_zero(pool, &pool->gate);
  pthread_mutex_unlock(&pool->lock);
}

void iso_cpu_parallel(iso_cpu_pool *pool, uint32_t max_threads, iso_cpu_task task, void *context) {
  run_task(pool, max_threads, task, context, true);
}

void iso_cpu_parallel_items(iso_cpu_pool *pool, uint32_t max_threads, iso_cpu_task task,
                            void *context) {
  run_task(pool, max_threads, task, context, false);
}

void iso_cpu_barrier(iso_cpu_pool *pool, uint32_t n_threads) {
  if (n_threads <= 1)
    return;
  uint32_t phase = atomic_load_explicit(&pool->phase.value, memory_order_acquire);
  if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) + 1 < n_threads) {
    word_wait(&pool->phase, phase);
    return;
  }
  atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
  word_raise(&pool->phase);
}

uint32_t iso_cpu_pool_size(const iso_cpu_pool *pool) { return pool->n_threads; }

iso_status iso_cpu_pool_pin(iso_cpu_pool *pool, const iso_cpu_list *list) {
  if (pool->n_threads > list->count)
    return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT,
                        "%u threads cannot be pinned to %u CPUs; name more CPUs or ask for fewer "
                        "threads",
                        pool->n_threads, list->count);
  for (uint32_t i = 1; i < pool->n_threads; i++) {
    cpu_set_t *set = CPU_ALLOC(list->cpus[i] + 1u);
    size_t bytes = CPU_ALLOC_SIZE(list->cpus[i] + 1u);
    int error = ENOMEM;
    if (set) {
      CPU_ZERO_S(bytes, set);
      CPU_SET_S(list->cpus[i], bytes, set);
      error = pthread_setaffinity_np(pool->workers[i - 1].handle, bytes, set);
    }
    CPU_FREE(set);
    if (error)
      return iso_cpu_fail(ISO_ERROR_UNSUPPORTED, "thread %u cannot be pinned to CPU %u: %s", i + 1,
                          list->cpus[i], strerror(error));
  }
  return ISO_OK;
}

static void stop_workers(iso_cpu_pool *pool, uint32_t count) {
  pool->stop = true;
  for (uint32_t i = 0; i < count; i++)
    word_raise(&pool->workers[i].ticket);
  for (uint32_t i = 0; i < count; i++)
    pthread_join(pool->workers[i].handle, NULL);
}

void iso_cpu_pool_destroy(iso_cpu_pool *pool) {
  if (!pool)
    return;
  stop_workers(pool, pool->n_threads - 1);
  pthread_mutex_destroy(&pool->lock);
  free(pool);
}

iso_status iso_cpu_pool_create(uint32_t n_threads, iso_cpu_pool **out_pool) {
  uint32_t n_cpus;
  uint32_t n_default = iso_cpu_default_threads(&n_cpus);
  if (n_threads > ISO_CPU_MAX_THREADS || n_threads / 4 > n_cpus ||
      (n_threads > 4 && n_threads > 4 * n_cpus))
    return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT,
                        "%u threads asked for, and this process may use %u CPUs; ask for at most "
                        "four threads a CPU and %u in all, or 0 for one a core (%u)",
                        n_threads, n_cpus, ISO_CPU_MAX_THREADS, n_default);
  if (!n_threads)
    n_threads = n_default;
  size_t bytes = sizeof(iso_cpu_pool) + (n_threads - 1) * sizeof(worker);
  iso_cpu_pool *pool =
      aligned_alloc(CACHE_LINE, (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
  if (!pool)
    return iso_cpu_fail(ISO_ERROR_OUT_OF_MEMORY, "a pool of %u threads needs %zu bytes", n_threads,
                        bytes);
  memset(pool, 0, bytes);
  pool->n_threads = n_threads;
  atomic_init(&pool->gate, GATE_CLOSED);
  pthread_mutex_init(&pool->lock, NULL);
  for (uint32_t i = 0; i < n_threads - 1; i++) {
    worker *self = &pool->workers[i];
    self->pool = pool;
    self->index = i + 1;
    int error = pthread_create(&self->handle, NULL, worker_main, self);
    if (error) {
      stop_workers(pool, i);
      pthread_mutex_destroy(&pool->lock);
      free(pool);
      return iso_cpu_fail(ISO_ERROR_LIMIT, "thread %u of %u could not be started: %s", i + 1,
                          n_threads, strerror(error));
    }
  }
  *out_pool = pool;
  return ISO_OK;
}
