/* The entry of the CUDA backend, and the array of its kernel records. */
#include "backends/simt/simt.cuh"

const iso_host *cuda_host;

extern "C" {
#define SIMT_KERNELS(name) extern const simt_kernel_list simt_kernels_##name;
#include "backends/cuda/kernels.def"
#undef SIMT_KERNELS
}

static const simt_kernel_list *const lists[] = {
#define SIMT_KERNELS(name) &simt_kernels_##name,
#include "backends/cuda/kernels.def"
#undef SIMT_KERNELS
};

enum { MAX_RECORDS = 512 };
static iso_kernel records[MAX_RECORDS];

/* Puts the records of all files into one array; false when there are too many. */
static bool collect(uint32_t *out_count) {
  uint32_t count = 0;
  for (const simt_kernel_list *list : lists) {
    if (count + list->count > MAX_RECORDS)
      return false;
    for (uint32_t i = 0; i < list->count; i++)
      records[count++] = list->records[i];
  }
  *out_count = count;
  return true;
}

extern "C" ISO_BACKEND_EXPORT const iso_backend *iso_backend_query(uint32_t host_abi,
                                                                   const iso_host *host) {
  static iso_backend backend = {.size = sizeof backend,
                                .abi = ISO_ABI_VERSION,
                                .name = "cuda",
                                .driver = &cuda_driver_table,
                                .device = &cuda_device_table,
                                .memory = &cuda_memory_table,
                                .queue = &cuda_queue_table,
                                .kernels = records,
                                .kernel_count = 0,
                                .kernel_stride = sizeof records[0],
                                .query_extension = nullptr};
  if (host_abi >> 16 != ISO_ABI_MAJOR) {
    (void)iso_backend_fail(host, ISO_ERROR_UNSUPPORTED, "cuda speaks ABI %u, the host %u",
                           ISO_ABI_MAJOR, host_abi >> 16);
    return nullptr;
  }
  if (cuda_host != host) /* devices of an earlier call read it */
    cuda_host = host;
  if (!collect(&backend.kernel_count)) {
    (void)iso_backend_fail(host, ISO_ERROR_INTERNAL, "more than %d kernel records", MAX_RECORDS);
    return nullptr;
  }
  return &backend;
}
