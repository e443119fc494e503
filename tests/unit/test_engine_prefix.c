/* Pages that are shared: between prompts that begin alike, between the choices of a request, and
 * copied when somebody writes. */
#include "tests/unit/engine_case.h"

#include "engine/page_pool.h"

static collected a, b, out;

/* ---- The pool alone ------------------------------------------------------------------------ */

enum { PAGE = 4 };

static iso_page_entry offer(iso_page_pool *pool, int32_t page, uint64_t key, iso_page_entry parent,
                            int32_t first) {
  const int32_t tokens[PAGE] = {first, first + 1, first + 2, first + 3};
  return iso_page_pool_offer(pool, page, key, parent, tokens);
}

static iso_page_entry find(iso_page_pool *pool, uint64_t key, iso_page_entry parent, int32_t first,
                           int32_t *out_page) {
  const int32_t tokens[PAGE] = {first, first + 1, first + 2, first + 3};
  return iso_page_pool_find(pool, key, parent, tokens, out_page);
}

static void test_pool_entries(void **state) {
  (void)state;
  iso_page_pool pool;
  int32_t pages[4], page;
  CHECK(iso_page_pool_create(4, PAGE, &pool));
  for (int i = 0; i < 4; i++)
    CHECK(iso_page_pool_take(&pool, &pages[i]));
  assert_int_equal(iso_page_pool_take(&pool, &page), ISO_ERROR_OUT_OF_MEMORY);
  iso_page_entry first = offer(&pool, pages[0], 1, 0, 10);
  iso_page_entry second = offer(&pool, pages[1], 1, first, 20);
  assert_true(first != 0 && second != 0 && first != second);
  /* The same tokens again: the entry that is there. Elsewhere or under another key: another. */
  assert_int_equal(offer(&pool, pages[2], 1, 0, 10), first);
  assert_true(offer(&pool, pages[2], 2, 0, 10) != first);
  assert_true(offer(&pool, pages[3], 1, second, 10) != first);
  assert_int_equal(find(&pool, 1, 0, 10, &page), first);
  assert_int_equal(page, pages[0]);
  assert_int_equal(find(&pool, 1, 0, 11, &page), 0);
  assert_int_equal(find(&pool, 3, 0, 10, &page), 0);
  assert_int_equal(find(&pool, 1, 0, 20, &page), 0);
  assert_int_equal(find(&pool, 1, first, 20, &page), second);
  /* Whichever of the few lists another key or parent falls to. */
  for (uint64_t other = 3; other < 200; other++) {
    assert_int_equal(find(&pool, other, 0, 10, &page), 0);
    assert_int_equal(find(&pool, 1, 1000 + other, 20, &page), 0);
  }
  iso_page_pool_destroy(&pool);
}

static void test_pool_lets_the_oldest_go(void **state) {
  (void)state;
  iso_page_pool pool;
  int32_t pages[3], page;
  CHECK(iso_page_pool_create(3, PAGE, &pool));
  for (int i = 0; i < 3; i++) {
    CHECK(iso_page_pool_take(&pool, &pages[i]));
    offer(&pool, pages[i], 0, 0, 100 * i);
  }
  for (int i = 0; i < 3; i++)
    iso_page_pool_release(&pool, pages[i]);
  assert_int_equal(iso_page_pool_available(&pool), 3);
  assert_int_equal(pool.n_cached, 3);
  /* Used again: page 0 is no longer the oldest. */
  assert_true(find(&pool, 0, 0, 0, &page) != 0);
  assert_int_equal(pool.n_cached, 2);
  iso_page_pool_release(&pool, page);
  CHECK(iso_page_pool_take(&pool, &page));
  assert_int_equal(page, pages[1]);
  assert_int_equal(find(&pool, 0, 0, 100, &page), 0);
  assert_true(find(&pool, 0, 0, 0, &page) != 0);
  assert_true(find(&pool, 0, 0, 200, &page) != 0);
  iso_page_pool_destroy(&pool);
}

/* ---- Prompts that begin alike -------------------------------------------------------------- */

static void test_hits(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 100, 1);
  generate(engine, case_request(prompt, 100, 10), &a);
  assert_int_equal(a.usage.n_cached, 0);
  assert_true(stats_of(engine).n_pages_cached >= 6);
  generate(engine, case_request(prompt, 100, 10), &b);
  assert_int_equal(b.usage.n_cached, 96);
  assert_int_equal(stats_of(engine).n_prefix_hit_tokens, 96);
  assert_same_tokens(&a, 0, &b, 0);
  /* The last token must run: a prompt of whole pages leaves one out. */
  generate(engine, case_request(prompt, 96, 2), &b);
  assert_int_equal(b.usage.n_cached, 80);
  /* One token differs in the third page. */
  prompt[40]++;
  generate(engine, case_request(prompt, 100, 10), &b);
  assert_int_equal(b.usage.n_cached, 32);
  prompt[40]--;
  /* Under another key, or without the cache, nothing is shared. */
  iso_request request = case_request(prompt, 100, 10);
  request.cache_key = 7;
  generate(engine, request, &b);
  assert_int_equal(b.usage.n_cached, 0);
  generate(engine, request, &b);
  assert_int_equal(b.usage.n_cached, 96);
  request.no_prefix_cache = true;
  generate(engine, request, &b);
  assert_int_equal(b.usage.n_cached, 0);
  assert_same_tokens(&a, 0, &b, 0);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* A chat's next turn starts with the last one's prompt and answer. */
static void test_answers_are_prefixes_too(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 40, 2);
  generate(engine, case_request(prompt, 40, 40), &a);
  memcpy(prompt + 40, a.tokens[0], 40 * sizeof *prompt);
  generate(engine, case_request(prompt, 80, 4), &b);
  assert_int_equal(b.usage.n_cached, 64);
  iso_engine_options options = case_options();
  options.no_prefix_cache = true;
  iso_engine *other = make_engine(model, &options);
  generate(other, case_request(prompt, 80, 4), &out);
  assert_int_equal(out.usage.n_cached, 0);
  assert_int_equal(stats_of(other).n_pages_cached, 0);
  assert_same_tokens(&out, 0, &b, 0);
  iso_engine_destroy(other);
  iso_engine_destroy(engine);
}

/* Two that start at once do the work twice, but agree afterwards on one set of entries. */
static void test_twins(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 60, 3);
  memset(&a, 0, sizeof a);
  memset(&b, 0, sizeof b);
  submit(engine, case_request(prompt, 60, 20), &a);
  submit(engine, case_request(prompt, 60, 20), &b);
  run_all(engine);
  assert_same_tokens(&a, 0, &b, 0);
  assert_int_equal(stats_of(engine).n_pages_cached, 79 / 16);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* Prefixes go when room is needed, and come back when asked again. */
static void test_prefixes_make_room(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.runtime.n_pages = 10;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  for (uint32_t seed = 0; seed < 20; seed++) {
    fill_prompt(prompt, 70, seed % 5);
    generate(engine, case_request(prompt, 70, 20), &out);
    assert_int_equal(out.status, ISO_OK);
    assert_int_equal(out.usage.n_preempted, 0);
  }
  iso_engine_stats stats = stats_of(engine);
  assert_true(stats.n_pages_cached <= 10);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

/* ---- Choices ------------------------------------------------------------------------------- */

static iso_request sampled(const int32_t *prompt, int32_t n, uint64_t seed) {
  iso_request request = case_request(prompt, n, 30);
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  return request;
}

/* The prompt runs once; choices that write copy the page that they share. */
static void test_choices_share_the_prompt(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.no_prefix_cache = true;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 55, 4);
  iso_request request = sampled(prompt, 55, 9);
  generate(engine, request, &a);
  uint64_t before = stats_of(engine).n_prompt_tokens;
  request.n = 5;
  generate(engine, request, &out);
  assert_int_equal(stats_of(engine).n_prompt_tokens - before, 55);
  assert_int_equal(out.n_choices, 5);
  assert_int_equal(out.usage.n_output, 150);
  assert_same_tokens(&out, 0, &a, 0); /* the first is what one alone gets */
  for (int i = 1; i < 5; i++) {
    assert_int_equal(out.n_tokens[i], 30);
    for (int k = 0; k < i; k++)
      assert_memory_not_equal(out.tokens[i], out.tokens[k], 30 * sizeof(int32_t));
  }
  /* More choices than sequences at once, and than pages: they queue. */
  options.runtime.max_sequences = 2;
  options.runtime.n_pages = 12;
  iso_engine *small = make_engine(model, &options);
  generate(small, request, &b);
  for (int i = 0; i < 5; i++)
    assert_same_tokens(&out, i, &b, i);
  assert_idle(small);
  iso_engine_destroy(small);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

static void test_best_of(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  fill_prompt(prompt, 20, 5);
  iso_request request = sampled(prompt, 20, 11);
  request.n = 6;
  request.logprobs = true;
  generate(engine, request, &a);
  int best = 0, second = -1;
  for (int i = 1; i < 6; i++)
    if (a.cumulative[i] > a.cumulative[best])
      best = i;
  for (int i = 0; i < 6; i++)
    if (i != best && (second < 0 || a.cumulative[i] > a.cumulative[second]))
      second = i;
  request.n = 2;
  request.best_of = 6;
  request.logprobs = false;
  generate(engine, request, &b);
  assert_int_equal(b.n_choices, 2);
  assert_int_equal(b.n_text_events, 2);
  assert_same_tokens(&b, 0, &a, best);
  assert_same_tokens(&b, 1, &a, second);
  assert_string_equal(b.text[0], a.text[best]);
  assert_float_equal(b.cumulative[0], a.cumulative[best], 1e-9);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pool_entries),
      cmocka_unit_test(test_pool_lets_the_oldest_go),
      cmocka_unit_test(test_hits),
      cmocka_unit_test(test_answers_are_prefixes_too),
      cmocka_unit_test(test_twins),
      cmocka_unit_test(test_prefixes_make_room),
      cmocka_unit_test(test_choices_share_the_prompt),
      cmocka_unit_test(test_best_of),
  };
  return cmocka_run_group_tests(tests, open_model, close_model);
}
