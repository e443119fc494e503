/* As matmul_one.comp, for weights of 16 bits: x is normalised and made floats once for all rows of a
 * workgroup, in shared memory. There, every four rows read x and the gains of a norm again, which
 * are as many bytes as two or three rows of weights. streams.glsl has the frame. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "one.glsl"

layout(constant_id = 12) const uint N_IN = 32;

/* ---- Weights: units of 8 elements -------------------------------------------------------------- */

#define PRODUCT_SCALE 1.0
const uint N_UNITS = N_IN / 8;

struct Unit {
  uvec4 bits;
};
struct WeightRow {
  uint64_t units;
};

WeightRow row_of_part(uint part, uint n) {
  return WeightRow(parts[part].rest + uint64_t(min(n, n_out[part] - 1)) * (N_UNITS * 16));
}

Unit load_unit(WeightRow row, uint unit) { return Unit(Words4(row.units).v[unit]); }

/* Eight elements of a type of 16 bits. */
void floats_of(uvec4 bits, uint type, out vec4 low, out vec4 high) {
  if (type == FLOAT_BF16) {
    low = uintBitsToFloat(uvec4(bits.x << 16, bits.x & 0xffff0000u, bits.y << 16,
                                bits.y & 0xffff0000u));
    high = uintBitsToFloat(uvec4(bits.z << 16, bits.z & 0xffff0000u, bits.w << 16,
                                 bits.w & 0xffff0000u));
  } else {
    low = vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
    high = vec4(unpackHalf2x16(bits.z), unpackHalf2x16(bits.w));
  }
}

/* ---- Activations -------------------------------------------------------------------------------- */

/* As they lie, if of 16 bits and not normalised; else floats, the second four of all units behind
 * the first four, so that invocations read neighbours. */
const uint IS_RAW = NORM == 0 && TYPE_X != FLOAT_F32 ? 1 : 0;
const uint N_QUADS = N_IN / 4;
shared uvec4 shared_x[IS_RAW != 0 ? N_UNITS : N_QUADS];

/* Of its own units or quads, as they lie. */
const uint N_ALL = IS_RAW != 0 ? N_UNITS : N_QUADS, N_OWN = (N_ALL + WORKGROUP - 1) / WORKGROUP;
uvec4 raw[N_OWN];
vec4 gains[N_OWN];

void ask_for_x() {
  [[unroll]] for (uint own = 0; own < N_OWN; own++) {
    uint i = min(own * WORKGROUP + gl_LocalInvocationID.x, N_ALL - 1);
    if (IS_RAW != 0 || TYPE_X == FLOAT_F32)
      raw[own] = Words4(x).v[i];
    else
      raw[own] = uvec4(Words2(x).v[i], 0, 0);
    gains[own] = NORM != 0 ? Floats4(gain).v[i] : vec4(1);
  }
}

float share_x() {
  float squares = 0;
  [[unroll]] for (uint own = 0; own < N_OWN; own++) {
    uint i = own * WORKGROUP + gl_LocalInvocationID.x;
    if (N_ALL % WORKGROUP != 0 && i >= N_ALL)
      continue;
    if (IS_RAW != 0) {
      shared_x[i] = raw[own];
    } else {
      vec4 values, unused;
      if (TYPE_X == FLOAT_F32)
        values = uintBitsToFloat(raw[own]);
      else
        floats_of(raw[own], TYPE_X, values, unused);
      if (NORM != 0) {
        squares += dot(values, values);
        values *= gains[own] + uintBitsToFloat(WEIGHT_OFFSET);
      }
      shared_x[i % 2 * N_UNITS + i / 2] = floatBitsToUint(values);
    }
  }
  return squares;
}

/* ---- Products ------------------------------------------------------------------------------------ */

struct Met {
  vec4 low, high;
};

Met met_by(uint unit) {
  Met met;
  if (IS_RAW != 0) {
    floats_of(shared_x[unit], TYPE_X, met.low, met.high);
  } else {
    met.low = uintBitsToFloat(shared_x[unit]);
    met.high = uintBitsToFloat(shared_x[N_UNITS + unit]);
  }
  return met;
}

#if defined(SCHEME_F16)
const uint WEIGHT_TYPE = FLOAT_F16;
#else /* bf16 */
const uint WEIGHT_TYPE = FLOAT_BF16;
#endif

float product(Unit unit, Met met) {
  vec4 low, high;
  floats_of(unit.bits, WEIGHT_TYPE, low, high);
  return dot(low, met.low) + dot(high, met.high);
}

#include "streams.glsl"
