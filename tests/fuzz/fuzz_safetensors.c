/* Any bytes: a reader whose tensors fill the data exactly, or an error. */
#include "models/formats/safetensors.h"
#include <stdlib.h>

static volatile unsigned sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  iso_safetensors *reader;
  if (iso_safetensors_open_memory(data, size, &reader) != ISO_OK)
    return 0;
  uint64_t total = 0;
  for (uint64_t i = 0; i < iso_safetensors_tensor_count(reader); i++) {
    const iso_file_tensor *tensor = iso_safetensors_tensor_at(reader, i);
    const uint8_t *bytes = tensor->data;
    if (iso_safetensors_find_tensor(reader, tensor->name) != tensor)
      abort();
    for (uint64_t j = 0; j < tensor->bytes; j++)
      sink += bytes[j];
    total += tensor->bytes;
  }
  if (total > size)
    abort();
  iso_safetensors_close(reader);
  return 0;
}
