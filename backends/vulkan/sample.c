/* sample: token choice. */
#include "backends/vulkan/ops.h"

enum {
  WORKGROUP = 256,
  WIDE_WORKGROUP = 1024,
  WIDE_FROM = 8192,
  PIECE = 2048,     /* logits that a workgroup looks through for the likeliest, at least, ... */
  MOST_PIECES = 128 /* ... in at most so many pieces of a row, fewer than WORKGROUP */
};

static uint32_t count_pieces(uint64_t n_logits) {
  uint32_t n = vulkan_ceil_div(n_logits, PIECE);
  return n < 1 ? 1 : n > MOST_PIECES ? MOST_PIECES : n;
}

/* The scores of all rows, from a multiple of 8 bytes on the best of each piece. */
static uint64_t bests_at(uint64_t n_rows, uint64_t n_logits) {
  return (n_rows * n_logits * sizeof(float) + 7) & ~UINT64_C(7);
}

uint64_t vulkan_sample_workspace(const iso_device *device, const iso_op_arguments *arguments) {
  (void)device;
  uint64_t n_rows = (uint64_t)arguments->inputs[0].dims[0];
  uint64_t n_logits = (uint64_t)arguments->inputs[0].dims[1];
  return bests_at(n_rows, n_logits) + n_rows * count_pieces(n_logits) * 8;
}

/* What vulkan_sample() tells its shader. */
typedef struct sample_push {
  uint64_t logits, parameters, state, history, allowed, y, scores, bests;
  uint32_t n_rows, n_logits, n_history, n_words, n_pieces;
} sample_push;

static iso_status find_bests(iso_queue *queue, const iso_op_arguments *arguments,
                             const sample_push *sample) {
  struct {
    uint64_t logits, allowed, bests;
    uint32_t n_rows, n_logits, n_words, n_pieces;
  } push = {sample->logits,   sample->allowed, sample->bests,   sample->n_rows,
            sample->n_logits, sample->n_words, sample->n_pieces};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_sample_best,
                              .constants = {WORKGROUP},
                              .n_constants = 1,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups((uint64_t)push.n_rows * push.n_pieces, dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}

VULKAN_LAUNCH(vulkan_sample) {
  const iso_tensor *logits = &arguments->inputs[0], *history = &arguments->inputs[3];
  bool is_masked = arguments->n_inputs > 4 && arguments->inputs[4].n_dims > 0;
  uint64_t scores =
      arguments->workspace ? arguments->workspace->address + arguments->workspace_offset : 0;
  sample_push push = {.logits = vulkan_address(logits),
                      .parameters = vulkan_address(&arguments->inputs[1]),
                      .state = vulkan_address(&arguments->inputs[2]),
                      .history = vulkan_address(history),
                      .allowed = is_masked ? vulkan_address(&arguments->inputs[4]) : 0,
                      .y = vulkan_address(&arguments->outputs[0]),
                      .scores = scores,
                      .bests =
                          scores + bests_at((uint64_t)logits->dims[0], (uint64_t)logits->dims[1]),
                      .n_rows = (uint32_t)logits->dims[0],
                      .n_logits = (uint32_t)logits->dims[1],
                      .n_history = (uint32_t)history->dims[1],
                      .n_words = is_masked ? (uint32_t)arguments->inputs[4].dims[1] : 0,
                      .n_pieces = count_pieces((uint64_t)logits->dims[1])};
  if (push.n_rows == 0)
    return ISO_OK;
  ISO_TRY(find_bests(queue, arguments, &push));
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
