/* What the files of the server share. All of it belongs to the thread of the event loop, except
 * where it says otherwise. */
#ifndef ISOMER_SERVER_SERVER_INTERNAL_H
#define ISOMER_SERVER_SERVER_INTERNAL_H

#include "server/access_log.h"
#include "server/http/http.h"
#include "server/json_writer.h"
#include "server/mailbox.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/workers.h"

typedef struct iso_server {
  iso_server_options options;
  struct event_base *base;
  iso_http *http;
  iso_mailbox *mailbox; /* any thread posts */
  iso_workers *workers;
  iso_metrics metrics;
  iso_access_log log;
  time_t started;
  /* NULL until loaded. Constant afterwards; the engine may be asked from any thread. */
  iso_engine *engine;
  const iso_model *model;
  const struct iso_tool_format *tool_format; /* NULL: calls are left in the text */
  iso_status load_status;
  char *load_message;
  bool draining;
  int n_jobs;                       /* whose engine requests are not all done */
  struct event *tick, *drain_limit; /* while draining */
} iso_server;

/* Why a request cannot be answered: OpenAI's error object and its HTTP status. */
typedef struct iso_api_error {
  int status;
  const char *type; /* "invalid_request_error", ... */
  const char *code; /* NULL: null */
  char param[64];   /* "": null */
  char message[1024];
} iso_api_error;

/* Fills *out and returns false, so that `return iso_refuse(...)` reads well. `param` may be NULL.
 */
bool iso_refuse(iso_api_error *out, int status, const char *param, const char *code,
                const char *format, ...) ISO_PRINTF(5, 6);
/* The same from a failure of the library; the sentence is this thread's, or `message`. */
bool iso_refuse_status(iso_api_error *out, const iso_server *server, iso_status status,
                       const char *message);
void iso_respond_refusal(iso_server *server, iso_exchange *exchange, const iso_api_error *refusal);
/* The error object alone, as a member "error" of an object that is begun and ended. */
void iso_write_refusal(iso_json_writer *writer, const iso_api_error *refusal);
/* Sends and frees what the writer holds. */
void iso_respond_json(iso_server *server, iso_exchange *exchange, int status,
                      iso_json_writer *writer);

/* What clients call the model with an adapter, 0 being the model alone; and the other way around,
 * where an unknown name is refused. */
const char *iso_served_name(const iso_server *server, int32_t adapter);
bool iso_find_served(const iso_server *server, const char *name, int32_t *out_adapter,
                     iso_api_error *refusal);

/* Finds the handler of a request and checks who asks. */
void iso_route(iso_server *server, iso_exchange *exchange);

/* Whether `offered` is one of the keys, in time that does not depend on which bytes differ. */
bool iso_api_key_matches(const char *const *keys, int n_keys, const char *offered);

/* Whether a request may ask for "name:port". A page of another site that has its own name point to
 * this machine (DNS rebinding) would be of the same origin as the server; but its name is not one
 * of ours. Addresses, localhost and --host are; --allowed-host adds others, "*" all. Without it,
 * a server that other machines can reach takes every name. */
bool iso_host_is_allowed(const iso_server_options *options, bool is_loopback, const char *host);

/* What an exchange leaves for the log and the counts; iso_exchange.record. */
typedef struct iso_record {
  const char *route; /* of routes.def; NULL when there is none */
  bool stream;
  int32_t n_prompt, n_cached, n_output;
  double queue_seconds, first_token_seconds; /* 0: never came */
  const char *finish;                        /* static; NULL: none */
  char *prompt;                              /* with log_prompts */
} iso_record;

#endif
