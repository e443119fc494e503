/* Records of a kernel body that is compiled once a tier. Before this file a tier's file defines
 *   TIER        baseline, avx2 or avx512: the end of its names
 *   TIER_LEVEL  ISO_CPU_TIER_BASELINE, ... */
#ifndef ISOMER_BACKENDS_CPU_TIER_RECORDS_H
#define ISOMER_BACKENDS_CPU_TIER_RECORDS_H

#include "backends/cpu/cpu.h"

#define ISO_CPU_PASTE_(a, b) a##_##b
#define ISO_CPU_PASTE(a, b) ISO_CPU_PASTE_(a, b)
#define ISO_CPU_TEXT_(a) #a
#define ISO_CPU_TEXT(a) ISO_CPU_TEXT_(a)

/* name of this tier: TIERED(iso_cpu_rows) is iso_cpu_rows_avx2 */
#define TIERED(name) ISO_CPU_PASTE(name, TIER)

#define RECORDS_OF(table)                                                                          \
  { table, sizeof(table) / sizeof((table)[0]) }

/* A record of this tier for an op whose activations may be any float; more fields may follow. */
#define TIER_RECORD(name_, NAME_, ...)                                                             \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_##NAME_, .name = #name_ "." ISO_CPU_TEXT(TIER),       \
    .activations = ISO_CPU_FLOAT_SCHEMES, .layout = ISO_LAYOUT_PLAIN,                              \
    .rank = ISO_CPU_RANK(TIER_LEVEL, 0), .check = TIERED(iso_cpu_check), __VA_ARGS__               \
  }

#endif
