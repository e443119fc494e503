/* Ops on one element at a time: glu, activate, add, soft_cap, convert. Any mix of float schemes,
 * any strides; eight elements a thread where rows are aligned. */
#include "backends/simt/elementwise.cuh"
#include "backends/simt/rounding.cuh"

namespace {

struct activate_element {
  uint32_t activation;
  __device__ float operator()(float x, float) const { return simt_activation(activation, x); }
};
struct glu_element {
  uint32_t activation;
  __device__ float operator()(float gate, float up) const {
    return simt_activation(activation, gate) * up;
  }
};
struct add_element {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct same_element {
  __device__ float operator()(float x, float) const { return x; }
};
struct soft_cap_element {
  float scale, cap;
  __device__ float operator()(float x, float) const {
    x *= scale;
    return cap > 0 ? cap * tanhf(x / cap) : x;
  }
};

struct operands {
  simt_rows a, b, y;
  bool has_b, one_row; /* one_row: b is one row for all */
  bool by_eight;
  simt_rounded_rows rounded;
};

/* Rounds: by eight, the result to `rounded`, too. */
template <typename F, bool Rounds> __global__ void map(F function, operands o) {
  simt_begin();
  int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * (o.by_eight ? 8 : 1);
  if (first >= o.y.n_columns)
    return;
  for (int64_t row = blockIdx.y; row < o.y.n_rows; row += gridDim.y) {
    const uint8_t *a = o.a.row(row);
    const uint8_t *b = o.has_b ? o.b.row(o.one_row ? 0 : row) : nullptr;
    uint8_t *y = o.y.row(row);
    if (!o.by_eight) {
      float other = b ? simt_load(o.b.scheme, b, first) : 0.0f;
      simt_store(o.y.scheme, y, first, function(simt_load(o.a.scheme, a, first), other));
      continue;
    }
    float x[8], other[8] = {}, result[8];
    simt_load8(o.a.scheme, a, first, x);
    if (b)
      simt_load8(o.b.scheme, b, first, other);
    for (int i = 0; i < 8; i++)
      result[i] = function(x[i], other[i]);
    simt_store8(o.y.scheme, y, first, result);
    if constexpr (Rounds) {
      for (float &value : result)
        value = simt_rounded(o.y.scheme, value);
      simt_round(o.rounded, (int)row, (int)first, result);
    }
  }
}

bool is_dense(const simt_rows &rows) {
  return rows.n_rows <= 1 ||
         (rows.n_dims == 1 && rows.strides[0] == rows.n_columns * simt_float_bytes(rows.scheme));
}

void join(simt_rows *rows) {
  rows->n_columns *= rows->n_rows;
  rows->n_rows = 1;
}

/* Grid: columns, rows. */
template <typename F>
iso_status start(iso_queue *queue, const char *name, void (*kernel)(F, operands), F function,
                 const operands &o) {
  int64_t n_threads = o.by_eight ? o.y.n_columns / 8 : o.y.n_columns;
  unsigned block = simt_block_size(n_threads, 256);
  dim3 grid((unsigned)((n_threads + block - 1) / block),
            (unsigned)(o.y.n_rows < 65535 ? o.y.n_rows : 65535));
  return simt_launch_early(queue, name, kernel, grid, dim3(block), 0, function, o);
}

bool is_by_eight(const operands &o) {
  return o.y.n_columns % 8 == 0 && simt_is_aligned(o.a, 16) && simt_is_aligned(o.y, 16) &&
         (!o.has_b || simt_is_aligned(o.b, 16));
}

template <typename F>
iso_status run(iso_queue *queue, const iso_op_arguments *arguments, const char *name, F function,
               bool paired) {
  operands o = {};
  o.a = simt_rows_of(arguments->inputs[0]);
  o.y = simt_rows_of(arguments->outputs[0]);
  o.has_b = paired;
  if (paired) {
    o.b = simt_rows_of(arguments->inputs[1]);
    o.one_row = arguments->inputs[1].n_dims == 1;
  }
  if (o.y.n_rows == 0 || o.y.n_columns == 0)
    return ISO_OK;
  if (is_dense(o.a) && is_dense(o.y) && (!paired || (is_dense(o.b) && o.b.n_rows == o.a.n_rows))) {
    join(&o.a), join(&o.y);
    if (paired)
      join(&o.b);
  }
  o.by_eight = is_by_eight(o);
  return start(queue, name, map<F, false>, function, o);
}

iso_status run_glu(iso_queue *queue, const iso_op_arguments *arguments) {
  auto *attributes = (const iso_glu_attributes *)arguments->attributes;
  glu_element function = {attributes->activation};
  operands o = {};
  o.a = simt_rows_of(arguments->inputs[0]), o.b = simt_rows_of(arguments->inputs[1]);
  o.y = simt_rows_of(arguments->outputs[0]);
  o.has_b = o.by_eight = true;
  if (is_by_eight(o) && o.y.n_columns % SIMT_ROUNDED_GROUP == 0 && o.y.n_columns > 0 &&
      o.y.n_rows > 0)
    o.rounded = simt_take_rounding(simt_queue_deferred(queue));
  if (o.rounded.image)
    return start(queue, "glu, rounded", map<glu_element, true>, function, o);
  return run(queue, arguments, "glu", function, true);
}
iso_status launch_glu(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run_glu);
}
iso_status launch_activate(iso_queue *queue, const iso_op_arguments *arguments) {
  auto *attributes = (const iso_activate_attributes *)arguments->attributes;
  return run(queue, arguments, "activate", activate_element{attributes->activation}, false);
}
iso_status run_add(iso_queue *queue, const iso_op_arguments *arguments) {
  return run(queue, arguments, "add", add_element{}, true);
}
iso_status launch_add(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run_add);
}
iso_status launch_soft_cap(iso_queue *queue, const iso_op_arguments *arguments) {
  auto *attributes = (const iso_soft_cap_attributes *)arguments->attributes;
  return run(queue, arguments, "soft_cap", soft_cap_element{attributes->scale, attributes->cap},
             false);
}
iso_status launch_convert(iso_queue *queue, const iso_op_arguments *arguments) {
  return run(queue, arguments, "convert", same_element{}, false);
}

const iso_kernel records[] = {
    SIMT_RECORD(GLU, "glu.simt", launch_glu),
    SIMT_RECORD(ACTIVATE, "activate.simt", launch_activate),
    SIMT_RECORD(ADD, "add.simt", launch_add),
    SIMT_RECORD(SOFT_CAP, "soft_cap.simt", launch_soft_cap),
    SIMT_RECORD(CONVERT, "convert.simt", launch_convert),
};

} /* namespace */

SIMT_EXPORT_KERNELS(elementwise, records)
