/* Mixture-of-experts routing: route_top_k, combine_experts. */
#include "backends/vulkan/ops.h"

enum { WORKGROUP = 64 };

VULKAN_LAUNCH(vulkan_route_top_k) {
  const iso_route_top_k_attributes *attributes = arguments->attributes;
  const iso_tensor *logits = &arguments->inputs[0];
  struct {
    vulkan_rows logits;
    uint64_t experts, weights;
    uint32_t n_rows, n_experts, k;
    float scale;
  } push = {.logits = vulkan_rows_of(logits),
            .experts = vulkan_address(&arguments->outputs[0]),
            .weights = vulkan_address(&arguments->outputs[1]),
            .n_rows = (uint32_t)logits->dims[0],
            .n_experts = (uint32_t)logits->dims[1],
            .k = attributes->k,
            .scale = attributes->scale};
  vulkan_dispatch dispatch = {
      .shader = VULKAN_SHADER_route_top_k,
      .constants = {WORKGROUP, vulkan_type_of(logits), attributes->normalize},
      .n_constants = 3,
      .push = &push,
      .push_bytes = sizeof push};
  vulkan_split_groups(push.n_rows, dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

VULKAN_LAUNCH(vulkan_combine_experts) {
  const iso_tensor *x = &arguments->inputs[0], *y = &arguments->outputs[0];
  struct {
    vulkan_rows x, y;
    uint64_t weights;
    uint32_t n_rows, n_choices, n_columns;
  } push = {.x = vulkan_rows_of(x),
            .y = vulkan_rows_of(y),
            .weights = vulkan_address(&arguments->inputs[1]),
            .n_rows = (uint32_t)x->dims[0],
            .n_choices = (uint32_t)x->dims[1],
            .n_columns = (uint32_t)x->dims[2]};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_combine_experts,
                              .constants = {WORKGROUP, vulkan_type_of(x), vulkan_type_of(y)},
                              .n_constants = 3,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups(push.n_rows, dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}
