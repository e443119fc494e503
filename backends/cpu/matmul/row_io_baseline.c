/* Rows of products in and out, tier baseline. */
#define LOAD_ROW iso_baseline_load_row
#define STORE_ROW iso_baseline_store_row
#include "backends/cpu/matmul/row_io.inc"
