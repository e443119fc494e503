/* Text inside a mapped file: not NUL-terminated, not checked to be UTF-8, owned by the file. */
#ifndef ISOMER_MODELS_FORMATS_TEXT_VIEW_H
#define ISOMER_MODELS_FORMATS_TEXT_VIEW_H

#include <isomer/base.h>
#include <string.h>

typedef struct iso_text_view {
  const char *data;
  uint64_t length; /* bytes */
} iso_text_view;

/* Whether the view is exactly `text`. */
static inline bool iso_text_view_equals(iso_text_view view, const char *text) {
  return strlen(text) == view.length && memcmp(view.data, text, view.length) == 0;
}

#endif
