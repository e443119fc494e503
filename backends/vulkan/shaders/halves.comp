/* Rows of activations as halves, each row scaled by a power of two so that its largest magnitude
 * is below 2^15: the products of matmul_matrix.comp. One workgroup a row; scales behind the rows. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint TYPE_X = 0;

layout(push_constant) uniform Push {
  Rows x;
  uint64_t halves, scales;
  uint n_rows, inner_rows, n_columns; /* an even number of columns */
};

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint64_t from = row_of(x, r, inner_rows), to = halves + uint64_t(r) * n_columns * 2;
  float peak = 0;
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP) {
    float value = abs(load_element(from, i, TYPE_X));
    peak = max(peak, value < INFINITY ? value : 0.0);
  }
  peak = workgroup_max(peak);
  /* Exponents of the peak and of the scale, as they are stored. */
  int exponent = clamp(int(floatBitsToUint(peak) >> 23), 20, 230);
  float shrink = uintBitsToFloat(uint(268 - exponent) << 23);
  for (uint i = 2 * gl_LocalInvocationID.x; i < n_columns; i += 2 * WORKGROUP)
    Words(to).v[i / 2] = packHalf2x16(
        vec2(load_element(from, i, TYPE_X), load_element(from, i + 1, TYPE_X)) * shrink);
  if (gl_LocalInvocationID.x == 0)
    Floats(scales).v[r] = uintBitsToFloat(uint(exponent - 14) << 23);
}
