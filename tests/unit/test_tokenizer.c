/* What the oracles do not define: bytes that are not UTF-8, one BOS, bounds, and refusals. */
#include "check.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "models/chat/special_texts.h"
#include "models/tokenizer/charsmap.h"
#include "models/tokenizer/tokenizer.h"

#define GOLDEN TEST_SOURCE_DIR "/tests/golden/tokenizer/"

static void assert_refused(iso_status status, iso_status expected, const char *words) {
  if (status != expected || !strstr(iso_status_message(), words))
    fail_msg("%s, \"%s\": expected %s and \"%s\"", iso_status_name(status), iso_status_message(),
             iso_status_name(expected), words);
}

static iso_tokenizer *open_golden(const char *name) {
  char path[512];
  iso_tokenizer *tokenizer;
  snprintf(path, sizeof path, GOLDEN "%s", name);
  CHECK(iso_tokenizer_create_from_folder(path, &tokenizer));
  return tokenizer;
}

static iso_ids encode(const iso_tokenizer *t, const char *text, size_t length, uint32_t flags) {
  iso_ids ids = {0};
  CHECK(iso_tokenizer_encode(t, text, length, flags, &ids.data, &ids.length));
  return ids;
}

static iso_status from_json(const char *json, iso_tokenizer **out_tokenizer) {
  iso_vocabulary v;
  *out_tokenizer = NULL;
  iso_vocabulary_init(&v);
  iso_status status = iso_vocabulary_read_json(json, strlen(json), &v);
  if (status == ISO_OK)
    return iso_tokenizer_create(&v, out_tokenizer);
  iso_vocabulary_free(&v);
  return status;
}

/* Texts with broken UTF-8 and how they read after a round trip with U+FFFD for what is broken. */
static const struct {
  const char *text, *read;
} broken_texts[] = {
    {"\xFF", "\xEF\xBF\xBD"},
    {"abc\xE4\xB8", "abc\xEF\xBF\xBD"}, /* cut */
    {"\xE4\xB8-\xB8", "\xEF\xBF\xBD-\xEF\xBF\xBD"},
    {"a\xC0\xAF"
     "b",
     "a\xEF\xBF\xBD\xEF\xBF\xBD"
     "b"},                                                    /* overlong */
    {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, /* a surrogate */
    {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    {"\xF0\x9F\x98", "\xEF\xBF\xBD"},
    {"x\xF0\x9F\x98\x80\xFEy", "x\xF0\x9F\x98\x80\xEF\xBF\xBDy"},
};

static void test_broken_utf8(void **state) {
  (void)state;
  static const char *const names[] = {"gpt2",   "llama3",  "qwen2",     "smollm",           "gemma",
                                      "llama2", "spm_bpe", "spm_gemma", "spm_unigram_bytes"};
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    iso_tokenizer *t = open_golden(names[n]);
    for (size_t i = 0; i < sizeof broken_texts / sizeof *broken_texts; i++) {
      iso_ids ids = encode(t, broken_texts[i].text, strlen(broken_texts[i].text), 0);
      char *text;
      size_t length;
      CHECK(iso_tokenizer_decode(t, ids.data, ids.length, 0, &text, &length));
      assert_string_equal(text, broken_texts[i].read);
      /* The bytes themselves are in the tokens. */
      iso_text bytes = {0};
      for (size_t k = 0; k < ids.length; k++) {
        const char *part = iso_tokenizer_token_bytes(t, ids.data[k], &length);
        CHECK(iso_text_append(&bytes, part, length));
      }
      size_t skip = bytes.length - strlen(broken_texts[i].text); /* the dummy prefix */
      assert_true(skip <= 1);
      assert_memory_equal(bytes.data + skip, broken_texts[i].text, bytes.length - skip);
      iso_text_free(&bytes);
      free(text);
      free(ids.data);
    }
    iso_tokenizer_destroy(t);
  }
  /* No bytes to fall back to: what U+FFFD gives. */
  iso_tokenizer *t = open_golden("whitespace");
  iso_ids ids = encode(t, "a \xFF\xFE", 4, 0);
  assert_int_equal(ids.data[ids.length - 1], iso_tokenizer_unknown_id(t));
  free(ids.data);
  iso_tokenizer_destroy(t);
}

static void test_one_bos(void **state) {
  (void)state;
  static const struct {
    const char *name, *bos;
  } cases[] = {{"llama3", "<|begin_of_text|>"}, {"llama2", "<s>"}, {"gemma", "<bos>"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    iso_tokenizer *t = open_golden(cases[i].name);
    int32_t bos = iso_tokenizer_find(t, cases[i].bos, strlen(cases[i].bos));
    assert_true(bos >= 0);
    char text[64];
    snprintf(text, sizeof text, "%sHello", cases[i].bos);
    const uint32_t both = ISO_TOKENIZE_ADD_SPECIAL | ISO_TOKENIZE_PARSE_SPECIAL;
    iso_ids once = encode(t, "Hello", 5, both), twice = encode(t, text, strlen(text), both);
    assert_int_equal(once.data[0], bos);
    assert_int_equal(twice.data[0], bos);
    assert_int_not_equal(twice.data[1], bos);
    free(twice.data);
    /* As text it is no BOS, so the real one is still added. */
    twice = encode(t, text, strlen(text), ISO_TOKENIZE_ADD_SPECIAL);
    assert_int_equal(twice.data[0], bos);
    for (size_t k = 1; k < twice.length; k++)
      assert_int_not_equal(twice.data[k], bos);
    free(twice.data);
    free(once.data);
    iso_tokenizer_destroy(t);
  }
}

/* A tokenizer that puts EOS behind a text does not end a prompt, nor its parts, before the answer.
 */
static void test_prompt_has_no_end(void **state) {
  (void)state;
  iso_tokenizer *t = open_golden("llama2_first");
  static const char *const texts[] = {"Hello", "Hello \xEE\x80\x80</s>\xEE\x80\x81 you",
                                      "\xEE\x80\x80</s>\xEE\x80\x81 you"};
  static const int32_t eos = 2;
  iso_ids around = encode(t, texts[0], strlen(texts[0]), ISO_TOKENIZE_ADD_SPECIAL);
  assert_int_equal(around.data[around.length - 1], eos);
  for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
    int32_t *ids;
    size_t count;
    CHECK(iso_special_texts_encode(t, texts[k], strlen(texts[k]), k > 0, ISO_TOKENIZE_ADD_SPECIAL,
                                   &ids, &count));
    assert_int_equal(ids[0], around.data[0]);
    for (size_t i = 0; i < count; i++)
      assert_int_not_equal(ids[i], eos);
    if (k == 0)
      assert_int_equal(count, around.length - 1);
    free(ids);
  }
  free(around.data);
  iso_tokenizer_destroy(t);
}

static void test_long_words(void **state) {
  (void)state;
  static const char *const names[] = {"gpt2",  "llama3",      "qwen2",         "llama2",
                                      "gemma", "spm_unigram", "unigram_bytes", "deepseek3"};
  /* Letters, spaces, newlines, marks out of canonical order, and an added token's beginning. */
  static const char *const units[] = {"a", "ab", " ", "\n", "\xCC\x81\xCC\x96", "<|im_"};
  const size_t bytes = 200000;
  char *text = malloc(bytes + 8);
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    iso_tokenizer *t = open_golden(names[n]);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
      size_t length = 0;
      for (; length < bytes; length += strlen(units[i]))
        memcpy(text + length, units[i], strlen(units[i]));
      clock_t start = clock();
      iso_ids ids = encode(t, text, length, ISO_TOKENIZE_PARSE_SPECIAL);
      double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
      /* Quadratic work would take minutes. */
      if (seconds > 20)
        fail_msg("%s: %zu bytes of \"%s\" took %.1f s", names[n], length, units[i], seconds);
      free(ids.data);
    }
    iso_tokenizer_destroy(t);
  }
  free(text);
}

typedef struct thread_work {
  const iso_tokenizer *tokenizer;
  const char *text;
  iso_ids expected;
  bool same;
} thread_work;

static void *encode_often(void *argument) {
  thread_work *work = argument;
  work->same = true;
  for (int i = 0; i < 200 && work->same; i++) {
    iso_ids ids = {0};
    work->same =
        iso_tokenizer_encode(work->tokenizer, work->text, strlen(work->text),
                             ISO_TOKENIZE_PARSE_SPECIAL, &ids.data, &ids.length) == ISO_OK &&
        ids.length == work->expected.length &&
        memcmp(ids.data, work->expected.data, ids.length * sizeof *ids.data) == 0;
    free(ids.data);
  }
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  static const char *const texts[] = {
      "Hello world, it's 12345 o'clock  \n\n", "<|im_end|> caf\xC3\xA9",
      "\xE4\xBD\xA0\xE5\xA5\xBD\xFF\xFE x", "e\xCC\x81 \t tokenizer"};
  iso_tokenizer *t = open_golden("qwen2");
  enum { THREADS = sizeof texts / sizeof *texts };
  pthread_t threads[THREADS];
  thread_work work[THREADS];
  for (int i = 0; i < THREADS; i++) {
    work[i] = (thread_work){.tokenizer = t, .text = texts[i]};
    work[i].expected = encode(t, texts[i], strlen(texts[i]), ISO_TOKENIZE_PARSE_SPECIAL);
  }
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &work[i]), 0);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    assert_true(work[i].same);
    free(work[i].expected.data);
  }
  iso_tokenizer_destroy(t);
}

static void test_too_long(void **state) {
  (void)state;
  iso_tokenizer *t = open_golden("gpt2");
  int32_t *ids;
  size_t count;
  assert_refused(iso_tokenizer_encode(t, "", ISO_MAX_TOKENIZER_TEXT + 1, 0, &ids, &count),
                 ISO_ERROR_LIMIT, "bytes");
  assert_null(ids);
  iso_tokenizer_destroy(t);
}

#define FILE_WITH(pre, decoder, model)                                                             \
  "{\"pre_tokenizer\":" pre ",\"decoder\":" decoder ",\"model\":" model "}"
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define BPE(more)                                                                                  \
  "{\"type\":\"BPE\"," more "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static void test_json_refusals(void **state) {
  (void)state;
  static const struct {
    const char *json;
    iso_status status;
    const char *words;
  } cases[] = {
      {"", ISO_ERROR_CORRUPT_DATA, "tokenizer.json"},
      {"{}", ISO_ERROR_NOT_FOUND, "model"},
      {"{\"version\":\"2.0\",\"model\":{}}", ISO_ERROR_UNSUPPORTED, "2.0"},
      {FILE_WITH("null", BYTE_LEVEL, "{\"type\":\"WordPiece\"}"), ISO_ERROR_UNSUPPORTED,
       "WordPiece"},
      {FILE_WITH("null", BYTE_LEVEL, "{\"type\":\"WordLevel\"}"), ISO_ERROR_UNSUPPORTED,
       "WordLevel"},
      {FILE_WITH("{\"type\":\"UnicodeScripts\"}", BYTE_LEVEL, BPE("")), ISO_ERROR_UNSUPPORTED,
       "UnicodeScripts"},
      {FILE_WITH("null", "{\"type\":\"CTC\"}", BPE("")), ISO_ERROR_UNSUPPORTED, "CTC"},
      {FILE_WITH("null", "null", BPE("")), ISO_ERROR_UNSUPPORTED, "decoder"},
      {FILE_WITH("null", BYTE_LEVEL, BPE("\"dropout\":0.1,")), ISO_ERROR_UNSUPPORTED, "dropout"},
      {FILE_WITH("null", BYTE_LEVEL, BPE("\"end_of_word_suffix\":\"</w>\",")),
       ISO_ERROR_UNSUPPORTED, "end_of_word_suffix"},
      {FILE_WITH("null", BYTE_LEVEL, BPE("\"unk_token\":\"<unk>\",")), ISO_ERROR_CORRUPT_DATA,
       "<unk>"},
      {FILE_WITH("null", BYTE_LEVEL,
                 "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}"),
       ISO_ERROR_CORRUPT_DATA, "merged text"},
      {FILE_WITH("null", BYTE_LEVEL,
                 "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}"),
       ISO_ERROR_CORRUPT_DATA, "two tokens"},
      {FILE_WITH("null", BYTE_LEVEL,
                 "{\"type\":\"BPE\",\"vocab\":{\"a\":2000000000},\"merges\":[]}"),
       ISO_ERROR_CORRUPT_DATA, "id of token"},
      {FILE_WITH("null", BYTE_LEVEL, "{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}"),
       ISO_ERROR_CORRUPT_DATA, "empty"},
      {FILE_WITH("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\"}",
                 BYTE_LEVEL, BPE("")),
       ISO_ERROR_CORRUPT_DATA, "regular expression"},
      {FILE_WITH("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":"
                 "\"Isolated\"}",
                 BYTE_LEVEL, BPE("")),
       ISO_ERROR_UNSUPPORTED, "&&"},
      {FILE_WITH("{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Sideways\"}",
                 BYTE_LEVEL, BPE("")),
       ISO_ERROR_UNSUPPORTED, "Sideways"},
      {"{\"normalizer\":{\"type\":\"BertNormalizer\"},\"model\":{}}", ISO_ERROR_UNSUPPORTED,
       "BertNormalizer"},
      {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"},\"model\":{}}",
       ISO_ERROR_CORRUPT_DATA, "charsmap"},
      {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A*==\"},\"model\":{}}",
       ISO_ERROR_CORRUPT_DATA, "base64"},
      {FILE_WITH("null", BYTE_LEVEL,
                 "{\"type\":\"Unigram\",\"unk_id\":7,\"vocab\":[[\"a\",-1.0]]}"),
       ISO_ERROR_CORRUPT_DATA, "unk_id"},
      {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]},\"decoder\":" BYTE_LEVEL
       ",\"model\":" BPE("") "}",
       ISO_ERROR_UNSUPPORTED, "template"},
      {"{\"added_tokens\":[{\"id\":1,\"content\":\"x\"}],\"decoder\":" BYTE_LEVEL
       ",\"model\":" BPE("") "}",
       ISO_ERROR_CORRUPT_DATA, "another token"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    iso_tokenizer *t;
    assert_refused(from_json(cases[i].json, &t), cases[i].status, cases[i].words);
    assert_null(t);
  }
}

#define TEMPLATE(single, tokens)                                                                   \
  "{\"type\":\"TemplateProcessing\",\"single\":[" single "],\"special_tokens\":{" tokens "}}"
#define TEXT "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define AROUND(id)                                                                                 \
  TEMPLATE("{\"SpecialToken\":{\"id\":\"x\",\"type_id\":0}}," TEXT,                                \
           "\"x\":{\"id\":\"x\",\"ids\":[" id "]}")
#define BERT "{\"type\":\"BertProcessing\",\"sep\":[\"a\",0],\"cls\":[\"b\",1]}"
#define PROCESSORS(list)                                                                           \
  "{\"post_processor\":{\"type\":\"Sequence\",\"processors\":[" list "]},\"decoder\":" BYTE_LEVEL  \
  ",\"model\":" BPE("") "}"

/* Of two that add ids the last used to count alone. Hugging Face fails, or adds more than both. */
static void test_several_post_processors(void **state) {
  (void)state;
  static const char *const refused[] = {PROCESSORS(AROUND("1") "," AROUND("2")),
                                        PROCESSORS(BERT "," AROUND("2")),
                                        PROCESSORS(AROUND("1") "," BYTE_LEVEL "," BERT)};
  static const char *const taken[] = {PROCESSORS(BYTE_LEVEL "," AROUND("1") "," BYTE_LEVEL),
                                      PROCESSORS(TEMPLATE(TEXT, "") "," AROUND("1"))};
  iso_tokenizer *t;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    assert_refused(from_json(refused[i], &t), ISO_ERROR_UNSUPPORTED, "a second one behind");
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
    CHECK(from_json(taken[i], &t));
    iso_ids ids = encode(t, "ab", 2, ISO_TOKENIZE_ADD_SPECIAL);
    assert_int_equal(ids.length, 2);
    assert_int_equal(ids.data[0], 1);
    free(ids.data);
    iso_tokenizer_destroy(t);
  }
}

static void test_unknown_characters(void **state) {
  (void)state;
  /* Hugging Face drops what a BPE without an unknown token cannot write, and a unigram model
   * without one fails. */
  iso_tokenizer *t;
  CHECK(from_json(FILE_WITH("null", "{\"type\":\"Fuse\"}", BPE("")), &t));
  iso_ids ids = encode(t, "aXab", 4, 0);
  assert_int_equal(ids.length, 2);
  assert_int_equal(ids.data[0], 0);
  assert_int_equal(ids.data[1], 2);
  free(ids.data);
  iso_tokenizer_destroy(t);
  CHECK(from_json(FILE_WITH("null", "{\"type\":\"Fuse\"}",
                            "{\"type\":\"Unigram\",\"unk_id\":null,\"vocab\":[[\"a\",-1.0]]}"),
                  &t));
  ids = encode(t, "aa", 2, 0);
  assert_int_equal(ids.length, 2);
  free(ids.data);
  int32_t *none;
  size_t count;
  assert_refused(iso_tokenizer_encode(t, "ab", 2, 0, &none, &count), ISO_ERROR_UNSUPPORTED,
                 "unknown token");
  assert_null(none);
  iso_tokenizer_destroy(t);
}

static void write_file(const char *folder, const char *name, const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static void remove_file(const char *folder, const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  unlink(path);
}

#define CONFIGURED                                                                                 \
  "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true},{\"id\":4,\"content\":"      \
  "\"</s>\",\"special\":true}],\"decoder\":{\"type\":\"Fuse\"},\"model\":" BPE("") "}"

static void test_folder(void **state) {
  (void)state;
  const char *folder = TEST_BINARY_DIR "/test_tokenizer_folder";
  mkdir(folder, 0777);
  iso_tokenizer *t;
  assert_refused(iso_tokenizer_create_from_folder(folder, &t), ISO_ERROR_NOT_FOUND,
                 "tokenizer.json");
  write_file(folder, "tokenizer.json",
             "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  assert_refused(iso_tokenizer_create_from_folder(folder, &t), ISO_ERROR_CORRUPT_DATA, "LFS");
  write_file(folder, "tokenizer.json", CONFIGURED);
  write_file(folder, "tokenizer_config.json",
             "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"pad_token\":null,"
             "\"add_bos_token\":true,\"add_eos_token\":true}");
  write_file(folder, "generation_config.json", "{\"eos_token_id\":[4,2]}");
  CHECK(iso_tokenizer_create_from_folder(folder, &t));
  assert_int_equal(iso_tokenizer_bos_id(t), 3);
  assert_int_equal(iso_tokenizer_eos_id(t), 4);
  assert_int_equal(iso_tokenizer_pad_id(t), -1);
  assert_true(iso_tokenizer_is_end(t, 2) && iso_tokenizer_is_end(t, 4));
  assert_false(iso_tokenizer_is_end(t, 3));
  iso_ids ids = encode(t, "ab", 2, ISO_TOKENIZE_ADD_SPECIAL);
  static const int32_t expected[] = {3, 2, 4};
  assert_int_equal(ids.length, 3);
  assert_memory_equal(ids.data, expected, sizeof expected);
  free(ids.data);
  iso_tokenizer_destroy(t);
  /* config.json has a say where there is no generation_config.json, and only there. */
  write_file(folder, "config.json", "{\"eos_token_id\":[3]}");
  for (int pass = 0; pass < 2; pass++) {
    CHECK(iso_tokenizer_create_from_folder(folder, &t));
    assert_int_equal(iso_tokenizer_is_end(t, 2), pass == 0);
    assert_int_equal(iso_tokenizer_is_end(t, 3), pass == 1);
    iso_tokenizer_destroy(t);
    remove_file(folder, "generation_config.json");
  }
  /* A token of the model is special once it is named, as in transformers. */
  write_file(folder, "tokenizer_config.json", "{\"bos_token\":\"ab\"}");
  CHECK(iso_tokenizer_create_from_folder(folder, &t));
  assert_true(iso_tokenizer_is_control(t, 2));
  ids = encode(t, "ab", 2, ISO_TOKENIZE_PARSE_SPECIAL);
  assert_int_equal(ids.length, 1);
  assert_int_equal(ids.data[0], 2);
  free(ids.data);
  iso_tokenizer_destroy(t);
  write_file(folder, "tokenizer_config.json", "{\"eos_token\":\"<absent>\"}");
  assert_refused(iso_tokenizer_create_from_folder(folder, &t), ISO_ERROR_CORRUPT_DATA, "<absent>");
  remove_file(folder, "tokenizer.json");
  remove_file(folder, "tokenizer_config.json");
  remove_file(folder, "config.json");
  rmdir(folder);
}

/* A model's text behind a special token begins as at the start, unless the folder wants otherwise.
 */
static void test_prefix_after_special(void **state) {
  (void)state;
  const char *folder = TEST_BINARY_DIR "/test_tokenizer_prefix";
  static const struct {
    const char *config, *read;
  } cases[] = {{"{}", "<s> Hello</s> Hello"},
               {"{\"legacy\": true}", "<s> Hello</s> Hello"},
               {"{\"legacy\": false}", "<s>Hello</s>Hello"}};
  mkdir(folder, 0777);
  remove_file(folder, "tokenizer.model");
  assert_int_equal(symlink(TEST_SOURCE_DIR "/tests/golden/tokenizer/spm_bpe/tokenizer.model",
                           TEST_BINARY_DIR "/test_tokenizer_prefix/tokenizer.model"),
                   0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_file(folder, "tokenizer_config.json", cases[i].config);
    iso_tokenizer *t;
    CHECK(iso_tokenizer_create_from_folder(folder, &t));
    iso_ids ids = encode(t, "<s>Hello</s>Hello", 17, ISO_TOKENIZE_PARSE_SPECIAL);
    char *read;
    size_t length;
    CHECK(iso_tokenizer_decode(t, ids.data, ids.length, 0, &read, &length));
    assert_string_equal(read, cases[i].read);
    free(read);
    free(ids.data);
    iso_tokenizer_destroy(t);
  }
  remove_file(folder, "tokenizer.model");
  remove_file(folder, "tokenizer_config.json");
  rmdir(folder);
}

/* Tokens added to a tokenizer.model, as older folders list them. */
static void test_added_tokens_of_a_model(void **state) {
  (void)state;
  const char *folder = TEST_BINARY_DIR "/test_tokenizer_added";
  mkdir(folder, 0777);
  iso_tokenizer *t;
  remove_file(folder, "tokenizer.model");
  assert_int_equal(symlink(TEST_SOURCE_DIR "/tests/golden/tokenizer/spm_bpe/tokenizer.model",
                           TEST_BINARY_DIR "/test_tokenizer_added/tokenizer.model"),
                   0);
  CHECK(iso_tokenizer_create_from_folder(folder, &t));
  int32_t count = iso_tokenizer_vocabulary_size(t);
  iso_tokenizer_destroy(t);
  char text[128];
  snprintf(text, sizeof text, "{\"<|a|>\": %d, \"[b]\": %d, \"[c]\": %d}", count + 1, count,
           count + 2);
  write_file(folder, "added_tokens.json", text);
  write_file(folder, "special_tokens_map.json",
             "{\"additional_special_tokens\":[{\"content\":\"[c]\"}],\"bos_token\":\"<s>\"}");
  CHECK(iso_tokenizer_create_from_folder(folder, &t));
  iso_ids ids = encode(t, "<|a|>[c][b]", 11, ISO_TOKENIZE_PARSE_SPECIAL);
  assert_int_equal(ids.length, 3);
  assert_int_equal(ids.data[0], count + 1);
  assert_int_equal(ids.data[1], count + 2);
  assert_int_equal(ids.data[2], count);
  free(ids.data);
  ids = encode(t, "<|a|>[c][b]", 11, 0); /* special ones are text then */
  assert_true(ids.length > 3);
  for (size_t i = 0; i + 1 < ids.length; i++)
    assert_true(ids.data[i] < count);
  assert_int_equal(ids.data[ids.length - 1], count);
  free(ids.data);
  iso_tokenizer_destroy(t);
  write_file(folder, "added_tokens.json", "[\"<|a|>\"]");
  assert_refused(iso_tokenizer_create_from_folder(folder, &t), ISO_ERROR_CORRUPT_DATA,
                 "added_tokens.json");
  write_file(folder, "added_tokens.json", "{\"<|a|>\": \"x\"}");
  assert_refused(iso_tokenizer_create_from_folder(folder, &t), ISO_ERROR_CORRUPT_DATA, "id");
  remove_file(folder, "tokenizer.model");
  remove_file(folder, "added_tokens.json");
  remove_file(folder, "special_tokens_map.json");
  rmdir(folder);
}

/* A map from one byte to the second byte of a replacement, or from the first byte of two. */
static void put_mapping(uint8_t *units, uint8_t key, uint8_t value) {
  const uint32_t unit = key | 0x100u | 1u << 10;
  memcpy(units + 4 * key, &unit, sizeof unit);
  units[4 * (key ^ 1)] = value;
}

/* Neither a match nor a replacement may cut a code point: what is left of it would be no text. */
static void test_charsmap_keeps_code_points_whole(void **state) {
  (void)state;
  static const char replacements[] = "x\0\xC3\xA9";
  uint8_t data[4 + 1024 + sizeof replacements] = {0, 4};
  put_mapping(data + 4, 0xC2, 0);
  put_mapping(data + 4, 'a', 3);
  put_mapping(data + 4, 'c', 2);
  memcpy(data + 4 + 1024, replacements, sizeof replacements);
  iso_charsmap map;
  assert_int_equal(iso_charsmap_create(data, sizeof data, &map), ISO_OK);
  for (int longest = 0; longest < 2; longest++) {
    assert_int_equal(iso_charsmap_find(&map, "\xC2\xA0", 2, longest).length, 0);
    assert_int_equal(iso_charsmap_find(&map, "ab", 2, longest).length, 0);
    assert_int_equal(iso_charsmap_find(&map, "cb", 2, longest).length, 1);
    assert_int_equal(iso_charsmap_find(&map, "cb", 2, longest).replacement_length, 2);
  }
  iso_charsmap_free(&map);
}

/* A user-defined symbol is looked for in text, and would leave the rest of a code point. */
static void test_symbols_are_text(void **state) {
  (void)state;
  static const char model[] = "\x0A\x09\x0A\x05<unk>\x18\x02\x0A\x05\x0A\x01\xE7\x18\x04";
  iso_vocabulary v;
  iso_vocabulary_init(&v);
  assert_int_equal(iso_vocabulary_read_sentencepiece(model, sizeof model - 1, &v), ISO_OK);
  iso_tokenizer *tokenizer = NULL;
  assert_refused(iso_tokenizer_create(&v, &tokenizer), ISO_ERROR_CORRUPT_DATA,
                 "token 1 is not UTF-8");
  iso_vocabulary_free(&v);
}

static void test_sentencepiece_refusals(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t size;
    iso_status status;
    const char *words;
  } cases[] = {
      {"", 0, ISO_ERROR_CORRUPT_DATA, "unknown token"},
      {"\x0A", 1, ISO_ERROR_CORRUPT_DATA, "cut"},
      {"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11, ISO_ERROR_CORRUPT_DATA, "past the end"},
      {"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 12, ISO_ERROR_CORRUPT_DATA, "ten bytes"},
      {"\x0A\x00", 2, ISO_ERROR_CORRUPT_DATA, "empty"},
      {"\x0A\x05\x0A\x01"
       "a\x18\x07",
       7, ISO_ERROR_UNSUPPORTED, "type 7"},
      {"\x0F", 1, ISO_ERROR_CORRUPT_DATA, "wire type"},
      {"\x12\x02\x18\x03", 4, ISO_ERROR_UNSUPPORTED, "WORD"},
      {"\x12\x03\xC0\x01\x01", 5, ISO_ERROR_UNSUPPORTED, "treat_whitespace_as_suffix"},
      {"\x1A\x02\x28\x00", 4, ISO_ERROR_UNSUPPORTED, "escape_whitespaces"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    iso_vocabulary v;
    iso_vocabulary_init(&v);
    assert_refused(iso_vocabulary_read_sentencepiece(cases[i].bytes, cases[i].size, &v),
                   cases[i].status, cases[i].words);
    iso_vocabulary_free(&v);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_broken_utf8),
      cmocka_unit_test(test_one_bos),
      cmocka_unit_test(test_prompt_has_no_end),
      cmocka_unit_test(test_long_words),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_too_long),
      cmocka_unit_test(test_json_refusals),
      cmocka_unit_test(test_several_post_processors),
      cmocka_unit_test(test_unknown_characters),
      cmocka_unit_test(test_folder),
      cmocka_unit_test(test_charsmap_keeps_code_points_whole),
      cmocka_unit_test(test_symbols_are_text),
      cmocka_unit_test(test_sentencepiece_refusals),
      cmocka_unit_test(test_prefix_after_special),
      cmocka_unit_test(test_added_tokens_of_a_model),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
