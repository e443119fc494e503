/* Rows of random matrices, in any scheme, as fast as they can be written.
 *
 * Encoding billions of random numbers would take longer than writing them. So a fixed set of short
 * segments is drawn and encoded once for each scheme and row length, and a row is a random choice
 * among them, segment by segment: with thousands to choose from and dozens to choose, no two rows
 * are alike and the matrix has full rank; a small matrix takes each segment once. Everything comes
 * from Philox and integer arithmetic, and so is the same on every machine. */
#ifndef ISOMER_TOOLS_SYNTH_ROWS_H
#define ISOMER_TOOLS_SYNTH_ROWS_H

#include <isomer/quant.h>

/* Segments of one scheme for rows of one length: near-normal numbers of variance 1 / columns, which
 * keeps products of unit vectors at unit size. */
typedef struct iso_synth_segments {
  iso_scheme scheme;
  int64_t columns;
  uint32_t elements, bytes; /* of a segment; whole blocks */
  uint32_t count;           /* a power of two, at most 2^16 */
  uint8_t *data;
} iso_synth_segments;

/* `columns` must be whole blocks of the scheme. */
ISO_MUST_CHECK iso_status iso_synth_segments_create(uint64_t seed, iso_scheme scheme,
                                                    int64_t columns,
                                                    iso_synth_segments *out_segments);
void iso_synth_segments_free(iso_synth_segments *segments);

/* Writes row `row` of the n_rows of the matrix that `key` names: iso_scheme_row_bytes() bytes. */
void iso_synth_fill_row(const iso_synth_segments *segments, uint64_t key, int64_t n_rows,
                        int64_t row, uint8_t *out_row);
/* Writes `count` numbers, multiples of 1/64 in [center - 1/4, center + 1/4], which every plain
 * float holds exactly: norms and biases. */
void iso_synth_fill_vector(uint64_t key, float center, int64_t count, float *out_values);
/* The key of a tensor: a hash (FNV-1a) of seed and name. */
uint64_t iso_synth_key(uint64_t seed, const char *name);

#endif
