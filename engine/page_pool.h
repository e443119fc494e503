/* Free pages of a runtime's KV cache. A page is a number; its bytes live in the k_cache and
 * v_cache states. Not thread safe: the owner of the runtime calls it. */
#ifndef ISOMER_ENGINE_PAGE_POOL_H
#define ISOMER_ENGINE_PAGE_POOL_H

#include <isomer/status.h>

typedef struct iso_page_pool {
  int32_t n_pages, n_free;
  int32_t *free_pages; /* a stack; page 0 is handed out first */
} iso_page_pool;

ISO_MUST_CHECK iso_status iso_page_pool_create(int32_t n_pages, iso_page_pool *out_pool);
void iso_page_pool_destroy(iso_page_pool *pool);
/* Takes a page; ISO_ERROR_OUT_OF_MEMORY when none is free. */
ISO_MUST_CHECK iso_status iso_page_pool_take(iso_page_pool *pool, int32_t *out_page);
void iso_page_pool_give(iso_page_pool *pool, int32_t page);

#endif
