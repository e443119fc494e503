#include "engine/grammar/schema_compiler.h"

#include <string.h>

enum { MAX_LOOKS = 8 }; /* into each other */

static const cJSON *through_references(const cJSON *root, const cJSON *schema) {
  const cJSON *reference;
  for (int i = 0; i < MAX_LOOKS && schema; i++) {
    if (!(reference = iso_schema_get(schema, "$ref")))
      return schema;
    schema = cJSON_IsString(reference) ? iso_schema_resolve(root, reference->valuestring) : NULL;
  }
  return NULL;
}

/* The values of "enum" or "const" as a list, or one; NULL: neither is there. */
static const cJSON *values_of(const cJSON *schema, bool *out_is_list) {
  const cJSON *list = iso_schema_get(schema, "enum");
  *out_is_list = list != NULL;
  return list ? list->child : iso_schema_get(schema, "const");
}

static bool share_a_value(const cJSON *a, const cJSON *b) {
  bool a_lists, b_lists;
  const cJSON *first = values_of(a, &a_lists), *second = values_of(b, &b_lists);
  for (const cJSON *x = first; x; x = a_lists ? x->next : NULL)
    for (const cJSON *y = second; y; y = b_lists ? y->next : NULL)
      if (cJSON_Compare(x, y, true))
        return true;
  return false;
}

static int possible_types(const cJSON *schema) {
  bool is_list, has_either = iso_schema_get(schema, "anyOf") || iso_schema_get(schema, "oneOf") ||
                             iso_schema_get(schema, "allOf");
  int types = 0;
  const cJSON *value = values_of(schema, &is_list);
  if (!value)
    return has_either || !iso_schema_get(schema, "type") ? SCHEMA_ALL_TYPES
                                                         : iso_schema_types(schema);
  for (; value; value = is_list ? value->next : NULL)
    types |= iso_schema_type_of(value);
  return types;
}

static bool is_required(const cJSON *schema, const char *name) {
  const cJSON *required = iso_schema_get(schema, "required");
  for (const cJSON *item = required ? required->child : NULL; item; item = item->next)
    if (cJSON_IsString(item) && strcmp(item->valuestring, name) == 0)
      return true;
  return false;
}

/* Objects that must both have a member, whose schemas exclude each other. */
static bool members_exclude(const schema_compiler *self, const cJSON *a, const cJSON *b,
                            int depth) {
  const cJSON *first = iso_schema_get(a, "properties"), *second = iso_schema_get(b, "properties");
  for (const cJSON *item = first ? first->child : NULL; item; item = item->next) {
    const cJSON *other = item->string ? iso_schema_get(second, item->string) : NULL;
    if (other && is_required(a, item->string) && is_required(b, item->string) &&
        iso_schema_exclude(self, item, other, depth + 1))
      return true;
  }
  return false;
}

bool iso_schema_exclude(const schema_compiler *self, const cJSON *a, const cJSON *b, int depth) {
  bool is_list;
  a = through_references(self->root, a);
  b = through_references(self->root, b);
  if (depth > MAX_LOOKS || !cJSON_IsObject(a) || !cJSON_IsObject(b))
    return false;
  int types = possible_types(a) & possible_types(b);
  if (types == 0)
    return true;
  if (values_of(a, &is_list) && values_of(b, &is_list))
    return !share_a_value(a, b);
  return types == SCHEMA_OBJECT && members_exclude(self, a, b, depth);
}
