#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

iso_status iso_sampler_create(const iso_engine *engine, engine_sampler *out_sampler) {
  size_t n = (size_t)engine->n_vocabulary;
  out_sampler->logits = malloc(n * sizeof *out_sampler->logits);
  out_sampler->candidates = malloc(n * sizeof *out_sampler->candidates);
  return out_sampler->logits && out_sampler->candidates
             ? ISO_OK
             : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to sample from %zu tokens", n);
}

void iso_sampler_destroy(engine_sampler *sampler) {
  free(sampler->logits);
  free(sampler->candidates);
}

/* The end of an answer, here behind n_output tokens, cannot come before min_tokens. */
static bool forbids_end(const iso_request *asked, int32_t n_output) {
  return n_output < asked->min_tokens && (!asked->ignore_end || asked->n_stop_tokens > 0);
}

static void forbid(float *logits, int32_t n, const int32_t *tokens, size_t n_tokens) {
  for (size_t i = 0; i < n_tokens; i++)
    if (tokens[i] >= 0 && tokens[i] < n)
      logits[tokens[i]] = -INFINITY;
}

const float *iso_sampler_adjust(const iso_engine *engine, engine_sampler *sampler,
                                const engine_sequence *sequence, const float *logits) {
  const iso_request *asked = &sequence->request->asked;
  bool is_early = forbids_end(asked, iso_answer_n_output(&sequence->answer));
  if (asked->n_logit_bias == 0 && !is_early)
    return logits;
  float *row = sampler->logits;
  memcpy(row, logits, (size_t)engine->n_vocabulary * sizeof *row);
  for (int32_t i = 0; i < asked->n_logit_bias; i++)
    row[asked->logit_bias[i].token] += asked->logit_bias[i].bias;
  if (is_early) {
    const iso_tokenizer *tokenizer = iso_model_get_tokenizer(engine->model);
    size_t n_ends = 0;
    const int32_t *ends = tokenizer ? iso_tokenizer_end_ids(tokenizer, &n_ends) : NULL;
    if (!asked->ignore_end)
      forbid(row, engine->n_vocabulary, ends, n_ends);
    forbid(row, engine->n_vocabulary, asked->stop_tokens, (size_t)asked->n_stop_tokens);
  }
  return row;
}

/* Choice 0 draws as a request with one choice would. */
static uint64_t stream_of(uint64_t seed, int32_t index) {
  return seed + (uint64_t)index * UINT64_C(0x9e3779b97f4a7c15);
}

static void read_parameters(const iso_sampling *sampling,
                            float out_parameters[ISO_SAMPLE_PARAMETER_COUNT]) {
  const float parameters[ISO_SAMPLE_PARAMETER_COUNT] = {
      [ISO_SAMPLE_TEMPERATURE] = sampling->temperature,
      [ISO_SAMPLE_TOP_K] = (float)sampling->top_k,
      [ISO_SAMPLE_TOP_P] = sampling->top_p,
      [ISO_SAMPLE_MIN_P] = sampling->min_p,
      [ISO_SAMPLE_REPETITION_PENALTY] = sampling->repetition_penalty,
      [ISO_SAMPLE_PRESENCE_PENALTY] = sampling->presence_penalty,
      [ISO_SAMPLE_FREQUENCY_PENALTY] = sampling->frequency_penalty,
  };
  memcpy(out_parameters, parameters, sizeof parameters);
}

static bool has_finite(const float *logits, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    if (isfinite(logits[i]))
      return true;
  return false;
}

/* What of a request can forbid tokens where the model has some. */
static const char *what_forbids(const engine_sequence *sequence) {
  const iso_request *asked = &sequence->request->asked;
  bool has_bias = asked->n_logit_bias > 0;
  if (has_bias && sequence->answer.grammar.grammar)
    return "logit_bias forbids every token that the grammar allows";
  if (forbids_end(asked, iso_answer_n_output(&sequence->answer)))
    return has_bias ? "logit_bias forbids every token but those that end the answer, which "
                      "min_tokens does not let come yet"
                    : "every token ends the answer, and min_tokens lets none come yet";
  return has_bias ? "logit_bias forbids every token" : NULL;
}

iso_status iso_sampler_check(const iso_engine *engine, const engine_sequence *sequence,
                             const float *logits, int32_t token) {
  if (token >= 0)
    return ISO_OK;
  const char *sentence = what_forbids(sequence);
  return sentence && logits && has_finite(logits, engine->n_vocabulary)
             ? iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s", sentence)
             : iso_fail(ISO_ERROR_INTERNAL,
                        "the model gave no finite logit; run `isomer verify` to find the op that "
                        "went wrong");
}

/* What the sequence's grammar leaves; NULL: there is none. */
static iso_status find_allowed(engine_sequence *sequence, const uint32_t **out_allowed) {
  const iso_request *asked = &sequence->request->asked;
  *out_allowed = NULL;
  return sequence->answer.grammar.grammar
             ? iso_grammar_allowed(&sequence->answer.grammar, asked->stop_tokens,
                                   asked->n_stop_tokens, out_allowed)
             : ISO_OK;
}

iso_status iso_sampler_draw(const iso_engine *engine, engine_sampler *sampler,
                            engine_sequence *sequence, const float *logits, int32_t *out_token) {
  const iso_sampling *sampling = &sequence->request->asked.sampling;
  const engine_answer *answer = &sequence->answer;
  const uint32_t *allowed;
  float parameters[ISO_SAMPLE_PARAMETER_COUNT];
  ISO_TRY(find_allowed(sequence, &allowed));
  read_parameters(sampling, parameters);
  const iso_sample_row row = {
      .logits = iso_sampler_adjust(engine, sampler, sequence, logits),
      .n_logits = engine->n_vocabulary,
      .parameters = parameters,
      .seed = stream_of(sampling->seed, sequence->index),
      .draw = (uint32_t)iso_answer_n_output(answer),
      .history = answer->tokens,
      .n_history = (int64_t)answer->n_tokens,
      .output_start = answer->n_prompt,
      .allowed = allowed,
  };
  ISO_TRY(iso_sample_token(&row, sampler->candidates, out_token));
  return iso_sampler_check(engine, sequence, logits, *out_token);
}

/* ---- Windows ------------------------------------------------------------------------------- */

enum { WINDOW_MAX_TOP_K = 128 };

bool iso_sampler_has_window(const iso_engine *engine, const engine_sequence *sequence) {
  const iso_sampling *sampling = &sequence->request->asked.sampling;
  return engine->options.acceptance == ISO_ACCEPT_WINDOW && sampling->temperature > 0 &&
         (sampling->top_p < 1 || sampling->top_k > 0 || sampling->min_p > 0) &&
         sampling->top_k <= WINDOW_MAX_TOP_K && sampling->repetition_penalty == 1 &&
         sampling->presence_penalty == 0 && sampling->frequency_penalty == 0;
}

/* By the definitions of ops/sampling.h, for one token. */
bool iso_sampler_leaves(iso_engine *engine, const engine_sequence *sequence, const float *logits,
                        int32_t token) {
  const iso_sampling *sampling = &sequence->request->asked.sampling;
  const float *row = iso_sampler_adjust(engine, &engine->samplers[0], sequence, logits);
  iso_token_logprob top[WINDOW_MAX_TOP_K];
  int32_t n_top = sampling->top_k > 0 ? sampling->top_k : 1;
  iso_top_logprobs(row, engine->n_vocabulary, 0, n_top, top);
  float least = sampling->top_k > 0 ? top[n_top - 1].logprob : -INFINITY;
  if (!isfinite(row[token]) || !isfinite(top[0].logprob) || row[token] < least)
    return false;
  double all = 0, larger = 0;
  for (int32_t i = 0; i < engine->n_vocabulary; i++) {
    if (!(row[i] >= least))
      continue;
    double weight = exp(((double)row[i] - (double)top[0].logprob) / (double)sampling->temperature);
    all += weight;
    larger += row[i] > row[token] ? weight : 0;
  }
  double own = exp(((double)row[token] - (double)top[0].logprob) / (double)sampling->temperature);
  return (larger == 0 || larger < (double)sampling->top_p * all) && own >= (double)sampling->min_p;
}

/* Whether the device draws from the sequence's rows, one by one, as its temperature and filters
 * say. */
static bool suits_device(const iso_engine *engine, const engine_sequence *sequence) {
  const engine_request *request = sequence->request;
  const iso_request *asked = &request->asked;
  bool looks_at_drafts = sequence->rows.n_drafts > 0 && iso_sampler_has_window(engine, sequence);
  bool shares_row = !request->is_prompt_done && request->n_sequences > 1;
  return iso_runtime_samples(engine->runtime) && sequence->rows.n_logit_rows > 0 &&
         asked->beam_width == 0 && !shares_row && !looks_at_drafts &&
         !(asked->prompt_logprobs && !request->is_prompt_done);
}

/* Whether a token drawn so is all that is wanted. */
static bool is_plain(const engine_sequence *sequence) {
  const iso_request *asked = &sequence->request->asked;
  const iso_sampling *sampling = &asked->sampling;
  int32_t n_output = iso_answer_n_output(&sequence->answer) + sequence->ahead.n_tokens;
  return !sequence->answer.has_logprobs && asked->n_logit_bias == 0 && !asked->grammar &&
         !forbids_end(asked, n_output) && sampling->repetition_penalty == 1 &&
         sampling->presence_penalty == 0 && sampling->frequency_penalty == 0;
}

void iso_sampler_set_row(iso_runtime *runtime, const engine_sequence *sequence, int32_t row,
                         int32_t ahead) {
  const iso_sampling *sampling = &sequence->request->asked.sampling;
  float parameters[ISO_SAMPLE_PARAMETER_COUNT];
  read_parameters(sampling, parameters);
  parameters[ISO_SAMPLE_REPETITION_PENALTY] = 1;
  parameters[ISO_SAMPLE_PRESENCE_PENALTY] = parameters[ISO_SAMPLE_FREQUENCY_PENALTY] = 0;
  iso_runtime_set_sampling(
      runtime, row, parameters, stream_of(sampling->seed, sequence->index),
      (uint32_t)(iso_answer_n_output(&sequence->answer) + sequence->ahead.n_tokens + ahead));
}

void iso_sampler_place(iso_engine *engine, engine_sequence *sequence) {
  engine_rows *rows = &sequence->rows;
  bool suits = suits_device(engine, sequence), plain = suits && is_plain(sequence);
  rows->draws_on_device = plain;
  rows->is_guess = suits && !plain && rows->n_drafts == 0 && engine->overlaps;
  rows->draws_ahead = rows->is_guess || (plain && rows->n_drafts == 0);
  int32_t first = rows->logit_row + rows->n_logit_rows - 1 - rows->n_drafts;
  for (int32_t i = 0; (plain || rows->is_guess) && i <= rows->n_drafts; i++)
    iso_sampler_set_row(engine->runtime, sequence, first + i, i);
}

iso_status iso_sampler_take(const iso_engine *engine, const engine_sequence *sequence, int32_t row,
                            int32_t *out_token) {
  *out_token = iso_runtime_token(engine->runtime, row);
  return iso_sampler_check(engine, sequence, NULL, *out_token);
}

double iso_log_sum_exp(const float *logits, int32_t n) {
  float largest = -INFINITY;
  for (int32_t i = 0; i < n; i++)
    if (logits[i] > largest)
      largest = logits[i];
  if (!isfinite(largest))
    return (double)largest;
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    if (logits[i] > largest - 80) /* less would not show in the sum, and NaN is out */
      sum += (double)expf(logits[i] - largest);
  return (double)largest + log(sum);
}

void iso_top_logprobs(const float *logits, int32_t n_logits, double log_sum, int32_t n,
                      iso_token_logprob *out_top) {
  for (int32_t i = 0; i < n; i++)
    out_top[i] = (iso_token_logprob){-1, -INFINITY};
  float least = -INFINITY; /* the last one's logit */
  for (int32_t token = 0; n > 0 && token < n_logits; token++) {
    if (!(logits[token] > least))
      continue;
    int32_t at = 0, end = n - 1; /* behind those that are as large */
    while (at < end) {
      int32_t middle = (at + end) / 2;
      if (out_top[middle].token >= 0 && out_top[middle].logprob >= logits[token])
        at = middle + 1;
      else
        end = middle;
    }
    memmove(out_top + at + 1, out_top + at, (size_t)(n - 1 - at) * sizeof *out_top);
    out_top[at] = (iso_token_logprob){token, logits[token]};
    if (out_top[n - 1].token >= 0)
      least = out_top[n - 1].logprob;
  }
  for (int32_t i = 0; i < n; i++)
    out_top[i].logprob = (float)((double)out_top[i].logprob - log_sum);
}

void iso_sampler_logprobs(const iso_engine *engine, const float *logits, int32_t token,
                          int32_t n_top, iso_token_logprob *out) {
  double log_sum = iso_log_sum_exp(logits, engine->n_vocabulary);
  out[0] = (iso_token_logprob){token, (float)((double)logits[token] - log_sum)};
  iso_top_logprobs(logits, engine->n_vocabulary, log_sum, n_top, out + 1);
}

/* ---- Many rows at once --------------------------------------------------------------------- */

/* The sequence's next token is drawn from one row, or a beam's candidates found in it, by the host,
 * whatever else the step brings. */
static bool suits_host(const engine_batch *batch, int32_t i) {
  const engine_sequence *sequence = batch->sequences[i];
  const engine_request *request = sequence->request;
  const engine_rows *rows = &batch->rows[i];
  return !batch->drops[i] && rows->is_last && rows->n_logit_rows > 0 && !rows->draws_on_device &&
         !request->asked.embed && (request->is_prompt_done || request->n_sequences == 1) &&
         !request->is_cancelled && !iso_engine_request_is_over(request);
}

static void draw_one(void *context, int32_t i, int32_t worker) {
  iso_engine *engine = context;
  engine_batch *batch = &engine->running;
  engine_drawn *drawn = &batch->drawn[i];
  if (!suits_host(batch, i))
    return;
  engine_sequence *sequence = batch->sequences[i];
  const engine_rows *rows = &batch->rows[i];
  if (sequence->answer.grammar.grammar && !iso_grammar_is_ready(&sequence->answer.grammar))
    return; /* what finds the tokens is the engine's thread */
  int32_t row = rows->logit_row + rows->n_logit_rows - 1 - rows->n_drafts;
  const float *logits = iso_runtime_logits(engine->runtime, row);
  if (sequence->request->asked.beam_width > 0) {
    iso_beam_look(engine, &engine->samplers[worker], sequence, logits);
    drawn->is_there = true;
    return;
  }
  if (iso_sampler_draw(engine, &engine->samplers[worker], sequence, logits, &drawn->token) !=
      ISO_OK)
    return;
  if (sequence->answer.has_logprobs)
    iso_sampler_logprobs(engine, logits, drawn->token, sequence->answer.n_top, drawn->logprobs);
  drawn->is_there = true;
}

void iso_sampler_prepare(iso_engine *engine) {
  const engine_batch *batch = &engine->running;
  const uint32_t *allowed;
  for (int32_t i = 0; i < batch->n; i++)
    if (batch->rows[i].is_last && batch->sequences[i]->state != SEQUENCE_ENDED &&
        find_allowed(batch->sequences[i], &allowed) != ISO_OK)
      continue; /* and again when the row is drawn from */
}

/* Samplers of further threads, and the threads; with no memory for all there are fewer. */
static void start_threads(iso_engine *engine) {
  int32_t n = 1;
  while (n < engine->n_samplers && iso_sampler_create(engine, &engine->samplers[n]) == ISO_OK)
    n++;
  engine->n_samplers = n;
  if (n > 1 && iso_thread_pool_create(n, &engine->threads) != ISO_OK)
    engine->n_samplers = 1;
}

void iso_sampler_draw_ahead(iso_engine *engine) {
  engine_batch *batch = &engine->running;
  int32_t n = 0;
  for (int32_t i = 0; i < batch->n; i++)
    n += suits_host(batch, i);
  if (n < 2 || engine->n_samplers < 2)
    return;
  if (!engine->threads)
    start_threads(engine);
  if (engine->threads)
    iso_thread_pool_run(engine->threads, batch->n, draw_one, engine);
}
