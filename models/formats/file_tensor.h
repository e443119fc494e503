/* A tensor as a weight file holds it: the common ground of the GGUF and safetensors readers. */
#ifndef ISOMER_MODELS_FORMATS_FILE_TENSOR_H
#define ISOMER_MODELS_FORMATS_FILE_TENSOR_H

#include <isomer/quant.h>

typedef struct iso_file_tensor {
  const char *name;           /* lives as long as the reader */
  const char *type_name;      /* as the format spells it: "q4_k", "BF16", "F8_E4M3" */
  iso_scheme scheme;          /* ISO_SCHEME_COUNT when Isomer has no scheme for type_name */
  int n_dims;                 /* 1 to ISO_MAX_DIMS */
  int64_t dims[ISO_MAX_DIMS]; /* outermost first; rows run along the last; unused ones are 1 */
  const void *data;           /* in the mapped file, dense; no alignment is promised */
  uint64_t bytes;
  uint64_t offset; /* of data, from the start of its file */
  uint32_t shard;  /* which file, 0-based */
} iso_file_tensor;

/* Checks n_dims and dims and sets `bytes`, for rows of blocks of `block_elements` elements in
 * `block_bytes` bytes: each dimension in 1..ISO_MAX_DIM, rows of whole blocks, no overflow.
 * CORRUPT_DATA names the tensor. */
ISO_MUST_CHECK iso_status iso_file_tensor_measure(iso_file_tensor *tensor, uint32_t block_elements,
                                                  uint32_t block_bytes);

/* Fails when the bytes of two tensors of one shard overlap, naming both. O(n log n). */
ISO_MUST_CHECK iso_status iso_file_tensor_check_overlap(const iso_file_tensor *tensors,
                                                        uint64_t count);

#endif
