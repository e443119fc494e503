/* Products with float weights, tier avx512. */
#include "backends/cpu/matmul/vector_avx512.h"

#include "backends/cpu/matmul/float.inc"
