/* /v1/chat/completions */
#include "server/job.h"

#include <stdlib.h>
#include <string.h>

static bool check_tool_choice(const cJSON *choice, iso_api_error *refusal) {
  const char *word = cJSON_IsString(choice) ? choice->valuestring : NULL;
  if (!choice || (word && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0)))
    return true;
  return iso_refuse(refusal, 400, "tool_choice", "unsupported_parameter",
                    "'tool_choice' must be \"none\" or \"auto\": a call cannot be forced, and is "
                    "answered as the text that the model writes");
}

static bool check_response_format(const cJSON *format, iso_api_error *refusal) {
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(format, "type");
  if (!format || (cJSON_IsString(type) && strcmp(type->valuestring, "text") == 0))
    return true;
  return iso_refuse(refusal, 400, "response_format", "unsupported_parameter",
                    "'response_format' must be {\"type\": \"text\"}: answers cannot be held to a "
                    "grammar");
}

bool iso_read_stream_options(iso_job *job, iso_api_error *refusal) {
  const cJSON *options = job->fields.stream_options;
  if (!options)
    return true;
  if (!job->fields.stream)
    return iso_refuse(refusal, 400, "stream_options", "invalid_value",
                      "'stream_options' goes with \"stream\": true");
  if (!cJSON_IsObject(options))
    return iso_refuse(refusal, 400, "stream_options", "invalid_type",
                      "'stream_options' must be an object");
  for (const cJSON *item = options->child; item; item = item->next) {
    bool usage = strcmp(item->string, "include_usage") == 0;
    if (!usage && strcmp(item->string, "include_obfuscation") != 0)
      return iso_refuse(refusal, 400, "stream_options", "unknown_parameter",
                        "'stream_options' holds '%.64s'; it knows 'include_usage'", item->string);
    if (!cJSON_IsBool(item) && !cJSON_IsNull(item))
      return iso_refuse(refusal, 400, "stream_options", "invalid_type",
                        "'%.64s' must be true or false", item->string);
    if (usage)
      job->include_usage = cJSON_IsTrue(item);
  }
  return true;
}

static bool prepare(iso_job *job, iso_api_error *refusal) {
  iso_fields *fields = &job->fields;
  if (fields->max_tokens == 0)
    return iso_refuse(refusal, 400, "max_tokens", "invalid_value",
                      "'max_tokens' must be at least 1");
  if (fields->max_completion_tokens > 0)
    fields->max_tokens = fields->max_completion_tokens;
  if (fields->top_logprobs > 0 && !fields->logprobs)
    return iso_refuse(refusal, 400, "top_logprobs", "invalid_value",
                      "'top_logprobs' goes with \"logprobs\": true");
  if (!check_tool_choice(fields->tool_choice, refusal) ||
      !check_response_format(fields->response_format, refusal) ||
      !iso_read_stream_options(job, refusal) || !iso_job_set_request(job, refusal))
    return false;
  job->request.logprobs = fields->logprobs;
  job->request.n_top_logprobs = fields->top_logprobs;
  int32_t *ids;
  size_t count;
  return iso_chat_tokenize(job->server->model, job->server->specials, fields, &ids, &count,
                           refusal) &&
         iso_job_add_ids(job, ids, count, false, refusal);
}

static void write_one_token(const iso_model *model, const iso_token_logprob *token,
                            iso_json_writer *w) {
  size_t length = 0;
  const char *bytes = iso_token_bytes(model, token->token, &length);
  iso_json_text(w, "token", bytes, length);
  iso_write_logprob(w, "logprob", token->logprob);
  iso_json_begin(w, "bytes", '[');
  for (size_t i = 0; i < length; i++)
    iso_json_int(w, NULL, (unsigned char)bytes[i]);
  iso_json_end(w, ']');
}

static void write_tokens(const iso_model *model, const iso_event *event, iso_json_writer *w) {
  for (int32_t i = 0; i < event->n_tokens; i++) {
    const iso_event_token *token = &event->tokens[i];
    iso_json_begin(w, NULL, '{');
    write_one_token(model, &token->chosen, w);
    iso_json_begin(w, "top_logprobs", '[');
    for (int32_t k = 0; k < token->n_top; k++) {
      iso_json_begin(w, NULL, '{');
      write_one_token(model, &token->top[k], w);
      iso_json_end(w, '}');
    }
    iso_json_end(w, ']');
    iso_json_end(w, '}');
  }
}

static void write_logprobs(const iso_job *job, const iso_answer *answer, const iso_event *event,
                           iso_json_writer *w) {
  const iso_model *model = job->server->model;
  if (!job->fields.logprobs) {
    iso_json_null(w, "logprobs");
    return;
  }
  iso_json_begin(w, "logprobs", '{');
  iso_json_begin(w, "content", '[');
  if (event)
    write_tokens(model, event, w);
  else
    for (const iso_event_letter *at = answer->first; at; at = at->next)
      write_tokens(model, &at->event, w);
  iso_json_end(w, ']');
  iso_json_null(w, "refusal");
  iso_json_end(w, '}');
}

static void write_result(iso_job *job, iso_json_writer *w) {
  iso_begin_object(job, job->format->object, w);
  iso_json_begin(w, "choices", '[');
  for (int i = 0; i < job->n_answers; i++) {
    const iso_answer *answer = &job->answers[i];
    iso_json_begin(w, NULL, '{');
    iso_json_int(w, "index", i);
    iso_json_begin(w, "message", '{');
    iso_json_string(w, "role", "assistant");
    iso_write_answer_text(job, answer, "content", w);
    iso_json_null(w, "refusal");
    iso_json_end(w, '}');
    write_logprobs(job, answer, NULL, w);
    iso_json_string(w, "finish_reason", iso_finish_reason(answer->reason));
    iso_json_end(w, '}');
  }
  iso_json_end(w, ']');
  iso_write_usage(job, w);
  iso_json_end(w, '}');
}

static void write_chunk(const iso_job *job, const iso_answer *answer, const iso_event *event,
                        bool role, iso_json_writer *w) {
  bool ends = !role && event->kind == ISO_EVENT_CHOICE;
  iso_sse_begin(w);
  iso_begin_object(job, job->format->chunk_object, w);
  iso_json_begin(w, "choices", '[');
  iso_json_begin(w, NULL, '{');
  iso_json_int(w, "index", answer->index);
  iso_json_begin(w, "delta", '{');
  if (role)
    iso_json_string(w, "role", "assistant");
  if (!ends)
    iso_json_text(w, "content", role ? "" : event->text, role ? 0 : event->length);
  iso_json_end(w, '}');
  if (role || ends)
    iso_json_null(w, "logprobs");
  else
    write_logprobs(job, answer, event, w);
  if (ends)
    iso_json_string(w, "finish_reason", iso_finish_reason(event->reason));
  else
    iso_json_null(w, "finish_reason");
  iso_json_end(w, '}');
  iso_json_end(w, ']');
  if (job->include_usage)
    iso_json_null(w, "usage");
  iso_json_end(w, '}');
  iso_sse_end(w);
}

static void write_event(iso_job *job, iso_answer *answer, const iso_event *event,
                        iso_json_writer *w) {
  if (!answer->begun)
    write_chunk(job, answer, event, true, w);
  if (event->kind == ISO_EVENT_CHOICE || event->length > 0 ||
      (job->fields.logprobs && event->n_tokens > 0))
    write_chunk(job, answer, event, false, w);
}

const iso_format iso_format_chat = {.body = ISO_BODY_CHAT,
                                    .id_prefix = "chatcmpl",
                                    .object = "chat.completion",
                                    .chunk_object = "chat.completion.chunk",
                                    .prepare = prepare,
                                    .write_result = write_result,
                                    .write_event = write_event,
                                    .write_last = iso_write_last};
