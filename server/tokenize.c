/* /tokenize and /detokenize, as vLLM has them. */
#include "server/routes.h"

#include "models/tokenizer/tokenizer.h"
#include <stdlib.h>
#include <string.h>

/* A pair of routes whose work needs no engine. Large bodies go to a worker. */
typedef struct small_job {
  iso_work work;
  iso_letter answered;
  iso_server *server;
  iso_exchange *exchange; /* NULL: the client has left */
  char *body;
  size_t body_length;
  bool (*answer)(struct small_job *job, const cJSON *root, iso_api_error *refusal);
  iso_json_writer writer;
  iso_api_error refusal; /* status 0: none */
} small_job;

enum { INLINE_BODY = 16 << 10 };

static void run(iso_work *work) {
  small_job *job = (small_job *)work;
  cJSON *root = NULL;
  iso_api_error refusal = {0};
  bool ok = iso_body_parse(job->body, job->body_length, &root, &refusal) &&
            job->answer(job, root, &refusal);
  job->refusal = refusal;
  if (ok)
    job->refusal.status = 0;
  cJSON_Delete(root);
}

static void respond(small_job *job) {
  job->server->n_jobs--;
  if (job->exchange && job->refusal.status)
    iso_respond_refusal(job->server, job->exchange, &job->refusal);
  else if (job->exchange)
    iso_respond_json(job->server, job->exchange, 200, &job->writer);
  free(job->writer.text.data);
  free(job->body);
  free(job);
}

static void on_close(iso_exchange *exchange) {
  small_job *job = exchange->owner;
  job->exchange = NULL;
  if (iso_workers_take_back(job->server->workers, &job->work))
    respond(job);
}

static void deliver(iso_letter *letter) {
  respond((small_job *)((char *)letter - offsetof(small_job, answered)));
}

static void run_on_worker(iso_work *work) {
  small_job *job = (small_job *)work;
  run(work);
  iso_mailbox_post(job->server->mailbox, &job->answered);
}

static void start(iso_server *server, iso_exchange *exchange,
                  bool (*answer)(small_job *, const cJSON *, iso_api_error *)) {
  small_job *job = calloc(1, sizeof *job);
  if (!job) {
    iso_api_error refusal;
    iso_refuse(&refusal, 503, NULL, "out_of_memory", "out of memory");
    iso_respond_refusal(server, exchange, &refusal);
    return;
  }
  *job = (small_job){.work.run = run_on_worker,
                     .answered.deliver = deliver,
                     .server = server,
                     .exchange = exchange,
                     .body = exchange->body,
                     .body_length = exchange->body_length,
                     .answer = answer};
  exchange->body = NULL;
  exchange->owner = job;
  exchange->on_close = on_close;
  server->n_jobs++;
  if (job->body_length > INLINE_BODY) {
    iso_workers_submit(server->workers, &job->work);
    return;
  }
  run(&job->work);
  respond(job);
}

static bool tokenize(small_job *job, const iso_fields *fields, int32_t **out_ids, size_t *out_count,
                     iso_api_error *refusal) {
  const iso_model *model = job->server->model;
  const cJSON *prompt = fields->prompt;
  if ((fields->messages != NULL) == (prompt != NULL))
    return iso_refuse(refusal, 400, "prompt", "missing_required_parameter",
                      "give either 'prompt' or 'messages'");
  if (fields->messages)
    return iso_chat_tokenize(model, job->server->tool_format, fields, false, out_ids, out_count,
                             refusal);
  if (!cJSON_IsString(prompt))
    return iso_refuse(refusal, 400, "prompt", "invalid_type", "'prompt' must be a string");
  iso_status status = iso_tokenizer_encode(
      iso_model_get_tokenizer(model), prompt->valuestring, strlen(prompt->valuestring),
      fields->add_special_tokens ? ISO_TOKENIZE_ADD_SPECIAL : 0, out_ids, out_count);
  return status == ISO_OK || iso_refuse_status(refusal, job->server, status, NULL);
}

static bool answer_tokenize(small_job *job, const cJSON *root, iso_api_error *refusal) {
  iso_fields fields;
  int32_t *ids = NULL;
  size_t count = 0;
  iso_json_writer *w = &job->writer;
  iso_fields_init(&fields);
  if (!iso_fields_read(root, ISO_BODY_TOKENIZE, &fields, refusal) ||
      !tokenize(job, &fields, &ids, &count, refusal))
    return false;
  iso_json_begin(w, NULL, '{');
  iso_json_int(w, "count", (int64_t)count);
  iso_json_int(w, "max_model_len", iso_engine_get_options(job->server->engine)->runtime.context);
  iso_json_begin(w, "tokens", '[');
  for (size_t i = 0; i < count; i++)
    iso_json_int(w, NULL, ids[i]);
  iso_json_end(w, ']');
  if (fields.return_token_strings) {
    iso_json_begin(w, "token_strs", '[');
    for (size_t i = 0; i < count; i++)
      iso_write_token(job->server->model, w, NULL, ids[i]);
    iso_json_end(w, ']');
  }
  iso_json_end(w, '}');
  free(ids);
  return true;
}

static bool answer_detokenize(small_job *job, const cJSON *root, iso_api_error *refusal) {
  iso_fields fields;
  int32_t *ids = NULL;
  size_t count = 0, length = 0;
  char *text = NULL;
  iso_fields_init(&fields);
  if (!iso_fields_read(root, ISO_BODY_DETOKENIZE, &fields, refusal))
    return false;
  if (!cJSON_IsArray(fields.prompt))
    return iso_refuse(refusal, 400, "tokens", "invalid_type",
                      "'tokens' must be an array of token ids");
  if (!iso_read_ids(fields.prompt, job->server->model, "tokens", &ids, &count, refusal))
    return false;
  iso_status status = iso_tokenizer_decode(iso_model_get_tokenizer(job->server->model), ids, count,
                                           0, &text, &length);
  free(ids);
  if (status != ISO_OK)
    return iso_refuse_status(refusal, job->server, status, NULL);
  iso_json_begin(&job->writer, NULL, '{');
  iso_json_text(&job->writer, "prompt", text, length);
  iso_json_end(&job->writer, '}');
  free(text);
  return true;
}

void iso_handle_tokenize(iso_server *server, iso_exchange *exchange) {
  start(server, exchange, answer_tokenize);
}
void iso_handle_detokenize(iso_server *server, iso_exchange *exchange) {
  start(server, exchange, answer_detokenize);
}
