/* Few rows times weights in super-blocks of 256; the records also take many rows, 8 at a time. */
#include "backends/simt/matmul_records.cuh"

namespace {

const iso_kernel records[] = {MATMUL_PACKED_RECORD(Q2_K, q2_k),  MATMUL_PACKED_RECORD(Q3_K, q3_k),
                              MATMUL_PACKED_RECORD(Q4_K, q4_k),  MATMUL_PACKED_RECORD(Q5_K, q5_k),
                              MATMUL_PACKED_RECORD(Q6_K, q6_k),  GROUPED_PACKED_RECORD(Q2_K, q2_k),
                              GROUPED_PACKED_RECORD(Q3_K, q3_k), GROUPED_PACKED_RECORD(Q4_K, q4_k),
                              GROUPED_PACKED_RECORD(Q5_K, q5_k), GROUPED_PACKED_RECORD(Q6_K, q6_k)};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_few_super, records)
