/* Compute pipelines: shaders as SPIR-V within the library, specialised when first used. */
#include "backends/vulkan/vulkan.h"
#include "backends/vulkan/cache.h"
#include "backends/vulkan/width.h"
#include <stdlib.h>
#include <string.h>

/* <build>/vulkan_shaders/<name>.inc: the words of each module. */
#include "vulkan_shaders.h"

enum { N_CHAINS = 1024 };

struct vulkan_pipeline {
  struct vulkan_pipeline *next; /* of its chain */
  vulkan_shader shader;
  uint32_t constants[VULKAN_MAX_CONSTANTS], n_constants;
  VkPipeline handle;
};

static const struct {
  const uint32_t *words;
  size_t bytes;
  const char *name;
} modules[VULKAN_SHADER_COUNT] = {
#define VULKAN_SHADER(name, file, defines) {vulkan_words_##name, sizeof vulkan_words_##name, #name},
#include "backends/vulkan/shaders.def"
};

const char *vulkan_shader_name(vulkan_shader shader) { return modules[shader].name; }

/* FNV-1a over the shader and its constants. */
static uint32_t hash(vulkan_shader shader, const uint32_t *constants, uint32_t n_constants) {
  uint32_t value = (2166136261u ^ (uint32_t)shader) * 16777619u;
  for (uint32_t i = 0; i < n_constants; i++)
    value = (value ^ constants[i]) * 16777619u;
  return (value ^ value >> 15) % N_CHAINS;
}

static iso_status make(iso_device *device, vulkan_pipeline *pipeline) {
  const vulkan_api *api = &device->api;
  VkSpecializationMapEntry entries[VULKAN_MAX_CONSTANTS];
  for (uint32_t i = 0; i < pipeline->n_constants; i++)
    entries[i] = (VkSpecializationMapEntry){i, i * 4, 4};
  VkSpecializationInfo specialization = {.mapEntryCount = pipeline->n_constants,
                                         .pMapEntries = entries,
                                         .dataSize = pipeline->n_constants * 4,
                                         .pData = pipeline->constants};
  VkShaderModuleCreateInfo module_info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                          .codeSize = modules[pipeline->shader].bytes,
                                          .pCode = modules[pipeline->shader].words};
  VkShaderModule module;
  const char *name = modules[pipeline->shader].name;
  VULKAN_TRY(api->vkCreateShaderModule(device->handle, &module_info, NULL, &module), name);
  VkComputePipelineCreateInfo create = {
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = module,
                .pName = "main",
                .pSpecializationInfo = &specialization},
      .layout = device->layout};
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo width;
  vulkan_fix_width(&device->facts, pipeline->constants[0], &width, &create.stage);
  VkResult result = api->vkCreateComputePipelines(device->handle, device->cache, 1, &create, NULL,
                                                  &pipeline->handle);
  api->vkDestroyShaderModule(device->handle, module, NULL);
  VULKAN_TRY(result, name);
  return ISO_OK;
}

static iso_status find_or_make(iso_device *device, vulkan_shader shader, const uint32_t *constants,
                               uint32_t n_constants, VkPipeline *out_pipeline) {
  vulkan_pipeline **chain = &device->pipelines[hash(shader, constants, n_constants)];
  for (vulkan_pipeline *p = *chain; p; p = p->next)
    if (p->shader == shader && p->n_constants == n_constants &&
        memcmp(p->constants, constants, n_constants * sizeof *constants) == 0) {
      *out_pipeline = p->handle;
      return ISO_OK;
    }
  vulkan_pipeline *made = calloc(1, sizeof *made);
  if (!made)
    return vulkan_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a pipeline");
  made->shader = shader;
  made->n_constants = n_constants;
  memcpy(made->constants, constants, n_constants * sizeof *constants);
  iso_status status = make(device, made);
  if (status != ISO_OK) {
    free(made);
    return status;
  }
  device->n_pipelines++;
  made->next = *chain;
  *chain = made;
  *out_pipeline = made->handle;
  return ISO_OK;
}

iso_status vulkan_pipeline_get(iso_device *device, vulkan_shader shader, const uint32_t *constants,
                               uint32_t n_constants, VkPipeline *out_pipeline) {
  pthread_mutex_lock(&device->lock);
  iso_status status = find_or_make(device, shader, constants, n_constants, out_pipeline);
  pthread_mutex_unlock(&device->lock);
  return status;
}

iso_status vulkan_pipelines_create(iso_device *device) {
  device->pipelines = calloc(N_CHAINS, sizeof *device->pipelines);
  if (!device->pipelines)
    return vulkan_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for pipelines");
  VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, VULKAN_PUSH_BYTES};
  VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                       .pushConstantRangeCount = 1,
                                       .pPushConstantRanges = &push};
  VULKAN_MAKE(device->layout,
              device->api.vkCreatePipelineLayout(device->handle, &layout, NULL, &device->layout),
              "a pipeline layout");
  return vulkan_cache_load(device);
}

void vulkan_pipelines_destroy(iso_device *device) {
  const vulkan_api *api = &device->api;
  if (device->cache && device->n_pipelines > 0 && !device->is_hung)
    vulkan_cache_save(device);
  for (uint32_t i = 0; device->pipelines && i < N_CHAINS; i++)
    for (vulkan_pipeline *p = device->pipelines[i], *next; p; p = next) {
      next = p->next;
      if (!device->is_hung)
        api->vkDestroyPipeline(device->handle, p->handle, NULL);
      free(p);
    }
  free(device->pipelines);
  if (device->is_hung)
    return;
  api->vkDestroyPipelineCache(device->handle, device->cache, NULL);
  api->vkDestroyPipelineLayout(device->handle, device->layout, NULL);
}
