/* Products with quantized weights and activations of 8 bits, tier avx512: half the dot products of
 * integer_avx512.c, where a graph allows that. Weights are not rounded. */
#define VEC_NAME(name) iso_avx512_##name##8
#define VEC_ONE_PLANE
#include "backends/cpu/matmul/vector_avx512.h"

#include "backends/cpu/matmul/integer.inc"
