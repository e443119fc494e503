#include "engine/kv_budget.h"
#include "core/backend_call.h"

#include "models/adapter.h"
#include "models/model.h"
#include <inttypes.h>

iso_status iso_kv_page_bytes(const iso_model *model, const iso_runtime_options *options,
                             uint64_t *out_bytes) {
  const iso_model_config *config = iso_model_get_config(model);
  iso_scheme scheme = ISO_SCHEME_F32;
  (void)iso_scheme_from_name(options->kv_type, &scheme);
  uint64_t row = 0, rows = 2 * (uint64_t)config->n_layers * (uint64_t)config->n_kv_heads;
  ISO_TRY(iso_scheme_row_bytes(scheme, config->head_dim, &row));
  if (__builtin_mul_overflow(rows, (uint64_t)options->page_size, &rows) ||
      __builtin_mul_overflow(rows, row, out_bytes))
    return iso_fail(ISO_ERROR_LIMIT, "a page of %d tokens exceeds 2^64 bytes", options->page_size);
  return ISO_OK;
}

/* Memory that the weights of a device's layers leave, as far as files tell. */
static iso_status bytes_left(const iso_model *model, const iso_runtime_options *options,
                             const iso_open_device *device, double layer_share, double *out_bytes) {
  uint64_t free_bytes;
  ISO_TRY(iso_device_bytes_free(device, &free_bytes));
  double weights = (double)iso_model_weight_bytes(model) +
                   (double)iso_adapters_bytes(options->adapters, options->n_adapters);
  *out_bytes = (double)free_bytes - weights * layer_share;
  return ISO_OK;
}

/* The share of the model's layers whose weights and pages are in the memory of device `index`: its
 * own, and those of the other CPUs where it is one. */
static double layers_in_memory(const iso_device_list *devices, uint32_t index, int32_t n_layers) {
  bool is_cpu = devices->devices[index]->info.kind == ISO_DEVICE_CPU;
  int32_t n = 0, start = 0;
  for (uint32_t i = 0; i < devices->n_devices; i++) {
    bool is_shared = is_cpu && devices->devices[i]->info.kind == ISO_DEVICE_CPU;
    n += i == index || is_shared ? devices->split[i] - start : 0;
    start = devices->split[i];
  }
  return (double)n / n_layers;
}

/* The pages that every device has room for. */
static iso_status pages_by_share(const iso_kv_budget *budget, const iso_model *model,
                                 const iso_runtime_options *options, const iso_device_list *devices,
                                 double page_bytes, double *out_pages) {
  int32_t n_layers = iso_model_get_config(model)->n_layers;
  *out_pages = INT32_MAX;
  for (uint32_t i = 0; i < devices->n_devices; i++) {
    double layers = layers_in_memory(devices, i, n_layers), left;
    if (layers <= 0)
      continue;
    bool is_cpu = devices->devices[i]->info.kind == ISO_DEVICE_CPU;
    double share = budget->share > 0 ? (double)budget->share : is_cpu ? 0.25 : 0.9;
    ISO_TRY(bytes_left(model, options, devices->devices[i], layers, &left));
    double pages = left > 0 ? left * share / (page_bytes * layers) : 0;
    *out_pages = pages < *out_pages ? pages : *out_pages;
  }
  return ISO_OK;
}

iso_status iso_kv_budget_pages(const iso_kv_budget *budget, const iso_model *model,
                               const iso_runtime_options *options, const iso_device_list *devices,
                               int32_t *out_pages) {
  uint64_t page_bytes = 0;
  ISO_TRY(iso_kv_page_bytes(model, options, &page_bytes));
  double pages = (double)budget->bytes / (double)page_bytes;
  if (budget->bytes == 0)
    ISO_TRY(pages_by_share(budget, model, options, devices, (double)page_bytes, &pages));
  int32_t full = (options->context + options->page_size - 1) / options->page_size;
  if (pages >= 1 && pages < full)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY,
                    "the key-value cache of one context of %d tokens needs %.1f MB; there is room "
                    "for %.1f MB, which a context of %.0f tokens would fit: lower the context or "
                    "the cache type, or give the cache more memory",
                    options->context, (double)page_bytes * full / 1e6,
                    (double)page_bytes * pages / 1e6, (double)(int64_t)pages * options->page_size);
  if (pages < full)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY,
                    "the key-value cache of one context of %d tokens needs %.1f MB; there is room "
                    "for %.1f MB, less than a page of %d tokens takes: give the cache more memory",
                    options->context, (double)page_bytes * full / 1e6,
                    (double)page_bytes * pages / 1e6, options->page_size);
  *out_pages = pages < options->n_pages ? (int32_t)pages : options->n_pages;
  return ISO_OK;
}
