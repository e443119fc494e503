/* Copies from a device to another. */
#ifndef ISOMER_VULKAN_PEER_H
#define ISOMER_VULKAN_PEER_H

#include "backends/vulkan/vulkan.h"

/* Copies bytes, within both buffers, of which the source is of another device than the queue: what
 * its queue has enqueued is done already. Returns when the bytes have arrived. */
iso_status vulkan_copy_from_peer(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                                 iso_buffer *source, uint64_t source_offset, uint64_t bytes);

#endif
