/* Few rows times weights of 16-bit floats, which stay in rows: cuBLASLt takes more rows. */
#include "backends/simt/matmul_records.cuh"

namespace {

enum { MOST_ROWS = 16 };

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  iso_refusal refusal = matmul_check_rows(device, arguments, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  if (matmul_rows(arguments) > MOST_ROWS) {
    *out_detail = "more than 16 rows";
    return ISO_REFUSED_SHAPE;
  }
  if (arguments->inputs[1].strides[0] % 16 != 0) {
    *out_detail = "rows of the weight do not start at multiples of 16 bytes";
    return ISO_REFUSED_STRIDE;
  }
  return ISO_ACCEPTED;
}

#define RECORD(SCHEME, scheme, type)                                                               \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_MATMUL, .name = "matmul." #scheme ".few",             \
    .schemes = ISO_SCHEME_BIT(ISO_SCHEME_##SCHEME), .activations = SIMT_FLOATS,                    \
    .layout = ISO_LAYOUT_PLAIN, .rank = 20, .check = check,                                        \
    .launch = matmul_records<matmul_plain<type>>::launch                                           \
  }

const iso_kernel records[] = {RECORD(F16, f16, simt_f16), RECORD(BF16, bf16, simt_bf16)};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_few_plain, records)
