/* Products of many rows by plain float weights, through cuBLASLt.
 *
 * Rows of the weight's own type go straight in. Others are first written as that type: in two
 * planes (the value rounded, and what rounding left), so that f32 rows keep their precision; for
 * f16 weights each row is scaled by a power of two, so that no value leaves the type's range.
 * Planes are multiplied one after the other into the same f32 sums. A last pass undoes the scale,
 * adds the bias and rounds, where there is any of that to do. */
#include "backends/cuda/dense.h"
#include "backends/cuda/blas.h"
#include "backends/cuda/hopper/matmul_rows.h"
#include "backends/simt/matmul.h"
#include "backends/simt/simt.cuh"

namespace {

enum { LEAST_ROWS = 17, THREADS = 256 };

/* How one product goes, and where its parts lie in the workspace. */
struct route {
  simt_rows x, y;
  iso_scheme scheme; /* of the weight */
  int64_t m, n, k;
  bool direct_x; /* x is of the weight's scheme and has one stride */
  bool direct_y; /* sums go straight to y */
  bool finish;   /* y, or the sums, need the last pass */
  int n_planes;
  uint64_t planes_at, scales_at, sums_at, bytes;
};

uint64_t rounded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

bool has_one_stride(const simt_rows &rows) {
  return rows.n_dims == 1 && (rows.n_rows <= 1 || rows.strides[0] % 16 == 0);
}

route plan_route(const iso_op_arguments *arguments) {
  const iso_tensor &weight = arguments->inputs[1];
  route r = {};
  r.x = simt_rows_of(arguments->inputs[0]);
  r.y = simt_rows_of(arguments->outputs[0]);
  r.scheme = weight.scheme;
  r.m = r.y.n_rows, r.n = weight.dims[0], r.k = weight.dims[1];
  bool has_bias = arguments->inputs[2].n_dims > 0;
  r.direct_x = r.x.scheme == r.scheme && has_one_stride(r.x);
  bool scaled = !r.direct_x && r.scheme == ISO_SCHEME_F16;
  bool plain = r.direct_x && !has_bias && r.y.scheme == r.scheme;
  r.direct_y = has_one_stride(r.y) && (plain || r.y.scheme == ISO_SCHEME_F32);
  r.finish = has_bias || scaled || !r.direct_y;
  bool exact = r.scheme == ISO_SCHEME_F32 || r.x.scheme == r.scheme ||
               (r.scheme == ISO_SCHEME_F16 && r.x.scheme == ISO_SCHEME_BF16);
  r.n_planes = exact ? 1 : 2;
  r.planes_at = CUDA_BLAS_WORKSPACE;
  uint64_t plane = rounded((uint64_t)(r.m * r.k * simt_float_bytes(r.scheme)));
  r.scales_at = r.planes_at + (r.direct_x ? 0 : (uint64_t)r.n_planes * plane);
  r.sums_at = r.scales_at + (r.direct_x ? 0 : rounded((uint64_t)r.m * 4));
  r.bytes = r.sums_at + (r.direct_y ? 0 : rounded((uint64_t)r.m * (uint64_t)r.n * 4));
  return r;
}

/* All but addresses. */
cuda_product product_of(const route &r) {
  cuda_product product = {};
  product.m = r.m, product.n = r.n, product.k = r.k;
  product.scheme = r.scheme;
  product.w_stride = r.k;
  product.x_stride = r.direct_x && r.m > 1 ? r.x.strides[0] / simt_float_bytes(r.scheme) : r.k;
  product.y_scheme = r.direct_y ? r.y.scheme : ISO_SCHEME_F32;
  product.y_stride = r.direct_y && r.m > 1 ? r.y.strides[0] / simt_float_bytes(r.y.scheme) : r.n;
  return product;
}

/* ---- Before and after ------------------------------------------------------------------------ */

struct preparation {
  simt_rows x;
  iso_scheme scheme;
  uint8_t *planes[2];
  float *scales;
  int n_planes;
};

/* A row a block. */
__global__ void __launch_bounds__(THREADS) prepare(preparation p) {
  simt_begin();
  __shared__ float shared[THREADS / SIMT_SUBGROUP];
  const uint8_t *x = p.x.row(blockIdx.x);
  int64_t n = p.x.n_columns, first = blockIdx.x * n;
  float scale = 1;
  if (p.scheme == ISO_SCHEME_F16) {
    float largest = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
      largest = fmaxf(largest, fabsf(simt_load(p.x.scheme, x, i)));
    largest = simt_block_reduce(largest, shared, simt_max());
    int exponent = 0;
    if (largest > 0 && largest <= 3.402823466e+38f)
      (void)frexpf(largest, &exponent);
    exponent = min(max(exponent, -100), 100);
    scale = ldexpf(1.0f, 14 - exponent);
    if (threadIdx.x == 0)
      p.scales[blockIdx.x] = ldexpf(1.0f, exponent - 14);
  } else if (threadIdx.x == 0) {
    p.scales[blockIdx.x] = 1;
  }
  for (int64_t i = threadIdx.x; i < n; i += THREADS) {
    float value = simt_load(p.x.scheme, x, i) * scale;
    simt_store(p.scheme, p.planes[0], first + i, value);
    if (p.n_planes == 2) {
      float rest = value - simt_load(p.scheme, p.planes[0], first + i);
      simt_store(p.scheme, p.planes[1], first + i, rest == rest ? rest : 0.0f);
    }
  }
}

struct finishing {
  simt_rows y;
  const uint8_t *sums;        /* f32 */
  int64_t sums_stride;        /* bytes */
  const float *bias, *scales; /* NULL: none */
  bool wide_y;                /* rows that can be written 8 values at a time */
};

/* 8 values a thread; sizes are multiples of 8. */
__global__ void __launch_bounds__(THREADS) finish(finishing f) {
  simt_begin();
  int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 8;
  if (i >= f.y.n_columns)
    return;
  float bias[8] = {};
#pragma unroll
  for (int j = 0; j < 8; j++)
    if (f.bias)
      bias[j] = f.bias[i + j];
  for (int64_t row = blockIdx.y; row < f.y.n_rows; row += gridDim.y) {
    float v[8], scale = f.scales ? f.scales[row] : 1.0f;
    simt_load8(ISO_SCHEME_F32, f.sums + row * f.sums_stride, i, v);
#pragma unroll
    for (int j = 0; j < 8; j++)
      v[j] = v[j] * scale + bias[j];
    uint8_t *y = f.y.row(row);
    if (f.wide_y)
      simt_store8(f.y.scheme, y, i, v);
    else
#pragma unroll
      for (int j = 0; j < 8; j++)
        simt_store(f.y.scheme, y, i + j, v[j]);
  }
}

/* ---- Record ---------------------------------------------------------------------------------- */

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  if (!device || !device->blas) {
    *out_detail = "cuBLASLt is not installed";
    return ISO_REFUSED_DEVICE;
  }
  int64_t rows = 1;
  const iso_tensor &x = arguments->inputs[0];
  for (uint32_t d = 0; d + 1 < x.n_dims; d++)
    rows *= x.dims[d];
  if (rows < LEAST_ROWS) {
    *out_detail = "fewer than 17 rows";
    return ISO_REFUSED_SIZE;
  }
  const iso_tensor &weight = arguments->inputs[1];
  if (weight.dims[0] % 8 != 0 || weight.dims[1] % 8 != 0) {
    *out_detail = "sizes that are no multiples of 8";
    return ISO_REFUSED_SHAPE;
  }
  /* From 8.0 on it has all of them. */
  cuda_product product = product_of(plan_route(arguments));
  if (device->generation < 80 && !cuda_blas_has(device, &product)) {
    *out_detail = "cuBLASLt has no such product for this card";
    return ISO_REFUSED_DEVICE;
  }
  return ISO_ACCEPTED;
}

uint64_t workspace(const iso_device *, const iso_op_arguments *arguments) {
  return plan_route(arguments).bytes;
}

bool is_aligned(const void *address) { return ((uintptr_t)address & 15) == 0; }

iso_status run(iso_queue *queue, const iso_op_arguments *arguments) {
  route r = plan_route(arguments);
  uint8_t *scratch = simt_workspace(arguments);
  const uint8_t *weight = simt_address(arguments->inputs[1]);
  if (r.m == 0)
    return ISO_OK;
  /* Views may start anywhere. */
  if (!is_aligned(weight) || (r.direct_x && !is_aligned(r.x.data)) ||
      (r.direct_y && !is_aligned(r.y.data)))
    return simt_matmul_plain(queue, arguments);
  uint64_t plane = rounded((uint64_t)(r.m * r.k * simt_float_bytes(r.scheme)));
  preparation p = {r.x,
                   r.scheme,
                   {scratch + r.planes_at, scratch + r.planes_at + plane},
                   (float *)(scratch + r.scales_at),
                   r.n_planes};
  if (!r.direct_x)
    ISO_TRY(simt_launch_early(queue, "matmul: rows to the weight's type", prepare,
                              dim3((unsigned)r.m), dim3(THREADS), 0, p));
  cuda_product product = product_of(r);
  product.w = weight;
  product.y = r.direct_y ? r.y.data : scratch + r.sums_at;
  product.workspace = scratch;
  for (int i = 0; i < r.n_planes; i++) {
    product.x = r.direct_x ? r.x.data : p.planes[i];
    product.accumulate = i > 0;
    ISO_TRY(cuda_blas_multiply(queue, &product));
  }
  if (!r.finish)
    return ISO_OK;
  finishing f = {r.y,
                 (const uint8_t *)product.y,
                 product.y_stride * simt_float_bytes(product.y_scheme),
                 (const float *)simt_address(arguments->inputs[2]),
                 r.direct_x ? nullptr : p.scales,
                 simt_is_aligned(r.y, 16)};
  dim3 grid((unsigned)((r.n + THREADS * 8 - 1) / (THREADS * 8)),
            (unsigned)(r.m < 65535 ? r.m : 65535));
  return simt_launch_early(queue, "matmul: bias and rounding", finish, grid, dim3(THREADS), 0, f);
}

/* What fusion.h finds around products of the same rows. */
iso_status run_group(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  uint32_t begin = ops[0].arguments.op == ISO_OP_ADD ? 2 : 0;
  uint32_t end = ops[count - 1].arguments.op == ISO_OP_GLU ? count - 1 : count;
  if (begin > 0)
    ISO_TRY(simt_add_rms_norm(queue, ops, begin));
  ISO_TRY(cuda_rows_take(queue->device, ops + begin, end - begin)
              ? cuda_rows_launch(queue, ops + begin, end - begin)
              : simt_launch_beside(queue, ops + begin, end - begin));
  return end < count ? simt_launch_deferred(queue, ops[end]) : ISO_OK;
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run, run_group);
}

const iso_kernel records[] = {{.size = sizeof(iso_kernel),
                               .op = ISO_OP_MATMUL,
                               .name = "matmul.float.cublaslt",
                               .schemes = SIMT_FLOATS,
                               .activations = SIMT_FLOATS,
                               .layout = ISO_LAYOUT_PLAIN,
                               .rank = 20,
                               .check = check,
                               .workspace = workspace,
                               .launch = launch}};

} /* namespace */

uint64_t cuda_dense_workspace(const iso_op_arguments *arguments) {
  return workspace(nullptr, arguments);
}

iso_status cuda_dense_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return run(queue, arguments);
}

SIMT_EXPORT_KERNELS(dense, records)
