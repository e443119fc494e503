/* Ops that normalise a row: rms_norm, layer_norm, softmax. A block takes a row; it reads the row
 * once for each sum and once to write, from cache after the first time. */
#include "backends/simt/rounding.cuh"

namespace {

enum { MOST_THREADS = 1024, MOST_SUBGROUPS = MOST_THREADS / SIMT_SUBGROUP, VECTOR_THREADS = 512 };

struct operands {
  simt_rows x, y;
  const float *weight, *bias; /* bias NULL: none */
  float epsilon, weight_offset;
  bool by_four;
  simt_rounded_rows rounded;
};

/* Calls f(column, value) for this thread's columns of a row. */
template <typename F> __device__ void each(const operands &o, const uint8_t *x, F f) {
  int n = (int)o.x.n_columns;
  if (o.by_four) {
    for (int i = (int)threadIdx.x * 4; i < n; i += (int)blockDim.x * 4) {
      float v[4];
      simt_load4(o.x.scheme, x, i, v);
      for (int j = 0; j < 4; j++)
        f(i + j, v[j]);
    }
  } else {
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
      f(i, simt_load(o.x.scheme, x, i));
  }
}
/* Writes f(column, value) for this thread's columns. */
template <typename F>
__device__ void each_stored(const operands &o, const uint8_t *x, uint8_t *y, F f) {
  int n = (int)o.x.n_columns;
  if (o.by_four) {
    for (int i = (int)threadIdx.x * 4; i < n; i += (int)blockDim.x * 4) {
      float v[4];
      simt_load4(o.x.scheme, x, i, v);
      for (int j = 0; j < 4; j++)
        v[j] = f(i + j, v[j]);
      simt_store4(o.y.scheme, y, i, v);
    }
  } else {
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
      simt_store(o.y.scheme, y, i, f(i, simt_load(o.x.scheme, x, i)));
  }
}

__global__ void rms_norm(operands o) {
  simt_begin();
  __shared__ float shared[MOST_SUBGROUPS];
  const uint8_t *x = o.x.row(blockIdx.x);
  float sum = 0;
  each(o, x, [&](int, float v) { sum += v * v; });
  sum = simt_block_reduce(sum, shared, simt_sum());
  float scale = 1.0f / sqrtf(sum / (float)o.x.n_columns + o.epsilon);
  each_stored(o, x, o.y.row(blockIdx.x),
              [&](int i, float v) { return v * scale * (o.weight[i] + o.weight_offset); });
}

/* A thread's values of a row, 8 at a time. */
template <int Vectors> struct row_part {
  float of[Vectors][8];

  __device__ void load(iso_scheme scheme, const void *row, int n) {
#pragma unroll
    for (int c = 0; c < Vectors; c++)
      if (column(c) < n)
        simt_load8(scheme, row, column(c), of[c]);
  }
  __device__ void store(iso_scheme scheme, void *row, int n) const {
#pragma unroll
    for (int c = 0; c < Vectors; c++)
      if (column(c) < n)
        simt_store8(scheme, row, column(c), of[c]);
  }
  __device__ void round(iso_scheme scheme, const simt_rounded_rows &to, int row, int n) {
#pragma unroll
    for (int c = 0; c < Vectors; c++) {
#pragma unroll
      for (float &value : of[c])
        value = simt_rounded(scheme, value);
      if (column(c) < n)
        simt_round(to, row, column(c), of[c]);
    }
  }
  static __device__ int column(int c) { return (c * (int)blockDim.x + (int)threadIdx.x) * 8; }
};

/* The same with rows in registers; with a second operand, of the sum of both, which is written to x
 * and normalised as it is stored there. Blocks take turns at rows, the next one on its way while
 * one is worked on. Rounds: the result to `rounded`, too. */
template <int Vectors, bool Rounds>
__global__ void __launch_bounds__(VECTOR_THREADS)
    rms_norm_vectors(operands o, simt_rows a, simt_rows b) {
  __shared__ float shared[MOST_SUBGROUPS];
  int n = (int)o.x.n_columns;
  row_part<Vectors> weight, next, other;
  simt_let_later_begin();
  weight.load(ISO_SCHEME_F32, o.weight, n); /* weights never change: no need to wait for them */
  simt_wait_for_earlier();
  auto load = [&](int64_t row) {
    next.load(a.scheme, a.row(row), n);
    if (b.data)
      other.load(b.scheme, b.row(row), n);
  };
  load(blockIdx.x);
  for (int64_t row = blockIdx.x; row < o.y.n_rows; row += gridDim.x) {
    row_part<Vectors> v = next;
#pragma unroll
    for (int c = 0; c < Vectors; c++)
#pragma unroll
      for (int j = 0; j < 8; j++)
        if (b.data)
          v.of[c][j] = simt_rounded(o.x.scheme, v.of[c][j] + other.of[c][j]);
    if (row + gridDim.x < o.y.n_rows)
      load(row + gridDim.x);
    if (b.data)
      v.store(o.x.scheme, o.x.row(row), n);
    float sum = 0;
#pragma unroll
    for (int c = 0; c < Vectors; c++)
      if (v.column(c) < n)
#pragma unroll
        for (int j = 0; j < 8; j++)
          sum += v.of[c][j] * v.of[c][j];
    sum = simt_block_reduce(sum, shared, simt_sum());
    float scale = 1.0f / sqrtf(sum / (float)n + o.epsilon);
#pragma unroll
    for (int c = 0; c < Vectors; c++)
#pragma unroll
      for (int j = 0; j < 8; j++)
        v.of[c][j] = v.of[c][j] * scale * (weight.of[c][j] + o.weight_offset);
    v.store(o.y.scheme, o.y.row(row), n);
    if constexpr (Rounds)
      v.round(o.y.scheme, o.rounded, (int)row, n);
  }
}

/* The same with a subgroup a row of 16-bit floats, which waits for nobody, for many rows: all of a
 * row is on its way at once. Values stay as they are stored. Sums are in another order than above.
 */
enum { ROWS_SUBGROUPS = 4, ROWS_COLUMNS = SIMT_SUBGROUP * 8 };

__device__ inline uint32_t words_sum(iso_scheme of_a, uint32_t a, iso_scheme of_b, uint32_t b,
                                     iso_scheme of_x) {
  float v[2], w[2];
  simt_load2(of_a, &a, v);
  simt_load2(of_b, &b, w);
  uint32_t sum;
  simt_store2(of_x, &sum, 0, v[0] + w[0], v[1] + w[1]);
  return sum;
}

template <int Chunks>
__global__ void __launch_bounds__(ROWS_SUBGROUPS *SIMT_SUBGROUP, Chunks <= 16 ? 4 : 2)
    rms_norm_rows(operands o, simt_rows a, simt_rows b) {
  enum { BATCH = 4 };
  int n = (int)o.x.n_columns, lane = (int)threadIdx.x % SIMT_SUBGROUP;
  int64_t row = (int64_t)blockIdx.x * ROWS_SUBGROUPS + threadIdx.x / SIMT_SUBGROUP;
  simt_begin();
  if (row >= o.y.n_rows)
    return;
  auto place = [&](int c) { return c * ROWS_COLUMNS + lane * 8; };
  const uint16_t *from = (const uint16_t *)a.row(row), *other = (const uint16_t *)b.row(row);
  uint16_t *x = (uint16_t *)o.x.row(row), *y = (uint16_t *)o.y.row(row);
  uint4 v[Chunks];
#pragma unroll
  for (int c = 0; c < Chunks; c++)
    v[c] = place(c) < n ? *(const uint4 *)(from + place(c)) : make_uint4(0, 0, 0, 0);
  if (b.data)
#pragma unroll
    for (int c = 0; c < Chunks; c += BATCH) {
      uint4 w[BATCH];
#pragma unroll
      for (int i = 0; i < BATCH; i++)
        w[i] = place(c + i) < n ? *(const uint4 *)(other + place(c + i)) : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (int i = 0; i < BATCH; i++) {
        uint4 &to = v[c + i];
        to.x = words_sum(a.scheme, to.x, b.scheme, w[i].x, o.x.scheme);
        to.y = words_sum(a.scheme, to.y, b.scheme, w[i].y, o.x.scheme);
        to.z = words_sum(a.scheme, to.z, b.scheme, w[i].z, o.x.scheme);
        to.w = words_sum(a.scheme, to.w, b.scheme, w[i].w, o.x.scheme);
        if (place(c + i) < n)
          *(uint4 *)(x + place(c + i)) = to;
      }
    }
  iso_scheme scheme = b.data ? o.x.scheme : a.scheme;
  float sum = 0;
#pragma unroll
  for (int c = 0; c < Chunks; c++) {
    float of[8];
    simt_load8(scheme, &v[c], 0, of);
#pragma unroll
    for (int j = 0; j < 8; j++)
      sum += of[j] * of[j];
  }
  sum = simt_subgroup_reduce(sum, simt_sum());
  float scale = 1.0f / sqrtf(sum / (float)n + o.epsilon);
#pragma unroll
  for (int c = 0; c < Chunks; c++)
    if (place(c) < n) {
      float of[8], weight[8];
      simt_load8(scheme, &v[c], 0, of);
      simt_load8(ISO_SCHEME_F32, o.weight, place(c), weight);
#pragma unroll
      for (int j = 0; j < 8; j++)
        of[j] = of[j] * scale * (weight[j] + o.weight_offset);
      simt_store8(o.y.scheme, y, place(c), of);
    }
}

__global__ void layer_norm(operands o) {
  simt_begin();
  __shared__ float shared[MOST_SUBGROUPS];
  const uint8_t *x = o.x.row(blockIdx.x);
  float sum = 0, squares = 0;
  each(o, x, [&](int, float v) { sum += v; });
  float mean = simt_block_reduce(sum, shared, simt_sum()) / (float)o.x.n_columns;
  each(o, x, [&](int, float v) { squares += (v - mean) * (v - mean); });
  squares = simt_block_reduce(squares, shared, simt_sum());
  float scale = 1.0f / sqrtf(squares / (float)o.x.n_columns + o.epsilon);
  each_stored(o, x, o.y.row(blockIdx.x), [&](int i, float v) {
    return (v - mean) * scale * o.weight[i] + (o.bias ? o.bias[i] : 0.0f);
  });
}

__global__ void softmax(operands o) {
  simt_begin();
  __shared__ float shared[MOST_SUBGROUPS];
  const uint8_t *x = o.x.row(blockIdx.x);
  float largest = -INFINITY, sum = 0;
  each(o, x, [&](int, float v) { largest = fmaxf(largest, v); });
  largest = simt_block_reduce(largest, shared, simt_max());
  each(o, x, [&](int, float v) { sum += expf(v - largest); });
  sum = simt_block_reduce(sum, shared, simt_sum());
  each_stored(o, x, o.y.row(blockIdx.x), [&](int, float v) { return expf(v - largest) / sum; });
}

iso_status run(iso_queue *queue, const iso_op_arguments *arguments, const char *name,
               void (*kernel)(operands), float epsilon, float weight_offset) {
  operands o = {};
  o.x = simt_rows_of(arguments->inputs[0]);
  o.y = simt_rows_of(arguments->outputs[0]);
  if (arguments->n_inputs > 1)
    o.weight = (const float *)simt_address(arguments->inputs[1]);
  if (arguments->n_inputs > 2)
    o.bias = (const float *)simt_address(arguments->inputs[2]);
  o.epsilon = epsilon;
  o.weight_offset = weight_offset;
  if (o.y.n_rows == 0)
    return ISO_OK;
  o.by_four = o.x.n_columns % 4 == 0 && simt_is_aligned(o.x, 16) && simt_is_aligned(o.y, 16);
  unsigned block = simt_block_size(o.by_four ? o.x.n_columns / 4 : o.x.n_columns, MOST_THREADS);
  return simt_launch_early(queue, name, kernel, dim3((unsigned)o.y.n_rows), dim3(block), 0, o);
}

bool is_by_eight(const simt_rows &rows) {
  return rows.n_columns % 8 == 0 && rows.n_columns <= VECTOR_THREADS * 32 &&
         simt_is_aligned(rows, 16);
}

/* Few threads that do much each: a block that is there early must find room beside others. The
 * order of sums is that of 512 threads however few there are; matmul_few() has the same. */
iso_status run_vectors(iso_queue *queue, const char *name, operands o, const simt_rows &a,
                       const simt_rows &b) {
  int64_t n = o.x.n_columns / 8;
  enum { LEAST_ROWS = 1024, MOST_COLUMNS = 8192 };
  auto is_16_bit = [](const simt_rows &r) { return !r.data || r.scheme != ISO_SCHEME_F32; };
  if (o.y.n_rows >= LEAST_ROWS && o.x.n_columns <= MOST_COLUMNS && is_16_bit(a) && is_16_bit(b) &&
      is_16_bit(o.x) && is_16_bit(o.y)) {
    auto kernel = o.x.n_columns <= 8 * ROWS_COLUMNS    ? rms_norm_rows<8>
                  : o.x.n_columns <= 16 * ROWS_COLUMNS ? rms_norm_rows<16>
                                                       : rms_norm_rows<32>;
    return simt_launch_early(queue, name, kernel,
                             dim3((unsigned)((o.y.n_rows + ROWS_SUBGROUPS - 1) / ROWS_SUBGROUPS)),
                             dim3(ROWS_SUBGROUPS * SIMT_SUBGROUP), 0, o, a, b);
  }
  unsigned block = simt_block_size(n, VECTOR_THREADS);
  int64_t most = (int64_t)simt_n_units(queue->device) * 1024 / block, rows = o.y.n_rows;
  /* Every block the same number of rows, as far as they go. */
  int64_t turns = (rows + most - 1) / most, blocks = (rows + turns - 1) / turns;
  auto kernel = n <= VECTOR_THREADS       ? rms_norm_vectors<1, false>
                : n <= 2 * VECTOR_THREADS ? rms_norm_vectors<2, false>
                                          : rms_norm_vectors<4, false>;
  if (o.y.n_columns % SIMT_ROUNDED_GROUP == 0)
    o.rounded = simt_take_rounding(simt_queue_deferred(queue));
  if (o.rounded.image)
    kernel = n <= VECTOR_THREADS       ? rms_norm_vectors<1, true>
             : n <= 2 * VECTOR_THREADS ? rms_norm_vectors<2, true>
                                       : rms_norm_vectors<4, true>;
  return simt_launch_early(queue, name, kernel, dim3((unsigned)blocks), dim3(block), 0, o, a, b);
}

iso_status run_rms_norm(iso_queue *queue, const iso_op_arguments *arguments) {
  auto *attributes = (const iso_rms_norm_attributes *)arguments->attributes;
  operands o = {};
  o.x = simt_rows_of(arguments->inputs[0]);
  o.y = simt_rows_of(arguments->outputs[0]);
  o.weight = (const float *)simt_address(arguments->inputs[1]);
  o.epsilon = attributes->epsilon;
  o.weight_offset = attributes->weight_offset;
  if (o.y.n_rows > 0 && is_by_eight(o.x) && is_by_eight(o.y) && (uintptr_t)o.weight % 16 == 0)
    return run_vectors(queue, "rms_norm", o, o.x, simt_rows{});
  return run(queue, arguments, "rms_norm", rms_norm, attributes->epsilon,
             attributes->weight_offset);
}
iso_status launch_rms_norm(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run_rms_norm);
}
iso_status launch_layer_norm(iso_queue *queue, const iso_op_arguments *arguments) {
  auto *attributes = (const iso_layer_norm_attributes *)arguments->attributes;
  return run(queue, arguments, "layer_norm", layer_norm, attributes->epsilon, 0);
}
iso_status launch_softmax(iso_queue *queue, const iso_op_arguments *arguments) {
  return run(queue, arguments, "softmax", softmax, 0, 0);
}

const iso_kernel records[] = {
    SIMT_RECORD(RMS_NORM, "rms_norm.simt", launch_rms_norm),
    SIMT_RECORD(LAYER_NORM, "layer_norm.simt", launch_layer_norm),
    SIMT_RECORD(SOFTMAX, "softmax.simt", launch_softmax),
};

bool is_by_eight(const iso_tensor &tensor) { return is_by_eight(simt_rows_of(tensor)); }

} /* namespace */

bool simt_add_rms_norm_fits(const simt_deferred_op *ops, uint32_t count) {
  const iso_op_arguments &add = ops[0].arguments;
  bool fits = add.inputs[1].n_dims == add.inputs[0].n_dims && add.outputs[0].dims[0] > 0 &&
              is_by_eight(add.inputs[0]) && is_by_eight(add.inputs[1]) &&
              is_by_eight(add.outputs[0]);
  if (count < 2 || !fits)
    return fits;
  const iso_op_arguments &norm = ops[1].arguments;
  return simt_is_same(&norm.inputs[0], &add.outputs[0]) && is_by_eight(norm.outputs[0]) &&
         (uintptr_t)simt_address(norm.inputs[1]) % 16 == 0 &&
         simt_is_apart(&norm.outputs[0], &add.inputs[0]) &&
         simt_is_apart(&norm.outputs[0], &add.inputs[1]);
}

iso_status simt_add_rms_norm(iso_queue *queue, const simt_deferred_op *ops, uint32_t) {
  const iso_op_arguments &add = ops[0].arguments, &norm = ops[1].arguments;
  auto *attributes = (const iso_rms_norm_attributes *)ops[1].attributes;
  operands o = {};
  o.x = simt_rows_of(norm.inputs[0]);
  o.y = simt_rows_of(norm.outputs[0]);
  o.weight = (const float *)simt_address(norm.inputs[1]);
  o.epsilon = attributes->epsilon;
  o.weight_offset = attributes->weight_offset;
  return run_vectors(queue, "add, rms_norm", o, simt_rows_of(add.inputs[0]),
                     simt_rows_of(add.inputs[1]));
}

SIMT_EXPORT_KERNELS(norm, records)
