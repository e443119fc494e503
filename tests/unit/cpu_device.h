/* Opens the CPU backend as a host would, for the tests of its parts. */
#ifndef ISOMER_TESTS_UNIT_CPU_DEVICE_H
#define ISOMER_TESTS_UNIT_CPU_DEVICE_H

#include "backends/cpu/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void cpu_test_log(iso_log_level level, const char *format, ...) {
  (void)level;
  (void)format;
}

static const iso_host cpu_test_host = {sizeof(iso_host), ISO_ABI_VERSION, iso_fail_at,
                                       cpu_test_log};

typedef struct cpu_test_device {
  const iso_backend *backend;
  iso_device *device;
  iso_queue *queue;
} cpu_test_device;

/* Opens "cpu:0" at the tier `isa` names (NULL: the highest). False when the machine lacks it. */
static inline bool cpu_test_open(cpu_test_device *out_device, const char *isa, uint32_t n_threads) {
  iso_device_options options = {sizeof options, n_threads};
  if (isa)
    setenv("ISOMER_CPU_ISA", isa, 1);
  else
    unsetenv("ISOMER_CPU_ISA");
  out_device->backend = iso_cpu_backend_query(ISO_ABI_VERSION, &cpu_test_host);
  assert_non_null(out_device->backend);
  iso_status status = out_device->backend->driver->open(0, &options, &out_device->device);
  unsetenv("ISOMER_CPU_ISA");
  if (status == ISO_ERROR_UNSUPPORTED && isa) {
    print_message("tier %s: %s\n", isa, iso_status_message());
    return false;
  }
  assert_int_equal(status, ISO_OK);
  assert_int_equal(out_device->backend->queue->create(out_device->device, &out_device->queue),
                   ISO_OK);
  return true;
}

static inline void cpu_test_close(cpu_test_device *device) {
  device->backend->queue->destroy(device->queue);
  device->backend->device->close(device->device);
}

/* Runs the tests once a tier of this machine, on `*device` with three threads. */
static inline int cpu_test_each_tier(cpu_test_device *device, const struct CMUnitTest *tests,
                                     size_t n_tests) {
  int failures = 0;
  for (iso_cpu_tier tier = 0; tier < ISO_CPU_TIER_COUNT; tier++) {
    if (!cpu_test_open(device, iso_cpu_tier_name(tier), 3))
      continue;
    print_message("tier %s\n", iso_cpu_tier_name(tier));
    failures += _cmocka_run_group_tests(iso_cpu_tier_name(tier), tests, n_tests, NULL, NULL);
    cpu_test_close(device);
  }
  return failures;
}

#endif
