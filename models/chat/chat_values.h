/* JSON as template values. */
#ifndef ISOMER_MODELS_CHAT_CHAT_VALUES_H
#define ISOMER_MODELS_CHAT_CHAT_VALUES_H

#include <cjson/cJSON.h>
#include "models/chat/jinja/value.h"

/* The value of a JSON item; NULL gives None. Strings are borrowed from the item. Of two equal
 * keys the last one's value counts. */
iso_status iso_chat_value_from_json(iso_jinja_session *session, const cJSON *item,
                                    iso_jinja_value *out_value);

#endif
