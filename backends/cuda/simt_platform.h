/* The CUDA side of backends/simt/simt.cuh: types, the launch, and lane operations. Another vendor
 * supplies a header of this name with the same content. */
#ifndef ISOMER_SIMT_PLATFORM_H
#define ISOMER_SIMT_PLATFORM_H

#include "backends/cuda/cuda.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef __half simt_f16;
typedef __nv_bfloat16 simt_bf16;
typedef cudaStream_t simt_stream;

/* Lanes that exchange values directly. */
#define SIMT_SUBGROUP 32

template <typename T> __device__ inline T simt_shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask, SIMT_SUBGROUP);
}
template <typename T> __device__ inline T simt_shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane, SIMT_SUBGROUP);
}
/* Number of lanes for which `condition` holds. */
__device__ inline int simt_count(bool condition) {
  return __popc(__ballot_sync(0xffffffffu, condition));
}

/* Facts of the device that choose grids and kernels. */
static inline int simt_n_units(const iso_device *device) { return device->n_units; }
static inline int simt_shared_bytes(const iso_device *device) { return device->shared_bytes; }
static inline iso_status simt_fail_size(const char *name) {
  return iso_backend_fail(cuda_host, ISO_ERROR_INVALID_ARGUMENT, "%s: the sizes exceed the grid",
                          name);
}

/* The device address of an operand; NULL when absent. */
static inline uint8_t *simt_address(const iso_tensor &tensor) {
  return tensor.n_dims > 0 && tensor.buffer ? tensor.buffer->data + tensor.offset : nullptr;
}
/* The scratch of a launch; NULL when it has none. */
static inline uint8_t *simt_workspace(const iso_op_arguments *arguments) {
  return arguments->workspace ? arguments->workspace->data + arguments->workspace_offset : nullptr;
}
static inline simt_stream simt_queue_stream(const iso_queue *queue) { return queue->stream; }

/* Enqueues a kernel. `name` is kept: a string literal, told when the kernel faults. More than
 * 48 KiB of dynamic shared memory are asked for when needed. */
template <typename... P, typename... A>
iso_status simt_launch(iso_queue *queue, const char *name, void (*kernel)(P...), dim3 grid,
                       dim3 block, size_t shared_bytes, A... arguments) {
  CUDA_TRY(cudaSetDevice(queue->device->ordinal));
  if (shared_bytes > 48 * 1024)
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  (int)shared_bytes));
  kernel<<<grid, block, shared_bytes, queue->stream>>>(P(arguments)...);
  return cuda_launched(queue, name);
}

#endif
