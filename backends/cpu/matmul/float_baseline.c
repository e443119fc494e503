/* Products with float weights, tier baseline of x86-64. */
#include "backends/cpu/matmul/vector_baseline.h"

#include "backends/cpu/matmul/float.inc"
