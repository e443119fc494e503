/* Every draft is drawn with the noise that the large model will draw with at that place: seed and
 * number of the draw are the same. So where the two distributions agree, so do the tokens, and it
 * takes no more than comparing them to be exact. */
#include "engine/engine.h"

#include "core/log.h"
#include "models/model.h"

#include <stdlib.h>
#include <string.h>

static iso_status create_lists(iso_drafter *drafter) {
  size_t n = (size_t)drafter->max_sequences;
  drafter->sequences = calloc(n, sizeof *drafter->sequences);
  drafter->wanted = calloc(n, sizeof *drafter->wanted);
  drafter->entries = calloc(n, sizeof *drafter->entries);
  drafter->rows = calloc(n, sizeof *drafter->rows);
  return drafter->sequences && drafter->wanted && drafter->entries && drafter->rows
             ? ISO_OK
             : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for drafts of %zu sequences", n);
}

/* Shares of a step: what a run of any draft model takes, and what drafts may cost before four right
 * ones of five pay no longer for them and their rows. */
static const double LEAST_PRICE = 0.1, PRICE_THAT_PAYS = 0.6;

/* Weights are what a step reads, but a small model has nearly as many kernels to run. */
static double price_of(const iso_model *draft, const iso_model *model) {
  uint64_t bytes = iso_model_weight_bytes(model);
  return LEAST_PRICE + (bytes > 0 ? (double)iso_model_weight_bytes(draft) / (double)bytes : 1);
}

iso_status iso_drafter_create(const iso_engine *engine, iso_drafter *out_drafter) {
  const iso_engine_options *options = &engine->options;
  if (options->speculation != ISO_SPECULATION_DRAFT)
    return ISO_OK;
  const iso_model *model = options->draft_model;
  if (!model)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "drafts need a draft model");
  int32_t size = iso_model_get_config(model)->vocabulary_size;
  int32_t wanted = iso_model_get_config(engine->model)->vocabulary_size;
  if (size != wanted)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "the draft model has a vocabulary of %d, the model one of %d: they must be "
                    "the same",
                    size, wanted);
  iso_runtime_options runtime = options->runtime;
  out_drafter->price = price_of(model, engine->model);
  if (out_drafter->price > PRICE_THAT_PAYS)
    iso_log(
        ISO_LOG_NOTICE,
        "the draft model has %.0f %% of the model's bytes: its drafts cost more than they bring, "
        "and few or none will be made",
        100 * (out_drafter->price - LEAST_PRICE));
  runtime.split = NULL; /* layers of the other model */
  runtime.adapters = NULL;
  runtime.n_adapters = 0;
  runtime.max_logit_rows = runtime.max_sequences;
  /* A tenth of the memory; the model itself takes its share of what is left then. */
  const iso_kv_budget budget = {.share = 0.1f};
  ISO_TRY(iso_runtime_create_within(model, &runtime, runtime.n_pages ? NULL : &budget,
                                    &out_drafter->runtime));
  const iso_runtime_options *in_force = iso_runtime_get_options(out_drafter->runtime);
  out_drafter->context = in_force->context;
  out_drafter->max_tokens = in_force->max_tokens;
  out_drafter->max_sequences = in_force->max_sequences;
  if (!iso_runtime_samples(out_drafter->runtime))
    return iso_fail(ISO_ERROR_UNSUPPORTED, "the draft model's device cannot draw tokens");
  ISO_TRY(iso_page_pool_create(in_force->n_pages, in_force->page_size, &out_drafter->pool));
  return create_lists(out_drafter);
}

void iso_drafter_destroy(iso_drafter *drafter) {
  iso_runtime_destroy(drafter->runtime);
  iso_page_pool_destroy(&drafter->pool);
  free(drafter->sequences);
  free(drafter->wanted);
  free(drafter->entries);
  free(drafter->rows);
  *drafter = (iso_drafter){0};
}

void iso_drafter_release(iso_drafter *drafter, engine_sequence *sequence) {
  iso_draft_cache *cache = &sequence->draft;
  while (cache->n_pages > 0)
    iso_page_pool_release(&drafter->pool, cache->pages[--cache->n_pages]);
  cache->n_cached = cache->n_fed = cache->n_offered = 0;
  cache->entry = 0;
}

void iso_drafter_learn(engine_sequence *sequence, int32_t n_accepted) {
  iso_draft_cache *cache = &sequence->draft;
  int32_t right = cache->n_cached + n_accepted;
  cache->n_cached = right < cache->n_fed ? right : cache->n_fed;
}

/* ---- One run of the draft model ------------------------------------------------------------ */

static bool take_pages(iso_drafter *drafter, iso_draft_cache *cache, int32_t n_tokens) {
  while ((int64_t)cache->n_pages * drafter->pool.page_size < n_tokens) {
    if (iso_page_pool_available(&drafter->pool) == 0 ||
        iso_page_pool_take(&drafter->pool, &cache->pages[cache->n_pages]) != ISO_OK)
      return false;
    cache->n_pages++;
  }
  return true;
}

/* Adds rows at `position`; a token is drawn behind the last of them when `draws`. False where
 * neither rows nor pages are left. */
static bool add(iso_drafter *drafter, engine_sequence *sequence, const int32_t *tokens, int32_t n,
                int32_t position, bool draws) {
  if (n > drafter->max_tokens - drafter->n_tokens ||
      !take_pages(drafter, &sequence->draft, position + n))
    return false;
  if (draws) {
    iso_sampler_set_row(drafter->runtime, sequence, drafter->n_rows, sequence->n_proposed);
    drafter->rows[drafter->n_rows++] = sequence;
  }
  drafter->entries[drafter->n_entries++] = (iso_batch_sequence){.n_tokens = n,
                                                                .tokens = tokens,
                                                                .position = position,
                                                                .pages = sequence->draft.pages,
                                                                .n_pages = sequence->draft.n_pages,
                                                                .no_logits = !draws};
  drafter->n_tokens += n;
  return true;
}

static iso_status run(iso_drafter *drafter) {
  if (drafter->n_entries > 0)
    ISO_TRY(iso_runtime_run(drafter->runtime, drafter->entries, drafter->n_entries));
  for (int32_t i = 0; i < drafter->n_rows; i++) {
    int32_t token = iso_runtime_token(drafter->runtime, i);
    if (token >= 0)
      drafter->rows[i]->drafts[drafter->rows[i]->n_proposed++] = token;
  }
  drafter->n_entries = drafter->n_tokens = drafter->n_rows = 0;
  return ISO_OK;
}

/* The draft model's pages of what others have run too, of all tokens but the last. */
static void find_prefix(iso_drafter *drafter, engine_sequence *sequence) {
  iso_draft_cache *cache = &sequence->draft;
  int32_t size = drafter->pool.page_size, last = (int32_t)sequence->answer.n_tokens - 1, page;
  while (cache->n_cached + size <= last) {
    iso_page_entry entry =
        iso_page_pool_find(&drafter->pool, sequence->request->asked.cache_key, cache->entry,
                           sequence->answer.tokens + cache->n_cached, &page);
    if (!entry)
      return;
    cache->entry = entry;
    cache->pages[cache->n_pages++] = page;
    cache->n_offered++;
    cache->n_cached += size;
    drafter->n_hit_tokens += (uint64_t)size;
  }
}

/* What is cached for good, and so may be shared. */
static void offer_pages(iso_drafter *drafter, engine_sequence *sequence) {
  iso_draft_cache *cache = &sequence->draft;
  int32_t size = drafter->pool.page_size;
  for (; (cache->n_offered + 1) * size <= cache->n_cached; cache->n_offered++)
    cache->entry = iso_page_pool_offer(
        &drafter->pool, cache->pages[cache->n_offered], sequence->request->asked.cache_key,
        cache->entry, sequence->answer.tokens + (size_t)cache->n_offered * (size_t)size);
}

static void share_pages(iso_engine *engine, engine_sequence *sequence) {
  iso_drafter *drafter = &engine->drafter;
  if (engine->options.no_prefix_cache || sequence->request->asked.no_prefix_cache)
    return;
  if (sequence->draft.n_pages == 0)
    find_prefix(drafter, sequence);
  offer_pages(drafter, sequence);
}

/* Runs what the draft model has not seen of the sequences, a chunk of each; those that are seen
 * whole get their first draft. */
static iso_status catch_up(iso_drafter *drafter) {
  for (int32_t i = 0; i < drafter->n_sequences; i++) {
    engine_sequence *sequence = drafter->sequences[i];
    iso_draft_cache *cache = &sequence->draft;
    int32_t pending = (int32_t)sequence->answer.n_tokens - cache->n_cached;
    int32_t left = drafter->max_tokens - drafter->n_tokens;
    int32_t n = pending < left ? pending : left;
    if (n > 0 && add(drafter, sequence, sequence->answer.tokens + cache->n_cached, n,
                     cache->n_cached, n == pending))
      cache->n_cached += n;
    cache->n_fed = cache->n_cached;
  }
  return run(drafter);
}

/* Draft number `number` of those that got all before and want more. */
static iso_status go_on(iso_drafter *drafter, int32_t number, bool *out_any) {
  for (int32_t i = 0; i < drafter->n_sequences; i++) {
    engine_sequence *sequence = drafter->sequences[i];
    iso_draft_cache *cache = &sequence->draft;
    if (sequence->n_proposed == number && number < drafter->wanted[i] &&
        add(drafter, sequence, &sequence->drafts[number - 1], 1, cache->n_fed, true))
      cache->n_fed++;
  }
  *out_any = drafter->n_entries > 0;
  return run(drafter);
}

iso_status iso_drafter_run(iso_engine *engine) {
  iso_drafter *drafter = &engine->drafter;
  drafter->n_sequences = 0;
  for (size_t r = 0; r < engine->n_requests; r++)
    for (int32_t s = 0; s < iso_engine_request_width(engine->requests[r]); s++) {
      engine_sequence *sequence = &engine->requests[r]->sequences[s];
      sequence->n_proposed = 0;
      if (drafter->n_sequences == drafter->max_sequences || engine->requests[r]->asked.grammar ||
          !iso_scheduler_decodes(engine, sequence))
        continue;
      int32_t limit = engine->requests[r]->length_limit;
      int32_t room = (limit < drafter->context ? limit : drafter->context) -
                     (int32_t)sequence->answer.n_tokens;
      int32_t wanted = iso_speculation_wanted(engine, sequence, room);
      if (wanted <= 0)
        continue;
      share_pages(engine, sequence);
      drafter->sequences[drafter->n_sequences] = sequence;
      drafter->wanted[drafter->n_sequences++] = wanted;
    }
  if (drafter->n_sequences == 0)
    return ISO_OK;
  ISO_TRY(catch_up(drafter));
  bool any = true;
  for (int32_t number = 1; any && number < ENGINE_MAX_DRAFTS; number++)
    ISO_TRY(go_on(drafter, number, &any));
  return ISO_OK;
}
