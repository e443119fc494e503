/* Copies and fills. */
#include "backends/vulkan/queue.h"

enum { SHORT_COPY = 1 << 15 /* bytes that a shader copies */ };

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

iso_status vulkan_queue_copy(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
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
  ISO_TRY(vulkan_queue_commands(queue, &commands));
  vulkan_access accesses[] = {{to, bytes, true}, {from, bytes, false}};
  vulkan_queue_order(queue, commands, accesses, 2, true);
  VkBufferCopy region = {source_offset, target_offset, bytes};
  queue->device->api.vkCmdCopyBuffer(commands, source->handle, target->handle, 1, &region);
  return vulkan_queue_added(queue, "copy");
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

iso_status vulkan_queue_fill(iso_queue *queue, iso_buffer *target, uint64_t offset, uint64_t bytes,
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
  ISO_TRY(vulkan_queue_commands(queue, &commands));
  vulkan_access access = {target->address + offset + head, words, true};
  vulkan_queue_order(queue, commands, &access, 1, true);
  queue->device->api.vkCmdFillBuffer(commands, target->handle, offset + head, words,
                                     value * 0x01010101u);
  return vulkan_queue_added(queue, "fill");
}
