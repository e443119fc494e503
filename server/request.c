/* From fields to what the engine is asked; for every body that generates. */
#include "server/job.h"

#include "models/tokenizer/tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
  MAX_STOP = 16,
  MAX_STOP_TOKENS = 64,
  MAX_BIAS = 4096,
  MAX_PROMPTS = 2048,
  MAX_ANSWERS = 2048
};

static bool out_of_memory(iso_api_error *refusal) {
  return iso_refuse(refusal, 503, NULL, "out_of_memory", "out of memory");
}

static bool set_stop(iso_job *job, iso_api_error *refusal) {
  const cJSON *stop = job->fields.stop;
  if (!stop)
    return true;
  int count = cJSON_IsArray(stop) ? cJSON_GetArraySize(stop) : 1;
  if (count > MAX_STOP)
    return iso_refuse(refusal, 400, "stop", "invalid_value", "'stop' has %d texts; at most %d",
                      count, MAX_STOP);
  if (!(job->stop = calloc((size_t)count + 1, sizeof *job->stop)))
    return out_of_memory(refusal);
  for (const cJSON *item = cJSON_IsArray(stop) ? stop->child : stop; count-- > 0;
       item = item->next) {
    if (!cJSON_IsString(item) || !*item->valuestring)
      return iso_refuse(refusal, 400, "stop", "invalid_type",
                        "'stop' must be a text or an array of texts, none empty");
    job->stop[job->request.n_stop++] = item->valuestring;
  }
  job->request.stop = job->stop;
  return true;
}

static bool is_token(const cJSON *item, const iso_model *model) {
  return cJSON_IsNumber(item) && item->valuedouble == floor(item->valuedouble) &&
         item->valuedouble >= 0 && item->valuedouble < iso_model_get_config(model)->vocabulary_size;
}

static bool set_stop_tokens(iso_job *job, iso_api_error *refusal) {
  const cJSON *array = job->fields.stop_token_ids;
  if (!array)
    return true;
  int count = cJSON_GetArraySize(array);
  if (!cJSON_IsArray(array) || count > MAX_STOP_TOKENS)
    return iso_refuse(refusal, 400, "stop_token_ids", "invalid_type",
                      "'stop_token_ids' must be an array of at most %d token ids", MAX_STOP_TOKENS);
  if (!(job->stop_tokens = calloc((size_t)count + 1, sizeof *job->stop_tokens)))
    return out_of_memory(refusal);
  for (const cJSON *item = array->child; item; item = item->next) {
    if (!is_token(item, job->server->model))
      return iso_refuse(refusal, 400, "stop_token_ids", "invalid_value",
                        "'stop_token_ids' holds what is no token id of this model");
    job->stop_tokens[job->request.n_stop_tokens++] = (int32_t)item->valuedouble;
  }
  job->request.stop_tokens = job->stop_tokens;
  return true;
}

static bool set_bias(iso_job *job, iso_api_error *refusal) {
  const cJSON *bias = job->fields.logit_bias;
  if (!bias)
    return true;
  int count = cJSON_GetArraySize(bias);
  if (!cJSON_IsObject(bias) || count > MAX_BIAS)
    return iso_refuse(refusal, 400, "logit_bias", "invalid_type",
                      "'logit_bias' must be an object of at most %d token ids", MAX_BIAS);
  if (!(job->logit_bias = calloc((size_t)count + 1, sizeof *job->logit_bias)))
    return out_of_memory(refusal);
  for (const cJSON *item = bias->child; item; item = item->next) {
    char *end;
    long token = strtol(item->string, &end, 10);
    if (!*item->string || *end || strlen(item->string) > 10 || token < 0 ||
        token >= iso_model_get_config(job->server->model)->vocabulary_size)
      return iso_refuse(refusal, 400, "logit_bias", "invalid_value",
                        "'logit_bias' names '%.32s', which is no token id of this model",
                        item->string);
    if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= 100))
      return iso_refuse(refusal, 400, "logit_bias", "invalid_value",
                        "'logit_bias' of token %ld must be a number from -100 to 100", token);
    job->logit_bias[job->request.n_logit_bias++] =
        (iso_logit_bias){.token = (int32_t)token,
                         /* OpenAI's -100 bans a token. */
                         .bias = item->valuedouble <= -100 ? -INFINITY : (float)item->valuedouble};
  }
  job->request.logit_bias = job->logit_bias;
  return true;
}

/* A seed that nobody gave is one that a double holds, as JSON's numbers are read: answers in TGI's
 * dialect tell it, and the same answer comes to whoever gives it back. */
static uint64_t seed_of(const iso_fields *fields, iso_body body) {
  enum { DOUBLE_BITS = 53 };
  uint64_t seed = (uint64_t)fields->seed;
  if (iso_fields_given(fields, body, "seed"))
    return seed;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
    seed = (uint64_t)(iso_http_now() * 1e9);
  return seed & ((UINT64_C(1) << DOUBLE_BITS) - 1);
}

/* Fields of a search without one, and fields that change the odds of what is drawn with one. */
static bool check_search(const iso_fields *fields, iso_api_error *refusal) {
  const struct {
    const char *name;
    bool is_set, is_of_search;
  } rows[] = {{"beam_width", fields->beam_width != 0, true},
              {"length_penalty", fields->length_penalty != 1, true},
              {"early_stopping", fields->early_stopping, true},
              {"presence_penalty", fields->presence_penalty != 0, false},
              {"frequency_penalty", fields->frequency_penalty != 0, false},
              {"repetition_penalty", fields->repetition_penalty != 1, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].is_set && rows[i].is_of_search != fields->use_beam_search)
      return iso_refuse(refusal, 400, rows[i].name, "invalid_value",
                        "'%s' %s with \"use_beam_search\": true", rows[i].name,
                        rows[i].is_of_search ? "goes" : "does not go");
  return true;
}

static bool set_choices(iso_job *job, iso_api_error *refusal) {
  const iso_fields *fields = &job->fields;
  iso_request *request = &job->request;
  request->n = fields->n;
  if (fields->best_of) {
    if (fields->best_of < fields->n)
      return iso_refuse(refusal, 400, "best_of", "invalid_value",
                        "'best_of' is %d, less than 'n', %d", fields->best_of, fields->n);
    if (job->stream && fields->best_of > fields->n)
      return iso_refuse(refusal, 400, "best_of", "invalid_value",
                        "'best_of' cannot be streamed: the best is known at the end only");
    request->best_of = fields->best_of;
  }
  if (!check_search(fields, refusal))
    return false;
  if (!fields->use_beam_search)
    return true;
  request->beam_width = fields->beam_width ? fields->beam_width
                        : fields->best_of  ? fields->best_of
                                           : fields->n;
  if (request->beam_width < fields->n)
    return iso_refuse(refusal, 400, "beam_width", "invalid_value",
                      "'beam_width' is %d, less than 'n', %d", request->beam_width, fields->n);
  request->best_of = 0;
  request->length_penalty = (float)fields->length_penalty;
  request->early_stopping = fields->early_stopping;
  return true;
}

bool iso_job_set_request(iso_job *job, iso_api_error *refusal) {
  const iso_fields *fields = &job->fields;
  iso_body body = job->format->body == ISO_BODY_TGI ? ISO_BODY_TGI_PARAMETERS : job->format->body;
  iso_request *request = &job->request;
  *request = (iso_request){.sampling = iso_sampling_default()};
  request->sampling.temperature = (float)fields->temperature;
  request->sampling.top_k = fields->top_k > 0 ? fields->top_k : 0;
  request->sampling.top_p = (float)fields->top_p;
  request->sampling.min_p = (float)fields->min_p;
  request->sampling.repetition_penalty = (float)fields->repetition_penalty;
  request->sampling.presence_penalty = (float)fields->presence_penalty;
  request->sampling.frequency_penalty = (float)fields->frequency_penalty;
  request->sampling.seed = seed_of(fields, body);
  request->max_tokens = fields->max_tokens > 0 ? fields->max_tokens : 0;
  request->min_tokens = fields->min_tokens;
  request->ignore_end = fields->ignore_eos;
  request->show_special = !fields->skip_special_tokens;
  request->priority = fields->priority;
  request->timeout_us = (uint64_t)(job->server->options.request_seconds * 1e6);
  for (const char *at = fields->cache_salt; at && *at; at++) /* FNV-1a */
    request->cache_key = (request->cache_key ^ (unsigned char)*at) * UINT64_C(0x100000001b3) + 1;
  request->no_prefix_cache = !fields->cache_prompt;
  job->stream = fields->stream;
  if (fields->max_tokens > 0 && fields->min_tokens > fields->max_tokens)
    return iso_refuse(refusal, 400, "min_tokens", "invalid_value",
                      "'min_tokens' is more than 'max_tokens'");
  return set_choices(job, refusal) && set_stop(job, refusal) && set_stop_tokens(job, refusal) &&
         set_bias(job, refusal);
}

/* ---- Prompts ---- */

const char *iso_job_prompt_name(const iso_job *job) {
  switch (job->format->body) {
  case ISO_BODY_CHAT:
    return "messages";
  case ISO_BODY_EMBEDDING:
    return "input";
  case ISO_BODY_TGI:
    return "inputs";
  default:
    return "prompt";
  }
}

bool iso_job_add_ids(iso_job *job, int32_t *ids, size_t count, bool keep_text,
                     iso_api_error *refusal) {
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(job->server->model);
  int n = job->request.n > 0 ? job->request.n : 1;
  bool ok = true;
  if (count == 0 || count > INT32_MAX)
    ok = iso_refuse(refusal, 400, iso_job_prompt_name(job), "invalid_value",
                    "'%s' has a text of %zu tokens", iso_job_prompt_name(job), count);
  else if (job->n_prompts >= MAX_PROMPTS || (job->n_prompts + 1) * n > MAX_ANSWERS)
    ok =
        iso_refuse(refusal, 400, iso_job_prompt_name(job), "invalid_value",
                   "more than %d prompts, or %d answers, in one request", MAX_PROMPTS, MAX_ANSWERS);
  iso_prompt *grown =
      ok ? realloc(job->prompts, (size_t)(job->n_prompts + 1) * sizeof *grown) : NULL;
  if (!grown) {
    free(ids);
    return ok ? out_of_memory(refusal) : false;
  }
  job->prompts = grown;
  grown[job->n_prompts] = (iso_prompt){.ids = ids, .count = (int32_t)count};
  iso_prompt *prompt = &grown[job->n_prompts++];
  if (keep_text && iso_tokenizer_decode(tokenizer, ids, count, ISO_DETOKENIZE_SKIP_SPECIAL,
                                        &prompt->text, &prompt->text_length) != ISO_OK)
    return iso_refuse_status(refusal, job->server, ISO_ERROR_INVALID_ARGUMENT, NULL);
  return true;
}

bool iso_job_add_text(iso_job *job, const char *text, size_t length, uint32_t flags, bool keep_text,
                      iso_api_error *refusal) {
  int32_t *ids = NULL;
  size_t count = 0;
  iso_status status = iso_tokenizer_encode(iso_model_get_tokenizer(job->server->model), text,
                                           length, flags, &ids, &count);
  if (status != ISO_OK)
    return iso_refuse_status(refusal, job->server, status, NULL);
  if (!iso_job_add_ids(job, ids, count, false, refusal))
    return false;
  iso_prompt *prompt = &job->prompts[job->n_prompts - 1];
  if (keep_text && !(prompt->text = strndup(text, length)))
    return out_of_memory(refusal);
  prompt->text_length = keep_text ? length : 0;
  return true;
}

bool iso_read_ids(const cJSON *array, const iso_model *model, const char *name, int32_t **out_ids,
                  size_t *out_count, iso_api_error *refusal) {
  int32_t tokens = iso_tokenizer_vocabulary_size(iso_model_get_tokenizer(model));
  size_t count = 0;
  for (const cJSON *item = array->child; item; item = item->next)
    count++;
  int32_t *ids = calloc(count + 1, sizeof *ids);
  if (!ids)
    return out_of_memory(refusal);
  size_t at = 0;
  for (const cJSON *item = array->child; item; item = item->next) {
    if (!is_token(item, model) || item->valuedouble >= tokens) {
      free(ids);
      return iso_refuse(refusal, 400, name, "invalid_value",
                        "'%s' holds at place %zu what is no token id of this model", name, at);
    }
    ids[at++] = (int32_t)item->valuedouble;
  }
  *out_ids = ids;
  *out_count = count;
  return true;
}

/* `name` is the field's, or of several the one's, as in "prompt[3]". */
static bool add_one(iso_job *job, const cJSON *item, const char *name, bool is_one_of_several,
                    bool keep_text, iso_api_error *refusal) {
  uint32_t flags = job->fields.add_special_tokens ? ISO_TOKENIZE_ADD_SPECIAL : 0;
  if (cJSON_IsString(item))
    return iso_job_add_text(job, item->valuestring, strlen(item->valuestring), flags, keep_text,
                            refusal);
  if (!cJSON_IsArray(item) && is_one_of_several)
    return iso_refuse(refusal, 400, name, "invalid_type",
                      "'%s' must be a string or an array of token ids", name);
  if (!cJSON_IsArray(item))
    return iso_refuse(refusal, 400, name, "invalid_type",
                      "'%s' must be a string, an array of strings, of token ids, or of arrays of "
                      "token ids",
                      name);
  int32_t *ids;
  size_t count;
  return iso_read_ids(item, job->server->model, name, &ids, &count, refusal) &&
         iso_job_add_ids(job, ids, count, keep_text, refusal);
}

bool iso_job_add_prompts(iso_job *job, const cJSON *prompt, const char *name, bool keep_text,
                         iso_api_error *refusal) {
  if (!prompt)
    return iso_refuse(refusal, 400, name, "missing_required_parameter", "'%s' is missing", name);
  if (!cJSON_IsArray(prompt) || cJSON_IsNumber(prompt->child))
    return add_one(job, prompt, name, false, keep_text, refusal);
  if (!prompt->child)
    return iso_refuse(refusal, 400, name, "invalid_value", "'%s' is empty", name);
  int place = 0;
  for (const cJSON *item = prompt->child; item; item = item->next) {
    char one[64];
    snprintf(one, sizeof one, "%s[%d]", name, place++);
    if (add_one(job, item, one, true, keep_text, refusal))
      continue;
    if (strcmp(refusal->param, one) == 0) /* the field alone */
      snprintf(refusal->param, sizeof refusal->param, "%s", name);
    return false;
  }
  return true;
}
