/* rms_norm: x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset). With HAS_HALVES, only with
 * IS_VECTOR, the rows are also left as halves.comp would, which takes two of them a workgroup for fragments. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "norm.glsl"
#include "shrink.glsl"

layout(constant_id = 5) const uint HAS_HALVES = 0;
layout(constant_id = 6) const uint ARE_FRAGMENTS = 0;

/* What row r is multiplied by, and by what its halves are scaled besides. Every invocation must call it. */
vec2 prepare(uint r) {
  uint64_t from = row_of(x, r, inner_rows);
  uint id = gl_LocalInvocationID.x;
  float sum = 0, peak = 0;
  if (IS_VECTOR != 0) {
    for (uint i = id; i < n_columns / 4; i += WORKGROUP) {
      vec4 values = load_four(from, i, TYPE_X);
      sum += dot(values, values);
      if (HAS_HALVES != 0)
        peak = max(peak, peak_of(values * (Floats4(weight).v[i] + weight_offset)));
    }
  } else {
    for (uint i = id; i < n_columns; i += WORKGROUP) {
      float value = load_element(from, i, TYPE_X);
      sum += value * value;
    }
  }
  float scale = 1.0 / sqrt(workgroup_sum(sum) / float(n_columns) + epsilon);
  float shrink = HAS_HALVES != 0 ? shrink_of(workgroup_max(peak) * scale) : 0.0;
  if (HAS_HALVES != 0 && id == 0)
    Floats(half_scales).v[r] = 1.0 / shrink;
  return vec2(scale, shrink);
}

/* Columns 4 i to 4 i + 3 of row r, which are written too. */
vec4 make(uint r, uint i, float scale) {
  vec4 values = load_four(row_of(x, r, inner_rows), i, TYPE_X) * scale *
                (Floats4(weight).v[i] + weight_offset);
  store_four(row_of(y, r, inner_rows), i, TYPE_Y, values);
  return values;
}

void main() {
  const bool IN_PAIRS = HAS_HALVES != 0 && ARE_FRAGMENTS != 0;
  uint r = IN_PAIRS ? row_of_pair(group_index()) : group_index(), id = gl_LocalInvocationID.x;
  if (r >= n_rows)
    return;
  vec2 first = prepare(r), second = vec2(0);
  bool has_second = IN_PAIRS && r + 8 < n_rows;
  if (has_second)
    second = prepare(r + 8);
  if (IS_VECTOR != 0) {
    for (uint i = id; i < n_columns / 4; i += WORKGROUP) {
      vec4 values = make(r, i, first.x) * first.y;
      if (IN_PAIRS)
        store_fragments(halves, r, n_columns, i, values,
                        has_second ? make(r + 8, i, second.x) * second.y : vec4(0));
      else if (HAS_HALVES != 0)
        store_halves(halves + uint64_t(r) * n_columns * 2, i, values);
    }
  } else {
    uint64_t from = row_of(x, r, inner_rows), to = row_of(y, r, inner_rows);
    for (uint i = id; i < n_columns; i += WORKGROUP)
      store_element(to, i, TYPE_Y,
                    load_element(from, i, TYPE_X) * first.x * (Floats(weight).v[i] + weight_offset));
  }
}
