#include "models/chat/jinja/call.h"
#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/syntax.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

iso_jinja_value iso_jinja_macro_name(const iso_jinja_macro *macro) { return macro->node->value; }

const iso_jinja_builtin *iso_jinja_find_builtin(const iso_jinja_builtin *table, size_t count,
                                                iso_jinja_value name) {
  for (size_t i = 0; i < count; i++)
    if (iso_jinja_is_text(name, table[i].name))
      return &table[i];
  return NULL;
}

iso_status iso_jinja_fail_call(iso_jinja_call *call, const char *format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return iso_jinja_fail(call->session, ISO_ERROR_INVALID_ARGUMENT, "%s: %s", call->builtin->name,
                        text);
}

/* Finds where a keyword is bound; ISO_JINJA_MAX_PARAMETERS if the builtin has no such name. */
static uint32_t find_parameter(const char *parameters, iso_jinja_value name) {
  uint32_t position = 0;
  for (const char *p = parameters; *p; position++) {
    size_t length = strcspn(p, " ");
    if (*p != '/' && length == name.length && memcmp(p, name.string, length) == 0)
      return position;
    p += length + (p[length] == ' ');
  }
  return ISO_JINJA_MAX_PARAMETERS;
}

static uint32_t count_parameters(const char *parameters) {
  uint32_t count = *parameters != 0;
  for (const char *p = parameters; *p; p++)
    count += *p == ' ';
  return count;
}

static iso_status bind(iso_jinja_call *call) {
  const iso_jinja_arguments *arguments = call->arguments;
  const char *parameters = call->builtin->parameters;
  uint32_t most = count_parameters(parameters);
  if (arguments->positional_count > most)
    return iso_jinja_fail_call(call, "takes at most %u argument(s), %u given", most,
                               arguments->positional_count);
  for (uint32_t i = 0; i < arguments->positional_count; i++)
    call->bound[i] = arguments->positional[i];
  for (uint32_t i = 0; i < arguments->keyword_count; i++) {
    iso_jinja_value name = arguments->keywords[i].name;
    uint32_t position = find_parameter(parameters, name);
    if (position == ISO_JINJA_MAX_PARAMETERS)
      return iso_jinja_fail_call(call, "got an unexpected keyword argument '%.*s'",
                                 (int)(name.length > 100 ? 100 : name.length), name.string);
    if (iso_jinja_given(call, position))
      return iso_jinja_fail_call(call, "got two values for argument '%.*s'", (int)name.length,
                                 name.string);
    call->bound[position] = arguments->keywords[i].value;
  }
  for (uint32_t i = 0; i < call->builtin->required; i++)
    if (!iso_jinja_given(call, i))
      return iso_jinja_fail_call(call, "needs %u argument(s)", call->builtin->required);
  return ISO_OK;
}

iso_status iso_jinja_call_builtin(iso_jinja_session *session, const iso_jinja_builtin *builtin,
                                  iso_jinja_value subject, const iso_jinja_arguments *arguments,
                                  iso_jinja_value *out_value) {
  iso_jinja_call call = {
      .session = session, .builtin = builtin, .subject = subject, .arguments = arguments};
  if (builtin->parameters)
    ISO_TRY(bind(&call));
  return builtin->function(&call, out_value);
}

static iso_status fail_unknown(iso_jinja_session *session, const char *what, iso_jinja_value name) {
  bool text = name.kind == ISO_JINJA_STRING;
  return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED, "no %s named '%.*s'", what,
                        (int)(!text               ? 0
                              : name.length > 100 ? 100
                                                  : name.length),
                        text ? name.string : "");
}

iso_status iso_jinja_call_filter(iso_jinja_session *session, iso_jinja_value name,
                                 iso_jinja_value subject, const iso_jinja_arguments *arguments,
                                 iso_jinja_value *out_value) {
  const iso_jinja_builtin *filter =
      name.kind == ISO_JINJA_STRING ? iso_jinja_find_filter(name) : NULL;
  if (!filter)
    return fail_unknown(session, "filter", name);
  return iso_jinja_call_builtin(session, filter, subject, arguments, out_value);
}

iso_status iso_jinja_call_test(iso_jinja_session *session, iso_jinja_value name,
                               iso_jinja_value subject, const iso_jinja_arguments *arguments,
                               bool *out_passed) {
  const iso_jinja_builtin *test = name.kind == ISO_JINJA_STRING ? iso_jinja_find_test(name) : NULL;
  if (!test)
    return fail_unknown(session, "test", name);
  iso_jinja_value passed;
  ISO_TRY(iso_jinja_call_builtin(session, test, subject, arguments, &passed));
  *out_passed = passed.boolean;
  return ISO_OK;
}

static iso_status call_joiner(iso_jinja_joiner *joiner, iso_jinja_value *out_value) {
  *out_value = joiner->used ? joiner->separator : iso_jinja_literal("");
  joiner->used = true;
  return ISO_OK;
}

iso_status iso_jinja_call_value(iso_jinja_session *session, iso_jinja_value callee,
                                const iso_jinja_arguments *arguments, iso_jinja_value *out_value) {
  static const iso_jinja_value nothing = {.kind = ISO_JINJA_ABSENT};
  switch (callee.kind) {
  case ISO_JINJA_FUNCTION:
    return iso_jinja_call_builtin(session, callee.function, nothing, arguments, out_value);
  case ISO_JINJA_METHOD:
    return iso_jinja_call_builtin(session, callee.method->builtin, callee.method->object, arguments,
                                  out_value);
  case ISO_JINJA_MACRO:
    return iso_jinja_call_macro(session, callee.macro, arguments, out_value);
  case ISO_JINJA_JOINER:
    return call_joiner(callee.joiner, out_value);
  case ISO_JINJA_UNDEFINED:
    return iso_jinja_fail_undefined(session, callee);
  default:
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "'%s' object is not callable",
                          iso_jinja_type_name(callee));
  }
}

/* Takes the keyword argument `name`; absent if there is none. */
static iso_status take_keyword(iso_jinja_session *session, const iso_jinja_arguments *arguments,
                               iso_jinja_value name, bool *taken, iso_jinja_value *out_value) {
  *out_value = (iso_jinja_value){.kind = ISO_JINJA_ABSENT};
  ISO_TRY(iso_jinja_spend(session, (1 + name.length / 64) * arguments->keyword_count / 8));
  for (uint32_t i = 0; i < arguments->keyword_count; i++) {
    if (!iso_jinja_same_text(arguments->keywords[i].name, name))
      continue;
    taken[i] = true;
    *out_value = arguments->keywords[i].value;
    break;
  }
  return ISO_OK;
}

/* Gives the macro's parameters their values in the current scope. */
static iso_status bind_macro(iso_jinja_session *session, const iso_jinja_node *node,
                             const iso_jinja_arguments *arguments) {
  bool *taken, *is_missing, names_caller = false; /* per keyword, per parameter */
  uint32_t position = 0;
  for (const iso_jinja_node *p = node->items; p; p = p->next)
    position++;
  ISO_JINJA_NEW(session, taken, arguments->keyword_count + 1);
  ISO_JINJA_NEW(session, is_missing, position + 1);
  position = 0;
  for (const iso_jinja_node *p = node->items; p; p = p->next, position++) {
    iso_jinja_value value;
    if (position < arguments->positional_count)
      value = arguments->positional[position];
    else
      ISO_TRY(take_keyword(session, arguments, p->value, taken, &value));
    is_missing[position] = value.kind == ISO_JINJA_ABSENT;
    names_caller |= iso_jinja_is_text(p->value, "caller");
    if (is_missing[position])
      value = iso_jinja_undefined(ISO_JINJA_ABSENT, p->value);
    ISO_TRY(iso_jinja_assign_name(session, p->value, value));
  }
  position = 0;
  for (const iso_jinja_node *p = node->items; p; p = p->next, position++) {
    if (!is_missing[position] || !p->first)
      continue;
    iso_jinja_value value; /* defaults see every argument, and the defaults before them */
    ISO_TRY(iso_jinja_evaluate(session, p->first, &value));
    ISO_TRY(iso_jinja_assign_name(session, p->value, value));
  }
  if ((node->flags & ISO_JINJA_USES_CALLER) && !names_caller) {
    iso_jinja_value name = iso_jinja_literal("caller");
    iso_jinja_value caller;
    ISO_TRY(take_keyword(session, arguments, name, taken, &caller));
    if (caller.kind == ISO_JINJA_ABSENT)
      caller = iso_jinja_undefined_because("no caller defined: use a call block");
    ISO_TRY(iso_jinja_assign_name(session, name, caller));
  }
  iso_jinja_value rest;
  if (node->flags & ISO_JINJA_USES_KWARGS) {
    ISO_TRY(iso_jinja_dict_create(session, ISO_JINJA_DICT, &rest));
    for (uint32_t i = 0; i < arguments->keyword_count; i++)
      if (!taken[i])
        ISO_TRY(iso_jinja_dict_set(session, rest.dict, arguments->keywords[i].name,
                                   arguments->keywords[i].value));
    ISO_TRY(iso_jinja_assign_name(session, iso_jinja_literal("kwargs"), rest));
  }
  for (uint32_t i = 0; i < arguments->keyword_count && !(node->flags & ISO_JINJA_USES_KWARGS); i++)
    if (!taken[i])
      return iso_jinja_fail(
          session, ISO_ERROR_INVALID_ARGUMENT, "macro '%.*s' takes no keyword argument '%.*s'",
          (int)node->value.length, node->value.string, (int)arguments->keywords[i].name.length,
          arguments->keywords[i].name.string);
  if (node->flags & ISO_JINJA_USES_VARARGS) {
    ISO_TRY(iso_jinja_list_create(session, ISO_JINJA_TUPLE, 0, &rest));
    for (uint32_t i = position; i < arguments->positional_count; i++)
      ISO_TRY(iso_jinja_list_append(session, rest.list, arguments->positional[i]));
    return iso_jinja_assign_name(session, iso_jinja_literal("varargs"), rest);
  }
  if (arguments->positional_count > position)
    return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT,
                          "macro '%.*s' takes not more than %u argument(s)",
                          (int)node->value.length, node->value.string, position);
  return ISO_OK;
}

iso_status iso_jinja_call_macro(iso_jinja_session *session, const iso_jinja_macro *macro,
                                const iso_jinja_arguments *arguments, iso_jinja_value *out_value) {
  ISO_TRY(iso_jinja_enter(session));
  iso_jinja_scope *outer = session->scope;
  iso_jinja_buffer *output = session->output, text = {0};
  session->scope = macro->scope;
  ISO_TRY(iso_jinja_open_scope(session));
  session->output = &text;
  ISO_TRY(bind_macro(session, macro->node, arguments));
  ISO_TRY(iso_jinja_execute(session, macro->node->body));
  session->scope = outer;
  session->output = output;
  *out_value = iso_jinja_buffer_string(&text);
  iso_jinja_leave(session);
  return ISO_OK;
}

iso_status iso_jinja_integer_argument(iso_jinja_call *call, uint32_t position, int64_t fallback,
                                      int64_t *out_integer) {
  iso_jinja_value value = call->bound[position];
  *out_integer = fallback;
  if (value.kind == ISO_JINJA_ABSENT || iso_jinja_as_integer(value, out_integer))
    return ISO_OK;
  if (value.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(call->session, value);
  return iso_jinja_fail_call(call, "argument %u must be int, not %s", position + 1,
                             iso_jinja_type_name(value));
}

iso_status iso_jinja_string_argument(iso_jinja_call *call, uint32_t position, const char *fallback,
                                     iso_jinja_value *out_string) {
  iso_jinja_value value = call->bound[position];
  *out_string = value;
  if (value.kind == ISO_JINJA_STRING)
    return ISO_OK;
  *out_string = iso_jinja_literal(fallback ? fallback : "");
  if (value.kind == ISO_JINJA_ABSENT)
    return ISO_OK;
  if (value.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(call->session, value);
  return iso_jinja_fail_call(call, "argument %u must be str, not %s", position + 1,
                             iso_jinja_type_name(value));
}

bool iso_jinja_boolean_argument(const iso_jinja_call *call, uint32_t position, bool fallback) {
  return iso_jinja_given(call, position) ? iso_jinja_is_true(call->bound[position]) : fallback;
}
