/* Grammars that hold answers to what a JSON schema takes.
 *
 *   automaton.c   automata over bytes, with calls
 *   json_rules.c  JSON's own rules
 *   schema*.c     JSON Schema to automata
 *   pattern.c     its regular expressions
 *   marked_text.c free text with JSON between marks
 *   lexicon.c     the vocabulary as a tree
 *   matcher.c     where an answer stands, and which tokens may come next
 *   grammar.c     all of them together */
#ifndef ISOMER_ENGINE_GRAMMAR_GRAMMAR_H
#define ISOMER_ENGINE_GRAMMAR_GRAMMAR_H

#include <isomer/engine.h>
#include <pthread.h>

#include "engine/grammar/matcher.h"

/* One takes up to some 16 MB, of which 8 are what was found of the tokens; few take one. */
enum { GRAMMAR_SHELF_SIZE = 16 };

/* What grammars of one engine share: the vocabulary, and those compiled lately. Nothing is made
 * before the first is compiled. Any thread. */
typedef struct iso_grammar_shelf {
  pthread_mutex_t mutex;
  bool exists, has_lexicon;
  iso_lexicon lexicon;
  matcher_masks common;                  /* of the engine's thread */
  iso_grammar *kept[GRAMMAR_SHELF_SIZE]; /* latest first */
} iso_grammar_shelf;

ISO_MUST_CHECK iso_status iso_grammar_shelf_init(iso_grammar_shelf *shelf);
/* No grammar of the shelf is in use. */
void iso_grammar_shelf_destroy(iso_grammar_shelf *shelf);
/* What a grammar is made of, and found again by. */
typedef struct grammar_source {
  const char *schema;
  size_t length;
  const iso_marks *marks; /* NULL: the whole answer is held */
} grammar_source;
/* A grammar that the caller releases; the schema is checked as iso_grammar_create() says. */
ISO_MUST_CHECK iso_status iso_grammar_shelf_get(iso_grammar_shelf *shelf,
                                                const iso_tokenizer *tokenizer,
                                                int32_t n_vocabulary, const grammar_source *source,
                                                iso_grammar **out_grammar);
void iso_grammar_retain(iso_grammar *grammar);

/* Where one answer stands. {0}: no grammar holds it. All calls from the engine's thread, but that
 * iso_grammar_allowed() may come from any once it has been called since the last token. */
typedef struct iso_grammar_state {
  iso_grammar *grammar; /* retained */
  iso_matcher_state matcher;
} iso_grammar_state;

ISO_MUST_CHECK iso_status iso_grammar_start(iso_grammar *grammar, iso_grammar_state *out_state);
ISO_MUST_CHECK iso_status iso_grammar_clone(const iso_grammar_state *state,
                                            iso_grammar_state *out_copy);
void iso_grammar_stop(iso_grammar_state *state);
/* Takes a token that is no end. */
ISO_MUST_CHECK iso_status iso_grammar_take(iso_grammar_state *state, int32_t token);
/* iso_grammar_allowed() has been called since the last token, and has not failed. */
static inline bool iso_grammar_is_ready(const iso_grammar_state *state) {
  return state->matcher.is_current;
}
/* The answer is whole, and nothing can come any more. */
bool iso_grammar_is_over(const iso_grammar_state *state);
/* The tokens that may come next, a bit each, with the model's end tokens and `n` others where the
 * answer may end. UNSUPPORTED where the vocabulary has none. Valid until the next token. */
ISO_MUST_CHECK iso_status iso_grammar_allowed(iso_grammar_state *state, const int32_t *ends,
                                              int32_t n_ends, const uint32_t **out_allowed);

#endif
