/* AMX tiles by AVX-512 with VNNI and BF16, in place of backends/cpu/matmul/tiles.h. */
#ifndef ISOMER_TESTS_UNIT_TILE_EMULATION_H
#define ISOMER_TESTS_UNIT_TILE_EMULATION_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef struct emulated_tile {
  uint8_t rows[16][64];
} emulated_tile;

static _Thread_local emulated_tile emulated_tiles[8];
static _Thread_local int emulated_tiles_ready;

static inline void tile_begin(void) {
  memset(emulated_tiles, 0xff, sizeof emulated_tiles);
  emulated_tiles_ready = 1;
}

static inline void tile_end(void) { emulated_tiles_ready = 0; }

static inline void tile_load(int tile, const void *from, long stride) {
  for (int row = 0; row < 16; row++)
    memcpy(emulated_tiles[tile].rows[row], (const uint8_t *)from + row * stride, 64);
}

static inline void tile_store(int tile, void *to, long stride) {
  for (int row = 0; row < 16; row++)
    memcpy((uint8_t *)to + row * stride, emulated_tiles[tile].rows[row], 64);
}

static inline void tile_zero(int tile) { memset(&emulated_tiles[tile], 0, sizeof(emulated_tile)); }

static inline void tile_fence(void) {}

/* The vectors' own dot products, a row of sums at a time. Products before tile_begin() are wrong on
 * purpose: the CPU would fault. */
static inline __m512i emulated_row(int tile, int row) {
  return _mm512_loadu_si512(emulated_tiles[tile].rows[row]);
}

static inline int32_t emulated_word(int tile, int row, int k) {
  int32_t word;
  memcpy(&word, emulated_tiles[tile].rows[row] + 4 * k, sizeof word);
  return word;
}

static inline void tile_dot_bf16(int sums, int a, int b) {
  for (int row = 0; row < 16; row++) {
    __m512 sum = _mm512_castsi512_ps(emulated_row(sums, row));
    for (int k = 0; k < 16 && emulated_tiles_ready; k++)
      sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(emulated_word(a, row, k)),
                             (__m512bh)emulated_row(b, k));
    _mm512_storeu_ps(emulated_tiles[sums].rows[row], sum);
  }
}

/* One side is unsigned there: a + 128, less 128 b. */
static inline void tile_dot_int8(int sums, int a, int b) {
  const __m512i center = _mm512_set1_epi8((char)0x80);
  __m512i excess = _mm512_setzero_si512();
  for (int k = 0; k < 16; k++)
    excess = _mm512_dpbusd_epi32(excess, center, emulated_row(b, k));
  for (int row = 0; row < 16 && emulated_tiles_ready; row++) {
    __m512i sum = _mm512_sub_epi32(emulated_row(sums, row), excess);
    for (int k = 0; k < 16; k++)
      sum = _mm512_dpbusd_epi32(
          sum, _mm512_xor_si512(center, _mm512_set1_epi32(emulated_word(a, row, k))),
          emulated_row(b, k));
    _mm512_storeu_si512(emulated_tiles[sums].rows[row], sum);
  }
}

static inline void tile_dot_mixed(int sums, int a, int b) {
  for (int row = 0; row < 16; row++)
    for (int column = 0; column < 16; column++) {
      int32_t sum;
      memcpy(&sum, emulated_tiles[sums].rows[row] + 4 * column, sizeof sum);
      for (int k = 0; k < 64 && emulated_tiles_ready; k++)
        sum += (int8_t)emulated_tiles[a].rows[row][k] *
               emulated_tiles[b].rows[k / 4][4 * column + k % 4];
      memcpy(emulated_tiles[sums].rows[row] + 4 * column, &sum, sizeof sum);
    }
}

#endif
