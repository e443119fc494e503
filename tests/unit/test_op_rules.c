/* Facts of ops, shape inference and argument checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "ops/rules.h"
#include "ops/shape.h"
#include <isomer/reference.h>
#include <string.h>

#define SHAPE(...)                                                                                 \
  {                                                                                                \
    sizeof((iso_dim[]){__VA_ARGS__}) / sizeof(iso_dim), { __VA_ARGS__ }                            \
  }
#define N(size)                                                                                    \
  { ISO_SYMBOL_NONE, size }
#define T(size)                                                                                    \
  { ISO_SYMBOL_TOKENS, size }
#define S(size)                                                                                    \
  { ISO_SYMBOL_SEQUENCES, size }

static void test_facts(void **state) {
  (void)state;
  assert_null(iso_op_get_info(ISO_OP_COUNT));
  for (int op = 0; op < ISO_OP_COUNT; op++) {
    const iso_op_info *info = iso_op_get_info((iso_op)op);
    iso_op found;
    assert_true(iso_op_from_name(info->name, &found));
    assert_int_equal(found, op);
    assert_true(info->n_outputs >= 1);
    iso_any_attributes attributes;
    iso_op_default_attributes((iso_op)op, &attributes);
    assert_int_equal(attributes.size, info->attributes_bytes);
    for (uint32_t i = 0; i < info->n_attributes; i++) {
      const char *field = (const char *)&attributes + info->attributes[i].offset;
      float f;
      uint32_t u;
      memcpy(&f, field, sizeof f);
      memcpy(&u, field, sizeof u);
      double value = strcmp(info->attributes[i].type, "float") == 0 ? (double)f : (double)u;
      assert_true(value == info->attributes[i].default_value || (float)info->attributes[i].default_value == f);
    }
  }
  iso_op op;
  assert_false(iso_op_from_name("no_such_op", &op));
  const iso_op_info *kv = iso_op_get_info(ISO_OP_KV_WRITE);
  assert_int_equal(kv->n_inputs, 5);
  assert_int_equal(kv->outputs[0].alias_of, 3);
  assert_int_equal(kv->outputs[1].alias_of, 4);
  assert_int_equal(iso_op_get_info(ISO_OP_ADD)->outputs[0].alias_of, -1);
  assert_true(iso_op_get_info(ISO_OP_MATMUL)->inputs[2].optional);
  assert_int_equal(iso_op_get_info(ISO_OP_ADD)->n_attributes, 0);
  assert_int_equal(iso_operand_schemes(ISO_OPERAND_INDEX), ISO_SCHEME_BIT(ISO_SCHEME_I32));
  assert_false(iso_operand_schemes(ISO_OPERAND_WEIGHT) & ISO_SCHEME_BIT(ISO_SCHEME_I8));
  assert_true(iso_operand_schemes(ISO_OPERAND_WEIGHT) & ISO_SCHEME_BIT(ISO_SCHEME_Q6_K));
}

static void test_shape_text_and_bytes(void **state) {
  (void)state;
  iso_shape shape = SHAPE(T(512), N(576));
  char text[64];
  assert_string_equal(iso_shape_format(&shape, text, sizeof text), "[T<=512, 576]");
  assert_string_equal(iso_shape_format(&shape, text, 6), "[T<=5");
  uint64_t bytes;
  assert_int_equal(iso_shape_bytes(&shape, ISO_SCHEME_Q8_0, &bytes), ISO_OK);
  assert_int_equal(bytes, 512 * 18 * 34);
  assert_int_not_equal(iso_shape_bytes(&shape, ISO_SCHEME_Q4_K, &bytes), ISO_OK);
  iso_shape huge = SHAPE(N(ISO_MAX_DIM), N(ISO_MAX_DIM), N(4));
  assert_int_equal(iso_shape_bytes(&huge, ISO_SCHEME_F32, &bytes), ISO_ERROR_LIMIT);
  iso_shape beyond = SHAPE(N(ISO_MAX_DIM + 1));
  assert_int_not_equal(iso_shape_bytes(&beyond, ISO_SCHEME_I8, &bytes), ISO_OK);
  iso_shape negative = SHAPE(N(-1));
  assert_int_not_equal(iso_shape_bytes(&negative, ISO_SCHEME_I8, &bytes), ISO_OK);
  iso_shape none = {0};
  assert_int_not_equal(iso_shape_bytes(&none, ISO_SCHEME_I8, &bytes), ISO_OK);
}

enum { MOST_INPUTS = 8 };

/* One call of iso_op_infer(): `want` is the first output, or `message` part of the failure. */
typedef struct infer_case {
  iso_op op;
  iso_shape inputs[MOST_INPUTS];
  iso_scheme schemes[MOST_INPUTS]; /* F32 where left out */
  iso_any_attributes attributes;   /* defaults where size is 0 */
  const char *want;
  const char *message;
} infer_case;

#define I32 ISO_SCHEME_I32

static const infer_case infer_cases[] = {
    {ISO_OP_EMBEDDING,
     {SHAPE(T(8)), SHAPE(N(100), N(64))},
     {I32, ISO_SCHEME_Q8_0},
     .want = "[T<=8, 64]"},
    {ISO_OP_MATMUL,
     {SHAPE(T(8), N(256)), SHAPE(N(10), N(256)), SHAPE(N(10))},
     {0, ISO_SCHEME_Q4_K},
     .want = "[T<=8, 10]"},
    {ISO_OP_MATMUL,
     {SHAPE(T(8), N(2), N(256)), SHAPE(N(10), N(256))},
     {0},
     .want = "[T<=8, 2, 10]"},
    {ISO_OP_MATMUL, {SHAPE(N(256)), SHAPE(N(10), N(256))}, {0}, .want = "[10]"},
    {ISO_OP_MATMUL,
     {SHAPE(T(8), N(256)), SHAPE(N(10), N(128))},
     {0},
     .message = "matmul: weight is [10, 128] where its dimensions are \"NK\": x makes K [256]"},
    {ISO_OP_MATMUL,
     {SHAPE(T(8), N(96)), SHAPE(N(10), N(96))},
     {0, ISO_SCHEME_Q4_K},
     .message = "matmul: weight: a row of 96 elements is not whole q4_k blocks"},
    {ISO_OP_MATMUL,
     {SHAPE(T(8), N(96)), SHAPE(N(10), N(96))},
     {I32},
     .message = "matmul: x cannot be stored as i32"},
    {ISO_OP_MATMUL, {SHAPE(T(8), N(96))}, {0}, .message = "matmul: weight is missing"},
    {ISO_OP_MATMUL,
     {SHAPE(N(8), T(96)), SHAPE(N(10), N(96))},
     {0},
     .message = "dimension 1 cannot be symbolic"},
    {ISO_OP_MATMUL,
     {SHAPE(N(8), T(8), N(96)), SHAPE(N(10), N(96))},
     {0},
     .message = "dimension 1 cannot be symbolic"},
    {ISO_OP_MATMUL,
     {SHAPE(N(8), N(0)), SHAPE(N(10), N(0))},
     {0},
     .message = "dimension 1 must be 1 to"},
    {ISO_OP_ADD, {SHAPE(T(8), N(4)), SHAPE(T(8), N(4))}, {0}, .want = "[T<=8, 4]"},
    {ISO_OP_ADD, {SHAPE(T(8), N(4)), SHAPE(N(4))}, {0}, .want = "[T<=8, 4]"},
    {ISO_OP_ADD,
     {SHAPE(T(8), N(4)), SHAPE(N(8), N(4))},
     {0},
     .message = "leading dimensions differ from those of a"},
    {ISO_OP_ADD, {SHAPE(T(8), N(4)), SHAPE(N(5))}, {0}, .message = "a makes D [4]"},
    {ISO_OP_ROPE,
     {SHAPE(T(8), N(4), N(64)), SHAPE(T(8)), SHAPE(N(32))},
     {0, I32},
     .want = "[T<=8, 4, 64]"},
    {ISO_OP_ROPE,
     {SHAPE(T(8), N(4), N(64)), SHAPE(T(8)), SHAPE(N(33))},
     {0, I32},
     .message = "rotate 66 elements, but a head has 64"},
    {ISO_OP_ROPE,
     {SHAPE(T(8), N(4), N(64)), SHAPE(T(9)), SHAPE(N(32))},
     {0, I32},
     .message = "x makes T [T<=8]"},
    {ISO_OP_KV_WRITE,
     {SHAPE(T(8), N(2), N(64)), SHAPE(T(8), N(2), N(32)), SHAPE(T(8)),
      SHAPE(N(7), N(2), N(16), N(64)), SHAPE(N(7), N(2), N(16), N(32))},
     {0, 0, I32, ISO_SCHEME_Q8_0, ISO_SCHEME_F16},
     .want = "[7, 2, 16, 64]"},
    {ISO_OP_KV_WRITE,
     {SHAPE(T(8), N(2), N(48)), SHAPE(T(8), N(2), N(32)), SHAPE(T(8)),
      SHAPE(N(7), N(2), N(16), N(48)), SHAPE(N(7), N(2), N(16), N(32))},
     {0, 0, I32, ISO_SCHEME_Q8_0, ISO_SCHEME_F16},
     .message = "kv_write: k_cache: a row of 48 elements"},
    {ISO_OP_KV_WRITE,
     {SHAPE(T(8), N(2), N(64)), SHAPE(T(8), N(2), N(32)), SHAPE(T(8)),
      SHAPE(N(1 << 20), N(2), N(1 << 12), N(64)), SHAPE(N(1 << 20), N(2), N(1 << 12), N(32))},
     {0, 0, I32},
     .message = "more than 32-bit slots can number"},
    {ISO_OP_PAGED_ATTENTION,
     {SHAPE(T(8), N(6), N(64)), SHAPE(N(7), N(2), N(16), N(64)), SHAPE(N(7), N(2), N(16), N(32)),
      SHAPE(S(3), N(5)), SHAPE(S(3)), SHAPE(S(3)), SHAPE(S(3)), SHAPE(N(6))},
     {0, 0, 0, I32, I32, I32, I32},
     .want = "[T<=8, 6, 32]"},
    {ISO_OP_PAGED_ATTENTION,
     {SHAPE(T(8), N(5), N(64)), SHAPE(N(7), N(2), N(16), N(64)), SHAPE(N(7), N(2), N(16), N(32)),
      SHAPE(S(3), N(5)), SHAPE(S(3)), SHAPE(S(3)), SHAPE(S(3))},
     {0, 0, 0, I32, I32, I32, I32},
     .message = "5 query heads are not a multiple of 2"},
    {ISO_OP_ROUTE_TOP_K, {SHAPE(T(8), N(4))}, {0}, .want = "[T<=8, 2]"},
    {ISO_OP_ROUTE_TOP_K,
     {SHAPE(T(8), N(4))},
     {0},
     {.route_top_k = {sizeof(iso_route_top_k_attributes), 5, 1, 1.0f}},
     .message = "k is 5 of 4 experts"},
    {ISO_OP_GROUPED_MATMUL,
     {SHAPE(T(8), N(1), N(64)), SHAPE(N(4), N(10), N(64)), SHAPE(T(8), N(2))},
     {0, ISO_SCHEME_Q4_0, I32},
     .want = "[T<=8, 2, 10]"},
    {ISO_OP_GROUPED_MATMUL,
     {SHAPE(T(8), N(3), N(64)), SHAPE(N(4), N(10), N(64)), SHAPE(T(8), N(2))},
     {0, ISO_SCHEME_Q4_0, I32},
     .message = "x has 3 rows a token for 2 experts"},
    {ISO_OP_CONVERT,
     {SHAPE(T(8), N(64))},
     {0},
     {.convert = {sizeof(iso_convert_attributes), ISO_SCHEME_I8}},
     .message = "scheme must be f32, f16 or bf16"},
    {ISO_OP_QUANTIZE_ROWS, {SHAPE(T(8), N(64))}, {0}, .want = "[T<=8, 64]"},
    {ISO_OP_QUANTIZE_ROWS,
     {SHAPE(T(8), N(65))},
     {0},
     .message = "quantize_rows: y: a row of 65 elements"},
    {ISO_OP_GLU,
     {SHAPE(T(8), N(4)), SHAPE(T(8), N(4))},
     {0},
     {.glu = {sizeof(iso_glu_attributes), 9}},
     .message = "unknown activation 9"},
    {ISO_OP_SAMPLE,
     {SHAPE(S(3), N(100)), SHAPE(S(3), N(8)), SHAPE(S(3), N(4)), SHAPE(S(3), N(16)),
      SHAPE(S(3), N(4))},
     {0, 0, I32, I32, I32},
     .want = "[S<=3]"},
    {ISO_OP_SAMPLE,
     {SHAPE(S(3), N(100)), SHAPE(S(3), N(7)), SHAPE(S(3), N(4)), SHAPE(S(3), N(16))},
     {0, 0, I32, I32},
     .message = "dimension 1 must be 8"},
    {ISO_OP_SAMPLE,
     {SHAPE(S(3), N(100)), SHAPE(S(3), N(8)), SHAPE(S(3), N(4)), SHAPE(S(3), N(16)),
      SHAPE(S(3), N(3))},
     {0, 0, I32, I32, I32},
     .message = "allowed has 3 words a row; 100 tokens need 4"},
    {ISO_OP_RMS_NORM,
     {SHAPE(T(8), N(4)), SHAPE(N(4))},
     {0},
     {.rms_norm = {sizeof(iso_rms_norm_attributes), -1.0f, 0.0f}},
     .message = "epsilon must be finite"},
    {ISO_OP_SOFTMAX, {SHAPE(N(1), N(1), N(1), N(7))}, {0}, .want = "[1, 1, 1, 7]"},
};

static void test_infer(void **state) {
  (void)state;
  for (size_t c = 0; c < sizeof infer_cases / sizeof infer_cases[0]; c++) {
    const infer_case *test = &infer_cases[c];
    const iso_op_info *info = iso_op_get_info(test->op);
    const iso_shape *shapes[MOST_INPUTS] = {0};
    iso_scheme schemes[MOST_INPUTS];
    for (uint32_t i = 0; i < info->n_inputs; i++) {
      shapes[i] = test->inputs[i].n_dims ? &test->inputs[i] : NULL;
      schemes[i] = shapes[i] ? test->schemes[i] : ISO_SCHEME_COUNT;
    }
    iso_shape out_shapes[ISO_MAX_OUTPUTS];
    iso_scheme out_schemes[ISO_MAX_OUTPUTS];
    iso_status status =
        iso_op_infer(test->op, shapes, schemes, test->attributes.size ? &test->attributes : NULL,
                     ISO_SCHEME_BF16, out_shapes, out_schemes);
    if (test->want) {
      if (status != ISO_OK)
        fail_msg("case %zu: %s", c, iso_status_message());
      char text[128];
      assert_string_equal(iso_shape_format(&out_shapes[0], text, sizeof text), test->want);
    } else {
      assert_int_equal(status, ISO_ERROR_INVALID_ARGUMENT);
      if (!strstr(iso_status_message(), test->message))
        fail_msg("case %zu: got \"%s\", want \"%s\"", c, iso_status_message(), test->message);
    }
  }
}

static void test_output_schemes(void **state) {
  (void)state;
  iso_shape x = SHAPE(T(8), N(64)), rows = SHAPE(S(2));
  iso_shape out_shape[ISO_MAX_OUTPUTS];
  iso_scheme out[ISO_MAX_OUTPUTS];
  iso_scheme schemes[] = {ISO_SCHEME_F16, ISO_SCHEME_I32};
  const iso_shape *shapes[] = {&x, &rows};
  assert_int_equal(
      iso_op_infer(ISO_OP_GATHER_ROWS, shapes, schemes, NULL, ISO_SCHEME_F32, out_shape, out),
      ISO_OK);
  assert_int_equal(out[0], ISO_SCHEME_F16);
  assert_int_equal(
      iso_op_infer(ISO_OP_SOFTMAX, shapes, schemes, NULL, ISO_SCHEME_BF16, out_shape, out), ISO_OK);
  assert_int_equal(out[0], ISO_SCHEME_BF16);
  iso_quantize_rows_attributes quantize = {sizeof quantize, ISO_SCHEME_Q4_0};
  assert_int_equal(iso_op_infer(ISO_OP_QUANTIZE_ROWS, shapes, schemes, &quantize, ISO_SCHEME_BF16,
                                out_shape, out),
                   ISO_OK);
  assert_int_equal(out[0], ISO_SCHEME_Q4_0);
  assert_int_equal(
      iso_op_infer(ISO_OP_ROUTE_TOP_K, shapes, schemes, NULL, ISO_SCHEME_BF16, out_shape, out),
      ISO_OK);
  assert_int_equal(out[0], ISO_SCHEME_I32);
  assert_int_equal(out[1], ISO_SCHEME_F32);
}

/* Attributes of an older writer: what it did not know has its default. */
static void test_short_attributes(void **state) {
  (void)state;
  iso_route_top_k_attributes old = {offsetof(iso_route_top_k_attributes, normalize), 3, 99, 99.0f};
  iso_any_attributes read;
  iso_op_read_attributes(ISO_OP_ROUTE_TOP_K, &old, &read);
  assert_int_equal(read.route_top_k.k, 3);
  assert_int_equal(read.route_top_k.normalize, 1);
  assert_true(read.route_top_k.scale == 1.0f);
  assert_int_equal(read.size, sizeof old);
}

static iso_tensor dense(iso_scheme scheme, int64_t rows, int64_t columns) {
  iso_tensor tensor = {.scheme = scheme, .n_dims = 2, .dims = {rows, columns}};
  assert_int_equal(iso_dense_strides(scheme, 2, tensor.dims, tensor.strides), ISO_OK);
  return tensor;
}

static void assert_refused(const iso_op_arguments *arguments, const char *message) {
  assert_int_equal(iso_op_validate(arguments), ISO_ERROR_INVALID_ARGUMENT);
  if (!strstr(iso_status_message(), message))
    fail_msg("got \"%s\", want \"%s\"", iso_status_message(), message);
}

static void test_validate(void **state) {
  (void)state;
  iso_any_attributes attributes;
  iso_op_default_attributes(ISO_OP_MATMUL, &attributes);
  iso_op_arguments good = {.size = sizeof good,
                           .op = ISO_OP_MATMUL,
                           .n_inputs = 3,
                           .n_outputs = 1,
                           .inputs = {dense(ISO_SCHEME_BF16, 5, 64), dense(ISO_SCHEME_Q4_0, 7, 64)},
                           .outputs = {dense(ISO_SCHEME_F32, 5, 7)},
                           .attributes = &attributes};
  assert_int_equal(iso_op_validate(&good), ISO_OK);
  iso_op_arguments a = good;
  a.n_inputs = 2;
  assert_int_equal(iso_op_validate(&a), ISO_OK);
  a.inputs[0].dims[0] = a.outputs[0].dims[0] = 0;
  assert_int_equal(iso_op_validate(&a), ISO_OK);
  a = good;
  a.inputs[0].strides[0] = 500;
  a.outputs[0].strides[0] = 28 + 4;
  assert_int_equal(iso_op_validate(&a), ISO_OK);
  a.inputs[0].strides[0] = 126;
  assert_refused(&a, "x has stride 126 in dimension 0 where an item takes 128 bytes");
  a = good;
  a.inputs[0].strides[1] = 4;
  assert_refused(&a, "x has stride 4 in dimension 1");
  a = good;
  a.inputs[1].strides[0] += 18;
  assert_refused(&a, "weight has stride 54 in dimension 0 where only a dense tensor will do: 36");
  a.inputs[1].layout = 3;
  assert_int_equal(iso_op_validate(&a), ISO_OK);
  a = good;
  a.outputs[0].layout = 3;
  assert_refused(&a, "y is not a weight");
  a = good;
  a.outputs[0] = dense(ISO_SCHEME_F32, 7, 5);
  assert_refused(&a, "y is [7, 5], the inputs make it [5, 7]");
  a = good;
  a.outputs[0] = dense(ISO_SCHEME_I32, 5, 7);
  assert_refused(&a, "y cannot be stored as i32");
  a = good;
  a.n_outputs = 2;
  assert_refused(&a, "given 3 inputs and 2 outputs, takes 3 and 1");
  a = good;
  a.inputs[0].n_dims = 5;
  assert_refused(&a, "x has 5 dimensions");
  a = good;
  a.op = ISO_OP_COUNT;
  assert_refused(&a, "unknown op");
}

static void test_validate_alias(void **state) {
  (void)state;
  iso_any_attributes attributes;
  iso_op_default_attributes(ISO_OP_KV_WRITE, &attributes);
  iso_tensor rows = {.n_dims = 3, .dims = {2, 1, 8}, .strides = {32, 32, 4}};
  iso_tensor slots = {.scheme = ISO_SCHEME_I32, .n_dims = 1, .dims = {2}, .strides = {4}};
  iso_tensor cache = {.n_dims = 4, .dims = {3, 1, 4, 8}, .strides = {128, 128, 32, 4}};
  iso_op_arguments a = {.size = sizeof a,
                        .op = ISO_OP_KV_WRITE,
                        .n_inputs = 5,
                        .n_outputs = 2,
                        .inputs = {rows, rows, slots, cache, cache},
                        .outputs = {cache, cache},
                        .attributes = &attributes};
  assert_int_equal(iso_op_validate(&a), ISO_OK);
  a.outputs[1].offset = 64;
  assert_refused(&a, "v_cache_out must be the storage of v_cache");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_facts),
      cmocka_unit_test(test_shape_text_and_bytes),
      cmocka_unit_test(test_infer),
      cmocka_unit_test(test_output_schemes),
      cmocka_unit_test(test_short_attributes),
      cmocka_unit_test(test_validate),
      cmocka_unit_test(test_validate_alias),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
