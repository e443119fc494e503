/* Which rows run in the next step. Sequences are looked at in order (arrival and priority); each
 * that has something to run gets its rows and its pages, until rows, sequences or pages run out.
 * Rows of sequences that decode are set aside first, prompts share the rest: a long prompt never
 * holds up those who talk. Pages are taken, where there are too few, from sequences that wait for
 * their reader, then from those later in order, the last one first. So the first in order always
 * gets on, and since order is by arrival, everyone is first some day. */
#include "engine/engine.h"

typedef struct plan {
  iso_engine *engine;
  int32_t tokens_left;     /* rows of the step, but those set aside for decoding */
  int32_t prompt_left;     /* those of them that prompts may have */
  int32_t logit_rows_left; /* beyond one a sequence */
  bool is_blocked;         /* one that wants to start does not fit: nobody starts past it */
  bool others_hold;        /* somebody already placed or passed holds pages */
} plan;

/* Where a sequence stands in order. */
typedef struct place {
  size_t request;
  int32_t sequence;
} place;

static bool is_runnable(const iso_engine *engine, const engine_sequence *sequence) {
  const engine_request *request = sequence->request;
  bool will_end =
      sequence->ahead.n_tokens > 0 &&
      (int32_t)sequence->answer.n_tokens + sequence->ahead.n_tokens >= request->length_limit;
  return sequence->state == SEQUENCE_READY && !will_end && !request->is_paused &&
         !request->is_cancelled && !iso_engine_request_is_over(request) &&
         (engine->options.batching == ISO_BATCHING_CONTINUOUS || request->in_batch);
}

static bool decodes(const engine_sequence *sequence) {
  return sequence->n_pages > 0 && iso_sequence_pending(sequence) == 1;
}

bool iso_scheduler_decodes(const iso_engine *engine, const engine_sequence *sequence) {
  const engine_request *request = sequence->request;
  const iso_request *asked = &request->asked;
  return is_runnable(engine, sequence) && decodes(sequence) && request->is_prompt_done &&
         asked->beam_width == 0;
}

/* ---- Pages --------------------------------------------------------------------------------- */

typedef enum victim_class { VICTIM_NONE, VICTIM_HELD, VICTIM_LATER, VICTIM_PAUSED } victim_class;

static victim_class classify(const engine_sequence *victim, bool is_later) {
  if (victim->n_pages == 0 || victim->is_placed)
    return VICTIM_NONE;
  if (victim->request->is_paused)
    return VICTIM_PAUSED;
  if (is_later)
    return VICTIM_LATER;
  return victim->state == SEQUENCE_HELD ? VICTIM_HELD : VICTIM_NONE;
}

/* The sequence to take pages from, and how many pages all that could be taken from hold. */
static engine_sequence *find_victim(const iso_engine *engine, place self, int32_t *out_pages) {
  engine_sequence *best = NULL;
  victim_class best_class = VICTIM_NONE;
  *out_pages = 0;
  for (size_t r = 0; r < engine->n_requests; r++)
    for (int32_t s = 0; s < iso_engine_request_width(engine->requests[r]); s++) {
      if (r == self.request && s == self.sequence)
        continue;
      engine_sequence *victim = &engine->requests[r]->sequences[s];
      bool is_later = r > self.request || (r == self.request && s > self.sequence);
      victim_class class = classify(victim, is_later);
      if (class == VICTIM_NONE)
        continue;
      *out_pages += victim->n_pages;
      if (class >= best_class) {
        best = victim;
        best_class = class;
      }
    }
  return best;
}

/* Preempts until `wanted` pages are available, if that can be done at all, and now. */
static iso_status make_room(iso_engine *engine, place self, int32_t wanted, bool *out_made) {
  int32_t reclaimable;
  engine_sequence *victim = NULL;
  *out_made = iso_page_pool_available(&engine->pool) >= wanted;
  while (!*out_made) {
    victim = find_victim(engine, self, &reclaimable);
    if (!victim || iso_page_pool_available(&engine->pool) + reclaimable < wanted)
      return ISO_OK;
    engine->must_wait = engine->running.n > 0; /* for what the victim has under way */
    if (engine->must_wait)
      return ISO_OK;
    ISO_TRY(iso_sequence_preempt(engine, victim));
    *out_made = iso_page_pool_available(&engine->pool) >= wanted;
  }
  return ISO_OK;
}

/* A sequence without pages gets room for all its tokens, and a little is left for those at work to
 * grow into. */
static iso_status start(plan *self, engine_sequence *sequence, place at, bool *out_started) {
  iso_engine *engine = self->engine;
  iso_sequence_find_prefix(engine, sequence);
  int32_t found = sequence->n_cached;
  int32_t missing =
      iso_sequence_pages_missing(engine, sequence, (int32_t)sequence->answer.n_tokens);
  int32_t spare = self->others_hold ? 1 + engine->pool.n_pages / 64 : 0;
  ISO_TRY(make_room(engine, at, missing + spare, out_started));
  if (!*out_started) {
    while (sequence->n_pages > 0)
      iso_page_pool_release(&engine->pool, sequence->pages[--sequence->n_pages]);
    sequence->n_cached = sequence->n_offered = 0;
    sequence->entry = 0;
    return ISO_OK;
  }
  if (sequence->swapped.n_tokens > found)
    ISO_TRY(iso_sequence_restore(engine, sequence));
  iso_swap_release(&engine->swap, &sequence->swapped);
  ISO_TRY(iso_sequence_take_pages(engine, sequence, (int32_t)sequence->answer.n_tokens));
  engine_request *request = sequence->request;
  if (request->started_us == 0) {
    request->started_us = iso_engine_now_us();
    request->usage.n_cached = found;
    engine->stats.n_prefix_hit_tokens += (uint64_t)found;
    engine->n_started++;
  }
  return ISO_OK;
}

/* ---- Rows ---------------------------------------------------------------------------------- */

static bool wants_all_logits(const engine_sequence *sequence) {
  const engine_request *request = sequence->request;
  return request->asked.prompt_logprobs && !request->is_prompt_done;
}

/* Drafts are worth rows and free pages, not somebody else's. */
static int32_t propose(plan *self, engine_sequence *sequence) {
  iso_engine *engine = self->engine;
  int32_t most =
      self->tokens_left < self->logit_rows_left ? self->tokens_left : self->logit_rows_left;
  int32_t room = sequence->request->length_limit - (int32_t)sequence->answer.n_tokens - 1;
  most = room < most ? room : most;
  const engine_request *request = sequence->request;
  if (engine->options.speculation == ISO_SPECULATION_NONE || most <= 0 ||
      request->asked.beam_width > 0 || request->asked.grammar || !request->is_prompt_done)
    return 0;
  int32_t n = iso_speculation_propose(engine, sequence, most);
  while (n > 0 && iso_sequence_pages_missing(engine, sequence, sequence->n_cached + 1 + n) >
                      iso_page_pool_available(&engine->pool))
    n--;
  return n;
}

/* Has the step bring the sequence's logits to the host. */
static void add_host_rows(engine_batch *batch, const engine_sequence *sequence) {
  const engine_rows *rows = &sequence->rows;
  for (int32_t i = 0; i < rows->n_logit_rows; i++)
    batch->host_rows[batch->n_host_rows++] = rows->logit_row + i;
  if (rows->is_guess)
    batch->n_missed += sequence->miss_rate;
  else
    batch->decides_more = batch->decides_more || rows->n_logit_rows > 0;
}

/* Writes the rows of a sequence into the batch. */
static void add_to_batch(plan *self, engine_sequence *sequence) {
  engine_batch *batch = &self->engine->batch;
  int32_t n = sequence->rows.n;
  bool reaches_end = n >= iso_sequence_pending(sequence), is_drawn = sequence->ahead.n_tokens > 0;
  bool none = sequence->request->asked.embed; /* hidden states alone */
  bool all = wants_all_logits(sequence) || sequence->rows.n_drafts > 0;
  static const int32_t unknown = 0;
  const int32_t *tokens =
      is_drawn ? &unknown : sequence->answer.tokens + iso_sequence_next(sequence);
  if (sequence->rows.n_drafts > 0) {
    int32_t *copy = batch->tokens + batch->n_token_copies;
    copy[0] = tokens[0];
    for (int32_t i = 0; i < sequence->rows.n_drafts; i++)
      copy[1 + i] = sequence->drafts[i];
    batch->n_token_copies += n;
    tokens = copy;
  }
  sequence->rows.first_row = batch->n_tokens;
  sequence->rows.logit_row = batch->n_logit_rows;
  sequence->rows.n_logit_rows = none ? 0 : all ? n : reaches_end ? 1 : 0;
  sequence->rows.is_last = reaches_end;
  sequence->is_placed = true;
  batch->entries[batch->n] = (iso_batch_sequence){.n_tokens = n,
                                                  .tokens = tokens,
                                                  .position = iso_sequence_next(sequence),
                                                  .pages = sequence->pages,
                                                  .n_pages = sequence->n_pages,
                                                  .all_logits = all,
                                                  .no_logits = sequence->rows.n_logit_rows == 0,
                                                  .adapter = sequence->request->asked.adapter};
  batch->drawn_rows[batch->n] = is_drawn ? sequence->ahead.logit_row : -1;
  batch->n_tokens += n;
  batch->n_logit_rows += sequence->rows.n_logit_rows;
  sequence->rows.is_void = false;
  iso_sampler_place(self->engine, sequence);
  if (!sequence->rows.draws_on_device)
    add_host_rows(batch, sequence);
  batch->rows[batch->n] = sequence->rows;
  batch->sequences[batch->n++] = sequence;
  batch->has_drafts = batch->has_drafts || sequence->rows.n_drafts > 0;
  batch->wants_hidden = batch->wants_hidden || sequence->request->asked.embed;
}

static iso_status place_decoding(plan *self, engine_sequence *sequence, place at) {
  iso_engine *engine = self->engine;
  bool made;
  sequence->rows.n_drafts = propose(self, sequence);
  sequence->rows.n = 1 + sequence->rows.n_drafts;
  int32_t end = iso_sequence_next(sequence) + sequence->rows.n;
  ISO_TRY(make_room(engine, at, iso_sequence_pages_missing(engine, sequence, end), &made));
  if (!made)
    return ISO_OK;
  ISO_TRY(iso_sequence_take_pages(engine, sequence, end));
  self->tokens_left -= sequence->rows.n_drafts;
  self->logit_rows_left -= sequence->rows.n_drafts;
  engine->n_drafting += sequence->rows.n_drafts;
  add_to_batch(self, sequence);
  return ISO_OK;
}

static iso_status place_prompt(plan *self, engine_sequence *sequence, place at) {
  int32_t left = self->tokens_left < self->prompt_left ? self->tokens_left : self->prompt_left;
  if (left <= 0)
    return ISO_OK;
  if (sequence->n_pages == 0) {
    bool started = false;
    if (!self->is_blocked)
      ISO_TRY(start(self, sequence, at, &started));
    self->is_blocked = !started;
    if (!started)
      return ISO_OK;
  }
  int32_t pending = iso_sequence_pending(sequence);
  int32_t rows = pending < left ? pending : left;
  if (wants_all_logits(sequence) && rows > 1 + self->logit_rows_left)
    rows = 1 + self->logit_rows_left;
  sequence->rows.n = rows;
  sequence->rows.n_drafts = 0;
  self->tokens_left -= rows;
  self->prompt_left -= rows;
  if (wants_all_logits(sequence))
    self->logit_rows_left -= rows - 1;
  add_to_batch(self, sequence);
  return ISO_OK;
}

/* ---- The step ------------------------------------------------------------------------------ */

/* Static batching: the next requests, once all of the last ones have ended. */
static void form_batch(iso_engine *engine) {
  int32_t n = 0;
  for (size_t i = 0; i < engine->n_requests; i++)
    if (engine->requests[i]->in_batch)
      return;
  for (size_t i = 0; i < engine->n_requests; i++) {
    engine_request *request = engine->requests[i];
    if (n > 0 && n + request->n_sequences > engine->max_sequences)
      return;
    request->in_batch = true;
    n += request->n_sequences;
  }
}

/* Resets the step, counts the rows that decode and those of prompts. */
static void begin(iso_engine *engine) {
  engine_batch *batch = &engine->batch;
  int32_t n = 0, n_runnable = 0;
  batch->n = batch->n_tokens = batch->n_token_copies = batch->n_logit_rows = 0;
  batch->n_host_rows = 0;
  batch->n_missed = 0;
  batch->decides_more = batch->wants_hidden = batch->has_drafts = false;
  engine->must_wait = false;
  engine->n_drafting = 0;
  engine->n_prompt_rows = 0;
  for (size_t r = 0; r < engine->n_requests; r++)
    for (int32_t s = 0; s < iso_engine_request_width(engine->requests[r]); s++) {
      engine_sequence *sequence = &engine->requests[r]->sequences[s];
      sequence->is_placed = false;
      if (!is_runnable(engine, sequence))
        continue;
      n += decodes(sequence);
      if (n_runnable++ < engine->max_sequences && !decodes(sequence))
        engine->n_prompt_rows += iso_sequence_pending(sequence);
    }
  engine->n_decoding = n < engine->max_sequences ? n : engine->max_sequences;
}

/* Prompts alone run in steps as large as can be. Beside sequences that decode small steps cost
 * little more a row, everyone's next token comes sooner, and more tokens ride along; but where many
 * prompts wait it is better to have them decode soon: half of what is left of them, as long as
 * nobody's next token waits for more than twice the rows of a small step, or, where many decode
 * together and each step pays for all their keys, for 16 rows for each of them. The step fills the
 * tiles that a device multiplies it in: rows up to there are free. */
static int32_t prompt_rows(const iso_engine *engine) {
  enum { ROWS_A_SEQUENCE = 16 };
  int32_t small = engine->mixed_tokens, n = engine->n_decoding, multiple = engine->row_multiple;
  int32_t beside = small - n, half = (small + 1) / 2, least = beside > half ? beside : half;
  int64_t most = engine->max_tokens - n, some = engine->n_prompt_rows / 2;
  int64_t bound = ROWS_A_SEQUENCE * (int64_t)n;
  if (n == 0)
    return (int32_t)most;
  bound = (bound > 2 * (int64_t)small ? bound : 2 * (int64_t)small) - n;
  some = some < bound ? some : bound;
  int64_t rows = n + (some > least ? some : least);
  rows = (rows + multiple - 1) / multiple * multiple - n;
  return (int32_t)(rows < most ? rows : most);
}

iso_status iso_engine_schedule(iso_engine *engine) {
  if (engine->options.batching == ISO_BATCHING_STATIC)
    form_batch(engine);
  begin(engine);
  if (engine->options.speculation == ISO_SPECULATION_DRAFT)
    ISO_TRY(iso_drafter_run(engine));
  plan self = {.engine = engine,
               .tokens_left = engine->max_tokens - engine->n_decoding,
               .prompt_left = prompt_rows(engine),
               .logit_rows_left = engine->max_logit_rows - engine->max_sequences};
  for (size_t r = 0; r < engine->n_requests; r++)
    for (int32_t s = 0; s < iso_engine_request_width(engine->requests[r]); s++) {
      engine_sequence *sequence = &engine->requests[r]->sequences[s];
      place at = {r, s};
      if (engine->batch.n == engine->max_sequences)
        return ISO_OK;
      if (!is_runnable(engine, sequence))
        continue;
      ISO_TRY(decodes(sequence) ? place_decoding(&self, sequence, at)
                                : place_prompt(&self, sequence, at));
      if (engine->must_wait) {
        engine->batch.n = 0;
        return ISO_OK;
      }
      self.others_hold = self.others_hold || sequence->n_pages > 0;
    }
  return ISO_OK;
}
