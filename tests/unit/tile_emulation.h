/* AMX tiles in plain C, in place of backends/cpu/matmul/tiles.h. */
#ifndef ISOMER_TESTS_UNIT_TILE_EMULATION_H
#define ISOMER_TESTS_UNIT_TILE_EMULATION_H

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

static inline float emulated_bf16(const uint8_t *from) {
  uint32_t bits = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 24;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Products before tile_begin() are wrong on purpose: the CPU would fault. */
static inline void tile_dot_bf16(int sums, int a, int b) {
  for (int row = 0; row < 16; row++)
    for (int column = 0; column < 16; column++) {
      float sum;
      memcpy(&sum, emulated_tiles[sums].rows[row] + 4 * column, sizeof sum);
      for (int k = 0; k < 16 && emulated_tiles_ready; k++)
        for (int odd = 0; odd < 2; odd++)
          sum += emulated_bf16(emulated_tiles[a].rows[row] + 4 * k + 2 * odd) *
                 emulated_bf16(emulated_tiles[b].rows[k] + 4 * column + 2 * odd);
      memcpy(emulated_tiles[sums].rows[row] + 4 * column, &sum, sizeof sum);
    }
}

static inline void tile_dot_int8(int sums, int a, int b) {
  for (int row = 0; row < 16; row++)
    for (int column = 0; column < 16; column++) {
      int32_t sum;
      memcpy(&sum, emulated_tiles[sums].rows[row] + 4 * column, sizeof sum);
      for (int k = 0; k < 64 && emulated_tiles_ready; k++)
        sum += (int8_t)emulated_tiles[a].rows[row][k] *
               (int8_t)emulated_tiles[b].rows[k / 4][4 * column + k % 4];
      memcpy(emulated_tiles[sums].rows[row] + 4 * column, &sum, sizeof sum);
    }
}

#endif
