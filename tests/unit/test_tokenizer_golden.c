/* Ids and texts equal those of Hugging Face tokenizers and of sentencepiece, as recorded by
 * tests/golden/tokenizer/generate.py. */
#include "golden_text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "models/tokenizer/tokenizer.h"

#define GOLDEN TEST_SOURCE_DIR "/tests/golden/tokenizer/"

static cJSON *read_json(const char *folder, const char *name) {
  char path[512];
  snprintf(path, sizeof path, GOLDEN "%s%s", folder, name);
  cJSON *root;
  CHECK(iso_json_read_file(path, 64u << 20, 16, &root));
  return root;
}

static iso_tokenizer *open_case(const char *name) {
  char path[512];
  iso_tokenizer *tokenizer;
  snprintf(path, sizeof path, GOLDEN "%s/", name);
  CHECK(iso_tokenizer_create_from_folder(path, &tokenizer));
  return tokenizer;
}

static void append_ids(iso_ids *ids, const cJSON *list) {
  for (const cJSON *item = list ? list->child : NULL; item; item = item->next)
    CHECK(iso_ids_push(ids, item->valueint));
}

static void check_ids(const char *name, const char *kind, const iso_tokenizer *tokenizer,
                      const iso_text *text, uint32_t flags, const iso_ids *expected) {
  int32_t *ids;
  size_t count;
  CHECK(iso_tokenizer_encode(tokenizer, text->data, text->length, flags, &ids, &count));
  for (size_t i = 0; i < count || i < expected->length; i++)
    if (i >= count || i >= expected->length || ids[i] != expected->data[i])
      fail_msg("%s, %s, \"%.*s\": id %zu is %d, expected %d (%zu ids, expected %zu)", name, kind,
               (int)text->length, text->data, i, i < count ? ids[i] : -1,
               i < expected->length ? expected->data[i] : -1, count, expected->length);
  free(ids);
}

static void check_decoded(const char *name, const iso_tokenizer *tokenizer, const cJSON *plain,
                          const iso_text *expected) {
  iso_ids ids = {0};
  append_ids(&ids, plain);
  char *whole;
  size_t length;
  CHECK(iso_tokenizer_decode(tokenizer, ids.data, ids.length, ISO_DETOKENIZE_SKIP_SPECIAL, &whole,
                             &length));
  if (length != expected->length || memcmp(whole, expected->data, length) != 0)
    fail_msg("%s: decoded \"%s\", expected \"%.*s\"", name, whole, (int)expected->length,
             expected->data);
  /* Streaming gives the same, in whole code points. */
  iso_text joined = {0};
  iso_detokenizer detokenizer;
  iso_detokenizer_init(&detokenizer, tokenizer, ISO_DETOKENIZE_SKIP_SPECIAL);
  for (size_t i = 0; i < ids.length; i++) {
    size_t start = joined.length;
    CHECK(iso_detokenizer_push(&detokenizer, ids.data[i], &joined));
    size_t size = joined.length - start;
    assert_true(iso_utf8_valid_prefix(joined.data + start, size) == size);
  }
  CHECK(iso_detokenizer_finish(&detokenizer, &joined));
  assert_int_equal(joined.length, length);
  assert_true(length == 0 || memcmp(joined.data, whole, length) == 0);
  iso_text_free(&joined);
  free(whole);
  free(ids.data);
}

static void check_case(void **state) {
  const char *name = *state;
  char folder[128];
  snprintf(folder, sizeof folder, "%s/", name);
  cJSON *texts = read_json("", "texts.json"), *expected = read_json(folder, "expected.json");
  iso_tokenizer *tokenizer = open_case(name);
  const cJSON *prefix = cJSON_GetObjectItem(expected, "prefix");
  const cJSON *suffix = cJSON_GetObjectItem(expected, "suffix");
  const cJSON *plain = cJSON_GetObjectItem(expected, "plain")->child;
  const cJSON *parsed = cJSON_GetObjectItem(expected, "parsed");
  const cJSON *decoded = cJSON_GetObjectItem(expected, "decoded")->child;
  parsed = parsed ? parsed->child : NULL;
  int checked = 0;
  for (const cJSON *item = texts->child; item; item = item->next, checked++) {
    iso_text text = text_of(item);
    iso_ids ids = {0};
    append_ids(&ids, plain);
    check_ids(name, "plain", tokenizer, &text, 0, &ids);
    if (parsed) {
      ids.length = 0;
      if (cJSON_IsNull(parsed)) { /* as plain, with what goes around it */
        append_ids(&ids, prefix);
        append_ids(&ids, plain);
        append_ids(&ids, suffix);
      } else {
        append_ids(&ids, parsed);
      }
      check_ids(name, "parsed", tokenizer, &text,
                ISO_TOKENIZE_ADD_SPECIAL | ISO_TOKENIZE_PARSE_SPECIAL, &ids);
      parsed = parsed->next;
    }
    iso_text read = text_of(cJSON_IsNull(decoded) ? item : decoded);
    check_decoded(name, tokenizer, plain, &read);
    iso_text_free(&read);
    iso_text_free(&text);
    free(ids.data);
    plain = plain->next;
    decoded = decoded->next;
  }
  assert_true(checked > 80 && !plain && !decoded && !parsed);
  iso_tokenizer_destroy(tokenizer);
  cJSON_Delete(texts);
  cJSON_Delete(expected);
}

#define CASE(name)                                                                                 \
  { #name, check_case, NULL, NULL, (void *)(uintptr_t) #name }

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(gpt2),          CASE(gpt2_prefix), CASE(llama3),
      CASE(qwen2),         CASE(smollm),      CASE(gpt4o),
      CASE(deepseek3),     CASE(splits),      CASE(whitespace),
      CASE(bert_words),    CASE(llama2),      CASE(llama2_first),
      CASE(gemma),         CASE(pairs),       CASE(t5),
      CASE(unigram_bytes), CASE(spm_bpe),     CASE(spm_bpe_unk),
      CASE(spm_gemma),     CASE(spm_unigram), CASE(spm_unigram_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
