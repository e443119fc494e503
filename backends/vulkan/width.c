#include "backends/vulkan/width.h"

void vulkan_find_width(const vulkan_api *api, vulkan_facts *facts) {
  VkPhysicalDeviceSubgroupSizeControlFeatures control = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                        .pNext = &control};
  VkPhysicalDeviceSubgroupSizeControlProperties limits = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                            .pNext = &limits};
  facts->fixed_width_invocations = 0;
  if (facts->version < VK_API_VERSION_1_3)
    return;
  api->vkGetPhysicalDeviceFeatures2(facts->physical, &features);
  api->vkGetPhysicalDeviceProperties2(facts->physical, &properties);
  uint32_t width = facts->subgroup_width;
  if (limits.minSubgroupSize < limits.maxSubgroupSize && limits.minSubgroupSize <= width &&
      width <= limits.maxSubgroupSize && control.subgroupSizeControl &&
      control.computeFullSubgroups &&
      limits.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT)
    facts->fixed_width_invocations = width * limits.maxComputeWorkgroupSubgroups;
}

void vulkan_fix_width(const vulkan_facts *facts, uint32_t workgroup,
                      VkPipelineShaderStageRequiredSubgroupSizeCreateInfo *info,
                      VkPipelineShaderStageCreateInfo *stage) {
  /* Smaller workgroups are those of shaders without subgroup operations. */
  if (workgroup > facts->fixed_width_invocations || workgroup % facts->subgroup_width != 0)
    return;
  *info = (VkPipelineShaderStageRequiredSubgroupSizeCreateInfo){
      .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
      .requiredSubgroupSize = facts->subgroup_width};
  stage->pNext = info;
  stage->flags |= VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
}
