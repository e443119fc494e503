/* Rows between tensors and the buffers of a dense product, with the conversions that takes. */
#ifndef ISOMER_BACKENDS_CPU_DENSE_H
#define ISOMER_BACKENDS_CPU_DENSE_H

#include "backends/cpu/cpu.h"

/* One row of activations in the float scheme `to`. Needs tier avx2. */
void iso_cpu_convert_row(const iso_tensor *tensor, int64_t row, iso_scheme to, void *target);

/* Stores f32 results as rows [row, row + rows) and columns [column, column + columns) of a
 * matmul's y, with the bias added. `results` is changed. Needs tier avx2. */
void iso_cpu_store_results(const iso_op_arguments *arguments, int64_t row, int64_t rows,
                           int64_t column, int64_t columns, float *results, int64_t stride);

#endif
