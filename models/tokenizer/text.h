/* Growable bytes and arrays, and strict UTF-8, as every step of a tokenizer needs them. */
#ifndef ISOMER_MODELS_TOKENIZER_TEXT_H
#define ISOMER_MODELS_TOKENIZER_TEXT_H

#include <isomer/status.h>

/* Bytes that grow. Starts as {0}; iso_text_free returns it to that. Never NUL-terminated. */
typedef struct iso_text {
  char *data;
  size_t length, capacity;
} iso_text;

/* Most bytes of one text: what normalization may blow a text up to, and a vocabulary's texts. */
#define ISO_MAX_TEXT_BYTES (1u << 30)

/* Makes room for `extra` more bytes. LIMIT past ISO_MAX_TEXT_BYTES. */
ISO_MUST_CHECK iso_status iso_text_reserve(iso_text *text, size_t extra);
ISO_MUST_CHECK iso_status iso_text_append(iso_text *text, const void *data, size_t length);
/* Appends one code point as UTF-8. */
ISO_MUST_CHECK iso_status iso_text_append_code_point(iso_text *text, uint32_t code_point);
void iso_text_free(iso_text *text);

/* Grows *array (of *capacity elements of `element` bytes) until it holds `count`; new elements
 * are not initialised. On failure nothing changes. */
ISO_MUST_CHECK iso_status iso_array_grow(void **array, size_t *capacity, size_t count,
                                         size_t element);

/* Decodes the code point at the start of `text`. Returns its bytes, 1 to 4, or 0 where no well
 * formed one starts: overlong forms, surrogates, values past U+10FFFF, a cut sequence. */
size_t iso_utf8_decode(const char *text, size_t length, uint32_t *out_code_point);
/* Encodes a code point up to U+10FFFF; returns its bytes, 1 to 4. */
size_t iso_utf8_encode(uint32_t code_point, char out_bytes[4]);
/* Bytes of the longest well formed prefix that ends between code points. */
size_t iso_utf8_valid_prefix(const char *text, size_t length);
/* Start of the code point that ends right before `position` (> 0), in well formed UTF-8; in
 * broken UTF-8 the byte before `position`. */
size_t iso_utf8_previous(const char *text, size_t position);
/* Bytes, 1 to 3, of the maximal ill-formed subpart (Unicode 3.9, U+FFFD substitution) at the
 * start of `text`, where iso_utf8_decode returned 0. *out_cut tells that `length` ended it: more
 * bytes could have made it well formed. */
size_t iso_utf8_ill_formed(const char *text, size_t length, bool *out_cut);
/* Length of the sequence that a leading byte announces; 1 for bytes that cannot lead. */
static inline size_t iso_utf8_length_of(uint8_t byte) {
  return byte < 0xC2 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : byte < 0xF5 ? 4 : 1;
}

/* Whether a byte of UTF-8 is within a code point, not its first. */
static inline bool iso_utf8_continues(char byte) { return ((uint8_t)byte & 0xC0) == 0x80; }

/* Unicode White_Space. */
bool iso_code_point_is_space(uint32_t code_point);

#endif
