/* What string filters and string methods have in common. */
#ifndef ISOMER_MODELS_CHAT_JINJA_STRINGS_H
#define ISOMER_MODELS_CHAT_JINJA_STRINGS_H

#include "models/chat/jinja/call.h"

typedef enum iso_jinja_strip_side {
  ISO_JINJA_STRIP_LEFT = 1,
  ISO_JINJA_STRIP_RIGHT = 2,
  ISO_JINJA_STRIP_BOTH = 3
} iso_jinja_strip_side;

/* The text without white space, or the characters of the call's first argument, at its ends. */
iso_status iso_jinja_strip(iso_jinja_call *call, iso_jinja_value text, iso_jinja_strip_side side,
                           iso_jinja_value *out_text);
/* The text with the first `count` occurrences replaced; all if `count` is negative. */
iso_status iso_jinja_replace(iso_jinja_session *session, iso_jinja_value text,
                             iso_jinja_value old_text, iso_jinja_value new_text, int64_t count,
                             iso_jinja_value *out_text);
typedef enum iso_jinja_pad_side {
  ISO_JINJA_PAD_LEFT,
  ISO_JINJA_PAD_RIGHT,
  ISO_JINJA_PAD_BOTH
} iso_jinja_pad_side;

/* The text padded to `width` code points with the one-character string `fill`; where both sides
 * get an odd number, the extra one goes where str.center puts it. */
iso_status iso_jinja_pad(iso_jinja_session *session, iso_jinja_value text, int64_t width,
                         iso_jinja_value fill, iso_jinja_pad_side side, iso_jinja_value *out_text);

#endif
