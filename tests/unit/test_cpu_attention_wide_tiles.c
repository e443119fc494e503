/* Attention of many and of few rows on emulated tiles, by the conformance suite, on CPUs with
 * AVX-512 and BF16.
 *
 * This file defines iso_cpu_attention_amx before the library's own is linked, so that the record of
 * tier amx runs the emulation. */
#pragma GCC push_options
#pragma GCC target(                                                                                \
    "avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx512vbmi")
#define ISO_TILES_HEADER "tests/unit/tile_emulation.h"
#include "backends/cpu/attention_amx.c"
#pragma GCC pop_options

#include "cpu_device.h"
#include "ops/conform/conform.h"

static bool can_run;
static iso_registry *registry;
static iso_open_device *device;
static uint32_t n_tile_runs;

static int open_device(void **state) {
  (void)state;
  iso_cpu_machine machine;
  iso_cpu_machine_detect(&machine);
  setenv("ISOMER_CPU_ISA", "avx512", 1);
  can_run = machine.features & ISO_CPU_HAS_AVX512_BF16;
  if (!can_run) {
    print_message("no AVX-512 with BF16 here: the tile kernels are not run\n");
    return 0;
  }
  iso_device_options options = {.size = sizeof options, .n_threads = 2};
  assert_int_equal(iso_registry_create(&registry), ISO_OK);
  assert_int_equal(iso_device_open(registry, "cpu", &options, &device), ISO_OK);
  device->device->tier = ISO_CPU_TIER_AMX;
  return 0;
}

static int close_device(void **state) {
  (void)state;
  if (can_run) {
    iso_device_close(device);
    iso_registry_destroy(registry);
  }
  return 0;
}

static bool check_report(void *context, const iso_conform_report *report) {
  (void)context;
  n_tile_runs += strcmp(report->kernel, "paged_attention.amx") == 0;
  if (report->result == ISO_CONFORM_FAIL)
    print_error("%s: %s: %s\n", report->text, report->kernel, report->detail);
  return true;
}

static void run_cases(const char *const *cases, size_t n_cases) {
  for (size_t i = 0; can_run && i < n_cases; i++) {
    iso_conform_options options = {.text = cases[i], .seed = 2};
    iso_conform_summary summary;
    n_tile_runs = 0;
    assert_int_equal(iso_conform_run(device, &options, check_report, NULL, &summary), ISO_OK);
    assert_int_equal(summary.n_failed, 0);
    assert_int_equal(n_tile_runs, 1);
  }
}

/* Many blocks, windows, caps and slopes. */
static void many_rows_are_right(void **state) {
  (void)state;
  static const char *const cases[] = {
      "paged_attention T=33 H=4 G=2 D=64 E=64 P=30 S=16 Q=3 B=8 batch=mixed cache=bf16",
      "paged_attention T=257 H=4 G=1 D=64 E=64 P=40 S=16 Q=1 B=20 batch=prefill cache=bf16",
      "paged_attention T=257 H=4 G=1 D=64 E=64 P=40 S=16 Q=1 B=20 batch=prefill cache=bf16 "
      "rows=bf16",
      "paged_attention T=90 H=6 G=2 D=128 E=80 P=40 S=64 Q=2 B=8 batch=mixed cache=bf16 fill=sharp",
      "paged_attention T=90 H=6 G=2 D=128 E=80 P=40 S=64 Q=2 B=8 batch=mixed cache=f16 fill=sharp",
      "paged_attention T=90 H=6 G=2 D=128 E=128 P=40 S=64 Q=2 B=8 batch=mixed cache=bf16 window=40",
      "paged_attention T=90 H=6 G=2 D=64 E=80 P=60 S=7 Q=2 B=24 batch=mixed cache=bf16 rows=bf16 "
      "soft_cap=5 alibi_slopes=f32",
      "paged_attention T=70 H=2 G=2 D=32 E=16 P=40 S=16 Q=1 B=12 batch=mixed cache=bf16 causal=0",
      "paged_attention T=90 H=6 G=2 D=128 E=80 P=40 S=64 Q=2 B=8 batch=mixed cache=f16 window=40",
      "paged_attention T=90 H=6 G=2 D=64 E=80 P=60 S=7 Q=2 B=24 batch=mixed cache=f16 soft_cap=5 "
      "alibi_slopes=f32",
      "paged_attention T=257 H=4 G=1 D=64 E=64 P=40 S=16 Q=1 B=20 batch=prefill cache=f16 rows=f16",
  };
  run_cases(cases, sizeof cases / sizeof cases[0]);
}

/* Heads and values of other widths, rows in fours and not, and pages that end within a tile. */
static void few_rows_are_right(void **state) {
  (void)state;
  static const char *const cases[] = {
      "paged_attention T=5 H=32 G=8 D=64 E=64 P=80 S=64 Q=5 B=12 batch=decode cache=bf16",
      "paged_attention T=5 H=32 G=8 D=128 E=128 P=80 S=64 Q=5 B=12 batch=decode cache=bf16 "
      "rows=bf16",
      "paged_attention T=5 H=8 G=1 D=128 E=64 P=80 S=7 Q=5 B=40 batch=decode cache=bf16 window=40",
      "paged_attention T=5 H=6 G=2 D=256 E=160 P=80 S=24 Q=5 B=16 batch=decode cache=bf16 "
      "soft_cap=5 alibi_slopes=f32",
      "paged_attention T=3 H=11 G=1 D=32 E=96 P=80 S=16 Q=3 B=30 batch=decode cache=bf16",
  };
  run_cases(cases, sizeof cases / sizeof cases[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many_rows_are_right),
      cmocka_unit_test(few_rows_are_right),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
