/* The kernel bodies that serve every tier, for avx512. */
#define TIER avx512
#define TIER_LEVEL ISO_CPU_TIER_AVX512
#include "backends/cpu/rows.inc"
#include "backends/cpu/rope.inc"
#include "backends/cpu/kv_write.inc"
#include "backends/cpu/attention.inc"
