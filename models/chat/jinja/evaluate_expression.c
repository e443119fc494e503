#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"

typedef iso_status evaluator(iso_jinja_session *session, const iso_jinja_node *node,
                             iso_jinja_value *out);

static iso_status evaluate_constant(iso_jinja_session *session, const iso_jinja_node *node,
                                    iso_jinja_value *out) {
  (void)session;
  *out = node->value;
  return ISO_OK;
}

static iso_status evaluate_name(iso_jinja_session *session, const iso_jinja_node *node,
                                iso_jinja_value *out) {
  return iso_jinja_look_up(session, node->value, out);
}

/* A list or tuple display. */
static iso_status evaluate_items(iso_jinja_session *session, const iso_jinja_node *node,
                                 iso_jinja_value *out) {
  iso_jinja_kind kind = node->kind == ISO_JINJA_NODE_LIST ? ISO_JINJA_LIST : ISO_JINJA_TUPLE;
  ISO_TRY(iso_jinja_list_create(session, kind, 0, out));
  for (const iso_jinja_node *item = node->items; item; item = item->next) {
    iso_jinja_value value;
    ISO_TRY(iso_jinja_evaluate(session, item, &value));
    ISO_TRY(iso_jinja_list_append(session, out->list, value));
  }
  return ISO_OK;
}

static iso_status evaluate_dict(iso_jinja_session *session, const iso_jinja_node *node,
                                iso_jinja_value *out) {
  ISO_TRY(iso_jinja_dict_create(session, ISO_JINJA_DICT, out));
  for (const iso_jinja_node *pair = node->items; pair; pair = pair->next) {
    iso_jinja_value key, value;
    ISO_TRY(iso_jinja_evaluate(session, pair->first, &key));
    ISO_TRY(iso_jinja_evaluate(session, pair->second, &value));
    ISO_TRY(iso_jinja_dict_set(session, out->dict, key, value));
  }
  return ISO_OK;
}

static iso_status evaluate_not(iso_jinja_session *session, const iso_jinja_node *node,
                               iso_jinja_value *out) {
  ISO_TRY(iso_jinja_evaluate(session, node->first, out));
  *out = iso_jinja_boolean(!iso_jinja_is_true(*out));
  return ISO_OK;
}

static iso_status evaluate_negate(iso_jinja_session *session, const iso_jinja_node *node,
                                  iso_jinja_value *out) {
  ISO_TRY(iso_jinja_evaluate(session, node->first, out));
  return iso_jinja_negate(session, *out, out);
}

static iso_status evaluate_plus(iso_jinja_session *session, const iso_jinja_node *node,
                                iso_jinja_value *out) {
  iso_jinja_value value;
  ISO_TRY(iso_jinja_evaluate(session, node->first, &value));
  *out = value;
  return value.kind == ISO_JINJA_FLOAT
             ? ISO_OK
             : iso_jinja_operate(session, ISO_JINJA_ADD, iso_jinja_integer(0), value, out);
}

static iso_status evaluate_and(iso_jinja_session *session, const iso_jinja_node *node,
                               iso_jinja_value *out) {
  ISO_TRY(iso_jinja_evaluate(session, node->first, out));
  return iso_jinja_is_true(*out) ? iso_jinja_evaluate(session, node->second, out) : ISO_OK;
}

static iso_status evaluate_or(iso_jinja_session *session, const iso_jinja_node *node,
                              iso_jinja_value *out) {
  ISO_TRY(iso_jinja_evaluate(session, node->first, out));
  return iso_jinja_is_true(*out) ? ISO_OK : iso_jinja_evaluate(session, node->second, out);
}

static iso_status evaluate_binary(iso_jinja_session *session, const iso_jinja_node *node,
                                  iso_jinja_value *out) {
  iso_jinja_value a, b;
  ISO_TRY(iso_jinja_evaluate(session, node->first, &a));
  ISO_TRY(iso_jinja_evaluate(session, node->second, &b));
  return iso_jinja_operate(session, (iso_jinja_operation)node->operation, a, b, out);
}

static iso_status evaluate_concat(iso_jinja_session *session, const iso_jinja_node *node,
                                  iso_jinja_value *out) {
  iso_jinja_buffer buffer = {0};
  for (const iso_jinja_node *item = node->items; item; item = item->next) {
    iso_jinja_value value;
    ISO_TRY(iso_jinja_evaluate(session, item, &value));
    ISO_TRY(iso_jinja_print(session, &buffer, value));
  }
  *out = iso_jinja_buffer_string(&buffer);
  return ISO_OK;
}

/* a < b < c holds where each neighbouring pair does; each is evaluated once. */
static iso_status evaluate_compare(iso_jinja_session *session, const iso_jinja_node *node,
                                   iso_jinja_value *out) {
  iso_jinja_value left, right;
  bool holds = true;
  ISO_TRY(iso_jinja_evaluate(session, node->first, &left));
  for (const iso_jinja_node *operand = node->items; operand && holds; operand = operand->next) {
    ISO_TRY(iso_jinja_evaluate(session, operand->first, &right));
    ISO_TRY(
        iso_jinja_compare(session, (iso_jinja_operation)operand->operation, left, right, &holds));
    left = right;
  }
  *out = iso_jinja_boolean(holds);
  return ISO_OK;
}

static iso_status evaluate_condition(iso_jinja_session *session, const iso_jinja_node *node,
                                     iso_jinja_value *out) {
  iso_jinja_value test;
  ISO_TRY(iso_jinja_evaluate(session, node->first, &test));
  if (iso_jinja_is_true(test))
    return iso_jinja_evaluate(session, node->second, out);
  if (node->third)
    return iso_jinja_evaluate(session, node->third, out);
  *out = iso_jinja_undefined_because("an inline if is false and has no else");
  return ISO_OK;
}

static iso_status evaluate_attribute(iso_jinja_session *session, const iso_jinja_node *node,
                                     iso_jinja_value *out) {
  iso_jinja_value object;
  ISO_TRY(iso_jinja_evaluate(session, node->first, &object));
  return iso_jinja_get_attribute(session, object, node->value, out);
}

static iso_status evaluate_index(iso_jinja_session *session, const iso_jinja_node *node,
                                 iso_jinja_value *out) {
  iso_jinja_value object, key;
  ISO_TRY(iso_jinja_evaluate(session, node->first, &object));
  ISO_TRY(iso_jinja_evaluate(session, node->second, &key));
  return iso_jinja_get_item(session, object, key, out);
}

static iso_status evaluate_slice(iso_jinja_session *session, const iso_jinja_node *node,
                                 iso_jinja_value *out) {
  iso_jinja_value object, parts[3];
  ISO_TRY(iso_jinja_evaluate(session, node->first, &object));
  int count = 0;
  for (const iso_jinja_node *part = node->items; part && count < 3; part = part->next)
    ISO_TRY(iso_jinja_evaluate(session, part, &parts[count++]));
  return iso_jinja_get_slice(session, object, parts[0], parts[1], parts[2], out);
}

iso_status iso_jinja_append_keyword(iso_jinja_session *session, iso_jinja_arguments *arguments,
                                    iso_jinja_value name, iso_jinja_value value) {
  ISO_TRY(iso_jinja_spend(session, 1 + (1 + name.length / 64) * arguments->keyword_count / 8));
  for (uint32_t i = 0; i < arguments->keyword_count; i++)
    if (iso_jinja_same_text(arguments->keywords[i].name, name))
      return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT,
                            "two values for keyword argument '%.*s'",
                            (int)(name.length > 100 ? 100 : name.length), name.string);
  ISO_TRY(iso_jinja_grow(session, &arguments->keywords, arguments->keyword_count,
                         &arguments->keyword_capacity, sizeof *arguments->keywords));
  arguments->keywords[arguments->keyword_count++] = (iso_jinja_keyword){name, value};
  return ISO_OK;
}

static iso_status append_positional(iso_jinja_session *session, iso_jinja_arguments *arguments,
                                    iso_jinja_value value) {
  ISO_TRY(iso_jinja_spend(session, 1));
  ISO_TRY(iso_jinja_grow(session, &arguments->positional, arguments->positional_count,
                         &arguments->positional_capacity, sizeof *arguments->positional));
  arguments->positional[arguments->positional_count++] = value;
  return ISO_OK;
}

static iso_status spread_keywords(iso_jinja_session *session, iso_jinja_arguments *arguments,
                                  iso_jinja_value value) {
  if (value.kind != ISO_JINJA_DICT)
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT,
                          "argument after ** must be a mapping, not %s",
                          iso_jinja_type_name(value));
  for (uint32_t i = 0; i < value.dict->count; i++) {
    iso_jinja_value key = value.dict->entries[i].key;
    if (key.kind != ISO_JINJA_STRING)
      return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "keywords must be strings");
    ISO_TRY(iso_jinja_append_keyword(session, arguments, key, value.dict->entries[i].value));
  }
  return ISO_OK;
}

iso_status iso_jinja_evaluate_arguments(iso_jinja_session *session, const iso_jinja_node *items,
                                        iso_jinja_arguments *out_arguments) {
  *out_arguments = (iso_jinja_arguments){0};
  for (const iso_jinja_node *item = items; item; item = item->next) {
    iso_jinja_value value;
    ISO_TRY(iso_jinja_evaluate(session, item->first, &value));
    if (item->operation == ISO_JINJA_POSITIONAL) {
      ISO_TRY(append_positional(session, out_arguments, value));
    } else if (item->operation == ISO_JINJA_KEYWORD) {
      ISO_TRY(iso_jinja_append_keyword(session, out_arguments, item->value, value));
    } else if (item->operation == ISO_JINJA_MULTIPLY) {
      iso_jinja_list *list;
      ISO_TRY(iso_jinja_iterate(session, value, &list));
      for (uint32_t i = 0; i < list->count; i++)
        ISO_TRY(append_positional(session, out_arguments, list->items[i]));
    } else {
      ISO_TRY(spread_keywords(session, out_arguments, value));
    }
  }
  return ISO_OK;
}

static iso_status evaluate_call(iso_jinja_session *session, const iso_jinja_node *node,
                                iso_jinja_value *out) {
  iso_jinja_value callee;
  iso_jinja_arguments arguments;
  ISO_TRY(iso_jinja_evaluate(session, node->first, &callee));
  ISO_TRY(iso_jinja_evaluate_arguments(session, node->items, &arguments));
  session->line = node->line;
  return iso_jinja_call_value(session, callee, &arguments, out);
}

/* A filter or a test, by the builtin that its name was resolved to. */
static iso_status apply(iso_jinja_session *session, const iso_jinja_node *node,
                        iso_jinja_value subject, const char *what, iso_jinja_value *out) {
  iso_jinja_arguments arguments;
  ISO_TRY(iso_jinja_evaluate_arguments(session, node->items, &arguments));
  session->line = node->line;
  if (!node->builtin)
    return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED, "no %s named '%.*s'", what,
                          (int)(node->value.length > 100 ? 100 : node->value.length),
                          node->value.string);
  return iso_jinja_call_builtin(session, node->builtin, subject, &arguments, out);
}

static iso_status evaluate_filter(iso_jinja_session *session, const iso_jinja_node *node,
                                  iso_jinja_value *out) {
  iso_jinja_value subject = session->subject;
  if (node->first)
    ISO_TRY(iso_jinja_evaluate(session, node->first, &subject));
  return apply(session, node, subject, "filter", out);
}

static iso_status evaluate_test(iso_jinja_session *session, const iso_jinja_node *node,
                                iso_jinja_value *out) {
  iso_jinja_value subject;
  ISO_TRY(iso_jinja_evaluate(session, node->first, &subject));
  return apply(session, node, subject, "test", out);
}

static evaluator *const evaluators[ISO_JINJA_NODE_KIND_COUNT] = {
    [ISO_JINJA_NODE_CONSTANT] = evaluate_constant,
    [ISO_JINJA_NODE_NAME] = evaluate_name,
    [ISO_JINJA_NODE_LIST] = evaluate_items,
    [ISO_JINJA_NODE_TUPLE] = evaluate_items,
    [ISO_JINJA_NODE_DICT] = evaluate_dict,
    [ISO_JINJA_NODE_NOT] = evaluate_not,
    [ISO_JINJA_NODE_NEGATE] = evaluate_negate,
    [ISO_JINJA_NODE_PLUS] = evaluate_plus,
    [ISO_JINJA_NODE_AND] = evaluate_and,
    [ISO_JINJA_NODE_OR] = evaluate_or,
    [ISO_JINJA_NODE_BINARY] = evaluate_binary,
    [ISO_JINJA_NODE_CONCAT] = evaluate_concat,
    [ISO_JINJA_NODE_COMPARE] = evaluate_compare,
    [ISO_JINJA_NODE_CONDITION] = evaluate_condition,
    [ISO_JINJA_NODE_ATTRIBUTE] = evaluate_attribute,
    [ISO_JINJA_NODE_INDEX] = evaluate_index,
    [ISO_JINJA_NODE_SLICE] = evaluate_slice,
    [ISO_JINJA_NODE_CALL] = evaluate_call,
    [ISO_JINJA_NODE_FILTER] = evaluate_filter,
    [ISO_JINJA_NODE_TEST] = evaluate_test,
};

iso_status iso_jinja_evaluate(iso_jinja_session *session, const iso_jinja_node *node,
                              iso_jinja_value *out_value) {
  evaluator *evaluate = evaluators[node->kind];
  session->line = node->line;
  if (!evaluate)
    return iso_jinja_fail(session, ISO_ERROR_INTERNAL, "node %u is not an expression", node->kind);
  ISO_TRY(iso_jinja_enter(session));
  ISO_TRY(evaluate(session, node, out_value));
  iso_jinja_leave(session);
  return ISO_OK;
}
