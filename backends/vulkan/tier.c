#include "backends/vulkan/tier.h"
#include "backends/vulkan/matrix.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each tier uses what those before it do as well, where the device has it. The last is used by name
 * alone: where it was measured, the one before did more. */
typedef enum tier { PLAIN, DOT, MATRIX, MATRIX2, N_TIERS } tier;

static const char *const names[N_TIERS] = {"plain", "dot", "matrix", "matrix2"};

/* The tier that was asked for; N_TIERS for none or for a name that means nothing. */
static tier asked_tier(void) {
  const char *asked = getenv("ISOMER_VULKAN_TIER");
  tier found = PLAIN;
  while (found < N_TIERS && !(asked && strcmp(asked, names[found]) == 0))
    found++;
  return found;
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

void vulkan_find_tier(const vulkan_api *api, vulkan_facts *facts, char out_text[VULKAN_TIER_TEXT]) {
  tier asked = asked_tier(), most = asked == N_TIERS ? MATRIX2 : asked, best = PLAIN;
  const char *lacks[N_TIERS] = {NULL};
  for (tier i = DOT; i <= most; i++) {
    lacks[i] = missing(api, facts, i);
    best = lacks[i] ? best : i;
  }
  facts->has_dot = most >= DOT && !lacks[DOT];
  facts->has_matrix = best >= MATRIX;
  facts->has_matrix2 = best == MATRIX2;
  const char *next = best == MATRIX2 ? NULL
                     : best == most  ? "ISOMER_VULKAN_TIER says so"
                                     : lacks[asked == N_TIERS ? best + 1 : asked];
  snprintf(out_text, VULKAN_TIER_TEXT, "%s%s%s", names[best], next ? ": " : "", next ? next : "");
}

iso_status vulkan_check_tier(const vulkan_facts *facts) {
  const char *asked = getenv("ISOMER_VULKAN_TIER");
  tier wanted = asked_tier();
  if (!asked || !*asked)
    return ISO_OK;
  if (wanted == N_TIERS)
    return vulkan_fail(ISO_ERROR_INVALID_ARGUMENT,
                       "ISOMER_VULKAN_TIER is \"%.40s\", not plain, dot, matrix or matrix2", asked);
  bool has[N_TIERS] = {true, facts->has_dot, facts->has_matrix, facts->has_matrix2};
  return has[wanted] ? ISO_OK
                     : vulkan_fail(ISO_ERROR_UNSUPPORTED, "ISOMER_VULKAN_TIER=%s: %s has %s", asked,
                                   facts->info.name, strstr(facts->info.detail, "tier "));
}
