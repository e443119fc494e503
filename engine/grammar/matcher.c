#include "engine/grammar/matcher.h"

#include <stdlib.h>
#include <string.h>

#include "models/tokenizer/text.h"

/* A mask is found for a state without knowing the calls around it: it may open this many. Where
 * fewer are left, nothing is kept and all is walked. */
enum { HEADROOM = 16, MAX_MASK_BYTES = 8 << 20 };
/* A plain state takes about one comparison a node of the lexicon; this is some tens of
 * milliseconds. */
static const uint64_t MAX_WORK = UINT64_C(1) << 25;
enum { HEAD = 2 }; /* words before the open calls */

typedef struct matcher_region {
  size_t start, end; /* words of a buffer */
} matcher_region;

typedef struct matcher_walk {
  const matcher_table *table;
  matcher_buffer *buffer;
  bool is_open;  /* the calls around are not known: past them is AUTOMATON_ESCAPE */
  uint64_t work; /* configurations compared */
} matcher_walk;

/* ---- Configurations ------------------------------------------------------------------------ */

static size_t words_of(const uint32_t *configuration) { return HEAD + configuration[1]; }

static bool is_feasible(matcher_walk *self, uint32_t state, uint32_t depth) {
  uint8_t height = self->table->automaton->states[state].height;
  return height != AUTOMATON_NEVER &&
         (self->is_open ? depth <= HEADROOM : depth + height <= MATCHER_MAX_DEPTH);
}

static inline iso_status reserve(matcher_buffer *buffer, size_t more) {
  return buffer->n + more <= buffer->capacity
             ? ISO_OK
             : iso_array_grow((void **)&buffer->words, &buffer->capacity, buffer->n + more,
                              sizeof *buffer->words);
}

/* Appends `state` with the first `depth` calls of the configuration at `source`, and `call` on top
 * of them unless it is AUTOMATON_DEAD; but not twice within the words from `start` on. */
static iso_status append(matcher_walk *self, size_t start, uint32_t state, size_t source,
                         uint32_t depth, uint32_t call) {
  matcher_buffer *buffer = self->buffer;
  uint32_t new_depth = depth + (call != AUTOMATON_DEAD);
  size_t each = HEAD + new_depth, n = 0;
  if (!is_feasible(self, state, new_depth))
    return ISO_OK;
  ISO_TRY(reserve(buffer, each));
  uint32_t *at = buffer->words + buffer->n;
  at[0] = state;
  at[1] = new_depth;
  for (uint32_t i = 0; i < depth; i++)
    at[HEAD + i] = buffer->words[source + HEAD + i];
  if (call != AUTOMATON_DEAD)
    at[HEAD + depth] = call;
  for (size_t i = start; i < buffer->n; i += words_of(buffer->words + i), n++)
    if (buffer->words[i] == state && memcmp(buffer->words + i, at, each * sizeof *at) == 0)
      return ISO_OK;
  if (n < MATCHER_MAX_CONFIGURATIONS)
    buffer->n += each;
  self->work += n + 1;
  return self->work < MAX_WORK
             ? ISO_OK
             : iso_fail(ISO_ERROR_UNSUPPORTED, "the schema can be read in too many ways at once");
}

/* Replaces what is not a SWITCH, from `start` on, by what it leads to. */
static iso_status close_over(matcher_walk *self, size_t start) {
  matcher_buffer *buffer = self->buffer;
  const iso_automaton *automaton = self->table->automaton;
  bool is_closed = true;
  for (size_t at = start; at < buffer->n; at += words_of(buffer->words + at)) {
    const automaton_state *state = &automaton->states[buffer->words[at]];
    uint32_t depth = buffer->words[at + 1];
    if (state->kind == AUTOMATON_SWITCH)
      continue;
    is_closed = false;
    if (state->kind == AUTOMATON_SPLIT) {
      ISO_TRY(append(self, start, state->a, at, depth, AUTOMATON_DEAD));
      ISO_TRY(append(self, start, state->b, at, depth, AUTOMATON_DEAD));
    } else if (state->kind == AUTOMATON_CALL) {
      /* A call that is the last thing of its rule returns to where that one would. */
      uint32_t back = state->b == AUTOMATON_END ? AUTOMATON_DEAD : state->b;
      ISO_TRY(append(self, start, automaton->rules[state->a], at, depth, back));
    } else if (depth > 0) {
      ISO_TRY(
          append(self, start, buffer->words[at + HEAD + depth - 1], at, depth - 1, AUTOMATON_DEAD));
    } else {
      ISO_TRY(append(self, start, AUTOMATON_ESCAPE, at, 0, AUTOMATON_DEAD));
    }
  }
  if (is_closed)
    return ISO_OK;
  size_t to = start;
  for (size_t at = start, each; at < buffer->n; at += each) {
    each = words_of(buffer->words + at);
    if (automaton->states[buffer->words[at]].kind != AUTOMATON_SWITCH)
      continue;
    memmove(buffer->words + to, buffer->words + at, each * sizeof *buffer->words);
    to += each;
  }
  buffer->n = to;
  return ISO_OK;
}

/* Appends what the configurations of a region become by one byte. */
static iso_status take_byte(matcher_walk *self, matcher_region from, uint8_t byte,
                            matcher_region *out_region) {
  matcher_buffer *buffer = self->buffer;
  const iso_automaton *automaton = self->table->automaton;
  size_t start = buffer->n;
  for (size_t at = from.start; at < from.end; at += words_of(buffer->words + at)) {
    const automaton_state *state = &automaton->states[buffer->words[at]];
    for (uint32_t i = 0; i < state->b; i++) {
      const automaton_edge *edge = &automaton->edges[state->a + i];
      if (byte >= edge->first && byte <= edge->last)
        ISO_TRY(append(self, start, edge->next, at, buffer->words[at + 1], AUTOMATON_DEAD));
    }
  }
  ISO_TRY(close_over(self, start));
  *out_region = (matcher_region){start, buffer->n};
  return ISO_OK;
}

/* ---- Tokens -------------------------------------------------------------------------------- */

static void allow(const iso_lexicon *lexicon, int32_t token, uint32_t *allowed) {
  for (; token >= 0; token = lexicon->same[token])
    allowed[token / 32] |= 1u << token % 32;
}

/* Takes AUTOMATON_ESCAPE out of the region that ends the buffer. */
static bool take_escape(matcher_buffer *buffer, matcher_region *region) {
  for (size_t at = region->start; at < region->end; at += words_of(buffer->words + at))
    if (buffer->words[at] == AUTOMATON_ESCAPE) {
      memmove(buffer->words + at, buffer->words + at + HEAD,
              (region->end - at - HEAD) * sizeof *buffer->words);
      buffer->n = region->end -= HEAD;
      return true;
    }
  return false;
}

typedef struct node_list {
  uint32_t *nodes;
  size_t n, capacity;
} node_list;

/* Where a walk stands below one node. */
typedef struct walk_level {
  matcher_region region;
  uint32_t end;
} walk_level;

/* Allows the tokens of the nodes first ... end - 1 that the configurations of `from`, which end the
 * buffer, let through. `escapes` takes nodes with more behind the end of what is known. */
static iso_status walk_nodes(matcher_walk *self, walk_level *levels, uint32_t first, uint32_t end,
                             matcher_region from, uint32_t *allowed, node_list *escapes) {
  const lexicon_node *nodes = self->table->lexicon->nodes;
  size_t level = 0;
  levels[0] = (walk_level){from, end};
  for (uint32_t i = first; i < end;) {
    while (i >= levels[level].end)
      level--;
    self->buffer->n = levels[level].region.end;
    matcher_region region;
    ISO_TRY(take_byte(self, levels[level].region, nodes[i].byte, &region));
    bool has_more = nodes[i].end > i + 1;
    if (region.end > region.start)
      allow(self->table->lexicon, nodes[i].token, allowed);
    if (self->is_open && take_escape(self->buffer, &region) && has_more) {
      ISO_TRY(iso_array_grow((void **)&escapes->nodes, &escapes->capacity, escapes->n + 1,
                             sizeof *escapes->nodes));
      escapes->nodes[escapes->n++] = i;
    }
    if (!has_more || region.end == region.start) {
      i = nodes[i].end;
      continue;
    }
    levels[++level] = (walk_level){region, nodes[i].end};
    i++;
  }
  self->buffer->n = from.end;
  return ISO_OK;
}

/* ---- Masks --------------------------------------------------------------------------------- */

iso_status iso_matcher_masks_create(uint32_t n_states, matcher_masks *out_masks) {
  *out_masks = (matcher_masks){.n_states = n_states,
                               .by_state = calloc(n_states, sizeof *out_masks->by_state)};
  return out_masks->by_state
             ? ISO_OK
             : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a grammar of %u states", n_states);
}

static void free_mask(matcher_mask *mask) {
  free(mask->allowed);
  free(mask->tokens);
  free(mask->escapes);
  free(mask);
}

static void forget_masks(matcher_masks *masks) {
  for (uint32_t i = 0; masks->by_state && i < masks->n_states; i++)
    if (masks->by_state[i]) {
      free_mask(masks->by_state[i]);
      masks->by_state[i] = NULL;
    }
  masks->n_bytes = 0;
}

void iso_matcher_masks_destroy(matcher_masks *masks) {
  forget_masks(masks);
  free(masks->by_state);
  *masks = (matcher_masks){0};
}

static size_t n_words(const iso_lexicon *lexicon) {
  return ((size_t)lexicon->n_vocabulary + 31) / 32;
}

/* Few tokens as a list, many as bits. Takes `allowed` over where it returns true. */
static bool keep_tokens(matcher_mask *mask, uint32_t *allowed, size_t words) {
  size_t n = 0;
  for (size_t i = 0; i < words; i++)
    n += (size_t)__builtin_popcount(allowed[i]);
  mask->allowed = allowed;
  if (n > words / 2 || !(mask->tokens = malloc((n + 1) * sizeof *mask->tokens)))
    return true;
  mask->allowed = NULL;
  for (size_t i = 0; i < words; i++)
    for (uint32_t bits = allowed[i]; bits; bits &= bits - 1)
      mask->tokens[mask->n_tokens++] = (int32_t)(i * 32) + __builtin_ctz(bits);
  return false;
}

static iso_status make_mask(matcher_walk *walk, walk_level *levels, uint32_t state,
                            matcher_mask **out_mask) {
  const iso_lexicon *lexicon = walk->table->lexicon;
  matcher_walk open = {walk->table, walk->buffer, true, walk->work};
  matcher_buffer *buffer = walk->buffer;
  size_t start = buffer->n, words = n_words(lexicon);
  matcher_mask *mask = calloc(1, sizeof *mask);
  uint32_t *allowed = calloc(words + 1, sizeof *allowed);
  node_list escapes = {0};
  iso_status status = mask && allowed
                          ? iso_array_grow((void **)&buffer->words, &buffer->capacity, start + HEAD,
                                           sizeof *buffer->words)
                          : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %zu tokens", words);
  if (status == ISO_OK) {
    buffer->words[start] = state;
    buffer->words[start + 1] = 0;
    buffer->n = start + HEAD;
    status = walk_nodes(&open, levels, 0, lexicon->n_nodes, (matcher_region){start, buffer->n},
                        allowed, &escapes);
    buffer->n = start;
    walk->work = open.work;
  }
  if (status != ISO_OK) {
    free(mask);
    free(allowed);
    free(escapes.nodes);
    return status;
  }
  if (!keep_tokens(mask, allowed, words))
    free(allowed);
  mask->escapes = escapes.nodes;
  mask->n_escapes = (uint32_t)escapes.n;
  *out_mask = mask;
  return ISO_OK;
}

static size_t mask_bytes(const matcher_mask *mask, size_t words) {
  return sizeof *mask + (mask->allowed ? words : mask->n_tokens) * sizeof(uint32_t) +
         mask->n_escapes * sizeof *mask->escapes;
}

static iso_status find_mask(matcher_walk *walk, walk_level *levels, uint32_t state,
                            const matcher_mask **out_mask) {
  const matcher_table *table = walk->table;
  uint32_t twin = table->automaton->states[state].twin;
  state = twin == AUTOMATON_DEAD ? state : twin;
  matcher_masks *masks = state < table->common->n_states ? table->common : table->masks;
  if (!masks->by_state[state]) {
    if (masks->n_bytes > MAX_MASK_BYTES)
      forget_masks(masks);
    ISO_TRY(make_mask(walk, levels, state, &masks->by_state[state]));
    masks->n_bytes += mask_bytes(masks->by_state[state], n_words(table->lexicon));
  }
  *out_mask = masks->by_state[state];
  return ISO_OK;
}

/* The tokens behind the escapes of one configuration's mask. */
static iso_status walk_escapes(matcher_walk *walk, walk_level *levels, size_t at,
                               const matcher_mask *mask, uint32_t *allowed) {
  matcher_buffer *buffer = walk->buffer;
  const lexicon_node *nodes = walk->table->lexicon->nodes;
  size_t start = buffer->n;
  uint32_t depth = buffer->words[at + 1];
  if (mask->n_escapes == 0 || depth == 0)
    return ISO_OK;
  ISO_TRY(append(walk, start, buffer->words[at + HEAD + depth - 1], at, depth - 1, AUTOMATON_DEAD));
  ISO_TRY(close_over(walk, start));
  const matcher_region beyond = {start, buffer->n};
  for (uint32_t i = 0; i < mask->n_escapes; i++)
    ISO_TRY(walk_nodes(walk, levels, mask->escapes[i] + 1, nodes[mask->escapes[i]].end, beyond,
                       allowed, NULL));
  buffer->n = start;
  return ISO_OK;
}

static iso_status allow_from(matcher_walk *walk, walk_level *levels, size_t at, uint32_t *allowed) {
  matcher_buffer *buffer = walk->buffer;
  const iso_lexicon *lexicon = walk->table->lexicon;
  const matcher_mask *mask;
  if (buffer->words[at + 1] + HEADROOM + AUTOMATON_MAX_HEIGHT > MATCHER_MAX_DEPTH) {
    size_t end = buffer->n, each = words_of(buffer->words + at);
    ISO_TRY(iso_array_grow((void **)&buffer->words, &buffer->capacity, end + each,
                           sizeof *buffer->words));
    memcpy(buffer->words + end, buffer->words + at, each * sizeof *buffer->words);
    buffer->n = end + each;
    iso_status status = walk_nodes(walk, levels, 0, lexicon->n_nodes,
                                   (matcher_region){end, end + each}, allowed, NULL);
    buffer->n = end;
    return status;
  }
  ISO_TRY(find_mask(walk, levels, buffer->words[at], &mask));
  for (size_t i = 0; mask->allowed && i < n_words(lexicon); i++)
    allowed[i] |= mask->allowed[i];
  for (uint32_t i = 0; i < mask->n_tokens; i++)
    allowed[mask->tokens[i] / 32] |= 1u << mask->tokens[i] % 32;
  return walk_escapes(walk, levels, at, mask, allowed);
}

/* ---- Answers ------------------------------------------------------------------------------- */

iso_status iso_matcher_start(const matcher_table *table, iso_matcher_state *out_state) {
  iso_matcher_state state = {.allowed = malloc((n_words(table->lexicon) + 1) * sizeof(uint32_t))};
  matcher_buffer *buffer = &state.buffer;
  matcher_walk walk = {table, buffer, false, 0};
  iso_status status = state.allowed
                          ? iso_array_grow((void **)&buffer->words, &buffer->capacity, HEAD + 1,
                                           sizeof *buffer->words)
                          : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for an answer's tokens");
  if (status == ISO_OK) {
    const uint32_t first[HEAD + 1] = {table->start, 1, AUTOMATON_ACCEPT};
    memcpy(buffer->words, first, sizeof first);
    buffer->n = HEAD + 1;
    status = close_over(&walk, 0);
  }
  if (status != ISO_OK)
    iso_matcher_free(&state);
  *out_state = state;
  return status;
}

iso_status iso_matcher_clone(const matcher_table *table, const iso_matcher_state *state,
                             iso_matcher_state *out_copy) {
  iso_matcher_state copy = {.allowed = malloc((n_words(table->lexicon) + 1) * sizeof(uint32_t))};
  iso_status status = copy.allowed
                          ? iso_array_grow((void **)&copy.buffer.words, &copy.buffer.capacity,
                                           state->buffer.n, sizeof *copy.buffer.words)
                          : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for an answer's tokens");
  if (status == ISO_OK) {
    memcpy(copy.buffer.words, state->buffer.words, state->buffer.n * sizeof *copy.buffer.words);
    copy.buffer.n = state->buffer.n;
  } else {
    iso_matcher_free(&copy);
  }
  *out_copy = copy;
  return status;
}

void iso_matcher_free(iso_matcher_state *state) {
  free(state->buffer.words);
  free(state->allowed);
  *state = (iso_matcher_state){0};
}

iso_status iso_matcher_advance(const matcher_table *table, iso_matcher_state *state,
                               const char *bytes, size_t length) {
  matcher_buffer *buffer = &state->buffer;
  matcher_walk walk = {table, buffer, false, 0};
  size_t n = buffer->n;
  matcher_region region = {0, n};
  for (size_t i = 0; i < length && region.end > region.start; i++)
    ISO_TRY(take_byte(&walk, region, (uint8_t)bytes[i], &region));
  if (region.end == region.start) {
    buffer->n = n;
    return iso_fail(ISO_ERROR_INTERNAL, "a token that the grammar does not allow");
  }
  memmove(buffer->words, buffer->words + region.start,
          (region.end - region.start) * sizeof *buffer->words);
  buffer->n = region.end - region.start;
  state->is_current = false;
  return ISO_OK;
}

bool iso_matcher_may_end(const iso_matcher_state *state) {
  const matcher_buffer *buffer = &state->buffer;
  for (size_t at = 0; at < buffer->n; at += words_of(buffer->words + at))
    if (buffer->words[at] == AUTOMATON_ACCEPT)
      return true;
  return false;
}

bool iso_matcher_must_end(const iso_matcher_state *state) {
  const matcher_buffer *buffer = &state->buffer;
  return buffer->n == HEAD && buffer->words[0] == AUTOMATON_ACCEPT;
}

/* Walks from a copy of the configurations: what a walk grows to goes with it. */
static iso_status walk_all(const matcher_table *table, const iso_matcher_state *state) {
  matcher_buffer scratch = {0};
  const size_t n = state->buffer.n;
  matcher_walk walk = {table, &scratch, false, 0};
  walk_level *levels = malloc((table->lexicon->depth + 2) * sizeof *levels);
  iso_status status = levels
                          ? reserve(&scratch, n)
                          : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to walk over the tokens");
  memset(state->allowed, 0, n_words(table->lexicon) * sizeof *state->allowed);
  if (status == ISO_OK)
    memcpy(scratch.words, state->buffer.words, n * sizeof *scratch.words);
  scratch.n = n;
  for (size_t at = 0; status == ISO_OK && at < n; at += words_of(scratch.words + at))
    if (scratch.words[at] != AUTOMATON_ACCEPT)
      status = allow_from(&walk, levels, at, state->allowed);
  free(scratch.words);
  free(levels);
  return status;
}

iso_status iso_matcher_find_allowed(const matcher_table *table, iso_matcher_state *state) {
  if (!state->is_current)
    ISO_TRY(walk_all(table, state));
  state->is_current = true;
  return ISO_OK;
}
