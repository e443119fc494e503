/* What an executor owns: scratch, inputs, states and weights on each device of its plan. */
#include "core/executor.h"
#include "core/backend_call.h"
#include "core/device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;

iso_status iso_executor_alloc(iso_open_device *device, iso_memory_kind kind, uint64_t bytes,
                              const char *what, iso_buffer **out_buffer) {
  iso_status status = iso_device_alloc(device, kind, bytes ? bytes : 1, out_buffer);
  return iso_fail_context(status, "%s for %s (%llu bytes)", device->spec, what, (u64)bytes);
}

int32_t iso_executor_only_device(const iso_plan *plan) {
  if (plan->n_steps == 0)
    return -1;
  uint32_t only = plan->steps[0].device;
  for (uint32_t s = 0; s < plan->n_steps; s++)
    if (plan->steps[s].kind != ISO_STEP_LAUNCH || plan->steps[s].device != only)
      return -1;
  for (uint32_t d = 0; d < plan->n_devices; d++)
    if (d != only && plan->reads_inputs[d])
      return -1;
  return (int32_t)only;
}

/* ---- Before anything is allocated --------------------------------------------------------- */

static iso_status add_need(executor_device *device, uint64_t bytes) {
  if (__builtin_add_overflow(device->needed_bytes, bytes, &device->needed_bytes))
    return iso_fail(ISO_ERROR_LIMIT, "more than 2^64 bytes are needed on %s", device->open->spec);
  return ISO_OK;
}

static iso_status state_bytes(const iso_plan *plan, uint32_t index, uint64_t *out_bytes) {
  const iso_value_info *value = iso_graph_get_value(plan->graph, plan->states[index].value);
  return iso_shape_bytes(&value->shape, value->scheme, out_bytes);
}

bool iso_executor_share_memory(const iso_executor *executor, uint32_t a, uint32_t b) {
  return a == b || (executor->devices[a].open->info.kind == ISO_DEVICE_CPU &&
                    executor->devices[b].open->info.kind == ISO_DEVICE_CPU);
}

/* What is needed of the memory that a device allocates from, by it and by others. */
static uint64_t needed_beside(const iso_executor *executor, uint32_t index) {
  uint64_t bytes = 0;
  for (uint32_t d = 0; d < executor->plan->n_devices; d++)
    if (iso_executor_share_memory(executor, index, d) &&
        __builtin_add_overflow(bytes, executor->devices[d].needed_bytes, &bytes))
      return UINT64_MAX;
  return bytes;
}

/* "512 bytes" or "20.1 MiB", into `out_text`, which is returned. */
static const char *amount(uint64_t bytes, char out_text[32]) {
  if (bytes < UINT64_C(10) << 20)
    snprintf(out_text, 32, "%llu bytes", (u64)bytes);
  else
    snprintf(out_text, 32, "%.1f MiB", (double)bytes / (1 << 20));
  return out_text;
}

/* What one device holds, by purpose. */
typedef struct memory_needs {
  uint64_t weights, states, rest;
} memory_needs;

static iso_status refuse(const executor_device *device, const memory_needs *needs, uint64_t needed,
                         uint64_t free_bytes) {
  char texts[5][32];
  return iso_fail(ISO_ERROR_OUT_OF_MEMORY,
                  "%s has %s free, and %s are needed: %s for weights, %s for states (caches), %s "
                  "for scratch and inputs",
                  device->open->spec, amount(free_bytes, texts[0]), amount(needed, texts[1]),
                  amount(needs->weights, texts[2]), amount(needs->states, texts[3]),
                  amount(needs->rest, texts[4]));
}

/* Sums up what each device must hold and compares it with what is free there. */
static iso_status check_memory(iso_executor *executor, const iso_executor *share) {
  const iso_plan *plan = executor->plan;
  memory_needs needs[ISO_MAX_DEVICES] = {{0}};
  for (uint32_t i = 0; i < plan->n_states; i++) {
    uint64_t bytes;
    ISO_TRY(state_bytes(plan, i, &bytes));
    ISO_TRY(add_need(&executor->devices[plan->states[i].device], bytes));
    executor->stats.state_bytes += bytes;
  }
  for (uint32_t d = 0; d < plan->n_devices; d++) {
    executor_device *device = &executor->devices[d];
    needs[d].states = device->needed_bytes;
    ISO_TRY(add_need(device, plan->arena_bytes[d]));
    ISO_TRY(add_need(device, plan->reads_inputs[d] ? plan->input_bytes : 0));
    needs[d].rest = device->needed_bytes - needs[d].states;
    executor->stats.arena_bytes += plan->arena_bytes[d];
  }
  ISO_TRY(iso_executor_measure_weights(executor, share));
  for (uint32_t d = 0; d < plan->n_devices; d++) {
    executor_device *device = &executor->devices[d];
    needs[d].weights = device->needed_bytes - needs[d].states - needs[d].rest;
    uint64_t free_bytes, needed = needed_beside(executor, d);
    ISO_TRY(iso_device_bytes_free(device->open, &free_bytes));
    if (needed > free_bytes)
      return refuse(device, &needs[d], needed, free_bytes);
    device->spare_bytes = free_bytes - needed;
  }
  return ISO_OK;
}

/* ---- Memory -------------------------------------------------------------------------------- */

static iso_status make_inputs(iso_executor *executor, executor_device *device) {
  uint64_t bytes = executor->plan->input_bytes;
  iso_open_device *open = device->open;
  ISO_TRY(iso_executor_alloc(open, ISO_MEMORY_DEVICE, bytes, "inputs", &device->input));
  device->input_address[0] = iso_device_map(open, device->input);
  bool is_mapped = device->input_address[0] != NULL;
  for (uint32_t i = 0; !is_mapped && i < (executor->overlapping ? EXECUTOR_FLIGHTS : 1); i++) {
    ISO_TRY(iso_executor_alloc(open, ISO_MEMORY_STAGING, bytes, "staged inputs",
                               &device->input_staging[i]));
    void *address;
    ISO_TRY(iso_device_address(open, device->input_staging[i], &address));
    device->input_address[i] = address;
  }
  memset(device->input_address[0], 0, bytes);
  if (!executor->input_block && !executor->overlapping)
    executor->input_block = device->input_address[0];
  return ISO_OK;
}

static iso_status make_device_memory(iso_executor *executor, uint32_t index) {
  executor_device *device = &executor->devices[index];
  const iso_plan *plan = executor->plan;
  ISO_TRY(iso_device_need_staging(device->open));
  ISO_TRY(iso_executor_alloc(device->open, ISO_MEMORY_DEVICE, plan->arena_bytes[index], "scratch",
                             &device->arena));
  device->arena_address = iso_device_map(device->open, device->arena);
  if (plan->reads_inputs[index])
    ISO_TRY(make_inputs(executor, device));
  return ISO_OK;
}

/* Memory is backed when it is first touched, which takes long where pages are large; the first
 * request need not wait for that. */
enum { TOUCHED_STATE_BYTES = 2 << 20 };

static iso_status make_states(iso_executor *executor) {
  const iso_plan *plan = executor->plan;
  executor->states = calloc((size_t)plan->n_states + 1, sizeof *executor->states);
  if (!executor->states)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for %u states", plan->n_states);
  for (uint32_t i = 0; i < plan->n_states; i++) {
    iso_open_device *open = executor->devices[plan->states[i].device].open;
    uint64_t bytes;
    ISO_TRY(state_bytes(plan, i, &bytes));
    ISO_TRY(iso_executor_alloc(open, ISO_MEMORY_DEVICE, bytes,
                               iso_graph_get_value(plan->graph, plan->states[i].value)->name,
                               &executor->states[i]));
    if (bytes > 0)
      ISO_TRY(iso_device_fill(open, executor->states[i], 0,
                              bytes < TOUCHED_STATE_BYTES ? bytes : TOUCHED_STATE_BYTES, 0));
  }
  return ISO_OK;
}

/* Integers that are outputs (tokens, mostly) come along with each step where the host cannot look
 * into the arena. */
static iso_status make_copied_outputs(iso_executor *executor) {
  const iso_plan *plan = executor->plan;
  for (iso_value v = 0; v < iso_graph_value_count(plan->graph); v++) {
    const iso_value_info *info = iso_graph_get_value(plan->graph, v);
    uint64_t bytes;
    if (!info->is_output || info->scheme != ISO_SCHEME_I32 || info->storage != v ||
        plan->value_operand[v].storage != ISO_STORAGE_ARENA ||
        executor->devices[plan->value_device[v]].arena_address ||
        executor->n_copied == EXECUTOR_COPIED_OUTPUTS)
      continue;
    ISO_TRY(iso_shape_bytes(&info->shape, info->scheme, &bytes));
    if (bytes > EXECUTOR_COPIED_BYTES)
      continue;
    executor_copied_output *output = &executor->copied[executor->n_copied];
    *output = (executor_copied_output){.value = v,
                                       .device = (uint32_t)plan->value_device[v],
                                       .offset = plan->value_operand[v].offset,
                                       .bytes = bytes};
    executor->n_copied++;
    iso_open_device *open = executor->devices[output->device].open;
    for (uint32_t i = 0; i < (executor->overlapping ? EXECUTOR_FLIGHTS : 1); i++) {
      ISO_TRY(iso_executor_alloc(open, ISO_MEMORY_STAGING, bytes, "staged outputs",
                                 &output->staging[i]));
      ISO_TRY(iso_device_address(open, output->staging[i], &output->address[i]));
    }
  }
  return ISO_OK;
}

/* Host memory that no device provides. */
static iso_status make_host_memory(iso_executor *executor) {
  const iso_plan *plan = executor->plan;
  if (!executor->input_block) {
    executor->owned_inputs = calloc(1, plan->input_bytes + 1);
    executor->input_block = executor->owned_inputs;
  }
  uint64_t bounce_bytes = 0;
  for (uint32_t s = 0; s < plan->n_steps; s++) {
    const iso_plan_step *step = &plan->steps[s];
    if (step->kind == ISO_STEP_COPY && step->copy_bytes > bounce_bytes &&
        !executor->devices[step->device].arena_address &&
        !executor->devices[step->source_device].arena_address)
      bounce_bytes = step->copy_bytes;
  }
  if (bounce_bytes > 0)
    executor->bounce = malloc(bounce_bytes);
  if (!executor->input_block || (bounce_bytes > 0 && !executor->bounce))
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "the host has no %llu bytes for inputs and copies",
                    (u64)(plan->input_bytes + bounce_bytes));
  return ISO_OK;
}

static iso_status build(iso_executor *executor, const iso_weight_provider *weights,
                        const iso_executor *share) {
  const iso_plan *plan = executor->plan;
  ISO_TRY(check_memory(executor, share));
  int32_t only = iso_executor_only_device(plan);
  if (only >= 0 && !(executor->devices[only].open->info.features & ISO_FEATURE_HOST_MEMORY))
    executor->overlapping = executor->devices[only].open;
  for (uint32_t d = 0; d < plan->n_devices; d++)
    ISO_TRY(make_device_memory(executor, d));
  ISO_TRY(make_states(executor));
  ISO_TRY(make_copied_outputs(executor));
  ISO_TRY(make_host_memory(executor));
  ISO_TRY(iso_executor_load_weights(executor, weights, share));
  ISO_TRY(iso_executor_prepare(executor));
  executor->recorder = iso_executor_find_recorder(executor);
  return iso_executor_drain(executor, ISO_OK);
}

iso_status iso_executor_create(const iso_plan *plan, iso_open_device *const *devices,
                               const iso_weight_provider *weights, iso_executor *share,
                               iso_executor **out_executor) {
  iso_executor *executor = calloc(1, sizeof *executor);
  if (!executor)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for an executor");
  executor->plan = plan;
  for (uint32_t d = 0; d < plan->n_devices; d++)
    executor->devices[d].open = devices[d];
  iso_status status = build(executor, weights, share);
  if (status != ISO_OK) {
    iso_executor_destroy(executor);
    return status;
  }
  *out_executor = executor;
  return ISO_OK;
}

iso_status iso_executor_drain(iso_executor *executor, iso_status status) {
  for (uint32_t d = 0; d < executor->plan->n_devices; d++)
    status = iso_device_settle(executor->devices[d].open, status);
  return status;
}

static void free_buffer(iso_open_device *device, iso_buffer *buffer) {
  if (buffer)
    device->memory.free(device->device, buffer);
}

void iso_executor_destroy(iso_executor *executor) {
  if (!executor)
    return;
  /* The sentence of a failed creation is kept. */
  (void)iso_executor_drain(executor, ISO_ERROR_DEVICE);
  iso_executor_release_recordings(executor);
  for (uint32_t i = 0; executor->states && i < executor->plan->n_states; i++)
    free_buffer(executor->devices[executor->plan->states[i].device].open, executor->states[i]);
  iso_executor_release_weights(executor);
  for (uint32_t d = 0; d < executor->plan->n_devices; d++) {
    executor_device *device = &executor->devices[d];
    free_buffer(device->open, device->arena);
    free_buffer(device->open, device->input);
    for (uint32_t i = 0; i < EXECUTOR_FLIGHTS; i++)
      free_buffer(device->open, device->input_staging[i]);
  }
  for (uint32_t i = 0; i < executor->n_copied; i++)
    for (uint32_t f = 0; f < EXECUTOR_FLIGHTS; f++)
      free_buffer(executor->devices[executor->copied[i].device].open,
                  executor->copied[i].staging[f]);
  for (uint32_t f = 0; f < EXECUTOR_FLIGHTS; f++)
    free_buffer(executor->devices[executor->kept[f].device].open, executor->kept[f].staging);
  free(executor->states);
  free(executor->steps);
  free(executor->active);
  free(executor->patches);
  free(executor->choices);
  free(executor->owned_inputs);
  free(executor->bounce);
  free(executor);
}

/* ---- Access -------------------------------------------------------------------------------- */

void *iso_executor_input(iso_executor *executor, iso_value input) {
  const iso_value_info *value = iso_graph_get_value(executor->plan->graph, input);
  if (!value || value->role != ISO_VALUE_INPUT)
    return NULL;
  return executor->input_block + executor->plan->value_operand[input].offset;
}

/* The buffer of a value that the host may read; NULL when it is in the input block or nowhere. */
static iso_buffer *buffer_of(const iso_executor *executor, iso_value value) {
  const iso_plan_operand *operand = &executor->plan->value_operand[value];
  switch (operand->storage) {
  case ISO_STORAGE_ARENA:
    return executor->devices[executor->plan->value_device[value]].arena;
  case ISO_STORAGE_WEIGHT:
    return executor->weights[operand->index]->buffer;
  case ISO_STORAGE_STATE:
    return executor->states[operand->index];
  default:
    return NULL;
  }
}

/* Reads `bytes` bytes from `offset` of where a value lies. */
static iso_status read_piece(iso_executor *executor, iso_value value, uint64_t offset, void *target,
                             uint64_t bytes) {
  const iso_plan *plan = executor->plan;
  if (plan->value_operand[value].storage == ISO_STORAGE_INPUT) {
    memcpy(target, executor->input_block + offset, bytes);
    return ISO_OK;
  }
  return iso_device_download(executor->devices[plan->value_device[value]].open,
                             buffer_of(executor, value), offset, target, bytes);
}

/* Row after row, so that strided views are read as if they were dense. */
static iso_status read_rows(iso_executor *executor, iso_value index, char *target, uint64_t bytes) {
  const iso_value_info *value = iso_graph_get_value(executor->plan->graph, index);
  uint32_t last = value->shape.n_dims - 1;
  uint64_t row_bytes;
  ISO_TRY(iso_scheme_row_bytes(value->scheme, value->shape.dims[last].size, &row_bytes));
  int64_t position[ISO_MAX_DIMS] = {0};
  while (bytes > 0) {
    uint64_t offset = executor->plan->value_operand[index].offset;
    for (uint32_t i = 0; i < last; i++)
      offset += (uint64_t)(position[i] * value->strides[i]);
    uint64_t piece = bytes < row_bytes ? bytes : row_bytes;
    ISO_TRY(read_piece(executor, index, offset, target, piece));
    target += piece;
    bytes -= piece;
    for (uint32_t i = last; i-- > 0;) {
      if (++position[i] < value->shape.dims[i].size)
        break;
      position[i] = 0;
    }
  }
  return ISO_OK;
}

iso_status iso_executor_read(iso_executor *executor, iso_value value, void *target,
                             uint64_t bytes) {
  const iso_plan *plan = executor->plan;
  const iso_value_info *info = iso_graph_get_value(plan->graph, value);
  if (!info)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "value %d is not in the graph", value);
  if (plan->value_operand[value].storage == ISO_STORAGE_ABSENT)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "%s is not kept after a step: it is no output, and the plan does not keep all",
                    info->name);
  uint64_t all;
  ISO_TRY(iso_shape_bytes(&info->shape, info->scheme, &all));
  if (bytes > all)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s has %llu bytes, not %llu", info->name, (u64)all,
                    (u64)bytes);
  if (info->storage != value)
    return read_rows(executor, value, target, bytes);
  return read_piece(executor, value, plan->value_operand[value].offset, target, bytes);
}

const void *iso_executor_peek(iso_executor *executor, iso_value value) {
  const iso_plan *plan = executor->plan;
  if (!iso_graph_get_value(plan->graph, value))
    return NULL;
  const iso_plan_operand *operand = &plan->value_operand[value];
  if (operand->storage == ISO_STORAGE_INPUT)
    return executor->input_block + operand->offset;
  for (uint32_t i = 0; i < executor->n_copied; i++)
    if (executor->copied[i].value == value)
      return executor->copied[i].address[executor->shown];
  iso_buffer *buffer = buffer_of(executor, value);
  const uint8_t *address =
      buffer ? iso_device_map(executor->devices[plan->value_device[value]].open, buffer) : NULL;
  return address ? address + operand->offset : NULL;
}

void iso_executor_observe(iso_executor *executor, iso_executor_observer observer, void *context) {
  executor->observer = observer;
  executor->observer_context = context;
}

iso_status iso_executor_fill_states(iso_executor *executor, uint8_t byte) {
  const iso_plan *plan = executor->plan;
  for (uint32_t i = 0; i < plan->n_states; i++) {
    iso_open_device *open = executor->devices[plan->states[i].device].open;
    uint64_t bytes;
    ISO_TRY(state_bytes(plan, i, &bytes));
    ISO_TRY(iso_device_fill(open, executor->states[i], 0, bytes, byte));
  }
  return ISO_OK;
}

iso_buffer *iso_executor_state(iso_executor *executor, iso_value state, uint32_t *out_device) {
  const iso_plan *plan = executor->plan;
  const iso_value_info *value = iso_graph_get_value(plan->graph, state);
  if (!value || plan->value_operand[state].storage != ISO_STORAGE_STATE)
    return NULL;
  *out_device = (uint32_t)plan->value_device[state];
  return executor->states[plan->value_operand[state].index];
}

void iso_executor_get_stats(const iso_executor *executor, iso_executor_stats *out_stats) {
  *out_stats = executor->stats;
}
