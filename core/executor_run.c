/* One step of the model. Sizes that are those of the step before cost nothing: dimensions are
 * patched and kernels chosen only when they change. */
#include "core/backend_call.h"
#include "core/device.h"
#include "core/executor.h"
#include "core/graph.h"
#include "core/kernel_select.h"
#include "core/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Preparing ----------------------------------------------------------------------------- */

static void attach(const iso_executor *executor, uint32_t device, const iso_plan_operand *operand,
                   iso_tensor *tensor) {
  tensor->offset = operand->offset;
  switch (operand->storage) {
  case ISO_STORAGE_ARENA:
    tensor->buffer = executor->devices[device].arena;
    break;
  case ISO_STORAGE_INPUT:
    tensor->buffer = executor->devices[device].input;
    break;
  case ISO_STORAGE_WEIGHT:
    tensor->buffer = executor->weights[operand->index]->buffer;
    tensor->layout = executor->plan->weights[operand->index].layout;
    break;
  case ISO_STORAGE_STATE:
    tensor->buffer = executor->states[operand->index];
    break;
  case ISO_STORAGE_ABSENT:
    break;
  }
}

/* Notes the operand's symbolic dimension, which is the first if any. */
static void note_patch(iso_executor *executor, executor_step *step, iso_value value,
                       iso_tensor *tensor) {
  const iso_value_info *info = iso_graph_get_value(executor->plan->graph, value);
  if (!info || info->shape.dims[0].symbol == ISO_SYMBOL_NONE)
    return;
  step->depends_on_sizes = true;
  executor->patches[executor->n_patches++] =
      (executor_patch){&tensor->dims[0], info->shape.dims[0].symbol};
}

static void note_choice(iso_executor *executor, executor_step *step, uint32_t input) {
  const iso_graph *graph = executor->plan->graph;
  const iso_value_info *info = iso_graph_get_value(graph, step->plan->inputs[input].value);
  if (!info || info->otherwise == ISO_NO_VALUE)
    return;
  step->depends_on_sizes = true;
  executor->choices[executor->n_choices++] =
      (executor_choice){.tensor = &step->arguments.inputs[input],
                        .symbol = iso_graph_get_value(graph, info->storage)->shape.dims[0].symbol,
                        .offset = step->plan->inputs[input].offset,
                        .otherwise = step->plan->otherwise_offsets[input]};
}

static void prepare_launch(iso_executor *executor, executor_step *step) {
  const iso_plan_step *plan = step->plan;
  iso_op_arguments *arguments = &step->arguments;
  iso_plan_arguments(executor->plan->graph, plan->node, NULL, arguments);
  for (uint32_t i = 0; i < arguments->n_inputs; i++) {
    attach(executor, plan->device, &plan->inputs[i], &arguments->inputs[i]);
    note_patch(executor, step, plan->inputs[i].value, &arguments->inputs[i]);
    note_choice(executor, step, i);
  }
  for (uint32_t i = 0; i < arguments->n_outputs; i++) {
    attach(executor, plan->device, &plan->outputs[i], &arguments->outputs[i]);
    note_patch(executor, step, plan->outputs[i].value, &arguments->outputs[i]);
  }
  if (plan->workspace_bytes > 0) {
    arguments->workspace = executor->devices[plan->device].arena;
    arguments->workspace_offset = plan->workspace_offset;
    arguments->workspace_bytes = plan->workspace_bytes;
  }
}

static void prepare_copy(iso_executor *executor, executor_step *step) {
  const iso_plan_step *plan = step->plan;
  iso_dim rows = iso_graph_get_value(executor->plan->graph, plan->inputs[0].value)->shape.dims[0];
  step->copy_symbol = rows.symbol;
  step->copy_unit = plan->copy_bytes;
  if (rows.symbol != ISO_SYMBOL_NONE)
    step->copy_unit /= (uint64_t)rows.size;
}

iso_status iso_executor_prepare(iso_executor *executor) {
  const iso_plan *plan = executor->plan;
  size_t n_steps = (size_t)plan->n_steps + 1;
  executor->steps = calloc(n_steps, sizeof *executor->steps);
  executor->patches =
      calloc(n_steps * (ISO_MAX_INPUTS + ISO_MAX_OUTPUTS), sizeof *executor->patches);
  executor->choices = calloc(n_steps * ISO_MAX_INPUTS, sizeof *executor->choices);
  executor->active = calloc(n_steps, sizeof *executor->active);
  if (!executor->steps || !executor->patches || !executor->choices || !executor->active)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for %u steps", plan->n_steps);
  for (uint32_t s = 0; s < plan->n_steps; s++) {
    executor_step *step = &executor->steps[s];
    step->plan = &plan->steps[s];
    if (step->plan->kind == ISO_STEP_LAUNCH)
      prepare_launch(executor, step);
    else
      prepare_copy(executor, step);
  }
  return ISO_OK;
}

/* ---- Sizes --------------------------------------------------------------------------------- */

static iso_status check_sizes(const iso_executor *executor, const iso_bindings *bindings) {
  for (int s = ISO_SYMBOL_NONE + 1; s < ISO_SYMBOL_COUNT; s++) {
    int64_t bound = iso_graph_symbol_bound(executor->plan->graph, (iso_symbol)s);
    if (bound > 0 && (bindings->size[s] < 0 || bindings->size[s] > bound))
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s is %lld in this step; 0 to %lld can run",
                      iso_symbol_name((iso_symbol)s), (long long)bindings->size[s],
                      (long long)bound);
  }
  int64_t adapted = bindings->size[ISO_SYMBOL_ADAPTED_ROWS];
  if (iso_graph_symbol_bound(executor->plan->graph, ISO_SYMBOL_ADAPTED_ROWS) > 0 && adapted != 0 &&
      adapted != bindings->size[ISO_SYMBOL_TOKENS])
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "A is %lld in this step; 0 or T, %lld, can run",
                    (long long)adapted, (long long)bindings->size[ISO_SYMBOL_TOKENS]);
  return ISO_OK;
}

/* Whether an op would write nothing. One that only updates states writes what its activations
 * hold. */
static bool is_empty(const iso_op_arguments *arguments) {
  const iso_op_info *info = iso_op_get_info(arguments->op);
  bool has_own_output = false;
  for (uint32_t i = 0; i < arguments->n_outputs; i++)
    if (info->outputs[i].alias_of < 0) {
      has_own_output = true;
      if (arguments->outputs[i].dims[0] != 0)
        return false;
    }
  if (has_own_output)
    return true;
  for (uint32_t i = 0; i < arguments->n_inputs; i++)
    if (info->inputs[i].kind == ISO_OPERAND_ACTIVATION && arguments->inputs[i].dims[0] == 0)
      return true;
  return false;
}

/* The candidate of highest rank that takes the sizes in force. */
static iso_status choose_kernel(const iso_executor *executor, executor_step *step) {
  step->kernel = NULL;
  if (is_empty(&step->arguments))
    return ISO_OK;
  const iso_plan_step *plan = step->plan;
  const iso_open_device *device = executor->devices[plan->device].open;
  iso_refusal refusal = ISO_REFUSED_NO_KERNEL;
  const char *detail = NULL;
  for (uint32_t i = 0; i < plan->n_candidates; i++) {
    refusal = iso_kernel_check(device->device, plan->candidates[i], &step->arguments, &detail);
    if (refusal == ISO_ACCEPTED) {
      step->kernel = plan->candidates[i];
      return ISO_OK;
    }
  }
  char node[128], reason[256];
  iso_refusal_describe(device->spec, step->arguments.op,
                       plan->n_candidates ? plan->candidates[plan->n_candidates - 1] : NULL,
                       refusal, detail, reason, sizeof reason);
  return iso_fail(ISO_ERROR_UNSUPPORTED, "%s at these sizes: %s",
                  iso_graph_describe_node(executor->plan->graph, plan->node, node, sizeof node),
                  reason);
}

/* Bytes of the input block that this step's sizes reach. */
static uint64_t used_input_bytes(const iso_executor *executor) {
  const iso_graph *graph = executor->plan->graph;
  uint64_t used = 0;
  for (iso_value v = 0; v < iso_graph_value_count(graph); v++) {
    const iso_value_info *value = iso_graph_get_value(graph, v);
    uint64_t bytes;
    if (value->role != ISO_VALUE_INPUT ||
        iso_shape_bytes(&value->shape, value->scheme, &bytes) != ISO_OK)
      continue;
    iso_dim rows = value->shape.dims[0];
    bytes = bytes / (uint64_t)rows.size * (uint64_t)iso_dim_size(rows, &executor->sizes);
    uint64_t end = executor->plan->value_operand[v].offset + bytes;
    if (bytes > 0 && end > used)
      used = end;
  }
  return used;
}

static iso_status resize(iso_executor *executor, const iso_bindings *bindings) {
  if (executor->is_sized && memcmp(&executor->sizes, bindings, sizeof *bindings) == 0)
    return ISO_OK;
  ISO_TRY(check_sizes(executor, bindings));
  bool is_first = !executor->is_sized;
  executor->is_sized = false;
  executor->sizes = *bindings;
  for (uint32_t i = 0; i < executor->n_patches; i++)
    *executor->patches[i].dim = bindings->size[executor->patches[i].symbol];
  for (uint32_t i = 0; i < executor->n_choices; i++) {
    const executor_choice *choice = &executor->choices[i];
    choice->tensor->offset =
        bindings->size[choice->symbol] > 0 ? choice->offset : choice->otherwise;
  }
  for (uint32_t s = 0; s < executor->plan->n_steps; s++) {
    executor_step *step = &executor->steps[s];
    if (step->plan->kind == ISO_STEP_COPY)
      step->copy_bytes = step->copy_symbol == ISO_SYMBOL_NONE
                             ? step->copy_unit
                             : step->copy_unit * (uint64_t)bindings->size[step->copy_symbol];
    else if (is_first || step->depends_on_sizes)
      ISO_TRY(choose_kernel(executor, step));
  }
  executor->n_active = 0;
  for (uint32_t s = 0; s < executor->plan->n_steps; s++)
    if (executor->steps[s].kernel || executor->steps[s].copy_bytes > 0)
      executor->active[executor->n_active++] = &executor->steps[s];
  executor->used_input_bytes = used_input_bytes(executor);
  executor->is_sized = true;
  return ISO_OK;
}

/* ---- Running ------------------------------------------------------------------------------- */

/* To where copies to the devices begin; not recorded, as it is the host's own work. */
static void stage_inputs(iso_executor *executor) {
  uint64_t flight = executor->work.flight;
  for (uint32_t d = 0; d < executor->plan->n_devices; d++) {
    executor_device *device = &executor->devices[d];
    if (device->input && device->input_address[flight] != executor->input_block)
      memcpy(device->input_address[flight], executor->input_block, executor->used_input_bytes);
  }
}

static iso_status upload_inputs(iso_executor *executor) {
  uint64_t bytes = executor->used_input_bytes, flight = executor->work.flight;
  for (uint32_t d = 0; bytes > 0 && d < executor->plan->n_devices; d++) {
    executor_device *device = &executor->devices[d];
    if (!device->input)
      continue;
    if (device->input_staging[flight])
      ISO_TRY(
          iso_device_copy(device->open, device->input, 0, device->input_staging[flight], 0, bytes));
  }
  return ISO_OK;
}

/* What the step takes from the one before it. */
static iso_status feed_inputs(iso_executor *executor) {
  for (uint64_t i = 0; i < executor->work.n_feeds; i++) {
    const iso_executor_feed *feed = &executor->feeds[i];
    const iso_plan_operand *source = &executor->plan->value_operand[feed->source];
    const iso_plan_operand *target = &executor->plan->value_operand[feed->target];
    executor_device *device = &executor->devices[executor->plan->value_device[feed->source]];
    ISO_TRY(iso_device_copy(device->open, device->input, target->offset + feed->target_offset,
                            device->arena, source->offset + feed->source_offset, feed->bytes));
  }
  return ISO_OK;
}

/* Makes `device` wait for everything enqueued on `other`, of the same backend. */
static iso_status wait_for(iso_open_device *device, iso_open_device *other) {
  uint64_t value;
  ISO_TRY(iso_device_signal(other, &value));
  return ISO_BACKEND_CALL(device->spec, "queue.wait",
                          device->queue_table.wait(device->queue, other->queue, value));
}

/* Between devices of one backend that can: on the device, behind the source's work, and before the
 * source may write there again. */
static iso_status copy_directly(executor_device *source, executor_device *target,
                                const executor_step *step) {
  ISO_TRY(wait_for(target->open, source->open));
  ISO_TRY(iso_device_copy(target->open, target->arena, step->plan->outputs[0].offset, source->arena,
                          step->plan->inputs[0].offset, step->copy_bytes));
  return wait_for(source->open, target->open);
}

static iso_status copy_through_host(iso_executor *executor, executor_device *source,
                                    executor_device *target, const executor_step *step) {
  uint64_t from = step->plan->inputs[0].offset, to = step->plan->outputs[0].offset;
  uint64_t bytes = step->copy_bytes;
  ISO_TRY(iso_device_drain(source->open));
  if (source->arena_address)
    return iso_device_upload(target->open, target->arena, to, source->arena_address + from, bytes);
  if (!target->arena_address) {
    ISO_TRY(iso_device_download(source->open, source->arena, from, executor->bounce, bytes));
    return iso_device_upload(target->open, target->arena, to, executor->bounce, bytes);
  }
  ISO_TRY(iso_device_drain(target->open));
  return iso_device_download(source->open, source->arena, from, target->arena_address + to, bytes);
}

static iso_status copy(iso_executor *executor, const executor_step *step) {
  executor_device *source = &executor->devices[step->plan->source_device];
  executor_device *target = &executor->devices[step->plan->device];
  if (step->copy_bytes == 0)
    return ISO_OK;
  return source->open->backend == target->open->backend &&
                 (target->open->info.features & ISO_FEATURE_PEER_COPY)
             ? copy_directly(source, target, step)
             : copy_through_host(executor, source, target, step);
}

static iso_status explain(const iso_executor *executor, const executor_step *step,
                          iso_status status) {
  char node[128];
  const char *spec = executor->devices[step->plan->device].open->spec;
  if (step->plan->kind == ISO_STEP_COPY)
    return iso_fail_context(status, "copying to %s", spec);
  return iso_fail_context(
      status, "%s on %s by %s",
      iso_graph_describe_node(executor->plan->graph, step->plan->node, node, sizeof node), spec,
      step->kernel->name);
}

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static inline iso_status run_step(iso_executor *executor, const executor_step *step) {
  iso_status status = ISO_OK;
  if (step->plan->kind == ISO_STEP_COPY)
    status = copy(executor, step);
  else if (step->kernel)
    status = iso_device_launch(executor->devices[step->plan->device].open, step->kernel,
                               &step->arguments);
  return status == ISO_OK ? ISO_OK : explain(executor, step, status);
}

static iso_status run_observed(iso_executor *executor, const executor_step *step) {
  double start = now_us();
  ISO_TRY(run_step(executor, step));
  iso_status status = iso_device_drain(executor->devices[step->plan->device].open);
  if (status != ISO_OK)
    return step->kernel ? explain(executor, step, status) : status;
  double elapsed = now_us() - start;
  if (step->kernel)
    executor->stats.kernel_us += elapsed;
  executor->observer(executor->observer_context, step->plan, step->kernel, elapsed);
  return ISO_OK;
}

static iso_status copy_outputs(iso_executor *executor) {
  for (uint32_t i = 0; i < executor->n_copied; i++) {
    const executor_copied_output *output = &executor->copied[i];
    executor_device *device = &executor->devices[output->device];
    ISO_TRY(iso_device_copy(device->open, output->staging[executor->work.flight], 0, device->arena,
                            output->offset, output->bytes));
  }
  return ISO_OK;
}

static iso_status run_steps(iso_executor *executor) {
  ISO_TRY(upload_inputs(executor));
  ISO_TRY(feed_inputs(executor));
  for (uint32_t s = 0; s < executor->n_active; s++)
    ISO_TRY(executor->observer ? run_observed(executor, executor->active[s])
                               : run_step(executor, executor->active[s]));
  return copy_outputs(executor);
}

/* ---- Steps under way ----------------------------------------------------------------------- */

bool iso_executor_overlaps(const iso_executor *executor) { return executor->overlapping != NULL; }

static iso_status check_feeds(const iso_executor *executor, const iso_executor_feed *feeds,
                              uint32_t n_feeds) {
  const iso_plan *plan = executor->plan;
  for (uint32_t i = 0; i < n_feeds; i++) {
    const iso_executor_feed *feed = &feeds[i];
    const iso_value_info *source = iso_graph_get_value(plan->graph, feed->source);
    const iso_value_info *target = iso_graph_get_value(plan->graph, feed->target);
    uint64_t has, takes;
    if (!executor->overlapping || !source || !target || !source->is_output ||
        plan->value_operand[feed->source].storage != ISO_STORAGE_ARENA ||
        plan->value_operand[feed->target].storage != ISO_STORAGE_INPUT)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "a step takes from the one before only what is an output, for an input, "
                      "where steps overlap");
    ISO_TRY(iso_shape_bytes(&source->shape, source->scheme, &has));
    ISO_TRY(iso_shape_bytes(&target->shape, target->scheme, &takes));
    if (feed->bytes > has || feed->source_offset > has - feed->bytes || feed->bytes > takes ||
        feed->target_offset > takes - feed->bytes)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%llu bytes from %s for %s leave them",
                      (unsigned long long)feed->bytes, source->name, target->name);
  }
  return ISO_OK;
}

/* A failure leaves nothing under way. */
static iso_status end_flights(iso_executor *executor, iso_status status) {
  executor->flights = (executor_flights){0};
  return iso_executor_drain(executor, status);
}

iso_status iso_executor_submit(iso_executor *executor, const iso_bindings *bindings,
                               const iso_executor_feed *feeds, uint32_t n_feeds) {
  executor_flights *flights = &executor->flights;
  if (flights->count == (executor->overlapping ? EXECUTOR_FLIGHTS : 1))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%u steps are under way already", flights->count);
  ISO_TRY(check_feeds(executor, feeds, n_feeds));
  if (flights->count == 0)
    flights->first = 0;
  uint32_t flight = (flights->first + flights->count) % EXECUTOR_FLIGHTS;
  flights->start_us[flight] = now_us();
  iso_status status = resize(executor, bindings);
  if (status != ISO_OK)
    return end_flights(executor, status);
  executor->work = (executor_work){.sizes = *bindings, .flight = flight, .n_feeds = n_feeds};
  for (uint32_t i = 0; i < n_feeds && i < EXECUTOR_RECORDED_FEEDS; i++)
    executor->work.feeds[i] = feeds[i];
  executor->feeds = feeds;
  stage_inputs(executor);
  status = iso_executor_run_recorded(executor, run_steps);
  iso_open_device *device = executor->overlapping;
  if (status == ISO_OK && device)
    status = iso_device_signal(device, &flights->values[flight]);
  if (status != ISO_OK)
    return end_flights(executor, status);
  flights->count++;
  return ISO_OK;
}

bool iso_executor_is_done(iso_executor *executor) {
  const executor_flights *flights = &executor->flights;
  iso_open_device *device = executor->overlapping;
  return flights->count == 0 || !device ||
         iso_device_wait(device, flights->values[flights->first], 0) != ISO_ERROR_LIMIT;
}

iso_status iso_executor_wait(iso_executor *executor) {
  executor_flights *flights = &executor->flights;
  if (flights->count == 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "no step is under way");
  uint32_t flight = flights->first;
  iso_open_device *device = executor->overlapping;
  iso_status status = device ? iso_device_wait(device, flights->values[flight], UINT64_MAX)
                             : iso_executor_drain(executor, ISO_OK);
  if (status != ISO_OK)
    return end_flights(executor, status);
  double start = flights->start_us[flight], before = flights->end_us;
  flights->end_us = now_us();
  flights->first = (flight + 1) % EXECUTOR_FLIGHTS;
  flights->count--;
  executor->shown = flight;
  executor->stats.runs++;
  executor->stats.total_us += flights->end_us - (start > before ? start : before);
  return ISO_OK;
}

iso_status iso_executor_run(iso_executor *executor, const iso_bindings *bindings) {
  if (executor->flights.count > 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a step is under way");
  ISO_TRY(iso_executor_submit(executor, bindings, NULL, 0));
  return iso_executor_wait(executor);
}

/* ---- Rows for the host --------------------------------------------------------------------- */

static iso_status reserve_kept(executor_kept *kept, iso_open_device *device, uint64_t bytes) {
  if (bytes <= kept->capacity)
    return ISO_OK;
  if (kept->staging)
    device->memory.free(device->device, kept->staging);
  kept->staging = NULL;
  kept->capacity = 0;
  ISO_TRY(
      iso_executor_alloc(device, ISO_MEMORY_STAGING, bytes, "rows for the host", &kept->staging));
  ISO_TRY(iso_device_address(device, kept->staging, &kept->address));
  kept->capacity = bytes;
  return ISO_OK;
}

/* Enqueues the copies; rows that follow each other are one. */
static iso_status copy_kept(iso_executor *executor, iso_value value, const int32_t *rows,
                            uint32_t n_rows, executor_kept *kept) {
  const iso_value_info *info = iso_graph_get_value(executor->plan->graph, value);
  executor_device *device = &executor->devices[kept->device];
  uint64_t row_bytes;
  ISO_TRY(iso_scheme_row_bytes(info->scheme, info->shape.dims[info->shape.n_dims - 1].size,
                               &row_bytes));
  ISO_TRY(reserve_kept(kept, device->open, row_bytes * n_rows));
  for (uint32_t i = 0, n; i < n_rows; i += n) {
    for (n = 1; i + n < n_rows && rows[i + n] == rows[i] + (int32_t)n;)
      n++;
    uint64_t from = executor->plan->value_operand[value].offset + (uint64_t)rows[i] * row_bytes;
    ISO_TRY(iso_device_copy(device->open, kept->staging, i * row_bytes, device->arena, from,
                            n * row_bytes));
  }
  return ISO_OK;
}

iso_status iso_executor_keep_rows(iso_executor *executor, iso_value value, const int32_t *rows,
                                  uint32_t n_rows) {
  executor_flights *flights = &executor->flights;
  const iso_value_info *info = iso_graph_get_value(executor->plan->graph, value);
  if (flights->count == 0 || !info || info->storage != value || info->shape.n_dims != 2 ||
      executor->plan->value_operand[value].storage != ISO_STORAGE_ARENA)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "rows come to the host of outputs, from a step under way");
  for (uint32_t i = 0; i < n_rows; i++)
    if (rows[i] < 0 || rows[i] >= info->shape.dims[0].size)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s has no row %d", info->name, rows[i]);
  uint32_t flight = (flights->first + flights->count - 1) % EXECUTOR_FLIGHTS;
  executor_kept *kept = &executor->kept[flight];
  kept->device = (uint32_t)executor->plan->value_device[value];
  iso_status status = copy_kept(executor, value, rows, n_rows, kept);
  iso_open_device *device = executor->overlapping;
  if (status == ISO_OK && device)
    status = iso_device_signal(device, &flights->values[flight]);
  return status == ISO_OK ? ISO_OK : end_flights(executor, status);
}

const void *iso_executor_kept_rows(const iso_executor *executor) {
  return executor->kept[executor->shown].address;
}
