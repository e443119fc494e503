/* Whether a device has the matrix units that matmul_matrix.comp needs. */
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
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                            .pNext = &control};
  if (!vulkan_has_extension(api, facts->physical, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME) ||
      !has_features(api, facts->physical))
    return "no VK_KHR_cooperative_matrix";
  if (!has_fragments(api, facts->physical))
    return "no fragments of 16x16x16 halves";
  if (facts->shared_bytes < SHARED_BYTES)
    return "less than 48 KiB of shared memory";
  if (!vulkan_has_extension(api, facts->physical, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME))
    return "the subgroup width is not known";
  api->vkGetPhysicalDeviceProperties2(facts->physical, &properties);
  if (control.minSubgroupSize != 32 || control.maxSubgroupSize != 32)
    return "subgroups are not of 32";
  return NULL;
}
