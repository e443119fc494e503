#include "models/tokenizer/json_components.h"

#include <stdlib.h>
#include <string.h>

static iso_status read_sequence(const cJSON *section, iso_vocabulary *v) {
  return iso_json_read_sequence(section, "normalizers", iso_json_read_normalizer, v);
}

/* Those without parameters. */
#define ISO_PLAIN_NORMALIZER(name, KIND)                                                           \
  static iso_status read_##name(const cJSON *section, iso_vocabulary *v) {                         \
    (void)section;                                                                                 \
    iso_normalizer *step;                                                                          \
    return iso_vocabulary_add_normalizer(v, ISO_NORMALIZER_##KIND, &step);                         \
  }
ISO_PLAIN_NORMALIZER(nfc, NFC)
ISO_PLAIN_NORMALIZER(nfd, NFD)
ISO_PLAIN_NORMALIZER(nfkc, NFKC)
ISO_PLAIN_NORMALIZER(nfkd, NFKD)
ISO_PLAIN_NORMALIZER(lowercase, LOWERCASE)
ISO_PLAIN_NORMALIZER(strip_accents, STRIP_ACCENTS)
ISO_PLAIN_NORMALIZER(nmt, NMT)
ISO_PLAIN_NORMALIZER(byte_level, BYTE_LEVEL)

static iso_status read_strip(const cJSON *section, iso_vocabulary *v) {
  iso_normalizer *step;
  ISO_TRY(iso_vocabulary_add_normalizer(v, ISO_NORMALIZER_STRIP, &step));
  ISO_TRY(iso_json_get_bool(section, "strip_left", &step->left));
  return iso_json_get_bool(section, "strip_right", &step->right);
}

static iso_status read_content(const cJSON *section, const char *key, iso_normalizer *step) {
  const char *content;
  ISO_TRY(iso_json_get_string(section, key, &content));
  return iso_text_append(&step->content, content, strlen(content));
}

static iso_status read_prepend(const cJSON *section, iso_vocabulary *v) {
  iso_normalizer *step;
  ISO_TRY(iso_vocabulary_add_normalizer(v, ISO_NORMALIZER_PREPEND, &step));
  return read_content(section, "prepend", step);
}

static iso_status read_replace(const cJSON *section, iso_vocabulary *v) {
  iso_normalizer *step;
  ISO_TRY(iso_vocabulary_add_normalizer(v, ISO_NORMALIZER_REPLACE, &step));
  ISO_TRY(read_content(section, "content", step));
  return iso_json_read_pattern(section, &step->regex);
}

/* Six bits of base64 (RFC 4648); -1 for other characters. */
static int base64_value(char c) {
  if (c >= 'A' && c <= 'Z')
    return c - 'A';
  if (c >= 'a' && c <= 'z')
    return c - 'a' + 26;
  if (c >= '0' && c <= '9')
    return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static iso_status decode_base64(const char *text, iso_text *out) {
  size_t length = strlen(text);
  bool whole = length % 4 == 0;
  while (length > 0 && whole && strlen(text) - length < 2 && text[length - 1] == '=')
    length--;
  ISO_TRY(iso_text_reserve(out, length));
  uint32_t bits = 0;
  for (size_t i = 0; i < length; i++) {
    int value = base64_value(text[i]);
    if (value < 0 || !whole)
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "broken base64 at byte %zu", i);
    bits = bits << 6 | (uint32_t)value;
    if (i % 4 != 0)
      out->data[out->length++] = (char)(bits >> (6 - 2 * (i % 4)));
  }
  return ISO_OK;
}

static iso_status read_precompiled(const cJSON *section, iso_vocabulary *v) {
  iso_normalizer *step;
  const char *encoded;
  ISO_TRY(iso_vocabulary_add_normalizer(v, ISO_NORMALIZER_PRECOMPILED, &step));
  ISO_TRY(iso_json_get_string(section, "precompiled_charsmap", &encoded));
  iso_text map = {0};
  iso_status status = decode_base64(encoded, &map);
  if (status == ISO_OK)
    status = iso_charsmap_create(map.data, map.length, &step->charsmap);
  iso_text_free(&map);
  return status;
}

static const iso_component_reader readers[] = {
    {"Sequence", read_sequence},
    {"NFC", read_nfc},
    {"NFD", read_nfd},
    {"NFKC", read_nfkc},
    {"NFKD", read_nfkd},
    {"Lowercase", read_lowercase},
    {"StripAccents", read_strip_accents},
    {"Nmt", read_nmt},
    {"ByteLevel", read_byte_level},
    {"Strip", read_strip},
    {"Prepend", read_prepend},
    {"Replace", read_replace},
    {"Precompiled", read_precompiled},
    {NULL, NULL},
};

iso_status iso_json_read_normalizer(const cJSON *section, iso_vocabulary *v) {
  return iso_json_read_component(section, "normalizer", readers, v);
}
