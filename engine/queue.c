#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

iso_status iso_engine_queue_create(iso_engine *engine) {
  engine_queue *queue = &engine->queue;
  queue->last = &queue->first;
  pthread_condattr_t attributes;
  bool ok = pthread_condattr_init(&attributes) == 0 &&
            pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
            pthread_mutex_init(&queue->stopping, NULL) == 0 &&
            pthread_mutex_init(&queue->mutex, NULL) == 0 &&
            pthread_cond_init(&queue->wake, &attributes) == 0 &&
            pthread_cond_init(&queue->idle, &attributes) == 0;
  pthread_condattr_destroy(&attributes);
  queue->exists = ok;
  return ok ? ISO_OK : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no room for a lock");
}

void iso_engine_queue_destroy(iso_engine *engine) {
  engine_queue *queue = &engine->queue;
  if (!queue->exists)
    return;
  pthread_cond_destroy(&queue->idle);
  pthread_cond_destroy(&queue->wake);
  pthread_mutex_destroy(&queue->mutex);
  pthread_mutex_destroy(&queue->stopping);
}

/* ---- Requests by id ------------------------------------------------------------------------ */

/* Where the list of a bucket points to the request; to NULL when there is none. */
static engine_request **find_live(engine_queue *queue, iso_request_id id) {
  engine_request **link = &queue->live[id % ENGINE_LIVE_BUCKETS];
  while (*link && (*link)->id != id)
    link = &(*link)->next_live;
  return link;
}

void iso_engine_forget(iso_engine *engine, engine_request *request) {
  engine_queue *queue = &engine->queue;
  pthread_mutex_lock(&queue->mutex);
  engine_request **link = find_live(queue, request->id);
  if (*link)
    *link = request->next_live;
  link = &queue->commanded;
  while (*link && *link != request)
    link = &(*link)->next_command;
  if (*link)
    *link = request->next_command;
  pthread_mutex_unlock(&queue->mutex);
}

/* ---- Any thread ---------------------------------------------------------------------------- */

static iso_status push_request(iso_engine *engine, engine_request *request) {
  engine_queue *queue = &engine->queue;
  if (queue->failure != ISO_OK)
    return iso_fail(queue->failure, "%s", queue->failure_message);
  if (queue->is_closed)
    return iso_fail(ISO_ERROR_BUSY, "the engine is stopping; it takes no new requests");
  int32_t n_waiting = queue->n_waiting + queue->n_preempted;
  if (n_waiting >= engine->options.max_queue && !request->asked.continues)
    return iso_fail(ISO_ERROR_BUSY, "%d requests wait already; come again later", n_waiting);
  request->id = ++queue->last_id;
  *find_live(queue, request->id) = request;
  *queue->last = request;
  queue->last = &request->next;
  queue->n_waiting++;
  queue->n_live++;
  pthread_cond_signal(&queue->wake);
  return ISO_OK;
}

iso_status iso_engine_submit(iso_engine *engine, const iso_request *request,
                             iso_request_id *out_id) {
  engine_request *copy;
  ISO_TRY(iso_engine_request_create(engine, request, &copy));
  pthread_mutex_lock(&engine->queue.mutex);
  iso_status status = push_request(engine, copy);
  iso_request_id id = copy->id; /* the engine's thread may end it from here on */
  pthread_mutex_unlock(&engine->queue.mutex);
  if (status != ISO_OK)
    iso_engine_request_destroy(copy);
  else if (out_id)
    *out_id = id;
  return status;
}

/* Noted in the request itself: commands take no memory, so none is ever refused, and a flood of
 * them is no longer than the list of requests. */
static void push_command(iso_engine *engine, iso_request_id id, uint32_t command) {
  engine_queue *queue = &engine->queue;
  pthread_mutex_lock(&queue->mutex);
  engine_request *request = *find_live(queue, id);
  if (request && request->commands == 0) {
    request->next_command = queue->commanded;
    queue->commanded = request;
    pthread_cond_signal(&queue->wake);
  }
  if (request)
    request->commands |= command;
  pthread_mutex_unlock(&queue->mutex);
}

void iso_engine_cancel(iso_engine *engine, iso_request_id id) {
  push_command(engine, id, COMMAND_CANCEL);
}

void iso_engine_resume(iso_engine *engine, iso_request_id id) {
  push_command(engine, id, COMMAND_RESUME);
}

void iso_engine_get_stats(iso_engine *engine, iso_engine_stats *out_stats) {
  pthread_mutex_lock(&engine->queue.mutex);
  *out_stats = engine->queue.stats;
  out_stats->n_waiting = engine->queue.n_waiting;
  pthread_mutex_unlock(&engine->queue.mutex);
}

iso_status iso_engine_health(iso_engine *engine) {
  engine_queue *queue = &engine->queue;
  pthread_mutex_lock(&queue->mutex);
  iso_status status =
      queue->failure == ISO_OK ? ISO_OK : iso_fail(queue->failure, "%s", queue->failure_message);
  pthread_mutex_unlock(&queue->mutex);
  return status;
}

/* ---- The engine's thread ------------------------------------------------------------------- */

static iso_status insert(iso_engine *engine, engine_request *request) {
  ISO_TRY(iso_array_grow((void **)&engine->requests, &engine->request_capacity,
                         engine->n_requests + 1, sizeof *engine->requests));
  size_t at = engine->n_requests++;
  for (; at > 0 && engine->requests[at - 1]->order > request->order; at--)
    engine->requests[at] = engine->requests[at - 1];
  engine->requests[at] = request;
  return ISO_OK;
}

static void apply_commands(engine_queue *queue) {
  for (; queue->commanded; queue->commanded = queue->commanded->next_command) {
    engine_request *request = queue->commanded;
    request->is_cancelled = request->is_cancelled || (request->commands & COMMAND_CANCEL) != 0;
    if (request->commands & COMMAND_RESUME)
      request->is_paused = false;
    request->commands = 0;
  }
}

void iso_engine_take_in(iso_engine *engine) {
  engine_queue *queue = &engine->queue;
  pthread_mutex_lock(&queue->mutex);
  engine_request *request = queue->first;
  queue->first = NULL;
  queue->last = &queue->first;
  apply_commands(queue);
  pthread_mutex_unlock(&queue->mutex);
  while (request) {
    engine_request *next = request->next;
    iso_status status = insert(engine, request);
    if (status != ISO_OK) {
      iso_engine_request_fail(request, status);
      iso_engine_forget(engine, request);
      iso_event_done(engine, request);
      iso_engine_request_destroy(request);
      engine->n_done++;
      engine->n_started++;
    }
    request = next;
  }
}

/* Returns how many have lost all their pages and wait for some. */
static int32_t count_requests(iso_engine *engine) {
  iso_engine_stats *stats = &engine->stats;
  int32_t n_preempted = 0;
  stats->n_running = stats->n_paused = stats->n_swapped = 0;
  for (size_t i = 0; i < engine->n_requests; i++) {
    const engine_request *request = engine->requests[i];
    bool swapped = false, holds = false;
    for (int32_t s = 0; s < iso_engine_request_width(request); s++) {
      swapped = swapped || request->sequences[s].swapped.n_slots > 0;
      holds = holds || request->sequences[s].n_pages > 0;
    }
    n_preempted += request->started_us > 0 && !request->is_paused && !holds;
    stats->n_swapped += swapped;
    stats->n_paused += request->is_paused;
    stats->n_running += request->started_us > 0;
  }
  stats->n_pages_cached = engine->pool.n_cached;
  stats->n_pages_used = engine->pool.n_pages - iso_page_pool_available(&engine->pool);
  return n_preempted;
}

void iso_engine_publish(iso_engine *engine) {
  engine_queue *queue = &engine->queue;
  int32_t n_preempted = count_requests(engine);
  pthread_mutex_lock(&queue->mutex);
  queue->n_preempted = n_preempted;
  queue->n_waiting -= engine->n_started;
  queue->n_live -= engine->n_done;
  queue->stats = engine->stats;
  if (queue->n_live == 0)
    pthread_cond_broadcast(&queue->idle);
  pthread_mutex_unlock(&queue->mutex);
  engine->n_started = engine->n_done = 0;
  iso_event_flush(engine);
}
