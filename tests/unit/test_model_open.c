/* Opening models: what a broken or foreign file is answered with. */
#include "check.h"

#include <isomer/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/formats/gguf_writer.h"

enum { HIDDEN = 32, LAYERS = 1, HEADS = 2, VOCABULARY = 64, INTERMEDIATE = 48 };

/* What differs from a sound file. */
typedef struct fault {
  const char *architecture; /* NULL: llama */
  const char *skip_key, *skip_tensor;
  const char *number_key; /* gets `number` */
  uint32_t number;
  const char *wide_tensor; /* one row too many */
  const char *extra_tensor; /* of one dimension */
  const char *factor_key;   /* a rotary scaling factor, of 4 */
  const char *false_key;
  iso_status expected;
  const char *message; /* part of the sentence */
} fault;

static char path[] = "/tmp/isomer-test-model-XXXXXX";

static bool is(const char *a, const char *b) { return a && strcmp(a, b) == 0; }

static void write_model(const fault *f) {
  static const struct {
    const char *key;
    uint32_t value;
  } keys[] = {{"llama.block_count", LAYERS},       {"llama.embedding_length", HIDDEN},
              {"llama.attention.head_count", HEADS}, {"llama.context_length", 128},
              {"llama.feed_forward_length", INTERMEDIATE},
              {"llama.attention.head_count_kv", HEADS}};
  static const struct {
    const char *name;
    int64_t rows, columns; /* rows 0: one dimension */
  } tensors[] = {{"token_embd.weight", VOCABULARY, HIDDEN},
                 {"output_norm.weight", 0, HIDDEN},
                 {"blk.0.attn_norm.weight", 0, HIDDEN},
                 {"blk.0.attn_q.weight", HIDDEN, HIDDEN},
                 {"blk.0.attn_k.weight", HIDDEN, HIDDEN},
                 {"blk.0.attn_v.weight", HIDDEN, HIDDEN},
                 {"blk.0.attn_output.weight", HIDDEN, HIDDEN},
                 {"blk.0.ffn_norm.weight", 0, HIDDEN},
                 {"blk.0.ffn_gate.weight", INTERMEDIATE, HIDDEN},
                 {"blk.0.ffn_up.weight", INTERMEDIATE, HIDDEN},
                 {"blk.0.ffn_down.weight", HIDDEN, INTERMEDIATE}};
  iso_gguf_writer *writer;
  CHECK(iso_gguf_writer_create(path, &writer));
  if (!is(f->skip_key, "general.architecture"))
    CHECK(iso_gguf_writer_add_string(writer, "general.architecture",
                                     f->architecture ? f->architecture : "llama"));
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    if (!is(f->skip_key, keys[i].key))
      CHECK(iso_gguf_writer_add_u32(writer, keys[i].key,
                                    is(f->number_key, keys[i].key) ? f->number : keys[i].value));
  if (f->factor_key)
    CHECK(iso_gguf_writer_add_f32(writer, f->factor_key, 4.0f));
  if (f->false_key)
    CHECK(iso_gguf_writer_add_bool(writer, f->false_key, false));
  if (is(f->number_key, "llama.pooling_type"))
    CHECK(iso_gguf_writer_add_u32(writer, f->number_key, f->number));
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
      if (is(f->skip_tensor, tensors[i].name))
        continue;
      int64_t rows = tensors[i].rows + is(f->wide_tensor, tensors[i].name);
      int64_t matrix[2] = {rows, tensors[i].columns};
      int64_t elements = (rows ? rows : 1) * tensors[i].columns;
      if (pass == 0) {
        CHECK(iso_gguf_writer_add_tensor(writer, tensors[i].name, ISO_SCHEME_F32, rows ? 2 : 1,
                                         rows ? matrix : matrix + 1));
        continue;
      }
      float *values = malloc((size_t)elements * sizeof *values);
      for (int64_t k = 0; k < elements; k++)
        values[k] = 0.01f * (float)((k * 7919) % 31 - 15);
      CHECK(iso_gguf_writer_append(writer, values, (uint64_t)elements * sizeof *values));
      free(values);
    }
    const int64_t extra[1] = {HIDDEN};
    const float zeros[HIDDEN] = {0};
    if (f->extra_tensor && pass == 0)
      CHECK(iso_gguf_writer_add_tensor(writer, f->extra_tensor, ISO_SCHEME_F32, 1, extra));
    else if (f->extra_tensor)
      CHECK(iso_gguf_writer_append(writer, zeros, sizeof zeros));
  }
  CHECK(iso_gguf_writer_finish(writer));
  iso_gguf_writer_destroy(writer);
}

static iso_status open_and_plan(void) {
  iso_model *model;
  iso_model_options options = {.no_tokenizer = true};
  iso_status status = iso_model_open(path, &options, &model);
  if (status != ISO_OK)
    return status;
  iso_runtime *runtime;
  status = iso_runtime_create(model, NULL, &runtime);
  if (status == ISO_OK)
    iso_runtime_destroy(runtime);
  iso_model_close(model);
  return status;
}

static void test_sound_file(void **state) {
  (void)state;
  write_model(&(fault){0});
  CHECK(open_and_plan());
}

/* As llama.cpp reads them: a factor without a method is linear, by its old name too. */
static void test_rope_factor_alone(void **state) {
  (void)state;
  static const char *const keys[] = {"llama.rope.scaling.factor", "llama.rope.scale_linear"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    write_model(&(fault){.factor_key = keys[i]});
    iso_model *model;
    CHECK(iso_model_open(path, &(iso_model_options){.no_tokenizer = true}, &model));
    const iso_rope_config *rope = &iso_model_get_config(model)->rope;
    assert_int_equal(rope->scaling, ISO_ROPE_SCALING_LINEAR);
    assert_true(rope->factor == 4.0f);
    iso_model_close(model);
  }
}

/* A Gemma 3 of eight layers that says which have the window: a number, or a list of bools or of
 * numbers, each a character here. */
static void write_windows(iso_gguf_type type, uint32_t number, const char *list) {
  static const struct {
    const char *key;
    uint32_t value;
  } keys[] = {{"gemma3.block_count", 8},
              {"gemma3.embedding_length", HIDDEN},
              {"gemma3.attention.head_count", HEADS},
              {"gemma3.context_length", 128},
              {"gemma3.feed_forward_length", INTERMEDIATE},
              {"gemma3.attention.sliding_window", 16}};
  const char *pattern_key = "gemma3.attention.sliding_window_pattern";
  iso_gguf_writer *writer;
  CHECK(iso_gguf_writer_create(path, &writer));
  CHECK(iso_gguf_writer_add_string(writer, "general.architecture", "gemma3"));
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    CHECK(iso_gguf_writer_add_u32(writer, keys[i].key, keys[i].value));
  CHECK(iso_gguf_writer_add_f32(writer, "gemma3.rope.freq_base_swa", 700.0f));
  uint8_t flags[16];
  int32_t numbers[16];
  uint64_t count = list ? strlen(list) : 0;
  for (uint64_t i = 0; i < count; i++)
    numbers[i] = flags[i] = list[i] == '1';
  if (!list)
    CHECK(iso_gguf_writer_add_u32(writer, pattern_key, number));
  else if (type == ISO_GGUF_I32)
    CHECK(iso_gguf_writer_add_i32_array(writer, pattern_key, numbers, count));
  else
    CHECK(iso_gguf_writer_add_value(writer, &(iso_gguf_value){.key = pattern_key,
                                                              .type = ISO_GGUF_BOOL,
                                                              .is_array = true,
                                                              .count = count,
                                                              .data = flags,
                                                              .bytes = count}));
  const int64_t dims[2] = {VOCABULARY, HIDDEN};
  static const float zeros[VOCABULARY * HIDDEN];
  CHECK(iso_gguf_writer_add_tensor(writer, "token_embd.weight", ISO_SCHEME_F32, 2, dims));
  CHECK(iso_gguf_writer_append(writer, zeros, sizeof zeros));
  CHECK(iso_gguf_writer_finish(writer));
  iso_gguf_writer_destroy(writer);
}

static void test_windows(void **state) {
  (void)state;
  static const struct {
    iso_gguf_type type;
    uint32_t number;
    const char *list;
    int32_t wanted;      /* every n-th layer is global */
    const char *message; /* where it is refused */
  } cases[] = {{ISO_GGUF_U32, 4, NULL, 4, NULL},
               {ISO_GGUF_U32, 0, NULL, 9, NULL},
               {ISO_GGUF_BOOL, 0, "11101110", 4, NULL},
               {ISO_GGUF_BOOL, 0, "11111111", 9, NULL},
               {ISO_GGUF_I32, 0, "11011011", 3, NULL},
               {ISO_GGUF_BOOL, 0, "01101110", 0, "sliding_window_pattern is not a global layer"},
               {ISO_GGUF_BOOL, 0, "111011101", 0, "9 entries for 8 layers"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_windows(cases[i].type, cases[i].number, cases[i].list);
    iso_model *model;
    iso_status status = iso_model_open(path, &(iso_model_options){.no_tokenizer = true}, &model);
    if (cases[i].message) {
      assert_int_not_equal(status, ISO_OK);
      assert_non_null(strstr(iso_status_message(), cases[i].message));
      continue;
    }
    CHECK(status);
    const iso_model_config *config = iso_model_get_config(model);
    assert_int_equal(config->window_pattern, cases[i].wanted);
    assert_true(config->local_rope.theta == 700.0f && config->rope.theta == 10000.0f);
    assert_int_equal(config->local_rope.rotary_dim, config->head_dim);
    iso_model_close(model);
  }
}

static void test_pooling(void **state) {
  (void)state;
  static const iso_pooling wanted[] = {ISO_POOLING_MEAN, ISO_POOLING_MEAN, ISO_POOLING_OTHER,
                                       ISO_POOLING_LAST, ISO_POOLING_OTHER};
  for (uint32_t i = 0; i < 5; i++) {
    write_model(&(fault){.number_key = "llama.pooling_type", .number = i});
    iso_model *model;
    CHECK(iso_model_open(path, &(iso_model_options){.no_tokenizer = true}, &model));
    assert_int_equal(iso_model_get_config(model)->pooling, wanted[i]);
    iso_model_close(model);
  }
}

/* What no architecture here reads, beside tables that files carry along. */
static void test_extra_tensors(void **state) {
  (void)state;
  static const char *const carried[] = {"blk.0.attn_rot_embd.weight", "imatrix.weight"};
  for (size_t i = 0; i < sizeof carried / sizeof carried[0]; i++) {
    write_model(&(fault){.extra_tensor = carried[i]});
    CHECK(open_and_plan());
  }
}

static void test_faults(void **state) {
  (void)state;
  static const fault faults[] = {
      {.architecture = "mamba", .expected = ISO_ERROR_UNSUPPORTED, .message = "\"mamba\""},
      {.skip_key = "general.architecture", .expected = ISO_ERROR_NOT_FOUND,
       .message = "general.architecture"},
      {.skip_key = "llama.block_count", .expected = ISO_ERROR_NOT_FOUND,
       .message = "llama.block_count"},
      {.number_key = "llama.block_count", .number = 0, .expected = ISO_ERROR_CORRUPT_DATA,
       .message = "block_count"},
      {.number_key = "llama.block_count", .number = 0xffffffffu,
       .expected = ISO_ERROR_CORRUPT_DATA, .message = "block_count"},
      {.number_key = "llama.block_count", .number = 2, .expected = ISO_ERROR_CORRUPT_DATA,
       .message = "blk.1.attn_norm.weight"},
      {.number_key = "llama.attention.head_count", .number = 3,
       .expected = ISO_ERROR_CORRUPT_DATA, .message = "32"},
      {.number_key = "llama.attention.head_count", .number = 4,
       .expected = ISO_ERROR_CORRUPT_DATA, .message = "blk.0.attn_k.weight"},
      {.number_key = "llama.attention.head_count_kv", .number = 64,
       .expected = ISO_ERROR_CORRUPT_DATA, .message = "kv heads"},
      {.number_key = "llama.embedding_length", .number = 64, .expected = ISO_ERROR_CORRUPT_DATA,
       .message = "token_embd.weight"},
      {.skip_tensor = "token_embd.weight", .expected = ISO_ERROR_CORRUPT_DATA,
       .message = "token_embd.weight"},
      {.skip_tensor = "blk.0.ffn_up.weight", .expected = ISO_ERROR_CORRUPT_DATA,
       .message = "blk.0.ffn_up.weight"},
      {.wide_tensor = "blk.0.ffn_down.weight", .expected = ISO_ERROR_CORRUPT_DATA,
       .message = "[33, 48]"},
      {.extra_tensor = "blk.0.attn_q_norm.weight", .expected = ISO_ERROR_UNSUPPORTED,
       .message = "blk.0.attn_q_norm.weight is no part of llama"},
      {.extra_tensor = "blk.1.attn_norm.weight", .expected = ISO_ERROR_UNSUPPORTED,
       .message = "blk.1.attn_norm.weight"},
      {.factor_key = "llama.rope.scaling.yarn_ext_factor", .expected = ISO_ERROR_UNSUPPORTED,
       .message = "yarn_ext_factor is 4; only 0"},
      {.factor_key = "llama.rope.scaling.yarn_attn_factor", .expected = ISO_ERROR_UNSUPPORTED,
       .message = "yarn_attn_factor is 4; only 1"},
      {.factor_key = "llama.rope.scaling.yarn_log_multiplier", .expected = ISO_ERROR_UNSUPPORTED,
       .message = "yarn_log_multiplier is 4; only 0"},
      {.number_key = "llama.pooling_type", .number = 9, .expected = ISO_ERROR_CORRUPT_DATA,
       .message = "pooling_type"},
      {.false_key = "llama.attention.causal", .expected = ISO_ERROR_UNSUPPORTED,
       .message = "llama.attention.causal"},
      {.extra_tensor = "output_norm.bias", .expected = ISO_ERROR_UNSUPPORTED,
       .message = "output_norm.bias"},
  };
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
    write_model(&faults[i]);
    iso_status status = open_and_plan();
    if (status != faults[i].expected || !strstr(iso_status_message(), faults[i].message))
      fail_msg("fault %zu: %s: %s", i, iso_status_name(status), iso_status_message());
  }
}

static void test_absurd_options(void **state) {
  (void)state;
  write_model(&(fault){0});
  iso_model *model;
  iso_model_options model_options = {.no_tokenizer = true};
  CHECK(iso_model_open(path, &model_options, &model));
  static const struct {
    iso_runtime_options options;
    iso_status expected;
  } cases[] = {
      {{.devices = "nothing"}, ISO_ERROR_NOT_FOUND},
      {{.context = -1}, ISO_ERROR_INVALID_ARGUMENT},
      {{.n_threads = 1 << 30}, ISO_ERROR_INVALID_ARGUMENT},
      {{.context = 1 << 30, .max_sequences = 1 << 10}, ISO_ERROR_LIMIT},
      {{.kv_type = "q4_0"}, ISO_ERROR_INVALID_ARGUMENT},
      {{.page_size = 1 << 20}, ISO_ERROR_INVALID_ARGUMENT},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    iso_runtime *runtime;
    iso_status status = iso_runtime_create(model, &cases[i].options, &runtime);
    if (status != cases[i].expected)
      fail_msg("case %zu: %s: %s", i, iso_status_name(status), iso_status_message());
  }
  iso_model_close(model);
}

static void test_absurd_steps(void **state) {
  (void)state;
  write_model(&(fault){0});
  iso_model *model;
  iso_runtime *runtime;
  iso_model_options model_options = {.no_tokenizer = true};
  CHECK(iso_model_open(path, &model_options, &model));
  iso_runtime_options options = {.context = 64, .max_tokens = 16};
  CHECK(iso_runtime_create(model, &options, &runtime));
  const int32_t good[4] = {1, 2, 3, 4}, bad[4] = {1, VOCABULARY, 3, 4}, pages[1] = {0},
                far_page[1] = {7};
  const iso_batch_sequence cases[] = {
      {.n_tokens = 0, .tokens = good, .pages = pages, .n_pages = 1},
      {.n_tokens = 4, .tokens = bad, .pages = pages, .n_pages = 1},
      {.n_tokens = 4, .tokens = good, .position = 62, .pages = pages, .n_pages = 1},
      {.n_tokens = 4, .tokens = good, .position = -1, .pages = pages, .n_pages = 1},
      {.n_tokens = 4, .tokens = good, .pages = pages, .n_pages = 0},
      {.n_tokens = 4, .tokens = good, .pages = far_page, .n_pages = 1},
      {.n_tokens = 4, .tokens = good, .pages = pages, .n_pages = 1, .all_logits = true},
      {.n_tokens = INT32_MAX, .tokens = good, .position = INT32_MAX, .pages = pages, .n_pages = 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    assert_int_not_equal(iso_runtime_step(runtime, &cases[i], 1), ISO_OK);
  const iso_batch_sequence sound = {.n_tokens = 4, .tokens = good, .pages = pages, .n_pages = 1};
  CHECK(iso_runtime_step(runtime, &sound, 1));
  assert_non_null(iso_runtime_logits(runtime, 0));
  assert_null(iso_runtime_logits(runtime, 1));
  assert_null(iso_runtime_logits(runtime, -1));
  iso_runtime_destroy(runtime);
  iso_model_close(model);
}

int main(void) {
  int file = mkstemp(path);
  if (file < 0)
    return 1;
  close(file);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sound_file),     cmocka_unit_test(test_rope_factor_alone),
      cmocka_unit_test(test_windows),        cmocka_unit_test(test_pooling),
      cmocka_unit_test(test_extra_tensors),  cmocka_unit_test(test_faults),
      cmocka_unit_test(test_absurd_options), cmocka_unit_test(test_absurd_steps)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(path);
  return failed;
}
