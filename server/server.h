/* The HTTP server: OpenAI's API, and a few others, over one engine. */
#ifndef ISOMER_SERVER_SERVER_H
#define ISOMER_SERVER_SERVER_H

#include <isomer/engine.h>

typedef struct iso_server_options {
  const char *host;
  int port;
  const char *model_name; /* what /v1/models calls the model */
  /* What it calls the model with each of the engine's adapters, in their order. */
  const char *const *adapter_names;
  int n_adapters;
  size_t max_body;        /* bytes */
  int max_connections;
  double receive_seconds, idle_seconds; /* see iso_http_options */
  double request_seconds;               /* of a generation, queue included; 0: no limit */
  double drain_seconds;                 /* after SIGTERM; 0: no limit */
  const char *const *api_keys;          /* none: everybody may ask */
  int n_api_keys;
  const char *const *cors_origins; /* none: pages of other origins may not ask */
  int n_cors_origins;
  const char *const *allowed_hosts; /* names it goes by; see iso_host_is_allowed() */
  int n_allowed_hosts;
  const char *tool_calls; /* a name of server/tool_calls.h, "none", or "auto" */
  const char *access_log; /* a path, "-" for standard output, NULL for none */
  bool log_prompts;
} iso_server_options;

/* Loads what is to be served, on a thread of its own, while /health already answers. On success the
 * engine has been started. */
typedef iso_status (*iso_server_load)(void *context, iso_engine **out_engine);

/* Binds, then loads, then serves until SIGTERM or SIGINT: the first lets requests at hand end, a
 * second ends them now. The engine stays the caller's. Blocks; one server a process. */
ISO_MUST_CHECK iso_status iso_server_run(const iso_server_options *options, iso_server_load load,
                                         void *context);

#endif
