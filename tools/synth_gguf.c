#include "tools/synth.h"

#include "models/formats/gguf_writer.h"
#include <stdio.h>

static iso_status add_tensor(void *writer, const char *name, iso_scheme scheme, int n_dims,
                             const int64_t *dims) {
  return iso_gguf_writer_add_tensor(writer, name, scheme, n_dims, dims);
}

static iso_status append(void *writer, const void *data, uint64_t bytes) {
  return iso_gguf_writer_append(writer, data, bytes);
}

static iso_status add_hyperparameters(iso_gguf_writer *writer, const iso_synth_model *model) {
  const iso_model_config *config = &model->config;
  const struct {
    const char *suffix;
    int32_t value; /* 0: left out */
  } integers[] = {{"block_count", config->n_layers},
                  {"context_length", config->context_length},
                  {"embedding_length", config->hidden_size},
                  {"feed_forward_length", config->intermediate_size},
                  {"attention.head_count", config->n_heads},
                  {"attention.head_count_kv", config->n_kv_heads},
                  {"attention.key_length", config->head_dim},
                  {"attention.value_length", config->head_dim},
                  {"attention.sliding_window", config->sliding_window},
                  {"rope.dimension_count", config->rope.rotary_dim},
                  {"vocab_size", config->vocabulary_size}};
  const struct {
    const char *suffix;
    float value;
  } floats[] = {{"attention.layer_norm_rms_epsilon", config->norm_epsilon},
                {"rope.freq_base", config->rope.theta}};
  char key[128];
  for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
    snprintf(key, sizeof key, "%s.%s", config->architecture, integers[i].suffix);
    if (integers[i].value != 0)
      ISO_TRY(iso_gguf_writer_add_u32(writer, key, (uint32_t)integers[i].value));
  }
  for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
    snprintf(key, sizeof key, "%s.%s", config->architecture, floats[i].suffix);
    ISO_TRY(iso_gguf_writer_add_f32(writer, key, floats[i].value));
  }
  return ISO_OK;
}

static iso_status add_tokenizer(iso_gguf_writer *writer, const iso_synth_vocabulary *vocabulary) {
  uint32_t special = (uint32_t)vocabulary->first_special;
  ISO_TRY(iso_gguf_writer_add_string(writer, "tokenizer.ggml.model", "gpt2"));
  ISO_TRY(iso_gguf_writer_add_string(writer, "tokenizer.ggml.pre", "gpt-2"));
  ISO_TRY(iso_gguf_writer_add_string_array(writer, "tokenizer.ggml.tokens", vocabulary->tokens,
                                           vocabulary->n_tokens));
  ISO_TRY(iso_gguf_writer_add_i32_array(writer, "tokenizer.ggml.token_type", vocabulary->types,
                                        vocabulary->n_tokens));
  ISO_TRY(iso_gguf_writer_add_string_array(writer, "tokenizer.ggml.merges", vocabulary->merges,
                                           vocabulary->n_merges));
  ISO_TRY(iso_gguf_writer_add_u32(writer, "tokenizer.ggml.bos_token_id",
                                  special + ISO_SYNTH_END_OF_TEXT));
  ISO_TRY(iso_gguf_writer_add_u32(writer, "tokenizer.ggml.eos_token_id",
                                  special + ISO_SYNTH_MESSAGE_END));
  ISO_TRY(iso_gguf_writer_add_bool(writer, "tokenizer.ggml.add_bos_token", false));
  return iso_gguf_writer_add_string(writer, "tokenizer.chat_template", iso_synth_chat_template);
}

static iso_status write_all(iso_gguf_writer *writer, const iso_synth_model *model,
                            const iso_synth_vocabulary *vocabulary) {
  uint32_t file_type;
  ISO_TRY(iso_gguf_writer_add_string(writer, "general.architecture", model->config.architecture));
  ISO_TRY(iso_gguf_writer_add_string(writer, "general.name", model->config.name));
  if (iso_scheme_recipe_file_type(&model->recipe, &file_type))
    ISO_TRY(iso_gguf_writer_add_u32(writer, "general.file_type", file_type));
  ISO_TRY(iso_gguf_writer_add_u32(writer, "general.quantization_version", 2));
  ISO_TRY(add_hyperparameters(writer, model));
  ISO_TRY(add_tokenizer(writer, vocabulary));
  iso_synth_sink sink = {writer, add_tensor, append};
  ISO_TRY(iso_synth_write_tensors(model, &sink));
  return iso_gguf_writer_finish(writer);
}

iso_status iso_synth_write_gguf(const iso_synth_model *model, const char *path) {
  iso_synth_vocabulary vocabulary;
  iso_gguf_writer *writer = NULL;
  iso_status status = iso_synth_vocabulary_create(model->config.vocabulary_size, &vocabulary);
  if (status == ISO_OK)
    status = iso_gguf_writer_create(path, &writer);
  if (status == ISO_OK)
    status = write_all(writer, model, &vocabulary);
  iso_gguf_writer_destroy(writer);
  iso_synth_vocabulary_free(&vocabulary);
  return status;
}
