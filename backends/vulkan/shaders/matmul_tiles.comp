/* matmul for many rows: a workgroup of 256 makes a tile of TILE x TILE results, every invocation
 * EACH x EACH of them, from slices of both operands in shared memory. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define EACH 4
#define STEP 32 /* depth of a slice */
#define TILE (16 * EACH)
#include "matmul.glsl"

const uint STRIDE = TILE + 4;
shared float x_slice[STEP * STRIDE], weight_slice[STEP * STRIDE];

/* Four elements of a weight's row from column k, a multiple of 4. */
vec4 load_weight(WeightRow row, uint k) {
  if (BLOCK_ELEMENTS > 1 && k >= n_in)
    return vec4(0);
  if (BLOCK_ELEMENTS == 1 && VECTOR != 0 && k >= n_in)
    return vec4(0);
  uint span = k / (2 * HALF), place = k % (2 * HALF);
  Group group = decode(row, span, place % HALF / 4, n_in);
  return place < HALF ? group.low * group.scale.x + group.bias.x
                      : group.high * group.scale.y + group.bias.y;
}

void main() {
  uint group = group_index(), m0 = group / n_tiles * TILE, n0 = group % n_tiles * TILE;
  uint id = gl_LocalInvocationID.x, row = id / 16 * EACH, column = id % 16 * EACH;
  if (m0 >= n_rows)
    return;
  float sums[EACH][EACH];
  for (uint i = 0; i < EACH; i++)
    for (uint j = 0; j < EACH; j++)
      sums[i][j] = 0;
  for (uint k0 = 0; k0 < n_in; k0 += STEP) {
    for (uint piece = id; piece < TILE * STEP / 4; piece += 256) {
      uint r = piece / (STEP / 4), k = piece % (STEP / 4) * 4;
      vec4 values = vec4(0), weights = vec4(0);
      if (m0 + r < n_rows && k0 + k < n_in)
        values = load_x(row_of(x, m0 + r, x_inner_rows), k0 + k);
      if (n0 + r < n_out)
        weights = load_weight(weight_row(rest, scales, n0 + r, n_in), k0 + k);
      for (uint i = 0; i < 4; i++) {
        x_slice[(k + i) * STRIDE + r] = values[i];
        weight_slice[(k + i) * STRIDE + r] = weights[i];
      }
    }
    barrier();
    for (uint k = 0; k < STEP; k++) {
      float a[EACH], b[EACH];
      for (uint i = 0; i < EACH; i++) {
        a[i] = x_slice[k * STRIDE + row + i];
        b[i] = weight_slice[k * STRIDE + column + i];
      }
      for (uint i = 0; i < EACH; i++)
        for (uint j = 0; j < EACH; j++)
          sums[i][j] = fma(a[i], b[j], sums[i][j]);
    }
    barrier();
  }
  for (uint i = 0; i < EACH; i++)
    for (uint j = 0; j < EACH; j++)
      if (m0 + row + i < n_rows && n0 + column + j < n_out) {
        float sum = sums[i][j];
        if (HAS_BIAS != 0)
          sum += Floats(bias).v[n0 + column + j];
        store_element(row_of(y, m0 + row + i, y_inner_rows), n0 + column + j, TYPE_Y, sum);
      }
}
