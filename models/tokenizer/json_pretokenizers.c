#include "models/tokenizer/json_components.h"

#include <string.h>

/* Rust's \w and char classes, where Hugging Face does not use Oniguruma. */
#define RUST_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}"
#define PUNCTUATION "[!-/:-@\\[-`{-~\\p{P}]"

static iso_status read_sequence(const cJSON *section, iso_vocabulary *v) {
  return iso_json_read_sequence(section, "pretokenizers", iso_json_read_pretokenizer, v);
}

static iso_status read_byte_level(const cJSON *section, iso_vocabulary *v) {
  bool prefix = false, use_regex = true;
  ISO_TRY(iso_json_get_bool(section, "add_prefix_space", &prefix));
  ISO_TRY(iso_json_get_optional_bool(section, "use_regex", &use_regex));
  iso_pretokenizer *step;
  ISO_TRY(iso_vocabulary_add_pretokenizer(v, ISO_PRETOKENIZER_BYTE_LEVEL, &step));
  step->prefix = prefix ? ISO_PREPEND_ALWAYS : ISO_PREPEND_NEVER;
  if (!use_regex)
    return ISO_OK;
  return iso_regex_compile(ISO_GPT2_PATTERN, sizeof ISO_GPT2_PATTERN - 1, &step->regex);
}

static const char *const behavior_names[] = {
    [ISO_SPLIT_REMOVED] = "Removed",
    [ISO_SPLIT_ISOLATED] = "Isolated",
    [ISO_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
    [ISO_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
    [ISO_SPLIT_CONTIGUOUS] = "Contiguous",
};

static iso_status read_behavior(const cJSON *section, iso_split_behavior *out_behavior) {
  const char *name = NULL;
  ISO_TRY(iso_json_get_optional_string(section, "behavior", &name));
  if (!name)
    return ISO_OK;
  for (size_t i = 0; i < sizeof behavior_names / sizeof *behavior_names; i++)
    if (strcmp(behavior_names[i], name) == 0) {
      *out_behavior = (iso_split_behavior)i;
      return ISO_OK;
    }
  return iso_fail(ISO_ERROR_UNSUPPORTED, "behavior \"%s\" is not supported", name);
}

static iso_status read_split(const cJSON *section, iso_vocabulary *v) {
  iso_pretokenizer *step;
  ISO_TRY(iso_vocabulary_add_pretokenizer(v, ISO_PRETOKENIZER_SPLIT, &step));
  step->behavior = ISO_SPLIT_ISOLATED;
  ISO_TRY(read_behavior(section, &step->behavior));
  ISO_TRY(iso_json_get_optional_bool(section, "invert", &step->invert));
  return iso_json_read_pattern(section, &step->regex);
}

static iso_status read_metaspace(const cJSON *section, iso_vocabulary *v) {
  const char *replacement, *scheme = NULL;
  bool split = true, add_prefix_space = true;
  ISO_TRY(iso_json_get_string(section, "replacement", &replacement));
  ISO_TRY(iso_json_get_optional_string(section, "prepend_scheme", &scheme));
  ISO_TRY(iso_json_get_optional_bool(section, "add_prefix_space", &add_prefix_space));
  ISO_TRY(iso_json_get_optional_bool(section, "split", &split));
  iso_pretokenizer *step;
  ISO_TRY(iso_vocabulary_add_pretokenizer(v, ISO_PRETOKENIZER_METASPACE, &step));
  size_t length = strlen(replacement);
  uint32_t code_point;
  if (length == 0 || iso_utf8_decode(replacement, length, &code_point) != length)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "the replacement \"%s\" is not one character",
                    replacement);
  memcpy(step->replacement, replacement, length);
  step->replacement_length = (uint8_t)length;
  step->prefix = add_prefix_space ? ISO_PREPEND_ALWAYS : ISO_PREPEND_NEVER;
  if (scheme && strcmp(scheme, "first") == 0)
    step->prefix = ISO_PREPEND_FIRST;
  else if (scheme && strcmp(scheme, "never") == 0)
    step->prefix = ISO_PREPEND_NEVER;
  else if (scheme && strcmp(scheme, "always") != 0)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "prepend_scheme \"%s\" is not supported", scheme);
  return split ? iso_regex_compile_literal(replacement, length, &step->regex) : ISO_OK;
}

static iso_status read_digits(const cJSON *section, iso_vocabulary *v) {
  bool individual = false;
  ISO_TRY(iso_json_get_optional_bool(section, "individual_digits", &individual));
  return iso_vocabulary_add_split(v, individual ? "\\p{N}" : "\\p{N}+", ISO_SPLIT_ISOLATED, false);
}

static iso_status read_whitespace(const cJSON *section, iso_vocabulary *v) {
  (void)section;
  return iso_vocabulary_add_split(v, "[" RUST_WORD "]+|[^" RUST_WORD "\\s]+", ISO_SPLIT_REMOVED,
                                  true);
}

static iso_status read_whitespace_split(const cJSON *section, iso_vocabulary *v) {
  (void)section;
  return iso_vocabulary_add_split(v, "\\s", ISO_SPLIT_REMOVED, false);
}

static iso_status read_punctuation(const cJSON *section, iso_vocabulary *v) {
  iso_split_behavior behavior = ISO_SPLIT_ISOLATED;
  ISO_TRY(read_behavior(section, &behavior));
  return iso_vocabulary_add_split(v, PUNCTUATION, behavior, false);
}

static iso_status read_bert(const cJSON *section, iso_vocabulary *v) {
  ISO_TRY(read_whitespace_split(section, v));
  return iso_vocabulary_add_split(v, PUNCTUATION, ISO_SPLIT_ISOLATED, false);
}

static iso_status read_delimiter(const cJSON *section, iso_vocabulary *v) {
  const char *delimiter;
  ISO_TRY(iso_json_get_string(section, "delimiter", &delimiter));
  if (!*delimiter)
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "the delimiter is empty");
  iso_pretokenizer *step;
  ISO_TRY(iso_vocabulary_add_pretokenizer(v, ISO_PRETOKENIZER_SPLIT, &step));
  step->behavior = ISO_SPLIT_REMOVED;
  return iso_regex_compile_literal(delimiter, strlen(delimiter), &step->regex);
}

static const iso_component_reader readers[] = {
    {"Sequence", read_sequence},
    {"ByteLevel", read_byte_level},
    {"Split", read_split},
    {"Metaspace", read_metaspace},
    {"Digits", read_digits},
    {"Whitespace", read_whitespace},
    {"WhitespaceSplit", read_whitespace_split},
    {"Punctuation", read_punctuation},
    {"BertPreTokenizer", read_bert},
    {"CharDelimiterSplit", read_delimiter},
    {NULL, NULL},
};

iso_status iso_json_read_pretokenizer(const cJSON *section, iso_vocabulary *v) {
  return iso_json_read_component(section, "pre-tokenizer", readers, v);
}
