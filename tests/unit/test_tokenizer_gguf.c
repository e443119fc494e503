/* The same vocabularies through GGUF metadata give the same ids, and every pre-tokenizer name
 * splits as the pipeline that it stands for (tests/golden/tokenizer/generate.py). */
#include "golden_text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "models/formats/gguf_writer.h"
#include "models/tokenizer/tokenizer.h"

#define GOLDEN TEST_SOURCE_DIR "/tests/golden/tokenizer/"
#define SCRATCH TEST_BINARY_DIR "/test_tokenizer.gguf"
#define KEY(name) "tokenizer.ggml." name

static cJSON *read_json(const char *path) {
  cJSON *root;
  CHECK(iso_json_read_file(path, 64u << 20, 16, &root));
  return root;
}

static void read_vocabulary(const char *path, bool is_json, iso_vocabulary *v) {
  char *data;
  size_t size;
  CHECK(iso_file_read(path, 64u << 20, &data, &size));
  iso_vocabulary_init(v);
  if (is_json)
    CHECK(iso_vocabulary_read_json(data, size, v));
  else
    CHECK(iso_vocabulary_read_sentencepiece(data, size, v));
  free(data);
}

static void add_tokens(iso_gguf_writer *writer, const iso_vocabulary *v) {
  iso_text_view *texts = calloc(v->count, sizeof *texts);
  int32_t *types = calloc(v->count, sizeof *types);
  float *scores = calloc(v->count, sizeof *scores);
  iso_text spelled = {0};
  CHECK(iso_text_reserve(&spelled, v->text.length));
  for (size_t id = 0; id < v->count; id++) {
    types[id] = v->tokens[id].type;
    scores[id] = (float)v->scores[id];
    texts[id] = (iso_text_view){iso_vocabulary_text(v, (int32_t)id), v->tokens[id].length};
    if (types[id] != ISO_TOKEN_USER_DEFINED)
      continue;
    /* Converters write the spaces of user-defined tokens as spaces. */
    char *start = spelled.data + spelled.length;
    for (size_t i = 0; i < texts[id].length; i++) {
      bool space = memcmp(texts[id].data + i, ISO_METASPACE, 3) == 0 && i + 3 <= texts[id].length;
      CHECK(iso_text_append(&spelled, space ? " " : texts[id].data + i, 1));
      i += space ? 2 : 0;
    }
    texts[id] = (iso_text_view){start, (size_t)(spelled.data + spelled.length - start)};
  }
  CHECK(iso_gguf_writer_add_string_array(writer, KEY("tokens"), texts, v->count));
  CHECK(iso_gguf_writer_add_i32_array(writer, KEY("token_type"), types, v->count));
  if (v->kind != ISO_SEGMENTER_RANKED_BPE)
    CHECK(iso_gguf_writer_add_f32_array(writer, KEY("scores"), scores, v->count));
  free(texts);
  free(types);
  free(scores);
  iso_text_free(&spelled);
}

static void add_merges(iso_gguf_writer *writer, const iso_vocabulary *v) {
  iso_text_view *lines = calloc(v->merge_count + 1, sizeof *lines);
  for (size_t i = 0; i < v->merge_count; i++) {
    const iso_token *left = &v->tokens[v->merges[i].left];
    const iso_token *right = &v->tokens[v->merges[i].right];
    char *line = malloc(left->length + right->length + 1u);
    memcpy(line, iso_vocabulary_text(v, v->merges[i].left), left->length);
    line[left->length] = ' ';
    memcpy(line + left->length + 1, iso_vocabulary_text(v, v->merges[i].right), right->length);
    lines[i] = (iso_text_view){line, left->length + right->length + 1u};
  }
  CHECK(iso_gguf_writer_add_string_array(writer, KEY("merges"), lines, v->merge_count));
  for (size_t i = 0; i < v->merge_count; i++)
    free((void *)(uintptr_t)lines[i].data);
  free(lines);
}

static void add_charsmap(iso_gguf_writer *writer, const iso_charsmap *map) {
  if (map->unit_count == 0)
    return;
  uint32_t trie_bytes = map->unit_count * 4;
  size_t size = 4 + trie_bytes + map->replacements_size;
  uint8_t *bytes = malloc(size);
  memcpy(bytes, &trie_bytes, 4);
  memcpy(bytes + 4, map->units, trie_bytes);
  memcpy(bytes + 4 + trie_bytes, map->replacements, map->replacements_size);
  CHECK(iso_gguf_writer_add_value(writer, &(iso_gguf_value){.key = KEY("precompiled_charsmap"),
                                                            .type = ISO_GGUF_U8,
                                                            .is_array = true,
                                                            .count = size,
                                                            .data = bytes,
                                                            .bytes = size}));
  free(bytes);
}

static iso_gguf_writer *begin(const char *model, const iso_vocabulary *v) {
  iso_gguf_writer *writer;
  CHECK(iso_gguf_writer_create(SCRATCH, &writer));
  CHECK(iso_gguf_writer_add_string(writer, KEY("model"), model));
  add_tokens(writer, v);
  return writer;
}

static iso_status finish(iso_gguf_writer *writer, iso_tokenizer **out_tokenizer) {
  CHECK(iso_gguf_writer_finish(writer));
  iso_gguf_writer_destroy(writer);
  iso_gguf *gguf;
  CHECK(iso_gguf_open(SCRATCH, &gguf));
  iso_status status = iso_tokenizer_create_from_gguf(gguf, out_tokenizer);
  iso_gguf_close(gguf);
  remove(SCRATCH);
  return status;
}

static iso_status make_gpt2(const iso_vocabulary *v, const char *pre,
                            iso_tokenizer **out_tokenizer) {
  iso_gguf_writer *writer = begin("gpt2", v);
  add_merges(writer, v);
  if (pre)
    CHECK(iso_gguf_writer_add_string(writer, KEY("pre"), pre));
  return finish(writer, out_tokenizer);
}

static void check_ids(const char *name, const iso_tokenizer *tokenizer, const cJSON *plain) {
  cJSON *texts = read_json(GOLDEN "texts.json");
  const cJSON *row = plain->child;
  int checked = 0;
  for (const cJSON *item = texts->child; item; item = item->next, row = row->next, checked++) {
    iso_text text = text_of(item);
    int32_t *ids;
    size_t count, at = 0;
    CHECK(iso_tokenizer_encode(tokenizer, text.data, text.length, 0, &ids, &count));
    const cJSON *expected = row->child;
    for (; expected && at < count && ids[at] == expected->valueint; expected = expected->next)
      at++;
    if (expected || at < count)
      fail_msg("%s, \"%s\": id %zu of %zu is %d, expected %d", name, item->valuestring, at, count,
               at < count ? ids[at] : -1, expected ? expected->valueint : -1);
    free(ids);
    iso_text_free(&text);
  }
  assert_true(checked > 80 && !row);
  cJSON_Delete(texts);
}

static void test_pretokenizer_names(void **state) {
  (void)state;
  iso_vocabulary v;
  read_vocabulary(GOLDEN "unsplit/tokenizer.json", true, &v);
  cJSON *pipelines = read_json(GOLDEN "unsplit/pretokenizers.json");
  int names = 0;
  for (const cJSON *pipeline = pipelines->child; pipeline; pipeline = pipeline->next) {
    const cJSON *list = cJSON_GetObjectItem(pipeline, "names");
    for (const cJSON *name = list->child; name; name = name->next, names++) {
      iso_tokenizer *tokenizer;
      CHECK(make_gpt2(&v, name->valuestring, &tokenizer));
      check_ids(name->valuestring, tokenizer, cJSON_GetObjectItem(pipeline, "plain"));
      iso_tokenizer_destroy(tokenizer);
    }
  }
  cJSON_Delete(pipelines);
  /* Those that no golden covers at least compile. */
  int known = 0;
  for (size_t i = 0; iso_pretokenizer_name_at(i); i++, known++) {
    iso_tokenizer *tokenizer;
    CHECK(make_gpt2(&v, iso_pretokenizer_name_at(i), &tokenizer));
    iso_tokenizer_destroy(tokenizer);
  }
  assert_true(names >= 35 && known >= names);
  iso_vocabulary_free(&v);
}

static void test_deepseek_llm(void **state) {
  (void)state;
  iso_vocabulary v;
  iso_tokenizer *tokenizer;
  read_vocabulary(GOLDEN "unsplit/tokenizer.json", true, &v);
  CHECK(make_gpt2(&v, "deepseek-llm", &tokenizer));
  iso_vocabulary_free(&v);
  /* Words with the space before them, digits one by one, CJK apart: the ids of the whole are those
   * of the pieces. */
  static const char *const pieces[] = {"\n", "The", " \xC3\x89t\xC3\xA9",       " ",
                                       "1",  "2",   "\xE4\xB8\x96\xE7\x95\x8C", "!?"};
  iso_ids joined = {0};
  iso_text whole = {0};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    int32_t *ids;
    size_t count;
    CHECK(iso_tokenizer_encode(tokenizer, pieces[i], strlen(pieces[i]), 0, &ids, &count));
    for (size_t k = 0; k < count; k++)
      CHECK(iso_ids_push(&joined, ids[k]));
    free(ids);
    CHECK(iso_text_append(&whole, pieces[i], strlen(pieces[i])));
  }
  int32_t *ids;
  size_t count;
  CHECK(iso_tokenizer_encode(tokenizer, whole.data, whole.length, 0, &ids, &count));
  assert_int_equal(count, joined.length);
  assert_memory_equal(ids, joined.data, count * sizeof *ids);
  free(ids);
  free(joined.data);
  iso_text_free(&whole);
  iso_tokenizer_destroy(tokenizer);
}

static void check_sentencepiece(const char *name, const char *model) {
  char path[512];
  iso_vocabulary v;
  snprintf(path, sizeof path, GOLDEN "%s/tokenizer.model", name);
  read_vocabulary(path, false, &v);
  iso_gguf_writer *writer = begin(model, &v);
  const iso_normalizer *normalizer = &v.normalizers[0];
  add_charsmap(writer, &normalizer->charsmap);
  CHECK(iso_gguf_writer_add_bool(writer, KEY("add_space_prefix"), normalizer->dummy_prefix));
  CHECK(iso_gguf_writer_add_bool(writer, KEY("remove_extra_whitespaces"),
                                 normalizer->remove_extra_whitespace));
  CHECK(iso_gguf_writer_add_u32(writer, KEY("unknown_token_id"), (uint32_t)v.unknown_id));
  CHECK(iso_gguf_writer_add_u32(writer, KEY("bos_token_id"), (uint32_t)v.bos_id));
  CHECK(iso_gguf_writer_add_u32(writer, KEY("eos_token_id"), (uint32_t)v.eos_id));
  CHECK(iso_gguf_writer_add_u32(writer, KEY("padding_token_id"), UINT32_MAX));
  iso_tokenizer *tokenizer;
  CHECK(finish(writer, &tokenizer));
  assert_int_equal(iso_tokenizer_eos_id(tokenizer), v.eos_id);
  assert_int_equal(iso_tokenizer_pad_id(tokenizer), -1);
  assert_true(iso_tokenizer_is_end(tokenizer, v.eos_id));
  assert_true(iso_tokenizer_adds_bos(tokenizer) == (strcmp(model, "llama") == 0));
  snprintf(path, sizeof path, GOLDEN "%s/expected.json", name);
  cJSON *expected = read_json(path);
  check_ids(name, tokenizer, cJSON_GetObjectItem(expected, "plain"));
  cJSON_Delete(expected);
  iso_tokenizer_destroy(tokenizer);
  iso_vocabulary_free(&v);
}

static void test_sentencepiece(void **state) {
  (void)state;
  check_sentencepiece("spm_bpe", "llama");
  check_sentencepiece("spm_bpe_unk", "llama");
  check_sentencepiece("spm_gemma", "llama");
  check_sentencepiece("spm_unigram", "t5");
}

/* "Hello" behind BOS, and behind EOS, as at the start: with the dummy prefix. */
static void test_prefix_after_special(void **state) {
  (void)state;
  iso_vocabulary v;
  read_vocabulary(GOLDEN "spm_bpe/tokenizer.model", false, &v);
  iso_gguf_writer *writer = begin("llama", &v);
  iso_vocabulary_free(&v);
  iso_tokenizer *tokenizer;
  CHECK(finish(writer, &tokenizer));
  int32_t *ids, *word;
  size_t count, length;
  CHECK(iso_tokenizer_encode(tokenizer, "Hello", 5, 0, &word, &length));
  CHECK(iso_tokenizer_encode(tokenizer, "<s>Hello</s>Hello", 17, ISO_TOKENIZE_PARSE_SPECIAL, &ids,
                             &count));
  assert_int_equal(count, 2 * (1 + length));
  assert_int_equal(ids[0], iso_tokenizer_bos_id(tokenizer));
  assert_memory_equal(ids + 1, word, length * sizeof *ids);
  assert_int_equal(ids[1 + length], iso_tokenizer_eos_id(tokenizer));
  assert_memory_equal(ids + 2 + length, word, length * sizeof *ids);
  free(ids);
  free(word);
  iso_tokenizer_destroy(tokenizer);
}

static void test_gemma4(void **state) {
  (void)state;
  iso_vocabulary v;
  read_vocabulary(GOLDEN "gemma/tokenizer.json", true, &v);
  for (size_t id = 0; id < v.count; id++) {
    iso_token *token = &v.tokens[id];
    if (token->length == 6 && memcmp(iso_vocabulary_text(&v, (int32_t)id), "<0x", 3) == 0)
      token->type = ISO_TOKEN_BYTE;
  }
  iso_gguf_writer *writer = begin("gemma4", &v);
  add_merges(writer, &v);
  CHECK(iso_gguf_writer_add_u32(writer, KEY("unknown_token_id"), (uint32_t)v.unknown_id));
  iso_tokenizer *tokenizer;
  CHECK(finish(writer, &tokenizer));
  iso_vocabulary_free(&v);
  cJSON *expected = read_json(GOLDEN "gemma/expected.json");
  check_ids("gemma4", tokenizer, cJSON_GetObjectItem(expected, "plain"));
  cJSON_Delete(expected);
  iso_tokenizer_destroy(tokenizer);
}

static void assert_refused(iso_status status, iso_status expected, const char *words) {
  assert_int_equal(status, expected);
  if (!strstr(iso_status_message(), words))
    fail_msg("\"%s\" does not say \"%s\"", iso_status_message(), words);
}

static void test_refused_by_name(void **state) {
  (void)state;
  iso_vocabulary v;
  iso_tokenizer *tokenizer;
  read_vocabulary(GOLDEN "unsplit/tokenizer.json", true, &v);
  assert_refused(make_gpt2(&v, "no-such-family", &tokenizer), ISO_ERROR_UNSUPPORTED,
                 "\"no-such-family\" is not supported; give the model's Hugging Face folder");
  assert_null(tokenizer);
  assert_refused(make_gpt2(&v, NULL, &tokenizer), ISO_ERROR_UNSUPPORTED, "tokenizer.ggml.pre");
  iso_gguf_writer *writer = begin("bert", &v);
  assert_refused(finish(writer, &tokenizer), ISO_ERROR_UNSUPPORTED, "bert");
  writer = begin("gpt2", &v); /* no merges */
  CHECK(iso_gguf_writer_add_string(writer, KEY("pre"), "gpt-2"));
  assert_refused(finish(writer, &tokenizer), ISO_ERROR_NOT_FOUND, "tokenizer.ggml.merges");
  writer = begin("gpt2", &v);
  add_merges(writer, &v);
  CHECK(iso_gguf_writer_add_string(writer, KEY("pre"), "gpt-2"));
  CHECK(iso_gguf_writer_add_u32(writer, KEY("eos_token_id"), 1u << 20));
  assert_refused(finish(writer, &tokenizer), ISO_ERROR_CORRUPT_DATA, "eos_token_id");
  iso_vocabulary_free(&v);
}

static void test_types_and_ends(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int32_t type;
  } tokens[] = {{"a", 1},          {"b", 1},        {"ab", 1},      {"</s>", 1},
                {"<|im_end|>", 1}, {"<tool>", 4},   {"<|bos|>", 3}, {"<|eot|>", 3},
                {"[PAD8]", 5},     {"\xC4\xA0", 1}, {"<EOT>", 3},   {"<|im_start|>", 4}};
  iso_vocabulary v;
  iso_vocabulary_init(&v);
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
    CHECK(iso_vocabulary_add(&v, tokens[i].text, strlen(tokens[i].text),
                             (iso_token_type)tokens[i].type, 0));
  v.merges = calloc(1, sizeof *v.merges);
  v.merges[v.merge_count++] = (iso_merge){0, 1, 2};
  iso_gguf_writer *writer = begin("gpt2", &v);
  add_merges(writer, &v);
  CHECK(iso_gguf_writer_add_string(writer, KEY("pre"), "gpt-2"));
  CHECK(iso_gguf_writer_add_u32(writer, KEY("bos_token_id"), 6));
  CHECK(iso_gguf_writer_add_u32(writer, KEY("eos_token_id"), 4));
  CHECK(iso_gguf_writer_add_u32(writer, KEY("eot_token_id"), 2));
  CHECK(iso_gguf_writer_add_bool(writer, KEY("add_bos_token"), true));
  iso_tokenizer *t;
  CHECK(finish(writer, &t));
  /* Named ends, the file's own, and <|im_end|>, special whatever the file says; "</s>" is text. */
  static const int32_t ends[] = {2, 4, 7, 10};
  size_t count;
  const int32_t *found = iso_tokenizer_end_ids(t, &count);
  assert_int_equal(count, sizeof ends / sizeof *ends);
  assert_memory_equal(found, ends, sizeof ends);
  assert_true(iso_tokenizer_is_control(t, 4));
  assert_true(iso_tokenizer_is_control(t, 11));
  assert_false(iso_tokenizer_is_control(t, 5));
  assert_false(iso_tokenizer_is_end(t, 3));
  assert_false(iso_tokenizer_is_end(t, -1));
  assert_false(iso_tokenizer_is_end(t, 1000));
  /* User-defined tokens are always found, control tokens when asked for, unused ones never. */
  int32_t *ids;
  static const char text[] = "<|bos|>ab<tool>";
  CHECK(iso_tokenizer_encode(t, text, sizeof text - 1,
                             ISO_TOKENIZE_ADD_SPECIAL | ISO_TOKENIZE_PARSE_SPECIAL, &ids, &count));
  assert_int_equal(count, 3);
  assert_int_equal(ids[0], 6);
  assert_int_equal(ids[1], 2);
  assert_int_equal(ids[2], 5);
  free(ids);
  CHECK(iso_tokenizer_encode(t, text, sizeof text - 1, ISO_TOKENIZE_ADD_SPECIAL, &ids, &count));
  assert_int_equal(ids[0], 6);
  assert_int_equal(ids[count - 1], 5);
  for (size_t i = 1; i + 1 < count; i++)
    assert_int_not_equal(ids[i], 6);
  free(ids);
  assert_int_equal(iso_tokenizer_find(t, "[PAD8]", 6), -1);
  assert_int_equal(iso_tokenizer_find(t, "<tool>", 6), 5);
  iso_tokenizer_destroy(t);
  iso_vocabulary_free(&v);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pretokenizer_names),
      cmocka_unit_test(test_deepseek_llm),
      cmocka_unit_test(test_sentencepiece),
      cmocka_unit_test(test_prefix_after_special),
      cmocka_unit_test(test_gemma4),
      cmocka_unit_test(test_refused_by_name),
      cmocka_unit_test(test_types_and_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
