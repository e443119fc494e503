/* What tests of executors share: weights, a straightforward evaluation of the same graph, and rigs
 * of fake devices. */
#ifndef ISOMER_TESTS_EXECUTOR_CASE_H
#define ISOMER_TESTS_EXECUTOR_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "core/executor.h"
#include "core/registry.h"
#include "fake_backend.h"
#include "plan_fakes.h"

/* ---- Weights ------------------------------------------------------------------------------- */

static inline uint64_t next_random(uint64_t *state) { /* xorshift64* */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(2685821657736338717);
}

static inline float random_float(uint64_t *state) {
  return (float)(next_random(state) >> 40) / (float)(1 << 24) - 0.5f;
}

/* Bytes of every weight, by value; and what the executor did with them. */
typedef struct weights {
  const iso_graph *graph;
  void **data;
  bool stays;
  char *lent; /* a copy that goes when the executor is done with it, unless bytes stay */
  int gets, dones;
  int packing; /* when the latest was done */
  const char *broken; /* name of a weight that is served with another shape */
  uint64_t progress, total;
} weights;

static inline weights *make_weights(const iso_graph *graph, uint64_t seed) {
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

static inline void free_weights(weights *w) {
  for (iso_value v = 0; v < iso_graph_value_count(w->graph); v++)
    free(w->data[v]);
  free(w->data);
  free(w);
}

static inline iso_status get_weight(void *context, const char *name, iso_host_weight *out_weight,
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

static inline void done_weight(void *context, const char *name) {
  weights *w = context;
  w->packing = fake_packing;
  if (w->lent) {
    memset(w->lent, 0xff, fake_bytes(w->graph, iso_graph_find(w->graph, name)));
    free(w->lent);
    w->lent = NULL;
  }
  w->dones++;
}

static inline void note_progress(void *context, uint64_t done_bytes, uint64_t total_bytes) {
  weights *w = context;
  assert_true(done_bytes > w->progress && done_bytes <= total_bytes);
  w->progress = done_bytes;
  w->total = total_bytes;
}

static inline iso_weight_provider provider_of(weights *w) {
  return (iso_weight_provider){w, get_weight, done_weight, note_progress};
}

/* ---- A straightforward evaluation ---------------------------------------------------------- */

/* Every storage has memory of its own for its bound. */
typedef struct oracle {
  const iso_graph *graph;
  uint8_t **storage; /* by value; weights belong to `weights` */
} oracle;

static inline oracle *make_oracle(const iso_graph *graph, const weights *w) {
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

static inline void free_oracle(oracle *o) {
  for (iso_value v = 0; v < iso_graph_value_count(o->graph); v++)
    if (iso_graph_get_value(o->graph, v)->role != ISO_VALUE_WEIGHT)
      free(o->storage[v]);
  free(o->storage);
  free(o);
}

static inline uint8_t *oracle_tensor(const oracle *o, iso_value value, const iso_bindings *bindings,
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
  iso_dim rows = iso_graph_get_value(o->graph, info->storage)->shape.dims[0];
  bool is_left_out = info->otherwise != ISO_NO_VALUE && iso_dim_size(rows, bindings) == 0;
  return o->storage[is_left_out ? info->otherwise : info->storage] + info->storage_offset;
}

static inline void evaluate(const oracle *o, const iso_bindings *bindings) {
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

static inline void reset_fakes(void) {
  fake_calls = fake_fail_at = fake_packed = fake_imported = fake_launched = 0;
  fake_recorded = fake_replayed = fake_packing = 0;
  for (int i = 0; i < 2; i++)
    fake_configs[i] = (fake_config){.memory_bytes = 1 << 26};
}

/* Opens and plans; no assertion, so that faults can be put anywhere. */
static inline iso_status open_rig(rig *r, const char *const *specs, const int32_t *split, int32_t fallback,
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
  return iso_executor_fill_states(r->executor, 0);
}

static inline void close_rig(rig *r) {
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

static inline void must_open(rig *r, const char *const *specs, const int32_t *split, int32_t fallback,
                      bool keep_all) {
  if (open_rig(r, specs, split, fallback, keep_all) != ISO_OK)
    fail_msg("%s", iso_status_message());
  if (strcmp(fake_check_memory(r->plan, 1), "") != 0)
    fail_msg("%s", fake_check_memory(r->plan, 1));
}

static inline rig make_rig(const fake_model *model) {
  rig r = {.graph = fake_model_graph(model)};
  assert_non_null(r.graph);
  r.weights = make_weights(r.graph, 42);
  return r;
}

static inline void free_rig(rig *r) {
  close_rig(r);
  free_weights(r->weights);
  iso_graph_destroy(r->graph);
  assert_int_equal(fake_live, 0);
}

/* Writes one input both ways. */
static inline void set_input(rig *r, oracle *o, const char *name, const int32_t *values, size_t count) {
  iso_value v = iso_graph_find(r->graph, name);
  memcpy(iso_executor_input(r->executor, v), values, count * sizeof *values);
  memcpy(o->storage[v], values, count * sizeof *values);
}

/* A batch: `lengths` rows of each of `n` sequences that start at position `start`. */
static inline iso_bindings set_batch(rig *r, oracle *o, int n, const int *lengths, int start,
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
  return (iso_bindings){{0, t, n, n, n % 2 ? t : 0}};
}

/* Reads a value of `rows` rows and compares it with the oracle's, bit for bit. */
static inline void assert_same(rig *r, const oracle *o, iso_value v, int64_t rows) {
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

static inline void run_batch(rig *r, oracle *o, int n, const int *lengths, int start, uint64_t *random) {
  iso_bindings bindings = set_batch(r, o, n, lengths, start, random);
  evaluate(o, &bindings);
  if (iso_executor_run(r->executor, &bindings) != ISO_OK)
    fail_msg("%s", iso_status_message());
  assert_same(r, o, iso_graph_find(r->graph, "logits"), n);
  assert_same(r, o, iso_graph_find(r->graph, "token"), n);
}

/* Prefill, decode, decode, nothing at all, a mixed batch. */
static inline void run_steps(rig *r) {
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
static const fake_model leaving_model = {2, false, false, ISO_SCHEME_F32, true};
static const fake_model quantized_model = {2, false, false, ISO_SCHEME_Q8_0};

#endif
