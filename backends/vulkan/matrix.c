/* matmul for many rows on matrix units: activations and weights become halves in the workspace,
 * weights a slab of rows at a time, and matmul_matrix.comp multiplies them. */
#include "backends/vulkan/matmul.h"
#include "backends/vulkan/ops.h"
#include "backends/vulkan/weights.h"

enum {
  SLAB_UNIT = 128, /* rows of a slab: whole tiles of any shape */
  SMALL_ROWS = 64,
  STEP = 32, /* columns of x come in multiples of it */
  WORKGROUP = 256,
  SLAB_BYTES = 64 << 20,
  FEW_ROWS = 128,     /* up to so many, weights are decoded as they are multiplied */
  FEW_TILE_ROWS = 64, /* matmul_matrix_few.comp */
  FEW_STEP = 128,     /* a multiple of each STEP of it */
  FEW_GROUPS = 512,   /* lengths are cut up until there are so many workgroups */
  ENOUGH_GROUPS = 96  /* below so many large tiles, small ones fill a device better */
};

static const vulkan_shader decode_shaders[ISO_SCHEME_COUNT] = {VULKAN_BY_SCHEME(decode_rows)};

/* Where things lie in the workspace: sums of few rows take the place of the slab. */
typedef struct workspace_plan {
  uint64_t halves, scales, slab, bytes;
  uint32_t slab_rows;
} workspace_plan;

/* Shaders for few rows, and columns of their tiles; 0 where there is none. */
typedef struct few_shape {
  vulkan_shader shader;
  uint32_t columns, workgroup;
} few_shape;

static const few_shape few_shapes[ISO_SCHEME_COUNT] = {
    [ISO_SCHEME_F16] = {VULKAN_SHADER_matmul_few_f16, 64, 128},
    [ISO_SCHEME_BF16] = {VULKAN_SHADER_matmul_few_bf16, 64, 128},
    [ISO_SCHEME_Q8_0] = {VULKAN_SHADER_matmul_few_q8_0, 64, 128},
    [ISO_SCHEME_Q4_0] = {VULKAN_SHADER_matmul_few_q4_0, 64, 128},
    [ISO_SCHEME_Q4_K] = {VULKAN_SHADER_matmul_few_q4_k, 64, 128},
    [ISO_SCHEME_Q6_K] = {VULKAN_SHADER_matmul_few_q6_k, 64, 128},
};

static uint64_t align(uint64_t offset) { return (offset + 255) & ~UINT64_C(255); }

/* Weights of halves that lie well are multiplied where they are. */
static bool is_direct(const iso_tensor *weight) {
  return weight->scheme == ISO_SCHEME_F16 && weight->buffer && vulkan_is_vector_weight(weight);
}

/* Bytes of the sums of one split of few rows: whole tiles of any shape. */
static uint64_t sums_of_split(uint64_t n_rows, uint64_t n_out) {
  uint64_t rows = n_rows < FEW_ROWS ? n_rows : FEW_ROWS;
  return (rows + FEW_TILE_ROWS - 1) / FEW_TILE_ROWS * FEW_TILE_ROWS *
         ((n_out + SLAB_UNIT - 1) / SLAB_UNIT * SLAB_UNIT) * sizeof(float);
}

static workspace_plan plan_workspace(uint64_t n_rows, uint64_t n_in, uint64_t n_out) {
  uint64_t slab_rows = SLAB_BYTES / (n_in * 2) / SLAB_UNIT * SLAB_UNIT;
  slab_rows = slab_rows < SLAB_UNIT ? SLAB_UNIT : slab_rows;
  workspace_plan plan = {.slab_rows = (uint32_t)(slab_rows < n_out ? slab_rows : n_out)};
  plan.scales = align(n_rows * n_in * 2);
  plan.slab = align(plan.scales + n_rows * sizeof(float));
  uint64_t slab_bytes = plan.slab_rows * n_in * 2, sums_bytes = sums_of_split(n_rows, n_out);
  plan.bytes = plan.slab + (slab_bytes > sums_bytes ? slab_bytes : sums_bytes);
  return plan;
}

uint64_t vulkan_matrix_workspace(const iso_device *device, const iso_op_arguments *arguments) {
  (void)device;
  vulkan_sizes y = vulkan_sizes_of(&arguments->outputs[0]);
  return plan_workspace(y.n_rows, vulkan_sizes_of(&arguments->inputs[0]).n_columns, y.n_columns)
      .bytes;
}

iso_refusal vulkan_check_matrix(const iso_device *device, const iso_op_arguments *arguments,
                                const char **out_detail) {
  if (!device->facts.has_matrix) {
    *out_detail = "the device has no matrix units that Vulkan shows, or they are not asked for";
    return ISO_REFUSED_DEVICE;
  }
  const iso_tensor *x = &arguments->inputs[0];
  if (x->dims[x->n_dims - 1] % STEP != 0) {
    *out_detail = "rows are not multiples of 32";
    return ISO_REFUSED_SHAPE;
  }
  return vulkan_check_many_rows(device, arguments, out_detail);
}

static iso_status convert_rows(iso_queue *queue, const iso_tensor *x, uint64_t halves,
                               uint64_t scales, vulkan_access source) {
  vulkan_sizes sizes = vulkan_sizes_of(x);
  struct {
    vulkan_rows x;
    uint64_t halves, scales;
    uint32_t n_rows, inner_rows, n_columns;
  } push = {.x = vulkan_rows_of(x),
            .halves = halves,
            .scales = scales,
            .n_rows = sizes.n_rows,
            .inner_rows = sizes.inner_rows,
            .n_columns = sizes.n_columns};
  vulkan_access accesses[] = {source,
                              {halves, (uint64_t)sizes.n_rows * sizes.n_columns * 2, true},
                              {scales, (uint64_t)sizes.n_rows * sizeof(float), true}};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_halves,
                              .constants = {WORKGROUP, vulkan_type_of(x)},
                              .n_constants = 2,
                              .push = &push,
                              .push_bytes = sizeof push,
                              .accesses = accesses,
                              .n_accesses = 3};
  vulkan_split_groups(sizes.n_rows, dispatch.groups);
  return vulkan_enqueue(queue, &dispatch);
}

static iso_status decode_slab(iso_queue *queue, const iso_tensor *weight, uint32_t first,
                              uint32_t n_rows, uint64_t slab) {
  vulkan_planes planes = vulkan_planes_of(weight);
  struct {
    uint64_t rest, scales, halves;
    uint32_t first_row, n_rows, n_columns;
  } push = {.rest = planes.rest,
            .scales = planes.scales,
            .halves = slab,
            .first_row = first,
            .n_rows = n_rows,
            .n_columns = (uint32_t)weight->dims[1]};
  vulkan_access accesses[] = {{slab, (uint64_t)n_rows * push.n_columns * 2, true}};
  vulkan_dispatch dispatch = {
      .shader = decode_shaders[weight->scheme],
      .constants = {WORKGROUP, planes.split,
                    weight->scheme <= ISO_SCHEME_BF16 && vulkan_is_vector_weight(weight)},
      .n_constants = 3,
      .push = &push,
      .push_bytes = sizeof push,
      .accesses = accesses,
      .n_accesses = 1};
  vulkan_split_groups(vulkan_ceil_div((uint64_t)n_rows * (push.n_columns / 8), WORKGROUP),
                      dispatch.groups);
  return vulkan_enqueue(queue, &dispatch);
}

typedef struct matrix_push {
  vulkan_rows y;
  uint64_t x, weight, scales, bias;
  uint32_t n_rows, n_out, n_in, y_inner_rows, n_tiles, first_column;
} matrix_push;

/* Large tiles and small ones of each tier. */
typedef struct tile_shape {
  vulkan_shader shader;
  uint32_t rows, columns, workgroup;
} tile_shape;

static const tile_shape first_tier[2] = {
    {VULKAN_SHADER_matmul_matrix_large, 128, 128, 256},
    {VULKAN_SHADER_matmul_matrix_small, 64, 64, 128},
};
static const tile_shape second_tier[2] = {
    {VULKAN_SHADER_matmul_matrix2_large, 128, 128, 256},
    {VULKAN_SHADER_matmul_matrix2_small, 64, 32, 128},
};

/* Large tiles where they are not taller than there are rows, and enough to fill a device. */
static const tile_shape *choose_shape(const iso_device *device, uint64_t n_rows, uint64_t n_out) {
  const tile_shape *shape = device->facts.has_matrix2 ? second_tier : first_tier;
  bool is_large = n_rows > SMALL_ROWS && vulkan_ceil_div(n_rows, shape->rows) *
                                                 (uint64_t)vulkan_ceil_div(n_out, shape->columns) >=
                                             ENOUGH_GROUPS;
  return is_large ? shape : shape + 1;
}

/* Multiplies with rows of the weight that lie as halves at push->weight. */
static iso_status multiply(iso_queue *queue, const iso_op_arguments *arguments, matrix_push *push) {
  const iso_tensor *y = &arguments->outputs[0];
  const tile_shape *shape = choose_shape(vulkan_queue_device(queue), push->n_rows, push->n_out);
  push->n_tiles = vulkan_ceil_div(push->n_out, shape->columns);
  vulkan_dispatch dispatch = {.shader = shape->shader,
                              .constants = {shape->workgroup, vulkan_type_of(y), push->bias != 0},
                              .n_constants = 3,
                              .push = push,
                              .push_bytes = sizeof *push};
  vulkan_split_groups((uint64_t)push->n_tiles * vulkan_ceil_div(push->n_rows, shape->rows),
                      dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

/* ---- Few rows -------------------------------------------------------------------------------- */

/* Whether weights can be decoded on their way into products. */
static bool has_few(const iso_tensor *weight, uint32_t n_rows, uint32_t n_in) {
  if (!few_shapes[weight->scheme].shader || n_rows > FEW_ROWS || n_in % FEW_STEP != 0)
    return false;
  if (weight->scheme <= ISO_SCHEME_BF16)
    return vulkan_is_vector_weight(weight);
  return weight->layout == VULKAN_LAYOUT_SPLIT ||
         (weight->scheme != ISO_SCHEME_Q4_0 && weight->scheme != ISO_SCHEME_Q8_0);
}

typedef struct join_push {
  vulkan_rows y;
  uint64_t sums, scales, bias;
  uint32_t n_rows, n_out, y_inner_rows, n_columns, n_padded_rows, n_splits;
} join_push;

static iso_status join(iso_queue *queue, const iso_op_arguments *arguments, join_push *push) {
  enum { COLUMNS = 4 }; /* of an invocation */
  vulkan_dispatch dispatch = {
      .shader = VULKAN_SHADER_matmul_join,
      .constants = {WORKGROUP, vulkan_type_of(&arguments->outputs[0]), push->bias != 0},
      .n_constants = 3,
      .push = push,
      .push_bytes = sizeof *push};
  uint64_t n_invocations = (uint64_t)push->n_rows * vulkan_ceil_div(push->n_out, COLUMNS);
  vulkan_split_groups(vulkan_ceil_div(n_invocations, WORKGROUP), dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

/* Multiplies the halves at the start of the workspace, which `plan` describes. */
static iso_status multiply_few(iso_queue *queue, const iso_op_arguments *arguments,
                               const workspace_plan *plan, uint32_t n_in) {
  const iso_tensor *weight = &arguments->inputs[1], *y = &arguments->outputs[0];
  const few_shape *shape = &few_shapes[weight->scheme];
  vulkan_sizes sizes = vulkan_sizes_of(y);
  vulkan_planes planes = vulkan_planes_of(weight);
  uint64_t base = arguments->workspace->address + arguments->workspace_offset;
  uint32_t n_tiles = vulkan_ceil_div(sizes.n_columns, shape->columns);
  uint32_t n_row_tiles = vulkan_ceil_div(sizes.n_rows, FEW_TILE_ROWS);
  uint64_t most =
      (arguments->workspace_bytes - plan->slab) / sums_of_split(sizes.n_rows, sizes.n_columns);
  uint32_t n_splits = vulkan_ceil_div(FEW_GROUPS, n_tiles * n_row_tiles);
  n_splits = n_splits < most ? n_splits : (uint32_t)most;
  n_splits = n_splits < n_in / FEW_STEP ? n_splits : n_in / FEW_STEP;
  uint32_t length = vulkan_ceil_div(n_in / FEW_STEP, n_splits) * FEW_STEP;
  n_splits = vulkan_ceil_div(n_in, length);
  struct {
    uint64_t x, rest, scales, sums;
    uint32_t n_rows, n_out, n_in, n_tiles, n_splits, length;
  } push = {.x = base,
            .rest = planes.rest,
            .scales = planes.scales,
            .sums = base + plan->slab,
            .n_rows = sizes.n_rows,
            .n_out = sizes.n_columns,
            .n_in = n_in,
            .n_tiles = n_tiles,
            .n_splits = n_splits,
            .length = length};
  vulkan_dispatch dispatch = {.shader = shape->shader,
                              .constants = {shape->workgroup, planes.split},
                              .n_constants = 2,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups((uint64_t)n_tiles * n_row_tiles * n_splits, dispatch.groups);
  ISO_TRY(vulkan_enqueue_op(queue, arguments, &dispatch));
  return join(
      queue, arguments,
      &(join_push){.y = vulkan_rows_of(y),
                   .sums = push.sums,
                   .scales = base + plan->scales,
                   .bias = arguments->n_inputs > 2 ? vulkan_address(&arguments->inputs[2]) : 0,
                   .n_rows = sizes.n_rows,
                   .n_out = sizes.n_columns,
                   .y_inner_rows = sizes.inner_rows,
                   .n_columns = n_tiles * shape->columns,
                   .n_padded_rows = n_row_tiles * FEW_TILE_ROWS,
                   .n_splits = n_splits});
}

VULKAN_LAUNCH(vulkan_matmul_matrix) {
  const iso_tensor *x = &arguments->inputs[0], *weight = &arguments->inputs[1];
  vulkan_sizes sizes = vulkan_sizes_of(&arguments->outputs[0]);
  uint32_t n_in = vulkan_sizes_of(x).n_columns, n_out = sizes.n_columns;
  workspace_plan plan = plan_workspace(sizes.n_rows, n_in, n_out);
  uint64_t base = arguments->workspace->address + arguments->workspace_offset;
  vulkan_access accesses[VULKAN_MAX_ACCESSES];
  (void)vulkan_accesses_of(arguments, accesses); /* the first is x */
  ISO_TRY(convert_rows(queue, x, base, base + plan.scales, accesses[0]));
  if (has_few(weight, sizes.n_rows, n_in))
    return multiply_few(queue, arguments, &plan, n_in);
  matrix_push push = {.y = vulkan_rows_of(&arguments->outputs[0]),
                      .x = base,
                      .scales = base + plan.scales,
                      .n_rows = sizes.n_rows,
                      .n_in = n_in,
                      .y_inner_rows = sizes.inner_rows};
  uint64_t bias = arguments->n_inputs > 2 ? vulkan_address(&arguments->inputs[2]) : 0;
  bool direct = is_direct(weight);
  for (uint32_t first = 0; first < n_out; first += direct ? n_out : plan.slab_rows) {
    push.first_column = first;
    push.n_out = direct || n_out - first < plan.slab_rows ? n_out - first : plan.slab_rows;
    push.weight = direct ? vulkan_address(weight) : base + plan.slab;
    push.bias = bias ? bias + first * sizeof(float) : 0;
    if (!direct)
      ISO_TRY(decode_slab(queue, weight, first, push.n_out, push.weight));
    ISO_TRY(multiply(queue, arguments, &push));
  }
  return ISO_OK;
}
