/* argmax: a block a row. */
#include "backends/simt/simt.cuh"

namespace {

enum { THREADS = 1024 };

struct best {
  float value;
  int32_t index; /* -1: none yet */
};

/* Larger values first, then lower indices; NaN never wins. */
__device__ best better(best a, best b) {
  if (b.index < 0)
    return a;
  if (a.index < 0)
    return b;
  return a.value > b.value || (a.value == b.value && a.index < b.index) ? a : b;
}

__device__ best subgroup_best(best mine) {
  for (int mask = SIMT_SUBGROUP / 2; mask > 0; mask /= 2)
    mine =
        better(mine, best{simt_shuffle_xor(mine.value, mask), simt_shuffle_xor(mine.index, mask)});
  return mine;
}

__global__ void __launch_bounds__(THREADS)
    argmax(const float *x, int64_t row_elements, int32_t n_columns, int32_t *y) {
  simt_begin();
  __shared__ best shared[THREADS / SIMT_SUBGROUP];
  const float *row = x + blockIdx.x * row_elements;
  best mine = {0, -1};
  for (int i = (int)threadIdx.x; i < n_columns; i += THREADS)
    if (row[i] == row[i])
      mine = better(mine, best{row[i], i});
  mine = subgroup_best(mine);
  if (threadIdx.x % SIMT_SUBGROUP == 0)
    shared[threadIdx.x / SIMT_SUBGROUP] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < THREADS / SIMT_SUBGROUP; i++)
      mine = better(mine, shared[i]);
    y[blockIdx.x] = mine.index < 0 ? 0 : mine.index; /* all NaN: the first */
  }
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor &x = arguments->inputs[0];
  if (x.dims[0] == 0)
    return ISO_OK;
  return simt_launch_early(queue, "argmax", argmax, dim3((unsigned)x.dims[0]), dim3(THREADS), 0,
                           (const float *)simt_address(x), x.strides[0] / 4, (int32_t)x.dims[1],
                           (int32_t *)simt_address(arguments->outputs[0]));
}

const iso_kernel records[] = {SIMT_RECORD(ARGMAX, "argmax.simt", launch)};

} /* namespace */

SIMT_EXPORT_KERNELS(argmax, records)
