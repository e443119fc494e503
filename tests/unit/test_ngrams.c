/* Earlier places that end alike: what a scan of the whole row finds, without one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine/ngrams.h"

/* The rule, word by word. */
static int32_t scan(const int32_t *tokens, int32_t n, int32_t *out_length) {
  int32_t best = 0;
  *out_length = 0;
  for (int32_t end = n - 1; end > 0 && *out_length < ISO_NGRAMS_LONGEST; end--) {
    int32_t length = 0;
    while (length < ISO_NGRAMS_LONGEST && length < end &&
           tokens[end - 1 - length] == tokens[n - 1 - length])
      length++;
    if (length > *out_length) {
      *out_length = length;
      best = end;
    }
  }
  return best;
}

/* Whether of the four latest places that end in the same two tokens, or one where no more agrees,
 * more go on otherwise than the place found than like it. */
static bool scan_dispute(const int32_t *tokens, int32_t n, int32_t length, int32_t place) {
  int32_t n_seen = 0, balance = 0;
  for (int32_t end = n - 1; end > 0 && n_seen < 4; end--) {
    if (tokens[end - 1] != tokens[n - 1] ||
        (length > 1 && (end < 2 || tokens[end - 2] != tokens[n - 2])))
      continue;
    n_seen++;
    if (end != place)
      balance += tokens[end] == tokens[place] ? -1 : 1;
  }
  return balance > 0;
}

static uint32_t next(uint32_t *seed) { return *seed = *seed * 1664525u + 1013904223u; }

/* Words of a few tokens each, said in any order: pairs repeat less often than places are looked at,
 * so that the answer is the scan's. */
static void test_equals_a_scan(void **state) {
  (void)state;
  enum { N = 3000 };
  static int32_t tokens[N];
  int n_found = 0, n_disputed = 0;
  for (uint32_t text = 1; text <= 6; text++) {
    iso_ngrams ngrams = {0};
    uint32_t seed = text;
    for (int32_t n = 0; n < N;) {
      uint32_t word = next(&seed) >> 16;
      int32_t length = 1 + (int32_t)(word % 60 * 7 % 30), kind = (int32_t)(word % 60);
      int32_t fresh = 1 + (int32_t)(next(&seed) >> 16) % 3; /* tokens drafted at once */
      for (int32_t i = 0; i < length && n < N; i++)
        tokens[n++] = 100 * kind + i * (1 + (int32_t)text % 3);
      if (n % fresh != 0)
        continue;
      int32_t wanted, at = scan(tokens, n, &wanted);
      assert_int_equal(iso_ngrams_add(&ngrams, tokens, n), ISO_OK);
      assert_int_equal(ngrams.n, n);
      iso_ngram_match found = iso_ngrams_find(&ngrams, tokens);
      n_found += wanted > 1;
      assert_int_equal(found.length, wanted);
      assert_int_equal(found.place, at);
      assert_int_equal(found.is_disputed, at > 0 && scan_dispute(tokens, n, wanted, at));
      n_disputed += found.is_disputed;
    }
    iso_ngrams_destroy(&ngrams);
  }
  assert_true(n_found > 200);
  assert_in_range(n_disputed, 100, n_found);
}

/* One token for ever: the latest place, as far back as matches go. */
static void test_repetition(void **state) {
  (void)state;
  static int32_t tokens[5000];
  iso_ngrams ngrams = {0};
  for (int32_t n = 1; n <= 5000; n++) {
    assert_int_equal(iso_ngrams_add(&ngrams, tokens, n), ISO_OK);
    iso_ngram_match found = iso_ngrams_find(&ngrams, tokens);
    assert_int_equal(found.place, n - 1);
    assert_false(found.is_disputed);
    assert_int_equal(found.length, n - 1 < ISO_NGRAMS_LONGEST ? n - 1 : ISO_NGRAMS_LONGEST);
  }
  iso_ngrams_destroy(&ngrams);
}

/* A place further back than those looked at is kept while it goes on agreeing. */
static void test_far_match_goes_on(void **state) {
  (void)state;
  enum { COPY = 200, N = 20000 };
  static int32_t tokens[N + COPY];
  iso_ngrams ngrams = {0};
  uint32_t seed = 5;
  int32_t length = 0;
  for (int32_t i = 0; i < COPY; i++)
    tokens[i] = i < 2 ? 1000 + i : (int32_t)(next(&seed) >> 28) % 4;
  for (int32_t i = COPY; i < N; i++)
    tokens[i] = (int32_t)(next(&seed) >> 28) % 4;
  for (int32_t i = 0; i < COPY; i++) {
    tokens[N + i] = tokens[i];
    assert_int_equal(iso_ngrams_add(&ngrams, tokens, N + i + 1), ISO_OK);
    iso_ngram_match found = iso_ngrams_find(&ngrams, tokens);
    if (i > 0)
      assert_int_equal(found.place, i + 1);
    length = found.length;
  }
  assert_int_equal(length, ISO_NGRAMS_LONGEST);
  iso_ngrams_destroy(&ngrams);
}

static double cpu_seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A token behind 131,072 others costs about what one behind 2,048 does; a scan 64 times that. */
static void test_cost_does_not_grow(void **state) {
  (void)state;
  enum { SHORT = 2048, LONG = 131072, STEPS = 4000 };
  static int32_t tokens[LONG + STEPS];
  static const int32_t starts[2] = {SHORT, LONG};
  double took[2];
  uint32_t seed = 7;
  int32_t length, sum = 0;
  for (int32_t i = 0; i < LONG + STEPS; i++)
    tokens[i] = (int32_t)(next(&seed) >> 28) % 4;
  for (int k = 0; k < 2; k++) {
    iso_ngrams ngrams = {0};
    assert_int_equal(iso_ngrams_add(&ngrams, tokens, starts[k]), ISO_OK);
    double start = cpu_seconds();
    for (int32_t i = 1; i <= STEPS; i++) {
      assert_int_equal(iso_ngrams_add(&ngrams, tokens, starts[k] + i), ISO_OK);
      sum += iso_ngrams_find(&ngrams, tokens).place;
    }
    took[k] = cpu_seconds() - start;
    iso_ngrams_destroy(&ngrams);
  }
  double start = cpu_seconds();
  for (int32_t i = 0; i < 50; i++)
    sum += scan(tokens, LONG + i, &length);
  printf("a token: %.2f us behind %d, %.2f us behind %d; scan %.0f us (%d)\n",
         took[0] / STEPS * 1e6, SHORT, took[1] / STEPS * 1e6, LONG,
         (cpu_seconds() - start) / 50 * 1e6, sum & 1);
  assert_true(took[1] < 8 * took[0] + 1e-3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equals_a_scan),
      cmocka_unit_test(test_repetition),
      cmocka_unit_test(test_far_match_goes_on),
      cmocka_unit_test(test_cost_does_not_grow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
