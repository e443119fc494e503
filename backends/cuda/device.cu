/* Finding and opening cards. The runtime is linked in and opens the driver itself, so this library
 * loads where there is none and says so. */
#include "backends/cuda/blas.h"
#include "backends/cuda/generations.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

iso_status cuda_failure(cudaError_t error, const char *what, const char *file, int line) {
  iso_status status = error == cudaErrorMemoryAllocation ? ISO_ERROR_OUT_OF_MEMORY
                      : error == cudaErrorNotSupported   ? ISO_ERROR_UNSUPPORTED
                                                         : ISO_ERROR_DEVICE;
  (void)cudaGetLastError(); /* errors that do not stick are told once */
  return cuda_host->fail(status, file, line, "%s: %s (%s)", what, cudaGetErrorString(error),
                         cudaGetErrorName(error));
}

/* Asked for what code the runtime has chosen for a card. */
static __global__ void probe() {}

/* One line for people who have no usable card. */
static void explain(cudaError_t error, char *out_reason) {
  int version = 0;
  (void)cudaDriverGetVersion(&version);
  (void)cudaGetLastError();
  if (error == cudaErrorNoDevice || error == cudaSuccess)
    snprintf(out_reason, 256, "no NVIDIA card");
  else if (version == 0)
    snprintf(out_reason, 256, "no NVIDIA driver (libcuda.so.1)");
  else if (error == cudaErrorInsufficientDriver)
    snprintf(out_reason, 256, "the NVIDIA driver is too old: it speaks CUDA %d.%d, %d.%d is needed",
             version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
             CUDART_VERSION % 1000 / 10);
  else
    snprintf(out_reason, 256, "%s", cudaGetErrorString(error));
}

static void describe(const cudaDeviceProp &card, iso_device_info *out) {
  *out = iso_device_info{};
  out->size = sizeof *out;
  out->kind = ISO_DEVICE_GPU;
  snprintf(out->name, sizeof out->name, "%s", card.name);
  const unsigned char *uuid = (const unsigned char *)card.uuid.bytes;
  int used = snprintf(out->id, sizeof out->id, "GPU-");
  for (int i = 0; i < 16; i++)
    used += snprintf(out->id + used, sizeof out->id - (size_t)used, "%02x%s", uuid[i],
                     i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
  int driver = 0;
  (void)cudaDriverGetVersion(&driver);
  snprintf(out->detail, sizeof out->detail, "sm_%d%d, CUDA %d.%d (driver speaks %d.%d)", card.major,
           card.minor, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, driver / 1000,
           driver % 1000 / 10);
  out->memory_bytes = card.totalGlobalMem;
  out->largest_allocation_bytes = card.totalGlobalMem;
  out->alignment_bytes = CUDA_ALIGNMENT;
  out->subgroup_width = (uint32_t)card.warpSize;
  out->n_units = (uint32_t)card.multiProcessorCount;
  int generation = card.major * 10 + card.minor;
  out->features =
      ISO_FEATURE_FP16 | ISO_FEATURE_INT8_DOT | ISO_FEATURE_MATRIX_UNIT | ISO_FEATURE_PEER_COPY;
  if (generation >= 80)
    out->features |= ISO_FEATURE_BF16;
  if (generation >= 89)
    out->features |= ISO_FEATURE_FP8;
  out->copy_bytes_per_us = 20000.0f;
}

static iso_status driver_enumerate(uint32_t capacity, iso_device_info *out_infos,
                                   uint32_t *out_count, char *out_reason) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  *out_count = 0;
  out_reason[0] = 0;
  if (error != cudaSuccess || count == 0) {
    explain(error, out_reason);
    return ISO_OK;
  }
  for (int i = 0; i < count && (uint32_t)i < capacity; i++) {
    cudaDeviceProp card;
    CUDA_TRY(cudaGetDeviceProperties(&card, i));
    describe(card, &out_infos[i]);
  }
  *out_count = (uint32_t)count;
  return ISO_OK;
}

static iso_status open_card(int ordinal, iso_device *device) {
  cudaDeviceProp card;
  CUDA_TRY(cudaGetDeviceProperties(&card, ordinal));
  describe(card, &device->info);
  device->ordinal = ordinal;
  device->generation = card.major * 10 + card.minor;
  device->n_units = card.multiProcessorCount;
  device->shared_bytes = (int)card.sharedMemPerBlockOptin;
  device->l2_bytes = card.l2CacheSize;
  CUDA_TRY(cudaSetDevice(ordinal));
  cudaFuncAttributes attributes = {};
  cudaError_t error = cuda_generation_is_compiled(ISO_CUDA_ARCHITECTURES, device->generation)
                          ? cudaFuncGetAttributes(&attributes, probe)
                          : cudaErrorNoKernelImageForDevice;
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
    (void)cudaGetLastError();
    char reason[512];
    cuda_say_generation(ISO_CUDA_ARCHITECTURES, card.name, device->generation, sizeof reason,
                        reason);
    return iso_backend_fail(cuda_host, ISO_ERROR_UNSUPPORTED, "%s", reason);
  }
  CUDA_TRY(error);
  device->starts_early = attributes.ptxVersion >= 90;
  device->blas = cuda_blas_create();
  return ISO_OK;
}

static iso_status driver_open(uint32_t index, const iso_device_options *options,
                              iso_device **out_device) {
  (void)options;
  iso_device *device = (iso_device *)calloc(1, sizeof *device);
  if (!device)
    return iso_backend_fail(cuda_host, ISO_ERROR_OUT_OF_MEMORY, "a device needs %zu bytes",
                            sizeof *device);
  iso_status status = open_card((int)index, device);
  if (status != ISO_OK) {
    free(device);
    return status;
  }
  *out_device = device;
  return ISO_OK;
}

const iso_driver_table cuda_driver_table = {
    .size = sizeof cuda_driver_table, .enumerate = driver_enumerate, .open = driver_open};

static iso_status device_info(const iso_device *device, iso_device_info *out_info) {
  *out_info = device->info;
  return ISO_OK;
}

/* The card's context is the process's: other devices opened on it may live on. */
static void device_close(iso_device *device) {
  cuda_blas_destroy(device->blas);
  free(device);
}

const iso_device_table cuda_device_table = {
    .size = sizeof cuda_device_table, .info = device_info, .close = device_close};
