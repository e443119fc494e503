/* A SentencePiece model file; its own last bytes are the text to encode. */
#include <stdlib.h>

#include "models/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  iso_vocabulary vocabulary;
  iso_vocabulary_init(&vocabulary);
  if (iso_vocabulary_read_sentencepiece(data, size, &vocabulary) != ISO_OK) {
    iso_vocabulary_free(&vocabulary);
    return 0;
  }
  iso_tokenizer *tokenizer;
  if (iso_tokenizer_create(&vocabulary, &tokenizer) != ISO_OK)
    return 0;
  size_t length = size > 512 ? 512 : size;
  int32_t *ids;
  size_t count, read_length;
  char *read;
  if (iso_tokenizer_encode(tokenizer, (const char *)data + size - length, length,
                           ISO_TOKENIZE_PARSE_SPECIAL, &ids, &count) == ISO_OK) {
    if (iso_tokenizer_decode(tokenizer, ids, count, 0, &read, &read_length) != ISO_OK ||
        iso_utf8_valid_prefix(read, read_length) != read_length)
      abort();
    free(read);
    free(ids);
  }
  iso_tokenizer_destroy(tokenizer);
  return 0;
}
