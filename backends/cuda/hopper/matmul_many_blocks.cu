/* Many rows times weights in blocks of 32. */
#include "backends/cuda/hopper/matmul_many_records.cuh"

namespace {

const iso_kernel records[] = {MATMUL_MANY_RECORD(Q4_0, q4_0),  MATMUL_MANY_RECORD(Q4_1, q4_1),
                              MATMUL_MANY_RECORD(Q5_0, q5_0),  MATMUL_MANY_RECORD(Q5_1, q5_1),
                              MATMUL_MANY_RECORD(Q8_0, q8_0),  MATMUL_MANY_RECORD(IQ4_NL, iq4_nl),
                              GROUPED_MANY_RECORD(Q4_0, q4_0), GROUPED_MANY_RECORD(Q4_1, q4_1),
                              GROUPED_MANY_RECORD(Q5_0, q5_0), GROUPED_MANY_RECORD(Q5_1, q5_1),
                              GROUPED_MANY_RECORD(Q8_0, q8_0), GROUPED_MANY_RECORD(IQ4_NL, iq4_nl)};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_many_blocks, records)
