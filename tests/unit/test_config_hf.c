/* Configurations of Hugging Face folders: the golden models' config.json, edited. What transformers
 * takes for keys that are not there is its own (its classes' defaults), not ours. */
#include "check.h"

#include "core/json.h"
#include "models/builder.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/isomer-config-XXXXXX";

/* Takes the members of `edit` over; those that are "absent" are taken away. */
static void apply(cJSON *config, const char *edit) {
  cJSON *edits = cJSON_Parse(edit), *item;
  assert_non_null(edits);
  while ((item = edits->child)) {
    cJSON_DetachItemViaPointer(edits, item);
    cJSON_DeleteItemFromObjectCaseSensitive(config, item->string);
    if (cJSON_IsString(item) && strcmp(item->valuestring, "absent") == 0)
      cJSON_Delete(item);
    else
      cJSON_AddItemToObject(config, item->string, item);
  }
  cJSON_Delete(edits);
}

static iso_status open_edited(const char *golden, const char *edit, iso_model **out_model) {
  char from[512], to[128];
  snprintf(from, sizeof from, "%s/tests/golden/models/%s/model.safetensors", TEST_SOURCE_DIR,
           golden);
  snprintf(to, sizeof to, "%s/model.safetensors", folder);
  unlink(to);
  assert_int_equal(symlink(from, to), 0);
  snprintf(from, sizeof from, "%s/tests/golden/models/%s/config.json", TEST_SOURCE_DIR, golden);
  cJSON *config;
  CHECK(iso_json_read_file(from, 1 << 20, 64, &config));
  apply(config, edit);
  char *text = cJSON_Print(config);
  cJSON_Delete(config);
  snprintf(to, sizeof to, "%s/config.json", folder);
  FILE *file = fopen(to, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
  free(text);
  return iso_model_open(folder, &(iso_model_options){.no_tokenizer = true}, out_model);
}

static iso_status build(const iso_model *model) {
  iso_model_graph_options options = {.max_tokens = 16,
                                     .max_sequences = 1,
                                     .max_logit_rows = 16,
                                     .n_pages = 4,
                                     .page_size = 16,
                                     .max_context = 64,
                                     .kv_scheme = ISO_SCHEME_F32,
                                     .activation = ISO_SCHEME_F32};
  iso_graph *graph;
  iso_status status = iso_model_build_graph(model, &options, &graph);
  if (status == ISO_OK)
    iso_graph_destroy(graph);
  return status;
}

/* google/gemma-3-4b-it says nothing of heads, vocabulary, context and rotary base. */
static void test_gemma3_defaults(void **state) {
  (void)state;
  iso_model *model;
  CHECK(
      open_edited("gemma3",
                  "{\"num_attention_heads\": \"absent\", \"num_key_value_heads\": \"absent\","
                  " \"head_dim\": \"absent\", \"vocab_size\": \"absent\","
                  " \"max_position_embeddings\": \"absent\", \"query_pre_attn_scalar\": \"absent\","
                  " \"rope_parameters\": \"absent\", \"layer_types\": \"absent\","
                  " \"sliding_window\": \"absent\","
                  " \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}}",
                  &model));
  const iso_model_config *config = iso_model_get_config(model);
  assert_int_equal(config->n_heads, 8);
  assert_int_equal(config->n_kv_heads, 4);
  assert_int_equal(config->head_dim, 256);
  assert_int_equal(config->context_length, 131072);
  assert_int_equal(config->window_pattern, 6);
  assert_int_equal(config->sliding_window, 4096);
  assert_true(config->rope.theta == 1e6f && config->local_rope.theta == 1e4f);
  assert_true(config->rope.scaling == ISO_ROPE_SCALING_LINEAR && config->rope.factor == 8.0f);
  assert_int_equal(config->local_rope.scaling, ISO_ROPE_SCALING_NONE);
  assert_true(config->attention_scale == 0.0625f);
  iso_model_close(model);
}

static void test_windows(void **state) {
  (void)state;
  static const struct {
    const char *golden, *edit;
    int32_t window;
  } cases[] = {
      {"mistral-window", "{}", 7},
      {"mistral-window", "{\"sliding_window\": null}", 0},
      {"llama", "{\"sliding_window\": 7}", 0},
      {"qwen2",
       "{\"sliding_window\": 7, \"use_sliding_window\": \"absent\","
       " \"layer_types\": \"absent\"}",
       0},
      {"qwen3",
       "{\"sliding_window\": 7, \"use_sliding_window\": false,"
       " \"layer_types\": \"absent\"}",
       0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    iso_model *model;
    CHECK(open_edited(cases[i].golden, cases[i].edit, &model));
    assert_int_equal(iso_model_get_config(model)->sliding_window, cases[i].window);
    CHECK(build(model));
    iso_model_close(model);
  }
}

static void test_longrope_factor(void **state) {
  (void)state;
  char edit[2048] = "{\"max_position_embeddings\": 128, \"rope_parameters\": \"absent\","
                    " \"rope_theta\": 10000.0, \"original_max_position_embeddings\": 32,"
                    " \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1";
  for (int i = 1; i < 16; i++)
    strcat(edit, ", 1");
  strcat(edit, "], \"long_factor\": [2");
  for (int i = 1; i < 16; i++)
    strcat(edit, ", 2");
  strcat(edit, "]}}");
  iso_model *model;
  CHECK(open_edited("llama", edit, &model));
  assert_true(iso_model_get_config(model)->rope.factor == 4.0f);
  float *table, magnitude;
  CHECK(iso_rope_table_create(&iso_model_get_config(model)->rope, 64, &table, &magnitude));
  assert_true(table[0] == 0.5f);
  assert_true(fabs((double)magnitude - sqrt(1 + log(4) / log(32))) < 1e-6);
  free(table);
  iso_model_close(model);
}

/* What the base grows with is the longest position, whatever else the scaling says. */
static void test_dynamic_context(void **state) {
  (void)state;
  iso_model *model;
  CHECK(open_edited("llama",
                    "{\"max_position_embeddings\": 128, \"rope_parameters\": \"absent\","
                    " \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4.0,"
                    " \"original_max_position_embeddings\": 32}}",
                    &model));
  const iso_rope_config *rope = &iso_model_get_config(model)->rope;
  assert_int_equal(rope->scaling, ISO_ROPE_SCALING_DYNAMIC_NTK);
  assert_int_equal(rope->original_context, 128);
  iso_model_close(model);
}

static void test_pooling(void **state) {
  (void)state;
  static const struct {
    const char *text;
    iso_pooling pooling;
  } cases[] = {
      {"{\"pooling_mode_mean_tokens\": true, \"pooling_mode_lasttoken\": false}", ISO_POOLING_MEAN},
      {"{\"pooling_mode_mean_tokens\": false, \"pooling_mode_lasttoken\": true}", ISO_POOLING_LAST},
      {"{\"pooling_mode_cls_token\": true}", ISO_POOLING_OTHER},
      {"{\"pooling_mode_mean_tokens\": true, \"pooling_mode_max_tokens\": true}",
       ISO_POOLING_OTHER},
      {"{\"pooling_mode_cls_token\": false}", ISO_POOLING_MEAN},
      {"{\"embedding_dimension\": 64, \"pooling_mode\": \"lasttoken\"}", ISO_POOLING_LAST},
      {"{\"pooling_mode\": [\"mean\"]}", ISO_POOLING_MEAN},
      {"{\"pooling_mode\": [\"mean\", \"lasttoken\"]}", ISO_POOLING_OTHER},
      {"{\"pooling_mode\": \"weightedmean\"}", ISO_POOLING_OTHER}};
  char pooling[128], config[160];
  snprintf(pooling, sizeof pooling, "%s/1_Pooling", folder);
  snprintf(config, sizeof config, "%s/config.json", pooling);
  mkdir(pooling, 0777);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    FILE *file = fopen(config, "w");
    assert_non_null(file);
    fputs(cases[i].text, file);
    fclose(file);
    iso_model *model;
    CHECK(open_edited("qwen3", "{}", &model));
    assert_int_equal(iso_model_get_config(model)->pooling, cases[i].pooling);
    iso_model_close(model);
  }
  unlink(config);
  rmdir(pooling);
}

/* What sentence-transformers would put behind the pooled rows. */
static void test_modules(void **state) {
  (void)state;
  static const struct {
    const char *last;
    iso_pooling pooling;
  } cases[] = {{"sentence_transformers.models.Normalize", ISO_POOLING_MEAN},
               {"sentence_transformers.base.modules.normalize.Normalize", ISO_POOLING_MEAN},
               {"sentence_transformers.models.Dense", ISO_POOLING_OTHER}};
  char path[128];
  snprintf(path, sizeof path, "%s/modules.json", folder);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "[{\"idx\": 0, \"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"},"
            "{\"idx\": 1, \"path\": \"1\", \"type\": \"sentence_transformers.models.Pooling\"},"
            "{\"idx\": 2, \"path\": \"2\", \"type\": \"%s\"}]",
            cases[i].last);
    fclose(file);
    iso_model *model;
    CHECK(open_edited("qwen3", "{}", &model));
    assert_int_equal(iso_model_get_config(model)->pooling, cases[i].pooling);
    iso_model_close(model);
  }
  unlink(path);
}

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *golden, *edit, *message;
  } cases[] = {
      {"qwen2",
       "{\"sliding_window\": 7, \"use_sliding_window\": true, \"layer_types\": \"absent\"}",
       "use_sliding_window"},
      {"llama-tied-llama3-rope", "{\"tie_word_embeddings\": false}", "tie_word_embeddings"},
      {"llama", "{\"rope_parameters\": {\"rope_type\": \"linear\", \"rope_theta\": 10000.0}}",
       "linear: factor"},
      {"llama", "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000.0}}",
       "yarn: factor"},
      {"llama",
       "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000.0, \"factor\": 4.0,"
       " \"truncate\": false}}",
       "truncate false"},
      {"llama", "{\"num_hidden_layers\": 2}", "model.layers.2."},
      {"qwen2", "{\"model_type\": \"qwen3\"}", "attn_q_norm"},
      {"qwen3", "{\"model_type\": \"llama\"}", "self_attn.k_norm.weight"},
      {"gemma3", "{\"model_type\": \"llama\", \"hidden_act\": \"silu\"}", "feedforward_layernorm"},
      {"llama", "{\"vocab_size\": \"absent\"}", "vocab_size"},
      {"gemma3", "{\"use_bidirectional_attention\": true}", "use_bidirectional_attention"},
      {"qwen2", "{\"is_causal\": false}", "is_causal"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    iso_model *model;
    iso_status status = open_edited(cases[i].golden, cases[i].edit, &model);
    if (status == ISO_OK) {
      status = build(model);
      iso_model_close(model);
    }
    if (status == ISO_OK || !strstr(iso_status_message(), cases[i].message))
      fail_msg("case %zu: %s: %s", i, iso_status_name(status), iso_status_message());
  }
}

int main(void) {
  if (!mkdtemp(folder))
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gemma3_defaults), cmocka_unit_test(test_windows),
      cmocka_unit_test(test_longrope_factor), cmocka_unit_test(test_dynamic_context),
      cmocka_unit_test(test_pooling),         cmocka_unit_test(test_modules),
      cmocka_unit_test(test_refused)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char path[128];
  snprintf(path, sizeof path, "%s/config.json", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  unlink(path);
  rmdir(folder);
  return failed;
}
