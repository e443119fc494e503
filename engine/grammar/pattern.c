#include "engine/grammar/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "engine/grammar/json_rules.h"
#include "models/tokenizer/text.h"

enum { MAX_DEPTH = 32, MAX_REPEATS = 1024, NO_LIMIT = -1 };

typedef enum node_kind {
  NODE_EMPTY,
  NODE_SET,
  NODE_TEXT,
  NODE_SEQUENCE,
  NODE_EITHER,
  NODE_REPEAT
} node_kind;

/* A piece of a pattern; a and b are nodes. */
typedef struct pattern_node {
  node_kind kind;
  int a, b;
  int least, most;          /* REPEAT of a */
  automaton_characters set; /* SET */
  char text[4];             /* TEXT: one character beyond ASCII */
  size_t length;
} pattern_node;

typedef struct pattern_parser {
  iso_automaton *automaton;
  const char *pattern, *at;
  pattern_node *nodes;
  size_t n_nodes, capacity;
  int depth;
} pattern_parser;

/* ---- Parsing ------------------------------------------------------------------------------- */

static int refuse(pattern_parser *self, const char *what) {
  if (self->automaton->status == ISO_OK)
    self->automaton->status =
        iso_fail(ISO_ERROR_UNSUPPORTED, "the pattern \"%.200s\" has %s at byte %zu", self->pattern,
                 what, (size_t)(self->at - self->pattern));
  return 0;
}

static int add(pattern_parser *self, pattern_node node) {
  if (self->automaton->status == ISO_OK)
    self->automaton->status = iso_array_grow((void **)&self->nodes, &self->capacity,
                                             self->n_nodes + 1, sizeof *self->nodes);
  if (self->automaton->status != ISO_OK)
    return 0;
  self->nodes[self->n_nodes] = node;
  return (int)self->n_nodes++;
}

static void include(automaton_characters *set, int first, int last) {
  for (int c = first; c <= last; c++)
    set->ascii[c / 64] |= UINT64_C(1) << c % 64;
}

static void include_set(automaton_characters *set, automaton_characters other) {
  set->ascii[0] |= other.ascii[0];
  set->ascii[1] |= other.ascii[1];
  set->others |= other.others;
}

static automaton_characters complement(automaton_characters set) {
  return (automaton_characters){{~set.ascii[0] & ~UINT64_C(1), ~set.ascii[1]},
                                AUTOMATON_ALL_OTHERS ^ set.others};
}

/* \d \w \s and their complements. Engines differ in what of these is beyond ASCII, so that of the
 * first two and their complements nothing beyond ASCII is written. */
static bool class_of(char letter, automaton_characters *out_set) {
  automaton_characters set = {{0, 0}, 0};
  switch (letter | 32) {
  case 'd':
    include(&set, '0', '9');
    break;
  case 'w':
    include(&set, '0', '9');
    include(&set, 'a', 'z');
    include(&set, 'A', 'Z');
    include(&set, '_', '_');
    break;
  case 's':
    include(&set, '\t', '\r');
    include(&set, ' ', ' ');
    set.others = AUTOMATON_BLANK_OTHERS;
    break;
  default:
    return false;
  }
  if ((letter & 32) == 0) {
    set = complement(set);
    set.others = letter == 'S' ? set.others : 0;
  }
  *out_set = set;
  return true;
}

/* The character that an escape stands for; -1: none. */
static int escaped(char letter) {
  const char *from = "tnrfv", *to = "\t\n\r\f\v", *found = letter ? strchr(from, letter) : NULL;
  if (found)
    return to[found - from];
  bool is_word = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                 (letter >= 'A' && letter <= 'Z');
  return letter > 32 && !is_word ? letter : -1;
}

/* One member of a class: a set, or the character *out_first. */
static bool read_member(pattern_parser *self, automaton_characters *out_set, int *out_first) {
  *out_first = -1;
  char c = *self->at++;
  if (c == '\\') {
    char letter = *self->at;
    if (letter)
      self->at++;
    if (class_of(letter, out_set))
      return true;
    *out_first = letter == 'b' ? '\b' : escaped(letter);
    if (*out_first < 0)
      refuse(self, "an escape that is not supported");
    return *out_first >= 0;
  }
  if (c <= 0) {
    self->at--;
    refuse(self, c == 0 ? "a class without its end" : "a class with more than ASCII");
    return false;
  }
  *out_first = c;
  return true;
}

static int read_class(pattern_parser *self) {
  automaton_characters set = {{0, 0}, 0}, some = {{0, 0}, 0};
  bool is_negated = *self->at == '^', has_words = false;
  self->at += is_negated;
  while (*self->at != ']') {
    int first, last;
    if (!read_member(self, &some, &first))
      return 0;
    if (first < 0) {
      include_set(&set, some);
      has_words |= some.others == 0;
      if (is_negated && self->at[-1] < 'a')
        return refuse(self, "a class that excludes an excluding one");
      continue;
    }
    last = first;
    if (self->at[0] == '-' && self->at[1] && self->at[1] != ']') {
      self->at++;
      if (!read_member(self, &some, &last))
        return 0;
      if (last < first)
        return refuse(self, "a range that is none");
    }
    include(&set, first, last);
  }
  self->at++;
  set = is_negated ? complement(set) : set;
  if (is_negated && has_words)
    set.others = 0;
  return add(self, (pattern_node){.kind = NODE_SET, .set = set});
}

static int read_either(pattern_parser *self);

static int read_group(pattern_parser *self) {
  if (self->at[0] == '?' && self->at[1] != ':')
    return refuse(self, "a group that looks ahead, or is named");
  if (self->at[0] == '?')
    self->at += 2;
  if (++self->depth > MAX_DEPTH)
    return refuse(self, "too many groups in each other");
  int node = read_either(self);
  self->depth--;
  if (*self->at != ')')
    return refuse(self, "a group without its end");
  self->at++;
  return node;
}

static int read_character(pattern_parser *self, char c) {
  automaton_characters set = {{0, 0}, 0};
  if (c == '.') { /* no line ends, of which there are two beyond ASCII */
    include(&set, '\n', '\n');
    include(&set, '\r', '\r');
    set.others = AUTOMATON_BLANK_OTHERS;
    set = complement(set);
  } else if (c == '\\' && class_of(*self->at, &set)) {
    self->at++;
  } else {
    int plain = c;
    if (c == '\\' && (plain = escaped(*self->at++)) < 0) {
      self->at--;
      return refuse(self, "an escape that is not supported");
    }
    include(&set, plain, plain);
  }
  return add(self, (pattern_node){.kind = NODE_SET, .set = set});
}

static int read_atom(pattern_parser *self) {
  char c = *self->at++;
  if (c == '(')
    return read_group(self);
  if (c == '[')
    return read_class(self);
  if (c > 0 && !strchr("*+?{}^$|)", c))
    return read_character(self, c);
  self->at--;
  if (c > 0)
    return refuse(self, "a sign that is not supported there");
  uint32_t code_point;
  pattern_node node = {.kind = NODE_TEXT};
  node.length = iso_utf8_decode(self->at, strlen(self->at), &code_point);
  memcpy(node.text, self->at, node.length);
  self->at += node.length;
  return node.length > 0 ? add(self, node) : refuse(self, "bytes that are no text");
}

static bool read_count(pattern_parser *self, int *out_count) {
  int count = 0, n = 0;
  for (; *self->at >= '0' && *self->at <= '9' && count <= MAX_REPEATS; self->at++, n++)
    count = count * 10 + (*self->at - '0');
  *out_count = count;
  return n > 0 && count <= MAX_REPEATS;
}

static bool read_bounds(pattern_parser *self, int *out_least, int *out_most) {
  if (!read_count(self, out_least))
    return false;
  *out_most = *out_least;
  if (*self->at == ',') {
    self->at++;
    *out_most = NO_LIMIT;
    if (*self->at != '}' && !read_count(self, out_most))
      return false;
  }
  if (*self->at != '}')
    return false;
  self->at++;
  return *out_most == NO_LIMIT || *out_most >= *out_least;
}

static int read_repeated(pattern_parser *self) {
  int node = read_atom(self);
  if (self->automaton->status != ISO_OK || !*self->at || !strchr("*+?{", *self->at))
    return node;
  pattern_node repeat = {.kind = NODE_REPEAT, .a = node, .most = NO_LIMIT};
  char sign = *self->at++;
  repeat.least = sign == '+';
  if (sign == '?')
    repeat.most = 1;
  if (sign == '{' && !read_bounds(self, &repeat.least, &repeat.most))
    return refuse(self, "a count that is not supported");
  if (*self->at == '?') /* lazy: the same strings */
    self->at++;
  return add(self, repeat);
}

static int read_sequence(pattern_parser *self) {
  int node = add(self, (pattern_node){.kind = NODE_EMPTY});
  while (*self->at && *self->at != '|' && *self->at != ')' && self->automaton->status == ISO_OK) {
    if (self->at[0] == '$' && self->at[1] == 0)
      break;
    int next = read_repeated(self);
    node = add(self, (pattern_node){.kind = NODE_SEQUENCE, .a = node, .b = next});
  }
  return node;
}

static int read_either(pattern_parser *self) {
  int node = read_sequence(self);
  while (*self->at == '|' && self->automaton->status == ISO_OK) {
    self->at++;
    int other = read_sequence(self);
    node = add(self, (pattern_node){.kind = NODE_EITHER, .a = node, .b = other});
  }
  return node;
}

/* ---- Building ------------------------------------------------------------------------------ */

/* A sequence is a chain along `a`, from its end: only groups recurse. */
static uint32_t build(pattern_parser *self, int index, uint32_t next) {
  iso_automaton *automaton = self->automaton;
  for (; automaton->status == ISO_OK && self->nodes[index].kind == NODE_SEQUENCE;
       index = self->nodes[index].a)
    next = build(self, self->nodes[index].b, next);
  if (automaton->status != ISO_OK)
    return AUTOMATON_DEAD;
  const pattern_node *node = &self->nodes[index];
  uint32_t other = AUTOMATON_DEAD;
  switch (node->kind) {
  case NODE_SET:
    return iso_automaton_character(automaton, node->set, NULL, next);
  case NODE_TEXT:
    return iso_automaton_literal(automaton, node->text, node->length, next);
  case NODE_EITHER:
    for (; node->kind == NODE_EITHER; node = &self->nodes[index = node->a])
      other = iso_automaton_split(automaton, build(self, node->b, next), other);
    return iso_automaton_split(automaton, build(self, index, next), other);
  case NODE_REPEAT: {
    uint32_t state = next;
    if (node->most == NO_LIMIT) {
      state = iso_automaton_loop(automaton, next);
      iso_automaton_close_loop(automaton, state, build(self, node->a, state));
    }
    for (int i = node->most - node->least; i > 0 && automaton->status == ISO_OK; i--)
      state = iso_automaton_split(automaton, build(self, node->a, state), next);
    for (int i = node->least; i > 0 && automaton->status == ISO_OK; i--)
      state = build(self, node->a, state);
    return state;
  }
  case NODE_EMPTY:
  case NODE_SEQUENCE:
    break;
  }
  return next;
}

/* "a|^b" would be bound in one branch only. */
static bool has_bare_either(const pattern_parser *self, int index) {
  return self->nodes[index].kind == NODE_EITHER;
}

uint32_t iso_pattern_add(iso_automaton *automaton, const char *pattern, uint32_t next) {
  pattern_parser self = {.automaton = automaton, .pattern = pattern, .at = pattern};
  bool from_start = *self.at == '^';
  self.at += from_start;
  int root = read_either(&self);
  bool to_end = self.at[0] == '$' && self.at[1] == 0;
  if (automaton->status == ISO_OK && *self.at && !to_end)
    refuse(&self, "a parenthesis too many");
  if (automaton->status == ISO_OK && (from_start || to_end) && has_bare_either(&self, root))
    refuse(&self, "alternatives beside ^ or $; put them into a group");
  uint32_t state = AUTOMATON_DEAD;
  if (automaton->status == ISO_OK) {
    const automaton_characters any = iso_automaton_any_character();
    state = to_end ? iso_automaton_range(automaton, '"', '"', next)
                   : iso_automaton_call(automaton, JSON_STRING_REST, next);
    state = build(&self, root, state);
    if (!from_start) {
      uint32_t loop = iso_automaton_loop(automaton, state);
      iso_automaton_close_loop(automaton, loop,
                               iso_automaton_character(automaton, any, NULL, loop));
      state = loop;
    }
  }
  free(self.nodes);
  return state;
}
