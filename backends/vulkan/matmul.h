/* What the files of the products share. */
#ifndef ISOMER_VULKAN_MATMUL_H
#define ISOMER_VULKAN_MATMUL_H

#include "backends/vulkan/vulkan.h"

/* The shader of a family for each scheme of weights, or for those of blocks alone, as initializers
 * of an array. */
#define VULKAN_BY_SCHEME(family)                                                                   \
  [ISO_SCHEME_F32] = VULKAN_SHADER_##family##_f32,                                                 \
  [ISO_SCHEME_F16] = VULKAN_SHADER_##family##_f16,                                                 \
  [ISO_SCHEME_BF16] = VULKAN_SHADER_##family##_bf16, VULKAN_BY_BLOCK_SCHEME(family)
#define VULKAN_BY_BLOCK_SCHEME(family)                                                             \
  [ISO_SCHEME_Q8_0] = VULKAN_SHADER_##family##_q8_0,                                               \
  [ISO_SCHEME_Q4_0] = VULKAN_SHADER_##family##_q4_0,                                               \
  [ISO_SCHEME_Q4_1] = VULKAN_SHADER_##family##_q4_1,                                               \
  [ISO_SCHEME_Q5_0] = VULKAN_SHADER_##family##_q5_0,                                               \
  [ISO_SCHEME_Q5_1] = VULKAN_SHADER_##family##_q5_1,                                               \
  [ISO_SCHEME_Q2_K] = VULKAN_SHADER_##family##_q2_k,                                               \
  [ISO_SCHEME_Q3_K] = VULKAN_SHADER_##family##_q3_k,                                               \
  [ISO_SCHEME_Q4_K] = VULKAN_SHADER_##family##_q4_k,                                               \
  [ISO_SCHEME_Q5_K] = VULKAN_SHADER_##family##_q5_k,                                               \
  [ISO_SCHEME_Q6_K] = VULKAN_SHADER_##family##_q6_k,                                               \
  [ISO_SCHEME_IQ4_NL] = VULKAN_SHADER_##family##_iq4_nl,                                           \
  [ISO_SCHEME_I8_G128] = VULKAN_SHADER_##family##_i8_g128,                                         \
  [ISO_SCHEME_F8_G128] = VULKAN_SHADER_##family##_f8_g128,                                         \
  [ISO_SCHEME_I4_G128] = VULKAN_SHADER_##family##_i4_g128

#endif
