/* Rows that the host draws from, on several threads. */
#include "tests/unit/engine_case.h"

#include "engine/engine.h"
#include <stdatomic.h>

enum { TASKS = 100, THREADS = 4, N = 8 };

static atomic_int times[TASKS], by_worker[THREADS];

static void count(void *context, int32_t index, int32_t worker) {
  assert_ptr_equal(context, times);
  assert_in_range(worker, 0, THREADS - 1);
  atomic_fetch_add(&times[index], 1);
  atomic_fetch_add(&by_worker[worker], 1);
}

static void test_every_task_once(void **state) {
  (void)state;
  for (int n_threads = 1; n_threads <= THREADS; n_threads++) {
    iso_thread_pool *pool;
    CHECK(iso_thread_pool_create(n_threads, &pool));
    for (int round = 0; round < 200; round++) {
      int n = round % (TASKS + 1);
      memset(times, 0, sizeof times);
      iso_thread_pool_run(pool, n, count, times);
      for (int i = 0; i < TASKS; i++)
        assert_int_equal(times[i], i < n);
    }
    iso_thread_pool_destroy(pool);
  }
  iso_thread_pool_destroy(NULL);
}

static iso_request make_request(int i, int32_t *prompt) {
  fill_prompt(prompt, 5 + i, (uint32_t)i);
  iso_request request = case_request(prompt, 5 + i, 20);
  request.sampling.temperature = i % 2 ? 1.0f : 0;
  request.sampling.seed = (uint64_t)i;
  request.sampling.repetition_penalty = 1.3f;
  request.logprobs = i % 3 == 0;
  request.n_top_logprobs = i % 3 == 0 ? 2 : 0;
  request.min_tokens = i % 4;
  return request;
}

/* The same tokens and logprobs, whoever draws them. */
static void test_same_as_on_one_thread(void **state) {
  (void)state;
  static collected one[N], many[N];
  iso_engine_options options = case_options();
  options.runtime.n_threads = 1;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  memset(one, 0, sizeof one);
  for (int i = 0; i < N; i++)
    submit(engine, make_request(i, prompt), &one[i]);
  run_all(engine);
  assert_null(engine->threads);
  iso_engine_destroy(engine);
  options.runtime.n_threads = 3;
  engine = make_engine(model, &options);
  memset(many, 0, sizeof many);
  for (int i = 0; i < N; i++)
    submit(engine, make_request(i, prompt), &many[i]);
  run_all(engine);
  assert_non_null(engine->threads);
  assert_int_equal(engine->n_samplers, 3);
  for (int i = 0; i < N; i++) {
    assert_same_tokens(&one[i], 0, &many[i], 0);
    assert_memory_equal(one[i].logprobs[0], many[i].logprobs[0], 20 * sizeof(float));
    for (int t = 0; t < one[i].n_tokens[0]; t++) {
      assert_int_equal(one[i].top[0][t].token, many[i].top[0][t].token);
      assert_true(one[i].top[0][t].logprob == many[i].top[0][t].logprob);
    }
  }
  assert_idle(engine);
  iso_engine_destroy(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_task_once),
      cmocka_unit_test(test_same_as_on_one_thread),
  };
  return cmocka_run_group_tests(tests, open_model, close_model);
}
