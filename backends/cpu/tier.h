/* Instruction tiers of x86 CPUs, chosen at run time.
 *
 * A tier is what a file with that ending (_avx2.c, _avx512.c, _amx.c) is compiled for:
 *   baseline  what the compiler targets: SSE2 on x86-64, plain C elsewhere
 *   avx2      AVX2, FMA, F16C, BMI2
 *   avx512    avx2 and AVX-512 F, BW, DQ, VL, VNNI, VBMI. BF16 dot products are a feature bit
 *             beside it, for Ice Lake has the rest and not them
 *   amx       avx512 with BF16, and AMX tiles for int8 and bf16, granted by the kernel
 *
 * Only feature bits decide, never a model name. ISOMER_CPU_ISA=<tier> forces one. */
#ifndef ISOMER_BACKENDS_CPU_TIER_H
#define ISOMER_BACKENDS_CPU_TIER_H

#include <isomer/backend.h>

typedef enum iso_cpu_tier {
  ISO_CPU_TIER_BASELINE = 0,
  ISO_CPU_TIER_AVX2 = 1,
  ISO_CPU_TIER_AVX512 = 2,
  ISO_CPU_TIER_AMX = 3,
  ISO_CPU_TIER_COUNT = 4
} iso_cpu_tier;

/* Feature bits, by the names Linux gives them in /proc/cpuinfo. */
#define ISO_CPU_FEATURES(X)                                                                        \
  X(AVX2, "avx2")                                                                                  \
  X(FMA, "fma")                                                                                    \
  X(F16C, "f16c")                                                                                  \
  X(BMI2, "bmi2")                                                                                  \
  X(AVX512F, "avx512f")                                                                            \
  X(AVX512BW, "avx512bw")                                                                          \
  X(AVX512DQ, "avx512dq")                                                                          \
  X(AVX512VL, "avx512vl")                                                                          \
  X(AVX512_VNNI, "avx512_vnni")                                                                    \
  X(AVX512_VBMI, "avx512vbmi")                                                                     \
  X(AVX512_BF16, "avx512_bf16")                                                                    \
  X(AMX_TILE, "amx_tile")                                                                          \
  X(AMX_INT8, "amx_int8")                                                                          \
  X(AMX_BF16, "amx_bf16")

enum {
#define X(NAME, text) ISO_CPU_FEATURE_##NAME,
  ISO_CPU_FEATURES(X)
#undef X
      ISO_CPU_FEATURE_COUNT
};
enum {
#define X(NAME, text) ISO_CPU_HAS_##NAME = 1u << ISO_CPU_FEATURE_##NAME,
  ISO_CPU_FEATURES(X)
#undef X
};

/* Why AMX is or is not granted to this process. */
typedef enum iso_cpu_amx_grant {
  ISO_CPU_AMX_ABSENT = 0, /* the CPU has none, or the system saves no tiles */
  ISO_CPU_AMX_GRANTED = 1,
  ISO_CPU_AMX_REFUSED = 2 /* the CPU has it, the kernel or its sandbox said no */
} iso_cpu_amx_grant;

/* What a machine offers. */
typedef struct iso_cpu_machine {
  uint32_t features;     /* ISO_CPU_HAS_ bits that both CPU and operating system support */
  iso_cpu_amx_grant amx; /* AMX bits are in `features` only when GRANTED */
  bool asks_ahead;       /* prefetching by hand beats the CPU's own: README.md has the numbers */
  char brand[64];        /* the CPU's name for itself; for people only */
} iso_cpu_machine;

/* Reads CPUID and XCR0, and asks the kernel for AMX where the CPU has it. Thread safe. */
void iso_cpu_machine_detect(iso_cpu_machine *out_machine);

/* Chooses the highest tier of a machine, or the one `forced` names (NULL or "": none). An
 * unknown name is refused with the choices, a tier the machine lacks with what is missing.
 * `out_reason` (capacity 128) says why this tier; `*out_notice` is set when a user should be
 * told once, as when AMX was refused. Pure. */
ISO_MUST_CHECK iso_status iso_cpu_tier_choose(const iso_cpu_machine *machine, const char *forced,
                                              iso_cpu_tier *out_tier, char *out_reason,
                                              bool *out_notice);

/* The feature bits that kernels may use in a tier on a machine. */
uint32_t iso_cpu_tier_features(const iso_cpu_machine *machine, iso_cpu_tier tier);

/* "baseline", "avx2", "avx512" or "amx". */
const char *iso_cpu_tier_name(iso_cpu_tier tier);

#endif
