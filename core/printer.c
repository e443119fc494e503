#include "core/printer.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void iso_printer_add(iso_printer *text, const char *format, ...) {
  while (!text->failed) {
    size_t room = text->capacity - text->size;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text->data ? text->data + text->size : NULL, room, format, arguments);
    va_end(arguments);
    if (n >= 0 && (size_t)n < room) {
      text->size += (size_t)n;
      return;
    }
    size_t wanted = n < 0 ? 0 : 2 * text->capacity + (size_t)n + 256;
    char *grown = wanted ? realloc(text->data, wanted) : NULL;
    text->failed = !grown;
    if (grown) {
      text->data = grown;
      text->capacity = wanted;
    }
  }
}

iso_status iso_printer_take(iso_printer *text, char **out_text) {
  iso_printer_add(text, "%s", ""); /* makes an empty text a string too */
  if (text->failed) {
    free(text->data);
    *text = (iso_printer){0};
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no host memory for a printed text");
  }
  *out_text = text->data;
  *text = (iso_printer){0};
  return ISO_OK;
}
