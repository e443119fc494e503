#include "core/status.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 1024 };

static _Thread_local char message[MESSAGE_BYTES];
static _Thread_local char place[128];
static _Thread_local uint64_t count;

iso_status iso_fail_at(iso_status code, const char *file, int line, const char *format, ...) {
  /* Formatted aside: an argument may be the stored message itself. */
  char text[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  memcpy(message, text, sizeof message);
  count++;
  const char *slash = strrchr(file, '/');
  snprintf(place, sizeof place, "%s:%d", slash ? slash + 1 : file, line);
  return code;
}

iso_status iso_fail_context(iso_status code, const char *format, ...) {
  if (code == ISO_OK)
    return code;
  char text[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  int used = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (used >= 0 && (size_t)used < sizeof text)
    snprintf(text + used, sizeof text - (size_t)used, ": %s", message);
  memcpy(message, text, sizeof message);
  return code;
}

uint64_t iso_status_count(void) { return count; }
const char *iso_status_message(void) { return message; }
const char *iso_status_place(void) { return place; }

const char *iso_status_name(iso_status code) {
  static const char *const names[ISO_STATUS_COUNT] = {
      "ok",          "invalid argument", "out of memory", "not found", "input/output error",
      "corrupt data", "unsupported",     "limit reached", "device error", "cancelled",
      "internal error", "busy"};
  return (unsigned)code < ISO_STATUS_COUNT ? names[code] : "unknown";
}
