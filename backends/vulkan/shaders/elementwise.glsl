/* The frame of ops on one element at a time: y = element(a, b), b being 0 where HAS_B is 0.
 * The including file defines element() and then takes ELEMENTWISE_MAIN. An invocation takes one
 * column of a row, or four where rows are whole vectors. */
#include "types.glsl"
#include "functions.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint TYPE_A = 0;
layout(constant_id = 2) const uint TYPE_B = 0;
layout(constant_id = 3) const uint TYPE_Y = 0;
layout(constant_id = 4) const uint HAS_B = 0;
layout(constant_id = 5) const uint ACTIVATION = 0;
layout(constant_id = 6) const uint IS_VECTOR = 0;

layout(push_constant) uniform Push {
  Rows a, b, y;
  uint n_rows, inner_rows, n_columns, n_chunks; /* workgroups to a row */
  float scale, cap;
};

#define ELEMENTWISE_MAIN                                                                         \
  void main() {                                                                                  \
    uint group = group_index(), r = group / n_chunks;                                            \
    uint i = group % n_chunks * WORKGROUP + gl_LocalInvocationID.x;                              \
    if (r >= n_rows || i >= (IS_VECTOR != 0 ? n_columns / 4 : n_columns))                        \
      return;                                                                                    \
    uint64_t from = row_of(a, r, inner_rows), to = row_of(y, r, inner_rows);                     \
    uint64_t beside = row_of(b, r, inner_rows);                                                  \
    if (IS_VECTOR == 0) {                                                                        \
      float other = HAS_B != 0 ? load_element(beside, i, TYPE_B) : 0.0;                          \
      store_element(to, i, TYPE_Y, element(load_element(from, i, TYPE_A), other));               \
      return;                                                                                    \
    }                                                                                            \
    vec4 values = load_four(from, i, TYPE_A), others = vec4(0);                                  \
    if (HAS_B != 0)                                                                              \
      others = load_four(beside, i, TYPE_B);                                                     \
    for (uint j = 0; j < 4; j++)                                                                 \
      values[j] = element(values[j], others[j]);                                                 \
    store_four(to, i, TYPE_Y, values);                                                           \
  }
