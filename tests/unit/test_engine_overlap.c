/* Steps under way while the next is planned, on a device that works beside the host, against the
 * same device one step at a time. */
#include "tests/unit/engine_case.h"

#include "engine/engine.h"

enum { N = 24 };
static collected out[N], alone[N];

static iso_engine_options options_on(const char *device) {
  iso_engine_options options = case_options();
  options.runtime.devices = device;
  return options;
}

static iso_engine *open_on(const char *device) {
  iso_engine_options options = options_on(device);
  return make_engine(model, &options);
}

/* Of every kind: greedy, sampled, several choices, stop tokens and strings, and those whose tokens
 * the host must draw. */
static iso_request make_request(int i, int32_t *prompt) {
  static const char *const stops[] = {"e", "QQ"};
  static const int32_t stop_tokens[] = {40, 41, 42, 43, 44};
  int32_t n = 1 + (i * 11) % 70;
  fill_prompt(prompt, n, (uint32_t)i);
  iso_request request = case_request(prompt, n, 8 + i % 30);
  request.sampling.temperature = i % 3 ? 1.2f : 0;
  request.sampling.seed = (uint64_t)i;
  if (i % 4 == 1) {
    request.stop_tokens = stop_tokens;
    request.n_stop_tokens = 5;
  }
  if (i % 4 == 2) {
    request.stop = stops;
    request.n_stop = 2;
  }
  if (i % 6 == 5)
    request.n = 3;
  if (i % 8 == 7)
    request.sampling.frequency_penalty = 0.5f;
  request.logprobs = i % 12 == 10;
  request.min_tokens = i % 5 == 4 ? 4 : 0;
  return request;
}

static void assert_same(const collected *a, const collected *b) {
  assert_int_equal(a->n_done, 1);
  assert_int_equal(a->status, b->status);
  assert_int_equal(a->n_choices, b->n_choices);
  for (int c = 0; c < a->n_choices; c++) {
    assert_same_tokens(a, c, b, c);
    assert_string_equal(a->text[c], b->text[c]);
    assert_int_equal(a->reason[c], b->reason[c]);
  }
  assert_int_equal(a->usage.n_output, b->usage.n_output);
}

static void run_alone(int n) {
  iso_engine *engine = open_on("host");
  int32_t prompt[CASE_CONTEXT];
  assert_false(engine->overlaps);
  for (int i = 0; i < n; i++)
    generate(engine, make_request(i, prompt), &alone[i]);
  iso_engine_destroy(engine);
}

/* After a step that needs nothing of the host the next one is under way. */
static void test_a_step_is_under_way(void **state) {
  (void)state;
  iso_engine *engine = open_on("late");
  assert_true(engine->overlaps);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 20, 1);
  memset(out, 0, sizeof out);
  submit(engine, case_request(prompt, 20, 5), &out[0]);
  bool is_busy;
  for (int i = 0; i < 5; i++) {
    CHECK(iso_engine_step(engine, &is_busy));
    assert_true(is_busy);
    assert_int_equal(engine->running.n, 1);
    assert_int_equal(out[0].n_tokens[0], i);
  }
  /* The fifth token is under way: there is nothing to plan. */
  CHECK(iso_engine_step(engine, &is_busy));
  assert_int_equal(engine->running.n, 0);
  assert_int_equal(out[0].n_tokens[0], 5);
  assert_int_equal(out[0].n_done, 1);
  assert_int_equal(stats_of(engine).n_steps, 5);
  /* What goes on is the host's to choose: one step at a time. */
  iso_request request = case_request(prompt, 20, 5);
  request.beam_width = 1;
  submit(engine, request, &out[1]);
  for (int i = 1; i <= 5; i++) {
    CHECK(iso_engine_step(engine, &is_busy));
    assert_int_equal(engine->running.n, 0);
    assert_int_equal(stats_of(engine).n_steps, 5 + i);
  }
  assert_int_equal(out[1].n_tokens[0], 5);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

static void count_flush(void *context) { ++*(int *)context; }

/* Tokens do not wait for the step behind them, where that is looked at at once. */
static void test_flush_before_a_wait(void **state) {
  (void)state;
  iso_engine *engine = open_on("late");
  int32_t prompt[CASE_CONTEXT];
  int n_flushes = 0;
  bool is_busy;
  fill_prompt(prompt, 20, 1);
  memset(out, 0, sizeof out);
  iso_engine_on_flush(engine, count_flush, &n_flushes);
  submit(engine, case_request(prompt, 20, 10), &out[0]);
  for (int i = 0; i < 3; i++)
    CHECK(iso_engine_step(engine, &is_busy));
  assert_int_equal(out[0].n_tokens[0], 2);
  assert_int_equal(n_flushes, 2);
  iso_request request = case_request(prompt, 20, 5);
  request.beam_width = 1;
  submit(engine, request, &out[1]);
  CHECK(iso_engine_step(engine, &is_busy));
  assert_int_equal(engine->running.n, 0);
  assert_int_equal(out[0].n_tokens[0], 4);
  assert_int_equal(n_flushes, 4);
  run_all(engine);
  iso_engine_destroy(engine);
}

static void test_same_as_one_at_a_time(void **state) {
  (void)state;
  run_alone(N);
  for (int kind = 0; kind < 4; kind++) {
    iso_engine_options options = options_on("late");
    if (kind & 1)
      options.runtime.n_pages = 9;
    options.swap_memory_bytes = kind & 2 ? 16 << 20 : 0;
    iso_engine *engine = make_engine(model, &options);
    int32_t prompt[CASE_CONTEXT];
    memset(out, 0, sizeof out);
    /* In threes, so that some start while others are under way. */
    bool is_busy;
    for (int i = 0; i < N; i++) {
      submit(engine, make_request(i, prompt), &out[i]);
      for (int s = 0; i % 3 == 2 && s < 4; s++)
        CHECK(iso_engine_step(engine, &is_busy));
    }
    run_all(engine);
    for (int i = 0; i < N; i++)
      assert_same(&out[i], &alone[i]);
    assert_int_equal(stats_of(engine).n_preempted > 0, kind & 1);
    assert_idle(engine);
    iso_engine_destroy(engine);
  }
}

/* What the host draws the device guesses: steps stay under way, only rows of those requests come to
 * the host, and of a wrong guess nobody sees anything. */
static void test_guesses(void **state) {
  (void)state;
  enum { OTHERS = 7, ROUNDS = 3 };
  static const char schema[] = "{\"enum\":[\"ab\",\"cdefgh\",\"ijklmnopq\"]}";
  int32_t prompt[CASE_CONTEXT];
  uint64_t n_under_way[ROUNDS] = {0}, n_steps[ROUNDS] = {0};
  for (int round = 0; round < ROUNDS; round++) {
    collected *into = round == 0 ? alone : out;
    iso_engine *engine = open_on(round == 0 ? "host" : "late");
    iso_grammar *grammar;
    CHECK(iso_grammar_create(engine, schema, strlen(schema), &grammar));
    memset(into, 0, sizeof out);
    for (int i = 0; i <= OTHERS; i++) {
      fill_prompt(prompt, 9, 40 + (uint32_t)i);
      iso_request request = case_request(prompt, 9, 30);
      request.sampling.temperature = i % 2 ? 0.8f : 0;
      request.sampling.top_k = i % 4 == 1 ? 20 : 0;
      if (i == OTHERS) { /* the one whose tokens the host draws */
        request.ignore_end = round == 1;
        request.logprobs = round == 1;
        request.grammar = round == 1 ? NULL : grammar;
      }
      submit(engine, request, &into[i]);
    }
    bool is_busy = true;
    while (is_busy) {
      CHECK(iso_engine_step(engine, &is_busy));
      n_under_way[round] += engine->running.n > 0;
    }
    iso_engine_stats stats = stats_of(engine);
    n_steps[round] = stats.n_steps;
    if (round == 1)
      assert_in_range(stats.n_host_rows, 30, 31); /* one a token, and that behind the end */
    else if (round == 2)
      assert_in_range(stats.n_host_rows, out[OTHERS].usage.n_output,
                      2 * out[OTHERS].usage.n_output);
    for (int i = 0; i < (round == 2 ? OTHERS + 1 : OTHERS); i++)
      assert_same(&into[i], &alone[i]);
    if (round != 1) {
      assert_int_equal(into[OTHERS].reason[0], ISO_STOP_END);
      assert_int_equal(into[OTHERS].text[0][0], '"');
    }
    iso_grammar_release(grammar);
    assert_idle(engine);
    iso_engine_destroy(engine);
  }
  assert_int_equal(n_under_way[0], 0);
  assert_int_equal(n_under_way[1], n_steps[1]); /* probabilities are never a surprise */
  assert_true(2 * n_under_way[2] > n_steps[2]);
}

/* What was under way when a reader asked for a pause is not given, and not lost. */
static void test_pause_under_way(void **state) {
  (void)state;
  run_alone(N);
  iso_engine *engine = open_on("late");
  int32_t prompt[CASE_CONTEXT];
  memset(out, 0, sizeof out);
  for (int i = 0; i < N; i++) {
    out[i].pause_after = i % 4 ? 0 : 3;
    submit(engine, make_request(i, prompt), &out[i]);
  }
  run_all(engine);
  for (int i = 0; i < N; i += 4) {
    assert_int_equal(out[i].n_done, alone[i].n_tokens[0] <= 3);
    if (!out[i].n_done && alone[i].n_choices == 1)
      assert_int_equal(out[i].n_tokens[0], 3);
    iso_engine_resume(engine, out[i].id);
  }
  run_all(engine);
  for (int i = 0; i < N; i++)
    assert_same(&out[i], &alone[i]);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* Ended at any moment, with rows under way; the others notice nothing. */
static void test_cancel_under_way(void **state) {
  (void)state;
  run_alone(N);
  for (int after = 0; after < 12; after++) {
    iso_engine *engine = open_on("late");
    int32_t prompt[CASE_CONTEXT];
    memset(out, 0, sizeof out);
    for (int i = 0; i < 8; i++) {
      out[i].cancel_after = i == 5 ? after : 0;
      submit(engine, make_request(i, prompt), &out[i]);
    }
    bool is_busy;
    for (int s = 0; s < after; s++)
      CHECK(iso_engine_step(engine, &is_busy));
    for (int i = 0; i < 8; i += 2)
      iso_engine_cancel(engine, out[i].id);
    CHECK(iso_engine_step(engine, &is_busy));
    for (int i = 0; i < 8; i += 2)
      assert_int_equal(out[i].n_done, 1);
    run_all(engine);
    for (int i = 1; i < 8; i += 2)
      if (i != 5)
        assert_same(&out[i], &alone[i]);
    assert_idle(engine);
    iso_engine_destroy(engine);
  }
}

/* The engine goes while a step is under way. */
static void test_end_under_way(void **state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    iso_engine *engine = open_on("late");
    int32_t prompt[CASE_CONTEXT];
    memset(out, 0, sizeof out);
    for (int i = 0; i < 4; i++)
      submit(engine, make_request(i, prompt), &out[i]);
    bool is_busy;
    CHECK(iso_engine_step(engine, &is_busy));
    CHECK(iso_engine_step(engine, &is_busy));
    assert_true(engine->running.n > 0);
    if (kind)
      iso_engine_drain(engine, 0);
    iso_engine_destroy(engine);
    for (int i = 0; i < 4; i++) {
      assert_int_equal(out[i].n_done, 1);
      assert_int_equal(out[i].status, ISO_ERROR_CANCELLED);
    }
  }
}

/* A step that fails behind one that is under way. */
static void test_failure_under_way(void **state) {
  (void)state;
  iso_engine *engine = open_on("late");
  int32_t prompt[CASE_CONTEXT];
  memset(out, 0, sizeof out);
  fill_prompt(prompt, 100, 1);
  submit(engine, case_request(prompt, 10, 10), &out[0]);
  bool is_busy;
  CHECK(iso_engine_step(engine, &is_busy));
  assert_int_equal(engine->running.n, 1);
  engine->max_tokens = engine->mixed_tokens = CASE_CONTEXT; /* more than the runtime takes */
  submit(engine, case_request(prompt, 100, 10), &out[1]);
  assert_int_equal(iso_engine_step(engine, &is_busy), ISO_ERROR_LIMIT);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(out[i].n_done, 1);
    assert_int_equal(out[i].status, ISO_ERROR_LIMIT);
    assert_non_null(strstr(out[i].message, "tokens"));
  }
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* A fault of the device, at any launch: everyone is told why, once, and nothing hangs. What was
 * shown before stays. */
static void test_device_fault(void **state) {
  (void)state;
  enum { MANY = 4 };
  int32_t prompt[CASE_CONTEXT];
  bool was_late = false;
  for (int fault = 1; fault < 4000; fault = fault * 3 / 2 + 1) {
    char text[16];
    snprintf(text, sizeof text, "%d", fault);
    setenv("ISOMER_LATE_FAULT", text, 1);
    iso_engine *engine = open_on("late");
    unsetenv("ISOMER_LATE_FAULT");
    memset(out, 0, sizeof out);
    for (int i = 0; i < MANY; i++) {
      fill_prompt(prompt, 20 + i, (uint32_t)i);
      submit(engine, case_request(prompt, 20 + i, 40), &out[i]);
    }
    bool is_busy = true;
    iso_status status = ISO_OK;
    while (is_busy && status == ISO_OK)
      status = iso_engine_step(engine, &is_busy);
    for (int i = 0; i < MANY; i++) {
      assert_int_equal(out[i].n_done, 1);
      assert_true(out[i].status == ISO_OK || out[i].status == ISO_ERROR_DEVICE);
      if (out[i].status == ISO_ERROR_DEVICE)
        assert_non_null(strstr(out[i].message, "late device"));
    }
    assert_int_equal(iso_engine_health(engine), status);
    assert_true(status == ISO_OK || status == ISO_ERROR_DEVICE);
    if (status == ISO_ERROR_DEVICE) {
      was_late = was_late || out[0].n_tokens[0] > 10;
      iso_request request = case_request(prompt, 10, 10);
      assert_int_equal(iso_engine_submit(engine, &request, NULL), ISO_ERROR_DEVICE);
      assert_non_null(strstr(iso_status_message(), "late device"));
      iso_engine_cancel(engine, out[0].id);
    }
    assert_null(engine->lingering);
    assert_idle(engine);
    iso_engine_destroy(engine);
  }
  assert_true(was_late);
}

static int open_late_model(void **state) {
  setenv("ISOMER_BACKEND_PATH", TEST_BINARY_DIR "/late_plugin", 1);
  return open_model(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_step_is_under_way),
      cmocka_unit_test(test_flush_before_a_wait),
      cmocka_unit_test(test_same_as_one_at_a_time),
      cmocka_unit_test(test_pause_under_way),
      cmocka_unit_test(test_cancel_under_way),
      cmocka_unit_test(test_end_under_way),
      cmocka_unit_test(test_failure_under_way),
      cmocka_unit_test(test_device_fault),
      cmocka_unit_test(test_guesses),
  };
  return cmocka_run_group_tests(tests, open_late_model, close_model);
}
