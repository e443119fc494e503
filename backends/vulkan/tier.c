#include "backends/vulkan/tier.h"
#include "backends/vulkan/matrix.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each tier uses what those before it do as well, where the device has it, but for two that are
 * used by name alone: FP16, which nobody has measured on a device that has nothing better, and
 * MATRIX2, since where it was measured the one before did more. */
typedef enum tier { PLAIN, FP16, DOT, MATRIX, MATRIX2, N_TIERS } tier;

static const char *const names[N_TIERS] = {"plain", "fp16", "dot", "matrix", "matrix2"};

/* The tier that was asked for; N_TIERS for none or for a name that means nothing. */
static tier asked_tier(void) {
  const char *asked = getenv("ISOMER_VULKAN_TIER");
  tier found = PLAIN;
  while (found < N_TIERS && !(asked && strcmp(asked, names[found]) == 0))
    found++;
  return found;
}

static const char *fp16_missing(const vulkan_api *api, const vulkan_facts *facts) {
  VkPhysicalDeviceVulkan12Features v12 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                        .pNext = &v12};
  api->vkGetPhysicalDeviceFeatures2(facts->physical, &features);
  if (!v12.shaderFloat16)
    return "no arithmetic of halves";
  return asked_tier() == FP16 ? NULL : "arithmetic of halves is used by name alone";
}

/* What integer dot products lack. Devices that only emulate them do better without, so they are
 * used there by name alone. */
static const char *dot_missing(const vulkan_api *api, const vulkan_facts *facts) {
  if (facts->version < VK_API_VERSION_1_3)
    return "no Vulkan 1.3";
  VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                        .pNext = &dot};
  VkPhysicalDeviceVulkan13Properties v13 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                            .pNext = &v13};
  api->vkGetPhysicalDeviceFeatures2(facts->physical, &features);
  api->vkGetPhysicalDeviceProperties2(facts->physical, &properties);
  if (!dot.shaderIntegerDotProduct)
    return "no integer dot products";
  return v13.integerDotProduct4x8BitPackedSignedAccelerated || asked_tier() == DOT
             ? NULL
             : "integer dot products are emulated";
}

static const char *missing(const vulkan_api *api, const vulkan_facts *facts, tier of) {
  switch (of) {
  case FP16:
    return fp16_missing(api, facts);
  case DOT:
    return dot_missing(api, facts);
  case MATRIX:
    return vulkan_matrix_missing(api, facts);
  case MATRIX2: {
    const char *matrix = vulkan_matrix_missing(api, facts);
    const char *matrix2 = matrix ? matrix : vulkan_matrix2_missing(api, facts);
    return matrix2 || asked_tier() == MATRIX2 ? matrix2 : "workgroup matrices are slower";
  }
  default:
    return NULL;
  }
}

void vulkan_find_tier(const vulkan_api *api, vulkan_facts *facts) {
  tier asked = asked_tier(), most = asked == N_TIERS ? MATRIX2 : asked, best = PLAIN;
  const char *lacks[N_TIERS] = {NULL};
  for (tier i = FP16; i <= most; i++) {
    lacks[i] = missing(api, facts, i);
    best = lacks[i] ? best : i;
  }
  facts->has_fp16 = most >= FP16 && !lacks[FP16];
  facts->has_dot = most >= DOT && !lacks[DOT];
  facts->has_matrix = best >= MATRIX;
  facts->has_matrix2 = best == MATRIX2;
  tier above = asked < N_TIERS ? asked : best == PLAIN ? DOT : best + 1;
  const char *next = best == MATRIX2 ? NULL
                     : best == most  ? "ISOMER_VULKAN_TIER says so"
                                     : lacks[above];
  snprintf(facts->tier, sizeof facts->tier, "%s%s%s", names[best], next ? ": " : "",
           next ? next : "");
}

iso_status vulkan_check_tier(const vulkan_facts *facts) {
  const char *asked = getenv("ISOMER_VULKAN_TIER");
  tier wanted = asked_tier();
  if (!asked || !*asked)
    return ISO_OK;
  if (wanted == N_TIERS)
    return vulkan_fail(ISO_ERROR_INVALID_ARGUMENT,
                       "ISOMER_VULKAN_TIER is \"%.40s\", not plain, fp16, dot, matrix or matrix2",
                       asked);
  bool has[N_TIERS] = {true, facts->has_fp16, facts->has_dot, facts->has_matrix,
                       facts->has_matrix2};
  return has[wanted] ? ISO_OK
                     : vulkan_fail(ISO_ERROR_UNSUPPORTED, "ISOMER_VULKAN_TIER=%s: %s has tier %s",
                                   asked, facts->info.name, facts->tier);
}
