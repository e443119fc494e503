/* Steps under way two at a time, the second fed by the first, against one after the other. */
#include "tests/unit/executor_case.h"

enum { STEPS = 5, SEQUENCES = 3, KEPT = 2 };
static const int32_t kept[KEPT] = {0, 2};

/* Inputs of step `index`: prompts, then a token a sequence. The oracle is told the tokens drawn
 * before; the executor is told nonsense where it is to be fed. */
static iso_bindings set_step(rig *r, oracle *o, int index, const int32_t *drawn, bool is_fed) {
  static const int prompts[SEQUENCES] = {3, 1, 4}, ones[SEQUENCES] = {1, 1, 1};
  uint64_t random = 7 + (uint64_t)index;
  if (index == 0)
    return set_batch(r, o, SEQUENCES, prompts, 0, &random);
  iso_bindings bindings = set_batch(r, o, SEQUENCES, ones, 3 + index, &random);
  iso_value ids = iso_graph_find(r->graph, "token_ids");
  const int32_t nonsense[SEQUENCES] = {-1, 1 << 30, -7};
  memcpy(o->storage[ids], drawn, SEQUENCES * sizeof *drawn);
  memcpy(iso_executor_input(r->executor, ids), is_fed ? nonsense : drawn, sizeof nonsense);
  return bindings;
}

static uint64_t row_bytes_of(const rig *r) {
  const iso_value_info *info = iso_graph_get_value(r->graph, iso_graph_find(r->graph, "logits"));
  return (uint64_t)info->shape.dims[1].size * sizeof(float);
}

/* Rows of logits that the executor is to bring to the host, of each step. */
static char expected_rows[STEPS][KEPT][4096];

/* What the oracle draws in every step, each from the tokens of the one before. */
static void expect(rig *r, oracle *o, int32_t out_tokens[STEPS][SEQUENCES]) {
  for (int i = 0; i < STEPS; i++) {
    iso_bindings bindings = set_step(r, o, i, i ? out_tokens[i - 1] : NULL, false);
    evaluate(o, &bindings);
    memcpy(out_tokens[i], o->storage[iso_graph_find(r->graph, "token")], sizeof out_tokens[i]);
    const char *logits = (const char *)o->storage[iso_graph_find(r->graph, "logits")];
    for (int k = 0; k < KEPT; k++)
      memcpy(expected_rows[i][k], logits + (size_t)kept[k] * row_bytes_of(r), row_bytes_of(r));
  }
}

/* Asks for the rows, in every other step for both, else for the second. */
static iso_status keep(rig *r, int step) {
  uint32_t first = step % 2;
  return iso_executor_keep_rows(r->executor, iso_graph_find(r->graph, "logits"), kept + first,
                                KEPT - first);
}

static void assert_kept(rig *r, int step) {
  const char *rows = iso_executor_kept_rows(r->executor);
  for (int k = step % 2; k < KEPT; k++, rows += row_bytes_of(r))
    assert_memory_equal(rows, expected_rows[step][k], row_bytes_of(r));
}

static void assert_tokens(rig *r, const int32_t *expected) {
  assert_int_equal(iso_executor_wait(r->executor), ISO_OK);
  const int32_t *tokens = iso_executor_peek(r->executor, iso_graph_find(r->graph, "token"));
  assert_non_null(tokens);
  assert_memory_equal(tokens, expected, SEQUENCES * sizeof *tokens);
}

/* One feed for all rows, or one a row. */
static uint32_t make_feeds(const rig *r, bool is_split, iso_executor_feed out_feeds[SEQUENCES]) {
  uint32_t n = is_split ? SEQUENCES : 1;
  for (uint32_t i = 0; i < n; i++)
    out_feeds[i] = (iso_executor_feed){.source = iso_graph_find(r->graph, "token"),
                                       .target = iso_graph_find(r->graph, "token_ids"),
                                       .source_offset = i * sizeof(int32_t),
                                       .target_offset = i * sizeof(int32_t),
                                       .bytes = SEQUENCES / n * sizeof(int32_t)};
  return n;
}

static void overlap(rig *r, oracle *o, bool is_split) {
  int32_t expected[STEPS][SEQUENCES];
  expect(r, o, expected);
  iso_executor_feed feeds[SEQUENCES];
  uint32_t n_feeds = make_feeds(r, is_split, feeds);
  for (int i = 0; i < STEPS; i++) {
    iso_bindings bindings = set_step(r, o, i, i ? expected[i - 1] : NULL, true);
    assert_int_equal(iso_executor_submit(r->executor, &bindings, feeds, i ? n_feeds : 0), ISO_OK);
    assert_int_equal(keep(r, i), ISO_OK);
    if (i == 0)
      continue;
    assert_int_equal(iso_executor_submit(r->executor, &bindings, NULL, 0),
                     ISO_ERROR_INVALID_ARGUMENT);
    assert_int_equal(iso_executor_run(r->executor, &bindings), ISO_ERROR_INVALID_ARGUMENT);
    assert_tokens(r, expected[i - 1]);
    assert_kept(r, i - 1);
  }
  assert_tokens(r, expected[STEPS - 1]);
  assert_kept(r, STEPS - 1);
  assert_int_equal(keep(r, 0), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_executor_wait(r->executor), ISO_ERROR_INVALID_ARGUMENT);
  iso_executor_stats stats;
  iso_executor_get_stats(r->executor, &stats);
  assert_int_equal(stats.runs, STEPS);
}

static void test_steps_under_way(void **state) {
  (void)state;
  static const char *const specs[][2] = {{"left"}, {"right"}};
  fake_model model = {3, true, false, ISO_SCHEME_F32};
  rig r = make_rig(&model);
  for (int kind = 0; kind < 8; kind++) {
    reset_fakes();
    fake_configs[0].deferred = fake_configs[1].deferred = kind & 1;
    must_open(&r, specs[kind >> 1 & 1], NULL, -1, false);
    assert_true(iso_executor_overlaps(r.executor));
    oracle *o = make_oracle(r.graph, r.weights);
    overlap(&r, o, kind & 4);
    /* The left backend records; with many feeds nothing is. */
    assert_int_equal(fake_replayed > 0, !(kind & 2) && !(kind & 4));
    free_oracle(o);
    close_rig(&r);
    assert_int_equal(fake_live, 0);
  }
  free_rig(&r);
}

/* Where the host shares memory with the device, or several devices take part, one at a time. */
static void test_one_at_a_time(void **state) {
  (void)state;
  static const char *const specs[][3] = {{"left"}, {"left:0", "left:1"}};
  static const int32_t split = 1;
  rig r = make_rig(&(fake_model){3, true, false, ISO_SCHEME_F32});
  for (int kind = 0; kind < 2; kind++) {
    reset_fakes();
    fake_configs[0].deferred = true;
    fake_configs[0].mappable = kind == 0;
    must_open(&r, specs[kind], &split, -1, false);
    assert_false(iso_executor_overlaps(r.executor));
    oracle *o = make_oracle(r.graph, r.weights);
    iso_bindings bindings = set_step(&r, o, 0, NULL, false);
    iso_executor_feed feeds[SEQUENCES];
    uint32_t n_feeds = make_feeds(&r, false, feeds);
    assert_int_equal(iso_executor_submit(r.executor, &bindings, feeds, n_feeds),
                     ISO_ERROR_INVALID_ARGUMENT);
    assert_int_equal(iso_executor_submit(r.executor, &bindings, NULL, 0), ISO_OK);
    assert_int_equal(iso_executor_submit(r.executor, &bindings, NULL, 0),
                     ISO_ERROR_INVALID_ARGUMENT);
    evaluate(o, &bindings);
    assert_int_equal(iso_executor_wait(r.executor), ISO_OK);
    assert_same(&r, o, iso_graph_find(r.graph, "token"), SEQUENCES);
    free_oracle(o);
    close_rig(&r);
  }
  free_rig(&r);
}

/* Feeds that are no outputs, no inputs, or leave them. */
static void test_wrong_feeds(void **state) {
  (void)state;
  rig r = make_rig(&(fake_model){1, true, false, ISO_SCHEME_F32});
  reset_fakes();
  must_open(&r, (const char *const[]){"left", NULL}, NULL, -1, false);
  oracle *o = make_oracle(r.graph, r.weights);
  iso_bindings bindings = set_step(&r, o, 0, NULL, false);
  iso_executor_feed feeds[SEQUENCES];
  make_feeds(&r, false, feeds);
  const iso_value token = feeds[0].source, ids = feeds[0].target;
  const iso_executor_feed wrong[] = {
      {ids, ids, 0, 0, 4},
      {token, token, 0, 0, 4},
      {token, 1 << 20, 0, 0, 4},
      {-5, ids, 0, 0, 4},
      {token, ids, 0, 0, FAKE_ROWS * 4 + 1},
      {token, ids, UINT64_MAX, 0, 4},
      {token, ids, 0, UINT64_MAX - 3, 4},
      {token, ids, 0, 0, UINT64_MAX},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(iso_executor_submit(r.executor, &bindings, &wrong[i], 1),
                     ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_executor_run(r.executor, &bindings), ISO_OK);
  free_oracle(o);
  free_rig(&r);
}

/* Whatever call fails, no step stays under way, and nothing is lost. */
static void test_faults_under_way(void **state) {
  (void)state;
  rig r = make_rig(&(fake_model){1, true, false, ISO_SCHEME_F32});
  bool failed = true;
  for (int at = 1; failed; at++) {
    reset_fakes();
    fake_configs[0].deferred = true;
    must_open(&r, (const char *const[]){"left", NULL}, NULL, -1, false);
    oracle *o = make_oracle(r.graph, r.weights);
    int32_t expected[STEPS][SEQUENCES];
    expect(&r, o, expected);
    iso_executor_feed feeds[SEQUENCES];
    uint32_t n_feeds = make_feeds(&r, false, feeds);
    fake_fail_at = fake_calls + at;
    iso_status status = ISO_OK;
    for (int i = 0; i < STEPS && status == ISO_OK; i++) {
      iso_bindings bindings = set_step(&r, o, i, i ? expected[i - 1] : NULL, true);
      status = iso_executor_submit(r.executor, &bindings, feeds, i ? n_feeds : 0);
      if (status == ISO_OK)
        status = keep(&r, i);
      if (i > 0 && status == ISO_OK)
        status = iso_executor_wait(r.executor);
    }
    if (status == ISO_OK)
      status = iso_executor_wait(r.executor);
    failed = fake_calls >= fake_fail_at;
    fake_fail_at = 0;
    assert_true(failed || status == ISO_OK);
    assert_int_equal(iso_executor_wait(r.executor), ISO_ERROR_INVALID_ARGUMENT);
    iso_bindings bindings = set_step(&r, o, 0, NULL, false);
    assert_int_equal(iso_executor_run(r.executor, &bindings), ISO_OK);
    free_oracle(o);
    close_rig(&r);
    assert_int_equal(fake_live, 0);
  }
  free_rig(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_steps_under_way),
      cmocka_unit_test(test_one_at_a_time),
      cmocka_unit_test(test_wrong_feeds),
      cmocka_unit_test(test_faults_under_way),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
