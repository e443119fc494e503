/* route_top_k: the k largest logits of each token, best first, the lower index among equals, and
 * their weights. One workgroup a token; NaN counts as -infinity. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"
#include "reduce.glsl"
#include "best.glsl"

layout(constant_id = 1) const uint TYPE_X = 0;
layout(constant_id = 2) const uint NORMALIZE = 1;

layout(push_constant) uniform Push {
  Rows logits;
  uint64_t experts, weights;
  uint n_rows, n_experts, k;
  float scale;
};

float logit_of(uint64_t row, uint e) {
  float value = load_element(row, e, TYPE_X);
  return is_nan(value) ? -INFINITY : value;
}

void main() {
  uint t = group_index();
  if (t >= n_rows)
    return;
  uint64_t row = row_of(logits, t, n_rows);
  /* Each choice is the best of those that come after the one before in (value, index) order. */
  float previous = 0, first = 0, sum = 0;
  uint previous_index = 0;
  for (uint c = 0; c < k; c++) {
    float best = 0;
    uint winner = 0xffffffffu;
    for (uint e = gl_LocalInvocationID.x; e < n_experts; e += WORKGROUP) {
      float value = logit_of(row, e);
      bool is_left = c == 0 || is_better(previous, previous_index, value, e);
      if (is_left && (winner == 0xffffffffu || value > best)) {
        best = value;
        winner = e;
      }
    }
    previous_index = workgroup_best(best, winner);
    previous = best;
    if (c == 0)
      first = best;
    sum += exp(best - first);
    if (gl_LocalInvocationID.x == 0) {
      Ints(experts).v[t * k + c] = int(previous_index);
      Floats(weights).v[t * k + c] = exp(best - first);
    }
  }
  if (NORMALIZE == 0) {
    sum = 0;
    for (uint e = gl_LocalInvocationID.x; e < n_experts; e += WORKGROUP)
      sum += exp(logit_of(row, e) - first);
    sum = workgroup_sum(sum);
  }
  if (gl_LocalInvocationID.x == 0)
    for (uint c = 0; c < k; c++)
      Floats(weights).v[t * k + c] *= scale / sum;
}
