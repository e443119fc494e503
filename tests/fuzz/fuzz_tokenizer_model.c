/* A SentencePiece model file, or a GGUF file's tokenizer; its own last bytes are the text. */
#include <stdlib.h>
#include <string.h>

#include "models/formats/gguf.h"
#include "models/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static iso_tokenizer *from_gguf(const uint8_t *data, size_t size) {
  iso_gguf *gguf;
  iso_tokenizer *tokenizer = NULL;
  if (iso_gguf_open_memory(data, size, &gguf) != ISO_OK)
    return NULL;
  if (iso_tokenizer_create_from_gguf(gguf, &tokenizer) != ISO_OK)
    tokenizer = NULL;
  iso_gguf_close(gguf);
  return tokenizer;
}

static iso_tokenizer *from_sentencepiece(const uint8_t *data, size_t size) {
  iso_vocabulary vocabulary;
  iso_tokenizer *tokenizer;
  iso_vocabulary_init(&vocabulary);
  if (iso_vocabulary_read_sentencepiece(data, size, &vocabulary) != ISO_OK) {
    iso_vocabulary_free(&vocabulary);
    return NULL;
  }
  return iso_tokenizer_create(&vocabulary, &tokenizer) == ISO_OK ? tokenizer : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bool is_gguf = size > 4 && memcmp(data, "GGUF", 4) == 0;
  iso_tokenizer *tokenizer = is_gguf ? from_gguf(data, size) : from_sentencepiece(data, size);
  if (!tokenizer)
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
