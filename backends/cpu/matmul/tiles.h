/* AMX tile operations by the names that the kernels use. Registers are numbered 0 to 7 by
 * constants; each is 16 rows of 64 bytes. A test puts an emulation, ISO_TILES_HEADER, in their
 * place. */
#ifndef ISOMER_BACKENDS_CPU_MATMUL_TILES_H
#define ISOMER_BACKENDS_CPU_MATMUL_TILES_H

#if defined(ISO_TILES_HEADER)
#include ISO_TILES_HEADER
#else
#include <immintrin.h>
#include <stdint.h>

/* Configures this thread's tiles: 8 of 16 rows of 64 bytes. */
static inline void tile_begin(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  /* The intrinsic only says that it reads the first 8 bytes. */
  __asm__ volatile("" ::"r"(&config) : "memory");
  _tile_loadconfig(&config);
}

/* Gives the tiles back, so that the kernel need not save them any more. */
static inline void tile_end(void) { _tile_release(); }

#define tile_load(tile, from, stride) _tile_loadd(tile, from, (long)(stride))
#define tile_store(tile, to, stride) _tile_stored(tile, to, (long)(stride))
#define tile_zero(tile) _tile_zero(tile)
/* sums[16][16] f32 += a[16][32] bf16 times b[16][16][2] bf16, pairs of k in b. */
#define tile_dot_bf16(sums, a, b) _tile_dpbf16ps(sums, a, b)
/* sums[16][16] int32 += a[16][64] int8 times b[16][16][4] int8, fours of k in b. */
#define tile_dot_int8(sums, a, b) _tile_dpbssd(sums, a, b)
/* The same of uint8 in b. */
#define tile_dot_mixed(sums, a, b) _tile_dpbsud(sums, a, b)
/* Orders loads of tiles after what C wrote before; the intrinsics of compilers say nothing of it.
 */
#define tile_fence() __asm__ volatile("" ::: "memory")
#endif

#endif
