/* Calls into backends, whose promises are not Isomer's own: a failure has a sentence, which a
 * careless backend leaves out, and then an old one of something else would be shown; what is
 * fine brings what was asked for. */
#ifndef ISOMER_CORE_BACKEND_CALL_H
#define ISOMER_CORE_BACKEND_CALL_H

#include <isomer/device.h>

/* The status of `expression`, which calls one slot of a backend. `who` is the device or backend. A
 * failure without a sentence gets one; what is no status becomes ISO_ERROR_DEVICE. */
#define ISO_BACKEND_CALL(who, slot, expression)                                                    \
  (iso_backend_listen(), iso_backend_heard((who), (slot), (expression)))

void iso_backend_listen(void);
iso_status iso_backend_heard(const char *who, const char *slot, iso_status status);

/* ISO_ERROR_DEVICE where a slot that returned ISO_OK gave no object. */
iso_status iso_backend_given(const char *who, const char *slot, const void *object);

/* The slots that many call. */
ISO_MUST_CHECK iso_status iso_device_alloc(iso_open_device *device, iso_memory_kind kind,
                                           uint64_t bytes, iso_buffer **out_buffer);
ISO_MUST_CHECK iso_status iso_device_address(iso_open_device *device, iso_buffer *buffer,
                                             void **out_address);
ISO_MUST_CHECK iso_status iso_device_bytes_free(const iso_open_device *device, uint64_t *out_bytes);
ISO_MUST_CHECK iso_status iso_device_copy(iso_open_device *device, iso_buffer *target,
                                          uint64_t target_offset, iso_buffer *source,
                                          uint64_t source_offset, uint64_t bytes);
ISO_MUST_CHECK iso_status iso_device_fill(iso_open_device *device, iso_buffer *target,
                                          uint64_t offset, uint64_t bytes, uint8_t value);
ISO_MUST_CHECK iso_status iso_device_signal(iso_open_device *device, uint64_t *out_value);
ISO_MUST_CHECK iso_status iso_device_wait(iso_open_device *device, uint64_t value,
                                          uint64_t timeout_us);
ISO_MUST_CHECK iso_status iso_device_record_begin(iso_open_device *device);
ISO_MUST_CHECK iso_status iso_device_record_end(iso_open_device *device, void **out_recording);
ISO_MUST_CHECK iso_status iso_device_replay(iso_open_device *device, void *recording);
ISO_MUST_CHECK iso_status iso_device_launch(iso_open_device *device, const iso_kernel *kernel,
                                            const iso_op_arguments *arguments);
ISO_MUST_CHECK iso_status iso_device_packed_bytes(iso_open_device *device, const iso_kernel *kernel,
                                                  const iso_host_weight *weight,
                                                  uint64_t *out_bytes);
ISO_MUST_CHECK iso_status iso_device_pack(iso_open_device *device, const iso_kernel *kernel,
                                          const iso_host_weight *weight, iso_buffer *buffer,
                                          uint64_t offset);

#endif
