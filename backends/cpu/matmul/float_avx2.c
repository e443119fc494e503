/* Products with float weights, tier avx2. */
#include "backends/cpu/matmul/vector_avx2.h"

#include "backends/cpu/matmul/float.inc"
