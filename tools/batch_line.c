#include "tools/batch_line.h"

#include "core/json.h"
#include "core/spelling.h"
#include "models/chat/messages.h"
#include "models/tokenizer/tokenizer.h"
#include "tools/adapters.h"
#include "tools/conversation.h"
#include "tools/tool.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_TOKENS = 1 << 30 };

/* ---- What it asks -------------------------------------------------------------------------- */

/* Names that a line may have; others are the caller's own, unless they look like one of these. */
static const char *const names[] = {
    "prompt",
    "model",
    "src",
    "messages",
    "max_tokens",
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "seed",
    "stop",
    "schema",
    "presence_penalty",
    "frequency_penalty",
    "n",
    "best_of",
    "beam_width",
    "length_penalty",
    "early_stopping",
    "ignore_end",
    "priority",
    "id",
    "custom_id",
    "tgt",
};
enum { N_NAMES = sizeof names / sizeof names[0] };

static iso_status check_names(const cJSON *root) {
  const cJSON *item;
  cJSON_ArrayForEach(item, root) {
    const char *nearest = NULL;
    int best = ISO_SPELLING_NEAR;
    for (int i = 0; i < N_NAMES; i++) {
      int distance = iso_spelling_distance(item->string, names[i]);
      if (distance < best && strlen(item->string) > 3) {
        best = distance;
        nearest = names[i];
      }
    }
    if (nearest && best > 0)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "there is no \"%s\"; did you mean \"%s\"?",
                      item->string, nearest);
  }
  return ISO_OK;
}

static iso_status read_integers(iso_batch_line *line) {
  iso_request *request = &line->request;
  const struct {
    const char *name;
    int64_t min, max;
    int32_t *value;
  } fields[] = {
      {"max_tokens", 0, MAX_TOKENS, &request->max_tokens},
      {"min_tokens", 0, MAX_TOKENS, &request->min_tokens},
      {"top_k", 0, MAX_TOKENS, &request->sampling.top_k},
      {"n", 1, 128, &request->n},
      {"best_of", 1, 128, &request->best_of},
      {"beam_width", 1, 128, &request->beam_width},
      {"priority", -1000000, 1000000, &request->priority},
  };
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    int64_t value = *fields[i].value;
    ISO_TRY(iso_json_get_optional_int(line->root, fields[i].name, fields[i].min, fields[i].max,
                                      &value));
    *fields[i].value = (int32_t)value;
  }
  int64_t seed = (int64_t)request->sampling.seed;
  ISO_TRY(iso_json_get_optional_int(line->root, "seed", 0, INT64_C(1) << 53, &seed));
  request->sampling.seed = (uint64_t)seed;
  ISO_TRY(iso_json_get_optional_bool(line->root, "early_stopping", &request->early_stopping));
  return iso_json_get_optional_bool(line->root, "ignore_end", &request->ignore_end);
}

static iso_status read_floats(iso_batch_line *line) {
  iso_request *request = &line->request;
  iso_sampling *sampling = &request->sampling;
  const struct {
    const char *name;
    double min, max;
    float *value;
  } fields[] = {
      {"temperature", 0, 100, &sampling->temperature},
      {"top_p", 0, 1, &sampling->top_p},
      {"min_p", 0, 1, &sampling->min_p},
      {"repetition_penalty", 0.01, 100, &sampling->repetition_penalty},
      {"presence_penalty", -100, 100, &sampling->presence_penalty},
      {"frequency_penalty", -100, 100, &sampling->frequency_penalty},
      {"length_penalty", -100, 100, &request->length_penalty},
  };
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    double value = (double)*fields[i].value;
    ISO_TRY(iso_json_get_optional_float(line->root, fields[i].name, fields[i].min, fields[i].max,
                                        &value));
    *fields[i].value = (float)value;
  }
  return ISO_OK;
}

/* A string or a list of them; in place of those of the options. */
static iso_status read_stops(iso_batch_line *line, const iso_options *options) {
  const cJSON *stop = cJSON_GetObjectItemCaseSensitive(line->root, "stop"), *item;
  iso_request *request = &line->request;
  request->stop = line->stops;
  if (!stop || cJSON_IsNull(stop)) {
    for (int i = 0; i < options->stop.n && i < ISO_BATCH_MAX_STOPS; i++)
      line->stops[request->n_stop++] = options->stop.items[i];
    return ISO_OK;
  }
  if (cJSON_IsString(stop)) {
    line->stops[request->n_stop++] = stop->valuestring;
    return ISO_OK;
  }
  if (!cJSON_IsArray(stop))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "\"stop\" is neither a string nor a list of them");
  cJSON_ArrayForEach(item, stop) {
    if (!cJSON_IsString(item) || request->n_stop == ISO_BATCH_MAX_STOPS)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "\"stop\" is not a list of at most %d strings",
                      ISO_BATCH_MAX_STOPS);
    line->stops[request->n_stop++] = item->valuestring;
  }
  return ISO_OK;
}

/* "model" chooses an adapter where there are any; without them it is the caller's own. */
static iso_status read_model(iso_batch_line *line, const iso_options *options) {
  const char *name = NULL;
  if (options->lora.n == 0)
    return ISO_OK;
  ISO_TRY(iso_json_get_optional_string(line->root, "model", &name));
  if (!name || iso_text_view_equals(iso_tool_name(options->model), name))
    return ISO_OK;
  for (int i = 0; i < options->lora.n; i++)
    if (iso_text_view_equals(iso_tool_adapter_name(options, i), name)) {
      line->request.adapter = i + 1;
      return ISO_OK;
    }
  return iso_fail(ISO_ERROR_NOT_FOUND, "\"model\" is \"%.100s\", neither the model nor an adapter",
                  name);
}

static iso_status read_schema(iso_engine *engine, iso_batch_line *line) {
  const cJSON *schema = cJSON_GetObjectItemCaseSensitive(line->root, "schema");
  if (!schema || cJSON_IsNull(schema))
    return ISO_OK;
  char *text = cJSON_PrintUnformatted(schema);
  if (!text)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a schema");
  iso_status status = iso_grammar_create(engine, text, strlen(text), &line->request.grammar);
  free(text);
  return iso_fail_context(status, "schema");
}

/* ---- Its prompt ---------------------------------------------------------------------------- */

static iso_status tokenize_messages(const iso_model *model, const cJSON *messages,
                                    int32_t **out_ids, size_t *out_count) {
  if (!iso_model_get_chat_template(model))
    return iso_fail(ISO_ERROR_UNSUPPORTED, "the model has no chat template; give \"prompt\"");
  uint64_t values = ISO_JSON_MAX_VALUES;
  ISO_TRY(iso_chat_tidy_messages((cJSON *)messages, &values)); /* they are the line's own */
  iso_conversation conversation = {.messages = (cJSON *)messages};
  return iso_conversation_tokenize(&conversation, model, out_ids, out_count);
}

static iso_status tokenize_source(const iso_model *model, const iso_options *options,
                                  const char *source, int32_t **out_ids, size_t *out_count) {
  bool has_template = iso_tool_uses_template(options, model);
  if (!has_template && options->system)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--system is for the chat template, and %s",
                    options->raw ? "--raw leaves it out" : "the model has none");
  if (!has_template)
    return iso_tokenizer_encode(iso_model_get_tokenizer(model), source, strlen(source),
                                ISO_TOKENIZE_ADD_SPECIAL, out_ids, out_count);
  iso_conversation conversation;
  iso_status status = iso_conversation_create(&conversation);
  if (status == ISO_OK && options->system)
    status = iso_conversation_add(&conversation, "system", options->system);
  if (status == ISO_OK)
    status = iso_conversation_add(&conversation, "user", source);
  if (status == ISO_OK)
    status = iso_conversation_tokenize(&conversation, model, out_ids, out_count);
  iso_conversation_destroy(&conversation);
  return status;
}

static iso_status read_prompt(const iso_model *model, const iso_options *options,
                              iso_batch_line *line) {
  const char *prompt = NULL, *source = NULL;
  const cJSON *messages = NULL;
  size_t n_ids = 0;
  ISO_TRY(iso_json_get_optional_string(line->root, "prompt", &prompt));
  ISO_TRY(iso_json_get_optional_string(line->root, "src", &source));
  ISO_TRY(iso_json_get_optional_array(line->root, "messages", &messages));
  if ((prompt != NULL) + (source != NULL) + (messages != NULL) != 1)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "a line needs one of \"prompt\", \"src\" and \"messages\"");
  if (messages)
    ISO_TRY(tokenize_messages(model, messages, &line->ids, &n_ids));
  else if (source)
    ISO_TRY(tokenize_source(model, options, source, &line->ids, &n_ids));
  else
    ISO_TRY(iso_tokenizer_encode(iso_model_get_tokenizer(model), prompt, strlen(prompt),
                                 ISO_TOKENIZE_ADD_SPECIAL, &line->ids, &n_ids));
  if (n_ids > INT32_MAX)
    return iso_fail(ISO_ERROR_LIMIT, "the prompt has %zu tokens", n_ids);
  line->request.prompt = line->ids;
  line->request.n_prompt = (int32_t)n_ids;
  line->request.goes_on = prompt || (source && !iso_tool_uses_template(options, model));
  return ISO_OK;
}

uint64_t iso_batch_line_hash(const char *text, size_t length) {
  while (length > 0 && strchr(" \t\r\n", text[length - 1]) && text[length - 1])
    length--;
  uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
  for (size_t i = 0; i < length; i++)
    hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
  return hash;
}

iso_status iso_batch_line_read(iso_engine *engine, const iso_options *options,
                               const iso_sampling *sampling, const char *text, size_t length,
                               int64_t index, iso_batch_line *out_line) {
  *out_line = (iso_batch_line){
      .index = index,
      .request = {.sampling = *sampling, .max_tokens = iso_tool_max_tokens(options), .n = 1}};
  /* Lines draw differently from each other, and each the same in every run with this seed. */
  out_line->request.sampling.seed += (uint64_t)index * UINT64_C(0xd1342543de82ef95);
  ISO_TRY(iso_json_parse(text, length, MAX_DEPTH, &out_line->root));
  if (!cJSON_IsObject(out_line->root))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the line is no JSON object");
  ISO_TRY(check_names(out_line->root));
  ISO_TRY(read_integers(out_line));
  ISO_TRY(read_floats(out_line));
  ISO_TRY(read_stops(out_line, options));
  ISO_TRY(read_model(out_line, options));
  ISO_TRY(read_schema(engine, out_line));
  ISO_TRY(read_prompt(iso_engine_get_model(engine), options, out_line));
  out_line->choices = calloc((size_t)out_line->request.n, sizeof *out_line->choices);
  return out_line->choices
             ? ISO_OK
             : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %d answers", out_line->request.n);
}

void iso_batch_line_destroy(iso_batch_line *line) {
  for (int32_t i = 0; line->choices && i < line->request.n; i++)
    iso_text_free(&line->choices[i].text);
  iso_grammar_release(line->request.grammar);
  free(line->choices);
  free(line->ids);
  cJSON_Delete(line->root);
  *line = (iso_batch_line){0};
}

/* ---- What it got --------------------------------------------------------------------------- */

static void add_choice(cJSON *object, const iso_batch_choice *choice) {
  static const char *const reasons[] = {"stop", "length", "stop", "cancelled"};
  cJSON_AddStringToObject(object, "text", choice->text.data ? choice->text.data : "");
  cJSON_AddStringToObject(object, "finish_reason", reasons[choice->reason]);
}

static void add_answer(cJSON *object, const iso_batch_line *line) {
  add_choice(object, &line->choices[0]);
  if (line->request.n > 1) {
    cJSON *choices = cJSON_AddArrayToObject(object, "choices");
    for (int32_t i = 0; choices && i < line->request.n; i++) {
      cJSON *choice = cJSON_CreateObject();
      add_choice(choice, &line->choices[i]);
      cJSON_AddItemToArray(choices, choice);
    }
  }
  cJSON_AddNumberToObject(object, "n_prompt", line->usage.n_prompt);
  cJSON_AddNumberToObject(object, "n_cached", line->usage.n_cached);
  cJSON_AddNumberToObject(object, "n_output", line->usage.n_output);
}

iso_status iso_batch_line_print(const iso_batch_line *line, const char *error, char **out_text) {
  static const char *const echoed[] = {"id", "custom_id", "tgt"};
  cJSON *object = cJSON_CreateObject();
  cJSON_AddNumberToObject(object, "index", (double)line->index);
  char hash[20];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)line->hash);
  cJSON_AddStringToObject(object, "line", hash);
  for (size_t i = 0; i < sizeof echoed / sizeof echoed[0]; i++) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line->root, echoed[i]);
    if (item)
      cJSON_AddItemToObject(object, echoed[i], cJSON_Duplicate(item, true));
  }
  if (error)
    cJSON_AddStringToObject(object, "error", error);
  else
    add_answer(object, line);
  *out_text = cJSON_PrintUnformatted(object);
  cJSON_Delete(object);
  return *out_text ? ISO_OK : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for an answer");
}
