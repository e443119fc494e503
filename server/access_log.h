/* The access log: a JSON object a line. */
#ifndef ISOMER_SERVER_ACCESS_LOG_H
#define ISOMER_SERVER_ACCESS_LOG_H

#include <isomer/status.h>

typedef struct iso_access_log {
  int descriptor; /* -1: none */
  bool owned;
  bool cut; /* the last line has no end */
} iso_access_log;

/* `path` may be NULL (no log) or "-" (standard output). */
ISO_MUST_CHECK iso_status iso_access_log_open(iso_access_log *log, const char *path);
void iso_access_log_close(iso_access_log *log);
/* Writes a line, or drops it when nobody takes it: a pipe that is full must not hold up the
 * server. Returns whether it was written whole; a line that was cut is ended by the next. */
bool iso_access_log_write(iso_access_log *log, const char *line, size_t length);

#endif
