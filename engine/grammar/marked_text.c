#include "engine/grammar/marked_text.h"

#include <string.h>

/* The free states: text whose last k bytes are the mark's first k (Knuth, Morris and Pratt). */
typedef struct free_text {
  const char *mark;
  size_t length;
  uint32_t states[ISO_MARK_MAX]; /* loops; one may end at each */
  uint32_t held;                 /* what follows the mark */
} free_text;

static uint32_t maybe_blank(iso_automaton *automaton, uint32_t next) {
  const automaton_edge edges[2] = {{' ', ' ', next}, {'\n', '\n', next}};
  return iso_automaton_split(automaton, next, iso_automaton_switch(automaton, edges, 2));
}

/* How much of the mark ends with `byte`, its first `k` bytes having come. */
static size_t matched(const free_text *self, size_t k, uint8_t byte) {
  char text[ISO_MARK_MAX + 1];
  memcpy(text, self->mark, k);
  text[k] = (char)byte;
  size_t n = k + 1;
  while (n > 0 && memcmp(text + k + 1 - n, self->mark, n) != 0)
    n--;
  return n;
}

/* The bytes of state k; `skipped` is left out (-1: none), blanks lead to `blank` (DEAD: as others).
 */
static uint32_t free_bytes(iso_automaton *automaton, const free_text *self, size_t k, int skipped,
                           uint32_t blank) {
  automaton_edge edges[256];
  size_t n = 0;
  for (int byte = 0; byte < 256; byte++) {
    size_t next = matched(self, k, (uint8_t)byte);
    uint32_t state = next == self->length ? self->held : self->states[next];
    if (blank != AUTOMATON_DEAD && byte && strchr(" \t\r\n", byte))
      state = blank;
    if (byte == skipped)
      continue;
    if (n > 0 && edges[n - 1].last == byte - 1 && edges[n - 1].next == state)
      edges[n - 1].last = (uint8_t)byte;
    else
      edges[n++] = (automaton_edge){(uint8_t)byte, (uint8_t)byte, state};
  }
  return iso_automaton_switch(automaton, edges, n);
}

uint32_t iso_marked_text_add(iso_automaton *automaton, const iso_marks *marks, uint32_t rule) {
  free_text self = {.mark = marks->begin, .length = strlen(marks->begin)};
  if (self.length == 0 || self.length > ISO_MARK_MAX) {
    if (automaton->status == ISO_OK)
      automaton->status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a mark has %zu bytes, of 1 to %d",
                                   self.length, ISO_MARK_MAX);
    return AUTOMATON_DEAD;
  }
  for (size_t k = 0; k < self.length; k++)
    self.states[k] = iso_automaton_loop(automaton, AUTOMATON_END);
  uint32_t after = AUTOMATON_END;
  if (marks->end)
    after = iso_automaton_literal(automaton, marks->end, strlen(marks->end), self.states[0]);
  uint32_t held = iso_automaton_call(automaton, rule, maybe_blank(automaton, after));
  self.held = maybe_blank(automaton, held);
  for (size_t k = 0; k < self.length; k++)
    iso_automaton_close_loop(automaton, self.states[k],
                             free_bytes(automaton, &self, k, -1, AUTOMATON_DEAD));
  if (!marks->is_bare)
    return self.states[0];
  uint32_t start = iso_automaton_loop(automaton, AUTOMATON_END);
  uint32_t text = free_bytes(automaton, &self, 0, '{', start);
  uint32_t call = iso_automaton_call(automaton, rule, AUTOMATON_END);
  iso_automaton_close_loop(automaton, start, iso_automaton_split(automaton, text, call));
  return start;
}
