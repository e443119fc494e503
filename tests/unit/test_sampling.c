/* Sampling: known answers of the generator, the distribution of draws, and every filter at its
 * edges. tests/golden/ops/sample.json holds it against transformers' processors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "ops/sampling.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 40 };

static float logits[N];
static float parameters[ISO_SAMPLE_PARAMETER_COUNT];
static iso_sample_candidate candidates[N];

static iso_sample_row fresh(void) {
  for (int i = 0; i < N; i++)
    logits[i] = (float)((i * 7) % N) / 4; /* token 17 (i * 7 % 40 = 39) is the largest */
  memset(parameters, 0, sizeof parameters);
  parameters[ISO_SAMPLE_TEMPERATURE] = 1;
  parameters[ISO_SAMPLE_TOP_P] = 1;
  parameters[ISO_SAMPLE_REPETITION_PENALTY] = 1;
  return (iso_sample_row){
      .logits = logits, .n_logits = N, .parameters = parameters, .seed = 1234567890123};
}

static int32_t token_of(const iso_sample_row *row) {
  int32_t token = -2;
  assert_int_equal(iso_sample_token(row, candidates, &token), ISO_OK);
  return token;
}

/* How often each token comes over `n` draws. */
static void count_draws(iso_sample_row row, int n, int counts[N]) {
  memset(counts, 0, N * sizeof counts[0]);
  for (int i = 0; i < n; i++) {
    row.draw = (uint32_t)i;
    int32_t token = token_of(&row);
    assert_in_range(token, 0, N - 1);
    counts[token]++;
  }
}

/* Vectors of the Random123 distribution, kat_vectors, philox4x32 10. */
static void test_philox_known_answers(void **state) {
  (void)state;
  static const struct {
    uint64_t key;
    uint32_t counter[4], words[4];
  } answers[] = {
      {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {UINT64_MAX,
       {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822,
       {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
    uint32_t words[4];
    iso_philox(answers[i].key, answers[i].counter, words);
    assert_memory_equal(words, answers[i].words, sizeof words);
  }
}

/* Draws follow the softmax: chi-squared with 39 degrees of freedom is below 90 with a chance of
 * 0.99999. The seed is fixed, so this either always passes or never. */
static void test_draws_follow_the_softmax(void **state) {
  (void)state;
  enum { DRAWS = 40000 };
  iso_sample_row row = fresh();
  parameters[ISO_SAMPLE_TEMPERATURE] = 3;
  int counts[N];
  count_draws(row, DRAWS, counts);
  double total = 0, chi_squared = 0;
  for (int i = 0; i < N; i++)
    total += exp(logits[i] / 3);
  for (int i = 0; i < N; i++) {
    double expected = DRAWS * exp(logits[i] / 3) / total;
    assert_true(expected > 5);
    chi_squared += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  assert_true(chi_squared > 12 && chi_squared < 90);
}

static void test_filters_keep_the_right_tokens(void **state) {
  (void)state;
  int counts[N];
  iso_sample_row row = fresh();
  parameters[ISO_SAMPLE_TEMPERATURE] = 100; /* nearly flat, so that every kept token shows */
  parameters[ISO_SAMPLE_TOP_K] = 5;
  count_draws(row, 2000, counts);
  for (int i = 0; i < N; i++)
    assert_int_equal(counts[i] > 0, logits[i] >= 35.0f / 4);

  /* Equal logits stay together: four tokens share the fifth place. */
  fresh();
  parameters[ISO_SAMPLE_TEMPERATURE] = 100;
  parameters[ISO_SAMPLE_TOP_K] = 5;
  for (int i = 0; i < N; i++)
    logits[i] = i < 4 ? 10.0f : i < 8 ? 9.0f : 0.0f;
  count_draws(row, 2000, counts);
  for (int i = 0; i < N; i++)
    assert_int_equal(counts[i] > 0, i < 8);

  /* Probabilities 1/2, 1/4, 1/8 ...: the first three have 7/8, so 0.8 needs three. */
  fresh();
  for (int i = 0; i < N; i++)
    logits[i] = -(float)(i * M_LN2);
  parameters[ISO_SAMPLE_TOP_P] = 0.8f;
  count_draws(row, 2000, counts);
  for (int i = 0; i < N; i++)
    assert_int_equal(counts[i] > 0, i < 3);
  parameters[ISO_SAMPLE_TOP_P] = 0;
  count_draws(row, 100, counts);
  assert_int_equal(counts[0], 100);

  /* min-p 0.2 keeps 1/2, 1/4 and 1/8 of 1/2. */
  parameters[ISO_SAMPLE_TOP_P] = 1;
  parameters[ISO_SAMPLE_MIN_P] = 0.2f;
  count_draws(row, 2000, counts);
  for (int i = 0; i < N; i++)
    assert_int_equal(counts[i] > 0, i < 3);
}

static void test_penalties(void **state) {
  (void)state;
  iso_sample_row row = fresh();
  int32_t history[] = {17, -1, 34, 34, 17};
  row.history = history;
  row.n_history = 5;
  row.output_start = 2;
  parameters[ISO_SAMPLE_TEMPERATURE] = 0;
  assert_int_equal(token_of(&row), 17);
  parameters[ISO_SAMPLE_FREQUENCY_PENALTY] = 0.3f; /* 17: 9.75 - 0.3, 34: 9.5 - 0.6, 11: 9.25 */
  assert_int_equal(token_of(&row), 17);
  parameters[ISO_SAMPLE_PRESENCE_PENALTY] = 0.3f; /* 17: 9.15 */
  assert_int_equal(token_of(&row), 11);
  row.output_start = 5; /* all of it is prompt */
  assert_int_equal(token_of(&row), 17);
  parameters[ISO_SAMPLE_REPETITION_PENALTY] = 2;
  assert_int_equal(token_of(&row), 11);
  /* Negative logits are multiplied, and once however often a token occurs. */
  for (int i = 0; i < N; i++)
    logits[i] = i == 34 ? -1.0f : -1.9f;
  assert_int_equal(token_of(&row), 0);
  for (int i = 0; i < N; i++)
    logits[i] = i == 34 ? -1.0f : -2.1f;
  assert_int_equal(token_of(&row), 34);
}

static void test_impossible_tokens(void **state) {
  (void)state;
  iso_sample_row row = fresh();
  uint32_t allowed[2] = {1u << 3 | 1u << 9, 0};
  row.allowed = allowed;
  int counts[N];
  parameters[ISO_SAMPLE_TEMPERATURE] = 50;
  count_draws(row, 200, counts);
  assert_int_equal(counts[3] + counts[9], 200);
  assert_true(counts[3] > 0 && counts[9] > 0);
  logits[3] = NAN;
  logits[9] = -INFINITY;
  assert_int_equal(token_of(&row), -1);
  parameters[ISO_SAMPLE_TEMPERATURE] = 0;
  assert_int_equal(token_of(&row), -1);
  row.allowed = NULL;
  logits[17] = NAN;
  assert_int_equal(token_of(&row), 34);
  logits[20] = INFINITY;
  parameters[ISO_SAMPLE_TEMPERATURE] = 1;
  assert_int_equal(token_of(&row), 20);
  for (int i = 0; i < N; i++)
    logits[i] = NAN;
  assert_int_equal(token_of(&row), -1);
}

/* The definitions of ops/sampling.h once more, in double and one after another. */
typedef struct plain_token {
  double logit, p;
  int32_t token;
} plain_token;

static int by_logit(const void *a, const void *b) {
  const plain_token *x = a, *y = b;
  return x->logit < y->logit ? 1 : x->logit > y->logit ? -1 : x->token - y->token;
}

static int32_t plain_sample(const iso_sample_row *row, plain_token *tokens) {
  const float *p = row->parameters;
  int64_t n = 0;
  for (int64_t i = 0; i < row->n_logits; i++)
    if ((row->allowed[i / 32] >> i % 32 & 1) && row->logits[i] > -INFINITY)
      tokens[n++] = (plain_token){.logit = row->logits[i], .token = (int32_t)i};
  qsort(tokens, (size_t)n, sizeof *tokens, by_logit);
  int64_t k = (int64_t)p[ISO_SAMPLE_TOP_K];
  if (k > 0 && k < n)
    while (n > k && tokens[n - 1].logit < tokens[k - 1].logit)
      n--;
  double total = 0, larger = 0;
  for (int64_t i = 0; i < n; i++)
    total += tokens[i].p = exp((tokens[i].logit - tokens[0].logit) / p[ISO_SAMPLE_TEMPERATURE]);
  int64_t kept = 1;
  while (kept < n && (larger += tokens[kept - 1].p) < p[ISO_SAMPLE_TOP_P] * total)
    kept++;
  while (kept > 1 && tokens[kept - 1].p < p[ISO_SAMPLE_MIN_P])
    kept--;
  int32_t best = -1;
  double most = -INFINITY;
  for (int64_t i = 0; i < kept; i++) {
    uint32_t counter[4] = {(uint32_t)tokens[i].token / 4, row->draw, 0, 0}, words[4];
    iso_philox(row->seed, counter, words);
    uint32_t word = words[tokens[i].token % 4];
    float v = (float)(word >> 8) * 0x1p-24f + ((float)(word & 255) + 0.5f) * 0x1p-32f;
    double score = tokens[i].logit / p[ISO_SAMPLE_TEMPERATURE] - log(-log1p(-(double)v));
    if (score > most) {
      most = score;
      best = tokens[i].token;
    }
  }
  return best;
}

static void test_many_tokens_follow_the_definition(void **state) {
  (void)state;
  enum { MANY = 5003, WORDS = (MANY + 31) / 32 };
  static float many[MANY];
  static plain_token tokens[MANY];
  static iso_sample_candidate scratch[MANY];
  uint32_t allowed[WORDS];
  iso_sample_row row = fresh();
  row.logits = many;
  row.n_logits = MANY;
  row.allowed = allowed;
  static const float temperatures[] = {0.3f, 1, 4}, ks[] = {0, 1, 40, 900};
  static const float ps[] = {1, 0.95f, 0.5f}, minimums[] = {0, 0.02f};
  uint32_t random = 5;
  for (int i = 0; i < 72 * 4; i++) {
    for (int j = 0; j < MANY; j++) {
      random = random * 1664525 + 1013904223;
      many[j] = j % 97 == 5 ? NAN : (float)(int32_t)random * 0x1p-29f; /* -4 to 4 */
    }
    for (int j = 0; j < WORDS; j++)
      allowed[j] = i % 2 ? UINT32_MAX : j % 3 == 0 ? 0 : 0xfff0ff0fu;
    parameters[ISO_SAMPLE_TEMPERATURE] = temperatures[i % 3];
    parameters[ISO_SAMPLE_TOP_K] = ks[i / 3 % 4];
    parameters[ISO_SAMPLE_TOP_P] = ps[i / 12 % 3];
    parameters[ISO_SAMPLE_MIN_P] = minimums[i / 36 % 2];
    row.draw = (uint32_t)i;
    int32_t token;
    assert_int_equal(iso_sample_token(&row, scratch, &token), ISO_OK);
    assert_int_equal(token, plain_sample(&row, tokens));
  }
}

/* One candidate left wins even with the least noise there is. */
static void test_a_single_token(void **state) {
  (void)state;
  iso_sample_row row = fresh();
  row.n_logits = 1;
  for (uint32_t draw = 0; draw < 10000; draw++) {
    row.draw = draw;
    assert_int_equal(token_of(&row), 0);
  }
}

static void assert_refused(const iso_sample_row *row, const char *message) {
  int32_t token;
  assert_int_equal(iso_sample_token(row, candidates, &token), ISO_ERROR_INVALID_ARGUMENT);
  if (!strstr(iso_status_message(), message))
    fail_msg("got \"%s\", want \"%s\"", iso_status_message(), message);
}

static void test_bad_parameters(void **state) {
  (void)state;
  iso_sample_row row = fresh();
  parameters[ISO_SAMPLE_TEMPERATURE] = -1;
  assert_refused(&row, "temperature is -1");
  parameters[ISO_SAMPLE_TEMPERATURE] = NAN;
  assert_refused(&row, "temperature is");
  fresh();
  parameters[ISO_SAMPLE_TOP_P] = 1.5f;
  assert_refused(&row, "top_p is 1.5, must be 0 to 1");
  fresh();
  parameters[ISO_SAMPLE_REPETITION_PENALTY] = 0;
  assert_refused(&row, "repetition_penalty is 0");
  fresh();
  parameters[ISO_SAMPLE_PRESENCE_PENALTY] = 1;
  int32_t history[] = {N};
  row.history = history;
  row.n_history = 1;
  assert_refused(&row, "history holds token 40, the vocabulary has 40");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_philox_known_answers),
      cmocka_unit_test(test_draws_follow_the_softmax),
      cmocka_unit_test(test_filters_keep_the_right_tokens),
      cmocka_unit_test(test_penalties),
      cmocka_unit_test(test_impossible_tokens),
      cmocka_unit_test(test_many_tokens_follow_the_definition),
      cmocka_unit_test(test_a_single_token),
      cmocka_unit_test(test_bad_parameters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
