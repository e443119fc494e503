/* Packing that two schemes share. Every code is within its bits. */
#ifndef ISOMER_QUANT_PACK_H
#define ISOMER_QUANT_PACK_H

#include <stdint.h>
#include <string.h>

/* 5-bit codes of Q5_0 and Q5_1: nibbles as in Q4_0, fifth bits in four bytes of their own. */
static inline void iso_pack_five_bit(const uint8_t codes[32], uint8_t out_high[4],
                                     uint8_t out_nibbles[16]) {
  memset(out_high, 0, 4);
  for (int i = 0; i < 16; i++)
    out_nibbles[i] = (uint8_t)((codes[i] & 15) | (codes[i + 16] & 15) << 4);
  for (int i = 0; i < 32; i++)
    out_high[i / 8] = (uint8_t)(out_high[i / 8] | codes[i] >> 4 << i % 8);
}

static inline void iso_unpack_five_bit(const uint8_t high[4], const uint8_t nibbles[16],
                                       uint8_t out_codes[32]) {
  for (int i = 0; i < 16; i++) {
    out_codes[i] = (uint8_t)((nibbles[i] & 15) | (high[i / 8] >> i % 8 & 1) << 4);
    out_codes[i + 16] = (uint8_t)((nibbles[i] >> 4) | (high[i / 8 + 2] >> i % 8 & 1) << 4);
  }
}

/* Scales of Q4_K and Q5_K; the inverse is iso_q4_k_unpack_scales() beside the layout. */
static inline void iso_pack_six_bit(const int8_t scales[8], const int8_t minimums[8],
                                    uint8_t out_packed[12]) {
  for (int i = 0; i < 4; i++) {
    out_packed[i] = (uint8_t)(scales[i] | scales[i + 4] >> 4 << 6);
    out_packed[i + 4] = (uint8_t)(minimums[i] | minimums[i + 4] >> 4 << 6);
    out_packed[i + 8] = (uint8_t)((scales[i + 4] & 15) | (minimums[i + 4] & 15) << 4);
  }
}

#endif
