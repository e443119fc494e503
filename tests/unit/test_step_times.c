/* What steps take is kept by their number of rows, and guessed between. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/step_times.h"

static void learn(iso_step_times *times, int32_t n_rows, double us, int n) {
  for (int i = 0; i < n; i++)
    iso_step_times_learn(times, n_rows, us);
}

static void assert_near(double got, double wanted, double share) {
  if (!(got >= wanted * (1 - share) && got <= wanted * (1 + share)))
    fail_msg("%g is not near %g", got, wanted);
}

/* One size: a row more is a third of what it costs alone. */
static void test_one_size(void **state) {
  (void)state;
  iso_step_times times = {0};
  assert_true(iso_step_times_guess(&times, 2) > iso_step_times_guess(&times, 1));
  learn(&times, 1, 300, 5);
  assert_near(iso_step_times_guess(&times, 1), 300, 0.001);
  assert_near(iso_step_times_guess(&times, 2), 400, 0.001);
  assert_near(iso_step_times_guess(&times, 4), 600, 0.001);
  assert_true(iso_step_times_guess(&times, 1000) > 0);
}

/* A price that jumps is known where it does, and nowhere else. */
static void test_jump(void **state) {
  (void)state;
  static const double us[] = {0, 100, 119, 157, 206, 303, 340};
  iso_step_times times = {0};
  for (int round = 0; round < 5; round++)
    for (int32_t n = 1; n <= 6; n++)
      if (n != 3)
        iso_step_times_learn(&times, n, us[n]);
  for (int32_t n = 1; n <= 6; n++)
    assert_near(iso_step_times_guess(&times, n), n == 3 ? (us[2] + us[4]) / 2 : us[n], 0.03);
  assert_true(iso_step_times_guess(&times, 8) > us[6]);
}

/* The first runs of a size are slow, and now and then something holds one up. */
static void test_outliers(void **state) {
  (void)state;
  iso_step_times times = {0};
  learn(&times, 2, 5000, 2);
  learn(&times, 2, 100, 1);
  assert_near(iso_step_times_guess(&times, 2), 100, 0.001);
  learn(&times, 2, 1e9, 1);
  assert_near(iso_step_times_guess(&times, 2), 110, 0.001);
  learn(&times, 2, 200, 100);
  assert_near(iso_step_times_guess(&times, 2), 200, 0.01);
  learn(&times, 2, 100, 100);
  assert_near(iso_step_times_guess(&times, 2), 100, 0.01);
}

/* What was dear once is tried again some day. */
static void test_fading(void **state) {
  (void)state;
  iso_step_times times = {0};
  learn(&times, 4, 1000, 3);
  learn(&times, 1, 100, 2000);
  assert_true(iso_step_times_guess(&times, 4) < 200);
  assert_near(iso_step_times_guess(&times, 1), 100, 0.001);
}

/* Many rows go by the line alone. */
static void test_many_rows(void **state) {
  (void)state;
  iso_step_times times = {0};
  for (int i = 0; i < 200; i++)
    iso_step_times_learn(&times, 100 + i % 20, 1000 + 2 * (100 + i % 20));
  assert_near(iso_step_times_guess(&times, 128), 1256, 0.01);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_size), cmocka_unit_test(test_jump),
                                     cmocka_unit_test(test_outliers), cmocka_unit_test(test_fading),
                                     cmocka_unit_test(test_many_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
