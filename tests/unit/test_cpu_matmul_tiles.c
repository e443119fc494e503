/* The tile kernels on emulated tiles, through the driver, on CPUs with AVX-512 and BF16.
 *
 * This file defines iso_amx_tile_kernel() before the library's own is linked, so that the records
 * of tier amx run the emulation. */
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
#define ISO_TILES_HEADER "tests/unit/tile_emulation.h"
#include "backends/cpu/matmul/tiles_amx.c"
#pragma GCC pop_options

#include "tile_case.h"

/* With bf16 weights the kernel leaves out 2^-17 of each activation. Otherwise both sides are
 * rounded to units of 1 / ISO_ACTIVATION_MAXIMUM of the largest of a stretch (here, of the row),
 * weights with up to three roundings, and of each term a product of low planes is left out, 37 by
 * 37 units in the square mean. Bounds of weights come from their scales: at most twice the largest.
 */
static double rounding(iso_scheme scheme, double x, double w, double most_x, double most_w) {
  double x_unit = most_x / ISO_ACTIVATION_MAXIMUM, w_unit = 2 * most_w / ISO_ACTIVATION_MAXIMUM;
  if (scheme == ISO_SCHEME_BF16)
    return x * w * x * w * 0x1p-32;
  return pow(0.3 * x_unit * w, 2) + pow(0.5 * w_unit * x, 2) + pow(37 * 37 * x_unit * w_unit, 2);
}

static void every_scheme_is_right(void **state) {
  (void)state;
  for (iso_scheme scheme = 0; can_run && scheme < ISO_SCHEME_COUNT; scheme++) {
    if (!iso_amx_tile_kernel(scheme))
      continue;
    bool super = iso_scheme_get_info(scheme)->block_elements >= 128;
    check_matmul("matmul.tile.amx", 0, scheme, 16, 16, super ? 256 : 64, rounding);
    check_matmul("matmul.tile.amx", 0, scheme, 33, 131, super ? 768 : 704, rounding);
    check_matmul("matmul.tile.amx", 0, scheme, 257, 64, 512, rounding);
  }
}

static void bf16_rows_are_those_of_f32(void **state) {
  (void)state;
  const iso_scheme schemes[] = {ISO_SCHEME_Q4_1, ISO_SCHEME_Q6_K, ISO_SCHEME_BF16};
  for (int i = 0; can_run && i < 3; i++) {
    check_bf16_rows("matmul.tile.amx", 0, schemes[i], 33, 131, 768);
    check_bf16_rows("matmul.tile.amx", 0, schemes[i], 48, 128, 256);
  }
}

static void experts_are_right(void **state) {
  (void)state;
  if (!can_run)
    return;
  enum { TOKENS = 60, CHOICES = 2, EXPERTS = 3, N = 70, K = 512 };
  const iso_kernel *kernel = find_record("grouped_matmul.tile.amx");
  float *weights = malloc(EXPERTS * N * K * sizeof(float));
  iso_buffer *packed = make_weight(ISO_SCHEME_Q4_K, 3, (const int64_t[]){EXPERTS, N, K}, weights);
  iso_buffer *x = make_buffer(TOKENS * K * 4), *y = make_buffer(TOKENS * CHOICES * N * 4);
  iso_buffer *experts = make_buffer(TOKENS * CHOICES * 4);
  float *x_values = (float *)(void *)x->data, *y_values = (float *)(void *)y->data;
  int32_t *chosen = (int32_t *)(void *)experts->data;
  for (int i = 0; i < TOKENS * K; i++)
    x_values[i] = random_value();
  for (int i = 0; i < TOKENS * CHOICES; i++)
    chosen[i] = i % 7 == 0 ? 0 : i % 5 == 0 ? 1 : 2;
  iso_grouped_matmul_attributes attributes = {.size = sizeof attributes};
  iso_op_arguments arguments = {.size = sizeof arguments,
                                .op = ISO_OP_GROUPED_MATMUL,
                                .n_inputs = 3,
                                .n_outputs = 1,
                                .attributes = &attributes};
  arguments.inputs[0] = (iso_tensor){.buffer = x,
                                     .scheme = ISO_SCHEME_F32,
                                     .n_dims = 3,
                                     .dims = {TOKENS, 1, K},
                                     .strides = {K * 4, K * 4, 4}};
  arguments.inputs[1] = (iso_tensor){.buffer = packed,
                                     .scheme = ISO_SCHEME_Q4_K,
                                     .layout = kernel->layout,
                                     .n_dims = 3,
                                     .dims = {EXPERTS, N, K}};
  arguments.inputs[2] = (iso_tensor){.buffer = experts,
                                     .scheme = ISO_SCHEME_I32,
                                     .n_dims = 2,
                                     .dims = {TOKENS, CHOICES},
                                     .strides = {CHOICES * 4, 4}};
  arguments.outputs[0] = (iso_tensor){.buffer = y,
                                      .scheme = ISO_SCHEME_F32,
                                      .n_dims = 3,
                                      .dims = {TOKENS, CHOICES, N},
                                      .strides = {CHOICES * N * 4, N * 4, 4}};
  run(kernel, &arguments);
  for (int i = 0; i < TOKENS * CHOICES; i++)
    check_row(ISO_SCHEME_Q4_K, y_values + i * N, x_values + i / CHOICES * K,
              weights + chosen[i] * N * K, N, K, rounding);
  iso_buffer *buffers[] = {packed, x, y, experts};
  for (int i = 0; i < 4; i++)
    cpu.backend->memory->free(cpu.device, buffers[i]);
  free(weights);
}

static void few_or_odd_rows_are_left_to_others(void **state) {
  (void)state;
  if (!can_run)
    return;
  const iso_kernel *kernel = find_record("matmul.tile.amx");
  iso_op_arguments arguments = {.size = sizeof arguments, .op = ISO_OP_MATMUL};
  const char *detail = "";
  arguments.inputs[0] = (iso_tensor){.scheme = ISO_SCHEME_F32, .n_dims = 2, .dims = {15, 64}};
  arguments.inputs[1] = (iso_tensor){.scheme = ISO_SCHEME_BF16, .n_dims = 2, .dims = {64, 64}};
  assert_int_equal(kernel->check(cpu.device, &arguments, &detail), ISO_REFUSED_SHAPE);
  arguments.inputs[0].dims[0] = 16;
  assert_int_equal(kernel->check(cpu.device, &arguments, &detail), ISO_ACCEPTED);
  arguments.inputs[0].dims[1] = arguments.inputs[1].dims[1] = 96;
  assert_int_equal(kernel->check(cpu.device, &arguments, &detail), ISO_REFUSED_SHAPE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_scheme_is_right),
      cmocka_unit_test(bf16_rows_are_those_of_f32),
      cmocka_unit_test(experts_are_right),
      cmocka_unit_test(few_or_odd_rows_are_left_to_others),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
