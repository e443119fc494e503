/* The filters, in two tables. */
#ifndef ISOMER_MODELS_CHAT_JINJA_FILTERS_H
#define ISOMER_MODELS_CHAT_JINJA_FILTERS_H

#include "models/chat/jinja/call.h"

/* Filters on strings and numbers. */
extern const iso_jinja_builtin iso_jinja_text_filters[];
extern const size_t iso_jinja_text_filter_count;
/* Filters on lists and dicts. */
extern const iso_jinja_builtin iso_jinja_list_filters[];
extern const size_t iso_jinja_list_filter_count;

#endif
