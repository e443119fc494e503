#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/stop_strings.h"

/* Feeds `text` in pieces of `piece` bytes; returns what is shown (malloc'ed) and whether it
 * stopped. */
static char *show(const char *const *stops, int n_stops, const char *text, size_t piece,
                  bool *out_stopped) {
  iso_stop_strings stop;
  iso_stop_strings_init(&stop, stops, n_stops);
  char *shown = calloc(strlen(text) + 1, 1);
  *out_stopped = false;
  for (size_t at = 0; at < strlen(text) && !*out_stopped; at += piece) {
    size_t length = strlen(text) - at < piece ? strlen(text) - at : piece, ready;
    assert_int_equal(iso_stop_strings_add(&stop, text + at, length, &ready, out_stopped), ISO_OK);
    strncat(shown, stop.held, ready);
    iso_stop_strings_shown(&stop, ready);
  }
  if (!*out_stopped)
    strncat(shown, stop.held ? stop.held : "", stop.length);
  iso_stop_strings_destroy(&stop);
  return shown;
}

static void check(const char *const *stops, int n_stops, const char *text, const char *expected) {
  for (size_t piece = 1; piece <= strlen(text); piece++) {
    bool stopped;
    char *shown = show(stops, n_stops, text, piece, &stopped);
    assert_string_equal(shown, expected);
    assert_int_equal(stopped, strlen(expected) < strlen(text));
    free(shown);
  }
}

/* However the text is cut, nothing of the stop string leaks and nothing before it is lost. */
static void test_every_cut(void **state) {
  (void)state;
  const char *const end[] = {"END"};
  check(end, 1, "the ENEND of it", "the EN");
  check(end, 1, "the EN of it", "the EN of it");
  check(end, 1, "E", "E");
  check(end, 1, "END", "");
  const char *const overlapping[] = {"aab", "ab\n", ""};
  check(overlapping, 3, "aaaab", "aa");
  check(overlapping, 3, "xab\ny", "x");
  check(NULL, 0, "anything", "anything");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_cut)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
