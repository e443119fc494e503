/* embedding over tables that are packed for products, so that a head tied to its table needs only
 * one copy of it, and has the fast products. A table of its own stays in rows. */
#include "backends/simt/matmul_records.cuh"
#include "backends/simt/matmul_unpack.cuh"

namespace {

enum { SUBGROUPS = 4 };

struct lookup {
  const int32_t *ids;
  const uint8_t *table;
  int64_t n_table_rows;
  float scale;
  simt_rows y;
};

__device__ void store(const lookup &o, uint8_t *y, int64_t column, bool inside,
                      const float (&v)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (column + i < o.y.n_columns)
      simt_store(o.y.scheme, y, column + i, inside ? v[i] * o.scale : NAN);
}

/* Grid: rows of y, groups of units. A subgroup a unit; the four lanes that own the row decode. */
template <typename W> __global__ void __launch_bounds__(SUBGROUPS * 32) embedding_packed(lookup o) {
  int lane = threadIdx.x % 32;
  int64_t n_units = matmul_count(o.y.n_columns, W::unit);
  int64_t unit = (int64_t)blockIdx.y * SUBGROUPS + threadIdx.x / 32;
  simt_begin();
  if (unit >= n_units)
    return;
  int32_t id = o.ids[blockIdx.x];
  bool inside = id >= 0 && id < o.n_table_rows;
  int64_t row = inside ? id : 0;
  if (lane / 4 != row % 8)
    return;
  const uint8_t *data = o.table + (row / 16 * n_units + unit) * W::unit_bytes;
  uint8_t *y = o.y.row(blockIdx.x);
  matmul_each_value<W>(data, lane, 1u << row % 16 / 8, [&](int, int at, const float(&v)[4]) {
    store(o, y, unit * W::unit + at, inside, v);
  });
}

template <typename W> iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  lookup o = {};
  o.ids = (const int32_t *)simt_address(arguments->inputs[0]);
  o.table = simt_address(arguments->inputs[1]);
  o.n_table_rows = arguments->inputs[1].dims[0];
  o.scale = ((const iso_embedding_attributes *)arguments->attributes)->scale;
  o.y = simt_rows_of(arguments->outputs[0]);
  if (o.y.n_rows == 0)
    return ISO_OK;
  int64_t units = matmul_count(o.y.n_columns, W::unit);
  dim3 grid((unsigned)o.y.n_rows, (unsigned)matmul_count(units, SUBGROUPS));
  return simt_launch_early(queue, "embedding.packed", embedding_packed<W>, grid,
                           dim3(SUBGROUPS * 32), 0, o);
}

template <typename W>
iso_refusal check(const iso_device *, const iso_op_arguments *, const char **out_detail) {
  if (!W::float8)
    return ISO_ACCEPTED;
  *out_detail = "packed for products, a NaN among 128 numbers takes the others with it";
  return ISO_REFUSED_SCHEME;
}

#define RECORD(SCHEME, scheme, ...)                                                                \
  {.size = sizeof(iso_kernel),                                                                     \
   .op = ISO_OP_EMBEDDING,                                                                         \
   .name = "embedding." #scheme ".packed",                                                         \
   .schemes = ISO_SCHEME_BIT(ISO_SCHEME_##SCHEME),                                                 \
   .activations = SIMT_FLOATS,                                                                     \
   .layout = MATMUL_LAYOUT_PACKED,                                                                 \
   .rank = -1,                                                                                     \
   .check = check<matmul_##scheme>,                                                                \
   .packed_bytes = matmul_records<matmul_##scheme>::packed_bytes,                                  \
   .pack = matmul_records<matmul_##scheme>::pack,                                                  \
   .launch = launch<matmul_##scheme>},

const iso_kernel records[] = {MATMUL_PACKED_SCHEMES(RECORD)};

} /* namespace */

SIMT_EXPORT_KERNELS(embedding_packed, records)
