/* A queue's timeline: submissions in order, waits that have an end, and faults that name the work
 * in which they happened. */
#ifndef ISOMER_VULKAN_TIMELINE_H
#define ISOMER_VULKAN_TIMELINE_H

#include "backends/vulkan/vulkan.h"

/* A device that shows no progress for so long is given up. Drivers that watch their device end a
 * command after 2 to 60 s and report the device lost: this is for those that do not. */
enum { VULKAN_HANG_SECONDS = 300 };

enum { VULKAN_SPANS = 16, VULKAN_FAULT_BYTES = 384 };

/* The commands of a submission, by static names of what they run; `n` 0: none. */
typedef struct vulkan_span {
  const char *first, *last;
  uint32_t n;
} vulkan_span;

/* All zero at first. */
typedef struct vulkan_timeline {
  struct vulkan_timeline *next; /* of the device, under its lock */
  VkSemaphore semaphore;
  uint64_t submitted, reached;     /* values: of the last submission, and seen to be done */
  vulkan_span spans[VULKAN_SPANS]; /* of the last submissions, by value */
  char fault[VULKAN_FAULT_BYTES];  /* "": none; else whatever is asked fails with it */
} vulkan_timeline;

void vulkan_span_add(vulkan_span *span, const char *name);

iso_status vulkan_timeline_create(iso_device *device, vulkan_timeline *timeline);
/* All that was submitted is done, or the device is given up. */
void vulkan_timeline_destroy(iso_device *device, vulkan_timeline *timeline);
/* The fault of a poisoned timeline. */
iso_status vulkan_timeline_check(const vulkan_timeline *timeline);
/* Submits up to one command buffer behind an optional wait for another timeline of the device;
 * fails as refuse() does. */
iso_status vulkan_timeline_submit(iso_device *device, vulkan_timeline *timeline,
                                  const VkCommandBuffer *commands, const vulkan_span *span,
                                  const vulkan_timeline *other, uint64_t other_value);
/* Work that is not submitted because of `result`: waits for what was submitted before, since
 * whoever is told has no value to wait for before he frees what that uses, and returns the failure.
 */
iso_status vulkan_timeline_refuse(iso_device *device, vulkan_timeline *timeline, VkResult result,
                                  const vulkan_span *span);
/* Waits for a value that was submitted. `*out_reached` is false when the time is over. A device
 * that hangs is given up: the timeline is poisoned, and iso_device.is_hung set. */
iso_status vulkan_timeline_wait(iso_device *device, vulkan_timeline *timeline, uint64_t value,
                                uint64_t timeout_us, bool *out_reached);

#endif
