/* `matmul`: one packed matrix for all rows. */
#include "backends/cpu/matmul/product.h"

uint64_t iso_matmul_workspace(const iso_product_kernel *kernel, const iso_device *device,
                              const iso_op_arguments *arguments) {
  const iso_tensor *weight = &arguments->inputs[1];
  iso_packed_shape shape;
  if (!iso_packed_shape_of(weight->scheme, weight->dims[0], weight->dims[1], &shape))
    return 0;
  return iso_product_bytes(kernel, device->pool, &shape, iso_cpu_row_count(&arguments->inputs[0]),
                           1);
}

iso_status iso_matmul_launch(const iso_product_kernel *kernel, iso_queue *queue,
                             const iso_op_arguments *arguments) {
  const iso_tensor *weight = &arguments->inputs[1];
  iso_product product = {.kernel = kernel,
                         .asks_ahead = iso_product_asks_ahead(queue->device, weight->scheme),
                         .x = &arguments->inputs[0],
                         .y = &arguments->outputs[0],
                         .bias = iso_cpu_input(arguments, 2),
                         .rows = iso_cpu_row_count(&arguments->inputs[0]),
                         .n_segments = 1,
                         .workspace = iso_cpu_workspace(arguments)};
  if (!iso_packed_shape_of(weight->scheme, weight->dims[0], weight->dims[1], &product.shape))
    return iso_cpu_fail(ISO_ERROR_INTERNAL, "matmul was given a weight that cannot be packed");
  iso_product_segment segment = {.weight = iso_cpu_address(weight), .rows = product.rows};
  product.segments = &segment;
  if (product.rows > 0)
    iso_product_run(queue->device->pool, &product);
  return ISO_OK;
}
