/* rope: the first 2 F elements of each head rotated by position * frequency, the rest copied. A
 * workgroup takes one head of one token. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "functions.glsl"
#include "groups.glsl"
#include "rows.glsl"

layout(constant_id = 1) const uint TYPE_X = 0;
layout(constant_id = 2) const uint TYPE_Y = 0;
layout(constant_id = 3) const uint INTERLEAVED = 0;

layout(push_constant) uniform Push {
  Rows x, y;
  uint64_t positions, frequencies;
  uint n_rows, n_heads, n_columns, n_pairs;
  float magnitude;
};

void main() {
  uint r = group_index();
  if (r >= n_rows)
    return;
  uint64_t from = row_of(x, r, n_heads), to = row_of(y, r, n_heads);
  float position = float(Ints(positions).v[r / n_heads]);
  for (uint i = gl_LocalInvocationID.x; i < n_pairs; i += WORKGROUP) {
    uint first = INTERLEAVED != 0 ? 2 * i : i, second = INTERLEAVED != 0 ? first + 1 : i + n_pairs;
    precise float angle = position * Floats(frequencies).v[i];
    vec2 turn = cosine_sine(angle) * magnitude;
    float a = load_element(from, first, TYPE_X), b = load_element(from, second, TYPE_X);
    store_element(to, first, TYPE_Y, a * turn.x - b * turn.y);
    store_element(to, second, TYPE_Y, a * turn.y + b * turn.x);
  }
  for (uint i = 2 * n_pairs + gl_LocalInvocationID.x; i < n_columns; i += WORKGROUP)
    store_element(to, i, TYPE_Y, load_element(from, i, TYPE_X));
}
