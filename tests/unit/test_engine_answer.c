/* Answers that become copies of others: what both have said is left where it is. */
#include "engine_case.h"

#include <time.h>

#include "engine/answer.h"

enum { N_PROMPT = 50, N_TOP = 2 };

static iso_text piece;

static engine_answer begin(const int32_t *prompt, int32_t n_prompt) {
  const iso_request request = {.beam_width = 4, .n_top_logprobs = N_TOP, .logprobs = true};
  engine_answer answer;
  CHECK(iso_answer_create(prompt, n_prompt, iso_model_get_tokenizer(model), &request, &answer));
  return answer;
}

static void say(engine_answer *answer, const int32_t *tokens, int n) {
  for (int i = 0; i < n; i++) {
    const iso_token_logprob logprobs[1 + N_TOP] = {
        {tokens[i], -0.25f * (float)i}, {tokens[i] + 1, -1}, {tokens[i] + 2, -2}};
    bool stopped;
    CHECK(iso_answer_append(answer, tokens[i], logprobs));
    CHECK(iso_answer_append_text(answer, false, &piece, &stopped));
    assert_false(stopped);
  }
}

static void assert_same(const engine_answer *a, const engine_answer *b) {
  size_t n_output = (size_t)iso_answer_n_output(a);
  assert_int_equal(iso_answer_n_output(b), n_output);
  const int32_t *output_a = a->tokens + a->n_prompt, *output_b = b->tokens + b->n_prompt;
  assert_memory_equal(output_a, output_b, n_output * sizeof *output_a);
  if (n_output > 0) {
    assert_memory_equal(a->ends, b->ends, n_output * sizeof *a->ends);
    assert_memory_equal(a->logprobs, b->logprobs, n_output * (1 + N_TOP) * sizeof *a->logprobs);
  }
  assert_int_equal(a->text.length, b->text.length);
  if (a->text.length > 0)
    assert_memory_equal(a->text.data, b->text.data, a->text.length);
  assert_int_equal(a->n_bytes, b->n_bytes);
  assert_true(a->cumulative_logprob == b->cumulative_logprob);
  assert_int_equal(a->detokenizer.pending_length, b->detokenizer.pending_length);
}

/* Two that part after some tokens, and go on for longer or less long. */
static void test_becomes_another(void **state) {
  (void)state;
  int32_t prompt[N_PROMPT], together[40], apart[2][40];
  fill_prompt(prompt, N_PROMPT, 1);
  fill_prompt(together, 40, 2);
  fill_prompt(apart[0], 40, 3);
  fill_prompt(apart[1], 40, 4);
  static const int cases[][3] = {{0, 0, 5}, {0, 5, 0}, {0, 20, 30}, {7, 0, 0},
                                 {7, 1, 9}, {7, 9, 1}, {40, 40, 2}, {40, 3, 40}};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
    for (int n_known = 0; n_known <= 2; n_known++) { /* of what is common */
      engine_answer a = begin(prompt, N_PROMPT), b = begin(prompt, N_PROMPT), whole = {0}, output;
      say(&a, together, cases[c][0]);
      say(&b, together, cases[c][0]);
      say(&a, apart[0], cases[c][1]);
      say(&b, apart[1], cases[c][2]);
      size_t n_common = N_PROMPT + (size_t)(cases[c][0] * n_known / 2);
      CHECK(iso_answer_become(&whole, &b, 0));
      CHECK(iso_answer_become(&a, &b, n_common));
      assert_same(&a, &b);
      assert_same(&whole, &b);
      assert_memory_equal(a.tokens, b.tokens, b.n_tokens * sizeof *b.tokens);
      CHECK(iso_answer_copy_output(&b, &output));
      assert_int_equal(output.n_prompt, 0);
      assert_same(&output, &b);
      say(&a, apart[0], 20); /* and it goes on like the other would */
      say(&b, apart[0], 20);
      say(&output, apart[0], 20);
      assert_same(&a, &b);
      assert_same(&output, &b);
      iso_answer_destroy(&a);
      iso_answer_destroy(&b);
      iso_answer_destroy(&whole);
      iso_answer_destroy(&output);
    }
}

static double cpu_seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A prompt that both have costs nothing, however long. */
static void test_long_prompts_are_not_copied(void **state) {
  (void)state;
  enum { LONG = 131072, TIMES = 300 };
  int32_t *prompt = malloc(LONG * sizeof *prompt), tokens[30];
  assert_non_null(prompt);
  fill_prompt(prompt, LONG, 1);
  fill_prompt(tokens, 30, 2);
  engine_answer a = begin(prompt, LONG), b = begin(prompt, LONG);
  say(&b, tokens, 30);
  double start = cpu_seconds();
  for (int i = 0; i < TIMES; i++)
    CHECK(iso_answer_become(&a, &b, LONG));
  double middle = cpu_seconds();
  for (int i = 0; i < TIMES; i++) {
    engine_answer whole = {0};
    CHECK(iso_answer_become(&whole, &b, 0));
    iso_answer_destroy(&whole);
  }
  double end = cpu_seconds();
  printf("a copy behind %d tokens: %.1f us, of all %.1f us\n", LONG, (middle - start) / TIMES * 1e6,
         (end - middle) / TIMES * 1e6);
  assert_true(8 * (middle - start) < end - middle);
  assert_same(&a, &b);
  iso_answer_destroy(&a);
  iso_answer_destroy(&b);
  free(prompt);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_becomes_another),
      cmocka_unit_test(test_long_prompts_are_not_copied),
  };
  int failed = cmocka_run_group_tests(tests, open_model, close_model);
  iso_text_free(&piece);
  return failed;
}
