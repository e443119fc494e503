/* Device-side decoders: eight neighbouring elements of a weight or cache row, in f32.
 *
 * simt_codec<SCHEME> has `elements` and `bytes` of a block and decode8(block, first, out), first a
 * multiple of 8 inside the block. Layouts are those of quant/blocks.h. Blocks are 2-byte aligned,
 * no more: Q8_0 rows have 34 bytes a block. Plain floats have "blocks" of 8 elements; a row whose
 * length is no multiple of 8 ends in elements that simt_load() reads. */
#ifndef ISOMER_SIMT_DECODE_H
#define ISOMER_SIMT_DECODE_H

#include "backends/simt/simt.cuh"
#include "quant/blocks.h"

template <int SCHEME> struct simt_codec;

/* ---- Parts --------------------------------------------------------------------------------------
 */

__device__ inline float simt_half_bits(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
/* A half field of a block. */
__device__ inline float simt_half_at(const void *address) {
  return simt_half_bits(*(const uint16_t *)address);
}
/* Eight bytes from a 2-byte aligned address; byte i is bits 8 i % 32 .. of word i / 4. */
__device__ inline uint2 simt_bytes8(const void *address) {
  const uint16_t *p = (const uint16_t *)address;
  return make_uint2(p[0] | (uint32_t)p[1] << 16, p[2] | (uint32_t)p[3] << 16);
}
__device__ inline int simt_byte_of(uint2 bytes, int i) {
  return (int)((i < 4 ? bytes.x : bytes.y) >> (8 * (i & 3)) & 255);
}
/* Eight nibbles of codes[16] that hold elements first .. first + 7 of 32. */
__device__ inline uint2 simt_nibbles8(const uint8_t *codes, int first) {
  uint2 bytes = simt_bytes8(codes + (first & 15));
  int shift = first < 16 ? 0 : 4;
  return make_uint2(bytes.x >> shift & 0x0f0f0f0fu, bytes.y >> shift & 0x0f0f0f0fu);
}

/* ---- Plain floats
 * --------------------------------------------------------------------------------- */

template <int SCHEME, int BYTES> struct simt_float_codec {
  static constexpr int elements = 8, bytes = 8 * BYTES;
  static __device__ void decode8(const uint8_t *block, int, float *out) {
    if (((uintptr_t)block & 15) == 0) {
      simt_load4((iso_scheme)SCHEME, block, 0, out);
      simt_load4((iso_scheme)SCHEME, block, 4, out + 4);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++)
        out[i] = simt_load((iso_scheme)SCHEME, block, i);
    }
  }
};
template <> struct simt_codec<ISO_SCHEME_F32> : simt_float_codec<ISO_SCHEME_F32, 4> {};
template <> struct simt_codec<ISO_SCHEME_F16> : simt_float_codec<ISO_SCHEME_F16, 2> {};
template <> struct simt_codec<ISO_SCHEME_BF16> : simt_float_codec<ISO_SCHEME_BF16, 2> {};

/* ---- Blocks of 32
 * --------------------------------------------------------------------------------- */

/* Element = value(code) * scale, codes of 8 bits. */
template <typename F>
__device__ inline void simt_decode_bytes(const uint8_t *codes, float scale, F value, float *out) {
  uint2 bytes = simt_bytes8(codes);
#pragma unroll
  for (int i = 0; i < 8; i++)
    out[i] = value(simt_byte_of(bytes, i)) * scale;
}
__device__ inline float simt_signed_value(int code) { return (float)(int8_t)code; }
template <> struct simt_codec<ISO_SCHEME_Q8_0> {
  static constexpr int elements = 32, bytes = sizeof(iso_block_q8_0);
  static __device__ void decode8(const uint8_t *block, int first, float *out) {
    simt_decode_bytes(block + 2 + first, simt_half_at(block), simt_signed_value, out);
  }
};

/* Element = code * scale + shift, codes of 4 or (with `high` bytes) 5 bits. */
__device__ inline void simt_decode_nibbles(const uint8_t *codes, const uint8_t *high, int first,
                                           float scale, float shift, float *out) {
  uint2 nibbles = simt_nibbles8(codes, first);
  int fifth = high ? high[first / 8] : 0;
#pragma unroll
  for (int i = 0; i < 8; i++)
    out[i] = fmaf((float)(simt_byte_of(nibbles, i) | (fifth >> i & 1) << 4), scale, shift);
}
template <> struct simt_codec<ISO_SCHEME_Q4_0> {
  static constexpr int elements = 32, bytes = sizeof(iso_block_q4_0);
  static __device__ void decode8(const uint8_t *block, int first, float *out) {
    float scale = simt_half_at(block);
    simt_decode_nibbles(block + 2, nullptr, first, scale, -8 * scale, out);
  }
};
template <> struct simt_codec<ISO_SCHEME_Q4_1> {
  static constexpr int elements = 32, bytes = sizeof(iso_block_q4_1);
  static __device__ void decode8(const uint8_t *block, int first, float *out) {
    simt_decode_nibbles(block + 4, nullptr, first, simt_half_at(block), simt_half_at(block + 2),
                        out);
  }
};
template <> struct simt_codec<ISO_SCHEME_Q5_0> {
  static constexpr int elements = 32, bytes = sizeof(iso_block_q5_0);
  static __device__ void decode8(const uint8_t *block, int first, float *out) {
    float scale = simt_half_at(block);
    simt_decode_nibbles(block + 6, block + 2, first, scale, -16 * scale, out);
  }
};
template <> struct simt_codec<ISO_SCHEME_Q5_1> {
  static constexpr int elements = 32, bytes = sizeof(iso_block_q5_1);
  static __device__ void decode8(const uint8_t *block, int first, float *out) {
    simt_decode_nibbles(block + 8, block + 4, first, simt_half_at(block), simt_half_at(block + 2),
                        out);
  }
};
__device__ inline float simt_iq4_nl_value(int code) {
  static constexpr int8_t values[16] = ISO_IQ4_NL_VALUES;
  /* The table in registers: eight 4-byte words would need local memory, so bytes of four words. */
  uint32_t word = 0;
#pragma unroll
  for (int w = 0; w < 4; w++) {
    uint32_t bytes = (uint32_t)(uint8_t)values[4 * w] | (uint32_t)(uint8_t)values[4 * w + 1] << 8 |
                     (uint32_t)(uint8_t)values[4 * w + 2] << 16 |
                     (uint32_t)(uint8_t)values[4 * w + 3] << 24;
    word = code >> 2 == w ? bytes : word;
  }
  return (float)(int8_t)(word >> (8 * (code & 3)));
}
template <> struct simt_codec<ISO_SCHEME_IQ4_NL> {
  static constexpr int elements = 32, bytes = sizeof(iso_block_iq4_nl);
  static __device__ void decode8(const uint8_t *block, int first, float *out) {
    float scale = simt_half_at(block);
    uint2 nibbles = simt_nibbles8(block + 2, first);
#pragma unroll
    for (int i = 0; i < 8; i++)
      out[i] = simt_iq4_nl_value(simt_byte_of(nibbles, i)) * scale;
  }
};

/* ---- Groups of 128
 * -------------------------------------------------------------------------------- */

/* A word from a 2-byte aligned address. */
__device__ inline uint32_t simt_word_at(const void *address) {
  const uint16_t *p = (const uint16_t *)address;
  return p[0] | (uint32_t)p[1] << 16;
}
/* As a half, the bits of an E4M3 code are its value by 2^-8; NaN is told apart. */
__device__ inline float simt_e4m3_value(int code) {
  float value = simt_half_bits((uint16_t)((code & 0x80) << 8 | (code & 0x7f) << 7)) * 256.0f;
  return (code & 0x7f) == 0x7f ? NAN : value;
}
template <> struct simt_codec<ISO_SCHEME_I8_G128> {
  static constexpr int elements = 128, bytes = sizeof(iso_block_i8_g128);
  static __device__ void decode8(const uint8_t *block, int first, float *out) {
    float scale = __uint_as_float(simt_word_at(block));
    simt_decode_bytes(block + 4 + first, scale, simt_signed_value, out);
  }
};
template <> struct simt_codec<ISO_SCHEME_F8_G128> {
  static constexpr int elements = 128, bytes = sizeof(iso_block_f8_g128);
  static __device__ void decode8(const uint8_t *block, int first, float *out) {
    float scale = __uint_as_float(simt_word_at(block));
    simt_decode_bytes(block + 4 + first, scale, simt_e4m3_value, out);
  }
};
template <> struct simt_codec<ISO_SCHEME_I4_G128> {
  static constexpr int elements = 128, bytes = sizeof(iso_block_i4_g128);
  static __device__ void decode8(const uint8_t *block, int first, float *out) {
    uint32_t word = simt_word_at(block);
    float scale = __uint_as_float(word & ~ISO_I4_ZERO_MASK);
    int zero = (int)(word & ISO_I4_ZERO_MASK), shift = first % 64 < 32 ? 0 : 4;
    uint2 codes = simt_bytes8(block + 4 + first / 64 * 32 + first % 32);
#pragma unroll
    for (int i = 0; i < 8; i++)
      out[i] = (float)((simt_byte_of(codes, i) >> shift & 15) - zero) * scale;
  }
};

/* ---- Super-blocks of 256
 * ----------------------------------------------------------------------------- */

/* Eight 2-bit codes as Q2_K and Q3_K keep them. */
__device__ inline uint2 simt_crumbs8(const uint8_t *codes, int first) {
  uint2 bytes = simt_bytes8(codes + first / 128 * 32 + first % 32);
  int shift = first % 128 / 32 * 2;
  return make_uint2(bytes.x >> shift & 0x03030303u, bytes.y >> shift & 0x03030303u);
}
template <> struct simt_codec<ISO_SCHEME_Q2_K> {
  static constexpr int elements = 256, bytes = sizeof(iso_block_q2_k);
  static __device__ void decode8(const uint8_t *address, int first, float *out) {
    const iso_block_q2_k *block = (const iso_block_q2_k *)address;
    int scales = block->scales[first / 16];
    float scale = simt_half_bits(block->scale) * (float)(scales & 15);
    float minimum = simt_half_bits(block->minimum) * (float)(scales >> 4);
    uint2 codes = simt_crumbs8(block->codes, first);
#pragma unroll
    for (int i = 0; i < 8; i++)
      out[i] = fmaf(scale, (float)simt_byte_of(codes, i), -minimum);
  }
};
template <> struct simt_codec<ISO_SCHEME_Q3_K> {
  static constexpr int elements = 256, bytes = sizeof(iso_block_q3_k);
  static __device__ void decode8(const uint8_t *address, int first, float *out) {
    const iso_block_q3_k *block = (const iso_block_q3_k *)address;
    int s = first / 16;
    int low = block->scales[s % 8] >> (s / 8 * 4) & 15;
    int high = block->scales[8 + s % 4] >> (s / 4 * 2) & 3;
    float scale = simt_half_bits(block->scale) * (float)((low | high << 4) - 32);
    uint2 codes = simt_crumbs8(block->codes, first);
    uint2 bits = simt_bytes8(block->high + first % 32);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      int third = simt_byte_of(bits, i) >> (first / 32) & 1;
      out[i] = scale * (float)((simt_byte_of(codes, i) | third << 2) - 4);
    }
  }
};

/* Scale and minimum of sub-block s of Q4_K and Q5_K, without the super-block's halves. */
__device__ inline void simt_six_bits(const uint8_t *packed, int s, int *scale, int *minimum) {
  if (s < 4) {
    *scale = packed[s] & 63;
    *minimum = packed[s + 4] & 63;
  } else {
    *scale = (packed[s + 4] & 15) | (packed[s - 4] >> 6 << 4);
    *minimum = (packed[s + 4] >> 4) | (packed[s] >> 6 << 4);
  }
}
/* `high` is NULL for Q4_K. */
__device__ inline void simt_decode_q45_k(uint16_t super_scale, uint16_t super_minimum,
                                         const uint8_t *scales, const uint8_t *codes,
                                         const uint8_t *high, int first, float *out) {
  int s = first / 32, scale_code, minimum_code;
  simt_six_bits(scales, s, &scale_code, &minimum_code);
  float scale = simt_half_bits(super_scale) * (float)scale_code;
  float minimum = simt_half_bits(super_minimum) * (float)minimum_code;
  uint2 bytes = simt_bytes8(codes + s / 2 * 32 + first % 32);
  int shift = (s & 1) * 4;
  uint2 nibbles = make_uint2(bytes.x >> shift & 0x0f0f0f0fu, bytes.y >> shift & 0x0f0f0f0fu);
  uint2 bits = high ? simt_bytes8(high + first % 32) : make_uint2(0, 0);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int code = simt_byte_of(nibbles, i) | (simt_byte_of(bits, i) >> s & 1) << 4;
    out[i] = fmaf(scale, (float)code, -minimum);
  }
}
template <> struct simt_codec<ISO_SCHEME_Q4_K> {
  static constexpr int elements = 256, bytes = sizeof(iso_block_q4_k);
  static __device__ void decode8(const uint8_t *address, int first, float *out) {
    const iso_block_q4_k *block = (const iso_block_q4_k *)address;
    simt_decode_q45_k(block->scale, block->minimum, block->scales, block->codes, nullptr, first,
                      out);
  }
};
template <> struct simt_codec<ISO_SCHEME_Q5_K> {
  static constexpr int elements = 256, bytes = sizeof(iso_block_q5_k);
  static __device__ void decode8(const uint8_t *address, int first, float *out) {
    const iso_block_q5_k *block = (const iso_block_q5_k *)address;
    simt_decode_q45_k(block->scale, block->minimum, block->scales, block->codes, block->high, first,
                      out);
  }
};
template <> struct simt_codec<ISO_SCHEME_Q6_K> {
  static constexpr int elements = 256, bytes = sizeof(iso_block_q6_k);
  static __device__ void decode8(const uint8_t *address, int first, float *out) {
    const iso_block_q6_k *block = (const iso_block_q6_k *)address;
    int half = first / 128, j = first % 128;
    float scale = simt_half_bits(block->scale) * (float)block->scales[first / 16];
    uint2 low = simt_bytes8(block->codes + 64 * half + j % 64);
    uint2 high = simt_bytes8(block->high + 32 * half + j % 32);
    int low_shift = j < 64 ? 0 : 4, high_shift = j / 32 * 2;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      int code =
          (simt_byte_of(low, i) >> low_shift & 15) | (simt_byte_of(high, i) >> high_shift & 3) << 4;
      out[i] = scale * (float)(code - 32);
    }
  }
};

/* Elements 8 group .. 8 group + 7 of a row. */
template <int SCHEME>
__device__ inline void simt_decode_group(const uint8_t *row, int64_t group, float *out) {
  using codec = simt_codec<SCHEME>;
  constexpr int groups = codec::elements / 8;
  codec::decode8(row + group / groups * codec::bytes, (int)(group % groups) * 8, out);
}

/* ---- Choosing when the kernel is launched
 * -------------------------------------------------------------- */

/* The schemes that weights can have: SIMT_WEIGHTS(X) makes X(NAME) of each. */
#define SIMT_WEIGHTS(X)                                                                            \
  X(F32)                                                                                           \
  X(F16)                                                                                           \
  X(BF16) X(Q8_0) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K)          \
      X(IQ4_NL) X(I8_G128) X(F8_G128) X(I4_G128)
constexpr iso_scheme_mask SIMT_WEIGHT_SCHEMES =
#define SIMT_WEIGHT_BIT(NAME) ISO_SCHEME_BIT(ISO_SCHEME_##NAME) |
    SIMT_WEIGHTS(SIMT_WEIGHT_BIT) 0;
#undef SIMT_WEIGHT_BIT
constexpr iso_scheme_mask SIMT_CACHE_SCHEMES =
    SIMT_FLOATS | ISO_SCHEME_BIT(ISO_SCHEME_Q8_0) | ISO_SCHEME_BIT(ISO_SCHEME_F8_G128);

/* Eight elements of a row of a cache, whose scheme only the launch knows. */
__device__ inline void simt_decode_cache(iso_scheme scheme, const uint8_t *row, int group,
                                         float *out) {
  switch (scheme) {
  case ISO_SCHEME_F32:
    simt_decode_group<ISO_SCHEME_F32>(row, group, out);
    break;
  case ISO_SCHEME_F16:
    simt_decode_group<ISO_SCHEME_F16>(row, group, out);
    break;
  case ISO_SCHEME_BF16:
    simt_decode_group<ISO_SCHEME_BF16>(row, group, out);
    break;
  case ISO_SCHEME_F8_G128:
    simt_decode_group<ISO_SCHEME_F8_G128>(row, group, out);
    break;
  default:
    simt_decode_group<ISO_SCHEME_Q8_0>(row, group, out);
  }
}
/* One element. */
__device__ inline float simt_load_cache(iso_scheme scheme, const uint8_t *row, int i) {
  if (scheme == ISO_SCHEME_F8_G128) {
    const uint8_t *block = row + i / 128 * (int)sizeof(iso_block_f8_g128);
    return simt_e4m3_value(block[4 + i % 128]) * __uint_as_float(simt_word_at(block));
  }
  if (scheme != ISO_SCHEME_Q8_0)
    return simt_load(scheme, row, i);
  const uint8_t *block = row + i / 32 * (int)sizeof(iso_block_q8_0);
  return (float)(int8_t)block[2 + i % 32] * simt_half_at(block);
}

#endif
