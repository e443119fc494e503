#include "engine/ngrams.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_CAPACITY = 1024, MOST_LOOKED_AT = 128, MOST_WITNESSES = 4 };

void iso_ngrams_destroy(iso_ngrams *ngrams) {
  free(ngrams->before);
  *ngrams = (iso_ngrams){0};
}

/* Room for n tokens, all of which are to be taken in anew: buckets are as many as tokens. */
static iso_status grow(iso_ngrams *ngrams, int32_t n) {
  size_t capacity = LEAST_CAPACITY;
  while (capacity < (size_t)n)
    capacity *= 2;
  iso_ngrams_destroy(ngrams);
  int32_t *block = calloc(2 + 3 * capacity + capacity / 4, sizeof *block);
  if (!block || capacity > INT32_MAX / 2) {
    free(block);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to find drafts among %d tokens", n);
  }
  *ngrams = (iso_ngrams){.capacity = (int32_t)capacity,
                         .before = block,
                         .before_single = block + 1 + capacity,
                         .pairs = block + 2 * (1 + capacity),
                         .singles = block + 2 + 3 * capacity};
  return ISO_OK;
}

/* A bucket of `count`, a power of two. Multiplied by odd constants: the high bits are mixed. */
static uint32_t bucket_of(uint32_t first, uint32_t second, int32_t count) {
  uint32_t mixed = (first * 0x9E3779B1u ^ second) * 0x85EBCA6Bu;
  return (mixed ^ mixed >> 15) & ((uint32_t)count - 1);
}

iso_status iso_ngrams_add(iso_ngrams *ngrams, const int32_t *tokens, int32_t n) {
  if (ngrams->match > 0)
    ngrams->match += n - ngrams->n;
  int32_t match = ngrams->match;
  if (n > ngrams->capacity)
    ISO_TRY(grow(ngrams, n));
  ngrams->match = match;
  for (int32_t place = ngrams->n + 1; place <= n; place++) {
    uint32_t token = (uint32_t)tokens[place - 1];
    int32_t *single = &ngrams->singles[bucket_of(token, 0, ngrams->capacity / 4)];
    ngrams->before_single[place] = *single;
    *single = place;
    if (place < 2)
      continue;
    int32_t *latest =
        &ngrams->pairs[bucket_of(token, (uint32_t)tokens[place - 2], ngrams->capacity)];
    ngrams->before[place] = *latest;
    *latest = place;
  }
  ngrams->n = n;
  return ISO_OK;
}

/* Tokens before `place` that are those before the end. */
static int32_t agreement(const iso_ngrams *ngrams, const int32_t *tokens, int32_t place) {
  const int32_t *a = tokens + place, *b = tokens + ngrams->n;
  int32_t most = place < ISO_NGRAMS_LONGEST ? place : ISO_NGRAMS_LONGEST, length = 0;
  while (length < most && a[-1 - length] == b[-1 - length])
    length++;
  return length;
}

/* Whether most of the latest places that end like the row, by a pair or by a token, go on otherwise
 * than the place that was found; that one and a few others are asked. */
static bool is_disputed(const iso_ngrams *ngrams, const int32_t *tokens, iso_ngram_match found) {
  int32_t shared = found.length < 2 ? 1 : 2, n_seen = 0, n_looked_at = 0, balance = 0;
  const int32_t *before = shared == 1 ? ngrams->before_single : ngrams->before;
  for (int32_t place = before[ngrams->n];
       place > 0 && n_seen < MOST_WITNESSES && n_looked_at++ < MOST_LOOKED_AT;
       place = before[place]) {
    if (agreement(ngrams, tokens, place) < shared)
      continue;
    n_seen++;
    if (place != found.place)
      balance += tokens[place] == tokens[found.place] ? -1 : 1;
  }
  return balance > 0;
}

iso_ngram_match iso_ngrams_find(iso_ngrams *ngrams, const int32_t *tokens) {
  iso_ngram_match best = {0};
  int32_t n_looked_at = 0;
  if (ngrams->n == 0)
    return best;
  for (int32_t place = ngrams->before[ngrams->n];
       place > 0 && best.length < ISO_NGRAMS_LONGEST && n_looked_at++ < MOST_LOOKED_AT;
       place = ngrams->before[place]) {
    int32_t length = agreement(ngrams, tokens, place);
    if (length > best.length)
      best = (iso_ngram_match){place, length, false};
  }
  if (ngrams->match > 0) {
    int32_t length = agreement(ngrams, tokens, ngrams->match);
    if (length > best.length)
      best = (iso_ngram_match){ngrams->match, length, false};
  }
  n_looked_at = 0;
  for (int32_t place = ngrams->before_single[ngrams->n];
       place > 0 && best.length == 0 && n_looked_at++ < MOST_LOOKED_AT;
       place = ngrams->before_single[place])
    if (tokens[place - 1] == tokens[ngrams->n - 1])
      best = (iso_ngram_match){place, 1, false};
  ngrams->match = best.place;
  best.is_disputed = best.place > 0 && is_disputed(ngrams, tokens, best);
  return best;
}
