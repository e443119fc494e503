/* Stores keys and values into cache pages: any float rows, caches of f32, f16, bf16, q8_0 or
 * f8_g128. 32 threads take 128 neighbouring elements of a head, 4 each, which are 4 blocks of q8_0
 * or one of f8_g128. */
#include "backends/simt/encode.cuh"
#include "quant/blocks.h"

namespace {

enum { EACH = 4, GROUP = 32 * EACH, THREADS = 256 };

struct side { /* keys or values */
  simt_rows rows;
  bool wide; /* rows and, where it has plain floats, the cache can be walked EACH at a time */
  uint8_t *cache;
  iso_scheme scheme;
  int64_t row_bytes;
};

struct operands {
  side sides[2];
  const int32_t *slots;
  int32_t n_heads, page_size, n_rows; /* rows: of all heads */
  int64_t n_slots;
};

/* The nearest integer, ties away from zero. */
__device__ int8_t code_of(float scaled) {
  float magnitude = fminf(fabsf(scaled), 127.0f);
  int code = (int)magnitude;
  code += magnitude - (float)code >= 0.5f;
  return (int8_t)(scaled < 0 ? -code : code);
}

/* Four elements a thread; all 8 threads of the block are here, and all others of the subgroup,
 * those beyond the row without a block. */
__device__ void encode_q8_0(iso_block_q8_0 *block, int i, float (&values)[EACH]) {
  float peak = 0;
#pragma unroll
  for (float &value : values) {
    value = value == value ? fminf(fmaxf(value, -65504.0f * 127), 65504.0f * 127) : 0.0f;
    peak = fmaxf(peak, fabsf(value));
  }
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2)
    peak = fmaxf(peak, simt_shuffle_xor(peak, mask));
  if (!block)
    return;
  float scale = peak / 127, inverse = scale > 0 ? 1 / scale : 0.0f;
  if (i == 0)
    block->scale = __half_as_ushort(__float2half_rn(fminf(scale, 65504.0f)));
#pragma unroll
  for (int j = 0; j < EACH; j += 2) { /* blocks start at halfwords */
    uint8_t first = (uint8_t)code_of(values[j] * inverse);
    uint8_t second = (uint8_t)code_of(values[j + 1] * inverse);
    *(uint16_t *)(block->codes + i + j) = (uint16_t)(first | second << 8);
  }
}

/* Four elements a thread; all 32 threads of the block are here. */
__device__ void encode_f8_g128(iso_block_f8_g128 *block, int i, float (&values)[EACH]) {
  float peak = 0;
#pragma unroll
  for (float &value : values) {
    value = simt_f8_value(value);
    peak = fmaxf(peak, fabsf(value));
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    peak = fmaxf(peak, simt_shuffle_xor(peak, mask));
  float scale = simt_f8_scale(peak);
  if (i == 0)
    block->scale = scale;
  uint32_t codes = 0;
#pragma unroll
  for (int j = 0; j < EACH; j++)
    codes |= (uint32_t)simt_f8_code(values[j], scale) << 8 * j;
  *(uint32_t *)(block->codes + i) = codes;
}

/* Grid: rows of k or v, as many a block as it has 32 threads; groups of elements; k or v. */
__global__ void __launch_bounds__(THREADS) kv_write(const __grid_constant__ operands o) {
  simt_begin();
  const side &s = o.sides[blockIdx.z];
  int32_t row = (int32_t)(blockIdx.x * (THREADS / 32) + threadIdx.x / 32);
  if (row >= o.n_rows)
    return;
  int32_t slot = o.slots[row / o.n_heads], head = row % o.n_heads;
  if (slot < 0 || slot >= o.n_slots)
    return;
  int64_t target =
      ((int64_t)(slot / o.page_size) * o.n_heads + head) * o.page_size + slot % o.page_size;
  const uint8_t *x = s.rows.row(row);
  uint8_t *cache = s.cache + target * s.row_bytes;
  int n = (int)s.rows.n_columns, lane = (int)threadIdx.x % 32;
  int i = (int)blockIdx.y * GROUP + lane * EACH;
  float values[EACH] = {};
  if (s.wide && i < n)
    simt_load4(s.rows.scheme, x, i, values);
#pragma unroll
  for (int j = 0; j < EACH; j++)
    if (!s.wide && i + j < n)
      values[j] = simt_load(s.rows.scheme, x, i + j);
  if (s.scheme == ISO_SCHEME_Q8_0) { /* head sizes are multiples of 32 */
    encode_q8_0(i < n ? (iso_block_q8_0 *)cache + i / 32 : nullptr, i % 32, values);
  } else if (s.scheme == ISO_SCHEME_F8_G128) { /* head sizes are multiples of 128 */
    if (i < n)
      encode_f8_g128((iso_block_f8_g128 *)cache + i / GROUP, i % GROUP, values);
  } else {
    simt_store_some(s.scheme, cache, i, n, s.wide, values);
  }
}

iso_status run(iso_queue *queue, const iso_op_arguments *arguments) {
  operands o = {};
  int64_t longest = 0;
  for (int i = 0; i < 2; i++) {
    const iso_tensor &cache = arguments->inputs[3 + i];
    side &s = o.sides[i];
    s.rows = simt_rows_of(arguments->inputs[i]);
    s.cache = simt_address(cache);
    s.scheme = cache.scheme;
    s.row_bytes = cache.strides[2];
    bool is_float = (ISO_SCHEME_BIT(s.scheme) & SIMT_FLOATS) != 0;
    uint64_t bits = (uint64_t)(uintptr_t)s.cache | (uint64_t)s.row_bytes;
    s.wide = s.rows.n_columns % EACH == 0 && simt_is_aligned(s.rows, 16) &&
             (!is_float || bits % 16 == 0);
    longest = s.rows.n_columns > longest ? s.rows.n_columns : longest;
  }
  const iso_tensor &cache = arguments->inputs[3];
  o.slots = (const int32_t *)simt_address(arguments->inputs[2]);
  o.n_heads = (int32_t)cache.dims[1];
  o.page_size = (int32_t)cache.dims[2];
  o.n_slots = cache.dims[0] * cache.dims[2];
  int64_t n_rows = o.sides[0].rows.n_rows, n_blocks = (n_rows + THREADS / 32 - 1) / (THREADS / 32);
  if (n_rows == 0)
    return ISO_OK;
  if (n_rows > INT32_MAX)
    return simt_fail_size("kv_write");
  o.n_rows = (int32_t)n_rows;
  dim3 grid((unsigned)n_blocks, (unsigned)((longest + GROUP - 1) / GROUP), 2);
  return simt_launch_early(queue, "kv_write", kv_write, grid, dim3(THREADS), 0, o);
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run);
}

const iso_kernel records[] = {
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_KV_WRITE,
     .name = "kv_write.simt",
     .schemes = SIMT_FLOATS | ISO_SCHEME_BIT(ISO_SCHEME_Q8_0) | ISO_SCHEME_BIT(ISO_SCHEME_F8_G128),
     .activations = SIMT_FLOATS,
     .layout = ISO_LAYOUT_PLAIN,
     .rank = 0,
     .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(kv_write, records)
