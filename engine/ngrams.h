/* Where a growing row of tokens has said before what it ends in, found without reading it again. */
#ifndef ISOMER_ENGINE_NGRAMS_H
#define ISOMER_ENGINE_NGRAMS_H

#include <isomer/status.h>

/* No match is longer. */
enum { ISO_NGRAMS_LONGEST = 24 };

/* Pairs of tokens by hash, and tokens, those of a bucket linked from the latest to the first. A
 * place is the index behind a pair or a token; 0: none. Zero-initialised is empty. */
typedef struct iso_ngrams {
  int32_t n;              /* tokens in it */
  int32_t capacity;       /* a power of two */
  int32_t *before;        /* [capacity + 1] the place before place i in its bucket of pairs */
  int32_t *before_single; /* [capacity + 1] the same in its bucket of tokens */
  int32_t *pairs;         /* [capacity] the latest place of a bucket of pairs */
  int32_t *singles;       /* [capacity / 4] the same of tokens */
  int32_t match;          /* the place found last, moved along since */
} iso_ngrams;

typedef struct iso_ngram_match {
  int32_t place;    /* 0: none */
  int32_t length;   /* tokens before it that are those at the end */
  bool is_disputed; /* most of the latest places that end in the same pair, or in the same token
                       where no more agrees, go on otherwise than this one */
} iso_ngram_match;

void iso_ngrams_destroy(iso_ngrams *ngrams);

/* Takes in tokens[ngrams->n] to tokens[n - 1]; those before are as they were. Time is that of new
 * tokens, memory 13 bytes a token at the next power of two. OUT_OF_MEMORY leaves it empty. */
ISO_MUST_CHECK iso_status iso_ngrams_add(iso_ngrams *ngrams, const int32_t *tokens, int32_t n);

/* The earlier place behind which the row goes on as it may go on at its end: the one that agrees
 * for longest with what the row ends in, the latest of several. At most 128 places are looked at,
 * the latest ones, and the one found last time: so time has a bound. `tokens` are those taken in.
 */
iso_ngram_match iso_ngrams_find(iso_ngrams *ngrams, const int32_t *tokens);

#endif
