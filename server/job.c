#include "server/job.h"

#include "models/chat/chat_template.h"
#include "models/tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A body up to this size is read in less than a few milliseconds, unless it has a schema. */
enum { INLINE_BODY = 16 << 10 };
/* Unsent bytes of an answer, or bytes on their way to the loop, at which its engine requests wait.
 */
static const size_t HIGH_MARK = (size_t)256 << 10;

/* ---- From the engine's thread ---- */

static void deliver_event(iso_letter *letter);

static size_t align_up(size_t bytes) { return (bytes + 15) & ~(size_t)15; }

/* Copies an event with all that it points to. NULL when memory is out. */
static iso_event_letter *copy_event(iso_part *part, const iso_event *event) {
  size_t n_top = 0;
  for (int32_t i = 0; i < event->n_tokens; i++)
    n_top += (size_t)event->tokens[i].n_top;
  size_t tokens_at = align_up(sizeof(iso_event_letter));
  size_t top_at = align_up(tokens_at + (size_t)event->n_tokens * sizeof(iso_event_token));
  size_t text_at = align_up(top_at + n_top * sizeof(iso_token_logprob));
  size_t stop_length = event->stop ? strlen(event->stop) + 1 : 0;
  size_t message_length = event->message ? strlen(event->message) + 1 : 0;
  size_t bytes = text_at + event->length + 1 + stop_length + message_length;
  char *memory = malloc(bytes);
  if (!memory)
    return NULL;
  iso_event_letter *copy = (iso_event_letter *)memory;
  *copy = (iso_event_letter){.part = part, .event = *event, .bytes = bytes};
  iso_event_token *tokens = (iso_event_token *)(memory + tokens_at);
  iso_token_logprob *top = (iso_token_logprob *)(memory + top_at);
  char *text = memory + text_at;
  for (int32_t i = 0; i < event->n_tokens; i++) {
    tokens[i] = event->tokens[i];
    tokens[i].top = top;
    if (tokens[i].n_top > 0)
      memcpy(top, event->tokens[i].top, (size_t)tokens[i].n_top * sizeof *top);
    top += tokens[i].n_top;
  }
  copy->event.tokens = tokens;
  if (event->length)
    memcpy(text, event->text, event->length);
  copy->event.text = text;
  text += event->length;
  *text++ = 0;
  copy->event.stop = event->stop ? memcpy(text, event->stop, stop_length) : NULL;
  text += stop_length;
  copy->event.message = event->message ? memcpy(text, event->message, message_length) : "";
  return copy;
}

static iso_flow on_event(void *context, const iso_event *event) {
  iso_part *part = context;
  iso_job *job = part->job;
  iso_event_letter *letter = copy_event(part, event);
  if (event->kind == ISO_EVENT_DONE && event->n_embedding > 0 &&
      (part->embedding = calloc((size_t)event->n_embedding, sizeof(float)))) {
    memcpy(part->embedding, event->embedding, (size_t)event->n_embedding * sizeof(float));
    part->n_embedding = event->n_embedding;
  }
  if (!letter && event->kind != ISO_EVENT_DONE)
    return ISO_FLOW_CANCEL;
  if (!letter) {
    letter = part->last;
    *letter = (iso_event_letter){.part = part, .event = *event, .bytes = sizeof *letter};
    letter->event.message = "out of memory";
    letter->event.status = event->status == ISO_OK ? ISO_ERROR_OUT_OF_MEMORY : event->status;
  }
  letter->letter.deliver = deliver_event;
  size_t queued = atomic_fetch_add(&job->queued_bytes, letter->bytes) + letter->bytes;
  /* Decided before the letter is out: after the last one the job may be gone. */
  bool pause = job->stream && event->kind != ISO_EVENT_DONE &&
               (atomic_load(&job->blocked) || queued > HIGH_MARK);
  if (pause)
    atomic_store(&part->asked_pause, true);
  iso_mailbox_put(job->server->mailbox, &letter->letter); /* server.c wakes, once a step */
  return pause ? ISO_FLOW_PAUSE : ISO_FLOW_CONTINUE;
}

/* ---- Life ---- */

static void free_events(iso_event_letter *letter) {
  while (letter) {
    iso_event_letter *next = letter->next;
    free(letter);
    letter = next;
  }
}

static void job_free(iso_job *job) {
  for (int i = 0; i < job->n_prompts; i++) {
    free(job->prompts[i].ids);
    free(job->prompts[i].text);
    if (job->parts) {
      free(job->parts[i].embedding);
      free(job->parts[i].last);
    }
  }
  for (int i = 0; job->answers && i < job->n_answers; i++)
    free_events(job->answers[i].first);
  for (int i = 0; job->scans && i < job->n_answers; i++)
    iso_tool_scan_free(&job->scans[i]);
  iso_tool_names_free(&job->tool_names);
  iso_grammar_release(job->request.grammar);
  free(job->scans);
  cJSON_Delete(job->root);
  free(job->parts);
  free(job->answers);
  free(job->prompts);
  free(job->stop);
  free(job->stop_tokens);
  free(job->logit_bias);
  free(job->body);
  job->server->n_jobs--;
  free(job);
}

static void free_if_over(iso_job *job) {
  if (!job->exchange && job->n_open == 0 && job->is_prepared)
    job_free(job);
}

static void cancel_parts(iso_job *job) {
  for (int i = 0; job->parts && i < job->n_prompts; i++)
    if (job->parts[i].id && !job->parts[i].done)
      iso_engine_cancel(job->server->engine, job->parts[i].id);
}

static void on_close(iso_exchange *exchange) {
  iso_job *job = exchange->owner;
  iso_record *record = exchange->record;
  if (record) {
    record->finish = "client left";
    record->n_output = 0;
    for (int i = 0; i < job->n_answers; i++)
      record->n_output += job->answers[i].n_tokens;
  }
  job->exchange = NULL;
  if (!job->is_prepared)
    job->is_prepared = iso_workers_take_back(job->server->workers, &job->work);
  cancel_parts(job);
  free_if_over(job);
}

/* Gives the exchange up with an error: as a status before the answer has begun, inside the stream
 * afterwards. */
static void fail(iso_job *job, const iso_api_error *refusal) {
  iso_exchange *exchange = job->exchange;
  if (!exchange)
    return;
  iso_record *record = exchange->record;
  if (record)
    record->finish = "error";
  job->exchange = NULL;
  if (!job->streaming) {
    iso_respond_refusal(job->server, exchange, refusal);
  } else {
    iso_json_writer writer = {0};
    iso_sse_begin(&writer);
    iso_json_begin(&writer, NULL, '{');
    iso_write_refusal(&writer, refusal);
    iso_json_end(&writer, '}');
    iso_sse_end(&writer);
    iso_http_stream_write(exchange, writer.text.data, writer.text.size);
    free(writer.text.data);
    iso_http_stream_end(exchange);
  }
  cancel_parts(job);
}

static void fail_out_of_memory(iso_job *job) {
  iso_api_error refusal;
  iso_refuse(&refusal, 503, NULL, "out_of_memory", "out of memory");
  fail(job, &refusal);
}

/* ---- Answers ---- */

/* Lets the engine go on once the client has taken enough. It hears this after the pause that it
 * answers, for that was asked for before the letter came. While a worker reads the body there are
 * no parts, and all else belongs to the worker: what drains then is of an earlier answer. */
static void resume(iso_job *job) {
  if (atomic_load(&job->blocked) || atomic_load(&job->queued_bytes) > HIGH_MARK)
    return;
  for (int i = 0; job->parts && i < job->n_prompts; i++)
    if (!job->parts[i].done && atomic_exchange(&job->parts[i].asked_pause, false))
      iso_engine_resume(job->server->engine, job->parts[i].id);
}

static void on_drain(iso_exchange *exchange) {
  iso_job *job = exchange->owner;
  atomic_store(&job->blocked, false);
  resume(job);
}

/* Sends what the writer holds, starting the stream at the first bytes. */
static void send_frames(iso_job *job, iso_json_writer *writer) {
  if (!job->streaming) {
    job->streaming = true;
    iso_http_stream_begin(job->exchange, 200, "text/event-stream");
  }
  iso_http_stream_write(job->exchange, writer->text.data, writer->text.size);
  if (iso_http_pending(job->exchange) > HIGH_MARK)
    atomic_store(&job->blocked, true);
}

static void finish_record(iso_job *job) {
  iso_record *record = job->exchange->record;
  if (!record)
    return;
  record->n_prompt = job->usage.n_prompt;
  record->n_cached = job->usage.n_cached;
  record->n_output = job->usage.n_output;
  record->queue_seconds = job->usage.queue_us / 1e6;
  if (job->n_answers > 0 && !record->finish)
    record->finish = iso_finish_reason(job->answers[0].reason);
}

/* All parts are done and well. */
static void complete(iso_job *job) {
  iso_json_writer writer = {0};
  iso_exchange *exchange = job->exchange;
  finish_record(job);
  if (!job->stream) {
    job->exchange = NULL;
    job->format->write_result(job, &writer);
    iso_respond_json(job->server, exchange, 200, &writer);
    return;
  }
  job->format->write_last(job, &writer);
  if (writer.text.failed) {
    free(writer.text.data);
    fail_out_of_memory(job);
    return;
  }
  send_frames(job, &writer);
  free(writer.text.data);
  job->exchange = NULL;
  iso_http_stream_end(exchange);
}

static void count_tokens(iso_job *job, iso_answer *answer, const iso_event *event) {
  iso_metrics *metrics = &job->server->metrics;
  iso_record *record = job->exchange->record;
  double now = iso_http_now();
  if (event->n_tokens == 0)
    return;
  if (record && record->first_token_seconds == 0) {
    record->first_token_seconds = now - job->exchange->start;
    iso_histogram_add(&metrics->first_token_seconds, record->first_token_seconds, 1);
  }
  if (answer->last_token > 0)
    iso_histogram_add(&metrics->inter_token_seconds, (now - answer->last_token) / event->n_tokens,
                      (uint64_t)event->n_tokens);
  answer->last_token = now;
  answer->n_tokens += event->n_tokens;
}

/* Returns whether the event is kept. */
static bool take_answer_event(iso_job *job, iso_event_letter *letter) {
  const iso_event *event = &letter->event;
  int n = job->n_answers / job->n_prompts;
  if (!job->exchange || event->choice < 0 || event->choice >= n)
    return false;
  if (event->kind == ISO_EVENT_TEXT && job->prompt_only && !event->is_prompt)
    return false;
  iso_answer *answer = &job->answers[letter->part->index * n + event->choice];
  if (event->kind == ISO_EVENT_CHOICE) {
    answer->ended = true;
    answer->reason = event->reason;
    answer->stop = event->stop;
  } else if (!event->is_prompt) {
    count_tokens(job, answer, event);
  }
  if (job->stream) {
    iso_json_writer writer = {0};
    job->format->write_event(job, answer, event, &writer);
    answer->begun = true;
    if (writer.text.failed)
      fail_out_of_memory(job);
    else if (writer.text.size > 0)
      send_frames(job, &writer);
    free(writer.text.data);
  }
  if (job->stream && !job->format->keep_events && event->kind != ISO_EVENT_CHOICE)
    return false;
  *(answer->first ? &answer->last->next : &answer->first) = letter;
  answer->last = letter;
  return true;
}

/* ---- Prompts to the engine ---- */

/* The longest prompt goes first: where it has room, all have. */
static int submitted_as(const iso_job *job, int number) {
  return number == 0 ? job->longest : number <= job->longest ? number - 1 : number;
}

static iso_status submit_part(iso_job *job, int index) {
  iso_request request = job->request;
  iso_part *part = &job->parts[index];
  request.prompt = job->prompts[index].ids;
  request.n_prompt = job->prompts[index].count;
  request.adapter = job->adapter;
  request.on_event = on_event;
  request.context = part;
  request.continues = job->n_submitted > 0 && job->n_open == 0;
  if (request.timeout_us > 0) { /* of all prompts together */
    double left = job->server->options.request_seconds - (iso_http_now() - job->exchange->start);
    request.timeout_us = left > 1e-6 ? (uint64_t)(left * 1e6) : 1;
  }
  iso_status status = iso_engine_submit(job->server->engine, &request, &part->id);
  if (status != ISO_OK)
    part->id = 0;
  return status;
}

/* Twice as many prompts as can run are with the engine at a time, so that one request with many
 * does not come with all of them before requests that others make meanwhile; and those that wait
 * leave half of the queue to others, but for one: a request that has begun always has a prompt at
 * work or in line, so nobody who comes later can keep it waiting. */
static bool may_submit(const iso_job *job) {
  const iso_engine_options *options = iso_engine_get_options(job->server->engine);
  iso_engine_stats stats;
  if (job->n_open == 0)
    return true;
  if (job->n_open >= 2 * options->runtime.max_sequences)
    return false;
  iso_engine_get_stats(job->server->engine, &stats);
  return stats.n_waiting < options->max_queue / 2;
}

static bool submit_more(iso_job *job, iso_api_error *refusal) {
  while (job->n_submitted < job->n_prompts && may_submit(job)) {
    iso_status status = submit_part(job, submitted_as(job, job->n_submitted));
    if (status == ISO_ERROR_BUSY && job->n_open > 0)
      return true; /* until one of them is done */
    if (status != ISO_OK) {
      iso_refuse_status(refusal, job->server, status, NULL);
      if (status == ISO_ERROR_LIMIT) /* too long for the context */
        snprintf(refusal->param, sizeof refusal->param, "%s", iso_job_prompt_name(job));
      return false;
    }
    job->n_submitted++;
    job->n_open++;
  }
  return true;
}

static void take_done(iso_job *job, iso_part *part, const iso_event *event) {
  iso_usage *sum = &job->usage;
  part->done = true;
  part->usage = event->usage;
  sum->n_prompt += event->usage.n_prompt;
  sum->n_cached += event->usage.n_cached;
  sum->n_output += job->prompt_only ? 0 : event->usage.n_output;
  if (event->usage.queue_us > sum->queue_us)
    sum->queue_us = event->usage.queue_us;
  iso_metrics *metrics = &job->server->metrics;
  iso_histogram_add(&metrics->queue_seconds, event->usage.queue_us / 1e6, 1);
  iso_histogram_add(&metrics->prompt_tokens, event->usage.n_prompt, 1);
  if (!job->request.embed)
    iso_histogram_add(&metrics->output_tokens, event->usage.n_output, 1);
  job->n_open--;
  if (!job->exchange)
    return;
  if (event->status != ISO_OK) {
    iso_api_error refusal;
    iso_refuse_status(&refusal, job->server, event->status, event->message);
    if (event->status == ISO_ERROR_LIMIT)
      iso_refuse(&refusal, 504, NULL, "timeout", "%s", event->message);
    /* Found while drawing: no token is left. */
    if (event->status == ISO_ERROR_INVALID_ARGUMENT && job->request.n_logit_bias > 0)
      snprintf(refusal.param, sizeof refusal.param, "logit_bias");
    fail(job, &refusal);
  } else if (job->request.embed && !part->embedding) {
    fail_out_of_memory(job);
  } else if (job->n_submitted < job->n_prompts) {
    iso_api_error refusal;
    if (!submit_more(job, &refusal))
      fail(job, &refusal);
  } else if (job->n_open == 0) {
    complete(job);
  }
}

static void deliver_event(iso_letter *letter) {
  iso_event_letter *self = (iso_event_letter *)letter;
  iso_part *part = self->part;
  iso_job *job = part->job;
  bool kept = false;
  atomic_fetch_sub(&job->queued_bytes, self->bytes);
  if (self->event.kind == ISO_EVENT_DONE)
    take_done(job, part, &self->event);
  else
    kept = take_answer_event(job, self);
  if (self == part->last)
    part->last = NULL;
  if (!kept)
    free(self);
  if (job->exchange && atomic_load(&part->asked_pause))
    resume(job);
  free_if_over(job);
}

/* ---- From body to engine ---- */

static bool read_body(iso_job *job, iso_api_error *refusal) {
  iso_status status = ISO_OK;
  if (!iso_body_parse(job->body, job->body_length, &job->root, refusal))
    return false;
  if (job->format->body == ISO_BODY_CHAT)
    status = iso_chat_keep_number_spelling(job->root, job->body, job->body_length);
  if (status != ISO_OK)
    return iso_body_refuse(status, ISO_BODY_MAX_VALUES, refusal);
  iso_fields_init(&job->fields);
  if (!iso_fields_read(job->root, job->format->body, &job->fields, refusal) ||
      (job->fields.model &&
       !iso_find_served(job->server, job->fields.model, &job->adapter, refusal)))
    return false;
  job->fields.stream |= job->always_stream;
  return job->format->prepare(job, refusal);
}

static void run_preparation(iso_work *work) {
  iso_job *job = (iso_job *)work;
  if (read_body(job, &job->refusal))
    job->refusal.status = 0;
}

static void run_on_worker(iso_work *work) {
  iso_job *job = (iso_job *)work;
  run_preparation(work);
  iso_mailbox_post(job->server->mailbox, &job->prepared);
}

static bool make_parts(iso_job *job, iso_api_error *refusal) {
  int n = job->request.n > 0 ? job->request.n : 1;
  job->n_answers = job->n_prompts * n;
  job->parts = calloc((size_t)job->n_prompts, sizeof *job->parts);
  job->answers = calloc((size_t)job->n_answers, sizeof *job->answers);
  if (job->tool_format)
    job->scans = calloc((size_t)job->n_answers, sizeof *job->scans);
  bool ok = job->parts && job->answers && (job->scans || !job->tool_format);
  for (int i = 0; ok && i < job->n_prompts; i++) {
    job->parts[i].job = job;
    job->parts[i].index = i;
    ok = (job->parts[i].last = calloc(1, sizeof(iso_event_letter))) != NULL;
  }
  for (int i = 0; ok && i < job->n_answers; i++) {
    job->answers[i].index = i;
    if (!job->scans)
      continue;
    job->answers[i].scan = &job->scans[i];
    job->scans[i] = (iso_tool_scan){.format = job->tool_format,
                                    .names = &job->tool_names,
                                    .seed = job->id,
                                    .choice = i,
                                    .has_one = !job->fields.parallel_tool_calls};
    if (job->forced)
      iso_tool_scan_force(&job->scans[i]);
  }
  return ok || iso_refuse(refusal, 503, NULL, "out_of_memory", "out of memory");
}

static bool submit(iso_job *job, iso_api_error *refusal) {
  if (!make_parts(job, refusal))
    return false;
  for (int i = 1; i < job->n_prompts; i++)
    if (job->prompts[i].count > job->prompts[job->longest].count)
      job->longest = i;
  return submit_more(job, refusal);
}

static void go_on(iso_job *job) {
  job->is_prepared = true;
  if (job->exchange && job->refusal.status)
    fail(job, &job->refusal);
  else if (job->exchange && job->server->draining) {
    iso_api_error refusal;
    iso_refuse(&refusal, 503, NULL, "shutting_down", "the server is shutting down");
    fail(job, &refusal);
  } else if (job->exchange) {
    iso_record *record = job->exchange->record;
    if (record)
      record->stream = job->stream;
    iso_api_error refusal;
    if (!submit(job, &refusal))
      fail(job, &refusal);
  }
  /* The engine has copies; a tree may be many times its text. */
  cJSON_Delete(job->root);
  free(job->body);
  job->root = NULL;
  job->body = NULL;
  if (job->exchange)
    iso_http_body_freed(job->exchange);
  free_if_over(job);
}

static void deliver_prepared(iso_letter *letter) {
  go_on((iso_job *)((char *)letter - offsetof(iso_job, prepared)));
}

/* Small schemas can describe much; what only looks like one takes a longer way, no other. The last
 * sign is a letter of ASCII in disguise, perhaps of one of the others. */
static bool may_take_long(const iso_job *job) {
  static const char *const signs[] = {"json_", "tool_choice", "grammar", "strict", "\\u00"};
  if (job->body_length > INLINE_BODY)
    return true;
  bool has_schema = false;
  for (size_t i = 0; i < sizeof signs / sizeof *signs && job->body; i++)
    has_schema |= memmem(job->body, job->body_length, signs[i], strlen(signs[i])) != NULL;
  return has_schema;
}

void iso_job_start(iso_server *server, iso_exchange *exchange, const iso_format *format,
                   bool always_stream) {
  iso_job *job = calloc(1, sizeof *job);
  if (!job) {
    iso_api_error refusal;
    iso_refuse(&refusal, 503, NULL, "out_of_memory", "out of memory");
    iso_respond_refusal(server, exchange, &refusal);
    return;
  }
  iso_record *record = exchange->record;
  if (record && server->options.log_prompts && exchange->body)
    record->prompt = strndup(exchange->body, 2000);
  job->server = server;
  job->exchange = exchange;
  job->format = format;
  job->always_stream = always_stream;
  job->body = exchange->body;
  job->body_length = exchange->body_length;
  job->created = time(NULL);
  snprintf(job->id, sizeof job->id, "%s-%s", format->id_prefix, exchange->id);
  exchange->body = NULL;
  exchange->owner = job;
  exchange->on_close = on_close;
  exchange->on_drain = on_drain;
  server->n_jobs++;
  job->work.run = run_on_worker;
  job->prepared.deliver = deliver_prepared;
  if (may_take_long(job)) {
    iso_workers_submit(server->workers, &job->work);
    return;
  }
  run_preparation(&job->work);
  go_on(job);
}
