/* rms_norm: x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset). */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "norm.glsl"

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint64_t from = row_of(x, r, inner_rows), to = row_of(y, r, inner_rows);
  float sum = 0;
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP) {
    float value = load_element(from, i, TYPE_X);
    sum += value * value;
  }
  float scale = 1.0 / sqrt(workgroup_sum(sum) / float(n_columns) + epsilon);
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP)
    store_element(to, i, TYPE_Y, load_element(from, i, TYPE_X) * scale *
                                     (Floats(weight).v[i] + weight_offset));
}
