/* Automata over bytes, with calls: the form that grammars are compiled to.
 *
 * A rule is a start state. What a rule accepts are the bytes on a way from its start to END; a CALL
 * on the way stands for what another rule accepts. Automata are built from their ends: a function
 * takes the state that comes after and returns the one before it. Loops are set once
 * their body is built.
 *
 * A builder that fails (memory, size) remembers why and goes on with AUTOMATON_DEAD, so that only
 * iso_automaton_finish() has to be checked. One thread builds; a finished one is never changed. */
#ifndef ISOMER_ENGINE_GRAMMAR_AUTOMATON_H
#define ISOMER_ENGINE_GRAMMAR_AUTOMATON_H

#include <isomer/status.h>

typedef enum automaton_kind {
  AUTOMATON_SWITCH, /* edges a ... a + b - 1: a byte, then the edge's state */
  AUTOMATON_SPLIT,  /* a or b */
  AUTOMATON_CALL,   /* rule a, then b; where b is END the call is not open any more */
  AUTOMATON_RETURN  /* the rule's end */
} automaton_kind;

/* States that every automaton has. */
enum {
  AUTOMATON_DEAD,   /* nothing gets through */
  AUTOMATON_ACCEPT, /* for matchers: all is over and well */
  AUTOMATON_ESCAPE, /* for matchers: what follows is beyond what is known */
  AUTOMATON_END,    /* the one RETURN */
  AUTOMATON_FIRST   /* of a grammar's own */
};

enum {
  AUTOMATON_MAX_STATES = 1 << 16,
  AUTOMATON_MAX_HEIGHT = 64,
  AUTOMATON_NEVER = 255 /* the height of states that lead nowhere */
};

typedef struct automaton_state {
  uint8_t kind;
  uint8_t height; /* calls that must at least be open at once on the way to the end */
  uint32_t a, b;
  uint32_t twin; /* a state, whatever is taken there being taken here, that stands for this one
                    where tokens are looked for; AUTOMATON_DEAD: there is none */
} automaton_state;

typedef struct automaton_edge {
  uint8_t first, last; /* bytes */
  uint32_t next;
} automaton_edge;

/* A set of ASCII characters, and of two sorts of others: blanks and line ends, and all that are
 * none. Where only the second is in the set, blocks that hold blanks are left out as a whole; where
 * only the first is, nothing is written. */
enum { AUTOMATON_BLANK_OTHERS = 1, AUTOMATON_PLAIN_OTHERS = 2, AUTOMATON_ALL_OTHERS = 3 };
typedef struct automaton_characters {
  uint64_t ascii[2];
  int others;
} automaton_characters;

typedef struct iso_automaton {
  automaton_state *states;
  automaton_edge *edges;
  uint32_t *rules; /* start states */
  size_t n_states, n_edges, n_rules, state_capacity, edge_capacity, rule_capacity;
  iso_status status;
} iso_automaton;

void iso_automaton_init(iso_automaton *automaton);
void iso_automaton_free(iso_automaton *automaton);
/* Finds heights. Fails as building failed. */
ISO_MUST_CHECK iso_status iso_automaton_finish(iso_automaton *automaton);

/* A rule without a start; it can be called at once. */
uint32_t iso_automaton_rule(iso_automaton *automaton);
void iso_automaton_set_rule(iso_automaton *automaton, uint32_t rule, uint32_t start);

uint32_t iso_automaton_switch(iso_automaton *automaton, const automaton_edge *edges, size_t n);
uint32_t iso_automaton_split(iso_automaton *automaton, uint32_t a, uint32_t b);
uint32_t iso_automaton_call(iso_automaton *automaton, uint32_t rule, uint32_t next);
/* What comes before `body`, which ends with it, and before `next`; `body` is set when it is built.
 */
uint32_t iso_automaton_loop(iso_automaton *automaton, uint32_t next);
void iso_automaton_close_loop(iso_automaton *automaton, uint32_t loop, uint32_t body);
void iso_automaton_set_twin(iso_automaton *automaton, uint32_t state, uint32_t twin);
/* One byte, from `first` to `last`. */
uint32_t iso_automaton_range(iso_automaton *automaton, uint8_t first, uint8_t last, uint32_t next);
uint32_t iso_automaton_literal(iso_automaton *automaton, const char *text, size_t length,
                               uint32_t next);
/* `least` to `most` bytes, each from `first` to `last`. */
uint32_t iso_automaton_repeat_range(iso_automaton *automaton, uint8_t first, uint8_t last,
                                    int least, int most, uint32_t next);

/* One character of a JSON string, in the one way in which it is written: control characters, quotes
 * and backslashes as the shortest escape, all others as they are. NUL is none. `also` may be one
 * more edge of the state; NULL. */
uint32_t iso_automaton_character(iso_automaton *automaton, automaton_characters set,
                                 const automaton_edge *also, uint32_t next);
/* Any number of such characters, then an edge that is none of them. */
uint32_t iso_automaton_characters(iso_automaton *automaton, automaton_characters set,
                                  const automaton_edge *then);
/* All characters. */
automaton_characters iso_automaton_any_character(void);

/* One of `n` texts, which are sorted as memcmp sorts, shorter first, and differ. */
typedef struct automaton_text {
  const char *data;
  size_t length;
} automaton_text;
uint32_t iso_automaton_texts(iso_automaton *automaton, const automaton_text *texts, size_t n,
                             uint32_t next);
/* What `free_state` matches, any characters up to a closing quote, but for the n strings `texts` as
 * they are written between quotes, sorted as above. */
uint32_t iso_automaton_other_texts(iso_automaton *automaton, const automaton_text *texts, size_t n,
                                   uint32_t free_state);

#endif
