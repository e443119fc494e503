/* Products with quantized weights, tier baseline of x86-64. */
#include "backends/cpu/matmul/vector_baseline.h"

#include "backends/cpu/matmul/integer.inc"
