#include "models/tokenizer/vocabulary.h"

#include <stdlib.h>
#include <string.h>

void iso_vocabulary_init(iso_vocabulary *vocabulary) {
  *vocabulary = (iso_vocabulary){.bos_id = -1, .eos_id = -1, .unknown_id = -1, .pad_id = -1};
}

void iso_vocabulary_free(iso_vocabulary *v) {
  free(v->tokens);
  free(v->scores);
  free(v->merges);
  free(v->end_ids.data);
  iso_text_free(&v->text);
  iso_text_free(&v->unknown_text);
  for (size_t i = 0; i < v->normalizer_count; i++)
    iso_normalizer_free(&v->normalizers[i]);
  for (size_t i = 0; i < v->pretokenizer_count; i++)
    iso_pretokenizer_free(&v->pretokenizers[i]);
  for (size_t i = 0; i < v->decoder_count; i++) {
    iso_regex_destroy(v->decoders[i].regex);
    iso_text_free(&v->decoders[i].content);
  }
  iso_vocabulary_init(v);
}

iso_status iso_vocabulary_add(iso_vocabulary *v, const char *text, size_t length,
                              iso_token_type type, double score) {
  if (v->count >= ISO_MAX_TOKENS)
    return iso_fail(ISO_ERROR_LIMIT, "tokenizer: more than %d tokens", ISO_MAX_TOKENS);
  if (length > ISO_MAX_TOKEN_LENGTH)
    return iso_fail(ISO_ERROR_LIMIT, "tokenizer: token %zu has %zu bytes, at most %u are taken",
                    v->count, length, ISO_MAX_TOKEN_LENGTH);
  ISO_TRY(iso_array_grow((void **)&v->tokens, &v->token_capacity, v->count + 1, sizeof *v->tokens));
  ISO_TRY(iso_array_grow((void **)&v->scores, &v->score_capacity, v->count + 1, sizeof *v->scores));
  size_t offset = v->text.length;
  ISO_TRY(iso_text_append(&v->text, text, length));
  v->tokens[v->count] = (iso_token){.offset = offset,
                                    .length = (uint32_t)length,
                                    .type = (uint8_t)type,
                                    .in_model = type != ISO_TOKEN_UNUSED};
  v->scores[v->count++] = score;
  return ISO_OK;
}

iso_status iso_vocabulary_set(iso_vocabulary *v, int32_t id, const char *text, size_t length,
                              iso_token_type type, double score) {
  if (id < 0 || id >= ISO_MAX_TOKENS)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "tokenizer: id %d is not in 0..%d", id,
                    ISO_MAX_TOKENS - 1);
  while (v->count <= (size_t)id)
    ISO_TRY(iso_vocabulary_add(v, "", 0, ISO_TOKEN_UNUSED, 0));
  if (length > ISO_MAX_TOKEN_LENGTH)
    return iso_fail(ISO_ERROR_LIMIT, "tokenizer: token %d has %zu bytes, at most %u are taken", id,
                    length, ISO_MAX_TOKEN_LENGTH);
  size_t offset = v->text.length;
  ISO_TRY(iso_text_append(&v->text, text, length));
  v->tokens[id] = (iso_token){.offset = offset,
                              .length = (uint32_t)length,
                              .type = (uint8_t)type,
                              .in_model = type != ISO_TOKEN_UNUSED};
  v->scores[id] = score;
  return ISO_OK;
}

iso_status iso_vocabulary_index(const iso_vocabulary *v, bool added, iso_index *out_index) {
  *out_index = (iso_index){0};
  iso_entry *entries = calloc(v->count ? v->count : 1, sizeof *entries);
  if (!entries)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "tokenizer: no memory for %zu tokens", v->count);
  size_t count = 0;
  for (size_t id = 0; id < v->count; id++) {
    const iso_token *token = &v->tokens[id];
    if (token->length > 0 && (added ? token->type != ISO_TOKEN_UNUSED : iso_token_is_piece(token)))
      entries[count++] =
          (iso_entry){iso_vocabulary_text(v, (int32_t)id), token->length, (int32_t)id};
  }
  iso_status status = iso_index_build(entries, count, out_index);
  free(entries);
  return status;
}

/* The start of a token for a message. */
static int shown(size_t length) { return (int)(length > 40 ? 40 : length); }

iso_status iso_vocabulary_add_merge(iso_vocabulary *v, const iso_index *index, const char *left,
                                    size_t left_length, const char *right, size_t right_length) {
  if (left_length + right_length > ISO_MAX_TOKEN_LENGTH)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "tokenizer: merge %zu has %zu bytes", v->merge_count,
                    left_length + right_length);
  char whole[ISO_MAX_TOKEN_LENGTH];
  memcpy(whole, left, left_length);
  memcpy(whole + left_length, right, right_length);
  iso_merge merge = {iso_index_find(index, left, left_length),
                     iso_index_find(index, right, right_length),
                     iso_index_find(index, whole, left_length + right_length)};
  if (merge.left < 0 || merge.right < 0 || merge.merged < 0)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "tokenizer: merge %zu (\"%.*s\" and \"%.*s\"): %s is not a token",
                    v->merge_count, shown(left_length), left, shown(right_length), right,
                    merge.left < 0    ? "the left part"
                    : merge.right < 0 ? "the right part"
                                      : "the merged text");
  ISO_TRY(iso_array_grow((void **)&v->merges, &v->merge_capacity, v->merge_count + 1,
                         sizeof *v->merges));
  v->merges[v->merge_count++] = merge;
  return ISO_OK;
}

iso_status iso_vocabulary_add_merge_line(iso_vocabulary *v, const iso_index *index,
                                         const char *line, size_t length) {
  const char *space = length > 1 ? memchr(line + 1, ' ', length - 1) : NULL;
  if (!space)
    return iso_fail(ISO_ERROR_CORRUPT_DATA,
                    "tokenizer: merge %zu (\"%.*s\") is not two parts with a space between",
                    v->merge_count, shown(length), line);
  size_t left = (size_t)(space - line);
  return iso_vocabulary_add_merge(v, index, line, left, space + 1, length - left - 1);
}

static iso_status too_many(const char *what) {
  return iso_fail(ISO_ERROR_UNSUPPORTED, "tokenizer: more than %d %s", ISO_MAX_STEPS, what);
}

iso_status iso_vocabulary_add_normalizer(iso_vocabulary *v, iso_normalizer_kind kind,
                                         iso_normalizer **out_step) {
  if (v->normalizer_count == ISO_MAX_STEPS)
    return too_many("normalizers");
  *out_step = &v->normalizers[v->normalizer_count++];
  **out_step = (iso_normalizer){.kind = kind};
  return ISO_OK;
}

iso_status iso_vocabulary_add_pretokenizer(iso_vocabulary *v, iso_pretokenizer_kind kind,
                                           iso_pretokenizer **out_step) {
  if (v->pretokenizer_count == ISO_MAX_PRETOKENIZERS)
    return too_many("pre-tokenizers");
  *out_step = &v->pretokenizers[v->pretokenizer_count++];
  **out_step = (iso_pretokenizer){.kind = kind};
  return ISO_OK;
}

iso_status iso_vocabulary_add_split(iso_vocabulary *v, const char *pattern,
                                    iso_split_behavior behavior, bool invert) {
  iso_pretokenizer *step = NULL;
  ISO_TRY(iso_vocabulary_add_pretokenizer(v, ISO_PRETOKENIZER_SPLIT, &step));
  step->behavior = behavior;
  step->invert = invert;
  return iso_regex_compile(pattern, strlen(pattern), &step->regex);
}

iso_status iso_vocabulary_add_decoder(iso_vocabulary *v, iso_decode_kind kind,
                                      iso_decode_step **out_step) {
  if (v->decoder_count == ISO_MAX_STEPS)
    return too_many("decoders");
  *out_step = &v->decoders[v->decoder_count++];
  **out_step = (iso_decode_step){.kind = kind};
  return ISO_OK;
}

iso_status iso_vocabulary_use_sentencepiece(iso_vocabulary *v,
                                            const iso_sentencepiece_options *options) {
  iso_normalizer *normalizer = NULL;
  ISO_TRY(iso_vocabulary_add_normalizer(v, ISO_NORMALIZER_SENTENCEPIECE, &normalizer));
  normalizer->dummy_prefix = options->dummy_prefix;
  normalizer->remove_extra_whitespace = options->remove_extra_whitespace;
  if (options->charsmap_size > 0)
    ISO_TRY(iso_charsmap_create(options->charsmap, options->charsmap_size, &normalizer->charsmap));
  v->fuse_unknown = true;
  v->single_precision = true;
  iso_decode_step *step = NULL;
  ISO_TRY(iso_vocabulary_add_decoder(v, ISO_DECODE_REPLACE, &step));
  ISO_TRY(iso_regex_compile_literal(ISO_METASPACE, 3, &step->regex));
  ISO_TRY(iso_text_append(&step->content, " ", 1));
  v->trim = options->remove_extra_whitespace ? ISO_TRIM_SPACE_A_TOKEN
            : options->dummy_prefix          ? ISO_TRIM_SPACES
                                             : ISO_TRIM_NOTHING;
  v->trim_count = 1;
  return ISO_OK;
}
