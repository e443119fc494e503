#include "core/registry.h"
#include "tools/json_output.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>

static void print_text(const iso_device_listing *listings, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const iso_device_listing *row = &listings[i];
    char memory[16];
    if (row->spec[0])
      printf("%-10s %s, %s, %u units\n", row->spec, row->info.name,
             iso_tool_format_bytes(row->info.memory_bytes, memory, sizeof memory),
             row->info.n_units);
    else
      printf("%-10s none: %s\n", row->backend, row->reason);
    if (row->info.detail[0])
      printf("%10s %s\n", "", row->info.detail);
  }
}

static iso_status print_json(const iso_device_listing *listings, uint32_t count) {
  cJSON *root = cJSON_CreateArray();
  for (uint32_t i = 0; i < count; i++) {
    const iso_device_listing *row = &listings[i];
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(root, item);
    cJSON_AddStringToObject(item, "backend", row->backend);
    if (!row->spec[0]) {
      cJSON_AddStringToObject(item, "reason", row->reason);
      continue;
    }
    cJSON_AddStringToObject(item, "device", row->spec);
    cJSON_AddStringToObject(item, "name", row->info.name);
    cJSON_AddStringToObject(item, "id", row->info.id);
    cJSON_AddStringToObject(item, "detail", row->info.detail);
    cJSON_AddNumberToObject(item, "memory_bytes", (double)row->info.memory_bytes);
    cJSON_AddNumberToObject(item, "units", row->info.n_units);
  }
  return iso_json_output_print(root);
}

iso_status iso_command_devices(iso_options *options, int *out_exit) {
  (void)out_exit;
  iso_registry *registry;
  ISO_TRY(iso_registry_create_with(options->backend, &registry));
  iso_device_listing *listings = NULL;
  uint32_t count = 0;
  iso_status status = iso_registry_list(registry, &listings, &count);
  if (status == ISO_OK && options->json)
    status = print_json(listings, count);
  else if (status == ISO_OK)
    print_text(listings, count);
  free(listings);
  iso_registry_destroy(registry);
  return status;
}
