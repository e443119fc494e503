/* What the server says about itself: /health, /info, /metrics, /v1/models and the page. */
#include "server/routes.h"

#include "server/tool_calls.h"
#include "server/ui/page.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char *state_of(iso_server *server) {
  if (server->draining)
    return "draining";
  if (!server->engine)
    return "loading";
  return iso_engine_health(server->engine) == ISO_OK ? "ready" : "failed";
}

static int status_of(const char *state) { return strcmp(state, "ready") == 0 ? 200 : 503; }

static void write_load(iso_server *server, iso_json_writer *w) {
  iso_engine_stats stats;
  if (!server->engine)
    return;
  iso_engine_get_stats(server->engine, &stats);
  iso_json_string(w, "runs_on", iso_engine_describe(server->engine));
  iso_json_int(w, "running", stats.n_running);
  iso_json_int(w, "waiting", stats.n_waiting);
  iso_json_number(w, "kv_pages_used", stats.n_pages_used);
  iso_json_number(w, "kv_pages", stats.n_pages);
}

void iso_handle_health(iso_server *server, iso_exchange *exchange) {
  const char *state = state_of(server);
  iso_json_writer w = {0};
  iso_json_begin(&w, NULL, '{');
  iso_json_string(&w, "status", state);
  if (strcmp(state, "failed") == 0)
    iso_json_string(&w, "reason", iso_status_message());
  write_load(server, &w);
  iso_json_end(&w, '}');
  iso_respond_json(server, exchange, status_of(state), &w);
}

void iso_handle_live(iso_server *server, iso_exchange *exchange) {
  (void)server;
  iso_http_respond(exchange, 200, "text/plain", "live\n", 5);
}

void iso_handle_ready(iso_server *server, iso_exchange *exchange) {
  const char *state = state_of(server);
  char line[32];
  int length = snprintf(line, sizeof line, "%s\n", state);
  iso_http_respond(exchange, status_of(state), "text/plain", line, (size_t)length);
}

void iso_handle_metrics(iso_server *server, iso_exchange *exchange) {
  iso_printer text = {0};
  iso_metrics_print(&server->metrics, server->engine, iso_http_connection_count(server->http),
                    iso_http_exchange_count(server->http), &text);
  iso_http_respond(exchange, text.failed ? 503 : 200, "text/plain; version=0.0.4; charset=utf-8",
                   text.data ? text.data : "", text.failed ? 0 : text.size);
  free(text.data);
}

const char *iso_served_name(const iso_server *server, int32_t adapter) {
  return adapter > 0 ? server->options.adapter_names[adapter - 1] : server->options.model_name;
}

bool iso_find_served(const iso_server *server, const char *name, int32_t *out_adapter,
                     iso_api_error *refusal) {
  for (int32_t i = 0; i <= server->options.n_adapters; i++)
    if (strcmp(name, iso_served_name(server, i)) == 0) {
      *out_adapter = i;
      return true;
    }
  return iso_refuse(refusal, 404, "model", "model_not_found",
                    "the model '%.200s' is not served here; '%s' is%s", name,
                    server->options.model_name,
                    server->options.n_adapters > 0 ? ", and what else /v1/models lists" : "");
}

static void write_model(iso_server *server, int32_t adapter, iso_json_writer *w) {
  const iso_engine_options *options = iso_engine_get_options(server->engine);
  iso_json_begin(w, NULL, '{');
  iso_json_string(w, "id", iso_served_name(server, adapter));
  iso_json_string(w, "object", "model");
  iso_json_int(w, "created", (int64_t)server->started);
  iso_json_string(w, "owned_by", "isomer");
  if (adapter > 0)
    iso_json_string(w, "parent", server->options.model_name);
  iso_json_int(w, "max_model_len", options->runtime.context);
  iso_json_end(w, '}');
}

void iso_handle_models(iso_server *server, iso_exchange *exchange) {
  iso_json_writer w = {0};
  iso_json_begin(&w, NULL, '{');
  iso_json_string(&w, "object", "list");
  iso_json_begin(&w, "data", '[');
  for (int32_t i = 0; server->engine && i <= server->options.n_adapters; i++)
    write_model(server, i, &w);
  iso_json_end(&w, ']');
  iso_json_end(&w, '}');
  iso_respond_json(server, exchange, 200, &w);
}

static int hex_digit(char c) {
  return c >= '0' && c <= '9'                 ? c - '0'
         : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                              : -1;
}

/* Undoes %41 and the like; the text gets no longer. */
static void decode_percent(char *text) {
  char *out = text;
  for (const char *at = text; *at; at++) {
    int high = *at == '%' ? hex_digit(at[1]) : -1, low = high >= 0 ? hex_digit(at[2]) : -1;
    *out++ = low >= 0 ? (char)(16 * high + low) : *at;
    at += low >= 0 ? 2 : 0;
  }
  *out = 0;
}

void iso_handle_model(iso_server *server, iso_exchange *exchange) {
  iso_api_error refusal;
  int32_t adapter = 0;
  char *name = exchange->path + strlen("/v1/models/");
  decode_percent(name);
  if (!server->engine) {
    iso_refuse(&refusal, 503, NULL, "loading", "the model is being loaded");
    iso_respond_refusal(server, exchange, &refusal);
  } else if (!iso_find_served(server, name, &adapter, &refusal)) {
    iso_respond_refusal(server, exchange, &refusal);
  } else {
    iso_json_writer w = {0};
    write_model(server, adapter, &w);
    iso_respond_json(server, exchange, 200, &w);
  }
}

void iso_handle_info(iso_server *server, iso_exchange *exchange) {
  iso_json_writer w = {0};
  iso_json_begin(&w, NULL, '{');
  iso_json_string(&w, "version", ISO_VERSION_STRING);
  iso_json_string(&w, "model_id", server->options.model_name);
  iso_json_string(&w, "status", state_of(server));
  if (server->engine) {
    const iso_model_config *config = iso_model_get_config(server->model);
    const iso_engine_options *options = iso_engine_get_options(server->engine);
    write_load(server, &w);
    iso_json_string(&w, "architecture", config->architecture);
    iso_json_int(&w, "vocabulary_size", config->vocabulary_size);
    iso_json_int(&w, "trained_context", config->context_length);
    iso_json_int(&w, "max_total_tokens", options->runtime.context);
    iso_json_int(&w, "max_batch_tokens", options->runtime.max_tokens);
    iso_json_int(&w, "max_concurrent_requests", options->runtime.max_sequences);
    iso_json_int(&w, "max_queue", options->max_queue);
    iso_json_int(&w, "page_size", options->runtime.page_size);
    iso_json_bool(&w, "prefix_cache", !options->no_prefix_cache);
    iso_json_string(&w, "batching",
                    options->batching == ISO_BATCHING_STATIC ? "static" : "continuous");
    iso_json_string(&w, "tool_calls", server->tool_format ? server->tool_format->name : NULL);
    iso_json_bool(&w, "chat_template", iso_model_get_chat_template(server->model) != NULL);
  }
  iso_json_int(&w, "connections", iso_http_connection_count(server->http));
  iso_json_number(&w, "uptime_seconds", (double)(time(NULL) - server->started));
  iso_json_end(&w, '}');
  iso_respond_json(server, exchange, 200, &w);
}

/* The page's script runs because it carries a word that is new each time; nothing that gets into
 * the page otherwise can know it. */
void iso_handle_page(iso_server *server, iso_exchange *exchange) {
  static const char place[] = "@NONCE@";
  unsigned char random[16];
  char nonce[2 * sizeof random + 1], policy[320];
  const char *at = strstr(iso_ui_page, place);
  iso_printer page = {0};
  bool ok = at && getrandom(random, sizeof random, 0) == (ssize_t)sizeof random;
  if (ok) {
    for (size_t i = 0; i < sizeof random; i++)
      snprintf(nonce + 2 * i, 3, "%02x", random[i]);
    iso_printer_append(&page, iso_ui_page, (size_t)(at - iso_ui_page));
    iso_printer_append(&page, nonce, strlen(nonce));
    at += strlen(place);
    iso_printer_append(&page, at, iso_ui_page_length - (size_t)(at - iso_ui_page));
  }
  if (!ok || page.failed) {
    iso_api_error refusal;
    iso_refuse(&refusal, 503, NULL, "overloaded", "the system gives no memory or no random bytes");
    iso_respond_refusal(server, exchange, &refusal);
  } else {
    snprintf(policy, sizeof policy,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'unsafe-inline'; "
             "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
             "frame-ancestors 'none'",
             nonce);
    iso_http_add_header(exchange, "Content-Security-Policy", policy);
    iso_http_add_header(exchange, "X-Content-Type-Options", "nosniff");
    iso_http_add_header(exchange, "Referrer-Policy", "no-referrer");
    iso_http_respond(exchange, 200, "text/html; charset=utf-8", page.data, page.size);
  }
  free(page.data);
}
