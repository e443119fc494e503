/* The test program where there are no Vulkan headers: it is skipped, and says why. */
#include <stdio.h>

static void test_without_headers(void **state) {
  (void)state;
  print_message("the Vulkan headers are not installed\n");
  skip();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_without_headers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
