/* `embedding` from a packed table, so that a table that is also the output weight is stored
 * once. */
#include "backends/cpu/matmul/embedding.h"

#include "backends/cpu/matmul/packed.h"

#include <math.h>

typedef struct embedding_job {
  const iso_op_arguments *arguments;
  iso_packed_shape shape;
  float *rows; /* [threads, D], where the output is not f32 */
} embedding_job;

uint64_t iso_packed_embedding_workspace(const iso_device *device,
                                        const iso_op_arguments *arguments) {
  return iso_cpu_pool_size(device->pool) * (uint64_t)arguments->inputs[1].dims[1] * sizeof(float);
}

static void embedding_task(void *context, uint32_t thread, uint32_t n_threads) {
  const embedding_job *job = context;
  const iso_embedding_attributes *attributes = job->arguments->attributes;
  const iso_tensor *y = &job->arguments->outputs[0];
  const int32_t *ids = iso_cpu_address(&job->arguments->inputs[0]);
  const void *table = iso_cpu_address(&job->arguments->inputs[1]);
  int64_t elements = job->shape.elements, row, end;
  iso_cpu_share(y->dims[0], 1, thread, n_threads, &row, &end);
  for (; row < end; row++) {
    void *target = iso_cpu_row(y, row);
    float *values = y->scheme == ISO_SCHEME_F32 ? target : job->rows + thread * elements;
    bool inside = ids[row] >= 0 && ids[row] < job->arguments->inputs[1].dims[0];
    if (inside)
      iso_packed_decode_row(&job->shape, table, ids[row], values);
    for (int64_t i = 0; i < elements; i++)
      values[i] = inside ? values[i] * attributes->scale : NAN;
    if (values != target)
      iso_scheme_encode_row(y->scheme, values, NULL, target, elements);
  }
}

iso_status iso_packed_embedding_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor *table = &arguments->inputs[1];
  int64_t n_rows = arguments->outputs[0].dims[0];
  embedding_job job = {.arguments = arguments, .rows = iso_cpu_workspace(arguments)};
  if (!iso_packed_shape_of(table->scheme, table->dims[0], table->dims[1], &job.shape))
    return iso_cpu_fail(ISO_ERROR_INTERNAL, "embedding was given a table that cannot be packed");
  iso_cpu_pool *pool = queue->device->pool;
  uint32_t n_threads = iso_cpu_threads_for(pool, n_rows * table->dims[1], 4096);
  iso_cpu_parallel(pool, n_threads, embedding_task, &job);
  return ISO_OK;
}
