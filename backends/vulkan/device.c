/* Devices: which there are, which can serve, and opening one. */
#include "backends/vulkan/matrix.h"
#include "backends/vulkan/tier.h"
#include "backends/vulkan/width.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 16, ALIGNMENT = 256 };

typedef struct device_list {
  vulkan_facts devices[MAX_DEVICES];
  uint32_t count;
  char reason[256]; /* why the last one that cannot serve cannot */
} device_list;

/* ---- Features ------------------------------------------------------------------------------ */

typedef struct feature_chain {
  VkPhysicalDeviceFeatures2 base;
  VkPhysicalDeviceVulkan11Features v11;
  VkPhysicalDeviceVulkan12Features v12;
} feature_chain;

static void link_features(feature_chain *chain) {
  chain->base.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  chain->base.pNext = &chain->v11;
  chain->v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  chain->v11.pNext = &chain->v12;
  chain->v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
}

/* What every shader here may use. */
static const struct {
  size_t offset;
  const char *name;
} required_features[] = {
    {offsetof(feature_chain, base.features.shaderInt64), "shaderInt64"},
    {offsetof(feature_chain, v11.storageBuffer16BitAccess), "storageBuffer16BitAccess"},
    {offsetof(feature_chain, v12.storageBuffer8BitAccess), "storageBuffer8BitAccess"},
    {offsetof(feature_chain, v12.bufferDeviceAddress), "bufferDeviceAddress"},
    {offsetof(feature_chain, v12.timelineSemaphore), "timelineSemaphore"},
};

enum { N_REQUIRED = sizeof required_features / sizeof *required_features };

static VkBool32 *feature(feature_chain *chain, uint32_t index) {
  return (VkBool32 *)(void *)((char *)chain + required_features[index].offset);
}

static const char *missing_feature(const vulkan_api *api, VkPhysicalDevice physical) {
  feature_chain chain = {0};
  link_features(&chain);
  api->vkGetPhysicalDeviceFeatures2(physical, &chain.base);
  for (uint32_t i = 0; i < N_REQUIRED; i++)
    if (!*feature(&chain, i))
      return required_features[i].name;
  return NULL;
}

bool vulkan_has_extension(const vulkan_api *api, VkPhysicalDevice physical, const char *name) {
  uint32_t count = 0;
  if (api->vkEnumerateDeviceExtensionProperties(physical, NULL, &count, NULL) != VK_SUCCESS)
    return false;
  VkExtensionProperties *extensions = calloc((size_t)count + 1, sizeof *extensions);
  bool found = false;
  if (extensions &&
      api->vkEnumerateDeviceExtensionProperties(physical, NULL, &count, extensions) >= 0)
    for (uint32_t i = 0; i < count && !found; i++)
      found = strcmp(extensions[i].extensionName, name) == 0;
  free(extensions);
  return found;
}

/* ---- Facts --------------------------------------------------------------------------------- */

/* Units that run workgroups, which Vulkan tells for NVIDIA alone; 0: unknown. */
static uint32_t count_units(const vulkan_api *api, VkPhysicalDevice physical) {
  if (!vulkan_has_extension(api, physical, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME))
    return 0;
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV units = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                            .pNext = &units};
  api->vkGetPhysicalDeviceProperties2(physical, &properties);
  return units.shaderSMCount;
}

static bool find_queue_family(const vulkan_api *api, vulkan_facts *facts) {
  VkQueueFamilyProperties families[32];
  uint32_t count = 32;
  api->vkGetPhysicalDeviceQueueFamilyProperties(facts->physical, &count, families);
  for (uint32_t i = 0; i < count; i++)
    if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) {
      facts->queue_family = i;
      return true;
    }
  return false;
}

/* The memory type with all of `wanted` and most of `liked`, of the largest heap; -1 if none. */
static int32_t find_memory_type(const VkPhysicalDeviceMemoryProperties *memory,
                                VkMemoryPropertyFlags wanted, VkMemoryPropertyFlags liked,
                                VkMemoryPropertyFlags disliked) {
  int32_t best = -1;
  int best_score = 0;
  for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
    VkMemoryPropertyFlags flags = memory->memoryTypes[i].propertyFlags;
    if ((flags & wanted) != wanted || flags & VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD)
      continue;
    int score = 1 + 2 * ((flags & liked) == liked) + !(flags & disliked);
    uint64_t heap = memory->memoryHeaps[memory->memoryTypes[i].heapIndex].size;
    if (best < 0 || score > best_score ||
        (score == best_score &&
         heap > memory->memoryHeaps[memory->memoryTypes[best].heapIndex].size)) {
      best = (int32_t)i;
      best_score = score;
    }
  }
  return best;
}

static bool find_memory(const vulkan_api *api, vulkan_facts *facts, bool unified) {
  VkPhysicalDeviceMemoryProperties2 properties = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  api->vkGetPhysicalDeviceMemoryProperties2(facts->physical, &properties);
  const VkPhysicalDeviceMemoryProperties *memory = &properties.memoryProperties;
  const VkMemoryPropertyFlags host =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  const VkMemoryPropertyFlags cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  int32_t shared = unified ? find_memory_type(memory, local | host | cached, 0, 0) : -1;
  int32_t device = shared >= 0 ? shared : find_memory_type(memory, local, 0, host);
  int32_t staging = find_memory_type(memory, host, cached, local);
  if (device < 0 || staging < 0)
    return false;
  facts->host_memory = shared >= 0;
  facts->device_type = (uint32_t)device;
  facts->staging_type = (uint32_t)staging;
  facts->device_heap = memory->memoryTypes[device].heapIndex;
  facts->memory_bytes = memory->memoryHeaps[facts->device_heap].size;
  return true;
}

/* What a buffer of whole vectors of 16 bytes may be. */
static uint64_t find_largest(uint64_t memory, uint64_t allocation, uint64_t buffer) {
  uint64_t least = memory < allocation ? memory : allocation;
  return (least < buffer ? least : buffer) & ~UINT64_C(15);
}

static void describe(vulkan_facts *facts, const VkPhysicalDeviceProperties *properties,
                     const VkPhysicalDeviceVulkan11Properties *v11,
                     const VkPhysicalDeviceVulkan12Properties *v12) {
  iso_device_info *info = &facts->info;
  *info = (iso_device_info){.size = sizeof *info,
                            .kind = properties->deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU
                                        ? ISO_DEVICE_CPU
                                        : ISO_DEVICE_GPU,
                            .memory_bytes = facts->memory_bytes,
                            .largest_allocation_bytes = facts->largest_allocation_bytes,
                            .alignment_bytes = ALIGNMENT,
                            .subgroup_width = v11->subgroupSize,
                            .n_units = facts->n_units ? facts->n_units : 1,
                            .features = facts->host_memory ? ISO_FEATURE_HOST_MEMORY : 0,
                            .copy_bytes_per_us = 10000.0f};
  if (info->kind == ISO_DEVICE_CPU)
    info->features |= ISO_FEATURE_SOFTWARE;
  snprintf(info->name, sizeof info->name, "%s", properties->deviceName);
  for (uint32_t i = 0; i < VK_UUID_SIZE; i++)
    snprintf(info->id + 2 * i, sizeof info->id - 2 * i, "%02x", v11->deviceUUID[i]);
  snprintf(
      info->detail, sizeof info->detail, "Vulkan %u.%u.%u, %.24s %.32s, tier %s",
      VK_API_VERSION_MAJOR(properties->apiVersion), VK_API_VERSION_MINOR(properties->apiVersion),
      VK_API_VERSION_PATCH(properties->apiVersion), v12->driverName, v12->driverInfo, facts->tier);
}

/* Fills the facts of `facts->physical`; false with a reason when it cannot serve. */
static bool examine(const vulkan_api *api, vulkan_facts *facts, char *out_reason) {
  VkPhysicalDeviceMaintenance4Properties sizes = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES,
      .maxBufferSize = UINT64_MAX};
  VkPhysicalDeviceVulkan12Properties v12 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
  VkPhysicalDeviceVulkan11Properties v11 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &v12};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                            .pNext = &v11};
  /* The struct chain is of 1.2: an older device is asked without it. */
  VkPhysicalDeviceProperties2 plain = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  api->vkGetPhysicalDeviceProperties2(facts->physical, &plain);
  const char *name = plain.properties.deviceName;
  if (plain.properties.apiVersion < VK_API_VERSION_1_2) {
    snprintf(out_reason, 256, "%.100s speaks Vulkan %u.%u, 1.2 is needed", name,
             VK_API_VERSION_MAJOR(plain.properties.apiVersion),
             VK_API_VERSION_MINOR(plain.properties.apiVersion));
    return false;
  }
  facts->version =
      plain.properties.apiVersion < api->version ? plain.properties.apiVersion : api->version;
  if (facts->version >= VK_API_VERSION_1_3)
    v12.pNext = &sizes;
  api->vkGetPhysicalDeviceProperties2(facts->physical, &properties);
  const char *missing = missing_feature(api, facts->physical);
  const VkSubgroupFeatureFlags needed =
      VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
  if (!missing && (!(v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) ||
                   (v11.subgroupSupportedOperations & needed) != needed))
    missing = "subgroup arithmetic in compute shaders";
  if (!missing && v11.subgroupSize < VULKAN_LEAST_SUBGROUP)
    missing = "subgroups of 4";
  facts->most_invocations = properties.properties.limits.maxComputeWorkGroupInvocations;
  if (facts->most_invocations > properties.properties.limits.maxComputeWorkGroupSize[0])
    facts->most_invocations = properties.properties.limits.maxComputeWorkGroupSize[0];
  facts->shared_bytes = properties.properties.limits.maxComputeSharedMemorySize;
  if (!missing && facts->most_invocations < VULKAN_LEAST_INVOCATIONS)
    missing = "workgroups of 256";
  if (!missing && facts->shared_bytes < VULKAN_LEAST_SHARED_BYTES)
    missing = "32 KiB of shared memory";
  if (!missing && !find_queue_family(api, facts))
    missing = "a compute queue";
  if (!missing &&
      !find_memory(api, facts,
                   properties.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU ||
                       properties.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU))
    missing = "memory that can be mapped";
  if (missing) {
    snprintf(out_reason, 256, "%.100s has no %s", name, missing);
    return false;
  }
  facts->largest_allocation_bytes =
      find_largest(facts->memory_bytes, v11.maxMemoryAllocationSize, sizes.maxBufferSize);
  facts->subgroup_width = v11.subgroupSize;
  facts->has_shuffle = v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  facts->has_budget =
      vulkan_has_extension(api, facts->physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  facts->n_units = count_units(api, facts->physical);
  facts->vendor_id = properties.properties.vendorID;
  facts->device_id = properties.properties.deviceID;
  memcpy(facts->cache_uuid, properties.properties.pipelineCacheUUID, VK_UUID_SIZE);
  vulkan_find_width(api, facts);
  vulkan_find_tier(api, facts);
  describe(facts, &properties.properties, &v11, &v12);
  return true;
}

/* Graphics processors first, software rasterisers last; else as the loader lists them. */
static void list_devices(const vulkan_api *api, device_list *out_list) {
  VkPhysicalDevice handles[MAX_DEVICES];
  uint32_t count = MAX_DEVICES;
  if (api->vkEnumeratePhysicalDevices(api->instance, &count, handles) < 0)
    count = 0;
  snprintf(out_list->reason, sizeof out_list->reason, "no Vulkan driver offers a device");
  for (int software = 0; software < 2; software++)
    for (uint32_t i = 0; i < count && out_list->count < MAX_DEVICES; i++) {
      vulkan_facts *facts = &out_list->devices[out_list->count];
      *facts = (vulkan_facts){.physical = handles[i]};
      if (examine(api, facts, out_list->reason) &&
          (facts->info.kind == ISO_DEVICE_CPU) == (software == 1))
        out_list->count++;
    }
}

iso_status vulkan_enumerate(uint32_t capacity, iso_device_info *out_infos, uint32_t *out_count,
                            char *out_reason) {
  vulkan_api api;
  *out_count = 0;
  out_reason[0] = 0;
  if (!vulkan_api_create(&api, out_reason))
    return ISO_OK;
  device_list *list = calloc(1, sizeof *list);
  if (!list) {
    vulkan_api_destroy(&api);
    return vulkan_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory to list devices");
  }
  list_devices(&api, list);
  *out_count = list->count;
  for (uint32_t i = 0; i < list->count && i < capacity; i++)
    out_infos[i] = list->devices[i].info;
  if (list->count == 0)
    snprintf(out_reason, 256, "%s", list->reason);
  free(list);
  vulkan_api_destroy(&api);
  return ISO_OK;
}

/* ---- Opening ------------------------------------------------------------------------------- */

static iso_status choose(iso_device *device, uint32_t index) {
  char reason[256] = "";
  if (!vulkan_api_create(&device->api, reason))
    return vulkan_fail(ISO_ERROR_NOT_FOUND, "%s", reason);
  device_list *list = calloc(1, sizeof *list);
  if (!list)
    return vulkan_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory to list devices");
  list_devices(&device->api, list);
  iso_status status = ISO_OK;
  if (index < list->count)
    device->facts = list->devices[index];
  else
    status = vulkan_fail(ISO_ERROR_NOT_FOUND, "there are %u Vulkan devices", list->count);
  free(list);
  return status == ISO_OK ? vulkan_check_tier(&device->facts) : status;
}

static iso_status open_chosen(iso_device *device) {
  feature_chain chain = {0};
  link_features(&chain);
  for (uint32_t i = 0; i < N_REQUIRED; i++)
    *feature(&chain, i) = VK_TRUE;
  const float priority = 1;
  const char *extensions[3];
  uint32_t n_extensions = 0;
  if (device->facts.has_budget)
    extensions[n_extensions++] = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
  vulkan_matrix_features matrix;
  VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
      .shaderIntegerDotProduct = VK_TRUE};
  if (device->facts.has_dot)
    chain.v12.pNext = &dot;
  if (device->facts.has_fp16)
    chain.v12.shaderFloat16 = VK_TRUE;
  if (device->facts.has_matrix) {
    extensions[n_extensions++] = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
    if (device->facts.has_matrix2)
      extensions[n_extensions++] = VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME;
    chain.v12.shaderFloat16 = chain.v12.vulkanMemoryModel = VK_TRUE;
    chain.v12.pNext = vulkan_matrix_chain(&device->facts, chain.v12.pNext, &matrix);
  }
  VkPhysicalDeviceSubgroupSizeControlFeatures width = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
      .pNext = chain.v12.pNext,
      .subgroupSizeControl = VK_TRUE,
      .computeFullSubgroups = VK_TRUE};
  if (device->facts.fixed_width_invocations > 0)
    chain.v12.pNext = &width;
  VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                   .queueFamilyIndex = device->facts.queue_family,
                                   .queueCount = 1,
                                   .pQueuePriorities = &priority};
  VkDeviceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &chain.base,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .enabledExtensionCount = n_extensions,
                               .ppEnabledExtensionNames = extensions};
  VULKAN_MAKE(device->handle,
              device->api.vkCreateDevice(device->facts.physical, &create, NULL, &device->handle),
              "opening the device");
  ISO_TRY(vulkan_api_load_device(&device->api, device->handle));
  device->api.vkGetDeviceQueue(device->handle, device->facts.queue_family, 0, &device->queue);
  ISO_TRY(vulkan_pipelines_create(device));
  return device->facts.has_matrix && !device->facts.has_matrix2 ? vulkan_probe_fragments(device)
                                                                : ISO_OK;
}

static void device_close(iso_device *device) {
  if (device->pipelines)
    vulkan_pipelines_destroy(device);
  if (!device->is_hung) {
    if (device->handle && device->api.vkDestroyDevice)
      device->api.vkDestroyDevice(device->handle, NULL);
    vulkan_api_destroy(&device->api);
  }
  pthread_mutex_destroy(&device->lock);
  free(device);
}

iso_status vulkan_open(uint32_t index, const iso_device_options *options, iso_device **out_device) {
  (void)options;
  iso_device *device = calloc(1, sizeof *device);
  if (!device)
    return vulkan_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a device");
  pthread_mutex_init(&device->lock, NULL);
  iso_status status = choose(device, index);
  if (status == ISO_OK)
    status = open_chosen(device);
  if (status != ISO_OK) {
    device_close(device);
    return status;
  }
  *out_device = device;
  return ISO_OK;
}

static iso_status device_info(const iso_device *device, iso_device_info *out_info) {
  *out_info = device->facts.info;
  return ISO_OK;
}

const iso_device_table vulkan_device_table = {
    .size = sizeof vulkan_device_table, .info = device_info, .close = device_close};
