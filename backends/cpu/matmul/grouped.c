/* `grouped_matmul`: rows are ordered by their expert, and each expert's matrix is a segment. */
#include "backends/cpu/matmul/product.h"

#include <string.h>

/* What the workspace holds before the product's own. */
typedef struct grouped_workspace {
  iso_product_segment *segments; /* [experts] */
  int32_t *x_rows, *y_rows;      /* [rows], by expert */
  uint8_t *rest;
} grouped_workspace;

static uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

static uint64_t own_bytes(int64_t experts, int64_t rows) {
  return aligned((uint64_t)experts * sizeof(iso_product_segment)) +
         2 * aligned((uint64_t)rows * sizeof(int32_t));
}

static grouped_workspace workspace_at(uint8_t *memory, int64_t experts, int64_t rows) {
  grouped_workspace result = {.segments = (iso_product_segment *)(void *)memory};
  memory += aligned((uint64_t)experts * sizeof(iso_product_segment));
  result.x_rows = (int32_t *)(void *)memory;
  memory += aligned((uint64_t)rows * sizeof(int32_t));
  result.y_rows = (int32_t *)(void *)memory;
  result.rest = memory + aligned((uint64_t)rows * sizeof(int32_t));
  return result;
}

static int64_t count_rows(const iso_op_arguments *arguments) {
  return arguments->inputs[2].dims[0] * arguments->inputs[2].dims[1];
}

uint64_t iso_grouped_matmul_workspace(const iso_product_kernel *kernel, const iso_device *device,
                                      const iso_op_arguments *arguments) {
  const iso_tensor *weight = &arguments->inputs[1];
  int64_t rows = count_rows(arguments);
  iso_packed_shape shape;
  if (!iso_packed_shape_of(weight->scheme, weight->dims[1], weight->dims[2], &shape))
    return 0;
  return own_bytes(weight->dims[0], rows) +
         iso_product_bytes(kernel, device->pool, &shape, rows, weight->dims[0]);
}

/* Counting sort of the (token, choice) rows by expert. */
static void order_rows(const iso_op_arguments *arguments, const iso_packed_shape *shape,
                       grouped_workspace *space) {
  const iso_tensor *x = &arguments->inputs[0], *weight = &arguments->inputs[1];
  const int32_t *experts = iso_cpu_address(&arguments->inputs[2]);
  int64_t rows = count_rows(arguments), choices = arguments->inputs[2].dims[1], first = 0;
  uint64_t matrix_bytes = (uint64_t)shape->groups * shape->group_bytes;
  memset(space->segments, 0, (size_t)weight->dims[0] * sizeof *space->segments);
  for (int64_t row = 0; row < rows; row++)
    space->segments[experts[row]].rows++;
  for (int64_t e = 0; e < weight->dims[0]; e++) {
    iso_product_segment *segment = &space->segments[e];
    segment->weight = (const uint8_t *)iso_cpu_address(weight) + (uint64_t)e * matrix_bytes;
    segment->first = first;
    first += segment->rows;
    segment->rows = 0; /* counted again below */
  }
  for (int64_t row = 0; row < rows; row++) {
    iso_product_segment *segment = &space->segments[experts[row]];
    int64_t at = segment->first + segment->rows++;
    space->x_rows[at] = (int32_t)(x->dims[1] == 1 ? row / choices : row);
    space->y_rows[at] = (int32_t)row;
  }
}

iso_status iso_grouped_matmul_launch(const iso_product_kernel *kernel, iso_queue *queue,
                                     const iso_op_arguments *arguments) {
  const iso_tensor *weight = &arguments->inputs[1];
  const int32_t *experts = iso_cpu_address(&arguments->inputs[2]);
  int64_t rows = count_rows(arguments), n_experts = weight->dims[0];
  iso_product product = {.kernel = kernel,
                         .asks_ahead = iso_product_asks_ahead(queue->device, weight->scheme),
                         .x = &arguments->inputs[0],
                         .y = &arguments->outputs[0],
                         .rows = rows,
                         .n_segments = n_experts};
  if (!iso_packed_shape_of(weight->scheme, weight->dims[1], weight->dims[2], &product.shape))
    return iso_cpu_fail(ISO_ERROR_INTERNAL,
                        "grouped_matmul was given a weight that cannot be packed");
  for (int64_t i = 0; i < rows; i++)
    if (experts[i] < 0 || experts[i] >= n_experts)
      return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT,
                          "grouped_matmul: experts[%lld] is %d, must be in [0, %lld)", (long long)i,
                          experts[i], (long long)n_experts);
  if (rows == 0)
    return ISO_OK;
  grouped_workspace space = workspace_at(iso_cpu_workspace(arguments), n_experts, rows);
  order_rows(arguments, &product.shape, &space);
  product.segments = space.segments;
  product.x_rows = space.x_rows;
  product.y_rows = space.y_rows;
  product.workspace = space.rest;
  iso_product_run(queue->device->pool, &product);
  return ISO_OK;
}
