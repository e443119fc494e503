/* A tokenizer.json, and after it (past a NUL) a text to encode: no crash, and no cut code points. */
#include <stdlib.h>
#include <string.h>

#include "models/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(const iso_tokenizer *tokenizer, const char *text, size_t length,
                   uint32_t flags) {
  int32_t *ids;
  size_t count, size;
  char *read;
  if (iso_tokenizer_encode(tokenizer, text, length, flags, &ids, &count) != ISO_OK)
    return;
  if (iso_tokenizer_decode(tokenizer, ids, count, flags, &read, &size) != ISO_OK ||
      iso_utf8_valid_prefix(read, size) != size)
    abort();
  free(read);
  free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *text = (const char *)data;
  const char *end = size ? memchr(text, 0, size) : NULL;
  size_t json_size = end ? (size_t)(end - text) : size;
  iso_vocabulary vocabulary;
  iso_vocabulary_init(&vocabulary);
  if (iso_vocabulary_read_json(text, json_size, &vocabulary) != ISO_OK) {
    iso_vocabulary_free(&vocabulary);
    return 0;
  }
  iso_tokenizer *tokenizer;
  if (iso_tokenizer_create(&vocabulary, &tokenizer) != ISO_OK)
    return 0;
  const char *sample = end ? end + 1 : text;
  size_t length = end ? size - json_size - 1 : size;
  length = length > 2048 ? 2048 : length;
  encode(tokenizer, sample, length, 0);
  encode(tokenizer, sample, length, ISO_TOKENIZE_ADD_SPECIAL | ISO_TOKENIZE_PARSE_SPECIAL);
  iso_tokenizer_destroy(tokenizer);
  return 0;
}
