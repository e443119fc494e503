/* gather_rows: rows picked by index, copied bit for bit, an element an invocation: stores between loads
 * would have each wait for the one before. */
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
  uint n_pieces = (n_columns + WORKGROUP - 1) / WORKGROUP, r = group_index() / n_pieces;
  uint i = group_index() % n_pieces * WORKGROUP + gl_LocalInvocationID.x;
  if (r >= n_rows || i >= n_columns)
    return;
  uint picked = min(uint(Ints(rows).v[r]), n_source_rows - 1);
  uint64_t from = row_of(x, picked, n_source_rows), to = row_of(y, r, n_rows);
  if (IS_WIDE != 0)
    Words(to).v[i] = Words(from).v[i];
  else
    Halves(to).v[i] = Halves(from).v[i];
}
