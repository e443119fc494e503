#include "engine/page_pool.h"

#include <stdlib.h>

iso_status iso_page_pool_create(int32_t n_pages, iso_page_pool *out_pool) {
  int32_t *pages = malloc((size_t)n_pages * sizeof *pages);
  if (!pages)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a list of %d pages", n_pages);
  for (int32_t i = 0; i < n_pages; i++)
    pages[i] = n_pages - 1 - i;
  *out_pool = (iso_page_pool){n_pages, n_pages, pages};
  return ISO_OK;
}

void iso_page_pool_destroy(iso_page_pool *pool) {
  free(pool->free_pages);
  *pool = (iso_page_pool){0};
}

iso_status iso_page_pool_take(iso_page_pool *pool, int32_t *out_page) {
  if (pool->n_free == 0)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "all %d pages of the key-value cache are in use",
                    pool->n_pages);
  *out_page = pool->free_pages[--pool->n_free];
  return ISO_OK;
}

void iso_page_pool_give(iso_page_pool *pool, int32_t page) {
  pool->free_pages[pool->n_free++] = page;
}
