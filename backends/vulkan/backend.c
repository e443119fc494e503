/* The Vulkan backend: any GPU with a Vulkan 1.2 driver, no vendor's toolkit. Its entry. */
#include "backends/vulkan/kernels.h"
#include "backends/vulkan/vulkan.h"

const iso_host *vulkan_host;

static const iso_driver_table driver_table = {
    .size = sizeof driver_table, .enumerate = vulkan_enumerate, .open = vulkan_open};

ISO_BACKEND_EXPORT const iso_backend *iso_backend_query(uint32_t host_abi, const iso_host *host);

const iso_backend *iso_backend_query(uint32_t host_abi, const iso_host *host) {
  static iso_backend backend;
  static iso_queue_table queue_table;
  if (host_abi >> 16 != ISO_ABI_MAJOR) {
    host->fail(ISO_ERROR_UNSUPPORTED, __FILE__, __LINE__, "vulkan speaks ABI %u, the host %u",
               ISO_ABI_MAJOR, host_abi >> 16);
    return NULL;
  }
  if (vulkan_host != host) /* devices of an earlier call read it */
    vulkan_host = host;
  queue_table = vulkan_queue_table;
  if (vulkan_is_synchronous()) { /* what is replayed would fail as a whole */
    queue_table.record_begin = NULL;
    queue_table.record_end = NULL;
    queue_table.replay = NULL;
    queue_table.recording_destroy = NULL;
  }
  backend = (iso_backend){.size = sizeof backend,
                          .abi = ISO_ABI_VERSION,
                          .name = "vulkan",
                          .driver = &driver_table,
                          .device = &vulkan_device_table,
                          .memory = &vulkan_memory_table,
                          .queue = &queue_table,
                          .kernels = vulkan_kernels,
                          .kernel_count = vulkan_kernel_count,
                          .kernel_stride = sizeof(iso_kernel)};
  return &backend;
}
