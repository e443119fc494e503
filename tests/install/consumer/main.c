/* An application of the installed library: one step of a model on a named device.
 *   consumer MODEL DEVICE */
#include <isomer/engine.h>
#include <stdio.h>

int main(int argc, char **argv) {
  iso_model *model;
  iso_runtime *runtime;
  if (argc != 3)
    return 2;
  iso_model_options model_options = {.no_tokenizer = true};
  if (iso_model_open(argv[1], &model_options, &model) != ISO_OK) {
    fprintf(stderr, "%s\n", iso_status_message());
    return 1;
  }
  iso_runtime_options options = {.devices = argv[2], .context = 64};
  if (iso_runtime_create(model, &options, &runtime) != ISO_OK) {
    fprintf(stderr, "%s\n", iso_status_message());
    return 1;
  }
  const int32_t tokens[] = {3, 5, 7}, pages[] = {0};
  iso_batch_sequence sequence = {
      .n_tokens = 3, .tokens = tokens, .pages = pages, .n_pages = 1};
  if (iso_runtime_step(runtime, &sequence, 1) != ISO_OK) {
    fprintf(stderr, "%s\n", iso_status_message());
    return 1;
  }
  for (int i = 0; i < 8; i++)
    printf("%.6f\n", (double)iso_runtime_logits(runtime, 0)[i]);
  iso_runtime_destroy(runtime);
  iso_model_close(model);
  return 0;
}
