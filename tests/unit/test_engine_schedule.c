/* Many requests at once: nobody waits for ever, everybody gets the tokens they would get alone, and
 * no page is left behind. */
#include "tests/unit/engine_case.h"

#include "engine/engine.h"

enum { MOST = 64 };

static collected out[MOST], alone[MOST];

/* Requests of many lengths, greedy or sampled. */
static iso_request make_request(int i, int32_t *prompt, int32_t max_tokens) {
  int32_t n = 1 + (i * 7) % 60;
  fill_prompt(prompt, n, (uint32_t)i + 100);
  iso_request request = case_request(prompt, n, max_tokens);
  if (i % 2) {
    request.sampling.temperature = 0.9f;
    request.sampling.top_p = 0.95f;
    request.sampling.seed = (uint64_t)i;
    request.sampling.repetition_penalty = 1.1f;
  }
  return request;
}

/* What request i gets alone, with room for everything. */
static void run_alone(int n, int32_t max_tokens) {
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  for (int i = 0; i < n; i++)
    generate(engine, make_request(i, prompt, max_tokens), &alone[i]);
  iso_engine_destroy(engine);
}

static void run_together(const iso_engine_options *options, int n, int32_t max_tokens,
                         iso_engine_stats *out_stats) {
  iso_engine *engine = make_engine(model, options);
  int32_t prompt[CASE_CONTEXT];
  memset(out, 0, sizeof out);
  for (int i = 0; i < n; i++)
    submit(engine, make_request(i, prompt, max_tokens), &out[i]);
  run_all(engine);
  uint64_t n_cached = 0;
  for (int i = 0; i < n; i++) {
    assert_int_equal(out[i].n_done, 1);
    assert_int_equal(out[i].status, ISO_OK);
    assert_same_tokens(&out[i], 0, &alone[i], 0);
    assert_string_equal(out[i].text[0], alone[i].text[0]);
    n_cached += (uint64_t)out[i].usage.n_cached;
  }
  assert_idle(engine);
  *out_stats = stats_of(engine);
  /* What a request finds of itself, once it has lost its pages, is no prefix of its prompt. */
  assert_int_equal(out_stats->n_prefix_hit_tokens, n_cached);
  assert_int_equal(out_stats->n_finished, n);
  iso_engine_destroy(engine);
}

/* HARD-CASE: same seed and prompt, alone or among others, on the CPU. */
static void test_same_tokens_alone_and_among_63_others(void **state) {
  (void)state;
  run_alone(64, 24);
  iso_engine_options options = case_options();
  options.runtime.max_sequences = 64;
  options.runtime.max_tokens = 256;
  options.runtime.n_pages = 512;
  iso_engine_stats stats;
  run_together(&options, 64, 24, &stats);
  assert_int_equal(stats.n_preempted, 0);
  options.batching = ISO_BATCHING_STATIC;
  options.runtime.max_sequences = 8;
  run_together(&options, 64, 24, &stats);
}

/* Eight pages, 32 requests of up to six pages each: progress, by recomputing or by swapping. */
static void test_few_pages(void **state) {
  (void)state;
  run_alone(32, 40);
  iso_engine_options options = case_options();
  options.runtime.n_pages = 8;
  iso_engine_stats stats;
  run_together(&options, 32, 40, &stats);
  assert_true(stats.n_preempted > 0);
  assert_int_equal(stats.n_swapped_pages, 0);
  options.swap_memory_bytes = 16 << 20;
  run_together(&options, 32, 40, &stats);
  assert_true(stats.n_preempted > 0);
  assert_true(stats.n_swapped_pages > 0);
  options.no_prefix_cache = true;
  run_together(&options, 32, 40, &stats);
  options.swap_memory_bytes = 0;
  run_together(&options, 32, 40, &stats);
}

/* A static batch is only followed once its last sequence has ended; a continuous one is joined. */
static void test_batching(void **state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    iso_engine_options options = case_options();
    options.runtime.max_sequences = 2;
    options.batching = kind == 0 ? ISO_BATCHING_STATIC : ISO_BATCHING_CONTINUOUS;
    iso_engine *engine = make_engine(model, &options);
    int32_t prompt[8];
    int counter = 0;
    fill_prompt(prompt, 8, 1);
    memset(out, 0, sizeof out);
    static const int32_t lengths[] = {4, 30, 4};
    for (int i = 0; i < 3; i++) {
      out[i].end_counter = &counter;
      submit(engine, case_request(prompt, 8, lengths[i]), &out[i]);
    }
    run_all(engine);
    assert_int_equal(out[0].order, 0);
    assert_int_equal(out[2].order, kind == 0 ? 2 : 1);
    iso_engine_destroy(engine);
  }
}

/* One that starts leaves room for those at work to grow into: else it would be preempted as soon as
 * they do. */
static void test_room_to_grow(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.runtime.n_pages = 8;
  options.no_prefix_cache = true;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 64, 1);
  memset(out, 0, sizeof out);
  submit(engine, case_request(prompt, 60, 20), &out[0]); /* four pages, then five */
  submit(engine, case_request(prompt, 64, 10), &out[1]); /* of the four that are left */
  run_all(engine);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(out[i].status, ISO_OK);
    assert_int_equal(out[i].usage.n_preempted, 0);
  }
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* What takes less time: copies of pages, there and back, or the rows once more. */
static void test_preemption_takes_the_cheaper_way(void **state) {
  (void)state;
  enum { N = 10 };
  run_alone(N, 40);
  for (int is_dear = 0; is_dear < 2; is_dear++) {
    iso_engine_options options = case_options();
    options.runtime.n_pages = 8;
    options.swap_memory_bytes = 16 << 20;
    iso_engine *engine = make_engine(model, &options);
    engine->swap.us_per_page = is_dear ? 1e12 : 1e-12;
    int32_t prompt[CASE_CONTEXT];
    memset(out, 0, sizeof out);
    for (int i = 0; i < N; i++)
      submit(engine, make_request(i, prompt, 40), &out[i]);
    run_all(engine);
    for (int i = 0; i < N; i++)
      assert_same_tokens(&out[i], 0, &alone[i], 0);
    iso_engine_stats stats = stats_of(engine);
    assert_true(stats.n_preempted > 0);
    assert_true(is_dear ? stats.n_swapped_pages == 0 : stats.n_swapped_pages > 0);
    assert_idle(engine);
    iso_engine_destroy(engine);
  }
}

static void test_one_row_a_step(void **state) {
  (void)state;
  run_alone(8, 10);
  iso_engine_options options = case_options();
  options.runtime.max_sequences = 1;
  options.runtime.max_tokens = 1;
  iso_engine_stats stats;
  run_together(&options, 8, 10, &stats);
}

/* A prompt of several chunks does not hold up those who decode. */
static void test_long_prompt_leaves_rows_to_others(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.runtime.max_tokens = 8;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  static collected first, second;
  memset(&first, 0, sizeof first);
  memset(&second, 0, sizeof second);
  fill_prompt(prompt, 100, 1);
  submit(engine, case_request(prompt, 4, 40), &first);
  bool is_busy;
  CHECK(iso_engine_step(engine, &is_busy));
  submit(engine, case_request(prompt, 100, 4), &second);
  int before = first.n_tokens[0];
  for (int i = 0; i < 10; i++)
    CHECK(iso_engine_step(engine, &is_busy));
  assert_int_equal(first.n_tokens[0], before + 10);
  assert_int_equal(second.n_tokens[0], 0);
  run_all(engine);
  assert_int_equal(second.n_tokens[0], 4);
  iso_engine_destroy(engine);
}

/* Prompts alone fill a step; beside those that decode a step is small, unless many wait, and then
 * twice that at most, or 16 rows for each that decodes. It is of whole tiles where the device has
 * them, and never of more rows than prompts have. */
static void test_prompts_beside_decoding(void **state) {
  (void)state;
  enum { LENGTH = 100 };
  static const struct {
    int small, n_decoding, n_prompts, multiple, n_rows;
  } cases[] = {{512, 0, 20, 1, 20 * LENGTH},     {512, 1, 10, 1, 512},
               {512, 1, 16, 1, 1 + 8 * LENGTH},  {512, 1, 40, 1, 1024},
               {512, 0, 20, 128, 20 * LENGTH},   {512, 1, 10, 128, 512},
               {512, 1, 16, 128, 896},           {512, 1, 40, 128, 1024},
               {512, 1, 3, 128, 1 + 3 * LENGTH}, {512, 1, 10, 200, 600},
               {512, 20, 40, 1, 1024},           {256, 20, 40, 1, 512},
               {256, 40, 20, 1, 16 * 40}};
  iso_engine_options options = case_options();
  options.runtime.max_tokens = 4096;
  options.runtime.max_sequences = MOST;
  options.runtime.n_pages = 256;
  int32_t prompt[CASE_CONTEXT];
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    iso_engine *engine = make_engine(model, &options);
    assert_int_equal(engine->mixed_tokens, 4096); /* as was asked for */
    engine->mixed_tokens = cases[c].small;        /* as where nobody asks */
    assert_int_equal(engine->row_multiple, 1);    /* of a CPU */
    engine->row_multiple = cases[c].multiple;
    int n = cases[c].n_prompts;
    bool is_busy;
    memset(out, 0, sizeof out);
    fill_prompt(prompt, 4, 1);
    for (int i = 0; i < cases[c].n_decoding; i++)
      submit(engine, case_request(prompt, 4, 60), &out[n + i]);
    while (cases[c].n_decoding > 0 && out[n].n_tokens[0] == 0)
      CHECK(iso_engine_step(engine, &is_busy));
    for (int i = 0; i < n; i++) {
      fill_prompt(prompt, LENGTH, (uint32_t)i + 10);
      submit(engine, case_request(prompt, LENGTH, 2), &out[i]);
    }
    CHECK(iso_engine_step(engine, &is_busy));
    assert_int_equal(engine->running.n_tokens, cases[c].n_rows);
    run_all(engine);
    for (int i = 0; i < n; i++)
      assert_int_equal(out[i].status, ISO_OK);
    assert_idle(engine);
    iso_engine_destroy(engine);
  }
}

static void test_priority_and_arrival(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.runtime.max_sequences = 1;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[8];
  int counter = 0;
  static const int32_t priorities[] = {5, 0, 5, -3, 0};
  static const int expected[] = {3, 1, 4, 0, 2};
  fill_prompt(prompt, 8, 1);
  memset(out, 0, sizeof out);
  for (int i = 0; i < 5; i++) {
    iso_request request = case_request(prompt, 8, 4);
    request.priority = priorities[i];
    out[i].end_counter = &counter;
    submit(engine, request, &out[i]);
  }
  run_all(engine);
  for (int i = 0; i < 5; i++)
    assert_int_equal(out[expected[i]].order, i);
  iso_engine_destroy(engine);
}

/* The urgent one takes the pages of the other, which then goes on as if nothing had been. */
static void test_priority_takes_pages(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.runtime.n_pages = 6;
  options.no_prefix_cache = true;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  int counter = 0;
  fill_prompt(prompt, 60, 1);
  memset(out, 0, sizeof out);
  iso_request slow = case_request(prompt, 60, 20), urgent = case_request(prompt + 1, 59, 20);
  generate(engine, slow, &alone[0]);
  generate(engine, urgent, &alone[1]);
  urgent.priority = -1;
  out[0].end_counter = out[1].end_counter = &counter;
  submit(engine, slow, &out[0]);
  bool is_busy;
  for (int i = 0; i < 5; i++)
    CHECK(iso_engine_step(engine, &is_busy));
  assert_true(out[0].n_tokens[0] > 0);
  submit(engine, urgent, &out[1]);
  run_all(engine);
  assert_int_equal(out[1].order, 0);
  assert_int_equal(out[0].usage.n_preempted, 1);
  assert_same_tokens(&out[0], 0, &alone[0], 0);
  assert_same_tokens(&out[1], 0, &alone[1], 0);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

static void test_queue_full(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.max_queue = 3;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[8];
  fill_prompt(prompt, 8, 1);
  memset(out, 0, sizeof out);
  iso_request request = case_request(prompt, 8, 4);
  for (int i = 0; i < 3; i++)
    submit(engine, request, &out[i]);
  iso_request_id id;
  assert_int_equal(iso_engine_submit(engine, &request, &id), ISO_ERROR_BUSY);
  bool is_busy;
  CHECK(iso_engine_step(engine, &is_busy));
  submit(engine, request, &out[3]);
  run_all(engine);
  for (int i = 0; i < 4; i++)
    assert_int_equal(out[i].n_done, 1);
  iso_engine_destroy(engine);
}

/* Each request takes the place of those before, which wait again: they count as such. */
static void test_queue_full_of_preempted(void **state) {
  (void)state;
  enum { QUEUE = 6, MANY = 4 * QUEUE };
  iso_engine_options options = case_options();
  options.max_queue = QUEUE;
  options.runtime.n_pages = 8;
  options.runtime.max_sequences = 2;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 100, 1);
  memset(out, 0, sizeof out);
  iso_request request = case_request(prompt, 100, 4);
  int n = 0;
  for (; n < MANY; n++) {
    bool is_busy;
    request.priority = -n;
    request.context = &out[n];
    if (iso_engine_submit(engine, &request, &out[n].id) != ISO_OK)
      break;
    CHECK(iso_engine_step(engine, &is_busy));
  }
  assert_in_range(n, QUEUE, QUEUE + 2);
  run_all(engine);
  for (int i = 0; i < n; i++)
    assert_int_equal(out[i].n_done, 1);
  submit(engine, request, &out[n]);
  run_all(engine);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* One of several that each have many prompts, one after another, beside others that fill the queue
 * whenever it has room. */
typedef struct patient {
  int n_accepted, n_done; /* prompts */
  int *n_ended;           /* of all requests */
  int since;              /* *n_ended when the prompt in line came */
  int longest;            /* how many others ended before one of its prompts */
} patient;

static iso_flow on_patient_event(void *context, const iso_event *event) {
  patient *self = context;
  if (event->kind != ISO_EVENT_DONE)
    return ISO_FLOW_CONTINUE;
  assert_int_equal(event->status, ISO_OK);
  int others = *self->n_ended - self->since;
  self->longest = others > self->longest ? others : self->longest;
  self->n_done++;
  (*self->n_ended)++;
  return ISO_FLOW_CONTINUE;
}

/* The client's next prompt; returns whether it was accepted. */
static bool ask_for(iso_engine *engine, patient *client) {
  int32_t prompt[4];
  fill_prompt(prompt, 4, 1);
  iso_request request = case_request(prompt, 4, 2);
  request.on_event = on_patient_event;
  request.context = client;
  request.continues = client->n_accepted > 0;
  bool is_accepted = iso_engine_submit(engine, &request, NULL) == ISO_OK;
  client->since = *client->n_ended;
  client->n_accepted += is_accepted;
  return is_accepted;
}

static iso_flow on_other_event(void *context, const iso_event *event) {
  *(int *)context += event->kind == ISO_EVENT_DONE;
  return ISO_FLOW_CONTINUE;
}

/* What has been accepted goes on however full the queue is kept, and in order: before each of its
 * prompts at most those end that were there when it came. */
static void test_full_queue_and_many_prompts(void **state) {
  (void)state;
  enum {
    QUEUE = 2,
    CLIENTS = 8,
    PROMPTS = 6,
    MOST_STEPS = 4 * CLIENTS * PROMPTS * (QUEUE + CLIENTS)
  };
  iso_engine_options options = case_options();
  options.max_queue = QUEUE;
  options.runtime.max_sequences = 1;
  iso_engine *engine = make_engine(model, &options);
  int n_ended = 0, n_over = 0, n_others = 0;
  patient clients[CLIENTS] = {0};
  int32_t prompt[4];
  fill_prompt(prompt, 4, 1);
  iso_request other = case_request(prompt, 4, 2);
  other.on_event = on_other_event;
  other.context = &n_ended;
  for (int i = 0; i < CLIENTS; i++)
    clients[i].n_ended = &n_ended;
  for (int step = 0; n_over < CLIENTS; step++) {
    bool is_busy;
    assert_true(step < MOST_STEPS);
    for (int i = 0; i < CLIENTS; i++) /* the first prompts, where there is room */
      if (clients[i].n_accepted == 0)
        ask_for(engine, &clients[i]);
    for (; iso_engine_submit(engine, &other, NULL) == ISO_OK; n_others++) /* all that is left */
      continue;
    n_over = 0;
    for (int i = 0; i < CLIENTS; i++) { /* the next prompts come last */
      patient *client = &clients[i];
      n_over += client->n_done == PROMPTS;
      if (client->n_accepted > 0 && client->n_accepted == client->n_done &&
          client->n_done < PROMPTS)
        assert_true(ask_for(engine, client));
    }
    CHECK(iso_engine_step(engine, &is_busy));
    assert_in_range(stats_of(engine).n_waiting, 0, QUEUE + CLIENTS);
  }
  assert_true(n_others > 0);
  for (int i = 0; i < CLIENTS; i++)
    assert_in_range(clients[i].longest, 0, QUEUE + CLIENTS);
  run_all(engine);
  assert_idle(engine);
  iso_engine_drain(engine, 0);
  assert_false(ask_for(engine, &clients[0]));
  iso_engine_destroy(engine);
}

/* However urgent those are that come later: some day they are not before it. */
static void test_no_priority_is_for_ever(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[4];
  fill_prompt(prompt, 4, 1);
  memset(out, 0, sizeof out);
  static const int32_t priorities[] = {INT32_MIN, -100000, -360, 0, 360, INT32_MAX};
  enum { N_PRIORITIES = sizeof priorities / sizeof *priorities };
  bool is_busy;
  for (int i = 0; i < N_PRIORITIES; i++) {
    iso_request request = case_request(prompt, 4, 4);
    request.priority = priorities[N_PRIORITIES - 1 - i];
    submit(engine, request, &out[i]);
  }
  CHECK(iso_engine_step(engine, &is_busy));
  int64_t hour = INT64_C(3600) * 1000000, plain = 0;
  for (size_t i = 0; i < engine->n_requests; i++)
    if (engine->requests[i]->asked.priority == 0)
      plain = engine->requests[i]->order;
  for (size_t i = 0; i < engine->n_requests; i++) {
    int64_t apart = engine->requests[i]->order - plain;
    assert_true(apart > -hour - 1000000 && apart < hour + 1000000);
  }
  run_all(engine);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* Commands are taken whatever waits, however many there are, and make room. */
static void test_flood_of_commands(void **state) {
  (void)state;
  enum { N = 3 };
  iso_engine_options options = case_options();
  options.max_queue = N;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[8];
  fill_prompt(prompt, 8, 1);
  memset(out, 0, sizeof out);
  iso_request request = case_request(prompt, 8, 4);
  for (int i = 0; i < N; i++)
    submit(engine, request, &out[i]);
  assert_int_equal(iso_engine_submit(engine, &request, NULL), ISO_ERROR_BUSY);
  for (int i = 0; i < 100000; i++) {
    iso_engine_resume(engine, out[i % N].id);
    iso_engine_cancel(engine, out[1].id);
    iso_engine_cancel(engine, out[1].id + 1024 + (iso_request_id)i);
  }
  bool is_busy;
  CHECK(iso_engine_step(engine, &is_busy));
  assert_int_equal(out[1].n_done, 1);
  assert_int_equal(out[1].status, ISO_ERROR_CANCELLED);
  submit(engine, request, &out[N]);
  for (int i = 0; i <= N; i++)
    iso_engine_resume(engine, out[i].id);
  run_all(engine);
  for (int i = 0; i <= N; i++) {
    assert_int_equal(out[i].n_done, 1);
    assert_int_equal(out[i].status, i == 1 ? ISO_ERROR_CANCELLED : ISO_OK);
    iso_engine_cancel(engine, out[i].id); /* nobody's any more */
  }
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* ---- Ends before the end ------------------------------------------------------------------- */

/* Cancelled after any number of steps: queued, in the prompt, while decoding, preempted, paused. */
static void test_cancel_at_any_step(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.runtime.n_pages = 8;
  options.runtime.max_tokens = 16;
  options.swap_memory_bytes = 1 << 20;
  int32_t prompt[CASE_CONTEXT];
  run_alone(4, 30);
  for (int n_steps = 0; n_steps < 60; n_steps++) {
    iso_engine *engine = make_engine(model, &options);
    memset(out, 0, sizeof out);
    for (int i = 0; i < 4; i++) {
      iso_request request = make_request(i, prompt, 30);
      request.n = i == 1 ? 3 : 0;
      submit(engine, request, &out[i]);
    }
    bool is_busy = true;
    for (int i = 0; i < n_steps; i++)
      CHECK(iso_engine_step(engine, &is_busy));
    iso_engine_cancel(engine, out[1].id);
    iso_engine_cancel(engine, out[3].id);
    iso_engine_cancel(engine, 12345);
    CHECK(iso_engine_step(engine, &is_busy));
    assert_int_equal(out[1].n_done, 1);
    assert_int_equal(out[3].n_done, 1);
    assert_true(out[3].status == ISO_ERROR_CANCELLED || out[3].status == ISO_OK);
    run_all(engine);
    for (int i = 0; i < 4; i += 2) /* the others did not notice */
      assert_same_tokens(&out[i], 0, &alone[i], 0);
    assert_idle(engine);
    iso_engine_destroy(engine);
  }
}

static void test_cancel_from_the_callback(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[8];
  fill_prompt(prompt, 8, 1);
  memset(out, 0, sizeof out);
  out[0].cancel_after = 3;
  submit(engine, case_request(prompt, 8, 50), &out[0]);
  run_all(engine);
  assert_int_equal(out[0].status, ISO_ERROR_CANCELLED);
  assert_int_equal(out[0].n_tokens[0], 3);
  assert_int_equal(out[0].n_choices, 0);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* By the event of the last token, behind which no end of a choice can come: that is no success. */
static void test_cancel_from_the_last_text(void **state) {
  (void)state;
  static const struct {
    int32_t n, best_of, beam_width;
  } kinds[] = {{1, 0, 0}, {2, 0, 0}, {1, 2, 0}, {2, 0, 2}};
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[8];
  fill_prompt(prompt, 8, 1);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    memset(out, 0, sizeof out);
    out[0].cancel_after = 3;
    iso_request request = case_request(prompt, 8, 3);
    request.n = kinds[i].n;
    request.best_of = kinds[i].best_of;
    request.beam_width = kinds[i].beam_width;
    submit(engine, request, &out[0]);
    run_all(engine);
    assert_int_equal(out[0].n_tokens[0], 3);
    assert_int_equal(out[0].n_choices, 0);
    assert_int_equal(out[0].status, ISO_ERROR_CANCELLED);
    assert_int_equal(stats_of(engine).n_cancelled, i + 1);
    assert_idle(engine);
  }
  iso_engine_destroy(engine);
}

static void test_pause_and_resume(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  run_alone(2, 20);
  memset(out, 0, sizeof out);
  out[0].pause_after = 5;
  submit(engine, make_request(0, prompt, 20), &out[0]);
  submit(engine, make_request(1, prompt, 20), &out[1]);
  run_all(engine);
  assert_int_equal(out[0].n_tokens[0], 5);
  assert_int_equal(out[0].n_done, 0);
  assert_int_equal(out[1].n_done, 1); /* the slow reader stops itself only */
  assert_int_equal(stats_of(engine).n_paused, 1);
  iso_engine_resume(engine, out[0].id);
  run_all(engine);
  for (int i = 0; i < 2; i++)
    assert_same_tokens(&out[i], 0, &alone[i], 0);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* Pages of a paused request are there for others. */
static void test_paused_pages_are_taken(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.runtime.n_pages = 6;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 61, 1);
  generate(engine, case_request(prompt, 60, 20), &alone[0]);
  memset(out, 0, sizeof out);
  out[0].pause_after = 5;
  submit(engine, case_request(prompt, 60, 20), &out[0]);
  submit(engine, case_request(prompt + 1, 60, 20), &out[1]);
  run_all(engine);
  assert_int_equal(out[1].n_done, 1);
  assert_int_equal(out[0].n_done, 0);
  iso_engine_resume(engine, out[0].id);
  run_all(engine);
  assert_same_tokens(&out[0], 0, &alone[0], 0);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

static void test_deadline(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[8];
  fill_prompt(prompt, 8, 1);
  memset(out, 0, sizeof out);
  iso_request request = case_request(prompt, 8, 100);
  request.timeout_us = 1;
  submit(engine, request, &out[0]);
  request.timeout_us = 600000000;
  submit(engine, request, &out[1]);
  usleep(10);
  run_all(engine);
  assert_int_equal(out[0].status, ISO_ERROR_LIMIT);
  assert_int_equal(out[1].status, ISO_OK);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* Asks again for as long as it is let. */
typedef struct insistent {
  iso_engine *engine;
  int32_t prompt[4];
  int n_submitted, n_done, n_refused;
} insistent;

static iso_flow ask_again(void *context, const iso_event *event) {
  insistent *self = context;
  if (event->kind != ISO_EVENT_DONE)
    return ISO_FLOW_CONTINUE;
  self->n_done++;
  iso_request request = case_request(self->prompt, 4, 4);
  request.on_event = ask_again;
  request.context = self;
  iso_status status = iso_engine_submit(self->engine, &request, NULL);
  self->n_submitted += status == ISO_OK;
  self->n_refused += status == ISO_ERROR_BUSY;
  return ISO_FLOW_CONTINUE;
}

/* Whoever asks once more when told that the engine goes is refused, not forgotten. */
static void test_asking_again_at_the_end(void **state) {
  (void)state;
  for (int kind = 0; kind < 3; kind++) {
    insistent self = {.engine = make_engine(model, NULL), .n_submitted = 3};
    fill_prompt(self.prompt, 4, 1);
    iso_request request = case_request(self.prompt, 4, 4);
    request.on_event = ask_again;
    request.context = &self;
    for (int i = 0; i < 3; i++)
      CHECK(iso_engine_submit(self.engine, &request, NULL));
    if (kind == 1)
      iso_engine_drain(self.engine, 0);
    else if (kind == 2)
      CHECK(iso_engine_start(self.engine));
    iso_engine_destroy(self.engine);
    assert_int_equal(self.n_done, self.n_submitted);
    assert_in_range(self.n_refused, 1, 3);
  }
}

static void test_destroy_ends_everything(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[8];
  fill_prompt(prompt, 8, 1);
  memset(out, 0, sizeof out);
  for (int i = 0; i < 20; i++)
    submit(engine, case_request(prompt, 8, 100), &out[i]);
  bool is_busy;
  for (int i = 0; i < 3; i++)
    CHECK(iso_engine_step(engine, &is_busy));
  submit(engine, case_request(prompt, 8, 100), &out[20]);
  iso_engine_destroy(engine);
  for (int i = 0; i <= 20; i++) {
    assert_int_equal(out[i].n_done, 1);
    assert_int_equal(out[i].status, ISO_ERROR_CANCELLED);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_tokens_alone_and_among_63_others),
      cmocka_unit_test(test_few_pages),
      cmocka_unit_test(test_batching),
      cmocka_unit_test(test_room_to_grow),
      cmocka_unit_test(test_preemption_takes_the_cheaper_way),
      cmocka_unit_test(test_one_row_a_step),
      cmocka_unit_test(test_long_prompt_leaves_rows_to_others),
      cmocka_unit_test(test_prompts_beside_decoding),
      cmocka_unit_test(test_priority_and_arrival),
      cmocka_unit_test(test_priority_takes_pages),
      cmocka_unit_test(test_queue_full),
      cmocka_unit_test(test_queue_full_of_preempted),
      cmocka_unit_test(test_full_queue_and_many_prompts),
      cmocka_unit_test(test_no_priority_is_for_ever),
      cmocka_unit_test(test_flood_of_commands),
      cmocka_unit_test(test_cancel_at_any_step),
      cmocka_unit_test(test_cancel_from_the_callback),
      cmocka_unit_test(test_cancel_from_the_last_text),
      cmocka_unit_test(test_pause_and_resume),
      cmocka_unit_test(test_paused_pages_are_taken),
      cmocka_unit_test(test_deadline),
      cmocka_unit_test(test_destroy_ends_everything),
      cmocka_unit_test(test_asking_again_at_the_end),
  };
  return cmocka_run_group_tests(tests, open_model, close_model);
}
