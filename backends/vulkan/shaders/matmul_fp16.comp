/* matmul for many rows in packed arithmetic of halves: two products an instruction, for devices
 * without matrix units. A workgroup makes a tile of TILE x TILE results, every invocation ROWS x
 * COLUMNS of them.
 *
 * What halves lose stays far below what 8-bit activations may (ops/conform/expect.c): sums of halves
 * are SLICE / 2 products long, then become f32, and slices of either operand are scaled by powers of
 * two, so that no sum overflows: x below 2^7, weights below 2^3, their products below 2^10, and 32 of
 * these below 2^15. Weights of floats, which may lose nothing, are not multiplied here.
 *
 * A slice is eight groups of eight elements as weights.glsl cuts rows: the first four elements of all
 * groups, then the last four of all. The order of a sum does not matter, so long as x lies alike. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint TYPE_Y = 0;
layout(constant_id = 2) const uint HAS_BIAS = 0;
layout(constant_id = 3) const uint SPLIT = 0;
const uint VECTOR = 1;

/* x is [n_rows, n_in] in halves below 2^15. The results of row r are multiplied by row_scales[r]. */
layout(push_constant) uniform Push {
  Rows y;
  uint64_t x, row_scales, rest, scales, bias;
  uint n_rows, n_out, n_in, y_inner_rows, n_tiles;
};

#include "weights.glsl"

const uint TILE = 64, ROWS = 8, COLUMNS = 4, GROUPS = 8, SLICE = 8 * GROUPS;
const uint ROW_STEP = TILE / ROWS, COLUMN_STEP = TILE / COLUMNS; /* between those of an invocation */
const uint THREADS = ROW_STEP * COLUMN_STEP, N_LOADS = TILE * GROUPS / THREADS;
/* Vectors of 16 bytes in a row of a slice: one more keeps banks apart. */
const uint VECTORS = SLICE / 8, STRIDE = VECTORS + 1;
const float16_t X_SHRINK = float16_t(0.00390625); /* 2^-8 */

shared uvec4 x_slice[TILE * STRIDE], weight_slice[TILE * STRIDE];
shared uint peaks[2 * TILE]; /* of the weights' rows in a slice, as bits; of slices in turn */

/* Four halves of group `g` of a row: the first four or the last. */
#define PUT(SLICE_OF, ROW, G, LAST, WORDS)                                                         \
  {                                                                                                \
    uint at = (ROW) * STRIDE + ((G) + (LAST) * GROUPS) / 2;                                        \
    if ((G) % 2 == 0)                                                                              \
      SLICE_OF[at].xy = WORDS;                                                                     \
    else                                                                                           \
      SLICE_OF[at].zw = WORDS;                                                                     \
  }

uvec2 shrunk(uvec2 words) {
  return uvec2(packFloat2x16(unpackFloat2x16(words.x) * X_SHRINK),
               packFloat2x16(unpackFloat2x16(words.y) * X_SHRINK));
}

/* First element of a group of eight. */
uint place_of(uint group) { return group / (HALF / 4) * (2 * HALF) + group % (HALF / 4) * 4; }

void put_x(uint m0, uint first_group) {
  [[unroll]] for (uint i = 0; i < N_LOADS; i++) {
    uint index = gl_LocalInvocationID.x + i * THREADS, row = index / GROUPS, g = index % GROUPS;
    uvec2 low = uvec2(0), high = uvec2(0);
    if (m0 + row < n_rows && first_group + g < n_in / 8) {
      uint64_t from = x + uint64_t(m0 + row) * n_in * 2;
      uint k = place_of(first_group + g);
      low = shrunk(Words2(from).v[k / 4]);
      high = shrunk(Words2(from).v[(k + HALF) / 4]);
    }
    PUT(x_slice, row, g, 0, low)
    PUT(x_slice, row, g, 1, high)
  }
}

/* Decodes this invocation's groups, and notes the largest magnitude of each row. */
void decode_weights(uint n0, uint first_group, uint turn, out vec4 low[N_LOADS],
                    out vec4 high[N_LOADS]) {
  [[unroll]] for (uint i = 0; i < N_LOADS; i++) {
    uint index = gl_LocalInvocationID.x + i * THREADS, row = index / GROUPS;
    uint group = first_group + index % GROUPS;
    low[i] = high[i] = vec4(0);
    if (n0 + row >= n_out || group >= n_in / 8)
      continue;
    Group codes = decode(weight_row(rest, scales, n0 + row, n_in), group / (HALF / 4),
                         group % (HALF / 4), n_in);
    low[i] = codes.low * codes.scale.x + codes.bias.x;
    high[i] = codes.high * codes.scale.y + codes.bias.y;
    vec4 sizes = max(abs(low[i]), abs(high[i]));
    atomicMax(peaks[turn * TILE + row],
              floatBitsToUint(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w))));
  }
}

/* The exponent of the power of two that brings a row's weights below 2^3, biased as in a float. */
uint shrink_exponent(uint row, uint turn) {
  return 256u - clamp(peaks[turn * TILE + row] >> 23, 4u, 252u);
}

uvec2 halves_of(vec4 values) { return uvec2(packHalf2x16(values.xy), packHalf2x16(values.zw)); }

void put_weights(uint turn, const vec4 low[N_LOADS], const vec4 high[N_LOADS]) {
  [[unroll]] for (uint i = 0; i < N_LOADS; i++) {
    uint index = gl_LocalInvocationID.x + i * THREADS, row = index / GROUPS, g = index % GROUPS;
    float shrink = uintBitsToFloat(shrink_exponent(row, turn) << 23);
    PUT(weight_slice, row, g, 0, halves_of(low[i] * shrink))
    PUT(weight_slice, row, g, 1, halves_of(high[i] * shrink))
  }
}

float sums[ROWS][COLUMNS];

void multiply_slices(uint row, uint column, uint turn) {
  f16vec2 parts[ROWS][COLUMNS];
  [[unroll]] for (uint i = 0; i < ROWS; i++)
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
      parts[i][j] = f16vec2(0);
  for (uint k = 0; k < VECTORS; k++) {
    uvec4 b[COLUMNS];
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
      b[j] = weight_slice[(column + j * COLUMN_STEP) * STRIDE + k];
    [[unroll]] for (uint i = 0; i < ROWS; i++) {
      uvec4 a = x_slice[(row + i * ROW_STEP) * STRIDE + k];
      [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        [[unroll]] for (uint e = 0; e < 4; e++)
          parts[i][j] = fma(unpackFloat2x16(a[e]), unpackFloat2x16(b[j][e]), parts[i][j]);
    }
  }
  [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
    float grow = uintBitsToFloat(254u - shrink_exponent(column + j * COLUMN_STEP, turn) << 23);
    [[unroll]] for (uint i = 0; i < ROWS; i++)
      sums[i][j] = fma(float(parts[i][j].x) + float(parts[i][j].y), grow, sums[i][j]);
  }
}

void main() {
  uint group = group_index(), m0 = group / n_tiles * TILE, n0 = group % n_tiles * TILE;
  uint id = gl_LocalInvocationID.x, row = id / COLUMN_STEP, column = id % COLUMN_STEP;
  if (m0 >= n_rows)
    return;
  [[unroll]] for (uint i = 0; i < ROWS; i++)
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
      sums[i][j] = 0;
  if (id < TILE)
    peaks[id] = 0;
  barrier();
  for (uint g = 0, turn = 0; g < n_in / 8; g += GROUPS, turn = 1 - turn) {
    vec4 low[N_LOADS], high[N_LOADS];
    decode_weights(n0, g, turn, low, high);
    put_x(m0, g);
    barrier();
    put_weights(turn, low, high);
    if (id < TILE)
      peaks[(1 - turn) * TILE + id] = 0;
    barrier();
    multiply_slices(row, column, turn);
    barrier();
  }
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    uint r = m0 + row + i * ROW_STEP;
    if (r >= n_rows)
      continue;
    float scale = Floats(row_scales).v[r] * 256.0; /* of x, and what X_SHRINK took */
    uint64_t to = row_of(y, r, y_inner_rows);
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
      uint n = n0 + column + j * COLUMN_STEP;
      if (n < n_out)
        store_element(to, n, TYPE_Y,
                      sums[i][j] * scale + (HAS_BIAS != 0 ? Floats(bias).v[n] : 0.0));
    }
  }
}
