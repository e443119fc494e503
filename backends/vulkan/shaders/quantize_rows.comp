/* quantize_rows: rows encoded in blocks of 32, the scale (and minimum) from the extreme values as the
 * format's reference encoder has them. An invocation encodes a block. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "rows.glsl"
#include "encode_q8_0.glsl"

layout(constant_id = 1) const uint TYPE_X = 0;
layout(constant_id = 2) const uint BITS = 8; /* of a code: 8, 5 or 4 */
layout(constant_id = 3) const uint HAS_MINIMUM = 0;
layout(constant_id = 4) const uint BLOCK_BYTES = 34;

layout(push_constant) uniform Push {
  Rows x, y;
  uint n_rows, inner_rows, n_blocks; /* of a row */
};

const float LARGEST_HALF = 65504.0;

float clamped(uint64_t row, uint i, float limit) {
  float value = load_element(row, i, TYPE_X);
  return is_nan(value) ? 0.0 : clamp(value, -limit, limit);
}

float inverse_of(float scale) { return scale == 0.0 ? 0.0 : 1.0 / scale; }

void store_narrow(uint64_t block, uint64_t row, uint first) {
  float half_range = float(1u << BITS - 1), top = 2.0 * half_range - 1.0, scale, minimum = 0.0;
  float limit = HAS_MINIMUM != 0 ? LARGEST_HALF : LARGEST_HALF * half_range, offset = half_range;
  float low = clamped(row, first, limit), high = low, peak = 0.0;
  for (uint i = 0; i < 32; i++) {
    float value = clamped(row, first + i, limit);
    low = min(low, value);
    high = max(high, value);
    peak = abs(value) > abs(peak) ? value : peak;
  }
  scale = peak / -half_range;
  if (HAS_MINIMUM != 0) {
    scale = (high - low) / top;
    minimum = low;
    offset = 0.0;
  }
  float inverse = inverse_of(scale);
  uint at = 0, fifth = 0, pairs[8];
  for (uint i = 0; i < 8; i++)
    pairs[i] = 0;
  for (uint i = 0; i < 32; i++) {
    float scaled = (clamped(row, first + i, limit) - minimum) * inverse + (offset + 0.5);
    uint code = uint(clamp(scaled, 0.0, top));
    pairs[i % 16 / 2] |= (code & 15u) << i % 2 * 8 + i / 16 * 4;
    fifth |= (code >> 4) << i;
  }
  Halves(block).v[at++] = uint16_t(float_to_half(clamp(scale, -LARGEST_HALF, LARGEST_HALF)));
  if (HAS_MINIMUM != 0)
    Halves(block).v[at++] = uint16_t(float_to_half(clamp(minimum, -LARGEST_HALF, LARGEST_HALF)));
  if (BITS == 5) {
    Halves(block).v[at++] = uint16_t(fifth & 0xffffu);
    Halves(block).v[at++] = uint16_t(fifth >> 16);
  }
  for (uint i = 0; i < 8; i++)
    Halves(block).v[at + i] = uint16_t(pairs[i]);
}

void main() {
  uint index = group_index() * WORKGROUP + gl_LocalInvocationID.x, r = index / n_blocks;
  uint block = index % n_blocks;
  if (r >= n_rows)
    return;
  uint64_t from = row_of(x, r, inner_rows), to = row_of(y, r, inner_rows) + block * BLOCK_BYTES;
  if (BITS == 8)
    store_q8_0(to, from, block * 32, TYPE_X);
  else
    store_narrow(to, from, block * 32);
}
