/* Device memory and pinned host memory. Allocations are few and large, so each is the driver's. */
#include "backends/cuda/cuda.h"
#include <stdlib.h>

typedef unsigned long long u64;

static iso_status memory_bytes_free(iso_device *device, uint64_t *out_bytes) {
  size_t free_bytes = 0, total = 0;
  CUDA_TRY(cudaSetDevice(device->ordinal));
  CUDA_TRY(cudaMemGetInfo(&free_bytes, &total));
  *out_bytes = free_bytes;
  return ISO_OK;
}

static iso_status refuse(iso_device *device, iso_memory_kind kind, uint64_t bytes,
                         cudaError_t error) {
  size_t free_bytes = 0, total = 0;
  (void)cudaMemGetInfo(&free_bytes, &total);
  (void)cudaGetLastError();
  if (error != cudaErrorMemoryAllocation && error != cudaErrorInvalidValue)
    return cuda_failure(error, kind == ISO_MEMORY_STAGING ? "cudaHostAlloc" : "cudaMalloc",
                        __FILE__, __LINE__);
  if (kind == ISO_MEMORY_STAGING)
    return iso_backend_fail(cuda_host, ISO_ERROR_OUT_OF_MEMORY,
                            "the host cannot pin %llu bytes of memory", (u64)bytes);
  return iso_backend_fail(cuda_host, ISO_ERROR_OUT_OF_MEMORY,
                          "a buffer of %llu bytes does not fit: %llu of %llu bytes are free on %s",
                          (u64)bytes, (u64)free_bytes, (u64)total, device->info.name);
}

static iso_status memory_alloc(iso_device *device, iso_memory_kind kind, uint64_t bytes,
                               iso_buffer **out_buffer) {
  iso_buffer *buffer = (iso_buffer *)calloc(1, sizeof *buffer);
  if (!buffer)
    return iso_backend_fail(cuda_host, ISO_ERROR_OUT_OF_MEMORY, "a buffer needs %zu bytes",
                            sizeof *buffer);
  void *data = nullptr;
  cudaError_t error = cudaSetDevice(device->ordinal);
  if (error == cudaSuccess)
    error = kind == ISO_MEMORY_STAGING ? cudaHostAlloc(&data, bytes, cudaHostAllocPortable)
                                       : cudaMalloc(&data, bytes);
  if (error != cudaSuccess) {
    free(buffer);
    return refuse(device, kind, bytes, error);
  }
  *buffer = iso_buffer{(uint8_t *)data, bytes, kind};
  *out_buffer = buffer;
  return ISO_OK;
}

static void memory_free(iso_device *device, iso_buffer *buffer) {
  if (!buffer)
    return;
  (void)cudaSetDevice(device->ordinal);
  if (buffer->kind == ISO_MEMORY_STAGING)
    (void)cudaFreeHost(buffer->data);
  else
    (void)cudaFree(buffer->data);
  (void)cudaGetLastError();
  free(buffer);
}

static iso_status memory_map(iso_device *device, iso_buffer *buffer, void **out_address) {
  if (buffer->kind != ISO_MEMORY_STAGING)
    return iso_backend_fail(cuda_host, ISO_ERROR_UNSUPPORTED,
                            "memory of %s cannot be mapped: copy through a staging buffer",
                            device->info.name);
  *out_address = buffer->data;
  return ISO_OK;
}

const iso_memory_table cuda_memory_table = {.size = sizeof cuda_memory_table,
                                            .alloc = memory_alloc,
                                            .free = memory_free,
                                            .map = memory_map,
                                            .import = nullptr,
                                            .bytes_free = memory_bytes_free};
