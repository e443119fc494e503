/* The server's life: bind, load, serve, drain, end. */
#include "server/server_internal.h"
#include "server/tool_calls.h"

#include "core/log.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_HEAD = 32 << 10, N_WORKERS = 2 };
static const double SEND_SECONDS = 300;

/* ---- Requests ---- */

static void on_request(void *context, iso_exchange *exchange) {
  iso_server *server = context;
  exchange->record = calloc(1, sizeof(iso_record));
  iso_route(server, exchange);
}

static void on_refused(void *context, iso_exchange *exchange, int status, const char *message) {
  static const struct {
    int status;
    const char *code;
  } codes[] = {{405, "method_not_allowed"},
               {408, "request_timeout"},
               {413, "body_too_large"},
               {431, "headers_too_large"},
               {503, "overloaded"},
               {505, "version_not_supported"}};
  const char *code = "bad_request";
  iso_api_error refusal;
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (codes[i].status == status)
      code = codes[i].code;
  iso_refuse(&refusal, status, NULL, code, "%s", message);
  iso_respond_refusal(context, exchange, &refusal);
}

static void write_time(iso_json_writer *w) {
  struct timespec now;
  struct tm parts;
  char text[40], whole[48];
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &parts);
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(whole, sizeof whole, "%s.%03ldZ", text, now.tv_nsec / 1000000);
  iso_json_string(w, "time", whole);
}

static void write_milliseconds(iso_json_writer *w, const char *key, double seconds) {
  iso_json_number(w, key, (double)(int64_t)(seconds * 1e6) / 1e3);
}

static void log_exchange(iso_server *server, const iso_exchange *exchange, double seconds) {
  const iso_record *record = exchange->record;
  iso_json_writer w = {0};
  if (server->log.descriptor < 0)
    return;
  iso_json_begin(&w, NULL, '{');
  write_time(&w);
  iso_json_string(&w, "id", exchange->id);
  iso_json_string(&w, "remote", exchange->remote);
  iso_json_string(&w, "method", exchange->method_name);
  iso_json_text(&w, "path", exchange->path, strnlen(exchange->path, 256));
  iso_json_int(&w, "status", exchange->status);
  iso_json_int(&w, "bytes", (int64_t)exchange->bytes_sent);
  write_milliseconds(&w, "total_ms", seconds);
  if (record && (record->n_prompt || record->finish)) {
    iso_json_bool(&w, "stream", record->stream);
    iso_json_int(&w, "prompt_tokens", record->n_prompt);
    iso_json_int(&w, "cached_tokens", record->n_cached);
    iso_json_int(&w, "output_tokens", record->n_output);
    write_milliseconds(&w, "queue_ms", record->queue_seconds);
    write_milliseconds(&w, "first_token_ms", record->first_token_seconds);
    if (record->finish)
      iso_json_string(&w, "finish", record->finish);
  }
  if (record && record->prompt)
    iso_json_string(&w, "body", record->prompt);
  iso_json_end(&w, '}');
  iso_printer_append(&w.text, "\n", 1);
  if (w.text.failed || !iso_access_log_write(&server->log, w.text.data, w.text.size))
    server->metrics.log_lines_dropped++;
  free(w.text.data);
}

static void end_if_drained(iso_server *server) {
  if (server->draining && server->n_jobs == 0 && iso_http_exchange_count(server->http) == 0 &&
      iso_http_connection_count(server->http) == 0)
    event_base_loopexit(server->base, NULL);
}

static void on_end(void *context, iso_exchange *exchange) {
  iso_server *server = context;
  iso_record *record = exchange->record;
  double seconds = iso_http_now() - exchange->start;
  iso_metrics_count(&server->metrics, record && record->route ? record->route : "other",
                    exchange->status);
  if (record && record->n_output > 0)
    iso_histogram_add(&server->metrics.request_seconds, seconds, 1);
  log_exchange(server, exchange, seconds);
  if (record)
    free(record->prompt);
  free(record);
}

/* ---- Loading ---- */

typedef struct load_thread {
  iso_letter letter; /* sent when done */
  iso_server *server;
  iso_server_load load;
  void *context;
  iso_engine *engine;
  iso_status status;
  char *message;
  pthread_t thread;
} load_thread;

static void *load(void *context) {
  load_thread *self = context;
  self->status = self->load(self->context, &self->engine);
  if (self->status != ISO_OK)
    self->message = strdup(iso_status_message());
  iso_mailbox_post(self->server->mailbox, &self->letter);
  return NULL;
}

static void on_flush(void *context) {
  const iso_server *server = context;
  iso_mailbox_wake(server->mailbox);
}

static void deliver_loaded(iso_letter *letter) {
  load_thread *self = (load_thread *)letter;
  iso_server *server = self->server;
  server->load_status = self->status;
  server->load_message = self->message;
  if (server->load_status != ISO_OK) {
    event_base_loopbreak(server->base);
    return;
  }
  iso_engine_on_flush(self->engine, on_flush, server);
  server->model = iso_engine_get_model(self->engine);
  server->engine = self->engine;
  server->tool_format = strcmp(server->options.tool_calls, "auto") == 0
                            ? iso_tool_format_of(server->model)
                            : iso_tool_format_find(server->options.tool_calls);
  const char *host = server->options.host;
  bool is_ipv6 = strchr(host, ':') != NULL;
  iso_log(ISO_LOG_NOTICE, "serving %s on http://%s%s%s:%d (%s)", server->options.model_name,
          is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", iso_http_port(server->http),
          iso_engine_describe(server->engine));
}

/* ---- Stopping ---- */

static void on_tick(evutil_socket_t descriptor, short what, void *context) {
  iso_server *server = context;
  (void)descriptor, (void)what;
  iso_http_drain(server->http);
  end_if_drained(server);
}

static void on_drain_limit(evutil_socket_t descriptor, short what, void *context) {
  iso_server *server = context;
  (void)descriptor, (void)what;
  iso_log(ISO_LOG_WARNING, "%d requests did not end in time and are cut",
          iso_http_exchange_count(server->http));
  event_base_loopbreak(server->base);
}

static void on_signal(evutil_socket_t number, short what, void *context) {
  static const struct timeval tick = {.tv_usec = 20000};
  iso_server *server = context;
  (void)number, (void)what;
  if (!server->engine)
    iso_log(ISO_LOG_NOTICE, "stopping: the model is not loaded yet");
  if (server->draining || !server->engine) {
    event_base_loopbreak(server->base);
    return;
  }
  server->draining = true;
  iso_log(ISO_LOG_NOTICE, "stopping: %d requests at hand may end; a second signal cuts them",
          iso_http_exchange_count(server->http));
  iso_http_drain(server->http);
  double seconds = server->options.drain_seconds;
  struct timeval limit = {.tv_sec = (time_t)seconds,
                          .tv_usec = (suseconds_t)((seconds - floor(seconds)) * 1e6)};
  if (seconds > 0)
    event_add(server->drain_limit, &limit);
  event_add(server->tick, &tick);
}

/* ---- Life ---- */

static iso_status prepare(iso_server *server) {
  const iso_server_options *options = &server->options;
  const iso_http_options http = {.host = options->host,
                                 .port = options->port,
                                 .max_body = options->max_body,
                                 .max_head = MAX_HEAD,
                                 .max_connections = options->max_connections,
                                 .receive_seconds = options->receive_seconds,
                                 .idle_seconds = options->idle_seconds,
                                 .send_seconds = SEND_SECONDS};
  const iso_http_handler handler = {server, on_request, on_refused, on_end};
  if (strcmp(options->tool_calls, "auto") != 0 && strcmp(options->tool_calls, "none") != 0 &&
      !iso_tool_format_find(options->tool_calls))
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "--tool-calls %s: it must be auto, none, or one of %s", options->tool_calls,
                    iso_tool_format_names());
  iso_metrics_init(&server->metrics);
  server->started = time(NULL);
  if (!(server->base = event_base_new()))
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no event loop");
  server->tick = event_new(server->base, -1, EV_PERSIST, on_tick, server);
  server->drain_limit = evtimer_new(server->base, on_drain_limit, server);
  if (!server->tick || !server->drain_limit)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no event loop");
  ISO_TRY(iso_http_create(server->base, &http, &handler, &server->http));
  ISO_TRY(iso_access_log_open(&server->log, options->access_log));
  ISO_TRY(iso_mailbox_create(server->base, &server->mailbox));
  ISO_TRY(iso_workers_create(N_WORKERS, &server->workers));
  return iso_http_accept(server->http);
}

static iso_status serve(iso_server *server, iso_server_load load_function, void *context) {
  load_thread loading = {.letter.deliver = deliver_loaded,
                         .server = server,
                         .load = load_function,
                         .context = context};
  struct event *terminate = evsignal_new(server->base, SIGTERM, on_signal, server);
  struct event *interrupt = evsignal_new(server->base, SIGINT, on_signal, server);
  signal(SIGPIPE, SIG_IGN);
  iso_status status = ISO_OK;
  if (!terminate || !interrupt || event_add(terminate, NULL) != 0 ||
      event_add(interrupt, NULL) != 0 ||
      pthread_create(&loading.thread, NULL, load, &loading) != 0) {
    status = iso_fail(ISO_ERROR_OUT_OF_MEMORY, "the system gives no more threads");
  } else {
    event_base_dispatch(server->base);
    /* A signal while loading: nothing is held that the end of the process does not free. */
    if (!server->engine && server->load_status == ISO_OK)
      _Exit(0);
    pthread_join(loading.thread, NULL);
    if (server->load_status != ISO_OK)
      status = iso_fail(server->load_status, "%s",
                        server->load_message ? server->load_message : iso_status_message());
  }
  if (terminate)
    event_free(terminate);
  if (interrupt)
    event_free(interrupt);
  return status;
}

/* Connections first: their jobs are cancelled, and the last events then free them. */
static void release(iso_server *server) {
  iso_http_destroy(server->http);
  iso_workers_destroy(server->workers);
  if (server->engine)
    iso_engine_drain(server->engine, 0);
  iso_mailbox_destroy(server->mailbox);
  iso_access_log_close(&server->log);
  if (server->tick)
    event_free(server->tick);
  if (server->drain_limit)
    event_free(server->drain_limit);
  if (server->base)
    event_base_free(server->base);
  free(server->load_message);
}

iso_status iso_server_run(const iso_server_options *options, iso_server_load load_function,
                          void *context) {
  iso_server server = {.options = *options, .log.descriptor = -1};
  iso_status status = prepare(&server);
  if (status == ISO_OK)
    status = serve(&server, load_function, context);
  char sentence[1024];
  snprintf(sentence, sizeof sentence, "%s", iso_status_message());
  release(&server);
  return status == ISO_OK ? ISO_OK : iso_fail(status, "%s", sentence);
}
