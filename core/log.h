/* Log: short sentences about what the library did, for people.
 *
 * Lines go to a sink; without one they go to stderr as "isomer: warning: ...". Shown are lines at
 * or above a level: ISO_LOG_NOTICE unless the environment variable ISOMER_LOG says "quiet",
 * "error", "warning", "notice" or "debug". Every function is thread safe. */
#ifndef ISOMER_CORE_LOG_H
#define ISOMER_CORE_LOG_H

#include <isomer/backend.h>

/* Receives one line without its newline. Called with the log's lock held: it must not log. */
typedef void (*iso_log_sink)(void *context, iso_log_level level, const char *line);

/* Formats and shows one line, cut at 1,023 bytes. Cheap when the level is not shown. */
void iso_log(iso_log_level level, const char *format, ...) ISO_PRINTF(2, 3);

/* NULL puts stderr back. No line reaches the old sink after this has returned. */
void iso_log_set_sink(iso_log_sink sink, void *context);

/* Shows `level` and everything graver; a negative level shows nothing. */
void iso_log_set_level(int level);

/* "error", "warning", "notice" or "debug". */
const char *iso_log_level_name(iso_log_level level);

#endif
