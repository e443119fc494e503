/* Tests: what may follow `is`. Each gives a boolean value. */
#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/text.h"

/* Tests that look at the kind only. */
#define KIND_TEST(name, condition)                                                                 \
  static iso_status test_##name(iso_jinja_call *call, iso_jinja_value *out) {                      \
    iso_jinja_value value = call->subject;                                                         \
    *out = iso_jinja_boolean(condition);                                                           \
    return ISO_OK;                                                                                 \
  }

KIND_TEST(defined, value.kind != ISO_JINJA_UNDEFINED)
KIND_TEST(undefined, value.kind == ISO_JINJA_UNDEFINED)
KIND_TEST(none, value.kind == ISO_JINJA_NONE)
KIND_TEST(boolean, value.kind == ISO_JINJA_BOOLEAN)
KIND_TEST(true, value.kind == ISO_JINJA_BOOLEAN && value.boolean)
KIND_TEST(false, value.kind == ISO_JINJA_BOOLEAN && !value.boolean)
KIND_TEST(integer, value.kind == ISO_JINJA_INTEGER)
KIND_TEST(float, value.kind == ISO_JINJA_FLOAT)
KIND_TEST(number, value.kind >= ISO_JINJA_BOOLEAN && value.kind <= ISO_JINJA_FLOAT)
KIND_TEST(string, value.kind == ISO_JINJA_STRING)
KIND_TEST(mapping, value.kind == ISO_JINJA_DICT)
KIND_TEST(sequence, value.kind == ISO_JINJA_UNDEFINED || value.kind == ISO_JINJA_STRING ||
                        value.kind == ISO_JINJA_DICT || iso_jinja_is_sequence(value))
KIND_TEST(iterable, value.kind == ISO_JINJA_UNDEFINED ||
                        (value.kind >= ISO_JINJA_STRING && value.kind <= ISO_JINJA_DICT))
KIND_TEST(callable, value.kind == ISO_JINJA_FUNCTION || value.kind == ISO_JINJA_METHOD ||
                        value.kind == ISO_JINJA_MACRO || value.kind == ISO_JINJA_JOINER ||
                        value.kind == ISO_JINJA_LOOP || value.kind == ISO_JINJA_UNDEFINED)
KIND_TEST(escaped, value.kind == ISO_JINJA_STRING && (value.flags & ISO_JINJA_MARKUP))

static iso_status compare(iso_jinja_call *call, iso_jinja_operation operation,
                          iso_jinja_value *out) {
  bool holds;
  ISO_TRY(iso_jinja_compare(call->session, operation, call->subject, call->bound[0], &holds));
  *out = iso_jinja_boolean(holds);
  return ISO_OK;
}

#define COMPARISON_TEST(name, operation)                                                           \
  static iso_status test_##name(iso_jinja_call *call, iso_jinja_value *out) {                      \
    return compare(call, operation, out);                                                          \
  }

COMPARISON_TEST(equal, ISO_JINJA_EQUAL)
COMPARISON_TEST(not_equal, ISO_JINJA_NOT_EQUAL)
COMPARISON_TEST(less, ISO_JINJA_LESS)
COMPARISON_TEST(less_equal, ISO_JINJA_LESS_EQUAL)
COMPARISON_TEST(greater, ISO_JINJA_GREATER)
COMPARISON_TEST(greater_equal, ISO_JINJA_GREATER_EQUAL)
COMPARISON_TEST(in, ISO_JINJA_IN)

/* Python's `is`: constants and small values are one object, containers their own. */
static iso_status test_sameas(iso_jinja_call *call, iso_jinja_value *out) {
  iso_jinja_value a = call->subject, b = call->bound[0];
  bool same = a.kind == b.kind;
  if (same && a.kind >= ISO_JINJA_LIST && a.kind <= ISO_JINJA_DICT)
    same = a.list == b.list;
  else if (same)
    ISO_TRY(iso_jinja_equal(call->session, a, b, &same));
  *out = iso_jinja_boolean(same);
  return ISO_OK;
}

static iso_status remainder_is(iso_jinja_call *call, iso_jinja_value divisor, int64_t expected,
                               iso_jinja_value *out) {
  iso_jinja_value remainder;
  ISO_TRY(iso_jinja_operate(call->session, ISO_JINJA_MODULO, call->subject, divisor, &remainder));
  bool equal;
  ISO_TRY(iso_jinja_equal(call->session, remainder, iso_jinja_integer(expected), &equal));
  *out = iso_jinja_boolean(equal);
  return ISO_OK;
}

static iso_status test_even(iso_jinja_call *call, iso_jinja_value *out) {
  return remainder_is(call, iso_jinja_integer(2), 0, out);
}
static iso_status test_odd(iso_jinja_call *call, iso_jinja_value *out) {
  return remainder_is(call, iso_jinja_integer(2), 1, out);
}
static iso_status test_divisibleby(iso_jinja_call *call, iso_jinja_value *out) {
  return remainder_is(call, call->bound[0], 0, out);
}

static iso_status has_case(iso_jinja_call *call, bool upper, iso_jinja_value *out) {
  iso_jinja_value text;
  ISO_TRY(iso_jinja_to_string(call->session, call->subject, &text));
  return iso_jinja_has_case(call->session, text, upper, out);
}
static iso_status test_upper(iso_jinja_call *call, iso_jinja_value *out) {
  return has_case(call, true, out);
}
static iso_status test_lower(iso_jinja_call *call, iso_jinja_value *out) {
  return has_case(call, false, out);
}

/* Whether the subject names a builtin. */
static iso_status names_a(iso_jinja_call *call,
                          const iso_jinja_builtin *(*find)(iso_jinja_value name),
                          iso_jinja_value *out) {
  ISO_TRY(iso_jinja_check_hashable(call->session, call->subject));
  *out = iso_jinja_boolean(call->subject.kind == ISO_JINJA_STRING && find(call->subject));
  return ISO_OK;
}
static iso_status test_filter(iso_jinja_call *call, iso_jinja_value *out) {
  return names_a(call, iso_jinja_find_filter, out);
}
static iso_status test_test(iso_jinja_call *call, iso_jinja_value *out) {
  return names_a(call, iso_jinja_find_test, out);
}

static const iso_jinja_builtin tests[] = {
    {"boolean", test_boolean, "", 0},
    {"callable", test_callable, "", 0},
    {"defined", test_defined, "", 0},
    {"divisibleby", test_divisibleby, "num", 1},
    {"eq", test_equal, "/", 1},
    {"equalto", test_equal, "/", 1},
    {"==", test_equal, "/", 1},
    {"escaped", test_escaped, "", 0},
    {"even", test_even, "", 0},
    {"false", test_false, "", 0},
    {"filter", test_filter, "", 0},
    {"float", test_float, "", 0},
    {"ge", test_greater_equal, "/", 1},
    {">=", test_greater_equal, "/", 1},
    {"greaterthan", test_greater, "/", 1},
    {"gt", test_greater, "/", 1},
    {">", test_greater, "/", 1},
    {"in", test_in, "seq", 1},
    {"integer", test_integer, "", 0},
    {"iterable", test_iterable, "", 0},
    {"le", test_less_equal, "/", 1},
    {"<=", test_less_equal, "/", 1},
    {"lessthan", test_less, "/", 1},
    {"lower", test_lower, "", 0},
    {"lt", test_less, "/", 1},
    {"<", test_less, "/", 1},
    {"mapping", test_mapping, "", 0},
    {"ne", test_not_equal, "/", 1},
    {"!=", test_not_equal, "/", 1},
    {"none", test_none, "", 0},
    {"number", test_number, "", 0},
    {"odd", test_odd, "", 0},
    {"sameas", test_sameas, "other", 1},
    {"sequence", test_sequence, "", 0},
    {"string", test_string, "", 0},
    {"test", test_test, "", 0},
    {"true", test_true, "", 0},
    {"undefined", test_undefined, "", 0},
    {"upper", test_upper, "", 0},
};

const iso_jinja_builtin *iso_jinja_find_test(iso_jinja_value name) {
  return iso_jinja_find_builtin(tests, sizeof tests / sizeof *tests, name);
}
