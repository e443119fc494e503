/* Rows of products in and out, tier avx512. */
#define LOAD_ROW iso_avx512_load_row
#define STORE_ROW iso_avx512_store_row
#include "backends/cpu/matmul/row_io.inc"
