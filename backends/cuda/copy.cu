/* Copies of a few words, by a kernel: the copy engines begin some 5 us after the kernel before them
 * is done and what comes next waits as long, which a decode step, with its tokens, lengths and pages
 * in and its tokens out, would pay four times. */
#include "backends/cuda/copy.h"
#include "backends/cuda/simt_platform.h"

namespace {

enum { THREADS = 256, MOST_BYTES = 64 * 1024 };

template <typename Word>
__global__ void __launch_bounds__(THREADS) copy_words(Word *target, const Word *source, uint32_t n) {
  uint32_t i = blockIdx.x * THREADS + threadIdx.x;
  if (i < n)
    target[i] = source[i];
}

template <typename Word>
iso_status launch(iso_queue *queue, uint8_t *target, const uint8_t *source, uint64_t bytes) {
  uint32_t n = (uint32_t)(bytes / sizeof(Word));
  return simt_launch(queue, "copy", copy_words<Word>, dim3((n + THREADS - 1) / THREADS),
                     dim3(THREADS), 0, (Word *)target, (const Word *)source, n);
}

/* Memory of other devices may be out of a kernel's reach. */
bool is_in_reach(const iso_queue *queue, const iso_buffer *buffer) {
  return buffer->kind == ISO_MEMORY_STAGING || buffer->ordinal == queue->device->ordinal;
}

bool is_divided(uint64_t size, const uint8_t *target, const uint8_t *source, uint64_t bytes) {
  return (((uintptr_t)target | (uintptr_t)source | bytes) & (size - 1)) == 0;
}

} /* namespace */

bool cuda_copies_words(const iso_queue *queue, const iso_buffer *target, uint64_t target_offset,
                       const iso_buffer *source, uint64_t source_offset, uint64_t bytes) {
  return bytes > 0 && bytes <= MOST_BYTES && is_in_reach(queue, target) &&
         is_in_reach(queue, source) &&
         is_divided(4, target->data + target_offset, source->data + source_offset, bytes);
}

iso_status cuda_copy_words(iso_queue *queue, uint8_t *target, const uint8_t *source,
                           uint64_t bytes) {
  iso_status status = is_divided(16, target, source, bytes)
                          ? launch<uint4>(queue, target, source, bytes)
                          : launch<uint32_t>(queue, target, source, bytes);
  queue->at_turn = true; /* kernels that begin early may read what a copy brings */
  return status;
}
