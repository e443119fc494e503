/* The registry, for the core and for tests with backends of their own. */
#ifndef ISOMER_CORE_REGISTRY_H
#define ISOMER_CORE_REGISTRY_H

#include "core/backend_load.h"
#include <isomer/device.h>

/* As iso_registry_create(), with a library that goes before those of its name that are found in
 * folders; NULL: none. */
ISO_MUST_CHECK iso_status iso_registry_create_with(const char *library,
                                                   iso_registry **out_registry);

/* Adds a backend that lives in this program. Refused like a library would be. */
ISO_MUST_CHECK iso_status iso_registry_add(iso_registry *registry, const iso_backend *backend);

/* The backend of a name. NOT_FOUND names the known ones, or gives the reason why a library of
 * that name was refused. */
ISO_MUST_CHECK iso_status iso_registry_find(iso_registry *registry, const char *name,
                                            const iso_loaded_backend **out_backend);

/* Describes the devices of a backend. Caller frees *out_infos, which holds *out_count entries
 * (NULL for none, then `out_reason`, of 256 bytes, says why). */
ISO_MUST_CHECK iso_status iso_backend_enumerate(const iso_loaded_backend *backend,
                                                iso_device_info **out_infos, uint32_t *out_count,
                                                char *out_reason);

#endif
