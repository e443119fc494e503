/* Few rows times weights in groups of 128; the records also take many rows, 8 at a time. */
#include "backends/simt/matmul_records.cuh"

namespace {

const iso_kernel records[] = {MATMUL_PACKED_RECORD(I8_G128, i8_g128),
                              MATMUL_PACKED_RECORD(F8_G128, f8_g128),
                              MATMUL_PACKED_RECORD(I4_G128, i4_g128)};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_few_groups, records)
