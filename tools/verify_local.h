/* One op of a device against the reference, on the device's own inputs: errors that the device
 * inherited from earlier ops do not count, so what is wrong here is this kernel. */
#ifndef ISOMER_TOOLS_VERIFY_LOCAL_H
#define ISOMER_TOOLS_VERIFY_LOCAL_H

#include "ops/conform/conform.h"

/* One launch with its operands in host memory, dense. */
typedef struct iso_verify_launch {
  iso_op_arguments arguments;              /* at the sizes that ran; strides dense */
  const uint8_t *inputs[ISO_MAX_INPUTS];   /* before the launch; NULL where absent */
  const uint8_t *outputs[ISO_MAX_OUTPUTS]; /* what the device made */
  uint64_t output_bytes[ISO_MAX_OUTPUTS];
} iso_verify_launch;

typedef struct iso_verify_local {
  bool is_checked, is_wrong;
  double error; /* root mean square over rows of each row's error relative to the row */
  /* How far from exact the device may be, by the rounding that storage types allow, in the terms
   * of `error`; see iso_trace_value_info. */
  double rounding;
  char detail[ISO_CASE_DETAIL]; /* where it is wrong most */
} iso_verify_local;

/* Judges the launch with conform's tolerances (ops/conform/compare.c). Of products with many rows
 * eight are looked at, the first and the last among them. */
ISO_MUST_CHECK iso_status iso_verify_check(const iso_verify_launch *launch, uint32_t n_threads,
                                           iso_verify_local *out_local);

/* Relative rounding that storage types allow whatever the op computes: of f32 arithmetic, of what
 * the output is stored in and, where a cache is read, of queries, keys and weights in its type. */
double iso_verify_storage_rounding(const iso_op_arguments *arguments);

#endif
