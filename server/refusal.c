#include "server/server_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* OpenAI's words. Its clients tell failures apart by status and code: all that a request itself can
 * mend is of one type, keys and names of models too. */
static const char *type_of(int status) {
  return status >= 500 ? "server_error" : status == 429 ? "requests" : "invalid_request_error";
}

bool iso_refuse(iso_api_error *out, int status, const char *param, const char *code,
                const char *format, ...) {
  va_list arguments;
  *out = (iso_api_error){.status = status, .type = type_of(status), .code = code};
  snprintf(out->param, sizeof out->param, "%s", param ? param : "");
  va_start(arguments, format);
  vsnprintf(out->message, sizeof out->message, format, arguments);
  va_end(arguments);
  return false;
}

bool iso_refuse_status(iso_api_error *out, const iso_server *server, iso_status status,
                       const char *message) {
  static const struct {
    int status;
    const char *code;
  } rows[ISO_STATUS_COUNT] = {
      [ISO_OK] = {500, "internal_error"},
      [ISO_ERROR_INVALID_ARGUMENT] = {400, "invalid_value"},
      [ISO_ERROR_OUT_OF_MEMORY] = {503, "out_of_memory"},
      [ISO_ERROR_NOT_FOUND] = {404, "not_found"},
      [ISO_ERROR_IO] = {500, "internal_error"},
      [ISO_ERROR_CORRUPT_DATA] = {400, "invalid_value"},
      [ISO_ERROR_UNSUPPORTED] = {400, "unsupported"},
      [ISO_ERROR_LIMIT] = {400, "context_length_exceeded"},
      [ISO_ERROR_DEVICE] = {503, "device_error"},
      [ISO_ERROR_CANCELLED] = {503, "cancelled"},
      [ISO_ERROR_INTERNAL] = {500, "internal_error"},
      [ISO_ERROR_BUSY] = {429, "rate_limit_exceeded"},
  };
  const char *sentence = message && *message ? message : iso_status_message();
  int index = status >= 0 && status < ISO_STATUS_COUNT ? (int)status : ISO_ERROR_INTERNAL;
  if (status == ISO_ERROR_BUSY && server->draining)
    return iso_refuse(out, 503, NULL, "shutting_down", "the server is shutting down");
  return iso_refuse(out, rows[index].status, NULL, rows[index].code, "%s", sentence);
}

void iso_write_refusal(iso_json_writer *writer, const iso_api_error *refusal) {
  iso_json_begin(writer, "error", '{');
  iso_json_string(writer, "message", refusal->message);
  iso_json_string(writer, "type", refusal->type);
  iso_json_string(writer, "param", *refusal->param ? refusal->param : NULL);
  iso_json_string(writer, "code", refusal->code);
  iso_json_end(writer, '}');
}

void iso_respond_json(iso_server *server, iso_exchange *exchange, int status,
                      iso_json_writer *writer) {
  static const char nothing[] = "{\"error\":{\"message\":\"out of memory\",\"type\":"
                                "\"server_error\",\"param\":null,\"code\":\"out_of_memory\"}}";
  (void)server;
  bool failed = writer->text.failed;
  iso_http_respond(exchange, failed ? 503 : status, "application/json",
                   failed ? nothing : writer->text.data,
                   failed ? sizeof nothing - 1 : writer->text.size);
  free(writer->text.data);
  *writer = (iso_json_writer){0};
}

void iso_respond_refusal(iso_server *server, iso_exchange *exchange, const iso_api_error *refusal) {
  iso_json_writer writer = {0};
  iso_json_begin(&writer, NULL, '{');
  iso_write_refusal(&writer, refusal);
  iso_json_end(&writer, '}');
  if (refusal->status == 429 || refusal->status == 503)
    iso_http_add_header(exchange, "Retry-After", "1");
  iso_respond_json(server, exchange, refusal->status, &writer);
}
