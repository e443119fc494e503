#include "core/defaults.h"
#include "core/device.h"
#include <stdatomic.h>

static iso_status import_nothing(iso_device *device, const void *address, uint64_t bytes,
                                 iso_buffer **out_buffer) {
  (void)device, (void)address, (void)out_buffer;
  return iso_fail(ISO_ERROR_UNSUPPORTED, "the device cannot use %llu bytes of host memory in place",
                  (unsigned long long)bytes);
}

bool iso_defaults_lack_import(const iso_memory_table *memory) {
  return memory->import == import_nothing;
}

static iso_status all_memory(iso_device *device, uint64_t *out_bytes) {
  iso_device_info info;
  ISO_TRY(iso_device_info_of(device, &info));
  *out_bytes = info.memory_bytes;
  return ISO_OK;
}

/* A synchronous queue has done its work when a call returns, so any rising counter will do. */
static iso_status signal_done(iso_queue *queue, uint64_t *out_value) {
  static _Atomic uint64_t counter;
  (void)queue;
  *out_value = atomic_fetch_add(&counter, 1) + 1;
  return ISO_OK;
}

static iso_status wait_for_nothing(iso_queue *queue, uint64_t value, uint64_t timeout_us) {
  (void)queue, (void)value, (void)timeout_us;
  return ISO_OK;
}

static iso_status wait_on_host(iso_queue *queue, iso_queue *other, uint64_t value) {
  (void)queue;
  return iso_device_wait_for_queue(other, value);
}

static iso_status record_nothing(iso_queue *queue) {
  (void)queue;
  return iso_fail(ISO_ERROR_UNSUPPORTED, "the device does not record its work");
}

static iso_status end_nothing(iso_queue *queue, void **out_recording) {
  (void)out_recording;
  return record_nothing(queue);
}

static iso_status replay_nothing(iso_queue *queue, void *recording) {
  (void)recording;
  return record_nothing(queue);
}

static void destroy_nothing(iso_queue *queue, void *recording) { (void)queue, (void)recording; }

iso_status iso_defaults_install(iso_loaded_backend *backend) {
  iso_memory_table *memory = &backend->memory;
  iso_queue_table *queue = &backend->queue;
  if (!memory->import)
    memory->import = import_nothing;
  if (!memory->bytes_free)
    memory->bytes_free = all_memory;
  if (!queue->signal != !queue->host_wait)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "queue.%s is missing: signal and host_wait come "
                    "together, or the queue is synchronous",
                    queue->signal ? "host_wait" : "signal");
  if (!queue->signal) {
    queue->signal = signal_done;
    queue->host_wait = wait_for_nothing;
    queue->wait = NULL; /* it knows nothing of the values above */
  }
  if (!queue->wait)
    queue->wait = wait_on_host;
  backend->can_record =
      queue->record_begin && queue->record_end && queue->replay && queue->recording_destroy;
  if (!backend->can_record) {
    queue->record_begin = record_nothing;
    queue->record_end = end_nothing;
    queue->replay = replay_nothing;
    queue->recording_destroy = destroy_nothing;
  }
  return ISO_OK;
}
