/* Normalizers: text to text, before it is split into words.
 *
 * Each kind is a component of Hugging Face tokenizers of the same name, except SENTENCEPIECE, the
 * whole of SentencePiece's own normalization (map, spaces trimmed and collapsed, dummy prefix,
 * space to U+2581). */
#ifndef ISOMER_MODELS_TOKENIZER_NORMALIZER_H
#define ISOMER_MODELS_TOKENIZER_NORMALIZER_H

#include "models/tokenizer/charsmap.h"
#include "models/tokenizer/lookup.h"
#include "models/tokenizer/regex.h"

/* U+2581, which stands for a space in SentencePiece vocabularies. */
#define ISO_METASPACE "\xE2\x96\x81"

typedef enum iso_normalizer_kind {
  ISO_NORMALIZER_NFC,
  ISO_NORMALIZER_NFD,
  ISO_NORMALIZER_NFKC,
  ISO_NORMALIZER_NFKD,
  ISO_NORMALIZER_LOWERCASE,     /* each code point alone: no final sigma */
  ISO_NORMALIZER_STRIP_ACCENTS, /* removes category M */
  ISO_NORMALIZER_STRIP,         /* White_Space at the ends: `left`, `right` */
  ISO_NORMALIZER_NMT,           /* drops controls, makes odd spaces plain */
  ISO_NORMALIZER_PREPEND,       /* `content` before a text that is not empty */
  ISO_NORMALIZER_REPLACE,       /* every match of `regex` by `content` */
  ISO_NORMALIZER_PRECOMPILED,   /* `charsmap`, as Hugging Face applies it: by grapheme */
  ISO_NORMALIZER_BYTE_LEVEL,
  ISO_NORMALIZER_SENTENCEPIECE
} iso_normalizer_kind;

typedef struct iso_normalizer {
  iso_normalizer_kind kind;
  bool left, right;             /* STRIP */
  bool dummy_prefix;            /* SENTENCEPIECE: before each text between added tokens */
  bool only_first;              /* SENTENCEPIECE: the prefix, before the very start alone */
  bool remove_extra_whitespace; /* SENTENCEPIECE: trim, and one space for a run */
  iso_text content;             /* PREPEND, REPLACE; owned */
  iso_regex *regex;             /* REPLACE; owned */
  iso_charsmap charsmap;        /* PRECOMPILED, SENTENCEPIECE; owned */
  iso_trie symbols;             /* SENTENCEPIECE: user-defined symbols, left as they are; owned */
} iso_normalizer;

void iso_normalizer_free(iso_normalizer *normalizer);

/* Where the text stands in what the caller wants encoded. */
typedef enum iso_text_place {
  ISO_TEXT_FIRST,       /* at the very start */
  ISO_TEXT_AFTER_TOKEN, /* after an added token */
  ISO_TEXT_CONTINUED    /* after bytes that are not UTF-8: nothing may be put before it */
} iso_text_place;

/* Appends the normal form of well formed UTF-8 to `out`, well formed too. O(n log n). */
ISO_MUST_CHECK iso_status iso_normalizer_apply(const iso_normalizer *normalizer,
                                               iso_matcher *matcher, iso_text_place place,
                                               const char *text, size_t length, iso_text *out);

/* Appends `text` with every match of `regex` replaced. */
ISO_MUST_CHECK iso_status iso_text_replace(const iso_regex *regex, iso_matcher *matcher,
                                           const iso_text *replacement, const char *text,
                                           size_t length, iso_text *out);

/* Appends a Unicode normalization form (UAX 15), of utf8proc's Unicode version. Canonical ordering
 * is a stable counting sort, so that a megabyte of combining marks costs no more than letters. */
ISO_MUST_CHECK iso_status iso_unicode_normalize(const char *text, size_t length, bool compatible,
                                                bool compose, iso_text *out);

#endif
