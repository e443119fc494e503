/* Many rows rounded to E4M3 times E4M3 weights in groups of 128, through cuBLASLt.
 *
 * The codes of packed weights are written as rows, with their scales beside them: for each product,
 * or, of weights whose rows have one scale, once, where the device has room for both forms. Rows of
 * x are rounded, with a scale for 128 columns, or one a row where the weight's rows have
 * one, which cuBLASLt multiplies a quarter faster. The columns of each 32 stay in the order in
 * which packed weights have them, since a sum does not mind: those of lane t of four, 8 bytes, one
 * lane's after another's (backends/simt/matmul_packed.cuh). */
#include "backends/cuda/blas.h"
#include "backends/simt/elementwise.cuh"
#include "backends/simt/matmul_records.cuh"
#include "backends/simt/rounding.cuh"

namespace {

typedef matmul_f8_g128 weights;

enum { LEAST_ROWS = 512, MOST_GROUPED = 8192, UNPACK_SUBGROUPS = 8, GROUP = 128 };

uint64_t rounded(uint64_t bytes) { return (bytes + 1023) / 1024 * 1024; }

/* Where parts lie in the workspace; x first, so that it is in the same place for all products. */
struct layout {
  int64_t m, n, k, groups;
  uint64_t x_scales_at, w_at, blas_at, bytes;
};

layout layout_of(const iso_op_arguments *arguments) {
  layout l = {};
  l.m = matmul_rows(arguments);
  l.n = arguments->inputs[1].dims[0], l.k = arguments->inputs[1].dims[1];
  l.groups = l.k / GROUP;
  l.x_scales_at = rounded((uint64_t)(l.m * l.k));
  l.w_at = l.x_scales_at + rounded((uint64_t)(l.m * l.groups) * 4);
  l.blas_at = l.w_at + rounded((uint64_t)(l.n * l.k)) + rounded((uint64_t)(l.n * l.groups) * 4);
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
      largest = fmaxf(largest, simt_magnitude(four[j]));
    }
  }
  return largest;
}

/* `codes`: of the row. Half h of 32 columns: the words of lanes t, of each 4 columns the middle
 * ones exchanged. */
__device__ __forceinline__ void store_chunk(const simt_code_scale &r, const float (&v)[16],
                                            int chunk, uint8_t *codes) {
  uint8_t *to = codes + chunk / 2 * 32 + chunk % 2 * 4;
#pragma unroll
  for (int t = 0; t < 4; t++) {
    float of[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
      of[j] = v[4 * t + j] * r.lift * r.inverse;
    *(uint32_t *)(to + t * 8) = simt_e4m3_word(of[0], of[2], of[1], of[3]);
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
  simt_code_scale r(largest, SIMT_E4M3_MOST);
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
  simt_code_scale r(simt_block_reduce(largest, shared, simt_max()), SIMT_E4M3_MOST);
  if (threadIdx.x == 0)
    scales[row] = r.scale;
  for (int chunk = (int)threadIdx.x; chunk < n_groups * 8; chunk += 256) {
    (void)load_chunk(x, row, chunk, v);
    store_chunk(r, v, chunk, codes + row * n_groups * GROUP);
  }
}

/* A glu, whose row a block takes, and its rounding by row: what the product after it begins with.
 */
enum { GLU_CHUNKS = 4, GLU_COLUMNS = GLU_CHUNKS * 256 * 16 };

__global__ void __launch_bounds__(256)
    glu_rounded(uint32_t activation, const __grid_constant__ simt_rows gate,
                const __grid_constant__ simt_rows up, const __grid_constant__ simt_rows y,
                uint8_t *codes, float *scales) {
  simt_begin();
  __shared__ float shared[256 / SIMT_SUBGROUP];
  int64_t row = blockIdx.x;
  const uint8_t *gate_row = gate.row(row), *up_row = up.row(row);
  uint8_t *y_row = y.row(row);
  uint4 stored[GLU_CHUNKS][2];
  float largest = 0;
#pragma unroll
  for (int c = 0; c < GLU_CHUNKS; c++) {
    int64_t column = ((int64_t)c * 256 + (int)threadIdx.x) * 16;
    if (column >= y.n_columns)
      break;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float a[8], b[8];
      simt_load8(gate.scheme, gate_row, column + h * 8, a);
      simt_load8(up.scheme, up_row, column + h * 8, b);
#pragma unroll
      for (int j = 0; j < 8; j++)
        a[j] = simt_activation(activation, a[j]) * b[j];
      simt_store8(y.scheme, &stored[c][h], 0, a);
      *(uint4 *)(y_row + (column + h * 8) * 2) = stored[c][h];
      simt_load8(y.scheme, &stored[c][h], 0, a);
#pragma unroll
      for (int j = 0; j < 8; j++)
        largest = fmaxf(largest, a[j] == a[j] ? fabsf(a[j]) : INFINITY);
    }
  }
  simt_code_scale r(simt_block_reduce(largest, shared, simt_max()), SIMT_E4M3_MOST);
  if (threadIdx.x == 0)
    scales[row] = r.scale;
#pragma unroll
  for (int c = 0; c < GLU_CHUNKS; c++) {
    int chunk = c * 256 + (int)threadIdx.x;
    if ((int64_t)chunk * 16 >= y.n_columns)
      break;
    float v[16];
    simt_load8(y.scheme, &stored[c][0], 0, *(float(*)[8])v);
    simt_load8(y.scheme, &stored[c][1], 0, *(float(*)[8])(v + 8));
    store_chunk(r, v, chunk, codes + row * y.n_columns);
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
  iso_refusal refusal = matmul_check_rounding(arguments, out_detail);
  if (refusal == ISO_ACCEPTED)
    refusal = matmul_check_rows(device, arguments, out_detail);
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

/* ---- Weights -----------------------------------------------------------------------------------
 */

/* Rows of codes and their scales. */
struct weight_rows {
  uint8_t *codes;
  float *scales;
};

iso_status launch_unpack(iso_queue *queue, const iso_op_arguments &op, const layout &l,
                         cuda_scaling scaling, const weight_rows &to) {
  int64_t units = matmul_count(l.n, 16) * l.groups;
  return simt_launch_early(queue, "matmul.f8.unpack", unpack,
                           dim3((unsigned)matmul_count(units, UNPACK_SUBGROUPS)),
                           dim3(UNPACK_SUBGROUPS * 32), 0, simt_address(op.inputs[1]), l.n,
                           l.groups, scaling == CUDA_SCALED_ROWS, to.codes, to.scales);
}

weight_rows rows_in(uint8_t *bytes, const layout &l) {
  return weight_rows{bytes, (float *)(bytes + rounded((uint64_t)(l.n * l.k)))};
}

/* Memory for a form of a weight that leaves a quarter of the device's free; NULL where there is not
 * so much, and nobody asks again, since asking takes the driver a while. */
uint8_t *room_for_rows(iso_device *device, size_t bytes) {
  size_t free_bytes = 0, all_bytes = 0;
  uint8_t *made = nullptr;
  if (__atomic_load_n(&device->is_full, __ATOMIC_RELAXED))
    return nullptr;
  if (cudaMemGetInfo(&free_bytes, &all_bytes) != cudaSuccess ||
      free_bytes < bytes + all_bytes / 4 || cudaMalloc((void **)&made, bytes) != cudaSuccess) {
    __atomic_store_n(&device->is_full, true, __ATOMIC_RELAXED);
    (void)cudaGetLastError();
    return nullptr;
  }
  return made;
}

/* Rows that stay, of a weight whose rows have one scale; made at its first product outside a
 * recording, where there is room. No codes: there are none. */
iso_status find_rows(iso_queue *queue, const iso_op_arguments &op, const layout &l,
                     weight_rows *out_rows) {
  const iso_tensor &weight = op.inputs[1];
  uint8_t *form = cuda_find_form(weight.buffer, weight.offset), *made = nullptr;
  *out_rows = weight_rows{};
  if (!form && !queue->recording)
    made = room_for_rows(queue->device, rounded((uint64_t)(l.n * l.k)) + (size_t)l.n * 4);
  if (made) {
    iso_status status = launch_unpack(queue, op, l, CUDA_SCALED_ROWS, rows_in(made, l));
    cudaError_t error = cudaStreamSynchronize(queue->stream); /* other queues may use them, too */
    if (status != ISO_OK || error != cudaSuccess ||
        !cuda_keep_form(weight.buffer, weight.offset, made))
      (void)cudaFree(made);
    ISO_TRY(status);
    CUDA_TRY(error);
    form = cuda_find_form(weight.buffer, weight.offset);
  }
  if (form)
    *out_rows = rows_in(form, l);
  return ISO_OK;
}

iso_status multiply_rounded(iso_queue *queue, const iso_op_arguments *arguments,
                            cuda_scaling scaling, const uint8_t *x, const float *x_scales) {
  layout l = layout_of(arguments);
  uint8_t *scratch = aligned(simt_workspace(arguments));
  weight_rows rows = {};
  if (scaling == CUDA_SCALED_ROWS)
    ISO_TRY(find_rows(queue, *arguments, l, &rows));
  if (!rows.codes) {
    rows = rows_in(scratch + l.w_at, l);
    ISO_TRY(launch_unpack(queue, *arguments, l, scaling, rows));
  }
  cuda_product p = product_of(arguments, l, scaling);
  p.x = x, p.x_scales = x_scales;
  p.w = rows.codes, p.w_scales = rows.scales;
  p.y = simt_address(arguments->outputs[0]);
  p.workspace = scratch + l.blas_at;
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

/* Whether the kernel before has rounded x already, and not to where this product has its scratch.
 */
bool is_rounded(const iso_queue *queue, const iso_op_arguments &op, const layout &l) {
  const cuda_rounded &r = queue->rounded;
  const uint8_t *scratch = simt_workspace(&op), *end = (const uint8_t *)(r.scales + l.m);
  return r.codes && !r.in_groups && r.n_enqueued == queue->n_enqueued &&
         simt_is_same(&r.x, &op.inputs[0]) && (end <= scratch || scratch + l.bytes <= r.codes);
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
    if (count == 1 && wanted == CUDA_SCALED_ROWS && is_rounded(queue, op, l))
      return multiply_rounded(queue, &op, wanted, queue->rounded.codes, queue->rounded.scales);
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

/* The glu of a group. Where the weight of the last product has rows of its own, so that nothing
 * lies in that product's scratch where they would be, codes of the glu's result do: those of the
 * next product, most likely, before which scratch is not lent again (core/plan_memory.c). */
iso_status run_glu(iso_queue *queue, const simt_deferred_op &glu, const iso_op_arguments &last) {
  const iso_tensor &y = glu.arguments.outputs[0];
  simt_rows to = simt_rows_of(y), gate = simt_rows_of(glu.arguments.inputs[0]);
  simt_rows up = simt_rows_of(glu.arguments.inputs[1]);
  layout l = layout_of(&last);
  uint64_t code_bytes = rounded((uint64_t)(l.m * l.n));
  bool fits = goes_by_row(queue->device, last, l) &&
              cuda_find_form(last.inputs[1].buffer, last.inputs[1].offset) && l.m > 0 &&
              l.n % GROUP == 0 && l.n <= GLU_COLUMNS && to.scheme != ISO_SCHEME_F32 &&
              simt_is_aligned(to, 16) && simt_is_aligned(gate, 16) && simt_is_aligned(up, 16) &&
              code_bytes + (uint64_t)l.m * 4 <= l.blas_at - l.w_at;
  if (!fits)
    return simt_launch_deferred(queue, glu);
  uint8_t *codes = aligned(simt_workspace(&last)) + l.w_at;
  float *scales = (float *)(codes + code_bytes);
  auto *attributes = (const iso_glu_attributes *)glu.attributes;
  ISO_TRY(simt_launch_early(queue, "glu.f8", glu_rounded, dim3((unsigned)l.m), dim3(256), 0,
                            attributes->activation, gate, up, to, codes, scales));
  queue->rounded = cuda_rounded{y, codes, scales, false, queue->n_enqueued};
  return ISO_OK;
}

/* As of matmul_eight.cu. */
iso_status run_group(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  uint32_t begin = ops[0].arguments.op == ISO_OP_ADD ? 2 : 0;
  uint32_t end = ops[count - 1].arguments.op == ISO_OP_GLU ? count - 1 : count;
  if (begin > 0)
    ISO_TRY(simt_add_rms_norm(queue, ops, begin));
  ISO_TRY(multiply(queue, ops + begin, end - begin));
  return end < count ? run_glu(queue, ops[end], ops[end - 1].arguments) : ISO_OK;
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
