#include "engine/grammar/grammar.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "engine/grammar/json_rules.h"
#include "engine/grammar/marked_text.h"
#include "engine/grammar/schema.h"

/* Longest schema, in bytes. */
enum { MAX_SCHEMA = 1 << 20 };

struct iso_grammar {
  atomic_int n_references;
  char *key; /* all of its source */
  size_t key_length;
  int32_t marks[2]; /* control tokens that write them; -1: none */
  iso_automaton automaton;
  matcher_masks masks;
  matcher_table table;
};

/* ---- Grammars ------------------------------------------------------------------------------ */

void iso_grammar_retain(iso_grammar *self) { atomic_fetch_add(&self->n_references, 1); }

void iso_grammar_release(iso_grammar *self) {
  if (!self || atomic_fetch_sub(&self->n_references, 1) > 1)
    return;
  iso_automaton_free(&self->automaton);
  iso_matcher_masks_destroy(&self->masks);
  free(self->key);
  free(self);
}

static iso_status compile(iso_grammar *self, const grammar_source *source) {
  cJSON *root = NULL;
  ISO_TRY(iso_json_parse(source->schema, source->length, ISO_SCHEMA_MAX_DEPTH, &root));
  iso_automaton *automaton = &self->automaton;
  uint32_t rule = 0;
  iso_automaton_init(automaton);
  iso_json_rules_add(automaton);
  iso_status status = iso_schema_add(automaton, root, &rule);
  cJSON_Delete(root);
  ISO_TRY(status);
  uint32_t start = automaton->rules[rule];
  if (source->marks)
    start = iso_marked_text_add(automaton, source->marks, rule);
  ISO_TRY(iso_automaton_finish(automaton));
  self->table.start = start;
  if (automaton->states[automaton->rules[rule]].height == AUTOMATON_NEVER)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "no value satisfies the schema, or only one that nests without end");
  return ISO_OK;
}

/* The token that is all of a mark, if it is one that texts do not have. */
static int32_t find_mark(const iso_lexicon *lexicon, const char *mark) {
  int32_t token = mark ? iso_tokenizer_find(lexicon->tokenizer, mark, strlen(mark)) : -1;
  bool is_hidden = token >= 0 && token < lexicon->n_vocabulary &&
                   (lexicon->hidden[token / 32] >> token % 32 & 1);
  return is_hidden ? token : -1;
}

/* Takes `key` over. */
static iso_status create(iso_grammar_shelf *shelf, const grammar_source *source, char *key,
                         size_t key_length, iso_grammar **out_grammar) {
  iso_grammar *self = calloc(1, sizeof *self);
  if (!self) {
    free(key);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a grammar");
  }
  atomic_init(&self->n_references, 1);
  self->key = key;
  self->key_length = key_length;
  self->marks[0] = source->marks ? find_mark(&shelf->lexicon, source->marks->begin) : -1;
  self->marks[1] = source->marks ? find_mark(&shelf->lexicon, source->marks->end) : -1;
  iso_status status = compile(self, source);
  if (status == ISO_OK)
    status = iso_matcher_masks_create((uint32_t)self->automaton.n_states, &self->masks);
  self->table.automaton = &self->automaton;
  self->table.lexicon = &shelf->lexicon;
  self->table.masks = &self->masks;
  self->table.common = &shelf->common;
  if (status == ISO_OK)
    *out_grammar = self;
  else
    iso_grammar_release(self);
  return status;
}

/* ---- The shelf ----------------------------------------------------------------------------- */

iso_status iso_grammar_shelf_init(iso_grammar_shelf *self) {
  if (pthread_mutex_init(&self->mutex, NULL) != 0)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "the system has no further mutex");
  self->exists = true;
  return ISO_OK;
}

void iso_grammar_shelf_destroy(iso_grammar_shelf *self) {
  if (!self->exists)
    return;
  for (int i = 0; i < GRAMMAR_SHELF_SIZE; i++)
    iso_grammar_release(self->kept[i]);
  iso_matcher_masks_destroy(&self->common);
  iso_lexicon_destroy(&self->lexicon);
  pthread_mutex_destroy(&self->mutex);
  self->exists = false;
}

static iso_status make_lexicon(iso_grammar_shelf *self, const iso_tokenizer *tokenizer,
                               int32_t n_vocabulary) {
  if (self->has_lexicon)
    return ISO_OK;
  iso_automaton automaton;
  iso_automaton_init(&automaton);
  iso_json_rules_add(&automaton);
  iso_status status = automaton.status;
  uint32_t n_states = (uint32_t)automaton.n_states;
  iso_automaton_free(&automaton);
  ISO_TRY(status);
  ISO_TRY(iso_lexicon_create(tokenizer, n_vocabulary, &self->lexicon));
  status = iso_matcher_masks_create(n_states, &self->common);
  if (status != ISO_OK)
    iso_lexicon_destroy(&self->lexicon);
  self->has_lexicon = status == ISO_OK;
  return status;
}

/* The kept one with this key, or NULL; it moves to the front. */
static iso_grammar *find(iso_grammar_shelf *self, const char *key, size_t length) {
  for (int i = 0; i < GRAMMAR_SHELF_SIZE && self->kept[i]; i++) {
    iso_grammar *found = self->kept[i];
    if (found->key_length != length || memcmp(found->key, key, length) != 0)
      continue;
    memmove(self->kept + 1, self->kept, (size_t)i * sizeof *self->kept);
    return self->kept[0] = found;
  }
  return NULL;
}

/* The marks, each ended by NUL, and the schema. malloc'ed; NULL: no memory. */
static char *make_key(const grammar_source *source, size_t *out_length) {
  const iso_marks none = {"", "", false}, *marks = source->marks ? source->marks : &none;
  const char *end = marks->end ? marks->end : "";
  size_t n_begin = strlen(marks->begin) + 1, n_end = strlen(end) + 1;
  char *key = malloc(1 + n_begin + n_end + source->length);
  if (!key)
    return NULL;
  key[0] = (char)((marks->is_bare ? 1 : 0) + (marks->end ? 2 : 0));
  memcpy(key + 1, marks->begin, n_begin);
  memcpy(key + 1 + n_begin, end, n_end);
  memcpy(key + 1 + n_begin + n_end, source->schema, source->length);
  *out_length = 1 + n_begin + n_end + source->length;
  return key;
}

static iso_status get(iso_grammar_shelf *self, const iso_tokenizer *tokenizer, int32_t n_vocabulary,
                      const grammar_source *source, iso_grammar **out_grammar) {
  ISO_TRY(make_lexicon(self, tokenizer, n_vocabulary));
  size_t length = 0;
  char *key = make_key(source, &length);
  if (!key)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a schema");
  iso_grammar *found = find(self, key, length);
  if (!found) {
    ISO_TRY(create(self, source, key, length, &found));
    iso_grammar_release(self->kept[GRAMMAR_SHELF_SIZE - 1]);
    memmove(self->kept + 1, self->kept, (GRAMMAR_SHELF_SIZE - 1) * sizeof *self->kept);
    self->kept[0] = found;
  } else {
    free(key);
  }
  iso_grammar_retain(found);
  *out_grammar = found;
  return ISO_OK;
}

iso_status iso_grammar_shelf_get(iso_grammar_shelf *self, const iso_tokenizer *tokenizer,
                                 int32_t n_vocabulary, const grammar_source *source,
                                 iso_grammar **out_grammar) {
  if (!tokenizer)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "a schema needs the tokenizer that the model was opened without");
  if (source->length > MAX_SCHEMA)
    return iso_fail(ISO_ERROR_LIMIT, "the schema has %zu bytes, at most %d are taken",
                    source->length, MAX_SCHEMA);
  pthread_mutex_lock(&self->mutex);
  iso_status status = get(self, tokenizer, n_vocabulary, source, out_grammar);
  pthread_mutex_unlock(&self->mutex);
  return status;
}

/* ---- Answers ------------------------------------------------------------------------------- */

iso_status iso_grammar_start(iso_grammar *grammar, iso_grammar_state *out_state) {
  *out_state = (iso_grammar_state){0};
  ISO_TRY(iso_matcher_start(&grammar->table, &out_state->matcher));
  iso_grammar_retain(grammar);
  out_state->grammar = grammar;
  return ISO_OK;
}

iso_status iso_grammar_clone(const iso_grammar_state *state, iso_grammar_state *out_copy) {
  *out_copy = (iso_grammar_state){0};
  if (!state->grammar)
    return ISO_OK;
  ISO_TRY(iso_matcher_clone(&state->grammar->table, &state->matcher, &out_copy->matcher));
  iso_grammar_retain(state->grammar);
  out_copy->grammar = state->grammar;
  return ISO_OK;
}

void iso_grammar_stop(iso_grammar_state *state) {
  if (!state->grammar)
    return;
  iso_matcher_free(&state->matcher);
  iso_grammar_release(state->grammar);
  *state = (iso_grammar_state){0};
}

iso_status iso_grammar_take(iso_grammar_state *state, int32_t token) {
  const matcher_table *table = &state->grammar->table;
  size_t length = 0;
  const char *bytes = iso_tokenizer_token_bytes(table->lexicon->tokenizer, token, &length);
  return iso_matcher_advance(table, &state->matcher, bytes ? bytes : "", bytes ? length : 0);
}

bool iso_grammar_is_over(const iso_grammar_state *state) {
  return state->grammar && iso_matcher_must_end(&state->matcher);
}

static bool is_in(const uint32_t *set, int32_t token) {
  return (set[token / 32] >> token % 32 & 1) != 0;
}

static void allow(const matcher_table *table, uint32_t *allowed, const int32_t *tokens, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (tokens[i] >= 0 && tokens[i] < table->lexicon->n_vocabulary)
      allowed[tokens[i] / 32] |= 1u << tokens[i] % 32;
}

/* Leaves no control tokens but the marks. Returns whether anything is left. */
static bool hide(const iso_grammar *grammar, uint32_t *allowed) {
  const iso_lexicon *lexicon = grammar->table.lexicon;
  int32_t marks[2];
  for (int i = 0; i < 2; i++)
    marks[i] = grammar->marks[i] >= 0 && is_in(allowed, grammar->marks[i]) ? grammar->marks[i] : -1;
  size_t n = ((size_t)lexicon->n_vocabulary + 31) / 32, i = 0;
  for (size_t k = lexicon->first_hidden; k < lexicon->end_hidden && k < n; k++)
    allowed[k] &= ~lexicon->hidden[k];
  allow(&grammar->table, allowed, marks, 2);
  while (i < n && allowed[i] == 0)
    i++;
  return i < n;
}

iso_status iso_grammar_allowed(iso_grammar_state *state, const int32_t *ends, int32_t n_ends,
                               const uint32_t **out_allowed) {
  const matcher_table *table = &state->grammar->table;
  iso_matcher_state *matcher = &state->matcher;
  bool any = true;
  if (!matcher->is_current) {
    ISO_TRY(iso_matcher_find_allowed(table, matcher));
    any = hide(state->grammar, matcher->allowed);
    if (iso_matcher_may_end(matcher)) {
      size_t n = 0;
      const int32_t *own = iso_tokenizer_end_ids(table->lexicon->tokenizer, &n);
      allow(table, matcher->allowed, own, n);
      allow(table, matcher->allowed, ends, (size_t)n_ends);
      any = any || n > 0 || n_ends > 0;
    }
    matcher->is_current = any;
  }
  *out_allowed = matcher->allowed;
  return any ? ISO_OK
             : iso_fail(ISO_ERROR_UNSUPPORTED, "no token of the vocabulary continues the answer as "
                                               "its schema asks");
}
