/* Block layouts of the quantized storage schemes, bit for bit as GGUF files hold them.
 *
 * Plain structs without padding, little endian, for C, C++, CUDA and HIP alike. A `half` field is
 * the 16 bits of an IEEE half. A block inside a file is only as aligned as the file makes it:
 * either know that it is 2-byte aligned, or memcpy the struct out first.
 *
 * In the comments x[i] is the decoded element i of the block, and `nibble(b, i)` of bytes b is
 * the low half of b[i] for i < n and the high half of b[i - n] from n on, n the bytes in b.
 *
 * Schemes with 256 elements are super-blocks: sub-blocks of 16 or 32 elements have small integer
 * scales of their own, which one half (two, with minimums) multiplies. */
#ifndef ISOMER_QUANT_BLOCKS_H
#define ISOMER_QUANT_BLOCKS_H

#include <stdint.h>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define ISO_BLOCK_FUNCTION static inline __host__ __device__
#else
#define ISO_BLOCK_FUNCTION static inline
#endif
#ifdef __cplusplus
#define ISO_BLOCK_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), #type " has padding")
#else
#define ISO_BLOCK_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has padding")
#endif

#define ISO_BLOCK_ELEMENTS 32
#define ISO_SUPER_ELEMENTS 256

/* Q8_0: x[i] = codes[i] * scale. */
typedef struct iso_block_q8_0 {
  uint16_t scale; /* half */
  int8_t codes[32];
} iso_block_q8_0;
ISO_BLOCK_SIZE(iso_block_q8_0, 34);

/* Q4_0: x[i] = (nibble(codes, i) - 8) * scale. */
typedef struct iso_block_q4_0 {
  uint16_t scale; /* half */
  uint8_t codes[16];
} iso_block_q4_0;
ISO_BLOCK_SIZE(iso_block_q4_0, 18);

/* Q4_1: x[i] = nibble(codes, i) * scale + minimum. */
typedef struct iso_block_q4_1 {
  uint16_t scale;   /* half */
  uint16_t minimum; /* half */
  uint8_t codes[16];
} iso_block_q4_1;
ISO_BLOCK_SIZE(iso_block_q4_1, 20);

/* Q5_0: x[i] = (nibble(codes, i) + 16 * bit(i) - 16) * scale,
 * where bit(i) is bit i % 8 of high[i / 8]. */
typedef struct iso_block_q5_0 {
  uint16_t scale; /* half */
  uint8_t high[4];
  uint8_t codes[16];
} iso_block_q5_0;
ISO_BLOCK_SIZE(iso_block_q5_0, 22);

/* Q5_1: x[i] = (nibble(codes, i) + 16 * bit(i)) * scale + minimum, bit(i) as in Q5_0. */
typedef struct iso_block_q5_1 {
  uint16_t scale;   /* half */
  uint16_t minimum; /* half */
  uint8_t high[4];
  uint8_t codes[16];
} iso_block_q5_1;
ISO_BLOCK_SIZE(iso_block_q5_1, 24);

/* IQ4_NL: x[i] = iso_iq4_nl_values[nibble(codes, i)] * scale. */
typedef struct iso_block_iq4_nl {
  uint16_t scale; /* half */
  uint8_t codes[16];
} iso_block_iq4_nl;
ISO_BLOCK_SIZE(iso_block_iq4_nl, 18);

/* Groups of 128 with a scale in full: what integer and FP8 checkpoints of Hugging Face folders are
 * repacked into, whether they keep a scale a group, a row, a 128x128 block or a matrix. */
#define ISO_GROUP_ELEMENTS 128

/* I8_G128: x[i] = codes[i] * scale. */
typedef struct iso_block_i8_g128 {
  float scale;
  int8_t codes[128];
} iso_block_i8_g128;
ISO_BLOCK_SIZE(iso_block_i8_g128, 132);

/* F8_G128: x[i] = e4m3(codes[i]) * scale. E4M3 (OCP FP8, arXiv:2209.05433) has a sign, 4 bits of
 * exponent with bias 7 and 3 of mantissa; 0x7f and 0xff are NaN, there is no infinity. */
typedef struct iso_block_f8_g128 {
  float scale;
  uint8_t codes[128];
} iso_block_f8_g128;
ISO_BLOCK_SIZE(iso_block_f8_g128, 132);

/* I4_G128: x[i] = (q(i) - zero) * scale. The low 5 bits of `scale_zero` are the zero point, 0 to
 * 31; the word with these bits cleared is the scale, a float that holds every half and bfloat16
 * exactly. Codes lie as in Q4_K: elements 64 p .. 64 p + 31 are the low and the next 32 the high
 * nibbles of codes[32 p .. 32 p + 31]. */
typedef struct iso_block_i4_g128 {
  uint32_t scale_zero;
  uint8_t codes[64];
} iso_block_i4_g128;
ISO_BLOCK_SIZE(iso_block_i4_g128, 68);
#define ISO_I4_ZERO_MASK 31u

/* The 16 levels of IQ4_NL, an initializer so that device code can make its own constant. */
#define ISO_IQ4_NL_VALUES                                                                          \
  { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 }

/* Q2_K: 16 sub-blocks of 16. With s = i / 16:
 *   x[i] = (scale * (scales[s] & 15)) * q(i) - minimum * (scales[s] >> 4)
 * Codes: half h = i / 128 of the block owns codes[32 h .. 32 h + 31], and
 *   q(i) = bits 2 p and 2 p + 1 of codes[32 h + i % 32], p = i % 128 / 32. */
typedef struct iso_block_q2_k {
  uint8_t scales[16];
  uint8_t codes[64];
  uint16_t scale;   /* half */
  uint16_t minimum; /* half */
} iso_block_q2_k;
ISO_BLOCK_SIZE(iso_block_q2_k, 84);

/* Q3_K: 16 sub-blocks of 16. With s = i / 16 and scales unpacked by iso_q3_k_unpack_scales:
 *   x[i] = (scale * scales[s]) * (q(i) - 4)
 * The low two bits of q(i) lie as in Q2_K; its bit 2 is bit i / 32 of high[i % 32]. */
typedef struct iso_block_q3_k {
  uint8_t high[32];
  uint8_t codes[64];
  uint8_t scales[12];
  uint16_t scale; /* half */
} iso_block_q3_k;
ISO_BLOCK_SIZE(iso_block_q3_k, 110);

/* Q4_K: 8 sub-blocks of 32. With s = i / 32 and scales unpacked by iso_q4_k_unpack_scales:
 *   x[i] = (scale * scales[s]) * q(i) - minimum * minimums[s]
 * Sub-blocks 2 p and 2 p + 1 are the low and the high nibbles of codes[32 p .. 32 p + 31]. */
typedef struct iso_block_q4_k {
  uint16_t scale;   /* half */
  uint16_t minimum; /* half */
  uint8_t scales[12];
  uint8_t codes[128];
} iso_block_q4_k;
ISO_BLOCK_SIZE(iso_block_q4_k, 144);

/* Q5_K: as Q4_K, and bit 4 of q(i) is bit i / 32 of high[i % 32]. */
typedef struct iso_block_q5_k {
  uint16_t scale;   /* half */
  uint16_t minimum; /* half */
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t codes[128];
} iso_block_q5_k;
ISO_BLOCK_SIZE(iso_block_q5_k, 176);

/* Q6_K: 16 sub-blocks of 16. With s = i / 16:
 *   x[i] = (scale * scales[s]) * (q(i) - 32)
 * Half h = i / 128 of the block owns codes[64 h ..] and high[32 h ..]; with j = i % 128:
 *   low four bits of q(i):  low nibble of codes[64 h + j] for j < 64, else the high nibble of
 *                           codes[64 h + j - 64]
 *   high two bits of q(i):  bits 2 p and 2 p + 1 of high[32 h + j % 32], p = j / 32 */
typedef struct iso_block_q6_k {
  uint8_t codes[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t scale; /* half */
} iso_block_q6_k;
ISO_BLOCK_SIZE(iso_block_q6_k, 210);

/* The 12 bytes of Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minimums.
 *   bytes 0-3   bits 0-5: scales 0-3      bits 6-7: bits 4-5 of scales 4-7
 *   bytes 4-7   bits 0-5: minimums 0-3    bits 6-7: bits 4-5 of minimums 4-7
 *   bytes 8-11  bits 0-3: bits 0-3 of scales 4-7    bits 4-7: bits 0-3 of minimums 4-7 */
ISO_BLOCK_FUNCTION void iso_q4_k_unpack_scales(const uint8_t packed[12], uint8_t scales[8],
                                               uint8_t minimums[8]) {
  for (int i = 0; i < 4; i++) {
    scales[i] = (uint8_t)(packed[i] & 63);
    minimums[i] = (uint8_t)(packed[i + 4] & 63);
    scales[i + 4] = (uint8_t)((packed[i + 8] & 15) | (packed[i] >> 6 << 4));
    minimums[i + 4] = (uint8_t)((packed[i + 8] >> 4) | (packed[i + 4] >> 6 << 4));
  }
}

/* The 12 bytes of Q3_K: sixteen 6-bit scales, stored plus 32.
 *   bytes 0-7   bits 0-3: bits 0-3 of scales 0-7    bits 4-7: bits 0-3 of scales 8-15
 *   bytes 8-11  bits 2 p, 2 p + 1 of byte 8 + j: bits 4-5 of scale 4 p + j */
ISO_BLOCK_FUNCTION void iso_q3_k_unpack_scales(const uint8_t packed[12], int8_t scales[16]) {
  for (int i = 0; i < 16; i++) {
    int low = packed[i % 8] >> (i / 8 * 4) & 15;
    int high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
    scales[i] = (int8_t)((low | high << 4) - 32);
  }
}

#endif
