/* The models: a word to token ids.
 *
 *   ranked BPE      merges listed in order (Hugging Face "BPE", GGUF "gpt2")
 *   scored BPE      neighbours merge when their text is a piece, best score first (SentencePiece)
 *   unigram         the path of best total score (Viterbi), in 64-bit or 32-bit floats as Hugging
 *                   Face and SentencePiece have it, so that ties fall the same way
 *
 * All are O(n log n) or O(n * longest piece) in the word's bytes, whatever it holds. */
#ifndef ISOMER_MODELS_TOKENIZER_SEGMENT_H
#define ISOMER_MODELS_TOKENIZER_SEGMENT_H

#include "models/tokenizer/lookup.h"
#include "models/tokenizer/text.h"

typedef enum iso_segmenter_kind {
  ISO_SEGMENTER_RANKED_BPE,
  ISO_SEGMENTER_SCORED_BPE,
  ISO_SEGMENTER_UNIGRAM
} iso_segmenter_kind;

/* A model, immutable. Everything in it belongs to the tokenizer. */
typedef struct iso_segmenter {
  iso_segmenter_kind kind;
  iso_index pieces;       /* texts that words can be made of */
  iso_merge_table merges; /* RANKED_BPE */
  iso_trie trie;          /* UNIGRAM: the same texts as `pieces` */
  iso_trie symbols;       /* SCORED_BPE: user-defined symbols, which neither split nor merge */
  const double *scores;   /* by id; SCORED_BPE, UNIGRAM */
  double unknown_score;   /* UNIGRAM */
  int32_t byte_ids[256];  /* the token of one raw byte; -1 where there is none */
  int32_t unknown_id;     /* -1: characters without a token are dropped */
  bool byte_fallback;     /* unknown characters become the tokens of their bytes */
  bool fuse_unknown;      /* neighbouring unknown characters are one token */
  bool whole_word_first;  /* RANKED_BPE: a word that is a token needs no merges */
  bool single_precision;  /* UNIGRAM: SentencePiece's floats */
  /* BPE over U+2581: no piece runs from another character into a U+2581, but for the characters in
   * `uncut`. So words can be cut before each, which changes no id and keeps the heap small. */
  bool cut_at_metaspace;
  uint8_t uncut_count;
  uint32_t uncut[8];
} iso_segmenter;

typedef struct iso_ids {
  int32_t *data;
  size_t length, capacity;
} iso_ids;

ISO_MUST_CHECK iso_status iso_ids_push(iso_ids *ids, int32_t id);

/* Working memory, kept from word to word. Starts as {0}. */
typedef struct iso_segment_scratch {
  struct iso_merge_symbol *symbols;
  size_t symbol_capacity;
  struct iso_candidate *heap;
  size_t heap_length, heap_capacity;
  struct iso_path_node *path;
  size_t path_capacity;
} iso_segment_scratch;
void iso_segment_scratch_free(iso_segment_scratch *scratch);

/* Longest word, in bytes. */
#define ISO_MAX_WORD (1u << 28)

/* Appends the ids of `word`, well formed UTF-8 of at most ISO_MAX_WORD bytes. UNSUPPORTED where an
 * unknown character meets a unigram model without an unknown token. */
ISO_MUST_CHECK iso_status iso_segment(const iso_segmenter *segmenter, iso_segment_scratch *scratch,
                                      const char *word, size_t length, iso_ids *ids);
ISO_MUST_CHECK iso_status iso_segment_bpe(const iso_segmenter *segmenter,
                                          iso_segment_scratch *scratch, const char *word,
                                          size_t length, iso_ids *ids);
ISO_MUST_CHECK iso_status iso_segment_unigram(const iso_segmenter *segmenter,
                                              iso_segment_scratch *scratch, const char *word,
                                              size_t length, iso_ids *ids);

/* Appends the tokens of raw bytes. *out_known is false, with nothing appended, where a byte has no
 * token. */
ISO_MUST_CHECK iso_status iso_segment_bytes(const iso_segmenter *segmenter, const char *bytes,
                                            size_t length, iso_ids *ids, bool *out_known);

#endif
