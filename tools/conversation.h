/* A chat: messages, and their tokens through the model's template. */
#ifndef ISOMER_TOOLS_CONVERSATION_H
#define ISOMER_TOOLS_CONVERSATION_H

#include <cjson/cJSON.h>
#include <isomer/engine.h>

typedef struct iso_conversation {
  cJSON *messages; /* [{"role": ..., "content": ...}, ...] */
} iso_conversation;

ISO_MUST_CHECK iso_status iso_conversation_create(iso_conversation *out_conversation);
void iso_conversation_destroy(iso_conversation *conversation);
/* Appends a message. */
ISO_MUST_CHECK iso_status iso_conversation_add(iso_conversation *conversation, const char *role,
                                               const char *content);
int iso_conversation_count(const iso_conversation *conversation);
/* Drops messages from the end until `count` are left. */
void iso_conversation_truncate(iso_conversation *conversation, int count);
/* Token ids of the whole conversation, ready for the answer; malloc'ed. Special tokens in messages
 * are text (models/chat/special_texts.h). */
ISO_MUST_CHECK iso_status iso_conversation_tokenize(const iso_conversation *conversation,
                                                    const iso_model *model, int32_t **out_ids,
                                                    size_t *out_count);

#endif
