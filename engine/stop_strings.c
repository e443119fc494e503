#include "engine/stop_strings.h"

#include <stdlib.h>
#include <string.h>

void iso_stop_strings_init(iso_stop_strings *stop, const char *const *strings, int32_t n_strings) {
  *stop = (iso_stop_strings){.strings = strings, .n_strings = n_strings};
}

void iso_stop_strings_destroy(iso_stop_strings *stop) {
  free(stop->held);
  *stop = (iso_stop_strings){0};
}

/* Start of the earliest whole stop string, or `length`. */
static size_t find_stop(const iso_stop_strings *stop) {
  size_t earliest = stop->length;
  for (int32_t i = 0; i < stop->n_strings; i++) {
    size_t n = strlen(stop->strings[i]);
    if (n == 0 || n > stop->length)
      continue;
    const char *at = memmem(stop->held, stop->length, stop->strings[i], n);
    if (at && (size_t)(at - stop->held) < earliest)
      earliest = (size_t)(at - stop->held);
  }
  return earliest;
}

/* Length of the longest tail that begins a stop string. */
static size_t partial_tail(const iso_stop_strings *stop) {
  size_t longest = 0;
  for (int32_t i = 0; i < stop->n_strings; i++) {
    size_t n = strlen(stop->strings[i]);
    for (size_t k = n < stop->length ? n : stop->length; k > longest; k--)
      if (memcmp(stop->held + stop->length - k, stop->strings[i], k) == 0)
        longest = k;
  }
  return longest;
}

iso_status iso_stop_strings_add(iso_stop_strings *stop, const char *text, size_t length,
                                size_t *out_ready, bool *out_stopped) {
  if (length > stop->capacity - stop->length) {
    size_t capacity = 2 * (stop->length + length);
    char *grown = realloc(stop->held, capacity);
    if (!grown)
      return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes of text", capacity);
    stop->held = grown;
    stop->capacity = capacity;
  }
  if (length)
    memcpy(stop->held + stop->length, text, length);
  stop->length += length;
  size_t found = find_stop(stop);
  *out_stopped = found < stop->length;
  *out_ready = *out_stopped ? found : stop->length - partial_tail(stop);
  return ISO_OK;
}

void iso_stop_strings_shown(iso_stop_strings *stop, size_t bytes) {
  if (bytes == 0)
    return;
  memmove(stop->held, stop->held + bytes, stop->length - bytes);
  stop->length -= bytes;
}
