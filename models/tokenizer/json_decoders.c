/* Decoders are run on each token alone, once, when the tokenizer is made; so a chain is taken as
 * long as its parts do not look across tokens. After Fuse or ByteLevel, which join all tokens, only
 * the removal of leading spaces is left. */
#include "models/tokenizer/json_components.h"

#include <string.h>

static iso_status read_decoder_part(const cJSON *section, iso_vocabulary *v);

static iso_status read_sequence(const cJSON *section, iso_vocabulary *v) {
  return iso_json_read_sequence(section, "decoders", read_decoder_part, v);
}

static iso_status refuse_joined(const iso_vocabulary *v) {
  return v->decoders_joined
             ? iso_fail(ISO_ERROR_UNSUPPORTED, "after the tokens are joined is not supported")
             : ISO_OK;
}

static iso_status read_byte_level(const cJSON *section, iso_vocabulary *v) {
  (void)section;
  iso_decode_step *step;
  ISO_TRY(refuse_joined(v));
  v->decoders_joined = true;
  return iso_vocabulary_add_decoder(v, ISO_DECODE_BYTE_LEVEL, &step);
}

static iso_status read_byte_fallback(const cJSON *section, iso_vocabulary *v) {
  (void)section;
  iso_decode_step *step;
  ISO_TRY(refuse_joined(v));
  return iso_vocabulary_add_decoder(v, ISO_DECODE_BYTE_FALLBACK, &step);
}

static iso_status read_fuse(const cJSON *section, iso_vocabulary *v) {
  (void)section;
  v->decoders_joined = true;
  return ISO_OK;
}

static iso_status read_replace(const cJSON *section, iso_vocabulary *v) {
  const char *content;
  iso_decode_step *step;
  ISO_TRY(refuse_joined(v));
  ISO_TRY(iso_json_get_string(section, "content", &content));
  ISO_TRY(iso_vocabulary_add_decoder(v, ISO_DECODE_REPLACE, &step));
  ISO_TRY(iso_text_append(&step->content, content, strlen(content)));
  return iso_json_read_pattern(section, &step->regex);
}

static iso_status read_strip(const cJSON *section, iso_vocabulary *v) {
  const char *content;
  int64_t start, stop;
  ISO_TRY(iso_json_get_string(section, "content", &content));
  ISO_TRY(iso_json_get_int(section, "start", 0, UINT32_MAX, &start));
  ISO_TRY(iso_json_get_int(section, "stop", 0, UINT32_MAX, &stop));
  if (!*content)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "the content is empty");
  if (!v->decoders_joined) {
    iso_decode_step *step;
    ISO_TRY(iso_vocabulary_add_decoder(v, ISO_DECODE_STRIP, &step));
    step->start = (uint32_t)start;
    step->stop = (uint32_t)stop;
    return iso_text_append(&step->content, content, strlen(content));
  }
  if (stop != 0 || strcmp(content, " ") != 0 || v->trim != ISO_TRIM_NOTHING)
    return iso_fail(ISO_ERROR_UNSUPPORTED,
                    "of anything but leading spaces, after the tokens are joined, is not "
                    "supported");
  v->trim = start > 0 ? ISO_TRIM_SPACES : ISO_TRIM_NOTHING;
  v->trim_count = (uint32_t)start;
  return ISO_OK;
}

static iso_status read_metaspace(const cJSON *section, iso_vocabulary *v) {
  const char *replacement, *scheme = NULL;
  bool add_prefix_space = true;
  iso_decode_step *step;
  ISO_TRY(refuse_joined(v));
  ISO_TRY(iso_json_get_string(section, "replacement", &replacement));
  ISO_TRY(iso_json_get_optional_string(section, "prepend_scheme", &scheme));
  ISO_TRY(iso_json_get_optional_bool(section, "add_prefix_space", &add_prefix_space));
  if (!*replacement)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "the replacement is empty");
  ISO_TRY(iso_vocabulary_add_decoder(v, ISO_DECODE_REPLACE, &step));
  ISO_TRY(iso_text_append(&step->content, " ", 1));
  if (add_prefix_space && !(scheme && strcmp(scheme, "never") == 0)) {
    v->trim = ISO_TRIM_SPACES;
    v->trim_count = 1;
  }
  return iso_regex_compile_literal(replacement, strlen(replacement), &step->regex);
}

static const iso_component_reader decoder_readers[] = {
    {"Sequence", read_sequence},
    {"ByteLevel", read_byte_level},
    {"ByteFallback", read_byte_fallback},
    {"Fuse", read_fuse},
    {"Replace", read_replace},
    {"Strip", read_strip},
    {"Metaspace", read_metaspace},
    {NULL, NULL},
};

static iso_status read_decoder_part(const cJSON *section, iso_vocabulary *v) {
  return iso_json_read_component(section, "decoder", decoder_readers, v);
}

iso_status iso_json_read_decoder(const cJSON *section, iso_vocabulary *v) {
  if (!section || cJSON_IsNull(section))
    return iso_fail(ISO_ERROR_UNSUPPORTED, "a tokenizer without a decoder is not supported");
  return read_decoder_part(section, v);
}
