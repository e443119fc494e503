/* Adapters in the engine: requests with different ones in one batch, prefixes that they do not
 * share, and everything that must stay exact beside them. */
#include "tests/unit/engine_case.h"

#include "engine/engine.h"

static collected alone[3], together[3], out;
static iso_adapter *adapters[2];

static int open_all(void **state) {
  static const char *const names[] = {"llama", "llama-rslora"};
  open_model(state);
  for (int i = 0; i < 2; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/adapters/%s", TEST_SOURCE_DIR, names[i]);
    CHECK(iso_adapter_open(model, path, &adapters[i]));
  }
  return 0;
}

static int close_all(void **state) {
  iso_adapter_close(adapters[0]);
  iso_adapter_close(adapters[1]);
  return close_model(state);
}

static iso_engine_options adapter_options(void) {
  iso_engine_options options = case_options();
  options.runtime.adapters = (const iso_adapter *const *)adapters;
  options.runtime.n_adapters = 2;
  return options;
}

static iso_request request_of(const int32_t *prompt, int32_t n_prompt, int32_t n, int32_t adapter) {
  iso_request request = case_request(prompt, n_prompt, n);
  request.adapter = adapter;
  return request;
}

static void test_batches(void **state) {
  (void)state;
  iso_engine_options options = adapter_options();
  iso_engine *plain = make_engine(model, NULL), *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 40, 3);
  generate(plain, request_of(prompt, 40, 30, 0), &out);
  for (int32_t i = 0; i < 3; i++)
    generate(engine, request_of(prompt, 40, 30, i), &alone[i]);
  assert_same_tokens(&out, 0, &alone[0], 0);
  assert_memory_not_equal(alone[0].tokens[0], alone[1].tokens[0], 30 * sizeof(int32_t));
  assert_memory_not_equal(alone[1].tokens[0], alone[2].tokens[0], 30 * sizeof(int32_t));
  memset(together, 0, sizeof together);
  for (int32_t i = 2; i >= 0; i--)
    submit(engine, request_of(prompt, 40, 30, i), &together[i]);
  run_all(engine);
  for (int32_t i = 0; i < 3; i++)
    assert_same_tokens(&alone[i], 0, &together[i], 0);
  iso_request request = request_of(prompt, 40, 30, 3);
  assert_int_equal(iso_engine_submit(engine, &request, NULL), ISO_ERROR_INVALID_ARGUMENT);
  request.adapter = 1;
  assert_int_equal(iso_engine_submit(plain, &request, NULL), ISO_ERROR_INVALID_ARGUMENT);
  assert_idle(engine);
  iso_engine_destroy(engine);
  iso_engine_destroy(plain);
}

/* Keys and values depend on the adapter that wrote them. */
static void test_prefixes(void **state) {
  (void)state;
  iso_engine_options options = adapter_options();
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 100, 1);
  for (int32_t i = 0; i < 3; i++) {
    generate(engine, request_of(prompt, 100, 10, i), &alone[i]);
    assert_int_equal(alone[i].usage.n_cached, 0);
  }
  for (int32_t i = 0; i < 3; i++) {
    generate(engine, request_of(prompt, 100, 10, i), &out);
    assert_int_equal(out.usage.n_cached, 96);
    assert_same_tokens(&alone[i], 0, &out, 0);
  }
  iso_engine_destroy(engine);
}

/* Several choices, beams, too few pages, and drafts: all as without them. */
static void test_stays_exact(void **state) {
  (void)state;
  iso_engine_options options = adapter_options(), few = options, drafts = options;
  few.runtime.n_pages = 9;
  drafts.speculation = ISO_SPECULATION_DRAFT;
  drafts.draft_model = model;
  iso_engine *engine = make_engine(model, &options), *small = make_engine(model, &few);
  iso_engine *drafting = make_engine(model, &drafts);
  drafting->drafter.price = 0; /* as large as the model, it would never be asked */
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 30, 5);
  for (int32_t i = 0; i < 3; i++)
    generate(engine, request_of(prompt, 30, 50, i), &alone[i]);
  memset(together, 0, sizeof together);
  for (int32_t i = 0; i < 3; i++)
    submit(small, request_of(prompt, 30, 50, i), &together[i]);
  run_all(small);
  assert_true(stats_of(small).n_preempted > 0);
  for (int32_t i = 0; i < 3; i++)
    assert_same_tokens(&alone[i], 0, &together[i], 0);
  memset(together, 0, sizeof together);
  for (int32_t i = 0; i < 3; i++)
    submit(drafting, request_of(prompt, 30, 50, i), &together[i]);
  run_all(drafting);
  assert_true(stats_of(drafting).n_drafted > 0);
  for (int32_t i = 0; i < 3; i++)
    assert_same_tokens(&alone[i], 0, &together[i], 0);
  iso_request request = request_of(prompt, 30, 50, 1);
  request.n = 2;
  generate(engine, request, &out);
  assert_same_tokens(&alone[1], 0, &out, 0);
  assert_same_tokens(&alone[1], 0, &out, 1);
  request.n = 1;
  request.beam_width = 3;
  generate(engine, request, &out);
  memset(together, 0, sizeof together);
  submit(small, request, &together[0]);
  submit(small, request_of(prompt, 30, 50, 2), &together[2]);
  run_all(small);
  assert_same_tokens(&out, 0, &together[0], 0);
  assert_same_tokens(&alone[2], 0, &together[2], 0);
  iso_engine_destroy(drafting);
  iso_engine_destroy(small);
  iso_engine_destroy(engine);
}

static void test_refuses_what_is_not_there(void **state) {
  (void)state;
  iso_engine_options options = adapter_options();
  const iso_adapter *const hole[] = {adapters[0], NULL};
  iso_engine *engine;
  /* Also where the room that they take says how many pages there are. */
  for (int i = 0; i < 2; i++, options.runtime.n_pages = 0) {
    options.runtime.adapters = hole;
    assert_int_equal(iso_engine_create(model, &options, &engine), ISO_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(iso_status_message(), "adapter 2 of 2 is NULL"));
    options.runtime.adapters = NULL;
    assert_int_equal(iso_engine_create(model, &options, &engine), ISO_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(iso_status_message(), "adapter 1 of 2 is NULL"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_batches), cmocka_unit_test(test_prefixes),
      cmocka_unit_test(test_stays_exact), cmocka_unit_test(test_refuses_what_is_not_there)};
  return cmocka_run_group_tests(tests, open_all, close_all);
}
