/* What `isomer conform` collected, and the forms in which it is printed. */
#ifndef ISOMER_TOOLS_CONFORM_REPORT_H
#define ISOMER_TOOLS_CONFORM_REPORT_H

#include "core/file.h"
#include "ops/conform/conform.h"
#include <stdio.h>

/* Stands in the place of an op for the checks of memory, copies and the timeline. */
#define ISO_CONFORM_MEMORY ISO_OP_COUNT
/* "matmul", ..., "memory". */
const char *iso_conform_group_name(iso_op op);

/* One record on one case; strings are owned, `kernel` is the device's. */
typedef struct iso_conform_entry {
  char *text, *detail;
  const char *kernel; /* "" when no record takes the case */
  iso_op op;
  iso_conform_result result;
  bool is_compared;
  double seconds; /* from the entry before to this one: the reference's share included */
  double microseconds, gigabytes_per_s, gigaflops; /* timed runs only */
} iso_conform_entry;

typedef struct iso_conform_log {
  const char *device; /* "cuda:0" */
  const char *device_name;
  uint64_t seed;
  bool perf;
  iso_conform_entry *entries; /* in the order of the grid */
  uint32_t n_entries, capacity;
  iso_conform_summary summary;
} iso_conform_log;

/* Copies a report. */
ISO_MUST_CHECK iso_status iso_conform_log_add(iso_conform_log *log,
                                              const iso_conform_report *report, double seconds);
void iso_conform_log_free(iso_conform_log *log);

/* A row an op with the distinct reasons of its refusals, then every failure; timed runs are a row
 * a case. */
void iso_conform_print_text(const iso_conform_log *log);
ISO_MUST_CHECK iso_status iso_conform_print_json(const iso_conform_log *log);
/* JUnit's XML as CI systems read it: a suite an op, a case a record, refusals as skipped. Bytes
 * that XML cannot hold become '?'. Commits the file. */
ISO_MUST_CHECK iso_status iso_conform_write_junit(const iso_conform_log *log,
                                                  iso_file_writer *writer);

#endif
