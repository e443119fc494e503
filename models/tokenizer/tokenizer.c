#include "models/tokenizer/tokenizer_internal.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *text;
  bool unmistakable;
} end_tokens[] = {
#define ISO_END_TOKEN(text, unmistakable) {text, unmistakable},
#include "models/tokenizer/end_tokens.def"
#undef ISO_END_TOKEN
};

/* Tokens that begin a turn and are nothing else, special even where the file forgot to say so: else
 * what a user writes becomes one, or a template's is spelled in letters. */
static const char *const turn_tokens[] = {"<|im_start|>",                             /* ChatML */
                                          "<|start_header_id|>", "<|end_header_id|>", /* Llama 3 */
                                          "<start_of_turn>",                          /* Gemma */
                                          "<|system|>",          "<|user|>",
                                          "<|assistant|>"}; /* Phi, Zephyr */

static int compare_ids(const void *a, const void *b) {
  int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
  return left < right ? -1 : left > right;
}

static void make_control(iso_token *token) {
  token->type = ISO_TOKEN_CONTROL;
  token->flags |= ISO_TOKEN_ADDED | ISO_TOKEN_SPECIAL;
}

static void find_turn_tokens(iso_tokenizer *t) {
  for (size_t i = 0; i < sizeof turn_tokens / sizeof *turn_tokens; i++) {
    int32_t id = iso_index_find(&t->by_text, turn_tokens[i], strlen(turn_tokens[i]));
    if (id >= 0)
      make_control(&t->vocabulary.tokens[id]);
  }
}

static iso_status find_end_tokens(iso_tokenizer *t) {
  iso_vocabulary *v = &t->vocabulary;
  if (v->eos_id >= 0)
    ISO_TRY(iso_ids_push(&t->end_ids, v->eos_id));
  for (size_t i = 0; i < v->end_ids.length; i++)
    ISO_TRY(iso_ids_push(&t->end_ids, v->end_ids.data[i]));
  for (size_t i = 0; i < sizeof end_tokens / sizeof *end_tokens; i++) {
    int32_t id = iso_index_find(&t->by_text, end_tokens[i].text, strlen(end_tokens[i].text));
    if (id < 0)
      continue;
    iso_token *token = &v->tokens[id];
    if (end_tokens[i].unmistakable)
      make_control(token);
    if (token->flags & ISO_TOKEN_SPECIAL)
      ISO_TRY(iso_ids_push(&t->end_ids, id));
  }
  size_t kept = 0;
  if (t->end_ids.length > 0)
    qsort(t->end_ids.data, t->end_ids.length, sizeof *t->end_ids.data, compare_ids);
  for (size_t i = 0; i < t->end_ids.length; i++)
    if (kept == 0 || t->end_ids.data[i] != t->end_ids.data[kept - 1])
      t->end_ids.data[kept++] = t->end_ids.data[i];
  t->end_ids.length = kept;
  return ISO_OK;
}

/* A trie over the tokens that `wanted` picks. */
static iso_status build_trie(const iso_vocabulary *v, bool (*wanted)(const iso_token *),
                             iso_trie *out_trie) {
  iso_entry *entries = calloc(v->count ? v->count : 1, sizeof *entries);
  if (!entries)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "tokenizer: no memory for %zu tokens", v->count);
  size_t count = 0;
  for (size_t id = 0; id < v->count; id++)
    if (wanted(&v->tokens[id]))
      entries[count++] =
          (iso_entry){iso_vocabulary_text(v, (int32_t)id), v->tokens[id].length, (int32_t)id};
  iso_status status = iso_trie_build(entries, count, out_trie);
  free(entries);
  return status;
}

static bool is_raw_added(const iso_token *token) {
  return (token->flags & ISO_TOKEN_ADDED) && !(token->flags & ISO_TOKEN_NORMALIZED);
}

static bool is_symbol(const iso_token *token) { return token->type == ISO_TOKEN_USER_DEFINED; }

/* Added tokens searched for in normalized text are themselves normalized first. */
static iso_status build_normalized_trie(iso_tokenizer *t, iso_encoding *e) {
  const iso_vocabulary *v = &t->vocabulary;
  iso_text forms = {0};
  size_t *ends = calloc(v->count + 1, sizeof *ends);
  iso_entry *entries = calloc(v->count + 1, sizeof *entries);
  iso_status status = ends && entries ? ISO_OK
                                      : iso_fail(ISO_ERROR_OUT_OF_MEMORY,
                                                 "tokenizer: no memory for %zu tokens", v->count);
  size_t count = 0;
  for (size_t id = 0; id < v->count && status == ISO_OK; id++) {
    const iso_token *token = &v->tokens[id];
    if (!(token->flags & ISO_TOKEN_ADDED) || !(token->flags & ISO_TOKEN_NORMALIZED))
      continue;
    const char *text = NULL;
    size_t length = 0;
    status = iso_encoding_normalize(e, ISO_TEXT_FIRST, iso_vocabulary_text(v, (int32_t)id),
                                    token->length, &text, &length);
    if (status == ISO_OK && length > ISO_MAX_ADDED_TOKEN_LENGTH)
      status = iso_fail(ISO_ERROR_LIMIT, "tokenizer: added token %zu normalizes to %zu bytes", id,
                        length);
    if (status == ISO_OK)
      status = iso_text_append(&forms, text, length);
    entries[count] = (iso_entry){.length = (uint32_t)length, .value = (int32_t)id};
    ends[++count] = forms.length;
  }
  for (size_t i = 0; i < count && status == ISO_OK; i++)
    entries[i].text = forms.data ? forms.data + ends[i] : "";
  if (status == ISO_OK)
    status = iso_trie_build(entries, count, &t->added_normalized);
  free(ends);
  free(entries);
  iso_text_free(&forms);
  return status;
}

static iso_status check_id(const iso_vocabulary *v, const char *name, int32_t id) {
  return id >= 0 && (size_t)id < v->count
             ? ISO_OK
             : iso_fail(ISO_ERROR_CORRUPT_DATA, "tokenizer: the %s token's id %d is not in 0..%zu",
                        name, id, v->count - 1);
}

static iso_status check_tokens(const iso_vocabulary *v) {
  if (v->count == 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "tokenizer: the vocabulary is empty");
  for (size_t id = 0; id < v->count; id++) {
    const iso_token *token = &v->tokens[id];
    const char *text = iso_vocabulary_text(v, (int32_t)id);
    if (token->flags & ISO_TOKEN_ADDED) {
      if (token->length == 0 || token->length > ISO_MAX_ADDED_TOKEN_LENGTH)
        return iso_fail(ISO_ERROR_CORRUPT_DATA,
                        "tokenizer: added token %zu has %u bytes; 1 to %u are taken", id,
                        token->length, ISO_MAX_ADDED_TOKEN_LENGTH);
    }
    /* What is looked for in text must not end within one of its code points. */
    if (((token->flags & ISO_TOKEN_ADDED) || is_symbol(token)) &&
        iso_utf8_valid_prefix(text, token->length) != token->length)
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "tokenizer: added token %zu is not UTF-8", id);
  }
  const struct {
    const char *name;
    int32_t id;
  } ids[] = {
      {"BOS", v->bos_id}, {"EOS", v->eos_id}, {"unknown", v->unknown_id}, {"padding", v->pad_id}};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
    if (ids[i].id >= 0)
      ISO_TRY(check_id(v, ids[i].name, ids[i].id));
  for (size_t i = 0; i < v->prefix_count; i++)
    ISO_TRY(check_id(v, "prefix", v->prefix[i]));
  for (size_t i = 0; i < v->suffix_count; i++)
    ISO_TRY(check_id(v, "suffix", v->suffix[i]));
  for (size_t i = 0; i < v->end_ids.length; i++)
    ISO_TRY(check_id(v, "end", v->end_ids.data[i]));
  return ISO_OK;
}

/* The token of each raw byte, written "<0x41>". */
static void find_byte_tokens(const iso_tokenizer *t, int32_t byte_ids[256]) {
  for (unsigned byte = 0; byte < 256; byte++) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", byte);
    byte_ids[byte] = iso_index_find(&t->by_text, name, 6);
  }
}

/* What the unigram model pays for an unknown character: ten less than the worst piece. User-defined
 * symbols get what SentencePiece gives them, a bonus that grows with their length. */
static void set_unigram_scores(iso_vocabulary *v, iso_segmenter *s) {
  const bool spm = v->single_precision;
  double least = spm ? FLT_MAX : DBL_MAX, most = FLT_MIN;
  for (size_t id = 0; id < v->count; id++) {
    const iso_token *token = &v->tokens[id];
    if (spm ? token->type != ISO_TOKEN_NORMAL : !token->in_model)
      continue;
    least = v->scores[id] < least ? v->scores[id] : least;
    most = v->scores[id] > most ? v->scores[id] : most;
  }
  s->unknown_score = spm ? (double)((float)least - 10.0f) : least - 10.0;
  for (size_t id = 0; id < v->count && spm; id++)
    if (v->tokens[id].type == ISO_TOKEN_USER_DEFINED)
      v->scores[id] = (double)((float)v->tokens[id].length * (float)most) - 0.1;
}

/* Notes `code_point` as one that pieces continue from into a U+2581; false where there are too many
 * of them. */
static bool note_uncut(iso_segmenter *s, uint32_t code_point) {
  for (uint8_t i = 0; i < s->uncut_count; i++)
    if (s->uncut[i] == code_point)
      return true;
  if (s->uncut_count == sizeof s->uncut / sizeof *s->uncut)
    return false;
  s->uncut[s->uncut_count++] = code_point;
  return true;
}

/* Finds out whether words can be cut before U+2581. Where U+2581 itself is no piece, a run of
 * unknown characters could cross the cut. */
static void find_cuts(const iso_vocabulary *v, iso_segmenter *s) {
  s->cut_at_metaspace = !s->whole_word_first && iso_index_find(&s->pieces, ISO_METASPACE, 3) >= 0;
  for (size_t id = 0; id < v->count && s->cut_at_metaspace; id++) {
    const char *text = iso_vocabulary_text(v, (int32_t)id);
    uint32_t before = 0x2581, code_point;
    for (size_t at = 0, size; at < v->tokens[id].length; at += size, before = code_point) {
      size = iso_utf8_decode(text + at, v->tokens[id].length - at, &code_point);
      if (size == 0 || (code_point == 0x2581 && before != 0x2581 && !note_uncut(s, before))) {
        s->cut_at_metaspace = false;
        return;
      }
    }
  }
}

static iso_status build_segmenter(iso_tokenizer *t) {
  iso_vocabulary *v = &t->vocabulary;
  iso_segmenter *s = &t->segmenter;
  s->kind = v->kind;
  s->scores = v->scores;
  s->unknown_id = v->unknown_id;
  s->byte_fallback = v->byte_fallback;
  s->fuse_unknown = v->fuse_unknown;
  s->whole_word_first = v->whole_word_first;
  s->single_precision = v->single_precision;
  find_byte_tokens(t, s->byte_ids);
  ISO_TRY(iso_vocabulary_index(v, false, &s->pieces));
  find_cuts(v, s);
  if (v->kind == ISO_SEGMENTER_RANKED_BPE)
    return iso_merge_table_build(v->merges, v->merge_count, &s->merges);
  if (v->symbols_in_model) {
    for (size_t i = 0; i < v->normalizer_count; i++)
      if (v->normalizers[i].kind == ISO_NORMALIZER_SENTENCEPIECE)
        ISO_TRY(build_trie(v, is_symbol, &v->normalizers[i].symbols));
    if (v->kind == ISO_SEGMENTER_SCORED_BPE)
      ISO_TRY(build_trie(v, is_symbol, &s->symbols));
  }
  if (v->kind == ISO_SEGMENTER_UNIGRAM) {
    set_unigram_scores(v, s);
    return build_trie(v, iso_token_is_piece, &s->trie);
  }
  return ISO_OK;
}

static iso_status build(iso_tokenizer *t) {
  iso_vocabulary *v = &t->vocabulary;
  ISO_TRY(check_tokens(v));
  ISO_TRY(iso_vocabulary_index(v, true, &t->by_text));
  find_turn_tokens(t);
  ISO_TRY(find_end_tokens(t));
  for (size_t i = 0; i < v->pretokenizer_count; i++)
    t->byte_level = t->byte_level || v->pretokenizers[i].kind == ISO_PRETOKENIZER_BYTE_LEVEL;
  for (size_t i = 0; i < v->normalizer_count; i++)
    t->byte_level = t->byte_level || v->normalizers[i].kind == ISO_NORMALIZER_BYTE_LEVEL;
  ISO_TRY(build_segmenter(t));
  ISO_TRY(build_trie(v, is_raw_added, &t->added));
  iso_encoding *e = malloc(sizeof *e);
  if (!e)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "tokenizer: no memory");
  iso_status status = iso_encoding_begin(t, e);
  if (status == ISO_OK)
    status = build_normalized_trie(t, e);
  iso_encoding_end(e);
  free(e);
  ISO_TRY(status);
  return iso_tokenizer_build_decoded(t);
}

iso_status iso_tokenizer_create(iso_vocabulary *vocabulary, iso_tokenizer **out_tokenizer) {
  *out_tokenizer = NULL;
  iso_tokenizer *t = calloc(1, sizeof *t);
  if (!t) {
    iso_vocabulary_free(vocabulary);
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "tokenizer: no memory");
  }
  t->vocabulary = *vocabulary;
  iso_vocabulary_init(vocabulary);
  iso_status status = build(t);
  if (status != ISO_OK) {
    iso_tokenizer_destroy(t);
    return status;
  }
  *out_tokenizer = t;
  return ISO_OK;
}

void iso_tokenizer_destroy(iso_tokenizer *t) {
  if (!t)
    return;
  iso_vocabulary_free(&t->vocabulary);
  iso_index_free(&t->segmenter.pieces);
  iso_merge_table_free(&t->segmenter.merges);
  iso_trie_free(&t->segmenter.trie);
  iso_trie_free(&t->segmenter.symbols);
  iso_index_free(&t->by_text);
  iso_trie_free(&t->added);
  iso_trie_free(&t->added_normalized);
  iso_text_free(&t->decoded);
  free(t->decoded_offsets);
  free(t->end_ids.data);
  free(t);
}

int32_t iso_tokenizer_vocabulary_size(const iso_tokenizer *t) {
  return (int32_t)t->vocabulary.count;
}
int32_t iso_tokenizer_bos_id(const iso_tokenizer *t) { return t->vocabulary.bos_id; }
int32_t iso_tokenizer_eos_id(const iso_tokenizer *t) { return t->vocabulary.eos_id; }
int32_t iso_tokenizer_pad_id(const iso_tokenizer *t) { return t->vocabulary.pad_id; }
int32_t iso_tokenizer_unknown_id(const iso_tokenizer *t) { return t->vocabulary.unknown_id; }

bool iso_tokenizer_adds_bos(const iso_tokenizer *t) {
  for (size_t i = 0; i < t->vocabulary.prefix_count; i++)
    if (t->vocabulary.prefix[i] == t->vocabulary.bos_id)
      return true;
  return false;
}

bool iso_tokenizer_is_end(const iso_tokenizer *t, int32_t id) {
  return t->end_ids.length > 0 && bsearch(&id, t->end_ids.data, t->end_ids.length,
                                          sizeof *t->end_ids.data, compare_ids) != NULL;
}

const int32_t *iso_tokenizer_end_ids(const iso_tokenizer *t, size_t *out_count) {
  *out_count = t->end_ids.length;
  return t->end_ids.data;
}

bool iso_tokenizer_is_control(const iso_tokenizer *t, int32_t id) {
  return id >= 0 && (size_t)id < t->vocabulary.count &&
         (t->vocabulary.tokens[id].flags & ISO_TOKEN_SPECIAL);
}

int32_t iso_tokenizer_find(const iso_tokenizer *t, const char *text, size_t length) {
  return iso_index_find(&t->by_text, text, length);
}

const char *iso_tokenizer_token_text(const iso_tokenizer *t, int32_t id, size_t *out_length) {
  *out_length = 0;
  if (id < 0 || (size_t)id >= t->vocabulary.count)
    return NULL;
  *out_length = t->vocabulary.tokens[id].length;
  return iso_vocabulary_text(&t->vocabulary, id);
}
