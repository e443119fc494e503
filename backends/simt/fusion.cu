#include "backends/simt/fusion.h"
#include <string.h>

/* The first `count` ops of a pattern fit together or not; with all of them it is launched. */
struct pattern {
  uint32_t n_ops;
  iso_op ops[SIMT_MOST_DEFERRED];
  bool (*fits)(const simt_deferred_op *ops, uint32_t count);
  iso_status (*launch)(iso_queue *queue, const simt_deferred_op *ops);
};

static const pattern patterns[] = {
    {2, {ISO_OP_ADD, ISO_OP_RMS_NORM}, simt_add_rms_norm_fits, simt_add_rms_norm},
    {3, {ISO_OP_ROPE, ISO_OP_ROPE, ISO_OP_KV_WRITE}, simt_rope_kv_write_fits, simt_rope_kv_write},
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

/* The pattern that the ops held back begin or are; NULL when there is none. */
static const pattern *find(const simt_deferred *deferred) {
  for (const pattern &p : patterns) {
    bool begins = deferred->count <= p.n_ops;
    for (uint32_t i = 0; begins && i < deferred->count; i++)
      begins = deferred->ops[i].arguments.op == p.ops[i];
    if (begins && p.fits(deferred->ops, deferred->count))
      return &p;
  }
  return nullptr;
}

static void hold_back(simt_deferred *deferred, const iso_op_arguments *arguments,
                      simt_launch_function launch) {
  simt_deferred_op *op = &deferred->ops[deferred->count++];
  op->arguments = *arguments;
  op->launch = launch;
  uint32_t size = *(const uint32_t *)arguments->attributes, most = SIMT_ATTRIBUTE_BYTES;
  memcpy(op->attributes, arguments->attributes, size < most ? size : most);
}

static iso_status launch_alone(iso_queue *queue, const simt_deferred_op *op) {
  iso_op_arguments arguments = op->arguments;
  arguments.attributes = op->attributes;
  return op->launch(queue, &arguments);
}

iso_status simt_flush_deferred(iso_queue *queue, simt_deferred *deferred) {
  if (deferred->count == 0)
    return ISO_OK;
  /* Launching flushes: there must be nothing left to flush by then. */
  uint32_t count = deferred->count;
  deferred->count = 0;
  iso_status status = ISO_OK;
  for (uint32_t i = 0; i < count && status == ISO_OK; i++)
    status = launch_alone(queue, &deferred->ops[i]);
  return status;
}

iso_status simt_defer(iso_queue *queue, simt_deferred *deferred, const iso_op_arguments *arguments,
                      simt_launch_function launch) {
  if (deferred->off)
    return launch(queue, arguments);
  hold_back(deferred, arguments, launch);
  const pattern *p = find(deferred);
  while (!p && deferred->count > 1) { /* the last one may begin a pattern */
    simt_deferred_op last = deferred->ops[--deferred->count];
    ISO_TRY(simt_flush_deferred(queue, deferred));
    deferred->ops[0] = last;
    deferred->count = 1;
    p = find(deferred);
  }
  if (!p)
    return simt_flush_deferred(queue, deferred);
  if (deferred->count < p->n_ops)
    return ISO_OK;
  deferred->count = 0;
  return p->launch(queue, deferred->ops);
}
