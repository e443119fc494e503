/* Weights: taken over from another executor, used in place, copied, or packed. */
#include "core/backend_call.h"
#include "core/defaults.h"
#include "core/device.h"
#include "core/executor.h"
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;

static iso_status dense_bytes(const iso_value_info *value, uint64_t *out_bytes) {
  return iso_shape_bytes(&value->shape, value->scheme, out_bytes);
}

static bool same_weight(const iso_value_info *a, const iso_value_info *b) {
  bool same = a->scheme == b->scheme && a->shape.n_dims == b->shape.n_dims;
  for (uint32_t i = 0; same && i < a->shape.n_dims; i++)
    same = a->shape.dims[i].size == b->shape.dims[i].size;
  return same;
}

/* The same weight, in the same layout on the same device, of another executor; or NULL. */
static executor_weight *find_shared(const iso_executor *executor, const iso_executor *share,
                                    uint32_t index) {
  if (!share)
    return NULL;
  const iso_plan_weight *wanted = &executor->plan->weights[index];
  const iso_value_info *value = iso_graph_get_value(executor->plan->graph, wanted->value);
  iso_value other = iso_graph_find(share->plan->graph, value->name);
  if (other == ISO_NO_VALUE || !same_weight(value, iso_graph_get_value(share->plan->graph, other)))
    return NULL;
  for (uint32_t i = 0; i < share->plan->n_weights; i++) {
    const iso_plan_weight *offered = &share->plan->weights[i];
    if (offered->value == other && offered->layout == wanted->layout &&
        share->weights[i]->device == executor->devices[wanted->device].open)
      return share->weights[i];
  }
  return NULL;
}

/* The weight as the graph describes it, its bytes not there yet. */
static iso_host_weight describe(const iso_value_info *value, uint64_t bytes) {
  iso_host_weight weight = {.size = sizeof weight,
                            .scheme = value->scheme,
                            .n_dims = value->shape.n_dims,
                            .bytes = bytes};
  for (uint32_t i = 0; i < value->shape.n_dims; i++)
    weight.dims[i] = value->shape.dims[i].size;
  return weight;
}

static iso_status packed_bytes(const iso_plan_weight *weight, iso_open_device *device,
                               const iso_value_info *value, uint64_t *out_bytes) {
  ISO_TRY(dense_bytes(value, out_bytes));
  if (!weight->packer)
    return ISO_OK;
  iso_host_weight host = describe(value, *out_bytes);
  return iso_fail_context(iso_device_packed_bytes(device, weight->packer, &host, out_bytes),
                          "%s in the layout of %s", value->name, weight->packer->name);
}

iso_status iso_executor_measure_weights(iso_executor *executor, const iso_executor *share) {
  const iso_plan *plan = executor->plan;
  for (uint32_t i = 0; i < plan->n_weights; i++) {
    executor_device *device = &executor->devices[plan->weights[i].device];
    bool in_place = !plan->weights[i].packer && !iso_defaults_lack_import(&device->open->memory);
    if (in_place || find_shared(executor, share, i))
      continue;
    uint64_t bytes;
    ISO_TRY(packed_bytes(&plan->weights[i], device->open,
                         iso_graph_get_value(plan->graph, plan->weights[i].value), &bytes));
    if (__builtin_add_overflow(device->needed_bytes, bytes, &device->needed_bytes))
      return iso_fail(ISO_ERROR_LIMIT, "the weights are larger than 2^64 bytes");
  }
  return ISO_OK;
}

/* ---- Placing ----------------------------------------------------------------------------- */

/* A weight that could have been used in place and was not needs memory nobody counted. */
static iso_status spend_spare(iso_executor *executor, uint32_t index, uint64_t bytes) {
  const executor_device *device = &executor->devices[index];
  if (bytes > device->spare_bytes)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "%llu bytes are needed, %llu are free on %s",
                    (u64)bytes, (u64)device->spare_bytes, device->open->spec);
  for (uint32_t d = 0; d < executor->plan->n_devices; d++) {
    uint64_t *spare = &executor->devices[d].spare_bytes;
    if (iso_executor_share_memory(executor, index, d))
      *spare -= bytes < *spare ? bytes : *spare;
  }
  return ISO_OK;
}

static iso_status copy_in(iso_executor *executor, uint32_t index, const iso_host_weight *host,
                          executor_weight *weight) {
  iso_open_device *device = executor->devices[index].open;
  if (!iso_defaults_lack_import(&device->memory))
    ISO_TRY(spend_spare(executor, index, host->bytes));
  weight->bytes = host->bytes;
  ISO_TRY(iso_executor_alloc(device, ISO_MEMORY_DEVICE, host->bytes, "a weight", &weight->buffer));
  return iso_device_upload(device, weight->buffer, 0, host->data, host->bytes);
}

static iso_status pack(executor_device *device, const iso_kernel *packer,
                       const iso_host_weight *host, executor_weight *weight) {
  ISO_TRY(iso_device_packed_bytes(device->open, packer, host, &weight->bytes));
  ISO_TRY(iso_executor_alloc(device->open, ISO_MEMORY_DEVICE, weight->bytes, "a packed weight",
                             &weight->buffer));
  iso_status status = iso_device_pack(device->open, packer, host, weight->buffer, 0);
  return iso_device_settle(device->open, status); /* the host bytes may go after this */
}

static iso_status place(iso_executor *executor, uint32_t index, const iso_host_weight *host,
                        bool stays) {
  const iso_plan_weight *planned = &executor->plan->weights[index];
  executor_device *device = &executor->devices[planned->device];
  executor_weight *weight = calloc(1, sizeof *weight);
  if (!weight)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a weight");
  atomic_init(&weight->references, 1);
  weight->device = device->open;
  executor->weights[index] = weight;
  if (planned->packer)
    return pack(device, planned->packer, host, weight);
  if (stays && device->open->memory.import(device->open->device, host->data, host->bytes,
                                           &weight->buffer) == ISO_OK) {
    weight->bytes = host->bytes;
    weight->imported = true;
    return ISO_OK;
  }
  weight->buffer = NULL;
  return copy_in(executor, planned->device, host, weight);
}

/* What a provider returned must be what the graph asked for. */
static iso_status check_provided(const iso_value_info *value, const iso_host_weight *host,
                                 uint64_t bytes) {
  bool same = host->data && host->bytes == bytes && host->scheme == value->scheme &&
              host->n_dims == value->shape.n_dims;
  for (uint32_t i = 0; same && i < value->shape.n_dims; i++)
    same = host->dims[i] == value->shape.dims[i].size;
  if (same)
    return ISO_OK;
  char shape[128];
  return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                  "the graph wants %s %s of %llu bytes, and was given %llu bytes of another kind",
                  iso_scheme_get_info(value->scheme)->name,
                  iso_shape_format(&value->shape, shape, sizeof shape), (u64)bytes,
                  (u64)host->bytes);
}

typedef struct loading {
  const iso_weight_provider *provider;
  const iso_executor *share;
  uint64_t done_bytes, total_bytes;
} loading;

/* Places plan weights [begin, end), which are one weight of the model. */
static iso_status load_one(iso_executor *executor, uint32_t begin, uint32_t end, loading *l) {
  const iso_value_info *value =
      iso_graph_get_value(executor->plan->graph, executor->plan->weights[begin].value);
  bool is_missing = false;
  for (uint32_t i = begin; i < end; i++)
    is_missing |= !executor->weights[i];
  if (!is_missing)
    return ISO_OK;
  uint64_t bytes;
  ISO_TRY(dense_bytes(value, &bytes));
  iso_host_weight host = {.size = sizeof host};
  bool stays = false;
  ISO_TRY(l->provider->get(l->provider->context, value->name, &host, &stays));
  iso_status status = check_provided(value, &host, bytes);
  for (uint32_t i = begin; i < end && status == ISO_OK; i++) {
    if (executor->weights[i])
      continue;
    status = place(executor, i, &host, stays);
    l->done_bytes += bytes;
    if (status == ISO_OK && l->provider->progress)
      l->provider->progress(l->provider->context, l->done_bytes, l->total_bytes);
  }
  if (l->provider->done)
    l->provider->done(l->provider->context, value->name);
  return status;
}

/* Takes what `share` has and counts the bytes of the rest. */
static iso_status take_shared(iso_executor *executor, loading *l) {
  const iso_plan *plan = executor->plan;
  for (uint32_t i = 0; i < plan->n_weights; i++) {
    executor_weight *shared = find_shared(executor, l->share, i);
    if (shared) {
      atomic_fetch_add(&shared->references, 1);
      executor->weights[i] = shared;
      continue;
    }
    uint64_t bytes;
    ISO_TRY(dense_bytes(iso_graph_get_value(plan->graph, plan->weights[i].value), &bytes));
    if (__builtin_add_overflow(l->total_bytes, bytes, &l->total_bytes))
      return iso_fail(ISO_ERROR_LIMIT, "the weights are larger than 2^64 bytes");
  }
  return ISO_OK;
}

iso_status iso_executor_load_weights(iso_executor *executor, const iso_weight_provider *provider,
                                     const iso_executor *share) {
  const iso_plan *plan = executor->plan;
  loading l = {.provider = provider, .share = share};
  executor->weights = calloc((size_t)plan->n_weights + 1, sizeof *executor->weights);
  if (!executor->weights)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for %u weights", plan->n_weights);
  ISO_TRY(take_shared(executor, &l));
  for (uint32_t begin = 0, end; begin < plan->n_weights; begin = end) {
    for (end = begin + 1;
         end < plan->n_weights && plan->weights[end].value == plan->weights[begin].value;)
      end++;
    iso_status status = load_one(executor, begin, end, &l);
    if (status != ISO_OK)
      return iso_fail_context(status, "weight %s",
                              iso_graph_get_value(plan->graph, plan->weights[begin].value)->name);
  }
  for (uint32_t i = 0; i < plan->n_weights; i++) {
    executor->stats.weight_bytes += executor->weights[i]->bytes;
    if (executor->weights[i]->imported)
      executor->stats.imported_bytes += executor->weights[i]->bytes;
  }
  return ISO_OK;
}

void iso_executor_release_weights(iso_executor *executor) {
  for (uint32_t i = 0; executor->weights && i < executor->plan->n_weights; i++) {
    executor_weight *weight = executor->weights[i];
    if (!weight || atomic_fetch_sub(&weight->references, 1) != 1)
      continue;
    if (weight->buffer)
      weight->device->memory.free(weight->device->device, weight->buffer);
    free(weight);
  }
  free(executor->weights);
}
