/* Ops on one element at a time: glu, activate, add, soft_cap, convert. */
#include "backends/vulkan/fusion.h"
#include "backends/vulkan/halves.h"
#include "backends/vulkan/ops.h"

enum { WORKGROUP = 64, WIDE_WORKGROUP = 256 };

typedef struct element_push {
  vulkan_rows a, b, y;
  uint32_t n_rows, inner_rows, n_columns, n_chunks;
  float scale, cap;
} element_push;

static iso_status launch(iso_queue *queue, const iso_op_arguments *arguments, vulkan_shader shader,
                         bool has_b, uint32_t activation, float scale, float cap) {
  const iso_tensor *a = &arguments->inputs[0], *b = &arguments->inputs[1];
  const iso_tensor *y = &arguments->outputs[0];
  vulkan_sizes sizes = vulkan_sizes_of(a);
  bool vector =
      vulkan_is_vector_rows(a) && vulkan_is_vector_rows(y) && (!has_b || vulkan_is_vector_rows(b));
  uint32_t columns = vector ? 4 : 1; /* of an invocation */
  uint32_t workgroup = sizes.n_columns >= columns * WIDE_WORKGROUP ? WIDE_WORKGROUP : WORKGROUP;
  element_push push = {.a = vulkan_rows_of(a),
                       .y = vulkan_rows_of(y),
                       .n_rows = sizes.n_rows,
                       .inner_rows = sizes.inner_rows,
                       .n_columns = sizes.n_columns,
                       .n_chunks = vulkan_ceil_div(sizes.n_columns, workgroup * columns),
                       .scale = scale,
                       .cap = cap};
  if (has_b)
    push.b = vulkan_rows_of(b);
  vulkan_dispatch dispatch = {.shader = shader,
                              .constants = {workgroup, vulkan_type_of(a),
                                            has_b ? vulkan_type_of(b) : 0, vulkan_type_of(y), has_b,
                                            activation, vector},
                              .n_constants = 7,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups((uint64_t)sizes.n_rows * push.n_chunks, dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

static bool is_vector_op(const iso_op_arguments *arguments) {
  const iso_tensor *a = &arguments->inputs[0], *b = &arguments->inputs[1];
  const iso_tensor *y = &arguments->outputs[0];
  return a->scheme == y->scheme && b->scheme == y->scheme && vulkan_is_vector_rows(a) &&
         vulkan_is_vector_rows(b) && vulkan_is_vector_rows(y);
}

static VULKAN_LAUNCH(glu_alone) {
  const iso_glu_attributes *attributes = arguments->attributes;
  vulkan_halves halves;
  if (is_vector_op(arguments) && vulkan_halves_wanted(queue, &arguments->outputs[0], &halves))
    return vulkan_launch_glu_halves(queue, arguments, &halves);
  return launch(queue, arguments, VULKAN_SHADER_glu, true, attributes->activation, 0, 0);
}

VULKAN_LAUNCH(vulkan_glu) { return vulkan_defer(queue, arguments, glu_alone); }

VULKAN_LAUNCH(vulkan_activate) {
  const iso_activate_attributes *attributes = arguments->attributes;
  return launch(queue, arguments, VULKAN_SHADER_activate, false, attributes->activation, 0, 0);
}

static VULKAN_LAUNCH(add_alone) {
  return launch(queue, arguments, VULKAN_SHADER_add, true, 0, 0, 0);
}

VULKAN_LAUNCH(vulkan_add) { return vulkan_defer(queue, arguments, add_alone); }

VULKAN_LAUNCH(vulkan_soft_cap) {
  const iso_soft_cap_attributes *attributes = arguments->attributes;
  return launch(queue, arguments, VULKAN_SHADER_soft_cap, false, 0, attributes->scale,
                attributes->cap);
}

VULKAN_LAUNCH(vulkan_convert) {
  return launch(queue, arguments, VULKAN_SHADER_convert, false, 0, 0, 0);
}
