/* Large products through oneDNN, where it is built in: many rows, ragged columns, bias, gaps; and
 * when it must stay out. */
#include "cpu_device.h"

#include "backends/cpu/matmul/packed.h"
#include "ops/conform/conform.h"

static const char *const CASES[] = {
    "matmul *=300 N=300 K=2064 weight=bf16 bias=f32",
    "matmul *=257 N=17 K=1040 weight=bf16 bias=none rows=bf16 gap=64",
    "matmul *=130 N=272 K=1024 weight=bf16 bias=none x=bf16 y=f32",
    "matmul *=128 N=16 K=16 weight=bf16 bias=f32 gap=64",
    "matmul *=600 N=40 K=528 weight=bf16 bias=f32 gap=64 x=f16 y=f16",
    "matmul *=2x150 N=40 K=512 weight=bf16 bias=none gap=64",
    "matmul *=320 N=64 K=77 weight=bf16 bias=none",
    "matmul *=160 N=130 K=576 weight=bf16 bias=none fill=extreme",
    "matmul *=260 N=130 K=576 weight=bf16 bias=none fill=large",
};

static bool is_dense(const iso_kernel *kernel) { return strstr(kernel->name, "onednn") != NULL; }

static bool on_report(void *context, const iso_conform_report *report) {
  uint32_t *n_onednn = context;
  *n_onednn += strstr(report->kernel, "onednn") != NULL;
  if (report->result != ISO_CONFORM_PASS)
    fail_msg("%s: %s: %s", report->text, report->kernel, report->detail);
  return true;
}

static iso_op_arguments product_of(int64_t rows, iso_scheme weight) {
  static const iso_matmul_attributes attributes = {.size = sizeof attributes};
  return (iso_op_arguments){
      .size = sizeof(iso_op_arguments),
      .op = ISO_OP_MATMUL,
      .n_inputs = 2,
      .n_outputs = 1,
      .inputs =
          {{.scheme = ISO_SCHEME_F32, .n_dims = 2, .dims = {rows, 64}, .strides = {256, 4}},
           {.scheme = weight, .layout = ISO_CPU_LAYOUT_GROUPS, .n_dims = 2, .dims = {32, 64}}},
      .outputs = {{.scheme = ISO_SCHEME_F32, .n_dims = 2, .dims = {rows, 32}}},
      .attributes = &attributes};
}

/* Every case passes with every record, and oneDNN has run where the machine lets it. */
static void products_match_the_reference(void **state) {
  (void)state;
  iso_registry *registry;
  iso_open_device *device;
  uint32_t n_onednn = 0;
  bool expected = false;
  assert_int_equal(iso_registry_create(&registry), ISO_OK);
  assert_int_equal(iso_device_open(registry, "cpu", NULL, &device), ISO_OK);
  iso_op_arguments large = product_of(4096, ISO_SCHEME_BF16);
  for (uint32_t i = 0; i < device->kernel_count; i++) {
    const iso_kernel *kernel = &device->kernels[i];
    const char *detail;
    expected |= is_dense(kernel) && kernel->check(device->device, &large, &detail) == ISO_ACCEPTED;
  }
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
    iso_conform_options options = {.text = CASES[i], .seed = 7};
    iso_conform_summary summary;
    if (iso_conform_run(device, &options, on_report, &n_onednn, &summary) != ISO_OK)
      fail_msg("%s: %s", CASES[i], iso_status_message());
    assert_true(summary.n_passed > 0);
  }
  assert_int_equal(n_onednn > 0, expected);
  iso_device_close(device);
  iso_registry_destroy(registry);
}

/* oneDNN does not know of ISOMER_CPU_ISA, and rounds activations of few rows for nothing. */
static void onednn_stays_out_of_lower_tiers_and_few_rows(void **state) {
  (void)state;
  iso_cpu_machine machine;
  iso_cpu_machine_detect(&machine);
  for (iso_cpu_tier tier = 0; tier < ISO_CPU_TIER_COUNT; tier++) {
    cpu_test_device device;
    if (!cpu_test_open(&device, iso_cpu_tier_name(tier), 1))
      continue;
    for (uint32_t i = 0; i < device.backend->kernel_count; i++) {
      const iso_kernel *kernel = &device.backend->kernels[i];
      iso_op_arguments large = product_of(4096, ISO_SCHEME_BF16);
      iso_op_arguments small = product_of(127, ISO_SCHEME_BF16);
      const char *detail = NULL;
      if (!is_dense(kernel))
        continue;
      assert_int_not_equal(kernel->check(device.device, &small, &detail), ISO_ACCEPTED);
      assert_non_null(detail);
      if (device.device->is_lowered || tier < ISO_CPU_TIER_AVX512)
        assert_int_equal(kernel->check(device.device, &large, &detail), ISO_REFUSED_DEVICE);
    }
    cpu_test_close(&device);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_match_the_reference),
      cmocka_unit_test(onednn_stays_out_of_lower_tiers_and_few_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
