#include "engine/grammar/schema_compiler.h"

#include <stdlib.h>
#include <string.h>

/* ---- Objects ------------------------------------------------------------------------------- */

typedef struct member {
  const char *name;
  uint32_t rule;
  bool is_required;
} member;

/* The members that an object may have. */
typedef struct object_plan {
  member *members;
  size_t n;
  bool has_others;
  uint32_t other_rule;
} object_plan;

static member *find_member(const object_plan *plan, const char *name) {
  for (size_t i = 0; i < plan->n; i++)
    if (strcmp(plan->members[i].name, name) == 0)
      return &plan->members[i];
  return NULL;
}

enum { MAX_MEMBERS = 1024 };

/* Names that are required without being described get what other members would. */
static void plan_required(schema_compiler *self, const cJSON *schema, const cJSON *required,
                          bool others_allowed, object_plan *plan) {
  for (const cJSON *name = required ? required->child : NULL; name; name = name->next) {
    if (!cJSON_IsString(name)) {
      iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT, "'required' is no list of names");
      return;
    }
    member *found = find_member(plan, name->valuestring);
    if (!found && !others_allowed) {
      iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT,
                        "the property '%.60s' is required and not allowed", name->valuestring);
      return;
    }
    if (!found) {
      found = &plan->members[plan->n++];
      *found = (member){.name = name->valuestring, .rule = plan->other_rule};
    }
    found->is_required = true;
  }
}

static bool plan_object(schema_compiler *self, const cJSON *schema, object_plan *plan) {
  const cJSON *properties = iso_schema_get(schema, "properties"),
              *required = iso_schema_get(schema, "required");
  cJSON *others = iso_schema_get(schema, "additionalProperties");
  int n = cJSON_GetArraySize(properties) + cJSON_GetArraySize(required);
  if ((properties && !cJSON_IsObject(properties)) || (required && !cJSON_IsArray(required))) {
    iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT,
                      "'properties' is an object, 'required' a list");
    return false;
  }
  if (n > MAX_MEMBERS) {
    iso_schema_refuse(self, schema, ISO_ERROR_UNSUPPORTED, "more than %d properties", MAX_MEMBERS);
    return false;
  }
  plan->has_others = others ? !cJSON_IsFalse(others) : !properties && !required;
  plan->other_rule = iso_schema_rule(self, others);
  plan->members = calloc((size_t)n + 1, sizeof *plan->members);
  if (!plan->members) {
    iso_schema_refuse(self, schema, ISO_ERROR_OUT_OF_MEMORY, "no memory for %d properties", n);
    return false;
  }
  for (cJSON *item = properties ? properties->child : NULL; item; item = item->next)
    plan->members[plan->n++] = (member){.name = item->string, .rule = iso_schema_rule(self, item)};
  plan_required(self, schema, required, !cJSON_IsFalse(others), plan);
  return self->automaton->status == ISO_OK;
}

/* The members' names between quotes, as JSON writes them. */
static bool write_names(schema_compiler *self, const object_plan *plan, schema_texts *out_names) {
  if (!iso_schema_texts_init(self, plan->n, out_names))
    return false;
  for (size_t i = 0; i < plan->n; i++) {
    cJSON *name = cJSON_CreateStringReference(plan->members[i].name);
    bool is_added = name && iso_schema_texts_add(self, out_names, name, 1);
    cJSON_Delete(name);
    if (!is_added) {
      iso_schema_refuse(self, NULL, ISO_ERROR_OUT_OF_MEMORY, "no memory for names");
      return false;
    }
  }
  return true;
}

/* Members with any name but those of the plan, up to the brace. *out_first: the state at the first
 * of them, behind a comma or the opening brace. Returns the state behind a member. */
static uint32_t add_others(schema_compiler *self, const object_plan *plan, schema_texts *names,
                           uint32_t close, uint32_t *out_first) {
  iso_automaton *automaton = self->automaton;
  *out_first = AUTOMATON_DEAD;
  if (!plan->has_others)
    return close;
  iso_schema_texts_sort(names);
  uint32_t after = iso_automaton_loop(automaton, close), name = iso_automaton_rule(automaton);
  if (automaton->status != ISO_OK)
    return AUTOMATON_DEAD;
  iso_automaton_set_rule(automaton, name,
                         iso_automaton_other_texts(automaton, names->texts, names->n,
                                                   automaton->rules[JSON_STRING_REST]));
  uint32_t value = iso_automaton_call(automaton, plan->other_rule, after);
  uint32_t rest = iso_automaton_call(automaton, name, iso_json_mark(automaton, ':', value));
  *out_first = iso_automaton_range(automaton, '"', '"', rest);
  iso_automaton_close_loop(automaton, after, iso_json_mark(automaton, ',', *out_first));
  return after;
}

uint32_t iso_schema_object(schema_compiler *self, const cJSON *schema) {
  iso_automaton *automaton = self->automaton;
  object_plan plan = {0};
  schema_texts names = {0};
  uint32_t state = AUTOMATON_DEAD;
  if (!iso_schema_get(schema, "properties") && !iso_schema_get(schema, "required") &&
      !iso_schema_get(schema, "additionalProperties"))
    return iso_automaton_call(automaton, JSON_OBJECT, AUTOMATON_END);
  if (!plan_object(self, schema, &plan) || !write_names(self, &plan, &names))
    goto done;
  automaton_text *sorted = names.texts; /* by member until add_others() sorts a copy */
  schema_texts copy = {.texts = calloc(plan.n + 1, sizeof *sorted), .n = plan.n};
  if (!copy.texts) {
    iso_schema_refuse(self, schema, ISO_ERROR_OUT_OF_MEMORY, "no memory for names");
    goto done;
  }
  memcpy(copy.texts, sorted, plan.n * sizeof *sorted);
  /* `first`: at a member, none having been written; `after`: behind one. */
  uint32_t close = iso_automaton_range(automaton, '}', '}', AUTOMATON_END), first;
  uint32_t after = add_others(self, &plan, &copy, close, &first);
  first = iso_automaton_split(automaton, first, close);
  free(copy.texts);
  for (size_t i = plan.n; i-- > 0;) {
    const member *each = &plan.members[i];
    uint32_t key = iso_automaton_call(automaton, each->rule, after);
    key = iso_automaton_range(automaton, '"', '"', iso_json_mark(automaton, ':', key));
    key = iso_automaton_literal(automaton, names.texts[i].data, names.texts[i].length, key);
    key = iso_automaton_range(automaton, '"', '"', key);
    uint32_t next = iso_json_mark(automaton, ',', key);
    first = each->is_required ? key : iso_automaton_split(automaton, key, first);
    after = each->is_required ? next : iso_automaton_split(automaton, next, after);
  }
  state = iso_automaton_range(automaton, '{', '{', first);
done:
  iso_schema_texts_free(&names);
  free(plan.members);
  return state;
}

/* ---- Arrays -------------------------------------------------------------------------------- */

enum { MAX_ITEMS = 4096 };

typedef struct array_plan {
  uint32_t *prefix; /* rules of the first items */
  int n_prefix;
  uint32_t rule; /* of the others */
  int least, most;
} array_plan;

static bool plan_array(schema_compiler *self, const cJSON *schema, array_plan *plan) {
  const cJSON *prefix = iso_schema_get(schema, "prefixItems");
  cJSON *items = iso_schema_get(schema, "items");
  plan->most = -1;
  if (!iso_schema_count(self, schema, "minItems", MAX_ITEMS, &plan->least) ||
      !iso_schema_count(self, schema, "maxItems", INT32_MAX, &plan->most))
    return false;
  plan->most = plan->most > MAX_ITEMS ? MAX_ITEMS : plan->most;
  if ((prefix && !cJSON_IsArray(prefix)) || cJSON_GetArraySize(prefix) > MAX_ITEMS) {
    iso_schema_refuse(self, schema, ISO_ERROR_INVALID_ARGUMENT,
                      "'prefixItems' is a list of at most %d schemas", MAX_ITEMS);
    return false;
  }
  plan->prefix = calloc((size_t)cJSON_GetArraySize(prefix) + 1, sizeof *plan->prefix);
  if (!plan->prefix) {
    iso_schema_refuse(self, schema, ISO_ERROR_OUT_OF_MEMORY, "no memory for items");
    return false;
  }
  for (cJSON *item = prefix ? prefix->child : NULL; item; item = item->next)
    plan->prefix[plan->n_prefix++] = iso_schema_rule(self, item);
  plan->rule = iso_schema_rule(self, items);
  /* Where only the first items are described, there are no more than must be. */
  if (prefix && !items && plan->most < 0)
    plan->most = plan->n_prefix > plan->least ? plan->n_prefix : plan->least;
  if (cJSON_IsFalse(items) && (plan->most < 0 || plan->most > plan->n_prefix))
    plan->most = plan->n_prefix;
  return self->automaton->status == ISO_OK;
}

static uint32_t rule_at(const array_plan *plan, int index) {
  return index < plan->n_prefix ? plan->prefix[index] : plan->rule;
}

/* The states behind as many items as are counted, from the last one back to none. */
static uint32_t add_items(iso_automaton *automaton, const array_plan *plan) {
  uint32_t close = iso_automaton_range(automaton, ']', ']', AUTOMATON_END), after = close;
  int n = plan->most;
  if (n < 0) {
    n = plan->least > plan->n_prefix ? plan->least : plan->n_prefix;
    n = n > 0 ? n : 1;
    after = iso_automaton_loop(automaton, close);
    uint32_t item = iso_automaton_call(automaton, plan->rule, after);
    iso_automaton_close_loop(automaton, after, iso_json_mark(automaton, ',', item));
  }
  for (int i = n - 1; i >= 0 && automaton->status == ISO_OK; i--) {
    uint32_t item = iso_automaton_call(automaton, rule_at(plan, i), after);
    after = i > 0 ? iso_json_mark(automaton, ',', item) : item;
    if (i >= plan->least)
      after = iso_automaton_split(automaton, close, after);
  }
  return after;
}

uint32_t iso_schema_array(schema_compiler *self, const cJSON *schema) {
  array_plan plan = {0};
  uint32_t state = AUTOMATON_DEAD;
  if (plan_array(self, schema, &plan) && (plan.most < 0 || plan.most >= plan.least))
    state = iso_automaton_range(self->automaton, '[', '[', add_items(self->automaton, &plan));
  free(plan.prefix);
  return state;
}
