/* Every way to decode, side by side in the same batches: each request gets what it gets alone. */
#include "tests/unit/engine_case.h"

enum {
  GREEDY,
  FILTERED,
  PENALIZED,
  CHOICES,
  BEST_OF,
  BEAMS,
  BEAMS_EARLY,
  HELD, /* to a grammar */
  BIASED,
  STOPPED,  /* by a string */
  MEASURED, /* the prompt, too */
  EMBEDDED,
  N_KINDS
};

enum { ROUNDS = 3, N_REQUESTS = ROUNDS * N_KINDS, LONGEST = 40, LONGEST_ANSWER = 60 };

static collected alone[N_REQUESTS], together[N_REQUESTS];
static int32_t prompts[N_REQUESTS][LONGEST];

static iso_grammar *grammar_of(iso_engine *engine) {
  static const char schema[] =
      "{\"type\": \"object\", \"properties\": {\"a\": {\"enum\": [1, 22]}},"
      " \"required\": [\"a\"], \"additionalProperties\": false}";
  iso_grammar *grammar;
  CHECK(iso_grammar_create(engine, schema, sizeof schema - 1, &grammar));
  return grammar;
}

static iso_request make_request(int i, iso_grammar *grammar) {
  static const iso_logit_bias bias[] = {{42, 3}, {43, -INFINITY}, {50, 2}};
  static const char *const stop[] = {"e", "no such text"};
  int32_t n = 5 + (i * 11) % (LONGEST - 5);
  fill_prompt(prompts[i], n, (uint32_t)i + 1);
  iso_request request = case_request(prompts[i], n, 12 + i % 9);
  iso_sampling *sampling = &request.sampling;
  int kind = i % N_KINDS;
  sampling->seed = (uint64_t)i;
  sampling->temperature = kind == GREEDY || kind == BEAMS || kind == BEAMS_EARLY ? 0 : 1.2f;
  if (kind == FILTERED) {
    sampling->top_k = 20;
    sampling->top_p = 0.9f;
    sampling->min_p = 0.02f;
  } else if (kind == PENALIZED) {
    sampling->repetition_penalty = 1.3f;
    sampling->frequency_penalty = 0.5f;
  } else if (kind == CHOICES) {
    request.n = 3;
  } else if (kind == BEST_OF) {
    request.best_of = 4;
    request.n = 2;
  } else if (kind == BEAMS || kind == BEAMS_EARLY) {
    request.beam_width = 4;
    request.n = 2;
    request.length_penalty = 0.6f;
    request.early_stopping = kind == BEAMS_EARLY;
    request.ignore_end = false;
  } else if (kind == HELD) {
    request.grammar = grammar;
    request.ignore_end = false;
    request.max_tokens = LONGEST_ANSWER;
  } else if (kind == BIASED) {
    request.logit_bias = bias;
    request.n_logit_bias = 3;
    request.min_tokens = 5;
  } else if (kind == STOPPED) {
    request.stop = stop;
    request.n_stop = 2;
  }
  request.logprobs = request.prompt_logprobs = kind == MEASURED;
  request.embed = kind == EMBEDDED;
  return request;
}

static void assert_same(const collected *a, const collected *b) {
  assert_int_equal(a->n_done, 1);
  assert_int_equal(a->status, ISO_OK);
  assert_int_equal(a->n_choices, b->n_choices);
  for (int c = 0; c < a->n_choices; c++) {
    assert_same_tokens(a, c, b, c);
    assert_string_equal(a->text[c], b->text[c]);
    assert_int_equal(a->reason[c], b->reason[c]);
    for (int i = 0; i < a->n_tokens[c]; i++)
      assert_float_equal(a->logprobs[c][i], b->logprobs[c][i], 1e-4);
  }
  assert_int_equal(a->n_prompt, b->n_prompt);
  for (int i = 0; i < a->n_prompt; i++)
    assert_float_equal(a->prompt[i].logprob, b->prompt[i].logprob, 1e-4);
  assert_int_equal(a->n_embedding, b->n_embedding);
  for (int i = 0; i < a->n_embedding; i++)
    assert_float_equal(a->embedding[i], b->embedding[i], 1e-5);
}

static int run_each_alone(void **state) {
  open_model(state);
  iso_engine *engine = make_engine(model, NULL);
  iso_grammar *grammar = grammar_of(engine);
  for (int i = 0; i < N_REQUESTS; i++) {
    generate(engine, make_request(i, grammar), &alone[i]);
    assert_int_equal(alone[i].status, ISO_OK);
  }
  iso_grammar_release(grammar);
  iso_engine_destroy(engine);
  /* They are what they are called. */
  assert_int_equal(alone[CHOICES].n_choices, 3);
  assert_int_equal(alone[BEST_OF].n_choices, 2);
  assert_int_equal(alone[BEAMS].n_choices, 2);
  assert_non_null(strstr(alone[HELD].text[0], "\"a\""));
  assert_true(alone[MEASURED].n_prompt > 0);
  assert_true(alone[EMBEDDED].n_embedding > 0);
  return 0;
}

static void run_together(const iso_engine_options *options, iso_engine_stats *out_stats) {
  iso_engine *engine = make_engine(model, options);
  iso_grammar *grammar = grammar_of(engine);
  memset(together, 0, sizeof together);
  for (int i = 0; i < N_REQUESTS; i++)
    submit(engine, make_request(i, grammar), &together[i]);
  run_all(engine);
  for (int i = 0; i < N_REQUESTS; i++)
    assert_same(&together[i], &alone[i]);
  assert_idle(engine);
  *out_stats = stats_of(engine);
  iso_grammar_release(grammar);
  iso_engine_destroy(engine);
}

static void test_all_ways_at_once(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  iso_engine_stats stats;
  options.runtime.max_sequences = 64;
  options.runtime.max_tokens = 256;
  options.runtime.n_pages = 512;
  run_together(&options, &stats);
  print_message("%d steps\n", (int)stats.n_steps);
  assert_int_equal(stats.n_preempted, 0);
  assert_true(stats.n_steps < 3 * LONGEST_ANSWER); /* in the same ones */
  options.speculation = ISO_SPECULATION_NGRAM;
  run_together(&options, &stats);
}

static void test_all_ways_in_little_room(void **state) {
  (void)state;
  iso_engine_options options = case_options();
  iso_engine_stats stats;
  run_together(&options, &stats);
  options.runtime.n_pages = 10;
  run_together(&options, &stats);
  assert_true(stats.n_preempted > 0);
  options.swap_memory_bytes = 16 << 20;
  run_together(&options, &stats);
  options.batching = ISO_BATCHING_STATIC;
  run_together(&options, &stats);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_ways_at_once),
                                     cmocka_unit_test(test_all_ways_in_little_room)};
  return cmocka_run_group_tests(tests, run_each_alone, close_model);
}
