/* Tiers: which of a device's units are used, so that each can be forced and tested. */
#ifndef ISOMER_VULKAN_TIER_H
#define ISOMER_VULKAN_TIER_H

#include "backends/vulkan/vulkan.h"

/* Sets has_fp16, has_dot, has_matrix and has_matrix2 of facts that hold all else: those of the best
 * tier there is, or of the one that ISOMER_VULKAN_TIER names. `facts->tier` says which, and what
 * the next one lacks. */
void vulkan_find_tier(const vulkan_api *api, vulkan_facts *facts);
/* INVALID_ARGUMENT where ISOMER_VULKAN_TIER names none, UNSUPPORTED where the device is not of it.
 */
iso_status vulkan_check_tier(const vulkan_facts *facts);

#endif
