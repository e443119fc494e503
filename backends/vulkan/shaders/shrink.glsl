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
