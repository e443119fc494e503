/* /openapi.json, from the tables of routes and fields. */
#include "server/routes.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Schemas that differ from a list of fields. */
static void write_error_schema(iso_json_writer *w) {
  static const char *const members[] = {"message", "type", "param", "code"};
  iso_json_begin(w, "Error", '{');
  iso_json_string(w, "type", "object");
  iso_json_begin(w, "required", '[');
  iso_json_string(w, NULL, "error");
  iso_json_end(w, ']');
  iso_json_begin(w, "properties", '{');
  iso_json_begin(w, "error", '{');
  iso_json_string(w, "type", "object");
  iso_json_begin(w, "required", '[');
  for (int i = 0; i < 4; i++)
    iso_json_string(w, NULL, members[i]);
  iso_json_end(w, ']');
  iso_json_begin(w, "properties", '{');
  for (int i = 0; i < 4; i++) {
    iso_json_begin(w, members[i], '{');
    iso_json_begin(w, "type", '[');
    iso_json_string(w, NULL, "string");
    if (i >= 2)
      iso_json_string(w, NULL, "null");
    iso_json_end(w, ']');
    iso_json_end(w, '}');
  }
  iso_json_end(w, '}');
  iso_json_end(w, '}');
  iso_json_end(w, '}');
  iso_json_end(w, '}');
}

static const char *const schema_names[ISO_BODY_COUNT] = {
    [ISO_BODY_CHAT] = "ChatRequest",
    [ISO_BODY_COMPLETION] = "CompletionRequest",
    [ISO_BODY_VLLM] = "GenerateRequest",
    [ISO_BODY_TGI] = "GenerateInputsRequest",
    [ISO_BODY_TGI_PARAMETERS] = "GenerateParameters",
    [ISO_BODY_EMBEDDING] = "EmbeddingRequest",
    [ISO_BODY_TOKENIZE] = "TokenizeRequest",
    [ISO_BODY_DETOKENIZE] = "DetokenizeRequest"};

static void write_reference(iso_json_writer *w, const char *key, const char *schema) {
  char reference[96];
  snprintf(reference, sizeof reference, "#/components/schemas/%s", schema);
  iso_json_begin(w, key, '{');
  iso_json_string(w, "$ref", reference);
  iso_json_end(w, '}');
}

static void write_response(iso_json_writer *w, const char *status, const char *description,
                           const char *media, const char *schema) {
  iso_json_begin(w, status, '{');
  iso_json_string(w, "description", description);
  if (media) {
    iso_json_begin(w, "content", '{');
    iso_json_begin(w, media, '{');
    if (schema)
      write_reference(w, "schema", schema);
    iso_json_end(w, '}');
    if (strcmp(status, "200") == 0 && strcmp(media, "application/json") == 0) {
      iso_json_begin(w, "text/event-stream", '{');
      iso_json_end(w, '}');
    }
    iso_json_end(w, '}');
  }
  iso_json_end(w, '}');
}

static void write_operation(iso_json_writer *w, const iso_route_row *route) {
  static const struct {
    const char *status, *description;
  } refusals[] = {{"400", "The request is malformed, or asks for what is not there"},
                  {"403", "Another origin's page asked, or the name in Host is not the server's"},
                  {"404", "A model was asked for that is not served"},
                  {"413", "The body is too large"},
                  {"415", "The body is not JSON"},
                  {"429", "The queue is full"},
                  {"500", "The device failed"},
                  {"503", "Loading, shutting down, or out of memory"},
                  {"504", "The time limit of a request has passed"}};
  bool post = route->method == ISO_HTTP_POST;
  const char *variable = strchr(route->path, '{');
  char method[8] = "";
  for (size_t i = 0; route->method_name[i] && i < sizeof method - 1; i++)
    method[i] = (char)tolower((unsigned char)route->method_name[i]);
  iso_json_begin(w, method, '{');
  iso_json_string(w, "summary", route->summary);
  if (route->access == ISO_ACCESS_OPEN) {
    iso_json_begin(w, "security", '[');
    iso_json_end(w, ']');
  }
  if (variable) {
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(variable + 1, "}"), variable + 1);
    iso_json_begin(w, "parameters", '[');
    iso_json_begin(w, NULL, '{');
    iso_json_string(w, "name", name);
    iso_json_string(w, "in", "path");
    iso_json_bool(w, "required", true);
    iso_json_raw(w, "schema", "{\"type\":\"string\"}");
    iso_json_end(w, '}');
    iso_json_end(w, ']');
  }
  if (post) {
    iso_json_begin(w, "requestBody", '{');
    iso_json_bool(w, "required", true);
    iso_json_begin(w, "content", '{');
    iso_json_begin(w, "application/json", '{');
    if (route->body == ISO_BODY_VLLM) {
      iso_json_begin(w, "schema", '{');
      iso_json_begin(w, "anyOf", '[');
      write_reference(w, NULL, schema_names[ISO_BODY_VLLM]);
      write_reference(w, NULL, schema_names[ISO_BODY_TGI]);
      iso_json_end(w, ']');
      iso_json_end(w, '}');
    } else {
      write_reference(w, "schema", schema_names[route->body]);
    }
    iso_json_end(w, '}');
    iso_json_end(w, '}');
    iso_json_end(w, '}');
  }
  bool text = strcmp(route->path, "/metrics") == 0 || strncmp(route->path, "/health/", 8) == 0;
  iso_json_begin(w, "responses", '{');
  write_response(w, "200", "The answer",
                 !post && strcmp(route->path, "/") == 0 ? "text/html"
                 : text                                 ? "text/plain"
                                                        : "application/json",
                 NULL);
  for (size_t i = 0; post && i < sizeof refusals / sizeof *refusals; i++)
    write_response(w, refusals[i].status, refusals[i].description, "application/json", "Error");
  if (variable) {
    write_response(w, "404", "A model was asked for that is not served", "application/json",
                   "Error");
    write_response(w, "503", "Loading", "application/json", "Error");
  }
  if (route->access == ISO_ACCESS_KEYED)
    write_response(w, "401", "An API key is needed", "application/json", "Error");
  if (!post && strncmp(route->path, "/health", 7) == 0)
    write_response(w, "503", "Not ready", text ? "text/plain" : "application/json", NULL);
  iso_json_end(w, '}');
  iso_json_end(w, '}');
}

void iso_handle_openapi(iso_server *server, iso_exchange *exchange) {
  iso_json_writer w = {0};
  iso_json_begin(&w, NULL, '{');
  iso_json_string(&w, "openapi", "3.1.0");
  iso_json_begin(&w, "info", '{');
  iso_json_string(&w, "title", "Isomer");
  iso_json_string(&w, "version", ISO_VERSION_STRING);
  iso_json_end(&w, '}');
  iso_json_begin(&w, "paths", '{');
  for (int i = 0; i < iso_route_count; i++) {
    const char *path = iso_routes[i].path;
    if (i == 0 || strcmp(path, iso_routes[i - 1].path) != 0)
      iso_json_begin(&w, path, '{');
    write_operation(&w, &iso_routes[i]);
    if (i + 1 == iso_route_count || strcmp(path, iso_routes[i + 1].path) != 0)
      iso_json_end(&w, '}');
  }
  iso_json_end(&w, '}');
  iso_json_begin(&w, "components", '{');
  iso_json_begin(&w, "securitySchemes", '{');
  iso_json_begin(&w, "key", '{');
  iso_json_string(&w, "type", "http");
  iso_json_string(&w, "scheme", "bearer");
  iso_json_end(&w, '}');
  iso_json_end(&w, '}');
  iso_json_begin(&w, "schemas", '{');
  for (int i = 0; i < ISO_BODY_COUNT; i++)
    iso_fields_write_schema(&w, schema_names[i], (iso_body)i);
  write_error_schema(&w);
  iso_json_end(&w, '}');
  iso_json_end(&w, '}');
  if (server->options.n_api_keys > 0) {
    iso_json_begin(&w, "security", '[');
    iso_json_begin(&w, NULL, '{');
    iso_json_begin(&w, "key", '[');
    iso_json_end(&w, ']');
    iso_json_end(&w, '}');
    iso_json_end(&w, ']');
  }
  iso_json_end(&w, '}');
  iso_respond_json(server, exchange, 200, &w);
}
