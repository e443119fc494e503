/* Many rows rounded to E4M3 times E4M3 weights in groups of 128, through cuBLASLt.
 *
 * The codes of packed weights are written as rows for each product, with their scales beside them;
 * rows of x are rounded, with a scale for 128 columns. The columns of each 32 stay in the order in
 * which packed weights have them, since a sum does not mind: those of lane t of four, 8 bytes, one
 * lane's after another's (backends/simt/matmul_packed.cuh). */
#include "backends/cuda/blas.h"
#include "backends/simt/matmul_records.cuh"

namespace {

typedef matmul_f8_g128 weights;

enum { LEAST_ROWS = 512, UNPACK_SUBGROUPS = 8, GROUP = 128 };

uint64_t rounded(uint64_t bytes) { return (bytes + 1023) / 1024 * 1024; }

/* Where parts lie in the workspace; x first, so that it is in the same place for all products. */
struct layout {
  int64_t m, n, k, groups;
  uint64_t x_at, x_scales_at, w_at, w_scales_at, blas_at, bytes;
};

layout layout_of(const iso_op_arguments *arguments) {
  layout l = {};
  l.m = matmul_rows(arguments);
  l.n = arguments->inputs[1].dims[0], l.k = arguments->inputs[1].dims[1];
  l.groups = l.k / GROUP;
  l.x_scales_at = rounded((uint64_t)(l.m * l.k));
  l.w_at = l.x_scales_at + rounded((uint64_t)(l.m * l.groups) * 4);
  l.w_scales_at = l.w_at + rounded((uint64_t)(l.n * l.k));
  l.blas_at = l.w_scales_at + rounded((uint64_t)(l.n * l.groups) * 4);
  l.bytes = l.blas_at + CUDA_BLAS_WORKSPACE + 1024;
  return l;
}

/* ---- Operands ----------------------------------------------------------------------------------
 */

/* A subgroup a unit, 16 rows of a group. */
__global__ void __launch_bounds__(UNPACK_SUBGROUPS * 32)
    unpack(const uint8_t *packed, int64_t n_rows, int64_t n_groups, uint8_t *codes, float *scales) {
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  int64_t index = (int64_t)blockIdx.x * UNPACK_SUBGROUPS + threadIdx.x / 32;
  int64_t tile = index / n_groups, group = index % n_groups, row = tile * 16 + g;
  simt_let_later_begin();
  simt_wait_for_earlier(); /* others may still read what is overwritten */
  if (tile * 16 >= n_rows)
    return;
  const uint8_t *unit = packed + index * weights::unit_bytes;
  uint8_t *to = codes + row * n_groups * GROUP + group * GROUP + t * 8;
  int64_t below = 8 * n_groups * GROUP; /* from row g to g + 8 */
#pragma unroll
  for (int b = 0; b < 4; b++) {
    uint4 v = *(const uint4 *)(unit + b * 512 + lane * 16);
    if (row < n_rows)
      *(uint2 *)(to + b * 32) = make_uint2(v.x, v.y);
    if (row + 8 < n_rows)
      *(uint2 *)(to + below + b * 32) = make_uint2(v.z, v.w);
  }
  if (lane < 16) { /* [g][2]: rows g and g + 8 */
    int64_t of = tile * 16 + lane / 2 + lane % 2 * 8;
    if (of < n_rows)
      scales[group * n_rows + of] = ((const float *)(unit + weights::scales_at))[lane];
  }
}

__device__ __forceinline__ uint32_t codes_of(float a, float b, float c, float d) {
  uint16_t low = 0, high = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
#endif
  return low | (uint32_t)high << 16;
}

/* 16 columns a thread, 8 threads a group; a block takes some groups of a row. */
__global__ void __launch_bounds__(256) round_rows(const __grid_constant__ simt_rows x,
                                                  int64_t n_groups, uint8_t *codes, float *scales) {
  simt_begin();
  int64_t row = blockIdx.x;
  int chunk = (int)blockIdx.y * 256 + (int)threadIdx.x, lane = threadIdx.x % 32;
  if (chunk >= n_groups * 8) /* all lanes of a group are there or none is */
    return;
  float v[16], largest = 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
    simt_load4(x.scheme, x.row(row), (int64_t)chunk * 16 + i * 4, v + i * 4);
#pragma unroll
  for (int i = 0; i < 16; i++) /* infinite where one is NaN */
    largest = fmaxf(largest, v[i] == v[i] ? fabsf(v[i]) : INFINITY);
  uint32_t neighbours = 0xffu << lane / 8 * 8;
#pragma unroll
  for (int mask = 1; mask < 8; mask *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(neighbours, largest, mask));
  float lift = largest < 0x1p-60f ? 0x1p60f : 1.0f; /* lest an inverse overflow */
  float inverse = largest > 0 ? 448.0f / (largest * lift) : 0.0f;
  if (chunk % 8 == 0)
    scales[(chunk / 8) * x.n_rows + row] =
        largest == INFINITY ? NAN : largest * lift / 448.0f / lift;
#pragma unroll
  for (int i = 0; i < 16; i++)
    v[i] = v[i] * lift * inverse;
  /* Half h of 32 columns: the words of lanes t, of each 4 columns the middle ones exchanged. */
  uint8_t *to = codes + row * n_groups * GROUP + chunk / 2 * 32 + chunk % 2 * 4;
#pragma unroll
  for (int t = 0; t < 4; t++)
    *(uint32_t *)(to + t * 8) = codes_of(v[4 * t], v[4 * t + 2], v[4 * t + 1], v[4 * t + 3]);
}

/* ---- Record ------------------------------------------------------------------------------------
 */

/* All but the addresses. */
cuda_product product_of(const iso_op_arguments *arguments, const layout &l) {
  const iso_tensor &y = arguments->outputs[0];
  cuda_product p = {};
  p.m = l.m, p.n = l.n, p.k = l.k;
  p.scheme = ISO_SCHEME_BF16, p.y_scheme = y.scheme, p.scaling = CUDA_SCALED_GROUPS;
  p.x_stride = p.w_stride = l.k;
  p.y_stride = simt_rows_of(y).strides[0] / simt_float_bytes(y.scheme);
  return p;
}

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  if (!device->blas || device->generation != 90) {
    *out_detail = "made for cuBLASLt on compute capability 9.0";
    return ISO_REFUSED_DEVICE;
  }
  if (((const iso_matmul_attributes *)arguments->attributes)->operand_bits != 8) {
    *out_detail = "rounds x to 8 bits, which was not asked for";
    return ISO_REFUSED_ATTRIBUTE;
  }
  iso_refusal refusal = matmul_check_rows(device, arguments, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  const iso_tensor &y = arguments->outputs[0];
  bool is_plain = arguments->inputs[2].n_dims == 0 && arguments->inputs[1].dims[0] % 16 == 0 &&
                  y.offset % 16 == 0;
  for (uint32_t d = 0; d + 2 < y.n_dims; d++)
    is_plain &= y.strides[d] == y.dims[d + 1] * y.strides[d + 1];
  for (uint32_t d = 0; d + 1 < y.n_dims; d++)
    is_plain &= y.strides[d] % 16 == 0;
  int64_t n_rows = matmul_rows(arguments);
  if (n_rows < LEAST_ROWS || n_rows % 16 != 0 || !is_plain) {
    *out_detail = "fewer than 512 rows, no multiple of 16, a bias, or rows of y that are no matrix";
    return ISO_REFUSED_SHAPE;
  }
  cuda_product p = product_of(arguments, layout_of(arguments));
  if (!cuda_blas_has(device, &p)) {
    *out_detail = "cuBLASLt has no algorithm for scales of 128 columns and this type of y";
    return ISO_REFUSED_DEVICE;
  }
  return ISO_ACCEPTED;
}

uint64_t workspace(const iso_device *, const iso_op_arguments *arguments) {
  return layout_of(arguments).bytes;
}

uint8_t *aligned(uint8_t *address) {
  return address + (1024 - (uint64_t)(uintptr_t)address % 1024) % 1024;
}

iso_status multiply_rounded(iso_queue *queue, const iso_op_arguments *arguments, const uint8_t *x,
                            const float *x_scales) {
  layout l = layout_of(arguments);
  uint8_t *scratch = aligned(simt_workspace(arguments));
  cuda_product p = product_of(arguments, l);
  p.x = x, p.x_scales = x_scales;
  p.w = scratch + l.w_at, p.w_scales = (const float *)(scratch + l.w_scales_at);
  p.y = simt_address(arguments->outputs[0]);
  p.workspace = scratch + l.blas_at;
  int64_t units = matmul_count(l.n, 16) * l.groups;
  ISO_TRY(simt_launch_early(queue, "matmul.f8.unpack", unpack,
                            dim3((unsigned)matmul_count(units, UNPACK_SUBGROUPS)),
                            dim3(UNPACK_SUBGROUPS * 32), 0, simt_address(arguments->inputs[1]), l.n,
                            l.groups, scratch + l.w_at, (float *)(scratch + l.w_scales_at)));
  return cuda_blas_multiply(queue, &p);
}

/* Whether `b`'s workspace leaves the rounded x of `a` alone. */
bool shares_rows(const iso_op_arguments &a, const iso_op_arguments &b) {
  uint8_t *first = simt_workspace(&a), *second = simt_workspace(&b);
  layout of_a = layout_of(&a), of_b = layout_of(&b);
  return first == second || second + of_b.bytes <= first || aligned(first) + of_a.w_at <= second;
}

iso_status multiply(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  const iso_op_arguments *owner = nullptr; /* whose workspace holds the rounded x */
  const uint8_t *x = nullptr;
  const float *scales = nullptr;
  for (uint32_t i = 0; i < count; i++) {
    const iso_op_arguments &op = ops[i].arguments;
    layout l = layout_of(&op);
    if (l.m == 0 || l.n == 0)
      continue;
    if (!x || !shares_rows(*owner, op)) {
      owner = &op;
      uint8_t *scratch = aligned(simt_workspace(&op));
      simt_rows rows = simt_rows_of(op.inputs[0]);
      ISO_TRY(simt_launch_early(queue, "matmul.f8.round", round_rows,
                                dim3((unsigned)l.m, (unsigned)matmul_count(l.groups * 8, 256)),
                                dim3(256), 0, rows, l.groups, scratch,
                                (float *)(scratch + l.x_scales_at)));
      x = scratch, scales = (const float *)(scratch + l.x_scales_at);
    }
    ISO_TRY(multiply_rounded(queue, &op, x, scales));
  }
  return ISO_OK;
}

iso_status run(iso_queue *queue, const iso_op_arguments *arguments) {
  simt_deferred_op op = {};
  op.arguments = *arguments;
  return multiply(queue, &op, 1);
}

iso_status run_alone(iso_queue *queue, const simt_deferred_op &op) {
  iso_op_arguments arguments = op.arguments;
  arguments.attributes = op.attributes;
  return op.launch(queue, &arguments);
}

/* As of matmul_eight.cu. */
iso_status run_group(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  uint32_t begin = ops[0].arguments.op == ISO_OP_ADD ? 2 : 0;
  uint32_t end = ops[count - 1].arguments.op == ISO_OP_GLU ? count - 1 : count;
  if (begin > 0)
    ISO_TRY(simt_add_rms_norm(queue, ops, begin));
  ISO_TRY(multiply(queue, ops + begin, end - begin));
  return end < count ? run_alone(queue, ops[end]) : ISO_OK;
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run, run_group);
}

const iso_kernel records[] = {{.size = sizeof(iso_kernel),
                               .op = ISO_OP_MATMUL,
                               .name = "matmul.f8_g128.cublaslt",
                               .schemes = ISO_SCHEME_BIT(ISO_SCHEME_F8_G128),
                               .activations = SIMT_FLOATS,
                               .layout = MATMUL_LAYOUT_PACKED,
                               .rank = 60,
                               .check = check,
                               .workspace = workspace,
                               .packed_bytes = matmul_records<weights>::packed_bytes,
                               .pack = matmul_records<weights>::pack,
                               .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_eight_blas, records)
