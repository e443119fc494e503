/* Any bytes as a client's: through a real connection, whose requests are read by the table of
 * fields. Every answer must be there for every request that is whole. */
#include "core/json.h"
#include "server/fields.h"
#include "server/http/http_internal.h"
#include "server/server_internal.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The body as each kind of request; what is refused says why. */
static void read_fields(const iso_exchange *exchange) {
  cJSON *root = NULL;
  if (iso_json_parse(exchange->body ? exchange->body : "", exchange->body_length, 64, &root) !=
      ISO_OK)
    return;
  for (int body = 0; body < ISO_BODY_COUNT; body++) {
    iso_fields fields;
    iso_api_error error = {0};
    iso_fields_init(&fields);
    if (!iso_fields_read(root, (iso_body)body, &fields, &error) &&
        (error.status != 400 || !*error.message))
      abort();
  }
  cJSON_Delete(root);
}

static void on_request(void *context, iso_exchange *exchange) {
  (void)context;
  if (!exchange->path || exchange->path[0] == 0)
    abort();
  read_fields(exchange);
  (void)iso_http_header(exchange, "content-type");
  const iso_server_options names = {.host = "localhost"};
  (void)iso_host_is_allowed(&names, true, exchange->host);
  if (exchange->query && strlen(exchange->query) > 2048)
    abort();
  if (exchange->body_length % 3 == 1) {
    iso_http_stream_begin(exchange, 200, "text/event-stream");
    iso_http_stream_write(exchange, "data: x\n\n", 9);
    iso_http_stream_end(exchange);
  } else {
    iso_http_respond(exchange, 200, "text/plain", exchange->path, strlen(exchange->path));
  }
}

static void on_refused(void *context, iso_exchange *exchange, int status, const char *message) {
  (void)context;
  if (status < 400 || !message)
    abort();
  iso_http_respond(exchange, status, "text/plain", message, strlen(message));
}

static void on_end(void *context, iso_exchange *exchange) {
  (void)context;
  if (!exchange->status)
    abort();
}

/* As the server does: a client that is gone is an error of writing, not the end of the program. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  signal(SIGPIPE, SIG_IGN);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  int pair[2];
  char drained[4096];
  struct sockaddr_in address = {.sin_family = AF_INET};
  if (size > 60000 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
    return 0;
  struct event_base *base = event_base_new();
  iso_http http = {.base = base,
                   .options = {.max_body = 4096,
                               .max_head = 2048,
                               .max_connections = 4,
                               .receive_seconds = 5,
                               .idle_seconds = 5,
                               .send_seconds = 5},
                   .handler = {NULL, on_request, on_refused, on_end}};
  LIST_INIT(&http.connections);
  iso_http_connection_create(&http, pair[0], (const struct sockaddr *)&address);
  /* In two pieces, so that everything is also seen cut. */
  size_t half = size / 2;
  (void)!write(pair[1], data, half);
  event_base_loop(base, EVLOOP_NONBLOCK);
  (void)!write(pair[1], data + half, size - half);
  for (int i = 0; i < 8; i++) {
    event_base_loop(base, EVLOOP_NONBLOCK);
    (void)!recv(pair[1], drained, sizeof drained, MSG_DONTWAIT);
  }
  close(pair[1]);
  event_base_loop(base, EVLOOP_NONBLOCK);
  while (!LIST_EMPTY(&http.connections))
    iso_http_connection_destroy(LIST_FIRST(&http.connections));
  if (http.n_connections || http.n_exchanges || http.body_bytes)
    abort();
  event_base_free(base);
  return 0;
}
