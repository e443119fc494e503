/* Weights of one scheme, SCHEME_<NAME> being defined: quant/blocks.h says how blocks lie.
 *
 * A row is cut into spans of 2 HALF elements, and a span into HALF / 4 groups of eight: four
 * elements next to each other, and the four that lie HALF further on, since codes of both share
 * bytes. decode() gives the codes of a group, and a scale and a bias for each four:
 *
 *     element = code * scale + bias
 *
 * SPLIT says that a weight was packed: SCALE_BYTES of each block lie in a plane of their own,
 * behind the rest of all blocks (weights.c). Blocks whose size is no multiple of 4 bytes are read as
 * words then, and as half words where they lie as in a file. */

#if defined(SCHEME_Q8_0)
#define BLOCK_ELEMENTS 32
#define BLOCK_BYTES 34
#define SCALE_AT 0
#define HALF 4
#elif defined(SCHEME_Q4_0) || defined(SCHEME_IQ4_NL)
#define BLOCK_ELEMENTS 32
#define BLOCK_BYTES 18
#define SCALE_AT 0
#define HALF 16
#elif defined(SCHEME_Q5_0)
#define BLOCK_ELEMENTS 32
#define BLOCK_BYTES 22
#define SCALE_AT 0
#define HALF 16
#elif defined(SCHEME_Q4_1)
#define BLOCK_ELEMENTS 32
#define BLOCK_BYTES 20
#define HALF 16
#elif defined(SCHEME_Q5_1)
#define BLOCK_ELEMENTS 32
#define BLOCK_BYTES 24
#define HALF 16
#elif defined(SCHEME_Q2_K)
#define BLOCK_ELEMENTS 256
#define BLOCK_BYTES 84
#define HALF 32
#elif defined(SCHEME_Q3_K)
#define BLOCK_ELEMENTS 256
#define BLOCK_BYTES 110
#define SCALE_AT 108
#define HALF 32
#elif defined(SCHEME_Q4_K)
#define BLOCK_ELEMENTS 256
#define BLOCK_BYTES 144
#define HALF 32
#elif defined(SCHEME_Q5_K)
#define BLOCK_ELEMENTS 256
#define BLOCK_BYTES 176
#define HALF 32
#elif defined(SCHEME_Q6_K)
#define BLOCK_ELEMENTS 256
#define BLOCK_BYTES 210
#define SCALE_AT 208
#define HALF 64
#elif defined(SCHEME_I8_G128) || defined(SCHEME_F8_G128)
#define BLOCK_ELEMENTS 128
#define BLOCK_BYTES 132
#define SCALE_AT 0
#define SCALE_BYTES 4
#define HALF 4
#elif defined(SCHEME_I4_G128)
#define BLOCK_ELEMENTS 128
#define BLOCK_BYTES 68
#define SCALE_AT 0
#define SCALE_BYTES 4
#define HALF 32
#elif defined(SCHEME_F32)
#define BLOCK_ELEMENTS 1
#define BLOCK_BYTES 4
#define HALF 4
#else /* f16, bf16 */
#define BLOCK_ELEMENTS 1
#define BLOCK_BYTES 2
#define HALF 4
#endif

const uint SPANS = BLOCK_ELEMENTS / (2 * HALF); /* in a block */

/* Where a row of a weight starts: its blocks, and their scales where they are apart. */
struct WeightRow {
  uint64_t rest, scales;
};

struct Group {
  vec4 low, high;   /* codes */
  vec2 scale, bias; /* of low and of high */
};

#ifdef SCALE_AT
#ifndef SCALE_BYTES
#define SCALE_BYTES 2
#endif
const uint REST_BYTES = BLOCK_BYTES - SCALE_BYTES;

uint64_t rest_of(WeightRow row, uint block) {
  return SPLIT != 0 ? row.rest + block * REST_BYTES
                    : row.rest + block * BLOCK_BYTES + (SCALE_AT == 0 ? SCALE_BYTES : 0);
}
float scale_of(WeightRow row, uint block) {
  uint64_t address = SPLIT != 0 ? row.scales + block * SCALE_BYTES
                                : row.rest + block * BLOCK_BYTES + SCALE_AT;
#if SCALE_BYTES == 4
  return Floats(address).v[0];
#else
  return unpackHalf2x16(uint(Halves(address).v[0])).x;
#endif
}
#else
uint64_t rest_of(WeightRow row, uint block) { return row.rest + block * BLOCK_BYTES; }
#endif

#if BLOCK_BYTES % 4 != 0
uint word_of(uint64_t rest, uint i) {
  if (SPLIT != 0)
    return Words(rest).v[i];
  return uint(Halves(rest).v[2 * i]) | uint(Halves(rest).v[2 * i + 1]) << 16;
}
#else
uint word_of(uint64_t rest, uint i) { return Words(rest).v[i]; }
#endif

WeightRow weight_row(uint64_t rest, uint64_t scales, uint row, uint n_columns) {
  uint64_t block = uint64_t(row) * (n_columns / BLOCK_ELEMENTS);
#ifdef SCALE_AT
  if (SPLIT != 0)
    return WeightRow(rest + block * REST_BYTES, scales + block * SCALE_BYTES);
#endif
  return WeightRow(rest + block * BLOCK_BYTES, scales);
}

vec4 bytes_of(uint word) {
  return vec4(word & 255u, word >> 8 & 255u, word >> 16 & 255u, word >> 24);
}
vec4 signed_bytes_of(uint word) {
  int w = int(word);
  return vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8),
              w >> 24);
}
/* Bits 0 to 3 of `bits`, one into bit `to` of each byte. */
uint spread(uint bits, uint to) {
  return (bits & 1u | (bits & 2u) << 7 | (bits & 4u) << 14 | (bits & 8u) << 21) << to;
}
/* Byte i of words that start at `rest`. */
uint byte_of(uint64_t rest, uint i) { return word_of(rest, i / 4) >> 8 * (i % 4) & 255u; }

#if defined(SCHEME_F32) || defined(SCHEME_F16) || defined(SCHEME_BF16)
#if defined(SCHEME_F32)
const uint WEIGHT_TYPE = FLOAT_F32;
#elif defined(SCHEME_F16)
const uint WEIGHT_TYPE = FLOAT_F16;
#else
const uint WEIGHT_TYPE = FLOAT_BF16;
#endif

Group decode(WeightRow row, uint span, uint j, uint n_columns) {
  Group group = Group(vec4(0), vec4(0), vec2(1), vec2(0));
  if (VECTOR != 0) {
#if !defined(SCHEME_F32)
    uvec4 bits = Words4(row.rest).v[span];
#if defined(SCHEME_BF16)
    group.low = uintBitsToFloat(uvec4(bits.x << 16, bits.x & 0xffff0000u, bits.y << 16,
                                      bits.y & 0xffff0000u));
    group.high = uintBitsToFloat(uvec4(bits.z << 16, bits.z & 0xffff0000u, bits.w << 16,
                                       bits.w & 0xffff0000u));
#else
    group.low = vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
    group.high = vec4(unpackHalf2x16(bits.z), unpackHalf2x16(bits.w));
#endif
#else
    group.low = Floats4(row.rest).v[2 * span];
    group.high = Floats4(row.rest).v[2 * span + 1];
#endif
    return group;
  }
  for (uint i = 0; i < 4; i++) {
    if (8 * span + i < n_columns)
      group.low[i] = load_element(row.rest, 8 * span + i, WEIGHT_TYPE);
    if (8 * span + 4 + i < n_columns)
      group.high[i] = load_element(row.rest, 8 * span + 4 + i, WEIGHT_TYPE);
  }
  return group;
}

#elif defined(SCHEME_Q4_0)
Group decode(WeightRow row, uint block, uint j, uint n_columns) {
  uint word = word_of(rest_of(row, block), j);
  float scale = scale_of(row, block);
  return Group(bytes_of(word & 0x0f0f0f0fu), bytes_of(word >> 4 & 0x0f0f0f0fu), vec2(scale),
               vec2(-8 * scale));
}

#elif defined(SCHEME_IQ4_NL)
const float LEVELS[16] = float[16](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69,
                                   89, 113);
vec4 levels_of(uint word) {
  return vec4(LEVELS[word & 15u], LEVELS[word >> 8 & 15u], LEVELS[word >> 16 & 15u],
              LEVELS[word >> 24 & 15u]);
}
Group decode(WeightRow row, uint block, uint j, uint n_columns) {
  uint word = word_of(rest_of(row, block), j);
  return Group(levels_of(word), levels_of(word >> 4), vec2(scale_of(row, block)), vec2(0));
}

#elif defined(SCHEME_Q4_1)
Group decode(WeightRow row, uint block, uint j, uint n_columns) {
  uint64_t rest = rest_of(row, block);
  vec2 line = unpackHalf2x16(word_of(rest, 0));
  uint word = word_of(rest, 1 + j);
  return Group(bytes_of(word & 0x0f0f0f0fu), bytes_of(word >> 4 & 0x0f0f0f0fu), line.xx, line.yy);
}

#elif defined(SCHEME_Q5_0) || defined(SCHEME_Q5_1)
Group decode(WeightRow row, uint block, uint j, uint n_columns) {
  uint64_t rest = rest_of(row, block);
#if defined(SCHEME_Q5_0)
  uint first = 0;
  float scale = scale_of(row, block), bias = -16 * scale;
#else
  uint first = 1;
  vec2 line = unpackHalf2x16(word_of(rest, 0));
  float scale = line.x, bias = line.y;
#endif
  uint high = word_of(rest, first), word = word_of(rest, first + 1 + j);
  return Group(bytes_of(word & 0x0f0f0f0fu | spread(high >> 4 * j, 4)),
               bytes_of(word >> 4 & 0x0f0f0f0fu | spread(high >> 16 + 4 * j, 4)), vec2(scale),
               vec2(bias));
}

#elif defined(SCHEME_Q2_K)
/* Words 0 to 3 are scales, 4 to 19 codes, 20 the two halves. */
Group decode(WeightRow row, uint span, uint j, uint n_columns) {
  uint64_t rest = rest_of(row, span / SPANS);
  span %= SPANS;
  vec2 line = unpackHalf2x16(word_of(rest, 20));
  uint word = word_of(rest, 4 + span / 2 * 8 + j) >> span % 2 * 4, sub = span * 4 + j / 4;
  uvec2 scales = uvec2(byte_of(rest, sub), byte_of(rest, sub + 2));
  return Group(bytes_of(word & 0x03030303u), bytes_of(word >> 2 & 0x03030303u),
               line.x * vec2(scales & 15u), -line.y * vec2(scales >> 4));
}

#elif defined(SCHEME_Q3_K)
/* Words 0 to 7 are the third bits, 8 to 23 codes, 24 to 26 scales. */
uint q3_scale(uint64_t rest, uint sub) {
  uint low = byte_of(rest, 96 + sub % 8) >> sub / 8 * 4 & 15u;
  return low | (byte_of(rest, 104 + sub % 4) >> sub / 4 * 2 & 3u) << 4;
}
Group decode(WeightRow row, uint span, uint j, uint n_columns) {
  uint block = span / SPANS;
  uint64_t rest = rest_of(row, block);
  span %= SPANS;
  uint word = word_of(rest, 8 + span / 2 * 8 + j) >> span % 2 * 4, sub = span * 4 + j / 4;
  uint high = word_of(rest, j) >> span * 2;
  vec2 scale = scale_of(row, block) *
               (vec2(q3_scale(rest, sub), q3_scale(rest, sub + 2)) - 32.0);
  return Group(bytes_of(word & 0x03030303u | (high & 0x01010101u) << 2),
               bytes_of(word >> 2 & 0x03030303u | (high & 0x02020202u) << 1), scale, -4 * scale);
}

#elif defined(SCHEME_Q4_K) || defined(SCHEME_Q5_K)
/* Word 0 is the two halves, 1 to 3 the packed scales and minimums of eight sub-blocks. */
uvec2 scale_and_minimum(uint64_t rest, uint sub) {
  uint at = sub % 4 * 8;
  uint a = word_of(rest, 1) >> at & 255u, b = word_of(rest, 2) >> at & 255u;
  if (sub < 4)
    return uvec2(a & 63u, b & 63u);
  uint c = word_of(rest, 3) >> at & 255u;
  return uvec2(c & 15u | a >> 6 << 4, c >> 4 | b >> 6 << 4);
}
Group decode(WeightRow row, uint span, uint j, uint n_columns) {
  uint64_t rest = rest_of(row, span / SPANS);
  span %= SPANS;
  vec2 line = unpackHalf2x16(word_of(rest, 0));
  vec2 first = vec2(scale_and_minimum(rest, 2 * span)) * line;
  vec2 second = vec2(scale_and_minimum(rest, 2 * span + 1)) * line;
#if defined(SCHEME_Q4_K)
  uint word = word_of(rest, 4 + 8 * span + j), low_bits = 0, high_bits = 0;
#else
  uint word = word_of(rest, 12 + 8 * span + j), high = word_of(rest, 4 + j) >> 2 * span;
  uint low_bits = (high & 0x01010101u) << 4, high_bits = (high & 0x02020202u) << 3;
#endif
  return Group(bytes_of(word & 0x0f0f0f0fu | low_bits), bytes_of(word >> 4 & 0x0f0f0f0fu | high_bits),
               vec2(first.x, second.x), -vec2(first.y, second.y));
}

#elif defined(SCHEME_Q6_K)
/* Words 0 to 31 are low bits, 32 to 47 high bits, 48 to 51 signed scales. */
Group decode(WeightRow row, uint span, uint j, uint n_columns) {
  uint block = span / SPANS;
  uint64_t rest = rest_of(row, block);
  span %= SPANS;
  uint word = word_of(rest, 16 * span + j), pair = j / 8;
  uint high = word_of(rest, 32 + 8 * span + j % 8) >> 2 * pair, sub = span * 8 + j / 4;
  ivec2 scales = ivec2(int(byte_of(rest, 192 + sub) << 24) >> 24,
                       int(byte_of(rest, 196 + sub) << 24) >> 24);
  vec2 scale = scale_of(row, block) * vec2(scales);
  return Group(bytes_of(word & 0x0f0f0f0fu | (high & 0x03030303u) << 4),
               bytes_of(word >> 4 & 0x0f0f0f0fu | high & 0x30303030u), scale, -32 * scale);
}

#elif defined(SCHEME_Q8_0) || defined(SCHEME_I8_G128) || defined(SCHEME_F8_G128)
#if defined(SCHEME_F8_G128)
#include "e4m3.glsl"
#define codes_of(word) e4m3_of(word)
#else
#define codes_of(word) signed_bytes_of(word)
#endif

Group decode(WeightRow row, uint span, uint j, uint n_columns) {
  uint block = span / SPANS, at = span % SPANS * 2;
  uint64_t rest = rest_of(row, block);
  float scale = scale_of(row, block);
  uvec2 words;
  if (SPLIT != 0)
    words = Words2(rest).v[at / 2];
  else
    words = uvec2(word_of(rest, at), word_of(rest, at + 1));
  return Group(codes_of(words.x), codes_of(words.y), vec2(scale), vec2(0));
}

#elif defined(SCHEME_I4_G128)
/* The low 5 bits beside the scale are the zero point. */
Group decode(WeightRow row, uint span, uint j, uint n_columns) {
  uint block = span / SPANS, line = floatBitsToUint(scale_of(row, block));
  uint word = word_of(rest_of(row, block), 8 * (span % SPANS) + j);
  float scale = uintBitsToFloat(line & ~31u);
  return Group(bytes_of(word & 0x0f0f0f0fu), bytes_of(word >> 4 & 0x0f0f0f0fu), vec2(scale),
               vec2(-float(line & 31u) * scale));
}
#endif

/* The products of a group with low and high, whose sums are low_sum and high_sum. Blocks of 32 and
 * of 128 have one scale. */
float group_product(Group group, vec4 low, vec4 high, float low_sum, float high_sum) {
#if BLOCK_ELEMENTS == 1
  return dot(group.low, low) + dot(group.high, high);
#elif defined(SCHEME_Q8_0) || defined(SCHEME_IQ4_NL) || defined(SCHEME_I8_G128) ||                 \
    defined(SCHEME_F8_G128)
  return group.scale.x * (dot(group.low, low) + dot(group.high, high));
#elif BLOCK_ELEMENTS == 32 || BLOCK_ELEMENTS == 128
  return group.scale.x * (dot(group.low, low) + dot(group.high, high)) +
         group.bias.x * (low_sum + high_sum);
#else
  return group.scale.x * dot(group.low, low) + group.scale.y * dot(group.high, high) +
         group.bias.x * low_sum + group.bias.y * high_sum;
#endif
}
