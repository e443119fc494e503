/* Any bytes as a JSON schema. Where it is one, a text that it takes is made byte by byte: there
 * must always be a next byte, or an end. */
#include "core/json.h"
#include "engine/grammar/json_rules.h"
#include "engine/grammar/marked_text.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

/* false: a bound of the matcher's is reached, which only a status other than ISO_OK tells. */
static bool take_any(const matcher_table *table, iso_matcher_state *state, uint32_t start) {
  for (uint32_t i = 0; i < 256; i++) {
    char byte = (char)(start + i * 37);
    iso_status status = iso_matcher_advance(table, state, &byte, 1);
    if (status == ISO_OK)
      return true;
    if (status != ISO_ERROR_INTERNAL)
      return false;
  }
  if (!iso_matcher_may_end(state))
    abort(); /* stuck */
  return false;
}

static void make_text(const matcher_table *table, const uint8_t *data, size_t size) {
  iso_matcher_state state;
  if (iso_matcher_start(table, &state) != ISO_OK)
    return;
  for (size_t i = 0; i < 200 && !iso_matcher_must_end(&state); i++)
    if (!take_any(table, &state, data[(size - 1 - i % size)]))
      break;
  iso_matcher_free(&state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cJSON *root = NULL;
  iso_automaton automaton;
  uint32_t rule = 0;
  if (size == 0 || size > 20000 ||
      iso_json_parse((const char *)data, size, ISO_SCHEMA_MAX_DEPTH, &root) != ISO_OK)
    return 0;
  iso_automaton_init(&automaton);
  iso_json_rules_add(&automaton);
  iso_status status = iso_schema_add(&automaton, root, &rule);
  uint32_t start = status == ISO_OK ? automaton.rules[rule] : AUTOMATON_DEAD;
  if (status == ISO_OK && size % 2) { /* within free text, that begins with a mark now and then */
    const iso_marks marks = {"aab", size % 3 ? "b" : NULL, size % 5 == 0};
    start = iso_marked_text_add(&automaton, &marks, rule);
  }
  if (status == ISO_OK && iso_automaton_finish(&automaton) == ISO_OK) {
    static const iso_lexicon no_tokens = {0};
    matcher_masks masks = {0};
    const matcher_table table = {.automaton = &automaton,
                                 .lexicon = &no_tokens,
                                 .masks = &masks,
                                 .common = &masks,
                                 .start = start};
    if (automaton.states[table.start].height != AUTOMATON_NEVER)
      make_text(&table, data, size);
  }
  iso_automaton_free(&automaton);
  cJSON_Delete(root);
  return 0;
}
