/* Plans on devices that do not exist. Golden texts are in tests/golden/plan; run with
 * ISOMER_UPDATE_GOLDEN=1 to write them anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "plan_fakes.h"

enum { ALIGNMENT = 64, LAYOUT_TILES = 7, LAYOUT_PLANES = 8 };

#define ANY (~UINT64_C(0))

static iso_status no_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  (void)queue, (void)arguments;
  return iso_fail(ISO_ERROR_INTERNAL, "a fake was launched");
}
static iso_status no_pack(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                          uint64_t offset) {
  (void)queue, (void)weight, (void)buffer, (void)offset;
  return iso_fail(ISO_ERROR_INTERNAL, "a fake was asked to pack");
}
static iso_status no_packed_bytes(const iso_device *device, const iso_host_weight *weight,
                                  uint64_t *out_bytes) {
  (void)device, (void)weight, (void)out_bytes;
  return iso_fail(ISO_ERROR_INTERNAL, "a fake was asked to pack");
}

static int64_t rows(const iso_op_arguments *arguments) { return arguments->outputs[0].dims[0]; }

static iso_refusal only_one_row(const iso_device *device, const iso_op_arguments *arguments,
                                const char **out_detail) {
  (void)device;
  *out_detail = "more than one row";
  return rows(arguments) <= 1 ? ISO_ACCEPTED : ISO_REFUSED_SHAPE;
}
static iso_refusal many_rows(const iso_device *device, const iso_op_arguments *arguments,
                             const char **out_detail) {
  (void)device;
  *out_detail = "fewer than four rows";
  return rows(arguments) >= 4 ? ISO_ACCEPTED : ISO_REFUSED_SHAPE;
}
static iso_refusal middling_rows(const iso_device *device, const iso_op_arguments *arguments,
                                 const char **out_detail) {
  (void)device, (void)out_detail;
  return rows(arguments) == 2 || rows(arguments) == 3 ? ISO_ACCEPTED : ISO_REFUSED_SHAPE;
}
static iso_refusal never(const iso_device *device, const iso_op_arguments *arguments,
                         const char **out_detail) {
  (void)device, (void)arguments;
  *out_detail = "no matrix unit";
  return ISO_REFUSED_DEVICE;
}
static uint64_t row_scratch(const iso_device *device, const iso_op_arguments *arguments) {
  (void)device;
  return (uint64_t)rows(arguments) * 100;
}

#define KERNEL(OP, the_name, ...)                                                                  \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_##OP, .name = the_name, .schemes = ANY,               \
    .activations = ANY, .launch = no_launch, __VA_ARGS__                                           \
  }
#define PACKS(number) .layout = number, .pack = no_pack, .packed_bytes = no_packed_bytes

/* One plain record an op, from ops.def. */
static const iso_kernel plain_kernels[] = {
#define ISO_OP_BEGIN(op, OP, tolerance, summary) KERNEL(OP, #op ".plain", .rank = 0),
#include <isomer/ops.def>
};
enum { N_PLAIN = sizeof plain_kernels / sizeof *plain_kernels };

typedef struct fixture {
  iso_kernel kernels[2][64];
  iso_plan_device devices[3];
  iso_plan_options options;
} fixture;

static void add(fixture *f, int device, iso_kernel kernel) {
  f->kernels[device][f->devices[device].kernel_count++] = kernel;
}

static void drop(fixture *f, int device, iso_op op) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < f->devices[device].kernel_count; i++)
    if (f->kernels[device][i].op != op)
      f->kernels[device][kept++] = f->kernels[device][i];
  f->devices[device].kernel_count = kept;
}

/* Devices 0 "alpha" and 1 "beta" with every op; all layers on device 0. */
static fixture *new_fixture(uint32_t n_devices) {
  static const int32_t all_on_first[] = {1 << 20, 1 << 20};
  fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  static const char *const names[] = {"alpha", "beta"};
  for (int d = 0; d < 2; d++) {
    memcpy(f->kernels[d], plain_kernels, sizeof plain_kernels);
    f->devices[d] = (iso_plan_device){names[d], f->kernels[d], N_PLAIN, NULL, ALIGNMENT};
  }
  f->options = (iso_plan_options){
      .n_devices = n_devices, .devices = f->devices, .split = all_on_first, .fallback = -1};
  return f;
}

static iso_plan *make(const fixture *f, const iso_graph *graph) {
  assert_non_null(graph);
  iso_plan *plan;
  iso_status status = iso_plan_create(graph, &f->options, &plan);
  if (status != ISO_OK)
    fail_msg("%s", iso_status_message());
  assert_string_equal(fake_check_memory(plan, ALIGNMENT), "");
  return plan;
}

static void assert_golden(const iso_plan *plan, const char *name) {
  char path[512], *text;
  snprintf(path, sizeof path, "%s/tests/golden/plan/%s.txt", TEST_SOURCE_DIR, name);
  assert_int_equal(iso_plan_print(plan, &text), ISO_OK);
  if (getenv("ISOMER_UPDATE_GOLDEN")) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
  }
  FILE *file = fopen(path, "r");
  if (!file)
    fail_msg("%s is missing", path);
  char *golden = calloc(1, strlen(text) + 4096);
  assert_non_null(golden);
  size_t n = fread(golden, 1, strlen(text) + 4095, file);
  fclose(file);
  golden[n] = 0;
  assert_string_equal(text, golden);
  free(golden);
  free(text);
}

static void destroy(fixture *f, iso_plan *plan, iso_graph *graph) {
  iso_plan_destroy(plan);
  iso_graph_destroy(graph);
  free(f);
}

static const fake_model one_layer = {1, true, true, ISO_SCHEME_F32};
static const fake_model three_layers = {3, false, false, ISO_SCHEME_F32};

static void test_one_device(void **state) {
  (void)state;
  fixture *f = new_fixture(1);
  iso_graph *graph = fake_model_graph(&one_layer);
  iso_plan *plan = make(f, graph);
  assert_int_equal(plan->n_steps, iso_graph_node_count(graph));
  assert_int_equal(plan->n_fallbacks, 0);
  assert_int_equal(plan->copy_bytes_total, 0);
  assert_golden(plan, "one_device");
  destroy(f, plan, graph);
}

static void test_split_at_every_boundary(void **state) {
  (void)state;
  iso_graph *graph = fake_model_graph(&three_layers);
  for (int32_t at = 0; at <= 4; at++) {
    fixture *f = new_fixture(2);
    f->options.split = &at;
    iso_plan *plan = make(f, graph);
    /* The hidden rows cross once, at a boundary inside the model; with all layers on one
     * device nothing does. */
    uint64_t hidden = FAKE_TOKENS * FAKE_HIDDEN * 4;
    assert_int_equal(plan->copy_bytes_total, at == 0 || at == 4 ? 0 : hidden);
    for (uint32_t s = 0; s < plan->n_steps; s++)
      if (plan->steps[s].kind == ISO_STEP_LAUNCH)
        assert_int_equal(plan->steps[s].device,
                         at == 0 || iso_graph_get_node(graph, plan->steps[s].node)->layer >= at);
    if (at == 2)
      assert_golden(plan, "split_at_2");
    iso_plan_destroy(plan);
    free(f);
  }
  iso_graph_destroy(graph);
}

/* Pairs of a step's output and an input of one of the `distance` steps before it that share bytes.
 */
static int reuses(const iso_plan *plan, uint32_t distance) {
  fake_memory m = {.plan = plan};
  int count = 0;
  for (uint32_t s = 0; s < plan->n_steps; s++)
    for (uint32_t before = s < distance ? 0 : s - distance; before < s; before++)
      for (int o = 0; o < ISO_MAX_OUTPUTS; o++)
        for (int i = 0; i < ISO_MAX_INPUTS; i++) {
          const iso_plan_operand *output = &plan->steps[s].outputs[o];
          const iso_plan_operand *input = &plan->steps[before].inputs[i];
          if (output->storage == ISO_STORAGE_ARENA && input->storage == ISO_STORAGE_ARENA)
            count += fake_overlap(fake_whole(&m, plan->steps[s].device, output),
                                  fake_whole(&m, plan->steps[before].device, input));
        }
  return count;
}

static void test_reuse_delay(void **state) {
  (void)state;
  fixture *f = new_fixture(1);
  iso_graph *graph = fake_model_graph(&three_layers);
  iso_plan *at_once = make(f, graph);
  assert_true(reuses(at_once, 2) > 0);
  f->devices[0].reuse_delay = 2;
  iso_plan *plan = make(f, graph);
  assert_int_equal(reuses(plan, 2), 0);
  assert_true(plan->arena_bytes[0] > at_once->arena_bytes[0]);
  iso_plan_destroy(at_once);
  destroy(f, plan, graph);
}

static void test_missing_op(void **state) {
  (void)state;
  fixture *f = new_fixture(2);
  drop(f, 0, ISO_OP_ROPE);
  iso_graph *graph = fake_model_graph(&one_layer);
  iso_plan *plan;
  assert_int_equal(iso_plan_create(graph, &f->options, &plan), ISO_ERROR_UNSUPPORTED);
  assert_string_equal(iso_status_message(),
                      "node 3 (rope in layer 0): alpha has no kernel for rope; allow a fallback, "
                      "or choose another device");
  f->options.fallback = 1;
  plan = make(f, graph);
  assert_int_equal(plan->n_fallbacks, 2);
  assert_string_equal(plan->fallbacks[0].reason, "alpha has no kernel for rope");
  assert_int_equal(plan->fallbacks[0].refusal, ISO_REFUSED_NO_KERNEL);
  assert_golden(plan, "missing_rope");
  iso_plan_destroy(plan);
  /* Nor does the fallback have it. */
  drop(f, 1, ISO_OP_ROPE);
  assert_int_equal(iso_plan_create(graph, &f->options, &plan), ISO_ERROR_UNSUPPORTED);
  assert_non_null(strstr(iso_status_message(), "beta has no kernel for rope"));
  f->options.fallback = 0;
  assert_int_equal(iso_plan_create(graph, &f->options, &plan), ISO_ERROR_UNSUPPORTED);
  destroy(f, NULL, graph);
}

/* Attention is refused, so the write into its cache moves too, and so does the cache. */
static void test_state_keeps_its_nodes_together(void **state) {
  (void)state;
  fixture *f = new_fixture(2);
  f->options.fallback = 1;
  drop(f, 0, ISO_OP_PAGED_ATTENTION);
  iso_graph *graph = fake_model_graph(&one_layer);
  iso_plan *plan = make(f, graph);
  assert_int_equal(plan->n_fallbacks, 2);
  assert_int_equal(iso_graph_get_node(graph, plan->fallbacks[0].node)->op, ISO_OP_KV_WRITE);
  assert_non_null(strstr(plan->fallbacks[0].reason, "shares a state with node"));
  assert_int_equal(plan->n_states, 2);
  assert_int_equal(plan->states[0].device, 1);
  assert_golden(plan, "attention_falls_back");
  destroy(f, plan, graph);
}

/* Both users of the tied table take the packed layout, so it lies there once. */
static void test_tied_weights_share_a_layout(void **state) {
  (void)state;
  fixture *f = new_fixture(1);
  add(f, 0, (iso_kernel)KERNEL(MATMUL, "matmul.tiles", .rank = 50, PACKS(LAYOUT_TILES)));
  add(f, 0, (iso_kernel)KERNEL(EMBEDDING, "embedding.tiles", .rank = 5, PACKS(LAYOUT_TILES)));
  iso_graph *graph = fake_model_graph(&one_layer);
  iso_plan *plan = make(f, graph);
  int copies = 0;
  for (uint32_t i = 0; i < plan->n_weights; i++)
    if (plan->weights[i].value == iso_graph_find(graph, "table")) {
      copies++;
      assert_int_equal(plan->weights[i].layout, LAYOUT_TILES);
      assert_non_null(plan->weights[i].packer);
    }
  assert_int_equal(copies, 1);
  assert_golden(plan, "tied_shared");
  destroy(f, plan, graph);
}

/* The embedding reads plain rows only and the product tiles only: two copies. */
static void test_tied_weights_that_disagree(void **state) {
  (void)state;
  fixture *f = new_fixture(1);
  drop(f, 0, ISO_OP_MATMUL);
  add(f, 0, (iso_kernel)KERNEL(MATMUL, "matmul.tiles", .rank = 50, PACKS(LAYOUT_TILES)));
  iso_graph *graph = fake_model_graph(&one_layer);
  iso_plan *plan = make(f, graph);
  uint32_t layouts = 0;
  for (uint32_t i = 0; i < plan->n_weights; i++)
    if (plan->weights[i].value == iso_graph_find(graph, "table"))
      layouts += plan->weights[i].layout == LAYOUT_TILES ? 100 : 1;
  assert_int_equal(layouts, 101);
  assert_golden(plan, "tied_twice");
  destroy(f, plan, graph);
}

/* Split in two, the tied table lies on both devices. */
static void test_tied_weights_on_two_devices(void **state) {
  (void)state;
  fixture *f = new_fixture(2);
  int32_t at = 1;
  f->options.split = &at;
  fake_model model = {2, true, false, ISO_SCHEME_F32};
  iso_graph *graph = fake_model_graph(&model);
  iso_plan *plan = make(f, graph);
  uint32_t devices = 0;
  for (uint32_t i = 0; i < plan->n_weights; i++)
    if (plan->weights[i].value == iso_graph_find(graph, "table"))
      devices += plan->weights[i].device ? 100 : 1;
  assert_int_equal(devices, 101);
  destroy(f, plan, graph);
}

static const iso_plan_step *find_launch(const iso_plan *plan, iso_op op) {
  for (uint32_t s = 0; s < plan->n_steps; s++)
    if (plan->steps[s].kind == ISO_STEP_LAUNCH &&
        iso_graph_get_node(plan->graph, plan->steps[s].node)->op == op)
      return &plan->steps[s];
  return NULL;
}

/* A layout is chosen only if some record of it takes the bound and some one row. */
static void test_layout_must_cover_all_sizes(void **state) {
  (void)state;
  fixture *f = new_fixture(1);
  drop(f, 0, ISO_OP_MATMUL);
  add(f, 0,
      (iso_kernel)KERNEL(MATMUL, "tiles.many", .rank = 90, .check = many_rows,
                         .workspace = row_scratch, PACKS(LAYOUT_TILES)));
  add(f, 0,
      (iso_kernel)KERNEL(MATMUL, "planes.one", .rank = 20, .check = only_one_row,
                         .workspace = row_scratch, PACKS(LAYOUT_PLANES)));
  add(f, 0,
      (iso_kernel)KERNEL(MATMUL, "planes.many", .rank = 30, .check = many_rows,
                         .layout = LAYOUT_PLANES));
  add(f, 0,
      (iso_kernel)KERNEL(MATMUL, "planes.middling", .rank = 25, .check = middling_rows,
                         .layout = LAYOUT_PLANES));
  add(f, 0,
      (iso_kernel)KERNEL(MATMUL, "planes.never", .rank = 99, .check = never,
                         .layout = LAYOUT_PLANES));
  iso_graph *graph = fake_model_graph(&one_layer);
  iso_plan *plan = make(f, graph);
  const iso_plan_step *step = find_launch(plan, ISO_OP_MATMUL);
  assert_int_equal(step->n_candidates, 3);
  assert_string_equal(step->candidates[0]->name, "planes.many");
  assert_string_equal(step->candidates[1]->name, "planes.middling");
  assert_string_equal(step->candidates[2]->name, "planes.one");
  assert_int_equal(step->workspace_bytes, FAKE_TOKENS * 100);
  assert_golden(plan, "layout_by_size");
  iso_plan_destroy(plan);
  /* Without the record for one row nothing covers all sizes. */
  drop(f, 0, ISO_OP_MATMUL);
  add(f, 0, (iso_kernel)KERNEL(MATMUL, "tiles.many", .check = many_rows, PACKS(LAYOUT_TILES)));
  assert_int_equal(iso_plan_create(graph, &f->options, &plan), ISO_ERROR_UNSUPPORTED);
  assert_non_null(
      strstr(iso_status_message(), "alpha: tiles.many refuses the shape: fewer than four rows"));
  /* Two layouts that cover it only together. */
  add(f, 0, (iso_kernel)KERNEL(MATMUL, "planes.one", .check = only_one_row, PACKS(LAYOUT_PLANES)));
  assert_int_equal(iso_plan_create(graph, &f->options, &plan), ISO_ERROR_UNSUPPORTED);
  assert_non_null(strstr(iso_status_message(), "no one layout of the weight"));
  /* A layout that nothing packs. */
  drop(f, 0, ISO_OP_MATMUL);
  add(f, 0, (iso_kernel)KERNEL(MATMUL, "tiles", .layout = LAYOUT_TILES));
  assert_int_equal(iso_plan_create(graph, &f->options, &plan), ISO_ERROR_UNSUPPORTED);
  destroy(f, NULL, graph);
}

/* Of very many records the needed ones are kept. */
static void test_too_many_candidates(void **state) {
  (void)state;
  fixture *f = new_fixture(1);
  drop(f, 0, ISO_OP_MATMUL);
  for (int i = 0; i < 12; i++)
    add(f, 0, (iso_kernel)KERNEL(MATMUL, "possible", .rank = 100 + i, .check = middling_rows));
  for (int i = 0; i < 12; i++)
    add(f, 0, (iso_kernel)KERNEL(MATMUL, "many", .rank = 50 + i, .check = many_rows));
  add(f, 0, (iso_kernel)KERNEL(MATMUL, "one", .rank = 1, .check = only_one_row));
  iso_graph *graph = fake_model_graph(&one_layer);
  iso_plan *plan = make(f, graph);
  const iso_plan_step *step = find_launch(plan, ISO_OP_MATMUL);
  assert_int_equal(step->n_candidates, ISO_MAX_CANDIDATES);
  assert_string_equal(step->candidates[0]->name, "many");
  assert_int_equal(step->candidates[0]->rank, 61);
  assert_string_equal(step->candidates[ISO_MAX_CANDIDATES - 1]->name, "one");
  for (int i = 1; i < ISO_MAX_CANDIDATES; i++)
    assert_true(step->candidates[i - 1]->rank > step->candidates[i]->rank);
  destroy(f, plan, graph);
}

/* A view of a weight is read as plain rows, whatever the whole is packed as. */
static void test_view_of_a_weight_stays_plain(void **state) {
  (void)state;
  fixture *f = new_fixture(1);
  add(f, 0, (iso_kernel)KERNEL(MATMUL, "matmul.tiles", .rank = 50, PACKS(LAYOUT_TILES)));
  iso_graph *graph;
  assert_int_equal(iso_graph_create(&graph), ISO_OK);
  iso_value x = iso_graph_input(graph, "x", ISO_SCHEME_F32, fake_shape2(FAKE_T, FAKE_N(8)));
  iso_value w = iso_graph_weight(graph, "w", ISO_SCHEME_F32, fake_shape2(FAKE_N(4), FAKE_N(16)));
  iso_value view = iso_graph_reshape(graph, w, fake_shape2(FAKE_N(8), FAKE_N(8)));
  iso_value y = iso_graph_apply(graph, ISO_OP_MATMUL, NULL, ISO_SCHEME_F32, 2, x, view);
  iso_graph_output(graph, y, "y");
  assert_int_equal(iso_graph_finish(graph), ISO_OK);
  iso_plan *plan = make(f, graph);
  assert_int_equal(plan->n_weights, 1);
  assert_int_equal(plan->weights[0].layout, ISO_LAYOUT_PLAIN);
  assert_int_equal(plan->steps[0].n_candidates, 1);
  assert_string_equal(plan->steps[0].candidates[0]->name, "matmul.plain");
  destroy(f, plan, graph);
}

static void test_keep_all(void **state) {
  (void)state;
  fixture *f = new_fixture(1);
  iso_graph *graph = fake_model_graph(&three_layers);
  iso_plan *reused = make(f, graph);
  f->options.keep_all = true;
  iso_plan *kept = make(f, graph);
  /* Scratch is reused across the layers: far less than the sum of all values. */
  assert_true(reused->arena_bytes[0] * 5 < kept->arena_bytes[0]);
  for (iso_value v = 0; v < iso_graph_value_count(graph); v++) {
    const iso_value_info *info = iso_graph_get_value(graph, v);
    bool temporary = iso_graph_get_value(graph, info->storage)->role == ISO_VALUE_TEMPORARY;
    if (temporary) {
      assert_int_equal(kept->value_device[v], 0);
      assert_int_equal(reused->value_device[v], info->is_output ? 0 : -1);
    }
  }
  iso_plan_destroy(reused);
  destroy(f, kept, graph);
}

static void test_same_plan_twice(void **state) {
  (void)state;
  fixture *f = new_fixture(2);
  int32_t at = 1;
  f->options.split = &at;
  iso_graph *graph = fake_model_graph(&three_layers);
  char *texts[2];
  for (int i = 0; i < 2; i++) {
    iso_plan *plan = make(f, graph);
    assert_int_equal(iso_plan_print(plan, &texts[i]), ISO_OK);
    iso_plan_destroy(plan);
  }
  assert_string_equal(texts[0], texts[1]);
  free(texts[0]);
  free(texts[1]);
  destroy(f, NULL, graph);
}

static void test_bad_options(void **state) {
  (void)state;
  fixture *f = new_fixture(2);
  iso_graph *graph = fake_model_graph(&three_layers);
  iso_plan_options good = f->options;
  iso_plan *plan;
  const int32_t backwards[] = {2, 1};
  iso_plan_options bad[6];
  for (int i = 0; i < 6; i++)
    bad[i] = good;
  bad[0].n_devices = 0;
  bad[1].n_devices = ISO_MAX_DEVICES + 1;
  bad[2].fallback = 2;
  bad[3].fallback = -2;
  bad[4].split = NULL;
  bad[5].n_devices = 3;
  bad[5].split = backwards;
  f->devices[2] = f->devices[1];
  for (int i = 0; i < 6; i++)
    assert_int_equal(iso_plan_create(graph, &bad[i], &plan), ISO_ERROR_INVALID_ARGUMENT);
  f->devices[1].alignment_bytes = 48;
  assert_int_equal(iso_plan_create(graph, &good, &plan), ISO_ERROR_INVALID_ARGUMENT);
  iso_graph *unfinished;
  assert_int_equal(iso_graph_create(&unfinished), ISO_OK);
  assert_int_equal(iso_plan_create(unfinished, &good, &plan), ISO_ERROR_INVALID_ARGUMENT);
  iso_graph_destroy(unfinished);
  destroy(f, NULL, graph);
}

static uint64_t next_random(uint64_t *state) { /* xorshift64* */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(2685821657736338717);
}

/* Random graphs over two devices, one of which lacks ops: memory holds, values cross once. */
static void test_random_graphs(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    uint64_t random = seed * 7919;
    iso_graph *graph;
    assert_int_equal(iso_graph_create(&graph), ISO_OK);
    iso_value values[64];
    int count = 0, n_nodes = 3 + (int)(next_random(&random) % 50);
    values[count++] = iso_graph_input(graph, "x", ISO_SCHEME_F32, fake_shape2(FAKE_T, FAKE_N(32)));
    iso_value gain = iso_graph_weight(graph, "g", ISO_SCHEME_F32, fake_shape1(FAKE_N(32)));
    iso_value wide =
        iso_graph_weight(graph, "w", ISO_SCHEME_F32, fake_shape2(FAKE_N(96), FAKE_N(32)));
    for (int i = 0; i < n_nodes; i++) {
      iso_value a = values[next_random(&random) % (uint64_t)count];
      iso_value b = values[next_random(&random) % (uint64_t)count];
      iso_graph_set_layer(graph, i);
      switch (next_random(&random) % 4) {
      case 0:
        a = iso_graph_apply(graph, ISO_OP_ADD, NULL, ISO_SCHEME_F32, 2, a, b);
        break;
      case 1:
        a = iso_graph_apply(graph, ISO_OP_RMS_NORM, NULL, ISO_SCHEME_F32, 2, a, gain);
        break;
      case 2:
        a = iso_graph_apply(graph, ISO_OP_MATMUL, NULL, ISO_SCHEME_F32, 2, a, wide);
        a = iso_graph_columns(graph, a, (int64_t)(next_random(&random) % 65), 32);
        break;
      default:
        a = iso_graph_apply(graph, ISO_OP_GLU, NULL, ISO_SCHEME_F32, 2, a, b);
      }
      values[count++] = a;
    }
    iso_graph_output(graph, values[count - 1], "y");
    assert_int_equal(iso_graph_finish(graph), ISO_OK);
    fixture *f = new_fixture(2);
    int32_t at = (int32_t)(next_random(&random) % (uint64_t)n_nodes);
    f->options.split = &at;
    f->options.fallback = 1;
    drop(f, 0, seed % 2 ? ISO_OP_ADD : ISO_OP_RMS_NORM);
    for (uint32_t k = 0; k < f->devices[1].kernel_count; k++)
      f->kernels[1][k].workspace = row_scratch;
    iso_plan *plan = make(f, graph);
    for (uint32_t s = 0; s < plan->n_steps; s++)
      for (uint32_t t = 0; t < s && plan->steps[s].kind == ISO_STEP_COPY; t++)
        assert_false(plan->steps[t].kind == ISO_STEP_COPY &&
                     plan->steps[t].device == plan->steps[s].device &&
                     plan->steps[t].inputs[0].value == plan->steps[s].inputs[0].value);
    destroy(f, plan, graph);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_device),
      cmocka_unit_test(test_split_at_every_boundary),
      cmocka_unit_test(test_reuse_delay),
      cmocka_unit_test(test_missing_op),
      cmocka_unit_test(test_state_keeps_its_nodes_together),
      cmocka_unit_test(test_tied_weights_share_a_layout),
      cmocka_unit_test(test_tied_weights_that_disagree),
      cmocka_unit_test(test_tied_weights_on_two_devices),
      cmocka_unit_test(test_layout_must_cover_all_sizes),
      cmocka_unit_test(test_too_many_candidates),
      cmocka_unit_test(test_view_of_a_weight_stays_plain),
      cmocka_unit_test(test_keep_all),
      cmocka_unit_test(test_same_plan_twice),
      cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_random_graphs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
