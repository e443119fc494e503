#include "engine/engine.h"
#include "models/model.h"

#include "core/log.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEFAULT_SEQUENCES = 64, DEFAULT_QUEUE = 1024, DEFAULT_DRAFTS = 8, LEAST_LOGIT_ROWS = 32 };

double iso_engine_now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

iso_sampling iso_sampling_default(void) {
  return (iso_sampling){.top_p = 1.0f, .repetition_penalty = 1.0f};
}

/* ---- Creation ------------------------------------------------------------------------------ */

/* Numbers that name none of a kind, as another version of this library may know. */
static iso_status check_kinds(const iso_engine_options *options) {
  const struct {
    const char *name;
    int value, last;
  } kinds[] = {{"batching", (int)options->batching, ISO_BATCHING_STATIC},
               {"speculation", (int)options->speculation, ISO_SPECULATION_DRAFT},
               {"acceptance", (int)options->acceptance, ISO_ACCEPT_WINDOW}};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    if (kinds[i].value < 0 || kinds[i].value > kinds[i].last)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s is %d, must be 0 to %d", kinds[i].name,
                      kinds[i].value, kinds[i].last);
  return ISO_OK;
}

static iso_status fill_options(const iso_engine_options *given, iso_engine_options *out) {
  *out = given ? *given : (iso_engine_options){0};
  if (out->runtime.max_sequences == 0)
    out->runtime.max_sequences = DEFAULT_SEQUENCES;
  if (out->max_queue == 0)
    out->max_queue = DEFAULT_QUEUE;
  if (out->max_draft_tokens == 0)
    out->max_draft_tokens = DEFAULT_DRAFTS;
  if (out->runtime.max_sequences < 0 || out->max_queue < 0 || out->max_draft_tokens < 0 ||
      out->max_draft_tokens > ENGINE_MAX_DRAFTS)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "%d sequences, a queue of %d and %d drafts: none may be negative, drafts at "
                    "most %d",
                    out->runtime.max_sequences, out->max_queue, out->max_draft_tokens,
                    ENGINE_MAX_DRAFTS);
  if (!(out->memory_utilization >= 0 && out->memory_utilization <= 1))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the share of memory is %g, must be 0 to 1",
                    (double)out->memory_utilization);
  ISO_TRY(check_kinds(out));
  /* One row a sequence, and some for drafts and prompts' logprobs. */
  int32_t rows = out->runtime.max_sequences;
  rows +=
      out->speculation != ISO_SPECULATION_NONE && rows > LEAST_LOGIT_ROWS ? rows : LEAST_LOGIT_ROWS;
  if (out->runtime.max_logit_rows < rows)
    out->runtime.max_logit_rows = rows;
  return ISO_OK;
}

static iso_status create_batch(const iso_engine *engine, engine_batch *out_batch) {
  size_t n = (size_t)engine->max_sequences;
  *out_batch = (engine_batch){.entries = calloc(n, sizeof *out_batch->entries),
                              .sequences = calloc(n, sizeof *out_batch->sequences),
                              .rows = calloc(n, sizeof *out_batch->rows),
                              .drawn_rows = calloc(n, sizeof *out_batch->drawn_rows),
                              .drawn = calloc(n, sizeof *out_batch->drawn),
                              .drops = calloc(n, sizeof *out_batch->drops),
                              .tokens = calloc((size_t)engine->max_tokens, sizeof(int32_t)),
                              .host_rows = calloc((size_t)engine->max_logit_rows, sizeof(int32_t))};
  return out_batch->entries && out_batch->sequences && out_batch->rows && out_batch->drawn_rows &&
                 out_batch->drawn && out_batch->drops && out_batch->tokens && out_batch->host_rows
             ? ISO_OK
             : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a batch of %zu sequences", n);
}

static void destroy_batch(engine_batch *batch) {
  free(batch->entries);
  free(batch->sequences);
  free(batch->rows);
  free(batch->drawn_rows);
  free(batch->drawn);
  free(batch->drops);
  free(batch->tokens);
  free(batch->host_rows);
}

/* Threads that may draw: as many as the runtime was told to use, else one a CPU that the process
 * may use. */
static int32_t count_samplers(const iso_engine *engine) {
  cpu_set_t cpus;
  int32_t n = engine->options.runtime.n_threads;
  if (n <= 0)
    n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
  return n < ENGINE_MAX_SAMPLERS ? n : ENGINE_MAX_SAMPLERS;
}

static iso_status build(iso_engine *engine, const iso_engine_options *given) {
  iso_engine_options *options = &engine->options;
  ISO_TRY(fill_options(given, options));
  ISO_TRY(iso_grammar_shelf_init(&engine->grammars));
  bool chooses_rows = options->runtime.max_tokens == 0;
  ISO_TRY(iso_engine_queue_create(engine));
  ISO_TRY(iso_drafter_create(engine, &engine->drafter));
  iso_kv_budget budget = {options->kv_memory_bytes, options->memory_utilization};
  ISO_TRY(iso_runtime_create_within(engine->model, &options->runtime,
                                    options->runtime.n_pages ? NULL : &budget, &engine->runtime));
  options->runtime = *iso_runtime_get_options(engine->runtime);
  engine->n_vocabulary = iso_model_get_config(engine->model)->vocabulary_size;
  engine->context = options->runtime.context;
  engine->page_size = options->runtime.page_size;
  engine->max_tokens = options->runtime.max_tokens;
  bool is_large = engine->max_tokens > ISO_DEFAULT_STEP_ROWS;
  engine->mixed_tokens = chooses_rows && is_large ? ISO_DEFAULT_STEP_ROWS : engine->max_tokens;
  engine->row_multiple = iso_device_list_row_multiple(iso_runtime_devices(engine->runtime));
  engine->max_sequences = options->runtime.max_sequences;
  engine->max_logit_rows = options->runtime.max_logit_rows;
  const engine_weights weights = {iso_model_weight_bytes(engine->model),
                                  iso_model_weight_elements(engine->model)};
  engine->row_price = iso_speculation_price(iso_runtime_devices(engine->runtime), weights);
  ISO_TRY(iso_kv_pages_create(engine->runtime, &engine->kv));
  ISO_TRY(iso_page_pool_create(options->runtime.n_pages, engine->page_size, &engine->pool));
  ISO_TRY(iso_swap_create(options->swap_memory_bytes, engine->kv.page_bytes, &engine->swap));
  ISO_TRY(iso_sampler_create(engine, &engine->samplers[0]));
  engine->n_samplers = count_samplers(engine);
  ISO_TRY(create_batch(engine, &engine->batch));
  ISO_TRY(create_batch(engine, &engine->running));
  /* Drafts are made from tokens that the host knows. */
  engine->overlaps =
      iso_runtime_overlaps(engine->runtime) && options->speculation == ISO_SPECULATION_NONE;
  engine->stats.n_pages = engine->pool.n_pages;
  engine->stats.page_size = engine->page_size;
  iso_engine_publish(engine);
  return ISO_OK;
}

iso_status iso_engine_create(const iso_model *model, const iso_engine_options *options,
                             iso_engine **out_engine) {
  iso_engine *engine = calloc(1, sizeof *engine);
  if (!engine)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for an engine");
  engine->model = model;
  iso_status status = build(engine, options);
  if (status != ISO_OK) {
    iso_engine_destroy(engine);
    return status;
  }
  *out_engine = engine;
  return ISO_OK;
}

/* ---- Ends of requests ---------------------------------------------------------------------- */

static void finish_request(iso_engine *engine, engine_request *request) {
  iso_engine_stats *stats = &engine->stats;
  for (int32_t i = 0; i < request->n_sequences; i++)
    iso_sequence_end(engine, &request->sequences[i]);
  stats->n_requests++;
  if (request->status == ISO_OK)
    stats->n_finished++;
  else if (request->status == ISO_ERROR_CANCELLED)
    stats->n_cancelled++;
  else
    stats->n_failed++;
  engine->n_started += request->started_us == 0;
  iso_engine_forget(engine, request);
  iso_event_done(engine, request);
  engine->n_done++;
  if (request->n_under_way == 0) {
    iso_engine_request_destroy(request);
    return;
  }
  request->next = engine->lingering;
  engine->lingering = request;
}

/* Frees the requests that waited for the end of rows of theirs. */
static void free_lingering(iso_engine *engine) {
  engine_request **link = &engine->lingering;
  while (*link) {
    engine_request *request = *link;
    if (request->n_under_way > 0) {
      link = &request->next;
      continue;
    }
    *link = request->next;
    iso_engine_request_destroy(request);
  }
}

/* Ends what is cancelled, late or over. */
static void reap(iso_engine *engine) {
  double now = iso_engine_now_us();
  size_t kept = 0, n = engine->n_requests;
  for (size_t i = 0; i < n; i++) {
    engine_request *request = engine->requests[i];
    if (request->is_cancelled)
      iso_engine_request_fail(request, iso_fail(ISO_ERROR_CANCELLED, "the request was cancelled"));
    else if (request->deadline_us > 0 && now >= request->deadline_us)
      iso_engine_request_fail(request,
                              iso_fail(ISO_ERROR_LIMIT, "the request's time of %.3g s is over",
                                       (double)request->asked.timeout_us / 1e6));
    if (iso_engine_request_is_over(request))
      finish_request(engine, request);
    else
      engine->requests[kept++] = request;
  }
  engine->n_requests = kept;
}

/* A step is over, whether or not anything came of it, or even whether it was submitted. */
static void forget(iso_engine *engine, engine_batch *batch) {
  for (int32_t i = 0; batch->is_under_way && i < batch->n; i++)
    batch->sequences[i]->request->n_under_way--;
  batch->is_under_way = false;
  batch->n = 0;
  free_lingering(engine);
}

static void end_all(iso_engine *engine, iso_status status, const char *message) {
  /* Pages are given back once nobody writes to them; a device that failed does not. */
  if (engine->running.n > 0 && iso_runtime_wait(engine->runtime) != ISO_OK)
    iso_log(ISO_LOG_DEBUG, "the step under way came to nothing: %s", iso_status_message());
  forget(engine, &engine->running);
  forget(engine, &engine->batch);
  iso_engine_take_in(engine);
  for (size_t i = 0; i < engine->n_requests; i++)
    iso_engine_request_fail(engine->requests[i], iso_fail(status, "%s", message));
  reap(engine);
  iso_engine_publish(engine);
}

/* The engine can go no further: its failure becomes that of every request. */
static iso_status fail_engine(iso_engine *engine, iso_status status) {
  engine_queue *queue = &engine->queue;
  pthread_mutex_lock(&queue->mutex);
  queue->failure = status;
  snprintf(queue->failure_message, sizeof queue->failure_message, "%s", iso_status_message());
  pthread_mutex_unlock(&queue->mutex);
  end_all(engine, status, queue->failure_message);
  return iso_fail(status, "%s", queue->failure_message);
}

/* ---- A step -------------------------------------------------------------------------------- */

/* Time that the device has waited for the host since it was last seen at work. */
static void count_idle(iso_engine *engine, double now) {
  bool is_busy = engine->running.n > 0 && !iso_runtime_is_done(engine->runtime);
  if (!is_busy && engine->busy_seen_us > 0)
    engine->stats.idle_us += now - engine->busy_seen_us;
  engine->busy_seen_us = now;
}

/* Hands the planned step to the device. */
static iso_status submit(iso_engine *engine) {
  engine_batch *batch = &engine->batch;
  iso_event_flush(engine); /* what ended before the step does not wait for it */
  batch->start_us = iso_engine_now_us();
  count_idle(engine, batch->start_us);
  ISO_TRY(iso_runtime_submit(engine->runtime, batch->entries, batch->drawn_rows, batch->n));
  if (batch->n_host_rows > 0)
    ISO_TRY(iso_runtime_keep_logits(engine->runtime, batch->host_rows, batch->n_host_rows));
  engine->stats.n_host_rows += (uint64_t)batch->n_host_rows;
  for (int32_t i = 0; i < batch->n; i++) {
    engine_sequence *sequence = batch->sequences[i];
    const engine_rows *rows = &batch->rows[i];
    sequence->request->n_under_way++;
    sequence->ahead.n_rows += rows->n;
    sequence->ahead.n_tokens += rows->draws_ahead;
    sequence->ahead.logit_row = rows->logit_row + rows->n_logit_rows - 1;
  }
  batch->is_under_way = true;
  return ISO_OK;
}

/* Waits for the step under way and looks at it. */
static iso_status finish_running(iso_engine *engine) {
  engine_batch *batch = &engine->running;
  iso_engine_stats *stats = &engine->stats;
  iso_event_flush(engine); /* those of the step before do not wait for this one */
  iso_sampler_prepare(engine);
  ISO_TRY(iso_runtime_wait(engine->runtime));
  double end = iso_engine_now_us(), before = engine->last_step_end_us;
  double took = end - (batch->start_us > before ? batch->start_us : before);
  double each = took / batch->n_tokens;
  engine->us_per_token = engine->us_per_token > 0 ? 0.9 * engine->us_per_token + 0.1 * each : each;
  stats->step_us += took;
  stats->n_steps++;
  engine->last_step_end_us = engine->busy_seen_us = end;
  ISO_TRY(iso_engine_distribute(engine));
  forget(engine, batch);
  return ISO_OK;
}

static iso_status step(iso_engine *engine, bool *out_busy) {
  *out_busy = false;
  iso_engine_take_in(engine);
  if (engine->running.n > 0 && !iso_runtime_is_done(engine->runtime))
    engine->busy_seen_us = iso_engine_now_us();
  reap(engine);
  ISO_TRY(iso_engine_schedule(engine));
  *out_busy = engine->batch.n > 0 || engine->running.n > 0;
  if (engine->batch.n > 0)
    ISO_TRY(submit(engine));
  if (engine->running.n > 0)
    ISO_TRY(finish_running(engine));
  engine_batch done = engine->running;
  engine->running = engine->batch;
  engine->batch = done;
  engine->batch.n = 0;
  if (engine->running.n > 0 && (!engine->overlaps || iso_batch_needs_host(&engine->running)))
    ISO_TRY(finish_running(engine));
  if (*out_busy)
    reap(engine);
  else
    engine->busy_seen_us = 0;
  iso_engine_publish(engine);
  return ISO_OK;
}

static iso_status step_or_fail(iso_engine *engine, bool *out_busy) {
  iso_status status = iso_engine_health(engine);
  if (status != ISO_OK)
    return status;
  status = step(engine, out_busy);
  return status == ISO_OK ? ISO_OK : fail_engine(engine, status);
}

iso_status iso_engine_step(iso_engine *engine, bool *out_busy) {
  *out_busy = false;
  pthread_mutex_lock(&engine->queue.mutex);
  bool has_thread = engine->queue.has_thread;
  pthread_mutex_unlock(&engine->queue.mutex);
  if (has_thread)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the engine steps on a thread of its own");
  return step_or_fail(engine, out_busy);
}

/* ---- The thread ---------------------------------------------------------------------------- */

static struct timespec time_at(double us) {
  return (struct timespec){(time_t)(us / 1e6),
                           (long)((us - (double)(int64_t)(us / 1e6) * 1e6) * 1e3)};
}

/* The first time at which a request that cannot run must end; 0: none. */
static double next_deadline(const iso_engine *engine) {
  double first = 0;
  for (size_t i = 0; i < engine->n_requests; i++) {
    double deadline = engine->requests[i]->deadline_us;
    if (deadline > 0 && (first == 0 || deadline < first))
      first = deadline;
  }
  return first;
}

/* Returns false when the thread must end. */
static bool wait_for_work(iso_engine *engine, bool is_busy) {
  engine_queue *queue = &engine->queue;
  double deadline = next_deadline(engine);
  struct timespec until = time_at(deadline);
  int waited = 0;
  pthread_mutex_lock(&queue->mutex);
  while (!is_busy && !queue->must_stop && !queue->first && !queue->commanded && waited == 0)
    waited = deadline > 0 ? pthread_cond_timedwait(&queue->wake, &queue->mutex, &until)
                          : pthread_cond_wait(&queue->wake, &queue->mutex);
  bool must_stop = queue->must_stop;
  pthread_mutex_unlock(&queue->mutex);
  return !must_stop;
}

static void *thread_main(void *context) {
  iso_engine *engine = context;
  bool is_busy = false;
  while (wait_for_work(engine, is_busy))
    if (step_or_fail(engine, &is_busy) != ISO_OK)
      break;
  return NULL;
}

void iso_engine_on_flush(iso_engine *engine, iso_flush_callback on_flush, void *context) {
  engine->on_flush = on_flush;
  engine->flush_context = context;
}

iso_status iso_engine_start(iso_engine *engine) {
  engine_queue *queue = &engine->queue;
  pthread_mutex_lock(&queue->mutex);
  iso_status status = ISO_OK;
  if (queue->has_thread)
    status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the engine has its thread already");
  else if (pthread_create(&engine->thread, NULL, thread_main, engine) != 0)
    status = iso_fail(ISO_ERROR_OUT_OF_MEMORY, "the system starts no further thread");
  else
    queue->has_thread = true;
  pthread_mutex_unlock(&queue->mutex);
  return status;
}

static void stop_thread(iso_engine *engine) {
  engine_queue *queue = &engine->queue;
  pthread_mutex_lock(&queue->mutex);
  bool has_thread = queue->has_thread;
  queue->must_stop = true;
  pthread_cond_signal(&queue->wake);
  pthread_mutex_unlock(&queue->mutex);
  if (has_thread)
    pthread_join(engine->thread, NULL);
  pthread_mutex_lock(&queue->mutex);
  queue->has_thread = queue->must_stop = false;
  pthread_mutex_unlock(&queue->mutex);
}

/* Waits until the thread, if there is one, has nothing at hand. */
static void wait_for_thread(iso_engine *engine, double until_us) {
  engine_queue *queue = &engine->queue;
  struct timespec until = time_at(until_us);
  pthread_mutex_lock(&queue->mutex);
  while (queue->has_thread && queue->n_live > 0 &&
         pthread_cond_timedwait(&queue->idle, &queue->mutex, &until) == 0)
    continue;
  pthread_mutex_unlock(&queue->mutex);
}

/* Steps until nothing is at hand, if no thread does. */
static void step_without_thread(iso_engine *engine, double until_us) {
  engine_queue *queue = &engine->queue;
  pthread_mutex_lock(&queue->mutex);
  bool is_busy = !queue->has_thread && queue->n_live > 0;
  pthread_mutex_unlock(&queue->mutex);
  while (is_busy && iso_engine_now_us() < until_us)
    if (step_or_fail(engine, &is_busy) != ISO_OK)
      return;
}

/* Takes no more requests, waits until `until_us` for those at hand, ends the rest. Several threads
 * may do so at once: the least patient one ends what the others wait for. */
static void stop(iso_engine *engine, double until_us) {
  engine_queue *queue = &engine->queue;
  pthread_mutex_lock(&queue->mutex);
  queue->is_closed = true;
  pthread_mutex_unlock(&queue->mutex);
  wait_for_thread(engine, until_us);
  pthread_mutex_lock(&queue->stopping);
  step_without_thread(engine, until_us);
  stop_thread(engine);
  end_all(engine, ISO_ERROR_CANCELLED, "the engine stopped");
  pthread_mutex_unlock(&queue->stopping);
}

void iso_engine_drain(iso_engine *engine, uint64_t timeout_us) {
  /* A century is for ever. */
  double most = timeout_us < UINT64_C(3000000000000000) ? (double)timeout_us : 3e15;
  stop(engine, iso_engine_now_us() + most);
}

void iso_engine_destroy(iso_engine *engine) {
  if (!engine)
    return;
  if (engine->queue.exists)
    stop(engine, 0);
  iso_engine_queue_destroy(engine);
  iso_page_pool_destroy(&engine->pool);
  iso_swap_destroy(&engine->swap);
  iso_kv_pages_destroy(&engine->kv);
  iso_drafter_destroy(&engine->drafter);
  iso_grammar_shelf_destroy(&engine->grammars);
  iso_runtime_destroy(engine->runtime);
  iso_thread_pool_destroy(engine->threads);
  for (int32_t i = 0; i < ENGINE_MAX_SAMPLERS; i++)
    iso_sampler_destroy(&engine->samplers[i]);
  iso_text_free(&engine->piece);
  destroy_batch(&engine->batch);
  destroy_batch(&engine->running);
  free(engine->event_tokens);
  free(engine->requests);
  free(engine);
}

/* ---- Facts --------------------------------------------------------------------------------- */

const iso_model *iso_engine_get_model(const iso_engine *engine) { return engine->model; }
const iso_engine_options *iso_engine_get_options(const iso_engine *engine) {
  return &engine->options;
}
const char *iso_engine_describe(const iso_engine *engine) {
  return iso_runtime_describe(engine->runtime);
}

iso_status iso_grammar_create(iso_engine *engine, const char *schema, size_t length,
                              iso_grammar **out_grammar) {
  return iso_grammar_create_marked(engine, NULL, schema, length, out_grammar);
}

iso_status iso_grammar_create_marked(iso_engine *engine, const iso_marks *marks, const char *schema,
                                     size_t length, iso_grammar **out_grammar) {
  const grammar_source source = {schema, length, marks};
  return iso_grammar_shelf_get(&engine->grammars, iso_model_get_tokenizer(engine->model),
                               engine->n_vocabulary, &source, out_grammar);
}

iso_status iso_engine_tokenize(const iso_engine *engine, const char *text, size_t length,
                               int32_t **out_ids, int32_t *out_count) {
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(engine->model);
  size_t count = 0;
  if (!tokenizer)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the model was opened without a tokenizer");
  ISO_TRY(iso_tokenizer_encode(tokenizer, text, length, ISO_TOKENIZE_ADD_SPECIAL, out_ids, &count));
  *out_count = (int32_t)count; /* a text has at most 2^26 bytes, and no more tokens but a few */
  return ISO_OK;
}
