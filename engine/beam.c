/* Beam search. Each step, every beam says what may follow it (its 2 * beam_width likeliest tokens,
 * so that enough are left when beam_width of them end an answer); of all those the best go on. A
 * beam notes its candidates whenever its rows have run and then waits for the others, so beams need
 * neither run in the same step nor hold pages at the same time.
 *
 * Scores: sum of logprobs / length ^ length_penalty, the length being that of the output with its
 * end token, as Hugging Face transformers has it. */
#include "engine/engine.h"

#include <math.h>
#include <string.h>

static double score(double sum, int32_t length, float penalty) {
  return sum / pow(length, (double)penalty);
}

static double score_of(const engine_answer *answer, const iso_request *asked) {
  return score(answer->cumulative_logprob, iso_answer_n_output(answer), asked->length_penalty);
}

static bool is_better(const beam_candidate *x, const beam_candidate *y) {
  if (x->sum != y->sum)
    return x->sum > y->sum;
  return x->parent != y->parent ? x->parent < y->parent : x->token < y->token;
}

void iso_beam_look(const iso_engine *engine, engine_sampler *sampler, engine_sequence *sequence,
                   const float *logits) {
  int32_t n = 2 * sequence->request->asked.beam_width;
  const float *row = iso_sampler_adjust(engine, sampler, sequence, logits);
  double log_sum = iso_log_sum_exp(row, engine->n_vocabulary);
  iso_token_logprob top[2 * ENGINE_MAX_CHOICES];
  iso_top_logprobs(row, engine->n_vocabulary, log_sum, n, top);
  for (int32_t i = 0; i < n; i++) {
    const beam_candidate candidate = {.token = top[i].token,
                                      .logprob = top[i].logprob,
                                      .sum = sequence->answer.cumulative_logprob +
                                             (double)top[i].logprob,
                                      .parent = sequence->index};
    int32_t at = i; /* but where sums round to the same the top is in order */
    for (; at > 0 && is_better(&candidate, &sequence->candidates[at - 1]); at--)
      sequence->candidates[at] = sequence->candidates[at - 1];
    sequence->candidates[at] = candidate;
  }
}

iso_status iso_beam_note(iso_engine *engine, engine_sequence *sequence, const float *logits) {
  if (!sequence->drawn)
    iso_beam_look(engine, &engine->samplers[0], sequence, logits);
  ISO_TRY(iso_sampler_check(engine, sequence, logits, sequence->candidates[0].token));
  if (sequence->answer.n_top > 0) {
    /* The likeliest tokens of this place go with whichever is chosen. */
    engine_answer *answer = &sequence->answer;
    size_t each = 1 + (size_t)answer->n_top, at = (size_t)iso_answer_n_output(answer) * each;
    ISO_TRY(iso_array_grow((void **)&answer->logprobs, &answer->logprob_capacity, at + each,
                           sizeof *answer->logprobs));
    iso_top_logprobs(logits, engine->n_vocabulary, iso_log_sum_exp(logits, engine->n_vocabulary),
                     answer->n_top, answer->logprobs + at + 1);
  }
  sequence->state = SEQUENCE_HELD;
  return ISO_OK;
}

/* ---- Answers that ended -------------------------------------------------------------------- */

/* Keeps the best beam_width, best first. Takes `answer` over. */
static void keep(engine_request *request, engine_answer *answer) {
  const iso_request *asked = &request->asked;
  int32_t at = request->n_finished++;
  for (; at > 0 && score_of(&request->finished[at - 1], asked) < score_of(answer, asked); at--)
    request->finished[at] = request->finished[at - 1];
  request->finished[at] = *answer;
  *answer = (engine_answer){0};
  if (request->n_finished > asked->beam_width)
    iso_answer_destroy(&request->finished[--request->n_finished]);
}

/* Whether as many have ended as can be kept, and none is worse than an answer of this sum. */
static bool is_full_of_better(const engine_request *request, double sum, int32_t length) {
  const iso_request *asked = &request->asked;
  return request->n_finished == asked->beam_width &&
         score_of(&request->finished[request->n_finished - 1], asked) >=
             score(sum, length, asked->length_penalty);
}

/* Whether no beam can become better than the worst of those that ended. */
static bool is_settled(const engine_request *request, double best_sum, int32_t length) {
  const iso_request *asked = &request->asked;
  return (asked->early_stopping && request->n_finished == asked->beam_width) ||
         is_full_of_better(request, best_sum, length);
}

static iso_status deliver(iso_engine *engine, engine_request *request) {
  for (int32_t i = 0; i < request->n_sequences; i++) {
    engine_sequence *sequence = &request->sequences[i];
    if (sequence->state == SEQUENCE_HELD && sequence->answer.tokens) {
      ISO_TRY(iso_answer_finish(&sequence->answer, &engine->piece));
      keep(request, &sequence->answer);
    }
    iso_sequence_end(engine, sequence);
  }
  for (int32_t i = 0; i < request->n_choices && i < request->n_finished; i++) {
    request->usage.n_output += iso_answer_n_output(&request->finished[i]);
    ISO_TRY(iso_event_text(engine, request, i, &request->finished[i], true));
    iso_event_choice(engine, request, i, &request->finished[i]);
  }
  request->is_delivered = true;
  return ISO_OK;
}

/* ---- A step -------------------------------------------------------------------------------- */

/* The best of what may follow all beams, best first; each beam's are in order. Returns how many,
 * 2 * beam_width at most. */
static int32_t merge(const engine_request *request, beam_candidate *out_best) {
  int32_t most = 2 * request->asked.beam_width, heads[ENGINE_MAX_CHOICES] = {0};
  for (int32_t n = 0; n < most; n++) {
    const beam_candidate *best = NULL;
    for (int32_t i = 0; i < request->n_sequences; i++) {
      const engine_sequence *beam = &request->sequences[i];
      if (beam->state == SEQUENCE_HELD && heads[i] < most &&
          (!best || is_better(&beam->candidates[heads[i]], best)))
        best = &beam->candidates[heads[i]];
    }
    if (!best)
      return n;
    out_best[n] = *best;
    heads[best->parent]++;
  }
  return most;
}

static bool is_end(const iso_engine *engine, const iso_request *asked, int32_t token) {
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(engine->model);
  for (int32_t i = 0; i < asked->n_stop_tokens; i++)
    if (asked->stop_tokens[i] == token)
      return true;
  return !asked->ignore_end && tokenizer && iso_tokenizer_is_end(tokenizer, token);
}

static iso_status append(engine_answer *answer, const beam_candidate *candidate) {
  size_t at = (size_t)iso_answer_n_output(answer) * (1 + (size_t)answer->n_top);
  iso_token_logprob known[1 + ENGINE_MAX_TOP_LOGPROBS] = {{candidate->token, candidate->logprob}};
  if (answer->n_top > 0)
    memcpy(known + 1, answer->logprobs + at + 1, (size_t)answer->n_top * sizeof *known);
  return iso_answer_append(answer, candidate->token, known);
}

/* Ends a copy of the parent with the candidate's token. */
static iso_status finish(iso_engine *engine, engine_request *request,
                         const beam_candidate *candidate) {
  const engine_answer *parent = &request->sequences[candidate->parent].answer;
  engine_answer answer;
  if (is_full_of_better(request, candidate->sum, iso_answer_n_output(parent) + 1))
    return ISO_OK;
  ISO_TRY(iso_answer_copy_output(parent, &answer));
  iso_status status = append(&answer, candidate);
  answer.reason = ISO_STOP_END;
  answer.hides_last = true;
  if (status == ISO_OK)
    status = iso_answer_finish(&answer, &engine->piece);
  if (status == ISO_OK)
    keep(request, &answer);
  iso_answer_destroy(&answer);
  return status;
}

/* Chooses what goes on: at most beam_width of the sorted candidates; those that end an answer are
 * finished on the way. Returns how many go on. */
static iso_status choose(iso_engine *engine, engine_request *request,
                         const beam_candidate *candidates, int32_t n, beam_candidate *out_next,
                         int32_t *out_count) {
  const iso_request *asked = &request->asked;
  *out_count = 0;
  for (int32_t i = 0; i < n && *out_count < asked->beam_width; i++) {
    if (candidates[i].token < 0)
      continue;
    if (!is_end(engine, asked, candidates[i].token))
      out_next[(*out_count)++] = candidates[i];
    else if (i < asked->beam_width)
      ISO_TRY(finish(engine, request, &candidates[i]));
  }
  return ISO_OK;
}

/* A place for a copy of a beam: one that is no parent of the next step. */
static engine_sequence *free_place(engine_request *request, const bool *is_taken) {
  for (int32_t i = 0; i < request->n_sequences; i++)
    if (!is_taken[i])
      return &request->sequences[i];
  return NULL;
}

/* A beam that ends here leaves its place. */
static void leave(iso_engine *engine, engine_sequence *sequence) {
  iso_sequence_drop_pages(engine, sequence);
  iso_answer_destroy(&sequence->answer);
  sequence->state = SEQUENCE_BLOCKED;
}

/* Copies beams with several continuations, in the places of beams with none: a child has much in
 * common with whom it follows there. */
static iso_status spread(iso_engine *engine, engine_request *request, beam_candidate *next,
                         int32_t n, int32_t *out_places) {
  bool is_taken[ENGINE_MAX_CHOICES] = {false}, is_reused[ENGINE_MAX_CHOICES] = {false};
  for (int32_t i = 0; i < n; i++)
    is_taken[next[i].parent] = true;
  for (int32_t i = 0; i < n; i++) {
    int32_t parent = next[i].parent;
    if (!is_reused[parent]) {
      is_reused[parent] = true;
      out_places[i] = parent;
      continue;
    }
    engine_sequence *child = free_place(request, is_taken);
    ISO_TRY(iso_sequence_fork(engine, &request->sequences[parent], child));
    is_taken[child->index] = true;
    out_places[i] = child->index;
  }
  for (int32_t i = 0; i < request->n_sequences; i++)
    if (!is_taken[i])
      leave(engine, &request->sequences[i]);
  return ISO_OK;
}

static iso_status go_on(iso_engine *engine, engine_request *request, beam_candidate *next,
                        int32_t n, bool *out_any) {
  int32_t places[ENGINE_MAX_CHOICES];
  ISO_TRY(spread(engine, request, next, n, places));
  *out_any = false;
  for (int32_t i = 0; i < n; i++) {
    engine_sequence *sequence = &request->sequences[places[i]];
    engine_answer *answer = &sequence->answer;
    bool stopped, too_early;
    ISO_TRY(append(answer, &next[i]));
    too_early = iso_answer_n_output(answer) < request->asked.min_tokens;
    ISO_TRY(iso_answer_append_text(answer, too_early, &engine->piece, &stopped));
    sequence->state = SEQUENCE_READY;
    if (stopped) {
      keep(request, answer);
      iso_sequence_drop_pages(engine, sequence);
      sequence->state = SEQUENCE_BLOCKED;
    } else if ((int32_t)answer->n_tokens >= request->length_limit) {
      sequence->state = SEQUENCE_HELD;
    } else {
      *out_any = true;
    }
  }
  return ISO_OK;
}

iso_status iso_beam_advance(iso_engine *engine, engine_request *request) {
  int32_t length = 0;
  for (int32_t i = 0; i < request->n_sequences; i++)
    if (request->sequences[i].state == SEQUENCE_READY)
      return ISO_OK;
  beam_candidate best[2 * ENGINE_MAX_CHOICES], next[ENGINE_MAX_CHOICES];
  for (int32_t i = 0; i < request->n_sequences; i++)
    if (request->sequences[i].state == SEQUENCE_HELD)
      length = iso_answer_n_output(&request->sequences[i].answer) + 1;
  int32_t n = merge(request, best), count = 0;
  ISO_TRY(choose(engine, request, best, n, next, &count));
  bool any = false;
  engine->stats.n_output_tokens += (uint64_t)count;
  if (request->first_token_us == 0)
    request->first_token_us = iso_engine_now_us();
  if (count > 0 && !is_settled(request, next[0].sum, length))
    ISO_TRY(go_on(engine, request, next, count, &any));
  else
    for (int32_t i = 0; i < request->n_sequences; i++)
      iso_sequence_end(engine, &request->sequences[i]);
  return any ? ISO_OK : deliver(engine, request);
}
