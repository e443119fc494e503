/* Queues: command buffers filled as work is enqueued, submitted when somebody waits or when enough
 * has gathered. Dispatches wait for those before only where they must. */
#include "backends/vulkan/queue.h"
#include <stdlib.h>
#include <string.h>

enum {
  SUBMIT_AFTER = 96, /* commands, so that the device starts before the host is done */
  LEAST_SCRATCH = 1 << 20
};

iso_device *vulkan_queue_device(const iso_queue *queue) { return queue->device; }

bool vulkan_is_synchronous(void) {
  const char *asked = getenv("ISOMER_VULKAN_SYNC");
  return asked && strcmp(asked, "1") == 0;
}

vulkan_deferred *vulkan_queue_deferred(iso_queue *queue) { return &queue->deferred; }

vulkan_converted *vulkan_queue_converted(iso_queue *queue) { return &queue->converted; }

iso_status vulkan_queue_staging(iso_queue *queue, uint64_t bytes, iso_buffer **out_buffer) {
  if (queue->staging && queue->staging->bytes < bytes) {
    vulkan_memory_table.free(queue->device, queue->staging);
    queue->staging = NULL;
  }
  if (!queue->staging)
    ISO_TRY(vulkan_memory_table.alloc(queue->device, ISO_MEMORY_STAGING, bytes, &queue->staging));
  *out_buffer = queue->staging;
  return ISO_OK;
}

uint64_t vulkan_queue_scratch(iso_queue *queue, uint64_t bytes) {
  iso_buffer *last = queue->n_scratch ? queue->scratch[queue->n_scratch - 1] : NULL;
  if (last && last->bytes >= bytes)
    return last->address;
  uint64_t wanted = last ? 2 * last->bytes : LEAST_SCRATCH;
  wanted = wanted > bytes ? wanted : bytes;
  if (queue->n_scratch == VULKAN_SCRATCH ||
      vulkan_memory_table.alloc(queue->device, ISO_MEMORY_DEVICE, wanted,
                                &queue->scratch[queue->n_scratch]) != ISO_OK)
    return 0;
  return queue->scratch[queue->n_scratch++]->address;
}

uint64_t vulkan_queue_arrivals(iso_queue *queue) {
  return queue->arrivals ? queue->arrivals->address : 0;
}

/* ---- Command buffers ------------------------------------------------------------------------ */

static iso_status begin(iso_queue *queue, VkCommandBuffer commands, VkCommandBufferUsageFlags use) {
  VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                   .flags = use};
  VULKAN_TRY(queue->device->api.vkBeginCommandBuffer(commands, &info), "a command buffer");
  vulkan_barrier_for_all(&queue->device->api, commands);
  queue->hazards = (vulkan_hazards){0};
  queue->span = (vulkan_span){0};
  return ISO_OK;
}

static VkResult end(iso_queue *queue, VkCommandBuffer commands) {
  vulkan_barrier_for_host(&queue->device->api, commands);
  return queue->device->api.vkEndCommandBuffer(commands);
}

static iso_status wait_for(iso_queue *queue, uint64_t value) {
  bool reached;
  return vulkan_timeline_wait(queue->device, &queue->timeline, value, UINT64_MAX, &reached);
}

iso_status vulkan_queue_commands(iso_queue *queue, VkCommandBuffer *out_commands) {
  ISO_TRY(vulkan_flush_deferred(queue));
  ISO_TRY(vulkan_timeline_check(&queue->timeline));
  if (queue->recording) {
    *out_commands = queue->recording->commands;
    return ISO_OK;
  }
  vulkan_slot *current = &queue->slots[queue->slot];
  if (!queue->is_open) {
    ISO_TRY(wait_for(queue, current->value));
    ISO_TRY(begin(queue, current->commands, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT));
    queue->is_open = true;
  }
  *out_commands = current->commands;
  return ISO_OK;
}

void vulkan_queue_order(iso_queue *queue, VkCommandBuffer commands, const vulkan_access *accesses,
                        uint32_t n, bool is_transfer) {
  const vulkan_converted *converted = &queue->converted;
  for (uint32_t i = 0; i < n; i++) /* what was converted is written again */
    if (accesses[i].writes && accesses[i].address < converted->end &&
        converted->begin < accesses[i].address + accesses[i].bytes)
      queue->converted = (vulkan_converted){0};
  vulkan_hazards_order(&queue->hazards, &queue->device->api, commands, accesses, n, is_transfer);
}

static iso_status submit(iso_queue *queue, const VkCommandBuffer *commands, const vulkan_span *span,
                         const iso_queue *other, uint64_t other_value) {
  iso_status status = vulkan_timeline_submit(queue->device, &queue->timeline, commands, span,
                                             other ? &other->timeline : NULL, other_value);
  if (status != ISO_OK) /* what had gathered is lost */
    queue->converted = (vulkan_converted){0};
  return status;
}

/* Submits what has gathered. */
static iso_status flush(iso_queue *queue) {
  ISO_TRY(vulkan_flush_deferred(queue));
  if (!queue->is_open)
    return ISO_OK;
  vulkan_slot *current = &queue->slots[queue->slot];
  queue->is_open = false;
  VkResult result = end(queue, current->commands);
  if (result != VK_SUCCESS) {
    queue->converted = (vulkan_converted){0};
    return vulkan_timeline_refuse(queue->device, &queue->timeline, result, &queue->span);
  }
  ISO_TRY(submit(queue, &current->commands, &queue->span, NULL, 0));
  current->value = queue->timeline.submitted;
  queue->slot = (queue->slot + 1) % VULKAN_SLOTS;
  return ISO_OK;
}

iso_status vulkan_queue_added(iso_queue *queue, const char *name) {
  vulkan_span_add(&queue->span, name);
  if (queue->recording || (queue->span.n < SUBMIT_AFTER && !queue->is_synchronous))
    return ISO_OK;
  ISO_TRY(flush(queue));
  return queue->is_synchronous ? wait_for(queue, queue->timeline.submitted) : ISO_OK;
}

iso_status vulkan_enqueue(iso_queue *queue, const vulkan_dispatch *dispatch) {
  const vulkan_api *api = &queue->device->api;
  VkPipeline pipeline;
  VkCommandBuffer commands;
  ISO_TRY(vulkan_pipeline_get(queue->device, dispatch->shader, dispatch->constants,
                              dispatch->n_constants, &pipeline));
  ISO_TRY(vulkan_queue_commands(queue, &commands));
  vulkan_queue_order(queue, commands, dispatch->accesses, dispatch->n_accesses, false);
  api->vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  api->vkCmdPushConstants(commands, queue->device->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                          dispatch->push_bytes, dispatch->push);
  api->vkCmdDispatch(commands, dispatch->groups[0], dispatch->groups[1], dispatch->groups[2]);
  return vulkan_queue_added(queue, vulkan_shader_name(dispatch->shader));
}

/* ---- Timeline ------------------------------------------------------------------------------- */

static const vulkan_span NOTHING;

static iso_status queue_signal(iso_queue *queue, uint64_t *out_value) {
  ISO_TRY(vulkan_timeline_check(&queue->timeline));
  ISO_TRY(vulkan_flush_deferred(queue));
  ISO_TRY(flush(queue));
  /* Values grow; else the last submission stands for all. */
  if (queue->timeline.submitted == queue->signalled)
    ISO_TRY(submit(queue, NULL, &NOTHING, NULL, 0));
  queue->signalled = queue->timeline.submitted;
  queue->converted = (vulkan_converted){0};
  *out_value = queue->signalled;
  return ISO_OK;
}

static iso_status check_value(const iso_queue *queue, uint64_t value) {
  ISO_TRY(vulkan_timeline_check(&queue->timeline));
  return value <= queue->timeline.submitted
             ? ISO_OK
             : vulkan_fail(ISO_ERROR_INVALID_ARGUMENT,
                           "value %llu was never signalled; the latest is %llu",
                           (unsigned long long)value, (unsigned long long)queue->signalled);
}

static iso_status queue_host_wait(iso_queue *queue, uint64_t value, uint64_t timeout_us) {
  bool reached;
  ISO_TRY(check_value(queue, value));
  ISO_TRY(vulkan_timeline_wait(queue->device, &queue->timeline, value, timeout_us, &reached));
  return reached ? ISO_OK
                 : vulkan_fail(ISO_ERROR_LIMIT, "the device is not done after %llu us",
                               (unsigned long long)timeout_us);
}

/* Within one device; others have semaphores of their own, and the core waits on the host. */
static iso_status queue_wait(iso_queue *queue, iso_queue *other, uint64_t value) {
  ISO_TRY(check_value(other, value));
  ISO_TRY(flush(queue));
  if (other->device != queue->device)
    return queue_host_wait(other, value, UINT64_MAX);
  return submit(queue, NULL, &NOTHING, other, value);
}

/* ---- Recordings ------------------------------------------------------------------------------ */

static iso_status allocate_commands(iso_queue *queue, VkCommandBuffer *out_commands) {
  VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                      .commandPool = queue->pool,
                                      .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                      .commandBufferCount = 1};
  VULKAN_MAKE(
      *out_commands,
      queue->device->api.vkAllocateCommandBuffers(queue->device->handle, &info, out_commands),
      "a command buffer");
  return ISO_OK;
}

static void recording_destroy(iso_queue *queue, void *given) {
  vulkan_recording *self = given;
  if (!self)
    return;
  (void)wait_for(queue, queue->timeline.submitted); /* it may still run */
  if (self->commands && !queue->device->is_hung)
    queue->device->api.vkFreeCommandBuffers(queue->device->handle, queue->pool, 1, &self->commands);
  free(self);
}

static iso_status record_begin(iso_queue *queue) {
  if (queue->recording)
    return vulkan_fail(ISO_ERROR_INVALID_ARGUMENT, "the queue is being recorded already");
  ISO_TRY(flush(queue));
  vulkan_recording *self = calloc(1, sizeof *self);
  if (!self)
    return vulkan_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a recording");
  iso_status status = allocate_commands(queue, &self->commands);
  if (status == ISO_OK)
    status = begin(queue, self->commands, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);
  if (status != ISO_OK) {
    recording_destroy(queue, self);
    return status;
  }
  queue->recording = self;
  queue->converted = (vulkan_converted){0};
  return ISO_OK;
}

static iso_status record_end(iso_queue *queue, void **out_recording) {
  vulkan_recording *self = queue->recording;
  if (!self)
    return vulkan_fail(ISO_ERROR_INVALID_ARGUMENT, "the queue is not being recorded");
  iso_status status = vulkan_flush_deferred(queue);
  queue->recording = NULL;
  queue->converted = (vulkan_converted){0};
  VkResult result = end(queue, self->commands);
  if (status == ISO_OK && result != VK_SUCCESS)
    status = vulkan_error(result, "a recording");
  if (status != ISO_OK) {
    recording_destroy(queue, self);
    return status;
  }
  self->span = queue->span;
  *out_recording = self;
  return ISO_OK;
}

static iso_status replay(iso_queue *queue, void *given) {
  const vulkan_recording *self = given;
  ISO_TRY(vulkan_timeline_check(&queue->timeline));
  ISO_TRY(flush(queue));
  queue->converted = (vulkan_converted){0};
  return submit(queue, &self->commands, &self->span, NULL, 0);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void queue_destroy(iso_queue *queue) {
  if (!queue)
    return;
  const vulkan_api *api = &queue->device->api;
  if (queue->timeline.semaphore) {
    (void)flush(queue);
    (void)wait_for(queue, queue->timeline.submitted);
  }
  if (queue->recording)
    recording_destroy(queue, queue->recording);
  if (queue->staging)
    vulkan_memory_table.free(queue->device, queue->staging);
  for (uint32_t i = 0; i < queue->n_scratch; i++)
    vulkan_memory_table.free(queue->device, queue->scratch[i]);
  if (queue->arrivals)
    vulkan_memory_table.free(queue->device, queue->arrivals);
  if (!queue->device->is_hung)
    api->vkDestroyCommandPool(queue->device->handle, queue->pool, NULL);
  vulkan_timeline_destroy(queue->device, &queue->timeline);
  free(queue);
}

static iso_status build(iso_queue *queue) {
  iso_device *device = queue->device;
  VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                  .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                  .queueFamilyIndex = device->facts.queue_family};
  VULKAN_MAKE(queue->pool,
              device->api.vkCreateCommandPool(device->handle, &pool, NULL, &queue->pool),
              "a command pool");
  ISO_TRY(vulkan_timeline_create(device, &queue->timeline));
  for (uint32_t i = 0; i < VULKAN_SLOTS; i++)
    ISO_TRY(allocate_commands(queue, &queue->slots[i].commands));
  uint64_t counters = VULKAN_ARRIVALS * sizeof(uint32_t), bytes = counters + VULKAN_PARTS_BYTES;
  if (queue->deferred.is_off || bytes > device->facts.largest_allocation_bytes)
    return ISO_OK;
  ISO_TRY(vulkan_memory_table.alloc(device, ISO_MEMORY_DEVICE, bytes, &queue->arrivals));
  return vulkan_queue_fill(queue, queue->arrivals, 0, counters, 0);
}

static iso_status queue_create(iso_device *device, iso_queue **out_queue) {
  iso_queue *queue = calloc(1, sizeof *queue);
  if (!queue)
    return vulkan_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a queue");
  queue->device = device;
  queue->is_synchronous = vulkan_is_synchronous();
  const char *fusion = getenv("ISOMER_FUSION");
  queue->deferred.is_off = fusion && strcmp(fusion, "0") == 0;
  iso_status status = build(queue);
  if (status != ISO_OK) {
    queue_destroy(queue);
    return status;
  }
  *out_queue = queue;
  return ISO_OK;
}

const iso_queue_table vulkan_queue_table = {.size = sizeof vulkan_queue_table,
                                            .create = queue_create,
                                            .destroy = queue_destroy,
                                            .copy = vulkan_queue_copy,
                                            .fill = vulkan_queue_fill,
                                            .signal = queue_signal,
                                            .host_wait = queue_host_wait,
                                            .wait = queue_wait,
                                            .record_begin = record_begin,
                                            .record_end = record_end,
                                            .replay = replay,
                                            .recording_destroy = recording_destroy};
