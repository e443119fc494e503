/* The engine's own thread, and many threads that submit, cancel, resume and ask at once. */
#include "tests/unit/engine_case.h"

#include "engine/engine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { N_THREADS = 4, N_IDS = 32, MAX_PAUSED = 1024 };

typedef struct client {
  iso_engine *engine;
  uint32_t random;
  int n_requests, cancel_percent;
  double until; /* seconds; 0: n_requests */
  atomic_int n_submitted, n_done, n_ok, n_cancelled, n_busy;
  atomic_ullong paused[MAX_PAUSED]; /* ids to resume; 0: none */
  int n_paused;                     /* the engine's thread alone counts */
} client;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static uint32_t next_random(client *self) {
  self->random = self->random * 1664525u + 1013904223u;
  return self->random >> 8;
}

/* Some events pause; whoever submitted resumes later. */
static iso_flow on_event(void *context, const iso_event *event) {
  client *self = context;
  if (event->kind == ISO_EVENT_DONE) {
    if (event->status == ISO_OK)
      atomic_fetch_add(&self->n_ok, 1);
    else if (event->status == ISO_ERROR_CANCELLED)
      atomic_fetch_add(&self->n_cancelled, 1);
    atomic_fetch_add(&self->n_done, 1);
  }
  bool pauses = event->kind == ISO_EVENT_TEXT && event->request % 7 == 0 && event->n_tokens > 0 &&
                event->tokens[0].chosen.token % 4 == 0;
  if (pauses)
    atomic_store(&self->paused[self->n_paused++ % MAX_PAUSED], event->request);
  return pauses ? ISO_FLOW_PAUSE : ISO_FLOW_CONTINUE;
}

static iso_request random_request(client *self, int32_t *prompt) {
  int32_t n = 1 + (int32_t)(next_random(self) % 70);
  fill_prompt(prompt, n, next_random(self) % 4); /* few seeds: prefixes are shared */
  iso_request request = case_request(prompt, n, 1 + (int32_t)(next_random(self) % 30));
  request.on_event = on_event;
  request.context = self;
  request.sampling.temperature = (float)(next_random(self) % 2);
  switch (next_random(self) % 8) {
  case 0:
    request.n = 2 + (int32_t)(next_random(self) % 3);
    break;
  case 1:
    request.beam_width = 2;
    break;
  case 2:
    request.n = 1;
    request.best_of = 3;
    break;
  case 3:
    request.logprobs = request.prompt_logprobs = true;
    request.n_top_logprobs = 3;
    break;
  case 4:
    request.embed = true;
    break;
  default:
    break;
  }
  return request;
}

/* Lets everything of this client go on that pauses. */
static void resume_all(client *self) {
  for (int i = 0; i < MAX_PAUSED; i++) {
    iso_request_id id = atomic_exchange(&self->paused[i], 0);
    if (id != 0)
      iso_engine_resume(self->engine, id);
  }
  usleep(2000);
}

static void *run_client(void *context) {
  client *self = context;
  int32_t prompt[CASE_CONTEXT];
  iso_request_id ids[N_IDS] = {0};
  for (int i = 0; self->until > 0 ? now() < self->until : i < self->n_requests; i++) {
    iso_request request = random_request(self, prompt);
    iso_request_id *id = &ids[next_random(self) % N_IDS];
    if (iso_engine_submit(self->engine, &request, id) == ISO_OK)
      atomic_fetch_add(&self->n_submitted, 1);
    else
      atomic_fetch_add(&self->n_busy, 1);
    if ((int)(next_random(self) % 100) < self->cancel_percent)
      iso_engine_cancel(self->engine, ids[next_random(self) % N_IDS]);
    for (int k = 0; k < N_IDS; k++)
      iso_engine_resume(self->engine, ids[k]);
    iso_engine_stats stats;
    iso_engine_get_stats(self->engine, &stats);
    if (stats.n_waiting > 16)
      usleep(1000);
    if (stats.n_paused > 64)
      resume_all(self);
  }
  /* Those that pause go on until all are done. */
  while (atomic_load(&self->n_done) < atomic_load(&self->n_submitted))
    resume_all(self);
  return NULL;
}

static void run_clients(iso_engine *engine, int n_requests, int cancel_percent, double seconds) {
  static client clients[N_THREADS];
  pthread_t threads[N_THREADS];
  memset(clients, 0, sizeof clients);
  for (int i = 0; i < N_THREADS; i++) {
    clients[i].engine = engine;
    clients[i].random = (uint32_t)i + 1;
    clients[i].n_requests = n_requests;
    clients[i].cancel_percent = cancel_percent;
    clients[i].until = seconds > 0 ? now() + seconds : 0;
    assert_int_equal(pthread_create(&threads[i], NULL, run_client, &clients[i]), 0);
  }
  int n_ok = 0;
  for (int i = 0; i < N_THREADS; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(clients[i].n_done, clients[i].n_submitted);
    assert_int_equal(clients[i].n_ok + clients[i].n_cancelled, clients[i].n_submitted);
    n_ok += clients[i].n_ok;
  }
  assert_true(n_ok > 0);
}

static void test_many_threads(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  CHECK(iso_engine_start(engine));
  run_clients(engine, 20, 0, 0);
  iso_engine_drain(engine, UINT64_MAX);
  assert_idle(engine);
  assert_int_equal(stats_of(engine).n_finished, 20 * N_THREADS);
  iso_engine_destroy(engine);
}

/* Nobody holds a page, a place to swap to, or a request. */
static void assert_nothing_held(const iso_engine *engine) {
  for (int32_t i = 0; i < engine->pool.n_pages; i++)
    assert_int_equal(engine->pool.pages[i].n_references, 0);
  assert_int_equal(iso_page_pool_available(&engine->pool), engine->pool.n_pages);
  assert_int_equal(engine->swap.n_free, engine->swap.n_slots);
  assert_int_equal(engine->n_requests, 0);
  assert_int_equal(engine->running.n, 0);
  assert_null(engine->lingering);
}

/* Half of the requests are cancelled, in a pool that is too small, with drafts, or with steps under
 * way where the device works beside the host. ISOMER_TEST_STRESS_SECONDS makes it longer. */
static void test_cancel_stress(void **state) {
  (void)state;
  const char *seconds = getenv("ISOMER_TEST_STRESS_SECONDS");
  iso_engine_options options = case_options();
  options.runtime.n_pages = 12;
  options.swap_memory_bytes = 1 << 20;
  options.max_queue = 32;
  bool is_late = strcmp(case_device(), "late") == 0;
  options.speculation = is_late ? ISO_SPECULATION_NONE : ISO_SPECULATION_NGRAM;
  iso_engine *engine = make_engine(model, &options);
  assert_int_equal(engine->overlaps, is_late);
  CHECK(iso_engine_start(engine));
  run_clients(engine, 25, 50, seconds ? atof(seconds) : 0);
  iso_engine_drain(engine, UINT64_MAX);
  assert_idle(engine);
  assert_nothing_held(engine);
  iso_engine_stats stats = stats_of(engine);
  print_message("%llu requests, %llu cancelled, %llu preemptions, %llu pages swapped\n",
                (unsigned long long)stats.n_requests, (unsigned long long)stats.n_cancelled,
                (unsigned long long)stats.n_preempted, (unsigned long long)stats.n_swapped_pages);
  assert_true(stats.n_cancelled > 0);
  iso_engine_destroy(engine);
}

static void test_drain_times_out(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  static client self;
  int32_t prompt[8];
  memset(&self, 0, sizeof self);
  fill_prompt(prompt, 8, 1);
  iso_request request = case_request(prompt, 8, 100), late = request;
  request.on_event = late.on_event = on_event;
  request.context = late.context = &self;
  CHECK(iso_engine_start(engine));
  bool is_busy;
  assert_int_equal(iso_engine_step(engine, &is_busy), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_engine_start(engine), ISO_ERROR_INVALID_ARGUMENT);
  for (int i = 0; i < 7; i++) /* the seventh pauses for ever */
    CHECK(iso_engine_submit(engine, &request, NULL));
  iso_engine_drain(engine, 100000);
  assert_int_equal(self.n_done, 7);
  assert_true(self.n_cancelled >= 1);
  assert_int_equal(iso_engine_submit(engine, &late, NULL), ISO_ERROR_BUSY);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* A deadline ends a paused request while the thread sleeps. */
static void test_deadline_while_asleep(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  static client self;
  int32_t prompt[8];
  memset(&self, 0, sizeof self);
  fill_prompt(prompt, 8, 1);
  iso_request request = case_request(prompt, 8, 100);
  request.on_event = on_event;
  request.context = &self;
  for (int i = 0; i < 7; i++) {
    request.timeout_us = i == 6 ? 50000 : 0;
    CHECK(iso_engine_submit(engine, &request, NULL));
  }
  CHECK(iso_engine_start(engine));
  for (int i = 0; i < 5000 && atomic_load(&self.n_done) < 7; i++)
    usleep(1000);
  assert_int_equal(self.n_done, 7);
  assert_int_equal(self.n_ok, 6);
  iso_engine_destroy(engine);
}

/* Several threads drain at once: one is patient, others are not. */
static void *drain(void *context) {
  iso_engine_drain(context, 0);
  return NULL;
}

static void test_drains_at_once(void **state) {
  (void)state;
  for (int round = 0; round < 8; round++) {
    static client self;
    pthread_t threads[N_THREADS];
    int32_t prompt[CASE_CONTEXT];
    iso_engine *engine = make_engine(model, NULL);
    self = (client){.engine = engine, .random = (uint32_t)round};
    for (int i = 0; i < 6; i++) {
      iso_request request = random_request(&self, prompt);
      CHECK(iso_engine_submit(engine, &request, NULL));
    }
    CHECK(iso_engine_start(engine));
    for (int i = 0; i < N_THREADS; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, drain, engine), 0);
    iso_engine_drain(engine, 60000000);
    for (int i = 0; i < N_THREADS; i++)
      pthread_join(threads[i], NULL);
    assert_int_equal(self.n_done, 6);
    assert_idle(engine);
    iso_engine_destroy(engine);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_many_threads),          cmocka_unit_test(test_cancel_stress),
      cmocka_unit_test(test_drain_times_out),       cmocka_unit_test(test_drains_at_once),
      cmocka_unit_test(test_deadline_while_asleep),
  };
  return cmocka_run_group_tests(tests, open_model, close_model);
}
