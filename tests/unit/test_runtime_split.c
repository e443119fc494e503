/* A model split between two devices after every layer gives the logits of one device, whichever of
 * them comes first, in one prefill and then token by token. */
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
                                     "gemma3"};

enum { N_TOKENS = 24, N_PREFILL = 17 };

/* Relative to the largest logit of the row. */
#define TOLERANCE 1e-4

/* Logits of every token into `out`, N_TOKENS rows; the runtime is destroyed. */
static void run(iso_runtime *runtime, float *out) {
  const iso_model_config *config = iso_model_get_config(iso_runtime_get_model(runtime));
  size_t row_bytes = (size_t)config->vocabulary_size * sizeof *out;
  const int32_t pages[] = {1, 0};
  int32_t tokens[N_TOKENS], n;
  for (int32_t i = 0; i < N_TOKENS; i++)
    tokens[i] = (37 * i + 11) % config->vocabulary_size;
  for (int32_t first = 0; first < N_TOKENS; first += n) {
    n = first == 0 ? N_PREFILL : 1;
    iso_batch_sequence sequence = {.n_tokens = n,
                                   .tokens = tokens + first,
                                   .position = first,
                                   .pages = pages,
                                   .n_pages = 2,
                                   .all_logits = true};
    CHECK(iso_runtime_step(runtime, &sequence, 1));
    for (int32_t i = 0; i < n; i++)
      memcpy(out + (int64_t)(first + i) * config->vocabulary_size, iso_runtime_logits(runtime, i),
             row_bytes);
  }
  iso_runtime_destroy(runtime);
}

static iso_runtime *create(const iso_model *model, const char *devices, const char *split) {
  iso_runtime_options options = {.devices = devices,
                                 .split = split,
                                 .n_threads = 2,
                                 .context = 32,
                                 .max_tokens = N_PREFILL,
                                 .max_logit_rows = N_PREFILL,
                                 .page_size = 16};
  iso_runtime *runtime;
  CHECK(iso_runtime_create(model, &options, &runtime));
  return runtime;
}

/* Devices that get layers must launch something, and only the two of them. */
static void check_placement(const iso_runtime *runtime, int32_t n_first, int32_t n_layers) {
  const iso_plan *plan = iso_runtime_get_plan(runtime);
  uint32_t n_launches[2] = {0}, n_copies = 0;
  assert_int_equal(plan->n_devices, 2);
  for (uint32_t s = 0; s < plan->n_steps; s++)
    if (plan->steps[s].kind == ISO_STEP_COPY)
      n_copies++;
    else
      n_launches[plan->steps[s].device]++;
  assert_int_equal(n_launches[0] > 0, n_first > 0);
  assert_true(n_launches[1] > 0); /* the head goes with the last device */
  assert_int_equal(n_copies > 0, n_first > 0 && n_first <= n_layers);
}

static void check_splits(const iso_model *model, const char *devices, const float *expected,
                         float *found) {
  const iso_model_config *config = iso_model_get_config(model);
  for (int32_t k = 0; k <= config->n_layers; k++) {
    char split[32];
    snprintf(split, sizeof split, "%d,%d", k, config->n_layers - k);
    iso_runtime *runtime = create(model, devices, split);
    check_placement(runtime, k, config->n_layers);
    run(runtime, found);
    for (int32_t row = 0; row < N_TOKENS; row++) {
      int64_t offset = (int64_t)row * config->vocabulary_size;
      double error = worst_error(found + offset, expected + offset, config->vocabulary_size);
      if (!(error < TOLERANCE))
        fail_msg("%s split %s, token %d: relative error %g", devices, split, row, error);
    }
  }
}

static void test_every_boundary(void **state) {
  char path[512];
  iso_model *model;
  iso_model_options options = {.no_tokenizer = true};
  snprintf(path, sizeof path, "%s/tests/golden/models/%s", TEST_SOURCE_DIR, (const char *)*state);
  CHECK(iso_model_open(path, &options, &model));
  size_t count = (size_t)N_TOKENS * (size_t)iso_model_get_config(model)->vocabulary_size;
  float *expected = malloc(count * sizeof *expected), *found = malloc(count * sizeof *found);
  assert_non_null(expected);
  assert_non_null(found);
  run(create(model, "cpu", NULL), expected);
  check_splits(model, "cpu,host", expected, found);
  check_splits(model, "host,cpu", expected, found);
  free(expected);
  free(found);
  iso_model_close(model);
}

int main(void) {
  enum { N_MODELS = sizeof models / sizeof models[0] };
  struct CMUnitTest tests[N_MODELS];
  for (int i = 0; i < N_MODELS; i++)
    tests[i] = (struct CMUnitTest){models[i], test_every_boundary, NULL, NULL,
                                   (void *)(uintptr_t)models[i]};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
