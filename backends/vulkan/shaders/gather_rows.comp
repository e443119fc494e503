/* gather_rows: rows picked by index, copied bit for bit. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint IS_WIDE = 1; /* elements of four bytes, else of two */

layout(push_constant) uniform Push {
  Rows x, y;
  uint64_t rows;
  uint n_rows, n_columns, n_source_rows;
};

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint picked = min(uint(Ints(rows).v[r]), n_source_rows - 1);
  uint64_t from = row_of(x, picked, n_source_rows), to = row_of(y, r, n_rows);
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP)
    if (IS_WIDE != 0)
      Words(to).v[i] = Words(from).v[i];
    else
      Halves(to).v[i] = Halves(from).v[i];
}
