/* Tokenizers: text to token ids and back, as the model was trained.
 *
 * A tokenizer is immutable once made: any number of threads may use it at once. Ids equal those of
 * Hugging Face tokenizers (or of sentencepiece, for its model files) on well formed UTF-8. What
 * they do not define is defined here:
 *
 * - Bytes that are not UTF-8 are encoded, never refused. They are cut out as words of their own,
 *   past normalizers and pre-tokenizers: a byte-level model gives their byte tokens (merged as it
 *   merges), a model with byte fallback its byte tokens, others what they give U+FFFD.
 * - A text that already starts with BOS gets no second one.
 * - Special tokens in a text are text, unless ISO_TOKENIZE_PARSE_SPECIAL is given. Added tokens
 *   that are not special are always found, as Hugging Face does.
 * - SentencePiece's dummy prefix goes before the start of a text and after each added token within
 *   it: what models were trained on is BOS, then a text as the library encodes it. A folder whose
 *   tokenizer_config.json has "legacy" false wants it before the very start alone; a tokenizer.json
 *   says itself what it wants.
 * - Components that are not supported are refused by name when the tokenizer is made. */
#ifndef ISOMER_MODELS_TOKENIZER_TOKENIZER_H
#define ISOMER_MODELS_TOKENIZER_TOKENIZER_H

#include "models/tokenizer/vocabulary.h"

typedef struct iso_tokenizer iso_tokenizer;

/* Takes over `vocabulary`, which is left empty, on failure too. */
ISO_MUST_CHECK iso_status iso_tokenizer_create(iso_vocabulary *vocabulary,
                                               iso_tokenizer **out_tokenizer);
/* From a Hugging Face folder: tokenizer.json, or else tokenizer.model; tokenizer_config.json and
 * generation_config.json where present. NOT_FOUND names the file that is missing. */
ISO_MUST_CHECK iso_status iso_tokenizer_create_from_folder(const char *path,
                                                           iso_tokenizer **out_tokenizer);
/* From a GGUF file's metadata (models/formats/gguf.h), which may be closed afterwards. */
typedef struct iso_gguf iso_gguf;
ISO_MUST_CHECK iso_status iso_tokenizer_create_from_gguf(const iso_gguf *gguf,
                                                         iso_tokenizer **out_tokenizer);
void iso_tokenizer_destroy(iso_tokenizer *tokenizer);

#define ISO_TOKENIZE_ADD_SPECIAL 1u   /* BOS, EOS: what the model expects around a text */
#define ISO_TOKENIZE_PARSE_SPECIAL 2u /* the text of a special token becomes that token */
/* More is to follow: nothing is added behind the text, such as the EOS that models for embeddings
 * and for training expect. */
#define ISO_TOKENIZE_OPEN_END 4u

/* Longest text, in bytes. */
#define ISO_MAX_TOKENIZER_TEXT ((size_t)64 << 20)

/* Encodes `length` bytes, NUL bytes too. *out_ids is malloc'ed (NULL when empty), the caller frees
 * it. O(n log n) time; memory about 100 times the text at worst. LIMIT for a longer text, or for a
 * pattern of the tokenizer's that runs into a bound. */
ISO_MUST_CHECK iso_status iso_tokenizer_encode(const iso_tokenizer *tokenizer, const char *text,
                                               size_t length, uint32_t flags, int32_t **out_ids,
                                               size_t *out_count);

#define ISO_DETOKENIZE_SKIP_SPECIAL 1u /* special tokens give no text */
/* The text goes on from an earlier one: a leading space is kept, where at the start of a text
 * SentencePiece's dummy prefix would be taken off. */
#define ISO_DETOKENIZE_CONTINUE 2u

/* Decodes ids to UTF-8; what is not UTF-8 becomes U+FFFD, one a maximal ill-formed subpart.
 * *out_text is malloc'ed and NUL-terminated, the caller frees it. INVALID_ARGUMENT for an id that
 * the tokenizer does not have. */
ISO_MUST_CHECK iso_status iso_tokenizer_decode(const iso_tokenizer *tokenizer, const int32_t *ids,
                                               size_t count, uint32_t flags, char **out_text,
                                               size_t *out_length);

/* Ids are 0 .. size - 1. A model's embedding may have more rows: ids that are only padding. */
int32_t iso_tokenizer_vocabulary_size(const iso_tokenizer *tokenizer);
/* -1 where the model has none. */
int32_t iso_tokenizer_bos_id(const iso_tokenizer *tokenizer);
int32_t iso_tokenizer_eos_id(const iso_tokenizer *tokenizer);
int32_t iso_tokenizer_pad_id(const iso_tokenizer *tokenizer);
int32_t iso_tokenizer_unknown_id(const iso_tokenizer *tokenizer);
/* Whether ISO_TOKENIZE_ADD_SPECIAL puts BOS before a text. */
bool iso_tokenizer_adds_bos(const iso_tokenizer *tokenizer);
/* Whether generation ends with this token: EOS, those the files name, and the end-of-turn tokens
 * of end_tokens.def. False for ids outside the vocabulary. */
bool iso_tokenizer_is_end(const iso_tokenizer *tokenizer, int32_t id);
/* All of them, ascending; they belong to the tokenizer. */
const int32_t *iso_tokenizer_end_ids(const iso_tokenizer *tokenizer, size_t *out_count);
/* Whether the token is special: found only when asked for, and left out of skipped output. */
bool iso_tokenizer_is_control(const iso_tokenizer *tokenizer, int32_t id);
/* The id whose text, as the vocabulary writes it ("<|im_end|>", U+2581 for a space in
 * SentencePiece), is `text`; -1 when there is none. */
int32_t iso_tokenizer_find(const iso_tokenizer *tokenizer, const char *text, size_t length);
/* The vocabulary's text of a token, not NUL-terminated; NULL outside the vocabulary. */
const char *iso_tokenizer_token_text(const iso_tokenizer *tokenizer, int32_t id,
                                     size_t *out_length);
/* The bytes that a token reads as, perhaps part of a code point, not NUL-terminated; NULL outside
 * the vocabulary. For grammars and stop strings. */
const char *iso_tokenizer_token_bytes(const iso_tokenizer *tokenizer, int32_t id,
                                      size_t *out_length);

/* Decoding as ids arrive. Only whole code points come out: a cut sequence waits for its rest. What
 * push and finish append, joined, is what iso_tokenizer_decode gives for all ids at once. Plain
 * data, no memory of its own; one thread at a time. */
typedef struct iso_detokenizer {
  const iso_tokenizer *tokenizer;
  uint32_t flags;
  uint32_t trim_left; /* spaces that may still be taken off */
  bool at_start;      /* nothing written yet */
  uint8_t pending_length;
  char pending[4];
} iso_detokenizer;

void iso_detokenizer_init(iso_detokenizer *detokenizer, const iso_tokenizer *tokenizer,
                          uint32_t flags);
/* Behind init: the text goes on from that of `ids`, and is at its start only if that is empty.
 * Unknown ids are passed over. */
void iso_detokenizer_go_on(iso_detokenizer *detokenizer, const int32_t *ids, size_t count);
/* Appends what id completes to `out`. INVALID_ARGUMENT, with no change, for an unknown id. */
ISO_MUST_CHECK iso_status iso_detokenizer_push(iso_detokenizer *detokenizer, int32_t id,
                                               iso_text *out);
/* Appends U+FFFD for a sequence that was left cut. */
ISO_MUST_CHECK iso_status iso_detokenizer_finish(iso_detokenizer *detokenizer, iso_text *out);

#endif
