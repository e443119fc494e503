#include "models/tokenizer/json_components.h"

#include <string.h>

static iso_status read_sequence(const cJSON *section, iso_vocabulary *v) {
  return iso_json_read_sequence(section, "processors", iso_json_read_post_processor, v);
}

/* Only trims the offsets of tokens, which are not kept here. */
static iso_status read_byte_level(const cJSON *section, iso_vocabulary *v) {
  (void)section;
  (void)v;
  return ISO_OK;
}

/* Processors behind one that adds ids would each have to work on what that one made; the reference
 * has no way to for templates. */
static iso_status check_first(const iso_vocabulary *v) {
  return v->prefix_count + v->suffix_count == 0
             ? ISO_OK
             : iso_fail(ISO_ERROR_UNSUPPORTED,
                        "a second one behind one that adds ids to a text is not supported");
}

static iso_status push_affix(int32_t *affix, size_t *count, double id) {
  if (*count == ISO_MAX_AFFIX)
    return iso_fail(ISO_ERROR_UNSUPPORTED, "more than %d ids around a text", ISO_MAX_AFFIX);
  if (!(id >= 0 && id < ISO_MAX_TOKENS))
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "id %g is out of range", id);
  affix[(*count)++] = (int32_t)id;
  return ISO_OK;
}

/* Appends the ids of one special token of a template, looked up by its name in special_tokens. */
static iso_status push_special(const cJSON *section, const cJSON *piece, int32_t *affix,
                               size_t *count) {
  const cJSON *tokens, *token, *ids;
  const char *name;
  ISO_TRY(iso_json_get_string(piece, "id", &name));
  ISO_TRY(iso_json_get_object(section, "special_tokens", &tokens));
  ISO_TRY(iso_json_get_object(tokens, name, &token));
  ISO_TRY(iso_json_get_array(token, "ids", &ids));
  for (const cJSON *id = ids->child; id; id = id->next) {
    if (!cJSON_IsNumber(id))
      return iso_fail(ISO_ERROR_CORRUPT_DATA, "an id of \"%s\" is not a number", name);
    ISO_TRY(push_affix(affix, count, id->valuedouble));
  }
  return ISO_OK;
}

static iso_status read_template(const cJSON *section, iso_vocabulary *v) {
  const cJSON *single;
  ISO_TRY(iso_json_get_array(section, "single", &single));
  bool after_text = false;
  ISO_TRY(check_first(v));
  for (const cJSON *item = single->child; item; item = item->next) {
    const cJSON *sequence = NULL, *special = NULL;
    ISO_TRY(iso_json_get_optional_object(item, "Sequence", &sequence));
    if (sequence) {
      if (after_text)
        return iso_fail(ISO_ERROR_UNSUPPORTED, "a template with the text twice is not supported");
      after_text = true;
      continue;
    }
    ISO_TRY(iso_json_get_object(item, "SpecialToken", &special));
    ISO_TRY(after_text ? push_special(section, special, v->suffix, &v->suffix_count)
                       : push_special(section, special, v->prefix, &v->prefix_count));
  }
  return after_text
             ? ISO_OK
             : iso_fail(ISO_ERROR_UNSUPPORTED, "a template without the text is not supported");
}

/* ["text", id] */
static iso_status push_pair(const cJSON *section, const char *key, int32_t *affix, size_t *count) {
  const cJSON *pair;
  ISO_TRY(iso_json_get_array(section, key, &pair));
  const cJSON *id = cJSON_GetArrayItem(pair, 1);
  if (!cJSON_IsNumber(id))
    return iso_fail(ISO_ERROR_CORRUPT_DATA, "\"%s\" is not a text and an id", key);
  return push_affix(affix, count, id->valuedouble);
}

static iso_status read_bert(const cJSON *section, iso_vocabulary *v) {
  ISO_TRY(check_first(v));
  ISO_TRY(push_pair(section, "cls", v->prefix, &v->prefix_count));
  return push_pair(section, "sep", v->suffix, &v->suffix_count);
}

static const iso_component_reader readers[] = {
    {"Sequence", read_sequence},           {"ByteLevel", read_byte_level},
    {"TemplateProcessing", read_template}, {"BertProcessing", read_bert},
    {"RobertaProcessing", read_bert},      {NULL, NULL},
};

iso_status iso_json_read_post_processor(const cJSON *section, iso_vocabulary *v) {
  return iso_json_read_component(section, "post-processor", readers, v);
}
