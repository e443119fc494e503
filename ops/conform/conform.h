/* Conformance: every kernel record of a device against the reference.
 *
 * A case is one op at one set of sizes, schemes and attributes, written as text:
 *
 *     matmul *=17 N=33 K=96 x=bf16 weight=q4_0 y=f32 fill=extreme
 *
 *   T=17         a letter of the op's dimensions in ops.def; "*=2x3" are leading dimensions, and
 *                "*=none" is the lack of any; "?=row" is [D] in place of the leading ones
 *   weight=q4_0  scheme of an operand, or "none" for an absent optional one
 *   rows=bf16    scheme of all ACTIVATION operands that are not given one; f32 otherwise
 *   cache=q8_0   the same of KV operands
 *   epsilon=1    an attribute; attributes named "scheme" also take a scheme's name
 *   gap=64       bytes between the rows of activations, a multiple of 4; 0 otherwise
 *   fill=large   what the values are like, see iso_fill in ops/conform/case.h
 *   batch=mixed  the sequences of paged_attention: decode, prefill, mixed, serve or
 *                full, see iso_batch there
 *
 * Its inputs follow from the text and a seed, so a failure is repeated by its text. A device runs
 * it with outputs full of NaN, guard bytes on both sides of every operand, and scratch full of
 * NaN; then outputs are compared, and guards, gaps and inputs must be as they were. */
#ifndef ISOMER_OPS_CONFORM_CONFORM_H
#define ISOMER_OPS_CONFORM_CONFORM_H

#include <isomer/device.h>

enum { ISO_CASE_TEXT = 192, ISO_CASE_DETAIL = 320 };

typedef enum iso_conform_result {
  ISO_CONFORM_PASS,
  ISO_CONFORM_UNSUPPORTED, /* no record takes the case; `detail` says why */
  ISO_CONFORM_FAIL
} iso_conform_result;

typedef struct iso_conform_report {
  const char *text; /* the case */
  iso_op op;
  const char *kernel; /* record's name; "" when unsupported */
  iso_conform_result result;
  char detail[ISO_CASE_DETAIL];
  bool is_compared; /* the op ran, and what it wrote was compared with the reference */
  /* Timed runs only: of one launch, the best of several rounds. */
  double microseconds, gigabytes_per_s, gigaflops;
} iso_conform_report;

/* Called for each record of each case, in the thread that runs them. Return false to stop. */
typedef bool (*iso_conform_sink)(void *context, const iso_conform_report *report);

typedef struct iso_conform_options {
  const char *op;     /* only this op; NULL: all */
  const char *filter; /* only cases whose text contains this; NULL: all */
  const char *text;   /* only this one case, in the grid or not; NULL: the grid */
  uint32_t part, n_parts; /* of the cases that all else selects, every n_parts-th from the part-th
                           * (0 is the first) on; n_parts 0: all of them */
  uint64_t seed;
  /* Times the preferred record at model sizes, after comparing what it wrote where the reference
   * does not take long: such a case is one of a few rows. */
  bool perf;
} iso_conform_options;

typedef struct iso_conform_summary {
  uint32_t n_passed, n_unsupported, n_failed;
} iso_conform_summary;

/* Runs the cases that `options` select. Every record that takes a case runs it, not only the
 * preferred one. ISO_OK even when cases fail; INVALID_ARGUMENT for an unknown op or a text that
 * is no case. An op that faults the device fails its case, and the rest are likely to follow. */
ISO_MUST_CHECK iso_status iso_conform_run(iso_open_device *device,
                                          const iso_conform_options *options, iso_conform_sink sink,
                                          void *context, iso_conform_summary *out_summary);

/* Checks memory, copies, fills, order and the timeline of a device at odd sizes and offsets. A
 * failure's sentence says what differs. */
ISO_MUST_CHECK iso_status iso_conform_memory(iso_open_device *device);
/* The same for one buffer of 4 GiB and a byte, written where offsets of 32 bits would wrap; it is
 * touched in a few places only. OUT_OF_MEMORY where the device refuses that much, which conforms.
 */
ISO_MUST_CHECK iso_status iso_conform_large_memory(iso_open_device *device);

#endif
