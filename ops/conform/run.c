/* Runs cases on a device, each operand in a buffer of its own between guards. */
#include "core/backend_call.h"
#include "core/device.h"
#include "core/kernel_select.h"
#include "core/log.h"
#include "ops/conform/case.h"
#include <isomer/plan.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GUARD_BYTES = 256, GUARD = 0xA5 };

/* An operand, a packed weight or scratch on the device: guard, content, guard. */
typedef struct placed {
  iso_buffer *buffer;
  uint64_t offset, bytes, total;
  uint8_t *image; /* what was uploaded, guards included */
} placed;

typedef struct run {
  iso_open_device *device;
  const iso_case *test;
  const iso_kernel *kernel;
  const iso_expectation *expectation;
  iso_op_arguments arguments;
  placed inputs[ISO_MAX_INPUTS], outputs[ISO_MAX_OUTPUTS], workspace;
} run;

/* ---- Placing
 * ------------------------------------------------------------------------------------- */

static uint64_t guard_bytes(const iso_open_device *device) {
  return device->info.alignment_bytes > GUARD_BYTES ? device->info.alignment_bytes : GUARD_BYTES;
}

/* `content` NULL leaves 0xFF, NaN in every float type. */
static iso_status place(iso_open_device *device, const uint8_t *content, uint64_t bytes,
                        placed *out) {
  uint64_t guard = guard_bytes(device);
  if (__builtin_add_overflow(bytes, 2 * guard, &out->total))
    return iso_fail(ISO_ERROR_LIMIT, "an operand of %" PRIu64 " bytes", bytes);
  out->offset = guard;
  out->bytes = bytes;
  out->image = malloc((size_t)out->total);
  if (!out->image)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for %" PRIu64 " bytes", out->total);
  memset(out->image, GUARD, (size_t)out->total);
  if (content)
    memcpy(out->image + guard, content, (size_t)bytes);
  else
    memset(out->image + guard, 0xFF, (size_t)bytes);
  ISO_TRY(iso_device_alloc(device, ISO_MEMORY_DEVICE, out->total, &out->buffer));
  return iso_device_upload(device, out->buffer, 0, out->image, out->total);
}

static void unplace(iso_open_device *device, placed *place) {
  if (place->buffer)
    device->memory.free(device->device, place->buffer);
  free(place->image);
  *place = (placed){0};
}

static void point(iso_tensor *tensor, const placed *place) {
  tensor->buffer = place->buffer;
  tensor->offset = place->offset;
}

/* Packs a weight, from an odd address, and keeps what the device made of it as its image. */
static iso_status place_packed(run *r, uint32_t input) {
  const iso_kernel *kernel = r->kernel;
  const iso_tensor *tensor = &r->test->arguments.inputs[input];
  uint64_t dense_bytes = r->expectation->data.input_bytes[input], packed_bytes;
  uint8_t *copy = malloc((size_t)dense_bytes + 1);
  if (!copy)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a weight");
  memcpy(copy + 1, r->expectation->data.inputs[input], (size_t)dense_bytes);
  iso_host_weight weight = {.size = sizeof weight,
                            .scheme = tensor->scheme,
                            .n_dims = tensor->n_dims,
                            .data = copy + 1,
                            .bytes = dense_bytes};
  memcpy(weight.dims, tensor->dims, sizeof weight.dims);
  placed *target = &r->inputs[input];
  iso_status status =
      kernel->pack ? iso_device_packed_bytes(r->device, kernel, &weight, &packed_bytes)
                   : iso_fail(ISO_ERROR_UNSUPPORTED, "%s has a layout but no pack", kernel->name);
  if (status == ISO_OK)
    status = place(r->device, NULL, packed_bytes, target);
  if (status == ISO_OK)
    status = iso_device_pack(r->device, kernel, &weight, target->buffer, target->offset);
  free(copy);
  ISO_TRY(status);
  ISO_TRY(iso_device_drain(r->device));
  uint64_t end = target->offset + target->bytes;
  uint8_t guard[GUARD_BYTES];
  ISO_TRY(iso_device_download(r->device, target->buffer, end, guard, sizeof guard));
  for (int i = 0; i < GUARD_BYTES; i++)
    if (guard[i] != GUARD)
      return iso_fail(ISO_ERROR_DEVICE, "packing wrote past the %" PRIu64 " bytes it asked for",
                      packed_bytes);
  return iso_device_download(r->device, target->buffer, target->offset,
                             target->image + target->offset, target->bytes);
}

static iso_status place_all(run *r) {
  const iso_op_info *info = iso_op_get_info(r->test->arguments.op);
  const iso_case_data *data = &r->expectation->data;
  for (uint32_t i = 0; i < r->arguments.n_inputs; i++) {
    iso_tensor *tensor = &r->arguments.inputs[i];
    if (tensor->n_dims == 0)
      continue;
    if (tensor->layout != ISO_LAYOUT_PLAIN)
      ISO_TRY(place_packed(r, i));
    else
      ISO_TRY(place(r->device, data->inputs[i], data->input_bytes[i], &r->inputs[i]));
    point(tensor, &r->inputs[i]);
  }
  for (uint32_t i = 0; i < r->arguments.n_outputs; i++) {
    int32_t alias = info->outputs[i].alias_of;
    if (alias < 0)
      ISO_TRY(place(r->device, NULL, data->output_bytes[i], &r->outputs[i]));
    point(&r->arguments.outputs[i], alias < 0 ? &r->outputs[i] : &r->inputs[alias]);
  }
  uint64_t workspace =
      r->kernel->workspace ? r->kernel->workspace(r->device->device, &r->arguments) : 0;
  ISO_TRY(place(r->device, NULL, workspace, &r->workspace));
  r->arguments.workspace = r->workspace.buffer;
  r->arguments.workspace_offset = r->workspace.offset;
  r->arguments.workspace_bytes = workspace;
  return ISO_OK;
}

/* ---- Checking
 * ------------------------------------------------------------------------------------ */

static bool untouched(const uint8_t *bytes, const uint8_t *image, uint64_t begin, uint64_t end) {
  return end <= begin || memcmp(bytes + begin, image + begin, (size_t)(end - begin)) == 0;
}

/* Downloads a place; its guards must be whole. Caller frees *out_bytes, `total` long. */
static iso_status fetch(const run *r, const placed *place, const char *name, uint8_t **out_bytes) {
  uint8_t *bytes = malloc((size_t)place->total);
  if (!bytes)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory to check %s", name);
  iso_status status = iso_device_download(r->device, place->buffer, 0, bytes, place->total);
  if (status == ISO_OK && !untouched(bytes, place->image, 0, place->offset))
    status = iso_fail(ISO_ERROR_DEVICE, "wrote before the start of %s", name);
  if (status == ISO_OK &&
      !untouched(bytes, place->image, place->offset + place->bytes, place->total))
    status = iso_fail(ISO_ERROR_DEVICE, "wrote past the end of %s", name);
  if (status == ISO_OK)
    *out_bytes = bytes;
  else
    free(bytes);
  return status;
}

static iso_status check_gaps(const iso_tensor *tensor, const placed *place, const uint8_t *bytes,
                             const char *name) {
  uint64_t row_bytes = 0, done = place->offset;
  ISO_TRY(iso_scheme_row_bytes(tensor->scheme, iso_case_columns(tensor), &row_bytes));
  for (int64_t row = 0; row < iso_case_rows(tensor); row++) {
    uint64_t start = place->offset + iso_case_row_offset(tensor, row);
    if (!untouched(bytes, place->image, done, start))
      return iso_fail(ISO_ERROR_DEVICE, "wrote between the rows of %s", name);
    done = start + row_bytes;
  }
  return ISO_OK;
}

static iso_status check_output(const run *r, uint32_t output) {
  const iso_operand_info *operand = &iso_op_get_info(r->test->arguments.op)->outputs[output];
  const placed *place = operand->alias_of < 0 ? &r->outputs[output] : &r->inputs[operand->alias_of];
  uint8_t *bytes;
  char detail[ISO_CASE_DETAIL];
  ISO_TRY(fetch(r, place, operand->name, &bytes));
  iso_status status = check_gaps(&r->test->arguments.outputs[output], place, bytes, operand->name);
  if (status == ISO_OK &&
      !iso_case_compare(r->test, r->expectation, output, bytes + place->offset, detail))
    status = iso_fail(ISO_ERROR_DEVICE, "%s", detail);
  free(bytes);
  return status;
}

static bool is_written(const iso_op_info *info, uint32_t input) {
  for (uint32_t i = 0; i < info->n_outputs; i++)
    if (info->outputs[i].alias_of == (int32_t)input)
      return true;
  return false;
}

static iso_status check_all(const run *r) {
  const iso_op_info *info = iso_op_get_info(r->test->arguments.op);
  uint8_t *bytes;
  for (uint32_t i = 0; i < info->n_outputs; i++)
    ISO_TRY(check_output(r, i));
  for (uint32_t i = 0; i < info->n_inputs; i++) {
    if (!r->inputs[i].buffer || is_written(info, i))
      continue;
    ISO_TRY(fetch(r, &r->inputs[i], info->inputs[i].name, &bytes));
    bool same = memcmp(bytes, r->inputs[i].image, (size_t)r->inputs[i].total) == 0;
    free(bytes);
    if (!same)
      return iso_fail(ISO_ERROR_DEVICE, "wrote into the input %s", info->inputs[i].name);
  }
  ISO_TRY(fetch(r, &r->workspace, "the workspace", &bytes));
  free(bytes);
  return ISO_OK;
}

/* ---- Running
 * --------------------------------------------------------------------------------------- */

/* Waits for ever, as a slow device is not a wrong one, but says for what. */
static iso_status wait_for_end(const run *r) {
  enum { PATIENCE_S = 15 };
  uint64_t value;
  ISO_TRY(iso_device_signal(r->device, &value));
  iso_status status = iso_device_wait(r->device, value, PATIENCE_S * UINT64_C(1000000));
  if (status != ISO_ERROR_LIMIT)
    return status;
  iso_log(ISO_LOG_WARNING, "%s has been at work for %d s: %s", r->kernel->name, PATIENCE_S,
          r->test->text);
  return iso_device_wait(r->device, value, UINT64_MAX);
}

static iso_status launch(const run *r) {
  ISO_TRY(iso_device_launch(r->device, r->kernel, &r->arguments));
  return wait_for_end(r);
}

/* Puts back what the op wrote over, and runs it again from a recording. */
static iso_status replay(const run *r) {
  const placed *written[ISO_MAX_INPUTS + ISO_MAX_OUTPUTS];
  uint32_t n_written = 0;
  for (uint32_t i = 0; i < ISO_MAX_INPUTS; i++)
    if (r->inputs[i].buffer && is_written(iso_op_get_info(r->test->arguments.op), i))
      written[n_written++] = &r->inputs[i];
  for (uint32_t i = 0; i < ISO_MAX_OUTPUTS; i++)
    if (r->outputs[i].buffer)
      written[n_written++] = &r->outputs[i];
  for (uint32_t i = 0; i < n_written; i++)
    ISO_TRY(
        iso_device_upload(r->device, written[i]->buffer, 0, written[i]->image, written[i]->total));
  void *recording = NULL;
  ISO_TRY(iso_device_record_begin(r->device));
  iso_status launched = iso_device_launch(r->device, r->kernel, &r->arguments);
  iso_status ended = iso_device_record_end(r->device, &recording);
  iso_status status = launched != ISO_OK ? launched : ended;
  if (status == ISO_OK)
    status = iso_device_replay(r->device, recording);
  if (status == ISO_OK)
    status = iso_device_drain(r->device);
  if (ended == ISO_OK)
    r->device->queue_table.recording_destroy(r->device->queue, recording);
  return status;
}

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* Launches enqueued back to back, waited for once. */
static iso_status timed_launches(const run *r, int n, double *out_us) {
  double start = now_us();
  for (int i = 0; i < n; i++)
    ISO_TRY(iso_device_launch(r->device, r->kernel, &r->arguments));
  ISO_TRY(iso_device_drain(r->device));
  *out_us = (now_us() - start) / n;
  return ISO_OK;
}

/* The best of five rounds of about 50 ms. */
static iso_status time_case(const run *r, iso_conform_report *report) {
  const double ROUND_US = 50e3;
  double us, best = INFINITY, bytes, operations;
  ISO_TRY(timed_launches(r, 1, &us));
  ISO_TRY(timed_launches(r, 1, &us));
  int n = us > ROUND_US ? 1 : (int)(ROUND_US / (us + 0.1)) + 1;
  for (int round = 0; round < 5; round++) {
    ISO_TRY(timed_launches(r, n, &us));
    best = fmin(best, us);
  }
  iso_case_work(r->test, &r->expectation->data, &bytes, &operations);
  report->microseconds = best;
  report->gigabytes_per_s = bytes / best * 1e-3;
  report->gigaflops = operations / best * 1e-3;
  return ISO_OK;
}

static iso_status run_placed(run *r, bool perf, iso_conform_report *report) {
  ISO_TRY(place_all(r));
  if (report->is_compared) {
    ISO_TRY(launch(r));
    ISO_TRY(check_all(r));
  }
  if (perf)
    return time_case(r, report);
  if (!r->device->can_record)
    return ISO_OK;
  ISO_TRY(iso_fail_context(replay(r), "as a recording"));
  return iso_fail_context(check_all(r), "as a recording");
}

/* Arguments as a record sees them: its layout on the weight, no buffers. */
static iso_op_arguments arguments_for(const iso_case *test, const iso_kernel *kernel) {
  iso_op_arguments arguments = test->arguments;
  arguments.attributes = &test->attributes;
  int32_t weight = iso_op_weight_operand(arguments.op);
  if (weight >= 0 && kernel)
    arguments.inputs[weight].layout = kernel->layout;
  return arguments;
}

static void run_record(iso_open_device *device, const iso_case *test, const iso_kernel *kernel,
                       const iso_expectation *expectation, bool perf, iso_conform_report *report) {
  run r = {.device = device,
           .test = test,
           .kernel = kernel,
           .expectation = expectation,
           .arguments = arguments_for(test, kernel)};
  report->kernel = kernel->name;
  iso_status status = run_placed(&r, perf, report);
  report->result = ISO_CONFORM_PASS;
  if (status != ISO_OK) {
    report->result = status == ISO_ERROR_OUT_OF_MEMORY ? ISO_CONFORM_UNSUPPORTED : ISO_CONFORM_FAIL;
    snprintf(report->detail, sizeof report->detail, "%s", iso_status_message());
    iso_device_revive(device); /* a fault of this case is not one of the next */
  }
  for (uint32_t i = 0; i < ISO_MAX_INPUTS; i++)
    unplace(device, &r.inputs[i]);
  for (uint32_t i = 0; i < ISO_MAX_OUTPUTS; i++)
    unplace(device, &r.outputs[i]);
  unplace(device, &r.workspace);
}

/* ---- The grid
 * ---------------------------------------------------------------------------------------- */

typedef struct walk {
  iso_open_device *device;
  const iso_conform_options *options;
  iso_conform_sink sink;
  void *context;
  iso_conform_summary *summary;
  bool stopped;
  uint32_t n_selected; /* cases, before parts are taken */
} walk;

static void deliver(walk *w, const iso_conform_report *report) {
  w->summary->n_passed += report->result == ISO_CONFORM_PASS;
  w->summary->n_unsupported += report->result == ISO_CONFORM_UNSUPPORTED;
  w->summary->n_failed += report->result == ISO_CONFORM_FAIL;
  if (w->sink && !w->sink(w->context, report))
    w->stopped = true;
}

static iso_plan_device facts_of(const iso_open_device *device) {
  return (iso_plan_device){.name = device->spec,
                           .kernels = device->kernels,
                           .kernel_count = device->kernel_count,
                           .device = device->device,
                           .alignment_bytes = device->info.alignment_bytes};
}

/* Of timed cases those get an expectation that do not keep the user waiting for it: operations, of
 * which the reference does some 10^9 a second, several times over for its bounds. */
static iso_status expect(const walk *w, const iso_case *test, iso_expectation *out,
                         bool *out_is_compared) {
  const double MOST_OPERATIONS = 2e8;
  double bytes, operations;
  if (!w->options->perf) {
    *out_is_compared = true;
    return iso_expectation_create(test, w->options->seed, out);
  }
  ISO_TRY(iso_case_fill(test, w->options->seed, &out->data));
  iso_case_work(test, &out->data, &bytes, &operations);
  *out_is_compared = operations <= MOST_OPERATIONS;
  return *out_is_compared ? iso_expectation_complete(test, out) : ISO_OK;
}

/* Runs a case on the records that take it: on all, or on the preferred one for timing. */
static iso_status run_case(walk *w, const iso_case *test) {
  iso_open_device *device = w->device;
  iso_plan_device facts = facts_of(device);
  iso_op_arguments arguments = arguments_for(test, NULL);
  iso_refusal refusal;
  iso_conform_report empty = {.text = test->text, .op = test->arguments.op, .kernel = ""};
  iso_conform_report report = empty;
  const iso_kernel *preferred = iso_kernel_select(&facts, &arguments, ISO_LAYOUT_ANY, &refusal,
                                                  report.detail, sizeof report.detail);
  if (!preferred) {
    report.result = ISO_CONFORM_UNSUPPORTED;
    deliver(w, &report);
    return ISO_OK;
  }
  iso_expectation expectation = {0};
  iso_status status = expect(w, test, &expectation, &empty.is_compared);
  for (uint32_t i = 0; status == ISO_OK && i < device->kernel_count && !w->stopped; i++) {
    const iso_kernel *kernel = &device->kernels[i];
    const char *detail;
    arguments = arguments_for(test, kernel);
    if (kernel->op != test->arguments.op || (w->options->perf && kernel != preferred) ||
        iso_kernel_check(device->device, kernel, &arguments, &detail) != ISO_ACCEPTED)
      continue;
    report = empty;
    run_record(device, test, kernel, &expectation, w->options->perf, &report);
    deliver(w, &report);
  }
  iso_expectation_free(&expectation);
  return status;
}

static iso_status visit(void *context, const char *text) {
  walk *w = context;
  const iso_conform_options *options = w->options;
  size_t op_length = options->op ? strlen(options->op) : 0;
  if (w->stopped || (options->filter && !strstr(text, options->filter)) ||
      (options->op && (strncmp(text, options->op, op_length) != 0 || text[op_length] != ' ')))
    return ISO_OK;
  if (options->n_parts > 0 && w->n_selected++ % options->n_parts != options->part)
    return ISO_OK;
  iso_case test;
  ISO_TRY(iso_case_parse(text, &test));
  return run_case(w, &test);
}

iso_status iso_conform_run(iso_open_device *device, const iso_conform_options *options,
                           iso_conform_sink sink, void *context, iso_conform_summary *out_summary) {
  *out_summary = (iso_conform_summary){0};
  walk w = {device, options, sink, context, out_summary, false, 0};
  iso_op op;
  if (options->op && !iso_op_from_name(options->op, &op))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "there is no op \"%s\"", options->op);
  return options->text ? visit(&w, options->text) : iso_case_each(options->perf, visit, &w);
}
