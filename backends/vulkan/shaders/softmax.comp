/* softmax: exp(x - max) / sum of each row. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "norm.glsl"

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint64_t from = row_of(x, r, inner_rows), to = row_of(y, r, inner_rows);
  float largest = -INFINITY, sum = 0;
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP)
    largest = max(largest, load_element(from, i, TYPE_X));
  largest = workgroup_max(largest);
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP)
    sum += exp(load_element(from, i, TYPE_X) - largest);
  float scale = 1.0 / workgroup_sum(sum);
  for (uint i = gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP)
    store_element(to, i, TYPE_Y, exp(load_element(from, i, TYPE_X) - largest) * scale);
}
