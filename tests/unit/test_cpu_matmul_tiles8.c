/* The 8-bit tile kernels on emulated tiles, through the driver, on CPUs with AVX-512 and BF16.
 *
 * This file defines iso_amx_tile8_kernel() before the library's own is linked, so that the records
 * of tier amx run the emulation. */
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
#define ISO_TILES_HEADER "tests/unit/tile_emulation.h"
#include "backends/cpu/matmul/tiles8_amx.c"
#pragma GCC pop_options

#include "tile_case.h"

/* Both sides are rounded to units of 1/127 of the largest of a stretch (here, of the
 * row). Bounds come from the scales, not from the weights: at most twice the largest. A ratio of
 * scales has 8 bits behind the point, so that a large code is off by up to half a unit more. */
static double rounding(iso_scheme scheme, double x, double w, double most_x, double most_w) {
  (void)scheme;
  double x_unit = most_x / LARGEST, w_unit = 2 * most_w / LARGEST;
  return pow(0.3 * x_unit * w, 2) + pow(0.3 * w_unit * x, 2);
}

static void every_scheme_is_right(void **state) {
  (void)state;
  for (iso_scheme scheme = 0; can_run && scheme < ISO_SCHEME_COUNT; scheme++) {
    if (!iso_amx_tile8_kernel(scheme))
      continue;
    bool super = iso_scheme_get_info(scheme)->block_elements >= 128;
    check_matmul("matmul.tile8.amx", 8, scheme, 32, 16, super ? 256 : 64, rounding);
    check_matmul("matmul.tile8.amx", 8, scheme, 33, 131, super ? 768 : 704, rounding);
    check_matmul("matmul.tile8.amx", 8, scheme, 289, 64, 1024, rounding);
    /* More elements than are multiplied before sums are put aside. */
    check_matmul("matmul.tile8.amx", 8, scheme, 79, 83, super ? 2304 : 2112, rounding);
    check_matmul("matmul.tile8.amx", 8, scheme, 32, 192, 4096, rounding);
    /* So many columns that a call of the kernel has all rows. */
    check_matmul("matmul.tile8.amx", 8, scheme, 80, 1024, super ? 256 : 192, rounding);
  }
}

static void bf16_rows_are_those_of_f32(void **state) {
  (void)state;
  const iso_scheme schemes[] = {ISO_SCHEME_Q8_0, ISO_SCHEME_Q4_K};
  for (int i = 0; can_run && i < 2; i++) {
    check_bf16_rows("matmul.tile8.amx", 8, schemes[i], 33, 131, 768);
    check_bf16_rows("matmul.tile8.amx", 8, schemes[i], 48, 128, 256);
    check_bf16_rows("matmul.tile8.amx", 8, schemes[i], 100, 64, 4352);
  }
  /* So many results that they are streamed. */
  if (can_run)
    check_bf16_rows("matmul.tile8.amx", 8, ISO_SCHEME_Q4_0, 520, 4096, 64);
}

/* A channel fifty times as large as the rest: what it costs the others. */
static void a_large_channel_costs_little(void **state) {
  (void)state;
  if (!can_run)
    return;
  enum { M = 32, N = 64, K = 256, LARGE = 77 };
  const iso_kernel *kernel = find_record("matmul.tile8.amx");
  static float weights[N * K];
  iso_buffer *packed = make_weight(ISO_SCHEME_Q8_0, 2, (const int64_t[]){N, K}, weights), *x, *y;
  x = make_buffer(M * K * 4), y = make_buffer(M * N * 4);
  float *x_values = (float *)(void *)x->data, *y_values = (float *)(void *)y->data;
  for (int i = 0; i < M * K; i++)
    x_values[i] = random_value() * (i % K == LARGE ? 50 : 1);
  iso_matmul_attributes attributes = {sizeof attributes, 8, 256};
  iso_op_arguments arguments =
      matmul_of(kernel, ISO_SCHEME_F32, x, packed, ISO_SCHEME_Q8_0, y, (const int64_t[]){M, N, K});
  arguments.attributes = &attributes;
  run(kernel, &arguments);
  double errors = 0, squares = 0;
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      double sum = 0, others = 0;
      for (int k = 0; k < K; k++) {
        double term = (double)x_values[i * K + k] * (double)weights[j * K + k];
        sum += term;
        others += k == LARGE ? 0 : term;
      }
      errors += pow((double)y_values[i * N + j] - sum, 2);
      squares += others * others;
    }
  assert_true(sqrt(errors / squares) < 0.04);
  iso_buffer *buffers[] = {packed, x, y};
  for (int i = 0; i < 3; i++)
    cpu.backend->memory->free(cpu.device, buffers[i]);
}

/* What is not finite shows in every product of its row, and in no other. */
static void infinities_show(void **state) {
  (void)state;
  if (!can_run)
    return;
  enum { M = 32, K = 256 }; /* one stretch */
  const iso_product_kernel *kernel = iso_amx_tile8_kernel(ISO_SCHEME_Q8_0);
  static uint8_t values[M * K];
  static float scales[M * K / 32], x[K];
  iso_panel panel = {.values = values, .scales = scales, .rows = M};
  kernel->prepare(kernel, x, K, 0, &panel);
  assert_true(scales[0] == 0.0f);
  x[7] = INFINITY;
  kernel->prepare(kernel, x, K, 1, &panel);
  assert_false(isfinite(scales[1]));
  x[7] = NAN;
  kernel->prepare(kernel, x, K, 2, &panel);
  assert_true(isnan(scales[2]));
}

static void only_what_was_asked_for_is_rounded(void **state) {
  (void)state;
  if (!can_run)
    return;
  const iso_kernel *kernel = find_record("matmul.tile8.amx");
  iso_matmul_attributes attributes = {sizeof attributes, 0, 256};
  iso_op_arguments arguments = {
      .size = sizeof arguments, .op = ISO_OP_MATMUL, .attributes = &attributes};
  const char *detail = "";
  arguments.inputs[0] = (iso_tensor){.scheme = ISO_SCHEME_F32, .n_dims = 2, .dims = {64, 64}};
  arguments.inputs[1] = (iso_tensor){.scheme = ISO_SCHEME_Q8_0, .n_dims = 2, .dims = {64, 64}};
  assert_int_equal(kernel->check(cpu.device, &arguments, &detail), ISO_REFUSED_ATTRIBUTE);
  attributes.operand_bits = 8;
  assert_int_equal(kernel->check(cpu.device, &arguments, &detail), ISO_ACCEPTED);
  attributes.operand_neighbours = 255;
  assert_int_equal(kernel->check(cpu.device, &arguments, &detail), ISO_REFUSED_ATTRIBUTE);
  attributes.operand_neighbours = 256;
  arguments.inputs[0].dims[0] = 31;
  assert_int_equal(kernel->check(cpu.device, &arguments, &detail), ISO_REFUSED_SHAPE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_scheme_is_right),
      cmocka_unit_test(bf16_rows_are_those_of_f32),
      cmocka_unit_test(a_large_channel_costs_little),
      cmocka_unit_test(infinities_show),
      cmocka_unit_test(only_what_was_asked_for_is_rounded),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
