/* Subgroups of one width.
 *
 * Some devices choose a width for each pipeline, though they tell shaders of one: on Intel's, which
 * have 8, 16 or 32 lanes, those above the chosen width are missing, and sums that count on them are
 * wrong. Pipelines there must ask for the width that shaders are told, and for whole subgroups. */
#ifndef ISOMER_VULKAN_WIDTH_H
#define ISOMER_VULKAN_WIDTH_H

#include "backends/vulkan/vulkan.h"

/* Sets `fixed_width_invocations` of facts that hold all else. */
void vulkan_find_width(const vulkan_api *api, vulkan_facts *facts);

/* What a pipeline's stage needs in order to have subgroups of `subgroup_width`, if anything; `info`
 * must live until the pipeline is made. */
void vulkan_fix_width(const vulkan_facts *facts, uint32_t workgroup,
                      VkPipelineShaderStageRequiredSubgroupSizeCreateInfo *info,
                      VkPipelineShaderStageCreateInfo *stage);

#endif
