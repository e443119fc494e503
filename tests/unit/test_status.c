#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <isomer/status.h>
#include <string.h>

static void test_fail_keeps_the_sentence(void **state) {
  (void)state;
  assert_int_equal(iso_fail(ISO_ERROR_IO, "reading %s", "x"), ISO_ERROR_IO);
  assert_string_equal(iso_status_message(), "reading x");
  assert_non_null(strstr(iso_status_place(), "test_status.c:"));
  assert_int_equal(iso_fail_context(ISO_ERROR_IO, "model %d", 7), ISO_ERROR_IO);
  assert_string_equal(iso_status_message(), "model 7: reading x");
}

static void test_fail_may_quote_itself(void **state) {
  (void)state;
  (void)iso_fail(ISO_ERROR_IO, "inner");
  (void)iso_fail(ISO_ERROR_DEVICE, "outer: %s", iso_status_message());
  assert_string_equal(iso_status_message(), "outer: inner");
}

static void test_long_messages_are_cut(void **state) {
  (void)state;
  char big[5000];
  memset(big, 'a', sizeof big - 1);
  big[sizeof big - 1] = 0;
  (void)iso_fail(ISO_ERROR_LIMIT, "%s", big);
  assert_int_equal(strlen(iso_status_message()), 1023);
  (void)iso_fail_context(ISO_ERROR_LIMIT, "%s", big);
  assert_int_equal(strlen(iso_status_message()), 1023);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fail_keeps_the_sentence),
      cmocka_unit_test(test_fail_may_quote_itself),
      cmocka_unit_test(test_long_messages_are_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
