/* The tokens of a vocabulary as a tree of their bytes, so that what a grammar says of one beginning
 * is found once for all tokens that share it. Immutable. */
#ifndef ISOMER_ENGINE_GRAMMAR_LEXICON_H
#define ISOMER_ENGINE_GRAMMAR_LEXICON_H

#include "models/tokenizer/tokenizer.h"

/* A node is a byte after the bytes of the nodes above it. Nodes stand in the order of a walk: a
 * node, then all below it. */
typedef struct lexicon_node {
  uint32_t end;  /* the first node that is not below this one */
  int32_t token; /* that ends here; -1: none */
  uint8_t byte;
} lexicon_node;

typedef struct iso_lexicon {
  const iso_tokenizer *tokenizer;
  lexicon_node *nodes;
  uint32_t n_nodes;
  int32_t *same;    /* by token: the next one with the same bytes; -1: none */
  uint32_t *hidden; /* a bit a token: control tokens, which are in the tree and not in texts */
  size_t first_hidden, end_hidden; /* the words of `hidden` that have any */
  size_t depth;                    /* bytes of the longest token */
  int32_t n_vocabulary;
} iso_lexicon;

/* Of the tokens that have bytes. `n_vocabulary`: ids are below it; the
 * tokenizer may have fewer, and outlives the lexicon. About 12 bytes a node, of which there are two
 * or three a token. */
ISO_MUST_CHECK iso_status iso_lexicon_create(const iso_tokenizer *tokenizer, int32_t n_vocabulary,
                                             iso_lexicon *out_lexicon);
void iso_lexicon_destroy(iso_lexicon *lexicon);

#endif
