/* matmul for many rows in packed arithmetic of halves (matmul_fp16.comp): activations become halves
 * as for matrix units (halves.c), weights are decoded tile by tile. */
#include "backends/vulkan/halves.h"
#include "backends/vulkan/matmul.h"
#include "backends/vulkan/ops.h"
#include "backends/vulkan/weights.h"

enum { TILE = 64, WORKGROUP = 128 }; /* matmul_fp16.comp */

static const vulkan_shader shaders[ISO_SCHEME_COUNT] = {VULKAN_BY_BLOCK_SCHEME(matmul_fp16)};

iso_refusal vulkan_check_fp16(const iso_device *device, const iso_op_arguments *arguments,
                              const char **out_detail) {
  if (!device->facts.has_fp16) {
    *out_detail = "arithmetic of halves is used where ISOMER_VULKAN_TIER=fp16 asks for it";
    return ISO_REFUSED_DEVICE;
  }
  return vulkan_check_many_rows(device, arguments, out_detail);
}

uint64_t vulkan_fp16_workspace(const iso_device *device, const iso_op_arguments *arguments) {
  (void)device;
  vulkan_sizes x = vulkan_sizes_of(&arguments->inputs[0]);
  return vulkan_halves_bytes(x.n_rows, x.n_columns);
}

VULKAN_LAUNCH(vulkan_matmul_fp16) {
  const iso_tensor *x = &arguments->inputs[0], *weight = &arguments->inputs[1];
  const iso_tensor *y = &arguments->outputs[0];
  vulkan_sizes sizes = vulkan_sizes_of(y);
  if (sizes.n_rows == 0 || sizes.n_columns == 0)
    return ISO_OK;
  vulkan_halves halves;
  ISO_TRY(vulkan_halves_of(queue, arguments, &halves));
  vulkan_planes planes = vulkan_planes_of(weight);
  struct {
    vulkan_rows y;
    uint64_t x, row_scales, rest, scales, bias;
    uint32_t n_rows, n_out, n_in, y_inner_rows, n_tiles;
  } push = {.y = vulkan_rows_of(y),
            .x = halves.halves,
            .row_scales = halves.scales,
            .rest = planes.rest,
            .scales = planes.scales,
            .bias = arguments->n_inputs > 2 ? vulkan_address(&arguments->inputs[2]) : 0,
            .n_rows = sizes.n_rows,
            .n_out = sizes.n_columns,
            .n_in = vulkan_sizes_of(x).n_columns,
            .y_inner_rows = sizes.inner_rows,
            .n_tiles = vulkan_ceil_div(sizes.n_columns, TILE)};
  vulkan_dispatch dispatch = {
      .shader = shaders[weight->scheme],
      .constants = {WORKGROUP, vulkan_type_of(y), push.bias != 0, planes.split},
      .n_constants = 4,
      .push = &push,
      .push_bytes = sizeof push};
  vulkan_split_groups((uint64_t)push.n_tiles * vulkan_ceil_div(push.n_rows, TILE), dispatch.groups);
  return vulkan_enqueue_halves(queue, arguments, &halves, false, &dispatch);
}
