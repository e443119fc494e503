#include "engine/grammar/schema_compiler.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/tokenizer/text.h"

/* ---- Keywords ------------------------------------------------------------------------------ */

enum {
  KEYWORD_NOTE = 1,
  KEYWORD_REFERENCE = 2,
  KEYWORD_EITHER = 4,
  KEYWORD_VALUES = 8,
  KEYWORD_TYPE = 16,
  KEYWORD_OBJECT = 32,
  KEYWORD_ARRAY = 64,
  KEYWORD_STRING = 128,
  KEYWORD_NUMBER = 256
};
enum {
  KEYWORD_TYPED = KEYWORD_TYPE | KEYWORD_OBJECT | KEYWORD_ARRAY | KEYWORD_STRING | KEYWORD_NUMBER
};

static const struct {
  const char *name;
  int group;
} keywords[] = {
    {"type", KEYWORD_TYPE},
    {"properties", KEYWORD_OBJECT},
    {"required", KEYWORD_OBJECT},
    {"additionalProperties", KEYWORD_OBJECT},
    {"items", KEYWORD_ARRAY},
    {"prefixItems", KEYWORD_ARRAY},
    {"minItems", KEYWORD_ARRAY},
    {"maxItems", KEYWORD_ARRAY},
    {"minLength", KEYWORD_STRING},
    {"maxLength", KEYWORD_STRING},
    {"pattern", KEYWORD_STRING},
    {"format", KEYWORD_STRING},
    {"minimum", KEYWORD_NUMBER},
    {"maximum", KEYWORD_NUMBER},
    {"exclusiveMinimum", KEYWORD_NUMBER},
    {"exclusiveMaximum", KEYWORD_NUMBER},
    {"enum", KEYWORD_VALUES},
    {"const", KEYWORD_VALUES},
    {"anyOf", KEYWORD_EITHER},
    {"oneOf", KEYWORD_EITHER},
    {"allOf", KEYWORD_EITHER},
    {"$ref", KEYWORD_REFERENCE},
    {"title", KEYWORD_NOTE},
    {"description", KEYWORD_NOTE},
    {"default", KEYWORD_NOTE},
    {"example", KEYWORD_NOTE},
    {"examples", KEYWORD_NOTE},
    {"deprecated", KEYWORD_NOTE},
    {"readOnly", KEYWORD_NOTE},
    {"writeOnly", KEYWORD_NOTE},
    {"discriminator", KEYWORD_NOTE}, /* OpenAPI's hint beside oneOf */
    {"definitions", KEYWORD_NOTE},
    {"$defs", KEYWORD_NOTE},
    {"$schema", KEYWORD_NOTE},
    {"$id", KEYWORD_NOTE},
    {"$comment", KEYWORD_NOTE},
};

static int group_of(const char *name) {
  for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
    if (strcmp(keywords[i].name, name) == 0)
      return keywords[i].group;
  return 0;
}

/* ---- Help ---------------------------------------------------------------------------------- */

uint32_t iso_schema_refuse(schema_compiler *self, const cJSON *schema, iso_status code,
                           const char *format, ...) {
  char sentence[400];
  if (self->automaton->status != ISO_OK)
    return AUTOMATON_DEAD;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  bool is_named = schema && schema->string;
  self->automaton->status = iso_fail(code, "%s, in %s%.80s%s", sentence, is_named ? "'" : "",
                                     is_named ? schema->string : "the schema", is_named ? "'" : "");
  return AUTOMATON_DEAD;
}

cJSON *iso_schema_get(const cJSON *schema, const char *key) {
  return cJSON_GetObjectItemCaseSensitive(schema, key);
}

bool iso_schema_count(schema_compiler *self, const cJSON *schema, const char *key, int most,
                      int *out_count) {
  const cJSON *item = iso_schema_get(schema, key);
  if (!item)
    return true;
  double value = item->valuedouble;
  if (!cJSON_IsNumber(item) || !(value >= 0) || value != floor(value)) {
    iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT, "'%s' is no count", key);
    return false;
  }
  if (value > most) {
    iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED, "'%s' is larger than %d", key, most);
    return false;
  }
  *out_count = (int)value;
  return true;
}

uint32_t iso_schema_rule(schema_compiler *self, cJSON *schema) {
  if (!schema || cJSON_IsTrue(schema))
    return JSON_VALUE;
  if (cJSON_IsFalse(schema))
    return JSON_NEVER;
  if (!cJSON_IsObject(schema))
    return iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT,
                             "a schema is an object, true or false");
  if (schema->valueint)
    return (uint32_t)schema->valueint;
  uint32_t rule = iso_automaton_rule(self->automaton);
  if (self->automaton->status == ISO_OK)
    self->automaton->status = iso_array_grow((void **)&self->tasks, &self->capacity,
                                             self->n_tasks + 1, sizeof *self->tasks);
  if (self->automaton->status != ISO_OK)
    return JSON_NEVER;
  self->tasks[self->n_tasks++] = (schema_task){schema, rule};
  schema->valueint = (int)rule;
  return rule;
}

/* ---- References ---------------------------------------------------------------------------- */

/* One step of a JSON pointer (RFC 6901): the member of `at` that the text up to `end` names. */
static cJSON *follow(const cJSON *at, const char *text, const char *end) {
  char name[256];
  size_t n = 0;
  for (; text < end && n + 1 < sizeof name; text++) {
    char c = *text;
    if (c == '%')
      return NULL;
    if (c == '~' && text + 1 < end) {
      text++;
      c = *text == '0' ? '~' : '/';
    }
    name[n++] = c;
  }
  name[n] = 0;
  if (text < end)
    return NULL;
  if (!cJSON_IsArray(at))
    return cJSON_IsObject(at) ? iso_schema_get(at, name) : NULL;
  char *rest;
  long index = strtol(name, &rest, 10);
  return n > 0 && n < 10 && !*rest && name[0] != '-' ? cJSON_GetArrayItem(at, (int)index) : NULL;
}

cJSON *iso_schema_resolve(const cJSON *root, const char *reference) {
  const cJSON *at = root;
  if (*reference++ != '#')
    return NULL;
  while (at && *reference == '/') {
    const char *end = strchrnul(++reference, '/');
    at = follow(at, reference, end);
    reference = end;
  }
  return *reference ? NULL : (cJSON *)at;
}

static uint32_t add_reference(schema_compiler *self, const cJSON *schema) {
  const cJSON *reference = iso_schema_get(schema, "$ref");
  cJSON *target =
      cJSON_IsString(reference) ? iso_schema_resolve(self->root, reference->valuestring) : NULL;
  if (!target)
    return iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT,
                             "'$ref' names nothing in the schema: \"%.100s\"",
                             cJSON_IsString(reference) ? reference->valuestring : "");
  return iso_automaton_call(self->automaton, iso_schema_rule(self, target), AUTOMATON_END);
}

/* ---- Alternatives -------------------------------------------------------------------------- */

static void check_exclusive(schema_compiler *self, const cJSON *schema, const cJSON *list) {
  int i = 0, k = 0;
  for (const cJSON *a = list->child; a; a = a->next, i++)
    for (const cJSON *b = a->next; b; b = b->next) {
      k = i + 1;
      if (iso_schema_exclude(self, a, b, 0))
        continue;
      iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED,
                        "alternative %d of 'oneOf' and a later one are not seen to exclude each "
                        "other; use 'anyOf', or give them a required property with different "
                        "'const' values",
                        k);
      return;
    }
}

enum { MAX_ALTERNATIVES = 256 };

static uint32_t add_either(schema_compiler *self, const cJSON *schema, int n_lists) {
  static const char *const names[] = {"anyOf", "oneOf", "allOf"};
  int which = 0;
  while (which < 2 && !iso_schema_get(schema, names[which]))
    which++;
  const cJSON *list = iso_schema_get(schema, names[which]);
  int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
  if (n_lists > 1)
    return iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED,
                             "'anyOf', 'oneOf' and 'allOf' together are not supported");
  if (n == 0)
    return iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT, "'%s' is no list of schemas",
                             names[which]);
  if (n > MAX_ALTERNATIVES)
    return iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED, "'%s' has more than %d schemas",
                             names[which], MAX_ALTERNATIVES);
  if (which == 2 && n > 1)
    return iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED,
                             "'allOf' of several schemas is not supported; merge them");
  if (which == 1)
    check_exclusive(self, schema, list);
  uint32_t state = AUTOMATON_DEAD;
  for (cJSON *item = list->child; item; item = item->next) {
    uint32_t each = iso_automaton_call(self->automaton, iso_schema_rule(self, item), AUTOMATON_END);
    state = state == AUTOMATON_DEAD ? each : iso_automaton_split(self->automaton, each, state);
  }
  return state;
}

/* ---- Values -------------------------------------------------------------------------------- */

bool iso_schema_texts_init(schema_compiler *self, size_t n, schema_texts *out_texts) {
  *out_texts = (schema_texts){.texts = calloc(n + 1, sizeof *out_texts->texts)};
  if (!out_texts->texts && self->automaton->status == ISO_OK)
    self->automaton->status = iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %zu texts", n);
  return out_texts->texts != NULL;
}

bool iso_schema_texts_add(schema_compiler *self, schema_texts *texts, const cJSON *value,
                          size_t trim) {
  char *text = cJSON_PrintUnformatted(value);
  if (!text) {
    if (self->automaton->status == ISO_OK)
      self->automaton->status = iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a value's text");
    return false;
  }
  size_t length = strlen(text) - 2 * trim;
  memmove(text, text + trim, length);
  texts->texts[texts->n++] = (automaton_text){text, length};
  return true;
}

static int by_text(const void *a, const void *b) {
  const automaton_text *x = a, *y = b;
  int order = memcmp(x->data, y->data, x->length < y->length ? x->length : y->length);
  return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

void iso_schema_texts_sort(schema_texts *self) {
  size_t kept = 0;
  qsort(self->texts, self->n, sizeof *self->texts, by_text);
  for (size_t i = 0; i < self->n; i++) {
    if (kept > 0 && by_text(&self->texts[kept - 1], &self->texts[i]) == 0)
      free((char *)self->texts[i].data);
    else
      self->texts[kept++] = self->texts[i];
  }
  self->n = kept;
}

void iso_schema_texts_free(schema_texts *self) {
  for (size_t i = 0; i < self->n; i++)
    free((char *)self->texts[i].data);
  free(self->texts);
  *self = (schema_texts){0};
}

/* Doubles keep whole numbers apart up to here; cJSON has no more. */
static const double MAX_EXACT = 9007199254740992.0;

static bool is_exact(const cJSON *value) {
  if (cJSON_IsNumber(value))
    return value->valuedouble <= MAX_EXACT && value->valuedouble >= -MAX_EXACT;
  return true;
}

static uint32_t add_values(schema_compiler *self, const cJSON *schema) {
  const cJSON *list = iso_schema_get(schema, "enum"), *one = iso_schema_get(schema, "const");
  int types = iso_schema_get(schema, "type") ? iso_schema_types(schema) : SCHEMA_ALL_TYPES;
  schema_texts texts;
  if ((list && one) || (list && !cJSON_IsArray(list)))
    return iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT,
                             "'enum' is a list of values, and 'const' is not given beside it");
  if (!iso_schema_texts_init(self, list ? (size_t)cJSON_GetArraySize(list) : 1, &texts))
    return AUTOMATON_DEAD;
  for (const cJSON *value = list ? list->child : one; value; value = list ? value->next : NULL) {
    if (!is_exact(value))
      iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED, "a number of more than 53 bits");
    else if (iso_schema_type_of(value) & types)
      iso_schema_texts_add(self, &texts, value, 0);
  }
  iso_schema_texts_sort(&texts);
  uint32_t state = iso_automaton_texts(self->automaton, texts.texts, texts.n, AUTOMATON_END);
  iso_schema_texts_free(&texts);
  return state;
}

/* ---- Types --------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  int type;
} type_names[] = {{"null", SCHEMA_NULL},       {"boolean", SCHEMA_BOOLEAN},
                  {"integer", SCHEMA_INTEGER}, {"number", SCHEMA_NUMBER | SCHEMA_INTEGER},
                  {"string", SCHEMA_STRING},   {"array", SCHEMA_ARRAY},
                  {"object", SCHEMA_OBJECT}};

static int type_named(const cJSON *name) {
  for (size_t i = 0; cJSON_IsString(name) && i < sizeof type_names / sizeof *type_names; i++)
    if (strcmp(type_names[i].name, name->valuestring) == 0)
      return type_names[i].type;
  return 0;
}

int iso_schema_types(const cJSON *schema) {
  const cJSON *type = iso_schema_get(schema, "type");
  int types = 0;
  if (!type) {
    for (const cJSON *item = schema->child; item; item = item->next)
      switch (group_of(item->string)) {
      case KEYWORD_OBJECT:
        types |= SCHEMA_OBJECT;
        break;
      case KEYWORD_ARRAY:
        types |= SCHEMA_ARRAY;
        break;
      case KEYWORD_STRING:
        types |= SCHEMA_STRING;
        break;
      case KEYWORD_NUMBER:
        types |= SCHEMA_NUMBER | SCHEMA_INTEGER;
        break;
      }
    return types ? types : SCHEMA_ALL_TYPES;
  }
  if (!cJSON_IsArray(type))
    return type_named(type);
  for (const cJSON *name = type->child; name; name = name->next) {
    if (!type_named(name))
      return 0;
    types |= type_named(name);
  }
  return types;
}

int iso_schema_type_of(const cJSON *value) {
  if (cJSON_IsNumber(value))
    return value->valuedouble == (double)(int64_t)value->valuedouble
               ? SCHEMA_NUMBER | SCHEMA_INTEGER
               : SCHEMA_NUMBER;
  return cJSON_IsNull(value)     ? SCHEMA_NULL
         : cJSON_IsBool(value)   ? SCHEMA_BOOLEAN
         : cJSON_IsString(value) ? SCHEMA_STRING
         : cJSON_IsArray(value)  ? SCHEMA_ARRAY
                                 : SCHEMA_OBJECT;
}

static uint32_t add_types(schema_compiler *self, const cJSON *schema) {
  iso_automaton *automaton = self->automaton;
  int types = iso_schema_types(schema);
  if (types == 0)
    return iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT, "'type' is no known type");
  uint32_t states[7];
  size_t n = 0;
  if (types & SCHEMA_NULL)
    states[n++] = iso_json_word(automaton, "null", AUTOMATON_END);
  if (types & SCHEMA_BOOLEAN) {
    states[n++] = iso_json_word(automaton, "true", AUTOMATON_END);
    states[n++] = iso_json_word(automaton, "false", AUTOMATON_END);
  }
  if (types & (SCHEMA_NUMBER | SCHEMA_INTEGER))
    states[n++] = iso_schema_number(self, schema, !(types & SCHEMA_NUMBER));
  if (types & SCHEMA_STRING)
    states[n++] = iso_schema_string(self, schema);
  if (types & SCHEMA_ARRAY)
    states[n++] = iso_schema_array(self, schema);
  if (types & SCHEMA_OBJECT)
    states[n++] = iso_schema_object(self, schema);
  while (n > 1) {
    states[n - 2] = iso_automaton_split(automaton, states[n - 2], states[n - 1]);
    n--;
  }
  return states[0];
}

/* ---- Schemas ------------------------------------------------------------------------------- */

static uint32_t add_schema(schema_compiler *self, const cJSON *schema) {
  int groups = 0, n_lists = 0;
  for (const cJSON *item = schema->child; item; item = item->next) {
    int group = group_of(item->string);
    if (!group)
      return iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED,
                               "the keyword '%.60s' is not supported", item->string);
    groups |= group;
    n_lists += group == KEYWORD_EITHER;
  }
  groups &= ~KEYWORD_NOTE;
  if (groups == KEYWORD_REFERENCE)
    return add_reference(self, schema);
  if (groups == KEYWORD_EITHER)
    return add_either(self, schema, n_lists);
  if (groups == KEYWORD_VALUES || groups == (KEYWORD_VALUES | KEYWORD_TYPE))
    return add_values(self, schema);
  if (groups & ~KEYWORD_TYPED)
    return iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED,
                             "'$ref', 'anyOf', 'oneOf', 'allOf', 'enum' and 'const' are not "
                             "supported beside other keywords");
  return groups == 0 ? iso_automaton_call(self->automaton, JSON_VALUE, AUTOMATON_END)
                     : add_types(self, schema);
}

iso_status iso_schema_add(iso_automaton *automaton, cJSON *root, uint32_t *out_rule) {
  schema_compiler self = {.automaton = automaton, .root = root};
  *out_rule = iso_schema_rule(&self, root);
  for (size_t i = 0; i < self.n_tasks && automaton->status == ISO_OK; i++) {
    const schema_task task = self.tasks[i];
    iso_automaton_set_rule(automaton, task.rule, add_schema(&self, task.schema));
  }
  free(self.tasks);
  return automaton->status;
}
