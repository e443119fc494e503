/* Block-quantized weights as the matrix unit wants them.
 *
 * A weight is cut into tiles of 16 rows, a tile into units of 256 columns (128 where codes are
 * bytes), which lie one after another; rows and columns beyond the weight have scales of zero.
 * Within a unit the codes come first, in the order in which lanes use them: lane 4 g + t owns, of
 * rows g and g + 8 and of each 32 columns, columns 4 t .. 4 t + 3 and 16 + 4 t .. 16 + 4 t + 3,
 * which are 4 pairs of codes. Every plane of codes is read 8 or 16 bytes a lane, a subgroup's side
 * by side.
 *
 *   nibbles   a word a (32 columns, row): pair p in bits 4 p .. and 16 + 4 p ..
 *   bytes     two words: pair p in bytes p % 2 and 2 + p % 2 of word p / 2
 *   two bits  a word a (64 columns, row): pair p of block b in bits 8 (p / 2) + 4 (b % 2) +
 *             2 (p % 2) .. and 16 more
 *   one bit   a word a (128 columns, row): pair p of block b in bit 8 (p / 2) + 2 (b % 4) + p % 2
 *             and 16 more
 *
 * A shifted and masked word is two codes in 16 bits each. As f16 their bits are subnormal numbers,
 * code * 2^(base - 24) where the code starts at bit `base`: exact, so that decoding is no
 * arithmetic at all. The matrix unit aligns terms as if subnormals were 2^-14, so codes are put
 * where the largest one is just below that and no bits of the sum are lost. Codes are unsigned;
 * what a scheme subtracts from them is taken from the sums of the activations instead. */
#ifndef ISOMER_SIMT_MATMUL_PACKED_H
#define ISOMER_SIMT_MATMUL_PACKED_H

#include "backends/simt/matmul_mma.cuh"
#include "quant/blocks.h"

/* The private layout that all of these weights share; the scheme says the rest. */
enum { MATMUL_LAYOUT_PACKED = 1 };

enum matmul_scales {
  MATMUL_HALF,          /* a half a sub-block */
  MATMUL_HALF_MINIMUM,  /* a half for codes and one to add, a sub-block */
  MATMUL_SUPER,         /* a byte a sub-block, plus 128, times a half a row */
  MATMUL_SUPER_MINIMUM, /* a byte for codes and one to subtract, each times a half */
  MATMUL_GROUP,         /* a float a 128 columns */
  MATMUL_GROUP_ZERO,    /* the word of I4_G128 a 128 columns: a float and a zero point */
};

/* One line a scheme: its block, the planes of its codes (nibbles: bits 0-3, bytes: 0-7 of codes, or
 * 2 for E4M3 numbers, whose bits in a half are the number by 2^-8, exact as well; two_bits
 * and one_bit: the place of that plane's lowest bit, -1 without), columns of a sub-block, what to
 * subtract from codes, scales. */
#define MATMUL_PACKED_SCHEMES(X)                                                                   \
  /* scheme  block     nibbles bytes two_bits one_bit sub offset scales */                         \
  X(Q4_0, q4_0, 1, 0, -1, -1, 32, 8, MATMUL_HALF)                                                  \
  X(Q4_1, q4_1, 1, 0, -1, -1, 32, 0, MATMUL_HALF_MINIMUM)                                          \
  X(Q5_0, q5_0, 1, 0, -1, 4, 32, 16, MATMUL_HALF)                                                  \
  X(Q5_1, q5_1, 1, 0, -1, 4, 32, 0, MATMUL_HALF_MINIMUM)                                           \
  X(Q8_0, q8_0, 0, 1, -1, -1, 32, 128, MATMUL_HALF)                                                \
  X(IQ4_NL, iq4_nl, 0, 1, -1, -1, 32, 128, MATMUL_HALF)                                            \
  X(Q2_K, q2_k, 0, 0, 0, -1, 16, 0, MATMUL_SUPER_MINIMUM)                                          \
  X(Q3_K, q3_k, 0, 0, 0, 2, 16, 4, MATMUL_SUPER)                                                   \
  X(Q4_K, q4_k, 1, 0, -1, -1, 32, 0, MATMUL_SUPER_MINIMUM)                                         \
  X(Q5_K, q5_k, 1, 0, -1, 4, 32, 0, MATMUL_SUPER_MINIMUM)                                          \
  X(Q6_K, q6_k, 1, 0, 4, -1, 16, 32, MATMUL_SUPER)                                                 \
  X(I8_G128, i8_g128, 0, 1, -1, -1, 32, 128, MATMUL_GROUP)                                         \
  X(F8_G128, f8_g128, 0, 2, -1, -1, 32, 0, MATMUL_GROUP)                                           \
  X(I4_G128, i4_g128, 1, 0, -1, -1, 32, 0, MATMUL_GROUP_ZERO)

/* ---- Reading blocks as files hold them, for packing -------------------------------------------
 */

struct matmul_sub {
  uint16_t scale, minimum; /* halves: of the sub-block, or of its super-block */
  uint8_t scale_code, minimum_code;
};

__device__ inline int matmul_nibble(const uint8_t *codes, int n, int i) {
  return i < n ? codes[i] & 15 : codes[i - n] >> 4;
}
__device__ inline int matmul_fifth(const uint8_t high[4], int i) {
  return (high[i / 8] >> i % 8 & 1) << 4;
}

/* Code of element i of a block, unsigned. */
__device__ inline int matmul_code(const iso_block_q4_0 &b, int i) {
  return matmul_nibble(b.codes, 16, i);
}
__device__ inline int matmul_code(const iso_block_q4_1 &b, int i) {
  return matmul_nibble(b.codes, 16, i);
}
__device__ inline int matmul_code(const iso_block_q5_0 &b, int i) {
  return matmul_nibble(b.codes, 16, i) | matmul_fifth(b.high, i);
}
__device__ inline int matmul_code(const iso_block_q5_1 &b, int i) {
  return matmul_nibble(b.codes, 16, i) | matmul_fifth(b.high, i);
}
__device__ inline int matmul_code(const iso_block_q8_0 &b, int i) { return b.codes[i] + 128; }
/* The levels of IQ4_NL are kept as bytes: twice the memory, and no table in the kernels. */
__device__ inline int matmul_code(const iso_block_iq4_nl &b, int i) {
  const int levels[16] = ISO_IQ4_NL_VALUES;
  return levels[matmul_nibble(b.codes, 16, i)] + 128;
}
__device__ inline int matmul_two_bits(const uint8_t *codes, int i) {
  return codes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}
__device__ inline int matmul_code(const iso_block_q2_k &b, int i) {
  return matmul_two_bits(b.codes, i);
}
__device__ inline int matmul_code(const iso_block_q3_k &b, int i) {
  return matmul_two_bits(b.codes, i) | (b.high[i % 32] >> i / 32 & 1) << 2;
}
__device__ inline int matmul_code(const iso_block_q4_k &b, int i) {
  return matmul_nibble(b.codes + i / 64 * 32, 32, i % 64);
}
__device__ inline int matmul_code(const iso_block_q5_k &b, int i) {
  return matmul_nibble(b.codes + i / 64 * 32, 32, i % 64) | (b.high[i % 32] >> i / 32 & 1) << 4;
}
__device__ inline int matmul_code(const iso_block_q6_k &b, int i) {
  return matmul_nibble(b.codes + i / 128 * 64, 64, i % 128) | matmul_two_bits(b.high, i) << 4;
}

__device__ inline int matmul_code(const iso_block_i8_g128 &b, int i) { return b.codes[i] + 128; }
__device__ inline int matmul_code(const iso_block_f8_g128 &b, int i) { return b.codes[i]; }
__device__ inline int matmul_code(const iso_block_i4_g128 &b, int i) {
  return matmul_nibble(b.codes + i / 64 * 32, 32, i % 64);
}

/* The word that scales a group. A NaN among its numbers makes the products NaN, which a NaN scale
 * does too. */
__device__ inline uint32_t matmul_group_word(const iso_block_i8_g128 &b) {
  return __float_as_uint(b.scale);
}
__device__ inline uint32_t matmul_group_word(const iso_block_i4_g128 &b) { return b.scale_zero; }
__device__ inline uint32_t matmul_group_word(const iso_block_f8_g128 &b) {
  bool poisoned = false;
  for (int i = 0; i < ISO_GROUP_ELEMENTS; i++)
    poisoned |= (b.codes[i] & 0x7f) == 0x7f;
  return poisoned ? 0x7fc00000u : __float_as_uint(b.scale);
}

template <typename B> __device__ inline matmul_sub matmul_sub_of(const B &b, int) {
  return {b.scale, 0, 0, 0};
}
__device__ inline matmul_sub matmul_sub_of(const iso_block_q4_1 &b, int) {
  return {b.scale, b.minimum, 0, 0};
}
__device__ inline matmul_sub matmul_sub_of(const iso_block_q5_1 &b, int) {
  return {b.scale, b.minimum, 0, 0};
}
__device__ inline matmul_sub matmul_sub_of(const iso_block_q2_k &b, int s) {
  return {b.scale, b.minimum, (uint8_t)(b.scales[s] & 15), (uint8_t)(b.scales[s] >> 4)};
}
__device__ inline matmul_sub matmul_sub_of(const iso_block_q3_k &b, int s) {
  int8_t scales[16];
  iso_q3_k_unpack_scales(b.scales, scales);
  return {b.scale, 0, (uint8_t)(scales[s] + 128), 0};
}
template <typename B> __device__ inline matmul_sub matmul_six_bits(const B &b, int s) {
  uint8_t scales[8], minimums[8];
  iso_q4_k_unpack_scales(b.scales, scales, minimums);
  return {b.scale, b.minimum, scales[s], minimums[s]};
}
__device__ inline matmul_sub matmul_sub_of(const iso_block_q4_k &b, int s) {
  return matmul_six_bits(b, s);
}
__device__ inline matmul_sub matmul_sub_of(const iso_block_q5_k &b, int s) {
  return matmul_six_bits(b, s);
}
__device__ inline matmul_sub matmul_sub_of(const iso_block_q6_k &b, int s) {
  return {b.scale, 0, (uint8_t)(b.scales[s] + 128), 0};
}

/* ---- Units --------------------------------------------------------------------------------------
 */

/* Where a lane's sums of one sub-block get their scales: `codes` multiplies sums of codes, `add`
 * sums of activations; of rows g and g + 8. */
struct matmul_sub_scales {
  float codes[2], add[2] = {};
};
/* The same of a block of 32 columns: [half of the block][row]. */
struct matmul_block_scales {
  float codes[2][2], add[2][2];
};

template <typename Block, int Nibbles, int Bytes, int TwoBits, int OneBit, int Sub, int Offset,
          matmul_scales Scales>
struct matmul_packed {
  typedef simt_f16 value;
  typedef Block block;
  static constexpr bool packed = true;
  static constexpr int sub = Sub, offset = Offset;
  static constexpr bool super = Scales == MATMUL_SUPER || Scales == MATMUL_SUPER_MINIMUM;
  static constexpr bool group = Scales == MATMUL_GROUP || Scales == MATMUL_GROUP_ZERO;
  static constexpr bool minimum = Scales == MATMUL_HALF_MINIMUM || Scales == MATMUL_SUPER_MINIMUM ||
                                  Scales == MATMUL_GROUP_ZERO;
  static constexpr bool float8 = Bytes == 2, integers = !float8;
  /* The columns of a quad are side by side, or two and two in either half of the 32. */
  static constexpr bool quads_are_neighbours = Bytes;
  /* Bits of a code, and where it starts in even pairs. Odd pairs of nibbles are four bits up, 16
   * times as large: their activations are made as much smaller. */
  static constexpr int width = (Nibbles ? 4
                                : Bytes ? 8
                                        : 0) +
                               (TwoBits >= 0 ? 2 : 0) + (OneBit >= 0 ? 1 : 0);
  static constexpr bool odd_pairs_high = Nibbles;
  static constexpr int base = float8 ? 16 : Nibbles ? 6 - width : Bytes ? 0 : 10 - width;
  static constexpr float unit_value = 0x1p-24f * (1 << base); /* what code 1 is as f16 */
  /* What makes even pairs comfortable halves, and what is left to multiply. */
  static constexpr float lift = float8 ? 256.0f : 32768.0f;
  static constexpr float lifted = unit_value * lift, unlift = 1 / lifted;
  static constexpr int block_elements = super ? 256 : group ? ISO_GROUP_ELEMENTS : 32;
  static constexpr int unit = Bytes ? 128 : 256;
  static constexpr int blocks = unit / 32;
  /* Words of scales a (block, g): rows g and g + 8. */
  static constexpr int scale_words =
      Scales == MATMUL_HALF_MINIMUM || (Scales == MATMUL_SUPER_MINIMUM && Sub == 16) ? 2 : 1;
  static constexpr int super_words = !super ? 0 : minimum ? 2 : 1;

  static constexpr int base_bytes = Nibbles ? blocks * 256 : Bytes ? blocks * 512 : 0;
  static constexpr int two_bits_at = base_bytes;
  static constexpr int one_bit_at = two_bits_at + (TwoBits >= 0 ? blocks * 128 : 0);
  static constexpr int scales_at = one_bit_at + (OneBit >= 0 ? blocks * 64 : 0);
  static constexpr int supers_at =
      scales_at + (group ? blocks / 4 * 64 : blocks * 8 * scale_words * 4);
  static constexpr int unit_bytes = supers_at + 8 * super_words * 4;
  static_assert(unit_bytes % 16 == 0, "units are copied 16 bytes at a time");

  /* The codes of one unit that a lane has at hand, and its super-blocks' scales. */
  struct lane_codes {
    uint32_t two_bits[TwoBits >= 0 ? blocks : 1], one_bit[OneBit >= 0 ? blocks / 2 : 1];
    float super[2][2]; /* [row][scale, minimum] */
    uint32_t top;      /* the highest bits of four bytes */
  };

  static __device__ __forceinline__ void open(const uint8_t *unit_data, int lane, lane_codes *out) {
    /* Nothing that the compiler could know: in a register, a mask and this are one instruction. */
    out->top = 0x7f7f7f7fu + gridDim.z * 0x01010101u;
    if constexpr (TwoBits >= 0)
#pragma unroll
      for (int i = 0; i < blocks / 4; i++) {
        uint4 v = *(const uint4 *)(unit_data + two_bits_at + i * 512 + lane * 16);
        out->two_bits[4 * i] = v.x, out->two_bits[4 * i + 1] = v.y;
        out->two_bits[4 * i + 2] = v.z, out->two_bits[4 * i + 3] = v.w;
      }
    if constexpr (OneBit >= 0)
#pragma unroll
      for (int i = 0; i < blocks / 4; i++) {
        uint2 v = *(const uint2 *)(unit_data + one_bit_at + i * 256 + lane * 8);
        out->one_bit[2 * i] = v.x, out->one_bit[2 * i + 1] = v.y;
      }
    if constexpr (super) {
      const __half *supers = (const __half *)(unit_data + supers_at) + lane / 4 * super_words * 2;
#pragma unroll
      for (int r = 0; r < 2; r++)
#pragma unroll
        for (int m = 0; m < super_words; m++)
          out->super[r][m] = __half2float(supers[r * super_words + m]);
    }
  }

  /* The words of nibbles or bytes of block b: rows g and g + 8. */
  static __device__ __forceinline__ void base_words(const uint8_t *unit_data, int lane, int b,
                                                    uint32_t (&out)[4]) {
    if constexpr (Bytes) {
      uint4 v = *(const uint4 *)(unit_data + b * 512 + lane * 16);
      out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    } else if constexpr (Nibbles) {
      uint2 v = *(const uint2 *)(unit_data + b / 2 * 512 + lane * 16 + b % 2 * 8);
      out[0] = v.x, out[1] = v.y;
    }
  }

  /* Where two bits or one of pair p of block b lie in their word. Pairs 2 and 3 are a byte above 0
   * and 1, so that the four codes of a quad are at the same place of four bytes. */
  static constexpr __device__ int two_bits_of(int b, int p) {
    return p / 2 * 8 + b % 2 * 4 + p % 2 * 2;
  }
  static constexpr __device__ int one_bit_of(int b, int p) { return p / 2 * 8 + b % 4 * 2 + p % 2; }
  static constexpr __device__ int pair_base(int p) {
    return base + (odd_pairs_high ? p % 2 * 4 : 0);
  }
  static constexpr __device__ uint32_t shifted(uint32_t word, int left) {
    return left >= 0 ? word << left : word >> -left;
  }

  /* Pair p of row r of block b, as two f16 numbers. */
  static __device__ __forceinline__ uint32_t pair(const uint32_t (&words)[4],
                                                  const lane_codes &codes, int b, int r, int p) {
    uint32_t bits = 0;
    if constexpr (float8) {
      uint32_t both = words[r * 2 + p / 2] >> (p % 2 * 8);
      bits = (both & 0x00800080u) << 8 | (both & 0x007f007fu) << 7;
    } else if constexpr (Bytes)
      bits = (words[r * 2 + p / 2] >> (p % 2 * 8)) & 0x00ff00ffu;
    else if constexpr (Nibbles)
      bits = shifted(words[r], p >= 2 ? base - 8 : base) & (0x000f000fu << pair_base(p));
    if constexpr (TwoBits >= 0) {
      int from = two_bits_of(b, p), to = TwoBits + pair_base(p);
      uint32_t word = codes.two_bits[b / 4 * 4 + b / 2 % 2 * 2 + r];
      bits |= shifted(word, to - from) & (0x00030003u << to);
    }
    if constexpr (OneBit >= 0) {
      int from = one_bit_of(b, p), to = OneBit + pair_base(p);
      uint32_t word = codes.one_bit[b / 4 * 2 + r];
      bits |= shifted(word, to - from) & (0x00010001u << to);
    }
    return bits;
  }

  /* Quad q of row r of block b, as four bytes: pairs q and q + 2 by turns, or 2 q and 2 q + 1.
   * Codes with an offset are at the top of their bytes, where turning the highest bit over
   * subtracts the offset. */
  static constexpr int quad_base = Offset ? 8 - width : 0;
  static constexpr float quad_value = 1 << quad_base; /* what code 1 is */
  static_assert(Offset == 0 || Offset == 1 << (width - 1), "a quad is signed");

  static __device__ __forceinline__ uint32_t quad(const uint32_t (&words)[4],
                                                  const lane_codes &codes, int b, int r, int q) {
    uint32_t bits = Offset ? codes.top : 0; /* first, so that a plane's mask and this are one */
    if constexpr (Bytes)
      bits ^= words[r * 2 + q];
    else if constexpr (Nibbles)
      bits ^= shifted(words[r], quad_base - 4 * q) & (0x0f0f0f0fu << quad_base);
    if constexpr (TwoBits >= 0) {
      int from = two_bits_of(b, q), to = TwoBits + quad_base;
      uint32_t word = codes.two_bits[b / 4 * 4 + b / 2 % 2 * 2 + r];
      bits ^= shifted(word, to - from) & (0x03030303u << to);
    }
    if constexpr (OneBit >= 0) {
      int from = one_bit_of(b, q), to = OneBit + quad_base;
      uint32_t word = codes.one_bit[b / 4 * 2 + r];
      bits ^= shifted(word, to - from) & (0x01010101u << to);
    }
    return bits;
  }

  template <bool Whole>
  static __device__ __forceinline__ float scaled(float scale, const lane_codes &codes, int r,
                                                 int m) {
    return Whole ? codes.super[r][m] * scale : scale;
  }
  static __device__ __forceinline__ float byte_of(uint32_t word, int i) { /* 2^23 + byte i */
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650u + (uint32_t)i));
  }

  /* Of sub-block s of block b; without those of its super-block on request. */
  template <bool Whole = true>
  static __device__ __forceinline__ void scales(const uint8_t *unit_data, int lane, int b, int s,
                                                const lane_codes &codes, matmul_sub_scales *out) {
    if constexpr (group) {
      uint2 v = *(const uint2 *)(unit_data + scales_at + (b / 4 * 8 + lane / 4) * 8);
#pragma unroll
      for (int r = 0; r < 2; r++) {
        uint32_t word = r ? v.y : v.x;
        if constexpr (minimum) {
          float scale = __uint_as_float(word & ~ISO_I4_ZERO_MASK);
          out->codes[r] = scale;
          out->add[r] = -scale * (float)(word & ISO_I4_ZERO_MASK);
        } else {
          out->codes[r] = __uint_as_float(word);
        }
      }
    } else {
      block_scales<Whole>(unit_data, lane, b, s, codes, out);
    }
  }

  template <bool Whole>
  static __device__ __forceinline__ void block_scales(const uint8_t *unit_data, int lane, int b,
                                                      int s, const lane_codes &codes,
                                                      matmul_sub_scales *out) {
    const uint32_t *at =
        (const uint32_t *)(unit_data + scales_at) + (b * 8 + lane / 4) * scale_words;
    uint32_t words[2];
    if constexpr (scale_words == 2) {
      uint2 v = *(const uint2 *)at;
      words[0] = v.x, words[1] = v.y;
    } else {
      words[0] = at[0], words[1] = 0;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if constexpr (Scales == MATMUL_HALF) {
        float2 v = __half22float2(*(const __half2 *)&words[0]);
        out->codes[r] = r ? v.y : v.x;
      } else if constexpr (Scales == MATMUL_HALF_MINIMUM) {
        float2 v = __half22float2(*(const __half2 *)&words[r]);
        out->codes[r] = v.x, out->add[r] = v.y;
      } else if constexpr (Scales == MATMUL_SUPER) {
        out->codes[r] = scaled<Whole>(byte_of(words[0], s * 2 + r) - (0x1p23f + 128), codes, r, 0);
      } else {
        uint32_t word = Sub == 16 && s ? words[1] : words[0];
        out->codes[r] = scaled<Whole>(byte_of(word, r * 2) - 0x1p23f, codes, r, 0);
        out->add[r] = -scaled<Whole>(byte_of(word, r * 2 + 1) - 0x1p23f, codes, r, 1);
      }
    }
  }

  /* Of the sub-blocks of block b. */
  static __device__ __forceinline__ void scales(const uint8_t *unit_data, int lane, int b,
                                                const lane_codes &codes, matmul_block_scales *out) {
#pragma unroll
    for (int s = 0; s < 32 / Sub; s++) {
      matmul_sub_scales of_sub;
      scales(unit_data, lane, b, s, codes, &of_sub);
#pragma unroll
      for (int r = 0; r < 2; r++)
        out->codes[s][r] = of_sub.codes[r], out->add[s][r] = of_sub.add[r];
    }
  }

  /* ---- Packing: one lane's share of a unit from blocks as in files; `rows` says which of the
   * tile's rows exist, n_columns how long they are. */
  static __device__ const Block *block_at(const uint8_t *row, int64_t column) {
    return (const Block *)(row + column / block_elements * (int64_t)sizeof(Block));
  }

  static __device__ void pack_scales(const uint8_t *row, int64_t column, int64_t n_columns, int g,
                                     int r, int b, uint8_t *out) {
    bool exists = row && column < n_columns;
    if constexpr (group) {
      if (b % 4 == 0)
        ((uint32_t *)(out + scales_at + (b / 4 * 8 + g) * 8))[r] =
            exists ? matmul_group_word(*block_at(row, column)) : 0;
    } else {
      pack_block_scales(row, column, exists, g, r, b, out);
    }
  }

  static __device__ void pack_block_scales(const uint8_t *row, int64_t column, bool exists, int g,
                                           int r, int b, uint8_t *out) {
    uint8_t *at = out + scales_at + (b * 8 + g) * scale_words * 4;
    for (int half = 0; half < 32 / Sub; half++) {
      int s = (int)(column % block_elements) / Sub + half;
      matmul_sub sub_block = {};
      if (Scales == MATMUL_SUPER)
        sub_block.scale_code = 128;
      if (exists)
        sub_block = matmul_sub_of(*block_at(row, column), s);
      if (Scales == MATMUL_HALF)
        ((uint16_t *)at)[r] = sub_block.scale;
      else if (Scales == MATMUL_HALF_MINIMUM)
        ((uint16_t *)at)[2 * r] = sub_block.scale, ((uint16_t *)at)[2 * r + 1] = sub_block.minimum;
      else if (Scales == MATMUL_SUPER)
        at[half * 2 + r] = sub_block.scale_code;
      else
        at[half * 4 + r * 2] = sub_block.scale_code,
                          at[half * 4 + r * 2 + 1] = sub_block.minimum_code;
      if (super && b == 0 && half == 0) {
        uint16_t *supers = (uint16_t *)(out + supers_at) + g * super_words * 2 + r * super_words;
        supers[0] = sub_block.scale;
        if (minimum)
          supers[1] = sub_block.minimum;
      }
    }
  }

  static __device__ void pack_lane(const uint8_t *const rows[2], int64_t first_column,
                                   int64_t n_columns, int lane, uint8_t *out) {
    uint32_t two_bits[blocks] = {}, one_bit[blocks / 2] = {};
    for (int b = 0; b < blocks; b++)
      for (int r = 0; r < 2; r++) {
        int64_t column = first_column + b * 32;
        uint32_t words[2] = {};
        for (int j = 0; j < 8; j++) {
          int p = j / 2, half = j % 2 * 16;
          int64_t k = column + j / 4 * 16 + lane % 4 * 4 + j % 4;
          uint32_t code = 0;
          if (rows[r] && k < n_columns)
            code = (uint32_t)matmul_code(*block_at(rows[r], k), (int)(k % block_elements));
          if (Bytes)
            words[p / 2] |= code << (p % 2 * 8 + half);
          if (Nibbles)
            words[0] |= (code & 15) << (4 * p + half);
          if (TwoBits >= 0)
            two_bits[b / 4 * 4 + b / 2 % 2 * 2 + r] |= (code >> (TwoBits & 15) & 3)
                                                       << (two_bits_of(b, p) + half);
          if (OneBit >= 0)
            one_bit[b / 4 * 2 + r] |= (code >> (OneBit & 15) & 1) << (one_bit_of(b, p) + half);
        }
        if (Bytes)
          ((uint2 *)(out + b * 512 + lane * 16))[r] = make_uint2(words[0], words[1]);
        if (Nibbles)
          ((uint32_t *)(out + b / 2 * 512 + lane * 16))[b % 2 * 2 + r] = words[0];
        if (lane % 4 == 0)
          pack_scales(rows[r], column, n_columns, lane / 4, r, b, out);
      }
    for (int i = 0; TwoBits >= 0 && i < blocks; i++)
      ((uint32_t *)(out + two_bits_at + i / 4 * 512 + lane * 16))[i % 4] = two_bits[i];
    for (int i = 0; OneBit >= 0 && i < blocks / 2; i++)
      ((uint32_t *)(out + one_bit_at + i / 2 * 256 + lane * 8))[i % 2] = one_bit[i];
  }
};

#define MATMUL_PACKED_TYPE(SCHEME, block, nibbles, bytes, two_bits, one_bit, sub, offset, scales)  \
  typedef matmul_packed<iso_block_##block, nibbles, bytes, two_bits, one_bit, sub, offset, scales> \
      matmul_##block;
MATMUL_PACKED_SCHEMES(MATMUL_PACKED_TYPE)
#undef MATMUL_PACKED_TYPE

/* Units in a row of this many columns, tiles in this many rows. */
static inline __host__ __device__ int64_t matmul_count(int64_t n, int64_t each) {
  return (n + each - 1) / each;
}

/* One subgroup a unit. `source` is dense rows as in files, of at least 2-byte alignment. */
template <typename W>
__global__ void matmul_pack(const uint8_t *source, int64_t row_bytes, int64_t n_rows,
                            int64_t n_columns, uint8_t *packed) {
  int lane = threadIdx.x % 32;
  int64_t n_units = matmul_count(n_columns, W::unit);
  int64_t index = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  int64_t tile = index / n_units, unit = index % n_units;
  if (tile >= matmul_count(n_rows, 16))
    return;
  const uint8_t *rows[2];
  for (int r = 0; r < 2; r++) {
    int64_t row = tile * 16 + lane / 4 + r * 8;
    rows[r] = row < n_rows ? source + row * row_bytes : nullptr;
  }
  W::pack_lane(rows, unit * W::unit, n_columns, lane, packed + index * W::unit_bytes);
}

#endif
