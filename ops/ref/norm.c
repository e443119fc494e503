/* Ops that normalise a row: rms_norm, layer_norm, softmax. */
#include "ops/ref/reference.h"
#include <math.h>

iso_status iso_reference_rms_norm(iso_reference_call *call) {
  const iso_host_tensor *x = &call->inputs[0], *y = &call->outputs[0];
  const iso_rms_norm_attributes *attributes = &call->attributes.rms_norm;
  int64_t n_columns = iso_n_columns(x);
  float *row, *weight;
  ISO_TRY(iso_reference_scratch(call, n_columns, sizeof *row, &row));
  ISO_TRY(iso_load_all(call, &call->inputs[1], &weight));
  for (int64_t r = 0; r < iso_n_rows(x); r++) {
    iso_load_row(x, r, row);
    double sum = 0;
    for (int64_t i = 0; i < n_columns; i++)
      sum += (double)row[i] * row[i];
    double scale = 1 / sqrt(sum / (double)n_columns + attributes->epsilon);
    for (int64_t i = 0; i < n_columns; i++)
      row[i] = (float)(row[i] * scale * ((double)weight[i] + attributes->weight_offset));
    iso_store_row(y, r, row);
  }
  return ISO_OK;
}

iso_status iso_reference_layer_norm(iso_reference_call *call) {
  const iso_host_tensor *x = &call->inputs[0], *y = &call->outputs[0];
  int64_t n_columns = iso_n_columns(x);
  float *row, *weight, *bias = NULL;
  ISO_TRY(iso_reference_scratch(call, n_columns, sizeof *row, &row));
  ISO_TRY(iso_load_all(call, &call->inputs[1], &weight));
  if (iso_is_present(&call->inputs[2]))
    ISO_TRY(iso_load_all(call, &call->inputs[2], &bias));
  for (int64_t r = 0; r < iso_n_rows(x); r++) {
    iso_load_row(x, r, row);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n_columns; i++)
      sum += row[i];
    double mean = sum / (double)n_columns;
    for (int64_t i = 0; i < n_columns; i++)
      squares += (row[i] - mean) * (row[i] - mean);
    double scale = 1 / sqrt(squares / (double)n_columns + call->attributes.layer_norm.epsilon);
    for (int64_t i = 0; i < n_columns; i++)
      row[i] = (float)((row[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0.0f));
    iso_store_row(y, r, row);
  }
  return ISO_OK;
}

iso_status iso_reference_softmax(iso_reference_call *call) {
  const iso_host_tensor *x = &call->inputs[0], *y = &call->outputs[0];
  int64_t n_columns = iso_n_columns(x);
  float *row;
  ISO_TRY(iso_reference_scratch(call, n_columns, sizeof *row, &row));
  for (int64_t r = 0; r < iso_n_rows(x); r++) {
    iso_load_row(x, r, row);
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n_columns; i++)
      largest = fmax(largest, row[i]);
    for (int64_t i = 0; i < n_columns; i++)
      sum += exp(row[i] - largest);
    for (int64_t i = 0; i < n_columns; i++)
      row[i] = (float)(exp(row[i] - largest) / sum);
    iso_store_row(y, r, row);
  }
  return ISO_OK;
}
