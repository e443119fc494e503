/* quantize_rows: blocks of 32. The searches of super-blocks are left to the host. */
#include "backends/vulkan/ops.h"

enum { WORKGROUP = 32 };

static const struct {
  uint32_t bits, has_minimum, bytes; /* of a code; of a block */
} formats[ISO_SCHEME_COUNT] = {
    [ISO_SCHEME_Q8_0] = {8, 0, 34}, [ISO_SCHEME_Q4_0] = {4, 0, 18}, [ISO_SCHEME_Q4_1] = {4, 1, 20},
    [ISO_SCHEME_Q5_0] = {5, 0, 22}, [ISO_SCHEME_Q5_1] = {5, 1, 24},
};

iso_refusal vulkan_check_quantize(const iso_device *device, const iso_op_arguments *arguments,
                                  const char **out_detail) {
  if (formats[arguments->outputs[0].scheme].bits == 0) {
    *out_detail = "only q8_0, q4_0, q4_1, q5_0 and q5_1 are encoded here";
    return ISO_REFUSED_ATTRIBUTE;
  }
  return vulkan_check_rows(device, arguments, out_detail);
}

VULKAN_LAUNCH(vulkan_quantize_rows) {
  const iso_tensor *x = &arguments->inputs[0], *y = &arguments->outputs[0];
  vulkan_sizes sizes = vulkan_sizes_of(x);
  struct {
    vulkan_rows x, y;
    uint32_t n_rows, inner_rows, n_blocks;
  } push = {.x = vulkan_rows_of(x),
            .y = vulkan_rows_of(y),
            .n_rows = sizes.n_rows,
            .inner_rows = sizes.inner_rows,
            .n_blocks = sizes.n_columns / 32};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_quantize_rows,
                              .constants = {WORKGROUP, vulkan_type_of(x), formats[y->scheme].bits,
                                            formats[y->scheme].has_minimum,
                                            formats[y->scheme].bytes},
                              .n_constants = 5,
                              .push = &push,
                              .push_bytes = sizeof push};
  vulkan_split_groups(vulkan_ceil_div((uint64_t)sizes.n_rows * push.n_blocks, WORKGROUP),
                      dispatch.groups);
  return vulkan_enqueue_op(queue, arguments, &dispatch);
}
