/* Few rows times weights in blocks of 32; the records also take many rows, 8 at a time. */
#include "backends/simt/matmul_records.cuh"

namespace {

const iso_kernel records[] = {
    MATMUL_PACKED_RECORD(Q4_0, q4_0),  MATMUL_PACKED_RECORD(Q4_1, q4_1),
    MATMUL_PACKED_RECORD(Q5_0, q5_0),  MATMUL_PACKED_RECORD(Q5_1, q5_1),
    MATMUL_PACKED_RECORD(Q8_0, q8_0),  MATMUL_PACKED_RECORD(IQ4_NL, iq4_nl),
    GROUPED_PACKED_RECORD(Q4_0, q4_0), GROUPED_PACKED_RECORD(Q4_1, q4_1),
    GROUPED_PACKED_RECORD(Q5_0, q5_0), GROUPED_PACKED_RECORD(Q5_1, q5_1),
    GROUPED_PACKED_RECORD(Q8_0, q8_0), GROUPED_PACKED_RECORD(IQ4_NL, iq4_nl)};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_few_blocks, records)
