/* Inside of a queue: what queue.c and transfer.c share. */
#ifndef ISOMER_VULKAN_QUEUE_H
#define ISOMER_VULKAN_QUEUE_H

#include "backends/vulkan/fusion.h"
#include "backends/vulkan/halves.h"
#include "backends/vulkan/hazards.h"
#include "backends/vulkan/timeline.h"

enum {
  VULKAN_SLOTS = 8,   /* command buffers in turn */
  VULKAN_SCRATCH = 32 /* each at least twice as large as the one before */
};

typedef struct vulkan_slot {
  VkCommandBuffer commands;
  uint64_t value; /* the timeline when its last submission is done */
} vulkan_slot;

/* A command buffer of its own. */
typedef struct vulkan_recording {
  VkCommandBuffer commands;
  vulkan_span span;
} vulkan_recording;

struct iso_queue {
  iso_device *device;
  VkCommandPool pool;
  vulkan_timeline timeline;
  uint64_t signalled; /* the last value handed out by signal() */
  vulkan_slot slots[VULKAN_SLOTS];
  uint32_t slot;               /* the one in use */
  bool is_open;                /* it is being filled */
  vulkan_span span;            /* what is in it */
  bool is_synchronous;         /* vulkan_is_synchronous() */
  vulkan_recording *recording; /* non-NULL between record_begin and record_end */
  vulkan_hazards hazards;
  iso_buffer *staging;
  iso_buffer *scratch[VULKAN_SCRATCH]; /* recordings may still use all of them */
  uint32_t n_scratch;
  iso_buffer *arrivals;
  vulkan_deferred deferred;
  vulkan_converted converted;
};

/* The command buffer that work goes to now, behind what is held back. */
iso_status vulkan_queue_commands(iso_queue *queue, VkCommandBuffer *out_commands);
/* Before a command is added to it: the barrier it needs. */
void vulkan_queue_order(iso_queue *queue, VkCommandBuffer commands, const vulkan_access *accesses,
                        uint32_t n, bool is_transfer);
/* After: what it was, by a static name. */
iso_status vulkan_queue_added(iso_queue *queue, const char *name);

/* transfer.c */
iso_status vulkan_queue_copy(iso_queue *queue, iso_buffer *target, uint64_t target_offset,
                             iso_buffer *source, uint64_t source_offset, uint64_t bytes);
iso_status vulkan_queue_fill(iso_queue *queue, iso_buffer *target, uint64_t offset, uint64_t bytes,
                             uint8_t value);

#endif
