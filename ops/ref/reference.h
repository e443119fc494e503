/* Inside of the reference: operands at host addresses, rows as f32, one function an op. */
#ifndef ISOMER_OPS_REF_REFERENCE_H
#define ISOMER_OPS_REF_REFERENCE_H

#include "ops/rules.h"
#include <isomer/reference.h>

/* An operand in host memory. Absent operands have n_dims 0. Outputs are written through `data`;
 * inputs are only read, alias or not. */
typedef struct iso_host_tensor {
  const iso_tensor *meta;
  uint8_t *data; /* no alignment is promised */
} iso_host_tensor;

enum { ISO_MAX_SCRATCH = 8 };

/* One validated op on its way. */
typedef struct iso_reference_call {
  const iso_op_info *info;
  iso_any_attributes attributes;
  iso_host_tensor inputs[ISO_MAX_INPUTS];
  iso_host_tensor outputs[ISO_MAX_OUTPUTS];
  void *scratch[ISO_MAX_SCRATCH];
  uint32_t n_scratch;
} iso_reference_call;

typedef iso_status (*iso_reference_function)(iso_reference_call *call);

/* Memory for `count` items of `bytes` bytes, zeroed; freed when the call ends. */
ISO_MUST_CHECK iso_status iso_reference_scratch(iso_reference_call *call, int64_t count,
                                                size_t bytes, void *out_memory);

static inline bool iso_is_present(const iso_host_tensor *tensor) {
  return tensor->meta->n_dims > 0;
}
/* Size of the last dimension, and of all others multiplied. */
static inline int64_t iso_n_columns(const iso_host_tensor *tensor) {
  return tensor->meta->dims[tensor->meta->n_dims - 1];
}
int64_t iso_n_rows(const iso_host_tensor *tensor);

/* Row `row` of the tensor with all dimensions but the last taken as one, outermost first. */
uint8_t *iso_row(const iso_host_tensor *tensor, int64_t row);
/* The row decoded to f32, and f32 values encoded as the row (n_columns of them). */
void iso_load_row(const iso_host_tensor *tensor, int64_t row, float *out_values);
void iso_store_row(const iso_host_tensor *tensor, int64_t row, const float *values);
/* Element `index` of a dense i32 tensor. */
int32_t iso_load_index(const iso_host_tensor *tensor, int64_t index);
void iso_store_index(const iso_host_tensor *tensor, int64_t index, int32_t value);
/* All elements of a dense f32 tensor in scratch memory. */
ISO_MUST_CHECK iso_status iso_load_all(iso_reference_call *call, const iso_host_tensor *tensor,
                                       float **out_values);

/* Fails unless low <= value < high, naming op and operand. */
ISO_MUST_CHECK iso_status iso_check_index(const iso_reference_call *call, uint32_t input,
                                          int64_t place, int64_t value, int64_t low, int64_t high);

/* iso_activation of one value. */
double iso_activation_of(uint32_t activation, double x);

/* iso_reference_<op> of every op, each in the file of its family. */
#define ISO_OP_BEGIN(name, NAME, tolerance, summary)                                               \
  iso_status iso_reference_##name(iso_reference_call *call);
#include <isomer/ops.def>

#endif
