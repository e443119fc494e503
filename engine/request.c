#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Checks -------------------------------------------------------------------------------- */

typedef struct number_range {
  const char *name;
  double value, least, most;
} number_range;

static iso_status check_ranges(const number_range *ranges, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!(ranges[i].value >= ranges[i].least && ranges[i].value <= ranges[i].most))
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s is %g, must be %g to %g", ranges[i].name,
                      ranges[i].value, ranges[i].least, ranges[i].most);
  return ISO_OK;
}

static iso_status check_numbers(const iso_engine *engine, const iso_request *request) {
  const iso_sampling *sampling = &request->sampling;
  const number_range ranges[] = {
      {"temperature", (double)sampling->temperature, 0, 1e6},
      {"top_k", sampling->top_k, 0, INT32_MAX},
      {"top_p", (double)sampling->top_p, 0, 1},
      {"min_p", (double)sampling->min_p, 0, 1},
      {"repetition_penalty", (double)sampling->repetition_penalty, 1e-6, 1e6},
      {"presence_penalty", (double)sampling->presence_penalty, -1e6, 1e6},
      {"frequency_penalty", (double)sampling->frequency_penalty, -1e6, 1e6},
      {"max_tokens", request->max_tokens, 0, INT32_MAX},
      {"min_tokens", request->min_tokens, 0, INT32_MAX},
      {"n", request->n, 1, ENGINE_MAX_CHOICES},
      {"best_of", request->best_of, request->n, ENGINE_MAX_CHOICES},
      {"beam_width", request->beam_width, request->beam_width ? request->n : 0, ENGINE_MAX_CHOICES},
      {"length_penalty", (double)request->length_penalty, -100, 100},
      {"n_top_logprobs", request->n_top_logprobs, 0, ENGINE_MAX_TOP_LOGPROBS},
      {"n_stop", request->n_stop, 0, ENGINE_MAX_STOPS},
      {"n_stop_tokens", request->n_stop_tokens, 0, 1 << 16},
      {"n_logit_bias", request->n_logit_bias, 0, 1 << 20},
      {"adapter", request->adapter, 0, engine->options.runtime.n_adapters},
  };
  return check_ranges(ranges, sizeof ranges / sizeof ranges[0]);
}

static iso_status check_token(const iso_engine *engine, const char *what, int32_t token) {
  if (token < 0 || token >= engine->n_vocabulary)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s holds token %d; the vocabulary has %d", what,
                    token, engine->n_vocabulary);
  return ISO_OK;
}

static iso_status check_pointers(const iso_request *request) {
  const struct {
    const char *name;
    const void *list;
    int32_t n;
  } lists[] = {{"stop", request->stop, request->n_stop},
               {"stop_tokens", request->stop_tokens, request->n_stop_tokens},
               {"logit_bias", request->logit_bias, request->n_logit_bias}};
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
    if (lists[i].n > 0 && !lists[i].list)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s is NULL, and n_%s is %d", lists[i].name,
                      lists[i].name, lists[i].n);
  return ISO_OK;
}

static iso_status check_lists(const iso_engine *engine, const iso_request *request) {
  if (request->n_prompt < 1 || !request->prompt)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the prompt has no tokens; give some text");
  if (!request->on_event)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a request needs on_event");
  ISO_TRY(check_pointers(request));
  for (int32_t i = 0; i < request->n_prompt; i++)
    ISO_TRY(check_token(engine, "the prompt", request->prompt[i]));
  for (int32_t i = 0; i < request->n_stop_tokens; i++)
    ISO_TRY(check_token(engine, "stop_tokens", request->stop_tokens[i]));
  for (int32_t i = 0; i < request->n_logit_bias; i++) {
    ISO_TRY(check_token(engine, "logit_bias", request->logit_bias[i].token));
    if (isnan(request->logit_bias[i].bias) || request->logit_bias[i].bias == INFINITY)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the bias of token %d is no number",
                      request->logit_bias[i].token);
  }
  for (int32_t i = 0; i < request->n_stop; i++)
    if (!request->stop[i] || !request->stop[i][0])
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "stop string %d is empty", i);
  if (request->n_stop > 0 && !iso_model_get_tokenizer(engine->model))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "stop strings need the tokenizer that the model was opened without");
  return ISO_OK;
}

static iso_status check_embedding(const iso_engine *engine, const iso_request *request) {
  return request->embed && iso_model_get_config(engine->model)->pooling == ISO_POOLING_OTHER
             ? iso_fail(ISO_ERROR_UNSUPPORTED,
                        "the model's way to pool embeddings is not supported; "
                        "the mean and the last token are")
             : ISO_OK;
}

/* A grammar says where an answer ends. */
static iso_status check_grammar(const iso_request *request) {
  const char *other = request->beam_width > 0   ? "beam search"
                      : request->embed          ? "an embedding"
                      : request->ignore_end     ? "ignore_end"
                      : request->min_tokens > 0 ? "min_tokens"
                                                : NULL;
  if (request->grammar && other)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a grammar and %s do not go together", other);
  return ISO_OK;
}

/* How long a sequence may become; refuses what would never fit. */
static iso_status check_length(const iso_engine *engine, const iso_request *request,
                               int32_t *out_limit) {
  int64_t pool = (int64_t)engine->pool.n_pages * engine->page_size;
  int64_t limit = pool < engine->context ? pool : engine->context;
  int32_t least_output = request->embed ? 0 : 1;
  if (request->n_prompt + (int64_t)least_output > limit)
    return iso_fail(ISO_ERROR_LIMIT,
                    "the prompt has %d tokens, the %s holds %lld; raise it with -c or shorten the "
                    "prompt",
                    request->n_prompt, pool < engine->context ? "cache" : "context",
                    (long long)limit);
  int64_t wanted = request->n_prompt + (int64_t)request->max_tokens;
  if (wanted > pool && wanted <= engine->context)
    return iso_fail(ISO_ERROR_LIMIT,
                    "%d tokens of prompt and %d of answer exceed the cache of %lld tokens",
                    request->n_prompt, request->max_tokens, (long long)pool);
  *out_limit = (int32_t)(request->max_tokens > 0 && wanted < limit ? wanted : limit);
  return ISO_OK;
}

/* ---- Copies -------------------------------------------------------------------------------- */

static iso_status copy_bytes(const void *source, size_t bytes, void *out_copy) {
  void *copy = malloc(bytes ? bytes : 1);
  if (!copy)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a request's list of %zu bytes", bytes);
  if (bytes)
    memcpy(copy, source, bytes);
  *(void **)out_copy = copy;
  return ISO_OK;
}

/* The pointers first, the strings behind them. */
static iso_status copy_stops(const char *const *stop, iso_request *asked) {
  size_t n = (size_t)asked->n_stop, bytes = n * sizeof(char *);
  for (size_t i = 0; i < n; i++)
    bytes += strlen(stop[i]) + 1;
  char **block = malloc(bytes ? bytes : 1);
  if (!block)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %d stop strings", asked->n_stop);
  char *at = (char *)(block + n);
  for (size_t i = 0; i < n; i++) {
    block[i] = at;
    at = stpcpy(at, stop[i]) + 1;
  }
  asked->stop = (const char *const *)block;
  return ISO_OK;
}

static iso_status create_sequences(const iso_engine *engine, engine_request *request) {
  size_t n = (size_t)request->n_sequences;
  size_t pages =
      ((size_t)request->length_limit + (size_t)engine->page_size - 1) / (size_t)engine->page_size;
  size_t n_candidates = 2 * (size_t)request->asked.beam_width;
  request->sequences = calloc(n, sizeof *request->sequences);
  if (!request->sequences)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %zu sequences", n);
  for (size_t i = 0; i < n; i++) {
    engine_sequence *sequence = &request->sequences[i];
    sequence->request = request;
    sequence->index = (int32_t)i;
    sequence->state = i == 0 ? SEQUENCE_READY : SEQUENCE_BLOCKED;
    sequence->pages = malloc(pages * sizeof *sequence->pages);
    sequence->swapped.slots = engine->swap.n_slots ? malloc(pages * sizeof(int32_t)) : NULL;
    sequence->draft.pages = engine->drafter.runtime ? malloc(pages * sizeof(int32_t)) : NULL;
    sequence->candidates = n_candidates ? malloc(n_candidates * sizeof(beam_candidate)) : NULL;
    if (!sequence->pages || (engine->swap.n_slots && !sequence->swapped.slots) ||
        (engine->drafter.runtime && !sequence->draft.pages) ||
        (n_candidates && !sequence->candidates))
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a sequence of %d tokens",
                      request->length_limit);
  }
  return ISO_OK;
}

/* Memory of what only some requests need. */
static iso_status create_extras(const iso_engine *engine, engine_request *request) {
  const iso_request *asked = &request->asked;
  size_t hidden = (size_t)iso_model_get_config(engine->model)->hidden_size;
  if (asked->embed) {
    request->embedding = calloc(hidden, sizeof *request->embedding);
    request->pooled = calloc(hidden, sizeof *request->pooled);
  }
  if (asked->prompt_logprobs)
    request->prompt_logprobs = calloc((size_t)asked->n_prompt * (1 + (size_t)asked->n_top_logprobs),
                                      sizeof *request->prompt_logprobs);
  if (asked->beam_width)
    request->finished = calloc((size_t)asked->beam_width + 1, sizeof *request->finished);
  if ((asked->embed && (!request->embedding || !request->pooled)) ||
      (asked->prompt_logprobs && !request->prompt_logprobs) ||
      (asked->beam_width && !request->finished))
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a request of %d tokens",
                    asked->n_prompt);
  return ISO_OK;
}

static iso_status fill(const iso_engine *engine, engine_request *request,
                       const iso_request *given) {
  iso_request *asked = &request->asked;
  const int32_t *prompt = given->prompt;
  request->n_choices = asked->n;
  request->n_sequences = asked->beam_width ? asked->beam_width : asked->best_of;
  request->is_deferred = asked->beam_width > 0 || asked->best_of > asked->n;
  ISO_TRY(copy_stops(given->stop, asked));
  ISO_TRY(copy_bytes(given->stop_tokens, (size_t)given->n_stop_tokens * sizeof(int32_t),
                     &asked->stop_tokens));
  ISO_TRY(copy_bytes(given->logit_bias, (size_t)given->n_logit_bias * sizeof(iso_logit_bias),
                     &asked->logit_bias));
  ISO_TRY(create_sequences(engine, request));
  ISO_TRY(create_extras(engine, request));
  return iso_answer_create(prompt, asked->n_prompt, iso_model_get_tokenizer(engine->model), asked,
                           &request->sequences[0].answer);
}

iso_status iso_engine_request_create(const iso_engine *engine, const iso_request *given,
                                     engine_request **out_request) {
  iso_request asked = *given;
  asked.n = asked.n ? asked.n : 1;
  asked.best_of = asked.best_of ? asked.best_of : asked.n;
  asked.length_penalty = asked.length_penalty == 0 ? 1 : asked.length_penalty;
  if (asked.embed) {
    asked.n = asked.best_of = 1;
    asked.beam_width = asked.max_tokens = 0;
    asked.prompt_logprobs = false;
  }
  int32_t limit = 0;
  ISO_TRY(check_numbers(engine, &asked));
  ISO_TRY(check_lists(engine, &asked));
  ISO_TRY(check_embedding(engine, &asked));
  ISO_TRY(check_grammar(&asked));
  ISO_TRY(check_length(engine, &asked, &limit));
  engine_request *request = calloc(1, sizeof *request);
  if (!request)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a request");
  request->submitted_us = iso_engine_now_us();
  const int32_t most = ENGINE_MOST_PRIORITY, given_priority = asked.priority;
  int32_t priority = given_priority < -most ? -most : given_priority > most ? most : given_priority;
  request->order = (int64_t)request->submitted_us + priority * ENGINE_PRIORITY_US;
  if (asked.timeout_us)
    request->deadline_us = request->submitted_us + (double)asked.timeout_us;
  request->length_limit = limit;
  request->usage.n_prompt = asked.n_prompt;
  request->asked = asked;
  if (asked.grammar)
    iso_grammar_retain(asked.grammar);
  /* Until they are copies. */
  request->asked.prompt = NULL;
  request->asked.stop = NULL;
  request->asked.stop_tokens = NULL;
  request->asked.logit_bias = NULL;
  iso_status status = fill(engine, request, given);
  if (status != ISO_OK) {
    iso_engine_request_destroy(request);
    return status;
  }
  *out_request = request;
  return ISO_OK;
}

void iso_engine_request_destroy(engine_request *request) {
  for (int32_t i = 0; request->sequences && i < request->n_sequences; i++) {
    iso_answer_destroy(&request->sequences[i].answer);
    free(request->sequences[i].pages);
    free(request->sequences[i].swapped.slots);
    free(request->sequences[i].draft.pages);
    free(request->sequences[i].candidates);
    iso_ngrams_destroy(&request->sequences[i].speculation.ngrams);
  }
  for (int32_t i = 0; i < request->n_finished; i++)
    iso_answer_destroy(&request->finished[i]);
  iso_grammar_release(request->asked.grammar);
  free(request->sequences);
  free(request->finished);
  free(request->embedding);
  free(request->pooled);
  free(request->prompt_logprobs);
  free((void *)request->asked.stop);
  free((void *)request->asked.stop_tokens);
  free((void *)request->asked.logit_bias);
  free(request->message);
  free(request);
}

/* ---- Ends ---------------------------------------------------------------------------------- */

void iso_engine_request_fail(engine_request *request, iso_status status) {
  if (iso_engine_request_is_over(request))
    return;
  request->status = status;
  request->message = strdup(iso_status_message());
}

bool iso_engine_request_is_over(const engine_request *request) {
  return request->status != ISO_OK || request->is_delivered;
}
