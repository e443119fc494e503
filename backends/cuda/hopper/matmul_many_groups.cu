/* Many rows times INT4 in groups of 128, while unpacking costs more than it saves. Weights become
 * halves here, which those with scales of any float need not fit: pack() looks, and where they do
 * not the product for few rows makes these as well. Rows of f32 keep their precision elsewhere. */
#include "backends/cuda/hopper/matmul_many_records.cuh"

namespace {

typedef matmul_i4_g128 weight;

enum { MOST_ROWS = 383 }; /* with more they are unpacked, as f32 rows are from 33 on */

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  if (matmul_rows(arguments) > MOST_ROWS) {
    *out_detail = "more than 383 rows";
    return ISO_REFUSED_SHAPE;
  }
  return matmul_many_check(device, arguments, out_detail);
}

iso_status run(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor &packed = arguments->inputs[1];
  return simt_is_noted(packed.buffer, packed.offset)
             ? matmul_many_record_run<weight>(queue, arguments)
             : matmul_records<weight>::run(queue, arguments);
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run);
}

const iso_kernel records[] = {{.size = sizeof(iso_kernel),
                               .op = ISO_OP_MATMUL,
                               .name = "matmul.i4_g128.many",
                               .schemes = ISO_SCHEME_BIT(ISO_SCHEME_I4_G128),
                               .activations = ISO_SCHEME_BIT(ISO_SCHEME_F16) |
                                              ISO_SCHEME_BIT(ISO_SCHEME_BF16),
                               .layout = MATMUL_LAYOUT_PACKED,
                               .rank = 45, /* before unpacking */
                               .check = check,
                               .workspace = matmul_many_scratch,
                               .packed_bytes = matmul_records<weight>::packed_bytes,
                               .pack = matmul_records<weight>::pack,
                               .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_many_groups, records)
