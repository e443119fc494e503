/* Brings the sums of matmul_matrix.comp together: y[r][n] = scales[r] * (sums over splits) +
 * bias[n]. An invocation takes four columns of a row. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint TYPE_Y = 0;
layout(constant_id = 2) const uint HAS_BIAS = 0;

layout(push_constant) uniform Push {
  Rows y;
  uint64_t sums, scales, bias;
  uint n_rows, n_out, y_inner_rows, n_columns, n_padded_rows, n_splits; /* of the sums */
};

void main() {
  uint index = group_index() * WORKGROUP + gl_LocalInvocationID.x;
  uint quads = (n_out + 3) / 4, r = index / quads, n = index % quads * 4;
  if (r >= n_rows)
    return;
  vec4 total = vec4(0);
  for (uint s = 0; s < n_splits; s++)
    total += Floats4(sums).v[((s * n_padded_rows + r) * n_columns + n) / 4];
  total *= Floats(scales).v[r];
  for (uint i = 0; i < 4 && n + i < n_out; i++)
    store_element(row_of(y, r, y_inner_rows), n + i, TYPE_Y,
                  HAS_BIAS != 0 ? total[i] + Floats(bias).v[n + i] : total[i]);
}
