/* Rows rounded to 8 bits times weights in groups of 128, where that is asked for. */
#include "backends/cuda/hopper/matmul_eight_run.cuh"
#include "backends/cuda/hopper/matmul_many_records.cuh"

namespace {

/* Below MANY_LEAST_ROWS matmul_few() is as fast and rounds less. */
static_assert((int)EIGHT_SLAB == (int)MANY_COLUMNS, "a grid holds as many rows as the check says");

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  iso_refusal refusal = matmul_check_rounding(arguments, out_detail);
  return refusal != ISO_ACCEPTED ? refusal : matmul_many_check(device, arguments, out_detail);
}

uint64_t workspace(const iso_device *, const iso_op_arguments *arguments) {
  return matmul_eight_workspace(matmul_rows(arguments), arguments->inputs[1].dims[1]);
}

matmul_eight_part read_part(const iso_op_arguments *arguments) {
  const iso_tensor &weight = arguments->inputs[1];
  matmul_eight_part part = {};
  part.weight = simt_address(weight);
  part.bias = (const float *)simt_address(arguments->inputs[2]);
  part.y = simt_rows_of(arguments->outputs[0]);
  part.n_features = weight.dims[0];
  part.row_scales = simt_is_noted(weight.buffer, weight.offset);
  return part;
}

/* ---- One launch --------------------------------------------------------------------------------
 */

/* Whether this takes rows that others have rounded. */
template <typename W> bool wants_rounded(const iso_op_arguments &product) {
  int64_t n_rows = matmul_rows(&product);
  return W::float8 && n_rows > 0 && n_rows <= SIMT_SLAB;
}

/* Memory for rounded rows, other than what was lent the time before; NULL where it is too small. */
simt_rounded_rows lend(iso_queue *queue, int64_t n_columns) {
  if (n_columns > CUDA_ROWS_COLUMNS || n_columns % SIMT_ROUNDED_GROUP != 0)
    return simt_rounded_rows{};
  queue->turn = (queue->turn + 1) % CUDA_ROWS;
  uint8_t *image = queue->rows + queue->turn * (size_t)CUDA_ROWS_STRIDE;
  return {image, (float *)(image + CUDA_ROWS_CODES)};
}

/* Products of the same rows. */
matmul_eight_arguments read_products(const simt_deferred_op *ops, uint32_t count) {
  matmul_eight_arguments a = {};
  const iso_op_arguments &first = ops[0].arguments;
  a.x = matmul_eight_rows_in(simt_workspace(&first), matmul_rows(&first), first.inputs[1].dims[1]);
  for (uint32_t i = 0; i < count; i++)
    if (ops[i].arguments.inputs[1].dims[0] > 0)
      a.parts[a.n_parts++] = read_part(&ops[i].arguments);
  return a;
}

/* Products of the same rows in one launch: of `rounded` ones, or without an image of what is
 * rounded in the scratch of the first. */
template <typename W>
iso_status multiply(iso_queue *queue, const simt_deferred_op *ops, uint32_t count,
                    const simt_rounded_rows &rounded) {
  matmul_eight_arguments a = read_products(ops, count);
  if (a.x.n_rows == 0 || a.n_parts == 0)
    return ISO_OK;
  if (rounded.image)
    a.x.image = rounded.image, a.x.scales = rounded.scales;
  else
    ISO_TRY(matmul_eight_prepare<W::float8>(queue, simt_rows_of(ops[0].arguments.inputs[0]), a.x));
  return matmul_eight_run<W>(queue, "matmul.eight", a);
}

/* Where the kernel before has rounded x. */
template <typename W>
simt_rounded_rows find_rounded(const iso_queue *queue, const iso_op_arguments &product) {
  const cuda_rounded &r = queue->rounded;
  bool is = r.codes && r.in_groups && r.n_enqueued == queue->n_enqueued &&
            simt_is_same(&r.x, &product.inputs[0]) && wants_rounded<W>(product);
  return is ? simt_rounded_rows{r.codes, r.scales} : simt_rounded_rows{};
}

template <typename W> iso_status run(iso_queue *queue, const iso_op_arguments *arguments) {
  simt_deferred_op op = {};
  op.arguments = *arguments;
  return multiply<W>(queue, &op, 1, find_rounded<W>(queue, *arguments));
}

/* ---- Groups ------------------------------------------------------------------------------------
 */

/* Launches what makes rows of so many columns, as many as `product` has, rounded, too, where that
 * is wanted and it can; without an image: it did not. */
template <typename W, typename F>
iso_status make_rounded(iso_queue *queue, const iso_op_arguments &product, int64_t n_columns,
                        F launch, simt_rounded_rows *out) {
  simt_rounding rounding = {};
  simt_deferred *deferred = simt_queue_deferred(queue);
  if (wants_rounded<W>(product))
    rounding.to = lend(queue, n_columns);
  deferred->rounding = rounding.to.image ? &rounding : nullptr;
  iso_status status = launch();
  deferred->rounding = nullptr;
  *out = rounding.is_done ? rounding.to : simt_rounded_rows{};
  return status;
}

/* The glu of two products, whose result the next product most likely takes. */
template <typename W>
iso_status run_glu(iso_queue *queue, const simt_deferred_op &glu, const iso_op_arguments &last) {
  const iso_tensor &y = glu.arguments.outputs[0];
  simt_rounded_rows rounded = {};
  auto make = [&]() { return simt_launch_deferred(queue, glu); };
  ISO_TRY(make_rounded<W>(queue, last, y.dims[y.n_dims - 1], make, &rounded));
  queue->rounded = cuda_rounded{y, rounded.image, rounded.scales, true, queue->n_enqueued};
  return ISO_OK;
}

/* Rows as matmul_eight_make.cuh has them; false where they are others. */
bool read_rows(const iso_tensor &tensor, make_rows *out) {
  simt_rows rows = simt_rows_of(tensor);
  *out = make_rows{rows.data, rows.strides[0]};
  return rows.scheme == ISO_SCHEME_BF16 && rows.n_dims == 1 && simt_is_aligned(rows, 16) &&
         rows.n_columns % SIMT_ROUNDED_GROUP == 0 && rows.n_rows <= SIMT_SLAB;
}

/* An add, the rms_norm of its result and `count` products of that in one launch; *out_is_done says
 * whether there is one. */
template <typename W>
iso_status norm_and_multiply(iso_queue *queue, const simt_deferred_op *ops, uint32_t count,
                             bool *out_is_done) {
  const iso_op_arguments &add = ops[0].arguments, &norm = ops[1].arguments;
  auto *attributes = (const iso_rms_norm_attributes *)ops[1].attributes;
  matmul_eight_arguments a = read_products(ops + 2, count);
  make_norm make = {};
  make.n_rows = (int32_t)a.x.n_rows, make.n_columns = a.x.n_groups * EIGHT_GROUP;
  *out_is_done = false;
  if (!wants_rounded<W>(ops[2].arguments) || a.n_parts == 0 || make.n_columns > MAKE_NORM_COLUMNS ||
      !read_rows(add.inputs[0], &make.a) || !read_rows(add.inputs[1], &make.b) ||
      !read_rows(norm.inputs[0], &make.sum) || !read_rows(norm.outputs[0], &make.y))
    return ISO_OK;
  make.to = lend(queue, make.n_columns);
  make.weight = (const float *)simt_address(norm.inputs[1]);
  make.epsilon = attributes->epsilon, make.weight_offset = attributes->weight_offset;
  make.meeting.counters = simt_queue_counters(queue);
  a.x.image = make.to.image, a.x.scales = make.to.scales;
  return matmul_eight_make_and_run<W>(queue, "add, rms_norm, matmul.eight", a, make, out_is_done);
}

/* What fusion.h finds around products of the same rows: the add and the rms_norm, or the attention,
 * that make them, the glu of two. */
template <typename W>
iso_status run_group(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  simt_rounded_rows rounded = {};
  iso_op maker = ops[0].arguments.op;
  bool is_done = false, has_glu = ops[count - 1].arguments.op == ISO_OP_GLU;
  uint32_t begin = maker == ISO_OP_ADD ? 2 : maker == ISO_OP_PAGED_ATTENTION ? 1 : 0;
  uint32_t n_products = count - begin - has_glu;
  auto make = [&]() {
    return begin == 2 ? simt_add_rms_norm(queue, ops, 2) : simt_launch_deferred(queue, ops[0]);
  };
  const iso_op_arguments &product = ops[begin].arguments;
  if constexpr (W::float8)
    if (begin == 2)
      ISO_TRY(norm_and_multiply<W>(queue, ops, n_products, &is_done));
  if (begin > 0 && !is_done)
    ISO_TRY(make_rounded<W>(queue, product, product.inputs[1].dims[1], make, &rounded));
  else if (begin == 0)
    rounded = find_rounded<W>(queue, product);
  if (!is_done)
    ISO_TRY(multiply<W>(queue, ops + begin, n_products, rounded));
  return has_glu ? run_glu<W>(queue, ops[count - 1], ops[count - 2].arguments) : ISO_OK;
}

template <typename W> iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run<W>, run_group<W>,
                    wants_rounded<W>(*arguments));
}

#define EIGHT_RECORD(SCHEME, scheme)                                                               \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_MATMUL, .name = "matmul." #scheme ".eight",           \
    .schemes = ISO_SCHEME_BIT(ISO_SCHEME_##SCHEME), .activations = SIMT_FLOATS,                    \
    .layout = MATMUL_LAYOUT_PACKED, .rank = 50, .check = check, .workspace = workspace,            \
    .packed_bytes = matmul_records<matmul_##scheme>::packed_bytes,                                 \
    .pack = matmul_records<matmul_##scheme>::pack, .launch = launch<matmul_##scheme>               \
  }

const iso_kernel records[] = {EIGHT_RECORD(I8_G128, i8_g128), EIGHT_RECORD(F8_G128, f8_g128)};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_eight, records)
