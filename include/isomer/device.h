/* Finding and opening devices. */
#ifndef ISOMER_DEVICE_H
#define ISOMER_DEVICE_H

#include <isomer/backend.h>

ISO_BEGIN_DECLS

/* The set of backends: those linked in, and those in shared libraries: libisomer-<name>.so in the
 * folders of ISOMER_BACKEND_PATH (separated by ':'), then in the folder "isomer" beside the file
 * that holds this library (for an installed program: in that of the library), or loaded by path. A library found in a folder and refused is logged,
 * listed with its reason, and answers with it when a device of that name is asked for. */
typedef struct iso_registry iso_registry;

ISO_MUST_CHECK ISO_API iso_status iso_registry_create(iso_registry **out_registry);
/* After every device opened from it is closed. */
ISO_API void iso_registry_destroy(iso_registry *registry);
/* Loads a backend library. Refused with both versions when the ABI does not fit, or with the
 * missing slot's name when a table is incomplete. */
ISO_MUST_CHECK ISO_API iso_status iso_registry_load(iso_registry *registry, const char *path);

/* One row of `isomer devices`: a device, or a backend that has none and says why. */
typedef struct iso_device_listing {
  const char *backend; /* "cuda"; lives as long as the registry */
  char spec[80];       /* "cuda:0"; "" when there is no device */
  iso_device_info info;
  char reason[256]; /* why there is none; "" otherwise */
} iso_device_listing;

/* Lists devices of every backend. Caller frees *out_listings with free(). */
ISO_MUST_CHECK ISO_API iso_status iso_registry_list(iso_registry *registry,
                                                    iso_device_listing **out_listings,
                                                    uint32_t *out_count);

/* An open device with its tables made whole (defaults in the optional slots) and one queue. */
typedef struct iso_open_device {
  char spec[80]; /* "cpu", "cuda:1" */
  const iso_backend *backend;
  iso_driver_table driver;
  iso_device_table device_table;
  iso_memory_table memory;
  iso_queue_table queue_table;
  const iso_kernel *kernels; /* dense array of kernel_count, this host's size */
  uint32_t kernel_count;
  iso_device_info info;
  iso_device *device;
  iso_queue *queue;
  bool can_record;
} iso_open_device;

/* Opens "name" or "name:index". An unknown name is answered with the known ones; an absent
 * device with its backend's reason. Never opens anything else instead. */
ISO_MUST_CHECK ISO_API iso_status iso_device_open(iso_registry *registry, const char *spec,
                                                  const iso_device_options *options,
                                                  iso_open_device **out_device);
ISO_API void iso_device_close(iso_open_device *device);

/* Host to device and back, through mapping where possible and staging elsewhere; returns when
 * the bytes have arrived. */
ISO_MUST_CHECK ISO_API iso_status iso_device_upload(iso_open_device *device, iso_buffer *target,
                                                    uint64_t offset, const void *source,
                                                    uint64_t bytes);
ISO_MUST_CHECK ISO_API iso_status iso_device_download(iso_open_device *device, iso_buffer *source,
                                                      uint64_t offset, void *target,
                                                      uint64_t bytes);

ISO_END_DECLS
#endif
