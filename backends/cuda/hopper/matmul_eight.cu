/* Rows rounded to 8 bits times weights in groups of 128, where that is asked for. */
#include "backends/cuda/hopper/matmul_eight.cuh"
#include "backends/cuda/hopper/matmul_many_records.cuh"

namespace {

/* Below MANY_LEAST_ROWS matmul_few() is as fast and rounds less. */
static_assert((int)EIGHT_SLAB == (int)MANY_COLUMNS, "a grid holds as many rows as the check says");

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  iso_refusal refusal = matmul_check_rounding(arguments, out_detail);
  return refusal != ISO_ACCEPTED ? refusal : matmul_many_check(device, arguments, out_detail);
}

uint64_t workspace(const iso_device *, const iso_op_arguments *arguments) {
  return matmul_eight_workspace(matmul_rows(arguments), arguments->inputs[1].dims[1]);
}

matmul_eight_part read_part(const iso_op_arguments *arguments) {
  const iso_tensor &weight = arguments->inputs[1];
  matmul_eight_part part = {};
  part.weight = simt_address(weight);
  part.bias = (const float *)simt_address(arguments->inputs[2]);
  part.y = simt_rows_of(arguments->outputs[0]);
  part.n_features = weight.dims[0];
  return part;
}

/* Products of the same rows in one launch; x is rounded in the scratch of the first. */
template <typename W>
iso_status multiply(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  const iso_op_arguments &first = ops[0].arguments;
  int64_t n_rows = matmul_rows(&first);
  matmul_eight_arguments a = {};
  for (uint32_t i = 0; i < count; i++)
    if (ops[i].arguments.inputs[1].dims[0] > 0)
      a.parts[a.n_parts++] = read_part(&ops[i].arguments);
  if (n_rows == 0 || a.n_parts == 0)
    return ISO_OK;
  ISO_TRY(matmul_eight_prepare<W::float8>(queue, simt_rows_of(first.inputs[0]), n_rows,
                                          simt_workspace(&first), &a.x));
  return matmul_eight_run<W>(queue, "matmul.eight", a);
}

template <typename W> iso_status run(iso_queue *queue, const iso_op_arguments *arguments) {
  simt_deferred_op op = {};
  op.arguments = *arguments;
  return multiply<W>(queue, &op, 1);
}

/* What fusion.h finds around products of the same rows: the add and the rms_norm that make them,
 * the glu of two. */
template <typename W>
iso_status run_group(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  uint32_t begin = ops[0].arguments.op == ISO_OP_ADD ? 2 : 0;
  uint32_t end = ops[count - 1].arguments.op == ISO_OP_GLU ? count - 1 : count;
  if (begin > 0)
    ISO_TRY(simt_add_rms_norm(queue, ops, begin));
  ISO_TRY(multiply<W>(queue, ops + begin, end - begin));
  return end < count ? simt_launch_deferred(queue, ops[end]) : ISO_OK;
}

template <typename W> iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run<W>, run_group<W>);
}

#define EIGHT_RECORD(SCHEME, scheme)                                                               \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_MATMUL, .name = "matmul." #scheme ".eight",           \
    .schemes = ISO_SCHEME_BIT(ISO_SCHEME_##SCHEME), .activations = SIMT_FLOATS,                    \
    .layout = MATMUL_LAYOUT_PACKED, .rank = 50, .check = check, .workspace = workspace,            \
    .packed_bytes = matmul_records<matmul_##scheme>::packed_bytes,                                 \
    .pack = matmul_records<matmul_##scheme>::pack, .launch = launch<matmul_##scheme>               \
  }

const iso_kernel records[] = {EIGHT_RECORD(I8_G128, i8_g128), EIGHT_RECORD(F8_G128, f8_g128)};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_eight, records)
