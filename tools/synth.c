#include "tools/synth.h"

#include "tools/json_output.h"
#include "tools/tool.h"
#include <stdlib.h>
#include <string.h>

static iso_status print_result(const iso_options *options, const iso_synth_model *model,
                               const char *path) {
  char bytes[16];
  if (options->json) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "path", path);
    cJSON_AddStringToObject(root, "shape", model->shape->name);
    cJSON_AddStringToObject(root, "scheme", options->scheme);
    cJSON_AddNumberToObject(root, "n_params", (double)model->parameters);
    cJSON_AddNumberToObject(root, "tensor_bytes", (double)model->bytes);
    return iso_json_output_print(root);
  }
  printf("%s: %s in %s, %.1f M parameters, %s\n", path, model->shape->name, options->scheme,
         (double)model->parameters / 1e6, iso_tool_format_bytes(model->bytes, bytes, sizeof bytes));
  return ISO_OK;
}

iso_status iso_command_synth(iso_options *options, int *out_exit) {
  (void)out_exit;
  if (options->words.n != 2)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "synth takes a shape and an output, as in: isomer synth tiny-llama tiny.gguf");
  const char *path = options->words.items[1];
  bool is_gguf = *path == 0 || path[strlen(path) - 1] != '/';
  uint64_t seed = options->seed_given ? (uint64_t)options->seed : 1;
  iso_synth_model model;
  iso_tool_catch_end();
  iso_status status =
      iso_synth_model_create(options->words.items[0], options->scheme, is_gguf, seed, &model);
  if (status == ISO_OK)
    iso_scheme_fallbacks_print(&model.fallbacks);
  if (status == ISO_OK)
    status = is_gguf ? iso_synth_write_gguf(&model, path) : iso_synth_write_folder(&model, path);
  if (status == ISO_OK)
    status = print_result(options, &model, path);
  iso_synth_model_free(&model);
  return status;
}
