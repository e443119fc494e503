/* Many rows rounded to E4M3 times E4M3 weights in groups of 128, through cuBLASLt.
 *
 * The codes of packed weights are written as rows for each product, with their scales beside them;
 * rows of x are rounded, with a scale for 128 columns, or one a row where the weight's rows have
 * one, which cuBLASLt multiplies a quarter faster. The columns of each 32 stay in the order in
 * which packed weights have them, since a sum does not mind: those of lane t of four, 8 bytes, one
 * lane's after another's (backends/simt/matmul_packed.cuh). */
#include "backends/cuda/blas.h"
#include "backends/simt/matmul_records.cuh"

namespace {

typedef matmul_f8_g128 weights;

enum { LEAST_ROWS = 512, MOST_GROUPED = 8192, UNPACK_SUBGROUPS = 8, GROUP = 128 };

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

/* A subgroup a unit, 16 rows of a group. `by_row`: the first group's scales are all. */
__global__ void __launch_bounds__(UNPACK_SUBGROUPS * 32)
    unpack(const uint8_t *packed, int64_t n_rows, int64_t n_groups, bool by_row, uint8_t *codes,
           float *scales) {
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
  if (lane < 16 && !(by_row && group > 0)) { /* [g][2]: rows g and g + 8 */
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

/* The largest of 16 columns, infinite where one is NaN. */
__device__ __forceinline__ float load_chunk(const simt_rows &x, int64_t row, int chunk,
                                            float (&v)[16]) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float four[4];
    simt_load4(x.scheme, x.row(row), (int64_t)chunk * 16 + i * 4, four);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      v[i * 4 + j] = four[j];
      largest = fmaxf(largest, four[j] == four[j] ? fabsf(four[j]) : INFINITY);
    }
  }
  return largest;
}

/* What brings values up to `largest` to 448: two factors, lest an inverse overflow; and what undoes
 * it, NaN where the largest is infinite. */
struct rounding {
  float lift, inverse, scale;

  __device__ __forceinline__ explicit rounding(float largest) {
    lift = largest < 0x1p-60f ? 0x1p60f : 1.0f;
    inverse = largest > 0 ? 448.0f / (largest * lift) : 0.0f;
    scale = largest == INFINITY ? NAN : largest * lift / 448.0f / lift;
  }
};

/* `codes`: of the row. Half h of 32 columns: the words of lanes t, of each 4 columns the middle
 * ones exchanged. */
__device__ __forceinline__ void store_chunk(const rounding &r, const float (&v)[16], int chunk,
                                            uint8_t *codes) {
  uint8_t *to = codes + chunk / 2 * 32 + chunk % 2 * 4;
#pragma unroll
  for (int t = 0; t < 4; t++) {
    float of[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
      of[j] = v[4 * t + j] * r.lift * r.inverse;
    *(uint32_t *)(to + t * 8) = codes_of(of[0], of[2], of[1], of[3]);
  }
}

/* 16 columns a thread, 8 threads a group; a block takes some groups of a row. */
__global__ void __launch_bounds__(256)
    round_groups(const __grid_constant__ simt_rows x, int64_t n_groups, uint8_t *codes,
                 float *scales) {
  simt_begin();
  int64_t row = blockIdx.x;
  int chunk = (int)blockIdx.y * 256 + (int)threadIdx.x, lane = threadIdx.x % 32;
  if (chunk >= n_groups * 8) /* all lanes of a group are there or none is */
    return;
  float v[16], largest = load_chunk(x, row, chunk, v);
  uint32_t neighbours = 0xffu << lane / 8 * 8;
#pragma unroll
  for (int mask = 1; mask < 8; mask *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(neighbours, largest, mask));
  rounding r(largest);
  if (chunk % 8 == 0)
    scales[(chunk / 8) * x.n_rows + row] = r.scale;
  store_chunk(r, v, chunk, codes + row * n_groups * GROUP);
}

/* The same with a scale a row, which a block takes; what it reads again is near by then. */
__global__ void __launch_bounds__(256) round_rows(const __grid_constant__ simt_rows x,
                                                  int64_t n_groups, uint8_t *codes, float *scales) {
  simt_begin();
  __shared__ float shared[256 / SIMT_SUBGROUP];
  int64_t row = blockIdx.x;
  float v[16], largest = 0;
  for (int chunk = (int)threadIdx.x; chunk < n_groups * 8; chunk += 256)
    largest = fmaxf(largest, load_chunk(x, row, chunk, v));
  rounding r(simt_block_reduce(largest, shared, simt_max()));
  if (threadIdx.x == 0)
    scales[row] = r.scale;
  for (int chunk = (int)threadIdx.x; chunk < n_groups * 8; chunk += 256) {
    (void)load_chunk(x, row, chunk, v);
    store_chunk(r, v, chunk, codes + row * n_groups * GROUP);
  }
}

/* ---- Record ------------------------------------------------------------------------------------
 */

/* All but the addresses. */
cuda_product product_of(const iso_op_arguments *arguments, const layout &l, cuda_scaling scaling) {
  const iso_tensor &y = arguments->outputs[0];
  cuda_product p = {};
  p.m = l.m, p.n = l.n, p.k = l.k;
  p.scheme = ISO_SCHEME_BF16, p.y_scheme = y.scheme, p.scaling = scaling;
  p.x_stride = p.w_stride = l.k;
  p.y_stride = simt_rows_of(y).strides[0] / simt_float_bytes(y.scheme);
  return p;
}

/* Whether scales by row do: the weight's rows have one, and the library has the product. */
bool goes_by_row(const iso_device *device, const iso_op_arguments &op, const layout &l) {
  const iso_tensor &weight = op.inputs[1];
  cuda_product p = product_of(&op, l, CUDA_SCALED_ROWS);
  return weight.buffer && simt_is_noted(weight.buffer, weight.offset) && cuda_blas_has(device, &p);
}

/* Whether scales by group do: those of a group lie one after another, and the next group's must
 * begin at multiples of 64 bytes. Of long rows rounding, unpacking and the product take longer than
 * matmul_eight() (on an H200 300 us for the product alone of 2,048 rows by 4,096 x 14,336, beside
 * 314), which is left out of account while it is not known where the weight lies. */
bool goes_by_group(const iso_device *device, const iso_op_arguments &op, const layout &l) {
  cuda_product p = product_of(&op, l, CUDA_SCALED_GROUPS);
  return l.m % 16 == 0 && (l.k <= MOST_GROUPED || !op.inputs[1].buffer) &&
         cuda_blas_has(device, &p);
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
  if (n_rows < LEAST_ROWS || !is_plain) {
    *out_detail = "fewer than 512 rows, a bias, or rows of y that are no matrix";
    return ISO_REFUSED_SHAPE;
  }
  layout l = layout_of(arguments);
  if (!goes_by_row(device, *arguments, l) && !goes_by_group(device, *arguments, l)) {
    *out_detail = "scales of 128 columns and no multiple of 16 rows, or long rows, or no algorithm";
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

iso_status multiply_rounded(iso_queue *queue, const iso_op_arguments *arguments,
                            cuda_scaling scaling, const uint8_t *x, const float *x_scales) {
  layout l = layout_of(arguments);
  uint8_t *scratch = aligned(simt_workspace(arguments));
  cuda_product p = product_of(arguments, l, scaling);
  p.x = x, p.x_scales = x_scales;
  p.w = scratch + l.w_at, p.w_scales = (const float *)(scratch + l.w_scales_at);
  p.y = simt_address(arguments->outputs[0]);
  p.workspace = scratch + l.blas_at;
  int64_t units = matmul_count(l.n, 16) * l.groups;
  ISO_TRY(simt_launch_early(
      queue, "matmul.f8.unpack", unpack, dim3((unsigned)matmul_count(units, UNPACK_SUBGROUPS)),
      dim3(UNPACK_SUBGROUPS * 32), 0, simt_address(arguments->inputs[1]), l.n, l.groups,
      scaling == CUDA_SCALED_ROWS, scratch + l.w_at, (float *)(scratch + l.w_scales_at)));
  return cuda_blas_multiply(queue, &p);
}

/* Whether `b`'s workspace leaves the rounded x of `a` alone. */
bool shares_rows(const iso_op_arguments &a, const iso_op_arguments &b) {
  uint8_t *first = simt_workspace(&a), *second = simt_workspace(&b);
  layout of_a = layout_of(&a), of_b = layout_of(&b);
  return first == second || second + of_b.bytes <= first || aligned(first) + of_a.w_at <= second;
}

iso_status round(iso_queue *queue, const iso_op_arguments &op, const layout &l,
                 cuda_scaling scaling, uint8_t *codes, float *scales) {
  simt_rows x = simt_rows_of(op.inputs[0]);
  if (scaling == CUDA_SCALED_ROWS)
    return simt_launch_early(queue, "matmul.f8.round", round_rows, dim3((unsigned)l.m), dim3(256),
                             0, x, l.groups, codes, scales);
  return simt_launch_early(queue, "matmul.f8.round", round_groups,
                           dim3((unsigned)l.m, (unsigned)matmul_count(l.groups * 8, 256)),
                           dim3(256), 0, x, l.groups, codes, scales);
}

iso_status multiply(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  const iso_op_arguments *owner = nullptr; /* whose workspace holds the rounded x */
  cuda_scaling scaling = CUDA_UNSCALED;
  uint8_t *x = nullptr;
  float *scales = nullptr;
  for (uint32_t i = 0; i < count; i++) {
    const iso_op_arguments &op = ops[i].arguments;
    layout l = layout_of(&op);
    if (l.m == 0 || l.n == 0)
      continue;
    cuda_scaling wanted = goes_by_row(queue->device, op, l) ? CUDA_SCALED_ROWS : CUDA_SCALED_GROUPS;
    if (!x || wanted != scaling || !shares_rows(*owner, op)) {
      owner = &op, scaling = wanted;
      x = aligned(simt_workspace(&op));
      scales = (float *)(x + l.x_scales_at);
      ISO_TRY(round(queue, op, l, scaling, x, scales));
    }
    ISO_TRY(multiply_rounded(queue, &op, scaling, x, scales));
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
