/* Rows of a weight decoded to halves, for matmul_matrix.comp. An invocation decodes eight
 * elements. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"

layout(constant_id = 1) const uint SPLIT = 0;
layout(constant_id = 2) const uint VECTOR = 0;

layout(push_constant) uniform Push {
  uint64_t rest, scales, halves;
  uint first_row, n_rows, n_columns;
};

#include "weights.glsl"

/* Weights beyond a half's range would be infinite: they are kept in it. */
uvec2 pack(vec4 values) {
  values = clamp(values, -65504.0, 65504.0);
  return uvec2(packHalf2x16(values.xy), packHalf2x16(values.zw));
}

void main() {
  uint n_groups = n_columns / 8, index = group_index() * WORKGROUP + gl_LocalInvocationID.x;
  uint r = index / n_groups, g = index % n_groups;
  if (r >= n_rows)
    return;
  uint span = g / (HALF / 4), j = g % (HALF / 4), k = span * (2 * HALF) + 4 * j;
  Group group = decode(weight_row(rest, scales, first_row + r, n_columns), span, j, n_columns);
  uint64_t to = halves + uint64_t(r) * n_columns * 2;
  Words2(to).v[k / 4] = pack(group.low * group.scale.x + group.bias.x);
  Words2(to).v[(k + HALF) / 4] = pack(group.high * group.scale.y + group.bias.y);
}
