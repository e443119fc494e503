/* Writes GGUF version 3: metadata and tensor descriptions first, then the tensors' bytes in the
 * order in which they were declared, in pieces of any size. No tensor is ever held in memory, and
 * the file appears under its name only when it is whole. One thread a writer. */
#ifndef ISOMER_MODELS_FORMATS_GGUF_WRITER_H
#define ISOMER_MODELS_FORMATS_GGUF_WRITER_H

#include "models/formats/gguf.h"

typedef struct iso_gguf_writer iso_gguf_writer;

ISO_MUST_CHECK iso_status iso_gguf_writer_create(const char *path, iso_gguf_writer **out_writer);
/* Frees; without a successful finish nothing is left at `path` that was not there. NULL is fine. */
void iso_gguf_writer_destroy(iso_gguf_writer *writer);

/* Metadata, before the first append. Keys must be unique, which the first append checks.
 * "general.alignment" sets the alignment of tensors, 32 without it. */
ISO_MUST_CHECK iso_status iso_gguf_writer_add_u32(iso_gguf_writer *writer, const char *key,
                                                  uint32_t value);
ISO_MUST_CHECK iso_status iso_gguf_writer_add_u64(iso_gguf_writer *writer, const char *key,
                                                  uint64_t value);
ISO_MUST_CHECK iso_status iso_gguf_writer_add_f32(iso_gguf_writer *writer, const char *key,
                                                  float value);
ISO_MUST_CHECK iso_status iso_gguf_writer_add_bool(iso_gguf_writer *writer, const char *key,
                                                   bool value);
ISO_MUST_CHECK iso_status iso_gguf_writer_add_string(iso_gguf_writer *writer, const char *key,
                                                     const char *value);
ISO_MUST_CHECK iso_status iso_gguf_writer_add_i32_array(iso_gguf_writer *writer, const char *key,
                                                        const int32_t *values, uint64_t count);
ISO_MUST_CHECK iso_status iso_gguf_writer_add_f32_array(iso_gguf_writer *writer, const char *key,
                                                        const float *values, uint64_t count);
ISO_MUST_CHECK iso_status iso_gguf_writer_add_string_array(iso_gguf_writer *writer, const char *key,
                                                           const iso_text_view *values,
                                                           uint64_t count);
/* A value as a reader gives it, key included: to copy metadata from file to file. */
ISO_MUST_CHECK iso_status iso_gguf_writer_add_value(iso_gguf_writer *writer,
                                                    const iso_gguf_value *value);

/* Declares a tensor, before the first append; dims outermost first, 1 to ISO_MAX_DIMS of them. */
ISO_MUST_CHECK iso_status iso_gguf_writer_add_tensor(iso_gguf_writer *writer, const char *name,
                                                     iso_scheme scheme, int n_dims,
                                                     const int64_t *dims);

/* Appends bytes of the current tensor: the first declared, then the next whenever one is full.
 * A piece must not reach into the next tensor. After any failure to append or finish, the writer
 * can only be destroyed. */
ISO_MUST_CHECK iso_status iso_gguf_writer_append(iso_gguf_writer *writer, const void *data,
                                                 uint64_t bytes);

/* Checks that every tensor is full, and puts the file in its place. */
ISO_MUST_CHECK iso_status iso_gguf_writer_finish(iso_gguf_writer *writer);

#endif
