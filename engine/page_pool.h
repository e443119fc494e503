/* Pages of the key-value cache: who holds them, and which hold a prefix that others may share. A
 * page is a number; its bytes live in the k_cache and v_cache states. One thread at a time.
 *
 * A full page can be offered to the prefix cache. It is then an entry: found again by its tokens,
 * all compared, behind the same entries and under the same key. A page that nobody holds any more
 * stays an entry until its room is needed; the one let go longest ago goes first. */
#ifndef ISOMER_ENGINE_PAGE_POOL_H
#define ISOMER_ENGINE_PAGE_POOL_H

#include <isomer/status.h>

/* Names what a page holds, with everything before it; never used twice. 0: none. */
typedef uint64_t iso_page_entry;

typedef struct iso_page {
  int32_t n_references;
  int32_t older, newer; /* among pages that only the prefix cache keeps; -1 at the ends */
  int32_t next;         /* in its bucket of the table; -1 ends */
  iso_page_entry entry, parent;
  uint64_t key;
} iso_page;

typedef struct iso_page_pool {
  int32_t n_pages, page_size;
  int32_t n_free, n_cached; /* cached: held by nobody, kept for prefixes */
  iso_page *pages;
  int32_t *free_pages; /* a stack; page 0 is handed out first */
  int32_t *tokens;     /* of entries, page_size a page */
  int32_t *buckets;    /* n_buckets, a power of two */
  uint32_t n_buckets;
  int32_t oldest, newest;
  iso_page_entry last_entry;
} iso_page_pool;

ISO_MUST_CHECK iso_status iso_page_pool_create(int32_t n_pages, int32_t page_size,
                                               iso_page_pool *out_pool);
void iso_page_pool_destroy(iso_page_pool *pool);

/* Pages that can be taken: free ones, and those kept for prefixes alone. */
static inline int32_t iso_page_pool_available(const iso_page_pool *pool) {
  return pool->n_free + pool->n_cached;
}
/* Takes a page, held once and no entry; ISO_ERROR_OUT_OF_MEMORY when none is available. */
ISO_MUST_CHECK iso_status iso_page_pool_take(iso_page_pool *pool, int32_t *out_page);
/* One more holder of a page that is held already. */
void iso_page_pool_retain(iso_page_pool *pool, int32_t page);
/* One holder less. */
void iso_page_pool_release(iso_page_pool *pool, int32_t page);

/* What stands before the first page of sequences with this adapter: 0, no entry, without one. Pages
 * are found only behind what they were offered behind, so each adapter has prefixes of its own. */
static inline iso_page_entry iso_page_pool_root(int32_t adapter) {
  return adapter > 0 ? UINT64_MAX - (uint64_t)adapter : 0;
}
/* Finds the page that holds `tokens` (page_size of them) behind `parent` (a root: at the start)
 * under `key`, and holds it once more. 0 when there is none. */
iso_page_entry iso_page_pool_find(iso_page_pool *pool, uint64_t key, iso_page_entry parent,
                                  const int32_t *tokens, int32_t *out_page);
/* Makes a held page, which has these tokens behind `parent`, an entry. Where another page already
 * is that entry, the page stays what it was and the other's entry is returned: children of both
 * are the same. */
iso_page_entry iso_page_pool_offer(iso_page_pool *pool, int32_t page, uint64_t key,
                                   iso_page_entry parent, const int32_t *tokens);

#endif
