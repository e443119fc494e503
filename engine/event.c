#include "engine/engine.h"

#include <string.h>

static void send(iso_engine *engine, engine_request *request, iso_event *event) {
  event->request = request->id;
  engine->has_events = true;
  iso_flow flow = request->asked.on_event(request->asked.context, event);
  if (flow == ISO_FLOW_PAUSE)
    request->is_paused = true;
  else if (flow == ISO_FLOW_CANCEL)
    request->is_cancelled = true;
}

static iso_usage usage_now(const engine_request *request) {
  iso_usage usage = request->usage;
  double now = iso_engine_now_us();
  usage.total_us = now - request->submitted_us;
  usage.queue_us = (request->started_us > 0 ? request->started_us : now) - request->submitted_us;
  if (request->first_token_us > 0)
    usage.first_token_us = request->first_token_us - request->submitted_us;
  return usage;
}

static int32_t count_top(const iso_token_logprob *top, int32_t n) {
  int32_t count = 0;
  while (count < n && top[count].token >= 0)
    count++;
  return count;
}

static iso_status reserve_tokens(iso_engine *engine, size_t n) {
  return iso_array_grow((void **)&engine->event_tokens, &engine->event_token_capacity, n,
                        sizeof *engine->event_tokens);
}

/* Output tokens whose text has been shown up to where the answer's text has been. At the end, those
 * of a stop string are left out, and so is the token that ended the answer. */
static int32_t shown_tokens(const engine_answer *answer, bool is_last) {
  int32_t n_output = iso_answer_n_output(answer), n = answer->n_shown;
  if (is_last && answer->reason != ISO_STOP_STRING)
    return answer->hides_last ? n_output - 1 : n_output;
  while (n < n_output && (answer->ends[n] <= answer->n_shown_bytes ||
                          (is_last && n > 0 && answer->ends[n - 1] < answer->n_shown_bytes) ||
                          (is_last && n == 0 && answer->n_shown_bytes > 0)))
    n++;
  return n;
}

iso_status iso_event_text(iso_engine *engine, engine_request *request, int32_t choice,
                          engine_answer *answer, bool is_last) {
  const char *text = answer->is_deferred ? answer->text.data : answer->stop.held;
  size_t length = answer->is_deferred ? answer->text.length : answer->n_ready;
  answer->n_shown_bytes += length;
  int32_t first = answer->n_shown, end = shown_tokens(answer, is_last);
  if ((end > first || length > 0) && !request->is_cancelled) {
    int32_t n = end > first ? end - first : 0;
    ISO_TRY(reserve_tokens(engine, (size_t)n + 1));
    for (int32_t i = 0; i < n; i++) {
      iso_event_token *token = &engine->event_tokens[i];
      *token = (iso_event_token){.chosen.token = answer->tokens[answer->n_prompt + first + i]};
      if (!answer->logprobs)
        continue;
      const iso_token_logprob *known =
          answer->logprobs + (size_t)(first + i) * (1 + (size_t)answer->n_top);
      token->chosen = known[0];
      token->top = known + 1;
      token->n_top = count_top(known + 1, answer->n_top);
    }
    answer->n_shown = end > first ? end : first;
    iso_event event = {.kind = ISO_EVENT_TEXT,
                       .choice = choice,
                       .text = length ? text : "",
                       .length = length,
                       .tokens = engine->event_tokens,
                       .n_tokens = n};
    send(engine, request, &event);
  }
  if (!answer->is_deferred)
    iso_stop_strings_shown(&answer->stop, answer->n_ready);
  answer->n_ready = 0;
  return ISO_OK;
}

void iso_event_choice(iso_engine *engine, engine_request *request, int32_t choice,
                      const engine_answer *answer) {
  if (request->is_cancelled) { /* by the event before, and so not delivered */
    iso_engine_request_fail(request, iso_fail(ISO_ERROR_CANCELLED, "the request was cancelled"));
    return;
  }
  iso_event event = {.kind = ISO_EVENT_CHOICE,
                     .choice = choice,
                     .text = "",
                     .reason = answer->reason,
                     .stop = answer->reason == ISO_STOP_STRING ? answer->stop_string : NULL,
                     .cumulative_logprob = answer->cumulative_logprob,
                     .usage = usage_now(request)};
  send(engine, request, &event);
}

iso_status iso_event_prompt(iso_engine *engine, engine_request *request) {
  int32_t n = request->asked.n_prompt, n_top = request->asked.n_top_logprobs;
  ISO_TRY(reserve_tokens(engine, (size_t)n));
  for (int32_t i = 0; i < n; i++) {
    const iso_token_logprob *known = request->prompt_logprobs + (size_t)i * (1 + (size_t)n_top);
    engine->event_tokens[i] =
        (iso_event_token){known[0], known + 1, i > 0 ? count_top(known + 1, n_top) : 0};
  }
  iso_event event = {.kind = ISO_EVENT_TEXT,
                     .text = "",
                     .tokens = engine->event_tokens,
                     .n_tokens = n,
                     .is_prompt = true};
  send(engine, request, &event);
  return ISO_OK;
}

void iso_event_done(iso_engine *engine, engine_request *request) {
  iso_event event = {.kind = ISO_EVENT_DONE,
                     .text = "",
                     .status = request->status,
                     .message = request->message ? request->message : "",
                     .usage = usage_now(request),
                     .embedding = request->status == ISO_OK ? request->pooled : NULL};
  if (event.embedding)
    event.n_embedding = iso_model_get_config(engine->model)->hidden_size;
  send(engine, request, &event);
}

void iso_event_flush(iso_engine *engine) {
  if (engine->has_events && engine->on_flush)
    engine->on_flush(engine->flush_context);
  engine->has_events = false;
}
