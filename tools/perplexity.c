/* Perplexity as llama.cpp measures it: the text's tokens in windows of the context, each with an
 * empty cache and BOS as its first token where the model has one; the first half of a window is
 * context only, the second is scored. So numbers compare with llama.cpp's at equal -c. */
#include "tools/adapters.h"
#include "tools/json_output.h"
#include "tools/tool.h"

#include "models/tokenizer/tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
  DEFAULT_CONTEXT = 512,
  DEFAULT_BATCH = 512,
  /* Rows of logits a step: with a vocabulary of 262,144, 128 MiB of them. */
  MAX_LOGIT_ROWS = 128
};

typedef struct scorer {
  iso_runtime *runtime;
  int32_t window, n_batch, bos_id; /* bos_id -1: the model takes none */
  int32_t adapter;                 /* of all rows; 0: none */
  int32_t *pages, n_pages;
  int32_t *tokens;           /* of the window */
  double loss, squared_loss; /* sums of -log p and its square */
  float *losses;             /* of the scored tokens, for whoever compares two models */
  int64_t n_scored;
} scorer;

/* -log of the probability that softmax(logits) gives to `token`. */
static double token_loss(const float *logits, int32_t vocabulary, int32_t token) {
  float largest = logits[0];
  for (int32_t i = 1; i < vocabulary; i++)
    largest = logits[i] > largest ? logits[i] : largest;
  double sum = 0;
  for (int32_t i = 0; i < vocabulary; i++)
    sum += (double)expf(logits[i] - largest);
  return log(sum) - (double)(logits[token] - largest);
}

static void score_rows(scorer *self, int32_t position, int32_t count) {
  int32_t vocabulary = iso_model_get_config(iso_runtime_get_model(self->runtime))->vocabulary_size;
  for (int32_t i = 0; i < count; i++) {
    double loss = token_loss(iso_runtime_logits(self->runtime, i), vocabulary,
                             self->tokens[position + i + 1]);
    self->loss += loss;
    self->squared_loss += loss * loss;
    self->losses[self->n_scored++] = (float)loss;
  }
}

/* The last token of a window predicts nothing that is in it, and is not run. */
static iso_status score_window(scorer *self) {
  int32_t first_scored = self->window / 2, end = self->window - 1;
  for (int32_t position = 0; position < end;) {
    bool scored = position >= first_scored;
    int32_t count = (scored ? end : first_scored) - position;
    int32_t most = scored && self->n_batch > MAX_LOGIT_ROWS ? MAX_LOGIT_ROWS : self->n_batch;
    count = count < most ? count : most;
    iso_batch_sequence rows = {.n_tokens = count,
                               .tokens = self->tokens + position,
                               .position = position,
                               .pages = self->pages,
                               .n_pages = self->n_pages,
                               .all_logits = scored,
                               .no_logits = !scored,
                               .adapter = self->adapter};
    if (iso_tool_interrupted())
      return iso_fail(ISO_ERROR_CANCELLED, "interrupted");
    ISO_TRY(iso_runtime_step(self->runtime, &rows, 1));
    if (scored)
      score_rows(self, position, count);
    if (!isfinite(self->loss))
      return iso_fail(ISO_ERROR_INTERNAL, "the model gave probabilities that are no numbers; run "
                                          "`isomer verify` to find the op that went wrong");
    position += count;
  }
  return ISO_OK;
}

/* The mean's standard error, carried through exp() to first order. */
static void estimate(const scorer *self, double *out_perplexity, double *out_error) {
  double n = (double)self->n_scored, mean = self->loss / n;
  double variance = self->squared_loss / n - mean * mean;
  *out_perplexity = exp(mean);
  *out_error = n > 1 && variance > 0 ? sqrt(variance / (n - 1)) * *out_perplexity : 0;
}

static iso_status score_text(scorer *self, const int32_t *ids, int64_t n_windows) {
  bool show = isatty(STDERR_FILENO) == 1;
  double perplexity = 0, error = 0;
  for (int64_t window = 0; window < n_windows; window++) {
    for (int32_t i = 0; i < self->window; i++)
      self->tokens[i] = ids[window * self->window + i];
    if (self->bos_id >= 0)
      self->tokens[0] = self->bos_id;
    ISO_TRY(score_window(self));
    estimate(self, &perplexity, &error);
    if (show)
      fprintf(stderr, "\rwindow %lld of %lld: perplexity %.4f\033[K", (long long)window + 1,
              (long long)n_windows, perplexity);
  }
  if (show)
    fputc('\n', stderr);
  return ISO_OK;
}

static iso_status print_result(const iso_options *options, const scorer *self, int64_t n_windows) {
  double perplexity, error;
  estimate(self, &perplexity, &error);
  if (!options->json) {
    printf("perplexity %.4f \u00b1 %.5f over %lld tokens in %lld windows of %d\n", perplexity,
           error, (long long)self->n_scored, (long long)n_windows, self->window);
    return ISO_OK;
  }
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "model_filename", options->model);
  cJSON_AddNumberToObject(root, "perplexity", perplexity);
  cJSON_AddNumberToObject(root, "error", error);
  cJSON_AddNumberToObject(root, "n_scored", (double)self->n_scored);
  cJSON_AddNumberToObject(root, "n_windows", (double)n_windows);
  cJSON_AddNumberToObject(root, "n_ctx", self->window);
  if (options->losses)
    cJSON_AddItemToObject(root, "losses",
                          cJSON_CreateFloatArray(self->losses, (int)self->n_scored));
  return iso_json_output_print(root);
}

static iso_status run(const iso_options *options, const iso_model *model, const int32_t *ids,
                      size_t n_ids) {
  const iso_tokenizer *tokenizer = iso_model_get_tokenizer(model);
  scorer self = {.window = options->context ? (int32_t)options->context : DEFAULT_CONTEXT,
                 .adapter = options->lora.n > 0,
                 .n_batch = options->batch_size ? (int32_t)options->batch_size : DEFAULT_BATCH,
                 .bos_id =
                     iso_tokenizer_adds_bos(tokenizer) ? iso_tokenizer_bos_id(tokenizer) : -1};
  ISO_TRY(iso_tool_need_one_adapter(options));
  int64_t n_windows = (int64_t)(n_ids / (size_t)self.window);
  if (self.window < 4)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "a window has at least 4 tokens, -c says %d",
                    self.window);
  if (n_windows < 1)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "the text has %zu tokens, too few for a window of %d (-c)", n_ids, self.window);
  iso_runtime_options base = {.context = self.window,
                              .max_tokens = self.n_batch,
                              .max_logit_rows =
                                  self.n_batch < MAX_LOGIT_ROWS ? self.n_batch : MAX_LOGIT_ROWS};
  ISO_TRY(iso_tool_create_runtime(model, options, &base, &self.runtime));
  self.n_pages = iso_runtime_get_options(self.runtime)->n_pages;
  self.pages = calloc((size_t)self.n_pages, sizeof *self.pages);
  self.tokens = calloc((size_t)self.window, sizeof *self.tokens);
  self.losses = malloc((size_t)n_windows * (size_t)self.window * sizeof *self.losses);
  for (int32_t i = 0; self.pages && i < self.n_pages; i++)
    self.pages[i] = i;
  iso_status status =
      self.pages && self.tokens && self.losses
          ? score_text(&self, ids, n_windows)
          : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a window of %d", self.window);
  if (status == ISO_OK)
    status = print_result(options, &self, n_windows);
  free(self.pages);
  free(self.tokens);
  free(self.losses);
  iso_runtime_destroy(self.runtime);
  return status;
}

iso_status iso_command_perplexity(iso_options *options, int *out_exit) {
  (void)out_exit;
  if (options->losses && !options->json)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--losses are printed by --json alone: give both");
  iso_model *model;
  ISO_TRY(iso_tool_open_model(options, false, &model));
  char *text = NULL;
  size_t length = 0, n_ids = 0;
  int32_t *ids = NULL;
  iso_tool_catch_end();
  iso_status status = iso_tool_read_text(options, 0, &text, &length);
  if (status == ISO_OK && !text)
    status = iso_fail(ISO_ERROR_INVALID_ARGUMENT, "no text: give it with -f, after the model or "
                                                  "on standard input");
  if (status == ISO_OK)
    status = iso_tokenizer_encode(iso_model_get_tokenizer(model), text, length,
                                  ISO_TOKENIZE_ADD_SPECIAL, &ids, &n_ids);
  if (status == ISO_OK)
    status = run(options, model, ids, n_ids);
  free(ids);
  free(text);
  iso_model_close(model);
  return status;
}
