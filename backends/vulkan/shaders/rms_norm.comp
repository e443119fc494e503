/* rms_norm: x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset). */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "norm.glsl"

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint64_t from = row_of(x, r, inner_rows), to = row_of(y, r, inner_rows);
  uint id = gl_LocalInvocationID.x;
  float sum = 0;
  if (IS_VECTOR != 0) {
    for (uint i = id; i < n_columns / 4; i += WORKGROUP) {
      vec4 values = load_four(from, i, TYPE_X);
      sum += dot(values, values);
    }
  } else {
    for (uint i = id; i < n_columns; i += WORKGROUP) {
      float value = load_element(from, i, TYPE_X);
      sum += value * value;
    }
  }
  float scale = 1.0 / sqrt(workgroup_sum(sum) / float(n_columns) + epsilon);
  if (IS_VECTOR != 0) {
    for (uint i = id; i < n_columns / 4; i += WORKGROUP)
      store_four(to, i, TYPE_Y,
                 load_four(from, i, TYPE_X) * scale * (Floats4(weight).v[i] + weight_offset));
  } else {
    for (uint i = id; i < n_columns; i += WORKGROUP)
      store_element(to, i, TYPE_Y,
                    load_element(from, i, TYPE_X) * scale * (Floats(weight).v[i] + weight_offset));
  }
}
