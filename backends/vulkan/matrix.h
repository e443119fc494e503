/* VK_KHR_cooperative_matrix, which the headers of older distributions do not declare. */
#ifndef ISOMER_VULKAN_MATRIX_H
#define ISOMER_VULKAN_MATRIX_H

#include "backends/vulkan/vulkan.h"

#ifndef VK_KHR_cooperative_matrix
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR                          \
  ((VkStructureType)1000506000)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR ((VkStructureType)1000506001)
#define VK_COMPONENT_TYPE_FLOAT16_KHR 0
#define VK_COMPONENT_TYPE_FLOAT32_KHR 1
#define VK_SCOPE_SUBGROUP_KHR 3
typedef struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
  VkStructureType sType;
  void *pNext;
  VkBool32 cooperativeMatrix, cooperativeMatrixRobustBufferAccess;
} VkPhysicalDeviceCooperativeMatrixFeaturesKHR;
typedef struct VkCooperativeMatrixPropertiesKHR {
  VkStructureType sType;
  void *pNext;
  uint32_t MSize, NSize, KSize;
  uint32_t AType, BType, CType, ResultType; /* VkComponentTypeKHR */
  VkBool32 saturatingAccumulation;
  uint32_t scope; /* VkScopeKHR */
} VkCooperativeMatrixPropertiesKHR;
typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(
    VkPhysicalDevice physicalDevice, uint32_t *pPropertyCount,
    VkCooperativeMatrixPropertiesKHR *pProperties);
#endif

#ifndef VK_NV_cooperative_matrix2
#define VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME "VK_NV_cooperative_matrix2"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV                         \
  ((VkStructureType)1000593000)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_FLEXIBLE_DIMENSIONS_PROPERTIES_NV                     \
  ((VkStructureType)1000593001)
#define VK_SCOPE_WORKGROUP_KHR 2
typedef struct VkPhysicalDeviceCooperativeMatrix2FeaturesNV {
  VkStructureType sType;
  void *pNext;
  VkBool32 cooperativeMatrixWorkgroupScope, cooperativeMatrixFlexibleDimensions;
  VkBool32 cooperativeMatrixReductions, cooperativeMatrixConversions;
  VkBool32 cooperativeMatrixPerElementOperations, cooperativeMatrixTensorAddressing;
  VkBool32 cooperativeMatrixBlockLoads;
} VkPhysicalDeviceCooperativeMatrix2FeaturesNV;
typedef struct VkCooperativeMatrixFlexibleDimensionsPropertiesNV {
  VkStructureType sType;
  void *pNext;
  uint32_t MGranularity, NGranularity, KGranularity;
  uint32_t AType, BType, CType, ResultType; /* VkComponentTypeKHR */
  VkBool32 saturatingAccumulation;
  uint32_t scope; /* VkScopeKHR */
  uint32_t workgroupInvocations;
} VkCooperativeMatrixFlexibleDimensionsPropertiesNV;
typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV)(
    VkPhysicalDevice physicalDevice, uint32_t *pPropertyCount,
    VkCooperativeMatrixFlexibleDimensionsPropertiesNV *pProperties);
#endif

/* The features that the tier needs, to be chained to a device that is opened. */
typedef struct vulkan_matrix_features {
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix;
  VkPhysicalDeviceCooperativeMatrix2FeaturesNV matrix2;
  VkPhysicalDeviceMaintenance4Features maintenance4;
} vulkan_matrix_features;

/* Fills in what the tier in use needs, with `next` behind, and returns the chain's start. */
void *vulkan_matrix_chain(const vulkan_facts *facts, void *next,
                          vulkan_matrix_features *out_features);
/* What matmul_matrix.comp lacks to run, NULL for nothing: it needs fragments of 16 x 16 x 16 halves
 * with sums in f32, subgroups of 32 and 48 KiB of shared memory (`facts->shared_bytes` is known).
 */
const char *vulkan_matrix_missing(const vulkan_api *api, const vulkan_facts *facts);
/* The same of matmul_matrix2.comp: tiles of 64 x 32 halves by 128 invocations, and of
 * 128 x 128 by 256. */
const char *vulkan_matrix2_missing(const vulkan_api *api, const vulkan_facts *facts);
/* Finds out on an open device of tier matrix whether components of fragments lie as
 * matrix_fragments.glsl takes them to: has_fragments of its facts. */
iso_status vulkan_probe_fragments(iso_device *device);

#endif
