/* embedding: rows of a table picked by id, decoded and scaled. An invocation takes eight elements. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint TYPE_Y = 0;
layout(constant_id = 2) const uint SPLIT = 0;
layout(constant_id = 3) const uint VECTOR = 0;

layout(push_constant) uniform Push {
  Rows y;
  uint64_t ids, rest, scales;
  uint n_rows, n_columns, n_table_rows;
  float scale;
};

#include "weights.glsl"

void store_four(uint64_t row, uint k, vec4 values) {
  for (uint i = 0; i < 4; i++)
    if (k + i < n_columns)
      store_element(row, k + i, TYPE_Y, values[i] * scale);
}

void main() {
  uint n_groups = (n_columns + 7) / 8, n_pieces = (n_groups + WORKGROUP - 1) / WORKGROUP;
  uint r = group_index() / n_pieces;
  uint g = group_index() % n_pieces * WORKGROUP + gl_LocalInvocationID.x;
  if (r >= n_rows || g >= n_groups)
    return;
  uint id = uint(Ints(ids).v[r]);
  bool inside = id < n_table_rows;
  id = inside ? id : 0;
  uint64_t to = row_of(y, r, n_rows);
  uint span = g / (HALF / 4), j = g % (HALF / 4), k = span * (2 * HALF) + 4 * j;
  Group group = decode(weight_row(rest, scales, id, n_columns), span, j, n_columns);
  vec4 none = vec4(uintBitsToFloat(0x7fc00000u));
  store_four(to, k, inside ? group.low * group.scale.x + group.bias.x : none);
  store_four(to, k + HALF, inside ? group.high * group.scale.y + group.bias.y : none);
}
