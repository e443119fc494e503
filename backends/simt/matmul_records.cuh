/* Records of the matrix-unit products: what they accept, and how weights are packed for them. */
#ifndef ISOMER_SIMT_MATMUL_RECORDS_H
#define ISOMER_SIMT_MATMUL_RECORDS_H

#include "backends/simt/matmul_few.cuh"
#include <stddef.h>
#include <string.h>

/* What matmul_few() asks of the device and of x. */
static inline iso_refusal matmul_check_rows(const iso_device *device,
                                            const iso_op_arguments *arguments,
                                            const char **out_detail) {
  if (!mma_is_there(device)) {
    *out_detail = "needs the 16-bit matrix unit of compute capability 8.0";
    return ISO_REFUSED_DEVICE;
  }
  const iso_tensor &x = arguments->inputs[0];
  int64_t k = x.dims[x.n_dims - 1];
  if (k % 8 != 0) {
    *out_detail = "K is not a multiple of 8";
    return ISO_REFUSED_SHAPE;
  }
  if (k > INT32_MAX || arguments->inputs[1].dims[0] > INT32_MAX - 64) {
    *out_detail = "more than 2^31 features or columns";
    return ISO_REFUSED_SIZE;
  }
  int64_t bytes = x.scheme == ISO_SCHEME_F32 ? 16 : 8;
  for (uint32_t d = 0; d + 1 < x.n_dims; d++)
    if (x.strides[d] % bytes != 0) {
      *out_detail = "rows of x do not start at multiples of 4 elements";
      return ISO_REFUSED_STRIDE;
    }
  return ISO_ACCEPTED;
}

/* Of records that round x to 8 bits with a scale for 128 columns. */
static inline iso_refusal matmul_check_rounding(const iso_op_arguments *arguments,
                                                const char **out_detail) {
  const iso_matmul_attributes *attributes = (const iso_matmul_attributes *)arguments->attributes;
  if (attributes->operand_bits == 8 && attributes->operand_neighbours >= 128)
    return ISO_ACCEPTED;
  *out_detail = "rounds x to 8 bits with a scale for 128, which was not asked for";
  return ISO_REFUSED_ATTRIBUTE;
}

static inline int64_t matmul_rows(const iso_op_arguments *arguments) {
  const iso_tensor &y = arguments->outputs[0];
  int64_t n_rows = 1;
  for (uint32_t d = 0; d + 1 < y.n_dims; d++)
    n_rows *= y.dims[d];
  return n_rows;
}

static inline matmul_few_rows matmul_few_rows_of(const iso_tensor &tensor) {
  simt_rows rows = simt_rows_of(tensor);
  return matmul_few_rows{rows.data, rows.strides[0], rows.scheme};
}

static inline matmul_few_part matmul_read_part(const iso_op_arguments *arguments) {
  const iso_tensor &weight = arguments->inputs[1];
  return matmul_few_part{simt_address(weight), weight.strides[0],
                         matmul_few_rows_of(arguments->outputs[0]), (int)weight.dims[0],
                         (const float *)simt_address(arguments->inputs[2])};
}

static inline matmul_few_norm matmul_read_norm(const simt_deferred_op *ops) {
  const iso_op_arguments &add = ops[0].arguments, &norm = ops[1].arguments;
  auto *attributes = (const iso_rms_norm_attributes *)ops[1].attributes;
  return matmul_few_norm{matmul_few_rows_of(add.inputs[0]),
                         matmul_few_rows_of(add.inputs[1]),
                         matmul_few_rows_of(add.outputs[0]),
                         (const float *)simt_address(norm.inputs[1]),
                         attributes->epsilon,
                         attributes->weight_offset};
}

static inline matmul_few_arguments matmul_read(const iso_op_arguments *arguments) {
  matmul_few_arguments a = {};
  a.x = matmul_few_rows_of(arguments->inputs[0]);
  a.n_columns = (int)arguments->inputs[1].dims[1];
  a.n_parts = 1;
  a.parts[0] = matmul_read_part(arguments);
  a.n_rows = (int)matmul_rows(arguments);
  return a;
}

/* Products of the same rows; the last op may be their glu, the first two the add and the rms_norm
 * that make the rows. */
static inline iso_status matmul_read_group(iso_queue *queue, const simt_deferred_op *ops,
                                           uint32_t count, matmul_few_arguments *out) {
  matmul_few_norm norm = {};
  if (ops[0].arguments.op == ISO_OP_ADD) {
    if (matmul_few_subgroups(simt_shared_bytes(queue->device)) == MATMUL_FEW_SUBGROUPS)
      norm = matmul_read_norm(ops);
    else /* fewer threads would add in another order */
      ISO_TRY(simt_add_rms_norm(queue, ops, 2));
    ops += 2, count -= 2;
  }
  *out = matmul_read(&ops[0].arguments);
  out->norm = norm;
  out->has_glu = ops[count - 1].arguments.op == ISO_OP_GLU;
  out->n_parts = (int)count - out->has_glu;
  for (int i = 1; i < out->n_parts; i++)
    out->parts[i] = matmul_read_part(&ops[i].arguments);
  if (out->has_glu) {
    out->activation = ((const iso_glu_attributes *)ops[count - 1].attributes)->activation;
    out->glu = matmul_few_rows_of(ops[count - 1].arguments.outputs[0]);
  }
  return ISO_OK;
}

/* Of grouped_matmul: rows are (token, choice). */
static inline matmul_few_arguments grouped_read(const iso_op_arguments *arguments) {
  const iso_tensor &weight = arguments->inputs[1], &experts = arguments->inputs[2];
  matmul_few_arguments a = {};
  a.x = matmul_few_rows_of(arguments->inputs[0]);
  a.n_columns = (int)weight.dims[2];
  a.n_parts = 1;
  a.parts[0] =
      matmul_few_part{simt_address(weight), weight.strides[1],
                      matmul_few_rows_of(arguments->outputs[0]), (int)weight.dims[1], nullptr};
  a.n_rows = (int)matmul_rows(arguments);
  a.experts = (const int32_t *)simt_address(experts);
  a.n_experts = (int32_t)weight.dims[0];
  a.n_choices = (int32_t)experts.dims[1];
  a.shares_x = arguments->inputs[0].dims[1] == 1;
  return a;
}

static inline iso_refusal grouped_check_rows(const iso_device *device,
                                             const iso_op_arguments *arguments,
                                             const char **out_detail) {
  if (matmul_rows(arguments) > 65535) {
    *out_detail = "more rows than a grid holds";
    return ISO_REFUSED_SIZE;
  }
  return matmul_check_rows(device, arguments, out_detail);
}

template <typename W> struct matmul_records {
  static iso_status run_few(iso_queue *queue, const matmul_few_arguments &a) {
    return matmul_few_run<W>(queue, W::packed ? "matmul.packed.few" : "matmul.plain.few",
                             simt_n_units(queue->device), simt_shared_bytes(queue->device), a);
  }

  /* Rows without one stride are taken one by one. */
  static iso_status run(iso_queue *queue, const iso_op_arguments *arguments) {
    simt_rows x = simt_rows_of(arguments->inputs[0]), y = simt_rows_of(arguments->outputs[0]);
    matmul_few_arguments a = matmul_read(arguments);
    if (x.n_dims == 1 && y.n_dims == 1)
      return run_few(queue, a);
    a.n_rows = 1;
    for (int64_t row = 0; row < y.n_rows; row++) {
      a.x.data = x.row(row);
      a.parts[0].y.data = y.row(row);
      ISO_TRY(run_few(queue, a));
    }
    return ISO_OK;
  }

  /* Products of the same rows. */
  static iso_status run_group(iso_queue *queue, const simt_deferred_op *ops, uint32_t count) {
    matmul_few_arguments a;
    ISO_TRY(matmul_read_group(queue, ops, count, &a));
    return run_few(queue, a);
  }

  static iso_status launch(iso_queue *queue, const iso_op_arguments *arguments) {
    return simt_defer(queue, simt_queue_deferred(queue), arguments, run, run_group);
  }

  /* One packed matrix. */
  static int64_t expert_bytes(int64_t n_features, int64_t n_columns) {
    return matmul_count(n_features, 16) * matmul_count(n_columns, W::unit) * W::unit_bytes;
  }

  static iso_status run_grouped(iso_queue *queue, const matmul_few_arguments &a) {
    return matmul_few_run<W>(queue, "grouped_matmul.few", simt_n_units(queue->device),
                             simt_shared_bytes(queue->device), a);
  }

  static iso_status launch_grouped(iso_queue *queue, const iso_op_arguments *arguments) {
    simt_rows x = simt_rows_of(arguments->inputs[0]), y = simt_rows_of(arguments->outputs[0]);
    matmul_few_arguments a = grouped_read(arguments);
    a.expert_bytes = W::packed ? expert_bytes(a.parts[0].n_features, a.n_columns)
                               : arguments->inputs[1].strides[0];
    if (x.n_dims == 1 && y.n_dims == 1)
      return run_grouped(queue, a);
    matmul_few_arguments one = a;
    one.n_rows = one.n_choices = 1;
    for (int64_t row = 0; row < y.n_rows; row++) {
      one.x.data = x.row(a.shares_x ? row / a.n_choices : row);
      one.parts[0].y.data = y.row(row);
      one.experts = a.experts + row;
      ISO_TRY(run_grouped(queue, one));
    }
    return ISO_OK;
  }

  /* Experts are packed one after another. */
  static iso_status packed_bytes(const iso_device *, const iso_host_weight *weight,
                                 uint64_t *out_bytes) {
    const int64_t *dims = weight->dims + weight->n_dims - 2;
    uint64_t experts = weight->n_dims == 3 ? (uint64_t)weight->dims[0] : 1;
    uint64_t tiles = (uint64_t)matmul_count(dims[0], 16);
    uint64_t units = (uint64_t)matmul_count(dims[1], W::unit), count;
    if (weight->n_dims < 2 || weight->n_dims > 3 || __builtin_mul_overflow(tiles, units, &count) ||
        __builtin_mul_overflow(count, experts, &count) ||
        __builtin_mul_overflow(count, (uint64_t)W::unit_bytes, out_bytes))
      return iso_backend_fail(cuda_host, ISO_ERROR_LIMIT, "a weight is too large to be packed");
    return ISO_OK;
  }

  static iso_status pack(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                         uint64_t offset) {
    if constexpr (W::float8)
      simt_note(buffer, offset, has_row_scales(weight));
    else if constexpr (W::group && W::minimum)
      simt_note(buffer, offset, has_half_scales(weight));
    if (weight->n_dims == 2)
      return pack_matrix(queue, weight, buffer, offset);
    iso_host_weight matrix = *weight;
    matrix.n_dims = 2, matrix.dims[0] = weight->dims[1], matrix.dims[1] = weight->dims[2];
    matrix.bytes = weight->dims[0] > 0 ? weight->bytes / (uint64_t)weight->dims[0] : 0;
    for (int64_t i = 0; i < weight->dims[0]; i++) {
      matrix.data = (const uint8_t *)weight->data + (uint64_t)i * matrix.bytes;
      ISO_TRY(pack_matrix(queue, &matrix, buffer,
                          offset + (uint64_t)(i * expert_bytes(matrix.dims[0], matrix.dims[1]))));
    }
    return ISO_OK;
  }

  /* Whether all blocks of a row have the same scale, as those of weights with a scale an output or
   * one in all do. */
  static bool has_row_scales(const iso_host_weight *weight) {
    int64_t n_rows = 1, n_blocks = weight->dims[weight->n_dims - 1] / W::block_elements;
    for (uint32_t d = 0; d + 1 < weight->n_dims; d++)
      n_rows *= weight->dims[d];
    auto *block = (const uint8_t *)weight->data + offsetof(typename W::block, scale);
    bool has = true;
    for (int64_t row = 0; row < n_rows && has; row++) {
      const uint8_t *first = block;
      for (int64_t i = 0; i < n_blocks; i++, block += sizeof(typename W::block))
        has &= memcmp(block, first, sizeof(float)) == 0;
    }
    return has;
  }

  /* Whether rows of I4_G128 are halves as good as any: no weight is beyond their range, and the
   * largest scale of a row, unless it has none, is so large that what halves cannot tell apart, 2^-24,
   * is lost beside it. */
  static bool has_half_scales(const iso_host_weight *weight) {
    const float LEAST = 0x1p-12f, MOST = 511; /* 128 times a scale is a half, too */
    int64_t n_rows = 1, n_blocks = weight->dims[weight->n_dims - 1] / W::block_elements;
    for (uint32_t d = 0; d + 1 < weight->n_dims; d++)
      n_rows *= weight->dims[d];
    auto *block = (const uint8_t *)weight->data + offsetof(typename W::block, scale_zero);
    bool has = true;
    for (int64_t row = 0; row < n_rows && has; row++) {
      float largest = 0;
      for (int64_t i = 0; i < n_blocks; i++, block += sizeof(typename W::block)) {
        uint32_t word;
        float scale;
        memcpy(&word, block, sizeof word);
        word &= ~ISO_I4_ZERO_MASK & 0x7fffffffu;
        memcpy(&scale, &word, sizeof scale);
        has &= scale <= MOST; /* which no NaN is */
        largest = scale > largest ? scale : largest;
      }
      has &= largest == 0 || largest >= LEAST;
    }
    return has;
  }

  /* Rows are uploaded a stretch at a time and put in order on the device. */
  static iso_status pack_matrix(iso_queue *queue, const iso_host_weight *weight, iso_buffer *buffer,
                                uint64_t offset) {
    int64_t n_rows = weight->dims[0], n_columns = weight->dims[1];
    int64_t row_bytes = n_columns / W::block_elements * (int64_t)sizeof(typename W::block);
    int64_t tiles = matmul_count(n_rows, 16), units = matmul_count(n_columns, W::unit);
    int64_t most = (64 << 20) / (row_bytes * 16) + 1;
    int64_t stretch = (most < tiles ? most : tiles) * 16;
    uint8_t *source = nullptr;
    CUDA_TRY(cudaSetDevice(queue->device->ordinal));
    CUDA_TRY(cudaMalloc((void **)&source, (size_t)(stretch * row_bytes)));
    cudaError_t error = cudaSuccess;
    iso_status status = ISO_OK;
    for (int64_t row = 0; row < n_rows && error == cudaSuccess && status == ISO_OK;
         row += stretch) {
      int64_t rows = n_rows - row < stretch ? n_rows - row : stretch;
      error = cudaMemcpyAsync(source, (const uint8_t *)weight->data + row * row_bytes,
                              (size_t)(rows * row_bytes), cudaMemcpyHostToDevice, queue->stream);
      if (error == cudaSuccess)
        status = simt_launch(queue, "matmul.pack", matmul_pack<W>,
                             dim3((unsigned)matmul_count(matmul_count(rows, 16) * units, 8)),
                             dim3(256), 0, source, row_bytes, rows, n_columns,
                             buffer->data + offset + row / 16 * units * W::unit_bytes);
    }
    /* Products copy weights ahead of their turn: these must be there by then. */
    cudaError_t done = cudaStreamSynchronize(queue->stream);
    (void)cudaFree(source);
    if (status != ISO_OK)
      return status;
    CUDA_TRY(error);
    CUDA_TRY(done);
    return ISO_OK;
  }
};

#define GROUPED_PACKED_RECORD(SCHEME, scheme)                                                      \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_GROUPED_MATMUL,                                       \
    .name = "grouped_matmul." #scheme ".few", .schemes = ISO_SCHEME_BIT(ISO_SCHEME_##SCHEME),      \
    .activations = SIMT_FLOATS, .layout = MATMUL_LAYOUT_PACKED, .rank = 20,                        \
    .check = grouped_check_rows, .packed_bytes = matmul_records<matmul_##scheme>::packed_bytes,    \
    .pack = matmul_records<matmul_##scheme>::pack,                                                 \
    .launch = matmul_records<matmul_##scheme>::launch_grouped                                      \
  }

#define MATMUL_PACKED_RECORD(SCHEME, scheme)                                                       \
  MATMUL_PACKED_RECORD_WITH(SCHEME, scheme, matmul_records<matmul_##scheme>::launch)
#define MATMUL_PACKED_RECORD_WITH(SCHEME, scheme, launch_function)                                 \
  {                                                                                                \
    .size = sizeof(iso_kernel), .op = ISO_OP_MATMUL, .name = "matmul." #scheme ".few",             \
    .schemes = ISO_SCHEME_BIT(ISO_SCHEME_##SCHEME), .activations = SIMT_FLOATS,                    \
    .layout = MATMUL_LAYOUT_PACKED, .rank = 20, .check = matmul_check_rows,                        \
    .packed_bytes = matmul_records<matmul_##scheme>::packed_bytes,                                 \
    .pack = matmul_records<matmul_##scheme>::pack, .launch = launch_function                       \
  }

#endif
