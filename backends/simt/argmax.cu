/* argmax: blocks take stretches of rows, and one block a row the best of theirs. */
#include "backends/simt/simt.cuh"

namespace {

enum { THREADS = 256, STRETCH = 4096 };

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

/* Every thread gets the best of the block. */
__device__ best block_best(best mine) {
  __shared__ best shared[THREADS / SIMT_SUBGROUP];
  mine = subgroup_best(mine);
  if (threadIdx.x % SIMT_SUBGROUP == 0)
    shared[threadIdx.x / SIMT_SUBGROUP] = mine;
  __syncthreads();
  for (int i = 0; i < THREADS / SIMT_SUBGROUP; i++)
    mine = better(mine, shared[i]);
  return mine;
}

/* Grid: rows, stretches of a row. */
__global__ void __launch_bounds__(THREADS)
    argmax_stretch(const float *x, int64_t row_elements, int32_t n_columns, best *found) {
  simt_begin();
  const float *row = x + blockIdx.x * row_elements;
  int begin = (int)blockIdx.y * STRETCH + (int)threadIdx.x;
  best mine = {0, -1};
#pragma unroll
  for (int i = 0; i < STRETCH; i += THREADS)
    if (begin + i < n_columns && row[begin + i] == row[begin + i])
      mine = better(mine, best{row[begin + i], begin + i});
  mine = block_best(mine);
  if (threadIdx.x == 0)
    found[(int64_t)blockIdx.x * gridDim.y + blockIdx.y] = mine;
}

__global__ void __launch_bounds__(THREADS)
    argmax_merge(const best *found, int32_t n_stretches, int32_t *y) {
  simt_begin();
  best mine = {0, -1};
  for (int i = (int)threadIdx.x; i < n_stretches; i += THREADS)
    mine = better(mine, found[(int64_t)blockIdx.x * n_stretches + i]);
  mine = block_best(mine);
  if (threadIdx.x == 0)
    y[blockIdx.x] = mine.index < 0 ? 0 : mine.index; /* all NaN: the first */
}

int64_t count_stretches(const iso_tensor &x) { return (x.dims[1] + STRETCH - 1) / STRETCH; }

uint64_t workspace(const iso_device *, const iso_op_arguments *arguments) {
  const iso_tensor &x = arguments->inputs[0];
  return (uint64_t)(x.dims[0] * count_stretches(x)) * sizeof(best);
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor &x = arguments->inputs[0];
  int64_t n_rows = x.dims[0], n_stretches = count_stretches(x);
  auto *found = (best *)simt_workspace(arguments);
  if (n_rows == 0)
    return ISO_OK;
  if (n_stretches > 65535)
    return simt_fail_size("argmax");
  ISO_TRY(simt_launch_early(
      queue, "argmax", argmax_stretch, dim3((unsigned)n_rows, (unsigned)n_stretches), dim3(THREADS),
      0, (const float *)simt_address(x), x.strides[0] / 4, (int32_t)x.dims[1], found));
  return simt_launch_early(queue, "argmax: the best stretch", argmax_merge, dim3((unsigned)n_rows),
                           dim3(THREADS), 0, (const best *)found, (int32_t)n_stretches,
                           (int32_t *)simt_address(arguments->outputs[0]));
}

const iso_kernel records[] = {SIMT_SCRATCH_RECORD(ARGMAX, "argmax.simt", workspace, launch)};

} /* namespace */

SIMT_EXPORT_KERNELS(argmax, records)
