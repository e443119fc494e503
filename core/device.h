/* Open devices, for the core. */
#ifndef ISOMER_CORE_DEVICE_H
#define ISOMER_CORE_DEVICE_H

#include <isomer/device.h>

/* For the defaults, whose slots get a bare handle: the facts of an open device, and a wait on an
 * open device's queue. INTERNAL when no open device has that handle. Thread safe. */
ISO_MUST_CHECK iso_status iso_device_info_of(const iso_device *device, iso_device_info *out_info);
ISO_MUST_CHECK iso_status iso_device_wait_for_queue(iso_queue *queue, uint64_t value);

/* Splits "name" or "name:index"; without an index it is 0. */
ISO_MUST_CHECK iso_status iso_device_spec_parse(const char *spec, char out_name[32],
                                                uint32_t *out_index);

/* Blocks until everything enqueued on the device's queue is done. */
ISO_MUST_CHECK iso_status iso_device_drain(iso_open_device *device);

/* The same, also after a failure, whose sentence is kept: what was enqueued before it may still
 * read and write. Returns `status` if that is one, else what waiting returned. */
ISO_MUST_CHECK iso_status iso_device_settle(iso_open_device *device, iso_status status);

/* Gives the device a new queue where the old one is of no more use, as after a fault, which poisons
 * its timeline. Where the device has none to give, all stays as it is. */
void iso_device_revive(iso_open_device *device);

/* Makes the staging memory that uploads and downloads of unmappable memory need, which otherwise
 * is made at the first of them. Does nothing where memory is mappable. */
ISO_MUST_CHECK iso_status iso_device_need_staging(iso_open_device *device);

/* The host address of a buffer of mappable device memory; NULL when the device has none. */
void *iso_device_map(iso_open_device *device, iso_buffer *buffer);

#endif
