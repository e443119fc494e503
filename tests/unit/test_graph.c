#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <isomer/graph.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define T(bound) iso_dim_symbol(ISO_SYMBOL_TOKENS, bound)
#define N(size) iso_dim_constant(size)

static iso_shape shape1(iso_dim a) { return (iso_shape){1, {a}}; }
static iso_shape shape2(iso_dim a, iso_dim b) { return (iso_shape){2, {a, b}}; }
static iso_shape shape3(iso_dim a, iso_dim b, iso_dim c) { return (iso_shape){3, {a, b, c}}; }
static iso_shape shape4(iso_dim a, iso_dim b, iso_dim c, iso_dim d) {
  return (iso_shape){4, {a, b, c, d}};
}

static iso_graph *new_graph(void) {
  iso_graph *graph;
  assert_int_equal(iso_graph_create(&graph), ISO_OK);
  return graph;
}

static void assert_fails(iso_graph *graph, iso_status code, const char *words) {
  assert_int_equal(iso_graph_finish(graph), code);
  if (!strstr(iso_status_message(), words))
    fail_msg("\"%s\" does not say \"%s\"", iso_status_message(), words);
  iso_graph_destroy(graph);
}

/* One attention block: fused projection split by columns, cache written in place. */
static void build_attention(iso_graph *g) {
  iso_value ids = iso_graph_input(g, "ids", ISO_SCHEME_I32, shape1(T(16)));
  iso_value slots = iso_graph_input(g, "slots", ISO_SCHEME_I32, shape1(T(16)));
  iso_value table = iso_graph_weight(g, "table", ISO_SCHEME_Q8_0, shape2(N(100), N(64)));
  iso_value qkv = iso_graph_weight(g, "qkv", ISO_SCHEME_F16, shape2(N(128), N(64)));
  iso_value cache_k = iso_graph_state(g, "k", ISO_SCHEME_F32, shape4(N(4), N(2), N(8), N(16)));
  iso_value cache_v = iso_graph_state(g, "v", ISO_SCHEME_F32, shape4(N(4), N(2), N(8), N(16)));
  iso_embedding_attributes scaled = {.size = sizeof scaled, .scale = 2.0f};
  iso_value x = iso_graph_apply(g, ISO_OP_EMBEDDING, &scaled, ISO_SCHEME_F32, 2, ids, table);
  iso_graph_set_layer(g, 0);
  iso_value all = iso_graph_apply(g, ISO_OP_MATMUL, NULL, ISO_SCHEME_F32, 2, x, qkv);
  iso_value k = iso_graph_reshape(g, iso_graph_columns(g, all, 64, 32), shape3(T(16), N(2), N(16)));
  iso_value v = iso_graph_reshape(g, iso_graph_columns(g, all, 96, 32), shape3(T(16), N(2), N(16)));
  iso_value inputs[] = {k, v, slots, cache_k, cache_v}, out[2];
  iso_graph_append(g, ISO_OP_KV_WRITE, inputs, NULL, ISO_SCHEME_F32, out);
  iso_graph_output(g, all, "hidden");

  const iso_value_info *view = iso_graph_get_value(g, v);
  assert_int_equal(view->storage, all);
  assert_int_equal(view->storage_offset, 96 * 4);
  assert_int_equal(view->strides[0], 128 * 4);
  assert_int_equal(view->strides[1], 16 * 4);
  assert_int_equal(view->strides[2], 4);
  const iso_value_info *written = iso_graph_get_value(g, out[1]);
  assert_int_equal(written->storage, cache_v);
  assert_int_equal(written->role, ISO_VALUE_TEMPORARY);
  assert_string_equal(written->name, "0.kv_write.0.v_cache_out");
  assert_string_equal(iso_graph_get_value(g, x)->name, "-1.embedding.0");
}

static void test_build(void **state) {
  (void)state;
  iso_graph *g = new_graph();
  build_attention(g);
  assert_int_equal(iso_graph_finish(g), ISO_OK);
  assert_int_equal(iso_graph_node_count(g), 3);
  assert_int_equal(iso_graph_find(g, "qkv"), 3);
  assert_string_equal(iso_graph_get_value(g, iso_graph_find(g, "hidden"))->name, "hidden");
  assert_int_equal(iso_graph_find(g, "nothing"), ISO_NO_VALUE);
  assert_int_equal(iso_graph_get_node(g, 1)->layer, 0);
  assert_null(iso_graph_get_node(g, 3));
  assert_null(iso_graph_get_value(g, -1));
  /* A finished graph takes nothing more. */
  int32_t count = iso_graph_value_count(g);
  assert_int_equal(iso_graph_input(g, "late", ISO_SCHEME_F32, shape1(N(1))), ISO_NO_VALUE);
  assert_int_equal(iso_graph_value_count(g), count);
  iso_graph_destroy(g);
}

static void test_print(void **state) {
  (void)state;
  iso_graph *g = new_graph();
  build_attention(g);
  assert_int_equal(iso_graph_finish(g), ISO_OK);
  char *text;
  assert_int_equal(iso_graph_print(g, &text), ISO_OK);
  assert_string_equal(text, "input %0 ids : i32 [T<=16]\n"
                            "input %1 slots : i32 [T<=16]\n"
                            "weight %2 table : q8_0 [100, 64]\n"
                            "weight %3 qkv : f16 [128, 64]\n"
                            "state %4 k : f32 [4, 2, 8, 16]\n"
                            "state %5 v : f32 [4, 2, 8, 16]\n"
                            "  %6 = embedding(%0, %2) {scale=2} : f32 [T<=16, 64]\n"
                            "layer 0\n"
                            "  %7 = matmul(%6, %3, -) : f32 [T<=16, 128]\n"
                            "  %8 = view %7 + 256 strides [512, 4] : f32 [T<=16, 32]\n"
                            "  %9 = view %7 + 256 strides [512, 64, 4] : f32 [T<=16, 2, 16]\n"
                            "  %10 = view %7 + 384 strides [512, 4] : f32 [T<=16, 32]\n"
                            "  %11 = view %7 + 384 strides [512, 64, 4] : f32 [T<=16, 2, 16]\n"
                            "  %12, %13 = kv_write(%9, %11, %1, %4, %5) : f32 [4, 2, 8, 16], "
                            "f32 [4, 2, 8, 16]\n"
                            "output %7 hidden\n");
  free(text);
  iso_graph_destroy(g);
}

static void test_first_failure_sticks(void **state) {
  (void)state;
  iso_graph *g = new_graph();
  iso_value x = iso_graph_input(g, "x", ISO_SCHEME_F32, shape2(T(8), N(64)));
  iso_value w = iso_graph_weight(g, "w", ISO_SCHEME_F32, shape2(N(10), N(63)));
  iso_graph_set_layer(g, 5);
  iso_value y = iso_graph_apply(g, ISO_OP_MATMUL, NULL, ISO_SCHEME_F32, 2, x, w);
  assert_int_equal(y, ISO_NO_VALUE);
  assert_int_equal(iso_graph_apply(g, ISO_OP_ADD, NULL, ISO_SCHEME_F32, 2, y, y), ISO_NO_VALUE);
  assert_int_equal(iso_graph_reshape(g, x, shape1(N(3))), ISO_NO_VALUE);
  (void)iso_fail(ISO_ERROR_IO, "something else in between");
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "node 0 (matmul in layer 5)");
}

static void test_refused_values(void **state) {
  (void)state;
  iso_graph *g = new_graph();
  iso_graph_input(g, "x", ISO_SCHEME_F32, shape1(N(4)));
  iso_graph_weight(g, "x", ISO_SCHEME_F32, shape1(N(4)));
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "value x: the name is already taken");

  g = new_graph();
  iso_graph_input(g, "x", ISO_SCHEME_F32, shape2(N(4), T(4)));
  assert_fails(g, ISO_ERROR_UNSUPPORTED, "only the first one may be a symbol");

  g = new_graph();
  iso_graph_input(g, "x", ISO_SCHEME_F32, shape1(T(4)));
  iso_graph_input(g, "y", ISO_SCHEME_F32, shape1(T(5)));
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "T is bounded by 5 here and by 4 before");

  g = new_graph();
  iso_graph_weight(g, "w", ISO_SCHEME_F32, shape1(T(4)));
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "only inputs may have a symbol");

  const iso_shape bad[] = {{0}, {5}, shape1(N(0)), shape1(N(-1)), shape1(N(ISO_MAX_DIM + 1))};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    g = new_graph();
    iso_graph_weight(g, "w", ISO_SCHEME_F32, bad[i]);
    assert_int_not_equal(iso_graph_finish(g), ISO_OK);
    iso_graph_destroy(g);
  }

  g = new_graph();
  iso_graph_weight(g, "w", ISO_SCHEME_F32, shape3(N(ISO_MAX_DIM), N(ISO_MAX_DIM), N(4)));
  assert_int_equal(iso_graph_finish(g), ISO_ERROR_LIMIT);
  iso_graph_destroy(g);

  g = new_graph();
  iso_graph_weight(g, "w", ISO_SCHEME_Q4_K, shape2(N(4), N(100)));
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "whole q4_k blocks");

  g = new_graph();
  iso_graph_weight(g, "w", (iso_scheme)999, shape1(N(4)));
  assert_int_not_equal(iso_graph_finish(g), ISO_OK);
  iso_graph_destroy(g);
}

static void test_refused_nodes(void **state) {
  (void)state;
  iso_graph *g = new_graph();
  iso_value x = iso_graph_input(g, "x", ISO_SCHEME_F32, shape2(T(8), N(64)));
  iso_graph_apply(g, ISO_OP_MATMUL, NULL, ISO_SCHEME_F32, 2, x, 77);
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "operand weight is not a value");

  g = new_graph();
  x = iso_graph_input(g, "x", ISO_SCHEME_F32, shape2(T(8), N(64)));
  iso_graph_apply(g, ISO_OP_MATMUL, NULL, ISO_SCHEME_F32, 1, x);
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "operand weight is missing");

  g = new_graph();
  iso_graph_apply(g, (iso_op)9999, NULL, ISO_SCHEME_F32, 0);
  assert_int_equal(iso_graph_finish(g), ISO_ERROR_INVALID_ARGUMENT);
  iso_graph_destroy(g);

  /* A strided view is no parameter, and a temporary is not updated in place. */
  g = new_graph();
  x = iso_graph_input(g, "x", ISO_SCHEME_F32, shape2(N(2), N(64)));
  iso_value part = iso_graph_columns(g, x, 0, 32);
  iso_value logits = part;
  iso_graph_apply(g, ISO_OP_ARGMAX, NULL, ISO_SCHEME_F32, 1, logits);
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "must be dense");

  g = new_graph();
  iso_value k = iso_graph_input(g, "k", ISO_SCHEME_F32, shape3(T(8), N(2), N(16)));
  iso_value slots = iso_graph_input(g, "slots", ISO_SCHEME_I32, shape1(T(8)));
  iso_value cache = iso_graph_input(g, "c", ISO_SCHEME_F32, shape4(N(4), N(2), N(8), N(16)));
  iso_value inputs[] = {k, k, slots, cache, cache};
  iso_graph_append(g, ISO_OP_KV_WRITE, inputs, NULL, ISO_SCHEME_F32, NULL);
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "must be a state");
}

static void test_views(void **state) {
  (void)state;
  iso_graph *g = new_graph();
  iso_value x = iso_graph_input(g, "x", ISO_SCHEME_F32, shape2(T(8), N(64)));
  /* Joined and split again, and a trailing dimension of one. */
  iso_value split = iso_graph_reshape(g, x, shape3(T(8), N(4), N(16)));
  iso_value joined = iso_graph_reshape(g, split, shape2(T(8), N(64)));
  iso_value tail = iso_graph_reshape(g, x, shape3(T(8), N(64), N(1)));
  assert_int_equal(iso_graph_get_value(g, joined)->strides[0], 256);
  assert_int_equal(iso_graph_get_value(g, tail)->strides[0], 256);
  assert_int_equal(iso_graph_get_value(g, tail)->strides[1], 4);
  assert_int_equal(iso_graph_get_value(g, tail)->strides[2], 4);
  /* Columns of columns. */
  iso_value part = iso_graph_columns(g, iso_graph_columns(g, x, 16, 32), 8, 8);
  assert_int_equal(iso_graph_get_value(g, part)->storage_offset, 96);
  assert_int_equal(iso_graph_get_value(g, part)->storage, x);
  assert_int_equal(iso_graph_finish(g), ISO_OK);
  iso_graph_destroy(g);

  g = new_graph();
  x = iso_graph_input(g, "x", ISO_SCHEME_F32, shape2(T(8), N(64)));
  iso_graph_reshape(g, x, shape2(T(8), N(65)));
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "has other elements");

  g = new_graph();
  x = iso_graph_input(g, "x", ISO_SCHEME_F32, shape2(T(8), N(64)));
  iso_graph_reshape(g, x, shape1(N(512)));
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "has other elements");

  g = new_graph();
  x = iso_graph_input(g, "x", ISO_SCHEME_F32, shape3(T(8), N(2), N(64)));
  iso_graph_reshape(g, iso_graph_columns(g, x, 0, 32), shape2(T(8), N(64)));
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "strided");

  /* One column, whose elements are a row apart, is no row of them. */
  g = new_graph();
  x = iso_graph_input(g, "x", ISO_SCHEME_F32, shape3(T(8), N(16), N(4)));
  iso_graph_reshape(g, iso_graph_columns(g, x, 3, 1), shape2(T(8), N(16)));
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "strided");

  g = new_graph();
  x = iso_graph_input(g, "x", ISO_SCHEME_F32, shape2(T(8), N(64)));
  iso_graph_reshape(g, x, (iso_shape){ISO_MAX_DIMS + 1, {T(8), N(64), N(1), N(1)}});
  assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "5 dimensions");

  const int64_t bad[][2] = {{-1, 4}, {0, 0}, {60, 5}, {65, 1}, {INT64_MAX, 2}, {1, INT64_MAX}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    g = new_graph();
    x = iso_graph_input(g, "x", ISO_SCHEME_F32, shape2(T(8), N(64)));
    iso_graph_columns(g, x, bad[i][0], bad[i][1]);
    assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, "has columns 0 to 64");
  }
}

/* What steps may leave out, and what stands in for it. */
static void test_rows_left_out(void **state) {
  (void)state;
  iso_graph *g = new_graph();
  iso_value ids = iso_graph_input(g, "ids", ISO_SCHEME_I32, shape1(T(16)));
  iso_value table = iso_graph_weight(g, "table", ISO_SCHEME_F32, shape2(N(100), N(64)));
  iso_value x = iso_graph_apply(g, ISO_OP_EMBEDDING, NULL, ISO_SCHEME_F32, 2, ids, table);
  iso_value rows = iso_graph_recount(g, x, ISO_SYMBOL_ADAPTED_ROWS);
  iso_value twice = iso_graph_apply(g, ISO_OP_ADD, NULL, ISO_SCHEME_F32, 2, rows, rows);
  iso_value either = iso_graph_otherwise(g, twice, x);
  iso_value heads = iso_graph_reshape(g, either, shape3(T(16), N(4), N(16)));
  assert_int_equal(iso_graph_get_value(g, rows)->storage, x);
  assert_int_equal(iso_graph_get_value(g, twice)->shape.dims[0].symbol, ISO_SYMBOL_ADAPTED_ROWS);
  assert_int_equal(iso_graph_get_value(g, either)->shape.dims[0].symbol, ISO_SYMBOL_TOKENS);
  assert_int_equal(iso_graph_get_value(g, heads)->storage, twice);
  assert_int_equal(iso_graph_get_value(g, heads)->otherwise, x);
  assert_int_equal(iso_graph_get_value(g, x)->otherwise, ISO_NO_VALUE);
  assert_int_equal(iso_graph_finish(g), ISO_OK);
  char *text;
  assert_int_equal(iso_graph_print(g, &text), ISO_OK);
  assert_non_null(strstr(text, "%4 = add(%3, %3) : f32 [A<=16, 64]"));
  assert_non_null(
      strstr(text, "%5 = view %4, otherwise %2, + 0 strides [256, 4] : f32 [T<=16, 64]"));
  free(text);
  iso_graph_destroy(g);
  for (int i = 0; i < 4; i++) {
    g = new_graph();
    ids = iso_graph_input(g, "ids", ISO_SCHEME_I32, shape1(T(16)));
    table = iso_graph_weight(g, "table", ISO_SCHEME_F32, shape2(N(100), N(64)));
    x = iso_graph_apply(g, ISO_OP_EMBEDDING, NULL, ISO_SCHEME_F32, 2, ids, table);
    rows = iso_graph_recount(g, i == 0 ? table : x, ISO_SYMBOL_ADAPTED_ROWS);
    iso_value sum = iso_graph_apply(g, ISO_OP_ADD, NULL, ISO_SCHEME_F32, 2, rows, rows);
    either = iso_graph_otherwise(g, i == 1 ? rows : sum, i == 2 ? table : x);
    iso_graph_output(g, either, "y");
    static const char *const words[] = {"no symbol counts", "cannot stand for", "cannot stand for",
                                        "not always lie in the same place"};
    assert_fails(g, ISO_ERROR_INVALID_ARGUMENT, words[i]);
  }
}

static void test_many_names(void **state) {
  (void)state;
  iso_graph *g = new_graph();
  char name[32];
  for (int i = 0; i < 5000; i++) {
    snprintf(name, sizeof name, "blk.%d.weight", i);
    assert_int_equal(iso_graph_weight(g, name, ISO_SCHEME_F32, shape1(N(4))), i);
  }
  for (int i = 0; i < 5000; i++) {
    snprintf(name, sizeof name, "blk.%d.weight", i);
    assert_int_equal(iso_graph_find(g, name), i);
  }
  assert_int_equal(iso_graph_finish(g), ISO_OK);
  iso_graph_destroy(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_build),          cmocka_unit_test(test_print),
      cmocka_unit_test(test_views),          cmocka_unit_test(test_first_failure_sticks),
      cmocka_unit_test(test_refused_values), cmocka_unit_test(test_refused_nodes),
      cmocka_unit_test(test_many_names),     cmocka_unit_test(test_rows_left_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
