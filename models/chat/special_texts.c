#include "models/chat/special_texts.h"

#include "models/tokenizer/lookup.h"
#include "models/tokenizer/text.h"
#include <stdlib.h>
#include <string.h>

/* Private-use characters that mark the text of a special token within what the user wrote; such
 * text is tokenized as text. The user's own marks are dropped first, or what they stand between
 * could become a special token once they are gone. */
#define MARK_BEGIN "\xEE\x80\x80" /* U+E000 */
#define MARK_END "\xEE\x80\x81"   /* U+E001 */
enum { MARK_LENGTH = 3 };

struct iso_special_texts {
  iso_trie trie;
};

iso_status iso_special_texts_create(const iso_tokenizer *tokenizer,
                                    iso_special_texts **out_specials) {
  int32_t size = iso_tokenizer_vocabulary_size(tokenizer);
  iso_special_texts *made = calloc(1, sizeof *made);
  iso_entry *entries = calloc((size_t)size + 1, sizeof *entries);
  iso_status status =
      made && entries ? ISO_OK : iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for special tokens");
  size_t count = 0;
  for (int32_t id = 0; id < size && status == ISO_OK; id++) {
    size_t length = 0;
    const char *text = iso_tokenizer_token_text(tokenizer, id, &length);
    if (iso_tokenizer_is_control(tokenizer, id) && text && length > 0)
      entries[count++] = (iso_entry){text, (uint32_t)length, id};
  }
  if (status == ISO_OK)
    status = iso_trie_build(entries, count, &made->trie);
  free(entries);
  if (status != ISO_OK)
    free(made);
  else
    *out_specials = made;
  return status;
}

void iso_special_texts_destroy(iso_special_texts *specials) {
  if (specials)
    iso_trie_free(&specials->trie);
  free(specials);
}

/* Bytes of the longest special token that begins at `at`; 0: none does. */
static size_t special_length(const iso_special_texts *specials, const char *at, size_t room) {
  size_t length;
  return iso_trie_longest(&specials->trie, at, room, &length) >= 0 ? length : 0;
}

static bool is_mark(const char *at) {
  return memcmp(at, MARK_BEGIN, MARK_LENGTH) == 0 || memcmp(at, MARK_END, MARK_LENGTH) == 0;
}

/* Takes marks out, those too that begin where another was taken out. Returns what is left. */
static size_t drop_marks(char *text) {
  size_t length = 0;
  for (const char *at = text; *at; at++) {
    text[length++] = *at;
    if (length >= MARK_LENGTH && is_mark(text + length - MARK_LENGTH))
      length -= MARK_LENGTH;
  }
  text[length] = 0;
  return length;
}

static iso_status append_marked(iso_text *out, const char *text, size_t length) {
  ISO_TRY(iso_text_append(out, MARK_BEGIN, MARK_LENGTH));
  ISO_TRY(iso_text_append(out, text, length));
  return iso_text_append(out, MARK_END, MARK_LENGTH);
}

/* Replaces a text where it holds special tokens. */
static iso_status mark_text(char **text_place, const iso_special_texts *specials, bool *marked) {
  const char *text = *text_place;
  size_t length = drop_marks(*text_place), plain = 0;
  iso_text out = {0};
  iso_status status = ISO_OK;
  for (size_t i = 0; i < length && status == ISO_OK;) {
    size_t taken = special_length(specials, text + i, length - i);
    if (!taken) {
      i++;
      continue;
    }
    status = iso_text_append(&out, text + plain, i - plain);
    if (status == ISO_OK)
      status = append_marked(&out, text + i, taken);
    i += taken;
    plain = i;
    *marked = true;
  }
  if (status == ISO_OK && plain > 0)
    status = iso_text_append(&out, text + plain, length - plain + 1); /* its NUL too */
  if (status != ISO_OK || plain == 0) {
    iso_text_free(&out);
    return status;
  }
  free(*text_place);
  *text_place = out.data;
  return ISO_OK;
}

/* JSON nests at most 64 deep. Numbers keep their spelling in `valuestring`. */
iso_status iso_special_texts_mark(const iso_special_texts *specials, cJSON *item, bool *marked) {
  if (item->string)
    ISO_TRY(mark_text(&item->string, specials, marked));
  if (cJSON_IsString(item))
    return mark_text(&item->valuestring, specials, marked);
  for (cJSON *child = item->child; child; child = child->next)
    ISO_TRY(iso_special_texts_mark(specials, child, marked));
  return ISO_OK;
}

/* ---- Tokens ---- */

typedef struct id_list {
  int32_t *ids;
  size_t count;
} id_list;

static iso_status add_ids(id_list *list, const int32_t *ids, size_t count) {
  int32_t *grown = realloc(list->ids, (list->count + count + 1) * sizeof *grown);
  if (!grown)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a prompt's tokens");
  list->ids = grown;
  if (count)
    memcpy(grown + list->count, ids, count * sizeof *ids);
  list->count += count;
  return ISO_OK;
}

/* A piece from within a text. It is encoded after a line end, which is taken off again, so that
 * SentencePiece adds no space as it does at the start of a text. */
static iso_status encode_inner(const iso_tokenizer *tokenizer, const char *text, size_t length,
                               uint32_t flags, id_list *list) {
  int32_t *line = NULL, *ids = NULL;
  size_t n_line = 0, count = 0;
  char *whole = malloc(length + 1);
  if (!whole)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "no memory for a prompt");
  whole[0] = '\n';
  memcpy(whole + 1, text, length);
  iso_status status = iso_tokenizer_encode(tokenizer, "\n", 1, 0, &line, &n_line);
  if (status == ISO_OK)
    status = iso_tokenizer_encode(tokenizer, whole, length + 1, flags, &ids, &count);
  if (status == ISO_OK && (count < n_line || memcmp(ids, line, n_line * sizeof *ids) != 0)) {
    free(ids); /* the line end has merged with what follows */
    ids = NULL;
    n_line = 0;
    status = iso_tokenizer_encode(tokenizer, text, length, flags, &ids, &count);
  }
  if (status == ISO_OK)
    status = add_ids(list, ids + n_line, count - n_line);
  free(whole);
  free(line);
  free(ids);
  return status;
}

/* Splits at the marks: between a begin and an end mark is text, whatever it looks like. */
static iso_status encode_marked(const iso_tokenizer *tokenizer, const char *text, size_t length,
                                uint32_t flags, id_list *list) {
  const char *end = text + length;
  bool literal = false, first = true;
  for (const char *at = text; at < end; literal = !literal) {
    const char *stop = strstr(at, literal ? MARK_END : MARK_BEGIN);
    size_t piece = stop ? (size_t)(stop - at) : (size_t)(end - at);
    uint32_t of_piece = literal ? flags & ~(uint32_t)ISO_TOKENIZE_PARSE_SPECIAL : flags;
    if (piece > 0 && first) {
      int32_t *ids = NULL;
      size_t count = 0;
      iso_status status = iso_tokenizer_encode(tokenizer, at, piece, of_piece, &ids, &count);
      if (status == ISO_OK)
        status = add_ids(list, ids, count);
      free(ids);
      ISO_TRY(status);
      first = false;
    } else if (piece > 0) {
      ISO_TRY(
          encode_inner(tokenizer, at, piece, of_piece & ~(uint32_t)ISO_TOKENIZE_ADD_SPECIAL, list));
    }
    at = stop ? stop + MARK_LENGTH : end;
  }
  return ISO_OK;
}

iso_status iso_special_texts_encode(const iso_tokenizer *tokenizer, const char *text, size_t length,
                                    bool marked, uint32_t flags, int32_t **out_ids,
                                    size_t *out_count) {
  id_list list = {0};
  flags |= ISO_TOKENIZE_PARSE_SPECIAL | ISO_TOKENIZE_OPEN_END;
  iso_status status =
      marked ? encode_marked(tokenizer, text, length, flags, &list)
             : iso_tokenizer_encode(tokenizer, text, length, flags, &list.ids, &list.count);
  if (status != ISO_OK) {
    free(list.ids);
    return status;
  }
  *out_ids = list.ids;
  *out_count = list.count;
  return ISO_OK;
}
