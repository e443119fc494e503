/* Functions of one value that GLSL lacks or leaves too inexact: within a few units of the last
 * place, on every device. */

/* tanh by its series near 0, where the exponential would cancel. */
float tanh_of(float x) {
  float s = x * x;
  if (s < 0.09)
    return x * (1.0 + s * (-0.33333333 + s * (0.13333333 + s * (-0.053968254 + s * 0.021869488))));
  return 1.0 - 2.0 / (exp(2.0 * x) + 1.0);
}

/* Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26; its series near 0. */
float erf_of(float x) {
  float a = abs(x), s = x * x;
  if (a < 0.5)
    return x * (1.1283791671 +
                s * (-0.3761263890 + s * (0.1128379167 + s * (-0.0268661706 + s * (0.0052239776 +
                s * -0.00085483270)))));
  float t = 1.0 / (1.0 + 0.3275911 * a);
  float p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 +
            t * 1.061405429))));
  return sign(x) * (1.0 - p * exp(-s));
}

/* iso_activation */
float activation_of(uint activation, float x) {
  switch (activation) {
  case 0:
    return x / (1.0 + exp(-x));
  case 1:
    return 0.5 * x * (1.0 + tanh_of(0.7978845608 * (x + 0.044715 * x * x * x)));
  case 2:
    return 0.5 * x * (1.0 + erf_of(x * 0.7071067812));
  case 3:
    return x > 0.0 || is_nan(x) ? x : 0.0;
  default:
    return 1.0 / (1.0 + exp(-x));
  }
}

/* Cosine and sine of an angle in radians, |angle| < 2^31: the angle in turns is found in integers,
 * so that large angles lose nothing. */
vec2 cosine_sine(float angle) {
  uint bits = floatBitsToUint(angle);
  int exponent = int(bits >> 23 & 255u) - 150;
  uint64_t mantissa = uint64_t((bits & 0x7fffffu) | 0x800000u);
  /* 2^64 / (2 pi), halves; the product is in turns times 2^64, without the power of two. */
  uint64_t high = mantissa * 0x28be60dbUL, low = mantissa * 0x9391054aUL;
  uint turns = 0; /* fraction of a turn times 2^32 */
  if (exponent >= 0)
    turns = uint(((high << 32) + low) << exponent >> 32);
  else if (exponent > -57)
    turns = uint((high + (low >> 32)) >> -exponent);
  if ((bits & 0x80000000u) != 0)
    turns = -turns;
  uint quadrant = (turns + 0x20000000u) >> 30;
  float r = float(int(turns - (quadrant << 30))) * 1.4629180792671596e-9; /* 2 pi / 2^32 */
  float s = r * r;
  float sine = r * (1.0 + s * (-0.16666667 + s * (0.0083333338 + s * (-0.00019841270 +
               s * 2.7557319e-6))));
  float cosine = 1.0 + s * (-0.5 + s * (0.041666668 + s * (-0.0013888889 + s * (2.4801587e-5 +
                 s * -2.7557319e-7))));
  vec2 result = (quadrant & 1u) == 0 ? vec2(cosine, sine) : vec2(-sine, cosine);
  return (quadrant & 2u) == 0 ? result : -result;
}
