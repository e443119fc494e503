/* SentencePiece's precompiled normalization map: prefixes of text to replacements.
 *
 * Layout: u32 little-endian size of the trie in bytes; the trie, an array of u32 units of a
 * Darts-clone double array; the replacements, each ended by NUL. A trie value is the offset of a
 * replacement. A unit holds, from the low end: 8 bits of label, bit 8 "a value hangs here", bit 9
 * "the offset is shifted left by 8", 22 bits of offset; a value unit has bit 31 set and 31 bits of
 * value. The child of unit u by byte c is at index(u) ^ offset(u) ^ c. */
#ifndef ISOMER_MODELS_TOKENIZER_CHARSMAP_H
#define ISOMER_MODELS_TOKENIZER_CHARSMAP_H

#include "models/tokenizer/text.h"

typedef struct iso_charsmap {
  uint32_t *units;
  uint32_t unit_count; /* 0: no map, nothing is replaced */
  char *replacements;
  size_t replacements_size; /* the last byte is NUL */
} iso_charsmap;

/* Copies the map out of `data`. CORRUPT_DATA where the sizes do not add up or the replacements
 * are not UTF-8. */
ISO_MUST_CHECK iso_status iso_charsmap_create(const void *data, size_t size, iso_charsmap *out_map);
void iso_charsmap_free(iso_charsmap *map);

/* A prefix that the map replaces. */
typedef struct iso_charsmap_match {
  size_t length; /* bytes of text; 0: no prefix is in the map */
  const char *replacement;
  size_t replacement_length;
} iso_charsmap_match;

/* The shortest or the longest prefix of `text` in the map. A trie broken on purpose cannot lead
 * outside of it; it only fails to match. */
iso_charsmap_match iso_charsmap_find(const iso_charsmap *map, const char *text, size_t length,
                                     bool longest);

#endif
