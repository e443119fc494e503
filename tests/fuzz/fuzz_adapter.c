/* Any bytes as a LoRA adapter of a small model: those that begin with "GGUF" as that file, others
 * as a PEFT folder, its configuration and its tensors parted by NUL. What is taken has weights of
 * the shapes that the model's graph asks for. */
#include "models/adapter.h"
#include "tests/fuzz/scratch.h"

#include <string.h>

static char folder[SCRATCH_PATH], file[SCRATCH_PATH + 32], config[SCRATCH_PATH + 32],
    tensors[SCRATCH_PATH + 40];
static iso_model *model;

static void clean_up(void) {
  iso_model_close(model);
  unlink(file);
  unlink(config);
  unlink(tensors);
  rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  const iso_model_options options = {.no_tokenizer = true};
  if (iso_model_open(TEST_SOURCE_DIR "/tests/fuzz/seeds/model/llama.gguf", &options, &model) !=
      ISO_OK)
    abort();
  scratch_create(folder);
  snprintf(file, sizeof file, "%s/adapter.gguf", folder);
  snprintf(config, sizeof config, "%s/adapter_config.json", folder);
  snprintf(tensors, sizeof tensors, "%s/adapter_model.safetensors", folder);
  atexit(clean_up);
  return 0;
}

static const char *write_input(const uint8_t *data, size_t size) {
  if (size >= 4 && memcmp(data, "GGUF", 4) == 0) {
    scratch_write(file, data, size);
    return file;
  }
  const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
  size_t length = end ? (size_t)(end - data) : size, rest = end ? size - length - 1 : 0;
  scratch_write(config, data, length);
  scratch_write(tensors, end ? end + 1 : data, rest);
  return folder;
}

/* The weight of one matrix; its bytes are all read. */
static void read_weight(const iso_adapter *const *adapters, const char *matrix, const char *end,
                        int64_t rows, int64_t columns) {
  char name[128];
  snprintf(name, sizeof name, "%s%s", matrix, end);
  iso_host_weight weight;
  float *values = NULL;
  bool is_there;
  if (iso_adapters_weight(adapters, 1, name, &weight, &values, &is_there) != ISO_OK)
    return;
  if (!is_there || weight.dims[0] != 2 || weight.dims[1] != rows || weight.dims[2] != columns ||
      weight.bytes != (uint64_t)(2 * rows * columns) * sizeof *values)
    abort();
  for (int64_t i = 0; i < rows * columns; i++)
    if (values[i] != 0)
      abort();
  free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  iso_adapter *adapter;
  if (iso_adapter_open(model, write_input(data, size), &adapter) != ISO_OK) {
    if (!*iso_status_message())
      abort();
    return 0;
  }
  const iso_adapter *const adapters[] = {adapter};
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < iso_model_tensor_count(model); i++) {
    iso_model_tensor tensor;
    iso_model_get_tensor(model, i, &tensor);
    int64_t rank = iso_adapters_rank(adapters, 1, tensor.name);
    if (rank == 0)
      continue;
    read_weight(adapters, tensor.name, ISO_ADAPTER_DOWN, rank, tensor.dims[1]);
    read_weight(adapters, tensor.name, ISO_ADAPTER_UP, tensor.dims[0], rank);
    bytes += (uint64_t)(2 * rank * (tensor.dims[0] + tensor.dims[1])) * sizeof(float);
  }
  if (bytes == 0 || bytes != iso_adapters_bytes(adapters, 1))
    abort();
  iso_adapter_close(adapter);
  return 0;
}
