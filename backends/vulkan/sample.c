/* sample: token choice. */
#include "backends/vulkan/ops.h"

enum { WORKGROUP = 256, WIDE_WORKGROUP = 1024, WIDE_FROM = 8192 };

uint64_t vulkan_sample_workspace(const iso_device *device, const iso_op_arguments *arguments) {
  (void)device;
  const iso_tensor *logits = &arguments->inputs[0];
  return (uint64_t)logits->dims[0] * (uint64_t)logits->dims[1] * sizeof(float);
}

VULKAN_LAUNCH(vulkan_sample) {
  const iso_tensor *logits = &arguments->inputs[0], *history = &arguments->inputs[3];
  bool is_masked = arguments->n_inputs > 4 && arguments->inputs[4].n_dims > 0;
  struct {
    uint64_t logits, parameters, state, history, allowed, y, scores;
    uint32_t n_rows, n_logits, n_history, n_words;
  } push = {.logits = vulkan_address(logits),
            .parameters = vulkan_address(&arguments->inputs[1]),
            .state = vulkan_address(&arguments->inputs[2]),
            .history = vulkan_address(history),
            .allowed = is_masked ? vulkan_address(&arguments->inputs[4]) : 0,
            .y = vulkan_address(&arguments->outputs[0]),
            .scores = arguments->workspace
                          ? arguments->workspace->address + arguments->workspace_offset
                          : 0,
            .n_rows = (uint32_t)logits->dims[0],
            .n_logits = (uint32_t)logits->dims[1],
            .n_history = (uint32_t)history->dims[1],
            .n_words = is_masked ? (uint32_t)arguments->inputs[4].dims[1] : 0};
  const vulkan_facts *facts = &vulkan_queue_device(queue)->facts;
  bool is_wide = push.n_logits >= WIDE_FROM && facts->most_invocations >= WIDE_WORKGROUP;
  uint32_t workgroup = is_wide ? WIDE_WORKGROUP : WORKGROUP;
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_sample,
                              .constants = {workgroup},
                              .n_constants = 1,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups(push.n_rows, dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}
