/* The plain products: every weight scheme, any float rows, f32 sums. For few rows a subgroup makes
 * one output feature of all of them; for many, a block makes a tile of 64 x 64 with weights decoded
 * into shared memory. Faster records for some schemes and sizes are in matmul_*.cu. */
#include "backends/simt/decode.cuh"
#include "backends/simt/matmul.h"

namespace {

struct product {
  simt_rows x, y;
  const uint8_t *weight;
  const float *bias; /* NULL: none */
  int64_t row_bytes; /* of the weight */
  int64_t n_in, n_out;
  /* grouped_matmul: */
  const int32_t *experts; /* [T, C]; NULL: matmul */
  int64_t expert_bytes;
  int32_t n_experts, n_choices, rows_of_x; /* J of ops.def */
};

__device__ inline void load8(const simt_rows &rows, const uint8_t *row, int64_t i, bool aligned,
                             float *out) {
  if (aligned) {
    simt_load4(rows.scheme, row, i, out);
    simt_load4(rows.scheme, row, i + 4, out + 4);
  } else {
#pragma unroll
    for (int j = 0; j < 8; j++)
      out[j] = simt_load(rows.scheme, row, i + j);
  }
}

/* ---- Few rows -------------------------------------------------------------------------------------- */

enum { FEATURES = 4 }; /* subgroups, and so output features, of a block */

/* Rows first .. first + ROWS - 1, those below n_rows. */
template <int SCHEME, int ROWS>
__device__ void dot_rows(const product &p, const uint8_t *weight, int64_t feature,
                         const uint8_t *const *x, uint8_t *const *y, int n_rows, bool aligned) {
  int lane = (int)threadIdx.x % SIMT_SUBGROUP;
  float sums[ROWS] = {};
  int64_t groups = p.n_in / 8;
  for (int64_t g = lane; g < groups; g += SIMT_SUBGROUP) {
    float w[8];
    simt_decode_group<SCHEME>(weight, g, w);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (r >= n_rows)
        break;
      float v[8];
      load8(p.x, x[r], g * 8, aligned, v);
#pragma unroll
      for (int i = 0; i < 8; i++)
        sums[r] += v[i] * w[i];
    }
  }
  if constexpr (simt_codec<SCHEME>::elements == 8) { /* plain floats may have a tail */
    for (int64_t i = groups * 8 + lane; i < p.n_in; i += SIMT_SUBGROUP) {
      float w = simt_load((iso_scheme)SCHEME, weight, i);
      for (int r = 0; r < ROWS; r++)
        if (r < n_rows)
          sums[r] += simt_load(p.x.scheme, x[r], i) * w;
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    float sum = simt_subgroup_reduce(sums[r], simt_sum());
    if (lane == 0 && r < n_rows)
      simt_store(p.y.scheme, y[r], feature, sum + (p.bias ? p.bias[feature] : 0.0f));
  }
}

template <int SCHEME, int ROWS> __global__ void few_rows(product p, bool aligned) {
  simt_begin();
  int64_t feature = (int64_t)blockIdx.x * FEATURES + threadIdx.x / SIMT_SUBGROUP;
  if (feature >= p.n_out)
    return;
  const uint8_t *x[ROWS];
  uint8_t *y[ROWS];
  int64_t first = (int64_t)blockIdx.y * ROWS;
  int n_rows = p.y.n_rows - first < ROWS ? (int)(p.y.n_rows - first) : ROWS;
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    x[r] = p.x.row(r < n_rows ? first + r : first);
    y[r] = p.y.row(r < n_rows ? first + r : first);
  }
  dot_rows<SCHEME, ROWS>(p, p.weight + feature * p.row_bytes, feature, x, y, n_rows, aligned);
}

/* One (token, choice) a block; an expert out of range gives NaN. */
template <int SCHEME> __global__ void grouped(product p, bool aligned) {
  simt_begin();
  int64_t feature = (int64_t)blockIdx.x * FEATURES + threadIdx.x / SIMT_SUBGROUP;
  if (feature >= p.n_out)
    return;
  for (int64_t row = blockIdx.y; row < p.y.n_rows; row += gridDim.y) {
    int64_t token = row / p.n_choices;
    int32_t expert = p.experts[row];
    uint8_t *y[1] = {p.y.row(row)};
    if (expert < 0 || expert >= p.n_experts) {
      simt_store(p.y.scheme, y[0], feature, NAN);
      continue;
    }
    const uint8_t *x[1] = {p.x.row(p.rows_of_x == 1 ? token : row)};
    dot_rows<SCHEME, 1>(p, p.weight + expert * p.expert_bytes + feature * p.row_bytes, feature, x,
                        y, 1, aligned);
  }
}

/* ---- Many rows -------------------------------------------------------------------------------------- */

enum { TILE = 64, DEPTH = 32, STRIDE = TILE + 4 };

/* Puts columns [k, k + 8) of one row into column `place` of a tile; zeros beyond the row. */
__device__ inline void put8(float *tile, int k, int place, const float *values) {
#pragma unroll
  for (int i = 0; i < 8; i++)
    tile[(k + i) * STRIDE + place] = values[i];
}

template <int SCHEME> __global__ void __launch_bounds__(256) many_rows(product p, bool aligned) {
  simt_begin();
  __shared__ float xs[DEPTH * STRIDE], ws[DEPTH * STRIDE];
  int place = (int)threadIdx.x % TILE, k8 = (int)threadIdx.x / TILE * 8; /* of loading */
  int m0 = (int)threadIdx.x / 16 * 4, n0 = (int)threadIdx.x % 16 * 4;    /* of summing */
  int64_t first_m = (int64_t)blockIdx.y * TILE, first_n = (int64_t)blockIdx.x * TILE;
  int64_t m = first_m + place, n = first_n + place;
  const uint8_t *x = m < p.y.n_rows ? p.x.row(m) : nullptr;
  const uint8_t *w = n < p.n_out ? p.weight + n * p.row_bytes : nullptr;
  float sums[4][4] = {};
  for (int64_t k = 0; k < p.n_in; k += DEPTH) {
    float xv[8] = {}, wv[8] = {};
    int64_t at = k + k8;
    if (at + 8 <= p.n_in) {
      if (x)
        load8(p.x, x, at, aligned, xv);
      if (w)
        simt_decode_group<SCHEME>(w, at / 8, wv);
    } else if constexpr (simt_codec<SCHEME>::elements == 8) {
      for (int i = 0; at + i < p.n_in; i++) {
        xv[i] = x ? simt_load(p.x.scheme, x, at + i) : 0.0f;
        wv[i] = w ? simt_load((iso_scheme)SCHEME, w, at + i) : 0.0f;
      }
    }
    __syncthreads();
    put8(xs, k8, place, xv);
    put8(ws, k8, place, wv);
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < DEPTH; i++) {
      float4 a = *(const float4 *)&xs[i * STRIDE + m0], b = *(const float4 *)&ws[i * STRIDE + n0];
      float av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++)
          sums[r][c] += av[r] * bv[c];
    }
  }
  for (int r = 0; r < 4; r++) {
    int64_t row = first_m + m0 + r;
    if (row >= p.y.n_rows)
      break;
    uint8_t *y = p.y.row(row);
    for (int c = 0; c < 4; c++) {
      int64_t column = first_n + n0 + c;
      if (column < p.n_out)
        simt_store(p.y.scheme, y, column, sums[r][c] + (p.bias ? p.bias[column] : 0.0f));
    }
  }
}

/* ---- Launching --------------------------------------------------------------------------------------- */

enum { FEW = 16 }; /* the most rows that go by eights through few_rows */

template <int SCHEME> iso_status run(iso_queue *queue, const product &p, bool aligned) {
  int64_t n_rows = p.y.n_rows;
  dim3 block(FEATURES * SIMT_SUBGROUP);
  unsigned features = (unsigned)((p.n_out + FEATURES - 1) / FEATURES);
  if (p.experts)
    return simt_launch_early(queue, "grouped_matmul", grouped<SCHEME>,
                       dim3(features, (unsigned)(n_rows < 65535 ? n_rows : 65535)), block, 0, p,
                       aligned);
  if (n_rows == 1)
    return simt_launch_early(queue, "matmul", few_rows<SCHEME, 1>, dim3(features), block, 0, p, aligned);
  if (n_rows <= FEW)
    return simt_launch_early(queue, "matmul", few_rows<SCHEME, 8>,
                       dim3(features, (unsigned)((n_rows + 7) / 8)), block, 0, p, aligned);
  dim3 grid((unsigned)((p.n_out + TILE - 1) / TILE), (unsigned)((n_rows + TILE - 1) / TILE));
  if (grid.y > 65535)
    return simt_fail_size("matmul");
  return simt_launch_early(queue, "matmul", many_rows<SCHEME>, grid, dim3(256), 0, p, aligned);
}

iso_status launch_product(iso_queue *queue, const iso_op_arguments *arguments, product p) {
  const iso_tensor &weight = arguments->inputs[1];
  p.x = simt_rows_of(arguments->inputs[0]);
  p.y = simt_rows_of(arguments->outputs[0]);
  p.weight = simt_address(weight);
  p.row_bytes = weight.strides[weight.n_dims - 2];
  p.n_in = weight.dims[weight.n_dims - 1];
  p.n_out = weight.dims[weight.n_dims - 2];
  if (p.y.n_rows == 0)
    return ISO_OK;
  bool aligned = simt_is_aligned(p.x, 16);
  switch (weight.scheme) {
#define CASE(NAME)                                                                                 \
  case ISO_SCHEME_##NAME:                                                                          \
    return run<ISO_SCHEME_##NAME>(queue, p, aligned);
    SIMT_WEIGHTS(CASE)
#undef CASE
  default:
    return simt_fail_size("matmul: an unknown scheme");
  }
}

iso_status launch_grouped(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor &weight = arguments->inputs[1], &experts = arguments->inputs[2];
  product p = {};
  p.experts = (const int32_t *)simt_address(experts);
  p.expert_bytes = weight.strides[0];
  p.n_experts = (int32_t)weight.dims[0];
  p.n_choices = (int32_t)experts.dims[1];
  p.rows_of_x = (int32_t)arguments->inputs[0].dims[1];
  return launch_product(queue, arguments, p);
}

} /* namespace */

iso_status simt_matmul_plain(iso_queue *queue, const iso_op_arguments *arguments) {
  product p = {};
  p.bias = (const float *)simt_address(arguments->inputs[2]);
  return launch_product(queue, arguments, p);
}

static const iso_kernel records[] = {
    {.size = sizeof(iso_kernel), .op = ISO_OP_MATMUL, .name = "matmul.simt",
     .schemes = SIMT_WEIGHT_SCHEMES, .activations = SIMT_FLOATS, .layout = ISO_LAYOUT_PLAIN,
     .rank = 0, .launch = simt_matmul_plain},
    {.size = sizeof(iso_kernel), .op = ISO_OP_GROUPED_MATMUL, .name = "grouped_matmul.simt",
     .schemes = SIMT_WEIGHT_SCHEMES, .activations = SIMT_FLOATS, .layout = ISO_LAYOUT_PLAIN,
     .rank = 0, .launch = launch_grouped},
};

SIMT_EXPORT_KERNELS(matmul, records)
