/* A few threads for what the host does with many rows at once. */
#ifndef ISOMER_ENGINE_THREAD_POOL_H
#define ISOMER_ENGINE_THREAD_POOL_H

#include <isomer/status.h>

typedef struct iso_thread_pool iso_thread_pool;

/* Called with each index once, on any of the threads; `worker` tells which, below the number of
 * threads. */
typedef void (*iso_thread_task)(void *context, int32_t index, int32_t worker);

/* `n_threads` threads, the caller's counted. */
ISO_MUST_CHECK iso_status iso_thread_pool_create(int32_t n_threads, iso_thread_pool **out_pool);
void iso_thread_pool_destroy(iso_thread_pool *pool);
/* Returns when all tasks are done; they happen before that. One caller at a time. */
void iso_thread_pool_run(iso_thread_pool *pool, int32_t n_tasks, iso_thread_task task,
                         void *context);

#endif
