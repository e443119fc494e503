/* The one array of records, put together from each file's table. */
#include "backends/cpu/cpu.h"

#include <pthread.h>
#include <string.h>

#define MAX_RECORDS 512

static iso_kernel records[MAX_RECORDS];
static uint32_t record_count;

static void append(const iso_kernel *table, uint32_t count) {
  for (uint32_t i = 0; i < count && record_count < MAX_RECORDS; i++)
    records[record_count++] = table[i];
}

/* Tables of the files in this folder; those of kernel bodies exist once a tier. */
#define TIERED_TABLES(X, tier)                                                                     \
  X(iso_cpu_rows_##tier)                                                                           \
  X(iso_cpu_rope_##tier)                                                                           \
  X(iso_cpu_kv_write_##tier)                                                                       \
  X(iso_cpu_attention_##tier)
#if defined(__x86_64__)
#define X86_TABLES(X) X(iso_cpu_attention_amx) TIERED_TABLES(X, avx512) TIERED_TABLES(X, avx2)
#else
#define X86_TABLES(X)
#endif
#if defined(ISO_HAVE_ONEDNN)
#define ONEDNN_TABLES(X) X(iso_cpu_onednn)
#else
#define ONEDNN_TABLES(X)
#endif
#define TABLES(X)                                                                                  \
  ONEDNN_TABLES(X)                                                                                 \
  X86_TABLES(X)                                                                                    \
  TIERED_TABLES(X, baseline)                                                                       \
  X(iso_cpu_plain)                                                                                 \
  X(iso_cpu_experts)                                                                               \
  X(iso_cpu_sample)

#define X(table) extern const iso_cpu_records table;
TABLES(X)
#undef X

static void gather(void) {
  append(iso_cpu_matmul_records, iso_cpu_matmul_record_count);
#define X(table) append(table.records, table.count);
  TABLES(X)
#undef X
}

const iso_kernel *iso_cpu_kernels(uint32_t *out_count) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, gather);
  *out_count = record_count;
  return records;
}

iso_refusal iso_cpu_check_tier(const iso_device *device, iso_cpu_tier tier,
                               const char **out_detail) {
  static const char *const NEEDS[ISO_CPU_TIER_COUNT] = {"", "needs tier avx2", "needs tier avx512",
                                                        "needs tier amx"};
  if (device->tier >= tier)
    return ISO_ACCEPTED;
  *out_detail = NEEDS[tier];
  return ISO_REFUSED_DEVICE;
}

iso_refusal iso_cpu_check_baseline(const iso_device *device, const iso_op_arguments *arguments,
                                   const char **out_detail) {
  (void)arguments;
  return iso_cpu_check_tier(device, ISO_CPU_TIER_BASELINE, out_detail);
}

iso_refusal iso_cpu_check_avx2(const iso_device *device, const iso_op_arguments *arguments,
                               const char **out_detail) {
  (void)arguments;
  return iso_cpu_check_tier(device, ISO_CPU_TIER_AVX2, out_detail);
}

iso_refusal iso_cpu_check_avx512(const iso_device *device, const iso_op_arguments *arguments,
                                 const char **out_detail) {
  (void)arguments;
  return iso_cpu_check_tier(device, ISO_CPU_TIER_AVX512, out_detail);
}

iso_refusal iso_cpu_check_amx(const iso_device *device, const iso_op_arguments *arguments,
                              const char **out_detail) {
  (void)arguments;
  return iso_cpu_check_tier(device, ISO_CPU_TIER_AMX, out_detail);
}
