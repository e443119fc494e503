/* Rotary positions. A thread rotates one pair of a head, or copies two elements beyond them. The
 * fused kernel rotates queries and keys and stores keys and values in their cache. */
#include "backends/simt/rope.cuh"

namespace {

/* Where a thread's two results belong, and what they are. */
struct rotated {
  int64_t row;
  int first, second; /* columns; second is -1 for the last of an odd number */
  float a, b;
};

__device__ rotated rotate(const rope_operands &o, int64_t index) {
  rotated r;
  r.row = index / o.pairs_of_head;
  int pair = (int)(index - r.row * o.pairs_of_head);
  const uint8_t *x = o.x.row(r.row);
  if (pair >= o.n_pairs) {
    simt_wait_for_earlier();
    r.first = 2 * pair;
    r.second = 2 * pair + 1 < o.x.n_columns ? 2 * pair + 1 : -1;
    r.a = simt_load(o.x.scheme, x, r.first);
    r.b = r.second < 0 ? 0.0f : simt_load(o.x.scheme, x, r.second);
    return r;
  }
  float sine, cosine;
  rope_angle(o, r.row / o.n_heads, pair, &sine, &cosine);
  r.first = o.interleaved ? 2 * pair : pair;
  r.second = o.interleaved ? 2 * pair + 1 : pair + o.n_pairs;
  simt_wait_for_earlier();
  r.a = simt_load(o.x.scheme, x, r.first), r.b = simt_load(o.x.scheme, x, r.second);
  rope_turn(sine, cosine, &r.a, &r.b);
  return r;
}

__device__ void store(const rope_operands &o, const rotated &r) {
  uint8_t *y = o.y.row(r.row);
  simt_store(o.y.scheme, y, r.first, r.a);
  if (r.second >= 0)
    simt_store(o.y.scheme, y, r.second, r.b);
}

__global__ void rope(rope_operands o, int64_t n) {
  simt_let_later_begin();
  if (!o.settled)
    simt_wait_for_earlier();
  int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (index < n)
    store(o, rotate(o, index));
}

/* ---- With kv_write --------------------------------------------------------------------------- */

/* The cache row of (token, head) `row`. */
__device__ uint8_t *cache_row(const rope_fused &f, const rope_cache &c, int64_t row) {
  return rope_cache_row(f, c, row / f.k.n_heads, row % f.k.n_heads);
}

/* Grid: threads; queries, keys or values. */
__global__ void rope_kv_write(rope_fused f, int64_t n_q, int64_t n_k, int64_t n_v) {
  simt_let_later_begin();
  if (!f.q.settled || !f.k.settled)
    simt_wait_for_earlier();
  int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (blockIdx.y == 0) {
    if (index < n_q)
      store(f.q, rotate(f.q, index));
  } else if (blockIdx.y == 1) {
    if (index >= n_k)
      return;
    uint8_t *row = cache_row(f, f.k_cache, index / f.k.pairs_of_head);
    rotated r = rotate(f.k, index);
    store(f.k, r);
    if (!row)
      return;
    simt_store(f.k_cache.scheme, row, r.first, simt_rounded(f.k.y.scheme, r.a));
    if (r.second >= 0)
      simt_store(f.k_cache.scheme, row, r.second, simt_rounded(f.k.y.scheme, r.b));
  } else if (index < n_v) {
    int64_t source = index / f.v.n_columns, i = index % f.v.n_columns;
    uint8_t *row = cache_row(f, f.v_cache, source);
    simt_wait_for_earlier();
    if (row)
      simt_store(f.v_cache.scheme, row, i, simt_load(f.v.scheme, f.v.row(source), i));
  }
}

/* ---- Launching ------------------------------------------------------------------------------- */

enum { THREADS = 128 };

rope_operands operands_of(const iso_op_arguments *arguments, const void *given) {
  auto *attributes = (const iso_rope_attributes *)given;
  rope_operands o = {};
  o.x = simt_rows_of(arguments->inputs[0]);
  o.y = simt_rows_of(arguments->outputs[0]);
  o.positions = (const int32_t *)simt_address(arguments->inputs[1]);
  o.frequencies = (const float *)simt_address(arguments->inputs[2]);
  o.n_heads = (int32_t)arguments->inputs[0].dims[1];
  o.n_pairs = (int32_t)arguments->inputs[2].dims[0];
  o.pairs_of_head = (int32_t)((o.x.n_columns + 1) / 2);
  o.interleaved = attributes->interleaved;
  o.magnitude = attributes->magnitude;
  o.settled = SIMT_SETTLED(attributes);
  return o;
}

iso_status run(iso_queue *queue, const iso_op_arguments *arguments) {
  rope_operands o = operands_of(arguments, arguments->attributes);
  rope_fused alone = {};
  alone.q = o;
  if (rope_many_takes(alone))
    return rope_many(queue, "rope", alone);
  int64_t n = o.y.n_rows * o.pairs_of_head;
  if (n == 0)
    return ISO_OK;
  return simt_launch_early(queue, "rope", rope, dim3((unsigned)((n + THREADS - 1) / THREADS)),
                           dim3(THREADS), 0, o, n);
}

iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, run);
}

const iso_kernel records[] = {SIMT_RECORD(ROPE, "rope.simt", launch)};

rope_cache cache_of(const iso_tensor &tensor) {
  return rope_cache{simt_address(tensor), tensor.scheme, tensor.strides[2]};
}

rope_fused fused_of(const simt_deferred_op *ops) {
  const iso_op_arguments &kv = ops[2].arguments;
  rope_fused f = {};
  f.q = operands_of(&ops[0].arguments, ops[0].attributes);
  f.k = operands_of(&ops[1].arguments, ops[1].attributes);
  f.v = simt_rows_of(kv.inputs[1]);
  f.slots = (const int32_t *)simt_address(kv.inputs[2]);
  f.k_cache = cache_of(kv.inputs[3]);
  f.v_cache = cache_of(kv.inputs[4]);
  f.page_size = (int32_t)kv.inputs[3].dims[2];
  f.n_slots = kv.inputs[3].dims[0] * kv.inputs[3].dims[2];
  auto *attributes = (const iso_kv_write_attributes *)ops[2].attributes;
  f.k.settled &= SIMT_SETTLED(attributes);
  return f;
}

bool are_plain(const rope_fused &f) {
  return (ISO_SCHEME_BIT(f.k_cache.scheme) & SIMT_FLOATS) &&
         (ISO_SCHEME_BIT(f.v_cache.scheme) & SIMT_FLOATS);
}

} /* namespace */

SIMT_EXPORT_KERNELS(rope, records)

bool simt_rope_kv_write_fits(const simt_deferred_op *ops, uint32_t count) {
  const iso_op_arguments &q = ops[0].arguments, &k = ops[1].arguments, &kv = ops[2].arguments;
  if (q.outputs[0].dims[0] == 0)
    return false;
  if (count >= 2 &&
      !(k.outputs[0].dims[0] == q.outputs[0].dims[0] &&
        simt_is_apart(&k.inputs[0], &q.outputs[0]) && simt_is_apart(&k.outputs[0], &q.inputs[0]) &&
        simt_is_apart(&k.outputs[0], &q.outputs[0])))
    return false;
  if (count < 3)
    return true;
  rope_fused f = fused_of(ops);
  return simt_is_same(&kv.inputs[0], &k.outputs[0]) &&
         simt_is_apart(&kv.inputs[1], &q.outputs[0]) &&
         simt_is_apart(&kv.inputs[1], &k.outputs[0]) &&
         (are_plain(f) || rope_many_takes(f) || rope_heads_take(f));
}

iso_status simt_rope_kv_write(iso_queue *queue, const simt_deferred_op *ops, uint32_t) {
  rope_fused f = fused_of(ops);
  if (rope_many_takes(f))
    return rope_many(queue, "rope, kv_write", f);
  if (rope_heads_take(f))
    return rope_heads(queue, "rope, kv_write", f);
  int64_t n_q = f.q.y.n_rows * f.q.pairs_of_head, n_k = f.k.y.n_rows * f.k.pairs_of_head;
  int64_t n_v = f.v.n_rows * f.v.n_columns, most = n_q > n_k ? n_q : n_k;
  most = most > n_v ? most : n_v;
  dim3 grid((unsigned)((most + THREADS - 1) / THREADS), 3);
  return simt_launch_early(queue, "rope, kv_write", rope_kv_write, grid, dim3(THREADS), 0, f, n_q,
                           n_k, n_v);
}
