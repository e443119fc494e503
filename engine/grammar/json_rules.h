/* What all grammars of JSON have: the same rules, in the same states. JSON is written compactly,
 * but a blank may follow commas and colons. */
#ifndef ISOMER_ENGINE_GRAMMAR_JSON_RULES_H
#define ISOMER_ENGINE_GRAMMAR_JSON_RULES_H

#include "engine/grammar/automaton.h"

enum {
  JSON_STRING_REST, /* up to the closing quote */
  JSON_STRING,
  JSON_INTEGER, /* of at most 18 digits */
  JSON_NUMBER,  /* with at most 16 digits behind the point and an exponent of two */
  JSON_VALUE,
  JSON_OBJECT,
  JSON_ARRAY,
  JSON_NEVER, /* nothing */
  JSON_RULE_COUNT
};

/* The first rules and states of an automaton. */
void iso_json_rules_add(iso_automaton *automaton);

/* `mark`, ',' or ':', perhaps a blank, then `next`. */
uint32_t iso_json_mark(iso_automaton *automaton, char mark, uint32_t next);
uint32_t iso_json_word(iso_automaton *automaton, const char *word, uint32_t next);

/* Numbers within bounds, for JSON_INTEGER's and JSON_NUMBER's kind. */
typedef struct json_bounds {
  int64_t least, most; /* within +-JSON_MAX_BOUND */
  bool above, below;   /* `least` is not one of them; `most` is not; numbers only */
} json_bounds;
#define JSON_MAX_BOUND INT64_C(999999999999999)
uint32_t iso_json_integers(iso_automaton *automaton, const json_bounds *bounds, uint32_t next);
uint32_t iso_json_numbers(iso_automaton *automaton, const json_bounds *bounds, uint32_t next);

#endif
