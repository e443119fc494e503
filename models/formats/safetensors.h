/* safetensors: one file, or a folder's sharded set with its index
 * (huggingface.co/docs/safetensors, "Format").
 *
 * Files are mapped and tensors point into them. Opening checks everything once, as the format
 * demands: tensors that neither overlap nor leave holes, and byte ranges that agree with dtype and
 * shape. A reader is immutable: any number of threads may use it. */
#ifndef ISOMER_MODELS_FORMATS_SAFETENSORS_H
#define ISOMER_MODELS_FORMATS_SAFETENSORS_H

#include "core/file.h"
#include "models/formats/file_tensor.h"

typedef struct iso_safetensors iso_safetensors;

/* Opens one file. */
ISO_MUST_CHECK iso_status iso_safetensors_open(const char *path, iso_safetensors **out_reader);
/* Opens every shard that the weight_map of an index file (model.safetensors.index.json) names; they
 * lie beside it. Every tensor of the map must be in the shard that it says. */
ISO_MUST_CHECK iso_status iso_safetensors_open_index(const char *index_path,
                                                     iso_safetensors **out_reader);
/* Reads one file from memory, which must outlive the reader. */
ISO_MUST_CHECK iso_status iso_safetensors_open_memory(const void *data, uint64_t size,
                                                      iso_safetensors **out_reader);
/* Unmaps and frees; NULL is fine. */
void iso_safetensors_close(iso_safetensors *reader);

/* Tensors of all shards. One whose dtype no scheme holds (U8, I64, F8_E4M3, ...) is listed with
 * scheme ISO_SCHEME_COUNT and its dtype as type_name. A scalar has one dimension of 1. */
uint64_t iso_safetensors_tensor_count(const iso_safetensors *reader);
const iso_file_tensor *iso_safetensors_tensor_at(const iso_safetensors *reader, uint64_t index);
/* NULL when there is none of that name. */
const iso_file_tensor *iso_safetensors_find_tensor(const iso_safetensors *reader, const char *name);

uint32_t iso_safetensors_shard_count(const iso_safetensors *reader);
/* The mapping of a shard, for iso_file_map_advise(); a closed map for memory. */
const iso_file_map *iso_safetensors_shard_map(const iso_safetensors *reader, uint32_t shard);

/* Writes one file: declare every tensor, then append their bytes in that order, in pieces of any
 * size. The file appears under its name only when it is whole. One thread a writer. */
typedef struct iso_safetensors_writer iso_safetensors_writer;

ISO_MUST_CHECK iso_status iso_safetensors_writer_create(const char *path,
                                                        iso_safetensors_writer **out_writer);
/* Declares a tensor of a plain scheme, before the first append; dims outermost first. */
ISO_MUST_CHECK iso_status iso_safetensors_writer_add_tensor(iso_safetensors_writer *writer,
                                                            const char *name, iso_scheme scheme,
                                                            int n_dims, const int64_t *dims);
/* After any failure to append or finish, the writer can only be destroyed. */
ISO_MUST_CHECK iso_status iso_safetensors_writer_append(iso_safetensors_writer *writer,
                                                        const void *data, uint64_t bytes);
/* Checks that all bytes are there, and puts the file in its place. */
ISO_MUST_CHECK iso_status iso_safetensors_writer_finish(iso_safetensors_writer *writer);
/* Frees; without a successful finish nothing is left at `path` that was not there. NULL is fine. */
void iso_safetensors_writer_destroy(iso_safetensors_writer *writer);

#endif
