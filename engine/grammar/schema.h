/* JSON Schema (2020-12, and older ones where they agree) to automata.
 *
 * What a schema says is done as it says, or refused with a reason: every text that the automaton
 * accepts is JSON that the schema takes. The other way round the automaton is narrower: members
 * come in the order of "properties", text is compact, numbers have bounded length, an object whose
 * schema names properties gets no others unless "additionalProperties" asks for them, and "type" is
 * taken from the keywords where it is not given.
 *
 *   any          type (also a list), enum, const, $ref within the schema, anyOf, oneOf where the
 *                alternatives exclude each other, allOf of one
 *   objects      properties, required, additionalProperties
 *   arrays       items, prefixItems, minItems, maxItems
 *   strings      minLength, maxLength, pattern (grammar/pattern.h), format (date, time, date-time,
 *                uuid, ipv4, hostname, email, uri)
 *   numbers      minimum, maximum, exclusiveMinimum, exclusiveMaximum, which must be whole
 *   of no effect title, description, default, examples, $schema, $id, $defs and the like
 *
 * Bounded: AUTOMATON_MAX_STATES states, no recursion over the schema. */
#ifndef ISOMER_ENGINE_GRAMMAR_SCHEMA_H
#define ISOMER_ENGINE_GRAMMAR_SCHEMA_H

#include <cjson/cJSON.h>

#include "engine/grammar/automaton.h"

/* Depth of a schema's JSON. */
#define ISO_SCHEMA_MAX_DEPTH 64

/* Adds the rule *out_rule that accepts what `root` takes, to an automaton that has JSON's rules.
 * Marks objects of the tree: cJSON's `valueint`, which they do not use, holds a rule. UNSUPPORTED
 * with the keyword and its place, INVALID_ARGUMENT for what is no schema, LIMIT for one too large;
 * the automaton is then of no use. */
ISO_MUST_CHECK iso_status iso_schema_add(iso_automaton *automaton, cJSON *root, uint32_t *out_rule);

#endif
