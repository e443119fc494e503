/* Finds stop strings in text that arrives in pieces, and holds back what may become one. */
#ifndef ISOMER_ENGINE_STOP_STRINGS_H
#define ISOMER_ENGINE_STOP_STRINGS_H

#include <isomer/status.h>

typedef struct iso_stop_strings {
  const char *const *strings; /* borrowed; empty ones never match */
  int32_t n_strings;
  char *held; /* text not yet let through */
  size_t length, capacity;
} iso_stop_strings;

void iso_stop_strings_init(iso_stop_strings *stop, const char *const *strings, int32_t n_strings);
void iso_stop_strings_destroy(iso_stop_strings *stop);
/* Adds text. Afterwards the first *out_ready bytes of `held` can be shown: nothing before a stop
 * string is lost, and none of it is ever ready. *out_stopped tells that one was found; where
 * several end in this piece, the one that starts first counts. */
ISO_MUST_CHECK iso_status iso_stop_strings_add(iso_stop_strings *stop, const char *text,
                                               size_t length, size_t *out_ready, bool *out_stopped);
/* Drops the first `bytes` bytes, which have been shown. */
void iso_stop_strings_shown(iso_stop_strings *stop, size_t bytes);

#endif
