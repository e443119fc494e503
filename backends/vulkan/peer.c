/* Copies from a device to another: through the host, since buffers of one VkDevice mean nothing to
 * another. */
#include "backends/vulkan/peer.h"
#include <string.h>

enum { PIECE_BYTES = 4 << 20 };

static iso_status finish(iso_queue *queue) {
  uint64_t value;
  ISO_TRY(vulkan_queue_table.signal(queue, &value));
  return vulkan_queue_table.host_wait(queue, value, UINT64_MAX);
}

/* One piece: to the source's staging buffer, to the target's, to the target. */
static iso_status copy_piece(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                             iso_queue *peer, iso_buffer *source, uint64_t source_offset,
                             uint64_t bytes) {
  iso_buffer *from, *to;
  ISO_TRY(vulkan_queue_staging(peer, PIECE_BYTES, &from));
  ISO_TRY(vulkan_queue_staging(queue, PIECE_BYTES, &to));
  ISO_TRY(vulkan_queue_table.copy(peer, from, 0, source, source_offset, bytes));
  ISO_TRY(finish(peer));
  memcpy(to->mapped, from->mapped, (size_t)bytes);
  ISO_TRY(vulkan_queue_table.copy(queue, target, target_offset, to, 0, bytes));
  return finish(queue);
}

iso_status vulkan_copy_from_peer(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                                 iso_buffer *source, uint64_t source_offset, uint64_t bytes) {
  iso_device *device = source->device;
  pthread_mutex_lock(&device->peer_lock);
  iso_status status = ISO_OK;
  if (!device->peer_queue)
    status = vulkan_queue_table.create(device, &device->peer_queue);
  for (uint64_t done = 0; done < bytes && status == ISO_OK; done += PIECE_BYTES)
    status =
        copy_piece(queue, target, target_offset + done, device->peer_queue, source,
                   source_offset + done, bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES);
  pthread_mutex_unlock(&device->peer_lock);
  return status;
}
