/* Attention of one token of one sequence, alone or with the rotations and the kv_write before it.
 */
#include "backends/cuda/hopper/attention_one.cuh"
#include "backends/simt/fusion.h"

namespace {

/* Of longer contexts that there may be, `.split` reads more at a time. */
enum { RANKS = 8, SUBGROUPS = 4, MOST_POSITIONS = 8192 };

iso_refusal check(const iso_device *device, const iso_op_arguments *arguments,
                  const char **out_detail) {
  const iso_tensor *inputs = arguments->inputs, &y = arguments->outputs[0];
  auto *attributes = (const iso_paged_attention_attributes *)arguments->attributes;
  iso_refusal refusal = hopper_check(device, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  if (inputs[0].dims[0] != 1 || inputs[3].dims[0] != 1) {
    *out_detail = "more than one token or sequence";
    return ISO_REFUSED_SHAPE;
  }
  int64_t dim = inputs[0].dims[2];
  if (dim != 64 && dim != 128) {
    *out_detail = "heads must be 64 or 128 wide";
    return ISO_REFUSED_SHAPE;
  }
  if (inputs[0].dims[1] > ONE_HEADS * inputs[1].dims[1]) {
    *out_detail = "more than 8 heads share a key head";
    return ISO_REFUSED_SHAPE;
  }
  if (inputs[3].dims[1] * inputs[1].dims[2] > MOST_POSITIONS) {
    *out_detail = "contexts beyond 8192";
    return ISO_REFUSED_SHAPE;
  }
  if (attention_shift_of(inputs[1].dims[2]) < 0) {
    *out_detail = "pages of a size that is no power of two";
    return ISO_REFUSED_SHAPE;
  }
  if (inputs[0].scheme != inputs[1].scheme || y.scheme != inputs[1].scheme) {
    *out_detail = "queries and results must be of the cache's type";
    return ISO_REFUSED_ACTIVATION;
  }
  if (attributes->window != 0 || attributes->soft_cap != 0 || inputs[7].n_dims != 0) {
    *out_detail = "windows, soft caps and slopes";
    return ISO_REFUSED_ATTRIBUTE;
  }
  if (y.strides[1] % 8 != 0) {
    *out_detail = "rows must start at multiples of 8 bytes";
    return ISO_REFUSED_STRIDE;
  }
  return attention_check(device, arguments, out_detail);
}

template <typename V, int Dim>
iso_status run_sized(iso_queue *queue, const attention_operands &o, const attention_one_rope &r) {
  auto kernel = r.q ? attention_one<V, Dim, RANKS, SUBGROUPS, true>
                    : attention_one<V, Dim, RANKS, SUBGROUPS, false>;
  return hopper_launch(queue, r.q ? "rope, kv_write, paged_attention" : "paged_attention.one",
                       kernel, dim3((unsigned)(o.n_kv_heads * RANKS)), dim3(SUBGROUPS * 32), RANKS,
                       0, o, r);
}

iso_status run_with(iso_queue *queue, const iso_op_arguments *arguments,
                    const attention_one_rope &r) {
  bool wide = arguments->inputs[0].dims[2] == 128;
  auto run = arguments->inputs[1].scheme == ISO_SCHEME_F16
                 ? wide ? run_sized<simt_f16, 128> : run_sized<simt_f16, 64>
             : wide ? run_sized<simt_bf16, 128>
                    : run_sized<simt_bf16, 64>;
  return run(queue, attention_read(arguments), r);
}

iso_status run(iso_queue *queue, const iso_op_arguments *arguments) {
  return run_with(queue, arguments, {});
}

/* The stride of the heads of one token. */
int64_t head_stride(const iso_tensor &heads) { return heads.strides[1]; }

/* Whether one kernel rotates, stores and attends: all of these ops are of the same 16-bit type and
 * one token, whole heads are rotated alike and by the same angles, and what all are told of is
 * settled. */
bool is_one(const simt_deferred_op *ops) {
  const iso_op_arguments &q = ops[0].arguments, &k = ops[1].arguments, &kv = ops[2].arguments;
  const iso_op_arguments &attention = ops[3].arguments;
  auto *of_q = (const iso_rope_attributes *)ops[0].attributes;
  auto *of_k = (const iso_rope_attributes *)ops[1].attributes;
  auto *of_kv = (const iso_kv_write_attributes *)ops[2].attributes;
  auto *of_attention = (const iso_paged_attention_attributes *)ops[3].attributes;
  bool is = SIMT_SETTLED(of_q) && SIMT_SETTLED(of_k) && SIMT_SETTLED(of_kv) &&
            SIMT_SETTLED(of_attention) && of_q->interleaved == of_k->interleaved &&
            of_q->magnitude == of_k->magnitude;
  is &= simt_is_same(&q.inputs[1], &k.inputs[1]) && simt_is_same(&q.inputs[2], &k.inputs[2]) &&
        q.inputs[2].dims[0] * 2 == q.inputs[0].dims[2];
  for (const iso_tensor *heads :
       {&q.inputs[0], &q.outputs[0], &k.inputs[0], &k.outputs[0], &kv.inputs[1]})
    is &= heads->scheme == attention.inputs[1].scheme && heads->dims[0] == 1 &&
          head_stride(*heads) % 4 == 0 && heads->offset % 4 == 0;
  return is;
}

iso_status run_group(iso_queue *queue, const simt_deferred_op *ops, uint32_t) {
  iso_op_arguments attention = ops[3].arguments;
  attention.attributes = ops[3].attributes;
  if (!is_one(ops)) {
    ISO_TRY(simt_rope_kv_write(queue, ops, 3));
    return run(queue, &attention);
  }
  const iso_op_arguments &q = ops[0].arguments, &k = ops[1].arguments, &kv = ops[2].arguments;
  attention_one_rope r = {};
  r.q = simt_address(q.inputs[0]), r.q_stride = head_stride(q.inputs[0]);
  r.k = simt_address(k.inputs[0]), r.k_stride = head_stride(k.inputs[0]);
  r.v = simt_address(kv.inputs[1]), r.v_stride = head_stride(kv.inputs[1]);
  r.q_out = simt_address(q.outputs[0]), r.q_out_stride = head_stride(q.outputs[0]);
  r.k_out = simt_address(k.outputs[0]), r.k_out_stride = head_stride(k.outputs[0]);
  r.position = (const int32_t *)simt_address(q.inputs[1]);
  r.frequencies = (const float *)simt_address(q.inputs[2]);
  r.slot = (const int32_t *)simt_address(kv.inputs[2]);
  r.magnitude = ((const iso_rope_attributes *)ops[0].attributes)->magnitude;
  r.interleaved = ((const iso_rope_attributes *)ops[0].attributes)->interleaved;
  return run_with(queue, &attention, r);
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run, run_group);
}

const iso_kernel records[] = {
    {.size = sizeof(iso_kernel),
     .op = ISO_OP_PAGED_ATTENTION,
     .name = "paged_attention.one",
     .schemes = ISO_SCHEME_BIT(ISO_SCHEME_F16) | ISO_SCHEME_BIT(ISO_SCHEME_BF16),
     .activations = ISO_SCHEME_BIT(ISO_SCHEME_F16) | ISO_SCHEME_BIT(ISO_SCHEME_BF16),
     .layout = ISO_LAYOUT_PLAIN,
     .rank = 30,
     .check = check,
     .launch = launch}};

} /* namespace */

SIMT_EXPORT_KERNELS(attention_one, records)
