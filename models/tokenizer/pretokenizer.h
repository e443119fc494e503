/* Pre-tokenizers: a normalized text to the words that the model sees, one after another.
 *
 * Every component of Hugging Face tokenizers comes down to three kinds. Splits are chained: each
 * step sees the pieces of the step before as texts of their own. */
#ifndef ISOMER_MODELS_TOKENIZER_PRETOKENIZER_H
#define ISOMER_MODELS_TOKENIZER_PRETOKENIZER_H

#include "models/tokenizer/normalizer.h"

/* What becomes of a match of the pattern. */
typedef enum iso_split_behavior {
  ISO_SPLIT_REMOVED,
  ISO_SPLIT_ISOLATED,
  ISO_SPLIT_MERGED_WITH_PREVIOUS,
  ISO_SPLIT_MERGED_WITH_NEXT,
  ISO_SPLIT_CONTIGUOUS /* neighbouring matches become one piece */
} iso_split_behavior;

typedef enum iso_prepend_scheme {
  ISO_PREPEND_NEVER,
  ISO_PREPEND_FIRST, /* only at the very start of the text */
  ISO_PREPEND_ALWAYS
} iso_prepend_scheme;

typedef enum iso_pretokenizer_kind {
  ISO_PRETOKENIZER_SPLIT,
  ISO_PRETOKENIZER_BYTE_LEVEL, /* `prefix` " ", then `regex` if any (isolated), then bytes */
  ISO_PRETOKENIZER_METASPACE   /* space to `replacement`, `prefix` it, `regex` merged with next */
} iso_pretokenizer_kind;

typedef struct iso_pretokenizer {
  iso_pretokenizer_kind kind;
  iso_split_behavior behavior; /* SPLIT */
  bool invert;                 /* SPLIT: what does not match is the match */
  iso_prepend_scheme prefix;
  iso_regex *regex; /* owned; NULL: no split */
  char replacement[4];
  uint8_t replacement_length;
} iso_pretokenizer;

void iso_pretokenizer_free(iso_pretokenizer *pretokenizer);

/* Most steps of a chain, Sequences flattened. */
#define ISO_MAX_PRETOKENIZERS 32

/* Takes one word, never empty; the bytes are gone after the call. */
typedef iso_status (*iso_word_sink)(void *context, const char *word, size_t length);

/* A chain at work. */
typedef struct iso_pretokenizer_run {
  const iso_pretokenizer *steps;
  size_t count;
  iso_matcher *matcher;
  iso_text *scratch; /* two texts a step, kept by the caller from call to call */
  iso_word_sink sink;
  void *sink_context;
} iso_pretokenizer_run;

/* Runs the chain over a well formed text and hands each word to the sink, in order. */
ISO_MUST_CHECK iso_status iso_pretokenize(const iso_pretokenizer_run *run, iso_text_place place,
                                          const char *text, size_t length);

#endif
