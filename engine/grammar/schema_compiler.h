/* What the parts of the schema compiler share.
 *
 *   schema.c            the queue, keywords, types, references, values
 *   schema_structures.c objects and arrays
 *   schema_scalars.c    strings and numbers
 *   schema_disjoint.c   whether two schemas exclude each other
 *
 * Each schema within the schema becomes a rule; rules wait in a queue, so that nothing recurses.
 * Failures go to automaton->status; what was built is then of no use. */
#ifndef ISOMER_ENGINE_GRAMMAR_SCHEMA_COMPILER_H
#define ISOMER_ENGINE_GRAMMAR_SCHEMA_COMPILER_H

#include "engine/grammar/json_rules.h"
#include "engine/grammar/schema.h"

typedef struct schema_task {
  const cJSON *schema;
  uint32_t rule;
} schema_task;

typedef struct schema_compiler {
  iso_automaton *automaton;
  const cJSON *root;
  schema_task *tasks;
  size_t n_tasks, capacity;
} schema_compiler;

/* A sentence about `schema`, whose place is added. Returns AUTOMATON_DEAD. */
uint32_t iso_schema_refuse(schema_compiler *self, const cJSON *schema, iso_status code,
                           const char *format, ...) ISO_PRINTF(4, 5);
/* The rule of a schema. NULL, and true: JSON_VALUE. */
uint32_t iso_schema_rule(schema_compiler *self, cJSON *schema);
/* What "$ref" points to; NULL: nothing. */
cJSON *iso_schema_resolve(const cJSON *root, const char *reference);
/* A member, or NULL. */
cJSON *iso_schema_get(const cJSON *schema, const char *key);
/* Reads a count that may be absent. false: it was refused. */
bool iso_schema_count(schema_compiler *self, const cJSON *schema, const char *key, int most,
                      int *out_count);

/* States that lead to AUTOMATON_END. */
uint32_t iso_schema_object(schema_compiler *self, const cJSON *schema);
uint32_t iso_schema_array(schema_compiler *self, const cJSON *schema);
uint32_t iso_schema_string(schema_compiler *self, const cJSON *schema);
uint32_t iso_schema_number(schema_compiler *self, const cJSON *schema, bool is_integer);

/* Texts that are owned, sorted, without doubles. */
typedef struct schema_texts {
  automaton_text *texts;
  size_t n;
} schema_texts;
/* Makes room for `n`; adds one as JSON writes it, without its first and last `trim` bytes. */
bool iso_schema_texts_init(schema_compiler *self, size_t n, schema_texts *out_texts);
bool iso_schema_texts_add(schema_compiler *self, schema_texts *texts, const cJSON *value,
                          size_t trim);
void iso_schema_texts_sort(schema_texts *texts);
void iso_schema_texts_free(schema_texts *texts);

/* Types as bits. A whole number is a number too. */
enum {
  SCHEMA_NULL = 1,
  SCHEMA_BOOLEAN = 2,
  SCHEMA_INTEGER = 4,
  SCHEMA_NUMBER = 8,
  SCHEMA_STRING = 16,
  SCHEMA_ARRAY = 32,
  SCHEMA_OBJECT = 64,
  SCHEMA_ALL_TYPES = 127
};
/* Of "type", or of the keywords that are there; 0: "type" is none. */
int iso_schema_types(const cJSON *schema);
int iso_schema_type_of(const cJSON *value);

/* Whether no value satisfies both; false also where it is not seen. */
bool iso_schema_exclude(const schema_compiler *self, const cJSON *a, const cJSON *b, int depth);

#endif
