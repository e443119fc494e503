#include "tools/synth.h"

#include "core/printer.h"
#include "models/formats/safetensors.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* transformers' class of an architecture; the rest of config.json follows from the shape. */
static const struct {
  const char *architecture, *class_name;
} classes[] = {{"llama", "LlamaForCausalLM"},
               {"qwen2", "Qwen2ForCausalLM"},
               {"qwen3", "Qwen3ForCausalLM"},
               {"gemma3", "Gemma3ForCausalLM"}};

static const char *const file_names[] = {"model.safetensors", "config.json", "tokenizer.json",
                                         "tokenizer_config.json"};
enum { FILE_WEIGHTS, FILE_CONFIG, FILE_TOKENIZER, FILE_TOKENIZER_CONFIG, FILE_COUNT };

/* ---- config.json ---------------------------------------------------------------------------- */

static void add_numbers(cJSON *root, const iso_model_config *config) {
  const struct {
    const char *key;
    double value;
  } numbers[] = {{"hidden_size", config->hidden_size},
                 {"intermediate_size", config->intermediate_size},
                 {"num_hidden_layers", config->n_layers},
                 {"num_attention_heads", config->n_heads},
                 {"num_key_value_heads", config->n_kv_heads},
                 {"head_dim", config->head_dim},
                 {"vocab_size", config->vocabulary_size},
                 {"max_position_embeddings", config->context_length},
                 {"rope_theta", (double)config->rope.theta}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    cJSON_AddNumberToObject(root, numbers[i].key, numbers[i].value);
  /* As a float's shortest text, not as the double that it widens to: 1e-05, not 9.9999997e-06. */
  char epsilon[32];
  snprintf(epsilon, sizeof epsilon, "%.7g", (double)config->norm_epsilon);
  cJSON_AddRawToObject(root, "rms_norm_eps", epsilon);
}

static void add_rope_scaling(cJSON *root, const iso_rope_config *rope) {
  if (rope->scaling == ISO_ROPE_SCALING_NONE)
    return;
  cJSON *scaling = cJSON_AddObjectToObject(root, "rope_scaling");
  cJSON_AddStringToObject(scaling, "rope_type", "llama3");
  cJSON_AddNumberToObject(scaling, "factor", (double)rope->factor);
  cJSON_AddNumberToObject(scaling, "low_freq_factor", (double)rope->low_frequency_factor);
  cJSON_AddNumberToObject(scaling, "high_freq_factor", (double)rope->high_frequency_factor);
  cJSON_AddNumberToObject(scaling, "original_max_position_embeddings", rope->original_context);
}

static void add_window(cJSON *root, const iso_model_config *config) {
  if (config->sliding_window == 0)
    return;
  cJSON_AddNumberToObject(root, "sliding_window", config->sliding_window);
  cJSON_AddNumberToObject(root, "rope_local_base_freq", (double)config->local_rope.theta);
  cJSON_AddNumberToObject(root, "query_pre_attn_scalar", config->head_dim);
  cJSON *types = cJSON_AddArrayToObject(root, "layer_types");
  for (int32_t layer = 1; layer <= config->n_layers; layer++)
    cJSON_AddItemToArray(types, cJSON_CreateString(layer % config->window_pattern == 0
                                                       ? "full_attention"
                                                       : "sliding_attention"));
}

static cJSON *make_config(const iso_synth_model *model, const iso_synth_vocabulary *vocabulary) {
  const iso_model_config *config = &model->config;
  bool gelu = config->activation == ISO_ACTIVATION_GELU_TANH;
  cJSON *root = cJSON_CreateObject();
  cJSON *names = cJSON_AddArrayToObject(root, "architectures");
  for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
    if (strcmp(classes[i].architecture, config->architecture) == 0)
      cJSON_AddItemToArray(names, cJSON_CreateString(classes[i].class_name));
  cJSON_AddStringToObject(root, "model_type", model->architecture->hf_types[0].name);
  cJSON_AddStringToObject(root, "_name_or_path", config->name);
  cJSON_AddStringToObject(root, gelu ? "hidden_activation" : "hidden_act",
                          gelu ? "gelu_pytorch_tanh" : "silu");
  add_numbers(root, config);
  add_rope_scaling(root, &config->rope);
  add_window(root, config);
  cJSON_AddBoolToObject(root, "tie_word_embeddings", config->tied_embeddings);
  cJSON_AddBoolToObject(root, "attention_bias", false);
  cJSON_AddNumberToObject(root, "bos_token_id", vocabulary->first_special + ISO_SYNTH_END_OF_TEXT);
  cJSON_AddNumberToObject(root, "eos_token_id", vocabulary->first_special + ISO_SYNTH_MESSAGE_END);
  static const char *const types[] = {
      [ISO_SCHEME_F32] = "float32", [ISO_SCHEME_F16] = "float16", [ISO_SCHEME_BF16] = "bfloat16"};
  cJSON_AddStringToObject(root, "torch_dtype", types[model->tensors[0].scheme]);
  return root;
}

/* ---- tokenizer.json ------------------------------------------------------------------------- */

/* Written as text: a tree of a quarter of a million tokens would take a hundred megabytes. */
static void add_string(iso_printer *out, iso_text_view view) {
  iso_printer_add(out, "\"");
  for (uint64_t i = 0; i < view.length; i++)
    iso_printer_add(out, view.data[i] == '"' || view.data[i] == '\\' ? "\\%c" : "%c", view.data[i]);
  iso_printer_add(out, "\"");
}

static void add_tokenizer(iso_printer *out, const iso_synth_vocabulary *vocabulary) {
  iso_printer_add(out, "{\n  \"version\": \"1.0\",\n  \"added_tokens\": [\n");
  for (int i = 0; i < ISO_SYNTH_SPECIAL_COUNT; i++)
    iso_printer_add(out,
                 "    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false,"
                 " \"rstrip\": false, \"normalized\": false, \"special\": true}%s\n",
                 vocabulary->first_special + i, iso_synth_special_texts[i],
                 i + 1 < ISO_SYNTH_SPECIAL_COUNT ? "," : "");
  static const char byte_level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                   "\"trim_offsets\": true, \"use_regex\": true}";
  iso_printer_add(out,
               "  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n"
               "  \"post_processor\": null,\n  \"decoder\": %s,\n  \"model\": {\n"
               "    \"type\": \"BPE\",\n    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n"
               "    \"vocab\": {\n",
               byte_level, byte_level);
  for (size_t id = 0; id < vocabulary->n_tokens; id++) {
    iso_printer_add(out, "      ");
    add_string(out, vocabulary->tokens[id]);
    iso_printer_add(out, ": %zu%s\n", id, id + 1 < vocabulary->n_tokens ? "," : "");
  }
  iso_printer_add(out, "    },\n    \"merges\": [\n");
  for (size_t i = 0; i < vocabulary->n_merges; i++) {
    iso_printer_add(out, "      ");
    add_string(out, vocabulary->merges[i]);
    iso_printer_add(out, "%s\n", i + 1 < vocabulary->n_merges ? "," : "");
  }
  iso_printer_add(out, "    ]\n  }\n}\n");
}

static cJSON *make_tokenizer_config(const iso_model_config *config) {
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "tokenizer_class", "PreTrainedTokenizerFast");
  cJSON_AddStringToObject(root, "bos_token", iso_synth_special_texts[ISO_SYNTH_END_OF_TEXT]);
  cJSON_AddStringToObject(root, "eos_token", iso_synth_special_texts[ISO_SYNTH_MESSAGE_END]);
  cJSON_AddBoolToObject(root, "add_bos_token", false);
  cJSON_AddNumberToObject(root, "model_max_length", config->context_length);
  cJSON_AddStringToObject(root, "chat_template", iso_synth_chat_template);
  return root;
}

/* ---- The folder ----------------------------------------------------------------------------- */

static iso_status add_tensor(void *writer, const char *name, iso_scheme scheme, int n_dims,
                             const int64_t *dims) {
  return iso_safetensors_writer_add_tensor(writer, name, scheme, n_dims, dims);
}

static iso_status append(void *writer, const void *data, uint64_t bytes) {
  return iso_safetensors_writer_append(writer, data, bytes);
}

static iso_status write_weights(const iso_synth_model *model, const char *path) {
  iso_safetensors_writer *writer;
  ISO_TRY(iso_safetensors_writer_create(path, &writer));
  iso_synth_sink sink = {writer, add_tensor, append};
  iso_status status = iso_synth_write_tensors(model, &sink);
  if (status == ISO_OK)
    status = iso_safetensors_writer_finish(writer);
  iso_safetensors_writer_destroy(writer);
  return status;
}

static iso_status write_text(const char *path, const char *text) {
  iso_file_writer *writer;
  ISO_TRY(iso_file_writer_create(path, &writer));
  iso_status status = iso_file_writer_append(writer, text, strlen(text));
  if (status == ISO_OK)
    status = iso_file_writer_commit(writer);
  iso_file_writer_destroy(writer);
  return status;
}

static iso_status write_tree(const char *path, cJSON *root) {
  char *text = cJSON_Print(root);
  cJSON_Delete(root);
  if (!text)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to write %s", path);
  iso_status status = write_text(path, text);
  cJSON_free(text);
  return status;
}

static iso_status write_file(const iso_synth_model *model, const iso_synth_vocabulary *vocabulary,
                             int file, const char *path) {
  if (file == FILE_WEIGHTS)
    return write_weights(model, path);
  if (file == FILE_CONFIG)
    return write_tree(path, make_config(model, vocabulary));
  if (file == FILE_TOKENIZER_CONFIG)
    return write_tree(path, make_tokenizer_config(&model->config));
  iso_printer text = {0};
  char *data;
  add_tokenizer(&text, vocabulary);
  ISO_TRY(iso_printer_take(&text, &data));
  iso_status status = write_text(path, data);
  free(data);
  return status;
}

static iso_status write_files(const iso_synth_model *model, const iso_synth_vocabulary *vocabulary,
                              char *const *paths) {
  for (int file = 0; file < FILE_COUNT; file++) {
    iso_status status = write_file(model, vocabulary, file, paths[file]);
    if (status == ISO_OK)
      continue;
    while (file-- > 0)
      unlink(paths[file]);
    return status;
  }
  return ISO_OK;
}

iso_status iso_synth_write_folder(const iso_synth_model *model, const char *path) {
  bool made = mkdir(path, 0777) == 0;
  if (!made && errno != EEXIST)
    return iso_fail(ISO_ERROR_IO, "cannot make the folder %s: %s", path, strerror(errno));
  char *paths[FILE_COUNT] = {NULL};
  bool joined = true;
  for (int i = 0; i < FILE_COUNT; i++)
    joined &= (paths[i] = iso_file_join(path, file_names[i])) != NULL;
  iso_synth_vocabulary vocabulary;
  iso_status status = iso_synth_vocabulary_create(model->config.vocabulary_size, &vocabulary);
  if (status == ISO_OK)
    status = joined ? write_files(model, &vocabulary, paths)
                    : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to write %s", path);
  iso_synth_vocabulary_free(&vocabulary);
  for (int i = 0; i < FILE_COUNT; i++)
    free(paths[i]);
  if (status != ISO_OK && made)
    rmdir(path);
  return status;
}
