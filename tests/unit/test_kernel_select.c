/* Choosing among kernel records, and saying why none will do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "core/kernel_select.h"
#include <string.h>

static iso_status no_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  (void)queue, (void)arguments;
  return iso_fail(ISO_ERROR_INTERNAL, "launched");
}

static iso_refusal whole_tiles(const iso_device *device, const iso_op_arguments *arguments,
                               const char **out_detail) {
  (void)device;
  if (arguments->inputs[0].dims[1] % 64 == 0)
    return ISO_ACCEPTED;
  *out_detail = "K is not a multiple of 64";
  return ISO_REFUSED_SHAPE;
}

static iso_refusal no_bias(const iso_device *device, const iso_op_arguments *arguments,
                           const char **out_detail) {
  (void)device, (void)out_detail;
  return arguments->inputs[2].n_dims ? ISO_REFUSED_ATTRIBUTE : ISO_ACCEPTED;
}

#define BIT(NAME) ISO_SCHEME_BIT(ISO_SCHEME_##NAME)
static const iso_kernel kernels[] = {
    {.op = ISO_OP_MATMUL,
     .name = "q8.tiles",
     .schemes = BIT(Q8_0),
     .activations = BIT(F32),
     .layout = 5,
     .rank = 90,
     .check = whole_tiles,
     .launch = no_launch},
    {.op = ISO_OP_MATMUL,
     .name = "q8.rows",
     .schemes = BIT(Q8_0),
     .activations = BIT(F32) | BIT(F16),
     .rank = 10,
     .check = no_bias,
     .launch = no_launch},
    {.op = ISO_OP_MATMUL,
     .name = "f16.rows",
     .schemes = BIT(F16),
     .activations = BIT(F16),
     .rank = 20,
     .launch = no_launch},
    {.op = ISO_OP_MATMUL,
     .name = "f16.twin",
     .schemes = BIT(F16),
     .activations = BIT(F16),
     .rank = 20,
     .launch = no_launch},
    {.op = ISO_OP_PAGED_ATTENTION,
     .name = "attention.f16",
     .schemes = BIT(F16),
     .activations = BIT(F32),
     .launch = no_launch},
};
static const iso_plan_device device = {"chip:0", kernels, sizeof kernels / sizeof *kernels, NULL,
                                       1};

static iso_tensor tensor(iso_scheme scheme, int64_t rows, int64_t columns) {
  return (iso_tensor){.scheme = scheme, .n_dims = 2, .dims = {rows, columns}};
}

static iso_op_arguments product(iso_scheme activation, iso_scheme weight, int64_t k) {
  return (iso_op_arguments){
      .size = sizeof(iso_op_arguments),
      .op = ISO_OP_MATMUL,
      .n_inputs = 3,
      .n_outputs = 1,
      .inputs = {tensor(activation, 4, k), tensor(weight, 8, k)},
      .outputs = {tensor(activation, 4, 8)},
  };
}

static void assert_chosen(const iso_op_arguments *arguments, uint32_t layout, const char *name) {
  iso_refusal refusal;
  char reason[160];
  const iso_kernel *kernel =
      iso_kernel_select(&device, arguments, layout, &refusal, reason, sizeof reason);
  if (!kernel)
    fail_msg("%s", reason);
  assert_string_equal(kernel->name, name);
  assert_int_equal(refusal, ISO_ACCEPTED);
  assert_string_equal(reason, "");
}

static void assert_refused(const iso_op_arguments *arguments, uint32_t layout, iso_refusal code,
                           const char *sentence) {
  iso_refusal refusal;
  char reason[160];
  assert_null(iso_kernel_select(&device, arguments, layout, &refusal, reason, sizeof reason));
  assert_int_equal(refusal, code);
  assert_string_equal(reason, sentence);
  /* No room for the sentence is no fault. */
  assert_null(iso_kernel_select(&device, arguments, layout, &refusal, NULL, 0));
  assert_int_equal(refusal, code);
}

static void test_highest_rank(void **state) {
  (void)state;
  iso_op_arguments a = product(ISO_SCHEME_F32, ISO_SCHEME_Q8_0, 128);
  assert_chosen(&a, ISO_LAYOUT_ANY, "q8.tiles");
  assert_chosen(&a, ISO_LAYOUT_PLAIN, "q8.rows");
  assert_chosen(&a, 5, "q8.tiles");
  a = product(ISO_SCHEME_F32, ISO_SCHEME_Q8_0, 96);
  assert_chosen(&a, ISO_LAYOUT_ANY, "q8.rows");
  /* The earlier record among equals. */
  a = product(ISO_SCHEME_F16, ISO_SCHEME_F16, 96);
  assert_chosen(&a, ISO_LAYOUT_ANY, "f16.rows");
}

static void test_closest_refusal(void **state) {
  (void)state;
  iso_op_arguments a = product(ISO_SCHEME_F32, ISO_SCHEME_Q8_0, 96);
  assert_refused(&a, 5, ISO_REFUSED_SHAPE,
                 "chip:0: q8.tiles refuses the shape: K is not a multiple of 64");
  assert_refused(&a, 6, ISO_REFUSED_LAYOUT, "chip:0: q8.tiles refuses the layout");
  a.inputs[2] = tensor(ISO_SCHEME_F32, 1, 8);
  assert_refused(&a, ISO_LAYOUT_PLAIN, ISO_REFUSED_ATTRIBUTE,
                 "chip:0: q8.rows refuses the attribute");
  a = product(ISO_SCHEME_F32, ISO_SCHEME_Q4_0, 128);
  assert_refused(&a, ISO_LAYOUT_ANY, ISO_REFUSED_SCHEME, "chip:0: q8.tiles refuses the scheme");
  a = product(ISO_SCHEME_F32, ISO_SCHEME_F16, 128);
  assert_refused(&a, ISO_LAYOUT_ANY, ISO_REFUSED_ACTIVATION,
                 "chip:0: f16.rows refuses the activation scheme");
  /* Outputs count as well as inputs. */
  a = product(ISO_SCHEME_F16, ISO_SCHEME_F16, 128);
  a.outputs[0].scheme = ISO_SCHEME_F32;
  assert_refused(&a, ISO_LAYOUT_ANY, ISO_REFUSED_ACTIVATION,
                 "chip:0: f16.rows refuses the activation scheme");
  a.op = ISO_OP_ARGMAX;
  assert_refused(&a, ISO_LAYOUT_ANY, ISO_REFUSED_NO_KERNEL, "chip:0 has no kernel for argmax");
}

/* Without a weight, the scheme mask speaks of the caches. */
static void test_cache_schemes(void **state) {
  (void)state;
  iso_op_arguments a = {
      .size = sizeof a, .op = ISO_OP_PAGED_ATTENTION, .n_inputs = 8, .n_outputs = 1};
  a.inputs[0] = a.outputs[0] = tensor(ISO_SCHEME_F32, 4, 8);
  a.inputs[1] = a.inputs[2] = tensor(ISO_SCHEME_F16, 4, 8);
  assert_chosen(&a, ISO_LAYOUT_PLAIN, "attention.f16");
  a.inputs[2].scheme = ISO_SCHEME_Q8_0;
  assert_refused(&a, ISO_LAYOUT_PLAIN, ISO_REFUSED_SCHEME,
                 "chip:0: attention.f16 refuses the scheme");
}

static void test_weight_operands(void **state) {
  (void)state;
  assert_int_equal(iso_op_weight_operand(ISO_OP_MATMUL), 1);
  assert_int_equal(iso_op_weight_operand(ISO_OP_EMBEDDING), 1);
  assert_int_equal(iso_op_weight_operand(ISO_OP_GROUPED_MATMUL), 1);
  assert_int_equal(iso_op_weight_operand(ISO_OP_ROPE), -1);
  assert_int_equal(iso_op_weight_operand((iso_op)999), -1);
  for (int i = 0; i <= ISO_REFUSAL_COUNT; i++)
    assert_true(strlen(iso_refusal_name((iso_refusal)i)) > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_highest_rank), cmocka_unit_test(test_closest_refusal),
      cmocka_unit_test(test_cache_schemes), cmocka_unit_test(test_weight_operands)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
