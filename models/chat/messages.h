/* Messages as chat templates want them, from messages as OpenAI's clients send them. */
#ifndef ISOMER_MODELS_CHAT_MESSAGES_H
#define ISOMER_MODELS_CHAT_MESSAGES_H

#include <cjson/cJSON.h>
#include <isomer/status.h>

/* Keys that are null go, and "tool_calls" without any; the role "developer" is "system"; text parts
 * become one text; what a model thought goes by all its names; arguments of calls become objects,
 * of at most *values values together.
 *
 * INVALID_ARGUMENT for what is of a wrong type, NOT_FOUND for a message that says nothing,
 * UNSUPPORTED for parts that are no text, LIMIT where *values is used up (and 0). `messages` may
 * have changed then. */
ISO_MUST_CHECK iso_status iso_chat_tidy_messages(cJSON *messages, uint64_t *values);

#endif
