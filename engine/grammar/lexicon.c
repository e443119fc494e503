#include "engine/grammar/lexicon.h"

#include <stdlib.h>
#include <string.h>

typedef struct word {
  const char *bytes;
  size_t length;
  int32_t token;
} word;

static int by_bytes(const void *a, const void *b) {
  const word *x = a, *y = b;
  int order = memcmp(x->bytes, y->bytes, x->length < y->length ? x->length : y->length);
  if (order != 0)
    return order;
  if (x->length != y->length)
    return x->length < y->length ? -1 : 1;
  return x->token < y->token ? -1 : x->token > y->token;
}

static size_t read_words(const iso_tokenizer *tokenizer, int32_t n_vocabulary, word *words,
                         uint32_t *hidden) {
  int32_t size = iso_tokenizer_vocabulary_size(tokenizer);
  size_t n = 0;
  for (int32_t token = 0; token < size && token < n_vocabulary; token++) {
    word *each = &words[n];
    each->bytes = iso_tokenizer_token_bytes(tokenizer, token, &each->length);
    each->token = token;
    n += each->bytes && each->length > 0 && token != iso_tokenizer_unknown_id(tokenizer);
    if (iso_tokenizer_is_control(tokenizer, token))
      hidden[token / 32] |= 1u << token % 32;
  }
  qsort(words, n, sizeof *words, by_bytes);
  return n;
}

static void find_hidden(iso_lexicon *self) {
  size_t n = (size_t)self->n_vocabulary / 32 + 1;
  while (self->first_hidden < n && self->hidden[self->first_hidden] == 0)
    self->first_hidden++;
  for (self->end_hidden = n; self->end_hidden > self->first_hidden; self->end_hidden--)
    if (self->hidden[self->end_hidden - 1])
      return;
}

static size_t shared_length(const word *a, const word *b) {
  size_t n = 0;
  while (n < a->length && n < b->length && a->bytes[n] == b->bytes[n])
    n++;
  return n;
}

static uint64_t count_nodes(const word *words, size_t n) {
  uint64_t count = 0;
  for (size_t i = 0; i < n; i++)
    count += words[i].length - (i > 0 ? shared_length(&words[i - 1], &words[i]) : 0);
  return count;
}

/* `open`: the nodes above, one a byte. */
static void fill(iso_lexicon *self, const word *words, size_t n, uint32_t *open) {
  size_t depth = 0;
  for (size_t i = 0; i < n; i++) {
    size_t shared = i > 0 ? shared_length(&words[i - 1], &words[i]) : 0;
    if (i > 0 && shared == words[i].length) { /* the same bytes again */
      self->same[words[i].token] = self->nodes[open[shared - 1]].token;
      self->nodes[open[shared - 1]].token = words[i].token;
      continue;
    }
    while (depth > shared)
      self->nodes[open[--depth]].end = self->n_nodes;
    for (; depth < words[i].length; depth++) {
      open[depth] = self->n_nodes;
      self->nodes[self->n_nodes++] =
          (lexicon_node){.token = -1, .byte = (uint8_t)words[i].bytes[depth]};
    }
    self->nodes[self->n_nodes - 1].token = words[i].token;
  }
  while (depth > 0)
    self->nodes[open[--depth]].end = self->n_nodes;
}

static iso_status build(iso_lexicon *self, const word *words, size_t n) {
  uint64_t count = count_nodes(words, n);
  if (count > UINT32_MAX / sizeof(lexicon_node))
    return iso_fail(ISO_ERROR_LIMIT, "the tokens have %llu bytes", (unsigned long long)count);
  for (size_t i = 0; i < n; i++)
    self->depth = words[i].length > self->depth ? words[i].length : self->depth;
  self->nodes = malloc((size_t)count * sizeof *self->nodes + 1);
  uint32_t *open = malloc(self->depth * sizeof *open + 1);
  if (self->nodes && open)
    fill(self, words, n, open);
  free(open);
  return self->nodes && open ? ISO_OK
                             : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %llu nodes",
                                        (unsigned long long)count);
}

iso_status iso_lexicon_create(const iso_tokenizer *tokenizer, int32_t n_vocabulary,
                              iso_lexicon *out_lexicon) {
  iso_lexicon self = {.tokenizer = tokenizer, .n_vocabulary = n_vocabulary};
  size_t n = (size_t)n_vocabulary;
  word *words = malloc((n + 1) * sizeof *words);
  self.same = malloc((n + 1) * sizeof *self.same);
  self.hidden = calloc(n / 32 + 1, sizeof *self.hidden);
  iso_status status = ISO_OK;
  if (words && self.same && self.hidden) {
    memset(self.same, 0xff, n * sizeof *self.same);
    status = build(&self, words, read_words(tokenizer, n_vocabulary, words, self.hidden));
    find_hidden(&self);
  } else {
    status = iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %zu tokens", n);
  }
  free(words);
  if (status != ISO_OK)
    iso_lexicon_destroy(&self);
  *out_lexicon = self;
  return status;
}

void iso_lexicon_destroy(iso_lexicon *self) {
  free(self->nodes);
  free(self->same);
  free(self->hidden);
  *self = (iso_lexicon){0};
}
