/* Sizes that a Vulkan kernel is given: what shaders cannot number is refused, and the grids of what
 * they can hold every workgroup. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#if __has_include(<vulkan/vulkan_core.h>)
/* The plug-in exports its entry alone, so the file is compiled in. */
#include "backends/vulkan/arguments.c"

iso_status vulkan_enqueue(iso_queue *queue, const vulkan_dispatch *dispatch) {
  (void)queue, (void)dispatch;
  return ISO_OK;
}

/* Dense rows of halves. */
static iso_tensor tensor_of(uint32_t n_dims, const int64_t *dims) {
  iso_tensor tensor = {.scheme = ISO_SCHEME_F16, .n_dims = n_dims};
  int64_t stride = 2;
  for (uint32_t d = n_dims; d-- > 0; stride *= dims[d]) {
    tensor.dims[d] = dims[d];
    tensor.strides[d] = stride;
  }
  return tensor;
}

#define TENSOR(...)                                                                                \
  tensor_of(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static iso_refusal check(iso_tensor x, iso_tensor y) {
  const char *detail = NULL;
  iso_op_arguments arguments = {.n_inputs = 1, .n_outputs = 1, .inputs = {x}, .outputs = {y}};
  iso_refusal refusal = vulkan_check_rows(NULL, &arguments, &detail);
  assert_true((refusal == ISO_ACCEPTED) == (detail == NULL));
  return refusal;
}

static const int64_t LARGE = INT64_C(1) << 31;

static void test_large_operands(void **state) {
  (void)state;
  iso_tensor one = TENSOR(1, 64);
  assert_int_equal(check(one, one), ISO_ACCEPTED);
  assert_int_equal(check(TENSOR(0, 64), TENSOR(0, 64)), ISO_ACCEPTED);
  /* Rows of 2^32 + 64 elements must not pass for rows of 64. */
  assert_int_equal(check(TENSOR(2 * LARGE + 64), one), ISO_REFUSED_SIZE);
  assert_int_equal(check(TENSOR(LARGE), one), ISO_REFUSED_SIZE);
  assert_int_equal(check(TENSOR(LARGE - 1), one), ISO_ACCEPTED);
  assert_int_equal(check(TENSOR(LARGE, 4), one), ISO_REFUSED_SIZE);
  assert_int_equal(check(TENSOR(LARGE - 1, 4), one), ISO_ACCEPTED);
  assert_int_equal(check(TENSOR(1 << 16, 1 << 15, 4), one), ISO_REFUSED_SIZE);
  assert_int_equal(check(TENSOR(INT64_MAX / 4, 16, 4), one), ISO_REFUSED_SIZE);
  /* A weight of 2^36 elements may be read; results are numbered. */
  assert_int_equal(check(TENSOR(1 << 20, 1 << 16), one), ISO_ACCEPTED);
  assert_int_equal(check(one, TENSOR(1 << 20, 1 << 16)), ISO_REFUSED_SIZE);
  assert_int_equal(check(one, TENSOR(1 << 14, 1 << 18)), ISO_ACCEPTED);
}

static void test_grids(void **state) {
  (void)state;
  const uint64_t counts[] = {0, 1, 65535, 65536, 65537, 1 << 20, LARGE};
  for (uint32_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    uint32_t groups[3];
    vulkan_split_groups(counts[i], groups);
    for (int d = 0; d < 3; d++)
      assert_true(groups[d] <= 65535);
    uint64_t all = (uint64_t)groups[0] * groups[1] * groups[2];
    assert_true(all >= counts[i] && all <= UINT32_MAX);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_operands),
                                     cmocka_unit_test(test_grids)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
#include "without_vulkan.h"
#endif
