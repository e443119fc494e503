/* The method tables: strings have one of their own. */
#ifndef ISOMER_MODELS_CHAT_JINJA_METHODS_H
#define ISOMER_MODELS_CHAT_JINJA_METHODS_H

#include "models/chat/jinja/call.h"

extern const iso_jinja_builtin iso_jinja_string_methods[];
extern const size_t iso_jinja_string_method_count;

#endif
