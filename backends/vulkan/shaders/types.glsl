/* Memory by 64-bit address, and the three float types as f32. */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#ifdef FIXED_WORKGROUP
layout(local_size_x = FIXED_WORKGROUP) in;
const uint WORKGROUP = FIXED_WORKGROUP;
#else
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
#endif

layout(buffer_reference, std430, buffer_reference_align = 1) buffer Bytes { uint8_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer Halves { uint16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Words2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Words4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Floats4 { vec4 v[]; };

/* Element types, as vulkan_type_of() numbers them. */
const uint FLOAT_F32 = 0, FLOAT_F16 = 1, FLOAT_BF16 = 2;

#define INFINITY uintBitsToFloat(0x7f800000u)

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }

/* The bits of a half as f32: exact, whatever the device does with subnormals. */
float half_to_float(uint bits) {
  uint sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  uint normal = (magnitude << 13) + (magnitude < 0x7c00u ? 112u << 23 : 224u << 23);
  float small = float(magnitude) * 5.9604644775390625e-8; /* 2^-24 */
  return uintBitsToFloat(sign | (magnitude < 0x0400u ? floatBitsToUint(small) : normal));
}

/* Rounds to nearest even; above the largest half, infinity. */
uint float_to_half(float value) {
  uint bits = floatBitsToUint(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return sign | 0x7e00u | (magnitude >> 13 & 0x3ffu);
  if (magnitude >= 0x477ff000u)
    return sign | 0x7c00u;
  if (magnitude < 0x38800000u) {
    /* A subnormal half is a multiple of 2^-24. */
    float scaled = uintBitsToFloat(magnitude) * 16777216.0;
    return sign | uint(roundEven(scaled));
  }
  return sign | (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
}

uint float_to_bfloat(float value) {
  uint bits = floatBitsToUint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

/* Element `i` of a row of the given type. */
float load_element(uint64_t row, uint i, uint type) {
  if (type == FLOAT_F32)
    return Floats(row).v[i];
  uint bits = uint(Halves(row).v[i]);
  return type == FLOAT_F16 ? half_to_float(bits) : uintBitsToFloat(bits << 16);
}

void store_element(uint64_t row, uint i, uint type, float value) {
  if (type == FLOAT_F32)
    Floats(row).v[i] = value;
  else
    Halves(row).v[i] = uint16_t(type == FLOAT_F16 ? float_to_half(value) : float_to_bfloat(value));
}

/* Elements 4 i to 4 i + 3 of a row that is aligned to them. */
vec4 load_four(uint64_t row, uint i, uint type) {
  if (type == FLOAT_F32)
    return Floats4(row).v[i];
  uvec2 bits = Words2(row).v[i];
  if (type == FLOAT_BF16)
    return uintBitsToFloat(uvec4(bits.x << 16, bits.x & 0xffff0000u, bits.y << 16,
                                 bits.y & 0xffff0000u));
  return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
}

void store_four(uint64_t row, uint i, uint type, vec4 values) {
  if (type == FLOAT_F32) {
    Floats4(row).v[i] = values;
  } else if (type == FLOAT_F16) {
    Words2(row).v[i] = uvec2(float_to_half(values.x) | float_to_half(values.y) << 16,
                             float_to_half(values.z) | float_to_half(values.w) << 16);
  } else {
    Words2(row).v[i] = uvec2(float_to_bfloat(values.x) | float_to_bfloat(values.y) << 16,
                             float_to_bfloat(values.z) | float_to_bfloat(values.w) << 16);
  }
}
