#include "server/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const iso_route_row iso_routes[] = {
#define ISO_ROUTE(METHOD, path, handler, access, body, summary)                                    \
  {path,                                                                                           \
   #METHOD,                                                                                        \
   summary,                                                                                        \
   ISO_HTTP_##METHOD,                                                                              \
   ISO_ACCESS_##access,                                                                            \
   ISO_ROUTE_BODY_##body,                                                                          \
   iso_handle_##handler},
#include "server/routes.def"
#undef ISO_ROUTE
};
const int iso_route_count = (int)(sizeof iso_routes / sizeof *iso_routes);

static void refuse(iso_server *server, iso_exchange *exchange, int status, const char *code,
                   const char *message) {
  iso_api_error refusal;
  iso_refuse(&refusal, status, NULL, code, "%s", message);
  iso_respond_refusal(server, exchange, &refusal);
}

/* ---- Who asks ---- */

/* NULL: who asks may. Else why not. */
static const char *refuse_key(const iso_server *server, const iso_exchange *exchange) {
  const iso_server_options *options = &server->options;
  const char *header = iso_http_header(exchange, "Authorization");
  if (options->n_api_keys == 0)
    return NULL;
  if (!header || strncasecmp(header, "Bearer ", 7) != 0)
    return "an API key is needed: Authorization: Bearer KEY";
  return iso_api_key_matches(options->api_keys, options->n_api_keys, header + 7)
             ? NULL
             : "the API key in Authorization is none of this server's";
}

/* A page of the server itself has the same host in both headers. */
static bool is_same_origin(const iso_exchange *exchange, const char *origin) {
  const char *name = strstr(origin, "://");
  return exchange->host && name && strcasecmp(name + 3, exchange->host) == 0;
}

static bool is_allowed_origin(const iso_server *server, const char *origin) {
  for (int i = 0; i < server->options.n_cors_origins; i++)
    if (strcmp(server->options.cors_origins[i], "*") == 0 ||
        strcasecmp(server->options.cors_origins[i], origin) == 0)
      return true;
  return false;
}

/* The headers that a page wants to send: any, for none gives it rights that it has not by its
 * origin, and clients have many of their own, such as OpenAI's X-Stainless-Lang. */
static const char *headers_to_allow(const iso_exchange *exchange) {
  static const char of_names[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                 "0123456789!#$%&'*+-.^_`|~, ";
  const char *wanted = iso_http_header(exchange, "Access-Control-Request-Headers");
  return wanted && *wanted && !wanted[strspn(wanted, of_names)]
             ? wanted
             : "Authorization, Content-Type, X-Request-Id";
}

/* Tells the browser what pages of other origins may do. */
static void add_cors_headers(iso_exchange *exchange, const char *origin) {
  iso_http_add_header(exchange, "Access-Control-Allow-Origin", origin);
  iso_http_add_header(exchange, "Vary", "Origin");
  if (exchange->method != ISO_HTTP_OPTIONS) {
    iso_http_add_header(exchange, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    return;
  }
  iso_http_add_header(exchange, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  iso_http_add_header(exchange, "Access-Control-Allow-Headers", headers_to_allow(exchange));
  iso_http_add_header(exchange, "Access-Control-Max-Age", "600");
}

/* ---- Where it goes ---- */

static bool matches(const char *pattern, const char *path) {
  size_t fixed = strcspn(pattern, "{");
  return strncmp(pattern, path, fixed) == 0 && (pattern[fixed] == 0) == (path[fixed] == 0);
}

static const iso_route_row *find(const iso_exchange *exchange, iso_http_method method) {
  for (int i = 0; i < iso_route_count; i++)
    if (iso_routes[i].method == method && matches(iso_routes[i].path, exchange->path))
      return &iso_routes[i];
  return NULL;
}

static void refuse_route(iso_server *server, iso_exchange *exchange) {
  static const char both[] = "GET, HEAD, POST, OPTIONS";
  bool get = find(exchange, ISO_HTTP_GET) != NULL, post = find(exchange, ISO_HTTP_POST) != NULL;
  if (exchange->method == ISO_HTTP_OPTIONS && strcmp(exchange->path, "*") == 0) {
    iso_http_add_header(exchange, "Allow", both); /* of the server as a whole */
    iso_http_respond(exchange, 204, NULL, "", 0);
    return;
  }
  if (!get && !post) {
    refuse(server, exchange, 404, "unknown_url",
           "there is no such address; /openapi.json lists all");
    return;
  }
  iso_http_add_header(exchange, "Allow",
                      get && post ? both
                      : get       ? "GET, HEAD, OPTIONS"
                                  : "POST, OPTIONS");
  if (exchange->method == ISO_HTTP_OPTIONS)
    iso_http_respond(exchange, 204, NULL, "", 0);
  else
    refuse(server, exchange, 405, "method_not_allowed",
           get && post ? "this address answers GET and POST"
           : get       ? "this address answers GET"
                       : "this address answers POST");
}

/* Bodies are taken as they are: none that is packed. */
static bool is_plain(const iso_exchange *exchange) {
  const char *encoding = iso_http_header(exchange, "Content-Encoding");
  return !encoding || strcasecmp(encoding, "identity") == 0;
}

static bool is_json(const iso_exchange *exchange) {
  static const char json[] = "application/json";
  const char *type = iso_http_header(exchange, "Content-Type");
  return !type || (strncasecmp(type, json, strlen(json)) == 0 &&
                   strchr("; \t", type[strlen(json)])); /* or the end */
}

void iso_route(iso_server *server, iso_exchange *exchange) {
  const char *origin = iso_http_header(exchange, "Origin");
  bool foreign = origin && !is_same_origin(exchange, origin);
  iso_record *record = exchange->record;
  if (foreign && is_allowed_origin(server, origin)) {
    add_cors_headers(exchange, origin);
    foreign = false;
  }
  if (!iso_host_is_allowed(&server->options, iso_http_is_loopback(server->http), exchange->host)) {
    refuse(server, exchange, 403, "host_not_allowed",
           "the server does not go by the name in the request's Host; --allowed-host adds names");
    return;
  }
  iso_http_method method = exchange->method == ISO_HTTP_HEAD ? ISO_HTTP_GET : exchange->method;
  const iso_route_row *route = find(exchange, method);
  if (!route) {
    refuse_route(server, exchange);
    return;
  }
  if (record)
    record->route = route->path;
  const char *no_key = route->access == ISO_ACCESS_KEYED ? refuse_key(server, exchange) : NULL;
  if (no_key) {
    iso_http_add_header(exchange, "WWW-Authenticate", "Bearer");
    refuse(server, exchange, 401, "invalid_api_key", no_key);
  } else if (foreign && method == ISO_HTTP_POST) {
    refuse(server, exchange, 403, "origin_not_allowed",
           "pages of this origin may not ask; --cors-origin allows them");
  } else if (method == ISO_HTTP_POST && !is_json(exchange)) {
    refuse(server, exchange, 415, "unsupported_media_type",
           "the body must be JSON: Content-Type: application/json");
  } else if (method == ISO_HTTP_POST && !is_plain(exchange)) {
    refuse(server, exchange, 415, "unsupported_media_type",
           "the body must not be compressed: no Content-Encoding");
  } else if (method == ISO_HTTP_POST && !server->engine) {
    refuse(server, exchange, 503, "loading", "the model is being loaded");
  } else {
    route->handle(server, exchange);
  }
}

/* ---- Jobs ---- */

void iso_handle_chat(iso_server *server, iso_exchange *exchange) {
  iso_job_start(server, exchange, &iso_format_chat, false);
}
void iso_handle_completions(iso_server *server, iso_exchange *exchange) {
  iso_job_start(server, exchange, &iso_format_completion, false);
}
void iso_handle_embeddings(iso_server *server, iso_exchange *exchange) {
  iso_job_start(server, exchange, &iso_format_embedding, false);
}

/* Which dialect a body speaks is seen before it is parsed: TGI's has a member "inputs". A text that
 * merely mentions it has it escaped: \"inputs\". */
static const iso_format *dialect(const iso_exchange *exchange) {
  static const char member[] = "\"inputs\"";
  const char *at = exchange->body ? exchange->body : "";
  while ((at = strstr(at, member))) {
    const char *next = at + strlen(member);
    next += strspn(next, " \t\r\n");
    if (*next == ':' && (at == exchange->body || at[-1] != '\\'))
      return &iso_format_tgi;
    at = next;
  }
  return &iso_format_vllm;
}
void iso_handle_generate(iso_server *server, iso_exchange *exchange) {
  iso_job_start(server, exchange, dialect(exchange), false);
}
void iso_handle_generate_stream(iso_server *server, iso_exchange *exchange) {
  iso_job_start(server, exchange, dialect(exchange), true);
}
void iso_handle_generate_root(iso_server *server, iso_exchange *exchange) {
  iso_job_start(server, exchange, &iso_format_tgi_root, false);
}
