/* paged_attention, second step: brings the parts of a row together. One workgroup a row. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint TYPE_Y = 0;

layout(push_constant) uniform Push {
  Rows y;
  uint64_t parts;
  uint n_rows, n_heads, value_dim, n_splits;
};

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint64_t first = parts + uint64_t(r) * n_splits * ((value_dim + 2) * 4);
  float largest = -INFINITY, total = 0;
  for (uint s = 0; s < n_splits; s++)
    largest = max(largest, Floats(first).v[s * (value_dim + 2)]);
  for (uint s = 0; s < n_splits; s++) {
    float maximum = Floats(first).v[s * (value_dim + 2)];
    if (maximum != -INFINITY)
      total += exp(maximum - largest) * Floats(first).v[s * (value_dim + 2) + 1];
  }
  for (uint i = gl_LocalInvocationID.x; i < value_dim; i += WORKGROUP) {
    float sum = 0;
    for (uint s = 0; s < n_splits; s++) {
      float maximum = Floats(first).v[s * (value_dim + 2)];
      if (maximum != -INFINITY)
        sum += exp(maximum - largest) * Floats(first).v[s * (value_dim + 2) + 2 + i];
    }
    store_element(row_of(y, r, n_heads), i, TYPE_Y, total > 0.0 ? sum / total : 0.0);
  }
}
