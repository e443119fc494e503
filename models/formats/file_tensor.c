#include "models/formats/file_tensor.h"

#include <stdlib.h>

iso_status iso_file_tensor_measure(iso_file_tensor *tensor, uint32_t block_elements,
                                   uint32_t block_bytes) {
  if (tensor->n_dims < 1 || tensor->n_dims > ISO_MAX_DIMS)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "tensor \"%s\" has %d dimensions, 1 to %d are possible",
                    tensor->name, tensor->n_dims, ISO_MAX_DIMS);
  for (int i = 0; i < tensor->n_dims; i++)
    if (tensor->dims[i] < 1 || tensor->dims[i] > ISO_MAX_DIM)
      return iso_fail(ISO_ERROR_CORRUPT_DATA,
                      "tensor \"%s\" has a dimension of %lld, 1 to %lld are possible", tensor->name,
                      (long long)tensor->dims[i], (long long)ISO_MAX_DIM);
  int64_t row = tensor->dims[tensor->n_dims - 1];
  if (row % block_elements != 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "tensor \"%s\" has rows of %lld elements, not whole %s blocks of %u",
                    tensor->name, (long long)row, tensor->type_name, block_elements);
  /* At most 2^31 blocks: a row cannot overflow, the product of rows can. */
  uint64_t bytes = (uint64_t)(row / block_elements) * block_bytes;
  for (int i = 0; i < tensor->n_dims - 1; i++)
    if (__builtin_mul_overflow(bytes, (uint64_t)tensor->dims[i], &bytes))
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "the size of tensor \"%s\" overflows", tensor->name);
  tensor->bytes = bytes;
  return ISO_OK;
}

static int compare_places(const void *a, const void *b) {
  const iso_file_tensor *left = *(const iso_file_tensor *const *)a;
  const iso_file_tensor *right = *(const iso_file_tensor *const *)b;
  if (left->shard != right->shard)
    return left->shard < right->shard ? -1 : 1;
  return (left->offset > right->offset) - (left->offset < right->offset);
}

iso_status iso_file_tensor_check_overlap(const iso_file_tensor *tensors, uint64_t count) {
  if (count < 2)
    return ISO_OK;
  const iso_file_tensor **order = calloc(count, sizeof *order);
  if (!order)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to check %llu tensors",
                    (unsigned long long)count);
  for (uint64_t i = 0; i < count; i++)
    order[i] = &tensors[i];
  qsort(order, count, sizeof *order, compare_places);
  iso_status status = ISO_OK;
  for (uint64_t i = 1; i < count && status == ISO_OK; i++) {
    const iso_file_tensor *left = order[i - 1], *right = order[i];
    if (left->shard == right->shard && right->offset - left->offset < left->bytes)
      status = iso_fail(ISO_ERROR_CORRUPT_DATA, "tensors \"%s\" and \"%s\" overlap at byte %llu",
                        left->name, right->name, (unsigned long long)right->offset);
  }
  free(order);
  return status;
}
