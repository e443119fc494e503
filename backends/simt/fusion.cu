#include "backends/simt/fusion.h"
#include <string.h>

/* The first `count` ops of a pattern fit together or not; with all of them it is launched. */
struct pattern {
  uint32_t n_ops;
  iso_op ops[SIMT_MOST_DEFERRED];
  bool (*fits)(const simt_deferred_op *ops, uint32_t count);
  simt_group_function launch;
};

static iso_status launch_matmuls(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  return ops[0].launch_group(queue, ops, count);
}

static iso_status launch_norm_matmuls(iso_queue *queue, const simt_deferred_op *ops,
                                      uint32_t count) {
  return ops[2].launch_group(queue, ops, count);
}

static iso_status launch_attention_matmul(iso_queue *queue, const simt_deferred_op *ops,
                                          uint32_t count) {
  return ops[1].launch_group(queue, ops, count);
}

static iso_status launch_attention(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  return ops[3].launch_group(queue, ops, count);
}

static bool fit_beside(const simt_deferred_op *ops, uint32_t count);

static const pattern patterns[] = {
    {2, {ISO_OP_ADD, ISO_OP_RMS_NORM}, simt_add_rms_norm_fits, simt_add_rms_norm},
    {3, {ISO_OP_ROPE, ISO_OP_ROPE, ISO_OP_KV_WRITE}, simt_rope_kv_write_fits, simt_rope_kv_write},
    {4,
     {ISO_OP_ROPE, ISO_OP_ROPE, ISO_OP_KV_WRITE, ISO_OP_PAGED_ATTENTION},
     simt_rope_attention_fits,
     launch_attention},
    {2, {ISO_OP_MATMUL, ISO_OP_MATMUL}, simt_matmuls_fit, launch_matmuls},
    {3, {ISO_OP_MATMUL, ISO_OP_MATMUL, ISO_OP_MATMUL}, simt_matmuls_fit, launch_matmuls},
    {3, {ISO_OP_MATMUL, ISO_OP_MATMUL, ISO_OP_GLU}, simt_matmul_glu_fits, launch_matmuls},
    {2, {ISO_OP_MATMUL, ISO_OP_MATMUL}, fit_beside, simt_launch_beside},
    {3, {ISO_OP_MATMUL, ISO_OP_MATMUL, ISO_OP_MATMUL}, fit_beside, simt_launch_beside},
    {4,
     {ISO_OP_ADD, ISO_OP_RMS_NORM, ISO_OP_MATMUL, ISO_OP_MATMUL},
     simt_norm_matmuls_fit,
     launch_norm_matmuls},
    {5,
     {ISO_OP_ADD, ISO_OP_RMS_NORM, ISO_OP_MATMUL, ISO_OP_MATMUL, ISO_OP_MATMUL},
     simt_norm_matmuls_fit,
     launch_norm_matmuls},
    {5,
     {ISO_OP_ADD, ISO_OP_RMS_NORM, ISO_OP_MATMUL, ISO_OP_MATMUL, ISO_OP_GLU},
     simt_norm_matmul_glu_fits,
     launch_norm_matmuls},
    {4,
     {ISO_OP_ADD, ISO_OP_RMS_NORM, ISO_OP_MATMUL, ISO_OP_MATMUL},
     simt_rounded_norm_matmuls_fit,
     launch_norm_matmuls},
    {5,
     {ISO_OP_ADD, ISO_OP_RMS_NORM, ISO_OP_MATMUL, ISO_OP_MATMUL, ISO_OP_MATMUL},
     simt_rounded_norm_matmuls_fit,
     launch_norm_matmuls},
    {5,
     {ISO_OP_ADD, ISO_OP_RMS_NORM, ISO_OP_MATMUL, ISO_OP_MATMUL, ISO_OP_GLU},
     simt_rounded_norm_matmul_glu_fits,
     launch_norm_matmuls},
    {2,
     {ISO_OP_PAGED_ATTENTION, ISO_OP_MATMUL},
     simt_rounded_attention_fits,
     launch_attention_matmul},
};

bool simt_is_same(const iso_tensor *a, const iso_tensor *b) {
  bool same = a->buffer == b->buffer && a->offset == b->offset && a->scheme == b->scheme &&
              a->n_dims == b->n_dims;
  for (uint32_t d = 0; same && d < a->n_dims; d++)
    same = a->dims[d] == b->dims[d] && a->strides[d] == b->strides[d];
  return same;
}

static uint64_t span_of(const iso_tensor *tensor) {
  uint64_t bytes = 0;
  for (uint32_t d = 0; d < tensor->n_dims; d++) {
    if (tensor->dims[d] == 0)
      return 0;
    bytes += (uint64_t)(tensor->dims[d] - 1) * (uint64_t)tensor->strides[d];
  }
  return tensor->n_dims ? bytes + (uint64_t)tensor->strides[tensor->n_dims - 1] : 0;
}

bool simt_is_apart(const iso_tensor *a, const iso_tensor *b) {
  return a->buffer != b->buffer || a->offset + span_of(a) <= b->offset ||
         b->offset + span_of(b) <= a->offset;
}

/* Rows of a matrix, or several dimensions of them without gaps between. */
static bool are_plain_rows(const iso_tensor &tensor) {
  for (uint32_t d = 0; d + 2 < tensor.n_dims; d++)
    if (tensor.strides[d] != tensor.dims[d + 1] * tensor.strides[d + 1])
      return false;
  return true;
}

/* Whether these products read the same rows, and none what another writes. */
static bool are_side_by_side(const simt_deferred_op *ops, uint32_t count) {
  const iso_op_arguments &first = ops[0].arguments;
  bool are = simt_is_apart(&first.outputs[0], &first.inputs[0]);
  for (uint32_t i = 1; i < count && are; i++) {
    const iso_op_arguments &product = ops[i].arguments;
    are = ops[i].launch_group == ops[0].launch_group &&
          simt_is_same(&product.inputs[0], &first.inputs[0]) &&
          simt_is_apart(&product.outputs[0], &first.inputs[0]);
    for (uint32_t j = 0; j < i && are; j++)
      are = simt_is_apart(&product.outputs[0], &ops[j].arguments.outputs[0]);
  }
  return are;
}

/* Only records that make several products in one launch have a function for it, each for its own
 * scheme: the same function is the same kind of weight. */
bool simt_matmuls_fit(const simt_deferred_op *ops, uint32_t count) {
  bool fit = ops[0].launch_group && are_plain_rows(ops[0].arguments.inputs[0]);
  for (uint32_t i = 0; i < count && fit; i++)
    fit = are_plain_rows(ops[i].arguments.outputs[0]);
  return fit && are_side_by_side(ops, count);
}

static bool fit_beside(const simt_deferred_op *ops, uint32_t count) {
  return !ops[0].launch_group && are_side_by_side(ops, count);
}

/* Whether products of the same rows leave much of the device idle, each with scratch of its own. */
static bool leave_room(const simt_deferred_op *ops, uint32_t count) {
  enum { MOST_ROWS = 128 };
  const iso_tensor &x = ops[0].arguments.inputs[0];
  int64_t n_rows = 1;
  for (uint32_t d = 0; d + 1 < x.n_dims; d++)
    n_rows *= x.dims[d];
  if (count < 2 || n_rows > MOST_ROWS)
    return false;
  for (uint32_t i = 1; i < count; i++)
    for (uint32_t j = 0; j < i; j++) {
      const iso_op_arguments &a = ops[i].arguments, &b = ops[j].arguments;
      if (a.workspace && a.workspace == b.workspace && a.workspace_offset == b.workspace_offset)
        return false;
    }
  return true;
}

iso_status simt_launch_deferred(iso_queue *queue, const simt_deferred_op &op) {
  iso_op_arguments arguments = op.arguments;
  arguments.attributes = op.attributes;
  return op.launch(queue, &arguments);
}

iso_status simt_launch_beside(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  uint32_t widest = 0;
  if (!leave_room(ops, count)) {
    for (uint32_t i = 0; i < count; i++)
      ISO_TRY(simt_launch_deferred(queue, ops[i]));
    return ISO_OK;
  }
  for (uint32_t i = 1; i < count; i++)
    if (ops[i].arguments.inputs[1].dims[0] > ops[widest].arguments.inputs[1].dims[0])
      widest = i;
  iso_status status = simt_fork(queue, count - 1);
  for (uint32_t i = 0, lane = 0; i < count && status == ISO_OK; i++) {
    if (i == widest)
      continue;
    simt_enter_lane(queue, lane++);
    status = simt_launch_deferred(queue, ops[i]);
    simt_leave_lane(queue);
  }
  if (status == ISO_OK)
    status = simt_launch_deferred(queue, ops[widest]);
  iso_status joined = simt_join(queue, count - 1);
  return status != ISO_OK ? status : joined;
}

bool simt_matmul_glu_fits(const simt_deferred_op *ops, uint32_t count) {
  if (!simt_matmuls_fit(ops, count < 2 ? count : 2))
    return false;
  const iso_op_arguments &gate = ops[0].arguments, &up = ops[1].arguments;
  const iso_op_arguments &glu = ops[2].arguments;
  return count < 3 ||
         (simt_is_same(&glu.inputs[0], &gate.outputs[0]) &&
          simt_is_same(&glu.inputs[1], &up.outputs[0]) && are_plain_rows(glu.outputs[0]) &&
          simt_is_apart(&glu.outputs[0], &gate.inputs[0]) &&
          simt_is_apart(&glu.outputs[0], &gate.outputs[0]) &&
          simt_is_apart(&glu.outputs[0], &up.outputs[0]));
}

/* Blocks rotate queries for themselves: what they read, none may write. */
bool simt_rope_attention_fits(const simt_deferred_op *ops, uint32_t count) {
  if (!simt_rope_kv_write_fits(ops, count < 3 ? count : 3))
    return false;
  const iso_op_arguments &q = ops[0].arguments, &k = ops[1].arguments;
  const iso_op_arguments &kv = ops[2].arguments, &attention = ops[3].arguments;
  return count < 4 || (ops[3].launch_group && simt_is_same(&attention.inputs[0], &q.outputs[0]) &&
                       simt_is_same(&attention.inputs[1], &kv.outputs[0]) &&
                       simt_is_same(&attention.inputs[2], &kv.outputs[1]) &&
                       simt_is_apart(&q.outputs[0], &q.inputs[0]) &&
                       simt_is_apart(&attention.outputs[0], &q.inputs[0]) &&
                       simt_is_apart(&attention.outputs[0], &q.outputs[0]) &&
                       simt_is_apart(&attention.outputs[0], &k.inputs[0]) &&
                       simt_is_apart(&attention.outputs[0], &k.outputs[0]) &&
                       simt_is_apart(&attention.outputs[0], &kv.inputs[1]));
}

/* Blocks still read what is added while others store. */
static bool is_apart_from_terms(const iso_op_arguments &add, const iso_tensor *output) {
  return simt_is_apart(output, &add.inputs[0]) && simt_is_apart(output, &add.inputs[1]);
}

/* Every block adds and normalises for itself, which pays for a row or two. */
static bool begins_with_norm(const simt_deferred_op *ops, uint32_t count) {
  enum { MOST_ROW_BYTES = 16384, MOST_COLUMNS = 8192 };
  if (!simt_add_rms_norm_fits(ops, count < 2 ? count : 2))
    return false;
  const iso_op_arguments &add = ops[0].arguments;
  const iso_tensor &sum = add.outputs[0];
  int64_t n_rows = 1, n_columns = sum.dims[sum.n_dims - 1];
  for (uint32_t d = 0; d + 1 < sum.n_dims; d++)
    n_rows *= sum.dims[d];
  return n_columns <= MOST_COLUMNS && are_plain_rows(sum) && are_plain_rows(add.inputs[0]) &&
         are_plain_rows(add.inputs[1]) &&
         n_rows * n_columns * sum.strides[sum.n_dims - 1] <= MOST_ROW_BYTES &&
         is_apart_from_terms(add, &sum) &&
         (count < 2 || ops[1].arguments.outputs[0].scheme == sum.scheme);
}

static bool follows_norm(const simt_deferred_op *ops, uint32_t count) {
  bool fits = count < 3 || simt_is_same(&ops[2].arguments.inputs[0], &ops[1].arguments.outputs[0]);
  for (uint32_t i = 2; i < count && fits; i++)
    fits = is_apart_from_terms(ops[0].arguments, &ops[i].arguments.outputs[0]);
  return fits;
}

bool simt_norm_matmuls_fit(const simt_deferred_op *ops, uint32_t count) {
  return begins_with_norm(ops, count) && follows_norm(ops, count) &&
         (count < 3 || simt_matmuls_fit(ops + 2, count - 2));
}

bool simt_norm_matmul_glu_fits(const simt_deferred_op *ops, uint32_t count) {
  return begins_with_norm(ops, count) && follows_norm(ops, count) &&
         (count < 3 || simt_matmul_glu_fits(ops + 2, count - 2));
}

/* Rows that one stride walks, without gaps between them. */
static bool are_dense(const iso_tensor &tensor) {
  int64_t bytes = tensor.scheme == ISO_SCHEME_F32 ? 4 : 2;
  for (uint32_t d = tensor.n_dims; d-- > 0; bytes *= tensor.dims[d])
    if (tensor.strides[d] != bytes)
      return false;
  return true;
}

/* Products begin when all of the norm is there, so that nobody reads what others store. */
static bool is_rounded_norm(const simt_deferred_op *ops, uint32_t count) {
  return simt_add_rms_norm_fits(ops, count < 2 ? count : 2) &&
         (count < 3 || (ops[2].rounds &&
                        simt_is_same(&ops[2].arguments.inputs[0], &ops[1].arguments.outputs[0]) &&
                        are_dense(ops[1].arguments.outputs[0])));
}

bool simt_rounded_norm_matmuls_fit(const simt_deferred_op *ops, uint32_t count) {
  return is_rounded_norm(ops, count) && (count < 3 || simt_matmuls_fit(ops + 2, count - 2));
}

bool simt_rounded_norm_matmul_glu_fits(const simt_deferred_op *ops, uint32_t count) {
  return is_rounded_norm(ops, count) && (count < 3 || simt_matmul_glu_fits(ops + 2, count - 2));
}

bool simt_rounded_attention_fits(const simt_deferred_op *ops, uint32_t count) {
  if (count < 2)
    return true;
  const iso_tensor &y = ops[0].arguments.outputs[0], &x = ops[1].arguments.inputs[0];
  return ops[1].rounds && x.buffer == y.buffer && x.offset == y.offset && x.scheme == y.scheme &&
         are_dense(x) && are_dense(y) && y.n_dims == 3 && x.n_dims == 2 && x.dims[0] == y.dims[0] &&
         x.dims[1] == y.dims[1] * y.dims[2];
}

static bool begins(const pattern &p, const simt_deferred_op *ops, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (ops[i].arguments.op != p.ops[i])
      return false;
  return p.fits(ops, count);
}

/* Whether these ops are the beginning of something longer. */
static bool may_grow(const simt_deferred_op *ops, uint32_t count) {
  for (const pattern &p : patterns)
    if (count < p.n_ops && begins(p, ops, count))
      return true;
  return false;
}

/* The longest pattern that the first of these ops are; NULL when there is none. */
static const pattern *find_longest(const simt_deferred_op *ops, uint32_t count) {
  const pattern *longest = nullptr;
  for (const pattern &p : patterns)
    if (p.n_ops <= count && (!longest || p.n_ops > longest->n_ops) && begins(p, ops, p.n_ops))
      longest = &p;
  return longest;
}

static void hold_back(simt_deferred *deferred, const iso_op_arguments *arguments,
                      simt_launch_function launch, simt_group_function launch_group, bool rounds) {
  simt_deferred_op *op = &deferred->ops[deferred->count++];
  op->arguments = *arguments;
  op->launch = launch;
  op->launch_group = launch_group;
  op->rounds = rounds;
  uint32_t size = *(const uint32_t *)arguments->attributes, most = SIMT_ATTRIBUTE_BYTES;
  memcpy(op->attributes, arguments->attributes, size < most ? size : most);
}

/* Launches the longest pattern at the front, or the first op, and takes it away. */
static iso_status launch_first(iso_queue *queue, simt_deferred *deferred) {
  simt_deferred held = *deferred;
  deferred->count = 0; /* launching flushes: there must be nothing left to flush by then */
  const pattern *p = find_longest(held.ops, held.count);
  ISO_TRY(p ? p->launch(queue, held.ops, p->n_ops) : simt_launch_deferred(queue, held.ops[0]));
  uint32_t done = p ? p->n_ops : 1;
  deferred->count = held.count - done;
  for (uint32_t i = 0; i < deferred->count; i++)
    deferred->ops[i] = held.ops[done + i];
  return ISO_OK;
}

simt_rounded_rows simt_take_rounding(simt_deferred *deferred) {
  if (!deferred->rounding)
    return simt_rounded_rows{};
  deferred->rounding->is_done = true;
  return deferred->rounding->to;
}

iso_status simt_flush_deferred(iso_queue *queue, simt_deferred *deferred) {
  while (deferred->count > 0)
    ISO_TRY(launch_first(queue, deferred));
  return ISO_OK;
}

iso_status simt_defer(iso_queue *queue, simt_deferred *deferred, const iso_op_arguments *arguments,
                      simt_launch_function launch, simt_group_function launch_group, bool rounds) {
  if (deferred->off)
    return launch(queue, arguments);
  hold_back(deferred, arguments, launch, launch_group, rounds);
  while (deferred->count > 0 && !may_grow(deferred->ops, deferred->count))
    ISO_TRY(launch_first(queue, deferred));
  return ISO_OK;
}
