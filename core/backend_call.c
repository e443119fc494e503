#include "core/backend_call.h"
#include "core/status.h"

static _Thread_local uint64_t count_before;

void iso_backend_listen(void) { count_before = iso_status_count(); }

iso_status iso_backend_heard(const char *who, const char *slot, iso_status status) {
  if (status == ISO_OK)
    return ISO_OK;
  iso_status code = (unsigned)status < ISO_STATUS_COUNT ? status : ISO_ERROR_DEVICE;
  if (iso_status_count() != count_before)
    return code;
  return iso_fail(code, "%s: %s failed with status %d (%s), and the backend gives no reason", who,
                  slot, (int)status, iso_status_name(status));
}

iso_status iso_backend_given(const char *who, const char *slot, const void *object) {
  return object ? ISO_OK
                : iso_fail(ISO_ERROR_DEVICE, "%s: %s says that it went well, and gave nothing", who,
                           slot);
}

iso_status iso_device_alloc(iso_open_device *device, iso_memory_kind kind, uint64_t bytes,
                            iso_buffer **out_buffer) {
  *out_buffer = NULL;
  iso_buffer *buffer = NULL;
  ISO_TRY(ISO_BACKEND_CALL(device->spec, "memory.alloc",
                           device->memory.alloc(device->device, kind, bytes, &buffer)));
  ISO_TRY(iso_backend_given(device->spec, "memory.alloc", buffer));
  *out_buffer = buffer;
  return ISO_OK;
}

iso_status iso_device_address(iso_open_device *device, iso_buffer *buffer, void **out_address) {
  *out_address = NULL;
  ISO_TRY(ISO_BACKEND_CALL(device->spec, "memory.map",
                           device->memory.map(device->device, buffer, out_address)));
  return iso_backend_given(device->spec, "memory.map", *out_address);
}

iso_status iso_device_bytes_free(const iso_open_device *device, uint64_t *out_bytes) {
  iso_status status = ISO_BACKEND_CALL(device->spec, "memory.bytes_free",
                                       device->memory.bytes_free(device->device, out_bytes));
  return iso_fail_context(status, "%s does not say what memory is free", device->spec);
}

iso_status iso_device_copy(iso_open_device *device, iso_buffer *target, uint64_t target_offset,
                           iso_buffer *source, uint64_t source_offset, uint64_t bytes) {
  return ISO_BACKEND_CALL(
      device->spec, "queue.copy",
      device->queue_table.copy(device->queue, target, target_offset, source, source_offset, bytes));
}

iso_status iso_device_fill(iso_open_device *device, iso_buffer *target, uint64_t offset,
                           uint64_t bytes, uint8_t value) {
  return ISO_BACKEND_CALL(device->spec, "queue.fill",
                          device->queue_table.fill(device->queue, target, offset, bytes, value));
}

iso_status iso_device_signal(iso_open_device *device, uint64_t *out_value) {
  return ISO_BACKEND_CALL(device->spec, "queue.signal",
                          device->queue_table.signal(device->queue, out_value));
}

iso_status iso_device_wait(iso_open_device *device, uint64_t value, uint64_t timeout_us) {
  return ISO_BACKEND_CALL(device->spec, "queue.host_wait",
                          device->queue_table.host_wait(device->queue, value, timeout_us));
}

iso_status iso_device_record_begin(iso_open_device *device) {
  return ISO_BACKEND_CALL(device->spec, "queue.record_begin",
                          device->queue_table.record_begin(device->queue));
}

iso_status iso_device_record_end(iso_open_device *device, void **out_recording) {
  return ISO_BACKEND_CALL(device->spec, "queue.record_end",
                          device->queue_table.record_end(device->queue, out_recording));
}

iso_status iso_device_replay(iso_open_device *device, void *recording) {
  return ISO_BACKEND_CALL(device->spec, "queue.replay",
                          device->queue_table.replay(device->queue, recording));
}

iso_status iso_device_launch(iso_open_device *device, const iso_kernel *kernel,
                             const iso_op_arguments *arguments) {
  return ISO_BACKEND_CALL(device->spec, kernel->name, kernel->launch(device->queue, arguments));
}

iso_status iso_device_packed_bytes(iso_open_device *device, const iso_kernel *kernel,
                                   const iso_host_weight *weight, uint64_t *out_bytes) {
  return ISO_BACKEND_CALL(device->spec, "packed_bytes",
                          kernel->packed_bytes(device->device, weight, out_bytes));
}

iso_status iso_device_pack(iso_open_device *device, const iso_kernel *kernel,
                           const iso_host_weight *weight, iso_buffer *buffer, uint64_t offset) {
  return ISO_BACKEND_CALL(device->spec, "pack",
                          kernel->pack(device->queue, weight, buffer, offset));
}
