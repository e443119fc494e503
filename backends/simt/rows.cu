/* Ops that pick rows: embedding, gather_rows. A row of gather_rows that there is not, which the
 * schema forbids, becomes zeros rather than a fault of the device. */
#include "backends/simt/decode.cuh"

namespace {

struct lookup {
  const int32_t *ids;
  const uint8_t *table;
  int64_t n_table_rows, row_bytes;
  float scale;
  simt_rows y;
};

template <int SCHEME> __global__ void embedding(lookup o) {
  simt_begin();
  int64_t group = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
  int64_t n = o.y.n_columns;
  if (group * 8 >= n)
    return;
  int32_t id = o.ids[blockIdx.x];
  uint8_t *y = o.y.row(blockIdx.x);
  bool inside = id >= 0 && id < o.n_table_rows;
  const uint8_t *row = o.table + (inside ? id : 0) * o.row_bytes;
  int count = n - group * 8 < 8 ? (int)(n - group * 8) : 8;
  float values[8];
  if (count == 8) {
    simt_decode_group<SCHEME>(row, group, values);
  } else {
    for (int i = 0; i < count; i++)
      values[i] = simt_load((iso_scheme)SCHEME, row, group * 8 + i);
  }
  for (int i = 0; i < count; i++)
    simt_store(o.y.scheme, y, group * 8 + i, inside ? values[i] * o.scale : NAN);
}

typedef void (*embedding_kernel)(lookup);

embedding_kernel choose_embedding(iso_scheme scheme) {
  switch (scheme) {
#define CASE(NAME)                                                                                 \
  case ISO_SCHEME_##NAME:                                                                          \
    return embedding<ISO_SCHEME_##NAME>;
    SIMT_WEIGHTS(CASE)
#undef CASE
  default:
    return nullptr;
  }
}

iso_status launch_embedding(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor &table = arguments->inputs[1];
  lookup o = {};
  o.ids = (const int32_t *)simt_address(arguments->inputs[0]);
  o.table = simt_address(table);
  o.n_table_rows = table.dims[0];
  o.row_bytes = table.strides[0];
  o.scale = ((const iso_embedding_attributes *)arguments->attributes)->scale;
  o.y = simt_rows_of(arguments->outputs[0]);
  if (o.y.n_rows == 0)
    return ISO_OK;
  int64_t groups = (o.y.n_columns + 7) / 8;
  unsigned block = simt_block_size(groups, 128);
  dim3 grid((unsigned)o.y.n_rows, (unsigned)((groups + block - 1) / block));
  return simt_launch_early(queue, "embedding", choose_embedding(table.scheme), grid, dim3(block), 0,
                           o);
}

struct gather {
  const int32_t *rows;
  simt_rows x, y;
  int64_t n_units; /* of a row */
};

template <typename UNIT> __global__ void gather_rows(gather o) {
  simt_begin();
  int32_t index = o.rows[blockIdx.x];
  bool inside = index >= 0 && index < o.x.n_rows;
  const UNIT *x = (const UNIT *)o.x.row(inside ? index : 0);
  UNIT *y = (UNIT *)o.y.row(blockIdx.x);
  for (int64_t i = threadIdx.x; i < o.n_units; i += blockDim.x)
    y[i] = inside ? x[i] : UNIT{};
}

iso_status launch_gather_rows(iso_queue *queue, const iso_op_arguments *arguments) {
  gather o = {};
  o.x = simt_rows_of(arguments->inputs[0]);
  o.rows = (const int32_t *)simt_address(arguments->inputs[1]);
  o.y = simt_rows_of(arguments->outputs[0]);
  if (o.y.n_rows == 0)
    return ISO_OK;
  int64_t row_bytes = o.y.n_columns * simt_float_bytes(o.y.scheme);
  bool wide = row_bytes % 16 == 0 && simt_is_aligned(o.x, 16) && simt_is_aligned(o.y, 16);
  o.n_units = row_bytes / (wide ? 16 : 2);
  unsigned block = simt_block_size(o.n_units, 256);
  return simt_launch_early(queue, "gather_rows", wide ? gather_rows<uint4> : gather_rows<uint16_t>,
                           dim3((unsigned)o.y.n_rows), dim3(block), 0, o);
}

const iso_kernel records[] = {
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_EMBEDDING,
     .name = "embedding.simt",
     .schemes = SIMT_WEIGHT_SCHEMES,
     .activations = SIMT_FLOATS,
     .layout = ISO_LAYOUT_PLAIN,
     .rank = 0,
     .launch = launch_embedding},
    SIMT_RECORD(GATHER_ROWS, "gather_rows.simt", launch_gather_rows),
};

} /* namespace */

SIMT_EXPORT_KERNELS(rows, records)
