#include <isomer/quant.h>

#include "quant/half.h"

float iso_f16_to_f32(uint16_t bits) { return iso_half_to_float(bits); }
uint16_t iso_f16_from_f32(float value) { return iso_half_from_float(value); }
float iso_bf16_to_f32(uint16_t bits) { return iso_bfloat_to_float(bits); }
uint16_t iso_bf16_from_f32(float value) { return iso_bfloat_from_float(value); }
