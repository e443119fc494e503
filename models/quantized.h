/* Quantized weights of Hugging Face folders, as the tools that publish them lay them out:
 * compressed-tensors, fine-grained FP8, GPTQ and AWQ. Each becomes one tensor of a g128 scheme
 * (quant/blocks.h) under the name it would have unquantized, repacked when it is asked for. */
#ifndef ISOMER_MODELS_QUANTIZED_H
#define ISOMER_MODELS_QUANTIZED_H

#include "models/formats/hf_folder.h"

/* Where the number at (row, column) lies in a matrix that is packed or grouped: element
 * row / row_group * row_stride + column / column_group * column_stride. */
typedef struct iso_quantized_grid {
  const iso_file_tensor *tensor; /* NULL: there is none */
  int64_t row_group, row_stride, column_group, column_stride;
} iso_quantized_grid;

typedef enum iso_nibble_order {
  ISO_NIBBLES_ALONG_COLUMNS, /* column % 8 is the nibble's place in its word */
  ISO_NIBBLES_ALONG_ROWS,    /* row % 8 is */
  ISO_NIBBLES_AWQ            /* rows 0 2 4 6 1 3 5 7 in the order of nibbles */
} iso_nibble_order;

typedef struct iso_quantized_tensor {
  iso_file_tensor tensor; /* of the repacked bytes; data is NULL, the name is owned */
  iso_quantized_grid codes, scales, zeros;
  iso_nibble_order code_order, zero_order;
  int zero_offset; /* added to a stored zero point; the zero point where none is stored */
} iso_quantized_tensor;

typedef struct iso_quantized {
  iso_quantized_tensor *tensors; /* by name */
  uint64_t count;
} iso_quantized;

/* Reads quantization_config and lists the quantized tensors of the folder; none without it. A
 * method, layout, width or group that cannot be held exactly is UNSUPPORTED, named with what is
 * known. The folder outlives the list. */
ISO_MUST_CHECK iso_status iso_quantized_open(const iso_hf_folder *folder,
                                             iso_quantized *out_quantized);
void iso_quantized_close(iso_quantized *quantized);

/* By full name in the folder ("model.layers.0.mlp.up_proj.weight"); NULL when there is none. */
const iso_file_tensor *iso_quantized_find(const iso_quantized *quantized, const char *name);
/* Whether a tensor of the folder, by its name, is one of those that a quantized one comes from, or lies
 * beside them: all of a layer but its bias. */
bool iso_quantized_has_part(const iso_quantized *quantized, const char *name);
/* The entry whose `tensor` this is; NULL when it is another reader's. */
const iso_quantized_tensor *iso_quantized_of(const iso_quantized *quantized,
                                             const iso_file_tensor *tensor);

/* Writes tensor.bytes bytes, blocks of the tensor's scheme. Thread safe. */
void iso_quantized_repack(const iso_quantized_tensor *quantized, void *out);

#endif
