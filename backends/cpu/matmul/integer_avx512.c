/* Products with quantized weights, tier avx512. */
#include "backends/cpu/matmul/vector_avx512.h"

#include "backends/cpu/matmul/integer.inc"
