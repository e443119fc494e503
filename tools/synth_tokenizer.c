#include "tools/synth.h"

#include "models/tokenizer/byte_level.h"
#include "models/tokenizer/vocabulary.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const iso_synth_special_texts[ISO_SYNTH_SPECIAL_COUNT] = {
    [ISO_SYNTH_END_OF_TEXT] = "<|endoftext|>",
    [ISO_SYNTH_MESSAGE_START] = "<|im_start|>",
    [ISO_SYNTH_MESSAGE_END] = "<|im_end|>"};

const char iso_synth_chat_template[] =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* Merges in the order they apply; "_" is a space. Few, so that a prompt is about as many tokens as
 * bytes, but enough that merging happens. */
static const char *const merges[][2] = {
    {"t", "h"}, {"th", "e"}, {"_", "the"}, {"i", "n"},  {"e", "r"},   {"a", "n"},
    {"o", "n"}, {"r", "e"},  {"_", "a"},   {"an", "d"}, {"_", "and"}, {"in", "g"},
};
enum { BYTE_COUNT = 256, MERGE_COUNT = sizeof merges / sizeof merges[0] };

/* Views are kept as offsets until the storage no longer moves. */
static void begin(iso_text_view *view, const iso_text *storage) { view->length = storage->length; }
static void end(iso_text_view *view, const iso_text *storage) {
  view->length = storage->length - view->length;
}
static const char *place(iso_text_view *view, const char *at) {
  view->data = at;
  return at + view->length;
}

static iso_status add_literal(iso_text *storage, const char *text) {
  return iso_text_append(storage, text, strlen(text));
}

/* A piece of a merge in the byte alphabet. */
static iso_status add_piece(iso_text *storage, const char *piece) {
  for (; *piece; piece++)
    ISO_TRY(iso_byte_level_encode(*piece == '_' ? " " : piece, 1, storage));
  return ISO_OK;
}

static iso_status add_texts(iso_synth_vocabulary *self, iso_text *storage) {
  for (size_t id = 0; id < self->n_tokens; id++) {
    begin(&self->tokens[id], storage);
    self->types[id] = ISO_TOKEN_NORMAL;
    size_t special = id - (size_t)self->first_special;
    if (id < BYTE_COUNT) {
      char byte = (char)id;
      ISO_TRY(iso_byte_level_encode(&byte, 1, storage));
    } else if (id < BYTE_COUNT + MERGE_COUNT) {
      ISO_TRY(add_piece(storage, merges[id - BYTE_COUNT][0]));
      ISO_TRY(add_piece(storage, merges[id - BYTE_COUNT][1]));
    } else if (special < ISO_SYNTH_SPECIAL_COUNT) {
      self->types[id] = ISO_TOKEN_CONTROL;
      ISO_TRY(add_literal(storage, iso_synth_special_texts[special]));
    } else {
      self->types[id] = ISO_TOKEN_UNUSED;
      char text[32];
      snprintf(text, sizeof text, "<unused%zu>", special - ISO_SYNTH_SPECIAL_COUNT);
      ISO_TRY(add_literal(storage, text));
    }
    end(&self->tokens[id], storage);
  }
  for (size_t i = 0; i < self->n_merges; i++) {
    begin(&self->merges[i], storage);
    ISO_TRY(add_piece(storage, merges[i][0]));
    ISO_TRY(add_literal(storage, " "));
    ISO_TRY(add_piece(storage, merges[i][1]));
    end(&self->merges[i], storage);
  }
  return ISO_OK;
}

iso_status iso_synth_vocabulary_create(int32_t size, iso_synth_vocabulary *out_vocabulary) {
  iso_synth_vocabulary *self = out_vocabulary;
  *self = (iso_synth_vocabulary){
      .n_tokens = (size_t)size, .n_merges = MERGE_COUNT, .first_special = BYTE_COUNT + MERGE_COUNT};
  if (size < self->first_special + ISO_SYNTH_SPECIAL_COUNT)
    return iso_fail(ISO_ERROR_INTERNAL, "a vocabulary of %d has no room for every byte", size);
  self->tokens = calloc(self->n_tokens, sizeof *self->tokens);
  self->types = calloc(self->n_tokens, sizeof *self->types);
  self->merges = calloc(self->n_merges, sizeof *self->merges);
  if (!self->tokens || !self->types || !self->merges)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a vocabulary of %d", size);
  iso_text storage = {0};
  iso_status status = add_texts(self, &storage);
  self->storage = storage.data;
  ISO_TRY(status);
  const char *at = self->storage;
  for (size_t i = 0; i < self->n_tokens; i++)
    at = place(&self->tokens[i], at);
  for (size_t i = 0; i < self->n_merges; i++)
    at = place(&self->merges[i], at);
  return ISO_OK;
}

void iso_synth_vocabulary_free(iso_synth_vocabulary *vocabulary) {
  free(vocabulary->tokens);
  free(vocabulary->types);
  free(vocabulary->merges);
  free(vocabulary->storage);
  *vocabulary = (iso_synth_vocabulary){0};
}
