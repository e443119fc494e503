/* The bf16 tile kernels on emulated tiles, through the driver, on CPUs with AVX-512 and BF16.
 *
 * This file defines iso_amx_tile16_kernel() before the library's own is linked, so that the records
 * of tier amx run the emulation. */
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
#define ISO_TILES_HEADER "tests/unit/tile_emulation.h"
#include "backends/cpu/matmul/tiles16_amx.c"
#pragma GCC pop_options

#include "tile_case.h"

/* Both sides are rounded to bf16, by 2^-8 of a number at most; weights that are bf16 stay. */
static double rounding(iso_scheme scheme, double x, double w, double most_x, double most_w) {
  (void)most_x, (void)most_w;
  return x * w * x * w * 0x1p-16 / 3 * (scheme == ISO_SCHEME_BF16 ? 1 : 2);
}

static void every_scheme_is_right(void **state) {
  (void)state;
  for (iso_scheme scheme = 0; can_run && scheme < ISO_SCHEME_COUNT; scheme++) {
    if (!iso_amx_tile16_kernel(scheme))
      continue;
    bool super = iso_scheme_get_info(scheme)->block_elements >= 128;
    check_matmul("matmul.tile16.amx", 16, scheme, 32, 16, super ? 256 : 64, rounding);
    check_matmul("matmul.tile16.amx", 16, scheme, 33, 131, super ? 768 : 704, rounding);
    check_matmul("matmul.tile16.amx", 16, scheme, 289, 64, 1024, rounding);
    /* More elements than are multiplied before sums are put aside. */
    check_matmul("matmul.tile16.amx", 16, scheme, 79, 83, super ? 2304 : 2112, rounding);
    check_matmul("matmul.tile16.amx", 16, scheme, 32, 192, 4096, rounding);
  }
}

static void bf16_rows_are_those_of_f32(void **state) {
  (void)state;
  const iso_scheme schemes[] = {ISO_SCHEME_Q8_0, ISO_SCHEME_Q4_K, ISO_SCHEME_IQ4_NL,
                                ISO_SCHEME_BF16};
  for (int i = 0; can_run && i < 4; i++) {
    check_bf16_rows("matmul.tile16.amx", 16, schemes[i], 33, 131, 768);
    check_bf16_rows("matmul.tile16.amx", 16, schemes[i], 48, 128, 256);
    check_bf16_rows("matmul.tile16.amx", 16, schemes[i], 100, 64, 4352);
  }
  /* Enough columns for the widest items. */
  if (can_run)
    check_bf16_rows("matmul.tile16.amx", 16, ISO_SCHEME_BF16, 48, 2112, 320);
  /* So many results that they are streamed. */
  if (can_run)
    check_bf16_rows("matmul.tile16.amx", 16, ISO_SCHEME_Q4_0, 520, 4096, 64);
}

/* What is not finite shows in every product of its row of weights, and in no other. */
static void infinities_show(void **state) {
  (void)state;
  if (!can_run)
    return;
  enum { ROWS = 16, K = 64 };
  const iso_product_kernel *kernel = iso_amx_tile16_kernel(ISO_SCHEME_Q8_0);
  float values[ROWS * K];
  static _Alignas(64) uint8_t tile[K * ROWS * 2];
  iso_buffer *packed = make_weight(ISO_SCHEME_Q8_0, 2, (const int64_t[]){ROWS, K}, values);
  /* The halves of the first block come first: that of row 3 becomes infinite. */
  packed->data[2 * 3] = 0x00;
  packed->data[2 * 3 + 1] = 0x7c;
  kernel->expand(packed->data, 0, K, tile);
  for (int row = 0; row < ROWS; row++) {
    uint16_t bits;
    memcpy(&bits, tile + row * 4, sizeof bits);
    assert_int_equal((bits & 0x7f80) == 0x7f80, row == 3);
  }
  cpu.backend->memory->free(cpu.device, packed);
}

static void only_what_was_asked_for_is_rounded(void **state) {
  (void)state;
  if (!can_run)
    return;
  const iso_kernel *kernel = find_record("matmul.tile16.amx");
  iso_matmul_attributes attributes = {sizeof attributes, 0, 32};
  iso_op_arguments arguments = {
      .size = sizeof arguments, .op = ISO_OP_MATMUL, .attributes = &attributes};
  const char *detail = "";
  arguments.inputs[0] = (iso_tensor){.scheme = ISO_SCHEME_F32, .n_dims = 2, .dims = {64, 64}};
  arguments.inputs[1] = (iso_tensor){.scheme = ISO_SCHEME_Q8_0, .n_dims = 2, .dims = {64, 64}};
  assert_int_equal(kernel->check(cpu.device, &arguments, &detail), ISO_REFUSED_ATTRIBUTE);
  for (uint32_t bits = 8; bits <= 16; bits += 8) {
    attributes.operand_bits = bits;
    assert_int_equal(kernel->check(cpu.device, &arguments, &detail), ISO_ACCEPTED);
  }
  arguments.inputs[0].dims[0] = 31;
  assert_int_equal(kernel->check(cpu.device, &arguments, &detail), ISO_REFUSED_SHAPE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_scheme_is_right),
      cmocka_unit_test(bf16_rows_are_those_of_f32),
      cmocka_unit_test(infinities_show),
      cmocka_unit_test(only_what_was_asked_for_is_rounded),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
