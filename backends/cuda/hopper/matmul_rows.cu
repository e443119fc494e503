/* 9 to 32 rows times weights of 16-bit floats, for x of the weight's own type; up to 64 where
 * several products of few features have the same rows. */
#include "backends/cuda/hopper/matmul_rows.h"
#include "backends/cuda/hopper/matmul_rows.cuh"
#include "backends/simt/matmul.h"
#include "backends/simt/matmul_records.cuh"

namespace {

enum { LEAST_ROWS = 9, MOST_ROWS = 32 };

/* All but the number of rows. */
iso_refusal check_operands(const iso_device *device, const iso_op_arguments *arguments,
                           const char **out_detail) {
  iso_refusal refusal = hopper_check(device, out_detail);
  if (refusal == ISO_ACCEPTED)
    refusal = matmul_check_rows(device, arguments, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  const iso_tensor &x = arguments->inputs[0], &weight = arguments->inputs[1];
  if (weight.scheme != ISO_SCHEME_F16 && weight.scheme != ISO_SCHEME_BF16) {
    *out_detail = "weights are no 16-bit floats"; /* who asks for a group may have others */
    return ISO_REFUSED_SCHEME;
  }
  if (weight.dims[1] == 0) {
    *out_detail = "nothing to add up";
    return ISO_REFUSED_SHAPE;
  }
  if (weight.dims[0] > 64 * 65535) {
    *out_detail = "more features than a grid holds";
    return ISO_REFUSED_SIZE;
  }
  if (x.scheme != weight.scheme) {
    *out_detail = "x is not of the weight's type";
    return ISO_REFUSED_ACTIVATION;
  }
  simt_rows rows = simt_rows_of(x);
  if (rows.n_dims != 1 || rows.strides[0] % 16 != 0 || weight.strides[0] % 16 != 0) {
    *out_detail = "rows that are no matrix, or do not start at multiples of 16 bytes";
    return ISO_REFUSED_STRIDE;
  }
  return ISO_ACCEPTED;
}

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  iso_refusal refusal = check_operands(device, arguments, out_detail);
  int64_t n_rows = matmul_rows(arguments);
  if (refusal == ISO_ACCEPTED && (n_rows < LEAST_ROWS || n_rows > MOST_ROWS)) {
    *out_detail = "for 9 to 32 rows";
    return ISO_REFUSED_SHAPE;
  }
  return refusal;
}

bool is_aligned(const void *address) { return ((uintptr_t)address & 15) == 0; }

/* Products of the same rows in one launch, with their glu if there is one. Views may start where
 * the copy engine cannot: then one by one. */
iso_status multiply(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  matmul_rows_arguments a = {};
  const simt_deferred_op *glu =
      ops[count - 1].arguments.op == ISO_OP_GLU ? &ops[count - 1] : nullptr;
  uint32_t n_products = glu ? count - 1 : count;
  a.x = simt_rows_of(ops[0].arguments.inputs[0]);
  bool fits = is_aligned(a.x.data);
  for (uint32_t i = 0; i < n_products; i++) {
    const iso_op_arguments &op = ops[i].arguments;
    const iso_tensor &weight = op.inputs[1];
    if (weight.dims[0] == 0)
      continue;
    matmul_rows_part &part = a.parts[a.n_parts++];
    part.weight = simt_address(weight), part.weight_stride = weight.strides[0];
    part.bias = (const float *)simt_address(op.inputs[2]);
    part.y = simt_rows_of(op.outputs[0]);
    part.n_features = (int32_t)weight.dims[0];
    fits &= is_aligned(part.weight);
  }
  if (a.n_parts == 0)
    return ISO_OK;
  if (!fits) {
    for (uint32_t i = 0; i < n_products; i++)
      ISO_TRY(simt_matmul_plain(queue, &ops[i].arguments));
    return glu ? simt_launch_deferred(queue, *glu) : ISO_OK;
  }
  if (glu) {
    a.glu = simt_rows_of(glu->arguments.outputs[0]);
    a.activation = ((const iso_glu_attributes *)glu->attributes)->activation;
  }
  return a.x.scheme == ISO_SCHEME_F16 ? matmul_rows_run<simt_f16>(queue, "matmul.rows", a)
                                      : matmul_rows_run<simt_bf16>(queue, "matmul.rows", a);
}

iso_status run(iso_queue *queue, const iso_op_arguments *arguments) {
  simt_deferred_op op = {};
  op.arguments = *arguments;
  return multiply(queue, &op, 1);
}

/* What fusion.h finds around products of the same rows, whose type is that of all weights. */
iso_status run_group(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  uint32_t begin = ops[0].arguments.op == ISO_OP_ADD ? 2 : 0;
  if (begin > 0)
    ISO_TRY(simt_add_rms_norm(queue, ops, begin));
  return multiply(queue, ops + begin, count - begin);
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run, run_group);
}

#define RECORD(SCHEME, scheme)                                                                     \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_MATMUL, .name = "matmul." #scheme ".rows",            \
    .schemes = ISO_SCHEME_BIT(ISO_SCHEME_##SCHEME), .activations = SIMT_FLOATS,                    \
    .layout = ISO_LAYOUT_PLAIN, .rank = 30, .check = check, .launch = launch                       \
  }

const iso_kernel records[] = {RECORD(F16, f16), RECORD(BF16, bf16)};

} /* namespace */

/* So few features are fewer than 64 for each multiprocessor, tiles of which cuBLASLt would have. */
bool cuda_rows_take(const iso_device *device, const simt_deferred_op *ops, uint32_t count) {
  int64_t n_features = 0, most = 64 * simt_n_units(device);
  bool takes = count > 1 && count <= ROWS_PARTS && matmul_rows(&ops[0].arguments) <= ROWS_MOST;
  for (uint32_t i = 0; i < count && takes; i++) {
    const char *detail;
    n_features += ops[i].arguments.inputs[1].dims[0];
    takes = n_features <= most &&
            check_operands(device, &ops[i].arguments, &detail) == ISO_ACCEPTED &&
            ops[i].arguments.inputs[1].scheme == ops[0].arguments.inputs[1].scheme;
  }
  return takes;
}

iso_status cuda_rows_launch(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  return multiply(queue, ops, count);
}

SIMT_EXPORT_KERNELS(matmul_rows, records)
