/* Whether a device has the matrix units that matmul_matrix.comp and others need. */
#include "backends/vulkan/matrix.h"

enum { SHARED_BYTES = 49152, MAX_PROPERTIES = 128 };

static bool has_features(const vulkan_api *api, VkPhysicalDevice physical) {
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
  VkPhysicalDeviceVulkan12Features v12 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &matrix};
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                        .pNext = &v12};
  api->vkGetPhysicalDeviceFeatures2(physical, &features);
  return matrix.cooperativeMatrix && v12.shaderFloat16 && v12.vulkanMemoryModel;
}

static bool has_fragments(const vulkan_api *api, VkPhysicalDevice physical) {
  PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR get =
      (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)api->vkGetInstanceProcAddr(
          api->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
  VkCooperativeMatrixPropertiesKHR properties[MAX_PROPERTIES];
  uint32_t count = MAX_PROPERTIES;
  for (uint32_t i = 0; i < count; i++)
    properties[i] = (VkCooperativeMatrixPropertiesKHR){
        .sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
  if (!get || get(physical, &count, properties) < 0)
    return false;
  for (uint32_t i = 0; i < count; i++) {
    const VkCooperativeMatrixPropertiesKHR *p = &properties[i];
    if (p->MSize == 16 && p->NSize == 16 && p->KSize == 16 &&
        (int)p->AType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
        (int)p->BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
        (int)p->CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
        (int)p->ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
        (int)p->scope == VK_SCOPE_SUBGROUP_KHR)
      return true;
  }
  return false;
}

const char *vulkan_matrix_missing(const vulkan_api *api, const vulkan_facts *facts) {
  VkPhysicalDeviceSubgroupSizeControlProperties control = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
  VkPhysicalDeviceVulkan11Properties v11 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &control};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                            .pNext = &v11};
  if (facts->version < VK_API_VERSION_1_3)
    return "no Vulkan 1.3";
  if (!vulkan_has_extension(api, facts->physical, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME) ||
      !has_features(api, facts->physical))
    return "no VK_KHR_cooperative_matrix";
  if (!has_fragments(api, facts->physical))
    return "no fragments of 16x16x16 halves";
  if (facts->shared_bytes < SHARED_BYTES)
    return "less than 48 KiB of shared memory";
  api->vkGetPhysicalDeviceProperties2(facts->physical, &properties);
  if (control.minSubgroupSize != 32 || control.maxSubgroupSize != 32)
    return "subgroups are not of 32";
  const VkSubgroupFeatureFlags needed =
      VK_SUBGROUP_FEATURE_SHUFFLE_BIT | VK_SUBGROUP_FEATURE_VOTE_BIT;
  if ((v11.subgroupSupportedOperations & needed) != needed)
    return "no subgroup shuffles or votes";
  return NULL;
}

/* ---- The second tier ------------------------------------------------------------------------ */

static bool has_features2(const vulkan_api *api, VkPhysicalDevice physical) {
  VkPhysicalDeviceCooperativeMatrix2FeaturesNV matrix = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV};
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                        .pNext = &matrix};
  api->vkGetPhysicalDeviceFeatures2(physical, &features);
  return matrix.cooperativeMatrixWorkgroupScope && matrix.cooperativeMatrixFlexibleDimensions &&
         matrix.cooperativeMatrixPerElementOperations && matrix.cooperativeMatrixTensorAddressing &&
         matrix.cooperativeMatrixBlockLoads;
}

/* Whether tiles of rows x columns, 128 deep, are offered to workgroups of so many invocations. */
static bool has_tile(const VkCooperativeMatrixFlexibleDimensionsPropertiesNV *properties,
                     uint32_t count, uint32_t rows, uint32_t columns, uint32_t invocations) {
  for (uint32_t i = 0; i < count; i++) {
    const VkCooperativeMatrixFlexibleDimensionsPropertiesNV *p = &properties[i];
    if (p->MGranularity && rows % p->MGranularity == 0 && p->NGranularity &&
        columns % p->NGranularity == 0 && p->KGranularity && 128 % p->KGranularity == 0 &&
        (int)p->AType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
        (int)p->BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
        (int)p->CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
        (int)p->ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
        (int)p->scope == VK_SCOPE_WORKGROUP_KHR && p->workgroupInvocations == invocations)
      return true;
  }
  return false;
}

const char *vulkan_matrix2_missing(const vulkan_api *api, const vulkan_facts *facts) {
  if (!vulkan_has_extension(api, facts->physical, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME) ||
      !has_features2(api, facts->physical))
    return "no VK_NV_cooperative_matrix2";
  PFN_vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV get =
      (PFN_vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV)
          api->vkGetInstanceProcAddr(
              api->instance, "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV");
  VkCooperativeMatrixFlexibleDimensionsPropertiesNV properties[MAX_PROPERTIES];
  uint32_t count = MAX_PROPERTIES;
  for (uint32_t i = 0; i < count; i++)
    properties[i] = (VkCooperativeMatrixFlexibleDimensionsPropertiesNV){
        .sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_FLEXIBLE_DIMENSIONS_PROPERTIES_NV};
  if (!get || get(facts->physical, &count, properties) < 0 ||
      !has_tile(properties, count, 64, 32, 128) || !has_tile(properties, count, 128, 128, 256))
    return "no tiles of 64 x 32 and 128 x 128 halves";
  return NULL;
}

void *vulkan_matrix_chain(const vulkan_facts *facts, void *next,
                          vulkan_matrix_features *out_features) {
  *out_features = (vulkan_matrix_features){
      .matrix = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
                 .pNext = &out_features->maintenance4,
                 .cooperativeMatrix = VK_TRUE},
      .maintenance4 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES,
                       .pNext = facts->has_matrix2 ? (void *)&out_features->matrix2 : next,
                       .maintenance4 = VK_TRUE},
      .matrix2 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV,
                  .pNext = next,
                  .cooperativeMatrixWorkgroupScope = VK_TRUE,
                  .cooperativeMatrixFlexibleDimensions = VK_TRUE,
                  .cooperativeMatrixPerElementOperations = VK_TRUE,
                  .cooperativeMatrixTensorAddressing = VK_TRUE,
                  .cooperativeMatrixBlockLoads = VK_TRUE}};
  return &out_features->matrix;
}

/* ---- Where components lie ------------------------------------------------------------------- */

enum { PROBE_INVOCATIONS = 32 };

static iso_status run_probe(iso_device *device, iso_queue *queue, const iso_buffer *counts) {
  uint64_t value, push = counts->address;
  vulkan_access access = {push, counts->bytes, true};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_fragments_probe,
                              .constants = {PROBE_INVOCATIONS},
                              .n_constants = 1,
                              .groups = {1, 1, 1},
                              .push = &push,
                              .push_bytes = sizeof push,
                              .accesses = &access,
                              .n_accesses = 1};
  ISO_TRY(vulkan_enqueue(queue, &dispatch));
  ISO_TRY(vulkan_queue_table.signal(queue, &value));
  ISO_TRY(vulkan_queue_table.host_wait(queue, value, UINT64_MAX));
  const uint32_t *n_wrong = counts->mapped;
  device->facts.has_fragments = true;
  for (uint32_t i = 0; i < PROBE_INVOCATIONS; i++)
    device->facts.has_fragments = device->facts.has_fragments && n_wrong[i] == 0;
  return ISO_OK;
}

iso_status vulkan_probe_fragments(iso_device *device) {
  iso_queue *queue;
  iso_buffer *counts;
  ISO_TRY(vulkan_queue_table.create(device, &queue));
  iso_status status = vulkan_memory_table.alloc(device, ISO_MEMORY_STAGING,
                                                PROBE_INVOCATIONS * sizeof(uint32_t), &counts);
  if (status == ISO_OK) {
    status = run_probe(device, queue, counts);
    vulkan_memory_table.free(device, counts);
  }
  vulkan_queue_table.destroy(queue);
  return status;
}
