/* Products of many rows by packed weights: the weight is unpacked to rows of 16-bit floats, a
 * stretch of features at a time, and multiplied through cuBLASLt. The floats are of the type of x,
 * so weights are rounded to 8 bits of significand for bf16 rows and to 11 for f16 ones. */
#include "backends/cuda/dense.h"
#include "backends/simt/matmul_records.cuh"
#include "backends/simt/matmul_unpack.cuh"

namespace {

/* From here on unpacking costs less than matmul_many() loses to cuBLASLt; groups of 128 have
 * matmul_few() alone below it, but for those of hopper/matmul_many_groups.cu. */
enum { LEAST_ROWS = 384, LEAST_ROWS_OF_GROUPS = 33 };
/* Of an unpacked stretch: most matrices are one, heads of large vocabularies are several. */
constexpr int64_t STRETCH_BYTES = 128 << 20;

template <typename W>
iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  if (!device->blas) {
    *out_detail = "cuBLASLt is not installed";
    return ISO_REFUSED_DEVICE;
  }
  if (!mma_is_there(device)) {
    *out_detail = "needs the 16-bit matrix unit of compute capability 8.0";
    return ISO_REFUSED_DEVICE;
  }
  if (matmul_rows(arguments) < (W::group ? LEAST_ROWS_OF_GROUPS : LEAST_ROWS)) {
    *out_detail = W::group ? "fewer than 33 rows" : "fewer than 384 rows";
    return ISO_REFUSED_SHAPE;
  }
  const iso_tensor &weight = arguments->inputs[1];
  if (weight.dims[0] % 8 != 0 || weight.dims[1] % 8 != 0) {
    *out_detail = "sizes that are no multiples of 8";
    return ISO_REFUSED_SHAPE;
  }
  return ISO_ACCEPTED;
}

/* A stretch: features [first, first + count) as a product by a plain weight. */
struct stretches {
  int64_t each;           /* features, a multiple of 16 */
  uint64_t unpacked_at;   /* in the workspace, after what the product needs */
  iso_op_arguments first; /* the first stretch */
};

stretches cut(const iso_op_arguments *arguments) {
  stretches s = {};
  s.first = *arguments;
  iso_tensor &weight = s.first.inputs[1];
  int64_t columns = weight.dims[1], most = STRETCH_BYTES / (columns * 2) / 16 * 16;
  s.each = weight.dims[0] < most ? weight.dims[0] : most < 16 ? 16 : most;
  bool bf16 = arguments->inputs[0].scheme == ISO_SCHEME_BF16;
  weight.scheme = bf16 ? ISO_SCHEME_BF16 : ISO_SCHEME_F16;
  weight.layout = ISO_LAYOUT_PLAIN;
  weight.dims[0] = s.each;
  weight.strides[1] = 2;
  weight.strides[0] = columns * 2;
  iso_tensor &y = s.first.outputs[0];
  y.dims[y.n_dims - 1] = s.each;
  s.unpacked_at = (cuda_dense_workspace(&s.first) + 255) / 256 * 256;
  return s;
}

uint64_t workspace(const iso_device *, const iso_op_arguments *arguments) {
  stretches s = cut(arguments);
  return s.unpacked_at + (uint64_t)s.each * (uint64_t)arguments->inputs[1].dims[1] * 2;
}

template <typename W>
iso_status unpack(iso_queue *queue, const uint8_t *packed, iso_scheme scheme, int64_t rows,
                  int64_t columns, uint8_t *out) {
  int64_t units = matmul_count(rows, 16) * matmul_count(columns, W::unit);
  dim3 grid((unsigned)matmul_count(units, MATMUL_UNPACK_SUBGROUPS));
  dim3 block(MATMUL_UNPACK_SUBGROUPS * 32);
  return scheme == ISO_SCHEME_F16
             ? simt_launch_early(queue, "matmul.unpack", matmul_unpack<W, simt_f16>, grid, block, 0,
                                 packed, rows, columns, (simt_f16 *)out)
             : simt_launch_early(queue, "matmul.unpack", matmul_unpack<W, simt_bf16>, grid, block,
                                 0, packed, rows, columns, (simt_bf16 *)out);
}

template <typename W> iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  stretches s = cut(arguments);
  int64_t features = arguments->inputs[1].dims[0], columns = arguments->inputs[1].dims[1];
  int64_t tile_bytes = matmul_count(columns, W::unit) * W::unit_bytes;
  const uint8_t *packed = simt_address(arguments->inputs[1]);
  iso_op_arguments part = s.first;
  iso_tensor &weight = part.inputs[1], &bias = part.inputs[2], &y = part.outputs[0];
  weight.buffer = arguments->workspace;
  weight.offset = arguments->workspace_offset + s.unpacked_at;
  for (int64_t at = 0; at < features; at += s.each) {
    int64_t count = features - at < s.each ? features - at : s.each;
    weight.dims[0] = y.dims[y.n_dims - 1] = count;
    y.offset = arguments->outputs[0].offset + (uint64_t)(at * simt_float_bytes(y.scheme));
    if (bias.n_dims > 0) {
      bias.dims[0] = count;
      bias.offset = arguments->inputs[2].offset + (uint64_t)at * 4;
    }
    ISO_TRY(unpack<W>(queue, packed + at / 16 * tile_bytes, weight.scheme, count, columns,
                      simt_address(weight)));
    ISO_TRY(cuda_dense_launch(queue, &part));
  }
  return ISO_OK;
}

#define UNPACKED_RECORD(SCHEME, scheme, ...)                                                       \
  {.size = sizeof(iso_kernel),                                                                     \
   .op = ISO_OP_MATMUL,                                                                            \
   .name = "matmul." #scheme ".unpacked",                                                          \
   .schemes = ISO_SCHEME_BIT(ISO_SCHEME_##SCHEME),                                                 \
   .activations = SIMT_FLOATS,                                                                     \
   .layout = MATMUL_LAYOUT_PACKED,                                                                 \
   .rank = 40,                                                                                     \
   .check = check<matmul_##scheme>,                                                                                 \
   .workspace = workspace,                                                                         \
   .packed_bytes = matmul_records<matmul_##scheme>::packed_bytes,                                  \
   .pack = matmul_records<matmul_##scheme>::pack,                                                  \
   .launch = launch<matmul_##scheme>},

const iso_kernel records[] = {MATMUL_PACKED_SCHEMES(UNPACKED_RECORD)};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_unpacked, records)
