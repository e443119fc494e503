/* Token choice: argmax, sample. */
#include "ops/ref/reference.h"
#include "ops/sampling.h"
#include <math.h>

iso_status iso_reference_argmax(iso_reference_call *call) {
  const iso_host_tensor *x = &call->inputs[0];
  int64_t n_columns = iso_n_columns(x);
  float *row;
  ISO_TRY(iso_reference_scratch(call, n_columns, sizeof *row, &row));
  for (int64_t r = 0; r < iso_n_rows(x); r++) {
    iso_load_row(x, r, row);
    int64_t best = 0;
    for (int64_t i = 1; i < n_columns; i++)
      if (row[i] > row[best] || (isnan(row[best]) && !isnan(row[i])))
        best = i;
    iso_store_index(&call->outputs[0], r, (int32_t)best);
  }
  return ISO_OK;
}

enum { STATE_SEED_LOW, STATE_SEED_HIGH, STATE_DRAW, STATE_OUTPUT_START, STATE_COLUMNS };

iso_status iso_reference_sample(iso_reference_call *call) {
  const iso_host_tensor *logits = &call->inputs[0], *state = &call->inputs[2];
  const iso_host_tensor *history = &call->inputs[3], *allowed = &call->inputs[4];
  int64_t n_logits = iso_n_columns(logits), n_history = iso_n_columns(history);
  int64_t n_words = iso_is_present(allowed) ? iso_n_columns(allowed) : 0;
  float *row, *parameters;
  int32_t *tokens;
  uint32_t *words;
  iso_sample_candidate *candidates;
  ISO_TRY(iso_reference_scratch(call, n_logits, sizeof *row, &row));
  ISO_TRY(iso_load_all(call, &call->inputs[1], &parameters));
  ISO_TRY(iso_reference_scratch(call, n_history, sizeof *tokens, &tokens));
  ISO_TRY(iso_reference_scratch(call, n_words, sizeof *words, &words));
  ISO_TRY(iso_reference_scratch(call, n_logits, sizeof *candidates, &candidates));
  for (int64_t r = 0; r < iso_n_rows(logits); r++) {
    iso_load_row(logits, r, row);
    for (int64_t i = 0; i < n_history; i++)
      tokens[i] = iso_load_index(history, r * n_history + i);
    for (int64_t i = 0; i < n_words; i++)
      words[i] = (uint32_t)iso_load_index(allowed, r * n_words + i);
    uint32_t columns[STATE_COLUMNS];
    for (int64_t i = 0; i < STATE_COLUMNS; i++)
      columns[i] = (uint32_t)iso_load_index(state, r * STATE_COLUMNS + i);
    iso_sample_row sample = {
        .logits = row,
        .n_logits = n_logits,
        .parameters = parameters + r * ISO_SAMPLE_PARAMETER_COUNT,
        .seed = columns[STATE_SEED_LOW] | (uint64_t)columns[STATE_SEED_HIGH] << 32,
        .draw = columns[STATE_DRAW],
        .history = tokens,
        .n_history = n_history,
        .output_start = (int32_t)columns[STATE_OUTPUT_START],
        .allowed = n_words ? words : NULL,
    };
    int32_t token;
    if (iso_sample_token(&sample, candidates, &token) != ISO_OK)
      return iso_fail_context(ISO_ERROR_INVALID_ARGUMENT, "sample: row %lld", (long long)r);
    iso_store_index(&call->outputs[0], r, token);
  }
  return ISO_OK;
}
