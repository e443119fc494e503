#include "backends/vulkan/hazards.h"

static const VkPipelineStageFlags WORK =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;

static void barrier(const vulkan_api *api, VkCommandBuffer commands, VkPipelineStageFlags from,
                    VkPipelineStageFlags to, VkAccessFlags writes, VkAccessFlags accesses) {
  VkMemoryBarrier memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                            .srcAccessMask = writes,
                            .dstAccessMask = accesses};
  api->vkCmdPipelineBarrier(commands, from, to, 0, 1, &memory, 0, NULL, 0, NULL);
}

void vulkan_barrier_for_all(const vulkan_api *api, VkCommandBuffer commands) {
  barrier(api, commands, WORK, WORK, VK_ACCESS_MEMORY_WRITE_BIT,
          VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
}

void vulkan_barrier_for_host(const vulkan_api *api, VkCommandBuffer commands) {
  barrier(api, commands, WORK, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_MEMORY_WRITE_BIT,
          VK_ACCESS_HOST_READ_BIT);
}

static bool overlaps(const vulkan_access *a, const vulkan_access *b) {
  return (a->writes || b->writes) && a->address < b->address + b->bytes &&
         b->address < a->address + a->bytes;
}

/* A barrier between dispatches alone costs far less than one that copies take part in. */
void vulkan_hazards_order(vulkan_hazards *hazards, const vulkan_api *api, VkCommandBuffer commands,
                          const vulkan_access *accesses, uint32_t n, bool is_transfer) {
  bool must_wait = hazards->n_pending + n > VULKAN_MAX_PENDING;
  for (uint32_t i = 0; i < n && !must_wait; i++)
    for (uint32_t j = 0; j < hazards->n_pending && !must_wait; j++)
      must_wait = overlaps(&accesses[i], &hazards->pending[j]);
  if (must_wait && (is_transfer || hazards->has_transfers))
    vulkan_barrier_for_all(api, commands);
  else if (must_wait)
    barrier(api, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
  if (must_wait) {
    hazards->n_pending = 0;
    hazards->has_transfers = false;
  }
  for (uint32_t i = 0; i < n; i++)
    hazards->pending[hazards->n_pending++] = accesses[i];
  hazards->has_transfers |= is_transfer;
}
