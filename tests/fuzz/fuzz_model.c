/* What stands between a file's syntax and its graph: hyperparameters, tensors by name, shapes.
 * Bytes that begin like a GGUF file are one; all others are the config.json of a folder whose
 * weights are a tiny Llama's. A graph, or an error. */
#include "models/model.h"
#include "tests/fuzz/scratch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[SCRATCH_PATH], config_path[96], weights_path[96];

static void remove_folder(void) {
  unlink(config_path);
  unlink(weights_path);
  rmdir(folder);
}

/* A folder with the weights of tests/golden/models/llama, reached by a link. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  scratch_create(folder);
  snprintf(config_path, sizeof config_path, "%s/config.json", folder);
  snprintf(weights_path, sizeof weights_path, "%s/model.safetensors", folder);
  if (symlink(TEST_SOURCE_DIR "/tests/golden/models/llama/model.safetensors", weights_path) != 0)
    abort();
  atexit(remove_folder);
  return 0;
}

static void build(const iso_model *model) {
  const iso_model_graph_options options = {.max_tokens = 4,
                                           .max_sequences = 2,
                                           .max_logit_rows = 2,
                                           .n_pages = 4,
                                           .page_size = 16,
                                           .max_context = 32};
  iso_graph *graph;
  if (iso_model_build_graph(model, &options, &graph) == ISO_OK)
    iso_graph_destroy(graph);
}

static void try_gguf(const uint8_t *data, size_t size) {
  iso_model *model = calloc(1, sizeof *model);
  if (!model)
    abort();
  if (iso_gguf_open_memory(data, size, &model->gguf) == ISO_OK &&
      iso_config_read_gguf(model) == ISO_OK && iso_model_load_parameters(model) == ISO_OK)
    build(model);
  iso_model_close(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size >= 4 && memcmp(data, "GGUF", 4) == 0) {
    try_gguf(data, size);
    return 0;
  }
  scratch_write(config_path, data, size);
  const iso_model_options options = {.no_tokenizer = true};
  iso_model *model;
  if (iso_model_open(folder, &options, &model) == ISO_OK) {
    build(model);
    iso_model_close(model);
  }
  return 0;
}
