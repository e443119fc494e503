/* Decoding as ids arrive: whole code points only, and the same text as all at once. */
#include "check.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/tokenizer/tokenizer.h"

#define FFFD "\xEF\xBF\xBD"

enum { SPECIAL = 256, SPACED, SPACES, WORD, TOKEN_COUNT };

/* Every byte as a token, as SentencePiece has them, a special token, and some words. */
static iso_tokenizer *make(bool dummy_prefix, bool remove_extra_whitespace) {
  iso_vocabulary v;
  iso_vocabulary_init(&v);
  v.kind = ISO_SEGMENTER_SCORED_BPE;
  for (int byte = 0; byte < 256; byte++) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
    CHECK(iso_vocabulary_add(&v, name, 6, ISO_TOKEN_BYTE, 0));
  }
  CHECK(iso_vocabulary_add(&v, "<s>", 3, ISO_TOKEN_CONTROL, 0));
  v.tokens[SPECIAL].flags = ISO_TOKEN_ADDED | ISO_TOKEN_SPECIAL;
  CHECK(iso_vocabulary_add(&v, "\xE2\x96\x81hi", 5, ISO_TOKEN_NORMAL, 0));
  CHECK(iso_vocabulary_add(&v, "\xE2\x96\x81\xE2\x96\x81", 6, ISO_TOKEN_NORMAL, 0));
  CHECK(iso_vocabulary_add(&v, "hi", 2, ISO_TOKEN_NORMAL, 0));
  CHECK(iso_vocabulary_use_sentencepiece(
      &v, &(iso_sentencepiece_options){.dummy_prefix = dummy_prefix,
                                       .remove_extra_whitespace = remove_extra_whitespace}));
  iso_tokenizer *tokenizer;
  CHECK(iso_tokenizer_create(&v, &tokenizer));
  assert_int_equal(iso_tokenizer_vocabulary_size(tokenizer), TOKEN_COUNT);
  return tokenizer;
}

static void check_read(const iso_tokenizer *t, const int32_t *ids, size_t count, uint32_t flags,
                       const char *expected) {
  char *whole;
  size_t length;
  CHECK(iso_tokenizer_decode(t, ids, count, flags, &whole, &length));
  assert_string_equal(whole, expected);
  assert_int_equal(length, strlen(expected));
  iso_detokenizer d;
  iso_text joined = {0};
  iso_detokenizer_init(&d, t, flags);
  for (size_t i = 0; i < count; i++) {
    size_t start = joined.length;
    CHECK(iso_detokenizer_push(&d, ids[i], &joined));
    size_t size = joined.length - start;
    assert_int_equal(iso_utf8_valid_prefix(joined.data + start, size), size);
  }
  CHECK(iso_detokenizer_finish(&d, &joined));
  assert_int_equal(joined.length, length);
  assert_true(length == 0 || memcmp(joined.data, whole, length) == 0);
  iso_text_free(&joined);
  free(whole);
}

static void test_bytes(void **state) {
  (void)state;
  /* The examples of Unicode 3.9 and of the Encoding Standard: one U+FFFD a maximal subpart. */
  static const struct {
    const char *bytes, *read;
  } cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"\xF0\x9F\x98\x80\xE4\xB8\x96\xC3\xA9", "\xF0\x9F\x98\x80\xE4\xB8\x96\xC3\xA9"},
      {"\xF0\x9F\x98", FFFD},
      {"\xF0\x9F\x98\x41", FFFD "A"},
      {"\xF0\x80\x80\x41", FFFD FFFD FFFD "A"},
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",
       "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d"},
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", FFFD FFFD FFFD FFFD "A"},
      {"\xE4\xE4\xB8\x96", FFFD "\xE4\xB8\x96"},
  };
  iso_tokenizer *t = make(false, false);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int32_t ids[32];
    size_t count = strlen(cases[i].bytes);
    for (size_t k = 0; k < count; k++)
      ids[k] = (uint8_t)cases[i].bytes[k];
    check_read(t, ids, count, 0, cases[i].read);
  }
  iso_tokenizer_destroy(t);
}

static void test_emoji_waits(void **state) {
  (void)state;
  iso_tokenizer *t = make(false, false);
  iso_detokenizer d;
  iso_text out = {0};
  iso_detokenizer_init(&d, t, 0);
  static const uint8_t emoji[] = {0xF0, 0x9F, 0x91, 0x8D};
  for (size_t i = 0; i < sizeof emoji; i++) {
    assert_int_equal(out.length, 0);
    CHECK(iso_detokenizer_push(&d, emoji[i], &out));
  }
  assert_int_equal(out.length, 4);
  CHECK(iso_detokenizer_finish(&d, &out));
  assert_int_equal(out.length, 4);
  iso_text_free(&out);
  iso_tokenizer_destroy(t);
}

static void test_leading_space(void **state) {
  (void)state;
  static const int32_t twice[] = {SPACED, SPACED}, after_special[] = {SPECIAL, SPACED},
                       spaces[] = {SPACES, SPACED}, byte_space[] = {' ', SPACED},
                       word[] = {WORD, SPACED};
  iso_tokenizer *t = make(true, false);
  check_read(t, twice, 2, 0, "hi hi");
  check_read(t, twice, 2, ISO_DETOKENIZE_CONTINUE, " hi hi");
  check_read(t, after_special, 2, ISO_DETOKENIZE_SKIP_SPECIAL, "hi");
  check_read(t, after_special, 2, 0, "<s> hi");
  check_read(t, spaces, 2, 0, "  hi"); /* one is the prefix, the others are text */
  check_read(t, byte_space, 2, 0, "  hi");
  check_read(t, word, 2, 0, "hi hi");
  iso_tokenizer_destroy(t);
  t = make(true, true);
  check_read(t, twice, 2, 0, "hi hi");
  check_read(t, spaces, 2, 0, "  hi"); /* as sentencepiece: one a token, until text has come */
  iso_tokenizer_destroy(t);
  t = make(false, false);
  check_read(t, twice, 2, 0, " hi hi");
  iso_tokenizer_destroy(t);
}

static void test_unknown_ids(void **state) {
  (void)state;
  iso_tokenizer *t = make(false, false);
  static const int32_t bad[] = {-1, TOKEN_COUNT, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *text;
    size_t length;
    assert_int_equal(iso_tokenizer_decode(t, &bad[i], 1, 0, &text, &length),
                     ISO_ERROR_INVALID_ARGUMENT);
    assert_null(text);
    assert_null(iso_tokenizer_token_bytes(t, bad[i], &length));
    assert_null(iso_tokenizer_token_text(t, bad[i], &length));
    assert_false(iso_tokenizer_is_control(t, bad[i]));
    assert_false(iso_tokenizer_is_end(t, bad[i]));
  }
  iso_tokenizer_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_emoji_waits),
      cmocka_unit_test(test_leading_space),
      cmocka_unit_test(test_unknown_ids),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
