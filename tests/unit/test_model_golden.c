/* Tiny models of every architecture against the logits that Hugging Face transformers computes
 * in float32 (tests/golden/models/generate.py), on each linked-in device, in one prefill and
 * token by token. */
#include "check.h"
#include "logits_case.h"

#include <isomer/engine.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const models[] = {"llama",
                                     "llama-gguf/model.gguf",
                                     "llama-tied-llama3-rope",
                                     "llama-yarn",
                                     "mistral-window",
                                     "qwen2",
                                     "qwen3",
                                     "gemma3",
                                     "quantized-int8",
                                     "quantized-fp8",
                                     "quantized-fp8-tensor",
                                     "quantized-fp8-block",
                                     "quantized-int4",
                                     "quantized-int4-zeros",
                                     "quantized-gptq",
                                     "quantized-gptq-row",
                                     "quantized-awq"};
static const char *const devices[] = {"host", "cpu"};

/* Relative to the largest logit of the row. The CPU's integer products round activations to 15
 * bits. */
#define TOLERANCE 1e-4
#define TOLERANCE_OF_INTEGERS 5e-4

static void *read_all(const char *folder, const char *name, size_t *out_bytes) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *out_bytes = (size_t)ftell(file);
  rewind(file);
  void *data = malloc(*out_bytes);
  assert_int_equal(fread(data, 1, *out_bytes, file), *out_bytes);
  fclose(file);
  return data;
}

/* Feeds the tokens in chunks of `chunk` and compares every row. */
static void compare(const iso_model *model, const char *device, const int32_t *tokens,
                    int32_t n_tokens, const float *expected, int32_t chunk, double tolerance) {
  iso_runtime_options options = {.devices = device,
                                 .n_threads = 2,
                                 .context = 128,
                                 .max_tokens = 64,
                                 .max_logit_rows = 64,
                                 .page_size = 16};
  iso_runtime *runtime;
  CHECK(iso_runtime_create(model, &options, &runtime));
  int32_t vocabulary = iso_model_get_config(model)->vocabulary_size;
  /* Pages out of order: a block table that is ignored would show. */
  const int32_t pages[] = {5, 2, 7, 0};
  for (int32_t start = 0; start < n_tokens; start += chunk) {
    int32_t n = n_tokens - start < chunk ? n_tokens - start : chunk;
    iso_batch_sequence sequence = {.n_tokens = n,
                                   .tokens = tokens + start,
                                   .position = start,
                                   .pages = pages,
                                   .n_pages = 4,
                                   .all_logits = true};
    CHECK(iso_runtime_step(runtime, &sequence, 1));
    for (int32_t i = 0; i < n; i++) {
      double error = worst_error(iso_runtime_logits(runtime, i),
                                 expected + (int64_t)(start + i) * vocabulary, vocabulary);
      if (!(error < tolerance))
        fail_msg("device %s, chunk %d, token %d: relative error %g", device, chunk, start + i,
                 error);
    }
  }
  iso_runtime_destroy(runtime);
}

static void test_models(void **state) {
  (void)state;
  for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
    char path[512], folder[512];
    snprintf(path, sizeof path, "%s/tests/golden/models/%s", TEST_SOURCE_DIR, models[m]);
    int folder_length = snprintf(folder, sizeof folder, "%s", path);
    const char suffix[] = "/model.gguf";
    if (folder_length > (int)sizeof suffix && path[folder_length - 1] == 'f' &&
        path[folder_length - 2] == 'u')
      folder[folder_length - (int)sizeof suffix + 1] = 0;
    size_t token_bytes, logit_bytes;
    int32_t *tokens = read_all(folder, "tokens.i32", &token_bytes);
    float *logits = read_all(folder, "logits.f32", &logit_bytes);
    iso_model *model;
    iso_model_options options = {.no_tokenizer = true};
    CHECK(iso_model_open(path, &options, &model));
    int32_t n_tokens = (int32_t)(token_bytes / 4);
    assert_int_equal(logit_bytes / 4,
                     (size_t)n_tokens * (size_t)iso_model_get_config(model)->vocabulary_size);
    for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
      bool integers = strncmp(models[m], "quantized", 9) == 0 && strcmp(devices[d], "cpu") == 0;
      double tolerance = integers ? TOLERANCE_OF_INTEGERS : TOLERANCE;
      print_message("%s on %s\n", models[m], devices[d]);
      compare(model, devices[d], tokens, n_tokens, logits, n_tokens, tolerance);
      compare(model, devices[d], tokens, n_tokens, logits, 1, tolerance);
      compare(model, devices[d], tokens, n_tokens, logits, 7, tolerance);
    }
    iso_model_close(model);
    free(tokens);
    free(logits);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_models)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
