/* The frame of ops that reduce a row: one workgroup a row. */
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint TYPE_X = 0;
layout(constant_id = 2) const uint TYPE_Y = 0;
layout(constant_id = 3) const uint HAS_BIAS = 0;

layout(constant_id = 4) const uint IS_VECTOR = 0; /* rows, weight and bias are whole vectors */

layout(push_constant) uniform Push {
  Rows x, y;
  uint64_t weight, bias, halves, half_scales;
  uint n_rows, inner_rows, n_columns;
  float epsilon, weight_offset;
};
