/* The driver's pipeline cache, kept on disk between runs. */
#ifndef ISOMER_VULKAN_CACHE_H
#define ISOMER_VULKAN_CACHE_H

#include "backends/vulkan/vulkan.h"

/* Makes device->cache, from the file if there is a whole one of this driver, else empty. */
iso_status vulkan_cache_load(iso_device *device);
/* Writes device->cache to the file, if it grew; failures are silent, since it can be made again. */
void vulkan_cache_save(iso_device *device);

#endif
