/* The whole conformance grid on the device CONFORM_DEVICE, a test an op. Included by one program a
 * device, which says which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "ops/conform/conform.h"
#include <stdio.h>

static iso_registry *registry;
static iso_open_device *device;

static int open_device(void **state) {
  (void)state;
  if (iso_registry_create(&registry) == ISO_OK &&
      iso_device_open(registry, CONFORM_DEVICE, NULL, &device) == ISO_OK)
    return 0;
  print_error("%s\n", iso_status_message());
  return 1;
}

static int close_device(void **state) {
  (void)state;
  iso_device_close(device);
  iso_registry_destroy(registry);
  return 0;
}

static bool show_failure(void *context, const iso_conform_report *report) {
  (void)context;
  if (report->result != ISO_CONFORM_PASS)
    print_error("%s: %s: %s\n", report->text, report->kernel, report->detail);
  return true;
}

static void test_op(void **state) {
  iso_conform_options options = {.op = *state, .seed = 1};
  iso_conform_summary summary;
  if (iso_conform_run(device, &options, show_failure, NULL, &summary) != ISO_OK)
    fail_msg("%s", iso_status_message());
  print_message("%s: %u runs\n", options.op, summary.n_passed);
  assert_int_equal(summary.n_failed, 0);
  assert_int_equal(summary.n_unsupported, 0);
  assert_true(summary.n_passed > 10);
}

static void test_memory(void **state) {
  (void)state;
  if (iso_conform_memory(device) != ISO_OK)
    fail_msg("%s", iso_status_message());
  iso_status status = iso_conform_large_memory(device);
  if (status == ISO_ERROR_OUT_OF_MEMORY)
    print_message("refused: %s\n", iso_status_message());
  else if (status != ISO_OK)
    fail_msg("%s", iso_status_message());
}

int main(void) {
  struct CMUnitTest tests[ISO_OP_COUNT + 1];
  for (int op = 0; op < ISO_OP_COUNT; op++) {
    const char *name = iso_op_get_info((iso_op)op)->name;
    tests[op] = (struct CMUnitTest){name, test_op, NULL, NULL, (void *)(uintptr_t)name};
  }
  tests[ISO_OP_COUNT] = (struct CMUnitTest){"memory", test_memory, NULL, NULL, NULL};
  return cmocka_run_group_tests(tests, open_device, close_device);
}
