/* Decode steps: the launches of matmul_one.comp, matmul_dot.comp, matmul_wide.comp and
 * rope_kv_write.comp. */
#include "backends/vulkan/fusion.h"
#include "backends/vulkan/matmul.h"
#include "backends/vulkan/ops.h"
#include "backends/vulkan/weights.h"
#include <string.h>

static const vulkan_shader shaders[ISO_SCHEME_COUNT] = {VULKAN_BY_SCHEME(matmul_one)};
/* matmul_dot.comp: the shader of any product and that of gated units, 0 where it is the same; how
 * many elements 16 bytes hold; whether it needs totals of x. */
static const struct dot_scheme {
  vulkan_shader any, gated;
  uint32_t unit;
  bool has_zeros;
} dot_schemes[ISO_SCHEME_COUNT] = {
    [ISO_SCHEME_Q8_0] = {VULKAN_SHADER_matmul_dot_q8_0, 0, 16, false},
    [ISO_SCHEME_Q4_0] = {VULKAN_SHADER_matmul_dot_q4_0, VULKAN_SHADER_gated_dot_q4_0, 32, false},
    [ISO_SCHEME_I8_G128] = {VULKAN_SHADER_matmul_dot_i8_g128, 0, 16, false},
    [ISO_SCHEME_I4_G128] = {VULKAN_SHADER_matmul_dot_i4_g128, VULKAN_SHADER_gated_dot_i4_g128, 32,
                            true},
};
static const vulkan_shader wide_shaders[ISO_SCHEME_COUNT] = {
    [ISO_SCHEME_F16] = VULKAN_SHADER_matmul_wide_f16,
    [ISO_SCHEME_BF16] = VULKAN_SHADER_matmul_wide_bf16,
};

enum {
  WORKGROUP = 128,
  ROWS = 4,
  DOT_WORKGROUP = 512,
  DOT_SMALL_WORKGROUP = 256,
  DOT_LARGE_WORKGROUP = 1024,
  DOT_ROWS = 4,            /* of a subgroup at most */
  LONG_ROW = 8192,         /* from such a length on, x takes long to look at: workgroups are few */
  DOT_NIBBLE_GROUPS = 200, /* workgroups that fill a device: with more, each makes more rows */
  DOT_BYTE_GROUPS = 160,
  DOT_LONG_GROUPS = 96,
  DOT_FEW = 256, /* workgroups with room for more loads under way */
  DOT_GATED_WORKGROUP = 256,
  DOT_GATED_DEPTH = 4,    /* loads of each of its two rows under way */
  HELD_DEPTH = 8,         /* loads under way in an invocation */
  HELD_INVOCATIONS = 512, /* there at once on each of the device's multiprocessors, ... */
  HELD_UNITS = 128,       /* ... which are taken for so many where the driver does not say */
  WIDE_WORKGROUP = 512,
  WIDE_GATED_DEPTH = 8,
  MANY_RESULTS = 32768, /* two rows a subgroup */
  WIDE_LOADS = 4,       /* under way in an invocation, twice as many where workgroups are few */
  WIDE_FEW = 256,
  STREAM_SHARED = 1024, /* bytes beside those of activations */
  HEAD_WORKGROUP = 256, /* rope_kv_write.comp */
  HEAD_TEAM = 64,
  HEADS_EACH = 4
};
enum { AFTER_NONE, AFTER_ADD, AFTER_GLU }; /* matmul_one.comp */

static bool is_vector_row(const iso_tensor *tensor) { return vulkan_address(tensor) % 16 == 0; }

bool vulkan_fits_one(const iso_op_arguments *matmul) {
  const iso_tensor *x = &matmul->inputs[0], *weight = &matmul->inputs[1];
  bool is_float = weight->scheme <= ISO_SCHEME_BF16;
  bool has_units = is_float ? vulkan_is_vector_weight(weight)
                   : weight->scheme == ISO_SCHEME_Q4_0 || weight->scheme == ISO_SCHEME_Q8_0
                       ? weight->layout == VULKAN_LAYOUT_SPLIT
                       : true;
  return vulkan_sizes_of(&matmul->outputs[0]).n_rows == 1 && x->dims[x->n_dims - 1] % 32 == 0 &&
         is_vector_row(x) && has_units;
}

bool vulkan_norm_fits_one(const iso_op_arguments *norm) {
  const iso_tensor *x = &norm->inputs[0];
  return vulkan_sizes_of(x).n_rows == 1 && x->scheme == norm->outputs[0].scheme &&
         is_vector_row(x) && is_vector_row(&norm->inputs[1]) && x->dims[x->n_dims - 1] % 32 == 0;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

typedef struct product_push {
  uint64_t x, gain, normalised, residual, after;
  struct {
    uint64_t rest, bias, y;
  } parts[VULKAN_MOST_PARTS];
  uint32_t n_in, n_out[VULKAN_MOST_PARTS];
} product_push;

/* The accesses of all ops; those among themselves are no reason to wait. */
static uint32_t list_accesses(const vulkan_product *product, vulkan_access *out_accesses) {
  const iso_op_arguments *ops[VULKAN_MOST_DEFERRED] = {product->norm, product->after};
  memcpy(&ops[2], product->parts, sizeof product->parts);
  uint32_t n = 0;
  for (uint32_t i = 0; i < VULKAN_MOST_DEFERRED; i++)
    n += ops[i] ? vulkan_accesses_of(ops[i], out_accesses + n) : 0;
  return n;
}

/* How the results of a product are shared out: tiles of so many rows, and how many of them a
 * workgroup makes. */
typedef struct product_shape {
  vulkan_shader shader;
  uint32_t workgroup, rows, tiles, depth;
  uint32_t n_subgroups; /* of a workgroup, where the shader has to know */
} product_shape;

/* What matmul_dot.comp keeps of x. */
static uint64_t dot_shared_bytes(const iso_op_arguments *matmul) {
  uint64_t n_in = vulkan_sizes_of(&matmul->inputs[0]).n_columns;
  return n_in * 2 + n_in / 4 * (dot_schemes[matmul->inputs[1].scheme].has_zeros ? 2 : 1);
}

static bool fits_dot(const iso_device *device, const iso_op_arguments *matmul) {
  const iso_tensor *weight = &matmul->inputs[1];
  return device->facts.has_dot && dot_schemes[weight->scheme].any != 0 &&
         weight->layout == VULKAN_LAYOUT_SPLIT &&
         dot_shared_bytes(matmul) + STREAM_SHARED <= device->facts.shared_bytes;
}

static bool is_gated(const vulkan_product *product) {
  return product->after && product->after->op == ISO_OP_GLU;
}

static uint64_t count_results(const vulkan_product *product) {
  uint64_t n_out = 0;
  for (uint32_t i = 0; i < product->n_parts; i++)
    n_out += vulkan_sizes_of(&product->parts[i]->outputs[0]).n_columns;
  return n_out;
}

static uint32_t count_subgroups(const iso_device *device, uint32_t workgroup) {
  uint32_t n_subgroups = workgroup / device->facts.subgroup_width;
  return n_subgroups ? n_subgroups : 1;
}

/* Rows of a subgroup: twice as many as long as more than `enough` workgroups are left. */
static uint32_t count_rows(uint64_t n_out, uint64_t enough) {
  uint32_t rows = 1;
  while (rows < DOT_ROWS && n_out >= enough * 2 * rows)
    rows *= 2;
  return rows;
}

/* Chosen by measuring: what takes few registers and leaves no workgroup to wait for others to end
 * wins over loads under way. `depth` are those of each row; a gated unit has a row of each weight.
 */
static product_shape choose_dot_shape(const iso_device *device, const vulkan_product *product) {
  const iso_op_arguments *first = product->parts[0];
  const struct dot_scheme *scheme = &dot_schemes[first->inputs[1].scheme];
  bool is_bytes = scheme->unit == 16; /* half as many elements a load */
  uint32_t most = device->facts.most_invocations;
  product_shape shape = {.shader = scheme->any,
                         .workgroup = most < DOT_WORKGROUP ? most : DOT_WORKGROUP};
  uint64_t n_out = count_results(product), n_subgroups = count_subgroups(device, shape.workgroup);
  if (is_gated(product) && is_bytes) {
    shape.workgroup = DOT_GATED_WORKGROUP;
    shape.rows = 1;
    shape.depth = DOT_GATED_DEPTH;
  } else if (vulkan_sizes_of(&first->inputs[0]).n_columns >= LONG_ROW) {
    shape.rows = count_rows(n_out, DOT_LONG_GROUPS * n_subgroups);
    shape.depth = shape.rows == DOT_ROWS ? 2 : is_bytes ? 8 : 4;
    if (shape.rows == 2 && most >= DOT_LARGE_WORKGROUP && !is_gated(product)) {
      shape.workgroup = DOT_LARGE_WORKGROUP; /* with as many workgroups and loads */
      shape.rows /= 2;
      shape.depth /= 2;
    }
  } else {
    shape.rows = count_rows(n_out, (is_bytes ? DOT_BYTE_GROUPS : DOT_NIBBLE_GROUPS) * n_subgroups);
    bool are_few = n_out <= DOT_FEW * n_subgroups;
    shape.depth = shape.rows == DOT_ROWS ? 1 : is_bytes ? 4 : are_few ? 2 : 1;
    if (is_bytes ? shape.rows == 2 : is_gated(product) && shape.rows == DOT_ROWS)
      shape.workgroup = DOT_SMALL_WORKGROUP;
  }
  if (is_gated(product) && shape.rows > 1)
    shape.rows /= 2;
  shape.tiles = count_subgroups(device, shape.workgroup);
  return shape;
}

static uint32_t round_up(uint32_t value, uint32_t step) {
  return vulkan_ceil_div(value, step) * step;
}

/* Gated units whose invocations keep x: all workgroups are there at once, and make as many rows as
 * that leaves to each. False where it has no shape for a device or product. */
static bool choose_held_shape(const iso_device *device, const vulkan_product *product,
                              product_shape *out_shape) {
  const iso_op_arguments *first = product->parts[0];
  const struct dot_scheme *scheme = &dot_schemes[first->inputs[1].scheme];
  uint32_t n_units = vulkan_sizes_of(&first->inputs[0]).n_columns / scheme->unit;
  uint32_t width = device->facts.subgroup_width, depth = width < HELD_DEPTH ? width : HELD_DEPTH;
  uint32_t n_held = vulkan_ceil_div(n_units, device->facts.most_invocations);
  uint32_t workgroup = round_up(vulkan_ceil_div(n_units, n_held), width);
  uint64_t n_processors = device->facts.n_units ? device->facts.n_units : HELD_UNITS;
  uint64_t n_groups = n_processors * vulkan_ceil_div(HELD_INVOCATIONS, workgroup);
  uint64_t n_out = count_results(product) / 2;
  uint32_t rows = round_up(vulkan_ceil_div(n_out, (uint32_t)n_groups), depth / 2);
  *out_shape = (product_shape){.shader = scheme->gated,
                               .workgroup = workgroup,
                               .rows = rows,
                               .tiles = 1,
                               .depth = depth,
                               .n_subgroups = workgroup / width};
  uint64_t n_shared = (uint64_t)out_shape->n_subgroups * (2 * rows + 1);
  return is_gated(product) && scheme->gated != 0 && device->facts.has_shuffle && rows <= n_out &&
         dot_shared_bytes(first) + n_shared * sizeof(float) <= device->facts.shared_bytes;
}

static bool fits_wide(const iso_device *device, const vulkan_product *product) {
  const iso_tensor *x = &product->parts[0]->inputs[0];
  uint64_t bytes = product->norm || x->scheme == ISO_SCHEME_F32 ? 4 : 2;
  return wide_shaders[product->parts[0]->inputs[1].scheme] != 0 &&
         vulkan_sizes_of(x).n_columns * bytes + STREAM_SHARED <= device->facts.shared_bytes;
}

static product_shape choose_wide_shape(const iso_device *device, const vulkan_product *product) {
  const iso_op_arguments *first = product->parts[0];
  vulkan_shader shader = wide_shaders[first->inputs[1].scheme];
  uint32_t most = device->facts.most_invocations;
  uint32_t workgroup = most < WIDE_WORKGROUP ? most : WIDE_WORKGROUP;
  uint32_t n_subgroups = count_subgroups(device, workgroup);
  if (is_gated(product))
    return (product_shape){shader, workgroup, 1, n_subgroups, WIDE_GATED_DEPTH};
  uint64_t n_out = count_results(product);
  uint32_t rows = n_out >= MANY_RESULTS ? 2 : 1;
  bool are_few = n_out <= (uint64_t)WIDE_FEW * n_subgroups * rows;
  return (product_shape){shader, workgroup, rows, n_subgroups,
                         (are_few ? 2 * WIDE_LOADS : WIDE_LOADS) / rows};
}

static product_shape choose_shape(const iso_device *device, const vulkan_product *product) {
  const iso_op_arguments *first = product->parts[0];
  product_shape held;
  if (fits_dot(device, first))
    return choose_held_shape(device, product, &held) ? held : choose_dot_shape(device, product);
  if (fits_wide(device, product))
    return choose_wide_shape(device, product);
  return (product_shape){shaders[first->inputs[1].scheme], WORKGROUP, ROWS, 1, 0};
}

enum { NORM_NONE, NORM_KEPT, NORM_LOST }; /* one.glsl */
static uint32_t norm_of(const vulkan_product *product) {
  return !product->norm ? NORM_NONE : product->loses_row ? NORM_LOST : NORM_KEPT;
}

/* Fills in what the constants say too; returns the number of workgroups. */
static uint64_t describe(const vulkan_product *product, const product_shape *shape,
                         product_push *push, uint32_t after) {
  const iso_tensor *x = &product->parts[0]->inputs[0];
  uint64_t n_tiles = 0;
  *push = (product_push){.x = vulkan_address(x), .n_in = vulkan_sizes_of(x).n_columns};
  if (product->norm) {
    push->x = vulkan_address(&product->norm->inputs[0]);
    push->gain = vulkan_address(&product->norm->inputs[1]);
    push->normalised = vulkan_address(&product->norm->outputs[0]);
  }
  for (uint32_t i = 0; i < product->n_parts; i++) {
    const iso_op_arguments *part = product->parts[i];
    push->parts[i].rest = vulkan_address(&part->inputs[1]);
    push->parts[i].bias = part->n_inputs > 2 ? vulkan_address(&part->inputs[2]) : 0;
    push->parts[i].y = vulkan_address(&part->outputs[0]);
    push->n_out[i] = vulkan_sizes_of(&part->outputs[0]).n_columns;
    n_tiles += vulkan_ceil_div(push->n_out[i], shape->rows);
  }
  if (after != AFTER_NONE)
    push->after = vulkan_address(&product->after->outputs[0]);
  if (after == AFTER_ADD) {
    uint64_t first = vulkan_address(&product->after->inputs[0]);
    push->residual = first == push->parts[0].y ? vulkan_address(&product->after->inputs[1]) : first;
  }
  if (after == AFTER_GLU)
    n_tiles = vulkan_ceil_div(push->n_out[0], shape->rows);
  return vulkan_ceil_div(n_tiles, shape->tiles);
}

iso_status vulkan_launch_product(iso_queue *queue, const vulkan_product *product) {
  uint32_t after = !product->after                    ? AFTER_NONE
                   : product->after->op == ISO_OP_ADD ? AFTER_ADD
                                                      : AFTER_GLU;
  product_push push;
  product_shape shape = choose_shape(vulkan_queue_device(queue), product);
  uint64_t n_groups = describe(product, &shape, &push, after);
  const iso_op_arguments *first = product->parts[0];
  const iso_tensor *x = product->norm ? &product->norm->inputs[0] : &first->inputs[0];
  const iso_rms_norm_attributes *norm = product->norm ? product->norm->attributes : NULL;
  const iso_glu_attributes *glu = after == AFTER_GLU ? product->after->attributes : NULL;
  vulkan_access accesses[VULKAN_MOST_DEFERRED * VULKAN_MAX_ACCESSES];
  vulkan_dispatch dispatch = {
      .shader = shape.shader,
      .constants = {shape.workgroup, vulkan_type_of(x), vulkan_type_of(&first->outputs[0]),
                    first->inputs[1].layout == VULKAN_LAYOUT_SPLIT, shape.rows, product->n_parts,
                    push.parts[0].bias || push.parts[1].bias || push.parts[2].bias,
                    norm_of(product), norm ? bits_of(norm->epsilon) : 0,
                    norm ? bits_of(norm->weight_offset) : 0, after, glu ? glu->activation : 0,
                    push.n_in, shape.depth, shape.n_subgroups},
      .n_constants = shape.n_subgroups ? 15
                     : shape.depth     ? 14
                                       : 12,
      .push = &push,
      .push_bytes = sizeof push,
      .accesses = accesses,
      .n_accesses = list_accesses(product, accesses)};
  vulkan_split_groups(n_groups, dispatch.groups);
  return vulkan_enqueue(queue, &dispatch);
}

iso_status vulkan_launch_rope_kv_write(iso_queue *queue, const iso_op_arguments *rope_q,
                                       const iso_op_arguments *rope_k,
                                       const iso_op_arguments *write) {
  const iso_rope_attributes *attributes = rope_q->attributes;
  const iso_tensor *q = &rope_q->inputs[0], *k = &rope_k->inputs[0], *v = &write->inputs[1];
  const iso_tensor *k_cache = &write->inputs[3], *v_cache = &write->inputs[4];
  struct {
    uint64_t q, k, v, turned_q, turned_k, positions, frequencies, slots, k_cache, v_cache;
    uint32_t n_tokens, n_pairs, n_slots;
    float magnitude;
  } push = {.q = vulkan_address(q),
            .k = vulkan_address(k),
            .v = vulkan_address(v),
            .turned_q = vulkan_address(&rope_q->outputs[0]),
            .turned_k = vulkan_address(&rope_k->outputs[0]),
            .positions = vulkan_address(&rope_q->inputs[1]),
            .frequencies = vulkan_address(&rope_q->inputs[2]),
            .slots = vulkan_address(&write->inputs[2]),
            .k_cache = vulkan_address(k_cache),
            .v_cache = vulkan_address(v_cache),
            .n_tokens = (uint32_t)q->dims[0],
            .n_pairs = (uint32_t)rope_q->inputs[2].dims[0],
            .n_slots = (uint32_t)(k_cache->dims[0] * k_cache->dims[2]),
            .magnitude = attributes->magnitude};
  uint32_t n_heads = (uint32_t)q->dims[1], n_kv_heads = (uint32_t)k->dims[1];
  vulkan_access accesses[3 * VULKAN_MAX_ACCESSES];
  uint32_t n = vulkan_accesses_of(rope_q, accesses);
  n += vulkan_accesses_of(rope_k, accesses + n);
  n += vulkan_accesses_of(write, accesses + n);
  vulkan_dispatch dispatch = {
      .shader = VULKAN_SHADER_rope_kv_write,
      .constants = {HEAD_WORKGROUP, vulkan_type_of(q), vulkan_type_of(k_cache),
                    vulkan_type_of(v_cache), attributes->interleaved, n_heads, n_kv_heads,
                    (uint32_t)k->dims[2], (uint32_t)v->dims[2], (uint32_t)k_cache->dims[2]},
      .n_constants = 10,
      .push = &push,
      .push_bytes = sizeof push,
      .accesses = accesses,
      .n_accesses = n};
  uint64_t n_parts = vulkan_ceil_div(n_heads + 2 * n_kv_heads, HEADS_EACH);
  vulkan_split_groups(vulkan_ceil_div(push.n_tokens * n_parts, HEAD_WORKGROUP / HEAD_TEAM),
                      dispatch.groups);
  return dispatch.groups[0] ? vulkan_enqueue(queue, &dispatch) : ISO_OK;
}
