/* HTTP/1.1 for one event loop: libevent moves the bytes, http_parser reads them.
 *
 * A connection carries one exchange at a time: a request, then its answer. Pipelined requests wait
 * in the socket. Everything here is bounded: headers, body, time to send a request, time to take
 * an answer, connections. Everything here runs on the thread of the event loop.
 *
 * A client may end its half of the connection after a request and still read the answer. The
 * protocol shows that and a client that has gone as the same; they are told apart by sending (see
 * probe() in connection.c). */
#ifndef ISOMER_SERVER_HTTP_HTTP_H
#define ISOMER_SERVER_HTTP_HTTP_H

#include <event2/event.h>
#include <isomer/status.h>

typedef struct iso_http iso_http;
typedef struct iso_http_connection iso_http_connection;

typedef enum iso_http_method {
  ISO_HTTP_GET,
  ISO_HTTP_HEAD, /* answered like GET; the body is left out by the connection */
  ISO_HTTP_POST,
  ISO_HTTP_OPTIONS,
  ISO_HTTP_OTHER
} iso_http_method;

/* A request and its answer. Whoever is given one by on_request owns it until the first of
 * iso_http_respond(), iso_http_stream_end(), iso_http_stream_abort() or its on_close callback;
 * after that it may be gone. */
typedef struct iso_exchange {
  /* The request; read only. */
  iso_http_method method;
  const char *method_name;
  char *path;       /* without the query; NUL-terminated */
  char *query;      /* after '?', or NULL */
  const char *host; /* "name:port" that the client asked for; NULL: none, as HTTP/1.0 may */
  char *body;       /* NUL-terminated; may be taken: set it to NULL and free it later */
  size_t body_length;
  char remote[64]; /* "127.0.0.1:4711" */
  char id[40];     /* X-Request-Id of the client where it is a plain word, else a fresh one */
  double start;    /* iso_http_now() of its first byte */
  /* The owner's. */
  void *owner;
  void (*on_close)(struct iso_exchange *exchange); /* the client is gone; NULL: not interested */
  void (*on_drain)(struct iso_exchange *exchange); /* iso_http_pending() fell to the low mark */
  void *record;                                    /* for on_end; see iso_http_handler */
  /* The answer so far. */
  int status; /* 0: none yet; 499: the client left before it */
  uint64_t bytes_sent;
  /* The connection's own. */
  iso_http_connection *connection;
  char *head;      /* name NUL value NUL ... */
  char *authority; /* of "GET http://host/path" */
  size_t head_length, head_capacity, body_capacity;
  char *extra_headers;
  bool keep_alive, old_protocol, chunked;
} iso_exchange;

typedef struct iso_http_handler {
  void *context;
  void (*on_request)(void *context, iso_exchange *exchange);
  /* The request broke the protocol or a limit: answer with this status (400, 408, 413, 431). The
   * connection closes after the answer. */
  void (*on_refused)(void *context, iso_exchange *exchange, int status, const char *message);
  /* The exchange is over, answered or not: for logs and counts. */
  void (*on_end)(void *context, iso_exchange *exchange);
} iso_http_handler;

typedef struct iso_http_options {
  const char *host; /* an address or a name */
  int port;         /* 0: any free one */
  size_t max_body;  /* bytes */
  size_t max_head;  /* bytes of request line and headers */
  int max_connections;
  double receive_seconds; /* for a whole request, from its first byte */
  double idle_seconds;    /* between requests */
  double send_seconds;    /* without any progress in sending */
} iso_http_options;

/* Binds and listens, so that a port already taken is an error here; accepts nothing yet. */
ISO_MUST_CHECK iso_status iso_http_create(struct event_base *base, const iso_http_options *options,
                                          const iso_http_handler *handler, iso_http **out_http);
void iso_http_destroy(iso_http *http);
int iso_http_port(const iso_http *http);
/* Whether only this machine can connect. */
bool iso_http_is_loopback(const iso_http *http);
iso_status iso_http_accept(iso_http *http);
/* Accepts no more and closes connections without a whole request; others close after their answer.
 * To be called again until no connection is left: one whose answer, begun before, is still leaving
 * stays open that time. */
void iso_http_drain(iso_http *http);
int iso_http_connection_count(const iso_http *http);
/* Exchanges whose request is complete and whose answer is not. */
int iso_http_exchange_count(const iso_http *http);

/* Whoever took the body has freed it: it no longer counts among those that are held at a time. */
void iso_http_body_freed(iso_exchange *exchange);
/* Value of a request header (case does not matter), or NULL. */
const char *iso_http_header(const iso_exchange *exchange, const char *name);
/* A header of the answer, before it starts. The value must hold no line breaks. */
void iso_http_add_header(iso_exchange *exchange, const char *name, const char *value);

/* A whole answer. */
void iso_http_respond(iso_exchange *exchange, int status, const char *content_type,
                      const char *body, size_t length);
/* An answer in pieces, each sent as soon as it can be. */
void iso_http_stream_begin(iso_exchange *exchange, int status, const char *content_type);
void iso_http_stream_write(iso_exchange *exchange, const char *data, size_t length);
void iso_http_stream_end(iso_exchange *exchange);
/* Closes without the end mark, so that the client sees that the answer is cut. */
void iso_http_stream_abort(iso_exchange *exchange);
/* Bytes written and not yet taken by the system. */
size_t iso_http_pending(const iso_exchange *exchange);
/* on_drain is called when that many or fewer are left. */
#define ISO_HTTP_LOW_MARK ((size_t)32 << 10)

/* Seconds of the monotonic clock. */
double iso_http_now(void);

#endif
