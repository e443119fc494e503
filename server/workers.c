#include "server/workers.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_THREADS = 16 };

struct iso_workers {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  iso_work *first, **last;
  bool leaving;
  int n_threads;
  pthread_t threads[MAX_THREADS];
};

static void *work_on(void *context) {
  iso_workers *workers = context;
  pthread_mutex_lock(&workers->lock);
  for (;;) {
    iso_work *work = workers->first;
    if (!work && workers->leaving)
      break;
    if (!work) {
      pthread_cond_wait(&workers->wake, &workers->lock);
      continue;
    }
    if (!(workers->first = work->next))
      workers->last = &workers->first;
    pthread_mutex_unlock(&workers->lock);
    work->run(work);
    pthread_mutex_lock(&workers->lock);
  }
  pthread_mutex_unlock(&workers->lock);
  return NULL;
}

iso_status iso_workers_create(int n_threads, iso_workers **out_workers) {
  iso_workers *workers = calloc(1, sizeof *workers);
  if (!workers)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for worker threads");
  workers->last = &workers->first;
  pthread_mutex_init(&workers->lock, NULL);
  pthread_cond_init(&workers->wake, NULL);
  while (workers->n_threads < n_threads && workers->n_threads < MAX_THREADS &&
         pthread_create(&workers->threads[workers->n_threads], NULL, work_on, workers) == 0)
    workers->n_threads++;
  if (workers->n_threads == 0) {
    iso_workers_destroy(workers);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "the system gives no more threads");
  }
  *out_workers = workers;
  return ISO_OK;
}

void iso_workers_destroy(iso_workers *workers) {
  if (!workers)
    return;
  pthread_mutex_lock(&workers->lock);
  workers->leaving = true;
  pthread_cond_broadcast(&workers->wake);
  pthread_mutex_unlock(&workers->lock);
  for (int i = 0; i < workers->n_threads; i++)
    pthread_join(workers->threads[i], NULL);
  pthread_cond_destroy(&workers->wake);
  pthread_mutex_destroy(&workers->lock);
  free(workers);
}

void iso_workers_submit(iso_workers *workers, iso_work *work) {
  work->next = NULL;
  pthread_mutex_lock(&workers->lock);
  *workers->last = work;
  workers->last = &work->next;
  pthread_cond_signal(&workers->wake);
  pthread_mutex_unlock(&workers->lock);
}

bool iso_workers_take_back(iso_workers *workers, iso_work *work) {
  pthread_mutex_lock(&workers->lock);
  iso_work **at = &workers->first;
  while (*at && *at != work)
    at = &(*at)->next;
  bool found = *at != NULL;
  if (found && !(*at = work->next))
    workers->last = at;
  pthread_mutex_unlock(&workers->lock);
  return found;
}
