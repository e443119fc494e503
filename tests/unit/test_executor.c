/* Executors against a straightforward evaluation of the same graph: bit for bit equal, whatever
 * the devices, their memory and their queues. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "core/executor.h"
#include "core/registry.h"
#include "fake_backend.h"
#include "plan_fakes.h"

/* ---- Weights ------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) { /* xorshift64* */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(2685821657736338717);
}

static float random_float(uint64_t *state) {
  return (float)(next_random(state) >> 40) / (float)(1 << 24) - 0.5f;
}

/* Bytes of every weight, by value; and what the executor did with them. */
typedef struct weights {
  const iso_graph *graph;
  void **data;
  bool stays;
  char *lent; /* a copy that goes when the executor is done with it, unless bytes stay */
  int gets, dones;
  const char *broken; /* name of a weight that is served with another shape */
  uint64_t progress, total;
} weights;

static weights *make_weights(const iso_graph *graph, uint64_t seed) {
  weights *w = calloc(1, sizeof *w);
  assert_non_null(w);
  w->graph = graph;
  w->data = calloc((size_t)iso_graph_value_count(graph), sizeof *w->data);
  assert_non_null(w->data);
  uint64_t random = seed;
  for (iso_value v = 0; v < iso_graph_value_count(graph); v++) {
    const iso_value_info *info = iso_graph_get_value(graph, v);
    if (info->role != ISO_VALUE_WEIGHT)
      continue;
    uint64_t bytes = fake_bytes(graph, v);
    int64_t row = info->shape.dims[info->shape.n_dims - 1].size, n_rows = 1;
    for (uint32_t i = 0; i + 1 < info->shape.n_dims; i++)
      n_rows *= info->shape.dims[i].size;
    char *data = w->data[v] = malloc(bytes);
    float *values = malloc((size_t)row * sizeof *values);
    assert_non_null(data);
    assert_non_null(values);
    for (int64_t r = 0; r < n_rows; r++) {
      for (int64_t i = 0; i < row; i++)
        values[i] = random_float(&random);
      iso_scheme_encode_row(info->scheme, values, NULL,
                            data + (uint64_t)r * (bytes / (uint64_t)n_rows), row);
    }
    free(values);
  }
  return w;
}

static void free_weights(weights *w) {
  for (iso_value v = 0; v < iso_graph_value_count(w->graph); v++)
    free(w->data[v]);
  free(w->data);
  free(w);
}

static iso_status get_weight(void *context, const char *name, iso_host_weight *out_weight,
                             bool *out_stays) {
  weights *w = context;
  if (fake_fault())
    return iso_fail(ISO_ERROR_IO, "injected fault in get");
  iso_value v = iso_graph_find(w->graph, name);
  const iso_value_info *info = iso_graph_get_value(w->graph, v);
  *out_weight = (iso_host_weight){.size = sizeof *out_weight,
                                  .scheme = info->scheme,
                                  .n_dims = info->shape.n_dims,
                                  .data = w->data[v],
                                  .bytes = fake_bytes(w->graph, v)};
  for (uint32_t i = 0; i < info->shape.n_dims; i++)
    out_weight->dims[i] = info->shape.dims[i].size;
  if (w->broken && strcmp(name, w->broken) == 0)
    out_weight->dims[0]++;
  *out_stays = w->stays;
  if (!w->stays) {
    out_weight->data = w->lent = malloc(out_weight->bytes);
    assert_non_null(w->lent);
    memcpy(w->lent, w->data[v], out_weight->bytes);
  }
  w->gets++;
  return ISO_OK;
}

static void done_weight(void *context, const char *name) {
  weights *w = context;
  if (w->lent) {
    memset(w->lent, 0xff, fake_bytes(w->graph, iso_graph_find(w->graph, name)));
    free(w->lent);
    w->lent = NULL;
  }
  w->dones++;
}

static void note_progress(void *context, uint64_t done_bytes, uint64_t total_bytes) {
  weights *w = context;
  assert_true(done_bytes > w->progress && done_bytes <= total_bytes);
  w->progress = done_bytes;
  w->total = total_bytes;
}

static iso_weight_provider provider_of(weights *w) {
  return (iso_weight_provider){w, get_weight, done_weight, note_progress};
}

/* ---- A straightforward evaluation ---------------------------------------------------------- */

/* Every storage has memory of its own for its bound. */
typedef struct oracle {
  const iso_graph *graph;
  uint8_t **storage; /* by value; weights belong to `weights` */
} oracle;

static oracle *make_oracle(const iso_graph *graph, const weights *w) {
  oracle *o = calloc(1, sizeof *o);
  assert_non_null(o);
  o->graph = graph;
  o->storage = calloc((size_t)iso_graph_value_count(graph), sizeof *o->storage);
  assert_non_null(o->storage);
  for (iso_value v = 0; v < iso_graph_value_count(graph); v++) {
    const iso_value_info *info = iso_graph_get_value(graph, v);
    if (info->role == ISO_VALUE_WEIGHT)
      o->storage[v] = w->data[v];
    else if (info->storage == v)
      o->storage[v] = calloc(1, fake_bytes(graph, v));
  }
  return o;
}

static void free_oracle(oracle *o) {
  for (iso_value v = 0; v < iso_graph_value_count(o->graph); v++)
    if (iso_graph_get_value(o->graph, v)->role != ISO_VALUE_WEIGHT)
      free(o->storage[v]);
  free(o->storage);
  free(o);
}

static uint8_t *oracle_tensor(const oracle *o, iso_value value, const iso_bindings *bindings,
                              iso_tensor *out_tensor) {
  const iso_value_info *info = iso_graph_get_value(o->graph, value);
  *out_tensor = (iso_tensor){0};
  if (!info)
    return NULL;
  out_tensor->scheme = info->scheme;
  out_tensor->n_dims = info->shape.n_dims;
  for (uint32_t i = 0; i < info->shape.n_dims; i++)
    out_tensor->dims[i] = iso_dim_size(info->shape.dims[i], bindings);
  memcpy(out_tensor->strides, info->strides, sizeof info->strides);
  return o->storage[info->storage] + info->storage_offset;
}

static void evaluate(const oracle *o, const iso_bindings *bindings) {
  for (int32_t n = 0; n < iso_graph_node_count(o->graph); n++) {
    const iso_node_info *node = iso_graph_get_node(o->graph, n);
    iso_op_arguments a = {.size = sizeof a,
                          .op = node->op,
                          .n_inputs = node->n_inputs,
                          .n_outputs = node->n_outputs,
                          .attributes = node->attributes};
    const void *inputs[ISO_MAX_INPUTS];
    void *outputs[ISO_MAX_OUTPUTS];
    for (uint32_t i = 0; i < node->n_inputs; i++)
      inputs[i] = oracle_tensor(o, node->inputs[i], bindings, &a.inputs[i]);
    for (uint32_t i = 0; i < node->n_outputs; i++)
      outputs[i] = oracle_tensor(o, node->outputs[i], bindings, &a.outputs[i]);
    if (iso_reference_run(&a, inputs, outputs) != ISO_OK)
      fail_msg("node %d: %s", n, iso_status_message());
  }
}

/* ---- Rigs: a graph, its weights, devices, an executor ---------------------------------------- */

typedef struct rig {
  iso_graph *graph;
  weights *weights;
  iso_registry *registry;
  uint32_t n_devices;
  iso_open_device *devices[3];
  iso_plan *plan;
  iso_executor *executor;
} rig;

static void reset_fakes(void) {
  fake_calls = fake_fail_at = fake_packed = fake_imported = fake_launched = 0;
  fake_recorded = fake_replayed = 0;
  for (int i = 0; i < 2; i++)
    fake_configs[i] = (fake_config){.memory_bytes = 1 << 26};
}

/* Opens and plans; no assertion, so that faults can be put anywhere. */
static iso_status open_rig(rig *r, const char *const *specs, const int32_t *split, int32_t fallback,
                           bool keep_all) {
  ISO_TRY(iso_registry_create(&r->registry));
  ISO_TRY(iso_registry_add(r->registry, &fake_backends[0]));
  ISO_TRY(iso_registry_add(r->registry, &fake_backends[1]));
  iso_plan_device devices[3];
  for (; specs[r->n_devices]; r->n_devices++) {
    iso_open_device **open = &r->devices[r->n_devices];
    ISO_TRY(iso_device_open(r->registry, specs[r->n_devices], NULL, open));
    devices[r->n_devices] =
        (iso_plan_device){(*open)->spec, (*open)->kernels, (*open)->kernel_count, (*open)->device,
                          (*open)->info.alignment_bytes};
  }
  iso_plan_options options = {.n_devices = r->n_devices,
                              .devices = devices,
                              .split = split,
                              .fallback = fallback,
                              .keep_all = keep_all};
  ISO_TRY(iso_plan_create(r->graph, &options, &r->plan));
  iso_weight_provider provider = provider_of(r->weights);
  ISO_TRY(iso_executor_create(r->plan, r->devices, &provider, NULL, &r->executor));
  return iso_executor_clear_states(r->executor);
}

static void close_rig(rig *r) {
  iso_executor_destroy(r->executor);
  iso_plan_destroy(r->plan);
  for (uint32_t d = 0; d < 3; d++)
    iso_device_close(r->devices[d]);
  iso_registry_destroy(r->registry);
  iso_graph *graph = r->graph;
  weights *w = r->weights;
  w->progress = 0;
  *r = (rig){.graph = graph, .weights = w};
}

static void must_open(rig *r, const char *const *specs, const int32_t *split, int32_t fallback,
                      bool keep_all) {
  if (open_rig(r, specs, split, fallback, keep_all) != ISO_OK)
    fail_msg("%s", iso_status_message());
  if (strcmp(fake_check_memory(r->plan, 1), "") != 0)
    fail_msg("%s", fake_check_memory(r->plan, 1));
}

static rig make_rig(const fake_model *model) {
  rig r = {.graph = fake_model_graph(model)};
  assert_non_null(r.graph);
  r.weights = make_weights(r.graph, 42);
  return r;
}

static void free_rig(rig *r) {
  close_rig(r);
  free_weights(r->weights);
  iso_graph_destroy(r->graph);
  assert_int_equal(fake_live, 0);
}

/* Writes one input both ways. */
static void set_input(rig *r, oracle *o, const char *name, const int32_t *values, size_t count) {
  iso_value v = iso_graph_find(r->graph, name);
  memcpy(iso_executor_input(r->executor, v), values, count * sizeof *values);
  memcpy(o->storage[v], values, count * sizeof *values);
}

/* A batch: `lengths` rows of each of `n` sequences that start at position `start`. */
static iso_bindings set_batch(rig *r, oracle *o, int n, const int *lengths, int start,
                              uint64_t *random) {
  int32_t ids[FAKE_TOKENS], positions[FAKE_TOKENS], slots[FAKE_TOKENS], rows[FAKE_ROWS];
  int32_t table[FAKE_SEQUENCES * 3] = {0}, first[FAKE_SEQUENCES], length[FAKE_SEQUENCES],
                                 context[FAKE_SEQUENCES];
  int t = 0;
  for (int s = 0; s < n; s++) {
    first[s] = t;
    length[s] = lengths[s];
    context[s] = start + lengths[s];
    table[s * 3] = s; /* a page each: start + length stay below the page size */
    for (int i = 0; i < lengths[s]; i++, t++) {
      ids[t] = (int32_t)(next_random(random) % FAKE_VOCABULARY);
      positions[t] = start + i;
      slots[t] = s * FAKE_PAGE + start + i;
    }
    rows[s] = t - 1;
  }
  set_input(r, o, "token_ids", ids, (size_t)t);
  set_input(r, o, "positions", positions, (size_t)t);
  set_input(r, o, "kv_slots", slots, (size_t)t);
  set_input(r, o, "block_table", table, (size_t)n * 3);
  set_input(r, o, "query_start", first, (size_t)n);
  set_input(r, o, "query_length", length, (size_t)n);
  set_input(r, o, "context_length", context, (size_t)n);
  set_input(r, o, "logit_rows", rows, (size_t)n);
  return (iso_bindings){{0, t, n, n}};
}

/* Reads a value of `rows` rows and compares it with the oracle's, bit for bit. */
static void assert_same(rig *r, const oracle *o, iso_value v, int64_t rows) {
  const iso_value_info *info = iso_graph_get_value(r->graph, v);
  uint64_t bytes = fake_bytes(r->graph, v);
  if (info->shape.dims[0].symbol != ISO_SYMBOL_NONE)
    bytes = bytes / (uint64_t)info->shape.dims[0].size * (uint64_t)rows;
  uint8_t *got = malloc(bytes + 1);
  assert_non_null(got);
  if (iso_executor_read(r->executor, v, got, bytes) != ISO_OK)
    fail_msg("%s", iso_status_message());
  if (info->storage == v && memcmp(got, o->storage[v], bytes) != 0)
    fail_msg("value %d (%s) differs", v, info->name);
  const void *peeked = iso_executor_peek(r->executor, v);
  if (peeked && info->storage == v)
    assert_memory_equal(peeked, got, bytes);
  free(got);
}

static void run_batch(rig *r, oracle *o, int n, const int *lengths, int start, uint64_t *random) {
  iso_bindings bindings = set_batch(r, o, n, lengths, start, random);
  evaluate(o, &bindings);
  if (iso_executor_run(r->executor, &bindings) != ISO_OK)
    fail_msg("%s", iso_status_message());
  assert_same(r, o, iso_graph_find(r->graph, "logits"), n);
  assert_same(r, o, iso_graph_find(r->graph, "token"), n);
}

/* Prefill, decode, decode, nothing at all, a mixed batch. */
static void run_steps(rig *r) {
  oracle *o = make_oracle(r->graph, r->weights);
  uint64_t random = 7;
  run_batch(r, o, 3, (int[]){3, 1, 4}, 0, &random);
  run_batch(r, o, 3, (int[]){1, 1, 1}, 4, &random);
  run_batch(r, o, 3, (int[]){1, 1, 1}, 5, &random);
  run_batch(r, o, 0, NULL, 0, &random);
  run_batch(r, o, 4, (int[]){1, 2, 1, 2}, 6, &random);
  run_batch(r, o, 1, (int[]){8}, 0, &random);
  for (iso_value v = 0; v < iso_graph_value_count(r->graph); v++)
    if (iso_graph_get_value(r->graph, v)->role == ISO_VALUE_STATE)
      assert_same(r, o, v, 0);
  free_oracle(o);
}

static const fake_model plain_model = {2, true, true, ISO_SCHEME_F32};
static const fake_model quantized_model = {2, false, false, ISO_SCHEME_Q8_0};

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

/* Two devices, split at every boundary, of one backend or two, mappable or not. */
static void test_split_at_every_boundary(void **state) {
  (void)state;
  static const char *const pairs[][3] = {
      {"left:0", "left:1"}, {"left", "right"}, {"host", "left"}, {"left", "host"}};
  fake_model model = {3, true, false, ISO_SCHEME_F32};
  rig r = make_rig(&model);
  for (int pair = 0; pair < 4; pair++)
    for (int kind = 0; kind < 4; kind++)
      for (int32_t at = 0; at <= 3; at++) {
        reset_fakes();
        fake_configs[0].deferred = fake_configs[1].deferred = true;
        fake_configs[0].mappable = kind & 1;
        fake_configs[1].mappable = kind & 2;
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
  assert_int_equal(iso_executor_clear_states(second), ISO_OK);
  assert_int_equal(r.weights->gets, gets);
  iso_executor_destroy(first);
  r.executor = second;
  run_steps(&r);
  free_rig(&r);
}

/* The second run at the same sizes is recorded, later ones replay it, with new inputs each time. */
static void test_recorded(void **state) {
  (void)state;
  static const char *const specs[] = {"left", NULL};
  for (int kind = 0; kind < 2; kind++) {
    reset_fakes();
    fake_configs[0].deferred = kind;
    rig r = make_rig(&plain_model);
    must_open(&r, specs, NULL, -1, false);
    oracle *o = make_oracle(r.graph, r.weights);
    uint64_t random = 11;
    run_batch(&r, o, 3, (int[]){2, 1, 3}, 0, &random);
    for (int i = 0; i < 4; i++)
      run_batch(&r, o, 3, (int[]){1, 1, 1}, 3 + i, &random);
    assert_int_equal(fake_recorded, 1);
    assert_int_equal(fake_replayed, 3);
    /* As many other sizes as are kept: the oldest go, and are recorded anew. */
    for (int twice = 0; twice < 2; twice++)
      for (int n = 1, made = 0; n <= 4; n++)
        for (int rows = n; rows <= 16 && made < EXECUTOR_RECORDINGS; rows++, made++) {
          int lengths[4] = {1, 1, 1, 1};
          for (int i = n; i < rows; i++)
            lengths[i % n]++;
          if (lengths[0] <= FAKE_PAGE)
            run_batch(&r, o, n, lengths, 0, &random);
        }
    int recorded = fake_recorded;
    run_batch(&r, o, 2, (int[]){8, 8}, 0, &random);
    assert_int_equal(fake_recorded, recorded);
    assert_true(recorded > EXECUTOR_RECORDINGS / 2);
    free_oracle(o);
    free_rig(&r);
  }
}

/* Nothing is recorded where inputs are written in place, where a queue cannot, or where a step has
 * parts on two devices. */
static void test_not_recorded(void **state) {
  (void)state;
  static const char *const lists[][3] = {{"left"}, {"right"}, {"left:0", "left:1"}};
  const int32_t at = 1;
  for (int kind = 0; kind < 3; kind++) {
    reset_fakes();
    fake_configs[0].mappable = kind == 0;
    rig r = make_rig(&plain_model);
    must_open(&r, lists[kind], kind == 2 ? &at : NULL, -1, false);
    run_steps(&r);
    assert_int_equal(fake_recorded, 0);
    free_rig(&r);
  }
}

/* A fault anywhere in a step that is recorded or replayed: an error or the right tokens, and right
 * tokens afterwards. */
static void test_recording_faults(void **state) {
  (void)state;
  static const char *const specs[] = {"left", NULL};
  for (int at = 1; at < 400; at++) {
    reset_fakes();
    rig r = make_rig(&plain_model);
    must_open(&r, specs, NULL, -1, false);
    oracle *o = make_oracle(r.graph, r.weights);
    uint64_t random = 13;
    run_batch(&r, o, 1, (int[]){2}, 0, &random);
    iso_bindings bindings = set_batch(&r, o, 1, (int[]){2}, 0, &random);
    fake_fail_at = fake_calls + at;
    iso_status status = iso_executor_run(r.executor, &bindings);
    bool reached = fake_calls >= fake_fail_at;
    fake_fail_at = 0;
    evaluate(o, &bindings);
    if (status == ISO_OK)
      assert_same(&r, o, iso_graph_find(r.graph, "token"), 1);
    else
      assert_non_null(strstr(iso_status_message(), "injected fault"));
    run_batch(&r, o, 1, (int[]){2}, 0, &random);
    run_batch(&r, o, 1, (int[]){2}, 0, &random);
    free_oracle(o);
    free_rig(&r);
    if (!reached) {
      assert_true(at > 10);
      return;
    }
  }
  fail_msg("a step makes more calls than expected");
}

static void test_bad_runs(void **state) {
  (void)state;
  static const char *const specs[] = {"left", NULL};
  reset_fakes();
  rig r = make_rig(&plain_model);
  must_open(&r, specs, NULL, -1, false);
  const iso_bindings bad[] = {{{0, FAKE_TOKENS + 1, 1, 1}}, {{0, 1, -1, 1}}, {{0, 1, 1, 99}}};
  static const char *const words[] = {"T is 17 in this step; 0 to 16", "S is -1", "R is 99"};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(iso_executor_run(r.executor, &bad[i]), ISO_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(iso_status_message(), words[i]));
  }
  char byte[8];
  iso_value logits = iso_graph_find(r.graph, "logits");
  assert_int_equal(iso_executor_read(r.executor, 9999, byte, 1), ISO_ERROR_INVALID_ARGUMENT);
  assert_int_equal(iso_executor_read(r.executor, logits, byte, 1 << 20),
                   ISO_ERROR_INVALID_ARGUMENT);
  iso_value hidden = iso_graph_get_node(r.graph, 0)->outputs[0];
  assert_int_equal(iso_executor_read(r.executor, hidden, byte, 1), ISO_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(iso_status_message(), "is not kept after a step"));
  assert_null(iso_executor_peek(r.executor, hidden));
  assert_null(iso_executor_peek(r.executor, logits)); /* not mappable */
  assert_null(iso_executor_input(r.executor, logits));
  uint32_t device = 7;
  assert_null(iso_executor_state(r.executor, logits, &device));
  assert_non_null(iso_executor_state(r.executor, iso_graph_find(r.graph, "k_cache.1"), &device));
  assert_int_equal(device, 0);
  /* A token that is not in the table: the op fails, the next step works. */
  oracle *o = make_oracle(r.graph, r.weights);
  uint64_t random = 5;
  iso_bindings one = set_batch(&r, o, 1, (int[]){2}, 0, &random);
  int32_t *ids = iso_executor_input(r.executor, iso_graph_find(r.graph, "token_ids"));
  ids[1] = FAKE_VOCABULARY;
  assert_int_equal(iso_executor_run(r.executor, &one), ISO_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(iso_status_message(), "node 0 (embedding in layer -1) on left by"));
  run_batch(&r, o, 1, (int[]){2}, 0, &random);
  free_oracle(o);
  free_rig(&r);
}

/* Bytes come and go in order with what is already enqueued, in pieces where they must. */
static void test_transfers(void **state) {
  (void)state;
  enum { BYTES = (20 << 20) + 5 };
  char *sent = malloc(BYTES), *got = malloc(BYTES);
  assert_non_null(sent);
  assert_non_null(got);
  for (int i = 0; i < BYTES; i++)
    sent[i] = (char)(i % 251);
  for (int kind = 0; kind < 4; kind++) {
    reset_fakes();
    fake_configs[0].mappable = kind & 1;
    fake_configs[0].deferred = kind & 2;
    iso_registry *registry;
    iso_open_device *device;
    iso_buffer *buffer;
    assert_int_equal(iso_registry_create(&registry), ISO_OK);
    assert_int_equal(iso_registry_add(registry, &fake_backends[0]), ISO_OK);
    assert_int_equal(iso_device_open(registry, "left:1", NULL, &device), ISO_OK);
    assert_int_equal(device->memory.alloc(device->device, ISO_MEMORY_DEVICE, BYTES + 100, &buffer),
                     ISO_OK);
    iso_queue *queue = device->queue;
    assert_int_equal(device->queue_table.fill(queue, buffer, 0, BYTES + 100, 'a'), ISO_OK);
    assert_int_equal(iso_device_download(device, buffer, 50, got, 100), ISO_OK);
    assert_true(got[0] == 'a' && got[99] == 'a');
    assert_int_equal(device->queue_table.fill(queue, buffer, 0, BYTES + 100, 'b'), ISO_OK);
    assert_int_equal(iso_device_upload(device, buffer, 7, sent, BYTES), ISO_OK);
    assert_int_equal(iso_device_download(device, buffer, 7, got, BYTES), ISO_OK);
    assert_memory_equal(got, sent, BYTES);
    assert_int_equal(iso_device_download(device, buffer, 0, got, 7), ISO_OK);
    assert_memory_equal(got, "bbbbbbb", 7);
    device->memory.free(device->device, buffer);
    iso_device_close(device);
    iso_registry_destroy(registry);
    assert_int_equal(fake_live, 0);
  }
  free(sent);
  free(got);
}

static void test_memory_is_checked_first(void **state) {
  (void)state;
  static const char *const right[] = {"right", NULL}, *const specs[] = {"left", NULL};
  rig r = make_rig(&plain_model);
  reset_fakes();
  fake_configs[1].memory_bytes = 100000;
  assert_int_equal(open_rig(&r, right, NULL, -1, false), ISO_ERROR_OUT_OF_MEMORY);
  if (!strstr(iso_status_message(), "right has 100000 bytes free, and "))
    fail_msg("%s", iso_status_message());
  assert_int_equal(r.weights->gets, 0);
  close_rig(&r);
  /* Weights that could be used in place are not counted; when they do not stay, they are. */
  reset_fakes();
  fake_configs[0] = (fake_config){.memory_bytes = 100000, .imports = true, .mappable = true};
  r.weights->stays = true;
  must_open(&r, specs, NULL, -1, false);
  run_steps(&r);
  close_rig(&r);
  r.weights->stays = false;
  assert_int_equal(open_rig(&r, specs, NULL, -1, false), ISO_ERROR_OUT_OF_MEMORY);
  assert_non_null(strstr(iso_status_message(), "bytes are needed"));
  assert_non_null(strstr(iso_status_message(), "weight "));
  assert_int_equal(r.weights->gets, r.weights->dones);
  free_rig(&r);
}

static void test_broken_weight(void **state) {
  (void)state;
  static const char *const specs[] = {"left", NULL};
  reset_fakes();
  rig r = make_rig(&plain_model);
  r.weights->broken = "up.1";
  assert_int_equal(open_rig(&r, specs, NULL, -1, false), ISO_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(iso_status_message(), "weight up.1: the graph wants f32 [96, 64]"));
  assert_int_equal(r.weights->gets, r.weights->dones);
  free_rig(&r);
}

/* Every call that can fail fails once: an error each time, nothing leaks, nothing crashes. */
static void test_faults(void **state) {
  (void)state;
  static const char *const specs[] = {"left", "right", NULL};
  fake_model model = {2, true, false, ISO_SCHEME_F32};
  const int32_t at = 1;
  rig r = make_rig(&model);
  for (int kind = 0; kind < 4; kind++) {
    bool failed = true;
    for (int n = 1; failed; n++) {
      reset_fakes();
      for (int i = 0; i < 2; i++) {
        fake_configs[i].deferred = kind & 1;
        fake_configs[i].packs = true;
        fake_configs[i].mappable = kind & 2;
        fake_configs[i].imports = true;
      }
      r.weights->stays = true;
      fake_fail_at = n;
      iso_status status = open_rig(&r, specs, &at, -1, false);
      if (status == ISO_OK) {
        iso_bindings bindings = {{0, 4, 1, 1}};
        int32_t *lengths = iso_executor_input(r.executor, iso_graph_find(r.graph, "query_length"));
        lengths[0] = 4;
        int32_t *context =
            iso_executor_input(r.executor, iso_graph_find(r.graph, "context_length"));
        context[0] = 4;
        status = iso_executor_run(r.executor, &bindings);
        float logits[FAKE_VOCABULARY];
        if (status == ISO_OK)
          status = iso_executor_read(r.executor, iso_graph_find(r.graph, "logits"), logits,
                                     sizeof logits);
      }
      failed = fake_calls >= n; /* before closing, whose failures are nobody's */
      /* A failed import or map falls back on a copy, so the fault may go unnoticed. */
      if (status != ISO_OK)
        assert_non_null(strstr(iso_status_message(), "injected fault"));
      fake_fail_at = 0;
      close_rig(&r);
      assert_int_equal(fake_live, 0);
      assert_true(n < 2000);
    }
  }
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
      cmocka_unit_test(test_keep_all),
      cmocka_unit_test(test_share),
      cmocka_unit_test(test_recorded),
      cmocka_unit_test(test_not_recorded),
      cmocka_unit_test(test_recording_faults),
      cmocka_unit_test(test_bad_runs),
      cmocka_unit_test(test_transfers),
      cmocka_unit_test(test_memory_is_checked_first),
      cmocka_unit_test(test_broken_weight),
      cmocka_unit_test(test_faults),
      cmocka_unit_test(test_observer),
      cmocka_unit_test(test_random_graphs),
      cmocka_unit_test(test_scratch_past_four_gib),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
