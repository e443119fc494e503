/* Numbers in strings, as Python's int() and float() read them. */
#ifndef ISOMER_MODELS_CHAT_JINJA_NUMBERS_H
#define ISOMER_MODELS_CHAT_JINJA_NUMBERS_H

#include "models/chat/jinja/value.h"

/* The number that the whole string spells in `base`, 0 or 2 to 36; *out_integer is absent where it
 * spells none. Integers beyond 64 bits and digits of other scripts are refused. */
iso_status iso_jinja_integer_from_text(iso_jinja_session *session, iso_jinja_value text,
                                       int64_t base, iso_jinja_value *out_integer);
/* The same for a float, which may be infinite or no number. */
iso_status iso_jinja_float_from_text(iso_jinja_session *session, iso_jinja_value text,
                                     iso_jinja_value *out_float);

#endif
