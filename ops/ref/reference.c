#include "ops/ref/reference.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const iso_reference_function functions[ISO_OP_COUNT] = {
#define ISO_OP_BEGIN(name, NAME, tolerance, summary) iso_reference_##name,
#include <isomer/ops.def>
};

iso_status iso_reference_run(const iso_op_arguments *arguments, const void *const *input_addresses,
                             void *const *output_addresses) {
  static const iso_tensor absent = {0};
  ISO_TRY(iso_op_validate(arguments));
  iso_reference_call call = {.info = iso_op_get_info(arguments->op)};
  iso_op_read_attributes(arguments->op, arguments->attributes, &call.attributes);
  for (uint32_t i = 0; i < ISO_MAX_INPUTS; i++) {
    bool given = i < arguments->n_inputs;
    call.inputs[i].meta = given ? &arguments->inputs[i] : &absent;
    call.inputs[i].data = given ? (uint8_t *)(uintptr_t)input_addresses[i] : NULL;
    if (call.inputs[i].meta->layout != ISO_LAYOUT_PLAIN)
      return iso_fail(ISO_ERROR_UNSUPPORTED, "%s: the reference reads plain rows, %s has layout %u",
                      call.info->name, call.info->inputs[i].name, call.inputs[i].meta->layout);
  }
  for (uint32_t i = 0; i < arguments->n_outputs; i++) {
    call.outputs[i].meta = &arguments->outputs[i];
    call.outputs[i].data = output_addresses[i];
  }
  iso_status status = functions[arguments->op](&call);
  for (uint32_t i = 0; i < call.n_scratch; i++)
    free(call.scratch[i]);
  return status;
}

iso_status iso_reference_scratch(iso_reference_call *call, int64_t count, size_t bytes,
                                 void *out_memory) {
  if (call->n_scratch == ISO_MAX_SCRATCH)
    return iso_fail(ISO_ERROR_INTERNAL, "%s: too many pieces of scratch", call->info->name);
  void *memory = calloc(count > 0 ? (size_t)count : 1, bytes);
  if (!memory)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "%s: no memory for %" PRId64 " times %zu bytes",
                    call->info->name, count, bytes);
  call->scratch[call->n_scratch++] = memory;
  memcpy(out_memory, &memory, sizeof memory);
  return ISO_OK;
}

int64_t iso_n_rows(const iso_host_tensor *tensor) {
  int64_t rows = 1;
  for (uint32_t d = 0; d + 1 < tensor->meta->n_dims; d++)
    rows *= tensor->meta->dims[d];
  return rows;
}

uint8_t *iso_row(const iso_host_tensor *tensor, int64_t row) {
  int64_t offset = 0;
  for (uint32_t d = tensor->meta->n_dims - 1; d-- > 0;) {
    offset += row % tensor->meta->dims[d] * tensor->meta->strides[d];
    row /= tensor->meta->dims[d];
  }
  return tensor->data + offset;
}

void iso_load_row(const iso_host_tensor *tensor, int64_t row, float *out_values) {
  iso_scheme_decode_row(tensor->meta->scheme, iso_row(tensor, row), out_values,
                        iso_n_columns(tensor));
}

void iso_store_row(const iso_host_tensor *tensor, int64_t row, const float *values) {
  iso_scheme_encode_row(tensor->meta->scheme, values, NULL, iso_row(tensor, row),
                        iso_n_columns(tensor));
}

int32_t iso_load_index(const iso_host_tensor *tensor, int64_t index) {
  int32_t value;
  memcpy(&value, tensor->data + index * (int64_t)sizeof value, sizeof value);
  return value;
}

void iso_store_index(const iso_host_tensor *tensor, int64_t index, int32_t value) {
  memcpy(tensor->data + index * (int64_t)sizeof value, &value, sizeof value);
}

iso_status iso_load_all(iso_reference_call *call, const iso_host_tensor *tensor,
                        float **out_values) {
  int64_t rows = iso_n_rows(tensor), columns = iso_n_columns(tensor);
  ISO_TRY(iso_reference_scratch(call, rows * columns, sizeof(float), out_values));
  for (int64_t row = 0; row < rows; row++)
    iso_load_row(tensor, row, *out_values + row * columns);
  return ISO_OK;
}

iso_status iso_check_index(const iso_reference_call *call, uint32_t input, int64_t place,
                           int64_t value, int64_t low, int64_t high) {
  if (value >= low && value < high)
    return ISO_OK;
  return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                  "%s: %s[%" PRId64 "] is %" PRId64 ", must be %" PRId64 " to %" PRId64,
                  call->info->name, call->info->inputs[input].name, place, value, low, high - 1);
}
