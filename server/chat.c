/* /v1/chat/completions */
#include "server/job.h"

#include "models/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static bool refuse_choice(iso_api_error *refusal) {
  return iso_refuse(refusal, 400, "tool_choice", "unsupported_parameter",
                    "'tool_choice' must be \"none\", \"auto\", \"required\" or {\"type\": "
                    "\"function\", \"function\": {\"name\": ...}}");
}

/* Of a function that must be called. *out_name NULL: of any. */
static bool read_forced(const cJSON *choice, const char **out_name, iso_api_error *refusal) {
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(choice, "type");
  const cJSON *function = cJSON_GetObjectItemCaseSensitive(choice, "function");
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(function, "name");
  *out_name = NULL;
  if (cJSON_IsString(choice) && strcmp(choice->valuestring, "required") == 0)
    return true;
  if (!cJSON_IsString(type) || strcmp(type->valuestring, "function") != 0 || !cJSON_IsString(name))
    return refuse_choice(refusal);
  *out_name = name->valuestring;
  return true;
}

/* "auto" without tools and "none" are the same; with "none" the template does not see the tools. */
static bool read_tools(iso_job *job, iso_api_error *refusal) {
  iso_fields *fields = &job->fields;
  const cJSON *choice = fields->tool_choice;
  const char *word = cJSON_IsString(choice) ? choice->valuestring : NULL, *name;
  if (word && strcmp(word, "none") == 0)
    fields->tools = NULL;
  else if (choice && !(word && strcmp(word, "auto") == 0))
    return read_forced(choice, &name, refusal) && iso_job_force_call(job, name, refusal);
  if (!cJSON_IsArray(fields->tools) || !job->server->tool_format)
    return true;
  if (!iso_tool_names_copy(fields->tools, &job->tool_names))
    return iso_refuse(refusal, 503, NULL, "out_of_memory", "out of memory");
  if (job->tool_names.count == 0)
    return true;
  job->tool_format = job->server->tool_format;
  return iso_job_hold_calls(job, refusal);
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
  bool obfuscates = false;
  const struct {
    const char *name;
    bool *value;
  } rows[] = {{"include_usage", &job->include_usage},
              {"continuous_usage_stats", &job->usage_in_each}, /* vLLM's; goes with the former */
              {"include_obfuscation", &obfuscates}};
  for (const cJSON *item = options->child; item; item = item->next) {
    size_t i = 0;
    while (i < sizeof rows / sizeof *rows && strcmp(item->string, rows[i].name) != 0)
      i++;
    if (i == sizeof rows / sizeof *rows)
      return iso_refuse(refusal, 400, "stream_options", "unknown_parameter",
                        "'stream_options' holds '%.64s'; it knows 'include_usage' and "
                        "'continuous_usage_stats'",
                        item->string);
    if (!cJSON_IsBool(item) && !cJSON_IsNull(item))
      return iso_refuse(refusal, 400, "stream_options", "invalid_type",
                        "'%.64s' must be true or false", item->string);
    *rows[i].value = cJSON_IsTrue(item);
    if (obfuscates)
      return iso_refuse(refusal, 400, "stream_options", "unsupported_value",
                        "'include_obfuscation' is not supported: pieces have the length of their "
                        "text");
  }
  return true;
}

/* The mark before a forced call is part of the prompt: the model is in the midst of writing it. */
static bool begin_call(const iso_job *job, int32_t **ids, size_t *count, iso_api_error *refusal) {
  const char *mark = job->tool_format->bare ? NULL : job->tool_format->begin;
  int32_t *more = NULL;
  size_t n_more = 0;
  if (!mark)
    return true;
  iso_status status =
      iso_tokenizer_encode(iso_model_get_tokenizer(job->server->model), mark, strlen(mark),
                           ISO_TOKENIZE_PARSE_SPECIAL, &more, &n_more);
  int32_t *grown = status == ISO_OK ? realloc(*ids, (*count + n_more + 1) * sizeof *grown) : NULL;
  if (grown) {
    *ids = grown;
    memcpy(grown + *count, more, n_more * sizeof *more);
    *count += n_more;
  } else {
    free(*ids);
  }
  free(more);
  return grown || iso_refuse(refusal, 503, NULL, "out_of_memory", "out of memory");
}

static bool check_modalities(const cJSON *list, iso_api_error *refusal) {
  bool ok = !list || cJSON_IsArray(list);
  for (const cJSON *item = ok && list ? list->child : NULL; item; item = item->next)
    ok = ok && cJSON_IsString(item) && strcmp(item->valuestring, "text") == 0;
  return ok || iso_refuse(refusal, 400, "modalities", "unsupported_parameter",
                          "'modalities' must be [\"text\"]: answers are text");
}

static bool prepare(iso_job *job, iso_api_error *refusal) {
  iso_fields *fields = &job->fields;
  if (fields->max_tokens == 0)
    return iso_refuse(refusal, 400, "max_tokens", "invalid_value",
                      "'max_tokens' must be at least 1");
  if (fields->max_completion_tokens > 0 && fields->max_tokens > 0 &&
      fields->max_completion_tokens != fields->max_tokens)
    return iso_refuse(refusal, 400, "max_tokens", "invalid_value",
                      "'max_tokens' and 'max_completion_tokens' are two names of one limit");
  if (fields->max_completion_tokens > 0)
    fields->max_tokens = fields->max_completion_tokens;
  if (fields->top_logprobs > 0 && !fields->logprobs)
    return iso_refuse(refusal, 400, "top_logprobs", "invalid_value",
                      "'top_logprobs' goes with \"logprobs\": true");
  const char *tier = fields->service_tier;
  if (tier && strcmp(tier, "auto") != 0 && strcmp(tier, "default") != 0)
    return iso_refuse(
        refusal, 400, "service_tier", "unsupported_value",
        "'service_tier' must be \"auto\" or \"default\"; \"priority\": -1 runs first");
  if (!check_modalities(fields->modalities, refusal) || !iso_read_stream_options(job, refusal) ||
      !iso_job_set_request(job, refusal) || !read_tools(job, refusal) ||
      !iso_job_set_response_format(job, refusal))
    return false;
  job->request.show_special |= job->tool_format && job->tool_format->special;
  job->request.logprobs = fields->logprobs;
  job->request.n_top_logprobs = fields->top_logprobs;
  /* Calls that are held to a grammar or looked for are of use without the template's help. */
  bool must_show_tools = !job->tool_format && fields->tools && fields->tools->child;
  int32_t *ids;
  size_t count;
  return iso_chat_tokenize(job->server->model, job->server->tool_format, fields, must_show_tools,
                           &ids, &count, refusal) &&
         (!job->forced || begin_call(job, &ids, &count, refusal)) &&
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

/* OpenAI has "stop" after the call of a function that was named. */
static const char *finish_of(const iso_job *job, const iso_answer *answer, iso_stop_reason reason) {
  bool by_itself = reason == ISO_STOP_END || reason == ISO_STOP_STRING;
  bool calls = by_itself && answer->scan && answer->scan->n_calls > 0;
  return calls && job->forced != FORCED_FUNCTION ? "tool_calls" : iso_finish_reason(reason);
}

static void write_content_and_calls(const iso_answer *answer, iso_json_writer *w) {
  iso_printer content = {0};
  iso_json_writer calls = {0};
  for (const iso_event_letter *at = answer->first; at; at = at->next)
    if (at->event.kind == ISO_EVENT_TEXT)
      iso_tool_scan_push(answer->scan, at->event.text, at->event.length, false, false, &content,
                         &calls);
  iso_tool_scan_push(answer->scan, "", 0, true, false, &content, &calls);
  w->text.failed |= content.failed || calls.text.failed;
  if (content.size > 0 || answer->scan->n_calls == 0)
    iso_json_text(w, "content", content.data ? content.data : "", content.size);
  else
    iso_json_null(w, "content");
  if (calls.text.data) {
    iso_json_begin(w, "tool_calls", '[');
    iso_json_raw(w, NULL, calls.text.data);
    iso_json_end(w, ']');
  }
  free(content.data);
  free(calls.text.data);
}

static void write_result(iso_job *job, iso_json_writer *w) {
  iso_begin_object(job, job->format->object, w);
  iso_json_begin(w, "choices", '[');
  for (int i = 0; i < job->n_answers; i++) {
    const iso_answer *answer = &job->answers[i];
    if (!answer->ended)
      continue;
    iso_json_begin(w, NULL, '{');
    iso_json_int(w, "index", i);
    iso_json_begin(w, "message", '{');
    iso_json_string(w, "role", "assistant");
    if (answer->scan)
      write_content_and_calls(answer, w);
    else
      iso_write_answer_text(job, answer, "content", w);
    iso_json_null(w, "refusal");
    iso_json_end(w, '}');
    write_logprobs(job, answer, NULL, w);
    iso_json_string(w, "finish_reason", finish_of(job, answer, answer->reason));
    iso_json_end(w, '}');
  }
  iso_json_end(w, ']');
  iso_write_usage(job, w);
  iso_json_end(w, '}');
}

/* What one chunk says; NULL: nothing about that. */
typedef struct answer_piece {
  const char *role, *text, *calls, *finish;
  size_t length;           /* of text */
  const iso_event *tokens; /* behind the text */
} answer_piece;

static void write_chunk(const iso_job *job, const iso_answer *answer, const answer_piece *piece,
                        iso_json_writer *w) {
  iso_begin_chunk(job, answer, w);
  iso_json_begin(w, "delta", '{');
  if (piece->role)
    iso_json_string(w, "role", piece->role);
  if (piece->text)
    iso_json_text(w, "content", piece->text, piece->length);
  if (piece->calls) {
    iso_json_begin(w, "tool_calls", '[');
    iso_json_raw(w, NULL, piece->calls);
    iso_json_end(w, ']');
  }
  iso_json_end(w, '}');
  if (piece->tokens)
    write_logprobs(job, answer, piece->tokens, w);
  else
    iso_json_null(w, "logprobs");
  iso_end_chunk(job, piece->finish, w);
}

/* A call is sent when it is whole: half of one is of no use to anybody. */
static void write_event(iso_job *job, iso_answer *answer, const iso_event *event,
                        iso_json_writer *w) {
  bool ends = event->kind == ISO_EVENT_CHOICE;
  const char *text = ends ? "" : event->text;
  size_t length = ends ? 0 : event->length;
  iso_printer content = {0};
  iso_json_writer calls = {0};
  if (answer->scan) {
    iso_tool_scan_push(answer->scan, text, length, ends, true, &content, &calls);
    w->text.failed |= content.failed || calls.text.failed;
    text = content.data ? content.data : "";
    length = content.size;
  }
  if (!answer->begun)
    write_chunk(job, answer, &(answer_piece){.role = "assistant", .text = ""}, w);
  if (length > 0 || (job->fields.logprobs && event->n_tokens > 0))
    write_chunk(job, answer,
                &(answer_piece){.text = text, .length = length, .tokens = ends ? NULL : event}, w);
  if (calls.text.data)
    write_chunk(job, answer, &(answer_piece){.calls = calls.text.data}, w);
  if (ends)
    write_chunk(job, answer, &(answer_piece){.finish = finish_of(job, answer, event->reason)}, w);
  free(content.data);
  free(calls.text.data);
}

const iso_format iso_format_chat = {.body = ISO_BODY_CHAT,
                                    .id_prefix = "chatcmpl",
                                    .object = "chat.completion",
                                    .chunk_object = "chat.completion.chunk",
                                    .prepare = prepare,
                                    .write_result = write_result,
                                    .write_event = write_event,
                                    .write_last = iso_write_last};
