#include "quant/codec.h"

static const iso_scheme_info infos[ISO_SCHEME_COUNT] = {
#define ISO_SCHEME(NAME, name, gguf_type, block_elements, block_bytes, kind)                       \
  {#name, gguf_type, block_elements, block_bytes, ISO_SCHEME_KIND_##kind},
#include <isomer/schemes.def>
#undef ISO_SCHEME
};

static const iso_scheme_codec *const codecs[ISO_SCHEME_COUNT] = {
#define ISO_SCHEME(NAME, name, gguf_type, block_elements, block_bytes, kind) &iso_codec_##name,
#include <isomer/schemes.def>
#undef ISO_SCHEME
};

const iso_scheme_info *iso_scheme_get_info(iso_scheme scheme) {
  return (unsigned)scheme < ISO_SCHEME_COUNT ? &infos[scheme] : NULL;
}

/* Without regard to the case of ASCII letters, in any locale: in some, i is not I in lower case. */
static bool same_name(const char *a, const char *b) {
  for (;; a++, b++) {
    char x = *a >= 'A' && *a <= 'Z' ? (char)(*a + 32) : *a;
    char y = *b >= 'A' && *b <= 'Z' ? (char)(*b + 32) : *b;
    if (x != y)
      return false;
    if (!x)
      return true;
  }
}

bool iso_scheme_from_name(const char *name, iso_scheme *out_scheme) {
  for (int i = 0; i < ISO_SCHEME_COUNT; i++)
    if (same_name(name, infos[i].name)) {
      *out_scheme = (iso_scheme)i;
      return true;
    }
  return false;
}

bool iso_scheme_from_gguf(uint32_t gguf_type, iso_scheme *out_scheme) {
  for (int i = 0; i < ISO_SCHEME_COUNT; i++)
    if (infos[i].gguf_type >= 0 && (uint32_t)infos[i].gguf_type == gguf_type) {
      *out_scheme = (iso_scheme)i;
      return true;
    }
  return false;
}

iso_status iso_scheme_row_bytes(iso_scheme scheme, int64_t elements, uint64_t *out_bytes) {
  const iso_scheme_info *info = iso_scheme_get_info(scheme);
  if (!info)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT, "unknown storage scheme %d", (int)scheme);
  if (elements < 0 || elements % info->block_elements != 0)
    return iso_fail(ISO_ERROR_INVALID_ARGUMENT,
                    "a row of %lld elements is not whole %s blocks of %u", (long long)elements,
                    info->name, info->block_elements);
  uint64_t bytes;
  if (__builtin_mul_overflow((uint64_t)elements / info->block_elements, info->block_bytes, &bytes))
    return iso_fail(ISO_ERROR_LIMIT, "a row of %lld elements overflows", (long long)elements);
  *out_bytes = bytes;
  return ISO_OK;
}

void iso_scheme_decode_row(iso_scheme scheme, const void *source, float *out_values,
                           int64_t elements) {
  codecs[scheme]->decode(source, out_values, elements / infos[scheme].block_elements);
}

void iso_scheme_encode_row(iso_scheme scheme, const float *values, const float *importance,
                           void *out_row, int64_t elements) {
  codecs[scheme]->encode(values, importance, out_row, elements / infos[scheme].block_elements);
}
