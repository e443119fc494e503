/* Products with a weight stored [out, in]: matmul, grouped_matmul. A product of two f32 values is
 * exact in double, so only the double sums round. */
#include "ops/ref/reference.h"

static double dot(const float *a, const float *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += (double)a[i] * b[i];
  return sum;
}

/* All rows of y are kept in f32 until they are whole, since block schemes encode rows. */
static void store_all(const iso_host_tensor *y, const float *values) {
  for (int64_t r = 0; r < iso_n_rows(y); r++)
    iso_store_row(y, r, values + r * iso_n_columns(y));
}

iso_status iso_reference_matmul(iso_reference_call *call) {
  const iso_host_tensor *x = &call->inputs[0], *weight = &call->inputs[1], *y = &call->outputs[0];
  int64_t n_rows = iso_n_rows(x), n_in = iso_n_columns(x), n_out = iso_n_columns(y);
  float *rows, *weight_row, *bias = NULL, *results;
  ISO_TRY(iso_load_all(call, x, &rows));
  ISO_TRY(iso_reference_scratch(call, n_in, sizeof *weight_row, &weight_row));
  ISO_TRY(iso_reference_scratch(call, n_rows * n_out, sizeof *results, &results));
  if (iso_is_present(&call->inputs[2]))
    ISO_TRY(iso_load_all(call, &call->inputs[2], &bias));
  for (int64_t n = 0; n < n_out; n++) {
    iso_load_row(weight, n, weight_row);
    for (int64_t m = 0; m < n_rows; m++)
      results[m * n_out + n] =
          (float)(dot(rows + m * n_in, weight_row, n_in) + (bias ? bias[n] : 0.0f));
  }
  store_all(y, results);
  return ISO_OK;
}

iso_status iso_reference_grouped_matmul(iso_reference_call *call) {
  const iso_host_tensor *x = &call->inputs[0], *weight = &call->inputs[1], *y = &call->outputs[0];
  const iso_host_tensor *experts = &call->inputs[2];
  int64_t n_experts = weight->meta->dims[0], n_choices = iso_n_columns(experts);
  int64_t n_rows = iso_n_rows(y), n_in = iso_n_columns(x), n_out = iso_n_columns(y);
  bool shared = x->meta->dims[1] == 1; /* one row of x for all choices of a token */
  float *rows, *weight_row, *results;
  ISO_TRY(iso_load_all(call, x, &rows));
  ISO_TRY(iso_reference_scratch(call, n_in, sizeof *weight_row, &weight_row));
  ISO_TRY(iso_reference_scratch(call, n_rows * n_out, sizeof *results, &results));
  for (int64_t r = 0; r < n_rows; r++)
    ISO_TRY(iso_check_index(call, 2, r, iso_load_index(experts, r), 0, n_experts));
  for (int64_t w = 0; w < n_experts * n_out; w++) {
    bool loaded = false;
    for (int64_t r = 0; r < n_rows; r++) {
      if (iso_load_index(experts, r) != w / n_out)
        continue;
      if (!loaded)
        iso_load_row(weight, w, weight_row);
      loaded = true;
      const float *row = rows + (shared ? r / n_choices : r) * n_in;
      results[r * n_out + w % n_out] = (float)dot(row, weight_row, n_in);
    }
  }
  store_all(y, results);
  return ISO_OK;
}
