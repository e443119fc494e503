#include "engine/device_list.h"

#include "core/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* GPUs run up to five ops as one kernel. */
enum { GPU_REUSE_DELAY = 4 };
/* An H200's products take about as long for fewer; 448 rows take longer than 512 there. */
enum { GPU_TILE_ROWS = 128 };

static iso_status check_is_new(const iso_device_list *list, const char *spec) {
  char name[32], other_name[32];
  uint32_t index, other_index;
  ISO_TRY(iso_device_spec_parse(spec, name, &index));
  for (uint32_t i = 0; i < list->n_devices; i++) {
    ISO_TRY(iso_device_spec_parse(list->devices[i]->spec, other_name, &other_index));
    if (index == other_index && strcmp(name, other_name) == 0)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "device %s is named twice", spec);
  }
  return ISO_OK;
}

static iso_status open_one(iso_device_list *list, const char *spec,
                           const iso_device_options *options) {
  if (list->n_devices == ISO_MAX_DEVICES)
    return iso_fail(ISO_ERROR_LIMIT, "more than %d devices", ISO_MAX_DEVICES);
  ISO_TRY(check_is_new(list, spec));
  iso_open_device *device;
  ISO_TRY(iso_device_open(list->registry, spec, options, &device));
  list->plan_devices[list->n_devices] =
      (iso_plan_device){.name = device->spec,
                        .kernels = device->kernels,
                        .kernel_count = device->kernel_count,
                        .device = device->device,
                        .alignment_bytes = device->info.alignment_bytes,
                        .reuse_delay = device->info.kind == ISO_DEVICE_GPU ? GPU_REUSE_DELAY : 0};
  list->devices[list->n_devices++] = device;
  return ISO_OK;
}

static iso_status open_all(iso_device_list *list, const char *devices,
                           const iso_device_options *options) {
  const char *at = devices;
  for (;;) {
    size_t length = strcspn(at, ",");
    char spec[80];
    if (length == 0 || length >= sizeof spec)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "\"%s\" is not a list of devices such as cpu or cuda:0,cpu", devices);
    memcpy(spec, at, length);
    spec[length] = 0;
    ISO_TRY(open_one(list, spec, options));
    if (!at[length])
      return ISO_OK;
    at += length + 1;
  }
}

/* Fills the cumulative split of the first n devices. */
static iso_status read_split(iso_device_list *list, const char *devices, const char *split,
                             uint32_t n, int32_t n_layers) {
  int64_t sum = 0;
  const char *at = split;
  for (uint32_t i = 0; i < n; i++) {
    int32_t share = n_layers / (int32_t)n + ((int32_t)i < n_layers % (int32_t)n);
    if (split) {
      char *end;
      errno = 0;
      long value = strtol(at, &end, 10);
      bool last = i + 1 == n;
      if (errno || end == at || value < 0 || value > INT32_MAX || *end != (last ? 0 : ','))
        return iso_fail(
            ISO_ERROR_INVALID_ARGUMENT,
            "--split \"%s\" is not one number of layers for each device of \"%s\", with "
            "commas between",
            split, devices);
      share = (int32_t)value;
      at = end + 1;
    }
    sum += share;
    list->split[i] = sum < n_layers ? (int32_t)sum : n_layers;
  }
  if (sum != n_layers)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "--split \"%s\" gives %lld layers, the model has %d", split, (long long)sum,
                    n_layers);
  return ISO_OK;
}

iso_status iso_device_list_open(const char *devices, const char *split, int32_t n_layers,
                                const iso_device_options *options, bool allow_fallback,
                                iso_device_list *out_list) {
  *out_list = (iso_device_list){.fallback = -1};
  ISO_TRY(iso_registry_create(&out_list->registry));
  ISO_TRY(open_all(out_list, devices, options));
  uint32_t named = out_list->n_named = out_list->n_devices;
  ISO_TRY(read_split(out_list, devices, split, named, n_layers));
  if (!allow_fallback)
    return ISO_OK;
  for (uint32_t i = 0; i < named; i++)
    if (strcmp(out_list->devices[i]->backend->name, "host") == 0)
      out_list->fallback = (int32_t)i;
  if (out_list->fallback < 0) {
    ISO_TRY(open_one(out_list, "host", NULL));
    out_list->fallback = (int32_t)named;
    out_list->split[named] = n_layers;
  }
  return ISO_OK;
}

int32_t iso_device_list_row_multiple(const iso_device_list *list) {
  for (uint32_t i = 0; i < list->n_named; i++)
    if (list->devices[i]->info.kind != ISO_DEVICE_GPU)
      return 1;
  return GPU_TILE_ROWS;
}

void iso_device_list_close(iso_device_list *list) {
  for (uint32_t i = 0; i < list->n_devices; i++)
    iso_device_close(list->devices[i]);
  if (list->registry)
    iso_registry_destroy(list->registry);
  *list = (iso_device_list){0};
}
