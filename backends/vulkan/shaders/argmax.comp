/* argmax: index of each row's largest element, the lowest among equals; NaN never wins. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"
#include "best.glsl"

layout(push_constant) uniform Push {
  Rows x;
  uint64_t y;
  uint n_rows, n_columns;
};

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint64_t from = row_of(x, r, n_rows);
  float best = 0;
  uint winner = 0xffffffffu;
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP) {
    float value = Floats(from).v[i];
    if (!is_nan(value) && (winner == 0xffffffffu || value > best)) {
      best = value;
      winner = i;
    }
  }
  winner = workgroup_best(best, winner);
  if (gl_LocalInvocationID.x == 0)
    Ints(y).v[r] = winner == 0xffffffffu ? 0 : int(winner);
}
