/* Mixture-of-experts routing: route_top_k, combine_experts. */
#include "ops/ref/reference.h"
#include <math.h>

/* Index of the largest untaken value, the lowest among equals; NaN counts as -infinity. */
static int64_t best_untaken(const float *values, const bool *taken, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; i++) {
    if (taken[i])
      continue;
    float value = isnan(values[i]) ? -INFINITY : values[i];
    if (best < 0 || value > (isnan(values[best]) ? -INFINITY : values[best]))
      best = i;
  }
  return best;
}

iso_status iso_reference_route_top_k(iso_reference_call *call) {
  const iso_host_tensor *logits = &call->inputs[0];
  const iso_host_tensor *experts = &call->outputs[0], *weights = &call->outputs[1];
  const iso_route_top_k_attributes *attributes = &call->attributes.route_top_k;
  int64_t n_experts = iso_n_columns(logits), k = attributes->k;
  float *row, *chosen;
  bool *taken;
  ISO_TRY(iso_reference_scratch(call, n_experts, sizeof *row, &row));
  ISO_TRY(iso_reference_scratch(call, k, sizeof *chosen, &chosen));
  ISO_TRY(iso_reference_scratch(call, n_experts, sizeof *taken, &taken));
  for (int64_t t = 0; t < iso_n_rows(logits); t++) {
    iso_load_row(logits, t, row);
    for (int64_t e = 0; e < n_experts; e++)
      taken[e] = false;
    for (int64_t c = 0; c < k; c++) {
      int64_t best = best_untaken(row, taken, n_experts);
      taken[best] = true;
      chosen[c] = row[best];
      iso_store_index(experts, t * k + c, (int32_t)best);
    }
    double sum = 0;
    for (int64_t e = 0; e < n_experts; e++)
      if (taken[e] || !attributes->normalize)
        sum += exp((double)row[e] - chosen[0]);
    double largest = chosen[0];
    for (int64_t c = 0; c < k; c++)
      chosen[c] = (float)(attributes->scale * exp(chosen[c] - largest) / sum);
    iso_store_row(weights, t, chosen);
  }
  return ISO_OK;
}

iso_status iso_reference_combine_experts(iso_reference_call *call) {
  const iso_host_tensor *x = &call->inputs[0], *y = &call->outputs[0];
  int64_t n_choices = x->meta->dims[1], n_columns = iso_n_columns(x);
  float *weights, *row;
  double *sums;
  ISO_TRY(iso_load_all(call, &call->inputs[1], &weights));
  ISO_TRY(iso_reference_scratch(call, n_columns, sizeof *row, &row));
  ISO_TRY(iso_reference_scratch(call, n_columns, sizeof *sums, &sums));
  for (int64_t t = 0; t < iso_n_rows(y); t++) {
    for (int64_t i = 0; i < n_columns; i++)
      sums[i] = 0;
    for (int64_t c = 0; c < n_choices; c++) {
      iso_load_row(x, t * n_choices + c, row);
      for (int64_t i = 0; i < n_columns; i++)
        sums[i] += (double)weights[t * n_choices + c] * row[i];
    }
    for (int64_t i = 0; i < n_columns; i++)
      row[i] = (float)sums[i];
    iso_store_row(y, t, row);
  }
  return ISO_OK;
}
