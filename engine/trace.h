/* Traces: what a device computed on the way through a model, kept to judge others by.
 *
 * A trace is a file of records, written in one pass and read from a mapping. Numbers are little
 * endian, as on every host that Isomer runs on. Version 1:
 *
 *   file    8 bytes "ISOTRACE", u32 version, u32 0, then records until an END
 *   record  u32 kind, u32 0, u64 bytes of the body (a multiple of 8), the body
 *
 *   MODEL   first, once: iso_trace_model, then n_tokens i32 token ids
 *   STEP    tokens [first_token, first_token + n_tokens) went through the model at once; steps
 *           follow each other without gaps and cover the tokens: i32 first_token, i32 n_tokens
 *   VALUE   of the step before: iso_trace_value_info, then n_rows * n_columns f32
 *   OUTPUT  at most once, after the steps: i32 count, i32 0, then iso_trace_output of each greedy
 *           token after the prompt
 *   END     last: u64 number of records before it
 *
 * Bodies are padded with zero bytes. Strings are printable ASCII, NUL-terminated, in fields of
 * fixed size. Files are not trusted: everything is checked when a trace is opened, in time and
 * memory proportional to its size. */
#ifndef ISOMER_ENGINE_TRACE_H
#define ISOMER_ENGINE_TRACE_H

#include "core/file.h"
#include <isomer/status.h>

enum { ISO_TRACE_VERSION = 1, ISO_TRACE_NAME = 64, ISO_TRACE_TEXT = 128 };

/* What was run; as it lies in the file. */
typedef struct iso_trace_model {
  char model[ISO_TRACE_TEXT];
  char device[ISO_TRACE_TEXT];
  uint64_t fingerprint; /* of the model's tensors: names, shapes, schemes */
  int32_t n_layers, vocabulary_size;
  int32_t n_tokens; /* of the prompt, at least 1 */
  int32_t reserved;
} iso_trace_model;

/* As it lies in the file. */
typedef struct iso_trace_value_info {
  char name[ISO_TRACE_NAME];   /* the graph's name of the value, unique in a step */
  char kernel[ISO_TRACE_NAME]; /* that made it */
  char op[32];
  int64_t n_rows, n_columns;
  int32_t layer; /* -1 to n_layers, see iso_graph_set_layer() */
  int32_t reserved;
  /* How far from exact the kernel may have been, rounding as storage types allow: root mean square
   * relative to the value's, finite and not negative. */
  double rounding;
} iso_trace_value_info;

/* One greedy token; as it lies in the file. */
typedef struct iso_trace_output {
  int32_t token;
  float margin; /* its logit less the next best one */
} iso_trace_output;

/* ---- Writing ------------------------------------------------------------------------------ */

typedef struct iso_trace_writer iso_trace_writer;

/* Starts a file, which appears at `path` when the trace is finished. Characters that are no
 * printable ASCII become '?' in every string. */
ISO_MUST_CHECK iso_status iso_trace_writer_create(const char *path, const iso_trace_model *model,
                                                  const int32_t *tokens,
                                                  iso_trace_writer **out_writer);
ISO_MUST_CHECK iso_status iso_trace_write_step(iso_trace_writer *writer, int32_t first_token,
                                               int32_t n_tokens);
/* `values` has n_rows * n_columns elements. */
ISO_MUST_CHECK iso_status iso_trace_write_value(iso_trace_writer *writer,
                                                const iso_trace_value_info *info,
                                                const float *values);
ISO_MUST_CHECK iso_status iso_trace_write_output(iso_trace_writer *writer,
                                                 const iso_trace_output *output, int32_t count);
/* Ends the trace and puts the file in place. */
ISO_MUST_CHECK iso_status iso_trace_writer_finish(iso_trace_writer *writer);
/* Frees the writer; an unfinished file is removed. NULL is fine. */
void iso_trace_writer_destroy(iso_trace_writer *writer);

/* ---- Reading ------------------------------------------------------------------------------ */

typedef struct iso_trace_value {
  const iso_trace_value_info *info;
  const float *values;
} iso_trace_value;

typedef struct iso_trace_step {
  int32_t first_token, n_tokens;
  uint32_t first_value, n_values; /* in iso_trace.values */
} iso_trace_step;

/* An open trace; everything points into the mapping. Immutable, may be shared by threads. */
typedef struct iso_trace {
  const iso_trace_model *model;
  const int32_t *tokens;
  uint32_t n_steps, n_values;
  iso_trace_step *steps;
  iso_trace_value *values;
  int32_t n_output;
  const iso_trace_output *output;
  iso_file_map map; /* closed when the bytes are the caller's */
} iso_trace;

/* CORRUPT_DATA with the offset for a broken trace, UNSUPPORTED for another version. */
ISO_MUST_CHECK iso_status iso_trace_open(const char *path, iso_trace **out_trace);
/* The same from memory, aligned to 8 bytes, which must outlive the trace. */
ISO_MUST_CHECK iso_status iso_trace_open_memory(const uint8_t *data, uint64_t size,
                                                iso_trace **out_trace);
void iso_trace_close(iso_trace *trace);

/* The value of this name in a step; NULL when absent. `hint` is where to look first, an index into
 * the step's values. */
const iso_trace_value *iso_trace_find(const iso_trace *trace, uint32_t step, const char *name,
                                      uint32_t hint);

#endif
