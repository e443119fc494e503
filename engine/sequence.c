#include "engine/engine.h"

#include <string.h>

static int32_t pages_for(const iso_engine *engine, int64_t n_tokens) {
  return (int32_t)((n_tokens + engine->page_size - 1) / engine->page_size);
}

static bool uses_prefixes(const iso_engine *engine, const engine_sequence *sequence) {
  const iso_request *asked = &sequence->request->asked;
  return !engine->options.no_prefix_cache && !asked->no_prefix_cache;
}

/* What the sequence's next full page comes behind. */
static iso_page_entry parent_of(const engine_sequence *sequence) {
  return sequence->entry ? sequence->entry : iso_page_pool_root(sequence->request->asked.adapter);
}

void iso_sequence_find_prefix(iso_engine *engine, engine_sequence *sequence) {
  const iso_request *asked = &sequence->request->asked;
  /* Rows that somebody wants to see must run. */
  bool needs_rows = asked->embed || (asked->prompt_logprobs && !sequence->request->is_prompt_done);
  if (!uses_prefixes(engine, sequence) || needs_rows)
    return;
  int32_t last = (int32_t)sequence->answer.n_tokens - 1;
  while (sequence->n_cached + engine->page_size <= last) {
    int32_t page;
    iso_page_entry entry = iso_page_pool_find(&engine->pool, asked->cache_key, parent_of(sequence),
                                              sequence->answer.tokens + sequence->n_cached, &page);
    if (!entry)
      break;
    sequence->entry = entry;
    sequence->pages[sequence->n_pages++] = page;
    sequence->n_offered++;
    sequence->n_cached += engine->page_size;
  }
}

/* The next token goes into a page that others hold too. */
static bool writes_shared(const iso_engine *engine, const engine_sequence *sequence) {
  int32_t index = iso_sequence_next(sequence) / engine->page_size;
  return index < sequence->n_pages && engine->pool.pages[sequence->pages[index]].n_references > 1;
}

int32_t iso_sequence_pages_missing(const iso_engine *engine, const engine_sequence *sequence,
                                   int32_t n_tokens) {
  int32_t more = pages_for(engine, n_tokens) - sequence->n_pages;
  return (more > 0 ? more : 0) + writes_shared(engine, sequence);
}

iso_status iso_sequence_take_pages(iso_engine *engine, engine_sequence *sequence,
                                   int32_t n_tokens) {
  if (writes_shared(engine, sequence)) {
    int32_t *page = &sequence->pages[iso_sequence_next(sequence) / engine->page_size], copy;
    ISO_TRY(iso_page_pool_take(&engine->pool, &copy));
    iso_status status = iso_kv_pages_copy(&engine->kv, *page, copy);
    iso_page_pool_release(&engine->pool, *page);
    *page = copy;
    ISO_TRY(status);
  }
  while (sequence->n_pages < pages_for(engine, n_tokens)) {
    ISO_TRY(iso_page_pool_take(&engine->pool, &sequence->pages[sequence->n_pages]));
    sequence->n_pages++;
  }
  return ISO_OK;
}

void iso_sequence_offer_pages(iso_engine *engine, engine_sequence *sequence) {
  if (!uses_prefixes(engine, sequence))
    return;
  while ((sequence->n_offered + 1) * engine->page_size <= sequence->n_cached) {
    int32_t i = sequence->n_offered++;
    sequence->entry = iso_page_pool_offer(
        &engine->pool, sequence->pages[i], sequence->request->asked.cache_key, parent_of(sequence),
        sequence->answer.tokens + (size_t)i * (size_t)engine->page_size);
  }
}

/* The last page first: an entry is of no use without those before it, so they should stay longer.
 */
static void release_pages(iso_engine *engine, engine_sequence *sequence) {
  while (sequence->n_pages > 0)
    iso_page_pool_release(&engine->pool, sequence->pages[--sequence->n_pages]);
  sequence->n_cached = sequence->n_offered = 0;
  sequence->entry = 0;
}

void iso_sequence_drop_pages(iso_engine *engine, engine_sequence *sequence) {
  release_pages(engine, sequence);
  iso_drafter_release(&engine->drafter, sequence);
  iso_swap_release(&engine->swap, &sequence->swapped);
}

/* ---- Preemption ---------------------------------------------------------------------------- */

/* Copying out and back in, compared with running the tokens once more. Either is measured as it
 * happens; until a page has been copied it is assumed to be the cheaper way. */
static bool swapping_pays(const iso_engine *engine, const engine_sequence *sequence,
                          int32_t n_pages) {
  return n_pages > 0 && n_pages <= engine->swap.n_free &&
         2 * engine->swap.us_per_page * n_pages < engine->us_per_token * sequence->n_cached;
}

static void learn_copy(iso_engine *engine, double us, int32_t n_pages) {
  double each = us / n_pages, *average = &engine->swap.us_per_page;
  *average = *average > 0 ? 0.9 * *average + 0.1 * each : each;
}

iso_status iso_sequence_preempt(iso_engine *engine, engine_sequence *sequence) {
  int32_t n_pages = pages_for(engine, sequence->n_cached);
  if (swapping_pays(engine, sequence, n_pages)) {
    double start = iso_engine_now_us();
    for (int32_t i = 0; i < n_pages; i++) {
      iso_swap_take(&engine->swap, &sequence->swapped);
      ISO_TRY(iso_kv_pages_download(
          &engine->kv, sequence->pages[i],
          iso_swap_address(&engine->swap, sequence->swapped.slots[sequence->swapped.n_slots - 1])));
    }
    sequence->swapped.n_tokens = sequence->n_cached;
    learn_copy(engine, iso_engine_now_us() - start, n_pages);
    engine->stats.n_swapped_pages += (uint64_t)n_pages;
  }
  release_pages(engine, sequence);
  iso_drafter_release(&engine->drafter, sequence);
  sequence->request->usage.n_preempted++;
  engine->stats.n_preempted++;
  return ISO_OK;
}

iso_status iso_sequence_restore(iso_engine *engine, engine_sequence *sequence) {
  iso_swapped *swapped = &sequence->swapped;
  double start = iso_engine_now_us();
  int32_t first = sequence->n_pages; /* found in the prefix cache */
  ISO_TRY(iso_sequence_take_pages(engine, sequence, swapped->n_tokens));
  for (int32_t i = first; i < swapped->n_slots; i++)
    ISO_TRY(iso_kv_pages_upload(&engine->kv, sequence->pages[i],
                                iso_swap_address(&engine->swap, swapped->slots[i])));
  if (swapped->n_slots > first)
    learn_copy(engine, iso_engine_now_us() - start, swapped->n_slots - first);
  sequence->n_cached = swapped->n_tokens;
  iso_swap_release(&engine->swap, swapped);
  iso_sequence_offer_pages(engine, sequence);
  return ISO_OK;
}

/* ---- Life ---------------------------------------------------------------------------------- */

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

iso_status iso_sequence_fork(iso_engine *engine, const engine_sequence *parent,
                             engine_sequence *child) {
  int32_t n_shared = 0, most = smaller(parent->n_pages, child->n_pages);
  while (n_shared < most && parent->pages[n_shared] == child->pages[n_shared])
    n_shared++;
  /* Whoever writes to a page is its only holder, so what is cached in one page is one row of
   * tokens. */
  int32_t n_common =
      smaller(n_shared * engine->page_size, smaller(parent->n_cached, child->n_cached));
  if (child->answer.tokens && n_common < parent->answer.n_prompt)
    n_common = parent->answer.n_prompt;
  for (int32_t i = n_shared; i < parent->n_pages; i++)
    iso_page_pool_retain(&engine->pool, parent->pages[i]);
  while (child->n_pages > n_shared)
    iso_page_pool_release(&engine->pool, child->pages[--child->n_pages]);
  memcpy(child->pages + n_shared, parent->pages + n_shared,
         (size_t)(parent->n_pages - n_shared) * sizeof *child->pages);
  child->n_pages = parent->n_pages;
  iso_drafter_release(&engine->drafter, child);
  iso_swap_release(&engine->swap, &child->swapped);
  ISO_TRY(iso_answer_become(&child->answer, &parent->answer, (size_t)n_common));
  child->n_cached = parent->n_cached;
  child->n_offered = parent->n_offered;
  child->entry = parent->entry;
  child->state = SEQUENCE_READY;
  return ISO_OK;
}

void iso_sequence_end(iso_engine *engine, engine_sequence *sequence) {
  iso_sequence_drop_pages(engine, sequence);
  sequence->state = SEQUENCE_ENDED;
}
