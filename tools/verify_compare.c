#include "tools/verify_compare.h"

#include "models/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A model's identity ---------------------------------------------------------------------- */

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
  const uint8_t *at = data;
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ at[i]) * 0x100000001B3;
  return hash;
}

uint64_t iso_verify_fingerprint(const iso_model *model, const iso_adapter_list *adapters) {
  uint64_t hash = 0xCBF29CE484222325;
  for (uint32_t i = 0; i < iso_model_tensor_count(model); i++) {
    iso_model_tensor tensor;
    iso_model_get_tensor(model, i, &tensor);
    const char *scheme =
        iso_scheme_get_info(tensor.scheme) ? iso_scheme_get_info(tensor.scheme)->name : "unknown";
    hash = hash_bytes(hash, tensor.name, strlen(tensor.name) + 1);
    hash = hash_bytes(hash, scheme, strlen(scheme) + 1);
    hash = hash_bytes(hash, tensor.dims, tensor.n_dims * sizeof tensor.dims[0]);
  }
  const iso_adapter *const *items = (const iso_adapter *const *)adapters->items;
  uint64_t bytes = iso_adapters_bytes(items, adapters->n);
  return adapters->n > 0 ? hash_bytes(hash, &bytes, sizeof bytes) : hash;
}

/* ---- Values ---------------------------------------------------------------------------------- */

double iso_verify_row_error(const float *got, const float *want, int64_t n) {
  double difference = 0, scale = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = (double)got[i] - want[i];
    difference += d * d;
    scale += (double)want[i] * want[i];
  }
  if (!isfinite(difference) || !isfinite(scale))
    return INFINITY;
  return difference == 0 ? 0 : scale == 0 ? INFINITY : sqrt(difference / scale);
}

static void compare(const iso_trace_value *judge, const float *rows, iso_verify_entry *entry) {
  int64_t n = judge->info->n_columns;
  double sum = 0;
  for (int64_t r = 0; r < judge->info->n_rows; r++) {
    double error = iso_verify_row_error(rows + r * n, judge->values + r * n, n);
    sum += error * error;
    entry->worst_row = fmax(entry->worst_row, error);
  }
  entry->error = sqrt(sum / (double)judge->info->n_rows);
}

/* ---- Logits ---------------------------------------------------------------------------------- */

static double log_sum_exp(const float *logits, int64_t n) {
  double largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++)
    largest = fmax(largest, logits[i]);
  for (int64_t i = 0; i < n; i++)
    sum += exp(logits[i] - largest);
  return largest + log(sum);
}

static void compare_logits(const iso_trace_value *judge, const float *rows,
                           iso_verify_result *result) {
  int64_t n = judge->info->n_columns;
  for (int64_t r = 0; r < judge->info->n_rows; r++) {
    const float *p = judge->values + r * n, *q = rows + r * n;
    double p_sum = log_sum_exp(p, n), q_sum = log_sum_exp(q, n), divergence = 0;
    for (int64_t i = 0; i < n; i++)
      divergence += exp(p[i] - p_sum) * ((p[i] - p_sum) - (q[i] - q_sum));
    if (!(divergence >= 0)) /* rounding may make it slightly negative */
      divergence = isnan(divergence) ? INFINITY : 0;
    result->divergence_sum += divergence;
    result->divergence_worst = fmax(result->divergence_worst, divergence);
    result->n_agree +=
        iso_verify_likeliest(p, (int32_t)n).token == iso_verify_likeliest(q, (int32_t)n).token;
    result->n_rows++;
  }
}

/* ---- Receiving a run ------------------------------------------------------------------------- */

static iso_status on_begin(void *context, const iso_runtime *runtime) {
  iso_verify_collector *self = context;
  const iso_model_config *config = iso_model_get_config(self->model);
  iso_verify_result *result = self->result;
  snprintf(result->description, sizeof result->description, "%s", iso_runtime_describe(runtime));
  result->has_judge = self->judge != NULL;
  result->n_layers = config->n_layers;
  result->first_difference = -1;
  if (!self->path)
    return ISO_OK;
  iso_trace_model model = {.fingerprint =
                               iso_verify_fingerprint(self->model, self->prompt->adapters),
                           .n_layers = config->n_layers,
                           .vocabulary_size = config->vocabulary_size,
                           .n_tokens = self->prompt->n_tokens};
  snprintf(model.model, sizeof model.model, "%s%s%s", config->name, config->name[0] ? ", " : "",
           config->architecture);
  snprintf(model.device, sizeof model.device, "%.127s", result->description);
  return iso_trace_writer_create(self->path, &model, self->prompt->tokens, &self->writer);
}

static iso_status on_step(void *context, int32_t first_token, int32_t n_tokens) {
  iso_verify_collector *self = context;
  self->step = self->n_steps++;
  self->hint = 0;
  self->result->rounding2 = 0;
  if (self->judge &&
      (self->step >= self->judge->n_steps || self->judge->steps[self->step].n_tokens != n_tokens))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "the trace's step %u does not have the %d tokens that it has here: it is of "
                    "another version",
                    self->step + 1, n_tokens);
  return self->writer ? iso_trace_write_step(self->writer, first_token, n_tokens) : ISO_OK;
}

static iso_status add_entry(iso_verify_result *result, const iso_verify_entry *entry) {
  if (result->n_entries == result->capacity) {
    uint32_t capacity = result->capacity ? 2 * result->capacity : 512;
    iso_verify_entry *grown = realloc(result->entries, capacity * sizeof *grown);
    if (!grown)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %u results", capacity);
    result->entries = grown;
    result->capacity = capacity;
  }
  result->entries[result->n_entries++] = *entry;
  return ISO_OK;
}

static iso_status judge_value(iso_verify_collector *self, const iso_verify_value *value,
                              iso_verify_entry *entry) {
  const iso_trace_value *judge =
      iso_trace_find(self->judge, self->step, value->info.name, self->hint++);
  iso_verify_result *result = self->result;
  if (!judge) {
    result->n_absent++;
    return ISO_OK;
  }
  if (judge->info->n_rows != value->info.n_rows || judge->info->n_columns != value->info.n_columns)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "%s has %lld rows of %lld, and %lld of %lld in the "
                    "trace",
                    value->info.name, (long long)value->info.n_rows,
                    (long long)value->info.n_columns, (long long)judge->info->n_rows,
                    (long long)judge->info->n_columns);
  result->rounding2 += judge->info->rounding * judge->info->rounding;
  entry->tolerance = fmin(ISO_VERIFY_ALLOWANCE * sqrt(result->rounding2), ISO_VERIFY_MOST);
  entry->is_compared = !value->is_index;
  if (entry->is_compared)
    compare(judge, value->rows, entry);
  if (strcmp(value->info.name, "logits") == 0)
    compare_logits(judge, value->rows, result);
  return ISO_OK;
}

static iso_status keep_last_row(iso_verify_result *result, const iso_verify_value *value) {
  size_t n = (size_t)value->info.n_columns;
  if (!result->last_logits)
    result->last_logits = malloc(n * sizeof *result->last_logits);
  if (!result->last_logits)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a row of logits");
  memcpy(result->last_logits, value->rows + (size_t)(value->info.n_rows - 1) * n,
         n * sizeof *result->last_logits);
  return ISO_OK;
}

static iso_status on_value(void *context, const iso_verify_value *value) {
  iso_verify_collector *self = context;
  iso_verify_entry entry = {
      .step = value->step, .node = value->node, .layer = value->info.layer, .local = *value->local};
  memcpy(entry.name, value->info.name, sizeof entry.name);
  memcpy(entry.op, value->info.op, sizeof entry.op);
  memcpy(entry.kernel, value->info.kernel, sizeof entry.kernel);
  memcpy(entry.shapes, value->shapes, sizeof entry.shapes);
  self->result->rounding2 += value->info.rounding * value->info.rounding;
  if (value->rows && strcmp(value->info.name, "logits") == 0)
    ISO_TRY(keep_last_row(self->result, value));
  if (value->rows && self->judge)
    ISO_TRY(judge_value(self, value, &entry));
  if (value->rows && self->writer)
    ISO_TRY(iso_trace_write_value(self->writer, &value->info, value->rows));
  return add_entry(self->result, &entry);
}

static iso_status on_output(void *context, const iso_trace_output *output, int32_t count) {
  iso_verify_collector *self = context;
  iso_verify_result *result = self->result;
  const iso_trace *judge = self->judge;
  result->n_output = judge && judge->n_output < count ? judge->n_output : count;
  for (int32_t i = 0; judge && i < result->n_output && result->first_difference < 0; i++)
    if (judge->output[i].token != output[i].token) {
      result->first_difference = i;
      result->judge_token = judge->output[i].token;
      result->token = output[i].token;
      result->judge_margin = judge->output[i].margin;
    }
  if (!self->writer)
    return ISO_OK;
  ISO_TRY(iso_trace_write_output(self->writer, output, count));
  return iso_trace_writer_finish(self->writer);
}

iso_verify_visitor iso_verify_collect(iso_verify_collector *collector) {
  return (iso_verify_visitor){collector, on_begin, on_step, on_value, on_output};
}

void iso_verify_collector_finish(iso_verify_collector *collector) {
  iso_trace_writer_destroy(collector->writer);
  collector->writer = NULL;
}

void iso_verify_result_free(iso_verify_result *result) {
  free(result->entries);
  free(result->last_logits);
  *result = (iso_verify_result){0};
}

const iso_verify_entry *iso_verify_first_beyond(const iso_verify_result *result) {
  for (uint32_t i = 0; i < result->n_entries; i++)
    if (result->entries[i].is_compared &&
        !(result->entries[i].error <= result->entries[i].tolerance))
      return &result->entries[i];
  return NULL;
}

const iso_verify_entry *iso_verify_first_wrong(const iso_verify_result *result) {
  for (uint32_t i = 0; i < result->n_entries; i++)
    if (result->entries[i].local.is_wrong)
      return &result->entries[i];
  return NULL;
}
