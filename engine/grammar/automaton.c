#include "engine/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "models/tokenizer/text.h"

/* ---- Life ---------------------------------------------------------------------------------- */

static uint32_t add_state(iso_automaton *self, automaton_state state) {
  if (self->status == ISO_OK && self->n_states >= AUTOMATON_MAX_STATES)
    self->status = iso_fail(ISO_ERROR_LIMIT,
                            "it is too large: it takes more than %d states; use shorter "
                            "bounds, or fewer alternatives",
                            AUTOMATON_MAX_STATES);
  if (self->status == ISO_OK)
    self->status = iso_array_grow((void **)&self->states, &self->state_capacity, self->n_states + 1,
                                  sizeof *self->states);
  if (self->status != ISO_OK)
    return AUTOMATON_DEAD;
  self->states[self->n_states] = state;
  return (uint32_t)self->n_states++;
}

void iso_automaton_init(iso_automaton *self) {
  *self = (iso_automaton){.status = ISO_OK};
  for (int i = 0; i < AUTOMATON_FIRST; i++)
    add_state(self,
              (automaton_state){.kind = i == AUTOMATON_END ? AUTOMATON_RETURN : AUTOMATON_SWITCH});
}

void iso_automaton_free(iso_automaton *self) {
  free(self->states);
  free(self->edges);
  free(self->rules);
  *self = (iso_automaton){.status = ISO_OK};
}

/* ---- Heights ------------------------------------------------------------------------------- */

static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }

static int height_of(const iso_automaton *self, const automaton_state *state) {
  int height = AUTOMATON_NEVER;
  switch ((automaton_kind)state->kind) {
  case AUTOMATON_SWITCH:
    for (uint32_t i = 0; i < state->b; i++)
      height = least(height, self->states[self->edges[state->a + i].next].height);
    break;
  case AUTOMATON_SPLIT:
    height = least(self->states[state->a].height, self->states[state->b].height);
    break;
  case AUTOMATON_CALL:
    height = most((state->b != AUTOMATON_END) + self->states[self->rules[state->a]].height,
                  self->states[state->b].height);
    break;
  case AUTOMATON_RETURN:
    height = 0;
    break;
  }
  return height > AUTOMATON_MAX_HEIGHT ? AUTOMATON_NEVER : height;
}

/* Heights sink from NEVER to what the equations say. States come after those that follow them, but
 * for loops and calls, so few rounds suffice; should they not, what is left too high forbids ways
 * that are there, and never allows one that is not. */
iso_status iso_automaton_finish(iso_automaton *self) {
  ISO_TRY(self->status);
  for (size_t i = 0; i < self->n_states; i++)
    self->states[i].height = AUTOMATON_NEVER;
  self->states[AUTOMATON_ACCEPT].height = self->states[AUTOMATON_ESCAPE].height = 0;
  bool changed = true;
  for (int round = 0; changed && round < 4 * AUTOMATON_MAX_HEIGHT; round++) {
    changed = false;
    for (size_t i = AUTOMATON_END; i < self->n_states; i++) {
      int height = height_of(self, &self->states[i]);
      changed |= height != self->states[i].height;
      self->states[i].height = (uint8_t)height;
    }
  }
  return ISO_OK;
}

/* ---- States -------------------------------------------------------------------------------- */

uint32_t iso_automaton_rule(iso_automaton *self) {
  if (self->status == ISO_OK)
    self->status = iso_array_grow((void **)&self->rules, &self->rule_capacity, self->n_rules + 1,
                                  sizeof *self->rules);
  if (self->status != ISO_OK)
    return 0;
  self->rules[self->n_rules] = AUTOMATON_DEAD;
  return (uint32_t)self->n_rules++;
}

static void set_edges(iso_automaton *self, uint32_t state, const automaton_edge *edges, size_t n) {
  if (self->status == ISO_OK)
    self->status = iso_array_grow((void **)&self->edges, &self->edge_capacity, self->n_edges + n,
                                  sizeof *self->edges);
  if (self->status != ISO_OK)
    return;
  memcpy(self->edges + self->n_edges, edges, n * sizeof *edges);
  self->states[state].a = (uint32_t)self->n_edges;
  self->states[state].b = (uint32_t)n;
  self->n_edges += n;
}

uint32_t iso_automaton_switch(iso_automaton *self, const automaton_edge *edges, size_t n) {
  if (n == 0)
    return AUTOMATON_DEAD;
  uint32_t state = add_state(self, (automaton_state){.kind = AUTOMATON_SWITCH});
  set_edges(self, state, edges, n);
  return self->status == ISO_OK ? state : AUTOMATON_DEAD;
}

uint32_t iso_automaton_split(iso_automaton *self, uint32_t a, uint32_t b) {
  return add_state(self, (automaton_state){.kind = AUTOMATON_SPLIT, .a = a, .b = b});
}

uint32_t iso_automaton_call(iso_automaton *self, uint32_t rule, uint32_t next) {
  return add_state(self, (automaton_state){.kind = AUTOMATON_CALL, .a = rule, .b = next});
}

uint32_t iso_automaton_range(iso_automaton *self, uint8_t first, uint8_t last, uint32_t next) {
  return iso_automaton_switch(self, &(automaton_edge){first, last, next}, 1);
}

uint32_t iso_automaton_literal(iso_automaton *self, const char *text, size_t length,
                               uint32_t next) {
  while (length > 0) {
    uint8_t byte = (uint8_t)text[--length];
    next = iso_automaton_range(self, byte, byte, next);
  }
  return next;
}

void iso_automaton_set_twin(iso_automaton *self, uint32_t state, uint32_t twin) {
  if (self->status == ISO_OK)
    self->states[state].twin = twin;
}

uint32_t iso_automaton_loop(iso_automaton *self, uint32_t next) {
  return iso_automaton_split(self, AUTOMATON_DEAD, next);
}

void iso_automaton_close_loop(iso_automaton *self, uint32_t loop, uint32_t body) {
  if (self->status == ISO_OK)
    self->states[loop].a = body;
}

void iso_automaton_set_rule(iso_automaton *self, uint32_t rule, uint32_t start) {
  if (self->status == ISO_OK)
    self->rules[rule] = start;
}

uint32_t iso_automaton_repeat_range(iso_automaton *self, uint8_t first, uint8_t last, int lower,
                                    int upper, uint32_t next) {
  uint32_t state = next;
  for (int i = upper; i > 0; i--) {
    state = iso_automaton_range(self, first, last, state);
    if (i > lower)
      state = iso_automaton_split(self, state, next);
  }
  return state;
}

/* ---- Characters of JSON strings ------------------------------------------------------------ */

automaton_characters iso_automaton_any_character(void) {
  return (automaton_characters){.ascii = {UINT64_MAX - 1, UINT64_MAX},
                                .others = AUTOMATON_ALL_OTHERS};
}

static bool holds(const automaton_characters *set, int c) {
  return (set->ascii[c / 64] >> c % 64 & 1) != 0;
}

/* What stands behind the backslash; 0: the character is written as it is, or with "u00". */
static char short_escape(int c) {
  static const char letters[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                 ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};
  return c < (int)sizeof letters ? letters[c] : (char)0;
}

/* The rest of "\u00XX", for the control characters that have no letter. */
static uint32_t unicode_escape(iso_automaton *self, const automaton_characters *set,
                               uint32_t next) {
  uint32_t high[2] = {AUTOMATON_DEAD, AUTOMATON_DEAD};
  automaton_edge edges[16];
  for (int half = 0; half < 2; half++) {
    size_t n = 0;
    for (int digit = 0; digit < 16; digit++) {
      int c = half * 16 + digit;
      uint8_t byte = (uint8_t) "0123456789abcdef"[digit];
      if (c > 0 && holds(set, c) && !short_escape(c))
        edges[n++] = (automaton_edge){byte, byte, next};
    }
    high[half] = iso_automaton_switch(self, edges, n);
  }
  const automaton_edge halves[2] = {{'0', '0', high[0]}, {'1', '1', high[1]}};
  return iso_automaton_literal(self, "00", 2, iso_automaton_switch(self, halves, 2));
}

static uint32_t escape(iso_automaton *self, const automaton_characters *set, uint32_t next) {
  automaton_edge edges[16];
  size_t n = 0;
  bool has_unicode = false;
  for (int c = 1; c < 128; c++) {
    if (!holds(set, c))
      continue;
    uint8_t letter = (uint8_t)short_escape(c);
    if (letter)
      edges[n++] = (automaton_edge){letter, letter, next};
    else
      has_unicode |= c < 32;
  }
  if (has_unicode)
    edges[n++] = (automaton_edge){'u', 'u', unicode_escape(self, set, next)};
  return iso_automaton_switch(self, edges, n);
}

/* Edges of printable characters that are written as they are. */
static size_t plain_edges(const automaton_characters *set, uint32_t next, automaton_edge *edges) {
  size_t n = 0;
  for (int c = 32; c < 128; c++) {
    if (!holds(set, c) || short_escape(c))
      continue;
    if (n > 0 && edges[n - 1].last == c - 1)
      edges[n - 1].last = (uint8_t)c;
    else
      edges[n++] = (automaton_edge){(uint8_t)c, (uint8_t)c, next};
  }
  return n;
}

/* Well formed UTF-8 beyond ASCII (Unicode, table 3-7); without the rows that hold blanks and line
 * ends (U+0080 to U+00A0, U+1680, U+2000 to U+207F, U+3000, U+FEFF) unless `with_blanks`. */
static size_t utf8_edges(iso_automaton *self, bool with_blanks, uint32_t next,
                         automaton_edge *edges) {
  uint32_t one = iso_automaton_range(self, 0x80, 0xBF, next);
  uint32_t two = iso_automaton_range(self, 0x80, 0xBF, one);
  uint32_t three = iso_automaton_range(self, 0x80, 0xBF, two);
  const automaton_edge all[] = {
      {0xC3, 0xDF, one},
      {0xC2, 0xC2, with_blanks ? one : iso_automaton_range(self, 0xA1, 0xBF, next)},
      {0xE0, 0xE0, iso_automaton_range(self, 0xA0, 0xBF, one)},
      {0xE1, 0xE1, with_blanks ? two : iso_automaton_range(self, 0x9B, 0xBF, one)},
      {0xE2, 0xE2, with_blanks ? two : iso_automaton_range(self, 0x82, 0xBF, one)},
      {0xE3, 0xE3, with_blanks ? two : iso_automaton_range(self, 0x81, 0xBF, one)},
      {0xE4, 0xEC, two},
      {0xED, 0xED, iso_automaton_range(self, 0x80, 0x9F, one)},
      {0xEE, 0xEE, two},
      {0xEF, 0xEF, with_blanks ? two : iso_automaton_range(self, 0xBC, 0xBF, one)},
      {0xF0, 0xF0, iso_automaton_range(self, 0x90, 0xBF, two)},
      {0xF1, 0xF3, three},
      {0xF4, 0xF4, iso_automaton_range(self, 0x80, 0x8F, two)}};
  memcpy(edges, all, sizeof all);
  return sizeof all / sizeof *all;
}

static size_t character_edges(iso_automaton *self, const automaton_characters *set,
                              const automaton_edge *also, uint32_t next, automaton_edge *edges) {
  size_t n = plain_edges(set, next, edges);
  uint32_t escaped = escape(self, set, next);
  if (also)
    edges[n++] = *also;
  if (escaped != AUTOMATON_DEAD)
    edges[n++] = (automaton_edge){'\\', '\\', escaped};
  if (set->others & AUTOMATON_PLAIN_OTHERS)
    n += utf8_edges(self, set->others == AUTOMATON_ALL_OTHERS, next, edges + n);
  return n;
}

enum { MAX_CHARACTER_EDGES = 96 };

uint32_t iso_automaton_character(iso_automaton *self, automaton_characters set,
                                 const automaton_edge *also, uint32_t next) {
  automaton_edge edges[MAX_CHARACTER_EDGES];
  size_t n = character_edges(self, &set, also, next, edges);
  return iso_automaton_switch(self, edges, n);
}

uint32_t iso_automaton_characters(iso_automaton *self, automaton_characters set,
                                  const automaton_edge *then) {
  automaton_edge edges[MAX_CHARACTER_EDGES];
  uint32_t state = add_state(self, (automaton_state){.kind = AUTOMATON_SWITCH});
  set_edges(self, state, edges, character_edges(self, &set, then, state, edges));
  return state;
}

/* ---- Texts --------------------------------------------------------------------------------- */

/* How many bytes from `from` on the first and the last of sorted texts, and so all, share. */
static size_t shared_length(const automaton_text *texts, size_t n, size_t from) {
  const automaton_text *first = &texts[0], *last = &texts[n - 1];
  size_t at = from;
  while (at < first->length && at < last->length && first->data[at] == last->data[at])
    at++;
  return at - from;
}

static size_t same_byte(const automaton_text *texts, size_t n, size_t at) {
  size_t count = 1;
  while (count < n && texts[count].data[at] == texts[0].data[at])
    count++;
  return count;
}

enum { MAX_BRANCHES = 256, MAX_TEXT_LENGTH = 256 }; /* on one way: bounds of recursion */

static uint32_t too_deep(iso_automaton *self, const char *what, int limit) {
  if (self->status == ISO_OK)
    self->status = iso_fail(ISO_ERROR_LIMIT, "%s; the limit is %d", what, limit);
  return AUTOMATON_DEAD;
}

/* Recurses where texts part. */
static uint32_t texts_from(iso_automaton *self, const automaton_text *texts, size_t n, size_t from,
                           uint32_t next, int depth) {
  size_t shared = shared_length(texts, n, from), at = from + shared;
  const char *begin = texts[0].data + from;
  bool ends = texts[0].length == at;
  automaton_edge edges[256];
  size_t n_edges = 0;
  if (depth > MAX_BRANCHES)
    return too_deep(self, "too many values begin with others", MAX_BRANCHES);
  for (size_t i = ends, count; i < n; i += count) {
    count = same_byte(texts + i, n - i, at);
    uint8_t byte = (uint8_t)texts[i].data[at];
    edges[n_edges++] =
        (automaton_edge){byte, byte, texts_from(self, texts + i, count, at + 1, next, depth + 1)};
  }
  uint32_t state = n_edges > 0 ? iso_automaton_switch(self, edges, n_edges) : next;
  if (ends && n_edges > 0)
    state = iso_automaton_split(self, next, state);
  return iso_automaton_literal(self, begin, shared, state);
}

uint32_t iso_automaton_texts(iso_automaton *self, const automaton_text *texts, size_t n,
                             uint32_t next) {
  return n > 0 ? texts_from(self, texts, n, 0, next, 0) : AUTOMATON_DEAD;
}

/* ---- Other texts --------------------------------------------------------------------------- */

/* Cuts the bytes that begin texts out of one edge; those that stay go on without more to watch. */
static size_t cut_edge(const automaton_edge *edge, const bool *is_text, automaton_edge *out) {
  size_t n = 0;
  for (int byte = edge->first; byte <= edge->last; byte++) {
    if (is_text[byte])
      continue;
    if (n > 0 && out[n - 1].last == byte - 1)
      out[n - 1].last = (uint8_t)byte;
    else
      out[n++] = (automaton_edge){(uint8_t)byte, (uint8_t)byte, edge->next};
  }
  return n;
}

static uint32_t next_on(const iso_automaton *self, uint32_t state, uint8_t byte) {
  const automaton_state *at = &self->states[state];
  for (uint32_t i = 0; i < at->b; i++) {
    const automaton_edge *edge = &self->edges[at->a + i];
    if (byte >= edge->first && byte <= edge->last)
      return edge->next;
  }
  return AUTOMATON_DEAD;
}

static uint32_t others_from(iso_automaton *self, const automaton_text *texts, size_t n, size_t at,
                            uint32_t free_state, int depth) {
  bool ends = texts[0].length == at, is_text[256] = {false};
  if (depth > MAX_TEXT_LENGTH)
    return too_deep(self, "a name that further ones must differ from is long", MAX_TEXT_LENGTH);
  if (self->status != ISO_OK)
    return AUTOMATON_DEAD;
  automaton_edge edges[768];
  size_t n_edges = 0;
  is_text['"'] = ends;
  for (size_t i = ends, count; i < n; i += count) {
    count = same_byte(texts + i, n - i, at);
    uint8_t byte = (uint8_t)texts[i].data[at];
    is_text[byte] = true;
    uint32_t free_next = next_on(self, free_state, byte);
    edges[n_edges++] = (automaton_edge){
        byte, byte, others_from(self, texts + i, count, at + 1, free_next, depth + 1)};
  }
  for (uint32_t i = 0; i < self->states[free_state].b; i++) {
    const automaton_edge edge = self->edges[self->states[free_state].a + i];
    n_edges += cut_edge(&edge, is_text, edges + n_edges);
  }
  return iso_automaton_switch(self, edges, n_edges);
}

uint32_t iso_automaton_other_texts(iso_automaton *self, const automaton_text *texts, size_t n,
                                   uint32_t free_state) {
  return n > 0 ? others_from(self, texts, n, 0, free_state, 0) : free_state;
}
