/* rms_norm: x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset). With HAS_HALVES, only with
 * IS_VECTOR, the rows are also left as halves.comp would. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "norm.glsl"
#include "shrink.glsl"

layout(constant_id = 5) const uint HAS_HALVES = 0;

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint64_t from = row_of(x, r, inner_rows), to = row_of(y, r, inner_rows);
  uint id = gl_LocalInvocationID.x;
  float sum = 0, peak = 0;
  if (IS_VECTOR != 0) {
    for (uint i = id; i < n_columns / 4; i += WORKGROUP) {
      vec4 values = load_four(from, i, TYPE_X);
      sum += dot(values, values);
      if (HAS_HALVES != 0)
        peak = max(peak, peak_of(values * (Floats4(weight).v[i] + weight_offset)));
    }
  } else {
    for (uint i = id; i < n_columns; i += WORKGROUP) {
      float value = load_element(from, i, TYPE_X);
      sum += value * value;
    }
  }
  float scale = 1.0 / sqrt(workgroup_sum(sum) / float(n_columns) + epsilon);
  float shrink = HAS_HALVES != 0 ? shrink_of(workgroup_max(peak) * scale) : 0.0;
  if (IS_VECTOR != 0) {
    for (uint i = id; i < n_columns / 4; i += WORKGROUP) {
      vec4 values = load_four(from, i, TYPE_X) * scale * (Floats4(weight).v[i] + weight_offset);
      store_four(to, i, TYPE_Y, values);
      if (HAS_HALVES != 0)
        store_halves(halves + uint64_t(r) * n_columns * 2, i, values * shrink);
    }
    if (HAS_HALVES != 0 && id == 0)
      Floats(half_scales).v[r] = 1.0 / shrink;
  } else {
    for (uint i = id; i < n_columns; i += WORKGROUP)
      store_element(to, i, TYPE_Y,
                    load_element(from, i, TYPE_X) * scale * (Floats(weight).v[i] + weight_offset));
  }
}
