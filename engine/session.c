#include "engine/runtime.h"
#include "engine/stop_strings.h"
#include "models/tokenizer/tokenizer.h"
#include "ops/sampling.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct iso_session {
  iso_runtime *runtime;
  int32_t *pages; /* of this sequence, in order */
  int32_t n_pages;
  int32_t *ids; /* cached tokens; capacity is the context */
  int32_t n_ids;
  iso_sample_candidate *candidates; /* scratch, one a vocabulary entry */
};

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

iso_status iso_session_create(iso_runtime *runtime, iso_session **out_session) {
  const iso_runtime_options *options = iso_runtime_get_options(runtime);
  size_t vocabulary = (size_t)iso_model_get_config(iso_runtime_get_model(runtime))->vocabulary_size;
  size_t max_pages =
      ((size_t)options->context + (size_t)options->page_size - 1) / (size_t)options->page_size;
  iso_session *session = calloc(1, sizeof *session);
  if (session) {
    session->runtime = runtime;
    session->pages = malloc(max_pages * sizeof *session->pages);
    session->ids = malloc((size_t)options->context * sizeof *session->ids);
    session->candidates = malloc(vocabulary * sizeof *session->candidates);
  }
  if (!session || !session->pages || !session->ids || !session->candidates) {
    iso_session_destroy(session);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a session of %d tokens",
                    options->context);
  }
  *out_session = session;
  return ISO_OK;
}

void iso_session_destroy(iso_session *session) {
  if (!session)
    return;
  for (int32_t i = 0; i < session->n_pages; i++)
    iso_page_pool_release(iso_runtime_page_pool(session->runtime), session->pages[i]);
  free(session->pages);
  free(session->ids);
  free(session->candidates);
  free(session);
}

const int32_t *iso_session_ids(const iso_session *session, int32_t *out_count) {
  *out_count = session->n_ids;
  return session->ids;
}

/* Runs tokens through the model after those cached and caches them. */
static iso_status feed(iso_session *session, const int32_t *tokens, int32_t n_tokens,
                       bool want_logits) {
  int32_t page_size = iso_runtime_get_options(session->runtime)->page_size;
  while ((int64_t)session->n_pages * page_size < session->n_ids + n_tokens) {
    ISO_TRY(iso_page_pool_take(iso_runtime_page_pool(session->runtime),
                               &session->pages[session->n_pages]));
    session->n_pages++;
  }
  iso_batch_sequence sequence = {.n_tokens = n_tokens,
                                 .tokens = tokens,
                                 .position = session->n_ids,
                                 .pages = session->pages,
                                 .n_pages = session->n_pages,
                                 .no_logits = !want_logits};
  ISO_TRY(iso_runtime_step(session->runtime, &sequence, 1));
  memmove(session->ids + session->n_ids, tokens, (size_t)n_tokens * sizeof *tokens);
  session->n_ids += n_tokens;
  return ISO_OK;
}

/* One generation under way. */
typedef struct generation {
  iso_session *session;
  const iso_generation_options *options;
  iso_generation_result *result;
  bool wants_text;
  iso_detokenizer detokenizer;
  iso_text piece; /* scratch: what a token completed */
  iso_stop_strings stop;
  int32_t prompt_end; /* first output position in session->ids */
} generation;

static bool may_go_on(const generation *self) {
  return !self->options->keep_going || self->options->keep_going(self->options->context);
}

/* Prompt in chunks; the cached prefix is used again, but the last token runs anew for its logits.
 */
static iso_status run_prompt(generation *self, const int32_t *ids, int32_t n_ids,
                             bool *out_cancelled) {
  iso_session *session = self->session;
  int32_t max_tokens = iso_runtime_get_options(session->runtime)->max_tokens;
  int32_t same = 0;
  while (same < session->n_ids && same < n_ids - 1 && session->ids[same] == ids[same])
    same++;
  session->n_ids = same;
  for (int32_t at = same; at < n_ids && !*out_cancelled;) {
    int32_t n = n_ids - at < max_tokens ? n_ids - at : max_tokens;
    ISO_TRY(feed(session, ids + at, n, at + n == n_ids));
    at += n;
    self->result->n_prompt += n;
    *out_cancelled = at < n_ids && !may_go_on(self);
  }
  self->prompt_end = n_ids;
  return ISO_OK;
}

static iso_status sample(const generation *self, int32_t *out_token) {
  const iso_session *session = self->session;
  const iso_sampling *sampling = &self->options->sampling;
  const float parameters[ISO_SAMPLE_PARAMETER_COUNT] = {
      [ISO_SAMPLE_TEMPERATURE] = sampling->temperature,
      [ISO_SAMPLE_TOP_K] = (float)sampling->top_k,
      [ISO_SAMPLE_TOP_P] = sampling->top_p,
      [ISO_SAMPLE_MIN_P] = sampling->min_p,
      [ISO_SAMPLE_REPETITION_PENALTY] = sampling->repetition_penalty,
      [ISO_SAMPLE_PRESENCE_PENALTY] = sampling->presence_penalty,
      [ISO_SAMPLE_FREQUENCY_PENALTY] = sampling->frequency_penalty,
  };
  const iso_sample_row row = {
      .logits = iso_runtime_logits(session->runtime, 0),
      .n_logits = iso_model_get_config(iso_runtime_get_model(session->runtime))->vocabulary_size,
      .parameters = parameters,
      .seed = sampling->seed,
      .draw = (uint32_t)self->result->n_output,
      .history = session->ids,
      .n_history = session->n_ids,
      .output_start = self->prompt_end,
  };
  ISO_TRY(iso_sample_token(&row, session->candidates, out_token));
  if (*out_token < 0)
    return iso_fail(ISO_ERROR_INTERNAL, "the model gave no finite logit; run `isomer verify` to "
                                        "find the op that went wrong");
  return ISO_OK;
}

/* Shows text that holds no part of a stop string. False when the answer is over. */
static iso_status emit(generation *self, const char *text, size_t length, bool is_last,
                       bool *out_over) {
  size_t ready;
  bool stopped;
  ISO_TRY(iso_stop_strings_add(&self->stop, text, length, &ready, &stopped));
  if (is_last && !stopped)
    ready = self->stop.length;
  if (ready > 0 && !self->options->on_text(self->options->context, self->stop.held, ready)) {
    self->result->reason = ISO_STOP_CANCELLED;
    *out_over = true;
  }
  iso_stop_strings_shown(&self->stop, ready);
  if (stopped) {
    self->result->reason = ISO_STOP_STRING;
    *out_over = true;
  }
  return ISO_OK;
}

static iso_status emit_token(generation *self, int32_t token, bool *out_over) {
  /* Embedding tables may have padding rows that no token stands for. */
  if (!self->wants_text || token >= iso_tokenizer_vocabulary_size(self->detokenizer.tokenizer))
    return ISO_OK;
  self->piece.length = 0;
  ISO_TRY(iso_detokenizer_push(&self->detokenizer, token, &self->piece));
  return emit(self, self->piece.data, self->piece.length, false, out_over);
}

static iso_status emit_rest(generation *self) {
  bool over = false;
  if (!self->wants_text || self->result->reason == ISO_STOP_STRING ||
      self->result->reason == ISO_STOP_CANCELLED)
    return ISO_OK;
  self->piece.length = 0;
  ISO_TRY(iso_detokenizer_finish(&self->detokenizer, &self->piece));
  return emit(self, self->piece.data, self->piece.length, true, &over);
}

static iso_status run_output(generation *self) {
  iso_session *session = self->session;
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(iso_runtime_get_model(session->runtime));
  int32_t room = iso_runtime_get_options(session->runtime)->context - session->n_ids;
  int32_t limit = self->options->max_tokens > 0 && self->options->max_tokens < room
                      ? self->options->max_tokens
                      : room;
  self->result->reason = ISO_STOP_LENGTH;
  for (bool over = false; !over && self->result->n_output < limit;) {
    int32_t token;
    ISO_TRY(sample(self, &token));
    self->result->n_output++;
    if (!self->options->ignore_end && tokenizer && iso_tokenizer_is_end(tokenizer, token)) {
      self->result->reason = ISO_STOP_END;
      break;
    }
    ISO_TRY(emit_token(self, token, &over));
    if (!over && !may_go_on(self)) {
      self->result->reason = ISO_STOP_CANCELLED;
      over = true;
    }
    if (!over && self->result->n_output < limit)
      ISO_TRY(feed(session, &token, 1, true));
  }
  return emit_rest(self);
}

static iso_status run(generation *self, const int32_t *ids, int32_t n_ids) {
  double start = now_us();
  bool cancelled = false;
  ISO_TRY(run_prompt(self, ids, n_ids, &cancelled));
  double middle = now_us();
  self->result->prompt_us = middle - start;
  if (cancelled) {
    self->result->reason = ISO_STOP_CANCELLED;
    return ISO_OK;
  }
  ISO_TRY(run_output(self));
  self->result->output_us = now_us() - middle;
  return ISO_OK;
}

iso_status iso_session_generate(iso_session *session, const int32_t *ids, int32_t n_ids,
                                const iso_generation_options *options,
                                iso_generation_result *out_result) {
  const iso_model *model = iso_runtime_get_model(session->runtime);
  int32_t context = iso_runtime_get_options(session->runtime)->context;
  if (n_ids < 1)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the prompt has no tokens; give some text");
  if (n_ids >= context)
    return iso_fail(ISO_ERROR_LIMIT,
                    "the prompt has %d tokens, the context holds %d; raise it "
                    "with -c or shorten the prompt",
                    n_ids, context);
  *out_result = (iso_generation_result){0};
  generation self = {.session = session, .options = options, .result = out_result};
  if (options->on_text) {
    if (!iso_model_get_tokenizer(model))
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the model was opened without a tokenizer");
    self.wants_text = true;
    iso_detokenizer_init(&self.detokenizer, iso_model_get_tokenizer(model),
                         ISO_DETOKENIZE_SKIP_SPECIAL);
  }
  iso_stop_strings_init(&self.stop, options->stop, options->n_stop);
  iso_status status = run(&self, ids, n_ids);
  iso_stop_strings_destroy(&self.stop);
  iso_text_free(&self.piece);
  return status;
}
