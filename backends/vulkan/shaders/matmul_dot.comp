/* As matmul_one.comp, on integer dot products: weights stay the codes they are, and x becomes
 * integers of 16 bits in two digits of 8, under a scale for the elements that a subgroup takes at a
 * time. Products of digits with codes are exact, so all that is lost is 2^-16 of the largest of
 * some hundred neighbours, less than storing x in 16 bits loses. streams.glsl has the frame, or
 * held.glsl with HELD. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
#ifdef HELD
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#include "one.glsl"

layout(constant_id = 12) const uint N_IN = 32;

/* GL_EXT_integer_dot_product, which older compilers do not know: OpSDot of four bytes in a word. */
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int sdot_packed(int a, int b, spirv_literal int format);
int dot4(uint a, uint b) { return sdot_packed(int(a), int(b), 0); }

/* ---- Weights: units of 16 bytes of codes ------------------------------------------------------- */

/* PIECES of 16 elements are in a unit, APART pieces from each other; BLOCK_PIECES share a scale. */
#if defined(SCHEME_Q4_0) || defined(SCHEME_I4_G128)
#define PIECES 2
#define PRODUCT_SCALE 16.0 /* codes are multiplied as the high nibbles of bytes */
#else
#define PIECES 1
#define PRODUCT_SCALE 1.0
#endif
#if defined(SCHEME_I8_G128) || defined(SCHEME_I4_G128)
#define BLOCK_PIECES 8
#define SCALE_BYTES 4
#define APART 2
#else /* blocks of 32 */
#define BLOCK_PIECES 2
#define SCALE_BYTES 2
#define APART 1
#endif
#if defined(SCHEME_I4_G128)
#define HAS_ZERO /* in the low 5 bits beside a scale */
#endif
const uint N_PIECES = N_IN / 16, N_UNITS = N_PIECES / PIECES;
const uint SCALES_BYTES = N_PIECES / BLOCK_PIECES * SCALE_BYTES; /* of a row */

struct Unit {
  uvec4 codes;
  uint scale; /* as it lies */
};

/* Four signed codes of word `j`, which meet elements 4 j to 4 j + 3 of a piece. */
uint codes_of(Unit unit, uint piece, uint j) {
#if PIECES == 2
  /* A nibble less 8 is the nibble with its top bit turned, read as signed. */
  return ((piece == 0 ? unit.codes[j] << 4 : unit.codes[j]) ^ 0x88888888u) & 0xf0f0f0f0u;
#else
  return unit.codes[j];
#endif
}

/* Where a row's codes and scales start: see weights.h. */
struct WeightRow {
  uint64_t codes, scales;
};

WeightRow row_of_part(uint part, uint n) {
  n = min(n, n_out[part] - 1);
  uint64_t scales = parts[part].rest + uint64_t(n_out[part]) * (N_UNITS * 16);
  return WeightRow(parts[part].rest + uint64_t(n) * (N_UNITS * 16),
                   scales + uint64_t(n) * SCALES_BYTES);
}

WeightRow below(WeightRow row, uint n) {
  return WeightRow(row.codes + n * (N_UNITS * 16), row.scales + n * SCALES_BYTES);
}

Unit load_unit(WeightRow row, uint unit) {
  uint block = unit * PIECES / BLOCK_PIECES;
#if SCALE_BYTES == 4
  return Unit(Words4(row.codes).v[unit], Words(row.scales).v[block]);
#else
  return Unit(Words4(row.codes).v[unit], uint(Halves(row.scales).v[block]));
#endif
}

float scale_of(Unit unit) {
#if defined(HAS_ZERO)
  return uintBitsToFloat(unit.scale & ~31u);
#elif SCALE_BYTES == 4
  return uintBitsToFloat(unit.scale);
#else
  return unpackHalf2x16(unit.scale).x;
#endif
}

/* ---- Activations -------------------------------------------------------------------------------- */

const float MOST = 32512; /* 127 * 256: the high digit stays within a byte */

/* By place_of() a piece. */
shared uvec4 digits[2 * N_PIECES]; /* low ones, then high ones */
shared float steps[N_PIECES];      /* what a unit of the low digit stands for */
#ifdef HAS_ZERO
shared int totals[N_PIECES]; /* of the integers */
#endif

/* Pieces that one unit meets lie apart, so that invocations read neighbours. */
uint place_of(uint piece) {
  return piece / APART % PIECES * N_UNITS + piece / (PIECES * APART) * APART + piece % APART;
}

/* Vectors of 16 bytes that hold a piece, and pieces of an invocation. */
const uint N_RAW = TYPE_X == FLOAT_F32 ? 4 : 2;
const uint N_OWN = (N_PIECES + WORKGROUP - 1) / WORKGROUP;

void decode_piece(const uvec4 raw[N_RAW], out vec4 values[4]) {
  [[unroll]] for (uint i = 0; i < N_RAW; i++) {
    uvec4 bits = raw[i];
    if (TYPE_X == FLOAT_F32) {
      values[i] = uintBitsToFloat(bits);
    } else if (TYPE_X == FLOAT_BF16) {
      values[2 * i] = uintBitsToFloat(uvec4(bits.x << 16, bits.x & 0xffff0000u, bits.y << 16,
                                            bits.y & 0xffff0000u));
      values[2 * i + 1] = uintBitsToFloat(uvec4(bits.z << 16, bits.z & 0xffff0000u,
                                                bits.w << 16, bits.w & 0xffff0000u));
    } else {
      values[2 * i] = vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
      values[2 * i + 1] = vec4(unpackHalf2x16(bits.z), unpackHalf2x16(bits.w));
    }
  }
}

/* The lowest bytes of four words. */
uint pack_bytes(uvec4 v) {
  return bitfieldInsert(bitfieldInsert(bitfieldInsert(v.x, v.y, 8, 24), v.z, 16, 16), v.w, 24, 8);
}

/* Of its own pieces, as they lie. */
uvec4 raw[N_OWN][N_RAW];
vec4 gains[N_OWN][4];

void ask_for_x() {
  [[unroll]] for (uint own = 0; own < N_OWN; own++) {
    uint piece = min(gl_LocalInvocationID.x + own * WORKGROUP, N_PIECES - 1);
    [[unroll]] for (uint i = 0; i < N_RAW; i++)
      raw[own][i] = Words4(x).v[N_RAW * piece + i];
    [[unroll]] for (uint i = 0; i < 4; i++)
      gains[own][i] = NORM != 0 ? Floats4(gain).v[4 * piece + i] : vec4(1);
  }
}

float share_x() {
  float squares = 0;
  [[unroll]] for (uint own = 0; own < N_OWN; own++) {
    uint piece = gl_LocalInvocationID.x + own * WORKGROUP;
    if (piece >= N_PIECES)
      continue;
    vec4 values[4];
    decode_piece(raw[own], values);
    float peak = 0;
    [[unroll]] for (uint i = 0; i < 4; i++) {
      if (NORM != 0) {
        squares += dot(values[i], values[i]);
        values[i] *= gains[own][i] + uintBitsToFloat(WEIGHT_OFFSET);
      }
      vec4 sizes = abs(values[i]);
      peak = max(peak, max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)));
    }
    /* Bits of sizes have the order of sizes, and their largest is one instruction on some devices. */
    peak = uintBitsToFloat(subgroupMax(floatBitsToUint(peak)));
    /* Of what is not finite, the step says so. */
    float inverse = peak > 2e-34 && peak < INFINITY ? MOST / peak : 0.0;
    uint place = place_of(piece);
    steps[place] = peak / MOST;
    uvec4 low, high, total = uvec4(0);
    [[unroll]] for (uint i = 0; i < 4; i++) {
      /* Behind 1.5 * 2^23 integers lie in the low bits of a float, rounded. */
      uvec4 bits = floatBitsToUint(values[i] * inverse + 12582912.0);
      low[i] = pack_bytes(bits);
      high[i] = pack_bytes(bits + 128 >> 8);
      total += bits;
    }
    digits[place] = low;
    digits[N_PIECES + place] = high;
#ifdef HAS_ZERO
    totals[place] = int(total.x + total.y + total.z + total.w - 16 * floatBitsToUint(12582912.0));
#endif
  }
  return squares;
}

/* ---- Products ------------------------------------------------------------------------------------ */

/* What of x meets a unit. */
struct Met {
  uvec4 low[PIECES], high[PIECES];
  float step;
#ifdef HAS_ZERO
  int total; /* as much as codes' share of products is */
#endif
};

Met met_by(uint unit) {
  Met met;
  [[unroll]] for (uint piece = 0; piece < PIECES; piece++) {
    met.low[piece] = digits[piece * N_UNITS + unit];
    met.high[piece] = digits[N_PIECES + piece * N_UNITS + unit];
  }
  met.step = steps[unit]; /* of its other piece, too: no subgroup is smaller than 4 */
#ifdef HAS_ZERO
  met.total = 16 * (totals[unit] + totals[N_UNITS + unit]);
#endif
  return met;
}

float product(Unit unit, Met met) {
  int low_sum = 0, high_sum = 0;
#ifdef HAS_ZERO
  low_sum = (8 - int(unit.scale & 31u)) * met.total; /* codes are taken less 8 */
#endif
  [[unroll]] for (uint piece = 0; piece < PIECES; piece++)
    [[unroll]] for (uint j = 0; j < 4; j++) {
      uint codes = codes_of(unit, piece, j);
      low_sum += dot4(codes, met.low[piece][j]);
      high_sum += dot4(codes, met.high[piece][j]);
    }
  return float(low_sum + 256 * high_sum) * (scale_of(unit) * met.step);
}

#ifdef HELD
#include "held.glsl"
#else
#include "streams.glsl"
#endif
