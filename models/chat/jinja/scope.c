#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"

/* `*out_found` is NULL where the scope has no such variable. */
static iso_status find(iso_jinja_session *session, const iso_jinja_scope *scope,
                       iso_jinja_value name, iso_jinja_value **out_found) {
  *out_found = NULL;
  ISO_TRY(
      iso_jinja_spend(session, 1 + scope->count / 8 + (uint64_t)scope->count * (name.length / 64)));
  for (uint32_t i = 0; i < scope->count && !*out_found; i++)
    if (iso_jinja_same_text(scope->variables[i].name, name))
      *out_found = &scope->variables[i].value;
  return ISO_OK;
}

iso_status iso_jinja_open_scope(iso_jinja_session *session) {
  iso_jinja_scope *scope; /* not on the stack: a macro made inside may outlive the block */
  ISO_JINJA_NEW(session, scope, 1);
  scope->parent = session->scope;
  session->scope = scope;
  return ISO_OK;
}

iso_status iso_jinja_assign_name(iso_jinja_session *session, iso_jinja_value name,
                                 iso_jinja_value value) {
  iso_jinja_scope *scope = session->scope;
  iso_jinja_value *found;
  ISO_TRY(find(session, scope, name, &found));
  if (found) {
    *found = value;
    return ISO_OK;
  }
  ISO_TRY(iso_jinja_grow(session, &scope->variables, scope->count, &scope->capacity,
                         sizeof *scope->variables));
  scope->variables[scope->count++] = (iso_jinja_variable){name, value};
  return ISO_OK;
}

static iso_status assign_member(iso_jinja_session *session, const iso_jinja_node *target,
                                iso_jinja_value value) {
  iso_jinja_value space;
  ISO_TRY(iso_jinja_look_up(session, target->value, &space));
  if (space.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(session, space);
  if (space.kind != ISO_JINJA_NAMESPACE)
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT,
                          "cannot assign an attribute of '%s': only a namespace has assignable "
                          "attributes",
                          iso_jinja_type_name(space));
  return iso_jinja_dict_set(session, space.dict, target->second->value, value);
}

static iso_status assign_tuple(iso_jinja_session *session, const iso_jinja_node *target,
                               iso_jinja_value value) {
  iso_jinja_list *list;
  ISO_TRY(iso_jinja_iterate(session, value, &list));
  uint32_t wanted = 0;
  for (const iso_jinja_node *item = target->items; item; item = item->next)
    wanted++;
  if (list->count != wanted)
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT,
                          "cannot unpack %u value(s) into %u name(s)", list->count, wanted);
  uint32_t position = 0;
  ISO_TRY(iso_jinja_enter(session));
  for (const iso_jinja_node *item = target->items; item; item = item->next)
    ISO_TRY(iso_jinja_assign(session, item, list->items[position++]));
  iso_jinja_leave(session);
  return ISO_OK;
}

iso_status iso_jinja_assign(iso_jinja_session *session, const iso_jinja_node *target,
                            iso_jinja_value value) {
  switch (target->kind) {
  case ISO_JINJA_NODE_NAME:
    return iso_jinja_assign_name(session, target->value, value);
  case ISO_JINJA_NODE_MEMBER:
    return assign_member(session, target, value);
  default:
    return assign_tuple(session, target, value);
  }
}

iso_status iso_jinja_look_up(iso_jinja_session *session, iso_jinja_value name,
                             iso_jinja_value *out_value) {
  for (const iso_jinja_scope *scope = session->scope; scope; scope = scope->parent) {
    iso_jinja_value *found;
    ISO_TRY(find(session, scope, name, &found));
    if (found) {
      *out_value = *found;
      return ISO_OK;
    }
  }
  const iso_jinja_builtin *function = iso_jinja_find_function(name);
  *out_value = function ? (iso_jinja_value){.kind = ISO_JINJA_FUNCTION, .function = function}
                        : iso_jinja_undefined(ISO_JINJA_ABSENT, name);
  return ISO_OK;
}
