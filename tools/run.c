#include "tools/conversation.h"
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

static bool keep_going(void *context) {
  (void)context;
  return !iso_tool_interrupted();
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
  if (options->raw || !iso_model_get_chat_template(model)) {
    status = iso_tokenizer_encode(iso_model_get_tokenizer(model), text, length,
                                  ISO_TOKENIZE_ADD_SPECIAL, out_ids, out_count);
  } else {
    iso_conversation conversation;
    status = iso_conversation_create(&conversation);
    if (status == ISO_OK && options->system)
      status = iso_conversation_add(&conversation, "system", options->system);
    if (status == ISO_OK && strlen(text) != length)
      status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the prompt has a NUL byte at offset %zu; a "
                                                    "chat message cannot", strlen(text));
    if (status == ISO_OK)
      status = iso_conversation_add(&conversation, "user", text);
    if (status == ISO_OK)
      status = iso_conversation_tokenize(&conversation, model, out_ids, out_count);
    iso_conversation_destroy(&conversation);
  }
  free(text);
  return status;
}

static void print_json(const answer *self, const iso_generation_result *result,
                       const iso_sampling *sampling) {
  static const char *const reasons[] = {"stop", "length", "stop", "cancelled"};
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "text", self->text ? self->text : "");
  cJSON_AddStringToObject(root, "finish_reason", reasons[result->reason]);
  cJSON_AddNumberToObject(root, "n_prompt", result->n_prompt);
  cJSON_AddNumberToObject(root, "n_output", result->n_output);
  cJSON_AddNumberToObject(root, "prompt_ms", result->prompt_us / 1e3);
  cJSON_AddNumberToObject(root, "output_ms", result->output_us / 1e3);
  char seed[32];
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)sampling->seed);
  cJSON_AddStringToObject(root, "seed", seed);
  char *text = cJSON_Print(root);
  puts(text ? text : "{}");
  free(text);
  cJSON_Delete(root);
}

static void print_timings(const iso_generation_result *result) {
  fprintf(stderr, "prompt: %d tokens in %.0f ms (%.1f/s); answer: %d tokens in %.0f ms (%.1f/s)\n",
          result->n_prompt, result->prompt_us / 1e3, result->n_prompt / result->prompt_us * 1e6,
          result->n_output, result->output_us / 1e3,
          result->output_us > 0 ? result->n_output / result->output_us * 1e6 : 0);
}

static iso_status generate(const iso_options *options, iso_runtime *runtime, const int32_t *ids,
                           size_t n_ids) {
  iso_session *session;
  ISO_TRY(iso_session_create(runtime, &session));
  answer self = {.keep = options->json};
  iso_generation_options generation = {.sampling = iso_tool_sampling(options),
                                       .max_tokens = (int32_t)options->predict,
                                       .stop = options->stop.items,
                                       .n_stop = options->stop.n,
                                       .on_text = on_text,
                                       .keep_going = keep_going,
                                       .context = &self};
  iso_generation_result result;
  iso_tool_catch_interrupt();
  iso_status status = n_ids > INT32_MAX ? iso_fail(ISO_ERROR_LIMIT, "the prompt has %zu tokens", n_ids)
                                        : iso_session_generate(session, ids, (int32_t)n_ids,
                                                               &generation, &result);
  if (status == ISO_OK && options->json)
    print_json(&self, &result, &generation.sampling);
  else if (status == ISO_OK && !self.write_failed)
    putchar('\n');
  if (status == ISO_OK && options->verbose)
    print_timings(&result);
  if (self.write_failed)
    status = iso_fail(ISO_ERROR_IO, "cannot write to standard output");
  free(self.text);
  iso_session_destroy(session);
  return status;
}

iso_status iso_command_run(iso_options *options, int *out_exit) {
  iso_model *model;
  ISO_TRY(iso_tool_open_model(options, false, &model));
  int32_t *ids = NULL;
  size_t n_ids = 0;
  iso_runtime *runtime = NULL;
  iso_status status = make_prompt(options, model, &ids, &n_ids);
  if (status == ISO_OK)
    status = iso_tool_create_runtime(model, options, NULL, &runtime);
  if (status == ISO_OK)
    status = generate(options, runtime, ids, n_ids);
  if (status == ISO_OK && iso_tool_interrupted())
    *out_exit = 1;
  iso_runtime_destroy(runtime);
  free(ids);
  iso_model_close(model);
  return status;
}
