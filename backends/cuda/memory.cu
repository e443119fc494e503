/* Device memory and pinned host memory. Allocations are few and large, so each is the driver's. */
#include "backends/cuda/cuda.h"
#include "backends/cuda/simt_platform.h"
#include <pthread.h>
#include <stdlib.h>

typedef unsigned long long u64;

static iso_status memory_bytes_free(iso_device *device, uint64_t *out_bytes) {
  size_t free_bytes = 0, total = 0;
  CUDA_TRY(cudaSetDevice(device->ordinal));
  CUDA_TRY(cudaMemGetInfo(&free_bytes, &total));
  *out_bytes = free_bytes;
  return ISO_OK;
}

static iso_status refuse(iso_device *device, iso_memory_kind kind, uint64_t bytes,
                         cudaError_t error) {
  size_t free_bytes = 0, total = 0;
  (void)cudaMemGetInfo(&free_bytes, &total);
  (void)cudaGetLastError();
  if (error != cudaErrorMemoryAllocation && error != cudaErrorInvalidValue)
    return cuda_failure(error, kind == ISO_MEMORY_STAGING ? "cudaHostAlloc" : "cudaMalloc",
                        __FILE__, __LINE__);
  if (kind == ISO_MEMORY_STAGING)
    return iso_backend_fail(cuda_host, ISO_ERROR_OUT_OF_MEMORY,
                            "the host cannot pin %llu bytes of memory", (u64)bytes);
  return iso_backend_fail(cuda_host, ISO_ERROR_OUT_OF_MEMORY,
                          "a buffer of %llu bytes does not fit: %llu of %llu bytes are free on %s",
                          (u64)bytes, (u64)free_bytes, (u64)total, device->info.name);
}

static iso_status memory_alloc(iso_device *device, iso_memory_kind kind, uint64_t bytes,
                               iso_buffer **out_buffer) {
  iso_buffer *buffer = (iso_buffer *)calloc(1, sizeof *buffer);
  if (!buffer)
    return iso_backend_fail(cuda_host, ISO_ERROR_OUT_OF_MEMORY, "a buffer needs %zu bytes",
                            sizeof *buffer);
  void *data = nullptr;
  cudaError_t error = cudaSetDevice(device->ordinal);
  if (error == cudaSuccess)
    error = kind == ISO_MEMORY_STAGING ? cudaHostAlloc(&data, bytes, cudaHostAllocPortable)
                                       : cudaMalloc(&data, bytes);
  if (error != cudaSuccess) {
    free(buffer);
    return refuse(device, kind, bytes, error);
  }
  buffer->data = (uint8_t *)data;
  buffer->bytes = bytes;
  buffer->kind = kind;
  buffer->ordinal = device->ordinal;
  *out_buffer = buffer;
  return ISO_OK;
}

static void memory_free(iso_device *device, iso_buffer *buffer) {
  if (!buffer)
    return;
  (void)cudaSetDevice(device->ordinal);
  if (buffer->kind == ISO_MEMORY_STAGING)
    (void)cudaFreeHost(buffer->data);
  else
    (void)cudaFree(buffer->data);
  for (uint32_t i = 0; i < buffer->n_notes; i++)
    (void)cudaFree(buffer->notes[i].form);
  (void)cudaGetLastError();
  __atomic_store_n(&device->is_full, false, __ATOMIC_RELAXED);
  free(buffer->notes);
  free(buffer);
}

/* ---- Notes ----------------------------------------------------------------------------------- */

static pthread_mutex_t notes_lock = PTHREAD_MUTEX_INITIALIZER;

static cuda_note *find_note(const iso_buffer *buffer, uint64_t offset) {
  for (uint32_t i = 0; i < buffer->n_notes; i++)
    if (buffer->notes[i].offset == offset)
      return &buffer->notes[i];
  return nullptr;
}

void simt_note(iso_buffer *buffer, uint64_t offset, bool holds) {
  pthread_mutex_lock(&notes_lock);
  cuda_note *note = find_note(buffer, offset);
  if (note) { /* of what lay there before */
    (void)cudaFree(note->form);
    note->form = nullptr;
  }
  if (!holds && note) {
    *note = buffer->notes[--buffer->n_notes];
  } else if (holds && !note) {
    if (buffer->n_notes == buffer->most_notes) {
      uint32_t most = buffer->most_notes * 2 + 16;
      cuda_note *notes = (cuda_note *)realloc(buffer->notes, most * sizeof *notes);
      if (notes)
        buffer->notes = notes, buffer->most_notes = most;
    }
    if (buffer->n_notes < buffer->most_notes)
      buffer->notes[buffer->n_notes++] = cuda_note{offset, nullptr};
  }
  pthread_mutex_unlock(&notes_lock);
}

bool simt_is_noted(const iso_buffer *buffer, uint64_t offset) {
  pthread_mutex_lock(&notes_lock);
  bool holds = find_note(buffer, offset) != nullptr;
  pthread_mutex_unlock(&notes_lock);
  return holds;
}

uint8_t *cuda_find_form(const iso_buffer *buffer, uint64_t offset) {
  pthread_mutex_lock(&notes_lock);
  const cuda_note *note = find_note(buffer, offset);
  uint8_t *form = note ? note->form : nullptr;
  pthread_mutex_unlock(&notes_lock);
  return form;
}

bool cuda_keep_form(iso_buffer *buffer, uint64_t offset, uint8_t *form) {
  pthread_mutex_lock(&notes_lock);
  cuda_note *note = find_note(buffer, offset);
  bool keeps = note && !note->form;
  if (keeps)
    note->form = form;
  pthread_mutex_unlock(&notes_lock);
  return keeps;
}

static iso_status memory_map(iso_device *device, iso_buffer *buffer, void **out_address) {
  if (buffer->kind != ISO_MEMORY_STAGING)
    return iso_backend_fail(cuda_host, ISO_ERROR_UNSUPPORTED,
                            "memory of %s cannot be mapped: copy through a staging buffer",
                            device->info.name);
  *out_address = buffer->data;
  return ISO_OK;
}

const iso_memory_table cuda_memory_table = {.size = sizeof cuda_memory_table,
                                            .alloc = memory_alloc,
                                            .free = memory_free,
                                            .map = memory_map,
                                            .import = nullptr,
                                            .bytes_free = memory_bytes_free};
