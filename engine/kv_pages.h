/* The bytes of cache pages: a page is one number, and a stretch of every layer's k_cache and
 * v_cache, on whichever devices these are. Calls are ordered with the runtime's steps. */
#ifndef ISOMER_ENGINE_KV_PAGES_H
#define ISOMER_ENGINE_KV_PAGES_H

#include "engine/runtime.h"

typedef struct kv_state {
  iso_open_device *device;
  iso_buffer *buffer;
  uint64_t page_bytes;
} kv_state;

typedef struct iso_kv_pages {
  uint64_t page_bytes; /* of one page, over all states */
  uint32_t n_states;
  kv_state *states;
} iso_kv_pages;

ISO_MUST_CHECK iso_status iso_kv_pages_create(iso_runtime *runtime, iso_kv_pages *out_pages);
void iso_kv_pages_destroy(iso_kv_pages *pages);
/* Enqueues the copy; returns at once where devices can. */
ISO_MUST_CHECK iso_status iso_kv_pages_copy(const iso_kv_pages *pages, int32_t source,
                                            int32_t target);
/* To and from page_bytes bytes of host memory; return when they have arrived. */
ISO_MUST_CHECK iso_status iso_kv_pages_download(const iso_kv_pages *pages, int32_t page,
                                                void *target);
ISO_MUST_CHECK iso_status iso_kv_pages_upload(const iso_kv_pages *pages, int32_t page,
                                              const void *source);

#endif
