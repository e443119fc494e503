/* Rows of activations as halves, each row scaled by a power of two so that its largest magnitude is
 * below 2^15: for products on matrix units. One workgroup a row, or a pair of them where they are left
 * as fragments (shrink.glsl); scales lie behind the rows. With IS_GLU the rows are made first:
 * y = activation(x) * up. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "functions.glsl"
#include "groups.glsl"
#include "rows.glsl"
#include "reduce.glsl"
#include "shrink.glsl"

layout(constant_id = 1) const uint TYPE_X = 0; /* also of up and of y */
layout(constant_id = 2) const uint IS_VECTOR = 0;
layout(constant_id = 3) const uint IS_GLU = 0; /* only with IS_VECTOR */
layout(constant_id = 4) const uint ACTIVATION = 0;
layout(constant_id = 5) const uint ARE_FRAGMENTS = 0;

layout(push_constant) uniform Push {
  Rows x, up, y;
  uint64_t halves, scales;
  uint n_rows, inner_rows, n_columns; /* a multiple of 4 columns */
};

vec4 load(uint64_t row, uint quad) {
  if (IS_VECTOR != 0)
    return load_four(row, quad, TYPE_X);
  vec4 values;
  for (uint j = 0; j < 4; j++)
    values[j] = load_element(row, 4 * quad + j, TYPE_X);
  return values;
}

/* Makes row r where it is to be made, and returns by what it is scaled. Every invocation must call it. */
float prepare(uint r) {
  uint64_t from = row_of(x, r, inner_rows), beside = row_of(up, r, inner_rows);
  uint64_t made = row_of(y, r, inner_rows);
  float peak = 0;
  for (uint i = gl_LocalInvocationID.x; i < n_columns / 4; i += WORKGROUP) {
    vec4 values = load(from, i);
    if (IS_GLU != 0) {
      vec4 others = load(beside, i);
      for (uint j = 0; j < 4; j++)
        values[j] = activation_of(ACTIVATION, values[j]) * others[j];
      store_four(made, i, TYPE_X, values);
    }
    peak = max(peak, peak_of(values));
  }
  float shrink = shrink_of(workgroup_max(peak));
  if (gl_LocalInvocationID.x == 0)
    Floats(scales).v[r] = 1.0 / shrink;
  return shrink;
}

uint64_t scaled_row(uint r) {
  return IS_GLU != 0 ? row_of(y, r, inner_rows) : row_of(x, r, inner_rows);
}

void main() {
  uint r = ARE_FRAGMENTS != 0 ? row_of_pair(group_index()) : group_index();
  if (r >= n_rows)
    return;
  float shrink = prepare(r), second_shrink = 0;
  bool has_second = ARE_FRAGMENTS != 0 && r + 8 < n_rows;
  if (has_second)
    second_shrink = prepare(r + 8);
  uint64_t first = scaled_row(r), second = scaled_row(has_second ? r + 8 : r);
  for (uint i = gl_LocalInvocationID.x; i < n_columns / 4; i += WORKGROUP) {
    vec4 values = load(first, i) * shrink;
    if (ARE_FRAGMENTS != 0)
      store_fragments(halves, r, n_columns, i, values, load(second, i) * second_shrink);
    else
      store_halves(halves + uint64_t(r) * n_columns * 2, i, values);
  }
}
