#include "models/tokenizer/json_components.h"

#include <string.h>

iso_status iso_json_read_component(const cJSON *section, const char *what,
                                   const iso_component_reader *readers, iso_vocabulary *v) {
  if (!section || cJSON_IsNull(section))
    return ISO_OK;
  const char *type;
  ISO_TRY(iso_fail_context(iso_json_get_string(section, "type", &type), "%s", what));
  for (const iso_component_reader *reader = readers; reader->type; reader++)
    if (strcmp(reader->type, type) == 0)
      return iso_fail_context(reader->read(section, v), "%s %s", what, type);
  return iso_fail(ISO_ERROR_UNSUPPORTED, "%s \"%s\" is not supported", what, type);
}

iso_status iso_json_read_sequence(const cJSON *section, const char *key,
                                  iso_status (*read)(const cJSON *, iso_vocabulary *),
                                  iso_vocabulary *v) {
  const cJSON *list;
  ISO_TRY(iso_json_get_array(section, key, &list));
  for (const cJSON *item = list->child; item; item = item->next)
    ISO_TRY(read(item, v));
  return ISO_OK;
}

iso_status iso_json_read_pattern(const cJSON *section, iso_regex **out_regex) {
  const cJSON *pattern;
  ISO_TRY(iso_json_get_object(section, "pattern", &pattern));
  const char *text = NULL;
  ISO_TRY(iso_json_get_optional_string(pattern, "Regex", &text));
  if (text)
    return iso_regex_compile(text, strlen(text), out_regex);
  ISO_TRY(iso_json_get_string(pattern, "String", &text));
  if (!*text)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "an empty pattern is not supported");
  return iso_regex_compile_literal(text, strlen(text), out_regex);
}
