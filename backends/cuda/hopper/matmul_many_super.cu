/* Many rows times weights in super-blocks of 256. */
#include "backends/cuda/hopper/matmul_many_records.cuh"

namespace {

const iso_kernel records[] = {MATMUL_MANY_RECORD(Q2_K, q2_k),  MATMUL_MANY_RECORD(Q3_K, q3_k),
                              MATMUL_MANY_RECORD(Q4_K, q4_k),  MATMUL_MANY_RECORD(Q5_K, q5_k),
                              MATMUL_MANY_RECORD(Q6_K, q6_k),  GROUPED_MANY_RECORD(Q2_K, q2_k),
                              GROUPED_MANY_RECORD(Q3_K, q3_k), GROUPED_MANY_RECORD(Q4_K, q4_k),
                              GROUPED_MANY_RECORD(Q5_K, q5_k), GROUPED_MANY_RECORD(Q6_K, q6_k)};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_many_super, records)
