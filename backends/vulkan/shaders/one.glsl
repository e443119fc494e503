/* What the products of one row of activations share: operands, and what becomes of results.
 * vulkan_launch_product() fills them in. */
#include "types.glsl"
#include "functions.glsl"
#include "groups.glsl"

layout(constant_id = 1) const uint TYPE_X = 0; /* also of the normalised row */
layout(constant_id = 2) const uint TYPE_Y = 0; /* also of the residual and of what follows */
layout(constant_id = 3) const uint SPLIT = 0;
layout(constant_id = 4) const uint ROWS = 1;
layout(constant_id = 5) const uint N_PARTS = 1;
layout(constant_id = 6) const uint HAS_BIAS = 0;
layout(constant_id = 7) const uint NORM = 0;          /* NORM_* */
layout(constant_id = 8) const uint EPSILON = 0;       /* bits of a float */
layout(constant_id = 9) const uint WEIGHT_OFFSET = 0; /* likewise */
layout(constant_id = 10) const uint AFTER = 0;        /* AFTER_* */
layout(constant_id = 11) const uint ACTIVATION = 0;
const uint NORM_KEPT = 1; /* else what follows writes over the normalised row */
const uint AFTER_NONE = 0, AFTER_ADD = 1, AFTER_GLU = 2;

struct Part {
  uint64_t rest, bias, y;
};

layout(push_constant) uniform Push {
  uint64_t x, gain, normalised; /* the last two only with NORM */
  uint64_t residual, after;     /* what is added, and where the result goes */
  Part parts[3];
  uint n_in, n_out[3];
};

/* What result `n` is added to: asked for at the start, so that nobody waits for it at the end. */
float residual_of(uint part, uint n) {
  return AFTER == AFTER_ADD && n < n_out[part] ? load_element(residual, n, TYPE_Y) : 0.0;
}

void store(uint part, uint n, float value, float before) {
  if (HAS_BIAS != 0 && parts[part].bias != 0)
    value += Floats(parts[part].bias).v[n];
  store_element(parts[part].y, n, TYPE_Y, value);
  if (AFTER == AFTER_ADD)
    store_element(after, n, TYPE_Y, before + value);
}

void store_gated(uint n, float gate, float up) {
  if (HAS_BIAS != 0 && parts[0].bias != 0)
    gate += Floats(parts[0].bias).v[n];
  if (HAS_BIAS != 0 && parts[1].bias != 0)
    up += Floats(parts[1].bias).v[n];
  store_element(parts[0].y, n, TYPE_Y, gate);
  store_element(parts[1].y, n, TYPE_Y, up);
  store_element(after, n, TYPE_Y, activation_of(ACTIVATION, gate) * up);
}

/* The part of a tile of ROWS results, `tile` becoming its number within that. */
uint part_of(inout uint tile) {
  uint part = 0;
  if (AFTER != AFTER_GLU) /* a tile holds rows of both weights */
    for (; part + 1 < N_PARTS && tile >= (n_out[part] + ROWS - 1) / ROWS; part++)
      tile -= (n_out[part] + ROWS - 1) / ROWS;
  return part;
}

/* The normalised row, a piece a workgroup. What an invocation stores of it is asked for before
 * products are made, so that nobody waits for it at the end. */
float unscaled_at(uint i) {
  return load_element(x, i, TYPE_X) * (Floats(gain).v[i] + uintBitsToFloat(WEIGHT_OFFSET));
}

float own_unscaled() {
  uint i = group_index() * WORKGROUP + gl_LocalInvocationID.x;
  return NORM == NORM_KEPT && i < n_in ? unscaled_at(i) : 0.0;
}

void store_normalised(float scale, float own) {
  uint i = group_index() * WORKGROUP + gl_LocalInvocationID.x;
  if (NORM != NORM_KEPT)
    return;
  if (i < n_in)
    store_element(normalised, i, TYPE_X, own * scale);
  for (i += WORKGROUP * gl_NumWorkGroups.x; i < n_in; i += WORKGROUP * gl_NumWorkGroups.x)
    store_element(normalised, i, TYPE_X, unscaled_at(i) * scale);
}
