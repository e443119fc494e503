/* What is under way in a command buffer, and so must be waited for. */
#ifndef ISOMER_VULKAN_HAZARDS_H
#define ISOMER_VULKAN_HAZARDS_H

#include "backends/vulkan/vulkan.h"

enum { VULKAN_MAX_PENDING = 128 };

/* What was read and written since the last barrier; all zero behind one. */
typedef struct vulkan_hazards {
  vulkan_access pending[VULKAN_MAX_PENDING];
  uint32_t n_pending;
  bool has_transfers; /* among the pending: copies or fills */
} vulkan_hazards;

/* All work behind waits for all before. */
void vulkan_barrier_for_all(const vulkan_api *api, VkCommandBuffer commands);
/* The host sees what was written. */
void vulkan_barrier_for_host(const vulkan_api *api, VkCommandBuffer commands);
/* Notes accesses of the next command, behind a barrier where one of them needs what is still under
 * way. */
void vulkan_hazards_order(vulkan_hazards *hazards, const vulkan_api *api, VkCommandBuffer commands,
                          const vulkan_access *accesses, uint32_t n, bool is_transfer);

#endif
