/* Writes JSON straight into a text that grows, with commas where they belong. Failure to grow
 * sticks to the printer and shows when the text is taken. */
#ifndef ISOMER_SERVER_JSON_WRITER_H
#define ISOMER_SERVER_JSON_WRITER_H

#include "core/printer.h"

typedef struct iso_json_writer {
  iso_printer text;
  bool needs_comma;
} iso_json_writer;

/* Every function takes the member's key, or NULL inside an array and for the root. */
void iso_json_begin(iso_json_writer *writer, const char *key, char bracket); /* '{' or '[' */
void iso_json_end(iso_json_writer *writer, char bracket);                    /* '}' or ']' */
void iso_json_null(iso_json_writer *writer, const char *key);
void iso_json_bool(iso_json_writer *writer, const char *key, bool value);
void iso_json_int(iso_json_writer *writer, const char *key, int64_t value);
/* Numbers that JSON cannot hold become the largest it can; NaN becomes null. */
void iso_json_number(iso_json_writer *writer, const char *key, double value);
/* NULL becomes null. */
void iso_json_string(iso_json_writer *writer, const char *key, const char *value);
/* A value that is JSON already. */
void iso_json_raw(iso_json_writer *writer, const char *key, const char *json);
/* Any bytes: what is not UTF-8 becomes U+FFFD. */
void iso_json_text(iso_json_writer *writer, const char *key, const char *bytes, size_t length);

/* Appends raw bytes to a printer. */
void iso_printer_append(iso_printer *printer, const char *bytes, size_t length);

#endif
