/* One connection: reads requests, one at a time, and sends what its exchange answers. */
#include "server/http/http_internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event_struct.h>
#include <http_parser.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/uio.h>

typedef enum connection_state {
  RECEIVING, /* a request, or nothing between two */
  ANSWERING, /* the exchange's owner has it */
  FLUSHING,  /* the last answer is leaving, then close */
  LINGERING  /* the client may still be sending what we refused: read it away, so that the answer
                reaches it before a reset does */
} connection_state;

/* Where in a request's head the next byte is. */
typedef enum head_place { BEFORE_HEAD, IN_LINE, AT_LINE, AFTER_HEAD } head_place;

struct iso_http_connection {
  iso_http *http;
  struct bufferevent *events;
  http_parser parser;
  connection_state state;
  head_place place;
  iso_exchange *exchange; /* NULL between requests */
  struct event deadline;
  char remote[64];
  bool feeding;  /* feed() is on the stack */
  bool complete; /* the parser reached the end of the request */
  bool linger;
  bool ended;           /* the client sends no more; perhaps it still reads */
  double probe_seconds; /* until the next probe() */
  bool in_value;        /* the header being received is past its name */
  bool has_head;        /* the head is whole: what follows the body are trailers */
  size_t trailer_length;
  int refused_status;
  const char *refusal;
  char *target; /* of the request being received */
  size_t target_length, target_capacity;
  LIST_ENTRY(iso_http_connection) link;
};

/* Input that is kept while an answer is under way; enough to notice that the client has left. */
enum { INPUT_LIMIT = 64 << 10 };
/* Bodies of the largest size that are held at a time. */
enum { BODIES_AT_ONCE = 16 };
/* Bodies up to here are taken however much others hold, or wait to send the rest of. */
enum { SMALL_BODY = 64 << 10 };
static const double LINGER_SECONDS = 5;

static bool append(char **data, size_t *length, size_t *capacity, const char *bytes, size_t count,
                   size_t limit) {
  if (count > limit || *length > limit - count)
    return false;
  size_t needed = *length + count + 1;
  if (needed > *capacity) {
    size_t wanted = 2 * *capacity > needed ? 2 * *capacity : needed;
    char *grown = realloc(*data, wanted);
    if (!grown)
      return false;
    *data = grown;
    *capacity = wanted;
  }
  memcpy(*data + *length, bytes, count);
  *length += count;
  (*data)[*length] = 0;
  return true;
}

static void set_deadline(iso_http_connection *c, double seconds) {
  struct timeval time = {.tv_sec = (time_t)seconds,
                         .tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
  if (seconds > 0)
    evtimer_add(&c->deadline, &time);
  else
    evtimer_del(&c->deadline);
}

/* ---- Exchanges ---- */

static void exchange_free(iso_exchange *x) {
  free(x->path);
  free(x->body);
  free(x->head);
  free(x->authority);
  free(x->extra_headers);
  free(x);
}

/* The exchange is over; its connection goes on without it. */
static void end_exchange(iso_http_connection *c) {
  iso_exchange *x = c->exchange;
  c->exchange = NULL;
  iso_http_body_freed(x);
  if (c->state == ANSWERING || x->status)
    c->http->handler.on_end(c->http->handler.context, x);
  if (c->state == ANSWERING)
    c->http->n_exchanges--;
  exchange_free(x);
}

static bool is_plain_word(const char *text) {
  size_t length = strlen(text);
  for (size_t i = 0; i < length; i++)
    if (!isalnum((unsigned char)text[i]) && !strchr("-_.", text[i]))
      return false;
  return length > 0 && length < sizeof((iso_exchange *)0)->id;
}

static iso_exchange *begin_exchange(iso_http_connection *c) {
  iso_exchange *x = calloc(1, sizeof *x);
  if (!x)
    return NULL;
  x->connection = c;
  x->start = iso_http_now();
  x->method_name = "";
  memcpy(x->remote, c->remote, sizeof x->remote);
  snprintf(x->id, sizeof x->id, "%08x%08llx", (unsigned)(x->start * 1e3),
           (unsigned long long)++c->http->next_id);
  return x;
}

void iso_http_body_freed(iso_exchange *x) {
  x->connection->http->body_bytes -= x->body_length;
  x->body_length = 0;
}

const char *iso_http_header(const iso_exchange *x, const char *name) {
  if (!x->head)
    return NULL;
  const char *end = x->head + x->head_length;
  for (const char *at = x->head; at < end;) {
    const char *value = at + strlen(at) + 1;
    if (value >= end)
      break;
    if (strcasecmp(at, name) == 0)
      return value;
    at = value + strlen(value) + 1;
  }
  return NULL;
}

/* ---- Parsing ---- */

static int refuse(iso_http_connection *c, int status, const char *message) {
  c->refused_status = status;
  c->refusal = message;
  return -1;
}

static int on_message_begin(http_parser *parser) {
  iso_http_connection *c = parser->data;
  c->exchange = begin_exchange(c);
  c->target_length = c->trailer_length = 0;
  c->in_value = c->has_head = false;
  set_deadline(c, c->http->options.receive_seconds);
  return c->exchange ? 0 : -1;
}

static int on_url(http_parser *parser, const char *at, size_t length) {
  iso_http_connection *c = parser->data;
  return append(&c->target, &c->target_length, &c->target_capacity, at, length,
                c->http->options.max_head)
             ? 0
             : refuse(c, 431, "the request's address is too long");
}

/* Headers are kept as name NUL value NUL. The parser may give both in pieces. Trailers, fields
 * after a chunked body, are counted and dropped: they must not pass for headers (RFC 9110, 6.5.1),
 * and the head must stay where it is, for the exchange points into it. */
static int add_head(iso_http_connection *c, const char *at, size_t length, bool is_value) {
  iso_exchange *x = c->exchange;
  size_t limit = c->http->options.max_head;
  bool ok = true;
  if (c->has_head)
    return (c->trailer_length += length) <= limit
               ? 0
               : refuse(c, 431, "the request's trailers are too large");
  if (c->in_value != is_value)
    ok = append(&x->head, &x->head_length, &x->head_capacity, "", 1, limit);
  c->in_value = is_value;
  ok = ok && append(&x->head, &x->head_length, &x->head_capacity, at, length, limit);
  return ok ? 0 : refuse(c, 431, "the request's headers are too large");
}

static int on_header_field(http_parser *parser, const char *at, size_t length) {
  if (memchr(at, ' ', length)) /* which the parser lets pass */
    return refuse(parser->data, 400, "a header's name holds a space");
  return add_head(parser->data, at, length, false);
}

static int on_header_value(http_parser *parser, const char *at, size_t length) {
  return add_head(parser->data, at, length, true);
}

static iso_http_method method_of(unsigned method) {
  return method == HTTP_GET       ? ISO_HTTP_GET
         : method == HTTP_HEAD    ? ISO_HTTP_HEAD
         : method == HTTP_POST    ? ISO_HTTP_POST
         : method == HTTP_OPTIONS ? ISO_HTTP_OPTIONS
                                  : ISO_HTTP_OTHER;
}

/* "GET /path?query" and "GET http://host/path?query" alike. */
static int take_target(iso_http_connection *c, iso_exchange *x) {
  struct http_parser_url url;
  http_parser_url_init(&url);
  bool whole = c->target_length && x->method != ISO_HTTP_OTHER;
  if (whole && (memchr(c->target, 0, c->target_length) ||
                (strcmp(c->target, "*") != 0 &&
                 http_parser_parse_url(c->target, c->target_length, 0, &url) != 0)))
    return refuse(c, 400, "the request's address is malformed");
  if (url.field_set & 1 << UF_HOST) {
    /* From the host to before the path; it goes before the header. */
    const char *host = c->target + url.field_data[UF_HOST].off;
    host -= host > c->target && host[-1] == '[';
    if (!(x->authority = strndup(host, strcspn(host, "/?#"))))
      return refuse(c, 503, "out of memory");
    x->host = x->authority;
  }
  const char *path = c->target;
  size_t length = c->target_length;
  if (url.field_set & 1 << UF_PATH) {
    path += url.field_data[UF_PATH].off;
    length = url.field_data[UF_PATH].len;
  }
  if (!(x->path = calloc(c->target_length + 2, 1)))
    return refuse(c, 503, "out of memory");
  if (length)
    memcpy(x->path, path, length);
  if (url.field_set & 1 << UF_QUERY) {
    x->query = x->path + length + 1;
    size_t query_length = url.field_data[UF_QUERY].len;
    if (length + 1 + query_length <= c->target_length)
      memcpy(x->query, c->target + url.field_data[UF_QUERY].off, query_length);
  }
  return 0;
}

/* One in HTTP/1.1, at most one before (RFC 9112, 3.2). */
static int take_host(iso_http_connection *c, iso_exchange *x) {
  int count = 0;
  const char *end = x->head ? x->head + x->head_length : NULL;
  for (const char *at = x->head; at < end; at += strlen(at) + 1) {
    const char *value = at + strlen(at) + 1;
    if (value < end && strcasecmp(at, "Host") == 0) {
      x->host = value;
      count++;
    }
    at = value;
  }
  if (count > 1 || (count == 0 && !x->old_protocol))
    return refuse(c, 400, "a request must have one Host header");
  return 0;
}

static int on_headers_complete(http_parser *parser) {
  iso_http_connection *c = parser->data;
  iso_exchange *x = c->exchange;
  parser->upgrade = 0; /* nothing to upgrade to: go on in HTTP/1.1, as is every server's right */
  c->has_head = true;
  if (x->head && !append(&x->head, &x->head_length, &x->head_capacity, "", 1, SIZE_MAX - 1))
    return refuse(c, 503, "out of memory");
  x->method = method_of(parser->method);
  x->method_name = http_method_str((enum http_method)parser->method);
  x->keep_alive = http_should_keep_alive(parser) != 0;
  x->old_protocol = parser->http_major < 1 || (parser->http_major == 1 && parser->http_minor < 1);
  const char *id = iso_http_header(x, "X-Request-Id");
  if (id && is_plain_word(id))
    snprintf(x->id, sizeof x->id, "%s", id);
  if (parser->http_major > 1)
    return refuse(c, 505, "HTTP/1.1 and 1.0 are spoken here; a proxy can speak others");
  if (parser->method == HTTP_CONNECT)
    return refuse(c, 405, "CONNECT is for proxies");
  if (take_host(c, x) != 0 || take_target(c, x) != 0)
    return -1;
  bool has_length = (parser->flags & F_CONTENTLENGTH) != 0;
  if (has_length && parser->content_length > c->http->options.max_body)
    return refuse(c, 413, "the request's body is larger than --max-body allows");
  const char *expect = iso_http_header(x, "Expect");
  if (expect && strcasecmp(expect, "100-continue") == 0 && !x->old_protocol) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    bufferevent_write(c->events, go_on, sizeof go_on - 1);
  }
  return 0;
}

static int on_body(http_parser *parser, const char *at, size_t length) {
  iso_http_connection *c = parser->data;
  iso_exchange *x = c->exchange;
  if (x->body_length + length > SMALL_BODY &&
      c->http->body_bytes > BODIES_AT_ONCE * c->http->options.max_body)
    return refuse(c, 503, "too many large requests at once");
  if (!append(&x->body, &x->body_length, &x->body_capacity, at, length, c->http->options.max_body))
    return refuse(c, 413, "the request's body is larger than --max-body allows");
  c->http->body_bytes += length;
  return 0;
}

static int on_message_complete(http_parser *parser) {
  iso_http_connection *c = parser->data;
  c->complete = true;
  http_parser_pause(parser, 1);
  return 0;
}

static const http_parser_settings parser_settings = {
    .on_message_begin = on_message_begin,
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

static void start_answer(iso_http_connection *c) {
  set_deadline(c, 0);
  c->state = ANSWERING;
  c->http->n_exchanges++;
}

static void hand_over_refusal(iso_http_connection *c) {
  enum http_errno error = HTTP_PARSER_ERRNO(&c->parser);
  if (!c->refused_status && error == HPE_HEADER_OVERFLOW)
    refuse(c, 431, "the request's headers are too large");
  else if (!c->refused_status)
    refuse(c, 400, http_errno_description(error));
  if (!c->exchange && !(c->exchange = begin_exchange(c))) {
    iso_http_connection_destroy(c);
    return;
  }
  iso_exchange *x = c->exchange;
  if (!x->path && !(x->path = strdup(""))) {
    iso_http_connection_destroy(c);
    return;
  }
  x->keep_alive = false;
  c->linger = true;
  start_answer(c);
  c->http->handler.on_refused(c->http->handler.context, x, c->refused_status, c->refusal);
}

/* Whether a header is continued on a further line. Servers and proxies disagree on what that means,
 * so that one may see a request where another sees a value; RFC 9112, 5.2, has it refused. */
static bool is_folded(iso_http_connection *c, const char *bytes, size_t count) {
  for (size_t i = 0; i < count && c->place != AFTER_HEAD; i++) {
    bool ends_line = bytes[i] == '\n', empty = ends_line || bytes[i] == '\r';
    if (c->place == AT_LINE && (bytes[i] == ' ' || bytes[i] == '\t'))
      return true;
    if (c->place == BEFORE_HEAD)
      c->place = empty ? BEFORE_HEAD : IN_LINE;
    else if (c->place == AT_LINE)
      c->place = empty ? AFTER_HEAD : IN_LINE;
    else if (ends_line)
      c->place = AT_LINE;
  }
  return false;
}

static void close_after_flush(iso_http_connection *c);

/* Parses what has arrived, request after request, for as long as they are answered at once. */
static void feed(iso_http_connection *c) {
  if (c->feeding)
    return;
  c->feeding = true;
  struct evbuffer *input = bufferevent_get_input(c->events);
  while (c->state == RECEIVING && evbuffer_get_length(input) > 0) {
    struct evbuffer_iovec piece;
    evbuffer_peek(input, -1, NULL, &piece, 1);
    if (is_folded(c, piece.iov_base, piece.iov_len)) {
      c->feeding = false;
      refuse(c, 400, "a header is continued on a further line");
      hand_over_refusal(c);
      return;
    }
    size_t used = http_parser_execute(&c->parser, &parser_settings, piece.iov_base, piece.iov_len);
    if (c->complete) {
      c->complete = false;
      c->place = BEFORE_HEAD;
      http_parser_pause(&c->parser, 0);
      evbuffer_drain(input, used);
      start_answer(c);
      c->http->handler.on_request(c->http->handler.context, c->exchange);
    } else if (HTTP_PARSER_ERRNO(&c->parser) != HPE_OK) {
      c->feeding = false;
      hand_over_refusal(c);
      return;
    } else {
      evbuffer_drain(input, used);
    }
  }
  c->feeding = false;
  if (c->ended && c->state == RECEIVING)
    close_after_flush(c);
}

/* ---- Events ---- */

static void close_after_flush(iso_http_connection *c) {
  c->state = FLUSHING;
  set_deadline(c, 0);
  bufferevent_setwatermark(c->events, EV_WRITE, 0, 0);
  /* Even with nothing left to send: whoever is on the stack still holds the connection. */
  bufferevent_trigger(c->events, EV_WRITE, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

static void on_readable(struct bufferevent *events, void *context) {
  iso_http_connection *c = context;
  if (c->state == LINGERING || c->state == FLUSHING) {
    struct evbuffer *input = bufferevent_get_input(events);
    evbuffer_drain(input, evbuffer_get_length(input));
  } else {
    feed(c);
  }
}

static void on_writable(struct bufferevent *events, void *context) {
  iso_http_connection *c = context;
  size_t pending = evbuffer_get_length(bufferevent_get_output(events));
  if (c->state == ANSWERING && c->exchange->on_drain && pending <= ISO_HTTP_LOW_MARK)
    c->exchange->on_drain(c->exchange);
  if (c->state != FLUSHING || pending > 0)
    return;
  if (!c->linger) {
    iso_http_connection_destroy(c);
    return;
  }
  shutdown(bufferevent_getfd(events), SHUT_WR);
  c->state = LINGERING;
  set_deadline(c, LINGER_SECONDS);
  on_readable(events, c);
  bufferevent_enable(events, EV_READ);
}

/* While an answer is under way: has the client that ended its half gone altogether? What it no
 * longer takes is answered with a reset. Until the answer starts there is nothing to send but "100
 * Continue", which clients must skip (RFC 9110, 15.2); HTTP/1.0 has not even that. */
static void probe(iso_http_connection *c) {
  static const char nothing[] = "HTTP/1.1 100 Continue\r\n\r\n";
  struct pollfd socket = {.fd = bufferevent_getfd(c->events)};
  if (poll(&socket, 1, 0) > 0 && socket.revents & (POLLHUP | POLLERR)) {
    iso_http_connection_destroy(c);
    return;
  }
  if (!c->exchange->status && !c->exchange->old_protocol)
    bufferevent_write(c->events, nothing, sizeof nothing - 1);
  set_deadline(c, c->probe_seconds);
  c->probe_seconds = c->probe_seconds < 0.5 ? 2 * c->probe_seconds : 1;
}

static void on_event(struct bufferevent *events, short what, void *context) {
  iso_http_connection *c = context;
  bool ended_by_client =
      (what & BEV_EVENT_EOF) && (what & BEV_EVENT_READING) && !(what & BEV_EVENT_ERROR);
  bool unsent = evbuffer_get_length(bufferevent_get_output(events)) > 0;
  if (ended_by_client && c->state == ANSWERING) {
    c->ended = true;
    c->probe_seconds = 0.01;
    probe(c);
    return;
  }
  if (ended_by_client && unsent && c->state != LINGERING) {
    /* It asked, and said that it will ask no more: the answer still goes out. */
    c->linger = false;
    bufferevent_disable(events, EV_READ);
    close_after_flush(c);
    return;
  }
  iso_http_connection_destroy(c);
}

static void on_deadline(evutil_socket_t descriptor, short what, void *context) {
  iso_http_connection *c = context;
  (void)descriptor, (void)what;
  if (c->state == RECEIVING && c->exchange) {
    refuse(c, 408, "the request did not arrive in time");
    hand_over_refusal(c);
  } else if (c->state == ANSWERING) {
    probe(c);
  } else {
    iso_http_connection_destroy(c);
  }
}

static void format_address(const struct sockaddr *address, char *out, size_t capacity) {
  char host[INET6_ADDRSTRLEN] = "?";
  int port = 0;
  if (address->sa_family == AF_INET) {
    const struct sockaddr_in *in = (const struct sockaddr_in *)address;
    inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
    port = ntohs(in->sin_port);
  } else if (address->sa_family == AF_INET6) {
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)address;
    inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
    port = ntohs(in->sin6_port);
  }
  snprintf(out, capacity, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
}

void iso_http_connection_create(iso_http *http, evutil_socket_t descriptor,
                                const struct sockaddr *address) {
  int one = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  evutil_make_socket_nonblocking(descriptor);
  iso_http_connection *c = calloc(1, sizeof *c);
  struct bufferevent *events =
      c ? bufferevent_socket_new(http->base, descriptor, BEV_OPT_CLOSE_ON_FREE) : NULL;
  if (!events) {
    free(c);
    evutil_closesocket(descriptor);
    return;
  }
  c->http = http;
  c->events = events;
  http_parser_init(&c->parser, HTTP_REQUEST);
  c->parser.data = c;
  format_address(address, c->remote, sizeof c->remote);
  evtimer_assign(&c->deadline, http->base, on_deadline, c);
  set_deadline(c, http->options.idle_seconds);
  struct timeval send_limit = {.tv_sec = (time_t)http->options.send_seconds};
  bufferevent_set_timeouts(events, NULL, send_limit.tv_sec ? &send_limit : NULL);
  bufferevent_setwatermark(events, EV_READ, 0, INPUT_LIMIT);
  bufferevent_setwatermark(events, EV_WRITE, ISO_HTTP_LOW_MARK, 0);
  bufferevent_setcb(events, on_readable, on_writable, on_event, c);
  LIST_INSERT_HEAD(&http->connections, c, link);
  http->n_connections++;
  bufferevent_enable(events, EV_READ | EV_WRITE);
}

void iso_http_connection_destroy(iso_http_connection *c) {
  if (c->exchange) {
    iso_exchange *x = c->exchange;
    if (c->state == ANSWERING) {
      if (!x->status)
        x->status = 499;
      if (x->on_close)
        x->on_close(x);
    }
    end_exchange(c);
  }
  LIST_REMOVE(c, link);
  c->http->n_connections--;
  evtimer_del(&c->deadline);
  bufferevent_free(c->events);
  free(c->target);
  free(c);
}

void iso_http_connection_close_if_idle(iso_http_connection *c) {
  if (c->state == RECEIVING && evbuffer_get_length(bufferevent_get_output(c->events)) == 0)
    iso_http_connection_destroy(c);
}

iso_http_connection *iso_http_connection_next(iso_http_connection *c) { return LIST_NEXT(c, link); }

/* ---- Answers ---- */

void iso_http_add_header(iso_exchange *x, const char *name, const char *value) {
  size_t old = x->extra_headers ? strlen(x->extra_headers) : 0;
  size_t more = strlen(name) + strlen(value) + 5;
  char *grown = realloc(x->extra_headers, old + more);
  if (!grown)
    return;
  x->extra_headers = grown;
  snprintf(grown + old, more, "%s: %s\r\n", name, value);
}

static void write_bytes(iso_exchange *x, const char *data, size_t length) {
  bufferevent_write(x->connection->events, data, length);
  x->bytes_sent += length;
}

/* `framing` is a header line. */
static void write_head(iso_exchange *x, int status, const char *content_type, const char *framing) {
  x->status = status;
  if (x->connection->http->draining)
    x->keep_alive = false;
  evbuffer_add_printf(bufferevent_get_output(x->connection->events),
                      "HTTP/1.1 %d %s\r\n%s%s%s%s%sX-Request-Id: %s\r\n%s\r\n", status,
                      http_status_str((enum http_status)status),
                      content_type ? "Content-Type: " : "", content_type ? content_type : "",
                      content_type ? "\r\n" : "", framing,
                      x->keep_alive ? (x->old_protocol ? "Connection: keep-alive\r\n" : "")
                                    : "Connection: close\r\n",
                      x->id, x->extra_headers ? x->extra_headers : "");
}

static void finish(iso_exchange *x) {
  iso_http_connection *c = x->connection;
  bool keep_alive = x->keep_alive;
  end_exchange(c);
  if (!keep_alive) {
    close_after_flush(c);
    return;
  }
  c->state = RECEIVING;
  set_deadline(c, c->http->options.idle_seconds);
  feed(c);
}

void iso_http_respond(iso_exchange *x, int status, const char *content_type, const char *body,
                      size_t length) {
  char framing[64] = "";
  if (status != 204)
    snprintf(framing, sizeof framing, "Content-Length: %zu\r\n", length);
  write_head(x, status, content_type, framing);
  if (x->method != ISO_HTTP_HEAD && status != 204)
    write_bytes(x, body, length);
  finish(x);
}

void iso_http_stream_begin(iso_exchange *x, int status, const char *content_type) {
  x->chunked = !x->old_protocol;
  x->keep_alive = x->keep_alive && x->chunked;
  write_head(x, status, content_type,
             x->chunked ? "Transfer-Encoding: chunked\r\nCache-Control: no-store\r\n"
                        : "Cache-Control: no-store\r\n");
}

/* What the socket takes of the pieces at once. Nothing while earlier bytes wait. */
static size_t send_now(iso_http_connection *c, struct iovec *pieces, size_t n) {
  if (evbuffer_get_length(bufferevent_get_output(c->events)) > 0)
    return 0;
  const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = n};
  ssize_t sent = sendmsg(bufferevent_getfd(c->events), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent > 0 ? (size_t)sent : 0; /* the event loop meets a failure again, and tells it */
}

/* A token's bytes mostly fit the socket's buffer: one system call, where to be told that the socket
 * is writable and to stop being told takes two more. */
void iso_http_stream_write(iso_exchange *x, const char *data, size_t length) {
  if (length == 0)
    return;
  char size[24] = "";
  int size_length = x->chunked ? snprintf(size, sizeof size, "%zx\r\n", length) : 0;
  struct iovec pieces[] = {{size, (size_t)size_length},
                           {(void *)(uintptr_t)data, length},
                           {(void *)(uintptr_t) "\r\n", x->chunked ? 2 : 0}};
  enum { N_PIECES = sizeof pieces / sizeof *pieces };
  struct evbuffer *output = bufferevent_get_output(x->connection->events);
  size_t sent = send_now(x->connection, pieces, N_PIECES);
  for (size_t i = 0; i < N_PIECES; i++) {
    size_t gone = sent < pieces[i].iov_len ? sent : pieces[i].iov_len;
    sent -= gone;
    if (gone < pieces[i].iov_len)
      evbuffer_add(output, (char *)pieces[i].iov_base + gone, pieces[i].iov_len - gone);
  }
  x->bytes_sent += length;
}

void iso_http_stream_end(iso_exchange *x) {
  if (x->chunked)
    evbuffer_add(bufferevent_get_output(x->connection->events), "0\r\n\r\n", 5);
  finish(x);
}

void iso_http_stream_abort(iso_exchange *x) {
  x->keep_alive = false;
  finish(x);
}

size_t iso_http_pending(const iso_exchange *x) {
  return evbuffer_get_length(bufferevent_get_output(x->connection->events));
}
