/* The byte alphabet of GPT-2: every byte is written as one printable code point.
 *
 * Bytes that print in Latin-1 (33-126, 161-172, 174-255) stand for themselves; the other 68, in
 * order, are U+0100 to U+0143. Two UTF-8 bytes at most. */
#ifndef ISOMER_MODELS_TOKENIZER_BYTE_LEVEL_H
#define ISOMER_MODELS_TOKENIZER_BYTE_LEVEL_H

#include "models/tokenizer/text.h"

/* Appends `length` bytes, each as its code point. */
ISO_MUST_CHECK iso_status iso_byte_level_encode(const char *bytes, size_t length, iso_text *out);
/* Appends the bytes that `text` stands for. False, with nothing appended, when it holds anything
 * but code points of the alphabet. */
ISO_MUST_CHECK iso_status iso_byte_level_decode(const char *text, size_t length, iso_text *out,
                                                bool *out_decoded);

#endif
