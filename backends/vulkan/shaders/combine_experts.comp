/* combine_experts: the sum over choices of weight times row. One workgroup a token. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint TYPE_X = 0;
layout(constant_id = 2) const uint TYPE_Y = 0;

layout(push_constant) uniform Push {
  Rows x, y;
  uint64_t weights;
  uint n_rows, n_choices, n_columns;
};

void main() {
  uint t = group_index();
  if (t >= n_rows)
    return;
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP) {
    float sum = 0;
    for (uint c = 0; c < n_choices; c++)
      sum = fma(Floats(weights).v[t * n_choices + c],
                load_element(row_of(x, t * n_choices + c, n_choices), i, TYPE_X), sum);
    store_element(row_of(y, t, n_rows), i, TYPE_Y, sum);
  }
}
