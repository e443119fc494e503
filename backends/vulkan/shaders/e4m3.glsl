/* FP8 E4M3: see quant/e4m3.h. */

/* Exact whatever the device does with subnormals, and NaN for the codes that are. */
float e4m3_to_float(uint code) {
  uint magnitude = code & 0x7fu;
  float value = magnitude < 8 ? float(magnitude) * 0.001953125 /* 2^-9 */
                              : uintBitsToFloat((magnitude << 20) + (120u << 23));
  value = magnitude == 0x7fu ? uintBitsToFloat(0x7fc00000u) : value;
  return uintBitsToFloat(floatBitsToUint(value) | (code & 0x80u) << 24);
}
vec4 e4m3_of(uint word) {
  return vec4(e4m3_to_float(word & 255u), e4m3_to_float(word >> 8 & 255u),
              e4m3_to_float(word >> 16 & 255u), e4m3_to_float(word >> 24));
}

/* Rounds a number to nearest even; above the largest, that. */
uint float_to_e4m3(float value) {
  uint bits = floatBitsToUint(value), sign = bits >> 24 & 0x80u;
  float magnitude = abs(value);
  if (magnitude >= 448.0)
    return sign | 0x7eu;
  if (magnitude < 0.015625) /* 2^-6: steps of 2^-9 */
    return sign | uint(roundEven(magnitude * 512.0));
  bits &= 0x7fffffffu;
  return sign | (bits + 0x7ffffu + (bits >> 20 & 1u) >> 20) - (120u << 3);
}
