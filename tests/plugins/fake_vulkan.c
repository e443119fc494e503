#include "tests/plugins/fake_vulkan.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

typedef enum kind {
  INSTANCE,
  DEVICE,
  MEMORY,
  BUFFER,
  MODULE,
  LAYOUT,
  CACHE,
  PIPELINE,
  POOL,
  COMMANDS,
  SEMAPHORE
} kind;

enum { MAX_COPIES = 256, CACHE_BYTES = 64, MAX_SLOW = 64 };

typedef struct object object;

typedef struct copy {
  object *from, *to; /* `from` NULL: a fill */
  VkBufferCopy region;
  uint8_t value;
} copy;

/* Of a buffer: the semaphore's value behind the last submission that uses it. */
struct object {
  object *next, *parent;
  kind kind;
  uint8_t *bytes;
  uint64_t size;
  object *memory, *semaphore;
  uint64_t value; /* of a semaphore, what is reached; of a buffer, what is waited for */
  /* Of a semaphore: the last value submitted, and the last one that is ever reached. */
  uint64_t submitted, limit;
  copy *copies; /* of a command buffer */
  uint32_t n_copies;
};

static fake_vulkan fake;
static object *objects, physical[4];
static struct {
  object *semaphore;
  uint64_t value;
} submissions[MAX_SLOW];          /* in order */
static bool is_lost, wait_failed; /* lost: nobody can say any more what is done */

static bool is_gone(void) { return fake.lose_at && fake.n_submits >= fake.lose_at; }

static void misuse(const char *what) { fake.wrong = fake.n_wrong++ ? fake.wrong : what; }

static bool lives(const void *handle, kind of) {
  for (object *o = objects; o; o = o->next)
    if (o == handle)
      return o->kind == of;
  return false;
}

/* Counts a call that can fail; what it fails with. */
static VkResult count_call(const char *name) {
  fake.n_calls++;
  bool fails = fake.fail_at &&
               (fake.n_calls == fake.fail_at || (fake.is_lasting && fake.n_calls > fake.fail_at));
  fake.failed = fails && !fake.failed ? name : fake.failed;
  is_lost = is_lost || (fails && fake.fault == VK_ERROR_DEVICE_LOST);
  return fails ? fake.fault : VK_SUCCESS;
}

#define call() count_call(__func__)

static VkResult make_object(const char *name, kind of, void *parent, void *out_handle) {
  VkResult result = count_call(name);
  object *made = result == VK_SUCCESS ? calloc(1, sizeof *made) : NULL;
  void *garbage = (void *)(uintptr_t)0xbad0;
  memcpy(out_handle, made ? (void *)&made : (void *)&garbage, sizeof(void *));
  if (!made)
    return result == VK_SUCCESS ? VK_ERROR_OUT_OF_HOST_MEMORY : result;
  *made = (object){.next = objects, .parent = parent, .kind = of};
  objects = made;
  fake.n_alive++;
  return VK_SUCCESS;
}

#define make(of, parent, out_handle) make_object(__func__, of, parent, out_handle)

static object *last_made(void) { return objects; }

static void destroy(void *handle, kind of) {
  object **link = &objects;
  if (!handle)
    return;
  if (!lives(handle, of)) {
    misuse("something is destroyed that is not there");
    return;
  }
  for (object *o = objects; o; o = o->next)
    if (o->parent == handle && of != POOL)
      misuse("something is destroyed before what was made of it");
  while (*link != handle)
    link = &(*link)->next;
  object *gone = *link;
  if (of == BUFFER && gone->semaphore && lives(gone->semaphore, SEMAPHORE) &&
      gone->semaphore->value < gone->value && !is_lost && !is_gone())
    misuse("a buffer is destroyed while work uses it");
  *link = gone->next;
  free(gone->bytes);
  free(gone->copies);
  free(gone);
  fake.n_alive--;
}

#define HANDLE(x) ((void *)(x))

/* ---- Instances and devices --------------------------------------------------------------------
 */

static VkResult fake_vkEnumerateInstanceVersion(uint32_t *out_version) {
  *out_version = VK_API_VERSION_1_3;
  return VK_SUCCESS;
}

static VkResult fake_vkCreateInstance(const VkInstanceCreateInfo *info,
                                      const VkAllocationCallbacks *allocator,
                                      VkInstance *out_instance) {
  (void)info, (void)allocator;
  return make(INSTANCE, NULL, out_instance);
}

static void fake_vkDestroyInstance(VkInstance instance, const VkAllocationCallbacks *allocator) {
  (void)allocator;
  destroy(HANDLE(instance), INSTANCE);
}

static VkResult fake_vkEnumeratePhysicalDevices(VkInstance instance, uint32_t *count,
                                                VkPhysicalDevice *out_devices) {
  (void)instance;
  VkResult result = call();
  for (uint32_t i = 0; result == VK_SUCCESS && i < fake.n_devices && i < *count; i++)
    out_devices[i] = (VkPhysicalDevice)HANDLE(&physical[i]);
  *count = result == VK_SUCCESS && fake.n_devices < *count ? fake.n_devices : *count;
  return result;
}

static VkResult fake_vkEnumerateDeviceExtensionProperties(VkPhysicalDevice device,
                                                          const char *layer, uint32_t *count,
                                                          VkExtensionProperties *out_extensions) {
  (void)device, (void)layer, (void)out_extensions;
  *count = 0;
  return call();
}

/* Copies what follows the two first members of a struct of a chain. */
#define GIVE(TYPE, FROM)                                                                           \
  memcpy((char *)node + offsetof(TYPE, pNext) + sizeof(void *),                                    \
         (const char *)&(FROM) + offsetof(TYPE, pNext) + sizeof(void *),                           \
         sizeof(TYPE) - offsetof(TYPE, pNext) - sizeof(void *))

static void fake_vkGetPhysicalDeviceFeatures2(VkPhysicalDevice device,
                                              VkPhysicalDeviceFeatures2 *out_features) {
  (void)device;
  out_features->features = fake.features;
  for (VkBaseOutStructure *node = out_features->pNext; node; node = node->pNext)
    if (node->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES)
      GIVE(VkPhysicalDeviceVulkan11Features, fake.features11);
    else if (node->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES)
      GIVE(VkPhysicalDeviceVulkan12Features, fake.features12);
    else if (node->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES)
      GIVE(VkPhysicalDeviceSubgroupSizeControlFeatures, fake.width_features);
}

static void fake_vkGetPhysicalDeviceProperties2(VkPhysicalDevice device,
                                                VkPhysicalDeviceProperties2 *out_properties) {
  (void)device;
  out_properties->properties = fake.properties;
  for (VkBaseOutStructure *node = out_properties->pNext; node; node = node->pNext)
    if (node->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES)
      GIVE(VkPhysicalDeviceVulkan11Properties, fake.properties11);
    else if (node->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES)
      GIVE(VkPhysicalDeviceVulkan12Properties, fake.properties12);
    else if (node->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES)
      GIVE(VkPhysicalDeviceMaintenance4Properties, fake.sizes);
    else if (node->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES)
      GIVE(VkPhysicalDeviceSubgroupSizeControlProperties, fake.width_properties);
}

/* One heap of the device and one of the host. */
static void fake_vkGetPhysicalDeviceMemoryProperties2(VkPhysicalDevice device,
                                                      VkPhysicalDeviceMemoryProperties2 *out) {
  (void)device;
  out->memoryProperties = (VkPhysicalDeviceMemoryProperties){
      .memoryTypeCount = 2,
      .memoryTypes = {{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0},
                      {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
                           VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
                       1}},
      .memoryHeapCount = 2,
      .memoryHeaps = {{1 << 30, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {1 << 30, 0}}};
}

static void fake_vkGetPhysicalDeviceQueueFamilyProperties(VkPhysicalDevice device, uint32_t *count,
                                                          VkQueueFamilyProperties *out_families) {
  (void)device;
  *count = 1;
  out_families[0] = (VkQueueFamilyProperties){.queueFlags = VK_QUEUE_COMPUTE_BIT, .queueCount = 1};
}

static VkResult fake_vkCreateDevice(VkPhysicalDevice device, const VkDeviceCreateInfo *info,
                                    const VkAllocationCallbacks *allocator, VkDevice *out_device) {
  (void)device, (void)info, (void)allocator;
  return make(DEVICE, NULL, out_device);
}

static void fake_vkDestroyDevice(VkDevice device, const VkAllocationCallbacks *allocator) {
  (void)allocator;
  destroy(HANDLE(device), DEVICE);
}

static void fake_vkGetDeviceQueue(VkDevice device, uint32_t family, uint32_t index,
                                  VkQueue *out_queue) {
  (void)family, (void)index;
  *out_queue = (VkQueue)HANDLE(device);
}

/* ---- Memory ------------------------------------------------------------------------------------
 */

static VkResult fake_vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info,
                                      const VkAllocationCallbacks *allocator,
                                      VkDeviceMemory *out_memory) {
  (void)allocator;
  VkResult result = make(MEMORY, device, out_memory);
  if (result == VK_SUCCESS && !(last_made()->bytes = calloc(1, info->allocationSize)))
    abort();
  return result;
}

static void fake_vkFreeMemory(VkDevice device, VkDeviceMemory memory,
                              const VkAllocationCallbacks *allocator) {
  (void)device, (void)allocator;
  destroy(HANDLE(memory), MEMORY);
}

static VkResult fake_vkMapMemory(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset,
                                 VkDeviceSize size, VkMemoryMapFlags flags, void **out_address) {
  (void)device, (void)size, (void)flags;
  *out_address = ((object *)HANDLE(memory))->bytes + offset;
  return call();
}

static VkResult fake_vkCreateBuffer(VkDevice device, const VkBufferCreateInfo *info,
                                    const VkAllocationCallbacks *allocator, VkBuffer *out_buffer) {
  (void)allocator;
  VkResult result = make(BUFFER, device, out_buffer);
  if (result == VK_SUCCESS)
    last_made()->size = info->size;
  return result;
}

static void fake_vkDestroyBuffer(VkDevice device, VkBuffer buffer,
                                 const VkAllocationCallbacks *allocator) {
  (void)device, (void)allocator;
  destroy(HANDLE(buffer), BUFFER);
}

static void fake_vkGetBufferMemoryRequirements(VkDevice device, VkBuffer buffer,
                                               VkMemoryRequirements *out) {
  (void)device;
  *out = (VkMemoryRequirements){((object *)HANDLE(buffer))->size, 16, 3};
}

static VkResult fake_vkBindBufferMemory(VkDevice device, VkBuffer buffer, VkDeviceMemory memory,
                                        VkDeviceSize offset) {
  (void)device, (void)offset;
  VkResult result = call();
  if (result == VK_SUCCESS)
    ((object *)HANDLE(buffer))->memory = HANDLE(memory);
  return result;
}

static VkDeviceAddress fake_vkGetBufferDeviceAddress(VkDevice device,
                                                     const VkBufferDeviceAddressInfo *info) {
  (void)device;
  return (VkDeviceAddress)(uintptr_t)((object *)HANDLE(info->buffer))->memory->bytes;
}

/* ---- Pipelines ---------------------------------------------------------------------------------
 */

static VkResult fake_vkCreateShaderModule(VkDevice device, const VkShaderModuleCreateInfo *info,
                                          const VkAllocationCallbacks *allocator,
                                          VkShaderModule *out_module) {
  (void)info, (void)allocator;
  return make(MODULE, device, out_module);
}

static void fake_vkDestroyShaderModule(VkDevice device, VkShaderModule module,
                                       const VkAllocationCallbacks *allocator) {
  (void)device, (void)allocator;
  destroy(HANDLE(module), MODULE);
}

static VkResult fake_vkCreatePipelineLayout(VkDevice device, const VkPipelineLayoutCreateInfo *info,
                                            const VkAllocationCallbacks *allocator,
                                            VkPipelineLayout *out_layout) {
  (void)info, (void)allocator;
  return make(LAYOUT, device, out_layout);
}

static void fake_vkDestroyPipelineLayout(VkDevice device, VkPipelineLayout layout,
                                         const VkAllocationCallbacks *allocator) {
  (void)device, (void)allocator;
  destroy(HANDLE(layout), LAYOUT);
}

static VkResult fake_vkCreatePipelineCache(VkDevice device, const VkPipelineCacheCreateInfo *info,
                                           const VkAllocationCallbacks *allocator,
                                           VkPipelineCache *out_cache) {
  (void)info, (void)allocator;
  return make(CACHE, device, out_cache);
}

static void fake_vkDestroyPipelineCache(VkDevice device, VkPipelineCache cache,
                                        const VkAllocationCallbacks *allocator) {
  (void)device, (void)allocator;
  destroy(HANDLE(cache), CACHE);
}

static VkResult fake_vkGetPipelineCacheData(VkDevice device, VkPipelineCache cache, size_t *size,
                                            void *data) {
  (void)device, (void)cache;
  if (data)
    memset(data, 1, *size);
  *size = CACHE_BYTES;
  return call();
}

static VkResult fake_vkCreateComputePipelines(VkDevice device, VkPipelineCache cache,
                                              uint32_t count,
                                              const VkComputePipelineCreateInfo *infos,
                                              const VkAllocationCallbacks *allocator,
                                              VkPipeline *out_pipelines) {
  (void)cache, (void)count, (void)allocator;
  const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo *width = infos->stage.pNext;
  if (width) {
    const uint32_t *constants = infos->stage.pSpecializationInfo->pData;
    if (width->sType !=
            VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO ||
        infos->stage.flags != VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT ||
        constants[0] % width->requiredSubgroupSize != 0 ||
        constants[0] >
            width->requiredSubgroupSize * fake.width_properties.maxComputeWorkgroupSubgroups)
      misuse("a pipeline whose subgroups cannot be as it asks");
    fake.n_of_width++;
    fake.width = width->requiredSubgroupSize;
  }
  return make(PIPELINE, device, out_pipelines);
}

static void fake_vkDestroyPipeline(VkDevice device, VkPipeline pipeline,
                                   const VkAllocationCallbacks *allocator) {
  (void)device, (void)allocator;
  destroy(HANDLE(pipeline), PIPELINE);
}

/* ---- Commands ----------------------------------------------------------------------------------
 */

static VkResult fake_vkCreateCommandPool(VkDevice device, const VkCommandPoolCreateInfo *info,
                                         const VkAllocationCallbacks *allocator,
                                         VkCommandPool *out_pool) {
  (void)info, (void)allocator;
  return make(POOL, device, out_pool);
}

static void fake_vkDestroyCommandPool(VkDevice device, VkCommandPool pool,
                                      const VkAllocationCallbacks *allocator) {
  (void)device, (void)allocator;
  for (object *o = objects, *next; o; o = next) {
    next = o->next;
    if (o->kind == COMMANDS && o->parent == HANDLE(pool))
      destroy(o, COMMANDS);
  }
  destroy(HANDLE(pool), POOL);
}

static VkResult fake_vkAllocateCommandBuffers(VkDevice device,
                                              const VkCommandBufferAllocateInfo *info,
                                              VkCommandBuffer *out_commands) {
  (void)device;
  VkResult result = make(COMMANDS, info->commandPool, out_commands);
  if (result == VK_SUCCESS && !(last_made()->copies = calloc(MAX_COPIES, sizeof(copy))))
    abort();
  return result;
}

static void fake_vkFreeCommandBuffers(VkDevice device, VkCommandPool pool, uint32_t count,
                                      const VkCommandBuffer *commands) {
  (void)device, (void)pool;
  for (uint32_t i = 0; i < count; i++)
    destroy(HANDLE(commands[i]), COMMANDS);
}

static VkResult fake_vkBeginCommandBuffer(VkCommandBuffer commands,
                                          const VkCommandBufferBeginInfo *info) {
  (void)info;
  ((object *)HANDLE(commands))->n_copies = 0;
  return call();
}

static VkResult fake_vkEndCommandBuffer(VkCommandBuffer commands) {
  (void)commands;
  return call();
}

static void fake_vkCmdBindPipeline(VkCommandBuffer commands, VkPipelineBindPoint point,
                                   VkPipeline pipeline) {
  (void)commands, (void)point;
  if (!lives(HANDLE(pipeline), PIPELINE))
    misuse("a pipeline is bound that is not there");
}

static void fake_vkCmdPushConstants(VkCommandBuffer commands, VkPipelineLayout layout,
                                    VkShaderStageFlags stages, uint32_t offset, uint32_t size,
                                    const void *values) {
  (void)commands, (void)layout, (void)stages, (void)offset, (void)values;
  if (size == 0 || size > 128 || size % 4 != 0)
    misuse("push constants of a size that not every driver has");
}

static void fake_vkCmdDispatch(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z) {
  (void)commands;
  if (!x || !y || !z || x > 65535 || y > 65535 || z > 65535)
    misuse("a grid that not every driver has");
}

static void fake_vkCmdPipelineBarrier(VkCommandBuffer commands, VkPipelineStageFlags from,
                                      VkPipelineStageFlags to, VkDependencyFlags flags, uint32_t n,
                                      const VkMemoryBarrier *barriers, uint32_t n_buffers,
                                      const VkBufferMemoryBarrier *buffers, uint32_t n_images,
                                      const VkImageMemoryBarrier *images) {
  (void)commands, (void)from, (void)to, (void)flags, (void)n, (void)barriers, (void)n_buffers,
      (void)buffers, (void)n_images, (void)images;
}

static void enqueue(VkCommandBuffer commands, copy given) {
  object *to = HANDLE(commands);
  if ((given.from && !lives(given.from, BUFFER)) || !lives(given.to, BUFFER))
    misuse("a copy of a buffer that is not there");
  else if ((given.from && given.from->parent != to->parent->parent) ||
           given.to->parent != to->parent->parent)
    misuse("a copy of a buffer of another device");
  else if (to->n_copies < MAX_COPIES)
    to->copies[to->n_copies++] = given;
}

static void fake_vkCmdCopyBuffer(VkCommandBuffer commands, VkBuffer source, VkBuffer target,
                                 uint32_t count, const VkBufferCopy *regions) {
  (void)count;
  enqueue(commands, (copy){HANDLE(source), HANDLE(target), regions[0], 0});
}

static void fake_vkCmdFillBuffer(VkCommandBuffer commands, VkBuffer target, VkDeviceSize offset,
                                 VkDeviceSize size, uint32_t data) {
  enqueue(commands, (copy){NULL, HANDLE(target), {0, offset, size}, (uint8_t)data});
}

/* ---- The timeline ------------------------------------------------------------------------------
 */

static VkResult fake_vkCreateSemaphore(VkDevice device, const VkSemaphoreCreateInfo *info,
                                       const VkAllocationCallbacks *allocator,
                                       VkSemaphore *out_semaphore) {
  (void)info, (void)allocator;
  VkResult result = make(SEMAPHORE, device, out_semaphore);
  if (result == VK_SUCCESS)
    last_made()->limit = UINT64_MAX;
  return result;
}

static void fake_vkDestroySemaphore(VkDevice device, VkSemaphore semaphore,
                                    const VkAllocationCallbacks *allocator) {
  (void)device, (void)allocator;
  destroy(HANDLE(semaphore), SEMAPHORE);
}

static void work(void) {
  clock_t end = clock() + CLOCKS_PER_SEC / 50;
  while (clock() < end)
    ;
}

/* What is done when somebody looks. */
static void settle(object *semaphore) {
  if (fake.waits_each == 0)
    semaphore->value =
        semaphore->submitted < semaphore->limit ? semaphore->submitted : semaphore->limit;
  else
    for (uint32_t i = 0; i < fake.n_timeouts / fake.waits_each && i < fake.n_submits; i++)
      if (submissions[i % MAX_SLOW].semaphore == semaphore)
        semaphore->value = submissions[i % MAX_SLOW].value;
}

static VkResult fake_vkWaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo *info,
                                      uint64_t timeout) {
  (void)device;
  object *semaphore = HANDLE(info->pSemaphores[0]);
  VkResult result = call();
  wait_failed = result != VK_SUCCESS;
  if (info->pValues[0] > semaphore->submitted)
    misuse("a wait that would not end");
  if (is_gone() || result != VK_SUCCESS)
    return is_gone() ? VK_ERROR_DEVICE_LOST : result;
  settle(semaphore);
  if (semaphore->value >= info->pValues[0])
    return VK_SUCCESS;
  if (timeout == UINT64_MAX)
    misuse("a wait without an end for what does not come");
  fake.n_timeouts++;
  if (fake.work_every && fake.n_timeouts % fake.work_every == 0)
    work();
  return VK_TIMEOUT;
}

static VkResult fake_vkGetSemaphoreCounterValue(VkDevice device, VkSemaphore semaphore,
                                                uint64_t *out_value) {
  (void)device;
  object *self = HANDLE(semaphore);
  VkResult result = call();
  is_lost = is_lost || (result != VK_SUCCESS && wait_failed);
  if (is_gone())
    return VK_ERROR_DEVICE_LOST;
  if (result == VK_SUCCESS)
    settle(self);
  *out_value = self->value;
  return result;
}

static void run(object *commands, object *semaphore, uint64_t value) {
  for (uint32_t i = 0; i < commands->n_copies; i++) {
    copy *c = &commands->copies[i];
    if ((c->from && !lives(c->from, BUFFER)) || !lives(c->to, BUFFER)) {
      misuse("a buffer is gone before its copy is submitted");
      continue;
    }
    uint8_t *to = c->to->memory->bytes + c->region.dstOffset;
    if (c->from)
      memcpy(to, c->from->memory->bytes + c->region.srcOffset, c->region.size);
    else
      memset(to, c->value, c->region.size);
    object *used[] = {c->from, c->to};
    for (int j = 0; j < 2; j++)
      if (used[j]) {
        used[j]->semaphore = semaphore;
        used[j]->value = value;
      }
  }
}

static VkResult fake_vkQueueSubmit(VkQueue queue, uint32_t count, const VkSubmitInfo *infos,
                                   VkFence fence) {
  (void)queue, (void)count, (void)fence;
  VkResult result = call();
  const VkTimelineSemaphoreSubmitInfo *values = infos->pNext;
  object *semaphore = HANDLE(infos->pSignalSemaphores[0]);
  if (is_gone() || result != VK_SUCCESS)
    return is_gone() ? VK_ERROR_DEVICE_LOST : result;
  fake.n_submits++;
  semaphore->limit = fake.n_submits == fake.hang_at ? semaphore->submitted : semaphore->limit;
  semaphore->submitted = values->pSignalSemaphoreValues[0];
  submissions[(fake.n_submits - 1) % MAX_SLOW].semaphore = semaphore;
  submissions[(fake.n_submits - 1) % MAX_SLOW].value = semaphore->submitted;
  for (uint32_t i = 0; i < infos->commandBufferCount; i++)
    run(HANDLE(infos->pCommandBuffers[i]), semaphore, semaphore->submitted);
  return VK_SUCCESS;
}

/* ---- The loader --------------------------------------------------------------------------------
 */

static PFN_vkVoidFunction fake_vkGetDeviceProcAddr(VkDevice device, const char *name);

static const struct {
  const char *name;
  PFN_vkVoidFunction function;
} functions[] = {
#define VULKAN_GLOBAL(name) {#name, (PFN_vkVoidFunction)fake_##name},
#define VULKAN_INSTANCE(name) {#name, (PFN_vkVoidFunction)fake_##name},
#define VULKAN_DEVICE(name) {#name, (PFN_vkVoidFunction)fake_##name},
#include "backends/vulkan/functions.def"
};

static PFN_vkVoidFunction find(const char *name) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (strcmp(name, functions[i].name) == 0)
      return fake.hidden && strcmp(name, fake.hidden) == 0 ? NULL : functions[i].function;
  return NULL;
}

static PFN_vkVoidFunction fake_vkGetDeviceProcAddr(VkDevice device, const char *name) {
  (void)device;
  return find(name);
}

EXPORT PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name);
EXPORT fake_vulkan *fake_vulkan_get(void);
EXPORT void fake_vulkan_reset(void);

PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name) {
  (void)instance;
  return find(name);
}

fake_vulkan *fake_vulkan_get(void) { return &fake; }

void fake_vulkan_reset(void) {
  is_lost = wait_failed = false;
  fake = (fake_vulkan){
      .n_devices = 1,
      .properties = {.apiVersion = VK_API_VERSION_1_3,
                     .deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU,
                     .deviceName = "Fake",
                     .limits = {.maxComputeSharedMemorySize = 49152,
                                .maxComputeWorkGroupInvocations = 1024,
                                .maxComputeWorkGroupSize = {1024, 1024, 64}}},
      .properties11 = {.subgroupSize = 32,
                       .subgroupSupportedStages = VK_SHADER_STAGE_COMPUTE_BIT,
                       .subgroupSupportedOperations = VK_SUBGROUP_FEATURE_BASIC_BIT |
                                                      VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                                      VK_SUBGROUP_FEATURE_SHUFFLE_BIT,
                       .maxMemoryAllocationSize = 1 << 30},
      .width_properties = {.minSubgroupSize = 32,
                           .maxSubgroupSize = 32,
                           .maxComputeWorkgroupSubgroups = 16,
                           .requiredSubgroupSizeStages = VK_SHADER_STAGE_COMPUTE_BIT},
      .width_features = {.subgroupSizeControl = VK_TRUE, .computeFullSubgroups = VK_TRUE},
      .sizes = {.maxBufferSize = 1 << 30},
      .properties12 = {.driverName = "fake", .driverInfo = "1"},
      .features = {.shaderInt64 = VK_TRUE},
      .features11 = {.storageBuffer16BitAccess = VK_TRUE},
      .features12 = {.storageBuffer8BitAccess = VK_TRUE,
                     .bufferDeviceAddress = VK_TRUE,
                     .timelineSemaphore = VK_TRUE,
                     .shaderFloat16 = VK_TRUE}};
}
