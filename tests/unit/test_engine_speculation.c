/* Drafts change how fast tokens come, never which. */
#include "tests/unit/engine_case.h"

#include "engine/engine.h"
#include "models/model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static iso_model *other; /* of the same vocabulary */
static collected plain, drafted;

static int open_models(void **state) {
  (void)state;
  model = open_case_model();
  iso_model_options options = {.no_tokenizer = true};
  CHECK(iso_model_open(TEST_SOURCE_DIR "/tests/golden/models/llama-yarn", &options, &other));
  return 0;
}

static int close_models(void **state) {
  (void)state;
  iso_model_close(other);
  iso_model_close(model);
  return 0;
}

/* Rows cost what they are said to, in hundredths of a step, and drafts of a draft model nothing: it
 * is as large as the model here, and would never be asked. */
static iso_engine *make_priced(const iso_engine_options *options, double row) {
  iso_engine *engine = make_engine(model, options);
  engine->row_price = (engine_row_price){0, row / 100, 0};
  engine->drafter.price = 0;
  return engine;
}

static iso_engine *make_drafting(iso_speculation kind, const iso_model *draft) {
  iso_engine_options options = case_options();
  options.speculation = kind;
  options.draft_model = draft;
  return make_priced(&options, 10);
}

/* A prompt that repeats itself, so that drafts are found. */
static void fill_repeating(int32_t *prompt, int32_t n, uint32_t seed) {
  fill_prompt(prompt, 7, seed);
  for (int32_t i = 7; i < n; i++)
    prompt[i] = prompt[i - 7];
}

static void test_same_greedy_tokens(void **state) {
  (void)state;
  iso_engine *without = make_engine(model, NULL),
             *with = make_drafting(ISO_SPECULATION_NGRAM, NULL);
  int32_t prompt[CASE_CONTEXT];
  for (uint32_t seed = 0; seed < 10; seed++) {
    fill_repeating(prompt, 50, seed);
    iso_request request = case_request(prompt, 50, 0);
    request.logprobs = true;
    generate(without, request, &plain);
    generate(with, request, &drafted);
    assert_same_tokens(&plain, 0, &drafted, 0);
    assert_string_equal(plain.text[0], drafted.text[0]);
    assert_int_equal(drafted.n_tokens[0], CASE_CONTEXT - 50);
  }
  iso_engine_stats stats = stats_of(with);
  assert_true(stats.n_drafted > 0);
  assert_true(stats.n_accepted > 0);
  assert_true(stats.n_accepted < stats.n_drafted);
  assert_true(stats.n_steps < stats_of(without).n_steps);
  assert_idle(with);
  iso_engine_destroy(with);
  iso_engine_destroy(without);
}

/* Bias towards few tokens: n-grams repeat although tokens are drawn. */
static iso_request few_tokens(const int32_t *prompt, int32_t n, int32_t max_tokens, uint64_t seed,
                              iso_logit_bias *bias) {
  iso_request request = case_request(prompt, n, max_tokens);
  for (int i = 0; i < 3; i++)
    bias[i] = (iso_logit_bias){50 + i, 100};
  request.logit_bias = bias;
  request.n_logit_bias = 3;
  request.sampling.temperature = 1.5f;
  request.sampling.seed = seed;
  return request;
}

/* Sampled tokens are the same too, since a draft is right only when it would have been drawn. */
static void test_same_sampled_tokens(void **state) {
  (void)state;
  iso_engine *without = make_engine(model, NULL),
             *with = make_drafting(ISO_SPECULATION_NGRAM, NULL);
  int32_t prompt[CASE_CONTEXT];
  iso_logit_bias bias[3];
  fill_repeating(prompt, 30, 1);
  for (uint64_t seed = 1; seed <= 10; seed++) {
    iso_request request = few_tokens(prompt, 30, 80, seed, bias);
    request.sampling.frequency_penalty = 0.1f;
    generate(without, request, &plain);
    generate(with, request, &drafted);
    assert_same_tokens(&plain, 0, &drafted, 0);
  }
  assert_true(stats_of(with).n_accepted > 20);
  iso_engine_destroy(with);
  iso_engine_destroy(without);
}

/* And they have the model's distribution: what follows one context, over many seeds, against the
 * softmax of its logits. */
static void test_distribution(void **state) {
  (void)state;
  enum { DRAWS = 2400, AT_ONCE = 8 };
  static collected out[AT_ONCE];
  iso_engine *with = make_drafting(ISO_SPECULATION_NGRAM, NULL);
  /* Whatever comes after the last 50, the two have been there, and something is drafted. */
  int32_t prompt[11] = {50, 50, 51, 50, 51, 52, 50, 52, 51, 50};
  iso_logit_bias bias[3];
  int counts[3][3] = {{0}}, firsts[3] = {0};
  double expected[3][3] = {{0}};
  for (uint64_t seed = 0; seed < DRAWS; seed += AT_ONCE) {
    memset(out, 0, sizeof out);
    for (uint64_t i = 0; i < AT_ONCE; i++)
      submit(with, few_tokens(prompt, 10, 3, seed + i, bias), &out[i]);
    run_all(with);
    for (int i = 0; i < AT_ONCE; i++) {
      int first = out[i].tokens[0][0] - 50, second = out[i].tokens[0][1] - 50;
      assert_in_range(first, 0, 2);
      assert_in_range(second, 0, 2);
      firsts[first]++;
      counts[first][second]++;
    }
  }
  assert_true(stats_of(with).n_accepted > DRAWS / 10);
  assert_true(stats_of(with).n_drafted - stats_of(with).n_accepted > DRAWS / 10);
  iso_runtime_options options = {.devices = "cpu", .context = 16, .page_size = 16};
  iso_runtime *runtime;
  CHECK(iso_runtime_create(model, &options, &runtime));
  for (int first = 0; first < 3; first++) {
    int32_t page = 0;
    prompt[10] = 50 + first;
    iso_batch_sequence sequence = {.n_tokens = 11, .tokens = prompt, .pages = &page, .n_pages = 1};
    CHECK(iso_runtime_step(runtime, &sequence, 1));
    const float *row = iso_runtime_logits(runtime, 0);
    double sum = 0;
    for (int i = 0; i < 3; i++)
      sum += expected[first][i] = exp((double)row[50 + i] / 1.5);
    for (int i = 0; i < 3; i++)
      expected[first][i] *= firsts[first] / sum;
  }
  /* Six degrees of freedom: 22.5 is passed once in a thousand times; the seeds are fixed. */
  double chi_square = 0;
  for (int first = 0; first < 3; first++)
    for (int i = 0; i < 3; i++)
      chi_square += (counts[first][i] - expected[first][i]) *
                    (counts[first][i] - expected[first][i]) / expected[first][i];
  print_message("chi square %g\n", chi_square);
  assert_true(chi_square < 22.5);
  iso_runtime_destroy(runtime);
  iso_engine_destroy(with);
}

/* Steps that n tokens are worth when a draft's row costs `row_us` of a step's 100. */
static double cost_of(const iso_engine_stats *stats, double row_us) {
  return (double)(stats->n_steps - 1) + (double)stats->n_drafted * row_us / 100;
}

/* The dearer a row, the fewer drafts; text that goes round gains, text that does not loses nothing
 * to speak of. */
static void test_drafts_must_pay(void **state) {
  (void)state;
  static const double prices[] = {1, 10, 50, 90};
  int32_t prompt[CASE_CONTEXT];
  uint64_t n_drafted = UINT64_MAX;
  for (int p = 0; p < 4; p++) {
    iso_engine_options options = case_options();
    options.speculation = ISO_SPECULATION_NGRAM;
    iso_engine *engine = make_priced(&options, prices[p]);
    iso_logit_bias bias = {50, 1000};
    fill_prompt(prompt, 10, 1);
    iso_request request = case_request(prompt, 10, 101);
    request.logit_bias = &bias;
    request.n_logit_bias = 1;
    generate(engine, request, &drafted);
    iso_engine_stats stats = stats_of(engine);
    double gain = 100 / cost_of(&stats, prices[p]);
    print_message("rows of %g%%: %d steps, %d drafts, %.2f times as fast\n", prices[p],
                  (int)stats.n_steps, (int)stats.n_drafted, gain);
    static const double least[] = {5, 4, 1.5, 1};
    assert_true(gain >= least[p]);
    assert_true(stats.n_drafted <= n_drafted);
    n_drafted = stats.n_drafted;
    iso_engine_destroy(engine);
    /* Three tokens, drawn at random: something always matches, and little of it is right. */
    engine = make_priced(&options, prices[p]);
    iso_logit_bias three[3];
    for (uint64_t seed = 1; seed <= 5; seed++) {
      request = few_tokens(prompt, 10, 100, seed, three);
      generate(engine, request, &drafted);
    }
    stats = stats_of(engine);
    assert_true(495 / (cost_of(&stats, prices[p]) - 4) >= 0.95);
    iso_engine_destroy(engine);
  }
}

/* A step of n_rows, in steps of one. */
static double step_of(engine_row_price price, int n_rows) {
  return 1 + price.first + (n_rows - 1) * price.each - (n_rows < 4 ? n_rows - 1 : 3) * price.spared;
}

/* Processors' and GPUs' prices: what was measured, within a fifth. */
static void test_prices(void **state) {
  (void)state;
  iso_open_device cpu = {.info = {.kind = ISO_DEVICE_CPU}},
                  gpu = {.info = {.kind = ISO_DEVICE_GPU}};
  iso_device_list list = {.n_devices = 2, .n_named = 1, .devices = {&gpu, &cpu}, .fallback = 1};
  static const uint64_t MILLION = 1000000;
  const struct {
    engine_weights weights;
    int n_rows;
    double steps; /* of an H200 */
  } cases[] = {
      {{16000 * MILLION, 8000 * MILLION}, 2, 1.15}, {{16000 * MILLION, 8000 * MILLION}, 5, 1.21},
      {{4600 * MILLION, 8000 * MILLION}, 2, 1.39},  {{4600 * MILLION, 8000 * MILLION}, 3, 1.52},
      {{4600 * MILLION, 8000 * MILLION}, 5, 2.01},  {{4600 * MILLION, 8000 * MILLION}, 9, 2.89},
      {{97 * MILLION, 135 * MILLION}, 2, 2.12},     {{97 * MILLION, 135 * MILLION}, 3, 2.43},
      {{97 * MILLION, 135 * MILLION}, 5, 3.15},     {{97 * MILLION, 135 * MILLION}, 9, 3.54}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double steps = step_of(iso_speculation_price(&list, cases[i].weights), cases[i].n_rows);
    assert_true(fabs(steps - cases[i].steps) < 0.2 * cases[i].steps);
  }
  engine_weights weights = {iso_model_weight_bytes(model), iso_model_weight_elements(model)},
                 none = {0};
  assert_int_equal(weights.bytes, 4 * weights.elements); /* f32 */
  assert_true(step_of(iso_speculation_price(&list, none), 2) < 3);
  list.n_named = 2; /* layers on both: the processor's rows are what is waited for */
  engine_row_price dear = iso_speculation_price(&list, weights);
  list.n_named = 1;
  assert_true(iso_speculation_price(&list, weights).each < dear.each);
  list.devices[0] = &cpu;
  assert_true(iso_speculation_price(&list, weights).each == dear.each);
  static const double of_two_threads[] = {1,    1.16, 1.14, 1.34, 1.52,
                                          1.76, 2.05, 2.30, 2.54}; /* Zen 4 */
  for (int n = 1; n <= 9; n++)
    assert_true(fabs(step_of(dear, n) - of_two_threads[n - 1]) < 0.2 * of_two_threads[n - 1]);
}

typedef struct busy_work {
  atomic_bool stop;
} busy_work;

/* Takes the processor from the engine now and then. */
static void *keep_busy(void *context) {
  busy_work *work = context;
  for (uint32_t i = 0; !atomic_load(&work->stop); i++)
    if (i % (1u << 20) == 0)
      usleep(700);
  return NULL;
}

enum { MOST_STEPS = 200 };

/* Drafts of each step of a request. */
static int drafts_of(iso_engine *engine, iso_request request, uint64_t counts[MOST_STEPS]) {
  int n = 0;
  bool busy = true;
  uint64_t before = stats_of(engine).n_drafted;
  memset(&drafted, 0, sizeof drafted);
  submit(engine, request, &drafted);
  while (busy && n < MOST_STEPS) {
    CHECK(iso_engine_step(engine, &busy));
    uint64_t now = stats_of(engine).n_drafted;
    counts[n++] = now - before;
    before = now;
  }
  assert_false(busy);
  return n;
}

/* The same request has the same drafts in every step, whatever steps take: in the first run of an
 * engine and later ones, on any number of threads, on a busy machine, on a slower device. Where
 * kernels round otherwise for other numbers of rows, its text would else differ from run to run. */
static void test_drafts_do_not_depend_on_time(void **state) {
  (void)state;
  static const struct {
    const char *device;
    int32_t n_threads;
    bool is_busy;
  } cases[] = {{"cpu", 1, false}, {"cpu", 2, true}, {"host", 1, false}};
  enum { N_CASES = sizeof cases / sizeof cases[0], RUNS = 3 };
  for (int kind = 0; kind < 2; kind++) {
    static uint64_t first[MOST_STEPS], counts[MOST_STEPS];
    int n_first = 0;
    uint64_t n_drafted = 0;
    for (int c = 0; c < N_CASES; c++) {
      iso_engine_options options = case_options();
      options.speculation = kind == 0 ? ISO_SPECULATION_NGRAM : ISO_SPECULATION_DRAFT;
      options.draft_model = kind == 0 ? NULL : other;
      options.no_prefix_cache = true;
      options.runtime.devices = cases[c].device;
      options.runtime.n_threads = cases[c].n_threads;
      iso_engine *engine = make_engine(model, &options);
      engine->drafter.price = 0; /* as large as the model, it would never be asked */
      busy_work work = {false};
      pthread_t thread;
      if (cases[c].is_busy)
        assert_int_equal(pthread_create(&thread, NULL, keep_busy, &work), 0);
      for (int run = 0; run < RUNS; run++) {
        int32_t prompt[CASE_CONTEXT];
        iso_logit_bias bias[3];
        fill_repeating(prompt, 30, 1);
        iso_request request = few_tokens(prompt, 30, 80, 7, bias);
        int n = drafts_of(engine, request, counts);
        if (c == 0 && run == 0) {
          memcpy(first, counts, sizeof first);
          n_first = n;
        }
        assert_int_equal(n, n_first);
        assert_memory_equal(counts, first, (size_t)n * sizeof *counts);
      }
      n_drafted = stats_of(engine).n_drafted;
      atomic_store(&work.stop, true);
      if (cases[c].is_busy)
        pthread_join(thread, NULL);
      iso_engine_destroy(engine);
    }
    print_message("%d steps, %d drafts\n", n_first, (int)(n_drafted / RUNS));
    assert_true(n_drafted > 10);
  }
}

/* Many at once, in too few pages, with choices; in steps of up to so many rows. */
static void run_together(int32_t max_tokens) {
  enum { N = 16 };
  static collected out[N];
  iso_engine_options options = case_options();
  options.runtime.n_pages = 16;
  options.runtime.max_tokens = max_tokens;
  options.speculation = ISO_SPECULATION_NGRAM;
  iso_engine *with = make_priced(&options, 10), *without = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  memset(out, 0, sizeof out);
  for (uint32_t i = 0; i < N; i++) {
    fill_repeating(prompt, 20 + (int32_t)i, i);
    iso_request request = case_request(prompt, 20 + (int32_t)i, 50);
    request.n = i % 4 == 0 ? 2 : 1;
    submit(with, request, &out[i]);
  }
  run_all(with);
  for (uint32_t i = 0; i < N; i++) {
    fill_repeating(prompt, 20 + (int32_t)i, i);
    iso_request request = case_request(prompt, 20 + (int32_t)i, 50);
    request.n = i % 4 == 0 ? 2 : 1;
    generate(without, request, &plain);
    for (int c = 0; c < request.n; c++)
      assert_same_tokens(&plain, c, &out[i], c);
  }
  assert_true(stats_of(with).n_accepted > 0);
  assert_idle(with);
  iso_engine_destroy(with);
  iso_engine_destroy(without);
}

static void test_together(void **state) {
  (void)state;
  run_together(64);
  run_together(12); /* prompts, drafts and sequences that decode share them */
}

/* ---- A window ------------------------------------------------------------------------------- */

static iso_request windowed_request(const int32_t *prompt, uint64_t seed, iso_logit_bias *bias) {
  iso_request request = few_tokens(prompt, 10, 100, seed, bias);
  bias[0].bias = 101; /* of the three, the others are less likely */
  bias[2].bias = 95;
  request.sampling.top_p = 0.95f;
  return request;
}

/* Every token is one that top-p leaves, though the draws are others; more drafts are right. */
static void test_window(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.speculation = ISO_SPECULATION_NGRAM;
  iso_engine *exact = make_priced(&options, 1);
  options.acceptance = ISO_ACCEPT_WINDOW;
  iso_engine *window = make_priced(&options, 1);
  iso_runtime_options runtime_options = {
      .devices = "cpu", .context = CASE_CONTEXT, .page_size = 16};
  iso_runtime *runtime;
  CHECK(iso_runtime_create(model, &runtime_options, &runtime));
  int32_t prompt[CASE_CONTEXT], pages[CASE_CONTEXT / 16], n_left = 0, n_differ = 0;
  iso_logit_bias bias[3];
  for (int32_t i = 0; i < CASE_CONTEXT / 16; i++)
    pages[i] = i;
  fill_repeating(prompt, 10, 1);
  for (uint64_t seed = 1; seed <= 5; seed++) {
    generate(exact, windowed_request(prompt, seed, bias), &plain);
    generate(window, windowed_request(prompt, seed, bias), &drafted);
    assert_int_equal(drafted.n_tokens[0], 100);
    n_differ += memcmp(plain.tokens[0], drafted.tokens[0], 100 * sizeof(int32_t)) != 0;
    for (int32_t n = 0; n < 100; n++) {
      int32_t next = drafted.tokens[0][n];
      iso_batch_sequence sequence = {.n_tokens = n ? 1 : 10,
                                     .tokens = n ? &drafted.tokens[0][n - 1] : prompt,
                                     .position = n ? 9 + n : 0,
                                     .pages = pages,
                                     .n_pages = CASE_CONTEXT / 16};
      CHECK(iso_runtime_step(runtime, &sequence, 1));
      const float *row = iso_runtime_logits(runtime, 0);
      double weights[3], all = 0, larger = 0;
      assert_in_range(next, 50, 52);
      for (int i = 0; i < 3; i++)
        all += weights[i] = exp(((double)row[50 + i] + (double)bias[i].bias - 100) / 1.5);
      for (int i = 0; i < 3; i++)
        larger += weights[i] > weights[next - 50] ? weights[i] : 0;
      assert_true(larger < 0.951 * all);
      n_left += larger + weights[next - 50] < 0.95 * all;
    }
  }
  assert_true(n_differ > 0);
  assert_true(n_left < 500);
  assert_true(stats_of(window).n_accepted * stats_of(exact).n_drafted >
              stats_of(exact).n_accepted * stats_of(window).n_drafted);
  assert_true(stats_of(window).n_steps < stats_of(exact).n_steps);
  /* Nothing changes where there is no window: greedy, no filter, penalties. */
  for (int kind = 0; kind < 3; kind++) {
    iso_request request = few_tokens(prompt, 10, 60, 3, bias);
    request.sampling.temperature = kind == 0 ? 0 : 1.5f;
    request.sampling.top_p = kind == 1 ? 1 : 0.95f;
    request.sampling.frequency_penalty = kind == 2 ? 0.2f : 0;
    generate(exact, request, &plain);
    generate(window, request, &drafted);
    assert_same_tokens(&plain, 0, &drafted, 0);
  }
  assert_idle(window);
  iso_runtime_destroy(runtime);
  iso_engine_destroy(exact);
  iso_engine_destroy(window);
}

/* ---- A draft model ------------------------------------------------------------------------- */

static iso_request drafted_request(const int32_t *prompt, int32_t n, uint32_t seed) {
  iso_request request = case_request(prompt, n, 40);
  request.sampling.temperature = seed % 2 ? 0.7f : 0;
  request.sampling.top_p = 0.9f;
  request.sampling.seed = seed;
  request.sampling.repetition_penalty = seed % 3 ? 1.0f : 1.2f;
  request.logprobs = seed % 5 == 0;
  return request;
}

static void test_draft_models_give_the_same_tokens(void **state) {
  (void)state;
  const iso_model *const drafts[] = {model, other};
  iso_engine *without = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  for (int d = 0; d < 2; d++) {
    iso_engine *with = make_drafting(ISO_SPECULATION_DRAFT, drafts[d]);
    for (uint32_t seed = 1; seed < 12; seed++) {
      fill_prompt(prompt, 50, seed);
      iso_request request = drafted_request(prompt, 50, seed);
      generate(without, request, &plain);
      generate(with, request, &drafted);
      assert_same_tokens(&plain, 0, &drafted, 0);
      if (d == 0 && request.sampling.repetition_penalty == 1)
        assert_int_equal(drafted.usage.n_accepted, drafted.usage.n_drafted);
    }
    iso_engine_stats stats = stats_of(with);
    print_message("%d of %d drafts accepted\n", (int)stats.n_accepted, (int)stats.n_drafted);
    assert_true(stats.n_drafted > 0);
    assert_true(d == 0 ? stats.n_accepted > 200 : stats.n_accepted < stats.n_drafted / 2);
    assert_idle(with);
    iso_engine_destroy(with);
  }
  iso_engine_destroy(without);
}

/* Many at once, choices too, in too few pages. */
static void test_draft_model_together(void **state) {
  (void)state;
  enum { N = 12 };
  static collected out[N];
  iso_engine_options options = case_options();
  options.runtime.n_pages = 16;
  options.speculation = ISO_SPECULATION_DRAFT;
  options.draft_model = model;
  iso_engine *with = make_priced(&options, 10), *without = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  memset(out, 0, sizeof out);
  for (uint32_t i = 0; i < N; i++) {
    fill_prompt(prompt, 20 + 4 * (int32_t)i, i);
    iso_request request = drafted_request(prompt, 20 + 4 * (int32_t)i, i);
    request.n = i % 4 == 0 ? 2 : 1;
    submit(with, request, &out[i]);
  }
  run_all(with);
  for (uint32_t i = 0; i < N; i++) {
    fill_prompt(prompt, 20 + 4 * (int32_t)i, i);
    iso_request request = drafted_request(prompt, 20 + 4 * (int32_t)i, i);
    request.n = i % 4 == 0 ? 2 : 1;
    generate(without, request, &plain);
    for (int c = 0; c < request.n; c++)
      assert_same_tokens(&plain, c, &out[i], c);
  }
  assert_true(stats_of(with).n_accepted > 0);
  assert_true(stats_of(with).n_preempted > 0);
  assert_idle(with);
  iso_engine_destroy(with);
  iso_engine_destroy(without);
}

/* What prompts share the draft model runs once, too. */
static void test_draft_model_shares_prefixes(void **state) {
  (void)state;
  for (int kind = 0; kind < 3; kind++) {
    iso_engine *with = make_drafting(ISO_SPECULATION_DRAFT, model);
    int32_t prompt[CASE_CONTEXT];
    fill_prompt(prompt, 60, 5);
    iso_request request = drafted_request(prompt, 60, 1);
    generate(with, request, &plain);
    assert_int_equal(with->drafter.n_hit_tokens, 0);
    request.no_prefix_cache = kind == 1;
    request.cache_key = kind == 2 ? 7 : 0;
    generate(with, request, &drafted);
    assert_same_tokens(&plain, 0, &drafted, 0);
    assert_int_equal(drafted.usage.n_accepted, drafted.usage.n_drafted);
    assert_int_equal(with->drafter.n_hit_tokens, kind == 0 ? 48 : 0);
    assert_int_equal(iso_page_pool_available(&with->drafter.pool), with->drafter.pool.n_pages);
    iso_engine_destroy(with);
  }
}

static void test_draft_model_must_fit(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.speculation = ISO_SPECULATION_DRAFT;
  iso_engine *engine;
  assert_int_equal(iso_engine_create(model, &options, &engine), ISO_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(iso_status_message(), "draft model"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_greedy_tokens),
      cmocka_unit_test(test_same_sampled_tokens),
      cmocka_unit_test(test_distribution),
      cmocka_unit_test(test_drafts_must_pay),
      cmocka_unit_test(test_prices),
      cmocka_unit_test(test_drafts_do_not_depend_on_time),
      cmocka_unit_test(test_together),
      cmocka_unit_test(test_draft_models_give_the_same_tokens),
      cmocka_unit_test(test_draft_model_together),
      cmocka_unit_test(test_draft_model_must_fit),
      cmocka_unit_test(test_draft_model_shares_prefixes),
      cmocka_unit_test(test_window),
  };
  return cmocka_run_group_tests(tests, open_models, close_models);
}
