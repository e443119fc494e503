/* Records of matmul_many() for the layout that backends/simt/matmul_few_*.cu pack. */
#ifndef ISOMER_CUDA_HOPPER_MATMUL_MANY_RECORDS_H
#define ISOMER_CUDA_HOPPER_MATMUL_MANY_RECORDS_H

#include "backends/cuda/hopper/matmul_many.cuh"
#include "backends/simt/matmul_records.cuh"

/* From here on this beats going over the weights once for every 8 rows. */
enum { MANY_LEAST_ROWS = 9, GROUPED_LEAST_ROWS = 17 };

static inline iso_refusal matmul_many_check(const iso_device *device,
                                            const iso_op_arguments *arguments,
                                            const char **out_detail) {
  iso_refusal refusal = hopper_check(device, out_detail);
  if (refusal == ISO_ACCEPTED)
    refusal = matmul_check_rows(device, arguments, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  int64_t n_rows = matmul_rows(arguments);
  if (n_rows < MANY_LEAST_ROWS || n_rows > MANY_COLUMNS * 65535) {
    *out_detail = "for 9 to 64 * 65,535 rows";
    return ISO_REFUSED_SHAPE;
  }
  if (arguments->inputs[1].dims[0] > MANY_FEATURES * 65535) {
    *out_detail = "more features than a grid holds";
    return ISO_REFUSED_SIZE;
  }
  return ISO_ACCEPTED;
}

static inline uint64_t matmul_many_scratch(const iso_device *, const iso_op_arguments *arguments) {
  return matmul_many_workspace(matmul_rows(arguments), arguments->inputs[1].dims[1]);
}

template <typename W>
iso_status matmul_many_record_run(iso_queue *queue, const iso_op_arguments *arguments) {
  const iso_tensor &weight = arguments->inputs[1];
  matmul_many_arguments a = {};
  a.x = simt_rows_of(arguments->inputs[0]);
  a.y = simt_rows_of(arguments->outputs[0]);
  a.bias = (const float *)simt_address(arguments->inputs[2]), a.weight = simt_address(weight);
  a.n_features = weight.dims[0], a.n_columns = weight.dims[1], a.n_rows = a.y.n_rows;
  return matmul_many_run<W>(queue, "matmul.packed.many", simt_workspace(arguments), a);
}

template <typename W>
iso_status matmul_many_record_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  return simt_defer(queue, simt_queue_deferred(queue), arguments, matmul_many_record_run<W>);
}

static inline iso_refusal grouped_many_check(const iso_device *device,
                                             const iso_op_arguments *arguments,
                                             const char **out_detail) {
  iso_refusal refusal = hopper_check(device, out_detail);
  if (refusal != ISO_ACCEPTED)
    return refusal;
  int64_t n_rows = matmul_rows(arguments), n_experts = arguments->inputs[1].dims[0];
  if (n_rows < GROUPED_LEAST_ROWS || n_experts > MANY_MOST_EXPERTS ||
      matmul_many_groups(n_rows, n_experts) > 65535) {
    *out_detail = "for 17 rows or more of 1,024 experts or fewer";
    return ISO_REFUSED_SHAPE;
  }
  if (arguments->inputs[1].dims[1] > MANY_FEATURES * 65535) {
    *out_detail = "more features than a grid holds";
    return ISO_REFUSED_SIZE;
  }
  return matmul_check_rows(device, arguments, out_detail);
}

static inline uint64_t grouped_many_scratch(const iso_device *, const iso_op_arguments *arguments) {
  return matmul_many_grouped_workspace(matmul_rows(arguments), arguments->inputs[1].dims[0],
                                       arguments->inputs[1].dims[2]);
}

/* All but expert_bytes. */
static inline matmul_many_arguments grouped_many_read(const iso_op_arguments *arguments) {
  const iso_tensor &weight = arguments->inputs[1], &experts = arguments->inputs[2];
  matmul_many_arguments a = {};
  a.x = simt_rows_of(arguments->inputs[0]);
  a.y = simt_rows_of(arguments->outputs[0]);
  a.weight = simt_address(weight);
  a.n_features = weight.dims[1], a.n_columns = weight.dims[2], a.n_rows = a.y.n_rows;
  a.n_experts = (int32_t)weight.dims[0], a.n_choices = (int32_t)experts.dims[1];
  a.shares_x = arguments->inputs[0].dims[1] == 1;
  return a;
}

template <typename W>
iso_status grouped_many_launch(iso_queue *queue, const iso_op_arguments *arguments) {
  matmul_many_arguments a = grouped_many_read(arguments);
  a.expert_bytes = matmul_records<W>::expert_bytes(a.n_features, a.n_columns);
  return matmul_many_run_grouped<W>(queue, "grouped_matmul.many", simt_workspace(arguments),
                                    (const int32_t *)simt_address(arguments->inputs[2]), a);
}

#define GROUPED_MANY_RECORD(SCHEME, scheme)                                                        \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_GROUPED_MATMUL,                                       \
    .name = "grouped_matmul." #scheme ".many", .schemes = ISO_SCHEME_BIT(ISO_SCHEME_##SCHEME),     \
    .activations = SIMT_FLOATS, .layout = MATMUL_LAYOUT_PACKED, .rank = 30,                        \
    .check = grouped_many_check, .workspace = grouped_many_scratch,                                \
    .packed_bytes = matmul_records<matmul_##scheme>::packed_bytes,                                 \
    .pack = matmul_records<matmul_##scheme>::pack, .launch = grouped_many_launch<matmul_##scheme>  \
  }

#define MATMUL_MANY_RECORD(SCHEME, scheme)                                                         \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_MATMUL, .name = "matmul." #scheme ".many",            \
    .schemes = ISO_SCHEME_BIT(ISO_SCHEME_##SCHEME), .activations = SIMT_FLOATS,                    \
    .layout = MATMUL_LAYOUT_PACKED, .rank = 30, .check = matmul_many_check,                        \
    .workspace = matmul_many_scratch,                                                              \
    .packed_bytes = matmul_records<matmul_##scheme>::packed_bytes,                                 \
    .pack = matmul_records<matmul_##scheme>::pack,                                                 \
    .launch = matmul_many_record_launch<matmul_##scheme>                                           \
  }

#endif
