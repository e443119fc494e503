/* What the listener and the connections share. */
#ifndef ISOMER_SERVER_HTTP_HTTP_INTERNAL_H
#define ISOMER_SERVER_HTTP_HTTP_INTERNAL_H

#include "server/http/http.h"

#include <event2/listener.h>
#include <sys/queue.h>

struct iso_http {
  struct event_base *base;
  struct evconnlistener *listener;
  struct event *resume_accepting; /* after the system ran out of descriptors */
  iso_http_options options;
  iso_http_handler handler;
  int port;
  bool is_loopback, draining;
  int n_connections, n_exchanges;
  uint64_t next_id;
  size_t body_bytes; /* of all exchanges */
  LIST_HEAD(iso_http_connections, iso_http_connection) connections;
};

/* Takes over the descriptor. */
void iso_http_connection_create(iso_http *http, evutil_socket_t descriptor,
                                const struct sockaddr *address);
void iso_http_connection_destroy(iso_http_connection *connection);
void iso_http_connection_close_if_idle(iso_http_connection *connection);
iso_http_connection *iso_http_connection_next(iso_http_connection *connection);

#endif
