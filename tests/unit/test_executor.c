/* Executors against a straightforward evaluation of the same graph: bit for bit equal, whatever
 * the devices, their memory and their queues. */
#include "tests/unit/executor_case.h"

/* Every kind of memory and queue. */
static void test_one_device(void **state) {
  (void)state;
  static const char *const specs[][2] = {{"host"}, {"left"}};
  for (int kind = 0; kind < 17; kind++) {
    reset_fakes();
    rig r = make_rig(kind % 2 ? &plain_model : &quantized_model);
    fake_configs[0].mappable = kind & 1;
    fake_configs[0].deferred = kind & 2;
    fake_configs[0].imports = kind & 4;
    fake_configs[0].packs = kind & 8;
    r.weights->stays = kind & 4;
    must_open(&r, specs[kind < 16], NULL, -1, false);
    assert_int_equal(r.weights->gets, r.weights->dones);
    assert_int_equal(r.weights->progress, r.weights->total);
    run_steps(&r);
    iso_executor_stats stats;
    iso_executor_get_stats(r.executor, &stats);
    assert_int_equal(stats.runs, 6);
    assert_true(stats.total_us > 0 && stats.kernel_us == 0);
    if (kind < 16) {
      assert_int_equal(fake_imported > 0, !!(kind & 4));
      assert_int_equal(stats.imported_bytes > 0, !!(kind & 4));
      assert_int_equal(fake_packed > 0, !!(kind & 8));
    }
    free_rig(&r);
  }
}

/* Two devices, split at every boundary, of one backend or two, mappable or not, which copy from
 * each other or not. */
static void test_split_at_every_boundary(void **state) {
  (void)state;
  static const char *const pairs[][3] = {
      {"left:0", "left:1"}, {"left", "right"}, {"host", "left"}, {"left", "host"}};
  fake_model model = {3, true, false, ISO_SCHEME_F32};
  rig r = make_rig(&model);
  for (int pair = 0; pair < 4; pair++)
    for (int kind = 0; kind < 8; kind++)
      for (int32_t at = 0; at <= 3; at++) {
        reset_fakes();
        fake_configs[0].deferred = fake_configs[1].deferred = true;
        fake_configs[0].mappable = kind & 1;
        fake_configs[1].mappable = kind & 2;
        fake_configs[0].peers = fake_configs[1].peers = kind & 4;
        must_open(&r, pairs[pair], &at, -1, false);
        run_steps(&r);
        close_rig(&r);
        assert_int_equal(fake_live, 0);
      }
  free_rig(&r);
}

/* Ops that a device lacks run on the host; every other value is there and back. */
static void test_fallback(void **state) {
  (void)state;
  static const char *const pairs[][3] = {{"left:0", "left:1"}, {"left", "host"}};
  static const iso_op missing[] = {ISO_OP_ROPE, ISO_OP_PAGED_ATTENTION, ISO_OP_RMS_NORM,
                                   ISO_OP_MATMUL, ISO_OP_ARGMAX};
  const int32_t all = 100;
  rig r = make_rig(&plain_model);
  for (int pair = 0; pair < 2; pair++)
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
      reset_fakes();
      fake_configs[0].deferred = true;
      fake_configs[0].missing = UINT64_C(1) << missing[i];
      must_open(&r, pairs[pair], &all, 1, false);
      assert_true(r.plan->n_fallbacks > 0);
      run_steps(&r);
      close_rig(&r);
    }
  assert_int_equal(open_rig(&r, pairs[0], &all, -1, false), ISO_ERROR_UNSUPPORTED);
  assert_non_null(strstr(iso_status_message(), "argmax.fake refuses the device: made to"));
  free_rig(&r);
}

/* Steps that leave rows out and steps that run them, in turn: on one device, and with values that
 * cross to another as either. */
static void test_rows_left_out(void **state) {
  (void)state;
  static const char *const specs[][3] = {{"left"}, {"left:0", "left:1"}, {"left", "host"}};
  static const iso_op missing[] = {ISO_OP_COUNT, ISO_OP_ROPE, ISO_OP_ADD, ISO_OP_KV_WRITE};
  const int32_t all = 100;
  rig r = make_rig(&leaving_model);
  for (int s = 0; s < 3; s++)
    for (size_t i = 0; i < (s == 0 ? 1 : sizeof missing / sizeof *missing); i++) {
      reset_fakes();
      fake_configs[0].deferred = true;
      fake_configs[0].missing = missing[i] < ISO_OP_COUNT ? UINT64_C(1) << missing[i] : 0;
      must_open(&r, specs[s], &all, s == 0 ? -1 : 1, false);
      run_steps(&r);
      iso_bindings wrong = {{0, 4, 1, 1, 3}};
      assert_int_equal(iso_executor_run(r.executor, &wrong), ISO_ERROR_INVALID_ARGUMENT);
      close_rig(&r);
    }
  free_rig(&r);
}

static void test_keep_all(void **state) {
  (void)state;
  static const char *const specs[] = {"left:0", "left:1", NULL};
  reset_fakes();
  fake_configs[0].deferred = true;
  const int32_t at = 1;
  rig r = make_rig(&plain_model);
  must_open(&r, specs, &at, -1, true);
  oracle *o = make_oracle(r.graph, r.weights);
  uint64_t random = 3;
  iso_bindings bindings = set_batch(&r, o, 2, (int[]){3, 4}, 0, &random);
  evaluate(o, &bindings);
  assert_int_equal(iso_executor_run(r.executor, &bindings), ISO_OK);
  for (iso_value v = 0; v < iso_graph_value_count(r.graph); v++) {
    const iso_value_info *info = iso_graph_get_value(r.graph, v);
    assert_same(&r, o, v, bindings.size[info->shape.dims[0].symbol]);
    /* A strided view reads as dense rows. */
    iso_tensor tensor;
    const uint8_t *base = oracle_tensor(o, v, &bindings, &tensor);
    if (info->storage == v || tensor.n_dims != 2)
      continue;
    float row[512];
    uint64_t row_bytes = (uint64_t)tensor.dims[1] * sizeof(float);
    float *all = malloc(row_bytes * (uint64_t)tensor.dims[0]);
    assert_int_equal(iso_executor_read(r.executor, v, all, row_bytes * (uint64_t)tensor.dims[0]),
                     ISO_OK);
    for (int64_t i = 0; i < tensor.dims[0]; i++) {
      memcpy(row, base + i * tensor.strides[0], row_bytes);
      assert_memory_equal(row, all + i * tensor.dims[1], row_bytes);
    }
    free(all);
  }
  free_oracle(o);
  free_rig(&r);
}

/* States have been touched: what the kernel backs late is there before the first step. */
static void assert_touched(const rig *r, iso_executor *executor) {
  int n_states = 0;
  for (iso_value v = 0; v < iso_graph_value_count(r->graph); v++) {
    uint32_t device;
    iso_buffer *buffer = iso_executor_state(executor, v, &device);
    for (uint64_t i = 0; buffer && i < buffer->bytes; i++)
      assert_int_equal(buffer->data[i], 0);
    n_states += buffer != NULL;
  }
  assert_in_range(n_states, 1, 100);
}

/* A second executor of the same weights loads nothing, and lives on without the first. */
static void test_share(void **state) {
  (void)state;
  static const char *const specs[] = {"left", NULL};
  reset_fakes();
  fake_configs[0].packs = true;
  rig r = make_rig(&plain_model);
  must_open(&r, specs, NULL, -1, false);
  iso_executor *first = r.executor, *second;
  iso_weight_provider provider = provider_of(r.weights);
  int gets = r.weights->gets;
  assert_int_equal(iso_executor_create(r.plan, r.devices, &provider, first, &second), ISO_OK);
  assert_touched(&r, second);
  assert_int_equal(iso_executor_fill_states(second, 0), ISO_OK);
  assert_int_equal(r.weights->gets, gets);
  iso_executor_destroy(first);
  r.executor = second;
  run_steps(&r);
  free_rig(&r);
}

typedef struct trace {
  int launches, copies;
  double us;
} trace;

static void observe(void *context, const iso_plan_step *step, const iso_kernel *kernel,
                    double microseconds) {
  trace *t = context;
  t->launches += kernel != NULL;
  t->copies += step->kind == ISO_STEP_COPY;
  t->us += kernel ? microseconds : 0;
}

static void test_observer(void **state) {
  (void)state;
  static const char *const specs[] = {"left:0", "left:1", NULL};
  reset_fakes();
  fake_configs[0].deferred = true;
  const int32_t at = 1;
  rig r = make_rig(&plain_model);
  must_open(&r, specs, &at, -1, false);
  oracle *o = make_oracle(r.graph, r.weights);
  uint64_t random = 3;
  trace t = {0};
  iso_executor_observe(r.executor, observe, &t);
  run_batch(&r, o, 1, (int[]){2}, 0, &random);
  assert_int_equal(t.launches, iso_graph_node_count(r.graph));
  assert_int_equal(t.copies, 1);
  iso_executor_stats stats;
  iso_executor_get_stats(r.executor, &stats);
  assert_true(stats.kernel_us == t.us && t.us > 0 && stats.total_us >= t.us);
  iso_executor_observe(r.executor, NULL, NULL);
  run_batch(&r, o, 1, (int[]){2}, 0, &random);
  assert_int_equal(t.copies, 1);
  free_oracle(o);
  free_rig(&r);
}

/* Random graphs of row-wise ops, over two devices of which one lacks an op. */
static iso_graph *random_graph(uint64_t *random) {
  iso_graph *g;
  assert_int_equal(iso_graph_create(&g), ISO_OK);
  iso_value values[64];
  int count = 0, n_nodes = 3 + (int)(next_random(random) % 40);
  values[count++] = iso_graph_input(g, "x", ISO_SCHEME_F32, fake_shape2(FAKE_T, FAKE_N(32)));
  values[count++] = iso_graph_input(g, "z", ISO_SCHEME_F32, fake_shape2(FAKE_T, FAKE_N(32)));
  iso_value gain = iso_graph_weight(g, "g", ISO_SCHEME_F32, fake_shape1(FAKE_N(32)));
  iso_value wide = iso_graph_weight(g, "w", ISO_SCHEME_Q8_0, fake_shape2(FAKE_N(96), FAKE_N(32)));
  for (int i = 0; i < n_nodes; i++) {
    iso_value a = values[next_random(random) % (uint64_t)count];
    iso_value b = values[next_random(random) % (uint64_t)count];
    iso_graph_set_layer(g, i);
    switch (next_random(random) % 4) {
    case 0:
      a = iso_graph_apply(g, ISO_OP_ADD, NULL, ISO_SCHEME_F32, 2, a, b);
      break;
    case 1:
      a = iso_graph_apply(g, ISO_OP_RMS_NORM, NULL, ISO_SCHEME_F32, 2, a, gain);
      break;
    case 2:
      a = iso_graph_apply(g, ISO_OP_MATMUL, NULL, ISO_SCHEME_F32, 2, a, wide);
      a = iso_graph_columns(g, a, (int64_t)(next_random(random) % 65), 32);
      break;
    default:
      a = iso_graph_apply(g, ISO_OP_GLU, NULL, ISO_SCHEME_F32, 2, a, b);
    }
    values[count++] = a;
  }
  iso_graph_output(g, values[count - 1], "y");
  assert_int_equal(iso_graph_finish(g), ISO_OK);
  return g;
}

static void test_random_graphs(void **state) {
  (void)state;
  static const char *const pairs[][3] = {{"left:0", "left:1"}, {"left", "right"}};
  for (uint64_t seed = 1; seed <= 150; seed++) {
    uint64_t random = seed * 104729;
    reset_fakes();
    for (int i = 0; i < 2; i++)
      fake_configs[i] = (fake_config){.deferred = next_random(&random) & 1,
                                      .mappable = next_random(&random) & 1,
                                      .packs = next_random(&random) & 1,
                                      .memory_bytes = 1 << 26};
    fake_configs[0].missing = seed % 2 ? UINT64_C(1) << ISO_OP_GLU : 0;
    rig r = {.graph = random_graph(&random)};
    r.weights = make_weights(r.graph, seed);
    int32_t at = (int32_t)(next_random(&random) % 20);
    must_open(&r, pairs[next_random(&random) & 1], &at, 1, false);
    oracle *o = make_oracle(r.graph, r.weights);
    for (int step = 0; step < 4; step++) {
      int64_t rows = (int64_t)(next_random(&random) % (FAKE_TOKENS + 1));
      for (const char *name = "xz"; *name; name++) {
        char text[2] = {*name, 0};
        iso_value v = iso_graph_find(r.graph, text);
        float *x = iso_executor_input(r.executor, v);
        for (int64_t i = 0; i < rows * 32; i++)
          x[i] = random_float(&random);
        memcpy(o->storage[v], x, (size_t)rows * 32 * sizeof *x);
      }
      iso_bindings bindings = {{0, rows, 0, 0}};
      evaluate(o, &bindings);
      if (iso_executor_run(r.executor, &bindings) != ISO_OK)
        fail_msg("%s", iso_status_message());
      iso_value y = iso_graph_find(r.graph, "y");
      assert_same(&r, o, y, rows);
      if (iso_graph_get_value(r.graph, y)->storage != y) {
        /* a view: its storage is compared through it */
        iso_tensor tensor;
        const uint8_t *base = oracle_tensor(o, y, &bindings, &tensor);
        float got[FAKE_TOKENS * 32];
        assert_int_equal(iso_executor_read(r.executor, y, got, (uint64_t)rows * 128), ISO_OK);
        for (int64_t i = 0; i < rows; i++)
          assert_memory_equal(base + i * tensor.strides[0], got + i * 32, 128);
      }
    }
    free_oracle(o);
    free_rig(&r);
  }
}

static iso_status get_ones(void *context, const char *name, iso_host_weight *out_weight,
                           bool *out_stays) {
  (void)name;
  enum { ROWS = 3, COLUMNS = 1024 };
  *out_weight = (iso_host_weight){.size = sizeof *out_weight,
                                  .scheme = ISO_SCHEME_F32,
                                  .n_dims = 2,
                                  .dims = {ROWS, COLUMNS},
                                  .data = context,
                                  .bytes = ROWS * COLUMNS * sizeof(float)};
  *out_stays = true;
  return ISO_OK;
}

/* Scratch above 4 GiB: values lie past 2^32, and one straddles it. Only what two rows touch takes
 * memory. */
static void test_scratch_past_four_gib(void **state) {
  (void)state;
  static float table[3 * 1024];
  for (int i = 0; i < 3 * 1024; i++)
    table[i] = (float)i;
  iso_graph *g;
  assert_int_equal(iso_graph_create(&g), ISO_OK);
  iso_dim rows = iso_dim_symbol(ISO_SYMBOL_TOKENS, (1 << 19) + 5);
  iso_value ids = iso_graph_input(g, "ids", ISO_SCHEME_I32, fake_shape1(rows));
  iso_value weight =
      iso_graph_weight(g, "table", ISO_SCHEME_F32, fake_shape2(FAKE_N(3), FAKE_N(1024)));
  iso_value x = iso_graph_apply(g, ISO_OP_EMBEDDING, NULL, ISO_SCHEME_F32, 2, ids, weight);
  iso_value y = iso_graph_apply(g, ISO_OP_ADD, NULL, ISO_SCHEME_F32, 2, x, x);
  iso_value z = iso_graph_apply(g, ISO_OP_ADD, NULL, ISO_SCHEME_F32, 2, x, y);
  iso_graph_output(g, z, "z");
  assert_int_equal(iso_graph_finish(g), ISO_OK);
  static const char *const specs[] = {"cpu", "host"};
  for (int i = 0; i < 2; i++) {
    rig r = {.graph = g};
    assert_int_equal(iso_registry_create(&r.registry), ISO_OK);
    assert_int_equal(iso_device_open(r.registry, specs[i], NULL, &r.devices[0]), ISO_OK);
    iso_open_device *device = r.devices[0];
    iso_plan_device plan_device = {device->spec, device->kernels, device->kernel_count,
                                   device->device, device->info.alignment_bytes};
    iso_plan_options options = {.n_devices = 1, .devices = &plan_device, .fallback = -1};
    assert_int_equal(iso_plan_create(g, &options, &r.plan), ISO_OK);
    assert_string_equal(fake_check_memory(r.plan, 1), "");
    assert_true(r.plan->arena_bytes[0] > UINT64_C(6) << 30);
    assert_true(r.plan->value_operand[z].offset > UINT32_MAX);
    uint64_t bytes_free;
    assert_int_equal(device->memory.bytes_free(device->device, &bytes_free), ISO_OK);
    iso_weight_provider provider = {.context = table, .get = get_ones};
    iso_status status = iso_executor_create(r.plan, r.devices, &provider, NULL, &r.executor);
    if (bytes_free < r.plan->arena_bytes[0]) {
      print_message("%s has only %llu bytes free: checking that it is refused\n", specs[i],
                    (unsigned long long)bytes_free);
      assert_int_equal(status, ISO_ERROR_OUT_OF_MEMORY);
    } else {
      assert_int_equal(status, ISO_OK);
      int32_t *id = iso_executor_input(r.executor, ids);
      id[0] = 2;
      id[1] = 1;
      iso_bindings two = {{0, 2, 0, 0}};
      assert_int_equal(iso_executor_run(r.executor, &two), ISO_OK);
      float *sums = malloc(2 * 1024 * sizeof *sums);
      assert_non_null(sums);
      assert_int_equal(iso_executor_read(r.executor, z, sums, 2 * 1024 * sizeof *sums), ISO_OK);
      for (int k = 0; k < 1024; k++) {
        assert_true(sums[k] == 3.0f * (float)(2048 + k));
        assert_true(sums[1024 + k] == 3.0f * (float)(1024 + k));
      }
      free(sums);
    }
    iso_executor_destroy(r.executor);
    iso_plan_destroy(r.plan);
    iso_device_close(device);
    iso_registry_destroy(r.registry);
  }
  iso_graph_destroy(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_device),
      cmocka_unit_test(test_split_at_every_boundary),
      cmocka_unit_test(test_fallback),
      cmocka_unit_test(test_rows_left_out),
      cmocka_unit_test(test_keep_all),
      cmocka_unit_test(test_share),
      cmocka_unit_test(test_observer),
      cmocka_unit_test(test_random_graphs),
      cmocka_unit_test(test_scratch_past_four_gib),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
