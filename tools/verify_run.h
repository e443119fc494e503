/* One device's way through a prompt, op by op. */
#ifndef ISOMER_TOOLS_VERIFY_RUN_H
#define ISOMER_TOOLS_VERIFY_RUN_H

#include "engine/trace.h"
#include "tools/adapters.h"
#include "tools/tool.h"
#include "tools/verify_local.h"

/* What every device runs: the prompt in steps of at most max_rows tokens, its last token in a step
 * of its own, since devices have other kernels for one row than for many; then n_output tokens,
 * each the likeliest after those before. */
typedef struct iso_verify_prompt {
  const int32_t *tokens;
  int32_t n_tokens, max_rows, n_output;
  const iso_adapter_list *adapters; /* all tokens run with the first, if there is one */
} iso_verify_prompt;

/* One output of one node in one step. */
typedef struct iso_verify_value {
  iso_trace_value_info info;
  uint32_t step;
  int32_t node;
  bool is_index;                 /* integers: a difference says nothing of its size */
  const float *rows;             /* n_rows * n_columns; NULL for states, which are not compared */
  const iso_verify_local *local; /* of the node, with its first output; else not checked */
  char shapes[128];              /* of the node's operands */
} iso_verify_value;

/* What to do with it all; each may fail, which ends the run. */
typedef struct iso_verify_visitor {
  void *context;
  iso_status (*begin)(void *context, const iso_runtime *runtime);
  iso_status (*step)(void *context, int32_t first_token, int32_t n_tokens);
  iso_status (*value)(void *context, const iso_verify_value *value);
  iso_status (*output)(void *context, const iso_trace_output *output, int32_t count);
} iso_verify_visitor;

/* Runs the prompt on `device` and shows every value, in the order of the graph. Ops are checked
 * against the reference, but for those of the host backend, which are the reference. */
ISO_MUST_CHECK iso_status iso_verify_run(const iso_model *model, const iso_options *options,
                                         const char *device, const iso_verify_prompt *prompt,
                                         const iso_verify_visitor *visitor);

/* Whether the device is the host backend, which is the reference. */
bool iso_verify_is_reference(const char *device);
/* The likeliest token of a row of logits, the first among equals, and how far the next is. */
iso_trace_output iso_verify_likeliest(const float *logits, int32_t n);

#endif
