#include "backends/vulkan/fusion.h"
#include <string.h>

/* ---- Operands ----------------------------------------------------------------------------------
 */

static uint64_t end_of(const iso_tensor *tensor) {
  uint64_t bytes = 1;
  for (uint32_t d = 0; d < tensor->n_dims; d++)
    bytes +=
        (uint64_t)(tensor->dims[d] > 0 ? tensor->dims[d] - 1 : 0) * (uint64_t)tensor->strides[d];
  return tensor->n_dims ? bytes + (uint64_t)tensor->strides[tensor->n_dims - 1] - 1 : 0;
}

static bool is_apart(const iso_tensor *a, const iso_tensor *b) {
  return a->buffer != b->buffer || a->offset + end_of(a) <= b->offset ||
         b->offset + end_of(b) <= a->offset;
}

/* The same elements in the same place and order, however they are cut into dimensions. */
static bool is_same(const iso_tensor *a, const iso_tensor *b) {
  return a->buffer == b->buffer && a->offset == b->offset && a->scheme == b->scheme &&
         end_of(a) == end_of(b);
}

/* Rows without gaps: their elements may be seen as one long row. */
static bool is_dense(const iso_tensor *tensor) {
  for (uint32_t d = 0; d + 1 < tensor->n_dims; d++)
    if (tensor->dims[d] > 1 && tensor->strides[d] != tensor->dims[d + 1] * tensor->strides[d + 1])
      return false;
  return true;
}

/* Whether every byte of `covered` is one of `tensor`. */
static bool covers(const iso_tensor *tensor, const iso_tensor *covered) {
  return tensor->buffer == covered->buffer && tensor->offset <= covered->offset &&
         covered->offset + end_of(covered) <= tensor->offset + end_of(tensor);
}

/* Whether `output`, which an op of the pattern writes, touches nothing that another op of it reads
 * or writes: all run at once. `unused`, which may be NULL, is nothing that they touch. */
static bool is_apart_from_all(const iso_tensor *output, const iso_tensor *unused,
                              const vulkan_deferred *deferred) {
  for (uint32_t i = 0; i < deferred->count; i++) {
    const iso_op_arguments *op = &deferred->ops[i].arguments;
    for (uint32_t j = 0; j < op->n_inputs; j++)
      if (op->inputs[j].n_dims > 0 && op->inputs[j].layout == ISO_LAYOUT_PLAIN &&
          !(unused && is_same(unused, &op->inputs[j])) && !is_apart(output, &op->inputs[j]))
        return false;
    for (uint32_t j = 0; j < op->n_outputs; j++)
      if (!(unused && is_same(unused, &op->outputs[j])) && !is_apart(output, &op->outputs[j]))
        return false;
  }
  return true;
}

/* ---- Products ----------------------------------------------------------------------------------
 */

static const iso_op_arguments *held(const vulkan_deferred *deferred, uint32_t i) {
  return &deferred->ops[i].arguments;
}

/* The products among what is held: all ops but a norm in front. */
static uint32_t first_part(const vulkan_deferred *deferred) {
  return held(deferred, 0)->op == ISO_OP_RMS_NORM ? 1 : 0;
}

static bool matmul_joins(const vulkan_deferred *deferred, const iso_op_arguments *matmul) {
  if (!vulkan_fits_one(matmul))
    return false;
  uint32_t first = first_part(deferred);
  const iso_tensor *x = &matmul->inputs[0], *weight = &matmul->inputs[1];
  if (deferred->count == first)
    return is_same(x, &held(deferred, 0)->outputs[0]);
  const iso_op_arguments *before = held(deferred, deferred->count - 1);
  return deferred->count - first < VULKAN_MOST_PARTS && before->op == ISO_OP_MATMUL &&
         is_same(x, &before->inputs[0]) && weight->scheme == before->inputs[1].scheme &&
         weight->layout == before->inputs[1].layout &&
         matmul->outputs[0].scheme == before->outputs[0].scheme;
}

static bool glu_joins(const vulkan_deferred *deferred, const iso_op_arguments *glu) {
  uint32_t first = first_part(deferred);
  if (deferred->count != first + 2)
    return false;
  const iso_tensor *gate = &held(deferred, first)->outputs[0];
  const iso_tensor *up = &held(deferred, first + 1)->outputs[0];
  return is_same(&glu->inputs[0], gate) && is_same(&glu->inputs[1], up) &&
         glu->outputs[0].scheme == gate->scheme && is_dense(&glu->outputs[0]);
}

static bool add_joins(const vulkan_deferred *deferred, const iso_op_arguments *add) {
  uint32_t first = first_part(deferred);
  if (deferred->count != first + 1)
    return false;
  const iso_tensor *y = &held(deferred, first)->outputs[0];
  uint32_t other = is_same(&add->inputs[0], y) ? 1 : 0;
  const iso_tensor *residual = &add->inputs[other];
  return is_same(&add->inputs[1 - other], y) && residual->scheme == y->scheme &&
         end_of(residual) == end_of(y) && add->outputs[0].scheme == y->scheme &&
         is_apart_from_all(residual, NULL, deferred) &&
         (is_apart(&add->outputs[0], residual) || is_same(&add->outputs[0], residual));
}

/* A normalised row that `after` writes over, its dense output covering it: it need not be written,
 * and products do not read it. NULL where there is none. */
static const iso_tensor *lost_row(const vulkan_deferred *deferred, const iso_op_arguments *after) {
  if (after->op != ISO_OP_GLU || first_part(deferred) == 0)
    return NULL;
  const iso_tensor *row = &held(deferred, 0)->outputs[0];
  return covers(&after->outputs[0], row) ? row : NULL;
}

static bool extends_product(const vulkan_deferred *deferred, const iso_op_arguments *op) {
  bool joins = op->op == ISO_OP_MATMUL ? matmul_joins(deferred, op)
               : op->op == ISO_OP_GLU  ? glu_joins(deferred, op)
               : op->op == ISO_OP_ADD  ? add_joins(deferred, op)
                                       : false;
  return joins && is_apart_from_all(&op->outputs[0], lost_row(deferred, op), deferred);
}

/* ---- Rotation and cache ------------------------------------------------------------------------
 */

static bool is_float_cache(const iso_tensor *cache) { return cache->scheme <= ISO_SCHEME_BF16; }

static bool rope_is_simple(const iso_op_arguments *rope) {
  return is_dense(&rope->inputs[0]) && is_dense(&rope->outputs[0]) &&
         rope->inputs[0].scheme == rope->outputs[0].scheme;
}

/* Attention of the one token that is rotated and written. */
static bool attention_joins(const vulkan_deferred *deferred, const iso_op_arguments *op) {
  enum { Q, K_CACHE, V_CACHE, BLOCK_TABLE, ALIBI_SLOPES = 7 };
  const iso_tensor *q = &held(deferred, 0)->outputs[0], *y = &op->outputs[0];
  const iso_op_arguments *write = held(deferred, 2);
  const iso_tensor *k = &held(deferred, 1)->inputs[0], *turned_k = &held(deferred, 1)->outputs[0];
  const iso_tensor *old_q = &held(deferred, 0)->inputs[0], *v = &write->inputs[1];
  /* Its output may lie where the queries did, which are read before, but on nothing else. */
  return is_same(&op->inputs[Q], q) && is_same(&op->inputs[K_CACHE], &write->inputs[3]) &&
         is_same(&op->inputs[V_CACHE], &write->inputs[4]) && op->inputs[BLOCK_TABLE].dims[0] == 1 &&
         (op->n_inputs <= ALIBI_SLOPES || op->inputs[ALIBI_SLOPES].n_dims == 0) && is_dense(y) &&
         y->scheme == q->scheme && is_apart(y, q) && is_apart(y, k) && is_apart(y, v) &&
         is_apart(y, turned_k) && (is_apart(y, old_q) || is_same(y, old_q));
}

static bool extends_rope(const vulkan_deferred *deferred, const iso_op_arguments *op) {
  const iso_op_arguments *first = held(deferred, 0);
  if (op->op == ISO_OP_ROPE && deferred->count == 1) {
    const iso_rope_attributes *a = (const void *)deferred->ops[0].attributes, *b = op->attributes;
    return rope_is_simple(op) && op->inputs[0].scheme == first->inputs[0].scheme &&
           op->inputs[0].dims[2] == first->inputs[0].dims[2] &&
           is_same(&op->inputs[1], &first->inputs[1]) &&
           is_same(&op->inputs[2], &first->inputs[2]) && a->interleaved == b->interleaved &&
           a->magnitude == b->magnitude && is_apart(&op->inputs[0], &first->outputs[0]) &&
           is_apart_from_all(&op->outputs[0], NULL, deferred);
  }
  if (op->op == ISO_OP_PAGED_ATTENTION && deferred->count == 3)
    return attention_joins(deferred, op);
  if (op->op != ISO_OP_KV_WRITE || deferred->count != 2)
    return false;
  const iso_tensor *v = &op->inputs[1];
  for (uint32_t i = 0; i < 2; i++) /* of what the ropes write, nothing is read again but k */
    if (!is_apart(v, &held(deferred, i)->outputs[0]))
      return false;
  return is_same(&op->inputs[0], &held(deferred, 1)->outputs[0]) &&
         v->scheme == first->inputs[0].scheme && is_dense(v) && is_float_cache(&op->inputs[3]) &&
         is_float_cache(&op->inputs[4]);
}

/* ---- The queue ---------------------------------------------------------------------------------
 */

static bool begins(const iso_op_arguments *op) {
  switch (op->op) {
  case ISO_OP_RMS_NORM:
    return vulkan_norm_fits_one(op);
  case ISO_OP_MATMUL:
    return vulkan_fits_one(op);
  case ISO_OP_ROPE:
    return rope_is_simple(op);
  default:
    return false;
  }
}

static bool extends(const vulkan_deferred *deferred, const iso_op_arguments *op) {
  if (deferred->count == 0 || deferred->count == VULKAN_MOST_DEFERRED)
    return false;
  return held(deferred, 0)->op == ISO_OP_ROPE ? extends_rope(deferred, op)
                                              : extends_product(deferred, op);
}

static void hold_back(vulkan_deferred *deferred, const iso_op_arguments *arguments,
                      vulkan_launch launch) {
  vulkan_deferred_op *op = &deferred->ops[deferred->count++];
  op->arguments = *arguments;
  op->launch = launch;
  uint32_t size = *(const uint32_t *)arguments->attributes;
  memcpy(op->attributes, arguments->attributes,
         size < VULKAN_ATTRIBUTE_BYTES ? size : VULKAN_ATTRIBUTE_BYTES);
}

static iso_status launch_products(iso_queue *queue, const vulkan_deferred *deferred,
                                  uint32_t count) {
  vulkan_product product = {0};
  for (uint32_t i = 0; i < count; i++) {
    const iso_op_arguments *op = held(deferred, i);
    if (op->op == ISO_OP_RMS_NORM)
      product.norm = op;
    else if (op->op == ISO_OP_MATMUL)
      product.parts[product.n_parts++] = op;
    else
      product.after = op;
  }
  product.loses_row = product.after && lost_row(deferred, product.after);
  return vulkan_launch_product(queue, &product);
}

iso_status vulkan_flush_deferred(iso_queue *queue) {
  vulkan_deferred *deferred = vulkan_queue_deferred(queue);
  if (deferred->count == 0)
    return ISO_OK;
  /* Launching flushes: there must be nothing left to flush by then. */
  uint32_t count = deferred->count;
  deferred->count = 0;
  for (uint32_t i = 0; i < count; i++)
    deferred->ops[i].arguments.attributes = deferred->ops[i].attributes;
  iso_op first = held(deferred, 0)->op, last = held(deferred, count - 1)->op;
  if (first == ISO_OP_ROPE && last == ISO_OP_PAGED_ATTENTION)
    return vulkan_launch_rope_attention(queue, held(deferred, 0), held(deferred, 1),
                                        held(deferred, 2), held(deferred, 3));
  if (first == ISO_OP_ROPE && last == ISO_OP_KV_WRITE)
    return vulkan_launch_rope_kv_write(queue, held(deferred, 0), held(deferred, 1),
                                       held(deferred, 2));
  if (first != ISO_OP_ROPE && count > 1)
    return launch_products(queue, deferred, count);
  iso_status status = ISO_OK;
  for (uint32_t i = 0; i < count && status == ISO_OK; i++)
    status = deferred->ops[i].launch(queue, held(deferred, i));
  return status;
}

/* Whether an op ends its pattern. */
static bool nothing_follows(const iso_op_arguments *op) {
  return op->op == ISO_OP_ADD || op->op == ISO_OP_GLU || op->op == ISO_OP_PAGED_ATTENTION ||
         (op->op == ISO_OP_KV_WRITE && op->inputs[0].dims[0] != 1);
}

iso_status vulkan_defer(iso_queue *queue, const iso_op_arguments *arguments, vulkan_launch launch) {
  vulkan_deferred *deferred = vulkan_queue_deferred(queue);
  if (deferred->is_off)
    return launch(queue, arguments);
  bool joins = extends(deferred, arguments);
  if (!joins) {
    ISO_TRY(vulkan_flush_deferred(queue));
    if (!begins(arguments))
      return launch(queue, arguments);
  }
  hold_back(deferred, arguments, launch);
  return joins && nothing_follows(arguments) ? vulkan_flush_deferred(queue) : ISO_OK;
}
