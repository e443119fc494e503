#include "server/fields.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "core/spelling.h"

typedef enum field_kind { INT, LONG, NUMBER, BOOL, STRING, JSON, IGNORED, REFUSED } field_kind;

#define B(NAME) (1u << ISO_BODY_##NAME)
#define GENERATE (B(CHAT) | B(COMPLETION) | B(VLLM) | B(TGI_PARAMETERS))
#define ALL (GENERATE | B(TGI) | B(EMBEDDING) | B(TOKENIZE) | B(DETOKENIZE))

typedef struct field_row {
  const char *name, *help;
  field_kind kind;
  double min, max;
  uint32_t bodies;
  size_t offset;
} field_row;

static const field_row rows[] = {
#define ISO_FIELD(name, member, kind, min, max, bodies, help)                                      \
  {name, help, kind, min, max, bodies, offsetof(iso_fields, member)},
#include "server/fields.def"
#undef ISO_FIELD
};
enum { N_ROWS = sizeof rows / sizeof *rows };
_Static_assert(N_ROWS <= 2 * 64, "iso_fields.given has a bit a row");

static const char *const body_names[ISO_BODY_COUNT] = {"chat",     "completion", "generate",
                                                       "generate", "parameters", "embeddings",
                                                       "tokenize", "detokenize"};

bool iso_body_refuse(iso_status status, uint64_t values, iso_api_error *refusal) {
  if (status == ISO_ERROR_LIMIT && values == 0)
    return iso_refuse(refusal, 413, NULL, "body_too_large", "%s", iso_status_message());
  return iso_refuse(refusal, status == ISO_ERROR_OUT_OF_MEMORY ? 503 : 400, NULL, "invalid_json",
                    "%s", iso_status_message());
}

bool iso_body_parse(const char *body, size_t length, cJSON **out_root, iso_api_error *refusal) {
  enum { MAX_DEPTH = 64 };
  uint64_t values = ISO_BODY_MAX_VALUES;
  iso_status status = iso_json_parse_within(body ? body : "", length, MAX_DEPTH, &values, out_root);
  return status == ISO_OK || iso_body_refuse(status, values, refusal);
}

void iso_fields_init(iso_fields *fields) {
  *fields = (iso_fields){.add_generation_prompt = true,
                         .add_special_tokens = true,
                         .skip_special_tokens = true,
                         .parallel_tool_calls = true,
                         .cache_prompt = true,
                         .n = 1,
                         .max_tokens = -1,
                         .max_completion_tokens = -1,
                         .completion_logprobs = -1,
                         .temperature = 1,
                         .top_p = 1,
                         .repetition_penalty = 1,
                         .length_penalty = 1};
}

static bool has(const field_row *row, iso_body body) { return (row->bodies >> body & 1) != 0; }

static int find(const char *name, iso_body body) {
  for (int i = 0; i < N_ROWS; i++)
    if (has(&rows[i], body) && strcmp(rows[i].name, name) == 0)
      return i;
  return -1;
}

static bool refuse_unknown(const char *name, iso_body body, iso_api_error *refusal) {
  const char *nearest = NULL;
  int best = ISO_SPELLING_NEAR;
  for (int i = 0; i < N_ROWS; i++) {
    int distance = has(&rows[i], body) ? iso_spelling_distance(name, rows[i].name) : best;
    if (distance < best) {
      best = distance;
      nearest = rows[i].name;
    }
  }
  if (nearest)
    return iso_refuse(refusal, 400, name, "unknown_parameter",
                      "unknown field '%.64s'; did you mean '%s'?", name, nearest);
  return iso_refuse(refusal, 400, name, "unknown_parameter",
                    "unknown field '%.64s'; /openapi.json lists those of a %s request", name,
                    body_names[body]);
}

static bool refuse_type(const field_row *row, const char *wanted, iso_api_error *refusal) {
  return iso_refuse(refusal, 400, row->name, "invalid_type", "'%s' must be %s", row->name, wanted);
}

/* OpenAI's codes, by whether the field is whole and whether the value is too large. */
static const char *const range_codes[2][2] = {
    {"decimal_below_min_value", "decimal_above_max_value"},
    {"integer_below_min_value", "integer_above_max_value"}};

static bool read_number(const field_row *row, const cJSON *item, void *member,
                        iso_api_error *refusal) {
  double value = item->valuedouble;
  bool whole = row->kind != NUMBER;
  if (!cJSON_IsNumber(item) || (whole && floor(value) != value))
    return refuse_type(row, whole ? "an integer" : "a number", refusal);
  if (!(value >= row->min && value <= row->max))
    return iso_refuse(refusal, 400, row->name, range_codes[whole][value > row->max],
                      "'%s' must be from %.17g to %.17g, not %.17g", row->name, row->min, row->max,
                      value);
  if (row->kind == INT)
    *(int32_t *)member = (int32_t)value;
  else if (row->kind == LONG) /* 2^63 - 1 is read as 2^63, as every double is that is near it */
    *(int64_t *)member = value >= 0x1p63 ? INT64_MAX : (int64_t)value;
  else
    *(double *)member = value;
  return true;
}

static bool read_member(const field_row *row, const cJSON *item, iso_fields *fields,
                        iso_api_error *refusal) {
  void *member = (char *)fields + row->offset;
  switch (row->kind) {
  case INT:
  case LONG:
  case NUMBER:
    return read_number(row, item, member, refusal);
  case BOOL:
    if (!cJSON_IsBool(item))
      return refuse_type(row, "true or false", refusal);
    *(bool *)member = cJSON_IsTrue(item);
    return true;
  case STRING:
    if (!cJSON_IsString(item))
      return refuse_type(row, "a string", refusal);
    *(const char **)member = item->valuestring;
    return true;
  case JSON:
    *(const cJSON **)member = item;
    return true;
  case IGNORED:
    return true;
  case REFUSED:
    if (cJSON_IsFalse(item) || (cJSON_IsString(item) && !*item->valuestring))
      return true;
    return iso_refuse(refusal, 400, row->name, "unsupported_parameter", "'%s' is not supported: %s",
                      row->name, row->help);
  }
  return true;
}

bool iso_fields_read(const cJSON *object, iso_body body, iso_fields *fields,
                     iso_api_error *refusal) {
  if (!cJSON_IsObject(object))
    return iso_refuse(refusal, 400, NULL, "invalid_type", "the body must be a JSON object");
  for (const cJSON *item = object->child; item; item = item->next) {
    int row = find(item->string, body);
    if (row < 0)
      return refuse_unknown(item->string, body, refusal);
    if (cJSON_IsNull(item))
      continue;
    if (!read_member(&rows[row], item, fields, refusal))
      return false;
    fields->given[row / 64] |= UINT64_C(1) << row % 64;
  }
  return true;
}

bool iso_fields_given(const iso_fields *fields, iso_body body, const char *name) {
  int row = find(name, body);
  return row >= 0 && (fields->given[row / 64] >> row % 64 & 1);
}

/* JSON schemas of the fields that hold more than a plain value. */
static const struct {
  const char *name, *schema;
} shapes[] = {
    {"messages",
     "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\","
     "\"required\":[\"role\",\"content\"],\"properties\":{\"role\":{\"type\":\"string\","
     "\"enum\":[\"system\",\"user\",\"assistant\",\"tool\",\"developer\"]},"
     "\"content\":{\"type\":\"string\"}}}}"},
    {"tools", "{\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"object\"}}"},
    {"tool_choice", "{\"anyOf\":[{\"enum\":[\"none\",\"auto\",\"required\",null]},{\"type\":"
                    "\"object\"}]}"},
    {"chat_template_kwargs", "{\"type\":[\"object\",\"null\"]}"},
    {"prompt", "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]}"},
    {"input", "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]}"},
    {"inputs", "{\"type\":\"string\"}"},
    {"tokens", "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0}}"},
    {"parameters", "{\"$ref\":\"#/components/schemas/GenerateParameters\"}"},
    {"stream_options", "{\"type\":[\"object\",\"null\"],\"additionalProperties\":false,"
                       "\"properties\":{\"include_usage\":{\"type\":\"boolean\"},"
                       "\"continuous_usage_stats\":{\"type\":\"boolean\"}}}"},
    {"stop", "{\"anyOf\":[{\"type\":[\"string\",\"null\"],\"minLength\":1},{\"type\":\"array\","
             "\"maxItems\":16,\"items\":{\"type\":\"string\",\"minLength\":1}}]}"},
    {"stop_token_ids", "{\"type\":[\"array\",\"null\"],\"maxItems\":64,"
                       "\"items\":{\"type\":\"integer\",\"minimum\":0}}"},
    {"logit_bias", "{\"type\":[\"object\",\"null\"],\"additionalProperties\":"
                   "{\"type\":\"number\",\"minimum\":-100,\"maximum\":100}}"},
    {"encoding_format", "{\"enum\":[\"float\",\"base64\",null]}"},
    {"service_tier", "{\"enum\":[\"auto\",\"default\",null]}"},
    {"modalities", "{\"type\":[\"array\",\"null\"],\"items\":{\"enum\":[\"text\"]}}"},
    {"grammar", "{\"type\":[\"object\",\"null\"]}"},
    {"response_format", "{\"type\":[\"object\",\"null\"]}"},
};

static const char *shape_of(const field_row *row) {
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (strcmp(shapes[i].name, row->name) == 0)
      return shapes[i].schema;
  return NULL;
}

static void write_property(iso_json_writer *w, const field_row *row) {
  static const char *const types[] = {[INT] = "integer",
                                      [LONG] = "integer",
                                      [NUMBER] = "number",
                                      [BOOL] = "boolean",
                                      [STRING] = "string"};
  const char *shape = shape_of(row);
  iso_json_begin(w, row->name, '{');
  iso_json_string(w, "description", row->kind == IGNORED ? "taken, and of no effect" : row->help);
  if (shape) {
    iso_json_begin(w, "allOf", '[');
    iso_json_raw(w, NULL, shape);
    iso_json_end(w, ']');
  } else if (row->kind <= STRING) {
    iso_json_begin(w, "type", '[');
    iso_json_string(w, NULL, types[row->kind]);
    iso_json_string(w, NULL, "null");
    iso_json_end(w, ']');
  }
  if (row->kind <= NUMBER) {
    iso_json_number(w, "minimum", row->min);
    iso_json_number(w, "maximum", row->max);
  }
  iso_json_end(w, '}');
}

void iso_fields_write_schema(iso_json_writer *w, const char *key, iso_body body) {
  static const char *const needed[ISO_BODY_COUNT] = {
      [ISO_BODY_CHAT] = "messages",   [ISO_BODY_COMPLETION] = "prompt",
      [ISO_BODY_VLLM] = "prompt",     [ISO_BODY_TGI] = "inputs",
      [ISO_BODY_EMBEDDING] = "input", [ISO_BODY_DETOKENIZE] = "tokens"};
  iso_json_begin(w, key, '{');
  iso_json_string(w, "type", "object");
  iso_json_bool(w, "additionalProperties", false);
  iso_json_begin(w, "properties", '{');
  for (int i = 0; i < N_ROWS; i++)
    if (has(&rows[i], body) && rows[i].kind != REFUSED)
      write_property(w, &rows[i]);
  iso_json_end(w, '}');
  iso_json_begin(w, "required", '[');
  if (needed[body])
    iso_json_string(w, NULL, needed[body]);
  iso_json_end(w, ']');
  iso_json_end(w, '}');
}
