/* Memory that runs out, at any allocation of a run: whoever was let in is told how it ended, once,
 * every page comes back, and the engine goes on or says why it cannot. The linker brings Isomer's
 * allocations here. */
#include "tests/unit/engine_case.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "engine/engine.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);

/* Allocations until one fails; negative: none will. Those after it fail too while `for_good`. */
static atomic_long left = -1;
static atomic_bool for_good;

static bool fails(void) {
  if (atomic_load(&left) < 0)
    return false;
  if (atomic_load(&left) > 0) {
    atomic_fetch_sub(&left, 1);
    return false;
  }
  if (!atomic_load(&for_good))
    atomic_store(&left, -1);
  return true;
}

void *__wrap_malloc(size_t bytes) { return fails() ? NULL : __real_malloc(bytes); }
void *__wrap_calloc(size_t count, size_t bytes) {
  return fails() ? NULL : __real_calloc(count, bytes);
}
void *__wrap_realloc(void *memory, size_t bytes) {
  return fails() ? NULL : __real_realloc(memory, bytes);
}
char *__wrap_strdup(const char *text) { return fails() ? NULL : __real_strdup(text); }

enum { N = 6 };
static collected out[N];

/* One of each kind. */
static iso_request make_request(int i, int32_t *prompt) {
  static const char *const stop[] = {"zz", "~~~"};
  static const int32_t stop_tokens[] = {7, 9};
  int32_t n = 12 + 5 * i;
  fill_prompt(prompt, n, (uint32_t)i + 40);
  iso_request request = case_request(prompt, n, 10);
  request.sampling.seed = (uint64_t)i;
  switch (i) {
  case 1:
    request.n = 3;
    request.sampling.temperature = 1;
    request.logprobs = request.prompt_logprobs = true;
    request.n_top_logprobs = 3;
    break;
  case 2:
    request.n = 2;
    request.beam_width = 3;
    request.logprobs = true;
    request.n_top_logprobs = 2;
    break;
  case 3:
    request.embed = true;
    break;
  case 4:
    request.best_of = 2;
    request.sampling.temperature = 1;
    request.stop = stop;
    request.n_stop = 2;
    request.stop_tokens = stop_tokens;
    request.n_stop_tokens = 2;
    break;
  case 5:
    request.sampling.temperature = 1;
    request.sampling.repetition_penalty = 1.2f;
    break;
  default:
    break;
  }
  return request;
}

/* Runs all requests while allocation `number` fails. Returns whether there were as many. */
static bool run_short(iso_engine **engine, const iso_engine_options *options, long number,
                      bool goes_on) {
  int32_t prompt[CASE_CONTEXT];
  bool is_accepted[N], is_busy = true;
  memset(out, 0, sizeof out);
  atomic_store(&for_good, goes_on);
  atomic_store(&left, number);
  for (int i = 0; i < N; i++) {
    iso_request request = make_request(i, prompt);
    request.context = &out[i];
    iso_status status = iso_engine_submit(*engine, &request, &out[i].id);
    assert_true(status == ISO_OK || status == ISO_ERROR_OUT_OF_MEMORY);
    is_accepted[i] = status == ISO_OK;
  }
  iso_status status = ISO_OK;
  while (is_busy && status == ISO_OK)
    status = iso_engine_step(*engine, &is_busy);
  bool was_reached = atomic_load(&left) <= 0;
  atomic_store(&left, -1);
  assert_true(status == ISO_OK || status == ISO_ERROR_OUT_OF_MEMORY);
  for (int i = 0; i < N; i++) {
    assert_int_equal(out[i].n_done, is_accepted[i]);
    assert_true(out[i].status == ISO_OK || out[i].status == ISO_ERROR_OUT_OF_MEMORY);
    assert_true(was_reached || out[i].status == ISO_OK);
  }
  assert_idle(*engine);
  assert_int_equal((*engine)->swap.n_free, (*engine)->swap.n_slots);
  assert_int_equal(iso_engine_health(*engine), status);
  if (status != ISO_OK) {
    iso_engine_destroy(*engine);
    *engine = make_engine(model, options);
  }
  return was_reached;
}

static void run_all_short(bool goes_on, bool drafts) {
  iso_engine_options options = case_options();
  options.runtime.n_pages = 9;
  options.swap_memory_bytes = 1 << 20;
  options.speculation = drafts ? ISO_SPECULATION_NGRAM : ISO_SPECULATION_NONE;
  iso_engine *engine = make_engine(model, &options);
  long number = 0;
  for (bool is_reached = true; is_reached; number += 1 + number / 64)
    is_reached = run_short(&engine, &options, number, goes_on);
  print_message("%ld allocations at least\n", number);
  assert_true(number > 50);
  iso_engine_destroy(engine);
}

static void test_one_allocation_fails(void **state) {
  (void)state;
  run_all_short(false, false);
  run_all_short(false, true);
}

static void test_all_further_fail(void **state) {
  (void)state;
  run_all_short(true, false);
}

/* An engine that does not come to be leaves nothing behind; one that does runs. */
static void test_creation(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.swap_memory_bytes = 1 << 20;
  int32_t prompt[8];
  fill_prompt(prompt, 8, 1);
  long number = 0;
  for (bool is_reached = true; is_reached; number += 1 + number / 32) {
    iso_engine *engine = NULL;
    atomic_store(&for_good, false);
    atomic_store(&left, number);
    iso_status status = iso_engine_create(model, &options, &engine);
    is_reached = atomic_load(&left) < 0;
    atomic_store(&left, -1);
    assert_true(status == ISO_OK || is_reached);
    if (status != ISO_OK)
      continue;
    generate(engine, case_request(prompt, 8, 4), &out[0]);
    assert_int_equal(out[0].status, ISO_OK);
    iso_engine_destroy(engine);
  }
  print_message("%ld allocations at least\n", number);
  assert_true(number > 50);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_allocation_fails),
                                     cmocka_unit_test(test_all_further_fail),
                                     cmocka_unit_test(test_creation)};
  return cmocka_run_group_tests(tests, open_model, close_model);
}
