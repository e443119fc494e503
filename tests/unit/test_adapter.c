/* LoRA adapters against the logits of weights merged by hand (tests/golden/adapters/generate.py),
 * on each linked-in device; rows of several adapters and of none in one step; and files that are
 * refused. */
#include "check.h"
#include "logits_case.h"
#include "models/formats/gguf_writer.h"

#include <isomer/engine.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"

#define TOLERANCE 1e-4 /* relative to the largest logit of the row, as in test_model_golden.c */

enum { N_TOKENS = 40, VOCABULARY = 160 };

static const char *golden(const char *name, char out[512]) {
  snprintf(out, 512, "%s/tests/golden/%s", TEST_SOURCE_DIR, name);
  return out;
}

static void *read_golden(const char *folder, const char *name, size_t bytes) {
  char path[512], *data;
  size_t found;
  snprintf(path, sizeof path, "%s/tests/golden/%s/%s", TEST_SOURCE_DIR, folder, name);
  CHECK(iso_file_read(path, 1 << 20, &data, &found));
  assert_int_equal(found, bytes);
  return data;
}

static iso_model *open_model(const char *name) {
  char path[512];
  iso_model *model;
  iso_model_options options = {.no_tokenizer = true};
  CHECK(iso_model_open(golden(name, path), &options, &model));
  return model;
}

static iso_adapter *open_adapter(const iso_model *model, const char *name) {
  char path[512];
  iso_adapter *adapter;
  CHECK(iso_adapter_open(model, golden(name, path), &adapter));
  return adapter;
}

static iso_runtime *make_runtime(const iso_model *model, const char *device,
                                 iso_adapter *const *adapters, int32_t n_adapters) {
  iso_runtime_options options = {.devices = device,
                                 .n_threads = 2,
                                 .context = 64,
                                 .max_tokens = 128,
                                 .max_sequences = 3,
                                 .max_logit_rows = 128,
                                 .page_size = 16,
                                 .adapters = (const iso_adapter *const *)adapters,
                                 .n_adapters = n_adapters};
  iso_runtime *runtime;
  CHECK(iso_runtime_create(model, &options, &runtime));
  return runtime;
}

/* All tokens from `start` on, of a sequence with its own pages. */
static iso_batch_sequence sequence_of(const int32_t *tokens, int32_t start, int32_t n, int index,
                                      int32_t adapter) {
  static const int32_t pages[3][4] = {{5, 2, 7, 0}, {1, 3, 4, 6}, {11, 10, 9, 8}};
  return (iso_batch_sequence){.n_tokens = n,
                              .tokens = tokens + start,
                              .position = start,
                              .pages = pages[index],
                              .n_pages = 4,
                              .all_logits = true,
                              .adapter = adapter};
}

static void compare(iso_runtime *runtime, const int32_t *tokens, const float *expected,
                    int32_t chunk, int32_t adapter) {
  for (int32_t start = 0; start < N_TOKENS; start += chunk) {
    iso_batch_sequence sequence = sequence_of(tokens, start, chunk, 0, adapter);
    CHECK(iso_runtime_step(runtime, &sequence, 1));
    for (int32_t i = 0; i < chunk; i++) {
      double error = worst_error(iso_runtime_logits(runtime, i),
                                 expected + (start + i) * VOCABULARY, VOCABULARY);
      if (!(error < TOLERANCE))
        fail_msg("chunk %d, token %d: relative error %g", chunk, start + i, error);
    }
  }
}

/* Both kinds of file, on both kinds of model: rotary pairs lie differently in the two. */
static void test_golden(void **state) {
  (void)state;
  static const struct {
    const char *model, *tokens, *adapter, *logits;
  } cases[] = {
      {"models/llama", "models/llama", "adapters/llama", "adapters/llama"},
      {"models/llama", "models/llama", "adapters/llama.gguf", "adapters/llama"},
      {"models/llama-gguf/model.gguf", "models/llama", "adapters/llama", "adapters/llama"},
      {"models/llama-gguf/model.gguf", "models/llama", "adapters/llama.gguf", "adapters/llama"},
      {"models/llama", "models/llama", "adapters/llama-rslora", "adapters/llama-rslora"},
      {"models/gemma3", "models/gemma3", "adapters/gemma3", "adapters/gemma3"},
  };
  static const char *const devices[] = {"host", "cpu"};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    iso_model *model = open_model(cases[c].model);
    iso_adapter *adapter = open_adapter(model, cases[c].adapter);
    int32_t *tokens = read_golden(cases[c].tokens, "tokens.i32", N_TOKENS * sizeof *tokens);
    float *logits =
        read_golden(cases[c].logits, "logits.f32", N_TOKENS * VOCABULARY * sizeof *logits);
    for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
      print_message("%s with %s on %s\n", cases[c].model, cases[c].adapter, devices[d]);
      iso_runtime *runtime = make_runtime(model, devices[d], &adapter, 1);
      compare(runtime, tokens, logits, N_TOKENS, 1);
      compare(runtime, tokens, logits, 1, 1);
      iso_runtime_destroy(runtime);
    }
    free(tokens);
    free(logits);
    iso_adapter_close(adapter);
    iso_model_close(model);
  }
}

/* ---- Several in one step --------------------------------------------------------------------- */

typedef struct launches {
  int all, grouped;
} launches;

static void count_launch(void *context, const iso_plan_step *step, const iso_kernel *kernel,
                         double microseconds) {
  launches *self = context;
  (void)step;
  (void)microseconds;
  self->all += kernel != NULL;
  self->grouped += kernel && kernel->op == ISO_OP_GROUPED_MATMUL;
}

static void copy_logits(const iso_runtime *runtime, int32_t n_rows, float *out) {
  for (int32_t i = 0; i < n_rows; i++)
    memcpy(out + i * VOCABULARY, iso_runtime_logits(runtime, i), VOCABULARY * sizeof *out);
}

/* A row does not depend on the rows beside it, and one without an adapter on there being any. */
static void test_mixed(void **state) {
  (void)state;
  static const char *const devices[] = {"host", "cpu"};
  enum { ROWS = 12, LOGITS = ROWS * VOCABULARY };
  static float single[3][LOGITS], plain[LOGITS], mixed[3 * LOGITS];
  iso_model *model = open_model("models/llama");
  iso_adapter *adapters[2] = {open_adapter(model, "adapters/llama"),
                              open_adapter(model, "adapters/llama-rslora")};
  int32_t *tokens = read_golden("models/llama", "tokens.i32", N_TOKENS * sizeof *tokens);
  for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
    iso_runtime *without = make_runtime(model, devices[d], NULL, 0);
    iso_runtime *runtime = make_runtime(model, devices[d], adapters, 2);
    launches expected = {0}, found = {0};
    iso_executor_observe(iso_runtime_get_executor(without), count_launch, &expected);
    iso_executor_observe(iso_runtime_get_executor(runtime), count_launch, &found);
    iso_batch_sequence one = sequence_of(tokens, 0, ROWS, 0, 0);
    CHECK(iso_runtime_step(without, &one, 1));
    copy_logits(without, ROWS, plain);
    CHECK(iso_runtime_step(runtime, &one, 1));
    copy_logits(runtime, ROWS, single[0]);
    assert_int_equal(found.grouped, 0);
    assert_int_equal(found.all, expected.all);
    for (int32_t i = 1; i < 3; i++) {
      one = sequence_of(tokens, 0, ROWS, 0, i);
      CHECK(iso_runtime_step(runtime, &one, 1));
      copy_logits(runtime, ROWS, single[i]);
    }
    assert_int_equal(found.grouped, 2 * 2 * 7 * 3); /* of 7 matrices of 3 layers, in 2 steps */
    iso_batch_sequence all[3];
    for (int32_t i = 0; i < 3; i++)
      all[i] = sequence_of(tokens, 0, ROWS, i, (i + 1) % 3);
    CHECK(iso_runtime_step(runtime, all, 3));
    copy_logits(runtime, 3 * ROWS, mixed);
    assert_memory_equal(single[0], plain, sizeof plain);
    assert_memory_not_equal(single[1], plain, sizeof plain);
    assert_memory_not_equal(single[2], single[1], sizeof plain);
    for (int32_t i = 0; i < 3; i++)
      assert_memory_equal(mixed + i * LOGITS, single[(i + 1) % 3], sizeof plain);
    CHECK(iso_runtime_step(runtime, &all[2], 1)); /* without any once more, after steps with */
    copy_logits(runtime, ROWS, single[0]);
    assert_memory_equal(single[0], plain, sizeof plain);
    one = sequence_of(tokens, 0, ROWS, 0, 3);
    assert_int_equal(iso_runtime_step(runtime, &one, 1), ISO_ERROR_INVALID_ARGUMENT);
    iso_runtime_destroy(runtime);
    iso_runtime_destroy(without);
  }
  free(tokens);
  iso_adapter_close(adapters[0]);
  iso_adapter_close(adapters[1]);
  iso_model_close(model);
}

/* ---- Files that are refused ------------------------------------------------------------------ */

static void expect_refusal(const iso_model *model, const char *path, const char *words) {
  iso_adapter *adapter = NULL;
  iso_status status = iso_adapter_open(model, path, &adapter);
  iso_adapter_close(adapter);
  assert_int_not_equal(status, ISO_OK);
  if (!strstr(iso_status_message(), words))
    fail_msg("\"%s\" does not say \"%s\"", iso_status_message(), words);
}

static void write_text(const char *folder, const char *name, const char *text) {
  char path[600];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static void test_refused_folders(void **state) {
  (void)state;
  static const struct {
    const char *config, *words;
  } cases[] = {
      {"[]", "no JSON object"},
      {"{\"peft_type\": \"LORA\", \"lora_alpha\": 8}", "\"r\""},
      {"{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 8}", "r"},
      {"{\"peft_type\": \"LORA\", \"r\": 100000, \"lora_alpha\": 8}", "r"},
      {"{\"peft_type\": \"LORA\", \"r\": 5, \"lora_alpha\": 8}", "[5, 32]"},
      {"{\"peft_type\": \"LORA\", \"r\": 4}", "lora_alpha"},
      {"{\"peft_type\": \"LOHA\", \"r\": 4, \"lora_alpha\": 8}", "LOHA"},
      {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"use_dora\": true}", "use_dora"},
      {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"bias\": \"all\"}", "bias"},
      {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"alora_invocation_tokens\": [3]}",
       "alora_invocation_tokens"},
      {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"arrow_config\": {\"top_k\": 3}}",
       "arrow_config"},
      {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"init_lora_weights\": \"lora_ga\"}",
       "lora_ga"},
      {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"modules_to_save\": [\"x\"]}",
       "modules_to_save"},
      {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"rank_pattern\": {\"x\": 2}}",
       "rank_pattern"},
      {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"init_lora_weights\": "
       "\"pissa_niter_4\"}",
       "pissa"},
      {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"target_modules\": [\"q_proj\", "
       "\"lm_head\"]}",
       "lm_head"},
  };
  char folder[] = "/tmp/isomer-adapter-XXXXXX", tensors[512], path[600];
  assert_non_null(mkdtemp(folder));
  iso_model *model = open_model("models/llama");
  expect_refusal(model, "/nonexistent/adapter", "no such file");
  expect_refusal(model, folder, "adapter_config.json");
  snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
  assert_int_equal(symlink(golden("adapters/llama/adapter_model.safetensors", tensors), path), 0);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_text(folder, "adapter_config.json", cases[i].config);
    expect_refusal(model, folder, cases[i].words);
  }
  write_text(folder, "adapter_config.json",
             "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8}");
  iso_adapter *adapter;
  CHECK(iso_adapter_open(model, folder, &adapter));
  iso_adapter_close(adapter);
  /* The tensors of a model are no adapter's, nor is an adapter one of any model. */
  assert_int_equal(unlink(path), 0);
  assert_int_equal(symlink(golden("models/llama/model.safetensors", tensors), path), 0);
  expect_refusal(model, folder, "belongs to no matrix");
  assert_int_equal(unlink(path), 0);
  expect_refusal(model, folder, "adapter_model.safetensors");
  snprintf(path, sizeof path, "%s/adapter_config.json", folder);
  unlink(path);
  rmdir(folder);
  iso_model *gemma = open_model("models/gemma3");
  expect_refusal(gemma, golden("adapters/llama.gguf", path),
                 "\"llama\"; in an adapter of this model it is \"gemma3\"");
  expect_refusal(model, golden("models/llama-gguf/model.gguf", path), "general.type");
  adapter = open_adapter(model, "adapters/llama");
  iso_runtime *runtime;
  iso_runtime_options options = {.adapters = (const iso_adapter *const *)&adapter, .n_adapters = 1};
  assert_int_equal(iso_runtime_create(gemma, &options, &runtime), ISO_ERROR_INVALID_ARGUMENT);
  iso_adapter_close(adapter);
  iso_model_close(gemma);
  iso_model_close(model);
}

/* One that acts only behind some tokens. */
static void test_refused_activated(void **state) {
  (void)state;
  char path[] = "/tmp/isomer-adapter-XXXXXX";
  int descriptor = mkstemp(path);
  assert_true(descriptor >= 0);
  close(descriptor);
  static const int32_t tokens[] = {3, 4};
  iso_gguf_writer *writer;
  CHECK(iso_gguf_writer_create(path, &writer));
  CHECK(iso_gguf_writer_add_string(writer, "general.type", "adapter"));
  CHECK(iso_gguf_writer_add_string(writer, "adapter.type", "lora"));
  CHECK(iso_gguf_writer_add_string(writer, "general.architecture", "llama"));
  CHECK(iso_gguf_writer_add_f32(writer, "adapter.lora.alpha", 8));
  CHECK(iso_gguf_writer_add_i32_array(writer, "adapter.alora.invocation_tokens", tokens, 2));
  CHECK(iso_gguf_writer_finish(writer));
  iso_gguf_writer_destroy(writer);
  iso_model *model = open_model("models/llama");
  expect_refusal(model, path, "adapter.alora.invocation_tokens");
  iso_model_close(model);
  assert_int_equal(unlink(path), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_mixed),
                                     cmocka_unit_test(test_refused_folders),
                                     cmocka_unit_test(test_refused_activated)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
