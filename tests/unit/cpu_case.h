/* One op with random operands, run by every CPU record that accepts it and compared with the
 * reference. Outputs are poisoned first; gaps between rows and bytes past the end are checked to
 * stay untouched. */
#ifndef ISOMER_TESTS_UNIT_CPU_CASE_H
#define ISOMER_TESTS_UNIT_CPU_CASE_H

#include "cpu_device.h"

#include <isomer/reference.h>
#include <math.h>
#include <stdio.h>

#define POISON 0xff /* NaN in every float scheme */
#define GUARD_BYTES 64

typedef struct cpu_case {
  iso_op_arguments arguments;
  uint8_t *inputs[ISO_MAX_INPUTS], *outputs[ISO_MAX_OUTPUTS]; /* on the host, for the reference */
  uint64_t input_bytes[ISO_MAX_INPUTS], output_bytes[ISO_MAX_OUTPUTS]; /* without the guard */
  double tolerance; /* times the storage's own rounding; 0: equal bit for bit */
  double absolute;  /* more, of any size */
  uint32_t n_run;   /* records that accepted */
} cpu_case;

static uint64_t cpu_random_state = 1;
static inline uint32_t cpu_random(void) {
  cpu_random_state = cpu_random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(cpu_random_state >> 33);
}
static inline float cpu_random_float(float low, float high) {
  return low + (high - low) * (float)(cpu_random() & 0xffffff) / 16777216.0f;
}

static inline void cpu_case_begin(cpu_case *out_case, iso_op op, const void *attributes,
                                  double tolerance) {
  *out_case = (cpu_case){.tolerance = tolerance};
  out_case->arguments.size = sizeof out_case->arguments;
  out_case->arguments.op = op;
  out_case->arguments.attributes = attributes;
}

/* Dense strides, with `gap` elements after each row of the last dimension. Returns the bytes. */
static inline uint64_t cpu_layout(iso_tensor *tensor, int64_t gap) {
  const iso_scheme_info *info = iso_scheme_get_info(tensor->scheme);
  uint32_t last = tensor->n_dims - 1;
  int64_t bytes = (tensor->dims[last] / info->block_elements + gap) * info->block_bytes;
  tensor->strides[last] = info->block_bytes;
  for (uint32_t d = last; d-- > 0;) {
    tensor->strides[d] = bytes;
    bytes *= tensor->dims[d];
  }
  return (uint64_t)bytes;
}

static inline iso_tensor cpu_tensor(iso_scheme scheme, uint32_t n_dims, const int64_t *dims) {
  iso_tensor tensor = {.scheme = scheme, .n_dims = n_dims};
  memcpy(tensor.dims, dims, n_dims * sizeof *dims);
  return tensor;
}

/* Adds an input whose rows hold random floats in [low, high), or bytes that decode to something
 * near that for block schemes. Returns its index. */
static inline uint32_t cpu_case_floats(cpu_case *job, iso_scheme scheme, uint32_t n_dims,
                                       const int64_t *dims, int64_t gap, float low, float high) {
  uint32_t index = job->arguments.n_inputs++;
  iso_tensor *tensor = &job->arguments.inputs[index];
  *tensor = cpu_tensor(scheme, n_dims, dims);
  uint64_t bytes = job->input_bytes[index] = cpu_layout(tensor, gap);
  uint8_t *data = job->inputs[index] = malloc(bytes + GUARD_BYTES);
  memset(data, POISON, bytes + GUARD_BYTES);
  int64_t n_columns = dims[n_dims - 1], n_rows = iso_cpu_row_count(tensor);
  float *row = malloc((size_t)n_columns * sizeof *row);
  struct iso_buffer buffer = {.data = data};
  iso_tensor placed = *tensor;
  placed.buffer = &buffer;
  for (int64_t r = 0; r < n_rows; r++) {
    for (int64_t i = 0; i < n_columns; i++)
      row[i] = cpu_random_float(low, high);
    iso_scheme_encode_row(scheme, row, NULL, iso_cpu_row(&placed, r), n_columns);
  }
  free(row);
  return index;
}

static inline int32_t *cpu_case_indices(cpu_case *job, uint32_t n_dims, const int64_t *dims) {
  uint32_t index = job->arguments.n_inputs++;
  job->arguments.inputs[index] = cpu_tensor(ISO_SCHEME_I32, n_dims, dims);
  job->input_bytes[index] = cpu_layout(&job->arguments.inputs[index], 0);
  job->inputs[index] = calloc(1, job->input_bytes[index] + GUARD_BYTES);
  return (int32_t *)(void *)job->inputs[index];
}

static inline void cpu_case_absent(cpu_case *job) { job->arguments.n_inputs++; }

static inline void cpu_case_output(cpu_case *job, iso_scheme scheme, uint32_t n_dims,
                                   const int64_t *dims, int64_t gap) {
  uint32_t index = job->arguments.n_outputs++;
  job->arguments.outputs[index] = cpu_tensor(scheme, n_dims, dims);
  job->output_bytes[index] = cpu_layout(&job->arguments.outputs[index], gap);
  job->outputs[index] = malloc(job->output_bytes[index] + GUARD_BYTES);
}

/* An output that is input `input` updated in place. */
static inline void cpu_case_alias(cpu_case *job, uint32_t input) {
  uint32_t index = job->arguments.n_outputs++;
  job->arguments.outputs[index] = job->arguments.inputs[input];
  job->output_bytes[index] = job->input_bytes[input];
  job->outputs[index] = job->inputs[input];
}

static inline void cpu_case_end(cpu_case *job) {
  const iso_op_info *info = iso_op_get_info(job->arguments.op);
  for (uint32_t i = 0; i < job->arguments.n_outputs; i++)
    if (info->outputs[i].alias_of < 0)
      free(job->outputs[i]);
  for (uint32_t i = 0; i < job->arguments.n_inputs; i++)
    free(job->inputs[i]);
}

/* ---- Comparison ----------------------------------------------------------------------------- */

/* Half a unit in the last place of the scheme, relative, and the smallest it can hold. */
static inline void cpu_scheme_rounding(iso_scheme scheme, double *out_relative, double *out_least) {
  *out_relative = scheme == ISO_SCHEME_F16 ? 0x1p-11 : scheme == ISO_SCHEME_BF16 ? 0x1p-8 : 0;
  *out_least = scheme == ISO_SCHEME_F16 ? 0x1p-24 : 0;
}

static inline void cpu_compare(const cpu_case *job, const char *kernel, uint32_t output,
                               const uint8_t *got, const uint8_t *wanted) {
  const iso_tensor *tensor = &job->arguments.outputs[output];
  struct iso_buffer got_buffer = {.data = (uint8_t *)(uintptr_t)got};
  struct iso_buffer wanted_buffer = {.data = (uint8_t *)(uintptr_t)wanted};
  iso_tensor got_tensor = *tensor, wanted_tensor = *tensor;
  got_tensor.buffer = &got_buffer;
  wanted_tensor.buffer = &wanted_buffer;
  got_tensor.offset = wanted_tensor.offset = 0;
  if (job->tolerance == 0) {
    if (memcmp(got, wanted, job->output_bytes[output] + GUARD_BYTES) != 0)
      fail_msg("%s: output %u differs", kernel, output);
    return;
  }
  int64_t n_columns = tensor->dims[tensor->n_dims - 1], n_rows = iso_cpu_row_count(tensor);
  float *a = malloc((size_t)n_columns * sizeof *a), *b = malloc((size_t)n_columns * sizeof *b);
  double relative, least;
  cpu_scheme_rounding(tensor->scheme, &relative, &least);
  for (int64_t r = 0; r < n_rows; r++) {
    iso_scheme_decode_row(tensor->scheme, iso_cpu_row(&got_tensor, r), a, n_columns);
    iso_scheme_decode_row(tensor->scheme, iso_cpu_row(&wanted_tensor, r), b, n_columns);
    double size = 0;
    for (int64_t i = 0; i < n_columns; i++)
      if (fabs(b[i]) > size && !isinf(b[i]))
        size = fabs(b[i]);
    for (int64_t i = 0; i < n_columns; i++) {
      double bound = fabs(b[i]) * 2 * relative + job->tolerance * (fabs(b[i]) + 0.1 * size) +
                     job->absolute + least + 1e-15;
      bool same = a[i] == b[i] || (isnan(a[i]) && isnan(b[i])) || fabs(a[i] - b[i]) <= bound;
      if (!same)
        fail_msg("%s: output %u, row %lld, column %lld: %.9g, reference %.9g, bound %.3g", kernel,
                 output, (long long)r, (long long)i, a[i], b[i], bound);
    }
  }
  free(a);
  free(b);
  /* Whatever is not a row's element still holds the poison. */
  for (int64_t r = 0; r < n_rows; r++) {
    memset(iso_cpu_row(&got_tensor, r), POISON,
           (size_t)(n_columns / iso_scheme_get_info(tensor->scheme)->block_elements) *
               iso_scheme_get_info(tensor->scheme)->block_bytes);
  }
  for (uint64_t i = 0; i < job->output_bytes[output] + GUARD_BYTES; i++)
    if (got[i] != POISON)
      fail_msg("%s: output %u: byte %llu outside of the rows was written", kernel, output,
               (unsigned long long)i);
}

/* ---- Running -------------------------------------------------------------------------------- */

static inline iso_buffer *cpu_upload(const cpu_test_device *device, const uint8_t *data,
                                     uint64_t bytes) {
  iso_buffer *buffer;
  void *address;
  assert_int_equal(device->backend->memory->alloc(device->device, ISO_MEMORY_DEVICE,
                                                  bytes + 2 * ISO_CPU_ALIGNMENT, &buffer),
                   ISO_OK);
  assert_int_equal(device->backend->memory->map(device->device, buffer, &address), ISO_OK);
  memcpy((uint8_t *)address + ISO_CPU_ALIGNMENT, data, bytes);
  return buffer;
}

static inline void cpu_case_run_record(cpu_case *job, const cpu_test_device *device,
                                       const iso_kernel *kernel, uint8_t *const *wanted,
                                       iso_status expected) {
  const iso_op_info *info = iso_op_get_info(job->arguments.op);
  const iso_memory_table *memory = device->backend->memory;
  iso_op_arguments arguments = job->arguments;
  iso_buffer *buffers[ISO_MAX_INPUTS + ISO_MAX_OUTPUTS];
  uint32_t n_buffers = 0;
  for (uint32_t i = 0; i < arguments.n_inputs; i++)
    if (arguments.inputs[i].n_dims > 0) {
      arguments.inputs[i].buffer = buffers[n_buffers++] =
          cpu_upload(device, job->inputs[i], job->input_bytes[i] + GUARD_BYTES);
      arguments.inputs[i].offset = ISO_CPU_ALIGNMENT;
    }
  for (uint32_t i = 0; i < arguments.n_outputs; i++) {
    int32_t alias = info->outputs[i].alias_of;
    arguments.outputs[i].buffer =
        alias >= 0 ? arguments.inputs[alias].buffer
                   : (buffers[n_buffers++] =
                          cpu_upload(device, job->outputs[i], job->output_bytes[i] + GUARD_BYTES));
    arguments.outputs[i].offset = ISO_CPU_ALIGNMENT;
  }
  iso_buffer *workspace = NULL;
  if (kernel->workspace)
    arguments.workspace_bytes = kernel->workspace(device->device, &job->arguments);
  if (arguments.workspace_bytes) {
    void *address;
    assert_int_equal(
        memory->alloc(device->device, ISO_MEMORY_DEVICE, arguments.workspace_bytes, &workspace),
        ISO_OK);
    assert_int_equal(memory->map(device->device, workspace, &address), ISO_OK);
    memset(address, POISON, arguments.workspace_bytes);
    arguments.workspace = workspace;
  }
  iso_status status = kernel->launch(device->queue, &arguments);
  if (status != expected)
    fail_msg("%s: status %d: %s", kernel->name, status, iso_status_message());
  for (uint32_t i = 0; i < arguments.n_outputs && status == ISO_OK; i++) {
    uint8_t *got = arguments.outputs[i].buffer->data + arguments.outputs[i].offset;
    cpu_compare(job, kernel->name, i, got, wanted[i]);
  }
  if (workspace)
    memory->free(device->device, workspace);
  for (uint32_t i = 0; i < n_buffers; i++)
    memory->free(device->device, buffers[i]);
}

static inline bool cpu_record_accepts(const cpu_test_device *device, const iso_kernel *kernel,
                                      const iso_op_arguments *arguments) {
  const iso_op_info *info = iso_op_get_info(arguments->op);
  const char *detail = NULL;
  if (kernel->op != arguments->op || kernel->layout != ISO_LAYOUT_PLAIN)
    return false;
  for (uint32_t i = 0; i < arguments->n_inputs; i++) {
    iso_operand_kind kind = info->inputs[i].kind;
    iso_scheme_mask bit = ISO_SCHEME_BIT(arguments->inputs[i].scheme);
    if ((kind == ISO_OPERAND_WEIGHT || kind == ISO_OPERAND_KV) && !(kernel->schemes & bit))
      return false;
    if (kind == ISO_OPERAND_ACTIVATION && !(kernel->activations & bit))
      return false;
  }
  return !kernel->check || kernel->check(device->device, arguments, &detail) == ISO_ACCEPTED;
}

/* Runs the case with every record that accepts it and expects the reference's answer, or its
 * failure. At least one record must accept. */
static inline void cpu_case_run(cpu_case *job, const cpu_test_device *device) {
  const iso_op_info *info = iso_op_get_info(job->arguments.op);
  uint8_t *wanted[ISO_MAX_OUTPUTS], *kept[ISO_MAX_OUTPUTS];
  const void *inputs[ISO_MAX_INPUTS];
  for (uint32_t i = 0; i < job->arguments.n_inputs; i++)
    inputs[i] = job->inputs[i];
  for (uint32_t i = 0; i < job->arguments.n_outputs; i++) {
    uint64_t bytes = job->output_bytes[i] + GUARD_BYTES;
    if (info->outputs[i].alias_of < 0)
      memset(job->outputs[i], POISON, bytes);
    wanted[i] = malloc(bytes);
    kept[i] = malloc(bytes);
    memcpy(kept[i], job->outputs[i], bytes);
  }
  iso_status status = iso_reference_run(&job->arguments, inputs, (void **)job->outputs);
  if (status != ISO_OK && status != ISO_ERROR_INVALID_ARGUMENT)
    fail_msg("reference: %s", iso_status_message());
  for (uint32_t i = 0; i < job->arguments.n_outputs; i++) {
    uint64_t bytes = job->output_bytes[i] + GUARD_BYTES;
    memcpy(wanted[i], job->outputs[i], bytes);
    memcpy(job->outputs[i], kept[i], bytes);
  }
  for (uint32_t i = 0; i < device->backend->kernel_count; i++) {
    const iso_kernel *kernel = &device->backend->kernels[i];
    if (!cpu_record_accepts(device, kernel, &job->arguments))
      continue;
    job->n_run++;
    cpu_case_run_record(job, device, kernel, wanted, status);
  }
  assert_true(job->n_run > 0);
  for (uint32_t i = 0; i < job->arguments.n_outputs; i++) {
    free(wanted[i]);
    free(kept[i]);
  }
}

#endif
