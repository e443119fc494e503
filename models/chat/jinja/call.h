/* Calls: what filters, tests, methods and global functions look like, how arguments reach them,
 * and how macros are called. */
#ifndef ISOMER_MODELS_CHAT_JINJA_CALL_H
#define ISOMER_MODELS_CHAT_JINJA_CALL_H

#include "models/chat/jinja/value.h"

typedef struct iso_jinja_keyword {
  iso_jinja_value name, value;
} iso_jinja_keyword;

/* Evaluated arguments, positional then by keyword. */
typedef struct iso_jinja_arguments {
  iso_jinja_value *positional;
  iso_jinja_keyword *keywords;
  uint32_t positional_count, keyword_count;
  uint32_t positional_capacity, keyword_capacity;
} iso_jinja_arguments;

enum { ISO_JINJA_MAX_PARAMETERS = 6 };

typedef struct iso_jinja_call {
  iso_jinja_session *session;
  const struct iso_jinja_builtin *builtin;
  iso_jinja_value subject; /* a filter's or test's input, a method's object; else absent */
  const iso_jinja_arguments *arguments;
  iso_jinja_value bound[ISO_JINJA_MAX_PARAMETERS]; /* by parameter; absent where not given */
} iso_jinja_call;

typedef iso_status iso_jinja_function(iso_jinja_call *call, iso_jinja_value *out_value);

/* One filter, test, method or global function. `parameters` are the names, in order and
 * separated by one space, that arguments are bound to, the first `required` of which must be
 * given; "/" is one that no keyword can name; NULL when the function reads call->arguments itself.
 */
typedef struct iso_jinja_builtin {
  const char *name;
  iso_jinja_function *function;
  const char *parameters;
  uint32_t required;
} iso_jinja_builtin;

typedef struct iso_jinja_method {
  const iso_jinja_builtin *builtin;
  iso_jinja_value object;
} iso_jinja_method;

/* A macro with the scope it was defined in. */
typedef struct iso_jinja_macro {
  const struct iso_jinja_node *node;
  struct iso_jinja_scope *scope;
} iso_jinja_macro;

iso_jinja_value iso_jinja_macro_name(const iso_jinja_macro *macro);

/* Each finds a builtin by name in its table; NULL if there is none. */
const iso_jinja_builtin *iso_jinja_find_filter(iso_jinja_value name);
const iso_jinja_builtin *iso_jinja_find_test(iso_jinja_value name);
const iso_jinja_builtin *iso_jinja_find_function(iso_jinja_value name);
/* A method of an object of this kind. */
const iso_jinja_builtin *iso_jinja_find_method(iso_jinja_value object, iso_jinja_value name);
/* Looks a name up in one table of `count` builtins. */
const iso_jinja_builtin *iso_jinja_find_builtin(const iso_jinja_builtin *table, size_t count,
                                                iso_jinja_value name);

/* Binds the arguments and runs the builtin. */
iso_status iso_jinja_call_builtin(iso_jinja_session *session, const iso_jinja_builtin *builtin,
                                  iso_jinja_value subject, const iso_jinja_arguments *arguments,
                                  iso_jinja_value *out_value);
/* The same by name, for filters that apply another to each element; fails if there is none. */
iso_status iso_jinja_call_filter(iso_jinja_session *session, iso_jinja_value name,
                                 iso_jinja_value subject, const iso_jinja_arguments *arguments,
                                 iso_jinja_value *out_value);
iso_status iso_jinja_call_test(iso_jinja_session *session, iso_jinja_value name,
                               iso_jinja_value subject, const iso_jinja_arguments *arguments,
                               bool *out_passed);
/* Calls any callable value. */
iso_status iso_jinja_call_value(iso_jinja_session *session, iso_jinja_value callee,
                                const iso_jinja_arguments *arguments, iso_jinja_value *out_value);
iso_status iso_jinja_call_macro(iso_jinja_session *session, const iso_jinja_macro *macro,
                                const iso_jinja_arguments *arguments, iso_jinja_value *out_value);

/* Reading bound arguments. `position` counts from zero; each gives the fallback where the
 * argument was not given, and fails where it has another type. */
static inline bool iso_jinja_given(const iso_jinja_call *call, uint32_t position) {
  return call->bound[position].kind != ISO_JINJA_ABSENT;
}
/* Makes an argument that is None one that was not given. */
static inline void iso_jinja_allow_none(iso_jinja_call *call, uint32_t position) {
  if (call->bound[position].kind == ISO_JINJA_NONE)
    call->bound[position].kind = ISO_JINJA_ABSENT;
}
iso_status iso_jinja_integer_argument(iso_jinja_call *call, uint32_t position, int64_t fallback,
                                      int64_t *out_integer);
iso_status iso_jinja_string_argument(iso_jinja_call *call, uint32_t position, const char *fallback,
                                     iso_jinja_value *out_string);
bool iso_jinja_boolean_argument(const iso_jinja_call *call, uint32_t position, bool fallback);
/* Fails, naming the builtin. */
iso_status iso_jinja_fail_call(iso_jinja_call *call, const char *format, ...) ISO_PRINTF(2, 3);

#endif
