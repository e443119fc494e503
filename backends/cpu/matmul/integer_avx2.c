/* Products with quantized weights, tier avx2. */
#include "backends/cpu/matmul/vector_avx2.h"

#include "backends/cpu/matmul/integer.inc"
