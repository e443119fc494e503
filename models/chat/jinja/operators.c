#include "models/chat/jinja/evaluate.h"
#include "models/chat/jinja/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every integer up to here is a double of the same value. */
static const int64_t EXACT_IN_DOUBLE = INT64_C(1) << 53;

static const char *const spellings[] = {
    [ISO_JINJA_ADD] = "+",     [ISO_JINJA_SUBTRACT] = "-",       [ISO_JINJA_MULTIPLY] = "*",
    [ISO_JINJA_DIVIDE] = "/",  [ISO_JINJA_FLOOR_DIVIDE] = "//",  [ISO_JINJA_MODULO] = "%",
    [ISO_JINJA_POWER] = "**",  [ISO_JINJA_LESS] = "<",           [ISO_JINJA_LESS_EQUAL] = "<=",
    [ISO_JINJA_GREATER] = ">", [ISO_JINJA_GREATER_EQUAL] = ">=",
};

static iso_status fail_overflow(iso_jinja_session *session) {
  return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED, "an integer is beyond 64 bits");
}

static iso_status fail_zero(iso_jinja_session *session) {
  return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "division by zero");
}

/* Python rounds quotients down, and a remainder has the divisor's sign. */
static iso_status divide_integers(iso_jinja_session *session, int64_t a, int64_t b,
                                  int64_t *out_quotient, int64_t *out_remainder) {
  if (b == 0)
    return fail_zero(session);
  if (a == INT64_MIN && b == -1)
    return fail_overflow(session);
  *out_quotient = a / b;
  *out_remainder = a % b;
  if (*out_remainder && (*out_remainder < 0) != (b < 0)) {
    *out_quotient -= 1;
    *out_remainder += b;
  }
  return ISO_OK;
}

static iso_status power_integers(iso_jinja_session *session, int64_t base, int64_t exponent,
                                 iso_jinja_value *out_value) {
  if (exponent < 0) {
    if (base == 0)
      return fail_zero(session);
    *out_value = iso_jinja_float(pow((double)base, (double)exponent));
    return ISO_OK;
  }
  int64_t result = 1;
  for (;;) { /* by squaring */
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
      return fail_overflow(session);
    exponent >>= 1;
    if (exponent == 0)
      break;
    if (__builtin_mul_overflow(base, base, &base))
      return fail_overflow(session);
  }
  *out_value = iso_jinja_integer(result);
  return ISO_OK;
}

static iso_status operate_integers(iso_jinja_session *session, iso_jinja_operation operation,
                                   int64_t a, int64_t b, iso_jinja_value *out_value) {
  int64_t result = 0, other = 0;
  bool overflow = false;
  switch (operation) {
  case ISO_JINJA_ADD:
    overflow = __builtin_add_overflow(a, b, &result);
    break;
  case ISO_JINJA_SUBTRACT:
    overflow = __builtin_sub_overflow(a, b, &result);
    break;
  case ISO_JINJA_MULTIPLY:
    overflow = __builtin_mul_overflow(a, b, &result);
    break;
  case ISO_JINJA_FLOOR_DIVIDE:
    ISO_TRY(divide_integers(session, a, b, &result, &other));
    break;
  case ISO_JINJA_MODULO:
    ISO_TRY(divide_integers(session, a, b, &other, &result));
    break;
  case ISO_JINJA_POWER:
    return power_integers(session, a, b, out_value);
  default:
    if (b == 0)
      return fail_zero(session);
    if (llabs(a / 2) > EXACT_IN_DOUBLE / 2 || llabs(b / 2) > EXACT_IN_DOUBLE / 2)
      return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED,
                            "dividing integers beyond 53 bits is not supported");
    *out_value = iso_jinja_float((double)a / (double)b);
    return ISO_OK;
  }
  if (overflow)
    return fail_overflow(session);
  *out_value = iso_jinja_integer(result);
  return ISO_OK;
}

static double float_modulo(double a, double b) {
  double remainder = fmod(a, b);
  if (remainder == 0)
    return copysign(0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

/* From the remainder, which is exact, so that a rounded quotient is never rounded up. */
static double float_floor_divide(double a, double b) {
  double remainder = fmod(a, b), quotient = (a - remainder) / b;
  if (remainder != 0 && (remainder < 0) != (b < 0))
    quotient -= 1;
  double whole = floor(quotient);
  return quotient == 0 ? copysign(0, a / b) : quotient - whole > 0.5 ? whole + 1 : whole;
}

static iso_status operate_floats(iso_jinja_session *session, iso_jinja_operation operation,
                                 double a, double b, iso_jinja_value *out_value) {
  double result;
  bool divides = operation == ISO_JINJA_DIVIDE || operation == ISO_JINJA_FLOOR_DIVIDE ||
                 operation == ISO_JINJA_MODULO;
  if ((divides && b == 0) || (operation == ISO_JINJA_POWER && a == 0 && b < 0))
    return fail_zero(session);
  switch (operation) {
  case ISO_JINJA_ADD:
    result = a + b;
    break;
  case ISO_JINJA_SUBTRACT:
    result = a - b;
    break;
  case ISO_JINJA_MULTIPLY:
    result = a * b;
    break;
  case ISO_JINJA_FLOOR_DIVIDE:
    result = float_floor_divide(a, b);
    break;
  case ISO_JINJA_MODULO:
    result = float_modulo(a, b);
    break;
  case ISO_JINJA_POWER:
    result = pow(a, b);
    if (isnan(result) && !isnan(a) && !isnan(b))
      return iso_jinja_fail(session, ISO_ERROR_UNSUPPORTED, "complex numbers are not supported");
    if (isinf(result) && isfinite(a) && isfinite(b))
      return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "a power is too large");
    break;
  default:
    result = a / b;
  }
  *out_value = iso_jinja_float(result);
  return ISO_OK;
}

static iso_status repeat(iso_jinja_session *session, iso_jinja_value value, int64_t times,
                         iso_jinja_value *out_value) {
  if (value.kind == ISO_JINJA_STRING) {
    iso_jinja_buffer buffer = {0};
    for (int64_t i = 0; i < times && value.length; i++) {
      ISO_TRY(iso_jinja_spend(session, 1));
      ISO_TRY(iso_jinja_print(session, &buffer, value));
    }
    *out_value = iso_jinja_buffer_string(&buffer);
    return ISO_OK;
  }
  ISO_TRY(iso_jinja_list_create(session, (iso_jinja_kind)value.kind, 0, out_value));
  for (int64_t i = 0; i < times && value.list->count; i++)
    for (uint32_t j = 0; j < value.list->count; j++)
      ISO_TRY(iso_jinja_list_append(session, out_value->list, value.list->items[j]));
  return ISO_OK;
}

static iso_status add_strings(iso_jinja_session *session, iso_jinja_value a, iso_jinja_value b,
                              iso_jinja_value *out_value) {
  uint8_t markup = (a.flags | b.flags) & ISO_JINJA_MARKUP;
  if (markup) {
    ISO_TRY(iso_jinja_escape(session, a, &a));
    ISO_TRY(iso_jinja_escape(session, b, &b));
  }
  iso_jinja_buffer buffer = {0};
  ISO_TRY(iso_jinja_print(session, &buffer, a));
  ISO_TRY(iso_jinja_print(session, &buffer, b));
  *out_value = iso_jinja_buffer_string(&buffer);
  out_value->flags = markup;
  return ISO_OK;
}

static iso_status add_lists(iso_jinja_session *session, iso_jinja_value a, iso_jinja_value b,
                            iso_jinja_value *out_value) {
  ISO_TRY(iso_jinja_list_create(session, (iso_jinja_kind)a.kind, 0, out_value));
  for (uint32_t i = 0; i < a.list->count; i++)
    ISO_TRY(iso_jinja_list_append(session, out_value->list, a.list->items[i]));
  for (uint32_t i = 0; i < b.list->count; i++)
    ISO_TRY(iso_jinja_list_append(session, out_value->list, b.list->items[i]));
  return ISO_OK;
}

iso_status iso_jinja_operate(iso_jinja_session *session, iso_jinja_operation operation,
                             iso_jinja_value a, iso_jinja_value b, iso_jinja_value *out_value) {
  int64_t integers[2];
  double numbers[2];
  bool integer_a = iso_jinja_as_integer(a, &integers[0]);
  bool integer_b = iso_jinja_as_integer(b, &integers[1]);
  if (integer_a && integer_b)
    return operate_integers(session, operation, integers[0], integers[1], out_value);
  if (iso_jinja_as_number(a, &numbers[0]) && iso_jinja_as_number(b, &numbers[1]))
    return operate_floats(session, operation, numbers[0], numbers[1], out_value);
  bool text_a = a.kind == ISO_JINJA_STRING, text_b = b.kind == ISO_JINJA_STRING;
  if (operation == ISO_JINJA_MODULO && text_a)
    return iso_jinja_format_percent(session, a, b, out_value);
  if (a.kind == ISO_JINJA_UNDEFINED || b.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(session, a.kind == ISO_JINJA_UNDEFINED ? a : b);
  if (operation == ISO_JINJA_ADD && text_a && text_b)
    return add_strings(session, a, b, out_value);
  if (operation == ISO_JINJA_ADD && iso_jinja_is_list(a) && a.kind == b.kind)
    return add_lists(session, a, b, out_value);
  if (operation == ISO_JINJA_MULTIPLY && integer_b && (text_a || iso_jinja_is_list(a)))
    return repeat(session, a, integers[1], out_value);
  if (operation == ISO_JINJA_MULTIPLY && integer_a && (text_b || iso_jinja_is_list(b)))
    return repeat(session, b, integers[0], out_value);
  return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT,
                        "unsupported operand types for %s: '%s' and '%s'", spellings[operation],
                        iso_jinja_type_name(a), iso_jinja_type_name(b));
}

iso_status iso_jinja_compare(iso_jinja_session *session, iso_jinja_operation operation,
                             iso_jinja_value a, iso_jinja_value b, bool *out_holds) {
  int order;
  switch (operation) {
  case ISO_JINJA_EQUAL:
  case ISO_JINJA_NOT_EQUAL:
    ISO_TRY(iso_jinja_equal(session, a, b, out_holds));
    *out_holds ^= operation == ISO_JINJA_NOT_EQUAL;
    return ISO_OK;
  case ISO_JINJA_IN:
  case ISO_JINJA_NOT_IN:
    ISO_TRY(iso_jinja_contains(session, b, a, out_holds));
    *out_holds ^= operation == ISO_JINJA_NOT_IN;
    return ISO_OK;
  default:
    ISO_TRY(iso_jinja_order(session, a, b, spellings[operation], &order));
    *out_holds = iso_jinja_is_nan(a) || iso_jinja_is_nan(b) ? false
                 : operation == ISO_JINJA_LESS              ? order < 0
                 : operation == ISO_JINJA_LESS_EQUAL        ? order <= 0
                 : operation == ISO_JINJA_GREATER           ? order > 0
                                                            : order >= 0;
    return ISO_OK;
  }
}

iso_status iso_jinja_negate(iso_jinja_session *session, iso_jinja_value value,
                            iso_jinja_value *out_value) {
  int64_t integer;
  if (value.kind == ISO_JINJA_FLOAT) {
    *out_value = iso_jinja_float(-value.number);
    return ISO_OK;
  }
  if (iso_jinja_as_integer(value, &integer))
    return operate_integers(session, ISO_JINJA_SUBTRACT, 0, integer, out_value);
  if (value.kind == ISO_JINJA_UNDEFINED)
    return iso_jinja_fail_undefined(session, value);
  return iso_jinja_fail(session, ISO_ERROR_INVALID_ARGUMENT, "bad operand type for unary -: '%s'",
                        iso_jinja_type_name(value));
}

iso_status iso_jinja_escape(iso_jinja_session *session, iso_jinja_value value,
                            iso_jinja_value *out_markup) {
  static const char special[] = "&<>'\"";
  static const char *const references[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  *out_markup = value;
  if (value.kind == ISO_JINJA_STRING && (value.flags & ISO_JINJA_MARKUP))
    return ISO_OK;
  iso_jinja_value text;
  iso_jinja_buffer buffer = {0};
  ISO_TRY(iso_jinja_to_string(session, value, &text));
  for (uint32_t i = 0; i < text.length; i++) {
    const char *found = text.string[i] ? strchr(special, text.string[i]) : NULL;
    if (found)
      ISO_TRY(iso_jinja_append_text(session, &buffer, references[found - special]));
    else
      ISO_TRY(iso_jinja_append(session, &buffer, text.string + i, 1));
  }
  ISO_TRY(iso_jinja_spend(session, text.length / 8));
  *out_markup = iso_jinja_buffer_string(&buffer);
  out_markup->flags = ISO_JINJA_MARKUP;
  return ISO_OK;
}
