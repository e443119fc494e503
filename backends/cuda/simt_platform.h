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

/* For kernels that simt_launch_early() launches; see there. */
__device__ inline void simt_wait_for_earlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void simt_let_later_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/* Both, for kernels with nothing to do ahead of their turn but to be there. */
__device__ inline void simt_begin() {
  simt_let_later_begin();
  simt_wait_for_earlier();
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

/* What pack() finds out about a weight and launches ask for: whether one thing, which the weight's
 * scheme decides, holds of what lies at a place of a buffer. False where it was never said, or where
 * the host has no memory for it. Thread safe. */
void simt_note(iso_buffer *buffer, uint64_t offset, bool holds);
bool simt_is_noted(const iso_buffer *buffer, uint64_t offset);

template <typename... P>
iso_status simt_prepare_launch(iso_queue *queue, void (*kernel)(P...), size_t shared_bytes) {
  CUDA_TRY(cudaSetDevice(queue->device->ordinal));
  ISO_TRY(simt_flush_deferred(queue, &queue->deferred));
  if (shared_bytes > 48 * 1024)
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  (int)shared_bytes));
  return ISO_OK;
}

/* SIMT_COUNTERS words of the queue's own on the device, which are zero when a kernel begins and must
 * be when it ends. */
static inline uint32_t *simt_queue_counters(iso_queue *queue) { return queue->counters; }

static inline simt_deferred *simt_queue_deferred(iso_queue *queue) { return &queue->deferred; }

/* Enqueues a kernel. `name` is kept: a string literal, told when the kernel faults. More than
 * 48 KiB of dynamic shared memory are asked for when needed. */
template <typename... P, typename... A>
iso_status simt_launch(iso_queue *queue, const char *name, void (*kernel)(P...), dim3 grid,
                       dim3 block, size_t shared_bytes, A... arguments) {
  ISO_TRY(simt_prepare_launch(queue, kernel, shared_bytes));
  kernel<<<grid, block, shared_bytes, queue->stream>>>(P(arguments)...);
  queue->at_turn = false;
  return cuda_launched(queue, name);
}

/* The same for a kernel whose blocks may be started while earlier work still runs. Until such a
 * kernel has called simt_wait_for_earlier(), which every thread that touches memory must, it may
 * read weights, its arguments and what its op's attributes say is settled, and nothing else: a copy
 * is not begun before all kernels ahead of it are done, nor the kernel behind it before the copy
 * is. simt_let_later_begin() lets the next such kernel be started as soon as every block has called
 * it or is done. */
template <typename... P, typename... A>
iso_status simt_launch_early(iso_queue *queue, const char *name, void (*kernel)(P...), dim3 grid,
                             dim3 block, size_t shared_bytes, A... arguments) {
  ISO_TRY(simt_prepare_launch(queue, kernel, shared_bytes));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = queue->stream;
  config.attrs = &attribute;
  config.numAttrs = queue->device->starts_early && !queue->at_turn ? 1 : 0;
  queue->at_turn = false;
  (void)cudaLaunchKernelEx(&config, kernel, P(arguments)...); /* its error is also the last one */
  return cuda_launched(queue, name);
}

#endif
