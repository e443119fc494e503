/* What a tokenizer is made of, as plain data: the form that every file format is read into, and
 * that iso_tokenizer_create turns into indexes. One thread builds it. */
#ifndef ISOMER_MODELS_TOKENIZER_VOCABULARY_H
#define ISOMER_MODELS_TOKENIZER_VOCABULARY_H

#include "models/tokenizer/pretokenizer.h"
#include "models/tokenizer/segment.h"

/* Numbered as in SentencePiece and GGUF. */
typedef enum iso_token_type {
  ISO_TOKEN_NORMAL = 1,
  ISO_TOKEN_UNKNOWN = 2,
  ISO_TOKEN_CONTROL = 3,
  ISO_TOKEN_USER_DEFINED = 4,
  ISO_TOKEN_UNUSED = 5, /* an id that no text becomes */
  ISO_TOKEN_BYTE = 6
} iso_token_type;

/* How an added token is found in text; 0: it is not searched for. */
enum {
  ISO_TOKEN_ADDED = 1 << 0,       /* cut out of the text before the model sees it */
  ISO_TOKEN_SPECIAL = 1 << 1,     /* only when special tokens are to be parsed; not printed */
  ISO_TOKEN_NORMALIZED = 1 << 2,  /* its normal form, searched for in normalized text */
  ISO_TOKEN_STRIP_LEFT = 1 << 3,  /* takes the white space before it along */
  ISO_TOKEN_STRIP_RIGHT = 1 << 4, /* and after it */
  ISO_TOKEN_SINGLE_WORD = 1 << 5  /* not beside a word character */
};

typedef struct iso_token {
  size_t offset; /* into iso_vocabulary.text */
  uint32_t length;
  uint8_t type;  /* iso_token_type */
  uint8_t flags; /* ISO_TOKEN_... */
  bool in_model; /* the model can produce it; false for tokens that exist only as added ones */
} iso_token;

/* Whether words can become this token. Byte, control and unknown tokens are reached by other ways.
 */
static inline bool iso_token_is_piece(const iso_token *token) {
  return token->in_model &&
         (token->type == ISO_TOKEN_NORMAL || token->type == ISO_TOKEN_USER_DEFINED);
}

/* How a token reads once decoded. */
typedef enum iso_decode_kind {
  ISO_DECODE_REPLACE,       /* `regex` by `content` in each token */
  ISO_DECODE_BYTE_LEVEL,    /* the byte alphabet back to bytes */
  ISO_DECODE_BYTE_FALLBACK, /* "<0x41>" to its byte */
  ISO_DECODE_STRIP          /* up to `start` and `stop` of `content` at the ends of each token */
} iso_decode_kind;

typedef struct iso_decode_step {
  iso_decode_kind kind;
  iso_regex *regex; /* REPLACE; owned */
  iso_text content; /* REPLACE, STRIP; owned */
  uint32_t start, stop;
} iso_decode_step;

/* What is left out at the start of a decoded text. */
typedef enum iso_decode_trim {
  ISO_TRIM_NOTHING,
  ISO_TRIM_SPACES,       /* up to `trim_count` spaces */
  ISO_TRIM_SPACE_A_TOKEN /* one at the start of each token, until something is written */
} iso_decode_trim;

#define ISO_MAX_STEPS 32
/* Most tokens; the largest vocabularies known have 262,144. */
#define ISO_MAX_TOKENS (1 << 24)
/* Longest token in bytes; the longest known have some hundred. */
#define ISO_MAX_TOKEN_LENGTH 65535u
/* Longest added token: their search is O(text * longest). */
#define ISO_MAX_ADDED_TOKEN_LENGTH 1024u
/* Most ids put before or after a text. */
#define ISO_MAX_AFFIX 8

typedef struct iso_vocabulary {
  iso_segmenter_kind kind;
  iso_token *tokens; /* by id */
  double *scores;    /* by id, same capacity; SCORED_BPE and UNIGRAM */
  size_t count, token_capacity, score_capacity;
  iso_text text; /* the tokens' bytes */
  iso_merge *merges;
  size_t merge_count, merge_capacity;

  int32_t bos_id, eos_id, unknown_id, pad_id; /* -1: none */
  iso_ids end_ids; /* ends of generation that the file names, beside eos_id */
  int32_t prefix[ISO_MAX_AFFIX], suffix[ISO_MAX_AFFIX]; /* put around a text when asked */
  size_t prefix_count, suffix_count;
  bool byte_fallback, fuse_unknown, whole_word_first, single_precision;
  bool symbols_in_model; /* user-defined tokens are the model's business, not cut out before */

  iso_normalizer normalizers[ISO_MAX_STEPS];
  size_t normalizer_count;
  iso_pretokenizer pretokenizers[ISO_MAX_PRETOKENIZERS];
  size_t pretokenizer_count;
  iso_decode_step decoders[ISO_MAX_STEPS]; /* each token alone */
  size_t decoder_count;
  bool decoders_joined; /* while reading: the last step made one text of all tokens */
  iso_decode_trim trim;
  uint32_t trim_count;
  iso_text unknown_text; /* how the unknown token reads; empty: as its text */
} iso_vocabulary;

/* Empty: no tokens, no special ids. */
void iso_vocabulary_init(iso_vocabulary *vocabulary);
void iso_vocabulary_free(iso_vocabulary *vocabulary);

/* Appends a token; its id is the count before. Fails past ISO_MAX_TOKENS or ISO_MAX_TOKEN_LENGTH.
 */
ISO_MUST_CHECK iso_status iso_vocabulary_add(iso_vocabulary *vocabulary, const char *text,
                                             size_t length, iso_token_type type, double score);
/* Sets the text of token `id`, appending unused tokens up to it. */
ISO_MUST_CHECK iso_status iso_vocabulary_set(iso_vocabulary *vocabulary, int32_t id,
                                             const char *text, size_t length, iso_token_type type,
                                             double score);
static inline const char *iso_vocabulary_text(const iso_vocabulary *vocabulary, int32_t id) {
  return vocabulary->text.data + vocabulary->tokens[id].offset;
}

/* An index over the tokens that the model can produce, or, with `added` true, over all that are
 * in use. It borrows the tokens' bytes: while it is alive no token may be added, but for what
 * vocabulary->text had room for before. */
ISO_MUST_CHECK iso_status iso_vocabulary_index(const iso_vocabulary *vocabulary, bool added,
                                               iso_index *out_index);

/* Appends a merge given as texts, with the index over the model's tokens. CORRUPT_DATA where a
 * part or the whole is not a token. */
ISO_MUST_CHECK iso_status iso_vocabulary_add_merge(iso_vocabulary *vocabulary,
                                                   const iso_index *index, const char *left,
                                                   size_t left_length, const char *right,
                                                   size_t right_length);
/* The same from "left right", cut at the first space that is not at the start. */
ISO_MUST_CHECK iso_status iso_vocabulary_add_merge_line(iso_vocabulary *vocabulary,
                                                        const iso_index *index, const char *line,
                                                        size_t length);

/* Appends a step; UNSUPPORTED past the maximum. *out_step is zeroed and belongs to `vocabulary`. */
ISO_MUST_CHECK iso_status iso_vocabulary_add_normalizer(iso_vocabulary *vocabulary,
                                                        iso_normalizer_kind kind,
                                                        iso_normalizer **out_step);
ISO_MUST_CHECK iso_status iso_vocabulary_add_pretokenizer(iso_vocabulary *vocabulary,
                                                          iso_pretokenizer_kind kind,
                                                          iso_pretokenizer **out_step);
/* Appends a split by `pattern`. */
ISO_MUST_CHECK iso_status iso_vocabulary_add_split(iso_vocabulary *vocabulary, const char *pattern,
                                                   iso_split_behavior behavior, bool invert);
ISO_MUST_CHECK iso_status iso_vocabulary_add_decoder(iso_vocabulary *vocabulary,
                                                     iso_decode_kind kind,
                                                     iso_decode_step **out_step);

/* GPT-2's own pattern, which the ByteLevel component has built in. */
#define ISO_GPT2_PATTERN                                                                           \
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Adds the splits, normalizers and defaults of a GGUF `tokenizer.ggml.pre` name, byte level
 * included. UNSUPPORTED, with the name, when it is not in pretokenizers.def. *out_add_bos is the
 * family's default where the file does not say. */
ISO_MUST_CHECK iso_status iso_vocabulary_use_pretokenizer(iso_vocabulary *vocabulary,
                                                          const char *name, size_t length,
                                                          bool *out_add_bos);
/* The names it knows; NULL past the last. */
const char *iso_pretokenizer_name_at(size_t index);

/* Adds what a SentencePiece vocabulary needs around its model: the normalizer (with `charsmap`,
 * may be NULL), and the decoder. */
typedef struct iso_sentencepiece_options {
  const void *charsmap;
  size_t charsmap_size;
  bool dummy_prefix, remove_extra_whitespace;
} iso_sentencepiece_options;
ISO_MUST_CHECK iso_status iso_vocabulary_use_sentencepiece(
    iso_vocabulary *vocabulary, const iso_sentencepiece_options *options);

/* Fills an initialised vocabulary. The caller frees it, after a failure too.
 *
 * A SentencePiece model file (sentencepiece_model.proto). */
ISO_MUST_CHECK iso_status iso_vocabulary_read_sentencepiece(const void *data, size_t size,
                                                            iso_vocabulary *vocabulary);
/* A Hugging Face tokenizer.json. */
ISO_MUST_CHECK iso_status iso_vocabulary_read_json(const char *text, size_t length,
                                                   iso_vocabulary *vocabulary);

#endif
