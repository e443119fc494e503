/* One file a driver and kind of device, under $XDG_CACHE_HOME/isomer or ~/.cache/isomer:
 * vulkan-<pipelineCacheUUID>-<vendor>-<device>.
 *
 * Drivers trust what they wrote, so a file is only handed to one when its length and checksum are
 * right. It is replaced by renaming, so that programs side by side never see half of one. */
#include "backends/vulkan/cache.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, MAX_CACHE_BYTES = 256 << 20 };

typedef struct file_header {
  char magic[8];
  uint64_t bytes, checksum; /* of what follows */
} file_header;

static const char magic[8] = "ISOVKPC1";

/* FNV-1a, 64 bits. */
static uint64_t checksum(const uint8_t *data, size_t bytes) {
  uint64_t value = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < bytes; i++)
    value = (value ^ data[i]) * UINT64_C(1099511628211);
  return value;
}

/* The file's path; false where there is no home. Makes the folders when asked to. */
static bool find_path(const iso_device *device, bool make_folders, char out_path[PATH_BYTES]) {
  const char *base = getenv("XDG_CACHE_HOME"), *below = "";
  if (!base || base[0] != '/') {
    base = getenv("HOME");
    below = "/.cache";
  }
  if (!base || base[0] != '/' || strlen(base) > PATH_BYTES - 128)
    return false;
  int used = snprintf(out_path, PATH_BYTES, "%s%s", base, below);
  if (make_folders)
    mkdir(out_path, 0700);
  used += snprintf(out_path + used, (size_t)(PATH_BYTES - used), "/isomer");
  if (make_folders)
    mkdir(out_path, 0700);
  used += snprintf(out_path + used, (size_t)(PATH_BYTES - used), "/vulkan-");
  for (uint32_t i = 0; i < VK_UUID_SIZE; i++)
    used +=
        snprintf(out_path + used, (size_t)(PATH_BYTES - used), "%02x", device->facts.cache_uuid[i]);
  snprintf(out_path + used, (size_t)(PATH_BYTES - used), "-%x-%x", device->facts.vendor_id,
           device->facts.device_id);
  return true;
}

/* What a whole file holds, NULL otherwise. Caller frees. */
static uint8_t *read_file(const char *path, size_t *out_bytes) {
  FILE *file = fopen(path, "rb");
  file_header header;
  uint8_t *data = NULL;
  if (!file)
    return NULL;
  if (fread(&header, sizeof header, 1, file) == 1 &&
      memcmp(header.magic, magic, sizeof magic) == 0 && header.bytes <= MAX_CACHE_BYTES)
    data = malloc((size_t)header.bytes + 1);
  if (data && (fread(data, 1, (size_t)header.bytes + 1, file) != header.bytes ||
               checksum(data, (size_t)header.bytes) != header.checksum)) {
    free(data);
    data = NULL;
  }
  fclose(file);
  if (data)
    *out_bytes = (size_t)header.bytes;
  return data;
}

iso_status vulkan_cache_load(iso_device *device) {
  char path[PATH_BYTES];
  size_t bytes = 0;
  uint8_t *data = find_path(device, false, path) ? read_file(path, &bytes) : NULL;
  VkPipelineCacheCreateInfo create = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                      .initialDataSize = bytes,
                                      .pInitialData = data};
  VkResult result =
      device->api.vkCreatePipelineCache(device->handle, &create, NULL, &device->cache);
  free(data);
  if (result != VK_SUCCESS && bytes > 0) { /* the driver does not take it */
    create.initialDataSize = 0;
    create.pInitialData = NULL;
    result = device->api.vkCreatePipelineCache(device->handle, &create, NULL, &device->cache);
  }
  VULKAN_MAKE(device->cache, result, "a pipeline cache");
  size_t loaded = 0;
  device->api.vkGetPipelineCacheData(device->handle, device->cache, &loaded, NULL);
  device->cache_bytes = loaded;
  return ISO_OK;
}

static void write_file(const char *path, const uint8_t *data, size_t bytes) {
  char temporary[PATH_BYTES + 32];
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
  int descriptor = mkstemp(temporary);
  FILE *file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
  if (!file) {
    if (descriptor >= 0) {
      close(descriptor);
      remove(temporary);
    }
    return;
  }
  file_header header = {.bytes = bytes, .checksum = checksum(data, bytes)};
  memcpy(header.magic, magic, sizeof magic);
  bool written =
      fwrite(&header, sizeof header, 1, file) == 1 && fwrite(data, 1, bytes, file) == bytes;
  written = fclose(file) == 0 && written;
  if (!written || rename(temporary, path) != 0)
    remove(temporary);
}

void vulkan_cache_save(iso_device *device) {
  char path[PATH_BYTES];
  size_t bytes = 0;
  const vulkan_api *api = &device->api;
  if (api->vkGetPipelineCacheData(device->handle, device->cache, &bytes, NULL) != VK_SUCCESS ||
      bytes <= device->cache_bytes || bytes > MAX_CACHE_BYTES || !find_path(device, true, path))
    return;
  uint8_t *data = malloc(bytes);
  if (data &&
      api->vkGetPipelineCacheData(device->handle, device->cache, &bytes, data) == VK_SUCCESS)
    write_file(path, data, bytes);
  free(data);
}
