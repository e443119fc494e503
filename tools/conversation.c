#include "tools/conversation.h"

#include "models/model.h"
#include <stdlib.h>
#include <string.h>

iso_status iso_conversation_create(iso_conversation *out_conversation) {
  out_conversation->messages = cJSON_CreateArray();
  return out_conversation->messages
             ? ISO_OK
             : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a conversation");
}

void iso_conversation_destroy(iso_conversation *conversation) {
  cJSON_Delete(conversation->messages);
  conversation->messages = NULL;
}

iso_status iso_conversation_add(iso_conversation *conversation, const char *role,
                                const char *content) {
  cJSON *message = cJSON_CreateObject();
  if (!message || !cJSON_AddStringToObject(message, "role", role) ||
      !cJSON_AddStringToObject(message, "content", content) ||
      !cJSON_AddItemToArray(conversation->messages, message)) {
    cJSON_Delete(message);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a message of %zu bytes",
                    strlen(content));
  }
  return ISO_OK;
}

int iso_conversation_count(const iso_conversation *conversation) {
  return cJSON_GetArraySize(conversation->messages);
}

void iso_conversation_truncate(iso_conversation *conversation, int count) {
  while (cJSON_GetArraySize(conversation->messages) > count)
    cJSON_DeleteItemFromArray(conversation->messages,
                              cJSON_GetArraySize(conversation->messages) - 1);
}

iso_status iso_conversation_tokenize(const iso_conversation *conversation, const iso_model *model,
                                     int32_t **out_ids, size_t *out_count) {
  const iso_chat_input input = {.messages = conversation->messages, .add_generation_prompt = true};
  char *text = NULL;
  size_t length = 0;
  bool marked = false;
  ISO_TRY(
      iso_special_texts_mark(iso_model_get_special_texts(model), conversation->messages, &marked));
  ISO_TRY(iso_model_render_chat(model, &input, &text, &length));
  /* Templates write BOS themselves where the model wants it; the tokenizer adds no second one. */
  iso_status status = iso_special_texts_encode(iso_model_get_tokenizer(model), text, length, marked,
                                               ISO_TOKENIZE_ADD_SPECIAL, out_ids, out_count);
  free(text);
  return status;
}
