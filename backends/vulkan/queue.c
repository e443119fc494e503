/* Queues: command buffers filled as work is enqueued, submitted when somebody waits or when enough
 * has gathered, and a timeline semaphore.
 *
 * Dispatches wait for those before only where they must: the queue remembers what has been read
 * and written since the last barrier, and puts the next barrier before the first dispatch that
 * overlaps. */
#include "backends/vulkan/fusion.h"
#include "backends/vulkan/halves.h"
#include "backends/vulkan/vulkan.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  N_SLOTS = 8,       /* command buffers in turn */
  N_SCRATCH = 32,    /* each at least twice as large as the one before */
  SUBMIT_AFTER = 96, /* commands, so that the device starts before the host is done */
  MAX_PENDING = 128, /* accesses remembered */
  LEAST_SCRATCH = 1 << 20,
  SHORT_COPY = 1 << 15, /* bytes that a shader copies */
  SPIN_US = 10000
};

typedef struct slot {
  VkCommandBuffer commands;
  uint64_t value; /* the timeline when its last submission is done */
} slot;

/* A recording: a command buffer of its own. */
typedef struct recording {
  VkCommandBuffer commands;
} recording;

struct iso_queue {
  iso_device *device;
  VkCommandPool pool;
  VkSemaphore timeline;
  uint64_t value, signalled; /* the last ones submitted, and handed out by signal() */
  slot slots[N_SLOTS];
  uint32_t slot; /* the one in use */
  bool is_open;  /* it is being filled */
  uint32_t n_commands;
  recording *recording; /* non-NULL between record_begin and record_end */
  vulkan_access pending[MAX_PENDING];
  uint32_t n_pending;
  bool has_transfers; /* among the pending: copies or fills */
  iso_buffer *staging;
  iso_buffer *scratch[N_SCRATCH]; /* recordings may still use all of them */
  uint32_t n_scratch;
  vulkan_deferred deferred;
  vulkan_converted converted;
  iso_status fault; /* of the device: poisons the timeline */
};

iso_device *vulkan_queue_device(const iso_queue *queue) { return queue->device; }

vulkan_deferred *vulkan_queue_deferred(iso_queue *queue) { return &queue->deferred; }

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

vulkan_converted *vulkan_queue_converted(iso_queue *queue) { return &queue->converted; }

uint64_t vulkan_queue_scratch(iso_queue *queue, uint64_t bytes) {
  iso_buffer *last = queue->n_scratch ? queue->scratch[queue->n_scratch - 1] : NULL;
  if (last && last->bytes >= bytes)
    return last->address;
  uint64_t wanted = last ? 2 * last->bytes : LEAST_SCRATCH;
  wanted = wanted > bytes ? wanted : bytes;
  if (queue->n_scratch == N_SCRATCH ||
      vulkan_memory_table.alloc(queue->device, ISO_MEMORY_DEVICE, wanted,
                                &queue->scratch[queue->n_scratch]) != ISO_OK)
    return 0;
  return queue->scratch[queue->n_scratch++]->address;
}

/* Forgets what was converted where it is written again. */
static void note_writes(iso_queue *queue, const vulkan_access *accesses, uint32_t n) {
  const vulkan_converted *converted = &queue->converted;
  for (uint32_t i = 0; i < n; i++)
    if (accesses[i].writes && accesses[i].address < converted->end &&
        converted->begin < accesses[i].address + accesses[i].bytes)
      queue->converted = (vulkan_converted){0};
}

/* ---- Barriers ------------------------------------------------------------------------------- */

static void barrier(iso_queue *queue, VkCommandBuffer commands, VkPipelineStageFlags from,
                    VkPipelineStageFlags to, VkAccessFlags writes, VkAccessFlags accesses) {
  VkMemoryBarrier memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                            .srcAccessMask = writes,
                            .dstAccessMask = accesses};
  queue->device->api.vkCmdPipelineBarrier(commands, from, to, 0, 1, &memory, 0, NULL, 0, NULL);
}

static const VkPipelineStageFlags WORK =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;

static bool overlaps(const vulkan_access *a, const vulkan_access *b) {
  return (a->writes || b->writes) && a->address < b->address + b->bytes &&
         b->address < a->address + a->bytes;
}

/* Puts a barrier where one of the accesses needs what is still under way. One between dispatches
 * alone costs far less than one that copies take part in. */
static void order(iso_queue *queue, VkCommandBuffer commands, const vulkan_access *accesses,
                  uint32_t n, bool is_transfer) {
  note_writes(queue, accesses, n);
  bool must_wait = queue->n_pending + n > MAX_PENDING;
  for (uint32_t i = 0; i < n && !must_wait; i++)
    for (uint32_t j = 0; j < queue->n_pending && !must_wait; j++)
      must_wait = overlaps(&accesses[i], &queue->pending[j]);
  if (must_wait && (is_transfer || queue->has_transfers))
    barrier(queue, commands, WORK, WORK, VK_ACCESS_MEMORY_WRITE_BIT,
            VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
  else if (must_wait)
    barrier(queue, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
  if (must_wait) {
    queue->n_pending = 0;
    queue->has_transfers = false;
  }
  for (uint32_t i = 0; i < n; i++)
    queue->pending[queue->n_pending++] = accesses[i];
  queue->has_transfers |= is_transfer;
}

/* ---- Command buffers ------------------------------------------------------------------------ */

static iso_status poison(iso_queue *queue, iso_status status) {
  if (status == ISO_ERROR_DEVICE)
    queue->fault = status;
  return status;
}

static iso_status check_fault(const iso_queue *queue) {
  return queue->fault == ISO_OK
             ? ISO_OK
             : vulkan_fail(queue->fault, "the device failed earlier and must be opened anew");
}

static uint64_t now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* Looks for the value for as long as a step may take, since to be woken costs a good part of one. A
 * software device needs the cores itself. */
static bool spin_for(const iso_queue *queue, uint64_t value, uint64_t timeout_us) {
  uint64_t most = timeout_us < SPIN_US ? timeout_us : SPIN_US, start = now_us(), reached = 0;
  if (queue->device->facts.info.kind == ISO_DEVICE_CPU)
    return false;
  do
    if (queue->device->api.vkGetSemaphoreCounterValue(queue->device->handle, queue->timeline,
                                                      &reached) != VK_SUCCESS)
      return false; /* the wait that follows says why */
  while (reached < value && now_us() - start < most);
  return reached >= value;
}

static VkResult wait_for_all(iso_device *device) {
  pthread_mutex_lock(&device->lock);
  VkResult result = device->api.vkDeviceWaitIdle(device->handle);
  pthread_mutex_unlock(&device->lock);
  return result;
}

static iso_status wait_for(iso_queue *queue, uint64_t value, uint64_t timeout_ns,
                           VkResult *out_result) {
  *out_result = VK_SUCCESS;
  if (spin_for(queue, value, timeout_ns / 1000))
    return ISO_OK;
  VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                              .semaphoreCount = 1,
                              .pSemaphores = &queue->timeline,
                              .pValues = &value};
  *out_result = queue->device->api.vkWaitSemaphores(queue->device->handle, &wait, timeout_ns);
  /* Whoever waits goes on to free what the device may still use: want of memory is no excuse. */
  if (*out_result < 0 && *out_result != VK_ERROR_DEVICE_LOST)
    *out_result = wait_for_all(queue->device);
  if (*out_result == VK_TIMEOUT)
    return ISO_OK;
  return *out_result == VK_SUCCESS
             ? ISO_OK
             : poison(queue, vulkan_error(*out_result, "waiting for a queue"));
}

static iso_status begin(iso_queue *queue, VkCommandBuffer commands, VkCommandBufferUsageFlags use) {
  VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                   .flags = use};
  VULKAN_TRY(queue->device->api.vkBeginCommandBuffer(commands, &info), "a command buffer");
  barrier(queue, commands, WORK, WORK, VK_ACCESS_MEMORY_WRITE_BIT,
          VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
  queue->n_pending = 0;
  queue->has_transfers = false;
  queue->n_commands = 0;
  return ISO_OK;
}

static iso_status end(iso_queue *queue, VkCommandBuffer commands) {
  barrier(queue, commands, WORK, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_MEMORY_WRITE_BIT,
          VK_ACCESS_HOST_READ_BIT);
  queue->n_pending = 0;
  VULKAN_TRY(queue->device->api.vkEndCommandBuffer(commands), "a command buffer");
  return ISO_OK;
}

/* The command buffer that work goes to now. */
static iso_status open_commands(iso_queue *queue, VkCommandBuffer *out_commands) {
  ISO_TRY(vulkan_flush_deferred(queue));
  ISO_TRY(check_fault(queue));
  if (queue->recording) {
    *out_commands = queue->recording->commands;
    return ISO_OK;
  }
  slot *current = &queue->slots[queue->slot];
  if (!queue->is_open) {
    VkResult result;
    ISO_TRY(wait_for(queue, current->value, UINT64_MAX, &result));
    ISO_TRY(begin(queue, current->commands, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT));
    queue->is_open = true;
  }
  *out_commands = current->commands;
  return ISO_OK;
}

/* What had gathered is lost. Whoever is told so has no value to wait for before he frees what
 * earlier work uses: that ends here. */
static iso_status abandon(iso_queue *queue, iso_status status) {
  queue->converted = (vulkan_converted){0};
  (void)wait_for_all(queue->device);
  return poison(queue, status);
}

/* Submits up to one command buffer behind an optional wait for another queue. */
static iso_status submit(iso_queue *queue, const VkCommandBuffer *commands, const iso_queue *other,
                         uint64_t other_value) {
  iso_device *device = queue->device;
  uint64_t next = queue->value + 1;
  VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                          .waitSemaphoreValueCount = other ? 1 : 0,
                                          .pWaitSemaphoreValues = &other_value,
                                          .signalSemaphoreValueCount = 1,
                                          .pSignalSemaphoreValues = &next};
  VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                       .pNext = &values,
                       .waitSemaphoreCount = other ? 1 : 0,
                       .pWaitSemaphores = other ? &other->timeline : NULL,
                       .pWaitDstStageMask = &stage,
                       .commandBufferCount = commands ? 1 : 0,
                       .pCommandBuffers = commands,
                       .signalSemaphoreCount = 1,
                       .pSignalSemaphores = &queue->timeline};
  pthread_mutex_lock(&device->lock);
  VkResult result = device->api.vkQueueSubmit(device->queue, 1, &info, VK_NULL_HANDLE);
  pthread_mutex_unlock(&device->lock);
  if (result != VK_SUCCESS)
    return abandon(queue, vulkan_error(result, "submitting work"));
  queue->value = next;
  return ISO_OK;
}

/* Submits what has gathered. */
static iso_status flush(iso_queue *queue) {
  ISO_TRY(vulkan_flush_deferred(queue));
  if (!queue->is_open)
    return ISO_OK;
  slot *current = &queue->slots[queue->slot];
  queue->is_open = false;
  iso_status status = end(queue, current->commands);
  if (status != ISO_OK)
    return abandon(queue, status);
  ISO_TRY(submit(queue, &current->commands, NULL, 0));
  current->value = queue->value;
  queue->slot = (queue->slot + 1) % N_SLOTS;
  return ISO_OK;
}

static iso_status enqueued(iso_queue *queue) {
  return ++queue->n_commands >= SUBMIT_AFTER && !queue->recording ? flush(queue) : ISO_OK;
}

iso_status vulkan_enqueue(iso_queue *queue, const vulkan_dispatch *dispatch) {
  const vulkan_api *api = &queue->device->api;
  VkPipeline pipeline;
  VkCommandBuffer commands;
  ISO_TRY(vulkan_pipeline_get(queue->device, dispatch->shader, dispatch->constants,
                              dispatch->n_constants, &pipeline));
  ISO_TRY(open_commands(queue, &commands));
  order(queue, commands, dispatch->accesses, dispatch->n_accesses, false);
  api->vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  api->vkCmdPushConstants(commands, queue->device->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                          dispatch->push_bytes, dispatch->push);
  api->vkCmdDispatch(commands, dispatch->groups[0], dispatch->groups[1], dispatch->groups[2]);
  return enqueued(queue);
}

/* ---- Copies and fills ----------------------------------------------------------------------- */

static bool inside(const iso_buffer *buffer, uint64_t offset, uint64_t bytes) {
  return offset <= buffer->bytes && bytes <= buffer->bytes - offset;
}

/* A few words by a shader, where nothing else would have to wait for a copy. */
static iso_status copy_words(iso_queue *queue, uint64_t to, uint64_t from, uint64_t bytes) {
  enum { WORKGROUP = 64 };
  struct {
    uint64_t to, from;
    uint32_t n_words;
  } push = {to, from, (uint32_t)(bytes / 4)};
  vulkan_access accesses[] = {{to, bytes, true}, {from, bytes, false}};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_copy_words,
                              .constants = {WORKGROUP},
                              .n_constants = 1,
                              .push = &push,
                              .push_bytes = 20,
                              .accesses = accesses,
                              .n_accesses = 2};
  vulkan_split_groups(vulkan_ceil_div(push.n_words, WORKGROUP), dispatch.groups);
  return vulkan_enqueue(queue, &dispatch);
}

static iso_status queue_copy(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                             iso_buffer *source, uint64_t source_offset, uint64_t bytes) {
  if (!inside(target, target_offset, bytes) || !inside(source, source_offset, bytes))
    return vulkan_fail(ISO_ERROR_INVALID_ARGUMENT, "a copy of %llu bytes leaves its buffers",
                       (unsigned long long)bytes);
  if (target->device != queue->device || source->device != queue->device)
    return vulkan_fail(ISO_ERROR_INVALID_ARGUMENT, "a buffer of another device means nothing here");
  if (bytes == 0)
    return ISO_OK;
  uint64_t to = target->address + target_offset, from = source->address + source_offset;
  if (bytes <= SHORT_COPY && (to | from | bytes) % 4 == 0)
    return copy_words(queue, to, from, bytes);
  VkCommandBuffer commands;
  ISO_TRY(open_commands(queue, &commands));
  vulkan_access accesses[] = {{to, bytes, true}, {from, bytes, false}};
  order(queue, commands, accesses, 2, true);
  VkBufferCopy region = {source_offset, target_offset, bytes};
  queue->device->api.vkCmdCopyBuffer(commands, source->handle, target->handle, 1, &region);
  return enqueued(queue);
}

/* A few bytes by a shader: vkCmdFillBuffer writes whole words only. */
static iso_status fill_bytes(iso_queue *queue, uint64_t address, uint64_t bytes, uint8_t value) {
  struct {
    uint64_t address;
    uint32_t bytes, value;
  } push = {address, (uint32_t)bytes, value};
  vulkan_access access = {address, bytes, true};
  vulkan_dispatch dispatch = {.shader = VULKAN_SHADER_fill_bytes,
                              .constants = {8},
                              .n_constants = 1,
                              .groups = {1, 1, 1},
                              .push = &push,
                              .push_bytes = sizeof push,
                              .accesses = &access,
                              .n_accesses = 1};
  return bytes > 0 ? vulkan_enqueue(queue, &dispatch) : ISO_OK;
}

static iso_status queue_fill(iso_queue *queue, iso_buffer *target, uint64_t offset, uint64_t bytes,
                             uint8_t value) {
  if (!inside(target, offset, bytes))
    return vulkan_fail(ISO_ERROR_INVALID_ARGUMENT, "a fill of %llu bytes leaves its buffer",
                       (unsigned long long)bytes);
  uint64_t head = (4 - offset % 4) % 4;
  head = head < bytes ? head : bytes;
  uint64_t words = (bytes - head) / 4 * 4, tail = bytes - head - words;
  ISO_TRY(fill_bytes(queue, target->address + offset, head, value));
  ISO_TRY(fill_bytes(queue, target->address + offset + head + words, tail, value));
  if (words == 0)
    return ISO_OK;
  VkCommandBuffer commands;
  ISO_TRY(open_commands(queue, &commands));
  vulkan_access access = {target->address + offset + head, words, true};
  order(queue, commands, &access, 1, true);
  queue->device->api.vkCmdFillBuffer(commands, target->handle, offset + head, words,
                                     value * 0x01010101u);
  return enqueued(queue);
}

/* ---- Timeline ------------------------------------------------------------------------------- */

static iso_status queue_signal(iso_queue *queue, uint64_t *out_value) {
  ISO_TRY(check_fault(queue));
  ISO_TRY(vulkan_flush_deferred(queue));
  ISO_TRY(flush(queue));
  if (queue->value == queue->signalled) /* values grow; else the last submission stands for all */
    ISO_TRY(submit(queue, NULL, NULL, 0));
  queue->signalled = queue->value;
  queue->converted = (vulkan_converted){0};
  *out_value = queue->value;
  return ISO_OK;
}

static iso_status queue_host_wait(iso_queue *queue, uint64_t value, uint64_t timeout_us) {
  ISO_TRY(check_fault(queue));
  VkResult result;
  ISO_TRY(wait_for(queue, value, timeout_us < UINT64_MAX / 1000 ? timeout_us * 1000 : UINT64_MAX,
                   &result));
  return result == VK_TIMEOUT ? vulkan_fail(ISO_ERROR_LIMIT, "the device is not done after %llu us",
                                            (unsigned long long)timeout_us)
                              : ISO_OK;
}

/* Within one device; others have semaphores of their own, and the core waits on the host. */
static iso_status queue_wait(iso_queue *queue, iso_queue *other, uint64_t value) {
  ISO_TRY(flush(queue));
  if (other->device != queue->device)
    return queue_host_wait(other, value, UINT64_MAX);
  return submit(queue, NULL, other, value);
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
  recording *self = given;
  if (!self)
    return;
  VkResult result; /* it may still run */
  (void)wait_for(queue, queue->value, UINT64_MAX, &result);
  if (self->commands)
    queue->device->api.vkFreeCommandBuffers(queue->device->handle, queue->pool, 1, &self->commands);
  free(self);
}

static iso_status record_begin(iso_queue *queue) {
  if (queue->recording)
    return vulkan_fail(ISO_ERROR_INVALID_ARGUMENT, "the queue is being recorded already");
  ISO_TRY(flush(queue));
  recording *self = calloc(1, sizeof *self);
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
  recording *self = queue->recording;
  if (!self)
    return vulkan_fail(ISO_ERROR_INVALID_ARGUMENT, "the queue is not being recorded");
  iso_status status = vulkan_flush_deferred(queue);
  queue->recording = NULL;
  queue->converted = (vulkan_converted){0};
  if (status == ISO_OK)
    status = end(queue, self->commands);
  if (status != ISO_OK)
    recording_destroy(queue, self);
  else
    *out_recording = self;
  return status;
}

static iso_status replay(iso_queue *queue, void *given) {
  recording *self = given;
  ISO_TRY(check_fault(queue));
  ISO_TRY(flush(queue));
  queue->converted = (vulkan_converted){0};
  return submit(queue, &self->commands, NULL, 0);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void queue_destroy(iso_queue *queue) {
  if (!queue)
    return;
  const vulkan_api *api = &queue->device->api;
  if (queue->timeline) {
    (void)flush(queue);
    VkResult result;
    (void)wait_for(queue, queue->value, UINT64_MAX, &result);
  }
  if (queue->recording)
    recording_destroy(queue, queue->recording);
  if (queue->staging)
    vulkan_memory_table.free(queue->device, queue->staging);
  for (uint32_t i = 0; i < queue->n_scratch; i++)
    vulkan_memory_table.free(queue->device, queue->scratch[i]);
  api->vkDestroyCommandPool(queue->device->handle, queue->pool, NULL);
  api->vkDestroySemaphore(queue->device->handle, queue->timeline, NULL);
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
  VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                    .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                     .pNext = &type};
  VULKAN_MAKE(queue->timeline,
              device->api.vkCreateSemaphore(device->handle, &semaphore, NULL, &queue->timeline),
              "a timeline");
  for (uint32_t i = 0; i < N_SLOTS; i++)
    ISO_TRY(allocate_commands(queue, &queue->slots[i].commands));
  return ISO_OK;
}

static iso_status queue_create(iso_device *device, iso_queue **out_queue) {
  iso_queue *queue = calloc(1, sizeof *queue);
  if (!queue)
    return vulkan_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a queue");
  queue->device = device;
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
                                            .copy = queue_copy,
                                            .fill = queue_fill,
                                            .signal = queue_signal,
                                            .host_wait = queue_host_wait,
                                            .wait = queue_wait,
                                            .record_begin = record_begin,
                                            .record_end = record_end,
                                            .replay = replay,
                                            .recording_destroy = recording_destroy};
