#include "core/file.h"
#include "models/tokenizer/json_components.h"
#include "models/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* The largest tokenizer files known have 40 MB. */
#define MAX_TOKENIZER_BYTES (256u << 20)
#define MAX_CONFIG_BYTES (64u << 20)
#define MAX_DEPTH 64

/* What is around a text where neither the file nor the configuration says: the habit of the slow
 * tokenizer class, for folders with a tokenizer.model only. */
static const struct {
  const char *class_name;
  bool bos, eos;
} class_habits[] = {
    {"LlamaTokenizer", true, false},
    {"GemmaTokenizer", true, false},
    {"MistralTokenizer", true, false},
    {"T5Tokenizer", false, true},
};

static iso_status read_optional_json(const char *folder, const char *name, cJSON **out_root) {
  *out_root = NULL;
  char *path = iso_file_join(folder, name);
  if (!path)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "%s/%s: no memory", folder, name);
  iso_status status = iso_file_exists(path)
                          ? iso_json_read_file(path, MAX_CONFIG_BYTES, MAX_DEPTH, out_root)
                          : ISO_OK;
  free(path);
  return status;
}

/* A token named in a configuration: "text" or {"content": "text"}; NULL when absent or null. */
static iso_status named_token(const cJSON *config, const char *key, const char **out_text) {
  *out_text = NULL;
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, key);
  if (cJSON_IsObject(item))
    return iso_json_get_string(item, "content", out_text);
  return iso_json_get_optional_string(config, key, out_text);
}

static iso_status use_named_token(const cJSON *config, const char *key, bool needed,
                                  const iso_index *index, int32_t *id) {
  const char *text;
  ISO_TRY(named_token(config, key, &text));
  if (!text || !*text)
    return ISO_OK;
  int32_t found = iso_index_find(index, text, strlen(text));
  if (found < 0 && needed)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "%s \"%s\" is not in the vocabulary", key, text);
  *id = found;
  return ISO_OK;
}

/* Puts `id` at the outer end of an affix, or takes it away. */
static void set_prefix(iso_vocabulary *v, int32_t id, bool wanted) {
  bool present = v->prefix_count > 0 && v->prefix[0] == id;
  if (id < 0 || present == wanted || (wanted && v->prefix_count == ISO_MAX_AFFIX))
    return;
  if (wanted) {
    memmove(v->prefix + 1, v->prefix, v->prefix_count * sizeof *v->prefix);
    v->prefix[0] = id;
    v->prefix_count++;
  } else {
    v->prefix_count--;
    memmove(v->prefix, v->prefix + 1, v->prefix_count * sizeof *v->prefix);
  }
}

static void set_suffix(iso_vocabulary *v, int32_t id, bool wanted) {
  bool present = v->suffix_count > 0 && v->suffix[v->suffix_count - 1] == id;
  if (id < 0 || present == wanted || (wanted && v->suffix_count == ISO_MAX_AFFIX))
    return;
  if (wanted)
    v->suffix[v->suffix_count++] = id;
  else
    v->suffix_count--;
}

static iso_status apply_affixes(const cJSON *config, bool slow, iso_vocabulary *v) {
  const char *class_name = NULL;
  ISO_TRY(iso_json_get_optional_string(config, "tokenizer_class", &class_name));
  bool bos = v->prefix_count > 0 && v->bos_id >= 0 && v->prefix[0] == v->bos_id;
  bool eos = v->suffix_count > 0 && v->eos_id >= 0 && v->suffix[v->suffix_count - 1] == v->eos_id;
  for (size_t i = 0; slow && class_name && i < sizeof class_habits / sizeof *class_habits; i++) {
    size_t length = strlen(class_habits[i].class_name);
    const char *rest = class_name + length;
    if (strncmp(class_name, class_habits[i].class_name, length) != 0 ||
        (*rest && strcmp(rest, "Fast") != 0))
      continue;
    bos = class_habits[i].bos;
    eos = class_habits[i].eos;
  }
  ISO_TRY(iso_json_get_optional_bool(config, "add_bos_token", &bos));
  ISO_TRY(iso_json_get_optional_bool(config, "add_eos_token", &eos));
  set_prefix(v, v->bos_id, bos);
  set_suffix(v, v->eos_id, eos);
  return ISO_OK;
}

/* What begins and ends a text is special, among the added tokens of the file or not. */
static void make_special(iso_vocabulary *v, int32_t id) {
  iso_token *token = id < 0 ? NULL : &v->tokens[id];
  if (!token || (token->type != ISO_TOKEN_NORMAL && token->type != ISO_TOKEN_USER_DEFINED))
    return;
  token->type = ISO_TOKEN_CONTROL;
  token->flags |= ISO_TOKEN_ADDED | ISO_TOKEN_SPECIAL;
}

/* A tokenizer.model knows nothing of the tokens added to it, nor of what is put behind them. */
static iso_status apply_config_of_model(const cJSON *config, iso_vocabulary *v) {
  bool legacy = true;
  ISO_TRY(iso_json_get_optional_bool(config, "legacy", &legacy));
  for (size_t i = 0; i < v->normalizer_count; i++)
    v->normalizers[i].only_first = !legacy;
  return iso_json_read_added_tokens(
      cJSON_GetObjectItemCaseSensitive(config, "added_tokens_decoder"), v);
}

static iso_status apply_config(const cJSON *config, bool slow, iso_vocabulary *v) {
  if (!config)
    return ISO_OK;
  if (slow)
    ISO_TRY(apply_config_of_model(config, v));
  iso_index index;
  ISO_TRY(iso_vocabulary_index(v, true, &index));
  const struct {
    const char *key;
    bool needed;
    int32_t *id;
  } named[] = {{"bos_token", true, &v->bos_id},
               {"eos_token", true, &v->eos_id},
               {"pad_token", false, &v->pad_id}};
  iso_status status = ISO_OK;
  for (size_t i = 0; i < sizeof named / sizeof *named && status == ISO_OK; i++) {
    status = use_named_token(config, named[i].key, named[i].needed, &index, named[i].id);
    if (status == ISO_OK && named[i].needed)
      make_special(v, *named[i].id);
  }
  iso_index_free(&index);
  return status == ISO_OK ? apply_affixes(config, slow, v) : status;
}

/* Whether a value names a token: "text", {"content": "text"}, or an array or object of such. */
static bool names_token(const cJSON *value, const char *text) {
  if (cJSON_IsString(value))
    return strcmp(value->valuestring, text) == 0;
  for (const cJSON *item = value ? value->child : NULL; item; item = item->next)
    if (names_token(item, text))
      return true;
  return false;
}

/* "<|...|>" marks turns, listed as special or not: what a user writes must not become one. */
static bool is_marker(const char *text) {
  size_t length = strlen(text);
  return length > 4 && strncmp(text, "<|", 2) == 0 && strcmp(text + length - 2, "|>") == 0;
}

/* {"text": id, ...} as a list of added tokens. */
static iso_status list_added_tokens(const cJSON *tokens, const cJSON *special, iso_vocabulary *v) {
  cJSON *list = cJSON_CreateArray();
  bool fine = list && cJSON_IsObject(tokens);
  for (const cJSON *item = tokens->child; item && fine; item = item->next) {
    cJSON *token = cJSON_CreateObject();
    cJSON_AddItemToArray(list, token);
    cJSON_AddItemToObject(token, "id", cJSON_Duplicate(item, true));
    cJSON_AddStringToObject(token, "content", item->string);
    bool is_special = is_marker(item->string) || names_token(special, item->string);
    fine = cJSON_AddBoolToObject(token, "special", is_special) != NULL;
  }
  iso_status status = fine ? iso_json_read_added_tokens(list, v)
                           : iso_fail(ISO_ERROR_CORRUPT_DATA, "this is no object of tokens");
  cJSON_Delete(list);
  return status;
}

/* added_tokens.json, in which older folders have what was added to a tokenizer.model. */
static iso_status apply_added_tokens(const char *folder, iso_vocabulary *v) {
  cJSON *tokens = NULL, *special = NULL;
  ISO_TRY(read_optional_json(folder, "added_tokens.json", &tokens));
  if (!tokens)
    return ISO_OK;
  iso_status status = read_optional_json(folder, "special_tokens_map.json", &special);
  if (status == ISO_OK)
    status =
        iso_fail_context(list_added_tokens(tokens, special, v), "%s/added_tokens.json", folder);
  cJSON_Delete(tokens);
  cJSON_Delete(special);
  return status;
}

/* eos_token_id: a number or a list of them. */
static iso_status apply_end_ids(const cJSON *config, iso_vocabulary *v) {
  const cJSON *eos = cJSON_GetObjectItemCaseSensitive(config, "eos_token_id");
  for (const cJSON *id = cJSON_IsArray(eos) ? eos->child : eos; id; id = id->next) {
    if (cJSON_IsNumber(id) && id->valuedouble >= 0 && id->valuedouble < (double)v->count)
      ISO_TRY(iso_ids_push(&v->end_ids, (int32_t)id->valuedouble));
    if (id == eos)
      break;
  }
  return ISO_OK;
}

static iso_status apply_files(const char *folder, bool slow, iso_vocabulary *v) {
  cJSON *config;
  if (slow)
    ISO_TRY(apply_added_tokens(folder, v));
  ISO_TRY(read_optional_json(folder, "tokenizer_config.json", &config));
  iso_status status = apply_config(config, slow, v);
  cJSON_Delete(config);
  ISO_TRY(iso_fail_context(status, "%s/tokenizer_config.json", folder));
  /* Where there is no generation_config.json, config.json is the one. */
  const char *name = "generation_config.json";
  ISO_TRY(read_optional_json(folder, name, &config));
  if (!config)
    ISO_TRY(read_optional_json(folder, name = "config.json", &config));
  status = apply_end_ids(config, v);
  cJSON_Delete(config);
  return iso_fail_context(status, "%s/%s", folder, name);
}

/* *out_read is false where there is no such file. */
static iso_status read_file(const char *folder, const char *name, bool is_json, iso_vocabulary *v,
                            bool *out_read) {
  *out_read = false;
  char *path = iso_file_join(folder, name), *data;
  if (!path)
    return iso_fail(ISO_ERROR_OUT_OF_MEMORY, "%s/%s: no memory", folder, name);
  if (!iso_file_exists(path)) {
    free(path);
    return ISO_OK;
  }
  size_t size;
  iso_status status = iso_file_read(path, MAX_TOKENIZER_BYTES, &data, &size);
  if (status == ISO_OK) {
    status = is_json ? iso_vocabulary_read_json(data, size, v)
                     : iso_vocabulary_read_sentencepiece(data, size, v);
    status = iso_fail_context(status, "%s", path);
    free(data);
  }
  *out_read = status == ISO_OK;
  free(path);
  return status;
}

static iso_status read_folder(const char *folder, iso_vocabulary *v) {
  bool has_json, has_model = false;
  ISO_TRY(read_file(folder, "tokenizer.json", true, v, &has_json));
  if (!has_json)
    ISO_TRY(read_file(folder, "tokenizer.model", false, v, &has_model));
  if (!has_json && !has_model)
    return iso_fail(ISO_ERROR_NOT_FOUND, "%s: neither tokenizer.json nor tokenizer.model is there",
                    folder);
  return apply_files(folder, !has_json, v);
}

iso_status iso_tokenizer_create_from_folder(const char *path, iso_tokenizer **out_tokenizer) {
  *out_tokenizer = NULL;
  iso_vocabulary vocabulary;
  iso_vocabulary_init(&vocabulary);
  iso_status status = read_folder(path, &vocabulary);
  if (status != ISO_OK) {
    iso_vocabulary_free(&vocabulary);
    return status;
  }
  return iso_fail_context(iso_tokenizer_create(&vocabulary, out_tokenizer), "%s", path);
}
