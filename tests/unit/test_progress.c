#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "core/progress.h"
#include <fcntl.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void expect(const char *wanted, uint64_t done, uint64_t total, double seconds) {
  char text[160];
  iso_progress_format(text, sizeof text, "load", done, total, seconds);
  assert_string_equal(text, wanted);
}

static void test_format(void **state) {
  (void)state;
  expect("load [........................]   0%  0 B / 100 B  -/s  - left", 0, 100, 0);
  expect("load [############............]  50%  512 MiB / 1.0 GiB  256 MiB/s  0:02 left",
         UINT64_C(512) << 20, UINT64_C(1) << 30, 2);
  expect("load [########################] 100%  10 B / 10 B  5 B/s  0:00 left", 10, 10, 2);
  expect("load [########################] 100%  0 B / 0 B  -/s  - left", 0, 0, 1);
  expect("load [........................]   0%  1 B / 35.2 KiB  1 B/s  10:00:00 left", 1, 36001, 1);
  char tiny[8];
  iso_progress_format(tiny, sizeof tiny, "load", UINT64_MAX - 1, UINT64_MAX, 1e-300);
  assert_int_equal(strlen(tiny), 7);
}

static void test_silent_without_a_terminal(void **state) {
  (void)state;
  char path[] = "/tmp/isomer-progress-XXXXXX";
  FILE *stream = fdopen(mkstemp(path), "w+");
  assert_non_null(stream);
  unlink(path);
  iso_progress_bar bar;
  iso_progress_bar_begin(&bar, stream);
  iso_progress_bar_update(&bar, "load", 1, 2);
  iso_progress_bar_update(&bar, "load", 2, 2);
  assert_int_equal(ftell(stream), 0);
  fclose(stream);
}

static void test_throttled_on_a_terminal(void **state) {
  (void)state;
  int controller, terminal;
  assert_int_equal(openpty(&controller, &terminal, NULL, NULL, NULL), 0);
  /* An unthrottled bar then loses text, and fails below, rather than wait for a reader. */
  assert_int_equal(fcntl(terminal, F_SETFL, O_NONBLOCK), 0);
  FILE *stream = fdopen(terminal, "w");
  assert_non_null(stream);
  iso_progress_bar bar;
  iso_progress_bar_begin(&bar, stream);
  for (uint64_t done = 0; done <= 100000; done++)
    iso_progress_bar_update(&bar, "load", done, 100000);
  char text[4096];
  size_t size = 0;
  do { /* a terminal gives what it has, in pieces */
    ssize_t got = read(controller, text + size, sizeof text - 1 - size);
    assert_true(got > 0);
    size += (size_t)got;
  } while (text[size - 1] != '\n' && size < sizeof text - 1);
  text[size] = 0;
  assert_non_null(strstr(text, "load ["));
  assert_non_null(strstr(text, "100%"));
  assert_int_equal(text[size - 1], '\n');
  assert_true(size < 3000); /* a few redraws, not a hundred thousand */
  fclose(stream);
  close(controller);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_format),
      cmocka_unit_test(test_silent_without_a_terminal),
      cmocka_unit_test(test_throttled_on_a_terminal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
