/* layer_norm: (x - mean) / sqrt(variance + epsilon) * weight + bias. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "norm.glsl"

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint64_t from = row_of(x, r, inner_rows), to = row_of(y, r, inner_rows);
  float sum = 0, squares = 0;
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP)
    sum += load_element(from, i, TYPE_X);
  float mean = workgroup_sum(sum) / float(n_columns);
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP) {
    float centred = load_element(from, i, TYPE_X) - mean;
    squares += centred * centred;
  }
  float scale = 1.0 / sqrt(workgroup_sum(squares) / float(n_columns) + epsilon);
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP) {
    float value = (load_element(from, i, TYPE_X) - mean) * scale * Floats(weight).v[i];
    if (HAS_BIAS != 0)
      value += Floats(bias).v[i];
    store_element(to, i, TYPE_Y, value);
  }
}
