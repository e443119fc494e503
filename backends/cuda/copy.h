/* Copies of a few words, by a kernel. */
#ifndef ISOMER_BACKENDS_CUDA_COPY_H
#define ISOMER_BACKENDS_CUDA_COPY_H

#include "backends/cuda/cuda.h"

/* Whether cuda_copy_words() takes a copy: whole words of 4 bytes, 64 KiB at most, both ends on the
 * queue's device or in pinned host memory. The ranges lie within their buffers. */
bool cuda_copies_words(const iso_queue *queue, const iso_buffer *target, uint64_t target_offset,
                       const iso_buffer *source, uint64_t source_offset, uint64_t bytes);

/* Enqueues such a copy; the ends do not overlap. It begins after all that was enqueued before it, and
 * what comes next begins after it. */
iso_status cuda_copy_words(iso_queue *queue, uint8_t *target, const uint8_t *source,
                           uint64_t bytes);

#endif
