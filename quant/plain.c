/* Plain elements: f32, f16, bf16, i32, i8. */
#include "quant/codec.h"
#include "quant/half.h"

#include <math.h>

static void f32_decode(const void *source, float *out_values, int64_t count) {
  memcpy(out_values, source, (size_t)count * sizeof *out_values);
}

static void f32_encode(const float *values, const float *importance, void *out, int64_t count) {
  (void)importance;
  memcpy(out, values, (size_t)count * sizeof *values);
}

/* Nearest integer, ties to even, saturated; NaN is 0. `high` is above every result's magnitude
 * and is a float exactly, which INT32_MAX is not. */
static inline int32_t round_to_int(float value, float high, int32_t maximum) {
  if (value >= high)
    return maximum;
  if (value <= -high)
    return -maximum - 1;
  return value == value ? (int32_t)lrintf(value) : 0;
}

static inline int32_t i32_from_float(float value) {
  return round_to_int(value, 0x1p31f, INT32_MAX);
}
static inline int8_t i8_from_float(float value) {
  int32_t rounded = round_to_int(value, 128.0f, INT8_MAX);
  return (int8_t)(rounded > INT8_MAX ? INT8_MAX : rounded);
}
static inline float i32_to_float(int32_t value) { return (float)value; }
static inline float i8_to_float(int8_t value) { return (float)value; }

/* The loops of one element type, given its two conversions. */
#define DEFINE_PLAIN(name, type, to_float, from_float)                                             \
  static void name##_decode(const void *source, float *out_values, int64_t count) {                \
    const unsigned char *bytes = source;                                                           \
    for (int64_t i = 0; i < count; i++) {                                                          \
      type element;                                                                                \
      memcpy(&element, bytes + (size_t)i * sizeof element, sizeof element);                        \
      out_values[i] = to_float(element);                                                           \
    }                                                                                              \
  }                                                                                                \
  static void name##_encode(const float *values, const float *importance, void *out,               \
                            int64_t count) {                                                       \
    (void)importance;                                                                              \
    unsigned char *bytes = out;                                                                    \
    for (int64_t i = 0; i < count; i++) {                                                          \
      type element = from_float(values[i]);                                                        \
      memcpy(bytes + (size_t)i * sizeof element, &element, sizeof element);                        \
    }                                                                                              \
  }                                                                                                \
  const iso_scheme_codec iso_codec_##name = {name##_decode, name##_encode};

DEFINE_PLAIN(f16, uint16_t, iso_half_to_float, iso_half_from_float)
DEFINE_PLAIN(bf16, uint16_t, iso_bfloat_to_float, iso_bfloat_from_float)
DEFINE_PLAIN(i32, int32_t, i32_to_float, i32_from_float)
DEFINE_PLAIN(i8, int8_t, i8_to_float, i8_from_float)
const iso_scheme_codec iso_codec_f32 = {f32_decode, f32_encode};
