/* What the rows of a step mean. A failure here is one request's, not the engine's. */
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Ends of choices ----------------------------------------------------------------------- */

static double mean_logprob(const engine_answer *answer) {
  int32_t n = iso_answer_n_output(answer);
  return n > 0 ? answer->cumulative_logprob / n : -INFINITY;
}

/* Delivers the best of the sequences of a request that kept them. */
static iso_status deliver_best(iso_engine *engine, engine_request *request) {
  bool used[ENGINE_MAX_CHOICES] = {false};
  for (int32_t choice = 0; choice < request->n_choices; choice++) {
    int32_t best = -1;
    for (int32_t i = 0; i < request->n_sequences; i++)
      if (!used[i] && (best < 0 || mean_logprob(&request->sequences[i].answer) >
                                       mean_logprob(&request->sequences[best].answer)))
        best = i;
    used[best] = true;
    ISO_TRY(iso_event_text(engine, request, choice, &request->sequences[best].answer, true));
    iso_event_choice(engine, request, choice, &request->sequences[best].answer);
  }
  return ISO_OK;
}

static iso_status end_sequence(iso_engine *engine, engine_sequence *sequence) {
  engine_request *request = sequence->request;
  iso_sequence_offer_pages(engine, sequence);
  iso_sequence_end(engine, sequence);
  ISO_TRY(iso_answer_finish(&sequence->answer, &engine->piece));
  if (!request->is_deferred) {
    ISO_TRY(iso_event_text(engine, request, sequence->index, &sequence->answer, true));
    iso_event_choice(engine, request, sequence->index, &sequence->answer);
  }
  for (int32_t i = 0; i < request->n_sequences; i++)
    if (request->sequences[i].state != SEQUENCE_ENDED)
      return ISO_OK;
  if (request->is_deferred)
    ISO_TRY(deliver_best(engine, request));
  request->is_delivered = true;
  return ISO_OK;
}

/* ---- Tokens -------------------------------------------------------------------------------- */

static bool ends_answer(const iso_engine *engine, const engine_sequence *sequence, int32_t token) {
  const iso_request *asked = &sequence->request->asked;
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(engine->model);
  for (int32_t i = 0; i < asked->n_stop_tokens; i++)
    if (asked->stop_tokens[i] == token)
      return true;
  return !asked->ignore_end && tokenizer && iso_tokenizer_is_end(tokenizer, token);
}

/* Appends a drawn token and shows what it completes. `known`: its logprobs, where they are known
 * and wanted; NULL: they are found. *out_ended: it was the last. */
static iso_status take_token(iso_engine *engine, engine_sequence *sequence, const float *logits,
                             const iso_token_logprob *known, int32_t token, bool *out_ended) {
  engine_request *request = sequence->request;
  engine_answer *answer = &sequence->answer;
  iso_token_logprob logprobs[1 + ENGINE_MAX_TOP_LOGPROBS];
  if (answer->has_logprobs && !known) {
    iso_sampler_logprobs(engine, logits, token, answer->n_top, logprobs);
    known = logprobs;
  }
  ISO_TRY(iso_answer_append(answer, token, answer->has_logprobs ? known : NULL));
  request->usage.n_output++;
  engine->stats.n_output_tokens++;
  if (request->first_token_us == 0)
    request->first_token_us = iso_engine_now_us();
  *out_ended = true;
  if (ends_answer(engine, sequence, token)) {
    answer->reason = ISO_STOP_END;
    answer->hides_last = true;
    return end_sequence(engine, sequence);
  }
  bool stopped, too_early = iso_answer_n_output(answer) < request->asked.min_tokens;
  if (answer->grammar.grammar)
    ISO_TRY(iso_grammar_take(&answer->grammar, token));
  ISO_TRY(iso_answer_append_text(answer, too_early, &engine->piece, &stopped));
  if (!stopped && iso_grammar_is_over(&answer->grammar)) {
    answer->reason = ISO_STOP_END;
    return end_sequence(engine, sequence);
  }
  if (stopped || (int32_t)answer->n_tokens >= request->length_limit)
    return end_sequence(engine, sequence);
  *out_ended = false;
  return request->is_deferred ? ISO_OK
                              : iso_event_text(engine, request, sequence->index, answer, false);
}

static const float *logits_of(const iso_engine *engine, const engine_sequence *sequence,
                              int32_t row) {
  return iso_runtime_logits(engine->runtime, sequence->rows.logit_row + row);
}

/* Whether the device guessed the token; if not, what runs behind its guess is void, and the next
 * step begins from what is right. */
static void judge_guess(iso_engine *engine, engine_sequence *sequence, int32_t row, int32_t token) {
  enum { LATELY = 10 };
  engine_batch *later = &engine->batch;
  bool is_wrong = iso_runtime_token(engine->runtime, sequence->rows.logit_row + row) != token;
  sequence->miss_rate += ((is_wrong ? 1.0f : 0.0f) - sequence->miss_rate) / LATELY;
  for (int32_t i = 0; is_wrong && later->is_under_way && i < later->n; i++) {
    if (later->sequences[i] != sequence)
      continue;
    sequence->ahead.n_rows -= later->rows[i].n;
    sequence->ahead.n_tokens -= later->rows[i].draws_ahead;
    later->rows[i].is_void = true;
  }
}

/* One token, and as many more as drafts guessed. A draft is right when it is what would have been
 * drawn without it: so the output is the same, token by token, as without drafts. With a window it
 * is right when the filters leave it. */
static iso_status draw(iso_engine *engine, engine_sequence *sequence, int32_t row) {
  int32_t n_drafts = sequence->rows.n_drafts, n_accepted = 0;
  bool ended = false, has_window = n_drafts > 0 && iso_sampler_has_window(engine, sequence);
  for (int32_t i = 0; i <= n_drafts && !ended; i++) {
    const float *logits = logits_of(engine, sequence, row + i);
    bool is_left = has_window && i < n_drafts &&
                   iso_sampler_leaves(engine, sequence, logits, sequence->drafts[i]);
    const engine_drawn *drawn = i == 0 && !is_left ? sequence->drawn : NULL;
    int32_t token = drawn ? drawn->token : is_left ? sequence->drafts[i] : -1;
    if (!drawn && !is_left)
      ISO_TRY(sequence->rows.draws_on_device
                  ? iso_sampler_take(engine, sequence, sequence->rows.logit_row + row + i, &token)
                  : iso_sampler_draw(engine, &engine->samplers[0], sequence, logits, &token));
    if (sequence->rows.is_guess)
      judge_guess(engine, sequence, row, token);
    if (i > 0)
      sequence->n_cached++; /* the draft before, which was right */
    bool is_right = i < n_drafts && token == sequence->drafts[i];
    n_accepted += is_right;
    ISO_TRY(take_token(engine, sequence, logits, drawn ? drawn->logprobs : NULL, token, &ended));
    if (!is_right)
      break;
  }
  if (n_drafts > 0) {
    sequence->request->usage.n_drafted += n_drafts;
    sequence->request->usage.n_accepted += n_accepted;
    engine->stats.n_drafted += (uint64_t)n_drafts;
    engine->stats.n_accepted += (uint64_t)n_accepted;
    iso_speculation_learn(sequence, n_accepted);
  }
  return ISO_OK;
}

/* ---- Prompts ------------------------------------------------------------------------------- */

/* Row i of this step tells how likely the token after it was. */
static void note_prompt_logprobs(iso_engine *engine, const engine_sequence *sequence) {
  engine_request *request = sequence->request;
  int32_t n_top = request->asked.n_top_logprobs;
  const int32_t *tokens = sequence->answer.tokens;
  if (sequence->n_cached == 0) {
    request->prompt_logprobs[0] = (iso_token_logprob){tokens[0], 0};
    for (int32_t i = 0; i < n_top; i++)
      request->prompt_logprobs[1 + i] = (iso_token_logprob){-1, -INFINITY};
  }
  for (int32_t i = 0; i < sequence->rows.n; i++) {
    int32_t next = sequence->n_cached + i + 1;
    if (next < request->asked.n_prompt)
      iso_sampler_logprobs(engine, logits_of(engine, sequence, i), tokens[next], n_top,
                           request->prompt_logprobs + (size_t)next * (1 + (size_t)n_top));
  }
}

/* Pooled as the model says, and of length 1. */
static iso_status add_embedding(iso_engine *engine, const engine_sequence *sequence,
                                bool is_last) {
  engine_request *request = sequence->request;
  const iso_model_config *config = iso_model_get_config(engine->model);
  int32_t width = config->hidden_size, n_rows = sequence->rows.n;
  bool of_last = config->pooling == ISO_POOLING_LAST;
  if (sequence->n_cached == 0) /* for the first time, or once more from the start */
    memset(request->embedding, 0, (size_t)width * sizeof *request->embedding);
  for (int32_t r = !of_last ? 0 : is_last ? n_rows - 1 : n_rows; r < n_rows; r++) {
    const float *row = iso_runtime_hidden(engine->runtime, sequence->rows.first_row + r);
    for (int32_t i = 0; i < width; i++)
      request->embedding[i] += (double)row[i];
  }
  if (!is_last)
    return ISO_OK;
  double square = 0;
  for (int32_t i = 0; i < width; i++)
    square += request->embedding[i] * request->embedding[i];
  for (int32_t i = 0; i < width; i++)
    request->pooled[i] = (float)(square > 0 ? request->embedding[i] / sqrt(square) : 0);
  return isfinite(square) ? ISO_OK
                          : iso_fail(ISO_ERROR_INTERNAL,
                                     "the model gave hidden states that are no numbers; run "
                                     "`isomer verify` to find the op that went wrong");
}

/* The prompt is in the cache: all choices go on from there. */
static iso_status finish_prompt(iso_engine *engine, engine_sequence *first) {
  engine_request *request = first->request;
  int32_t last_row = first->rows.n_logit_rows - 1;
  request->is_prompt_done = true;
  if (request->asked.prompt_logprobs)
    ISO_TRY(iso_event_prompt(engine, request));
  if (request->asked.beam_width > 0)
    return iso_beam_note(engine, first, logits_of(engine, first, last_row));
  for (int32_t i = 1; i < request->n_sequences; i++) {
    ISO_TRY(iso_sequence_fork(engine, first, &request->sequences[i]));
    request->sequences[i].rows = first->rows;
  }
  for (int32_t i = 0; i < request->n_sequences; i++)
    ISO_TRY(draw(engine, &request->sequences[i], last_row));
  return ISO_OK;
}

static iso_status handle(iso_engine *engine, engine_sequence *sequence) {
  engine_request *request = sequence->request;
  bool is_last = sequence->rows.is_last;
  if (!request->is_prompt_done)
    engine->stats.n_prompt_tokens += (uint64_t)sequence->rows.n;
  if (request->asked.prompt_logprobs && !request->is_prompt_done)
    note_prompt_logprobs(engine, sequence);
  if (request->asked.embed)
    ISO_TRY(add_embedding(engine, sequence, is_last));
  sequence->n_cached += sequence->rows.n - sequence->rows.n_drafts;
  iso_sequence_offer_pages(engine, sequence);
  if (!is_last)
    return ISO_OK;
  if (request->asked.embed) {
    iso_sequence_end(engine, sequence);
    request->is_delivered = true;
    return ISO_OK;
  }
  if (!request->is_prompt_done)
    return finish_prompt(engine, sequence);
  int32_t row = sequence->rows.n_logit_rows - 1 - sequence->rows.n_drafts;
  return request->asked.beam_width > 0
             ? iso_beam_note(engine, sequence, logits_of(engine, sequence, row))
             : draw(engine, sequence, row);
}

/* The step is no longer under way for row set `i`. Returns whether its rows are of no use: the
 * sequence ended in the step before, or drew another token than they go on from, or its reader was
 * slow then and the rows run again later. */
static bool land(const engine_batch *batch, int32_t i) {
  engine_sequence *sequence = batch->sequences[i];
  const engine_request *request = sequence->request;
  if (batch->rows[i].is_void)
    return true;
  sequence->ahead.n_rows -= batch->rows[i].n;
  sequence->ahead.n_tokens -= batch->rows[i].draws_ahead;
  return sequence->state == SEQUENCE_ENDED || request->is_paused;
}

iso_status iso_engine_distribute(iso_engine *engine) {
  const engine_batch *batch = &engine->running;
  if (batch->wants_hidden)
    ISO_TRY(iso_runtime_fetch_hidden(engine->runtime));
  for (int32_t i = 0; i < batch->n; i++) {
    batch->drops[i] = land(batch, i);
    batch->drawn[i].is_there = false;
  }
  if (batch->n_host_rows > 0)
    iso_sampler_draw_ahead(engine);
  for (int32_t i = 0; i < batch->n; i++) {
    engine_sequence *sequence = batch->sequences[i];
    engine_request *request = sequence->request;
    /* A beam that ended or moved on while others of this step were looked at is not looked at. */
    if (batch->drops[i] || request->is_cancelled || iso_engine_request_is_over(request))
      continue;
    sequence->rows = batch->rows[i];
    sequence->drawn = batch->drawn[i].is_there ? &batch->drawn[i] : NULL;
    iso_status status = handle(engine, sequence);
    if (status == ISO_OK && request->asked.beam_width > 0 && request->is_prompt_done)
      status = iso_beam_advance(engine, request);
    if (status != ISO_OK)
      iso_engine_request_fail(request, status);
  }
  return ISO_OK;
}
