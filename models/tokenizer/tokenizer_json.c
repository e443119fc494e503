/* Hugging Face tokenizer.json: the model and the added tokens; json_*.c read the rest.
 * truncation and padding are settings of a batch, not of the model, and are passed over. */
#include "models/tokenizer/json_components.h"

#include <stdlib.h>
#include <string.h>

/* Deepest nesting: the file itself has five levels, and Sequences add two each. */
#define MAX_DEPTH 32

static iso_status refuse_affix(const cJSON *model, const char *key) {
  const char *affix = NULL;
  ISO_TRY(iso_json_get_optional_string(model, key, &affix));
  if (affix && *affix)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "%s \"%s\" is not supported", key, affix);
  return ISO_OK;
}

static iso_status read_bpe_vocabulary(const cJSON *model, iso_vocabulary *v) {
  const cJSON *tokens;
  ISO_TRY(iso_json_get_object(model, "vocab", &tokens));
  int64_t count = 0;
  for (const cJSON *item = tokens->child; item; item = item->next)
    count++;
  /* Ids may leave gaps, but not so many that a small file asks for much memory. */
  const int64_t most = 2 * count + 65536;
  for (const cJSON *item = tokens->child; item; item = item->next) {
    double id = item->valuedouble;
    if (!cJSON_IsNumber(item) || !(id >= 0 && id < (double)most) || id != (double)(int32_t)id)
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "the id of token \"%s\" is not in 0..%lld",
                      item->string, (long long)most - 1);
    int32_t token = (int32_t)id;
    if ((size_t)token < v->count && v->tokens[token].type != ISO_TOKEN_UNUSED)
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "id %d is given to two tokens, one \"%s\"", token,
                      item->string);
    ISO_TRY(iso_vocabulary_set(v, token, item->string, strlen(item->string), ISO_TOKEN_NORMAL, 0));
  }
  return ISO_OK;
}

static iso_status read_merge(const cJSON *item, const iso_index *index, iso_vocabulary *v) {
  if (cJSON_IsString(item))
    return iso_vocabulary_add_merge_line(v, index, item->valuestring, strlen(item->valuestring));
  const cJSON *left = item->child, *right = left ? left->next : NULL;
  if (!cJSON_IsArray(item) || !cJSON_IsString(left) || !cJSON_IsString(right) || right->next)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "merge %zu is neither a text nor a pair of texts",
                    v->merge_count);
  return iso_vocabulary_add_merge(v, index, left->valuestring, strlen(left->valuestring),
                                  right->valuestring, strlen(right->valuestring));
}

static iso_status read_merges(const cJSON *model, const iso_index *index, iso_vocabulary *v) {
  const cJSON *merges;
  ISO_TRY(iso_json_get_array(model, "merges", &merges));
  for (const cJSON *item = merges->child; item; item = item->next)
    ISO_TRY(read_merge(item, index, v));
  return ISO_OK;
}

static bool has_byte_level(const iso_vocabulary *v) {
  for (size_t i = 0; i < v->pretokenizer_count; i++)
    if (v->pretokenizers[i].kind == ISO_PRETOKENIZER_BYTE_LEVEL)
      return true;
  for (size_t i = 0; i < v->normalizer_count; i++)
    if (v->normalizers[i].kind == ISO_NORMALIZER_BYTE_LEVEL)
      return true;
  return false;
}

/* Byte-level models often name an unknown token that they do not have: they never need it. */
static iso_status read_unknown_token(const cJSON *model, const iso_index *index,
                                     iso_vocabulary *v) {
  const char *unknown = NULL;
  ISO_TRY(iso_json_get_optional_string(model, "unk_token", &unknown));
  if (!unknown)
    return ISO_OK;
  v->unknown_id = iso_index_find(index, unknown, strlen(unknown));
  if (v->unknown_id < 0 && !has_byte_level(v))
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "unk_token \"%s\" is not in the vocabulary", unknown);
  return ISO_OK;
}

static iso_status read_bpe(const cJSON *model, iso_vocabulary *v) {
  double dropout = 0;
  ISO_TRY(iso_json_get_optional_float(model, "dropout", 0, 1, &dropout));
  if (dropout != 0)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "dropout is not supported: its tokens are random");
  ISO_TRY(refuse_affix(model, "continuing_subword_prefix"));
  ISO_TRY(refuse_affix(model, "end_of_word_suffix"));
  v->kind = ISO_SEGMENTER_RANKED_BPE;
  ISO_TRY(iso_json_get_optional_bool(model, "fuse_unk", &v->fuse_unknown));
  ISO_TRY(iso_json_get_optional_bool(model, "byte_fallback", &v->byte_fallback));
  ISO_TRY(iso_json_get_optional_bool(model, "ignore_merges", &v->whole_word_first));
  ISO_TRY(read_bpe_vocabulary(model, v));
  iso_index index;
  ISO_TRY(iso_vocabulary_index(v, false, &index));
  iso_status status = read_merges(model, &index, v);
  if (status == ISO_OK)
    status = read_unknown_token(model, &index, v);
  iso_index_free(&index);
  return status;
}

static iso_status read_unigram(const cJSON *model, iso_vocabulary *v) {
  const cJSON *pieces;
  v->kind = ISO_SEGMENTER_UNIGRAM;
  v->fuse_unknown = true;
  ISO_TRY(iso_json_get_optional_bool(model, "byte_fallback", &v->byte_fallback));
  ISO_TRY(iso_json_get_array(model, "vocab", &pieces));
  for (const cJSON *item = pieces->child; item; item = item->next) {
    const cJSON *text = cJSON_IsArray(item) ? item->child : NULL, *score = text ? text->next : NULL;
    if (!cJSON_IsString(text) || !cJSON_IsNumber(score))
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "piece %zu is not a text and a score", v->count);
    ISO_TRY(iso_vocabulary_add(v, text->valuestring, strlen(text->valuestring), ISO_TOKEN_NORMAL,
                               score->valuedouble));
  }
  int64_t unknown = -1;
  ISO_TRY(iso_json_get_optional_int(model, "unk_id", 0, (int64_t)v->count - 1, &unknown));
  v->unknown_id = (int32_t)unknown;
  return ISO_OK;
}

static const iso_component_reader model_readers[] = {
    {"BPE", read_bpe}, {"Unigram", read_unigram}, {NULL, NULL}};

static iso_status read_model(const cJSON *model, iso_vocabulary *v) {
  /* Old files do not name the type; only BPE has merges. */
  if (!cJSON_GetObjectItemCaseSensitive(model, "type") &&
      cJSON_GetObjectItemCaseSensitive(model, "merges"))
    return iso_fail_context(read_bpe(model, v), "model BPE");
  return iso_json_read_component(model, "model", model_readers, v);
}

static const struct {
  const char *key;
  uint8_t flag;
} added_flags[] = {
    {"single_word", ISO_TOKEN_SINGLE_WORD}, {"lstrip", ISO_TOKEN_STRIP_LEFT},
    {"rstrip", ISO_TOKEN_STRIP_RIGHT},      {"normalized", ISO_TOKEN_NORMALIZED},
    {"special", ISO_TOKEN_SPECIAL},
};

/* One added token; `index` holds the tokens known so far. */
static iso_status read_added_token(const cJSON *section, int32_t id, const iso_index *index,
                                   iso_vocabulary *v) {
  const char *content;
  ISO_TRY(iso_json_get_string(section, "content", &content));
  size_t length = strlen(content);
  if (length == 0)
    return ISO_OK; /* Hugging Face passes over it too */
  uint8_t flags = ISO_TOKEN_ADDED;
  for (size_t i = 0; i < sizeof added_flags / sizeof *added_flags; i++) {
    bool value = false;
    ISO_TRY(iso_json_get_optional_bool(section, added_flags[i].key, &value));
    flags |= value ? added_flags[i].flag : 0;
  }
  int32_t known = iso_index_find(index, content, length);
  if (known >= 0) {
    id = known; /* the model's own id counts, whatever the file says here */
  } else {
    const iso_token *old = (size_t)id < v->count ? &v->tokens[id] : NULL;
    if (old && old->type != ISO_TOKEN_UNUSED &&
        (old->length != length || memcmp(iso_vocabulary_text(v, id), content, length) != 0))
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "added token \"%s\" has the id %d of another token",
                      content, id);
    ISO_TRY(iso_vocabulary_set(v, id, content, length, ISO_TOKEN_USER_DEFINED, 0));
    v->tokens[id].in_model = false;
  }
  v->tokens[id].flags = flags;
  v->tokens[id].type = flags & ISO_TOKEN_SPECIAL ? ISO_TOKEN_CONTROL : ISO_TOKEN_USER_DEFINED;
  return ISO_OK;
}

/* The id of an added token: its member "id", or in an object of tokens its key. */
static iso_status added_token_id(const cJSON *item, bool keyed, int64_t most, int64_t *out_id) {
  if (!keyed)
    return iso_json_get_int(item, "id", 0, most, out_id);
  char *end;
  *out_id = strtoll(item->string, &end, 10);
  if (*end || end == item->string || *out_id < 0 || *out_id > most)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "the id \"%s\" is not in 0..%lld", item->string,
                    (long long)most);
  return ISO_OK;
}

iso_status iso_json_read_added_tokens(const cJSON *list, iso_vocabulary *v) {
  if (!list || cJSON_IsNull(list))
    return ISO_OK;
  /* The index borrows the tokens' bytes: make room first, so that they do not move. */
  size_t bytes = 0, count = 0;
  for (const cJSON *item = list->child; item; item = item->next, count++) {
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(item, "content");
    bytes += cJSON_IsString(content) ? strlen(content->valuestring) : 0;
  }
  ISO_TRY(iso_text_reserve(&v->text, bytes));
  const int64_t most = 2 * (int64_t)(v->count + count) + 65536;
  iso_index index;
  ISO_TRY(iso_vocabulary_index(v, true, &index));
  iso_status status = ISO_OK;
  for (const cJSON *item = list->child; item && status == ISO_OK; item = item->next) {
    int64_t id = 0;
    status = added_token_id(item, cJSON_IsObject(list), most, &id);
    if (status == ISO_OK)
      status = read_added_token(item, (int32_t)id, &index, v);
  }
  iso_index_free(&index);
  return iso_fail_context(status, "added tokens");
}

static iso_status read_root(const cJSON *root, iso_vocabulary *v) {
  const char *version = NULL;
  ISO_TRY(iso_json_get_optional_string(root, "version", &version));
  if (version && strcmp(version, "1.0") != 0)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "version \"%s\" is not supported, \"1.0\" is", version);
  const cJSON *model;
  ISO_TRY(iso_json_get_object(root, "model", &model));
  ISO_TRY(iso_json_read_normalizer(cJSON_GetObjectItemCaseSensitive(root, "normalizer"), v));
  ISO_TRY(iso_json_read_pretokenizer(cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer"), v));
  ISO_TRY(iso_json_read_decoder(cJSON_GetObjectItemCaseSensitive(root, "decoder"), v));
  ISO_TRY(
      iso_json_read_post_processor(cJSON_GetObjectItemCaseSensitive(root, "post_processor"), v));
  ISO_TRY(read_model(model, v));
  return iso_json_read_added_tokens(cJSON_GetObjectItemCaseSensitive(root, "added_tokens"), v);
}

iso_status iso_vocabulary_read_json(const char *text, size_t length, iso_vocabulary *v) {
  cJSON *root;
  iso_status status = iso_json_parse(text, length, MAX_DEPTH, &root);
  if (status == ISO_OK)
    status = read_root(root, v);
  cJSON_Delete(root);
  return iso_fail_context(status, "tokenizer.json");
}
