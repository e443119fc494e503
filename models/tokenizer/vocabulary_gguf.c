/* GGUF's tokenizer.ggml.* metadata. Key names and token types are those of ggml/docs/gguf.md. */
#include "models/formats/gguf.h"
#include "models/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

/* What the file holds beside strings and numbers of one value. */
typedef struct token_arrays {
  iso_text_view *texts;
  uint64_t count;
  const iso_gguf_value *types;  /* NULL: all normal */
  const iso_gguf_value *scores; /* NULL: none */
} token_arrays;

static iso_status check_length(const iso_gguf_value *value, uint64_t count) {
  return !value || value->count == count
             ? ISO_OK
             : iso_fail(ISO_ERROR_CORRUPT_DATA, "%s has %llu elements for %llu tokens", value->key,
                        (unsigned long long)value->count, (unsigned long long)count);
}

/* Whether the token's text has a U+2581. */
static bool has_metaspace(const iso_vocabulary *v, int32_t id) {
  return memmem(iso_vocabulary_text(v, id), v->tokens[id].length, ISO_METASPACE, 3) != NULL;
}

/* Control and unknown tokens are found only when special tokens are parsed; user-defined ones
 * always, and before the model sees the text. In a byte-level vocabulary these are written plainly,
 * not in the byte alphabet, so that no word can become one. In a SentencePiece vocabulary those
 * with spaces (Gemma's runs of them) are symbols of its model, where a space is U+2581. */
static void mark_added(iso_vocabulary *v, bool byte_level) {
  for (size_t id = 0; id < v->count; id++) {
    iso_token *token = &v->tokens[id];
    if (token->length == 0 || token->length > ISO_MAX_ADDED_TOKEN_LENGTH)
      continue;
    if (token->type == ISO_TOKEN_CONTROL || token->type == ISO_TOKEN_UNKNOWN)
      token->flags = ISO_TOKEN_ADDED | ISO_TOKEN_SPECIAL;
    if (token->type == ISO_TOKEN_USER_DEFINED) {
      bool symbol = v->kind != ISO_SEGMENTER_RANKED_BPE && has_metaspace(v, (int32_t)id);
      token->flags = symbol ? 0 : ISO_TOKEN_ADDED;
      token->in_model = !byte_level;
      v->symbols_in_model = v->symbols_in_model || symbol;
    }
    if (token->type == ISO_TOKEN_BYTE)
      v->byte_fallback = true;
  }
}

/* GGUF writes the spaces of user-defined tokens as spaces. */
static iso_status add_token(iso_text_view text, int64_t type, double score, bool byte_level,
                            iso_vocabulary *v) {
  if (byte_level || type != ISO_TOKEN_USER_DEFINED || !memchr(text.data, ' ', text.length))
    return iso_vocabulary_add(v, text.data, text.length, (iso_token_type)type, score);
  iso_text spelled = {0};
  iso_status status = ISO_OK;
  for (uint64_t i = 0; i < text.length && status == ISO_OK; i++)
    status = text.data[i] == ' ' ? iso_text_append(&spelled, ISO_METASPACE, 3)
                                 : iso_text_append(&spelled, text.data + i, 1);
  if (status == ISO_OK)
    status = iso_vocabulary_add(v, spelled.data, spelled.length, (iso_token_type)type, score);
  iso_text_free(&spelled);
  return status;
}

static iso_status add_tokens(const token_arrays *arrays, bool byte_level, iso_vocabulary *v) {
  for (uint64_t i = 0; i < arrays->count; i++) {
    int64_t type = arrays->types ? iso_gguf_value_int(arrays->types, i) : ISO_TOKEN_NORMAL;
    double score = arrays->scores ? iso_gguf_value_float(arrays->scores, i) : 0;
    if (type == 0)
      type = ISO_TOKEN_NORMAL; /* "undefined", which old converters wrote */
    if (type < ISO_TOKEN_NORMAL || type > ISO_TOKEN_BYTE)
      return iso_fail(ISO_ERROR_UNSUPPORTED, KEY("token_type") " of token %llu is %lld",
                      (unsigned long long)i, (long long)type);
    if (score != score)
      return iso_fail(ISO_ERROR_CORRUPT_DATA, KEY("scores") " of token %llu is NaN",
                      (unsigned long long)i);
    ISO_TRY(add_token(arrays->texts[i], type, score, byte_level, v));
  }
  return ISO_OK;
}

static iso_status read_tokens(const iso_gguf *gguf, bool scored, bool byte_level,
                              iso_vocabulary *v) {
  token_arrays arrays = {0};
  ISO_TRY(iso_gguf_get_optional_int_array(gguf, KEY("token_type"), &arrays.types));
  if (scored)
    ISO_TRY(iso_gguf_get_float_array(gguf, KEY("scores"), &arrays.scores));
  ISO_TRY(iso_gguf_get_string_array(gguf, KEY("tokens"), &arrays.texts, &arrays.count));
  iso_status status = check_length(arrays.types, arrays.count);
  if (status == ISO_OK)
    status = check_length(arrays.scores, arrays.count);
  if (status == ISO_OK)
    status = add_tokens(&arrays, byte_level, v);
  free(arrays.texts);
  mark_added(v, byte_level);
  return status;
}

static iso_status read_merges(const iso_gguf *gguf, iso_vocabulary *v) {
  iso_text_view *lines;
  uint64_t count;
  ISO_TRY(iso_gguf_get_string_array(gguf, KEY("merges"), &lines, &count));
  iso_index index;
  iso_status status = iso_vocabulary_index(v, false, &index);
  for (uint64_t i = 0; i < count && status == ISO_OK; i++)
    status = iso_vocabulary_add_merge_line(v, &index, lines[i].data, lines[i].length);
  iso_index_free(&index);
  free(lines);
  return status;
}

/* A special token's id; *id stays where the key is absent. -1 in 32 bits stands for none. */
static iso_status read_id(const iso_gguf *gguf, const char *key, const iso_vocabulary *v,
                          int32_t *id) {
  int64_t value = *id;
  ISO_TRY(iso_gguf_get_optional_int(gguf, key, -1, UINT32_MAX, &value));
  if (value == UINT32_MAX)
    value = -1;
  if (value >= (int64_t)v->count)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "%s is %lld, not in 0..%zu", key, (long long)value,
                    v->count - 1);
  *id = (int32_t)value;
  return ISO_OK;
}

static iso_status read_special(const iso_gguf *gguf, bool add_bos, bool add_eos,
                               iso_vocabulary *v) {
  ISO_TRY(read_id(gguf, KEY("bos_token_id"), v, &v->bos_id));
  ISO_TRY(read_id(gguf, KEY("eos_token_id"), v, &v->eos_id));
  ISO_TRY(read_id(gguf, KEY("unknown_token_id"), v, &v->unknown_id));
  ISO_TRY(read_id(gguf, KEY("padding_token_id"), v, &v->pad_id));
  static const char *const end_keys[] = {KEY("eot_token_id"), KEY("eom_token_id")};
  for (size_t i = 0; i < sizeof end_keys / sizeof *end_keys; i++) {
    int32_t id = -1;
    ISO_TRY(read_id(gguf, end_keys[i], v, &id));
    if (id >= 0)
      ISO_TRY(iso_ids_push(&v->end_ids, id));
  }
  ISO_TRY(iso_gguf_get_optional_bool(gguf, KEY("add_bos_token"), &add_bos));
  ISO_TRY(iso_gguf_get_optional_bool(gguf, KEY("add_eos_token"), &add_eos));
  if (add_bos && v->bos_id >= 0)
    v->prefix[v->prefix_count++] = v->bos_id;
  if (add_eos && v->eos_id >= 0)
    v->suffix[v->suffix_count++] = v->eos_id;
  return ISO_OK;
}

static iso_status read_gpt2(const iso_gguf *gguf, iso_vocabulary *v) {
  v->kind = ISO_SEGMENTER_RANKED_BPE;
  iso_text_view pre = {0};
  ISO_TRY(iso_gguf_get_optional_string(gguf, KEY("pre"), &pre));
  if (!pre.data)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    KEY("pre") " is missing, so it is not known how text is split into words; "
                               "convert the model again with a newer converter");
  bool add_bos;
  ISO_TRY(iso_fail_context(iso_vocabulary_use_pretokenizer(v, pre.data, pre.length, &add_bos),
                           KEY("pre")));
  ISO_TRY(read_tokens(gguf, false, true, v));
  ISO_TRY(read_merges(gguf, v));
  iso_decode_step *step;
  ISO_TRY(iso_vocabulary_add_decoder(v, ISO_DECODE_BYTE_LEVEL, &step));
  return read_special(gguf, add_bos, false, v);
}

static iso_status read_sentencepiece(const iso_gguf *gguf, iso_sentencepiece_options options,
                                     iso_vocabulary *v) {
  ISO_TRY(iso_gguf_get_optional_bool(gguf, KEY("add_space_prefix"), &options.dummy_prefix));
  ISO_TRY(iso_gguf_get_optional_bool(gguf, KEY("remove_extra_whitespaces"),
                                     &options.remove_extra_whitespace));
  const iso_gguf_value *map = NULL;
  ISO_TRY(iso_gguf_get_optional_int_array(gguf, KEY("precompiled_charsmap"), &map));
  if (map && map->type != ISO_GGUF_U8 && map->type != ISO_GGUF_I8)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "%s is not made of bytes", map->key);
  if (map) {
    options.charsmap = map->data;
    options.charsmap_size = map->bytes;
  }
  ISO_TRY(read_tokens(gguf, true, false, v));
  return iso_vocabulary_use_sentencepiece(v, &options);
}

static iso_status read_llama(const iso_gguf *gguf, iso_vocabulary *v) {
  v->kind = ISO_SEGMENTER_SCORED_BPE;
  ISO_TRY(read_sentencepiece(gguf, (iso_sentencepiece_options){.dummy_prefix = true}, v));
  /* Llama's own ids, which the first files did not write down. */
  v->unknown_id = v->count > 0 ? 0 : -1;
  v->bos_id = v->count > 1 ? 1 : -1;
  v->eos_id = v->count > 2 ? 2 : -1;
  return read_special(gguf, true, false, v);
}

static iso_status read_t5(const iso_gguf *gguf, iso_vocabulary *v) {
  v->kind = ISO_SEGMENTER_UNIGRAM;
  ISO_TRY(read_sentencepiece(gguf, (iso_sentencepiece_options){.dummy_prefix = true}, v));
  v->pad_id = v->count > 0 ? 0 : -1;
  v->eos_id = v->count > 1 ? 1 : -1;
  v->unknown_id = v->count > 2 ? 2 : -1;
  return read_special(gguf, false, true, v);
}

/* Gemma 4: SentencePiece's spelling of spaces, but merges in order, and bytes for what is unknown.
 */
static iso_status read_gemma4(const iso_gguf *gguf, iso_vocabulary *v) {
  v->kind = ISO_SEGMENTER_RANKED_BPE;
  v->fuse_unknown = true;
  iso_normalizer *normalizer = NULL;
  ISO_TRY(iso_vocabulary_add_normalizer(v, ISO_NORMALIZER_REPLACE, &normalizer));
  ISO_TRY(iso_regex_compile_literal(" ", 1, &normalizer->regex));
  ISO_TRY(iso_text_append(&normalizer->content, ISO_METASPACE, 3));
  iso_decode_step *step = NULL;
  ISO_TRY(iso_vocabulary_add_decoder(v, ISO_DECODE_REPLACE, &step));
  ISO_TRY(iso_regex_compile_literal(ISO_METASPACE, 3, &step->regex));
  ISO_TRY(iso_text_append(&step->content, " ", 1));
  ISO_TRY(read_tokens(gguf, false, false, v));
  ISO_TRY(read_merges(gguf, v));
  return read_special(gguf, true, false, v);
}

static const struct {
  const char *name;
  iso_status (*read)(const iso_gguf *gguf, iso_vocabulary *v);
} models[] = {{"gpt2", read_gpt2}, {"llama", read_llama}, {"t5", read_t5}, {"gemma4", read_gemma4}};

static iso_status read_gguf(const iso_gguf *gguf, iso_vocabulary *v) {
  iso_text_view name;
  ISO_TRY(iso_gguf_get_string(gguf, KEY("model"), &name));
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    if (iso_text_view_equals(name, models[i].name))
      return models[i].read(gguf, v);
  return iso_fail(ISO_ERROR_UNSUPPORTED, KEY("model") " \"%.*s\" is not supported",
                  (int)(name.length > 100 ? 100 : name.length), name.data);
}

iso_status iso_tokenizer_create_from_gguf(const iso_gguf *gguf, iso_tokenizer **out_tokenizer) {
  *out_tokenizer = NULL;
  iso_vocabulary vocabulary;
  iso_vocabulary_init(&vocabulary);
  iso_status status = read_gguf(gguf, &vocabulary);
  if (status != ISO_OK) {
    iso_vocabulary_free(&vocabulary);
    return status;
  }
  return iso_tokenizer_create(&vocabulary, out_tokenizer);
}
