/* Text that grows. The first failure to grow sticks and is reported at the end, so printing code
 * reads straight down. */
#ifndef ISOMER_CORE_PRINTER_H
#define ISOMER_CORE_PRINTER_H

#include <isomer/status.h>

typedef struct iso_printer {
  char *data;
  size_t size, capacity;
  bool failed;
} iso_printer;

void iso_printer_add(iso_printer *printer, const char *format, ...) ISO_PRINTF(2, 3);
/* Hands the text over; the caller frees it. On failure it is freed here. */
ISO_MUST_CHECK iso_status iso_printer_take(iso_printer *printer, char **out_text);

#endif
