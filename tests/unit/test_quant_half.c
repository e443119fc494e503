/* Half and bfloat16 conversions against definitions that share no code with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <isomer/quant.h>
#include <math.h>
#include <string.h>

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* IEEE 754: sign, then 5 exponent bits with bias 15, then 10 fraction bits. */
static float defined_half(uint32_t half) {
  float sign = half & 0x8000 ? -1.0f : 1.0f;
  int exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31)
    return fraction ? NAN : sign * INFINITY;
  return sign * (exponent ? ldexpf((float)(1024 + fraction), exponent - 25)
                          : ldexpf((float)fraction, -24));
}

static void test_every_half_decodes(void **state) {
  (void)state;
  for (uint32_t half = 0; half < 0x10000; half++) {
    float value = iso_f16_to_f32((uint16_t)half), expected = defined_half(half);
    if (isnan(expected))
      assert_true(isnan(value) && (bits_of(value) & 0x00400000) &&
                  (bits_of(value) >> 31) == half >> 15);
    else
      assert_int_equal(bits_of(value), bits_of(expected));
  }
}

static void test_every_half_survives(void **state) {
  (void)state;
  for (uint32_t half = 0; half < 0x10000; half++) {
    bool is_nan = (half & 0x7c00) == 0x7c00 && (half & 0x03ff);
    uint32_t expected = is_nan ? half | 0x0200 : half;
    assert_int_equal(iso_f16_from_f32(iso_f16_to_f32((uint16_t)half)), expected);
  }
}

/* Between every two neighbours, of which one has an even code: just below the middle goes down,
 * just above goes up, the middle goes to the even one. */
static void test_half_rounds_to_nearest_even(void **state) {
  (void)state;
  for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000)
    for (uint32_t low = 0; low < 0x7bff; low++) {
      float middle = 0.5f * (defined_half(low | sign) + defined_half((low + 1) | sign));
      assert_int_equal(iso_f16_from_f32(middle), (low + (low & 1)) | sign);
      assert_int_equal(iso_f16_from_f32(float_of(bits_of(middle) - 1)), low | sign);
      assert_int_equal(iso_f16_from_f32(float_of(bits_of(middle) + 1)), (low + 1) | sign);
    }
}

static void test_half_limits(void **state) {
  (void)state;
  assert_int_equal(iso_f16_from_f32(65504.0f), 0x7bff);
  assert_int_equal(iso_f16_from_f32(65519.996f), 0x7bff);
  assert_int_equal(iso_f16_from_f32(65520.0f), 0x7c00);
  assert_int_equal(iso_f16_from_f32(-3.4e38f), 0xfc00);
  assert_int_equal(iso_f16_from_f32(INFINITY), 0x7c00);
  assert_int_equal(iso_f16_from_f32(float_of(1)), 0);
  assert_int_equal(iso_f16_from_f32(float_of(0x80000001)), 0x8000);
  /* NaN: always a quiet NaN, sign and leading payload kept. */
  assert_int_equal(iso_f16_from_f32(float_of(0x7f800001)), 0x7e00);
  assert_int_equal(iso_f16_from_f32(float_of(0xffc02000)), 0xfe01);
}

static void test_every_bfloat_survives(void **state) {
  (void)state;
  for (uint32_t bfloat = 0; bfloat < 0x10000; bfloat++) {
    assert_int_equal(bits_of(iso_bf16_to_f32((uint16_t)bfloat)), bfloat << 16);
    bool is_nan = (bfloat & 0x7fff) > 0x7f80;
    assert_int_equal(iso_bf16_from_f32(float_of(bfloat << 16)), is_nan ? bfloat | 0x40 : bfloat);
  }
}

static void test_bfloat_rounds_to_nearest_even(void **state) {
  (void)state;
  for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000)
    for (uint32_t low = 0; low < 0x7f80; low++) {
      uint32_t middle = (low | sign) << 16 | 0x8000;
      assert_int_equal(iso_bf16_from_f32(float_of(middle)), (low + (low & 1)) | sign);
      assert_int_equal(iso_bf16_from_f32(float_of(middle - 1)), low | sign);
      assert_int_equal(iso_bf16_from_f32(float_of(middle + 1)), (low + 1) | sign);
    }
  assert_int_equal(iso_bf16_from_f32(float_of(0x7f800001)), 0x7fc0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_half_decodes),
      cmocka_unit_test(test_every_half_survives),
      cmocka_unit_test(test_half_rounds_to_nearest_even),
      cmocka_unit_test(test_half_limits),
      cmocka_unit_test(test_every_bfloat_survives),
      cmocka_unit_test(test_bfloat_rounds_to_nearest_even),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
