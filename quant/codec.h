/* What one storage scheme supplies: a decoder and an encoder over whole blocks.
 *
 * Every scheme of schemes.def has one file that defines `iso_codec_<name>`; scheme.c collects
 * them by that name, so a scheme without a codec does not link. Both functions are pure, keep no
 * state, and may run on any number of threads at once. Neither side of the bytes is aligned. */
#ifndef ISOMER_QUANT_CODEC_H
#define ISOMER_QUANT_CODEC_H

#include <isomer/quant.h>
#include <string.h>

typedef struct iso_scheme_codec {
  /* Reads `blocks` blocks from `source`, writes blocks x block_elements values. */
  void (*decode)(const void *source, float *out_values, int64_t blocks);
  /* Reads blocks x block_elements values (and as many importances unless NULL), writes `blocks`
   * blocks. Every input is legal; quant.h says what becomes of NaN and infinities. */
  void (*encode)(const float *values, const float *importance, void *out_blocks, int64_t blocks);
} iso_scheme_codec;

#define ISO_SCHEME(NAME, name, gguf_type, block_elements, block_bytes, kind)                       \
  extern const iso_scheme_codec iso_codec_##name;
#include <isomer/schemes.def>
#undef ISO_SCHEME

/* Defines iso_codec_<name> of a block scheme from two static functions over one aligned block:
 *   void <name>_decode(const iso_block_<name> *block, float *out_values);
 *   void <name>_encode(const float *values, const float *importance, iso_block_<name> *out_block);
 * The loop over a row, and its lack of alignment, are handled here once. */
#define ISO_DEFINE_BLOCK_CODEC(name, elements)                                                     \
  static void name##_decode_row(const void *source, float *out_values, int64_t blocks) {           \
    const char *from = (const char *)source;                                                       \
    for (; blocks > 0; blocks--, from += sizeof(iso_block_##name), out_values += (elements)) {     \
      iso_block_##name block;                                                                      \
      memcpy(&block, from, sizeof block);                                                          \
      name##_decode(&block, out_values);                                                           \
    }                                                                                              \
  }                                                                                                \
  static void name##_encode_row(const float *values, const float *importance, void *out_blocks,    \
                                int64_t blocks) {                                                  \
    char *to = (char *)out_blocks;                                                                 \
    for (; blocks > 0; blocks--, to += sizeof(iso_block_##name), values += (elements)) {           \
      iso_block_##name block;                                                                      \
      name##_encode(values, importance, &block);                                                   \
      memcpy(to, &block, sizeof block);                                                            \
      if (importance)                                                                              \
        importance += (elements);                                                                  \
    }                                                                                              \
  }                                                                                                \
  const iso_scheme_codec iso_codec_##name = {name##_decode_row, name##_encode_row};

#endif
