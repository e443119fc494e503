/* Any bytes as a line of a batch file, and as a file of options: what a line asks is in bounds, and
 * its answer, or its refusal, can be written. Bytes that begin with '#' are a file of options. */
#include "tests/fuzz/scratch.h"
#include "tools/batch_line.h"
#include "tools/config_file.h"
#include "tools/engine_options.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[SCRATCH_PATH], model_path[96], config_path[96];
static iso_options options;
static iso_model *model;
static iso_engine *engine;

static void remove_folder(void) {
  iso_engine_destroy(engine);
  iso_model_close(model);
  unlink(model_path);
  unlink(config_path);
  rmdir(folder);
}

static void must(iso_status status) {
  if (status == ISO_OK)
    return;
  fprintf(stderr, "%s\n", iso_status_message());
  abort();
}

/* An engine that takes requests and is never started. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  scratch_create(folder);
  snprintf(model_path, sizeof model_path, "%s/tiny.gguf", folder);
  snprintf(config_path, sizeof config_path, "%s/config.json", folder);
  const char *synth[] = {"tiny-llama", model_path};
  const char *batch[] = {"-m", model_path, "-c", "128", "-t", "1"};
  int code = 0;
  must(iso_options_parse(ISO_COMMAND_SYNTH, 2, (char **)synth, &options));
  must(iso_command_synth(&options, &code));
  must(iso_options_parse(ISO_COMMAND_BATCH, 6, (char **)batch, &options));
  iso_progress_bar bar = {0};
  iso_model *draft = NULL;
  must(iso_tool_open_model(&options, false, &model));
  must(iso_tool_create_engine(model, &options, &bar, &draft, &engine));
  atexit(remove_folder);
  return 0;
}

static void check(const iso_batch_line *line) {
  const iso_request *request = &line->request;
  if (!request->prompt != !request->n_prompt || request->n < 1 || request->n > 128 ||
      request->n_stop > ISO_BATCH_MAX_STOPS || !(request->sampling.temperature >= 0))
    abort();
}

static void read_line(const char *text, size_t length) {
  const iso_sampling sampling = iso_tool_sampling(&options);
  iso_batch_line line;
  char error[2048], *out = NULL;
  iso_status status = iso_batch_line_read(engine, &options, &sampling, text, length, 3, &line);
  snprintf(error, sizeof error, "%s", iso_status_message());
  if (status == ISO_OK)
    check(&line);
  else if (!*error)
    abort();
  must(iso_batch_line_print(&line, status == ISO_OK ? NULL : error, &out));
  if (strchr(out, '\n'))
    abort();
  free(out);
  iso_batch_line_destroy(&line);
}

static void read_options(const uint8_t *data, size_t size) {
  scratch_write(config_path, data, size);
  const char *arguments[] = {"--config", config_path, "--port", "0"};
  iso_options read;
  iso_config_file config;
  must(iso_options_parse(ISO_COMMAND_SERVE, 4, (char **)arguments, &read));
  FILE *nowhere = fopen("/dev/null", "w");
  iso_status status = iso_config_file_apply(ISO_COMMAND_SERVE, &read, &config);
  if (status == ISO_OK && nowhere)
    iso_config_print(ISO_COMMAND_SERVE, &read, nowhere);
  if (status == ISO_OK && (read.port != 0 || read.max_body < 1 || !(read.idle_timeout >= 0.1)))
    abort();
  if (nowhere)
    fclose(nowhere);
  iso_config_file_destroy(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 20000)
    return 0;
  if (size > 0 && data[0] == '#')
    read_options(data + 1, size - 1);
  else
    read_line((const char *)data, size);
  return 0;
}
