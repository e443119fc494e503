/* The kernel bodies that serve every tier, for baseline. */
#define TIER baseline
#define TIER_LEVEL ISO_CPU_TIER_BASELINE
#include "backends/cpu/rows.inc"
#include "backends/cpu/rope.inc"
#include "backends/cpu/kv_write.inc"
#include "backends/cpu/attention.inc"
