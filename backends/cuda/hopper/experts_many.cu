/* Many rows by experts of plain 16-bit floats. */
#include "backends/cuda/hopper/experts_many.cuh"
#include "backends/cuda/hopper/matmul_many_records.cuh"

namespace {

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  const iso_tensor &weight = arguments->inputs[1];
  if (weight.strides[0] % 16 != 0 || weight.strides[1] % 16 != 0) {
    *out_detail = "rows of the weight do not start at multiples of 16 bytes";
    return ISO_REFUSED_STRIDE;
  }
  return grouped_many_check(device, arguments, out_detail);
}

template <typename V> iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor &weight = arguments->inputs[1];
  matmul_many_arguments a = grouped_many_read(arguments);
  a.expert_bytes = weight.strides[0];
  return experts_many_run<V>(queue, simt_workspace(arguments),
                             (const int32_t *)simt_address(arguments->inputs[2]), a,
                             weight.strides[1]);
}

#define RECORD(SCHEME, scheme, type)                                                               \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_GROUPED_MATMUL,                                       \
    .name = "grouped_matmul." #scheme ".many", .schemes = ISO_SCHEME_BIT(ISO_SCHEME_##SCHEME),     \
    .activations = SIMT_FLOATS, .layout = ISO_LAYOUT_PLAIN, .rank = 30, .check = check,            \
    .workspace = grouped_many_scratch, .launch = launch<type>                                      \
  }

const iso_kernel records[] = {RECORD(F16, f16, simt_f16), RECORD(BF16, bf16, simt_bf16)};

} /* namespace */

SIMT_EXPORT_KERNELS(experts_many, records)
