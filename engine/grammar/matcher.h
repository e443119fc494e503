/* Where an answer stands in a grammar, and which tokens may come next.
 *
 * A grammar may be read in several ways at once; each is a configuration: a state, and the states
 * to go on with after the calls that are open. Configurations are kept only if there is a way to
 * the end within MATCHER_MAX_DEPTH open calls, so an answer never gets stuck: whatever was
 * allowed can be finished. (Unless the vocabulary lacks a byte.)
 *
 * What a state says of the tokens is found by one walk over the lexicon, and kept: it does not
 * depend on the calls that are open, but for tokens that go on beyond the end of the innermost one.
 * Where those begin is kept too, and the rest is walked each time; it is little. */
#ifndef ISOMER_ENGINE_GRAMMAR_MATCHER_H
#define ISOMER_ENGINE_GRAMMAR_MATCHER_H

#include "engine/grammar/automaton.h"
#include "engine/grammar/lexicon.h"

enum {
  MATCHER_MAX_DEPTH = 128,          /* open calls */
  MATCHER_MAX_CONFIGURATIONS = 2048 /* with those on the way; further ones are given up */
};

/* Configurations, one after another: state, number of open calls, their states, outermost first. */
typedef struct matcher_buffer {
  uint32_t *words;
  size_t n, capacity;
} matcher_buffer;

/* What a state says of all tokens. */
typedef struct matcher_mask {
  uint32_t *allowed; /* a bit a token; NULL where `tokens` says it in less */
  int32_t *tokens;
  uint32_t n_tokens;
  uint32_t *escapes; /* nodes whose tokens end the innermost call; what is below is not known */
  uint32_t n_escapes;
} matcher_mask;

/* Masks by state, made when first asked for. One thread at a time. */
typedef struct matcher_masks {
  matcher_mask **by_state;
  uint32_t n_states;
  size_t n_bytes;
} matcher_masks;

ISO_MUST_CHECK iso_status iso_matcher_masks_create(uint32_t n_states, matcher_masks *out_masks);
void iso_matcher_masks_destroy(matcher_masks *masks);

/* What matchers of one grammar share. */
typedef struct matcher_table {
  const iso_automaton *automaton;
  const iso_lexicon *lexicon;
  matcher_masks *masks;
  matcher_masks *common; /* of the states below common->n_states, which all grammars have */
  uint32_t start;
} matcher_table;

typedef struct iso_matcher_state {
  matcher_buffer buffer; /* the configurations */
  uint32_t *allowed;     /* the tokens that may come next */
  bool is_current;       /* `allowed` is up to date */
} iso_matcher_state;

ISO_MUST_CHECK iso_status iso_matcher_start(const matcher_table *table,
                                            iso_matcher_state *out_state);
ISO_MUST_CHECK iso_status iso_matcher_clone(const matcher_table *table,
                                            const iso_matcher_state *state,
                                            iso_matcher_state *out_copy);
void iso_matcher_free(iso_matcher_state *state);

/* Takes bytes. INTERNAL, with no change, for bytes that the grammar does not have. */
ISO_MUST_CHECK iso_status iso_matcher_advance(const matcher_table *table, iso_matcher_state *state,
                                              const char *bytes, size_t length);
/* Whether the text may end here; whether it must. */
bool iso_matcher_may_end(const iso_matcher_state *state);
bool iso_matcher_must_end(const iso_matcher_state *state);
/* Brings state->allowed up to date: a bit for each token that may come next, control tokens too.
 * End tokens are the caller's to add. */
ISO_MUST_CHECK iso_status iso_matcher_find_allowed(const matcher_table *table,
                                                   iso_matcher_state *state);

#endif
