#include "tools/adapters.h"
#include "tools/config_file.h"
#include "tools/engine_options.h"
#include "tools/tool.h"

#include "core/file.h"
#include "core/progress.h"
#include "server/server.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most keys of --api-key and --api-key-file together. */
enum { MAX_KEYS = 1024, MAX_KEY_FILE = 1 << 20 };

typedef struct serving {
  iso_options *options;
  iso_model *model, *draft;
  iso_engine *engine;
  const char *keys[MAX_KEYS];
  int n_keys;
  char *key_text;                /* of --api-key-file */
  char *names[1 + ISO_MAX_LIST]; /* of the model, then of its adapters */
} serving;

static iso_status load(void *context, iso_engine **out_engine) {
  serving *self = context;
  iso_progress_bar bar;
  iso_progress_bar_begin(&bar, stderr);
  ISO_TRY(iso_tool_open_model(self->options, false, &self->model));
  ISO_TRY(iso_tool_create_engine(self->model, self->options, &bar, &self->draft, &self->engine));
  ISO_TRY(iso_engine_start(self->engine));
  *out_engine = self->engine;
  return ISO_OK;
}

static iso_status read_keys(serving *self) {
  const iso_options *options = self->options;
  for (int i = 0; i < options->api_key.n; i++)
    self->keys[self->n_keys++] = options->api_key.items[i];
  size_t length = 0;
  if (options->api_key_file)
    ISO_TRY(iso_file_read(options->api_key_file, MAX_KEY_FILE, &self->key_text, &length));
  char *rest = self->key_text;
  for (char *line; rest && (line = strsep(&rest, "\r\n"));) {
    if (!*line)
      continue;
    if (self->n_keys == MAX_KEYS)
      return iso_fail(ISO_ERROR_LIMIT, "more than %d API keys", MAX_KEYS);
    self->keys[self->n_keys++] = line;
  }
  for (int i = 0; i < self->n_keys; i++) {
    if (!*self->keys[i])
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "an API key is empty");
    if (strcmp(self->keys[i], ISO_CONFIG_NOT_SHOWN) == 0)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "\"" ISO_CONFIG_NOT_SHOWN "\" stands for an API key: write the key itself");
  }
  if (options->api_key_file && self->n_keys == options->api_key.n)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "%s holds no API key", options->api_key_file);
  return ISO_OK;
}

/* What no request could match would be taken for a rule that holds. */
static iso_status check_names(const iso_options *options) {
  for (int i = 0; i < options->cors_origin.n; i++) {
    const char *origin = options->cors_origin.items[i], *host = strstr(origin, "://");
    if (strcmp(origin, "*") != 0 && strcmp(origin, "null") != 0 &&
        (!host || host == origin || !host[3] || strpbrk(host + 3, "/?# ")))
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "--cors-origin \"%s\" is no origin; one is a scheme and a host, as "
                      "https://chat.example.org, with no path",
                      origin);
  }
  for (int i = 0; i < options->allowed_host.n; i++) {
    const char *name = options->allowed_host.items[i];
    if (!*name || strpbrk(name, "/: "))
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "--allowed-host \"%s\" is no name; one is as chat.example.org, with no "
                      "scheme and no port (addresses need not be named)",
                      name);
  }
  return options->served_model_name && !*options->served_model_name
             ? iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--served-model-name is empty")
             : ISO_OK;
}

static iso_status name_models(serving *self) {
  const iso_options *options = self->options;
  const char *given = options->served_model_name;
  for (int i = 0; i <= options->lora.n; i++) {
    iso_text_view name = i > 0   ? iso_tool_adapter_name(options, i - 1)
                         : given ? (iso_text_view){given, strlen(given)}
                                 : iso_tool_name(options->model);
    self->names[i] = strndup(name.data, name.length);
    if (!self->names[i])
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to serve");
    if (i > 0 && strcmp(self->names[i], self->names[0]) == 0)
      return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                      "an adapter is called \"%s\", as the model is; give it another name, as "
                      "--lora NAME=PATH",
                      self->names[i]);
  }
  return ISO_OK;
}

static iso_status serve(serving *self) {
  const iso_options *options = self->options;
  bool no_log = options->access_log && strcmp(options->access_log, "none") == 0;
  const iso_server_options server = {.host = options->host,
                                     .port = (int)options->port,
                                     .model_name = self->names[0],
                                     .adapter_names = (const char *const *)self->names + 1,
                                     .n_adapters = options->lora.n,
                                     .max_body = (size_t)options->max_body << 20,
                                     .max_connections = (int)options->max_connections,
                                     .receive_seconds = options->receive_timeout,
                                     .idle_seconds = options->idle_timeout,
                                     .request_seconds = options->request_timeout,
                                     .drain_seconds = options->drain_timeout,
                                     .api_keys = self->keys,
                                     .n_api_keys = self->n_keys,
                                     .cors_origins = options->cors_origin.items,
                                     .n_cors_origins = options->cors_origin.n,
                                     .allowed_hosts = options->allowed_host.items,
                                     .n_allowed_hosts = options->allowed_host.n,
                                     .tool_calls = options->tool_calls,
                                     .access_log = no_log ? NULL : options->access_log,
                                     .log_prompts = options->log_prompts};
  return iso_server_run(&server, load, self);
}

static iso_status run(iso_options *options) {
  /* A model on the command line goes before the file's. */
  if (options->words.n > 0)
    options->model = NULL;
  ISO_TRY(iso_options_take_model(options));
  serving *self = calloc(1, sizeof *self);
  if (!self)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory to serve");
  self->options = options;
  iso_status status = check_names(options);
  if (status == ISO_OK)
    status = name_models(self);
  if (status == ISO_OK)
    status = read_keys(self);
  if (status == ISO_OK) {
    iso_config_print(ISO_COMMAND_SERVE, options, stderr);
    status = serve(self);
  }
  iso_engine_destroy(self->engine);
  iso_model_close(self->draft);
  iso_model_close(self->model);
  free(self->key_text);
  for (int i = 0; i <= ISO_MAX_LIST; i++)
    free(self->names[i]);
  free(self);
  return status;
}

iso_status iso_command_serve(iso_options *options, int *out_exit) {
  (void)out_exit;
  iso_config_file file;
  iso_status status = iso_config_file_apply(ISO_COMMAND_SERVE, options, &file);
  if (status == ISO_OK)
    status = run(options);
  iso_config_file_destroy(&file);
  return status;
}
