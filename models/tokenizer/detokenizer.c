#include "models/tokenizer/byte_level.h"
#include "models/tokenizer/tokenizer_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT_CHARACTER "\xEF\xBF\xBD"

/* "<0x41>" names a byte. */
static bool parse_byte_token(const char *text, size_t length, char *out_byte) {
  if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' ||
      !isxdigit((unsigned char)text[3]) || !isxdigit((unsigned char)text[4]))
    return false;
  char digits[] = {text[3], text[4], 0};
  *out_byte = (char)strtoul(digits, NULL, 16);
  return true;
}

static iso_status strip_ends(const iso_decode_step *step, const iso_text *in, iso_text *out) {
  const size_t unit = step->content.length;
  size_t start = 0, end = in->length;
  for (uint32_t i = 0; i < step->start && end - start >= unit; i++, start += unit)
    if (memcmp(in->data + start, step->content.data, unit) != 0)
      break;
  for (uint32_t i = 0; i < step->stop && end - start >= unit; i++, end -= unit)
    if (memcmp(in->data + end - unit, step->content.data, unit) != 0)
      break;
  return iso_text_append(out, in->data + start, end - start);
}

static iso_status decode_step(const iso_decode_step *step, iso_matcher *matcher, const iso_text *in,
                              iso_text *out) {
  bool decoded;
  char byte;
  switch (step->kind) {
  case ISO_DECODE_REPLACE:
    if (iso_utf8_valid_prefix(in->data, in->length) != in->length)
      break;
    return iso_text_replace(step->regex, matcher, &step->content, in->data, in->length, out);
  case ISO_DECODE_BYTE_LEVEL:
    ISO_TRY(iso_byte_level_decode(in->data, in->length, out, &decoded));
    if (decoded)
      return ISO_OK;
    break;
  case ISO_DECODE_BYTE_FALLBACK:
    if (parse_byte_token(in->data, in->length, &byte))
      return iso_text_append(out, &byte, 1);
    break;
  case ISO_DECODE_STRIP:
    return strip_ends(step, in, out);
  }
  return iso_text_append(out, in->data, in->length);
}

/* Control tokens read as they are written; added ones were never put in the byte alphabet. */
static bool step_applies(const iso_decode_step *step, const iso_token *token) {
  return token->type != ISO_TOKEN_CONTROL && token->type != ISO_TOKEN_UNKNOWN &&
         (token->in_model || step->kind != ISO_DECODE_BYTE_LEVEL);
}

static iso_status decode_token(const iso_tokenizer *tokenizer, int32_t id, iso_matcher *matcher,
                               iso_text work[2], const iso_text **out) {
  const iso_vocabulary *v = &tokenizer->vocabulary;
  const iso_token *token = &v->tokens[id];
  const char *text = iso_vocabulary_text(v, id);
  char byte;
  work[0].length = 0;
  *out = &work[0];
  if (token->type == ISO_TOKEN_UNKNOWN && v->unknown_text.length > 0)
    return iso_text_append(&work[0], v->unknown_text.data, v->unknown_text.length);
  if (token->type == ISO_TOKEN_BYTE && parse_byte_token(text, token->length, &byte))
    return iso_text_append(&work[0], &byte, 1);
  ISO_TRY(iso_text_append(&work[0], text, token->length));
  for (size_t i = 0; i < v->decoder_count; i++) {
    if (!step_applies(&v->decoders[i], token))
      continue;
    iso_text *next = *out == &work[0] ? &work[1] : &work[0];
    next->length = 0;
    ISO_TRY(decode_step(&v->decoders[i], matcher, *out, next));
    *out = next;
  }
  return ISO_OK;
}

iso_status iso_tokenizer_build_decoded(iso_tokenizer *tokenizer) {
  const size_t count = tokenizer->vocabulary.count;
  tokenizer->decoded_offsets = calloc(count + 1, sizeof *tokenizer->decoded_offsets);
  if (!tokenizer->decoded_offsets)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "tokenizer: no memory for %zu tokens", count);
  iso_matcher *matcher;
  ISO_TRY(iso_matcher_create(&matcher));
  iso_text work[2] = {{0}};
  iso_status status = ISO_OK;
  for (size_t id = 0; id < count && status == ISO_OK; id++) {
    const iso_text *decoded;
    status = decode_token(tokenizer, (int32_t)id, matcher, work, &decoded);
    if (status == ISO_OK)
      status = iso_text_append(&tokenizer->decoded, decoded->data, decoded->length);
    tokenizer->decoded_offsets[id + 1] = tokenizer->decoded.length;
  }
  iso_text_free(&work[0]);
  iso_text_free(&work[1]);
  iso_matcher_destroy(matcher);
  return status;
}

const char *iso_tokenizer_token_bytes(const iso_tokenizer *tokenizer, int32_t id,
                                      size_t *out_length) {
  *out_length = 0;
  if (id < 0 || (size_t)id >= tokenizer->vocabulary.count)
    return NULL;
  size_t start = tokenizer->decoded_offsets[id];
  *out_length = tokenizer->decoded_offsets[id + 1] - start;
  return tokenizer->decoded.data ? tokenizer->decoded.data + start : "";
}

void iso_detokenizer_init(iso_detokenizer *d, const iso_tokenizer *tokenizer, uint32_t flags) {
  const iso_vocabulary *v = &tokenizer->vocabulary;
  *d = (iso_detokenizer){.tokenizer = tokenizer, .flags = flags};
  d->at_start = v->trim != ISO_TRIM_NOTHING && !(flags & ISO_DETOKENIZE_CONTINUE);
  d->trim_left = v->trim_count;
}

/* Takes off leading spaces while nothing has been written. Only those of words: a byte token is
 * what it is, and so is how the unknown token reads. */
static void trim_start(iso_detokenizer *d, uint8_t type, const char **bytes, size_t *length) {
  const bool each = d->tokenizer->vocabulary.trim == ISO_TRIM_SPACE_A_TOKEN;
  const bool word = type == ISO_TOKEN_NORMAL || type == ISO_TOKEN_USER_DEFINED;
  uint32_t most = !word ? 0 : each ? 1 : d->trim_left;
  while (*length > 0 && most > 0 && **bytes == ' ') {
    ++*bytes;
    --*length;
    most--;
  }
  if (!each && word)
    d->trim_left = most;
  if (*length > 0)
    d->at_start = false;
}

/* One more byte for a cut sequence. *out_taken is false where the byte does not continue it. */
static iso_status continue_pending(iso_detokenizer *d, char byte, iso_text *out, bool *out_taken) {
  d->pending[d->pending_length] = byte;
  uint32_t code_point;
  bool cut;
  size_t length = d->pending_length + 1u;
  *out_taken = true;
  if (iso_utf8_decode(d->pending, length, &code_point) > 0) {
    d->pending_length = 0;
    return iso_text_append(out, d->pending, length);
  }
  (void)iso_utf8_ill_formed(d->pending, length, &cut);
  if (cut) {
    d->pending_length++;
    return ISO_OK;
  }
  *out_taken = false;
  d->pending_length = 0;
  return iso_text_append(out, REPLACEMENT_CHARACTER, 3);
}

static iso_status push_bytes(iso_detokenizer *d, const char *bytes, size_t length, iso_text *out) {
  for (size_t at = 0; at < length;) {
    if (d->pending_length > 0) {
      bool taken;
      ISO_TRY(continue_pending(d, bytes[at], out, &taken));
      at += taken;
      continue;
    }
    size_t valid = iso_utf8_valid_prefix(bytes + at, length - at);
    ISO_TRY(iso_text_append(out, bytes + at, valid));
    at += valid;
    if (at == length)
      break;
    bool cut;
    size_t bad = iso_utf8_ill_formed(bytes + at, length - at, &cut);
    if (cut) {
      memcpy(d->pending, bytes + at, bad);
      d->pending_length = (uint8_t)bad;
    } else {
      ISO_TRY(iso_text_append(out, REPLACEMENT_CHARACTER, 3));
    }
    at += bad;
  }
  return ISO_OK;
}

static bool is_left_out(const iso_detokenizer *d, int32_t id) {
  return (d->flags & ISO_DETOKENIZE_SKIP_SPECIAL) && iso_tokenizer_is_control(d->tokenizer, id);
}

void iso_detokenizer_go_on(iso_detokenizer *d, const int32_t *ids, size_t count) {
  size_t length;
  for (size_t i = 0; i < count && d->at_start; i++) {
    const char *bytes = iso_tokenizer_token_bytes(d->tokenizer, ids[i], &length);
    if (bytes && !is_left_out(d, ids[i]))
      trim_start(d, d->tokenizer->vocabulary.tokens[ids[i]].type, &bytes, &length);
  }
}

iso_status iso_detokenizer_push(iso_detokenizer *d, int32_t id, iso_text *out) {
  size_t length;
  const char *bytes = iso_tokenizer_token_bytes(d->tokenizer, id, &length);
  if (!bytes)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "tokenizer: id %d is not in 0..%zu", id,
                    d->tokenizer->vocabulary.count - 1);
  if (is_left_out(d, id))
    return ISO_OK;
  if (d->at_start)
    trim_start(d, d->tokenizer->vocabulary.tokens[id].type, &bytes, &length);
  return push_bytes(d, bytes, length, out);
}

iso_status iso_detokenizer_finish(iso_detokenizer *d, iso_text *out) {
  if (d->pending_length == 0)
    return ISO_OK;
  d->pending_length = 0;
  return iso_text_append(out, REPLACEMENT_CHARACTER, 3);
}

iso_status iso_tokenizer_decode(const iso_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                uint32_t flags, char **out_text, size_t *out_length) {
  *out_text = NULL;
  *out_length = 0;
  iso_text text = {0};
  iso_detokenizer d;
  iso_detokenizer_init(&d, tokenizer, flags);
  iso_status status = ISO_OK;
  for (size_t i = 0; i < count && status == ISO_OK; i++)
    status = iso_detokenizer_push(&d, ids[i], &text);
  if (status == ISO_OK)
    status = iso_detokenizer_finish(&d, &text);
  if (status == ISO_OK)
    status = iso_text_append(&text, "", 1);
  if (status != ISO_OK) {
    iso_text_free(&text);
    return status;
  }
  *out_text = text.data;
  *out_length = text.length - 1;
  return ISO_OK;
}
