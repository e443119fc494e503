/* What tests of the engine share: a tiny model with a tokenizer, and requests that collect. */
#ifndef ISOMER_TESTS_ENGINE_CASE_H
#define ISOMER_TESTS_ENGINE_CASE_H

#include "check.h"

#include <isomer/engine.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/tokenizer/byte_level.h"
#include "models/tokenizer/tokenizer.h"

enum { CASE_VOCABULARY = 160, CASE_CONTEXT = 128, CASE_MAX_CHOICES = 16 };

/* ---- The model: the golden llama, with a token a byte ------------------------------------- */

/* The byte of token 3 + i: ASCII, then leads and followers of longer code points. */
static unsigned char case_byte(int i) {
  static const unsigned char leads[] = {0xC3, 0xE2, 0xE3, 0xF0};
  return (unsigned char)(i < 95 ? 32 + i : i < 99 ? leads[i - 95] : 0x80 + (i - 99));
}

static void write_tokenizer(const char *folder) {
  char path[600];
  snprintf(path, sizeof path, "%s/tokenizer.json", folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(
      file,
      "{\"added_tokens\":["
      "{\"id\":1,\"content\":\"<s>\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
      "\"rstrip\":false,\"normalized\":false},"
      "{\"id\":2,\"content\":\"</s>\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
      "\"rstrip\":false,\"normalized\":false}],"
      "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
      "\"decoder\":{\"type\":\"ByteLevel\"},"
      "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2");
  for (int i = 0; i < CASE_VOCABULARY - 3; i++) {
    char byte = (char)case_byte(i);
    iso_text text = {0};
    CHECK(iso_byte_level_encode(&byte, 1, &text));
    bool escape = text.length == 1 && (text.data[0] == '"' || text.data[0] == '\\');
    fprintf(file, ",\"%s%.*s\":%d", escape ? "\\" : "", (int)text.length, text.data, 3 + i);
    iso_text_free(&text);
  }
  fprintf(file, "}}}");
  fclose(file);
  snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
  file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
  fclose(file);
}

static iso_model *open_case_model(void) {
  char folder[] = "/tmp/isomer-engine-XXXXXX", from[600], to[600];
  static const char *const files[] = {"config.json", "model.safetensors"};
  assert_non_null(mkdtemp(folder));
  for (int i = 0; i < 2; i++) {
    snprintf(from, sizeof from, "%s/tests/golden/models/llama/%s", TEST_SOURCE_DIR, files[i]);
    snprintf(to, sizeof to, "%s/%s", folder, files[i]);
    assert_int_equal(symlink(from, to), 0);
  }
  write_tokenizer(folder);
  iso_model *model;
  CHECK(iso_model_open(folder, NULL, &model));
  static const char *const made[] = {"config.json", "model.safetensors", "tokenizer.json",
                                     "tokenizer_config.json"};
  for (int i = 0; i < 4; i++) {
    snprintf(to, sizeof to, "%s/%s", folder, made[i]);
    unlink(to);
  }
  rmdir(folder);
  return model;
}

/* ---- Engines ------------------------------------------------------------------------------- */

/* "cpu", or what the tests are to run on: "late" works beside the host. */
static const char *case_device(void) {
  const char *device = getenv("ISOMER_TEST_DEVICE");
  return device ? device : "cpu";
}

static iso_engine_options case_options(void) {
  return (iso_engine_options){.runtime = {.devices = case_device(),
                                          .n_threads = 2,
                                          .context = CASE_CONTEXT,
                                          .max_tokens = 64,
                                          .max_sequences = 8,
                                          .n_pages = 64,
                                          .page_size = 16}};
}

static inline iso_engine *make_engine(const iso_model *model, const iso_engine_options *options) {
  iso_engine_options fallback = case_options();
  iso_engine *engine;
  CHECK(iso_engine_create(model, options ? options : &fallback, &engine));
  return engine;
}

static inline iso_engine_stats stats_of(iso_engine *engine) {
  iso_engine_stats stats;
  iso_engine_get_stats(engine, &stats);
  return stats;
}

/* Nothing at hand, no page held. */
static inline void assert_idle(iso_engine *engine) {
  iso_engine_stats stats = stats_of(engine);
  assert_int_equal(stats.n_running, 0);
  assert_int_equal(stats.n_waiting, 0);
  assert_int_equal(stats.n_paused, 0);
  assert_int_equal(stats.n_swapped, 0);
  assert_int_equal(stats.n_pages_used, 0);
}

static inline void run_all(iso_engine *engine) {
  bool is_busy = true;
  while (is_busy)
    CHECK(iso_engine_step(engine, &is_busy));
}

/* ---- Requests that collect ----------------------------------------------------------------- */

typedef struct collected {
  iso_request_id id;
  int n_choices, n_done, n_text_events;
  char text[CASE_MAX_CHOICES][2048];
  size_t length[CASE_MAX_CHOICES];
  int32_t tokens[CASE_MAX_CHOICES][256];
  float logprobs[CASE_MAX_CHOICES][256];
  iso_token_logprob top[CASE_MAX_CHOICES][256];
  int n_tokens[CASE_MAX_CHOICES];
  iso_stop_reason reason[CASE_MAX_CHOICES];
  char stop[CASE_MAX_CHOICES][64];
  double cumulative[CASE_MAX_CHOICES];
  iso_token_logprob prompt[256];
  int n_prompt;
  iso_status status;
  char message[256];
  iso_usage usage;
  float embedding[64];
  int n_embedding;
  int order;        /* of its end, among all */
  int cancel_after; /* tokens; 0: never */
  int pause_after;  /* tokens; 0: never */
  int *end_counter;
} collected;

static bool is_utf8(const char *text, size_t length) {
  return iso_utf8_valid_prefix(text, length) == length;
}

static iso_flow on_case_event(void *context, const iso_event *event) {
  collected *self = context;
  int c = event->choice;
  assert_int_equal(self->n_done, 0);
  switch (event->kind) {
  case ISO_EVENT_TEXT:
    if (event->is_prompt) {
      for (int i = 0; i < event->n_tokens; i++)
        self->prompt[self->n_prompt++] = event->tokens[i].chosen;
      break;
    }
    self->n_text_events++;
    assert_true(is_utf8(event->text, event->length));
    assert_true(self->length[c] + event->length < sizeof self->text[c]);
    memcpy(self->text[c] + self->length[c], event->text, event->length);
    self->length[c] += event->length;
    for (int i = 0; i < event->n_tokens; i++) {
      if (event->tokens[i].n_top > 0)
        self->top[c][self->n_tokens[c]] = event->tokens[i].top[0];
      self->logprobs[c][self->n_tokens[c]] = event->tokens[i].chosen.logprob;
      self->tokens[c][self->n_tokens[c]++] = event->tokens[i].chosen.token;
    }
    break;
  case ISO_EVENT_CHOICE:
    self->n_choices++;
    self->reason[c] = event->reason;
    self->cumulative[c] = event->cumulative_logprob;
    if (event->stop)
      snprintf(self->stop[c], sizeof self->stop[c], "%s", event->stop);
    break;
  case ISO_EVENT_DONE:
    self->n_done++;
    self->status = event->status;
    self->usage = event->usage;
    snprintf(self->message, sizeof self->message, "%s", event->message);
    for (int i = 0; i < event->n_embedding; i++)
      self->embedding[self->n_embedding++] = event->embedding[i];
    if (self->end_counter)
      self->order = (*self->end_counter)++;
    break;
  }
  if (self->cancel_after > 0 && self->n_tokens[0] >= self->cancel_after)
    return ISO_FLOW_CANCEL;
  if (self->pause_after > 0 && self->n_tokens[0] >= self->pause_after) {
    self->pause_after = 0;
    return ISO_FLOW_PAUSE;
  }
  return ISO_FLOW_CONTINUE;
}

/* Greedy; the end token is as good as any. */
static inline iso_request case_request(const int32_t *prompt, int32_t n_prompt,
                                       int32_t max_tokens) {
  return (iso_request){.prompt = prompt,
                       .n_prompt = n_prompt,
                       .sampling = iso_sampling_default(),
                       .max_tokens = max_tokens,
                       .ignore_end = true,
                       .on_event = on_case_event};
}

static inline void submit(iso_engine *engine, iso_request request, collected *out) {
  request.context = out;
  CHECK(iso_engine_submit(engine, &request, &out->id));
}

/* `out` is cleared first. */
static inline void generate(iso_engine *engine, iso_request request, collected *out) {
  memset(out, 0, sizeof *out);
  submit(engine, request, out);
  run_all(engine);
  assert_int_equal(out->n_done, 1);
}

/* Tokens that look random; never the special ones. */
static inline void fill_prompt(int32_t *prompt, int32_t n, uint32_t seed) {
  for (int32_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    prompt[i] = 3 + (int32_t)(seed >> 8) % (CASE_VOCABULARY - 3);
  }
}

static inline void assert_same_tokens(const collected *a, int choice_a, const collected *b,
                                      int choice_b) {
  assert_int_equal(a->n_tokens[choice_a], b->n_tokens[choice_b]);
  assert_memory_equal(a->tokens[choice_a], b->tokens[choice_b],
                      (size_t)a->n_tokens[choice_a] * sizeof(int32_t));
}

/* The model of a test program, for its group's set-up and tear-down. */
static iso_model *model;

static inline int open_model(void **state) {
  (void)state;
  model = open_case_model();
  return 0;
}

static inline int close_model(void **state) {
  (void)state;
  iso_model_close(model);
  return 0;
}

#endif
