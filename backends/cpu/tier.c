#include "backends/cpu/tier.h"

#include "backends/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define ISO_CPU_DETECT 1
#endif

#define AVX2_FEATURES (ISO_CPU_HAS_AVX2 | ISO_CPU_HAS_FMA | ISO_CPU_HAS_F16C | ISO_CPU_HAS_BMI2)
#define AVX512_FEATURES                                                                            \
  (AVX2_FEATURES | ISO_CPU_HAS_AVX512F | ISO_CPU_HAS_AVX512BW | ISO_CPU_HAS_AVX512DQ |             \
   ISO_CPU_HAS_AVX512VL | ISO_CPU_HAS_AVX512_VNNI | ISO_CPU_HAS_AVX512_VBMI)
#define AMX_FEATURES                                                                               \
  (AVX512_FEATURES | ISO_CPU_HAS_AVX512_BF16 | ISO_CPU_HAS_AMX_TILE | ISO_CPU_HAS_AMX_INT8 |       \
   ISO_CPU_HAS_AMX_BF16)

static const struct {
  const char *name;
  uint32_t needs;   /* features without which the tier cannot run */
  uint32_t may_use; /* features its kernels may ask for beside them */
} TIERS[ISO_CPU_TIER_COUNT] = {
    [ISO_CPU_TIER_BASELINE] = {"baseline", 0, 0},
    [ISO_CPU_TIER_AVX2] = {"avx2", AVX2_FEATURES, AVX2_FEATURES},
    [ISO_CPU_TIER_AVX512] = {"avx512", AVX512_FEATURES, AVX512_FEATURES | ISO_CPU_HAS_AVX512_BF16},
    [ISO_CPU_TIER_AMX] = {"amx", AMX_FEATURES, AMX_FEATURES},
};

static const char *const FEATURE_NAMES[ISO_CPU_FEATURE_COUNT] = {
#define X(NAME, text) text,
    ISO_CPU_FEATURES(X)
#undef X
};

const char *iso_cpu_tier_name(iso_cpu_tier tier) {
  return (unsigned)tier < ISO_CPU_TIER_COUNT ? TIERS[tier].name : "unknown";
}

uint32_t iso_cpu_tier_features(const iso_cpu_machine *machine, iso_cpu_tier tier) {
  return machine->features & TIERS[tier].may_use;
}

/* ---- Detection ------------------------------------------------------------------------------ */

#if ISO_CPU_DETECT
/* State components of XCR0 (Intel SDM vol. 1, 13.3): XMM and YMM; opmask and ZMM; tiles. */
#define XCR0_AVX 0x6u
#define XCR0_AVX512 0xe0u
#define XCR0_AMX 0x60000u
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

static uint64_t read_xcr0(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static uint32_t pick(uint32_t word, uint32_t bit, uint32_t feature) {
  return word >> bit & 1 ? feature : 0;
}

/* CPUID bits: Intel SDM vol. 2A, CPUID, leaves 1, 7.0 and 7.1. */
static uint32_t read_features(uint64_t xcr0) {
  uint32_t a, b, c, d, found = 0;
  if ((xcr0 & XCR0_AVX) != XCR0_AVX || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
    return 0;
  uint32_t leaf7_max = a, b7 = b, c7 = c, d7 = d;
  found |= pick(b7, 5, ISO_CPU_HAS_AVX2) | pick(b7, 8, ISO_CPU_HAS_BMI2);
  if (__get_cpuid(1, &a, &b, &c, &d))
    found |= pick(c, 12, ISO_CPU_HAS_FMA) | pick(c, 29, ISO_CPU_HAS_F16C);
  uint32_t a71 = 0;
  if (leaf7_max >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
    a71 = a;
  if ((xcr0 & XCR0_AVX512) == XCR0_AVX512)
    found |= pick(b7, 16, ISO_CPU_HAS_AVX512F) | pick(b7, 17, ISO_CPU_HAS_AVX512DQ) |
             pick(b7, 30, ISO_CPU_HAS_AVX512BW) | pick(b7, 31, ISO_CPU_HAS_AVX512VL) |
             pick(c7, 1, ISO_CPU_HAS_AVX512_VBMI) | pick(c7, 11, ISO_CPU_HAS_AVX512_VNNI) |
             pick(a71, 5, ISO_CPU_HAS_AVX512_BF16);
  if ((xcr0 & XCR0_AMX) == XCR0_AMX)
    found |= pick(d7, 22, ISO_CPU_HAS_AMX_BF16) | pick(d7, 24, ISO_CPU_HAS_AMX_TILE) |
             pick(d7, 25, ISO_CPU_HAS_AMX_INT8);
  return found;
}

static void read_brand(char *out_brand, size_t capacity) {
  uint32_t words[12] = {0};
  char text[sizeof words + 1] = "";
  uint32_t a, b, c, d;
  if (__get_cpuid(0x80000000u, &a, &b, &c, &d) && a >= 0x80000004u)
    for (uint32_t i = 0; i < 3; i++)
      __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                  &words[4 * i + 3]);
  memcpy(text, words, sizeof words);
  const char *start = text + strspn(text, " ");
  size_t length = strlen(start);
  while (length && start[length - 1] == ' ')
    length--;
  snprintf(out_brand, capacity, "%.*s", length ? (int)length : 10, length ? start : "x86-64 CPU");
}
#endif

void iso_cpu_machine_detect(iso_cpu_machine *out_machine) {
  *out_machine = (iso_cpu_machine){.brand = "CPU"};
#if ISO_CPU_DETECT
  read_brand(out_machine->brand, sizeof out_machine->brand);
  uint32_t a, b, c, d;
  bool has_xsave = __get_cpuid(1, &a, &b, &c, &d) && c >> 27 & 1;
  if (!has_xsave)
    return;
  const uint32_t amx = ISO_CPU_HAS_AMX_TILE | ISO_CPU_HAS_AMX_INT8 | ISO_CPU_HAS_AMX_BF16;
  out_machine->features = read_features(read_xcr0());
  if ((out_machine->features & amx) == amx)
    out_machine->amx = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, (long)XFEATURE_XTILEDATA) == 0
                           ? ISO_CPU_AMX_GRANTED
                           : ISO_CPU_AMX_REFUSED;
  if (out_machine->amx != ISO_CPU_AMX_GRANTED)
    out_machine->features &= ~amx;
#if defined(ISO_TILES_HEADER)
  /* Emulated, to measure what tiles round where there are none (bench/README.md). */
  out_machine->features |= amx;
  out_machine->amx = ISO_CPU_AMX_GRANTED;
#endif
  out_machine->asks_ahead = __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx;
#endif
}

/* ---- Choice --------------------------------------------------------------------------------- */

/* Writes the names of the features in `missing`, separated by spaces. */
static const char *list_features(uint32_t missing, char *out_text, size_t capacity) {
  size_t used = 0;
  out_text[0] = '\0';
  for (uint32_t i = 0; i < ISO_CPU_FEATURE_COUNT; i++)
    if (missing >> i & 1 && used < capacity)
      used += (size_t)snprintf(out_text + used, capacity - used, "%s%s", used ? " " : "",
                               FEATURE_NAMES[i]);
  return out_text;
}

static uint32_t missing_for(const iso_cpu_machine *machine, iso_cpu_tier tier) {
  return TIERS[tier].needs & ~machine->features;
}

#define REASON_CAPACITY 128

static iso_status choose_forced(const iso_cpu_machine *machine, const char *forced,
                                iso_cpu_tier *out_tier, char *out_reason) {
  for (iso_cpu_tier tier = 0; tier < ISO_CPU_TIER_COUNT; tier++) {
    if (strcmp(forced, TIERS[tier].name) != 0)
      continue;
    char names[192];
    uint32_t missing = missing_for(machine, tier);
    if (missing && tier == ISO_CPU_TIER_AMX && machine->amx == ISO_CPU_AMX_REFUSED)
      return iso_cpu_fail(ISO_ERROR_UNSUPPORTED,
                          "ISOMER_CPU_ISA=amx: the kernel refused this process the use of AMX "
                          "(arch_prctl); unset the variable or choose avx512");
    if (missing)
      return iso_cpu_fail(ISO_ERROR_UNSUPPORTED,
                          "ISOMER_CPU_ISA=%s: this CPU (%s) or system lacks %s; unset the "
                          "variable or choose a lower tier",
                          forced, machine->brand, list_features(missing, names, sizeof names));
    *out_tier = tier;
    snprintf(out_reason, REASON_CAPACITY, "tier %s, forced by ISOMER_CPU_ISA", TIERS[tier].name);
    return ISO_OK;
  }
  return iso_cpu_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "ISOMER_CPU_ISA=%.40s is not a tier: baseline, avx2, avx512 or amx", forced);
}

iso_status iso_cpu_tier_choose(const iso_cpu_machine *machine, const char *forced,
                               iso_cpu_tier *out_tier, char *out_reason, bool *out_notice) {
  *out_notice = false;
  if (forced && forced[0])
    return choose_forced(machine, forced, out_tier, out_reason);
  iso_cpu_tier tier = ISO_CPU_TIER_COUNT - 1;
  while (missing_for(machine, tier))
    tier--;
  *out_tier = tier;
  *out_notice = machine->amx == ISO_CPU_AMX_REFUSED && tier == ISO_CPU_TIER_AVX512;
  char names[192];
  if (*out_notice)
    snprintf(out_reason, REASON_CAPACITY, "tier avx512: the kernel refused AMX to this process");
  else if (tier + 1 < ISO_CPU_TIER_COUNT)
    snprintf(out_reason, REASON_CAPACITY, "tier %s: %s needs %s", TIERS[tier].name,
             TIERS[tier + 1].name,
             list_features(missing_for(machine, tier + 1), names, sizeof names));
  else
    snprintf(out_reason, REASON_CAPACITY, "tier amx: the highest");
  return ISO_OK;
}
