/* Which neighbouring ops a Vulkan queue brings together, and which must stay apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#if __has_include(<vulkan/vulkan_core.h>)
/* The plug-in exports its entry alone, so the file is compiled in; launches write into a log. */
#include "backends/vulkan/fusion.c"

const iso_host *vulkan_host;

static vulkan_deferred deferred;
static char launched[256];

static void note(const char *text) { strcat(launched, text); }

vulkan_deferred *vulkan_queue_deferred(iso_queue *queue) {
  (void)queue;
  return &deferred;
}

bool vulkan_fits_one(const iso_op_arguments *matmul) { return matmul->outputs[0].dims[0] == 1; }
bool vulkan_norm_fits_one(const iso_op_arguments *norm) { return norm->outputs[0].dims[0] == 1; }

iso_status vulkan_launch_product(iso_queue *queue, const vulkan_product *product) {
  (void)queue;
  note(product->loses_row ? "[norm lost " : product->norm ? "[norm " : "[");
  note(product->n_parts == 1 ? "1" : product->n_parts == 2 ? "2" : "3");
  note(!product->after ? "] " : product->after->op == ISO_OP_ADD ? " add] " : " glu] ");
  return ISO_OK;
}

iso_status vulkan_launch_rope_kv_write(iso_queue *queue, const iso_op_arguments *rope_q,
                                       const iso_op_arguments *rope_k,
                                       const iso_op_arguments *write) {
  (void)queue, (void)rope_q, (void)rope_k, (void)write;
  note("[rope rope write] ");
  return ISO_OK;
}

iso_status vulkan_launch_rope_attention(iso_queue *queue, const iso_op_arguments *rope_q,
                                        const iso_op_arguments *rope_k,
                                        const iso_op_arguments *write,
                                        const iso_op_arguments *attention) {
  (void)queue, (void)rope_q, (void)rope_k, (void)write, (void)attention;
  note("[rope rope write attention] ");
  return ISO_OK;
}

static iso_status alone(iso_queue *queue, const iso_op_arguments *arguments) {
  (void)queue;
  note(iso_op_get_info(arguments->op)->name);
  note(" ");
  return ISO_OK;
}

/* Operands by where they start in one buffer: rows of 32 floats. */
enum { ROW_BYTES = 128 };

static iso_buffer buffer;

static iso_tensor rows(uint64_t place, int64_t n) {
  return (iso_tensor){.buffer = &buffer,
                      .offset = place * ROW_BYTES,
                      .n_dims = 2,
                      .dims = {n, 32},
                      .strides = {ROW_BYTES, 4}};
}

static iso_tensor heads(uint64_t place) {
  return (iso_tensor){.buffer = &buffer,
                      .offset = place * ROW_BYTES,
                      .n_dims = 3,
                      .dims = {1, 1, 32},
                      .strides = {ROW_BYTES, ROW_BYTES, 4}};
}

static const iso_rms_norm_attributes norm_attributes = {.size = sizeof norm_attributes};
static const iso_rope_attributes rope_attributes = {.size = sizeof rope_attributes};

static void give(iso_op op, iso_tensor a, iso_tensor b, iso_tensor y) {
  iso_op_arguments arguments = {.op = op,
                                .n_inputs = 2,
                                .n_outputs = 1,
                                .inputs = {a, b},
                                .outputs = {y},
                                .attributes = &norm_attributes};
  assert_int_equal(vulkan_defer(NULL, &arguments, alone), ISO_OK);
}

static void rope(uint64_t x, uint64_t y) {
  iso_op_arguments arguments = {.op = ISO_OP_ROPE,
                                .n_inputs = 3,
                                .n_outputs = 1,
                                .inputs = {heads(x), rows(90, 1), rows(91, 1)},
                                .outputs = {heads(y)},
                                .attributes = &rope_attributes};
  assert_int_equal(vulkan_defer(NULL, &arguments, alone), ISO_OK);
}

static void kv_write(uint64_t k, uint64_t v) {
  iso_op_arguments arguments = {.op = ISO_OP_KV_WRITE,
                                .n_inputs = 5,
                                .n_outputs = 2,
                                .inputs = {heads(k), heads(v), rows(92, 1), heads(60), heads(61)},
                                .outputs = {heads(60), heads(61)},
                                .attributes = &norm_attributes};
  assert_int_equal(vulkan_defer(NULL, &arguments, alone), ISO_OK);
}

/* Of `n_sequences` with the caches that kv_write() writes. */
static void attention(uint64_t q, uint64_t y, int64_t n_sequences) {
  iso_op_arguments arguments = {.op = ISO_OP_PAGED_ATTENTION,
                                .n_inputs = 7,
                                .n_outputs = 1,
                                .inputs = {heads(q), heads(60), heads(61), rows(93, n_sequences),
                                           rows(94, 1), rows(95, 1), rows(96, 1)},
                                .outputs = {heads(y)},
                                .attributes = &norm_attributes};
  assert_int_equal(vulkan_defer(NULL, &arguments, alone), ISO_OK);
}

static void rotate_and_write(void) {
  rope(2, 5);
  rope(3, 6);
  kv_write(6, 4);
}

static void matmul(uint64_t x, uint64_t y) {
  give(ISO_OP_MATMUL, rows(x, 1), rows(80, 1), rows(y, 1));
}

static void expect(const char *want) {
  assert_int_equal(vulkan_flush_deferred(NULL), ISO_OK);
  assert_string_equal(launched, want);
  launched[0] = 0;
}

static void test_decode_step(void **state) {
  (void)state;
  give(ISO_OP_RMS_NORM, rows(0, 1), rows(70, 1), rows(1, 1));
  matmul(1, 2);
  matmul(1, 3);
  matmul(1, 4);
  rope(2, 5);
  rope(3, 6);
  kv_write(6, 4);
  matmul(7, 8);
  give(ISO_OP_ADD, rows(0, 1), rows(8, 1), rows(9, 1));
  give(ISO_OP_RMS_NORM, rows(9, 1), rows(70, 1), rows(10, 1));
  matmul(10, 11);
  matmul(10, 12);
  give(ISO_OP_GLU, rows(11, 1), rows(12, 1), rows(13, 1));
  expect("[norm 3] [rope rope write] [1 add] [norm 2 glu] ");
}

/* A gated unit may write over the normalised row, if over all of it, but over no row of another op.
 */
static void test_lost_row(void **state) {
  (void)state;
  give(ISO_OP_RMS_NORM, rows(9, 1), rows(70, 1), rows(10, 1));
  matmul(10, 11);
  matmul(10, 12);
  give(ISO_OP_GLU, rows(11, 1), rows(12, 1), rows(10, 1));
  expect("[norm lost 2 glu] ");
  matmul(10, 11);
  matmul(10, 12);
  give(ISO_OP_GLU, rows(11, 1), rows(12, 1), rows(10, 1)); /* which the products read */
  expect("[2] glu ");
  give(ISO_OP_RMS_NORM, rows(9, 1), rows(70, 1), rows(10, 1));
  matmul(10, 11);
  matmul(10, 12);
  give(ISO_OP_GLU, rows(11, 1), rows(12, 1), rows(9, 1)); /* which the norm reads */
  expect("[norm 2] glu ");
  give(ISO_OP_RMS_NORM, rows(9, 1), rows(70, 1), rows(10, 1));
  matmul(10, 11);
  give(ISO_OP_ADD, rows(8, 1), rows(11, 1), rows(10, 1));
  expect("[norm 1] add ");
}

/* What is held back must not wait for ops that do not belong to it. */
static void test_strangers(void **state) {
  (void)state;
  give(ISO_OP_RMS_NORM, rows(0, 1), rows(70, 1), rows(1, 1));
  matmul(20, 2); /* of something else */
  expect("rms_norm matmul ");
  matmul(1, 2);
  give(ISO_OP_GLU, rows(2, 1), rows(3, 1), rows(4, 1)); /* one product, not two */
  expect("matmul glu ");
  matmul(1, 2);
  matmul(1, 3);
  matmul(1, 4);
  matmul(1, 5); /* a fourth begins anew */
  expect("[3] matmul ");
  rope(2, 5);
  kv_write(5, 4);
  expect("rope kv_write ");
  give(ISO_OP_RMS_NORM, rows(0, 2), rows(70, 1), rows(10, 2)); /* two rows */
  expect("rms_norm ");
}

/* All ops of a dispatch run at once: none may write what another reads or writes. */
static void test_overlaps(void **state) {
  (void)state;
  give(ISO_OP_RMS_NORM, rows(0, 1), rows(70, 1), rows(1, 1));
  matmul(1, 0); /* over the row that is normalised */
  expect("rms_norm matmul ");
  matmul(7, 8);
  give(ISO_OP_ADD, rows(0, 1), rows(8, 1), rows(7, 1)); /* over the row that is multiplied */
  expect("matmul add ");
  matmul(7, 8);
  give(ISO_OP_ADD, rows(0, 1), rows(8, 1), rows(0, 1)); /* in place: element by element */
  expect("[1 add] ");
  rope(2, 5);
  rope(5, 6); /* of what the first one writes */
  kv_write(6, 4);
  expect("rope rope kv_write ");
}

/* Attention of the token that was written, its rows where the queries were or apart from all. */
static void test_attention(void **state) {
  (void)state;
  rotate_and_write();
  attention(5, 2, 1);
  expect("[rope rope write attention] ");
  rotate_and_write();
  attention(5, 7, 1);
  expect("[rope rope write attention] ");
  rotate_and_write();
  attention(7, 8, 1); /* of other queries */
  expect("[rope rope write] paged_attention ");
  rotate_and_write();
  attention(5, 7, 2); /* of one of several sequences */
  expect("[rope rope write] paged_attention ");
  for (uint64_t place = 3; place < 7; place++) { /* over keys, values or what is rotated */
    rotate_and_write();
    attention(5, place, 1);
    expect("[rope rope write] paged_attention ");
  }
}

static void test_off(void **state) {
  (void)state;
  deferred.is_off = true;
  matmul(7, 8);
  give(ISO_OP_ADD, rows(0, 1), rows(8, 1), rows(9, 1));
  expect("matmul add ");
  deferred.is_off = false;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_decode_step), cmocka_unit_test(test_lost_row),
      cmocka_unit_test(test_strangers),   cmocka_unit_test(test_overlaps),
      cmocka_unit_test(test_attention),   cmocka_unit_test(test_off)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
#include "without_vulkan.h"
#endif
