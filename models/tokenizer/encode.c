#include "models/tokenizer/byte_level.h"
#include "models/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

iso_status iso_encoding_begin(const iso_tokenizer *tokenizer, iso_encoding *out) {
  *out = (iso_encoding){.tokenizer = tokenizer};
  return iso_matcher_create(&out->matcher);
}

void iso_encoding_end(iso_encoding *e) {
  iso_matcher_destroy(e->matcher);
  for (size_t i = 0; i < sizeof e->normalized / sizeof *e->normalized; i++)
    iso_text_free(&e->normalized[i]);
  for (size_t i = 0; i < sizeof e->scratch / sizeof *e->scratch; i++)
    iso_text_free(&e->scratch[i]);
  iso_text_free(&e->raw);
  iso_segment_scratch_free(&e->segment);
  free(e->ids.data);
}

iso_status iso_encoding_normalize(iso_encoding *e, iso_text_place place, const char *text,
                                  size_t length, const char **out_text, size_t *out_length) {
  const iso_vocabulary *v = &e->tokenizer->vocabulary;
  for (size_t i = 0; i < v->normalizer_count; i++) {
    iso_text *out = &e->normalized[i % 2];
    out->length = 0;
    ISO_TRY(iso_normalizer_apply(&v->normalizers[i], e->matcher, place, text, length, out));
    text = out->data;
    length = out->length;
  }
  *out_text = text;
  *out_length = length;
  return ISO_OK;
}

static iso_status take_word(void *context, const char *word, size_t length) {
  iso_encoding *e = context;
  return iso_segment(&e->tokenizer->segmenter, &e->segment, word, length, &e->ids);
}

static iso_status encode_words(iso_encoding *e, iso_text_place place, const char *text,
                               size_t length) {
  const iso_vocabulary *v = &e->tokenizer->vocabulary;
  iso_pretokenizer_run run = {.steps = v->pretokenizers,
                              .count = v->pretokenizer_count,
                              .matcher = e->matcher,
                              .scratch = e->scratch,
                              .sink = take_word,
                              .sink_context = e};
  return iso_pretokenize(&run, place, text, length);
}

/* A range of text encoded one way or another; `place` of a range that does not start the text. */
typedef iso_status (*encode_range)(iso_encoding *e, iso_text_place place, const char *text,
                                   size_t length);

/* Cuts a text at the added tokens of `trie`; the text between goes to `encode`. */
static iso_status encode_between(iso_encoding *e, const iso_trie *trie, encode_range encode,
                                 iso_text_place place, const char *text, size_t length) {
  iso_added_walk walk = {0};
  iso_added_match match;
  for (size_t done = 0;; done = walk.done) {
    bool found = iso_added_next(e->tokenizer, trie, e->parse_special, text, length, &walk, &match);
    size_t end = found ? match.start : length;
    if (end > done)
      ISO_TRY(encode(e, done == 0 ? place : ISO_TEXT_AFTER_TOKEN, text + done, end - done));
    if (!found)
      return ISO_OK;
    ISO_TRY(iso_ids_push(&e->ids, match.id));
  }
}

static iso_status encode_well_formed(iso_encoding *e, iso_text_place place, const char *text,
                                     size_t length) {
  ISO_TRY(iso_encoding_normalize(e, place, text, length, &text, &length));
  return encode_between(e, &e->tokenizer->added_normalized, encode_words, place, text, length);
}

static iso_status encode_raw_bytes(iso_encoding *e, const char *bytes, size_t length) {
  const iso_segmenter *segmenter = &e->tokenizer->segmenter;
  if (e->tokenizer->byte_level) {
    e->raw.length = 0;
    ISO_TRY(iso_byte_level_encode(bytes, length, &e->raw));
    return iso_segment(segmenter, &e->segment, e->raw.data, e->raw.length, &e->ids);
  }
  if (segmenter->byte_fallback) {
    bool known;
    ISO_TRY(iso_segment_bytes(segmenter, bytes, length, &e->ids, &known));
    if (known)
      return ISO_OK;
  }
  return iso_segment(segmenter, &e->segment, "\xEF\xBF\xBD", 3, &e->ids);
}

/* Bytes that are no part of a well formed code point. */
static size_t ill_formed_run(const char *text, size_t length) {
  size_t size = 0;
  uint32_t code_point;
  bool cut;
  while (size < length && iso_utf8_decode(text + size, length - size, &code_point) == 0)
    size += iso_utf8_ill_formed(text + size, length - size, &cut);
  return size;
}

static iso_status encode_text(iso_encoding *e, iso_text_place place, const char *text,
                              size_t length) {
  for (size_t at = 0; at < length; place = ISO_TEXT_CONTINUED) {
    size_t well_formed = iso_utf8_valid_prefix(text + at, length - at);
    if (well_formed > 0)
      ISO_TRY(encode_well_formed(e, place, text + at, well_formed));
    at += well_formed;
    size_t raw = ill_formed_run(text + at, length - at);
    if (raw > 0)
      ISO_TRY(encode_raw_bytes(e, text + at, raw));
    at += raw;
  }
  return ISO_OK;
}

/* The ids that go before the text: none of them where it starts with them, or with BOS, already. */
static size_t needed_prefix(const iso_vocabulary *v, const iso_ids *ids) {
  if (v->prefix_count == 0 || ids->length == 0)
    return v->prefix_count;
  if (ids->data[0] == v->bos_id && v->prefix[0] == v->bos_id)
    return 0;
  return ids->length >= v->prefix_count &&
                 memcmp(ids->data, v->prefix, v->prefix_count * sizeof *v->prefix) == 0
             ? 0
             : v->prefix_count;
}

static iso_status add_special(const iso_vocabulary *v, bool open_end, iso_ids *ids) {
  size_t prefix = needed_prefix(v, ids), suffix = open_end ? 0 : v->suffix_count;
  ISO_TRY(iso_array_grow((void **)&ids->data, &ids->capacity, ids->length + prefix + suffix + 1,
                         sizeof *ids->data));
  memmove(ids->data + prefix, ids->data, ids->length * sizeof *ids->data);
  memcpy(ids->data, v->prefix, prefix * sizeof *ids->data);
  ids->length += prefix;
  memcpy(ids->data + ids->length, v->suffix, suffix * sizeof *ids->data);
  ids->length += suffix;
  return ISO_OK;
}

static iso_status encode(iso_encoding *e, const char *text, size_t length, uint32_t flags) {
  e->parse_special = flags & ISO_TOKENIZE_PARSE_SPECIAL;
  ISO_TRY(encode_between(e, &e->tokenizer->added, encode_text, ISO_TEXT_FIRST, text, length));
  return flags & ISO_TOKENIZE_ADD_SPECIAL
             ? add_special(&e->tokenizer->vocabulary, flags & ISO_TOKENIZE_OPEN_END, &e->ids)
             : ISO_OK;
}

iso_status iso_tokenizer_encode(const iso_tokenizer *tokenizer, const char *text, size_t length,
                                uint32_t flags, int32_t **out_ids, size_t *out_count) {
  *out_ids = NULL;
  *out_count = 0;
  if (length > ISO_MAX_TOKENIZER_TEXT)
    return iso_fail(ISO_ERROR_LIMIT, "tokenizer: a text of %zu bytes; at most %zu are taken",
                    length, ISO_MAX_TOKENIZER_TEXT);
  iso_encoding *e = malloc(sizeof *e); /* a few kilobytes: off the caller's stack */
  if (!e)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "tokenizer: no memory to encode");
  iso_status status = iso_encoding_begin(tokenizer, e);
  if (status == ISO_OK)
    status = encode(e, text, length, flags);
  if (status == ISO_OK && e->ids.length > 0) {
    *out_ids = e->ids.data;
    *out_count = e->ids.length;
    e->ids = (iso_ids){0};
  }
  iso_encoding_end(e);
  free(e);
  return status;
}
