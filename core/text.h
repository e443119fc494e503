/* Text that grows. The first failure to grow sticks and is reported at the end, so printing code
 * reads straight down. */
#ifndef ISOMER_CORE_TEXT_H
#define ISOMER_CORE_TEXT_H

#include <isomer/status.h>

typedef struct iso_text {
  char *data;
  size_t size, capacity;
  bool failed;
} iso_text;

void iso_text_add(iso_text *text, const char *format, ...) ISO_PRINTF(2, 3);
/* Hands the text over; the caller frees it. On failure it is freed here. */
ISO_MUST_CHECK iso_status iso_text_take(iso_text *text, char **out_text);

#endif
