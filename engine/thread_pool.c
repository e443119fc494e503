#include "engine/thread_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct worker {
  iso_thread_pool *pool;
  pthread_t thread;
  int32_t index;
} worker;

struct iso_thread_pool {
  pthread_mutex_t mutex;
  pthread_cond_t begun, done;
  uint64_t round; /* of tasks; under the mutex, as the next four */
  int32_t n_tasks, n_at_work;
  iso_thread_task task;
  void *context;
  bool must_stop;
  atomic_int next;
  int32_t n_threads; /* besides the caller */
  worker threads[];
};

static void work(iso_thread_pool *self, int32_t index) {
  for (;;) {
    int32_t task = atomic_fetch_add(&self->next, 1);
    if (task >= self->n_tasks)
      return;
    self->task(self->context, task, index);
  }
}

static void *worker_main(void *context) {
  worker *me = context;
  iso_thread_pool *self = me->pool;
  uint64_t round = 0;
  pthread_mutex_lock(&self->mutex);
  for (;;) {
    while (self->round == round && !self->must_stop)
      pthread_cond_wait(&self->begun, &self->mutex);
    if (self->must_stop)
      break;
    round = self->round;
    pthread_mutex_unlock(&self->mutex);
    work(self, me->index);
    pthread_mutex_lock(&self->mutex);
    if (--self->n_at_work == 0)
      pthread_cond_signal(&self->done);
  }
  pthread_mutex_unlock(&self->mutex);
  return NULL;
}

iso_status iso_thread_pool_create(int32_t n_threads, iso_thread_pool **out_pool) {
  size_t n = n_threads > 1 ? (size_t)n_threads - 1 : 0;
  iso_thread_pool *self = calloc(1, sizeof *self + n * sizeof *self->threads);
  if (!self)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %zu threads", n);
  if (pthread_mutex_init(&self->mutex, NULL) != 0 || pthread_cond_init(&self->begun, NULL) != 0 ||
      pthread_cond_init(&self->done, NULL) != 0) {
    free(self);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no room for a lock");
  }
  /* Fewer threads than asked for do the work too. */
  for (size_t i = 0; i < n; i++) {
    worker *next = &self->threads[i];
    *next = (worker){.pool = self, .index = (int32_t)i + 1};
    if (pthread_create(&next->thread, NULL, worker_main, next) != 0)
      break;
    self->n_threads++;
  }
  *out_pool = self;
  return ISO_OK;
}

void iso_thread_pool_destroy(iso_thread_pool *self) {
  if (!self)
    return;
  pthread_mutex_lock(&self->mutex);
  self->must_stop = true;
  pthread_cond_broadcast(&self->begun);
  pthread_mutex_unlock(&self->mutex);
  for (int32_t i = 0; i < self->n_threads; i++)
    pthread_join(self->threads[i].thread, NULL);
  pthread_cond_destroy(&self->done);
  pthread_cond_destroy(&self->begun);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}

void iso_thread_pool_run(iso_thread_pool *self, int32_t n_tasks, iso_thread_task task,
                         void *context) {
  pthread_mutex_lock(&self->mutex);
  self->task = task;
  self->context = context;
  self->n_tasks = n_tasks;
  self->n_at_work = self->n_threads;
  atomic_store(&self->next, 0);
  self->round++;
  pthread_cond_broadcast(&self->begun);
  pthread_mutex_unlock(&self->mutex);
  work(self, 0);
  pthread_mutex_lock(&self->mutex);
  while (self->n_at_work > 0)
    pthread_cond_wait(&self->done, &self->mutex);
  pthread_mutex_unlock(&self->mutex);
}
