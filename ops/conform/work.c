/* What an op must do at least, for timed runs. */
#include "ops/conform/case.h"

static double tensor_bytes(const iso_tensor *tensor) {
  uint64_t row_bytes = 0;
  if (tensor->n_dims == 0 ||
      iso_scheme_row_bytes(tensor->scheme, iso_case_columns(tensor), &row_bytes) != ISO_OK)
    return 0;
  return (double)row_bytes * (double)iso_case_rows(tensor);
}

static double elements(const iso_tensor *tensor) {
  return (double)iso_case_rows(tensor) * (double)iso_case_columns(tensor);
}

/* Cached rows that the batch sees, and pairs of a query row and a cached row that it sees. */
static void attention_rows(const iso_case *test, const iso_case_data *data, double *out_rows,
                           double *out_pairs) {
  const int32_t *length = (const int32_t *)(const void *)data->inputs[5];
  const int32_t *context = (const int32_t *)(const void *)data->inputs[6];
  bool causal = test->attributes.paged_attention.causal;
  *out_rows = *out_pairs = 0;
  for (int64_t s = 0; s < test->arguments.inputs[5].dims[0]; s++) {
    if (length[s] == 0)
      continue;
    *out_rows += context[s];
    *out_pairs +=
        (double)length[s] * context[s] - (causal ? (double)length[s] * (length[s] - 1) / 2 : 0);
  }
}

/* Experts that are chosen at least once, as a share of all. */
static double experts_used(const iso_case *test, const iso_case_data *data) {
  const int32_t *experts = (const int32_t *)(const void *)data->inputs[2];
  int64_t n_experts = test->arguments.inputs[1].dims[0], used = 0;
  for (int64_t e = 0; e < n_experts; e++)
    for (int64_t i = 0; i < (int64_t)elements(&test->arguments.inputs[2]); i++)
      if (experts[i] == e) {
        used++;
        break;
      }
  return (double)used / (double)n_experts;
}

void iso_case_work(const iso_case *test, const iso_case_data *data, double *out_bytes,
                   double *out_operations) {
  const iso_tensor *inputs = test->arguments.inputs, *y = &test->arguments.outputs[0];
  double bytes = tensor_bytes(y), operations = elements(y);
  double input_bytes[ISO_MAX_INPUTS] = {0}, rows, pairs;
  for (uint32_t i = 0; i < test->arguments.n_inputs; i++)
    input_bytes[i] = tensor_bytes(&inputs[i]);
  switch (test->arguments.op) {
  case ISO_OP_MATMUL:
    operations *= 2 * (double)iso_case_columns(&inputs[0]);
    break;
  case ISO_OP_GROUPED_MATMUL:
    operations *= 2 * (double)iso_case_columns(&inputs[0]);
    input_bytes[1] *= experts_used(test, data);
    break;
  case ISO_OP_PAGED_ATTENTION:
    attention_rows(test, data, &rows, &pairs);
    operations = 2 * pairs * (double)inputs[0].dims[1] *
                 (double)(iso_case_columns(&inputs[1]) + iso_case_columns(&inputs[2]));
    for (int i = 1; i <= 2; i++)
      input_bytes[i] *= rows / (double)(inputs[i].dims[0] * inputs[i].dims[2]);
    break;
  case ISO_OP_EMBEDDING:
    input_bytes[1] *= (double)iso_case_rows(y) / (double)inputs[1].dims[0];
    break;
  case ISO_OP_GATHER_ROWS:
    input_bytes[0] *= (double)iso_case_rows(y) / (double)inputs[0].dims[0];
    break;
  case ISO_OP_KV_WRITE: /* rows are read, and written in the cache's scheme */
    bytes = input_bytes[3] = input_bytes[4] = 0;
    operations = elements(&inputs[0]) + elements(&inputs[1]);
    for (int i = 0; i < 2; i++)
      bytes += tensor_bytes(&inputs[3 + i]) * elements(&inputs[i]) / elements(&inputs[3 + i]);
    break;
  default:
    break;
  }
  for (uint32_t i = 0; i < test->arguments.n_inputs; i++)
    bytes += input_bytes[i];
  *out_bytes = bytes;
  *out_operations = operations;
}
