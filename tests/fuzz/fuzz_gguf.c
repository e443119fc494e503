/* Any bytes: a reader all of whose values and tensors can be read, or an error. */
#include "models/formats/gguf.h"
#include <stdlib.h>

static volatile double sink;

static void read_value(const iso_gguf *gguf, const iso_gguf_value *value) {
  if (iso_gguf_find(gguf, value->key) != value)
    abort();
  iso_text_view text = {0}, *strings = NULL;
  uint64_t count = 0;
  if (value->type == ISO_GGUF_STRING) {
    iso_status status = value->is_array
                            ? iso_gguf_get_string_array(gguf, value->key, &strings, &count)
                            : iso_gguf_get_string(gguf, value->key, &text);
    if (status != ISO_OK)
      abort();
    if (text.length > 0)
      sink += text.data[0] + text.data[text.length - 1];
    for (uint64_t i = 0; i < count; i++)
      if (strings[i].length > 0)
        sink += strings[i].data[0] + strings[i].data[strings[i].length - 1];
    free(strings);
    return;
  }
  for (uint64_t i = 0; i < value->count; i++)
    sink += (double)iso_gguf_value_int(value, i) + iso_gguf_value_float(value, i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  iso_gguf *gguf;
  if (iso_gguf_open_memory(data, size, &gguf) != ISO_OK)
    return 0;
  for (uint64_t i = 0; i < iso_gguf_value_count(gguf); i++)
    read_value(gguf, iso_gguf_value_at(gguf, i));
  for (uint64_t i = 0; i < iso_gguf_tensor_count(gguf); i++) {
    const iso_file_tensor *tensor = iso_gguf_tensor_at(gguf, i);
    const uint8_t *bytes = tensor->data;
    if (iso_gguf_find_tensor(gguf, tensor->name) != tensor)
      abort();
    for (uint64_t j = 0; j < tensor->bytes; j++)
      sink += bytes[j];
  }
  iso_gguf_close(gguf);
  return 0;
}
