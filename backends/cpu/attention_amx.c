/* paged_attention on AMX tiles where many rows read bf16 caches, else as tier avx512 does. */
#if !defined(TIER)
#define TIER amx
#endif
#define TIER_LEVEL ISO_CPU_TIER_AMX
#define ATTENTION_TILES 1
#include "backends/cpu/matmul/tiles.h"

#include "backends/cpu/attention.inc"
