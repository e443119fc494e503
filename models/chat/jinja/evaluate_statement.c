#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"

typedef iso_status executor(iso_jinja_session *session, const iso_jinja_node *node);

static iso_status execute_text(iso_jinja_session *session, const iso_jinja_node *node) {
  return iso_jinja_print(session, session->output, node->value);
}

static iso_status execute_output(iso_jinja_session *session, const iso_jinja_node *node) {
  iso_jinja_value value;
  ISO_TRY(iso_jinja_evaluate(session, node->first, &value));
  return iso_jinja_print(session, session->output, value);
}

static iso_status execute_if(iso_jinja_session *session, const iso_jinja_node *node) {
  for (;;) {
    iso_jinja_value test;
    ISO_TRY(iso_jinja_evaluate(session, node->first, &test));
    if (iso_jinja_is_true(test))
      return iso_jinja_execute(session, node->body);
    if (!node->otherwise || node->otherwise->kind != ISO_JINJA_NODE_IF || node->otherwise->next)
      return iso_jinja_execute(session, node->otherwise);
    node = node->otherwise; /* elif */
  }
}

/* Statements in a scope of their own. */
static iso_status execute_scoped(iso_jinja_session *session, const iso_jinja_node *first) {
  iso_jinja_scope *outer = session->scope;
  ISO_TRY(iso_jinja_open_scope(session));
  ISO_TRY(iso_jinja_execute(session, first));
  session->scope = outer;
  return ISO_OK;
}

/* The text that statements in a scope of their own write. */
static iso_status capture(iso_jinja_session *session, const iso_jinja_node *first,
                          iso_jinja_value *out_text) {
  iso_jinja_buffer text = {0}, *output = session->output;
  session->output = &text;
  ISO_TRY(execute_scoped(session, first));
  session->output = output;
  *out_text = iso_jinja_buffer_string(&text);
  return ISO_OK;
}

static iso_status run_iterations(iso_jinja_session *session, const iso_jinja_node *node,
                                 iso_jinja_loop *loop, bool *out_completed) {
  static const iso_jinja_value loop_name = {
      .kind = ISO_JINJA_STRING, .length = 4, .string = "loop"};
  iso_jinja_value loop_value = {.kind = ISO_JINJA_LOOP, .loop = loop};
  for (;; loop->index++) {
    bool has;
    ISO_TRY(iso_jinja_loop_has(session, loop, loop->index, &has));
    if (!has)
      return ISO_OK;
    session->scope->count = 0; /* nothing set in one iteration is seen in the next */
    ISO_TRY(iso_jinja_spend(session, 1));
    ISO_TRY(iso_jinja_assign_name(session, loop_name, loop_value));
    ISO_TRY(iso_jinja_assign(session, node->first, loop->items->items[loop->index]));
    ISO_TRY(iso_jinja_execute(session, node->body));
    iso_jinja_flow flow = session->flow;
    session->flow = ISO_JINJA_FLOW_NEXT;
    *out_completed |= flow == ISO_JINJA_FLOW_NEXT;
    if (flow == ISO_JINJA_FLOW_BREAK)
      return ISO_OK;
  }
}

static iso_status execute_for(iso_jinja_session *session, const iso_jinja_node *node) {
  iso_jinja_value iterable, filtered;
  iso_jinja_loop *loop; /* not on the stack: the template may keep it in a namespace */
  ISO_JINJA_NEW(session, loop, 1);
  ISO_TRY(iso_jinja_evaluate(session, node->second, &iterable));
  ISO_TRY(iso_jinja_iterate(session, iterable, &loop->source));
  loop->items = loop->source;
  if (node->third) {
    ISO_TRY(iso_jinja_list_create(session, ISO_JINJA_LIST, 0, &filtered));
    loop->items = filtered.list;
  }
  loop->node = node;
  loop->outer = session->scope;
  ISO_TRY(iso_jinja_open_scope(session));
  /* As in jinja2, `else` runs unless an iteration reached the end of the body. */
  bool completed = false;
  ISO_TRY(run_iterations(session, node, loop, &completed));
  session->scope = loop->outer;
  return completed || !node->otherwise ? ISO_OK : execute_scoped(session, node->otherwise);
}

static iso_status execute_set(iso_jinja_session *session, const iso_jinja_node *node) {
  iso_jinja_value value;
  ISO_TRY(iso_jinja_evaluate(session, node->second, &value));
  return iso_jinja_assign(session, node->first, value);
}

/* Evaluates a block's filter chain on the text of the block. */
static iso_status filter_text(iso_jinja_session *session, const iso_jinja_node *chain,
                              iso_jinja_value *text) {
  if (!chain)
    return ISO_OK;
  iso_jinja_value outer = session->subject;
  session->subject = *text;
  ISO_TRY(iso_jinja_evaluate(session, chain, text));
  session->subject = outer;
  return ISO_OK;
}

static iso_status execute_set_block(iso_jinja_session *session, const iso_jinja_node *node) {
  iso_jinja_value text;
  ISO_TRY(capture(session, node->body, &text));
  if (session->flow != ISO_JINJA_FLOW_NEXT)
    return ISO_OK;
  ISO_TRY(filter_text(session, node->second, &text));
  return iso_jinja_assign(session, node->first, text);
}

static iso_status execute_filter_block(iso_jinja_session *session, const iso_jinja_node *node) {
  iso_jinja_value text;
  ISO_TRY(capture(session, node->body, &text));
  if (session->flow != ISO_JINJA_FLOW_NEXT)
    return ISO_OK;
  ISO_TRY(filter_text(session, node->first, &text));
  if (text.kind != ISO_JINJA_STRING)
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT,
                          "a filter block's filters must end in a string, not %s",
                          iso_jinja_type_name(text));
  return iso_jinja_print(session, session->output, text);
}

static iso_status make_macro(iso_jinja_session *session, const iso_jinja_node *node,
                             iso_jinja_value *out_macro) {
  iso_jinja_macro *macro;
  ISO_JINJA_NEW(session, macro, 1);
  *macro = (iso_jinja_macro){node, session->scope};
  *out_macro = (iso_jinja_value){.kind = ISO_JINJA_MACRO, .macro = macro};
  return ISO_OK;
}

static iso_status execute_macro(iso_jinja_session *session, const iso_jinja_node *node) {
  iso_jinja_value macro;
  ISO_TRY(make_macro(session, node, &macro));
  return iso_jinja_assign_name(session, node->value, macro);
}

static iso_status execute_call_block(iso_jinja_session *session, const iso_jinja_node *node) {
  iso_jinja_value callee, caller, result;
  iso_jinja_arguments arguments;
  ISO_TRY(iso_jinja_evaluate(session, node->first->first, &callee));
  ISO_TRY(iso_jinja_evaluate_arguments(session, node->first->items, &arguments));
  ISO_TRY(make_macro(session, node->second, &caller));
  ISO_TRY(iso_jinja_append_keyword(session, &arguments, iso_jinja_literal("caller"), caller));
  session->line = node->line;
  ISO_TRY(iso_jinja_call_value(session, callee, &arguments, &result));
  return iso_jinja_print(session, session->output, result);
}

static iso_status execute_with(iso_jinja_session *session, const iso_jinja_node *node) {
  iso_jinja_scope *outer = session->scope, *inner;
  ISO_TRY(iso_jinja_open_scope(session));
  inner = session->scope;
  for (const iso_jinja_node *pair = node->items; pair; pair = pair->next) {
    iso_jinja_value value;
    session->scope = outer; /* values do not see the names being set */
    ISO_TRY(iso_jinja_evaluate(session, pair->second, &value));
    session->scope = inner;
    ISO_TRY(iso_jinja_assign(session, pair->first, value));
  }
  ISO_TRY(iso_jinja_execute(session, node->body));
  session->scope = outer;
  return ISO_OK;
}

static iso_status execute_generation(iso_jinja_session *session, const iso_jinja_node *node) {
  return execute_scoped(session, node->body);
}

static iso_status execute_break(iso_jinja_session *session, const iso_jinja_node *node) {
  (void)node;
  session->flow = ISO_JINJA_FLOW_BREAK;
  return ISO_OK;
}

static iso_status execute_continue(iso_jinja_session *session, const iso_jinja_node *node) {
  (void)node;
  session->flow = ISO_JINJA_FLOW_CONTINUE;
  return ISO_OK;
}

static executor *const executors[ISO_JINJA_NODE_KIND_COUNT] = {
    [ISO_JINJA_NODE_TEXT] = execute_text,
    [ISO_JINJA_NODE_OUTPUT] = execute_output,
    [ISO_JINJA_NODE_IF] = execute_if,
    [ISO_JINJA_NODE_FOR] = execute_for,
    [ISO_JINJA_NODE_SET] = execute_set,
    [ISO_JINJA_NODE_SET_BLOCK] = execute_set_block,
    [ISO_JINJA_NODE_MACRO] = execute_macro,
    [ISO_JINJA_NODE_CALL_BLOCK] = execute_call_block,
    [ISO_JINJA_NODE_FILTER_BLOCK] = execute_filter_block,
    [ISO_JINJA_NODE_WITH] = execute_with,
    [ISO_JINJA_NODE_GENERATION] = execute_generation,
    [ISO_JINJA_NODE_BREAK] = execute_break,
    [ISO_JINJA_NODE_CONTINUE] = execute_continue,
};

iso_status iso_jinja_execute(iso_jinja_session *session, const iso_jinja_node *first) {
  ISO_TRY(iso_jinja_enter(session));
  for (const iso_jinja_node *node = first; node && session->flow == ISO_JINJA_FLOW_NEXT;
       node = node->next) {
    session->line = node->line;
    if (!executors[node->kind])
      return iso_jinja_fail(session, ISO_ERROR_INTERNAL, "node %u is no statement", node->kind);
    ISO_TRY(iso_jinja_spend(session, 1));
    ISO_TRY(executors[node->kind](session, node));
  }
  iso_jinja_leave(session);
  return ISO_OK;
}
