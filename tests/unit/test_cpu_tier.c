/* Tiers: chosen from feature bits, forced by name, refused with what is missing. */
#include "cpu_device.h"

#define AVX2 (ISO_CPU_HAS_AVX2 | ISO_CPU_HAS_FMA | ISO_CPU_HAS_F16C | ISO_CPU_HAS_BMI2)
#define AVX512                                                                                     \
  (AVX2 | ISO_CPU_HAS_AVX512F | ISO_CPU_HAS_AVX512BW | ISO_CPU_HAS_AVX512DQ |                      \
   ISO_CPU_HAS_AVX512VL | ISO_CPU_HAS_AVX512_VNNI | ISO_CPU_HAS_AVX512_VBMI)
#define AMX                                                                                        \
  (AVX512 | ISO_CPU_HAS_AVX512_BF16 | ISO_CPU_HAS_AMX_TILE | ISO_CPU_HAS_AMX_INT8 |                \
   ISO_CPU_HAS_AMX_BF16)

static iso_cpu_tier tier;
static char reason[128];
static bool notice;

static iso_status choose(uint32_t features, iso_cpu_amx_grant amx, const char *forced) {
  iso_cpu_machine machine = {.features = features, .amx = amx, .brand = "Test CPU"};
  return iso_cpu_tier_choose(&machine, forced, &tier, reason, &notice);
}

static void the_highest_tier_is_chosen(void **state) {
  (void)state;
  const struct {
    uint32_t features;
    iso_cpu_amx_grant amx;
    iso_cpu_tier tier;
    const char *why;
  } cases[] = {
      {0, ISO_CPU_AMX_ABSENT, ISO_CPU_TIER_BASELINE, "avx2 needs avx2 fma f16c bmi2"},
      {AVX2 & ~ISO_CPU_HAS_FMA, ISO_CPU_AMX_ABSENT, ISO_CPU_TIER_BASELINE, "avx2 needs fma"},
      {AVX2, ISO_CPU_AMX_ABSENT, ISO_CPU_TIER_AVX2, "avx512 needs avx512f"},
      {AVX512 & ~ISO_CPU_HAS_AVX512_VNNI, ISO_CPU_AMX_ABSENT, ISO_CPU_TIER_AVX2, "avx512_vnni"},
      {AVX512, ISO_CPU_AMX_ABSENT, ISO_CPU_TIER_AVX512, "amx needs avx512_bf16 amx_tile"},
      {AMX, ISO_CPU_AMX_GRANTED, ISO_CPU_TIER_AMX, "highest"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_int_equal(choose(cases[i].features, cases[i].amx, i % 2 ? NULL : ""), ISO_OK);
    assert_int_equal(tier, cases[i].tier);
    assert_non_null(strstr(reason, cases[i].why));
    assert_false(notice);
  }
}

static void refused_amx_is_noticed_and_the_next_tier_runs(void **state) {
  (void)state;
  uint32_t without = AMX & ~(ISO_CPU_HAS_AMX_TILE | ISO_CPU_HAS_AMX_INT8 | ISO_CPU_HAS_AMX_BF16);
  assert_int_equal(choose(without, ISO_CPU_AMX_REFUSED, NULL), ISO_OK);
  assert_int_equal(tier, ISO_CPU_TIER_AVX512);
  assert_true(notice);
  assert_non_null(strstr(reason, "refused AMX"));
  assert_int_equal(choose(without, ISO_CPU_AMX_REFUSED, "amx"), ISO_ERROR_UNSUPPORTED);
  assert_non_null(strstr(iso_status_message(), "kernel refused"));
}

static void a_tier_can_be_forced(void **state) {
  (void)state;
  for (iso_cpu_tier wanted = 0; wanted < ISO_CPU_TIER_COUNT; wanted++) {
    assert_int_equal(choose(AMX, ISO_CPU_AMX_GRANTED, iso_cpu_tier_name(wanted)), ISO_OK);
    assert_int_equal(tier, wanted);
    assert_non_null(strstr(reason, "forced"));
  }
}

static void a_forced_tier_that_is_absent_is_refused(void **state) {
  (void)state;
  assert_int_equal(choose(AVX2, ISO_CPU_AMX_ABSENT, "avx512"), ISO_ERROR_UNSUPPORTED);
  assert_non_null(strstr(iso_status_message(), "Test CPU"));
  assert_non_null(strstr(iso_status_message(), "avx512f"));
  assert_null(strstr(iso_status_message(), "f16c"));
  assert_int_equal(choose(AVX512, ISO_CPU_AMX_ABSENT, "amx"), ISO_ERROR_UNSUPPORTED);
  assert_non_null(strstr(iso_status_message(), "amx_tile"));
}

static void an_unknown_tier_lists_the_choices(void **state) {
  (void)state;
  assert_int_equal(choose(AMX, ISO_CPU_AMX_GRANTED, "sse9"), ISO_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(iso_status_message(), "sse9"));
  assert_non_null(strstr(iso_status_message(), "baseline, avx2, avx512 or amx"));
}

static void lower_tiers_hide_higher_features(void **state) {
  (void)state;
  iso_cpu_machine machine = {.features = AMX};
  assert_int_equal(iso_cpu_tier_features(&machine, ISO_CPU_TIER_BASELINE), 0);
  assert_int_equal(iso_cpu_tier_features(&machine, ISO_CPU_TIER_AVX2), AVX2);
  assert_int_equal(iso_cpu_tier_features(&machine, ISO_CPU_TIER_AVX512),
                   AVX512 | ISO_CPU_HAS_AVX512_BF16);
  assert_int_equal(iso_cpu_tier_features(&machine, ISO_CPU_TIER_AMX), AMX);
}

/* Every tier this machine has opens by name and says so; the others are refused. */
static void the_machine_opens_its_tiers(void **state) {
  (void)state;
  iso_cpu_machine machine;
  iso_cpu_machine_detect(&machine);
  assert_true(machine.brand[0]);
  for (iso_cpu_tier wanted = 0; wanted < ISO_CPU_TIER_COUNT; wanted++) {
    cpu_test_device device;
    bool has = choose(machine.features, machine.amx, iso_cpu_tier_name(wanted)) == ISO_OK;
    assert_int_equal(cpu_test_open(&device, iso_cpu_tier_name(wanted), 1), has);
    if (!has)
      continue;
    iso_device_info info;
    assert_int_equal(device.backend->device->info(device.device, &info), ISO_OK);
    assert_non_null(strstr(info.name, machine.brand));
    assert_non_null(strstr(info.name, iso_cpu_tier_name(wanted)));
    assert_non_null(strstr(info.detail, "forced"));
    cpu_test_close(&device);
  }
}

int main(void) {
  iso_cpu_backend_query(ISO_ABI_VERSION, &cpu_test_host);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_highest_tier_is_chosen),
      cmocka_unit_test(refused_amx_is_noticed_and_the_next_tier_runs),
      cmocka_unit_test(a_tier_can_be_forced),
      cmocka_unit_test(a_forced_tier_that_is_absent_is_refused),
      cmocka_unit_test(an_unknown_tier_lists_the_choices),
      cmocka_unit_test(lower_tiers_hide_higher_features),
      cmocka_unit_test(the_machine_opens_its_tiers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
