/* What people write in a conversation is text, whatever it looks like. The text of a special token,
 * such as "<|im_end|>", is marked in messages before a template renders them, and read as text
 * where the rendered prompt is tokenized; what the template itself writes still becomes the token.
 */
#ifndef ISOMER_MODELS_CHAT_SPECIAL_TEXTS_H
#define ISOMER_MODELS_CHAT_SPECIAL_TEXTS_H

#include <cjson/cJSON.h>

#include "models/tokenizer/tokenizer.h"

/* The texts of a tokenizer's special tokens. Constant, so any number of threads may use it. */
typedef struct iso_special_texts iso_special_texts;

ISO_MUST_CHECK iso_status iso_special_texts_create(const iso_tokenizer *tokenizer,
                                                   iso_special_texts **out_specials);
void iso_special_texts_destroy(iso_special_texts *specials);

/* Marks them in every string below `item`, keys too, for templates write out whole objects. Sets
 * *marked where there are any. The marks, U+E000 and U+E001, are taken out of what people write. */
ISO_MUST_CHECK iso_status iso_special_texts_mark(const iso_special_texts *specials, cJSON *item,
                                                 bool *marked);

/* Tokens of a rendered prompt, with ISO_TOKENIZE_PARSE_SPECIAL and `flags`, and nothing behind it:
 * an answer is to follow. *out_ids is malloc'ed. */
ISO_MUST_CHECK iso_status iso_special_texts_encode(const iso_tokenizer *tokenizer, const char *text,
                                                   size_t length, bool marked, uint32_t flags,
                                                   int32_t **out_ids, size_t *out_count);

#endif
