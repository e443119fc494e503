/* Request bodies as typed fields, by the table fields.def. */
#ifndef ISOMER_SERVER_FIELDS_H
#define ISOMER_SERVER_FIELDS_H

#include <cjson/cJSON.h>

#include "server/server_internal.h"

typedef enum iso_body {
  ISO_BODY_CHAT,
  ISO_BODY_COMPLETION,
  ISO_BODY_VLLM, /* vLLM's demo server: {"prompt": ...} */
  ISO_BODY_TGI,  /* {"inputs": ..., "parameters": {...}} */
  ISO_BODY_TGI_PARAMETERS,
  ISO_BODY_EMBEDDING,
  ISO_BODY_TOKENIZE,
  ISO_BODY_DETOKENIZE,
  ISO_BODY_COUNT
} iso_body;

typedef struct iso_fields {
  const char *model, *cache_salt, *encoding_format, *service_tier;
  const cJSON *messages, *tools, *tool_choice, *template_variables, *prompt, *parameters;
  const cJSON *stream_options, *stop, *stop_token_ids, *logit_bias, *response_format, *modalities;
  const cJSON *user; /* of rows that are ignored or refused: never set */
  bool add_generation_prompt, add_special_tokens, stream, echo, logprobs, details, prompt_details;
  bool skip_special_tokens, ignore_eos, do_sample, use_beam_search, early_stopping;
  bool return_token_strings, parallel_tool_calls, cache_prompt;
  int32_t n, best_of, top_logprobs, max_tokens, max_completion_tokens, min_tokens, top_k;
  int32_t beam_width, priority, truncate, dimensions;
  int32_t completion_logprobs; /* -1: not asked for */
  int64_t seed;
  double temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  double length_penalty;
  uint64_t given[2]; /* bit i: row i of the table is there and not null */
} iso_fields;

/* Most values in one body, and as many in the arguments of its tool calls, which are JSON too: what
 * bounds the memory of a request, at about 80 bytes a value. Prompts of token ids have one a token.
 */
enum { ISO_BODY_MAX_VALUES = 1 << 19 };

/* The tree of a body, whose containers nest at most 64 deep. The caller frees it. Any thread. */
bool iso_body_parse(const char *body, size_t length, cJSON **out_root, iso_api_error *refusal);
/* What failed in a text that may have *values more values: 413 where it has more, 503, else 400. */
bool iso_body_refuse(iso_status status, uint64_t values, iso_api_error *refusal);

/* Defaults of every field; max_tokens -1: not given. */
void iso_fields_init(iso_fields *fields);
/* Reads an object's members. Unknown ones are refused, naming the nearest. Strings and JSON belong
 * to `object`. Any thread. */
bool iso_fields_read(const cJSON *object, iso_body body, iso_fields *fields,
                     iso_api_error *refusal);
/* Whether the member called `name` was given. */
bool iso_fields_given(const iso_fields *fields, iso_body body, const char *name);

/* JSON schema (OpenAPI 3.1) of a body. */
void iso_fields_write_schema(iso_json_writer *writer, const char *key, iso_body body);

#endif
