/* Number and string literals of template source. */
#ifndef ISOMER_MODELS_CHAT_JINJA_LITERALS_H
#define ISOMER_MODELS_CHAT_JINJA_LITERALS_H

#include "models/chat/jinja/value.h"

/* Reads the number at `start`, which is a digit; a float only if `float_allowed` (not after a
 * dot). `*out_end` is the first byte after it. */
iso_status iso_jinja_read_number(iso_jinja_session *session, const char *source, size_t length,
                                 size_t start, bool float_allowed, iso_jinja_value *out_value,
                                 size_t *out_end);
/* Reads the quoted string at `start`, with Python's escapes; \N{...} is refused. */
iso_status iso_jinja_read_string(iso_jinja_session *session, const char *source, size_t length,
                                 size_t start, iso_jinja_value *out_value, size_t *out_end);

#endif
