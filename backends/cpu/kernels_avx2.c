/* The kernel bodies that serve every tier, for avx2. */
#define TIER avx2
#define TIER_LEVEL ISO_CPU_TIER_AVX2
#include "backends/cpu/rows.inc"
#include "backends/cpu/rope.inc"
#include "backends/cpu/kv_write.inc"
#include "backends/cpu/attention.inc"
