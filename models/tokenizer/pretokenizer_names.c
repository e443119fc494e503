#include "models/tokenizer/vocabulary.h"

iso_status iso_vocabulary_use_pretokenizer(iso_vocabulary *v, const char *name, bool *out_add_bos) {
  (void)v;
  *out_add_bos = false;
  return iso_fail(ISO_ERROR_UNSUPPORTED, "tokenizer.ggml.pre \"%s\" is not supported", name);
}
