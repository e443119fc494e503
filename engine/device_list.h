/* The devices of a runtime, from the words of --device and --split. */
#ifndef ISOMER_ENGINE_DEVICE_LIST_H
#define ISOMER_ENGINE_DEVICE_LIST_H

#include <isomer/plan.h>

typedef struct iso_device_list {
  iso_registry *registry;
  uint32_t n_devices;
  uint32_t n_named; /* the first ones; behind them the host may be, for what they refuse */
  iso_open_device *devices[ISO_MAX_DEVICES];
  iso_plan_device plan_devices[ISO_MAX_DEVICES];
  int32_t split[ISO_MAX_DEVICES]; /* cumulative, as iso_plan_options wants it */
  int32_t fallback;               /* index of the host, named or not; -1: none is allowed */
} iso_device_list;

/* Opens "a,b" and spreads n_layers over them: "N,M" gives their layers, one entry a device;
 * NULL spreads evenly. Every device is opened with `options`. With allow_fallback the host backend
 * is opened as well, unless it is among them, for the ops that others refuse. Close with
 * iso_device_list_close(), also after a failure. */
ISO_MUST_CHECK iso_status iso_device_list_open(const char *devices, const char *split,
                                               int32_t n_layers, const iso_device_options *options,
                                               bool allow_fallback, iso_device_list *out_list);
void iso_device_list_close(iso_device_list *list);
/* The rows that fill the tiles of products: of a multiple of these are steps whose size can be
 * chosen. 128 where all named devices are GPUs, 1 where one is not. */
int32_t iso_device_list_row_multiple(const iso_device_list *list);

#endif
