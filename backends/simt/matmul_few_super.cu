/* Few rows times weights in super-blocks of 256; the records also take many rows, 8 at a time. */
#include "backends/simt/matmul_records.cuh"

namespace {

/* Products of the same rows by weights of Q4_K and Q6_K: in files of mixed schemes values have more
 * bits than queries and keys in some layers. */

bool is_scheme(const simt_deferred_op &op, iso_scheme scheme) {
  return op.arguments.inputs[1].scheme == scheme;
}

iso_status run_pair(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  matmul_few_arguments a;
  ISO_TRY(matmul_read_group(queue, ops, count, &a));
  const simt_deferred_op *products = ops + (count - (uint32_t)a.n_parts);
  int n = 0, part = 0;
  for (iso_scheme scheme : {ISO_SCHEME_Q4_K, ISO_SCHEME_Q6_K}) {
    part = n;
    for (int i = 0; i < a.n_parts; i++)
      if (is_scheme(products[i], scheme))
        a.parts[n++] = matmul_read_part(&products[i].arguments);
  }
  return matmul_few_run_pair<matmul_q4_k, matmul_q6_k>(queue, "matmul.packed.few",
                                                       simt_n_units(queue->device),
                                                       simt_shared_bytes(queue->device), a, part);
}

iso_status run_group(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
  uint32_t before = ops[0].arguments.op == ISO_OP_ADD ? 2 : 0;
  bool has_glu = ops[count - 1].arguments.op == ISO_OP_GLU, has[2] = {};
  for (uint32_t i = before; i < count - has_glu; i++)
    has[is_scheme(ops[i], ISO_SCHEME_Q6_K)] = true;
  if (!has[1])
    return matmul_records<matmul_q4_k>::run_group(queue, ops, count);
  if (!has[0])
    return matmul_records<matmul_q6_k>::run_group(queue, ops, count);
  const iso_op_arguments &product = ops[before].arguments;
  if (!has_glu && matmul_rows(&product) <= matmul_few_pair_rows<matmul_q4_k, matmul_q6_k>() &&
      product.inputs[0].scheme != ISO_SCHEME_F32 && simt_n_units(queue->device) > 1)
    return run_pair(queue, ops, count);
  if (before > 0)
    ISO_TRY(simt_add_rms_norm(queue, ops, before));
  for (uint32_t i = before, n; i < count; i += n) { /* neighbours of one scheme together */
    for (n = 1;
         !has_glu && i + n < count && is_scheme(ops[i + n], ops[i].arguments.inputs[1].scheme);)
      n++;
    ISO_TRY(n == 1 ? simt_launch_deferred(queue, ops[i]) : run_group(queue, ops + i, n));
  }
  return ISO_OK;
}

template <typename W> iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, matmul_records<W>::run,
                    run_group);
}

const iso_kernel records[] = {MATMUL_PACKED_RECORD(Q2_K, q2_k),
                              MATMUL_PACKED_RECORD(Q3_K, q3_k),
                              MATMUL_PACKED_RECORD_WITH(Q4_K, q4_k, launch<matmul_q4_k>),
                              MATMUL_PACKED_RECORD(Q5_K, q5_k),
                              MATMUL_PACKED_RECORD_WITH(Q6_K, q6_k, launch<matmul_q6_k>),
                              GROUPED_PACKED_RECORD(Q2_K, q2_k),
                              GROUPED_PACKED_RECORD(Q3_K, q3_k),
                              GROUPED_PACKED_RECORD(Q4_K, q4_k),
                              GROUPED_PACKED_RECORD(Q5_K, q5_k),
                              GROUPED_PACKED_RECORD(Q6_K, q6_k)};

} /* namespace */

SIMT_EXPORT_KERNELS(matmul_few_super, records)
