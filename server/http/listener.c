#include "server/http/http_internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Connections that the kernel holds until we accept them; it caps this by net.core.somaxconn. */
enum { BACKLOG = 4096 };

double iso_http_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t descriptor,
                      struct sockaddr *address, int length, void *context) {
  iso_http *http = context;
  (void)listener, (void)length;
  if (http->n_connections >= http->options.max_connections)
    evutil_closesocket(descriptor);
  else
    iso_http_connection_create(http, descriptor, address);
}

static void on_resume(evutil_socket_t descriptor, short what, void *context) {
  iso_http *http = context;
  (void)descriptor, (void)what;
  if (http->listener)
    evconnlistener_enable(http->listener);
}

/* Out of descriptors or memory: trying again at once would only burn the loop's time. */
static void on_accept_error(struct evconnlistener *listener, void *context) {
  static const struct timeval pause = {.tv_usec = 100000};
  iso_http *http = context;
  evconnlistener_disable(listener);
  event_add(http->resume_accepting, &pause);
}

/* Room for max_connections, as far as the system lets us. */
static void raise_descriptor_limit(int wanted) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)wanted)
    return;
  limit.rlim_cur = limit.rlim_max < (rlim_t)wanted ? limit.rlim_max : (rlim_t)wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static void read_bound_address(iso_http *http) {
  struct sockaddr_storage address;
  socklen_t length = sizeof address;
  if (getsockname(evconnlistener_get_fd(http->listener), (struct sockaddr *)&address, &length) != 0)
    return;
  if (address.ss_family == AF_INET6) {
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&address;
    http->port = ntohs(in->sin6_port);
    http->is_loopback = IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
  } else {
    const struct sockaddr_in *in = (const struct sockaddr_in *)&address;
    http->port = ntohs(in->sin_port);
    http->is_loopback = ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
}

/* Machines that vanish without a word are noticed in two minutes; connections inherit this. */
static void keep_alive(evutil_socket_t descriptor) {
  const int idle_seconds = 60, interval_seconds = 10, count = 6, on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof interval_seconds);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

/* Tries each address of the host's name. */
static iso_status listen_on(iso_http *http) {
  const iso_http_options *options = &http->options;
  char port[16];
  struct addrinfo *addresses = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
  snprintf(port, sizeof port, "%d", options->port);
  int fault = getaddrinfo(options->host, port, &hints, &addresses);
  if (fault)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "--host %s: %s", options->host,
                    gai_strerror(fault));
  int error = 0;
  for (struct addrinfo *at = addresses; at && !http->listener; at = at->ai_next) {
    http->listener = evconnlistener_new_bind(http->base, on_accept, http,
                                             LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE |
                                                 LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_DISABLED,
                                             BACKLOG, at->ai_addr, (int)at->ai_addrlen);
    error = errno;
  }
  freeaddrinfo(addresses);
  if (http->listener)
    return ISO_OK;
  if (error == EADDRINUSE)
    return iso_fail(ISO_ERROR_IO,
                    "port %d of %s is taken by another program; choose another "
                    "with --port",
                    options->port, options->host);
  return iso_fail(ISO_ERROR_IO, "cannot listen on %s port %d: %s", options->host, options->port,
                  strerror(error));
}

iso_status iso_http_create(struct event_base *base, const iso_http_options *options,
                           const iso_http_handler *handler, iso_http **out_http) {
  iso_http *http = calloc(1, sizeof *http);
  if (!http)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a listener");
  http->base = base;
  http->options = *options;
  http->handler = *handler;
  LIST_INIT(&http->connections);
  raise_descriptor_limit(options->max_connections + 256);
  http->resume_accepting = evtimer_new(base, on_resume, http);
  iso_status status = http->resume_accepting
                          ? listen_on(http)
                          : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a listener");
  if (status != ISO_OK) {
    iso_http_destroy(http);
    return status;
  }
  evconnlistener_set_error_cb(http->listener, on_accept_error);
  read_bound_address(http);
  keep_alive(evconnlistener_get_fd(http->listener));
  *out_http = http;
  return ISO_OK;
}

void iso_http_destroy(iso_http *http) {
  if (!http)
    return;
  while (!LIST_EMPTY(&http->connections))
    iso_http_connection_destroy(LIST_FIRST(&http->connections));
  if (http->listener)
    evconnlistener_free(http->listener);
  if (http->resume_accepting)
    event_free(http->resume_accepting);
  free(http);
}

iso_status iso_http_accept(iso_http *http) {
  return evconnlistener_enable(http->listener) == 0
             ? ISO_OK
             : iso_fail(ISO_ERROR_IO, "cannot accept connections: %s", strerror(errno));
}

void iso_http_drain(iso_http *http) {
  http->draining = true;
  if (http->listener)
    evconnlistener_free(http->listener);
  http->listener = NULL;
  iso_http_connection *next;
  for (iso_http_connection *at = LIST_FIRST(&http->connections); at; at = next) {
    next = iso_http_connection_next(at);
    iso_http_connection_close_if_idle(at);
  }
}

int iso_http_port(const iso_http *http) { return http->port; }
bool iso_http_is_loopback(const iso_http *http) { return http->is_loopback; }
int iso_http_connection_count(const iso_http *http) { return http->n_connections; }
int iso_http_exchange_count(const iso_http *http) { return http->n_exchanges; }
