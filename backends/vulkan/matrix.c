/* matmul for many rows on matrix units: activations become halves (halves.c), and weights are
 * decoded as they are multiplied, or a slab of rows at a time, one ahead. */
#include "backends/vulkan/halves.h"
#include "backends/vulkan/matmul.h"
#include "backends/vulkan/ops.h"
#include "backends/vulkan/weights.h"

enum {
  SLAB_UNIT = 384,            /* rows of a slab: whole tiles of any shape */
  SLAB_BYTES = 48 << 20,      /* of halves; there are two of them */
  COLUMN_UNIT = 32,           /* rows of x are multiples of it */
  SHORT_ROWS = 64,            /* up to so many rows, tiles are short */
  DIRECT_ROWS = 256,          /* with more, blocks are decoded once rather than by every tile */
  WANTED_GROUPS = 264,        /* lengths are cut up until there are so many workgroups, ... */
  LEAST_LENGTH = 512,         /* ... but not below this */
  MOST_PARTS = 3,             /* of the last tiles of many rows, for each unit of the device */
  WORKGROUP = 256,            /* of the small shaders */
  PART_BYTES = 128 * 192 * 4, /* of the largest tile's sums */
  ENOUGH_GROUPS = 96          /* below so many large tiles, small ones fill a device better */
};

/* A shader, and what one workgroup of it makes; `shader` is 0 where there is none. */
typedef struct tile_shape {
  vulkan_shader shader;
  uint32_t rows, columns, step, workgroup;
} tile_shape;

/* Tiles of 64 rows and of 128 for weights that are decoded as they are multiplied. */
typedef struct tile_shapes {
  tile_shape low, high;
} tile_shapes;

static const tile_shapes direct_shapes[ISO_SCHEME_COUNT] = {
#define SHAPES(name, low_columns, low_step, low_workgroup)                                         \
  {                                                                                                \
    {VULKAN_SHADER_matmul_low_##name, 64, low_columns, low_step, low_workgroup}, {                 \
      VULKAN_SHADER_matmul_high_##name, 128, 192, 64, 256                                          \
    }                                                                                              \
  }
    [ISO_SCHEME_F16] = SHAPES(f16, 64, 64, 128),
    [ISO_SCHEME_BF16] = SHAPES(bf16, 64, 64, 128),
    [ISO_SCHEME_Q8_0] = SHAPES(q8_0, 64, 64, 128),
    [ISO_SCHEME_Q4_0] = SHAPES(q4_0, 64, 64, 128),
    [ISO_SCHEME_Q4_K] = {{VULKAN_SHADER_matmul_low_q4_k, 64, 64, 64, 128}, {0}},
    [ISO_SCHEME_Q6_K] = {{VULKAN_SHADER_matmul_low_q6_k, 64, 64, 128, 128}, {0}},
#undef SHAPES
};

/* More than VULKAN_MANY_ROWS, with halves of x in fragments, by weights as they lie. */
static const tile_shape large_shapes[ISO_SCHEME_COUNT] = {
    [ISO_SCHEME_F16] = {VULKAN_SHADER_matmul_large_f16, 128, 192, 64, 256},
    [ISO_SCHEME_BF16] = {VULKAN_SHADER_matmul_large_bf16, 128, 192, 64, 256},
};

/* Of VK_NV_cooperative_matrix2, for halves: large tiles and small ones. */
static const tile_shape workgroup_shapes[2] = {
    {VULKAN_SHADER_matmul_matrix2_large, 128, 128, 128, 256},
    {VULKAN_SHADER_matmul_matrix2_small, 64, 32, 128, 128},
};

static const vulkan_shader decode_shaders[ISO_SCHEME_COUNT] = {VULKAN_BY_SCHEME(decode_rows)};

/* Where things lie in the workspace: activations as halves and their scales, then slabs or sums. */
typedef struct workspace_plan {
  uint64_t rest, parts, bytes;
  uint32_t slab_rows;
} workspace_plan;

static uint64_t align(uint64_t offset) { return (offset + 255) & ~UINT64_C(255); }

static uint64_t round_up(uint64_t n, uint32_t unit) { return (n + unit - 1) / unit * unit; }

/* Bytes of the sums of one split. */
static uint64_t sums_of_split(uint64_t n_rows, uint64_t n_out) {
  return round_up(n_rows, 128) * round_up(n_out, SLAB_UNIT) * sizeof(float);
}

/* Parts of tiles that the workspace has room for. */
static uint64_t most_parts(const iso_device *device) {
  return (uint64_t)device->facts.n_units * MOST_PARTS;
}

static workspace_plan plan_workspace(const iso_device *device, uint64_t n_rows, uint64_t n_in,
                                     uint64_t n_out) {
  uint64_t slab_rows = SLAB_BYTES / (n_in * 2) / SLAB_UNIT * SLAB_UNIT;
  slab_rows = slab_rows < SLAB_UNIT ? SLAB_UNIT : slab_rows;
  workspace_plan plan = {.slab_rows = (uint32_t)(slab_rows < n_out ? slab_rows : n_out)};
  plan.rest = align(vulkan_halves_bytes(n_rows, n_in));
  uint64_t slab_bytes = 2 * align(plan.slab_rows * n_in * 2);
  uint64_t sums_bytes = n_rows <= VULKAN_MANY_ROWS ? sums_of_split(n_rows, n_out) * 2 : 0;
  plan.parts = plan.rest + (slab_bytes > sums_bytes ? slab_bytes : sums_bytes);
  plan.bytes = plan.parts + (n_rows > VULKAN_MANY_ROWS ? most_parts(device) * PART_BYTES : 0);
  return plan;
}

uint64_t vulkan_matrix_workspace(const iso_device *device, const iso_op_arguments *arguments) {
  vulkan_sizes y = vulkan_sizes_of(&arguments->outputs[0]);
  return plan_workspace(device, y.n_rows, vulkan_sizes_of(&arguments->inputs[0]).n_columns,
                        y.n_columns)
      .bytes;
}

iso_refusal vulkan_check_matrix(const iso_device *device, const iso_op_arguments *arguments,
                                const char **out_detail) {
  if (!device->facts.has_matrix) {
    *out_detail = "the device has no matrix units that Vulkan shows, or they are not asked for";
    return ISO_REFUSED_DEVICE;
  }
  const iso_tensor *x = &arguments->inputs[0];
  if (x->dims[x->n_dims - 1] % COLUMN_UNIT != 0) {
    *out_detail = "rows are not multiples of 32";
    return ISO_REFUSED_SHAPE;
  }
  return vulkan_check_many_rows(device, arguments, out_detail);
}

/* ---- Slabs ----------------------------------------------------------------------------------- */

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

/* ---- Products -------------------------------------------------------------------------------- */

/* One launch: x as halves times rows of a weight, to columns of y from `first_column` on. */
typedef struct matrix_piece {
  const iso_op_arguments *arguments;
  const vulkan_halves *x;
  const tile_shape *shape;
  uint64_t rest, scales; /* of the weight's first row */
  uint32_t n_out, n_in, first_column;
  uint32_t n_splits, length; /* of tiles that are cut up, all or the last `n_split` if not 0 */
  uint32_t n_split;
  uint64_t sums;       /* with more than one split */
  uint64_t parts;      /* of the last tiles */
  uint64_t slab_bytes; /* that `rest` is a slab of; 0 where it is the weight */
} matrix_piece;

/* Of the workspace, only what is used: the next slab may be decoded meanwhile, or another product
 * made. */
static iso_status enqueue(iso_queue *queue, const matrix_piece *piece, vulkan_dispatch *dispatch) {
  vulkan_access accesses[VULKAN_MAX_ACCESSES + 4];
  uint32_t n = vulkan_accesses_of(piece->arguments, accesses); /* the last is the workspace */
  if (piece->n_split > 0 || piece->n_splits <= 1)
    n--;
  if (piece->slab_bytes > 0)
    accesses[n++] = (vulkan_access){piece->rest, piece->slab_bytes, false};
  if (piece->n_split > 0) {
    accesses[n++] =
        (vulkan_access){piece->parts, most_parts(vulkan_queue_device(queue)) * PART_BYTES, true};
    accesses[n++] = (vulkan_access){vulkan_queue_arrivals(queue), VULKAN_ARRIVALS * 4, true};
  }
  accesses[n++] = (vulkan_access){piece->x->halves, piece->x->bytes, false};
  dispatch->accesses = accesses;
  dispatch->n_accesses = n;
  return vulkan_enqueue(queue, dispatch);
}

static uint64_t bias_of(const matrix_piece *piece) {
  const iso_op_arguments *arguments = piece->arguments;
  uint64_t bias = arguments->n_inputs > 2 ? vulkan_address(&arguments->inputs[2]) : 0;
  return bias ? bias + piece->first_column * sizeof(float) : 0;
}

/* Cuts the length up where tiles are too few to fill a device, as far as `bytes` hold the sums. */
static void cut_length(matrix_piece *piece, uint32_t n_rows, uint64_t bytes) {
  const tile_shape *shape = piece->shape;
  uint64_t n_tiles = (uint64_t)vulkan_ceil_div(n_rows, shape->rows) *
                     vulkan_ceil_div(piece->n_out, shape->columns);
  uint64_t splits = n_rows <= VULKAN_MANY_ROWS ? (WANTED_GROUPS + n_tiles / 2) / n_tiles : 1;
  uint64_t most = bytes / sums_of_split(n_rows, piece->n_out);
  splits = splits < most ? splits : most;
  most = piece->n_in / LEAST_LENGTH;
  splits = splits < most ? splits : most;
  splits = splits < 1 ? 1 : splits;
  piece->length = (uint32_t)round_up(vulkan_ceil_div(piece->n_in, (uint32_t)splits), shape->step);
  piece->n_splits = vulkan_ceil_div(piece->n_in, piece->length);
}

static uint32_t count_tiles(const matrix_piece *piece, uint32_t n_rows) {
  return vulkan_ceil_div(n_rows, piece->shape->rows) *
         vulkan_ceil_div(piece->n_out, piece->shape->columns);
}

/* A unit of the device makes one tile at a time. Those that the last round would leave some units
 * idle with are cut up into as many parts as take the least time. It is counted in steps: to leave
 * a part takes some LEAVE of them, to gather one GATHER. */
static void cut_last_tiles(iso_queue *queue, matrix_piece *piece, uint32_t n_rows) {
  enum { LEAVE = 6, GATHER = 2, MOST_SPLITS = 16 };
  const iso_device *device = vulkan_queue_device(queue);
  uint32_t n_units = device->facts.n_units;
  uint32_t n_steps = vulkan_ceil_div(piece->n_in, piece->shape->step);
  piece->n_split = 0;
  piece->n_splits = 1;
  piece->length = piece->n_in;
  if (n_units == 0 || n_units > VULKAN_ARRIVALS || !vulkan_queue_arrivals(queue) ||
      n_rows <= VULKAN_MANY_ROWS)
    return;
  uint32_t n_left = count_tiles(piece, n_rows) % n_units, least = n_steps;
  for (uint32_t splits = 2;
       n_left > 0 && splits <= MOST_SPLITS && n_left * splits <= most_parts(device); splits++) {
    uint32_t steps = vulkan_ceil_div(n_steps, splits), n_parts = vulkan_ceil_div(n_steps, steps);
    uint32_t rounds = vulkan_ceil_div(n_left * n_parts, n_units);
    uint32_t cost = rounds * (steps + LEAVE) + n_parts * GATHER;
    if (cost >= least)
      continue;
    least = cost;
    piece->n_split = n_left;
    piece->n_splits = n_parts;
    piece->length = steps * piece->shape->step;
  }
}

/* Eight columns of y lie at 16 bytes. */
static bool is_vector_result(const iso_tensor *y) {
  bool even = vulkan_address(y) % 32 == 0 && y->dims[y->n_dims - 1] % 8 == 0;
  for (uint32_t d = 0; d + 1 < y->n_dims; d++)
    even = even && y->strides[d] % 32 == 0;
  return even;
}

/* How the tiles of a product are made. */
enum { SPLIT_NONE, SPLIT_LEAVES_SUMS, SPLIT_LAST_TILES }; /* matmul_matrix.comp */

static iso_status multiply(iso_queue *queue, const matrix_piece *piece) {
  const iso_tensor *y = &piece->arguments->outputs[0], *weight = &piece->arguments->inputs[1];
  const tile_shape *shape = piece->shape;
  vulkan_sizes sizes = vulkan_sizes_of(y);
  uint32_t n_tiles = count_tiles(piece, sizes.n_rows);
  uint32_t how = piece->n_split        ? SPLIT_LAST_TILES
                 : piece->n_splits > 1 ? SPLIT_LEAVES_SUMS
                                       : SPLIT_NONE;
  struct {
    vulkan_rows y;
    uint64_t x, rest, scales, row_scales, bias, sums;
    uint32_t n_rows, n_out, y_inner_rows, first_column, n_splits, length, n_whole;
    uint64_t arrivals;
  } push = {.y = vulkan_rows_of(y),
            .x = piece->x->halves,
            .rest = piece->rest,
            .scales = piece->scales,
            .row_scales = piece->x->scales,
            .bias = bias_of(piece),
            .sums = piece->n_split ? piece->parts : piece->sums,
            .n_rows = sizes.n_rows,
            .n_out = piece->n_out,
            .y_inner_rows = sizes.inner_rows,
            .first_column = piece->first_column,
            .n_splits = piece->n_splits,
            .length = piece->length,
            .n_whole = n_tiles - piece->n_split,
            .arrivals = vulkan_queue_arrivals(queue)};
  vulkan_dispatch dispatch = {
      .shader = shape->shader,
      .constants = {shape->workgroup, weight->layout == VULKAN_LAYOUT_SPLIT, vulkan_type_of(y),
                    push.bias != 0, piece->n_in, sizes.n_rows >= shape->rows,
                    piece->n_out >= shape->columns, how, is_vector_result(y)},
      .n_constants = 9,
      .push = &push,
      .push_bytes = sizeof push};
  if (how == SPLIT_LEAVES_SUMS)
    push.n_whole = 0;
  vulkan_split_groups(push.n_whole + (uint64_t)(n_tiles - push.n_whole) * piece->n_splits,
                      dispatch.groups);
  return enqueue(queue, piece, &dispatch);
}

/* By matmul_large.comp. */
static iso_status multiply_large(iso_queue *queue, matrix_piece *piece, iso_scheme scheme) {
  const iso_tensor *y = &piece->arguments->outputs[0];
  const tile_shape *shape = piece->shape = &large_shapes[scheme];
  vulkan_sizes sizes = vulkan_sizes_of(y);
  cut_last_tiles(queue, piece, sizes.n_rows);
  uint32_t n_tiles = count_tiles(piece, sizes.n_rows);
  struct {
    vulkan_rows y;
    uint64_t x, weight, row_scales, bias, parts;
    uint32_t n_rows, n_out, y_inner_rows, first_column, n_splits, length, n_whole;
    uint64_t arrivals;
  } push = {.y = vulkan_rows_of(y),
            .x = piece->x->halves,
            .weight = piece->rest,
            .row_scales = piece->x->scales,
            .bias = bias_of(piece),
            .parts = piece->parts,
            .n_rows = sizes.n_rows,
            .n_out = piece->n_out,
            .y_inner_rows = sizes.inner_rows,
            .first_column = piece->first_column,
            .n_splits = piece->n_splits,
            .length = piece->length,
            .n_whole = n_tiles - piece->n_split,
            .arrivals = vulkan_queue_arrivals(queue)};
  vulkan_dispatch dispatch = {.shader = shape->shader,
                              .constants = {shape->workgroup, vulkan_type_of(y), push.bias != 0,
                                            piece->n_in, piece->n_out >= shape->columns,
                                            piece->n_split > 0, is_vector_result(y)},
                              .n_constants = 7,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups(push.n_whole + (uint64_t)piece->n_split * piece->n_splits, dispatch.groups);
  return enqueue(queue, piece, &dispatch);
}

static iso_status multiply_by_workgroups(iso_queue *queue, const matrix_piece *piece) {
  const iso_tensor *y = &piece->arguments->outputs[0];
  const tile_shape *shape = piece->shape;
  vulkan_sizes sizes = vulkan_sizes_of(y);
  struct {
    vulkan_rows y;
    uint64_t x, weight, scales, bias;
    uint32_t n_rows, n_out, n_in, y_inner_rows, n_tiles, first_column;
  } push = {.y = vulkan_rows_of(y),
            .x = piece->x->halves,
            .weight = piece->rest,
            .scales = piece->x->scales,
            .bias = bias_of(piece),
            .n_rows = sizes.n_rows,
            .n_out = piece->n_out,
            .n_in = piece->n_in,
            .y_inner_rows = sizes.inner_rows,
            .n_tiles = vulkan_ceil_div(piece->n_out, shape->columns),
            .first_column = piece->first_column};
  vulkan_dispatch dispatch = {.shader = shape->shader,
                              .constants = {shape->workgroup, vulkan_type_of(y), push.bias != 0},
                              .n_constants = 3,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups((uint64_t)push.n_tiles * vulkan_ceil_div(push.n_rows, shape->rows),
                      dispatch.groups);
  return enqueue(queue, piece, &dispatch);
}

static iso_status join(iso_queue *queue, const matrix_piece *piece) {
  enum { COLUMNS = 4 }; /* of an invocation */
  const iso_tensor *y = &piece->arguments->outputs[0];
  vulkan_sizes sizes = vulkan_sizes_of(y);
  struct {
    vulkan_rows y;
    uint64_t sums, scales, bias;
    uint32_t n_rows, n_out, y_inner_rows, n_columns, n_padded_rows, n_splits;
  } push = {.y = vulkan_rows_of(y),
            .sums = piece->sums,
            .scales = piece->x->scales,
            .bias = bias_of(piece),
            .n_rows = sizes.n_rows,
            .n_out = piece->n_out,
            .y_inner_rows = sizes.inner_rows,
            .n_columns = (uint32_t)round_up(piece->n_out, piece->shape->columns),
            .n_padded_rows = (uint32_t)round_up(sizes.n_rows, piece->shape->rows),
            .n_splits = piece->n_splits};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_matmul_join,
                              .constants = {WORKGROUP, vulkan_type_of(y), push.bias != 0},
                              .n_constants = 3,
                              .push = &push,
                              .push_bytes = sizeof push};
  uint64_t n_invocations = (uint64_t)push.n_rows * vulkan_ceil_div(push.n_out, COLUMNS);
  vulkan_split_groups(vulkan_ceil_div(n_invocations, WORKGROUP), dispatch.groups);
  return enqueue(queue, piece, &dispatch);
}

/* Whether weights can be decoded on their way into products as they lie. */
static bool is_direct(const iso_tensor *weight) {
  if (weight->scheme <= ISO_SCHEME_BF16)
    return vulkan_is_vector_weight(weight);
  return weight->layout == VULKAN_LAYOUT_SPLIT ||
         (weight->scheme != ISO_SCHEME_Q4_0 && weight->scheme != ISO_SCHEME_Q8_0);
}

/* The shape for weights as they lie; its shader is 0 where they must be decoded before. */
static const tile_shape *choose_direct(const iso_device *device, const iso_tensor *weight,
                                       uint32_t n_rows) {
  static const tile_shape none = {0};
  if (!is_direct(weight) || (device->facts.has_matrix2 && n_rows > SHORT_ROWS) ||
      (weight->scheme > ISO_SCHEME_BF16 && n_rows > DIRECT_ROWS))
    return &none;
  const tile_shapes *shapes = &direct_shapes[weight->scheme];
  return n_rows <= SHORT_ROWS ? &shapes->low : &shapes->high;
}

/* Rows of a weight that lie as halves. */
static iso_status multiply_halves(iso_queue *queue, matrix_piece *piece, uint32_t n_rows) {
  if (vulkan_halves_in_fragments(vulkan_queue_device(queue), n_rows, piece->n_in))
    return multiply_large(queue, piece, ISO_SCHEME_F16);
  if (!vulkan_queue_device(queue)->facts.has_matrix2) {
    piece->shape = n_rows <= SHORT_ROWS ? &direct_shapes[ISO_SCHEME_F16].low
                                        : &direct_shapes[ISO_SCHEME_F16].high;
    cut_last_tiles(queue, piece, n_rows);
    return multiply(queue, piece);
  }
  const tile_shape *shape = workgroup_shapes;
  uint64_t n_large = (uint64_t)vulkan_ceil_div(n_rows, shape->rows) *
                     vulkan_ceil_div(piece->n_out, shape->columns);
  piece->shape = n_rows > SHORT_ROWS && n_large >= ENOUGH_GROUPS ? shape : shape + 1;
  return multiply_by_workgroups(queue, piece);
}

VULKAN_LAUNCH(vulkan_matmul_matrix) {
  const iso_tensor *x = &arguments->inputs[0], *weight = &arguments->inputs[1];
  vulkan_sizes sizes = vulkan_sizes_of(&arguments->outputs[0]);
  uint32_t n_in = vulkan_sizes_of(x).n_columns, n_out = sizes.n_columns;
  if (sizes.n_rows == 0 || n_out == 0)
    return ISO_OK;
  workspace_plan plan = plan_workspace(vulkan_queue_device(queue), sizes.n_rows, n_in, n_out);
  uint64_t base = arguments->workspace->address + arguments->workspace_offset;
  vulkan_halves halves;
  ISO_TRY(vulkan_halves_of(queue, arguments, &halves));
  vulkan_planes planes = vulkan_planes_of(weight);
  matrix_piece piece = {.arguments = arguments,
                        .x = &halves,
                        .shape = choose_direct(vulkan_queue_device(queue), weight, sizes.n_rows),
                        .rest = planes.rest,
                        .scales = planes.scales,
                        .n_out = n_out,
                        .n_in = n_in,
                        .sums = base + plan.rest,
                        .parts = base + plan.parts};
  bool in_fragments = vulkan_halves_in_fragments(vulkan_queue_device(queue), sizes.n_rows, n_in);
  if (piece.shape->shader && in_fragments)
    return multiply_large(queue, &piece, weight->scheme);
  if (piece.shape->shader) {
    if (sizes.n_rows > VULKAN_MANY_ROWS) {
      cut_last_tiles(queue, &piece, sizes.n_rows);
      return multiply(queue, &piece);
    }
    cut_length(&piece, sizes.n_rows, arguments->workspace_bytes - plan.rest);
    ISO_TRY(multiply(queue, &piece));
    return piece.n_splits > 1 ? join(queue, &piece) : ISO_OK;
  }
  if (weight->scheme == ISO_SCHEME_F16 && vulkan_is_vector_weight(weight))
    return multiply_halves(queue, &piece, sizes.n_rows);
  uint32_t step = plan.slab_rows;
  uint64_t slabs = base + plan.rest, slab_bytes = align((uint64_t)step * n_in * 2);
  for (uint32_t first = 0, i = 0; first < n_out; first += step, i++) {
    piece.first_column = first;
    piece.n_out = n_out - first < step ? n_out - first : step;
    piece.rest = slabs + i % 2 * slab_bytes;
    piece.slab_bytes = slab_bytes;
    if (i == 0)
      ISO_TRY(decode_slab(queue, weight, 0, piece.n_out, piece.rest));
    ISO_TRY(multiply_halves(queue, &piece, sizes.n_rows));
    uint32_t next = first + step, left = next < n_out ? n_out - next : 0;
    if (left > 0)
      ISO_TRY(decode_slab(queue, weight, next, left < step ? left : step,
                          slabs + (i + 1) % 2 * slab_bytes));
  }
  return ISO_OK;
}
