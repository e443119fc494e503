/* Buffers: one allocation each, with a device address. */
#include "backends/vulkan/vulkan.h"
#include <stdlib.h>

static iso_status memory_bytes_free(iso_device *device, uint64_t *out_bytes) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 properties = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
      .pNext = device->facts.has_budget ? &budget : NULL};
  pthread_mutex_lock(&device->lock);
  uint64_t used = device->used_bytes;
  pthread_mutex_unlock(&device->lock);
  uint64_t all = device->facts.memory_bytes;
  if (device->facts.has_budget) {
    device->api.vkGetPhysicalDeviceMemoryProperties2(device->facts.physical, &properties);
    used = budget.heapUsage[device->facts.device_heap];
    all = budget.heapBudget[device->facts.device_heap];
  }
  *out_bytes = used < all ? all - used : 0;
  return ISO_OK;
}

static iso_status out_of_memory(iso_device *device, uint64_t bytes) {
  uint64_t available = 0;
  (void)memory_bytes_free(device, &available);
  return vulkan_fail(ISO_ERROR_OUT_OF_MEMORY,
                     "a buffer of %llu bytes does not fit: %llu of %llu bytes are free, and one "
                     "allocation has at most %llu",
                     (unsigned long long)bytes, (unsigned long long)available,
                     (unsigned long long)device->facts.memory_bytes,
                     (unsigned long long)device->facts.largest_allocation_bytes);
}

static void memory_free(iso_device *device, iso_buffer *buffer) {
  if (!buffer)
    return;
  const vulkan_api *api = &device->api;
  if (device->is_hung) {
    free(buffer);
    return;
  }
  api->vkDestroyBuffer(device->handle, buffer->handle, NULL);
  api->vkFreeMemory(device->handle, buffer->memory, NULL);
  if (buffer->memory && buffer->kind == ISO_MEMORY_DEVICE) {
    pthread_mutex_lock(&device->lock);
    device->used_bytes -= buffer->bytes;
    pthread_mutex_unlock(&device->lock);
  }
  free(buffer);
}

static iso_status allocate(iso_device *device, iso_buffer *buffer) {
  const vulkan_api *api = &device->api;
  bool staging = buffer->kind == ISO_MEMORY_STAGING;
  VkBufferCreateInfo create = {
      .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
      .size = buffer->bytes,
      .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
  VULKAN_MAKE(buffer->handle, api->vkCreateBuffer(device->handle, &create, NULL, &buffer->handle),
              "a buffer");
  VkMemoryRequirements requirements;
  api->vkGetBufferMemoryRequirements(device->handle, buffer->handle, &requirements);
  uint32_t type = staging ? device->facts.staging_type : device->facts.device_type;
  if (!(requirements.memoryTypeBits & 1u << type))
    return vulkan_fail(ISO_ERROR_UNSUPPORTED, "the driver does not keep buffers in memory type %u",
                       type);
  VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                     .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  VkMemoryAllocateInfo allocation = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .pNext = &flags,
                                     .allocationSize = requirements.size,
                                     .memoryTypeIndex = type};
  VkResult result = api->vkAllocateMemory(device->handle, &allocation, NULL, &buffer->memory);
  if (result != VK_SUCCESS)
    buffer->memory = VK_NULL_HANDLE; /* undefined until now */
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY)
    return out_of_memory(device, buffer->bytes);
  VULKAN_TRY(result, "memory for a buffer");
  if (!staging) {
    pthread_mutex_lock(&device->lock);
    device->used_bytes += buffer->bytes;
    pthread_mutex_unlock(&device->lock);
  }
  VULKAN_TRY(api->vkBindBufferMemory(device->handle, buffer->handle, buffer->memory, 0),
             "binding a buffer");
  if (staging || device->facts.host_memory)
    VULKAN_TRY(
        api->vkMapMemory(device->handle, buffer->memory, 0, VK_WHOLE_SIZE, 0, &buffer->mapped),
        "mapping a buffer");
  VkBufferDeviceAddressInfo address = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                       .buffer = buffer->handle};
  buffer->address = api->vkGetBufferDeviceAddress(device->handle, &address);
  return ISO_OK;
}

static iso_status memory_alloc(iso_device *device, iso_memory_kind kind, uint64_t bytes,
                               iso_buffer **out_buffer) {
  /* Kernels read weights in words of 16 bytes: the last one may reach past the last byte. */
  if (bytes > device->facts.largest_allocation_bytes)
    return out_of_memory(device, bytes);
  iso_buffer *buffer = calloc(1, sizeof *buffer);
  if (!buffer)
    return vulkan_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a buffer");
  *buffer = (iso_buffer){.device = device, .bytes = (bytes + 15) & ~UINT64_C(15), .kind = kind};
  iso_status status = allocate(device, buffer);
  if (status != ISO_OK) {
    memory_free(device, buffer);
    return status;
  }
  *out_buffer = buffer;
  return ISO_OK;
}

static iso_status memory_map(iso_device *device, iso_buffer *buffer, void **out_address) {
  (void)device;
  if (!buffer->mapped)
    return vulkan_fail(ISO_ERROR_UNSUPPORTED, "the buffer lies in memory of the device alone");
  *out_address = buffer->mapped;
  return ISO_OK;
}

const iso_memory_table vulkan_memory_table = {.size = sizeof vulkan_memory_table,
                                              .alloc = memory_alloc,
                                              .free = memory_free,
                                              .map = memory_map,
                                              .bytes_free = memory_bytes_free};
