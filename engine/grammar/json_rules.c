#include "engine/grammar/json_rules.h"

#include <string.h>

enum { INTEGER_DIGITS = 18, FRACTION_DIGITS = 16, EXPONENT_DIGITS = 2, DOUBLE_DIGITS = 15 };

uint32_t iso_json_word(iso_automaton *self, const char *word, uint32_t next) {
  return iso_automaton_literal(self, word, strlen(word), next);
}

uint32_t iso_json_mark(iso_automaton *self, char mark, uint32_t next) {
  uint32_t blank = iso_automaton_split(self, next, iso_automaton_range(self, ' ', ' ', next));
  return iso_automaton_range(self, (uint8_t)mark, (uint8_t)mark, blank);
}

/* ---- Values -------------------------------------------------------------------------------- */

static void add_strings(iso_automaton *self) {
  const automaton_edge quote = {'"', '"', AUTOMATON_END};
  uint32_t rest = iso_automaton_characters(self, iso_automaton_any_character(), &quote);
  iso_automaton_set_rule(self, JSON_STRING_REST, rest);
  rest = iso_automaton_call(self, JSON_STRING_REST, AUTOMATON_END);
  iso_automaton_set_rule(self, JSON_STRING, iso_automaton_range(self, '"', '"', rest));
}

/* No digits but zero begin with zero. */
static uint32_t whole(iso_automaton *self, bool with_zero, uint32_t next) {
  uint32_t rest = iso_automaton_repeat_range(self, '0', '9', 0, INTEGER_DIGITS - 1, next);
  const automaton_edge edges[2] = {{'1', '9', rest}, {'0', '0', next}};
  return iso_automaton_switch(self, edges, with_zero ? 2 : 1);
}

static uint32_t fraction(iso_automaton *self, int most_digits, uint32_t next) {
  uint32_t digits = iso_automaton_repeat_range(self, '0', '9', 1, most_digits, next);
  return iso_automaton_range(self, '.', '.', digits);
}

static uint32_t exponent(iso_automaton *self, uint32_t next) {
  uint32_t digits = iso_automaton_repeat_range(self, '0', '9', 1, EXPONENT_DIGITS, next);
  const automaton_edge signs[2] = {{'-', '-', digits}, {'+', '+', digits}};
  digits = iso_automaton_split(self, digits, iso_automaton_switch(self, signs, 2));
  const automaton_edge letters[2] = {{'e', 'e', digits}, {'E', 'E', digits}};
  return iso_automaton_switch(self, letters, 2);
}

static void add_numbers(iso_automaton *self) {
  uint32_t minus = iso_automaton_range(self, '-', '-', whole(self, false, AUTOMATON_END));
  iso_automaton_set_rule(self, JSON_INTEGER,
                         iso_automaton_split(self, minus, whole(self, true, AUTOMATON_END)));
  uint32_t end = iso_automaton_split(self, AUTOMATON_END, exponent(self, AUTOMATON_END));
  end = iso_automaton_split(self, end, fraction(self, FRACTION_DIGITS, end));
  uint32_t number = whole(self, true, end);
  minus = iso_automaton_range(self, '-', '-', number);
  iso_automaton_set_rule(self, JSON_NUMBER, iso_automaton_split(self, minus, number));
}

static void add_object(iso_automaton *self) {
  uint32_t more = iso_automaton_loop(self, AUTOMATON_DEAD);
  uint32_t value = iso_automaton_call(self, JSON_VALUE, more);
  uint32_t key = iso_automaton_call(self, JSON_STRING_REST, iso_json_mark(self, ':', value));
  key = iso_automaton_range(self, '"', '"', key);
  uint32_t close = iso_automaton_range(self, '}', '}', AUTOMATON_END);
  iso_automaton_close_loop(self, more,
                           iso_automaton_split(self, close, iso_json_mark(self, ',', key)));
  iso_automaton_set_rule(
      self, JSON_OBJECT,
      iso_automaton_range(self, '{', '{', iso_automaton_split(self, close, key)));
}

static void add_array(iso_automaton *self) {
  uint32_t more = iso_automaton_loop(self, AUTOMATON_DEAD);
  uint32_t value = iso_automaton_call(self, JSON_VALUE, more);
  uint32_t close = iso_automaton_range(self, ']', ']', AUTOMATON_END);
  iso_automaton_close_loop(self, more,
                           iso_automaton_split(self, close, iso_json_mark(self, ',', value)));
  iso_automaton_set_rule(
      self, JSON_ARRAY,
      iso_automaton_range(self, '[', '[', iso_automaton_split(self, close, value)));
}

static void add_value(iso_automaton *self) {
  static const uint32_t rules[] = {JSON_STRING, JSON_NUMBER, JSON_OBJECT, JSON_ARRAY};
  static const char *const words[] = {"true", "false", "null"};
  uint32_t value = AUTOMATON_DEAD;
  for (int i = 0; i < 3; i++)
    value = iso_automaton_split(self, iso_json_word(self, words[i], AUTOMATON_END), value);
  for (int i = 0; i < 4; i++)
    value = iso_automaton_split(self, iso_automaton_call(self, rules[i], AUTOMATON_END), value);
  iso_automaton_set_rule(self, JSON_VALUE, value);
}

void iso_json_rules_add(iso_automaton *self) {
  for (int i = 0; i < JSON_RULE_COUNT; i++)
    iso_automaton_rule(self);
  add_strings(self);
  add_numbers(self);
  add_object(self);
  add_array(self);
  add_value(self);
}

/* ---- Bounds -------------------------------------------------------------------------------- */

static int digits_of(int64_t value, char out_digits[20]) {
  int n = 0;
  for (int64_t rest = value; n == 0 || rest > 0; rest /= 10)
    n++;
  for (int i = n; i > 0; value /= 10)
    out_digits[--i] = (char)('0' + value % 10);
  return n;
}

/* Numbers of n digits from `least` to `most`: those that begin with a digit strictly between the
 * bounds' first ones may go on with any; others stay bound on one side or both. */
static uint32_t digits_between(iso_automaton *self, const char *least, const char *most, int n,
                               uint32_t next) {
  if (n == 0)
    return next;
  char low = least ? *least : '0', high = most ? *most : '9';
  const char *rest_low = least ? least + 1 : NULL, *rest_high = most ? most + 1 : NULL;
  if (!least && !most)
    return iso_automaton_repeat_range(self, '0', '9', n, n, next);
  if (least && most && low == high)
    return iso_automaton_range(self, (uint8_t)low, (uint8_t)high,
                               digits_between(self, rest_low, rest_high, n - 1, next));
  automaton_edge edges[3];
  size_t count = 0;
  if (least)
    edges[count++] = (automaton_edge){(uint8_t)low, (uint8_t)low,
                                      digits_between(self, rest_low, NULL, n - 1, next)};
  if (most)
    edges[count++] = (automaton_edge){(uint8_t)high, (uint8_t)high,
                                      digits_between(self, NULL, rest_high, n - 1, next)};
  low = (char)(low + (least != NULL));
  high = (char)(high - (most != NULL));
  if (low <= high)
    edges[count++] = (automaton_edge){(uint8_t)low, (uint8_t)high,
                                      digits_between(self, NULL, NULL, n - 1, next)};
  return iso_automaton_switch(self, edges, count);
}

/* Digits of the numbers from `least` to `most`, none of them negative. */
static uint32_t magnitudes(iso_automaton *self, int64_t least, int64_t most, uint32_t next) {
  uint32_t all = AUTOMATON_DEAD;
  int64_t first = 0, last = 9; /* of those with n digits */
  for (int n = 1; first <= most; n++, first = last + 1, last = last * 10 + 9) {
    int64_t low = least > first ? least : first, high = most < last ? most : last;
    char low_digits[20], high_digits[20];
    if (low > high)
      continue;
    digits_of(low, low_digits);
    digits_of(high, high_digits);
    uint32_t some = digits_between(self, low_digits, high_digits, n, next);
    all = all == AUTOMATON_DEAD ? some : iso_automaton_split(self, some, all);
  }
  return all;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

uint32_t iso_json_integers(iso_automaton *self, const json_bounds *bounds, uint32_t next) {
  uint32_t positive = magnitudes(self, larger(bounds->least, 0), bounds->most, next);
  uint32_t negative = magnitudes(self, larger(-smaller(bounds->most, -1), 1), -bounds->least, next);
  return iso_automaton_split(self, positive, iso_automaton_range(self, '-', '-', negative));
}

/* Decimal numbers from `least` to `most`, neither negative; `above`, `below`: without the bound.
 * They have no more digits than a double keeps apart, so that none is rounded onto a bound. */
static uint32_t decimals(iso_automaton *self, int64_t least, int64_t most, bool above, bool below,
                         uint32_t next) {
  char digits[20];
  int n_digits = DOUBLE_DIGITS - digits_of(most, digits);
  uint32_t end =
      n_digits > 0 ? iso_automaton_split(self, next, fraction(self, n_digits, next)) : next;
  uint32_t all = magnitudes(self, least + above, most - 1, end);
  if (above && least < most && n_digits > 0) { /* the bound and a fraction that is not zero */
    uint32_t rest = iso_automaton_repeat_range(self, '0', '9', 0, n_digits / 2, next);
    rest = iso_automaton_range(self, '1', '9', rest);
    rest = iso_automaton_repeat_range(self, '0', '0', 0, (n_digits - 1) / 2, rest);
    rest = iso_automaton_range(self, '.', '.', rest);
    int n = digits_of(least, digits);
    all = iso_automaton_split(self, all, iso_automaton_literal(self, digits, (size_t)n, rest));
  }
  if (!below && most >= least + above) { /* the bound itself */
    uint32_t zeros = iso_automaton_repeat_range(self, '0', '0', 1, FRACTION_DIGITS, next);
    zeros = iso_automaton_split(self, next, iso_automaton_range(self, '.', '.', zeros));
    int n = digits_of(most, digits);
    all = iso_automaton_split(self, all, iso_automaton_literal(self, digits, (size_t)n, zeros));
  }
  return all;
}

uint32_t iso_json_numbers(iso_automaton *self, const json_bounds *bounds, uint32_t next) {
  uint32_t positive = AUTOMATON_DEAD, negative = AUTOMATON_DEAD;
  if (bounds->most >= 0)
    positive = decimals(self, larger(bounds->least, 0), bounds->most,
                        bounds->least >= 0 && bounds->above, bounds->below, next);
  if (bounds->least < 0)
    negative = decimals(self, larger(-bounds->most, 0), -bounds->least,
                        bounds->most <= 0 && bounds->below, bounds->above, next);
  return iso_automaton_split(self, positive, iso_automaton_range(self, '-', '-', negative));
}
