/* Rows of activations as halves, each row scaled by a power of two so that its largest magnitude is
 * below 2^15: for matmul_matrix.comp. One workgroup a row; scales lie behind the rows. With IS_GLU
 * the rows are made first: y = activation(x) * up. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "functions.glsl"
#include "groups.glsl"
#include "rows.glsl"
#include "reduce.glsl"
#include "shrink.glsl"

layout(constant_id = 1) const uint TYPE_X = 0; /* also of up and of y */
layout(constant_id = 2) const uint IS_VECTOR = 0;
layout(constant_id = 3) const uint IS_GLU = 0; /* only with IS_VECTOR */
layout(constant_id = 4) const uint ACTIVATION = 0;

layout(push_constant) uniform Push {
  Rows x, up, y;
  uint64_t halves, scales;
  uint n_rows, inner_rows, n_columns; /* a multiple of 4 columns */
};

vec4 load(uint64_t row, uint quad) {
  if (IS_VECTOR != 0)
    return load_four(row, quad, TYPE_X);
  vec4 values;
  for (uint j = 0; j < 4; j++)
    values[j] = load_element(row, 4 * quad + j, TYPE_X);
  return values;
}

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint64_t from = row_of(x, r, inner_rows), to = halves + uint64_t(r) * n_columns * 2;
  uint64_t beside = row_of(up, r, inner_rows), made = row_of(y, r, inner_rows);
  float peak = 0;
  for (uint i = gl_LocalInvocationID.x; i < n_columns / 4; i += WORKGROUP) {
    vec4 values = load(from, i);
    if (IS_GLU != 0) {
      vec4 others = load(beside, i);
      for (uint j = 0; j < 4; j++)
        values[j] = activation_of(ACTIVATION, values[j]) * others[j];
      store_four(made, i, TYPE_X, values);
    }
    peak = max(peak, peak_of(values));
  }
  float shrink = shrink_of(workgroup_max(peak));
  for (uint i = gl_LocalInvocationID.x; i < n_columns / 4; i += WORKGROUP)
    store_halves(to, i, load(IS_GLU != 0 ? made : from, i) * shrink);
  if (gl_LocalInvocationID.x == 0)
    Floats(scales).v[r] = 1.0 / shrink;
}
