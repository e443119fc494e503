#include "tools/conversation.h"
#include "tools/generate.h"
#include "tools/json_output.h"
#include "tools/tool.h"

#include "models/tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the answer goes: shown as it comes, or kept for --json. */
typedef struct answer {
  bool keep;
  bool write_failed;
  char *text;
  size_t length;
} answer;

static bool on_text(void *context, const char *text, size_t length) {
  answer *self = context;
  if (!self->keep) {
    self->write_failed = fwrite(text, 1, length, stdout) != length || fflush(stdout) != 0;
    return !self->write_failed;
  }
  char *grown = realloc(self->text, self->length + length + 1);
  if (!grown)
    return false;
  memcpy(grown + self->length, text, length);
  self->text = grown;
  self->length += length;
  self->text[self->length] = 0;
  return true;
}

/* Ids of the prompt, through the chat template where there is one. */
static iso_status make_prompt(const iso_options *options, const iso_model *model, int32_t **out_ids,
                              size_t *out_count) {
  char *text;
  size_t length;
  ISO_TRY(iso_tool_read_text(options, 0, &text, &length));
  if (!text)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "no prompt: give it after the model, with -p, -f "
                                                "or on standard input");
  iso_status status;
  bool has_template = iso_tool_uses_template(options, model);
  if (!has_template && options->system) {
    status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--system is for the chat template, and %s",
                      options->raw ? "--raw leaves it out" : "the model has none");
  } else if (!has_template) {
    status = iso_tokenizer_encode(iso_model_get_tokenizer(model), text, length,
                                  ISO_TOKENIZE_ADD_SPECIAL, out_ids, out_count);
  } else {
    iso_conversation conversation;
    status = iso_conversation_create(&conversation);
    if (status == ISO_OK && options->system)
      status = iso_conversation_add(&conversation, "system", options->system);
    if (status == ISO_OK && strlen(text) != length)
      status = iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                        "the prompt has a NUL byte at offset %zu; a "
                        "chat message cannot",
                        strlen(text));
    if (status == ISO_OK)
      status = iso_conversation_add(&conversation, "user", text);
    if (status == ISO_OK)
      status = iso_conversation_tokenize(&conversation, model, out_ids, out_count);
    iso_conversation_destroy(&conversation);
  }
  free(text);
  return status;
}

/* Tokens of the prompt that were run. */
static int32_t n_run(const iso_usage *usage) { return usage->n_prompt - usage->n_cached; }

static iso_status print_json(const answer *self, const iso_generation *generation) {
  static const char *const reasons[] = {"stop", "length", "stop", "cancelled"};
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "text", self->text ? self->text : "");
  cJSON_AddStringToObject(root, "finish_reason", reasons[generation->reason]);
  cJSON_AddNumberToObject(root, "n_prompt", n_run(&generation->usage));
  cJSON_AddNumberToObject(root, "n_output", generation->usage.n_output);
  cJSON_AddNumberToObject(root, "prompt_ms", iso_generation_prompt_us(generation) / 1e3);
  cJSON_AddNumberToObject(root, "output_ms", iso_generation_output_us(generation) / 1e3);
  char seed[32];
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)generation->sampling.seed);
  cJSON_AddStringToObject(root, "seed", seed);
  return iso_json_output_print(root);
}

static void print_timings(const iso_generation *generation) {
  const iso_usage *usage = &generation->usage;
  double prompt_us = iso_generation_prompt_us(generation);
  double output_us = iso_generation_output_us(generation);
  fprintf(stderr, "prompt: %d tokens in %.0f ms (%.1f/s); answer: %d tokens in %.0f ms (%.1f/s)\n",
          n_run(usage), prompt_us / 1e3, n_run(usage) / prompt_us * 1e6, usage->n_output,
          output_us / 1e3, output_us > 0 ? usage->n_output / output_us * 1e6 : 0);
}

static iso_status generate(const iso_options *options, iso_engine *engine, const int32_t *ids,
                           size_t n_ids) {
  answer self = {.keep = options->json};
  iso_generation generation = {.on_text = on_text, .context = &self};
  generation.goes_on = !iso_tool_uses_template(options, iso_engine_get_model(engine));
  iso_tool_catch_end();
  iso_status status = iso_tool_generate(engine, options, ids, n_ids, &generation);
  if (status == ISO_OK && options->json)
    status = print_json(&self, &generation);
  else if (status == ISO_OK && !self.write_failed)
    putchar('\n');
  if (status == ISO_OK && options->verbose)
    print_timings(&generation);
  free(self.text);
  return status;
}

iso_status iso_command_run(iso_options *options, int *out_exit) {
  iso_model *model, *draft = NULL;
  ISO_TRY(iso_tool_open_model(options, false, &model));
  int32_t *ids = NULL;
  size_t n_ids = 0;
  iso_engine *engine = NULL;
  iso_status status = make_prompt(options, model, &ids, &n_ids);
  if (status == ISO_OK)
    status = iso_tool_create_single_engine(model, options, &draft, &engine);
  if (status == ISO_OK)
    status = generate(options, engine, ids, n_ids);
  if (status == ISO_OK && iso_tool_interrupted())
    *out_exit = 1;
  iso_engine_destroy(engine);
  free(ids);
  iso_model_close(draft);
  iso_model_close(model);
  return status;
}
