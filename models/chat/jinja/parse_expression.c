/* Expressions, by recursive descent; precedence is jinja2's, loosest first:
 * inline if, or, and, not, comparison, + -, ~, * / // %, **, unary, postfix, filters and tests. */
#include "models/chat/jinja/call.h"
#include "models/chat/jinja/parser.h"
#include <string.h>

typedef iso_status parse_function(iso_jinja_parser *parser, iso_jinja_node **out_node);

typedef struct spelled_operation {
  const char *spelling;
  iso_jinja_operation operation;
} spelled_operation;

static const spelled_operation additive[] = {{"+", ISO_JINJA_ADD}, {"-", ISO_JINJA_SUBTRACT}};
static const spelled_operation multiplicative[] = {{"*", ISO_JINJA_MULTIPLY},
                                                   {"/", ISO_JINJA_DIVIDE},
                                                   {"//", ISO_JINJA_FLOOR_DIVIDE},
                                                   {"%", ISO_JINJA_MODULO}};
static const spelled_operation power[] = {{"**", ISO_JINJA_POWER}};
static const spelled_operation comparisons[] = {
    {"==", ISO_JINJA_EQUAL},      {"!=", ISO_JINJA_NOT_EQUAL}, {"<", ISO_JINJA_LESS},
    {"<=", ISO_JINJA_LESS_EQUAL}, {">", ISO_JINJA_GREATER},    {">=", ISO_JINJA_GREATER_EQUAL}};

static iso_status parse_unary(iso_jinja_parser *parser, iso_jinja_node **out_node);

/* Takes the next token if it is one of the operators. */
static bool skip_operation(iso_jinja_parser *parser, const spelled_operation *table, size_t count,
                           uint8_t *out_operation) {
  for (size_t i = 0; i < count; i++) {
    if (iso_jinja_skip_operator(parser, table[i].spelling)) {
      *out_operation = (uint8_t)table[i].operation;
      return true;
    }
  }
  return false;
}

/* operand (operator operand)*, grouped from the left. */
static iso_status parse_binary(iso_jinja_parser *parser, const spelled_operation *table,
                               size_t count, parse_function *operand, iso_jinja_node **out_node) {
  ISO_TRY(operand(parser, out_node));
  uint8_t operation;
  while (skip_operation(parser, table, count, &operation)) {
    iso_jinja_node *node;
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_BINARY, &node));
    node->operation = operation;
    node->first = *out_node;
    ISO_TRY(operand(parser, &node->second));
    *out_node = node;
  }
  return ISO_OK;
}

static iso_status parse_power(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  return parse_binary(parser, power, 1, parse_unary, out_node);
}

static iso_status parse_product(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  return parse_binary(parser, multiplicative, 4, parse_power, out_node);
}

static iso_status parse_concat(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  ISO_TRY(parse_product(parser, out_node));
  if (!iso_jinja_at_operator(parser, "~"))
    return ISO_OK;
  iso_jinja_node_list items = {0};
  iso_jinja_node *node;
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_CONCAT, &node));
  iso_jinja_node_list_append(&items, *out_node);
  while (iso_jinja_skip_operator(parser, "~")) {
    ISO_TRY(parse_product(parser, out_node));
    iso_jinja_node_list_append(&items, *out_node);
  }
  node->items = items.first;
  *out_node = node;
  return ISO_OK;
}

static iso_status parse_sum(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  return parse_binary(parser, additive, 2, parse_concat, out_node);
}

static bool skip_comparison(iso_jinja_parser *parser, uint8_t *out_operation) {
  if (skip_operation(parser, comparisons, sizeof comparisons / sizeof *comparisons, out_operation))
    return true;
  if (iso_jinja_skip_word(parser, "in")) {
    *out_operation = ISO_JINJA_IN;
    return true;
  }
  const iso_jinja_token *following = parser->token + 1;
  if (iso_jinja_at_word(parser, "not") && following->kind == ISO_JINJA_TOKEN_NAME &&
      iso_jinja_is_text(following->value, "in")) {
    parser->token += 2;
    *out_operation = ISO_JINJA_NOT_IN;
    return true;
  }
  return false;
}

static iso_status parse_comparison(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  ISO_TRY(parse_sum(parser, out_node));
  iso_jinja_node_list operands = {0};
  uint8_t operation;
  while (skip_comparison(parser, &operation)) {
    iso_jinja_node *operand;
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_OPERAND, &operand));
    operand->operation = operation;
    ISO_TRY(parse_sum(parser, &operand->first));
    iso_jinja_node_list_append(&operands, operand);
  }
  if (!operands.first)
    return ISO_OK;
  iso_jinja_node *node;
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_COMPARE, &node));
  node->line = operands.first->line;
  node->first = *out_node;
  node->items = operands.first;
  *out_node = node;
  return ISO_OK;
}

static iso_status parse_not(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  if (!iso_jinja_skip_word(parser, "not"))
    return parse_comparison(parser, out_node);
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_NOT, out_node));
  ISO_TRY(iso_jinja_enter(parser->session));
  ISO_TRY(parse_not(parser, &(*out_node)->first));
  iso_jinja_leave(parser->session);
  return ISO_OK;
}

/* operand (word operand)*, grouped from the left. */
static iso_status parse_logical(iso_jinja_parser *parser, const char *word,
                                iso_jinja_node_kind kind, parse_function *operand,
                                iso_jinja_node **out_node) {
  ISO_TRY(operand(parser, out_node));
  while (iso_jinja_skip_word(parser, word)) {
    iso_jinja_node *node;
    ISO_TRY(iso_jinja_node_create(parser, kind, &node));
    node->first = *out_node;
    ISO_TRY(operand(parser, &node->second));
    *out_node = node;
  }
  return ISO_OK;
}

static iso_status parse_and(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  return parse_logical(parser, "and", ISO_JINJA_NODE_AND, parse_not, out_node);
}

static iso_status parse_or(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  return parse_logical(parser, "or", ISO_JINJA_NODE_OR, parse_and, out_node);
}

iso_status iso_jinja_parse_expression(iso_jinja_parser *parser, iso_jinja_form form,
                                      iso_jinja_node **out_node) {
  ISO_TRY(iso_jinja_enter(parser->session));
  ISO_TRY(parse_or(parser, out_node));
  while (form == ISO_JINJA_FORM_FULL && iso_jinja_skip_word(parser, "if")) {
    iso_jinja_node *node;
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_CONDITION, &node));
    node->second = *out_node;
    ISO_TRY(parse_or(parser, &node->first));
    if (iso_jinja_skip_word(parser, "else"))
      ISO_TRY(iso_jinja_parse_expression(parser, ISO_JINJA_FORM_FULL, &node->third));
    *out_node = node;
  }
  iso_jinja_leave(parser->session);
  return ISO_OK;
}

/* Items with commas up to the closing bracket, which is taken. */
static iso_status parse_items(iso_jinja_parser *parser, const char *close,
                              iso_jinja_node_list *items, bool *out_trailing_comma) {
  bool comma = true;
  while (!iso_jinja_skip_operator(parser, close)) {
    if (!comma)
      return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "expected ',' or '%s'", close);
    iso_jinja_node *item;
    ISO_TRY(iso_jinja_parse_expression(parser, ISO_JINJA_FORM_FULL, &item));
    iso_jinja_node_list_append(items, item);
    comma = iso_jinja_skip_operator(parser, ",");
  }
  *out_trailing_comma = comma;
  return ISO_OK;
}

iso_status iso_jinja_parse_tuple(iso_jinja_parser *parser, iso_jinja_form form,
                                 iso_jinja_node **out_node) {
  ISO_TRY(iso_jinja_parse_expression(parser, form, out_node));
  if (!iso_jinja_at_operator(parser, ","))
    return ISO_OK;
  iso_jinja_node_list items = {0};
  iso_jinja_node *node;
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_TUPLE, &node));
  iso_jinja_node_list_append(&items, *out_node);
  while (iso_jinja_skip_operator(parser, ",")) {
    uint8_t kind = parser->token->kind;
    if (kind == ISO_JINJA_TOKEN_CLOSE_VARIABLE || kind == ISO_JINJA_TOKEN_CLOSE_BLOCK)
      break;
    ISO_TRY(iso_jinja_parse_expression(parser, form, out_node));
    iso_jinja_node_list_append(&items, *out_node);
  }
  node->items = items.first;
  *out_node = node;
  return ISO_OK;
}

static iso_status parse_dict(iso_jinja_parser *parser, iso_jinja_node *dict) {
  iso_jinja_node_list pairs = {0};
  while (!iso_jinja_skip_operator(parser, "}")) {
    if (pairs.first) {
      ISO_TRY(iso_jinja_expect_operator(parser, ","));
      if (iso_jinja_skip_operator(parser, "}"))
        break;
    }
    iso_jinja_node *pair;
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_PAIR, &pair));
    ISO_TRY(iso_jinja_parse_expression(parser, ISO_JINJA_FORM_FULL, &pair->first));
    ISO_TRY(iso_jinja_expect_operator(parser, ":"));
    ISO_TRY(iso_jinja_parse_expression(parser, ISO_JINJA_FORM_FULL, &pair->second));
    iso_jinja_node_list_append(&pairs, pair);
  }
  dict->items = pairs.first;
  return ISO_OK;
}

static iso_status parse_name(iso_jinja_parser *parser, iso_jinja_node *node) {
  static const struct {
    const char *word;
    iso_jinja_value value;
  } constants[] = {
      {"true", {.kind = ISO_JINJA_BOOLEAN, .boolean = true}},
      {"True", {.kind = ISO_JINJA_BOOLEAN, .boolean = true}},
      {"false", {.kind = ISO_JINJA_BOOLEAN}},
      {"False", {.kind = ISO_JINJA_BOOLEAN}},
      {"none", {.kind = ISO_JINJA_NONE}},
      {"None", {.kind = ISO_JINJA_NONE}},
  };
  static const struct {
    const char *word;
    uint8_t flag;
  } special[] = {{"caller", ISO_JINJA_USES_CALLER},
                 {"kwargs", ISO_JINJA_USES_KWARGS},
                 {"varargs", ISO_JINJA_USES_VARARGS}};
  ISO_TRY(iso_jinja_expect_name(parser, &node->value));
  for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
    if (iso_jinja_is_text(node->value, constants[i].word)) {
      node->kind = ISO_JINJA_NODE_CONSTANT;
      node->value = constants[i].value;
      return ISO_OK;
    }
  }
  for (size_t i = 0; i < sizeof special / sizeof *special; i++)
    if (iso_jinja_is_text(node->value, special[i].word))
      parser->macro_flags |= special[i].flag;
  return ISO_OK;
}

/* A literal; adjacent strings are one. */
static iso_status parse_constant(iso_jinja_parser *parser, iso_jinja_node *node) {
  node->value = (parser->token++)->value;
  if (node->value.kind != ISO_JINJA_STRING)
    return ISO_OK;
  iso_jinja_buffer joined = {0};
  ISO_TRY(iso_jinja_print(parser->session, &joined, node->value));
  for (; parser->token->kind == ISO_JINJA_TOKEN_CONSTANT &&
         parser->token->value.kind == ISO_JINJA_STRING;
       parser->token++)
    ISO_TRY(iso_jinja_print(parser->session, &joined, parser->token->value));
  node->value = iso_jinja_buffer_string(&joined);
  return ISO_OK;
}

static iso_status parse_parenthesis(iso_jinja_parser *parser, iso_jinja_node *tuple,
                                    iso_jinja_node **out_node) {
  iso_jinja_node_list items = {0};
  bool trailing_comma = false;
  ISO_TRY(parse_items(parser, ")", &items, &trailing_comma));
  if (items.first && items.first == items.last && !trailing_comma) {
    *out_node = items.first;
    return ISO_OK;
  }
  tuple->kind = ISO_JINJA_NODE_TUPLE;
  tuple->items = items.first;
  *out_node = tuple;
  return ISO_OK;
}

iso_status iso_jinja_parse_primary(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  iso_jinja_node *node;
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_CONSTANT, &node));
  *out_node = node;
  if (parser->token->kind == ISO_JINJA_TOKEN_NAME) {
    node->kind = ISO_JINJA_NODE_NAME;
    return parse_name(parser, node);
  }
  if (parser->token->kind == ISO_JINJA_TOKEN_CONSTANT)
    return parse_constant(parser, node);
  if (iso_jinja_skip_operator(parser, "("))
    return parse_parenthesis(parser, node, out_node);
  if (iso_jinja_skip_operator(parser, "[")) {
    iso_jinja_node_list items = {0};
    bool trailing_comma = false;
    node->kind = ISO_JINJA_NODE_LIST;
    ISO_TRY(parse_items(parser, "]", &items, &trailing_comma));
    node->items = items.first;
    return ISO_OK;
  }
  if (iso_jinja_skip_operator(parser, "{")) {
    node->kind = ISO_JINJA_NODE_DICT;
    return parse_dict(parser, node);
  }
  return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "expected an expression");
}

/* One argument: value, name=value, *values or **values. */
static iso_status parse_argument(iso_jinja_parser *parser, iso_jinja_node *argument) {
  const iso_jinja_token *following = parser->token + 1;
  argument->operation = ISO_JINJA_POSITIONAL;
  if (iso_jinja_skip_operator(parser, "*")) {
    argument->operation = ISO_JINJA_MULTIPLY;
  } else if (iso_jinja_skip_operator(parser, "**")) {
    argument->operation = ISO_JINJA_POWER;
  } else if (parser->token->kind == ISO_JINJA_TOKEN_NAME &&
             following->kind == ISO_JINJA_TOKEN_OPERATOR &&
             iso_jinja_is_text(following->value, "=")) {
    argument->operation = ISO_JINJA_KEYWORD;
    argument->value = parser->token->value;
    parser->token += 2;
  }
  return iso_jinja_parse_expression(parser, ISO_JINJA_FORM_FULL, &argument->first);
}

/* Arguments up to ")", the "(" already taken. */
static iso_status parse_arguments(iso_jinja_parser *parser, iso_jinja_node **out_items) {
  iso_jinja_node_list items = {0};
  while (!iso_jinja_skip_operator(parser, ")")) {
    if (items.first) {
      ISO_TRY(iso_jinja_expect_operator(parser, ","));
      if (iso_jinja_skip_operator(parser, ")"))
        break;
    }
    iso_jinja_node *argument;
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_ARGUMENT, &argument));
    ISO_TRY(parse_argument(parser, argument));
    bool keyword = items.last && (items.last->operation == ISO_JINJA_KEYWORD ||
                                  items.last->operation == ISO_JINJA_POWER);
    if (keyword && argument->operation != ISO_JINJA_KEYWORD &&
        argument->operation != ISO_JINJA_POWER)
      return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA,
                                  "a positional argument follows a keyword argument");
    iso_jinja_node_list_append(&items, argument);
  }
  *out_items = items.first;
  return ISO_OK;
}

/* One part of a subscript's start:stop:step; a constant None if it is left out. */
static iso_status parse_slice_part(iso_jinja_parser *parser, iso_jinja_node_list *parts) {
  iso_jinja_node *part;
  if (iso_jinja_at_operator(parser, ":") || iso_jinja_at_operator(parser, "]")) {
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_CONSTANT, &part));
    part->value = iso_jinja_none();
  } else {
    ISO_TRY(iso_jinja_parse_expression(parser, ISO_JINJA_FORM_FULL, &part));
  }
  iso_jinja_node_list_append(parts, part);
  return ISO_OK;
}

/* object[key] or object[start:stop:step], the "[" already taken. */
static iso_status parse_subscript(iso_jinja_parser *parser, iso_jinja_node *object,
                                  iso_jinja_node **out_node) {
  iso_jinja_node *node;
  iso_jinja_node_list parts = {0};
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_INDEX, &node));
  node->first = object;
  *out_node = node;
  if (!iso_jinja_at_operator(parser, ":")) {
    ISO_TRY(iso_jinja_parse_tuple(parser, ISO_JINJA_FORM_FULL, &node->second));
    if (iso_jinja_skip_operator(parser, "]"))
      return ISO_OK;
    iso_jinja_node_list_append(&parts, node->second);
  } else {
    ISO_TRY(parse_slice_part(parser, &parts));
  }
  node->kind = ISO_JINJA_NODE_SLICE;
  ISO_TRY(iso_jinja_expect_operator(parser, ":"));
  ISO_TRY(parse_slice_part(parser, &parts));
  if (!iso_jinja_skip_operator(parser, ":") && !iso_jinja_at_operator(parser, "]"))
    return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "expected ':' or ']'");
  ISO_TRY(parse_slice_part(parser, &parts));
  node->items = parts.first;
  return iso_jinja_expect_operator(parser, "]");
}

/* object.name or object.0, the "." already taken. */
static iso_status parse_member(iso_jinja_parser *parser, iso_jinja_node *object,
                               iso_jinja_node **out_node) {
  iso_jinja_node *node;
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_ATTRIBUTE, &node));
  node->first = object;
  *out_node = node;
  if (parser->token->kind == ISO_JINJA_TOKEN_NAME) {
    node->value = (parser->token++)->value;
    return ISO_OK;
  }
  if (parser->token->kind != ISO_JINJA_TOKEN_CONSTANT ||
      parser->token->value.kind != ISO_JINJA_INTEGER)
    return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "expected a name after '.'");
  node->kind = ISO_JINJA_NODE_INDEX;
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_CONSTANT, &node->second));
  node->second->value = (parser->token++)->value;
  return ISO_OK;
}

static iso_status parse_call(iso_jinja_parser *parser, iso_jinja_node **node) {
  iso_jinja_node *call;
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_CALL, &call));
  call->first = *node;
  *node = call;
  return parse_arguments(parser, &call->items);
}

static iso_status parse_members(iso_jinja_parser *parser, iso_jinja_node **node) {
  for (;;) {
    if (iso_jinja_skip_operator(parser, "."))
      ISO_TRY(parse_member(parser, *node, node));
    else if (iso_jinja_skip_operator(parser, "["))
      ISO_TRY(parse_subscript(parser, *node, node));
    else if (iso_jinja_skip_operator(parser, "("))
      ISO_TRY(parse_call(parser, node));
    else
      return ISO_OK;
  }
}

/* One filter: its name, then perhaps arguments. */
static iso_status parse_filter(iso_jinja_parser *parser, iso_jinja_node **node) {
  iso_jinja_node *filter;
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_FILTER, &filter));
  filter->first = *node;
  *node = filter;
  ISO_TRY(iso_jinja_expect_name(parser, &filter->value));
  filter->builtin = iso_jinja_find_filter(filter->value);
  return iso_jinja_skip_operator(parser, "(") ? parse_arguments(parser, &filter->items) : ISO_OK;
}

iso_status iso_jinja_parse_filter_chain(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  *out_node = NULL;
  do {
    ISO_TRY(parse_filter(parser, out_node));
  } while (iso_jinja_skip_operator(parser, "|"));
  return ISO_OK;
}

/* Whether the next token starts a test's argument given without parentheses. */
static bool at_bare_argument(const iso_jinja_parser *parser) {
  if (parser->token->kind == ISO_JINJA_TOKEN_CONSTANT)
    return true;
  if (parser->token->kind == ISO_JINJA_TOKEN_NAME)
    return !iso_jinja_at_word(parser, "else") && !iso_jinja_at_word(parser, "or") &&
           !iso_jinja_at_word(parser, "and");
  return iso_jinja_at_operator(parser, "[") || iso_jinja_at_operator(parser, "{");
}

/* A test, the "is" already taken. */
static iso_status parse_test(iso_jinja_parser *parser, iso_jinja_node **node) {
  iso_jinja_node *test, *negation = NULL;
  if (iso_jinja_at_word(parser, "not"))
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_NOT, &negation));
  (void)iso_jinja_skip_word(parser, "not");
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_TEST, &test));
  test->first = *node;
  ISO_TRY(iso_jinja_expect_name(parser, &test->value));
  test->builtin = iso_jinja_find_test(test->value);
  if (iso_jinja_skip_operator(parser, "(")) {
    ISO_TRY(parse_arguments(parser, &test->items));
  } else if (at_bare_argument(parser)) {
    if (iso_jinja_at_word(parser, "is"))
      return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA,
                                  "tests with 'is' cannot be chained");
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_ARGUMENT, &test->items));
    test->items->operation = ISO_JINJA_POSITIONAL;
    ISO_TRY(iso_jinja_parse_primary(parser, &test->items->first));
    ISO_TRY(parse_members(parser, &test->items->first));
  }
  *node = test;
  if (negation) {
    negation->first = test;
    *node = negation;
  }
  return ISO_OK;
}

static iso_status parse_filters_and_tests(iso_jinja_parser *parser, iso_jinja_node **node) {
  for (;;) {
    if (iso_jinja_skip_operator(parser, "|"))
      ISO_TRY(parse_filter(parser, node));
    else if (iso_jinja_skip_word(parser, "is"))
      ISO_TRY(parse_test(parser, node));
    else if (iso_jinja_skip_operator(parser, "("))
      ISO_TRY(parse_call(parser, node));
    else
      return ISO_OK;
  }
}

/* Signs bind looser than members and tighter than filters: -x.y|abs is (-(x.y))|abs. */
static iso_status parse_signed(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  bool minus = iso_jinja_at_operator(parser, "-");
  if (!minus && !iso_jinja_at_operator(parser, "+")) {
    ISO_TRY(iso_jinja_parse_primary(parser, out_node));
    return parse_members(parser, out_node);
  }
  ISO_TRY(
      iso_jinja_node_create(parser, minus ? ISO_JINJA_NODE_NEGATE : ISO_JINJA_NODE_PLUS, out_node));
  parser->token++;
  ISO_TRY(iso_jinja_enter(parser->session));
  ISO_TRY(parse_signed(parser, &(*out_node)->first));
  iso_jinja_leave(parser->session);
  return parse_members(parser, out_node);
}

static iso_status parse_unary(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  ISO_TRY(parse_signed(parser, out_node));
  return parse_filters_and_tests(parser, out_node);
}
