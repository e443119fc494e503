#include "tools/tool.h"

#include "core/file.h"
#include "core/log.h"
#include "core/progress.h"
#include "tools/adapters.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Largest text read from a file or standard input. */
#define MAX_TEXT_BYTES (UINT64_C(1) << 30)

iso_status iso_tool_open_model(iso_options *options, bool no_tokenizer, iso_model **out_model) {
  ISO_TRY(iso_options_take_model(options));
  iso_model_options model_options = {.no_tokenizer = no_tokenizer};
  return iso_model_open(options->model, &model_options, out_model);
}

iso_status iso_tool_create_runtime(const iso_model *model, const iso_options *options,
                                   const iso_runtime_options *base, iso_runtime **out_runtime) {
  iso_runtime_options runtime = base ? *base : (iso_runtime_options){0};
  if (!runtime.devices)
    runtime.devices = options->device;
  if (!runtime.split)
    runtime.split = options->split;
  runtime.n_threads = (int32_t)options->threads;
  runtime.cpu_affinity = options->cpu_affinity;
  runtime.allow_fallback = options->allow_fallback;
  if (runtime.context == 0)
    runtime.context = (int32_t)options->context;
  if (runtime.max_tokens == 0)
    runtime.max_tokens = (int32_t)options->batch_size;
  if (!runtime.activation)
    runtime.activation = options->activation;
  runtime.kv_type = options->kv_type;
  iso_progress_bar bar;
  iso_progress_bar_begin(&bar, stderr);
  runtime.progress = iso_progress_bar_update;
  runtime.progress_context = &bar;
  iso_adapter_list adapters;
  ISO_TRY(iso_tool_open_adapters(model, options, &adapters));
  runtime.adapters = (const iso_adapter *const *)adapters.items;
  runtime.n_adapters = adapters.n;
  iso_status status = iso_runtime_create(model, &runtime, out_runtime);
  iso_tool_close_adapters(&adapters);
  ISO_TRY(status);
  if (options->verbose)
    fprintf(stderr, "%s\n", iso_runtime_describe(*out_runtime));
  return ISO_OK;
}

bool iso_tool_uses_template(const iso_options *options, const iso_model *model) {
  return !options->raw && iso_model_get_chat_template(model);
}

int32_t iso_tool_max_tokens(const iso_options *options) {
  return options->predict > 0 ? (int32_t)options->predict : 0;
}

iso_sampling iso_tool_sampling(const iso_options *options) {
  iso_sampling sampling = {.temperature = (float)options->temperature,
                           .top_k = (int32_t)options->top_k,
                           .top_p = (float)options->top_p,
                           .min_p = (float)options->min_p,
                           .repetition_penalty = (float)options->repeat_penalty,
                           .presence_penalty = (float)options->presence_penalty,
                           .frequency_penalty = (float)options->frequency_penalty,
                           .seed = (uint64_t)options->seed};
  if (!options->seed_given &&
      getrandom(&sampling.seed, sizeof sampling.seed, 0) != (ssize_t)sizeof sampling.seed)
    sampling.seed = (uint64_t)getpid();
  sampling.seed &= INT64_MAX; /* --seed takes what `run --json` tells */
  return sampling;
}

/* Nothing at all is no text, as on a terminal. */
static iso_status read_stream(FILE *stream, const char *name, char **out_text, size_t *out_length) {
  size_t length = 0, capacity = 1 << 16;
  char *text = malloc(capacity);
  while (text) {
    length += fread(text + length, 1, capacity - length, stream);
    if (length < capacity)
      break;
    if (capacity >= MAX_TEXT_BYTES) {
      free(text);
      return iso_fail(ISO_ERROR_LIMIT, "%s is larger than %zu bytes", name, capacity);
    }
    char *grown = realloc(text, capacity *= 2);
    if (!grown)
      free(text);
    text = grown;
  }
  if (!text)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for the text of %s", name);
  if (length == 0 || ferror(stream)) {
    free(text);
    return ferror(stream) ? iso_fail(ISO_ERROR_IO, "cannot read %s: %s", name, strerror(errno))
                          : ISO_OK;
  }
  text[length] = 0;
  *out_text = text;
  *out_length = length;
  return ISO_OK;
}

ssize_t iso_tool_read_line(char **line, size_t *capacity, size_t limit, FILE *file) {
  size_t length = 0;
  int byte = 0;
  while (length <= limit && byte != '\n' && (byte = getc_unlocked(file)) != EOF) {
    if (length + 1 >= *capacity) {
      size_t wanted = 2 * *capacity + 256;
      char *grown = realloc(*line, wanted);
      if (!grown) {
        errno = ENOMEM;
        return -1;
      }
      *line = grown;
      *capacity = wanted;
    }
    (*line)[length++] = (char)byte;
  }
  if (length == 0 || (byte == EOF && ferror(file)))
    return -1;
  (*line)[length] = 0;
  return (ssize_t)length;
}

/* Of -f: a file, or a pipe such as a shell's <(command); - is standard input. */
static iso_status read_file(const char *path, char **out_text, size_t *out_length) {
  struct stat facts;
  if (strcmp(path, "-") == 0)
    return read_stream(stdin, "standard input", out_text, out_length);
  if (stat(path, &facts) != 0 || !S_ISFIFO(facts.st_mode))
    return iso_file_read(path, MAX_TEXT_BYTES, out_text, out_length);
  FILE *stream = fopen(path, "r");
  if (!stream)
    return iso_fail(ISO_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
  iso_status status = read_stream(stream, path, out_text, out_length);
  fclose(stream);
  return status;
}

static iso_status copy_text(const char *text, char **out_text, size_t *out_length) {
  *out_length = strlen(text);
  *out_text = strdup(text);
  return *out_text ? ISO_OK : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for the text");
}

iso_status iso_tool_read_text(const iso_options *options, int first_word, char **out_text,
                              size_t *out_length) {
  *out_text = NULL;
  *out_length = 0;
  bool has_words = options->words.n > first_word;
  if ((options->prompt != NULL) + (options->file != NULL) + has_words > 1)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "the text is given more than once: use one of -p, "
                                                "-f and words after the model");
  if (options->prompt)
    return copy_text(options->prompt, out_text, out_length);
  if (options->file)
    return read_file(options->file, out_text, out_length);
  if (!has_words)
    return isatty(STDIN_FILENO) ? ISO_OK
                                : read_stream(stdin, "standard input", out_text, out_length);
  size_t bytes = 1;
  for (int i = first_word; i < options->words.n; i++)
    bytes += strlen(options->words.items[i]) + 1;
  char *text = calloc(bytes, 1);
  if (!text)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for the text");
  for (int i = first_word; i < options->words.n; i++) {
    strcat(text, i > first_word ? " " : "");
    strcat(text, options->words.items[i]);
  }
  *out_text = text;
  *out_length = strlen(text);
  return ISO_OK;
}

static volatile sig_atomic_t interrupted, asking;

static void on_interrupt(int signal_number) {
  if (interrupted && !asking) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
  interrupted = 1;
}

/* What is ignored stays so: Ctrl-C is not for a command that a shell runs in the background. */
static void catch_signal(int number) {
  struct sigaction action = {.sa_handler = on_interrupt}, before;
  if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
    sigaction(number, &action, NULL);
}

void iso_tool_catch_interrupt(void) { catch_signal(SIGINT); }

void iso_tool_catch_end(void) {
  catch_signal(SIGINT);
  catch_signal(SIGTERM);
  catch_signal(SIGHUP);
}

bool iso_tool_interrupted(void) { return interrupted != 0; }
void iso_tool_clear_interrupt(void) { interrupted = 0; }
void iso_tool_set_asking(bool is_asking) { asking = is_asking; }

const char *iso_tool_format_bytes(uint64_t bytes, char *out, size_t capacity) {
  static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
  double value = (double)bytes;
  int unit = 0;
  while (value >= 1000 && unit < 4) {
    value /= 1000;
    unit++;
  }
  snprintf(out, capacity, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return out;
}
