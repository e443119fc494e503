/* Products of the same rows by few features, for records that bring weights of their own. */
#ifndef ISOMER_CUDA_HOPPER_MATMUL_ROWS_OF_H
#define ISOMER_CUDA_HOPPER_MATMUL_ROWS_OF_H

#include "backends/cuda/cuda.h"

/* Whether Hopper's kernel makes these products, of at most 64 rows, in one launch, and faster than
 * cuBLASLt one by one or beside each other. */
bool cuda_rows_take(const iso_device *device, const simt_deferred_op *ops, uint32_t count);
iso_status cuda_rows_launch(iso_queue *queue, const simt_deferred_op *ops, uint32_t count);

#endif
