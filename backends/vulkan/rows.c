/* Ops on whole rows: rms_norm, layer_norm, softmax, rope, gather_rows, argmax. */
#include "backends/vulkan/fusion.h"
#include "backends/vulkan/halves.h"
#include "backends/vulkan/ops.h"

enum { WORKGROUP = 64, WIDE_WORKGROUP = 256, LONE_WORKGROUP = 512 };

/* Long rows get more invocations. */
static uint32_t workgroup_for(uint32_t n_columns) {
  return n_columns >= 1024 ? WIDE_WORKGROUP : WORKGROUP;
}

typedef struct norm_push {
  vulkan_rows x, y;
  uint64_t weight, bias, halves, half_scales;
  uint32_t n_rows, inner_rows, n_columns;
  float epsilon, weight_offset;
} norm_push;

static iso_status launch_norm(iso_queue *queue, const iso_op_arguments *arguments,
                              vulkan_shader shader, float epsilon, float weight_offset) {
  const iso_tensor *x = &arguments->inputs[0], *y = &arguments->outputs[0];
  vulkan_sizes sizes = vulkan_sizes_of(x);
  norm_push push = {.x = vulkan_rows_of(x),
                    .y = vulkan_rows_of(y),
                    .weight = arguments->n_inputs > 1 ? vulkan_address(&arguments->inputs[1]) : 0,
                    .bias = arguments->n_inputs > 2 ? vulkan_address(&arguments->inputs[2]) : 0,
                    .n_rows = sizes.n_rows,
                    .inner_rows = sizes.inner_rows,
                    .n_columns = sizes.n_columns,
                    .epsilon = epsilon,
                    .weight_offset = weight_offset};
  bool vector = vulkan_is_vector_rows(x) && vulkan_is_vector_rows(y) && push.weight % 16 == 0;
  uint32_t workgroup = workgroup_for(vector ? sizes.n_columns / 2 : sizes.n_columns);
  /* A row alone waits for nothing but its own loads, one behind the other. */
  if (vector && sizes.n_rows == 1 && sizes.n_columns / 4 >= LONE_WORKGROUP &&
      vulkan_queue_device(queue)->facts.most_invocations >= LONE_WORKGROUP)
    workgroup = LONE_WORKGROUP;
  vulkan_halves halves = {0};
  bool has_halves = vector && shader == VULKAN_SHADER_rms_norm && push.weight &&
                    vulkan_halves_wanted(queue, y, &halves);
  push.halves = halves.halves;
  push.half_scales = halves.scales;
  vulkan_dispatch dispatch = {
      .shader = shader,
      .constants = {workgroup, vulkan_type_of(x), vulkan_type_of(y), push.bias != 0, vector,
                    has_halves,
                    vulkan_halves_in_fragments(vulkan_queue_device(queue), sizes.n_rows,
                                               sizes.n_columns)},
      .n_constants = shader == VULKAN_SHADER_rms_norm ? 7 : 5,
      .push = &push,
      .push_bytes = sizeof push};
  if (!has_halves) {
    vulkan_split_groups(sizes.n_rows, dispatch.groups);
    return vulkan_enqueue_op(queue, arguments, &dispatch);
  }
  vulkan_split_groups(
      vulkan_halves_groups(vulkan_queue_device(queue), sizes.n_rows, sizes.n_columns),
      dispatch.groups);
  ISO_TRY(vulkan_enqueue_halves(queue, arguments, &halves, true, &dispatch));
  vulkan_halves_left(queue, arguments, &halves);
  return ISO_OK;
}

static VULKAN_LAUNCH(rms_norm_alone) {
  const iso_rms_norm_attributes *attributes = arguments->attributes;
  return launch_norm(queue, arguments, VULKAN_SHADER_rms_norm, attributes->epsilon,
                     attributes->weight_offset);
}

VULKAN_LAUNCH(vulkan_rms_norm) { return vulkan_defer(queue, arguments, rms_norm_alone); }

VULKAN_LAUNCH(vulkan_layer_norm) {
  const iso_layer_norm_attributes *attributes = arguments->attributes;
  return launch_norm(queue, arguments, VULKAN_SHADER_layer_norm, attributes->epsilon, 0);
}

VULKAN_LAUNCH(vulkan_softmax) { return launch_norm(queue, arguments, VULKAN_SHADER_softmax, 0, 0); }

static VULKAN_LAUNCH(rope_alone) {
  const iso_rope_attributes *attributes = arguments->attributes;
  const iso_tensor *x = &arguments->inputs[0], *y = &arguments->outputs[0];
  vulkan_sizes sizes = vulkan_sizes_of(x);
  struct {
    vulkan_rows x, y;
    uint64_t positions, frequencies;
    uint32_t n_rows, n_heads, n_columns, n_pairs;
    float magnitude;
  } push = {.x = vulkan_rows_of(x),
            .y = vulkan_rows_of(y),
            .positions = vulkan_address(&arguments->inputs[1]),
            .frequencies = vulkan_address(&arguments->inputs[2]),
            .n_rows = sizes.n_rows,
            .n_heads = sizes.inner_rows,
            .n_columns = sizes.n_columns,
            .n_pairs = (uint32_t)arguments->inputs[2].dims[0],
            .magnitude = attributes->magnitude};
  vulkan_dispatch dispatch = {
      .shader = VULKAN_SHADER_rope,
      .constants = {WORKGROUP, vulkan_type_of(x), vulkan_type_of(y), attributes->interleaved},
      .n_constants = 4,
      .push = &push,
      .push_bytes = sizeof push};
  vulkan_split_groups(sizes.n_rows, dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

VULKAN_LAUNCH(vulkan_rope) { return vulkan_defer(queue, arguments, rope_alone); }

VULKAN_LAUNCH(vulkan_gather_rows) {
  const iso_tensor *x = &arguments->inputs[0], *y = &arguments->outputs[0];
  struct {
    vulkan_rows x, y;
    uint64_t rows;
    uint32_t n_rows, n_columns, n_source_rows;
  } push = {.x = vulkan_rows_of(x),
            .y = vulkan_rows_of(y),
            .rows = vulkan_address(&arguments->inputs[1]),
            .n_rows = (uint32_t)y->dims[0],
            .n_columns = (uint32_t)y->dims[1],
            .n_source_rows = (uint32_t)x->dims[0]};
  uint32_t n_bytes = x->scheme == ISO_SCHEME_F32 ? 4 : 2;
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_gather_rows,
                              .constants = {workgroup_for(push.n_columns), n_bytes == 4},
                              .n_constants = 2,
                              .push = &push,
                              .push_bytes = sizeof push};
  uint64_t n_pieces = vulkan_ceil_div(push.n_columns, dispatch.constants[0]);
  vulkan_split_groups(x->dims[0] > 0 ? push.n_rows * n_pieces : 0, dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

VULKAN_LAUNCH(vulkan_argmax) {
  const iso_tensor *x = &arguments->inputs[0];
  struct {
    vulkan_rows x;
    uint64_t y;
    uint32_t n_rows, n_columns;
  } push = {.x = vulkan_rows_of(x),
            .y = vulkan_address(&arguments->outputs[0]),
            .n_rows = (uint32_t)x->dims[0],
            .n_columns = (uint32_t)x->dims[1]};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_argmax,
                              .constants = {workgroup_for(push.n_columns)},
                              .n_constants = 1,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups(push.n_rows, dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}
