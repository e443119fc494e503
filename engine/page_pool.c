#include "engine/page_pool.h"

#include <stdlib.h>
#include <string.h>

iso_status iso_page_pool_create(int32_t n_pages, int32_t page_size, iso_page_pool *out_pool) {
  uint32_t n_buckets = 16;
  while (n_buckets < 2 * (uint32_t)n_pages && n_buckets < UINT32_C(1) << 31)
    n_buckets *= 2;
  size_t pages = (size_t)n_pages;
  iso_page_pool pool = {.n_pages = n_pages,
                        .page_size = page_size,
                        .n_free = n_pages,
                        .pages = calloc(pages, sizeof *pool.pages),
                        .free_pages = malloc(pages * sizeof *pool.free_pages),
                        .tokens = malloc(pages * (size_t)page_size * sizeof *pool.tokens),
                        .buckets = malloc(n_buckets * sizeof *pool.buckets),
                        .n_buckets = n_buckets,
                        .oldest = -1,
                        .newest = -1};
  if (!pool.pages || !pool.free_pages || !pool.tokens || !pool.buckets) {
    iso_page_pool_destroy(&pool);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a list of %d pages", n_pages);
  }
  for (int32_t i = 0; i < n_pages; i++)
    pool.free_pages[i] = n_pages - 1 - i;
  for (uint32_t i = 0; i < n_buckets; i++)
    pool.buckets[i] = -1;
  *out_pool = pool;
  return ISO_OK;
}

void iso_page_pool_destroy(iso_page_pool *pool) {
  free(pool->pages);
  free(pool->free_pages);
  free(pool->tokens);
  free(pool->buckets);
  *pool = (iso_page_pool){0};
}

/* ---- Entries ------------------------------------------------------------------------------- */

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of x reaches every bit. */
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static uint32_t bucket_of(const iso_page_pool *pool, uint64_t key, iso_page_entry parent,
                          const int32_t *tokens) {
  uint64_t hash = mix(key + UINT64_C(0x9e3779b97f4a7c15)) ^ parent;
  for (int32_t i = 0; i < pool->page_size; i++)
    hash = mix(hash ^ (uint32_t)tokens[i]);
  return (uint32_t)hash & (pool->n_buckets - 1);
}

static int32_t *tokens_of(const iso_page_pool *pool, int32_t page) {
  return pool->tokens + (size_t)page * (size_t)pool->page_size;
}

/* The page that is this entry; -1 when there is none. */
static int32_t look_up(const iso_page_pool *pool, uint32_t bucket, uint64_t key,
                       iso_page_entry parent, const int32_t *tokens) {
  for (int32_t page = pool->buckets[bucket]; page >= 0; page = pool->pages[page].next) {
    const iso_page *found = &pool->pages[page];
    if (found->key == key && found->parent == parent &&
        memcmp(tokens_of(pool, page), tokens, (size_t)pool->page_size * sizeof *tokens) == 0)
      return page;
  }
  return -1;
}

static void forget(iso_page_pool *pool, int32_t page) {
  iso_page *self = &pool->pages[page];
  int32_t *at = &pool->buckets[bucket_of(pool, self->key, self->parent, tokens_of(pool, page))];
  while (*at != page)
    at = &pool->pages[*at].next;
  *at = self->next;
  self->entry = 0;
}

static void link_newest(iso_page_pool *pool, int32_t page) {
  pool->pages[page].older = pool->newest;
  pool->pages[page].newer = -1;
  if (pool->newest >= 0)
    pool->pages[pool->newest].newer = page;
  else
    pool->oldest = page;
  pool->newest = page;
  pool->n_cached++;
}

static void unlink_cached(iso_page_pool *pool, int32_t page) {
  const iso_page *self = &pool->pages[page];
  *(self->older >= 0 ? &pool->pages[self->older].newer : &pool->oldest) = self->newer;
  *(self->newer >= 0 ? &pool->pages[self->newer].older : &pool->newest) = self->older;
  pool->n_cached--;
}

iso_page_entry iso_page_pool_find(iso_page_pool *pool, uint64_t key, iso_page_entry parent,
                                  const int32_t *tokens, int32_t *out_page) {
  int32_t page = look_up(pool, bucket_of(pool, key, parent, tokens), key, parent, tokens);
  if (page < 0)
    return 0;
  if (pool->pages[page].n_references++ == 0)
    unlink_cached(pool, page);
  *out_page = page;
  return pool->pages[page].entry;
}

iso_page_entry iso_page_pool_offer(iso_page_pool *pool, int32_t page, uint64_t key,
                                   iso_page_entry parent, const int32_t *tokens) {
  uint32_t bucket = bucket_of(pool, key, parent, tokens);
  int32_t other = look_up(pool, bucket, key, parent, tokens);
  if (other >= 0)
    return pool->pages[other].entry;
  iso_page *self = &pool->pages[page];
  memcpy(tokens_of(pool, page), tokens, (size_t)pool->page_size * sizeof *tokens);
  self->key = key;
  self->parent = parent;
  self->next = pool->buckets[bucket];
  pool->buckets[bucket] = page;
  return self->entry = ++pool->last_entry;
}

/* ---- Holders ------------------------------------------------------------------------------- */

iso_status iso_page_pool_take(iso_page_pool *pool, int32_t *out_page) {
  if (pool->n_free == 0 && pool->n_cached == 0)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "all %d pages of the key-value cache are in use",
                    pool->n_pages);
  int32_t page;
  if (pool->n_free > 0) {
    page = pool->free_pages[--pool->n_free];
  } else {
    page = pool->oldest;
    unlink_cached(pool, page);
    forget(pool, page);
  }
  pool->pages[page].n_references = 1;
  *out_page = page;
  return ISO_OK;
}

void iso_page_pool_retain(iso_page_pool *pool, int32_t page) { pool->pages[page].n_references++; }

void iso_page_pool_release(iso_page_pool *pool, int32_t page) {
  iso_page *self = &pool->pages[page];
  if (--self->n_references > 0)
    return;
  if (self->entry != 0)
    link_newest(pool, page);
  else
    pool->free_pages[pool->n_free++] = page;
}
