/* /v1/completions */
#include "server/job.h"

#include "models/tokenizer/text.h"
#include "models/tokenizer/tokenizer.h"
#include <stdio.h>
#include <string.h>

static bool prepare(iso_job *job, iso_api_error *refusal) {
  iso_fields *fields = &job->fields;
  if (fields->max_tokens < 0)
    fields->max_tokens = 16; /* as OpenAI has it */
  job->prompt_only = fields->max_tokens == 0;
  if (job->prompt_only && !fields->echo)
    return iso_refuse(refusal, 400, "max_tokens", "invalid_value",
                      "'max_tokens' must be at least 1; 0 goes with \"echo\": true");
  if (job->prompt_only)
    fields->max_tokens = 1; /* its token is not shown */
  if (!iso_read_stream_options(job, refusal) || !iso_job_set_request(job, refusal) ||
      !iso_job_set_response_format(job, refusal))
    return false;
  job->request.goes_on = true;
  job->request.logprobs = fields->completion_logprobs >= 0;
  job->request.n_top_logprobs = job->request.logprobs ? fields->completion_logprobs : 0;
  job->request.prompt_logprobs = job->request.logprobs && fields->echo;
  return iso_job_add_prompts(job, fields->prompt, "prompt", fields->echo, refusal);
}

/* Visits an answer's tokens: those of one event, or of all. */
typedef struct token_walk {
  const iso_event_letter *letter; /* NULL: the event alone */
  const iso_event *event;
  const iso_event_letter *own; /* where to go on after another answer's prompt */
  int32_t index;
} token_walk;

/* The prompt's tokens come once, with the first choice, and are part of every choice. */
static token_walk walk_begin(const iso_job *job, const iso_answer *answer, const iso_event *event) {
  int n = job->n_answers / job->n_prompts;
  const iso_answer *first = answer - answer->index % n;
  bool shared = first != answer && first->first && first->first->event.is_prompt;
  const iso_event_letter *letter = event ? NULL : shared ? first->first : answer->first;
  return (token_walk){.letter = letter,
                      .event = event    ? event
                               : letter ? &letter->event
                                        : NULL,
                      .own = shared ? answer->first : NULL};
}

static const iso_event_token *walk_next(token_walk *walk) {
  while (walk->event && walk->index >= walk->event->n_tokens) {
    walk->letter = walk->letter ? walk->letter->next : NULL;
    if (walk->own && !(walk->letter && walk->letter->event.is_prompt)) {
      walk->letter = walk->own;
      walk->own = NULL;
    }
    walk->event = walk->letter ? &walk->letter->event : NULL;
    walk->index = 0;
  }
  return walk->event ? &walk->event->tokens[walk->index++] : NULL;
}

static bool is_first_of_prompt(const token_walk *walk, size_t count) {
  return walk->event->is_prompt && count == 0;
}

/* What OpenAI calls a token: its text, or "bytes:\xe2\x96" where that is part of a character, so
 * that no two of a place have one name. */
typedef struct token_name {
  bool is_text;
  char text[256]; /* cut, where the token is longer */
} token_name;

static token_name name_of(const iso_model *model, int32_t token) {
  enum { MOST = sizeof(((token_name *)0)->text) - 1, EACH = 4, HEAD = 6 };
  size_t length = 0;
  const char *bytes = iso_token_bytes(model, token, &length);
  token_name name = {.is_text = iso_utf8_valid_prefix(bytes, length) == length};
  if (name.is_text) {
    memcpy(name.text, bytes, length < MOST ? length : iso_utf8_valid_prefix(bytes, MOST));
    return name;
  }
  memcpy(name.text, "bytes:", HEAD);
  for (size_t i = 0; i < length && i < (MOST - HEAD) / EACH; i++)
    snprintf(name.text + HEAD + EACH * i, EACH + 1, "\\x%02x", (unsigned char)bytes[i]);
  return name;
}

/* The likeliest tokens, and the chosen one where it is none of them. */
static void write_top(const iso_model *model, const iso_event_token *token, iso_json_writer *w) {
  bool has_chosen = false;
  iso_json_begin(w, NULL, '{');
  for (int32_t i = 0; i < token->n_top; i++) {
    has_chosen |= token->top[i].token == token->chosen.token;
    iso_write_logprob(w, name_of(model, token->top[i].token).text, token->top[i].logprob);
  }
  if (!has_chosen)
    iso_write_logprob(w, name_of(model, token->chosen.token).text, token->chosen.logprob);
  iso_json_end(w, '}');
}

/* Whether the answer's text goes on from the prompt's says the prompt, unless it is part of it. */
static void begin_reading(const iso_job *job, iso_answer *answer) {
  const iso_prompt *prompt = iso_answer_prompt(job, answer);
  iso_detokenizer_init(&answer->reader, iso_model_get_tokenizer(job->server->model),
                       job->request.show_special ? 0 : ISO_DETOKENIZE_SKIP_SPECIAL);
  if (!prompt->text)
    iso_detokenizer_go_on(&answer->reader, prompt->ids, (size_t)prompt->count);
}

/* Bytes of a token that the text is without: the space before its first word. */
static size_t count_trimmed(iso_answer *answer, int32_t token, size_t length) {
  iso_text text = {0};
  if (!answer->reader.at_start || iso_detokenizer_push(&answer->reader, token, &text) != ISO_OK)
    return 0;
  size_t left = text.length + answer->reader.pending_length;
  iso_text_free(&text);
  return left < length ? length - left : 0;
}

/* Characters that a token begins in the answer's text, where the prompt is without its special
 * tokens whatever the answer shows. */
static size_t count_characters(const iso_job *job, iso_answer *answer, int32_t token,
                               bool is_prompt) {
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(job->server->model);
  size_t length = 0, n = 0;
  const char *bytes = iso_token_bytes(job->server->model, token, &length);
  if (iso_tokenizer_is_control(tokenizer, token) && (is_prompt || !job->request.show_special))
    return 0;
  if (!answer->reader.tokenizer)
    begin_reading(job, answer);
  for (size_t i = count_trimmed(answer, token, length); i < length; i++)
    n += !iso_utf8_continues(bytes[i]);
  return n;
}

/* OpenAI's four parallel arrays. The first token of a prompt has no probability. */
static void write_logprobs(const iso_job *job, iso_answer *answer, const iso_event *event,
                           iso_json_writer *w) {
  const iso_model *model = job->server->model;
  const iso_event_token *token;
  size_t before = answer->begun ? 1 : 0, count; /* a streamed answer's later pieces start nothing */
  if (!job->request.logprobs) {
    iso_json_null(w, "logprobs");
    return;
  }
  iso_json_begin(w, "logprobs", '{');
  iso_json_begin(w, "tokens", '[');
  for (token_walk walk = walk_begin(job, answer, event); (token = walk_next(&walk));) {
    token_name name = name_of(model, token->chosen.token);
    if (name.is_text)
      iso_write_token(model, w, NULL, token->chosen.token);
    else
      iso_json_string(w, NULL, name.text);
  }
  iso_json_end(w, ']');
  iso_json_begin(w, "token_logprobs", '[');
  count = before;
  for (token_walk walk = walk_begin(job, answer, event); (token = walk_next(&walk)); count++)
    if (is_first_of_prompt(&walk, count))
      iso_json_null(w, NULL);
    else
      iso_write_logprob(w, NULL, token->chosen.logprob);
  iso_json_end(w, ']');
  if (job->request.n_top_logprobs > 0) {
    iso_json_begin(w, "top_logprobs", '[');
    count = before;
    for (token_walk walk = walk_begin(job, answer, event); (token = walk_next(&walk)); count++)
      if (is_first_of_prompt(&walk, count))
        iso_json_null(w, NULL);
      else
        write_top(model, token, w);
    iso_json_end(w, ']');
  } else {
    iso_json_null(w, "top_logprobs");
  }
  iso_json_begin(w, "text_offset", '[');
  for (token_walk walk = walk_begin(job, answer, event); (token = walk_next(&walk));) {
    iso_json_int(w, NULL, (int64_t)answer->text_offset);
    answer->text_offset +=
        count_characters(job, answer, token->chosen.token, walk.event->is_prompt);
  }
  iso_json_end(w, ']');
  iso_json_end(w, '}');
}

static const char *finish_reason(const iso_job *job, iso_stop_reason reason) {
  return job->prompt_only ? "length" : iso_finish_reason(reason);
}

static void write_result(iso_job *job, iso_json_writer *w) {
  iso_begin_object(job, job->format->object, w);
  iso_json_begin(w, "choices", '[');
  for (int i = 0; i < job->n_answers; i++) {
    iso_answer *answer = &job->answers[i];
    if (!answer->ended)
      continue;
    iso_json_begin(w, NULL, '{');
    iso_json_int(w, "index", i);
    iso_write_answer_text(job, answer, "text", w);
    write_logprobs(job, answer, NULL, w);
    iso_json_string(w, "finish_reason", finish_reason(job, answer->reason));
    iso_json_end(w, '}');
  }
  iso_json_end(w, ']');
  iso_write_usage(job, w);
  iso_json_end(w, '}');
}

static void write_chunk(const iso_job *job, iso_answer *answer, const char *text, size_t length,
                        const iso_event *event, iso_json_writer *w) {
  bool ends = event && event->kind == ISO_EVENT_CHOICE;
  iso_begin_chunk(job, answer, w);
  iso_json_text(w, "text", text, length);
  if (event && event->n_tokens > 0)
    write_logprobs(job, answer, event, w);
  else
    iso_json_null(w, "logprobs");
  iso_end_chunk(job, ends ? finish_reason(job, event->reason) : NULL, w);
}

static void write_event(iso_job *job, iso_answer *answer, const iso_event *event,
                        iso_json_writer *w) {
  const iso_prompt *prompt = iso_answer_prompt(job, answer);
  /* The prompt's tokens come once, with the first choice; each begins with them. */
  int n = event->is_prompt ? job->n_answers / job->n_prompts : 1;
  for (int i = 0; i < n && prompt->text; i++) {
    if (!answer[i].begun)
      write_chunk(job, &answer[i], prompt->text, prompt->text_length,
                  event->is_prompt ? event : NULL, w);
    answer[i].begun = true;
  }
  if (event->is_prompt)
    return;
  if (event->kind == ISO_EVENT_CHOICE || event->length > 0 ||
      (job->request.logprobs && event->n_tokens > 0))
    write_chunk(job, answer, event->kind == ISO_EVENT_TEXT ? event->text : "",
                event->kind == ISO_EVENT_TEXT ? event->length : 0, event, w);
}

const iso_format iso_format_completion = {.body = ISO_BODY_COMPLETION,
                                          .id_prefix = "cmpl",
                                          .object = "text_completion",
                                          .chunk_object = "text_completion",
                                          .prepare = prepare,
                                          .write_result = write_result,
                                          .write_event = write_event,
                                          .write_last = iso_write_last};
