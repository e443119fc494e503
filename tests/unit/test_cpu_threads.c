/* The CPU backend's thread pool: every item is done once, threads meet at barriers, sleeping
 * workers wake, and callers may come from several threads. */
#include "cpu_device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

typedef struct tally {
  iso_cpu_pool *pool;
  int64_t total, granule;
  uint32_t counts[1000];
  atomic_uint arrivals;
  atomic_uint early; /* threads that passed a barrier before all had come */
} tally;

static void count_task(void *context, uint32_t thread, uint32_t n_threads) {
  tally *job = context;
  int64_t begin, end;
  iso_cpu_share(job->total, job->granule, thread, n_threads, &begin, &end);
  for (int64_t i = begin; i < end; i++)
    job->counts[i]++;
}

static void every_item_is_done_once(void **state) {
  (void)state;
  for (uint32_t n_threads = 1; n_threads <= 5; n_threads++) {
    iso_cpu_pool *pool;
    assert_int_equal(iso_cpu_pool_create(n_threads, &pool), ISO_OK);
    assert_int_equal(iso_cpu_pool_size(pool), n_threads);
    for (int64_t total = 0; total < 1000; total += 37)
      for (int64_t granule = 1; granule < 20; granule += 6) {
        tally job = {.total = total, .granule = granule};
        iso_cpu_parallel(pool, UINT32_MAX, count_task, &job);
        for (int64_t i = 0; i < 1000; i++)
          assert_int_equal(job.counts[i], i < total);
      }
    iso_cpu_pool_destroy(pool);
  }
}

static void barrier_task(void *context, uint32_t thread, uint32_t n_threads) {
  tally *job = context;
  (void)thread;
  for (uint32_t round = 1; round <= 50; round++) {
    atomic_fetch_add(&job->arrivals, 1);
    iso_cpu_barrier(job->pool, n_threads);
    if (atomic_load(&job->arrivals) < round * n_threads)
      atomic_fetch_add(&job->early, 1);
    iso_cpu_barrier(job->pool, n_threads);
  }
}

static void threads_meet_at_barriers(void **state) {
  (void)state;
  tally job = {0};
  assert_int_equal(iso_cpu_pool_create(4, &job.pool), ISO_OK);
  for (uint32_t wanted = 1; wanted <= 4; wanted++) {
    atomic_store(&job.arrivals, 0);
    iso_cpu_parallel(job.pool, wanted, barrier_task, &job);
    assert_int_equal(atomic_load(&job.arrivals), 50 * wanted);
  }
  assert_int_equal(atomic_load(&job.early), 0);
  iso_cpu_pool_destroy(job.pool);
}

static void sleeping_workers_wake(void **state) {
  (void)state;
  iso_cpu_pool *pool;
  assert_int_equal(iso_cpu_pool_create(3, &pool), ISO_OK);
  for (int i = 0; i < 50; i++) {
    tally job = {.total = 300, .granule = 1};
    usleep(i % 5 * 200);
    iso_cpu_parallel(pool, 1 + i % 3, count_task, &job);
    for (int64_t item = 0; item < 300; item++)
      assert_int_equal(job.counts[item], 1);
  }
  iso_cpu_pool_destroy(pool);
}

/* Items from a counter. `alive` is true while the call that runs the task has not returned. */
typedef struct item_job {
  atomic_int next, taken[64];
  atomic_bool alive;
  atomic_uint late;
} item_job;

static void item_task(void *context, uint32_t thread, uint32_t n_threads) {
  item_job *job = context;
  (void)thread, (void)n_threads;
  int item;
  while ((item = atomic_fetch_add(&job->next, 1)) < 64) {
    if (!atomic_load(&job->alive))
      atomic_fetch_add(&job->late, 1);
    atomic_fetch_add(&job->taken[item], 1);
  }
}

/* More threads than CPUs, so that many come late; between tasks that need every thread. */
static void late_threads_are_not_waited_for(void **state) {
  (void)state;
  iso_cpu_pool *pool;
  uint32_t n_cpus;
  iso_cpu_default_threads(&n_cpus);
  assert_int_equal(iso_cpu_pool_create(n_cpus < 4 ? 4 : 7, &pool), ISO_OK);
  static item_job job;
  for (int round = 0; round < 3000; round++) {
    memset(&job, 0, sizeof job);
    atomic_store(&job.alive, true);
    iso_cpu_parallel_items(pool, 2 + (uint32_t)round % 6, item_task, &job);
    atomic_store(&job.alive, false);
    for (int i = 0; i < 64; i++)
      assert_int_equal(atomic_load(&job.taken[i]), 1);
    assert_int_equal(atomic_load(&job.late), 0);
    if (round % 3)
      continue;
    tally all = {.pool = pool, .total = 500, .granule = 1};
    iso_cpu_parallel(pool, 1 + (uint32_t)round % 7, count_task, &all);
    for (int64_t i = 0; i < 500; i++)
      assert_int_equal(all.counts[i], 1);
  }
  iso_cpu_pool_destroy(pool);
}

static void *caller_main(void *argument) {
  iso_cpu_pool *pool = argument;
  for (int i = 0; i < 500; i++) {
    tally job = {.total = 100, .granule = 1};
    iso_cpu_parallel(pool, 3, count_task, &job);
    for (int64_t item = 0; item < 100; item++)
      if (job.counts[item] != 1)
        return argument;
  }
  return NULL;
}

static void callers_share_a_pool(void **state) {
  (void)state;
  iso_cpu_pool *pool;
  pthread_t callers[3];
  assert_int_equal(iso_cpu_pool_create(3, &pool), ISO_OK);
  for (int i = 0; i < 3; i++)
    assert_int_equal(pthread_create(&callers[i], NULL, caller_main, pool), 0);
  for (int i = 0; i < 3; i++) {
    void *failed;
    pthread_join(callers[i], &failed);
    assert_null(failed);
  }
  iso_cpu_pool_destroy(pool);
}

static void nested_task(void *context, uint32_t thread, uint32_t n_threads) {
  tally *job = context;
  (void)n_threads;
  if (thread == 0)
    iso_cpu_parallel(job->pool, 2, count_task, job);
}

static void a_nested_task_runs_alone(void **state) {
  (void)state;
  tally job = {.total = 10, .granule = 1};
  assert_int_equal(iso_cpu_pool_create(2, &job.pool), ISO_OK);
  iso_cpu_parallel(job.pool, 2, nested_task, &job);
  for (int64_t i = 0; i < 10; i++)
    assert_int_equal(job.counts[i], 1);
  iso_cpu_pool_destroy(job.pool);
}

static void absurd_counts_are_refused(void **state) {
  (void)state;
  iso_cpu_pool *pool = NULL;
  uint32_t n_cpus, n_default = iso_cpu_default_threads(&n_cpus);
  assert_in_range(n_default, 1, n_cpus);
  assert_int_equal(iso_cpu_pool_create(4 * n_cpus + 5, &pool), ISO_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(iso_status_message(), "threads asked for"));
  assert_int_equal(iso_cpu_pool_create(UINT32_MAX, &pool), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_cpu_pool_create(ISO_CPU_MAX_THREADS + 1, &pool), ISO_ERROR_INVALID_ARGUMENT);
  assert_null(pool);
  assert_int_equal(iso_cpu_pool_create(0, &pool), ISO_OK);
  assert_int_equal(iso_cpu_pool_size(pool), n_default);
  iso_cpu_pool_destroy(pool);
}

int main(void) {
  iso_cpu_backend_query(ISO_ABI_VERSION, &cpu_test_host);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_item_is_done_once),
      cmocka_unit_test(threads_meet_at_barriers),
      cmocka_unit_test(sleeping_workers_wake),
      cmocka_unit_test(late_threads_are_not_waited_for),
      cmocka_unit_test(callers_share_a_pool),
      cmocka_unit_test(a_nested_task_runs_alone),
      cmocka_unit_test(absurd_counts_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
