/* From published layouts to blocks of 128. */
#include "models/quantized.h"

#include "quant/blocks.h"

#include <string.h>

static int64_t place(const iso_quantized_grid *grid, int64_t row, int64_t column) {
  return row / grid->row_group * grid->row_stride +
         column / grid->column_group * grid->column_stride;
}

static uint32_t word_at(const iso_quantized_grid *grid, int64_t at) {
  uint32_t word;
  memcpy(&word, (const uint8_t *)grid->tensor->data + at * 4, sizeof word);
  return word;
}

/* Which nibble of its word is at (row, column). */
static int nibble_of(iso_nibble_order order, int64_t row, int64_t column) {
  static const int awq_places[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  return order == ISO_NIBBLES_ALONG_COLUMNS ? (int)(column % 8)
         : order == ISO_NIBBLES_ALONG_ROWS  ? (int)(row % 8)
                                            : awq_places[row % 8];
}

static int nibble(const iso_quantized_grid *grid, iso_nibble_order order, int64_t row,
                  int64_t column) {
  return (int)(word_at(grid, place(grid, row, column)) >> 4 * nibble_of(order, row, column) & 15);
}

/* A group's codes, its words walked along and not each looked up: a model has billions. A word holds
 * eight columns of a row, or one. */
static void get_codes(const iso_quantized_tensor *q, int64_t row, int64_t column,
                      uint8_t codes[ISO_GROUP_ELEMENTS]) {
  const iso_quantized_grid *grid = &q->codes;
  int64_t at = place(grid, row, column);
  if (q->code_order == ISO_NIBBLES_ALONG_COLUMNS) {
    for (int i = 0; i < ISO_GROUP_ELEMENTS; i += 8, at += grid->column_stride) {
      uint32_t word = word_at(grid, at);
      for (int j = 0; j < 8; j++)
        codes[i + j] = (uint8_t)(word >> 4 * j & 15);
    }
    return;
  }
  int shift = 4 * nibble_of(q->code_order, row, column);
  for (int i = 0; i < ISO_GROUP_ELEMENTS; i++, at += grid->column_stride)
    codes[i] = (uint8_t)(word_at(grid, at) >> shift & 15);
}

static float scale_at(const iso_quantized_grid *grid, int64_t row, int64_t column) {
  uint32_t bytes = iso_scheme_get_info(grid->tensor->scheme)->block_bytes;
  float scale;
  iso_scheme_decode_row(grid->tensor->scheme,
                        (const uint8_t *)grid->tensor->data + place(grid, row, column) * bytes,
                        &scale, 1);
  return scale;
}

/* Halves and bfloat16 scales are exact; of f32 ones, 19 bits of significand are kept. */
static void put_nibbles(const iso_quantized_tensor *q, int64_t row, int64_t column, float scale,
                        int zero, uint8_t *out) {
  iso_block_i4_g128 block;
  memcpy(&block.scale_zero, &scale, sizeof scale);
  block.scale_zero = ((block.scale_zero + ISO_I4_ZERO_MASK / 2 + 1) & ~ISO_I4_ZERO_MASK) |
                     (uint32_t)zero;
  uint8_t codes[ISO_GROUP_ELEMENTS];
  get_codes(q, row, column, codes);
  for (int half = 0; half < 2; half++)
    for (int i = 0; i < 32; i++)
      block.codes[half * 32 + i] =
          (uint8_t)(codes[half * 64 + i] | codes[half * 64 + 32 + i] << 4);
  memcpy(out, &block, sizeof block);
}

void iso_quantized_repack(const iso_quantized_tensor *q, void *out) {
  int64_t rows = q->tensor.dims[0], columns = q->tensor.dims[1];
  uint32_t block_bytes = iso_scheme_get_info(q->tensor.scheme)->block_bytes;
  bool nibbles = q->tensor.scheme == ISO_SCHEME_I4_G128;
  uint8_t *block = out;
  for (int64_t row = 0; row < rows; row++)
    for (int64_t column = 0; column < columns; column += ISO_GROUP_ELEMENTS, block += block_bytes) {
      float scale = scale_at(&q->scales, row, column);
      if (nibbles) {
        int zero = q->zero_offset;
        if (q->zeros.tensor)
          zero += nibble(&q->zeros, q->zero_order, row, column);
        put_nibbles(q, row, column, scale, zero, block);
      } else {
        memcpy(block, &scale, sizeof scale);
        memcpy(block + sizeof scale,
               (const uint8_t *)q->codes.tensor->data + row * columns + column,
               ISO_GROUP_ELEMENTS);
      }
    }
}
