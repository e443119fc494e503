/* Ops with weights: embedding, matmul, grouped_matmul. */
#include "backends/vulkan/matmul.h"
#include "backends/vulkan/fusion.h"
#include "backends/vulkan/ops.h"
#include "backends/vulkan/weights.h"

static const vulkan_shader embedding_shaders[ISO_SCHEME_COUNT] = {VULKAN_BY_SCHEME(embedding)};
static const vulkan_shader rows_shaders[ISO_SCHEME_COUNT] = {VULKAN_BY_SCHEME(matmul_rows)};
static const vulkan_shader tiles_shaders[ISO_SCHEME_COUNT] = {VULKAN_BY_SCHEME(matmul_tiles)};
static const vulkan_shader grouped_shaders[ISO_SCHEME_COUNT] = {VULKAN_BY_SCHEME(grouped_matmul)};

enum {
  TILE = 64,             /* matmul_tiles.comp */
  TILES_WORKGROUP = 256, /* likewise */
  ROWS_WORKGROUP = 256,
  EMBEDDING_WORKGROUP = 64
};

typedef struct product_push {
  vulkan_rows x, y;
  uint64_t rest, scales, bias, experts;
  uint32_t n_rows, n_out, n_in, x_inner_rows, y_inner_rows, n_tiles, n_choices, n_experts;
} product_push;

static bool is_float(const iso_tensor *tensor) { return tensor->scheme <= ISO_SCHEME_BF16; }

static product_push describe(const iso_op_arguments *arguments) {
  const iso_tensor *x = &arguments->inputs[0], *weight = &arguments->inputs[1];
  const iso_tensor *y = &arguments->outputs[0];
  vulkan_planes planes = vulkan_planes_of(weight);
  vulkan_sizes sizes = vulkan_sizes_of(y);
  return (product_push){.x = vulkan_rows_of(x),
                        .y = vulkan_rows_of(y),
                        .rest = planes.rest,
                        .scales = planes.scales,
                        .n_rows = sizes.n_rows,
                        .n_out = sizes.n_columns,
                        .n_in = vulkan_sizes_of(x).n_columns,
                        .x_inner_rows = vulkan_sizes_of(x).inner_rows,
                        .y_inner_rows = sizes.inner_rows};
}

/* Constants 1 to 5, which all products share. */
static void set_constants(const iso_op_arguments *arguments, bool has_bias, uint32_t workgroup,
                          vulkan_dispatch *dispatch) {
  const iso_tensor *x = &arguments->inputs[0], *weight = &arguments->inputs[1];
  bool vector = vulkan_is_vector_rows(x) && (!is_float(weight) || vulkan_is_vector_weight(weight));
  uint32_t constants[] = {workgroup,
                          vulkan_type_of(x),
                          vulkan_type_of(&arguments->outputs[0]),
                          has_bias,
                          weight->layout == VULKAN_LAYOUT_SPLIT,
                          vector};
  dispatch->n_constants = sizeof constants / sizeof *constants;
  for (uint32_t i = 0; i < dispatch->n_constants; i++)
    dispatch->constants[i] = constants[i];
}

/* Rows of a weight to a subgroup, and steps at a time: both put loads under way, at the cost of
 * subgroups and of registers. */
static uint32_t choose_weight_rows(uint32_t n_out) { return n_out >= 2048 ? 2 : 1; }

static uint32_t choose_unroll(uint32_t n_x_rows) {
  return n_x_rows == 1 ? 4 : n_x_rows == 2 ? 2 : 1;
}

static iso_status launch_rows(iso_queue *queue, const iso_op_arguments *arguments,
                              product_push *push, uint32_t n_x_rows, bool has_bias,
                              vulkan_shader shader) {
  vulkan_dispatch dispatch = {.shader = shader, .push = push, .push_bytes = sizeof *push};
  set_constants(arguments, has_bias, ROWS_WORKGROUP, &dispatch);
  uint32_t n_weight_rows = choose_weight_rows(push->n_out);
  dispatch.constants[dispatch.n_constants++] = n_x_rows;
  dispatch.constants[dispatch.n_constants++] = n_weight_rows;
  dispatch.constants[dispatch.n_constants++] = choose_unroll(n_x_rows);
  uint32_t n_subgroups = ROWS_WORKGROUP / vulkan_queue_device(queue)->facts.subgroup_width;
  push->n_tiles = vulkan_ceil_div(push->n_out, n_weight_rows * (n_subgroups ? n_subgroups : 1));
  vulkan_split_groups((uint64_t)push->n_tiles * vulkan_ceil_div(push->n_rows, n_x_rows),
                      dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

static VULKAN_LAUNCH(rows_alone) {
  if (vulkan_fits_one(arguments)) {
    vulkan_product product = {.parts = {arguments}, .n_parts = 1};
    return vulkan_launch_product(queue, &product);
  }
  product_push push = describe(arguments);
  push.bias = arguments->n_inputs > 2 ? vulkan_address(&arguments->inputs[2]) : 0;
  uint32_t n_x_rows = push.n_rows >= 5 ? 8 : push.n_rows >= 3 ? 4 : push.n_rows >= 2 ? 2 : 1;
  return launch_rows(queue, arguments, &push, n_x_rows, push.bias != 0,
                     rows_shaders[arguments->inputs[1].scheme]);
}

VULKAN_LAUNCH(vulkan_matmul_rows) { return vulkan_defer(queue, arguments, rows_alone); }

VULKAN_LAUNCH(vulkan_matmul_tiles) {
  product_push push = describe(arguments);
  push.bias = arguments->n_inputs > 2 ? vulkan_address(&arguments->inputs[2]) : 0;
  push.n_tiles = vulkan_ceil_div(push.n_out, TILE);
  vulkan_dispatch dispatch = {.shader = tiles_shaders[arguments->inputs[1].scheme],
                              .push = &push,
                              .push_bytes = sizeof push};
  set_constants(arguments, push.bias != 0, TILES_WORKGROUP, &dispatch);
  vulkan_split_groups((uint64_t)push.n_tiles * vulkan_ceil_div(push.n_rows, TILE), dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

VULKAN_LAUNCH(vulkan_grouped_matmul) {
  product_push push = describe(arguments);
  push.experts = vulkan_address(&arguments->inputs[2]);
  push.n_choices = push.y_inner_rows;
  push.n_experts = (uint32_t)arguments->inputs[1].dims[0];
  return launch_rows(queue, arguments, &push, 1, false,
                     grouped_shaders[arguments->inputs[1].scheme]);
}

VULKAN_LAUNCH(vulkan_embedding) {
  const iso_embedding_attributes *attributes = arguments->attributes;
  const iso_tensor *table = &arguments->inputs[1], *y = &arguments->outputs[0];
  vulkan_planes planes = vulkan_planes_of(table);
  struct {
    vulkan_rows y;
    uint64_t ids, rest, scales;
    uint32_t n_rows, n_columns, n_table_rows;
    float scale;
  } push = {.y = vulkan_rows_of(y),
            .ids = vulkan_address(&arguments->inputs[0]),
            .rest = planes.rest,
            .scales = planes.scales,
            .n_rows = (uint32_t)y->dims[0],
            .n_columns = (uint32_t)y->dims[1],
            .n_table_rows = (uint32_t)table->dims[0],
            .scale = attributes->scale};
  vulkan_dispatch dispatch = {.shader = embedding_shaders[table->scheme],
                              .constants = {EMBEDDING_WORKGROUP, vulkan_type_of(y), planes.split,
                                            is_float(table) && vulkan_is_vector_weight(table)},
                              .n_constants = 4,
                              .push = &push,
                              .push_bytes = sizeof push};
  uint32_t n_pieces = vulkan_ceil_div(vulkan_ceil_div(push.n_columns, 8), EMBEDDING_WORKGROUP);
  vulkan_split_groups((uint64_t)push.n_rows * n_pieces, dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

static uint64_t count_rows(const iso_tensor *tensor) {
  uint64_t rows = 1;
  for (uint32_t d = 0; d + 1 < tensor->n_dims; d++)
    rows *= (uint64_t)tensor->dims[d];
  return rows;
}

iso_refusal vulkan_check_few_rows(const iso_device *device, const iso_op_arguments *arguments,
                                  const char **out_detail) {
  if (count_rows(&arguments->outputs[0]) > VULKAN_FEW_ROWS) {
    *out_detail = "more rows than this kernel is for";
    return ISO_REFUSED_SHAPE;
  }
  return vulkan_check_rows(device, arguments, out_detail);
}

iso_refusal vulkan_check_many_rows(const iso_device *device, const iso_op_arguments *arguments,
                                   const char **out_detail) {
  if (count_rows(&arguments->outputs[0]) <= VULKAN_FEW_ROWS) {
    *out_detail = "fewer rows than this kernel is for";
    return ISO_REFUSED_SHAPE;
  }
  return vulkan_check_rows(device, arguments, out_detail);
}
