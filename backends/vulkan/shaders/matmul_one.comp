/* matmul for one row of activations, and what stands around it in a decode step: the same row times
 * up to three weights, normalised before (NORM), and added to a residual or made a gated linear
 * unit behind (AFTER).
 *
 * A workgroup makes ROWS results of a weight, of both for a gated linear unit, its invocations side
 * by side along the row. Each reads 16 bytes of weights at a time where the scheme allows, and the
 * activations that they meet once for all ROWS.
 *
 * x is normalised without another pass: sum(w x g) / sqrt(mean(x^2) + epsilon), the sum of squares
 * gathered on the way. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "one.glsl"

const uint VECTOR = 1;
#include "weights.glsl"

/* ---- Units: what an invocation multiplies at a time ------------------------------------------ */

#if defined(SCHEME_Q4_0)
#define UNIT 32
#elif defined(SCHEME_Q8_0)
#define UNIT 16
#else
#define UNIT 8
#endif
#define QUADS (UNIT / 4)

/* The weights of a unit as they lie. */
struct Unit {
#if UNIT == 8
  Group group;
#else
  uvec4 codes;
  float scale;
#endif
};

Unit load_unit(WeightRow row, uint unit) {
#if defined(SCHEME_Q4_0) || defined(SCHEME_Q8_0)
  Unit result;
  result.codes = Words4(row.rest).v[unit];
  result.scale = unpackHalf2x16(uint(Halves(row.scales).v[unit * UNIT / 32])).x;
  return result;
#else
  return Unit(decode(row, unit / (HALF / 4), unit % (HALF / 4), n_in));
#endif
}

/* First element of quad `i` of a unit. */
uint quad_at(uint unit, uint i) {
#if defined(SCHEME_Q4_0) || defined(SCHEME_Q8_0)
  return unit * UNIT + 4 * i;
#else
  return unit / (HALF / 4) * (2 * HALF) + unit % (HALF / 4) * 4 + i * HALF;
#endif
}

#if UNIT == 8
float product(Unit unit, const vec4 x[QUADS], float sum, float high_sum) {
  return group_product(unit.group, x[0], x[1], sum - high_sum, high_sum);
}
#elif defined(SCHEME_Q4_0)
/* Codes become 1 + code / 16 by their bits alone: integers are converted at a quarter of the rate
 * of other arithmetic. */
vec4 steps_of(uint codes, uint first) {
  vec4 result;
  [[unroll]] for (uint i = 0; i < 4; i++) {
    uint at = first + 8 * i;
    uint bits = at <= 19 ? codes << (19 - at) : codes >> (at - 19);
    result[i] = uintBitsToFloat(bits & 0x00780000u | 0x3f800000u);
  }
  return result;
}
float product(Unit unit, const vec4 x[QUADS], float sum, float high_sum) {
  float total = 0;
  [[unroll]] for (uint i = 0; i < 4; i++)
    total += dot(steps_of(unit.codes[i], 0), x[i]) + dot(steps_of(unit.codes[i], 4), x[4 + i]);
  return unit.scale * (16.0 * total - 24.0 * sum);
}
#else
/* Likewise, as 1 + (code + 128) / 256. */
vec4 steps_of(uint codes) {
  codes ^= 0x80808080u;
  return uintBitsToFloat(uvec4(codes << 15, codes << 7, codes >> 1, codes >> 9) & 0x007f8000u |
                         0x3f800000u);
}
float product(Unit unit, const vec4 x[QUADS], float sum, float high_sum) {
  float total = 0;
  [[unroll]] for (uint i = 0; i < 4; i++)
    total += dot(steps_of(unit.codes[i]), x[i]);
  return unit.scale * (256.0 * total - 384.0 * sum);
}
#endif

/* ---- Rows ------------------------------------------------------------------------------------- */

const uint N_SUMS = AFTER == AFTER_GLU ? 2 * ROWS : ROWS;
shared float sums_of[32 * (N_SUMS + 1)]; /* [subgroup][sum], the last one of squares */

/* Lanes lie UNIT elements apart: the wider their loads, the fewer lines of the cache are touched. */
void read_x(uint unit, out vec4 values[QUADS]) {
#if UNIT > 8
  if (TYPE_X != FLOAT_F32) {
    [[unroll]] for (uint i = 0; i < QUADS; i += 2) {
      uvec4 bits = Words4(x).v[unit * (UNIT / 8) + i / 2];
      if (TYPE_X == FLOAT_BF16) {
        values[i] = uintBitsToFloat(uvec4(bits.x << 16, bits.x & 0xffff0000u, bits.y << 16,
                                          bits.y & 0xffff0000u));
        values[i + 1] = uintBitsToFloat(uvec4(bits.z << 16, bits.z & 0xffff0000u, bits.w << 16,
                                              bits.w & 0xffff0000u));
      } else {
        values[i] = vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
        values[i + 1] = vec4(unpackHalf2x16(bits.z), unpackHalf2x16(bits.w));
      }
    }
    return;
  }
#endif
  [[unroll]] for (uint i = 0; i < QUADS; i++)
    values[i] = load_four(x, quad_at(unit, i) / 4, TYPE_X);
}

void load_x(uint unit, out vec4 values[QUADS], inout float squares) {
  read_x(unit, values);
  if (NORM == 0)
    return;
  [[unroll]] for (uint i = 0; i < QUADS; i++) {
    squares += dot(values[i], values[i]);
    values[i] *= Floats4(gain).v[quad_at(unit, i) / 4] + uintBitsToFloat(WEIGHT_OFFSET);
  }
}

float gather(uint i) {
  float sum = 0;
  for (uint s = 0; s < gl_NumSubgroups; s++)
    sum += sums_of[s * (N_SUMS + 1) + i];
  return sum;
}

WeightRow row_of_part(uint part, uint n) {
  n = min(n, n_out[part] - 1);
#ifdef SCALE_AT
  uint64_t bytes = uint64_t(n_out[part]) * (n_in / BLOCK_ELEMENTS) * REST_BYTES;
  return weight_row(parts[part].rest, parts[part].rest + ((bytes + 15) & ~uint64_t(15)), n, n_in);
#else
  return weight_row(parts[part].rest, 0, n, n_in);
#endif
}

void main() {
  uint id = gl_LocalInvocationID.x, tile = group_index(), part = part_of(tile), n0 = tile * ROWS;
  if (n0 >= n_out[part])
    return;
  WeightRow rows[N_SUMS];
  float sums[N_SUMS], squares = 0, before = id < ROWS ? residual_of(part, n0 + id) : 0.0;
  float unscaled = own_unscaled();
  [[unroll]] for (uint i = 0; i < N_SUMS; i++) {
    rows[i] = row_of_part(i < ROWS ? part : 1, n0 + i % ROWS);
    sums[i] = 0;
  }
  for (uint unit = id; unit < n_in / UNIT; unit += WORKGROUP) {
    Unit units[N_SUMS];
    [[unroll]] for (uint i = 0; i < N_SUMS; i++)
      units[i] = load_unit(rows[i], unit);
    vec4 values[QUADS], total = vec4(0);
    load_x(unit, values, squares);
    [[unroll]] for (uint i = 0; i < QUADS; i++)
      total += values[i];
    float high = dot(values[QUADS - 1], vec4(1)), sum = dot(total, vec4(1));
    [[unroll]] for (uint i = 0; i < N_SUMS; i++)
      sums[i] += product(units[i], values, sum, high);
  }
  [[unroll]] for (uint i = 0; i < N_SUMS; i++) {
    float sum = subgroupAdd(sums[i]);
    if (subgroupElect())
      sums_of[gl_SubgroupID * (N_SUMS + 1) + i] = sum;
  }
  if (NORM != 0) {
    squares = subgroupAdd(squares);
    if (subgroupElect())
      sums_of[gl_SubgroupID * (N_SUMS + 1) + N_SUMS] = squares;
  }
  barrier();
  float scale = 1;
  if (NORM != 0) {
    scale = 1.0 / sqrt(gather(N_SUMS) / float(n_in) + uintBitsToFloat(EPSILON));
    store_normalised(scale, unscaled);
  }
  if (id >= ROWS || n0 + id >= n_out[part])
    return;
  if (AFTER == AFTER_GLU)
    store_gated(n0 + id, gather(id) * scale, gather(ROWS + id) * scale);
  else
    store(part, n0 + id, gather(id) * scale, before);
}
