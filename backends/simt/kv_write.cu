/* Stores keys and values into cache pages: any float rows, caches of f32, f16, bf16, q8_0 or
 * f8_g128. 32 threads take 32 neighbouring elements of a head, which is one block of q8_0, and all
 * of a block, which are 128 then, one of f8_g128. */
#include "backends/simt/encode.cuh"
#include "quant/blocks.h"

namespace {

struct side { /* keys or values */
  simt_rows rows;
  uint8_t *cache;
  iso_scheme scheme;
  int64_t row_bytes;
};

struct operands {
  side sides[2];
  const int32_t *slots;
  int32_t n_heads, page_size;
  int64_t n_slots;
};

/* The nearest integer, ties away from zero. */
__device__ int8_t code_of(float scaled) {
  float magnitude = fminf(fabsf(scaled), 127.0f);
  int code = (int)magnitude;
  code += magnitude - (float)code >= 0.5f;
  return (int8_t)(scaled < 0 ? -code : code);
}

/* One element a thread; all 32 threads of the block are here. */
__device__ void encode_q8_0(iso_block_q8_0 *block, int i, float value) {
  value = value == value ? fminf(fmaxf(value, -65504.0f * 127), 65504.0f * 127) : 0.0f;
  float peak = fabsf(value);
  for (int mask = 16; mask > 0; mask /= 2)
    peak = fmaxf(peak, simt_shuffle_xor(peak, mask));
  float scale = peak / 127;
  if (i == 0)
    block->scale = __half_as_ushort(__float2half_rn(fminf(scale, 65504.0f)));
  block->codes[i] = code_of(scale > 0 ? value * (1 / scale) : 0.0f);
}

/* One element a thread; all 128 threads of the block are here. */
__device__ void encode_f8_g128(iso_block_f8_g128 *block, int i, float value) {
  __shared__ float shared[4];
  value = simt_f8_value(value);
  float scale = simt_f8_scale(simt_block_reduce(fabsf(value), shared, simt_max()));
  if (i == 0)
    block->scale = scale;
  block->codes[i] = simt_f8_code(value, scale);
}

/* Grid: rows of k or v, groups of elements, k or v. */
__global__ void kv_write(operands o) {
  simt_begin();
  const side &s = o.sides[blockIdx.z];
  int64_t row = (int64_t)blockIdx.x;
  int32_t slot = o.slots[row / o.n_heads];
  if (slot < 0 || slot >= o.n_slots)
    return;
  int head = (int)(row % o.n_heads);
  int64_t target =
      ((int64_t)(slot / o.page_size) * o.n_heads + head) * o.page_size + slot % o.page_size;
  const uint8_t *x = s.rows.row(row);
  uint8_t *cache = s.cache + target * s.row_bytes;
  int64_t i = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
  if (s.scheme == ISO_SCHEME_Q8_0) { /* head sizes are multiples of 32 */
    if (i / 32 * 32 < s.rows.n_columns)
      encode_q8_0((iso_block_q8_0 *)cache + i / 32, (int)(i % 32), simt_load(s.rows.scheme, x, i));
  } else if (s.scheme == ISO_SCHEME_F8_G128) { /* head sizes are multiples of 128 */
    if (i / 128 * 128 < s.rows.n_columns)
      encode_f8_g128((iso_block_f8_g128 *)cache + i / 128, (int)(i % 128),
                     simt_load(s.rows.scheme, x, i));
  } else if (i < s.rows.n_columns) {
    simt_store(s.scheme, cache, i, simt_load(s.rows.scheme, x, i));
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
    longest = s.rows.n_columns > longest ? s.rows.n_columns : longest;
  }
  const iso_tensor &cache = arguments->inputs[3];
  o.slots = (const int32_t *)simt_address(arguments->inputs[2]);
  o.n_heads = (int32_t)cache.dims[1];
  o.page_size = (int32_t)cache.dims[2];
  o.n_slots = cache.dims[0] * cache.dims[2];
  if (o.sides[0].rows.n_rows == 0)
    return ISO_OK;
  unsigned block = simt_block_size(longest, 128);
  dim3 grid((unsigned)o.sides[0].rows.n_rows, (unsigned)((longest + block - 1) / block), 2);
  return simt_launch_early(queue, "kv_write", kv_write, grid, dim3(block), 0, o);
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
