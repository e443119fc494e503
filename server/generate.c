/* /generate and /generate_stream, in two dialects: Text Generation Inference's ("inputs") and
 * vLLM's demo server's ("prompt"). */
#include "server/job.h"

#include "models/tokenizer/tokenizer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- vLLM's demo server: {"text": ["prompt and answer", ...]} ---- */

static bool prepare_vllm(iso_job *job, iso_api_error *refusal) {
  iso_fields *fields = &job->fields;
  if (fields->max_tokens < 0)
    fields->max_tokens = 16;
  if (fields->max_tokens == 0)
    return iso_refuse(refusal, 400, "max_tokens", "invalid_value",
                      "'max_tokens' must be at least 1");
  if (!iso_job_set_request(job, refusal) ||
      !iso_job_add_prompts(job, fields->prompt, "prompt", true, refusal))
    return false;
  job->request.goes_on = true;
  if (fields->completion_logprobs >= 0)
    return iso_refuse(refusal, 400, "logprobs", "unsupported_parameter",
                      "this API has no place for 'logprobs'; use /v1/completions");
  return job->n_prompts == 1 ||
         iso_refuse(refusal, 400, "prompt", "invalid_value", "this API takes one prompt a request");
}

static void write_texts(iso_job *job, iso_json_writer *w) {
  iso_json_begin(w, NULL, '{');
  iso_json_begin(w, "text", '[');
  for (int i = 0; i < job->n_answers; i++)
    if (job->answers[i].ended)
      iso_write_answer_text(job, &job->answers[i], NULL, w);
  iso_json_end(w, ']');
  iso_json_end(w, '}');
}

/* Each frame has all text so far. The event is kept after it was written. */
static void write_vllm_event(iso_job *job, iso_answer *answer, const iso_event *event,
                             iso_json_writer *w) {
  const iso_prompt *prompt = iso_answer_prompt(job, answer);
  if (event->kind != ISO_EVENT_TEXT || event->length == 0)
    return;
  iso_sse_begin(w);
  iso_json_begin(w, NULL, '{');
  iso_json_begin(w, "text", '[');
  for (int i = 0; i < job->n_answers; i++) {
    iso_printer text = {0};
    iso_printer_append(&text, prompt->text, prompt->text_length);
    for (const iso_event_letter *at = job->answers[i].first; at; at = at->next)
      if (at->event.kind == ISO_EVENT_TEXT)
        iso_printer_append(&text, at->event.text, at->event.length);
    if (&job->answers[i] == answer)
      iso_printer_append(&text, event->text, event->length);
    w->text.failed |= text.failed;
    iso_json_text(w, NULL, text.data ? text.data : "", text.size);
    free(text.data);
  }
  iso_json_end(w, ']');
  iso_json_end(w, '}');
  iso_sse_end(w);
}

static void write_vllm_last(iso_job *job, iso_json_writer *w) {
  iso_sse_begin(w);
  write_texts(job, w);
  iso_sse_end(w);
}

const iso_format iso_format_vllm = {.body = ISO_BODY_VLLM,
                                    .id_prefix = "gen",
                                    .keep_events = true,
                                    .prepare = prepare_vllm,
                                    .write_result = write_texts,
                                    .write_event = write_vllm_event,
                                    .write_last = write_vllm_last};

/* ---- Text Generation Inference ---- */

static bool prepare_tgi(iso_job *job, iso_api_error *refusal) {
  iso_fields *fields = &job->fields;
  const cJSON *inputs = fields->prompt;
  bool stream = fields->stream;
  fields->max_tokens = 100; /* TGI's default */
  fields->temperature = 1;
  fields->echo = job->format == &iso_format_tgi_root; /* what TGI does at this address */
  if (fields->parameters && !cJSON_IsObject(fields->parameters))
    return iso_refuse(refusal, 400, "parameters", "invalid_type", "'parameters' must be an object");
  if (fields->parameters &&
      !iso_fields_read(fields->parameters, ISO_BODY_TGI_PARAMETERS, fields, refusal))
    return false;
  fields->stream = stream;
  if (!cJSON_IsString(inputs))
    return iso_refuse(refusal, 400, "inputs",
                      inputs ? "invalid_type" : "missing_required_parameter",
                      "'inputs' must be a string");
  if (!fields->do_sample && !fields->best_of)
    fields->temperature = 0;
  if (!iso_job_set_request(job, refusal) || !iso_job_set_tgi_grammar(job, refusal))
    return false;
  job->request.goes_on = job->request.logprobs = true;
  job->request.n_top_logprobs = fields->top_logprobs;
  job->request.prompt_logprobs = fields->prompt_details;
  if (!iso_job_add_text(job, inputs->valuestring, strlen(inputs->valuestring),
                        ISO_TOKENIZE_ADD_SPECIAL, fields->echo, refusal))
    return false;
  iso_prompt *prompt = &job->prompts[0];
  if (fields->truncate > 0 && fields->truncate < prompt->count) {
    memmove(prompt->ids, prompt->ids + prompt->count - fields->truncate,
            (size_t)fields->truncate * sizeof *prompt->ids);
    prompt->count = fields->truncate;
  }
  return true;
}

static void write_tgi_token(const iso_model *model, const iso_event_token *token, const char *text,
                            size_t length, bool final, iso_json_writer *w) {
  iso_json_int(w, "id", token->chosen.token);
  iso_json_text(w, "text", text, length);
  iso_write_logprob(w, "logprob", token->chosen.logprob);
  iso_json_bool(w, "special",
                final ||
                    iso_tokenizer_is_control(iso_model_get_tokenizer(model), token->chosen.token));
}

static void write_top(const iso_model *model, const iso_event_token *token, const char *key,
                      iso_json_writer *w) {
  iso_json_begin(w, key, '[');
  for (int32_t i = 0; i < token->n_top; i++) {
    size_t length;
    const char *bytes = iso_token_bytes(model, token->top[i].token, &length);
    const iso_event_token one = {.chosen = token->top[i]};
    iso_json_begin(w, NULL, '{');
    write_tgi_token(model, &one, bytes, length, false, w);
    iso_json_end(w, '}');
  }
  iso_json_end(w, ']');
}

static const char *tgi_reason(iso_stop_reason reason) {
  return reason == ISO_STOP_LENGTH   ? "length"
         : reason == ISO_STOP_STRING ? "stop_sequence"
                                     : "eos_token";
}

static void write_tokens(const iso_job *job, const iso_answer *answer, bool prompt,
                         iso_json_writer *w) {
  const iso_model *model = job->server->model;
  iso_json_begin(w, prompt ? "prefill" : "tokens", '[');
  for (const iso_event_letter *at = answer->first; at; at = at->next)
    for (int32_t i = 0; at->event.is_prompt == prompt && i < at->event.n_tokens; i++) {
      size_t length;
      iso_event_token token = at->event.tokens[i];
      const char *bytes = iso_token_bytes(model, token.chosen.token, &length);
      if (prompt && i == 0) /* nothing comes before it that could tell */
        token.chosen.logprob = NAN;
      iso_json_begin(w, NULL, '{');
      write_tgi_token(model, &token, bytes, length, false, w);
      iso_json_end(w, '}');
    }
  iso_json_end(w, ']');
}

static void write_details(const iso_job *job, const iso_answer *answer, bool with_tokens,
                          iso_json_writer *w) {
  iso_json_begin(w, "details", '{');
  iso_json_string(w, "finish_reason", tgi_reason(answer->reason));
  iso_json_int(w, "generated_tokens", job->usage.n_output);
  iso_json_int(w, "seed", (int64_t)job->request.sampling.seed);
  iso_json_int(w, "input_length", job->usage.n_prompt);
  if (with_tokens) {
    write_tokens(job, answer, true, w);
    write_tokens(job, answer, false, w);
    if (job->request.n_top_logprobs > 0) {
      iso_json_begin(w, "top_tokens", '[');
      for (const iso_event_letter *at = answer->first; at; at = at->next)
        for (int32_t i = 0; !at->event.is_prompt && i < at->event.n_tokens; i++)
          write_top(job->server->model, &at->event.tokens[i], NULL, w);
      iso_json_end(w, ']');
    }
  }
  iso_json_end(w, '}');
}

static void write_tgi_result(iso_job *job, iso_json_writer *w) {
  const iso_answer *answer = &job->answers[0];
  iso_json_begin(w, NULL, '{');
  iso_write_answer_text(job, answer, "generated_text", w);
  if (job->fields.details || job->fields.prompt_details)
    write_details(job, answer, true, w);
  iso_json_end(w, '}');
}

/* A frame a token. The text of an event goes with its last token: those before it complete no
 * character. At the end comes a frame of its own with the whole text; its token is the last one
 * again, with the text of a character that was cut there, or without any and marked special, so
 * that nobody shows it twice. */
static void write_tgi_event(iso_job *job, iso_answer *answer, const iso_event *event,
                            iso_json_writer *w) {
  if (event->kind != ISO_EVENT_TEXT || event->is_prompt)
    return;
  for (int32_t i = 0; i < event->n_tokens; i++) {
    bool last = i == event->n_tokens - 1;
    iso_sse_begin(w);
    iso_json_begin(w, NULL, '{');
    iso_json_int(w, "index", answer->n_tokens - event->n_tokens + i + 1);
    iso_json_begin(w, "token", '{');
    write_tgi_token(job->server->model, &event->tokens[i], event->text, last ? event->length : 0,
                    false, w);
    iso_json_end(w, '}');
    if (job->request.n_top_logprobs > 0)
      write_top(job->server->model, &event->tokens[i], "top_tokens", w);
    iso_json_null(w, "generated_text");
    iso_json_null(w, "details");
    iso_json_end(w, '}');
    iso_sse_end(w);
  }
}

static void write_tgi_last(iso_job *job, iso_json_writer *w) {
  const iso_answer *answer = &job->answers[0];
  const iso_event_token *final = NULL;
  const iso_event *rest = NULL; /* text behind all tokens */
  /* Clients read a token, also of an answer that has none. */
  size_t n_ends;
  const int32_t *ends = iso_tokenizer_end_ids(iso_model_get_tokenizer(job->server->model), &n_ends);
  const iso_event_token end = {.chosen.token = n_ends > 0 ? ends[0] : 0};
  for (const iso_event_letter *at = answer->first; at; at = at->next) {
    const iso_event *event = &at->event;
    if (event->kind != ISO_EVENT_TEXT || event->is_prompt)
      continue;
    rest = event->n_tokens == 0 && event->length > 0 ? event : NULL;
    if (event->n_tokens > 0)
      final = &event->tokens[event->n_tokens - 1];
  }
  iso_sse_begin(w);
  iso_json_begin(w, NULL, '{');
  iso_json_int(w, "index", answer->n_tokens + 1);
  iso_json_begin(w, "token", '{');
  write_tgi_token(job->server->model, final ? final : &end, rest ? rest->text : "",
                  rest ? rest->length : 0, !rest, w);
  iso_json_end(w, '}');
  iso_write_answer_text(job, answer, "generated_text", w);
  write_details(job, answer, false, w);
  iso_json_end(w, '}');
  iso_sse_end(w);
}

const iso_format iso_format_tgi = {.body = ISO_BODY_TGI,
                                   .id_prefix = "tgi",
                                   .keep_events = true,
                                   .prepare = prepare_tgi,
                                   .write_result = write_tgi_result,
                                   .write_event = write_tgi_event,
                                   .write_last = write_tgi_last};

/* TGI's address of its own API's first form: a list, as there could be several inputs once. */
static void write_tgi_list(iso_job *job, iso_json_writer *w) {
  iso_json_begin(w, NULL, '[');
  write_tgi_result(job, w);
  iso_json_end(w, ']');
}

const iso_format iso_format_tgi_root = {.body = ISO_BODY_TGI,
                                        .id_prefix = "tgi",
                                        .keep_events = true,
                                        .prepare = prepare_tgi,
                                        .write_result = write_tgi_list,
                                        .write_event = write_tgi_event,
                                        .write_last = write_tgi_last};
