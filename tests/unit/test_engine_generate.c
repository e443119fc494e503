/* What one request gets: the tokens that stepping the model by hand gives, text in whole code
 * points, stop strings, ends, logprobs, embeddings, refusals. */
#include "tests/unit/engine_case.h"

#include "models/model.h"

/* ---- By hand ------------------------------------------------------------------------------- */

static iso_runtime *make_runtime(void) {
  iso_runtime_options options = {.devices = "cpu",
                                 .n_threads = 2,
                                 .context = CASE_CONTEXT,
                                 .max_logit_rows = 128,
                                 .max_tokens = 128,
                                 .page_size = 16};
  iso_runtime *runtime;
  CHECK(iso_runtime_create(model, &options, &runtime));
  return runtime;
}

/* Logits of all rows of a sequence. */
static const float *run_rows(iso_runtime *runtime, const int32_t *tokens, int32_t n) {
  static const int32_t pages[] = {0, 1, 2, 3, 4, 5, 6, 7};
  iso_batch_sequence sequence = {
      .n_tokens = n, .tokens = tokens, .pages = pages, .n_pages = 8, .all_logits = true};
  CHECK(iso_runtime_step(runtime, &sequence, 1));
  return iso_runtime_logits(runtime, 0);
}

static int32_t largest(const float *row) {
  int32_t best = 0;
  for (int32_t i = 1; i < CASE_VOCABULARY; i++)
    if (row[i] > row[best])
      best = i;
  return best;
}

static double logprob(const float *row, int32_t token) {
  double sum = 0;
  for (int32_t i = 0; i < CASE_VOCABULARY; i++)
    sum += exp((double)row[i]);
  return (double)row[token] - log(sum);
}

static void test_greedy_tokens_and_logprobs(void **state) {
  (void)state;
  iso_runtime *runtime = make_runtime();
  iso_engine *engine = make_engine(model, NULL);
  static collected out;
  for (int32_t n_prompt = 1; n_prompt <= 100; n_prompt += 33) {
    int32_t tokens[CASE_CONTEXT];
    fill_prompt(tokens, n_prompt, (uint32_t)n_prompt);
    iso_request request = case_request(tokens, n_prompt, 20);
    request.logprobs = true;
    request.n_top_logprobs = 2;
    generate(engine, request, &out);
    assert_int_equal(out.status, ISO_OK);
    assert_int_equal(out.n_tokens[0], 20);
    assert_int_equal(out.reason[0], ISO_STOP_LENGTH);
    assert_int_equal(out.usage.n_prompt, n_prompt);
    assert_int_equal(out.usage.n_output, 20);
    double sum = 0;
    for (int i = 0; i < 20; i++) {
      const float *row =
          run_rows(runtime, tokens, n_prompt + i) + (n_prompt + i - 1) * CASE_VOCABULARY;
      assert_int_equal(out.tokens[0][i], largest(row));
      assert_float_equal(out.logprobs[0][i], logprob(row, out.tokens[0][i]), 1e-4);
      assert_int_equal(out.top[0][i].token, out.tokens[0][i]);
      sum += (double)out.logprobs[0][i];
      tokens[n_prompt + i] = out.tokens[0][i];
    }
    assert_float_equal(out.cumulative[0], sum, 1e-3);
  }
  assert_idle(engine);
  iso_engine_destroy(engine);
  iso_runtime_destroy(runtime);
}

static void test_prompt_logprobs(void **state) {
  (void)state;
  iso_runtime *runtime = make_runtime();
  iso_engine *engine = make_engine(model, NULL);
  static collected out;
  int32_t tokens[100];
  fill_prompt(tokens, 100, 3);
  iso_request request = case_request(tokens, 100, 1);
  request.prompt_logprobs = true;
  for (int again = 0; again < 2; again++) { /* a cached prefix must not hide rows */
    generate(engine, request, &out);
    const float *rows = run_rows(runtime, tokens, 100);
    assert_int_equal(out.n_prompt, 100);
    assert_int_equal(out.prompt[0].token, tokens[0]);
    assert_true(out.prompt[0].logprob == 0);
    for (int i = 1; i < 100; i++) {
      assert_int_equal(out.prompt[i].token, tokens[i]);
      assert_float_equal(out.prompt[i].logprob,
                         logprob(rows + (i - 1) * CASE_VOCABULARY, tokens[i]), 1e-4);
    }
  }
  iso_engine_destroy(engine);
  iso_runtime_destroy(runtime);
}

static void test_embedding(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  static collected a, b;
  int32_t tokens[100];
  fill_prompt(tokens, 100, 4);
  iso_request request = case_request(tokens, 100, 0);
  request.embed = true;
  generate(engine, request, &a);
  generate(engine, request, &b);
  assert_int_equal(a.n_embedding, iso_model_get_config(model)->hidden_size);
  assert_int_equal(a.n_choices, 0);
  double length = 0, other = 0;
  for (int i = 0; i < a.n_embedding; i++) {
    length += (double)a.embedding[i] * (double)a.embedding[i];
    assert_true(a.embedding[i] == b.embedding[i]);
  }
  assert_float_equal(length, 1, 1e-5);
  request.n_prompt = 50;
  generate(engine, request, &b);
  for (int i = 0; i < a.n_embedding; i++)
    other += (double)a.embedding[i] * (double)b.embedding[i];
  assert_true(other < 0.9999);
  iso_engine_destroy(engine);
}

static void embed(iso_engine *engine, const int32_t *tokens, int32_t n, collected *out) {
  iso_request request = case_request(tokens, n, 0);
  request.embed = true;
  generate(engine, request, out);
}

static double product(const collected *a, const collected *b) {
  double sum = 0;
  for (int i = 0; i < a->n_embedding; i++)
    sum += (double)a->embedding[i] * (double)b->embedding[i];
  return sum;
}

/* The mean of two tokens' rows is a sum of what the last row is for the one and for both. */
static void test_pooling(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  static collected mean, first, second, long_one, other;
  int32_t tokens[100];
  fill_prompt(tokens, 100, 4);
  embed(engine, tokens, 2, &mean);
  embed(engine, tokens, 100, &other);
  model->config.pooling = ISO_POOLING_LAST;
  embed(engine, tokens, 1, &first);
  embed(engine, tokens, 2, &second);
  embed(engine, tokens, 100, &long_one); /* in two steps */
  model->config.pooling = ISO_POOLING_OTHER;
  iso_request request = case_request(tokens, 2, 0);
  iso_request_id id;
  request.embed = true;
  assert_int_equal(iso_engine_submit(engine, &request, &id), ISO_ERROR_UNSUPPORTED);
  model->config.pooling = ISO_POOLING_MEAN;
  double angle = product(&first, &second), x = product(&mean, &first), y = product(&mean, &second);
  double a = (x - angle * y) / (1 - angle * angle), b = (y - angle * x) / (1 - angle * angle);
  assert_true(a > 0 && b > 0);
  for (int i = 0; i < mean.n_embedding; i++)
    assert_float_equal((float)(a * (double)first.embedding[i] + b * (double)second.embedding[i]),
                       mean.embedding[i], 1e-5);
  assert_float_equal(product(&long_one, &long_one), 1, 1e-5);
  assert_true(product(&long_one, &other) < 0.9999);
  iso_engine_destroy(engine);
}

/* An embedding needs no logits, so that a step has as many of its rows as of any prompt; and finds
 * its hidden rows among those of others. */
static void test_embedding_in_whole_steps(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  static collected alone, beside, plain, text;
  int32_t tokens[100], other[40];
  fill_prompt(tokens, 100, 4);
  fill_prompt(other, 40, 5);
  iso_request request = case_request(tokens, 100, 0), decoding = case_request(other, 40, 20);
  generate(engine, decoding, &plain);
  uint64_t before = stats_of(engine).n_steps;
  request.embed = request.prompt_logprobs = true;
  generate(engine, request, &alone);
  assert_int_equal(stats_of(engine).n_steps - before, 2); /* 64 rows each */
  assert_int_equal(alone.n_prompt, 0);
  memset(&text, 0, sizeof text);
  memset(&beside, 0, sizeof beside);
  submit(engine, decoding, &text);
  bool is_busy;
  for (int i = 0; i < 3; i++)
    CHECK(iso_engine_step(engine, &is_busy));
  submit(engine, request, &beside);
  run_all(engine);
  assert_same_tokens(&text, 0, &plain, 0);
  assert_memory_equal(beside.embedding, alone.embedding, sizeof alone.embedding);
  iso_engine_destroy(engine);
}

/* A prompt that is preempted half-way and runs again counts once: no row of it twice. */
static void test_preempted_embedding(void **state) {
  (void)state;
  static collected alone, beside, text;
  int32_t tokens[100], other[20];
  fill_prompt(tokens, 100, 4);
  fill_prompt(other, 20, 5);
  iso_request request = case_request(tokens, 100, 0);
  request.embed = true;
  iso_engine_options options = case_options();
  options.runtime.max_tokens = 8; /* so that the prompt takes many steps */
  options.runtime.page_size = 4;
  options.runtime.n_pages = 32;
  for (int swaps = 0; swaps <= 1; swaps++) {
    options.swap_memory_bytes = swaps ? 16 << 20 : 0;
    iso_engine *engine = make_engine(model, &options);
    generate(engine, request, &alone);
    memset(&text, 0, sizeof text);
    memset(&beside, 0, sizeof beside);
    submit(engine, case_request(other, 20, 40), &text);
    submit(engine, request, &beside);
    run_all(engine);
    assert_true(beside.usage.n_preempted > 0);
    assert_int_equal(stats_of(engine).n_swapped_pages > 0, swaps);
    for (int i = 0; i < alone.n_embedding; i++)
      assert_float_equal(beside.embedding[i], alone.embedding[i], 1e-5);
    assert_idle(engine);
    iso_engine_destroy(engine);
  }
}

/* Weights that are no numbers give no answer of any kind, in place of an empty or a wrong one. */
static void test_no_numbers(void **state) {
  (void)state;
  iso_model *broken = open_case_model();
  const iso_file_tensor *norm = iso_model_find_tensor(broken, "output_norm.weight");
  for (uint32_t i = 0; i < broken->n_parameters; i++)
    for (int64_t k = 0; broken->parameters[i].tensor == norm && k < norm->dims[0]; k++)
      broken->parameters[i].values[k] = NAN;
  iso_engine_options options = case_options();
  options.runtime.devices = "cpu"; /* the reference's ops, which "late" runs, refuse token -1 */
  iso_engine *engine = make_engine(broken, &options);
  static collected out;
  int32_t tokens[10];
  fill_prompt(tokens, 10, 4);
  iso_request requests[4];
  for (int i = 0; i < 4; i++)
    requests[i] = case_request(tokens, 10, 4);
  requests[1].sampling.temperature = 1;
  requests[2].beam_width = 2;
  requests[3].embed = true;
  for (int i = 0; i < 4; i++) {
    generate(engine, requests[i], &out);
    if (out.status != ISO_ERROR_INTERNAL)
      fail_msg("request %d: %s", i, iso_status_name(out.status));
  }
  iso_engine_destroy(engine);
  iso_model_close(broken);
}

/* ---- Text ---------------------------------------------------------------------------------- */

/* The whole text of tokens, decoded at once. */
static char *decode(const int32_t *tokens, int n) {
  char *text;
  size_t length;
  CHECK(iso_tokenizer_decode(iso_model_get_tokenizer(model), tokens, (size_t)n,
                             ISO_DETOKENIZE_SKIP_SPECIAL, &text, &length));
  return text;
}

/* A prompt whose answer has bytes of longer code points and enough ASCII in a row. */
static void sample_request(iso_request *request, const int32_t *prompt, uint64_t seed) {
  *request = case_request(prompt, 8, 60);
  request->sampling.temperature = 1.0f;
  request->sampling.seed = seed;
}

static void test_text_is_whole(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[8];
  static collected out;
  fill_prompt(prompt, 8, 5);
  for (uint64_t seed = 1; seed <= 10; seed++) {
    iso_request request;
    sample_request(&request, prompt, seed);
    generate(engine, request, &out);
    assert_int_equal(out.n_tokens[0], 60);
    char *whole = decode(out.tokens[0], 60);
    assert_string_equal(out.text[0], whole);
    free(whole);
  }
  iso_engine_destroy(engine);
}

/* Every stop string of two or three bytes that occurs: cut there, nothing of it, all before it. */
static void test_stop_strings(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[8];
  static collected whole, out;
  fill_prompt(prompt, 8, 6);
  iso_request request;
  sample_request(&request, prompt, 7);
  request.logprobs = true;
  generate(engine, request, &whole);
  int n_tried = 0;
  for (size_t at = 0; at + 3 <= whole.length[0]; at++) {
    char stop[4] = {whole.text[0][at], whole.text[0][at + 1], whole.text[0][at + 2], 0};
    if ((stop[0] & 0x80) || (stop[1] & 0x80) || (stop[2] & 0x80))
      continue;
    const char *const stops[] = {"no such text", stop};
    request.stop = stops;
    request.n_stop = 2;
    generate(engine, request, &out);
    size_t first = (size_t)(strstr(whole.text[0], stop) - whole.text[0]);
    assert_int_equal(out.reason[0], ISO_STOP_STRING);
    assert_string_equal(out.stop[0], stop);
    assert_int_equal(out.length[0], first);
    assert_memory_equal(out.text[0], whole.text[0], first);
    char *text = decode(out.tokens[0], out.n_tokens[0]);
    assert_true(strlen(text) <= first + 5); /* the last token may reach into it: <unk> is one */
    free(text);
    n_tried++;
  }
  assert_true(n_tried > 5);
  assert_idle(engine);
  iso_engine_destroy(engine);
}

static void test_min_tokens_and_end(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[8];
  static collected whole, out;
  fill_prompt(prompt, 8, 6);
  iso_request request = case_request(prompt, 8, 40);
  generate(engine, request, &whole);
  /* The fifth token ends the answer, unless min_tokens says that it is too early. */
  request.stop_tokens = &whole.tokens[0][4];
  request.n_stop_tokens = 1;
  int first = 0;
  while (whole.tokens[0][first] != whole.tokens[0][4])
    first++;
  generate(engine, request, &out);
  assert_int_equal(out.reason[0], ISO_STOP_END);
  assert_int_equal(out.n_tokens[0], first);
  assert_int_equal(out.usage.n_output, first + 1);
  request.min_tokens = 30;
  generate(engine, request, &out);
  assert_true(out.n_tokens[0] >= 30);
  for (int i = 0; i < 30; i++)
    assert_int_not_equal(out.tokens[0][i], whole.tokens[0][4]);
  iso_engine_destroy(engine);
}

static void test_logit_bias(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[8];
  static collected out;
  fill_prompt(prompt, 8, 6);
  iso_request request = case_request(prompt, 8, 5);
  const iso_logit_bias bias[] = {{42, 1000}, {43, -INFINITY}};
  request.logit_bias = bias;
  request.n_logit_bias = 2;
  generate(engine, request, &out);
  for (int i = 0; i < 5; i++)
    assert_int_equal(out.tokens[0][i], 42);
  iso_engine_destroy(engine);
}

/* A request that leaves no token is at fault itself: not the model, and not the engine. */
static void test_all_tokens_forbidden(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[8], all[CASE_VOCABULARY];
  iso_logit_bias bias[CASE_VOCABULARY];
  static collected out, beside;
  fill_prompt(prompt, 8, 6);
  for (int32_t i = 0; i < CASE_VOCABULARY; i++) {
    bias[i] = (iso_logit_bias){i, -INFINITY};
    all[i] = i;
  }
  iso_request good = case_request(prompt, 8, 5), requests[5] = {good, good, good, good, good};
  for (int i = 0; i < 5; i++) {
    bool is_of_ends = i == 4; /* all end the answer, which must not yet */
    requests[i].logit_bias = is_of_ends ? NULL : bias;
    requests[i].n_logit_bias = is_of_ends ? 0 : CASE_VOCABULARY;
    requests[i].stop_tokens = is_of_ends ? all : NULL;
    requests[i].n_stop_tokens = is_of_ends ? CASE_VOCABULARY : 0;
    requests[i].min_tokens = is_of_ends ? 2 : 0;
  }
  requests[1].sampling.temperature = 1;
  requests[2].n = 3;
  requests[3].beam_width = 3;
  for (int i = 0; i < 5; i++) {
    memset(&beside, 0, sizeof beside);
    submit(engine, good, &beside);
    generate(engine, requests[i], &out);
    assert_int_equal(out.status, ISO_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(out.message, i == 4 ? "min_tokens" : "logit_bias forbids every token"));
    assert_int_equal(out.n_choices, 0);
    assert_int_equal(beside.status, ISO_OK);
    assert_int_equal(beside.n_tokens[0], 5);
    assert_idle(engine);
  }
  iso_engine_destroy(engine);
}

/* ---- Limits -------------------------------------------------------------------------------- */

static void test_context_limit_is_length(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  int32_t prompt[CASE_CONTEXT];
  static collected out;
  fill_prompt(prompt, CASE_CONTEXT, 9);
  generate(engine, case_request(prompt, 100, 0), &out);
  assert_int_equal(out.reason[0], ISO_STOP_LENGTH);
  assert_int_equal(out.n_tokens[0], CASE_CONTEXT - 100);
  generate(engine, case_request(prompt, CASE_CONTEXT - 1, 1000), &out);
  assert_int_equal(out.reason[0], ISO_STOP_LENGTH);
  assert_int_equal(out.n_tokens[0], 1);
  iso_engine_destroy(engine);
}

static void assert_refused(iso_engine *engine, iso_request request, iso_status expected) {
  static collected out;
  request.context = &out;
  iso_request_id id;
  assert_int_equal(iso_engine_submit(engine, &request, &id), expected);
  assert_true(strlen(iso_status_message()) > 10);
  assert_idle(engine);
}

static void test_refusals(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.runtime.n_pages = 4;
  iso_engine *engine = make_engine(model, &options);
  int32_t prompt[CASE_CONTEXT], bad[1] = {CASE_VOCABULARY};
  fill_prompt(prompt, CASE_CONTEXT, 10);
  iso_request good = case_request(prompt, 8, 8), request;
  assert_refused(engine, case_request(prompt, 0, 8), ISO_ERROR_INVALID_ARGUMENT);
  assert_refused(engine, case_request(bad, 1, 8), ISO_ERROR_INVALID_ARGUMENT);
  assert_refused(engine, case_request(prompt, 64, 0), ISO_ERROR_LIMIT); /* the pool */
  assert_refused(engine, case_request(prompt, 60, 8), ISO_ERROR_LIMIT);
  assert_refused(engine, case_request(prompt, CASE_CONTEXT, 1), ISO_ERROR_LIMIT);
  request = good, request.on_event = NULL;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.sampling.temperature = NAN;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.sampling.top_p = 1.5f;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.n = -1;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.n = 3, request.best_of = 2;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.n = 3, request.beam_width = 2;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.n = 1000000;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.max_tokens = INT32_MIN;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.n_top_logprobs = 21;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.stop_tokens = bad, request.n_stop_tokens = 1;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  const char *const empty[] = {""};
  request = good, request.stop = empty, request.n_stop = 1;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.n_stop = 1; /* of nothing */
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.n_stop_tokens = 1;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  request = good, request.n_logit_bias = 1;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  const iso_logit_bias bias = {1, NAN};
  request = good, request.logit_bias = &bias, request.n_logit_bias = 1;
  assert_refused(engine, request, ISO_ERROR_INVALID_ARGUMENT);
  static collected out;
  generate(engine, good, &out);
  assert_int_equal(out.n_tokens[0], 8);
  iso_engine_destroy(engine);
}

static void test_options_out_of_range(void **state) {
  (void)state;
  static const struct {
    const char *word;
    int batching, speculation, acceptance;
  } cases[] = {{"batching", 2, 0, 0},     {"batching", -1, 0, 0},  {"speculation", 0, 3, 0},
               {"speculation", 0, -1, 0}, {"acceptance", 0, 0, 2}, {"acceptance", 0, 0, -1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    iso_engine_options options = case_options();
    options.batching = (iso_batching)cases[i].batching;
    options.speculation = (iso_speculation)cases[i].speculation;
    options.acceptance = (iso_acceptance)cases[i].acceptance;
    iso_engine *engine;
    assert_int_equal(iso_engine_create(model, &options, &engine), ISO_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(iso_status_message(), cases[i].word));
  }
}

static void test_runtime_refusals(void **state) {
  (void)state;
  iso_runtime *runtime = make_runtime();
  const int32_t tokens[] = {3, 4}, wrong_tokens[] = {3, -4}, page = 0, wrong_page = 1 << 20;
  const iso_batch_sequence good = {.n_tokens = 2, .tokens = tokens, .pages = &page, .n_pages = 1};
  iso_batch_sequence cases[7] = {good, good, good, good, good, good, good};
  cases[0].tokens = NULL;
  cases[1].tokens = wrong_tokens;
  cases[2].pages = NULL;
  cases[3].pages = &wrong_page;
  cases[4].n_pages = 0;
  cases[5].adapter = 1;
  cases[6].position = 15;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(iso_runtime_step(runtime, &cases[i], 1), ISO_ERROR_INVALID_ARGUMENT);
  CHECK(iso_runtime_step(runtime, &good, 1));
  iso_runtime_destroy(runtime);
}

static void test_pool_too_small_says_what_fits(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  options.runtime.n_pages = 0;
  options.kv_memory_bytes = 100000;
  iso_engine *engine = NULL;
  assert_int_equal(iso_engine_create(model, &options, &engine), ISO_ERROR_OUT_OF_MEMORY);
  assert_non_null(strstr(iso_status_message(), "needs"));
  assert_non_null(strstr(iso_status_message(), "would fit"));
  options.kv_memory_bytes = 10000;
  assert_int_equal(iso_engine_create(model, &options, &engine), ISO_ERROR_OUT_OF_MEMORY);
  assert_non_null(strstr(iso_status_message(), "less than a page of 16 tokens"));
  options.kv_memory_bytes = UINT64_C(1) << 42; /* more than there is */
  options.runtime.max_sequences = 1 << 20;
  options.runtime.max_tokens = 64;
  assert_int_equal(iso_engine_create(model, &options, &engine), ISO_ERROR_OUT_OF_MEMORY);
  assert_non_null(strstr(iso_status_message(), "free, and"));
  assert_non_null(strstr(iso_status_message(), "would fit: lower the context"));
  options.runtime.max_sequences = 8;
  options.kv_memory_bytes = 1 << 20;
  CHECK(iso_engine_create(model, &options, &engine));
  assert_int_equal(stats_of(engine).n_pages, (1 << 20) / (2 * 3 * 2 * 16 * 32 * 4));
  iso_engine_destroy(engine);
}

/* Events, and what was told of them. */
typedef struct flushes {
  int n_events, n_told, n_flushes;
} flushes;

static iso_flow count_event(void *context, const iso_event *event) {
  flushes *self = context;
  (void)event;
  self->n_events++;
  return ISO_FLOW_CONTINUE;
}

static void on_flush(void *context) {
  flushes *self = context;
  assert_true(self->n_events > self->n_told);
  self->n_told = self->n_events;
  self->n_flushes++;
}

/* Readers are told once a step, of all of its events; what ends before a step does not wait for it.
 */
static void test_flushes(void **state) {
  (void)state;
  iso_engine *engine = make_engine(model, NULL);
  flushes self = {0};
  iso_request_id ids[4];
  int32_t prompt[8];
  bool is_busy;
  fill_prompt(prompt, 8, 1);
  iso_request request = case_request(prompt, 8, 20);
  request.on_event = count_event;
  request.context = &self;
  iso_engine_on_flush(engine, on_flush, &self);
  for (int i = 0; i < 4; i++)
    CHECK(iso_engine_submit(engine, &request, &ids[i]));
  while (self.n_events == 0)
    CHECK(iso_engine_step(engine, &is_busy));
  for (int i = 0; i < 3; i++) {
    int n_events = self.n_events, n_flushes = self.n_flushes;
    CHECK(iso_engine_step(engine, &is_busy));
    assert_int_equal(self.n_events, n_events + 4);
    assert_int_equal(self.n_told, self.n_events);
    assert_int_equal(self.n_flushes, n_flushes + 1);
  }
  int n_events = self.n_events, n_flushes = self.n_flushes;
  iso_engine_cancel(engine, ids[0]);
  CHECK(iso_engine_step(engine, &is_busy));
  assert_int_equal(self.n_events, n_events + 1 + 3);
  assert_int_equal(self.n_told, self.n_events);
  assert_int_equal(self.n_flushes, n_flushes + 2);
  iso_engine_drain(engine, 0);
  assert_int_equal(self.n_told, self.n_events);
  n_flushes = self.n_flushes;
  iso_engine_destroy(engine);
  assert_int_equal(self.n_flushes, n_flushes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_greedy_tokens_and_logprobs),
      cmocka_unit_test(test_prompt_logprobs),
      cmocka_unit_test(test_embedding),
      cmocka_unit_test(test_pooling),
      cmocka_unit_test(test_no_numbers),
      cmocka_unit_test(test_embedding_in_whole_steps),
      cmocka_unit_test(test_preempted_embedding),
      cmocka_unit_test(test_text_is_whole),
      cmocka_unit_test(test_stop_strings),
      cmocka_unit_test(test_min_tokens_and_end),
      cmocka_unit_test(test_logit_bias),
      cmocka_unit_test(test_all_tokens_forbidden),
      cmocka_unit_test(test_context_limit_is_length),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_options_out_of_range),
      cmocka_unit_test(test_runtime_refusals),
      cmocka_unit_test(test_flushes),
      cmocka_unit_test(test_pool_too_small_says_what_fits),
  };
  return cmocka_run_group_tests(tests, open_model, close_model);
}
