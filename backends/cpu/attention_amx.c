/* paged_attention on AMX tiles where many rows read bf16 caches, else as tier avx512 does. */
#if !defined(TIER)
#define TIER amx
#endif
#define TIER_LEVEL ISO_CPU_TIER_AMX
#define ATTENTION_TILES 1
#if defined(ISO_TILES_HEADER)
#include ISO_TILES_HEADER
#else
#include "backends/cpu/matmul/tiles.h"
#endif
#include "backends/cpu/attention.inc"
