#include "backends/vulkan/timeline.h"
#include <stdio.h>
#include <time.h>

enum {
  SPIN_US = 10000,
  SLICE_US = 1000000, /* a wait looks for progress so often */
  LOOK_US = 1000,
  /* Less processor time of this process in a slice is no software device at work. */
  LEAST_WORK_US = 10000,
  WHERE_BYTES = 200
};

/* ---- Faults ---------------------------------------------------------------------------------- */

void vulkan_span_add(vulkan_span *span, const char *name) {
  span->first = span->n == 0 ? name : span->first;
  span->last = name;
  span->n++;
}

/* The work of the submissions `from` to `to`, as far back as it is known. */
static vulkan_span work_of(const vulkan_timeline *timeline, uint64_t from, uint64_t to) {
  vulkan_span work = {0};
  if (timeline->submitted >= VULKAN_SPANS && from <= timeline->submitted - VULKAN_SPANS)
    from = timeline->submitted - VULKAN_SPANS + 1;
  for (uint64_t value = from; value <= to; value++) {
    const vulkan_span *span = &timeline->spans[value % VULKAN_SPANS];
    if (span->n == 0)
      continue;
    work.first = work.n == 0 ? span->first : work.first;
    work.last = span->last;
    work.n += span->n;
  }
  return work;
}

static void describe(const vulkan_span *work, char out[WHERE_BYTES]) {
  if (work->n == 0)
    out[0] = 0;
  else if (work->n == 1)
    snprintf(out, WHERE_BYTES, " in %s", work->first);
  else
    snprintf(out, WHERE_BYTES,
             " in one of %u commands from %s to %s (ISOMER_VULKAN_SYNC=1 tells which)", work->n,
             work->first, work->last);
}

iso_status vulkan_timeline_check(const vulkan_timeline *timeline) {
  return timeline->fault[0] ? vulkan_fail(ISO_ERROR_DEVICE, "%s", timeline->fault) : ISO_OK;
}

/* Of a call that failed while `work` was under way. What says nothing of the device, as want of
 * memory, fails this call alone. */
static iso_status fail(vulkan_timeline *timeline, VkResult result, const char *what,
                       const vulkan_span *work) {
  char text[VULKAN_ERROR_BYTES], where[WHERE_BYTES];
  iso_status status = vulkan_error_text(result, text);
  describe(work, where);
  if (status != ISO_ERROR_DEVICE)
    return vulkan_fail(status, "%s%s: %s", what, where, text);
  snprintf(timeline->fault, sizeof timeline->fault, "%s%s: %s; it must be opened anew", what, where,
           text);
  return vulkan_timeline_check(timeline);
}

/* A submission waits for those before, so the oldest that is not done is the one. */
static iso_status give_up(iso_device *device, vulkan_timeline *timeline) {
  char where[WHERE_BYTES];
  vulkan_span work = work_of(timeline, timeline->reached + 1, timeline->reached + 1);
  describe(&work, where);
  pthread_mutex_lock(&device->lock);
  bool is_alone = device->timelines == timeline && !timeline->next;
  pthread_mutex_unlock(&device->lock);
  device->is_hung = true;
  snprintf(timeline->fault, sizeof timeline->fault,
           "the device hangs%s%s: no progress for %d s; what it uses stays allocated, so end this "
           "process and look for the driver's messages in the system's log",
           where, is_alone ? "" : " or in another queue", (int)VULKAN_HANG_SECONDS);
  return vulkan_timeline_check(timeline);
}

/* ---- Waits ----------------------------------------------------------------------------------- */

static uint64_t clock_us(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

static VkResult look(const iso_device *device, const vulkan_timeline *timeline,
                     uint64_t *out_value) {
  return device->api.vkGetSemaphoreCounterValue(device->handle, timeline->semaphore, out_value);
}

/* Looks for the value for as long as a step may take, since to be woken costs a good part of one. A
 * software device needs the cores itself. */
static VkResult spin(const iso_device *device, const vulkan_timeline *timeline, uint64_t value,
                     uint64_t timeout_us) {
  uint64_t most = timeout_us < SPIN_US ? timeout_us : SPIN_US, start = clock_us(CLOCK_MONOTONIC),
           reached = 0;
  if (device->facts.info.kind == ISO_DEVICE_CPU)
    return VK_TIMEOUT;
  do {
    VkResult result = look(device, timeline, &reached);
    if (result != VK_SUCCESS || reached >= value)
      return result;
  } while (clock_us(CLOCK_MONOTONIC) - start < most);
  return VK_TIMEOUT;
}

/* Where the driver's wait fails for want of memory. */
static VkResult look_for(const iso_device *device, const vulkan_timeline *timeline, uint64_t value,
                         uint64_t timeout_us) {
  const struct timespec pause = {.tv_nsec = LOOK_US * 1000};
  uint64_t reached = 0, waited = 0;
  for (;;) {
    VkResult result = look(device, timeline, &reached);
    if (result != VK_SUCCESS || reached >= value)
      return result;
    if (waited >= timeout_us)
      return VK_TIMEOUT;
    nanosleep(&pause, NULL);
    waited += LOOK_US;
  }
}

static VkResult wait_slice(const iso_device *device, const vulkan_timeline *timeline,
                           uint64_t value, uint64_t timeout_us) {
  VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                              .semaphoreCount = 1,
                              .pSemaphores = &timeline->semaphore,
                              .pValues = &value};
  VkResult result = device->api.vkWaitSemaphores(device->handle, &wait, timeout_us * 1000);
  /* Whoever waits goes on to free what the device may still use: want of memory is no excuse. */
  return result < 0 && result != VK_ERROR_DEVICE_LOST
             ? look_for(device, timeline, value, timeout_us)
             : result;
}

/* Submissions done, over all queues of the device, which share its time. */
static uint64_t count_done(iso_device *device) {
  uint64_t sum = 0, value;
  pthread_mutex_lock(&device->lock);
  for (const vulkan_timeline *t = device->timelines; t; t = t->next)
    if (look(device, t, &value) == VK_SUCCESS)
      sum += value;
  pthread_mutex_unlock(&device->lock);
  return sum;
}

/* Waits in slices and adds up those without progress, so that a process that was stopped makes no
 * device hang. Progress is a submission done; a command of a software device may take minutes, but
 * it takes processor time of this process. */
static VkResult wait_in_slices(iso_device *device, const vulkan_timeline *timeline, uint64_t value,
                               uint64_t timeout_us, bool *out_hangs) {
  bool is_software = device->facts.info.kind == ISO_DEVICE_CPU;
  uint64_t done = 0, worked = is_software ? clock_us(CLOCK_PROCESS_CPUTIME_ID) : 0;
  for (uint64_t idle_us = 0; idle_us < VULKAN_HANG_SECONDS * UINT64_C(1000000);) {
    uint64_t slice = timeout_us < SLICE_US ? timeout_us : SLICE_US;
    VkResult result = wait_slice(device, timeline, value, slice);
    if (timeout_us < UINT64_MAX)
      timeout_us -= slice;
    if (result != VK_TIMEOUT || timeout_us == 0)
      return result;
    uint64_t done_now = count_done(device),
             worked_now = is_software ? clock_us(CLOCK_PROCESS_CPUTIME_ID) : 0;
    bool is_working = done_now != done || worked_now - worked >= LEAST_WORK_US;
    idle_us = is_working ? 0 : idle_us + slice;
    done = done_now;
    worked = worked_now;
  }
  *out_hangs = true;
  return VK_TIMEOUT;
}

iso_status vulkan_timeline_wait(iso_device *device, vulkan_timeline *timeline, uint64_t value,
                                uint64_t timeout_us, bool *out_reached) {
  *out_reached = true;
  ISO_TRY(vulkan_timeline_check(timeline));
  if (value <= timeline->reached)
    return ISO_OK;
  bool hangs = false;
  VkResult result = spin(device, timeline, value, timeout_us);
  if (result != VK_SUCCESS && result != VK_ERROR_DEVICE_LOST)
    result = wait_in_slices(device, timeline, value, timeout_us, &hangs);
  if (result == VK_SUCCESS) {
    timeline->reached = value;
    return ISO_OK;
  }
  *out_reached = false;
  if (result == VK_TIMEOUT && !hangs)
    return ISO_OK;
  uint64_t reached;
  if (hangs && look(device, timeline, &reached) == VK_SUCCESS)
    timeline->reached = reached;
  if (hangs)
    return give_up(device, timeline);
  vulkan_span work = work_of(timeline, timeline->reached + 1, timeline->submitted);
  return fail(timeline, result, "the device failed", &work);
}

/* ---- Submissions ------------------------------------------------------------------------------
 */

iso_status vulkan_timeline_refuse(iso_device *device, vulkan_timeline *timeline, VkResult result,
                                  const vulkan_span *span) {
  bool reached;
  vulkan_span earlier = work_of(timeline, timeline->reached + 1, timeline->submitted);
  /* Lost by what it was doing; it has not seen `span`. */
  if (result == VK_ERROR_DEVICE_LOST)
    return fail(timeline, result, "the device failed", earlier.n > 0 ? &earlier : span);
  ISO_TRY(vulkan_timeline_wait(device, timeline, timeline->submitted, UINT64_MAX, &reached));
  return fail(timeline, result, "submitting work failed", span);
}

iso_status vulkan_timeline_submit(iso_device *device, vulkan_timeline *timeline,
                                  const VkCommandBuffer *commands, const vulkan_span *span,
                                  const vulkan_timeline *other, uint64_t other_value) {
  ISO_TRY(vulkan_timeline_check(timeline));
  uint64_t next = timeline->submitted + 1;
  VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                          .waitSemaphoreValueCount = other ? 1 : 0,
                                          .pWaitSemaphoreValues = &other_value,
                                          .signalSemaphoreValueCount = 1,
                                          .pSignalSemaphoreValues = &next};
  VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                       .pNext = &values,
                       .waitSemaphoreCount = other ? 1 : 0,
                       .pWaitSemaphores = other ? &other->semaphore : NULL,
                       .pWaitDstStageMask = &stage,
                       .commandBufferCount = commands ? 1 : 0,
                       .pCommandBuffers = commands,
                       .signalSemaphoreCount = 1,
                       .pSignalSemaphores = &timeline->semaphore};
  pthread_mutex_lock(&device->lock);
  VkResult result = device->api.vkQueueSubmit(device->queue, 1, &info, VK_NULL_HANDLE);
  pthread_mutex_unlock(&device->lock);
  if (result != VK_SUCCESS)
    return vulkan_timeline_refuse(device, timeline, result, span);
  timeline->submitted = next;
  timeline->spans[next % VULKAN_SPANS] = *span;
  return ISO_OK;
}

/* ---- Life ------------------------------------------------------------------------------------ */

iso_status vulkan_timeline_create(iso_device *device, vulkan_timeline *timeline) {
  VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                    .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
  VULKAN_MAKE(timeline->semaphore,
              device->api.vkCreateSemaphore(device->handle, &info, NULL, &timeline->semaphore),
              "a timeline");
  pthread_mutex_lock(&device->lock);
  timeline->next = device->timelines;
  device->timelines = timeline;
  pthread_mutex_unlock(&device->lock);
  return ISO_OK;
}

void vulkan_timeline_destroy(iso_device *device, vulkan_timeline *timeline) {
  if (!timeline->semaphore)
    return;
  pthread_mutex_lock(&device->lock);
  vulkan_timeline **link = &device->timelines;
  while (*link != timeline)
    link = &(*link)->next;
  *link = timeline->next;
  pthread_mutex_unlock(&device->lock);
  if (!device->is_hung)
    device->api.vkDestroySemaphore(device->handle, timeline->semaphore, NULL);
}
