/* The inside of a tokenizer, for the files that build and run it. */
#ifndef ISOMER_MODELS_TOKENIZER_TOKENIZER_INTERNAL_H
#define ISOMER_MODELS_TOKENIZER_TOKENIZER_INTERNAL_H

#include "models/tokenizer/tokenizer.h"

struct iso_tokenizer {
  iso_vocabulary vocabulary;
  iso_segmenter segmenter;
  iso_index by_text;         /* every token in use */
  iso_trie added;            /* added tokens, searched for in the raw text */
  iso_trie added_normalized; /* those searched for in normalized text */
  bool byte_level;           /* words reach the model in the byte alphabet */
  iso_text decoded;          /* what each token reads as, one after another */
  size_t *decoded_offsets;   /* [count + 1] */
  iso_ids end_ids;           /* ascending */
};

/* Fills `decoded` and `decoded_offsets`. */
ISO_MUST_CHECK iso_status iso_tokenizer_build_decoded(iso_tokenizer *tokenizer);

/* Walks a text over the added tokens in it: leftmost, then longest. Starts as {0}. */
typedef struct iso_added_walk {
  size_t done;   /* end of the last token, with the space it took along */
  size_t search; /* where to go on searching */
} iso_added_walk;

typedef struct iso_added_match {
  size_t start, end; /* the text of the token, with the space it takes along */
  int32_t id;
} iso_added_match;

/* The next added token; false at the end. The text between walk->done before the call and
 * match->start holds none. */
bool iso_added_next(const iso_tokenizer *tokenizer, const iso_trie *trie, bool parse_special,
                    const char *text, size_t length, iso_added_walk *walk,
                    iso_added_match *out_match);

/* The working memory of one encoding. */
typedef struct iso_encoding {
  const iso_tokenizer *tokenizer;
  bool parse_special;
  iso_matcher *matcher;
  iso_text normalized[2];
  iso_text scratch[2 * ISO_MAX_PRETOKENIZERS];
  iso_text raw; /* ill-formed bytes in the byte alphabet */
  iso_segment_scratch segment;
  iso_ids ids;
} iso_encoding;

ISO_MUST_CHECK iso_status iso_encoding_begin(const iso_tokenizer *tokenizer, iso_encoding *out);
void iso_encoding_end(iso_encoding *encoding);
/* Runs the normalizers: *out_text is `text` itself where there are none, else memory of the
 * encoding, good until the next call. */
ISO_MUST_CHECK iso_status iso_encoding_normalize(iso_encoding *encoding, iso_text_place place,
                                                 const char *text, size_t length,
                                                 const char **out_text, size_t *out_length);

#endif
