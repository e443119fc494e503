/* Numbers as halves, made smaller by a power of two. */

/* The largest magnitude; what is no number, or infinite, does not count. */
float peak_of(vec4 values) {
  vec4 sizes = abs(values);
  float peak = 0;
  for (uint i = 0; i < 4; i++)
    peak = max(peak, sizes[i] < INFINITY ? sizes[i] : 0.0);
  return peak;
}

/* The power of two that brings `peak` below 2^15: its inverse is one as well. */
float shrink_of(float peak) {
  int exponent = clamp(int(floatBitsToUint(peak) >> 23), 20, 230);
  return uintBitsToFloat(uint(268 - exponent) << 23);
}

void store_halves(uint64_t row, uint quad, vec4 values) {
  Words2(row).v[quad] = uvec2(packHalf2x16(values.xy), packHalf2x16(values.zw));
}

/* Rows as fragments: 16 rows and 16 columns lie next to each other, 16 bytes for each invocation of a
 * subgroup, as a fragment of A is held. With g its number's quarter and t the rest, these are columns
 * 2 t and 2 t + 1 of row g, then of row g + 8, then columns 2 t + 8 and 2 t + 9 of both. So a workgroup
 * makes two rows, the one of its number and the one 8 on. */
uint row_of_pair(uint pair) { return pair / 8 * 16 + pair % 8; }

/* Columns 4 quad to 4 quad + 3 of row r, which is not the second of its pair, and of row r + 8. */
void store_fragments(uint64_t halves, uint r, uint n_columns, uint quad, vec4 first, vec4 second) {
  uint64_t fragment = halves + (uint64_t(r / 16) * (n_columns / 16) + quad / 4) * 512;
  uint at = r % 8 * 8 + quad % 2 * 4 + quad % 4 / 2;
  Words2(fragment).v[at] = uvec2(packHalf2x16(first.xy), packHalf2x16(second.xy));
  Words2(fragment).v[at + 2] = uvec2(packHalf2x16(first.zw), packHalf2x16(second.zw));
}
