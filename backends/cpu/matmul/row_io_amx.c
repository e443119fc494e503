/* Rows of products in and out, tier amx. Subnormal bf16 become zero. */
#define LOAD_ROW iso_amx_load_row
#define STORE_ROW iso_amx_store_row
#define ROW_BF16(high, low) ((__m512i)_mm512_cvtne2ps_pbh(high, low))
#include "backends/cpu/matmul/row_io.inc"
