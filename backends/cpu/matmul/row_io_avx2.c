/* Rows of products in and out, tier avx2. */
#define LOAD_ROW iso_avx2_load_row
#define STORE_ROW iso_avx2_store_row
#include "backends/cpu/matmul/row_io.inc"
