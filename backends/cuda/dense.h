/* Products by plain float weights through cuBLASLt, for records that bring weights of their own. */
#ifndef ISOMER_BACKENDS_CUDA_DENSE_H
#define ISOMER_BACKENDS_CUDA_DENSE_H

#include "backends/cuda/cuda.h"

/* As the functions of the record `matmul.float.cublaslt`, for arguments that it accepts. */
uint64_t cuda_dense_workspace(const iso_op_arguments *arguments);
iso_status cuda_dense_launch(iso_queue *queue, const iso_op_arguments *arguments);

#endif
