/* The frame of ops on one element at a time: y = ELEMENT(a, b), b being 0 where HAS_B is 0.
 * The including file defines ELEMENT before. A workgroup takes WORKGROUP columns of a row. */
#include "types.glsl"
#include "functions.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint TYPE_A = 0;
layout(constant_id = 2) const uint TYPE_B = 0;
layout(constant_id = 3) const uint TYPE_Y = 0;
layout(constant_id = 4) const uint HAS_B = 0;
layout(constant_id = 5) const uint ACTIVATION = 0;

layout(push_constant) uniform Push {
  Rows a, b, y;
  uint n_rows, inner_rows, n_columns, n_chunks; /* chunks of WORKGROUP columns in a row */
  float scale, cap;
};

#define ELEMENTWISE_MAIN                                                                         \
  void main() {                                                                                  \
    uint group = group_index(), r = group / n_chunks;                                            \
    uint i = group % n_chunks * WORKGROUP + gl_LocalInvocationID.x;                              \
    if (r >= n_rows || i >= n_columns)                                                           \
      return;                                                                                    \
    float value = load_element(row_of(a, r, inner_rows), i, TYPE_A), other = 0;                  \
    if (HAS_B != 0)                                                                              \
      other = load_element(row_of(b, r, inner_rows), i, TYPE_B);                                 \
    store_element(row_of(y, r, inner_rows), i, TYPE_Y, element(value, other));                   \
  }
