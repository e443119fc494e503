/* The chat page, server/ui/index.html, as the build embeds it. */
#ifndef ISOMER_SERVER_UI_PAGE_H
#define ISOMER_SERVER_UI_PAGE_H

#include <stddef.h>

extern const char iso_ui_page[];
extern const size_t iso_ui_page_length;

#endif
