#include "models/tokenizer/vocabulary.h"

#include <string.h>

#define ISO_PRE_NFC 1u
#define ISO_PRE_BOS 2u
#define ISO_PRE_WHOLE 4u
#define ISO_PRE_BYTES "" /* no pattern: the step to the byte alphabet */
#define MAX_STEPS 8

static const struct {
  const char *name;
  uint32_t flags;
  const char *steps[MAX_STEPS];
} pretokenizers[] = {
#define ISO_PRETOKENIZER(name, flags, ...) {name, flags, {__VA_ARGS__}},
#include "models/tokenizer/pretokenizers.def"
#undef ISO_PRETOKENIZER
};

static iso_status add_steps(iso_vocabulary *v, const char *const steps[MAX_STEPS]) {
  iso_pretokenizer *step;
  bool bytes = false;
  for (size_t i = 0; i < MAX_STEPS && steps[i]; i++) {
    if (*steps[i]) {
      ISO_TRY(iso_vocabulary_add_split(v, steps[i], ISO_SPLIT_ISOLATED, false));
      continue;
    }
    bytes = true;
    ISO_TRY(iso_vocabulary_add_pretokenizer(v, ISO_PRETOKENIZER_BYTE_LEVEL, &step));
  }
  return bytes ? ISO_OK : iso_vocabulary_add_pretokenizer(v, ISO_PRETOKENIZER_BYTE_LEVEL, &step);
}

iso_status iso_vocabulary_use_pretokenizer(iso_vocabulary *v, const char *name, size_t length,
                                           bool *out_add_bos) {
  for (size_t i = 0; i < sizeof pretokenizers / sizeof *pretokenizers; i++) {
    if (strlen(pretokenizers[i].name) != length || memcmp(pretokenizers[i].name, name, length))
      continue;
    *out_add_bos = pretokenizers[i].flags & ISO_PRE_BOS;
    v->whole_word_first = pretokenizers[i].flags & ISO_PRE_WHOLE;
    iso_normalizer *normalizer;
    if (pretokenizers[i].flags & ISO_PRE_NFC)
      ISO_TRY(iso_vocabulary_add_normalizer(v, ISO_NORMALIZER_NFC, &normalizer));
    return add_steps(v, pretokenizers[i].steps);
  }
  return iso_fail(
      ISO_ERROR_UNSUPPORTED,
      "pre-tokenizer \"%.*s\" is not supported; give the model's Hugging Face folder instead, "
      "whose tokenizer.json says how text is split",
      (int)(length > 100 ? 100 : length), name);
}

const char *iso_pretokenizer_name_at(size_t index) {
  return index < sizeof pretokenizers / sizeof *pretokenizers ? pretokenizers[index].name : NULL;
}
