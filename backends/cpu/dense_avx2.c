#include "backends/cpu/dense.h"

#include "backends/cpu/simd.h"

void iso_cpu_convert_row(const iso_tensor *tensor, int64_t row, iso_scheme to, void *target) {
  const void *source = iso_cpu_row(tensor, row);
  int64_t n = tensor->dims[tensor->n_dims - 1];
  for (int64_t i = 0; i < n; i += V_WIDTH)
    v_put(to, target, i, n - i, v_get(tensor->scheme, source, i, n - i));
}

void iso_cpu_store_results(const iso_op_arguments *arguments, int64_t row, int64_t rows,
                           int64_t column, int64_t columns, float *results, int64_t stride) {
  const iso_tensor *y = &arguments->outputs[0];
  const float *bias = iso_cpu_input(arguments, 2);
  for (int64_t r = 0; r < rows; r++) {
    float *values = results + r * stride;
    for (int64_t i = 0; i < columns && bias; i++)
      values[i] += bias[column + i];
    uint8_t *target = iso_cpu_row(y, row + r);
    target += column * y->strides[y->n_dims - 1];
    for (int64_t i = 0; i < columns; i += V_WIDTH)
      v_put(y->scheme, target, i, columns - i, v_get(ISO_SCHEME_F32, values, i, columns - i));
  }
}
