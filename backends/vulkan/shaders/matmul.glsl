/* What the products share: constants, operands, and loads of activations. */
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint TYPE_X = 0;
layout(constant_id = 2) const uint TYPE_Y = 0;
layout(constant_id = 3) const uint HAS_BIAS = 0;
layout(constant_id = 4) const uint SPLIT = 0;  /* the weight is packed */
layout(constant_id = 5) const uint VECTOR = 0; /* rows start and end at whole vectors */
layout(constant_id = 6) const uint N_X_ROWS = 1;      /* matmul_rows: rows of x at a time, ... */
layout(constant_id = 7) const uint N_WEIGHT_ROWS = 1; /* ... and of the weight */
layout(constant_id = 8) const uint UNROLL = 1;        /* steps along a row at a time */

layout(push_constant) uniform Push {
  Rows x, y;
  uint64_t rest, scales, bias, experts;
  uint n_rows, n_out, n_in; /* of y; columns of y; of x */
  uint x_inner_rows, y_inner_rows;
  uint n_tiles, n_choices, n_experts;
};

#include "weights.glsl"

vec4 load_x(uint64_t row, uint k) {
  if (VECTOR != 0)
    return load_four(row, k / 4, TYPE_X);
  vec4 values = vec4(0);
  for (uint i = 0; i < 4; i++)
    if (k + i < n_in)
      values[i] = load_element(row, k + i, TYPE_X);
  return values;
}
