/* Statements: the tags, and the text between them. */
#include "models/chat/jinja/parser.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void iso_jinja_node_list_append(iso_jinja_node_list *list, iso_jinja_node *node) {
  if (list->last)
    list->last->next = node;
  else
    list->first = node;
  list->last = node;
}

iso_status iso_jinja_node_create(iso_jinja_parser *parser, iso_jinja_node_kind kind,
                                 iso_jinja_node **out_node) {
  iso_jinja_node *node;
  parser->session->line = parser->token->line;
  ISO_JINJA_NEW(parser->session, node, 1);
  node->kind = (uint8_t)kind;
  node->line = parser->token->line;
  *out_node = node;
  return ISO_OK;
}

iso_status iso_jinja_parse_fail(iso_jinja_parser *parser, iso_status code, const char *format,
                                ...) {
  char text[200], found[60] = "the end of the template";
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const iso_jinja_token *token = parser->token;
  if (token->value.kind == ISO_JINJA_STRING)
    snprintf(found, sizeof found, "'%.*s'",
             (int)(token->value.length > 50 ? 50 : token->value.length), token->value.string);
  else if (token->kind != ISO_JINJA_TOKEN_END)
    snprintf(found, sizeof found, "%s",
             token->kind == ISO_JINJA_TOKEN_CONSTANT ? "a number" : "the end of the tag");
  parser->session->line = token->line;
  return iso_jinja_fail(parser->session, code, "%s, found %s", text, found);
}

static bool at(const iso_jinja_parser *parser, iso_jinja_token_kind kind, const char *text) {
  return parser->token->kind == kind && iso_jinja_is_text(parser->token->value, text);
}

bool iso_jinja_at_operator(const iso_jinja_parser *parser, const char *spelling) {
  return at(parser, ISO_JINJA_TOKEN_OPERATOR, spelling);
}

bool iso_jinja_at_word(const iso_jinja_parser *parser, const char *word) {
  return at(parser, ISO_JINJA_TOKEN_NAME, word);
}

bool iso_jinja_skip_operator(iso_jinja_parser *parser, const char *spelling) {
  bool found = iso_jinja_at_operator(parser, spelling);
  parser->token += found;
  return found;
}

bool iso_jinja_skip_word(iso_jinja_parser *parser, const char *word) {
  bool found = iso_jinja_at_word(parser, word);
  parser->token += found;
  return found;
}

iso_status iso_jinja_expect_operator(iso_jinja_parser *parser, const char *spelling) {
  if (iso_jinja_skip_operator(parser, spelling))
    return ISO_OK;
  return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "expected '%s'", spelling);
}

iso_status iso_jinja_expect_word(iso_jinja_parser *parser, const char *word) {
  if (iso_jinja_skip_word(parser, word))
    return ISO_OK;
  return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "expected '%s'", word);
}

iso_status iso_jinja_expect_name(iso_jinja_parser *parser, iso_jinja_value *out_name) {
  if (parser->token->kind != ISO_JINJA_TOKEN_NAME)
    return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "expected a name");
  *out_name = (parser->token++)->value;
  return ISO_OK;
}

static iso_status expect_close(iso_jinja_parser *parser) {
  if (parser->token->kind != ISO_JINJA_TOKEN_CLOSE_BLOCK)
    return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "expected the end of the tag");
  parser->token++;
  return ISO_OK;
}

static iso_status parse_statements(iso_jinja_parser *parser, const char *const *ends,
                                   iso_jinja_node **out_first);

/* The statements of a tag, from its "%}" to the "{%" of one of `ends`, whose word is next. */
static iso_status parse_body(iso_jinja_parser *parser, const char *const *ends,
                             iso_jinja_node **out_first) {
  ISO_TRY(expect_close(parser));
  ISO_TRY(iso_jinja_enter(parser->session));
  ISO_TRY(parse_statements(parser, ends, out_first));
  iso_jinja_leave(parser->session);
  return ISO_OK;
}

/* The same where only one word can end it, which is taken. */
static iso_status parse_body_to(iso_jinja_parser *parser, const char *end,
                                iso_jinja_node **out_first) {
  const char *const ends[] = {end, NULL};
  ISO_TRY(parse_body(parser, ends, out_first));
  return iso_jinja_expect_word(parser, end);
}

static iso_status parse_single_target(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  iso_jinja_node *node;
  if (iso_jinja_skip_operator(parser, "(")) {
    iso_jinja_node_list items = {0};
    bool comma = false;
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_TUPLE, &node));
    ISO_TRY(iso_jinja_enter(parser->session));
    do {
      iso_jinja_node *item;
      if (iso_jinja_at_operator(parser, ")"))
        break;
      ISO_TRY(parse_single_target(parser, &item));
      iso_jinja_node_list_append(&items, item);
      comma = iso_jinja_skip_operator(parser, ",");
    } while (comma);
    iso_jinja_leave(parser->session);
    node->items = items.first;
    *out_node = items.first && !items.first->next && !comma ? items.first : node;
    return iso_jinja_expect_operator(parser, ")");
  }
  ISO_TRY(iso_jinja_parse_primary(parser, &node));
  if (node->kind != ISO_JINJA_NODE_NAME)
    return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "cannot assign to that");
  if (parser->loop_depth && iso_jinja_is_text(node->value, "loop") &&
      !iso_jinja_at_operator(parser, "."))
    return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "cannot assign to a loop's 'loop'");
  if (iso_jinja_skip_operator(parser, ".")) {
    node->kind = ISO_JINJA_NODE_MEMBER;
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_CONSTANT, &node->second));
    ISO_TRY(iso_jinja_expect_name(parser, &node->second->value));
  }
  *out_node = node;
  return ISO_OK;
}

/* A name, an attribute of a namespace, or several of them with commas. */
static iso_status parse_target(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  ISO_TRY(parse_single_target(parser, out_node));
  if (!iso_jinja_at_operator(parser, ","))
    return ISO_OK;
  iso_jinja_node_list items = {0};
  iso_jinja_node *tuple;
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_TUPLE, &tuple));
  iso_jinja_node_list_append(&items, *out_node);
  while (iso_jinja_skip_operator(parser, ",")) {
    if (parser->token->kind == ISO_JINJA_TOKEN_CLOSE_BLOCK)
      break;
    ISO_TRY(parse_single_target(parser, out_node));
    iso_jinja_node_list_append(&items, *out_node);
  }
  tuple->items = items.first;
  *out_node = tuple;
  return ISO_OK;
}

static iso_status parse_if(iso_jinja_parser *parser, iso_jinja_node *node) {
  static const char *const ends[] = {"elif", "else", "endif", NULL};
  ISO_TRY(iso_jinja_parse_tuple(parser, ISO_JINJA_FORM_UNCONDITIONAL, &node->first));
  ISO_TRY(parse_body(parser, ends, &node->body));
  while (iso_jinja_skip_word(parser, "elif")) {
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_IF, &node->otherwise));
    node = node->otherwise;
    ISO_TRY(iso_jinja_parse_tuple(parser, ISO_JINJA_FORM_UNCONDITIONAL, &node->first));
    ISO_TRY(parse_body(parser, ends, &node->body));
  }
  if (iso_jinja_skip_word(parser, "else"))
    return parse_body_to(parser, "endif", &node->otherwise);
  return iso_jinja_expect_word(parser, "endif");
}

static iso_status parse_for(iso_jinja_parser *parser, iso_jinja_node *node) {
  static const char *const ends[] = {"else", "endfor", NULL};
  parser->loop_depth++;
  ISO_TRY(parse_target(parser, &node->first));
  ISO_TRY(iso_jinja_expect_word(parser, "in"));
  ISO_TRY(iso_jinja_parse_tuple(parser, ISO_JINJA_FORM_UNCONDITIONAL, &node->second));
  if (iso_jinja_skip_word(parser, "if"))
    ISO_TRY(iso_jinja_parse_expression(parser, ISO_JINJA_FORM_FULL, &node->third));
  if (iso_jinja_at_word(parser, "recursive"))
    return iso_jinja_parse_fail(parser, ISO_ERROR_UNSUPPORTED, "recursive loops are refused");
  ISO_TRY(parse_body(parser, ends, &node->body));
  parser->loop_depth--;
  if (iso_jinja_skip_word(parser, "else"))
    return parse_body_to(parser, "endfor", &node->otherwise);
  return iso_jinja_expect_word(parser, "endfor");
}

static iso_status parse_set(iso_jinja_parser *parser, iso_jinja_node *node) {
  ISO_TRY(parse_target(parser, &node->first));
  if (iso_jinja_skip_operator(parser, "="))
    return iso_jinja_parse_tuple(parser, ISO_JINJA_FORM_FULL, &node->second);
  node->kind = ISO_JINJA_NODE_SET_BLOCK;
  if (iso_jinja_skip_operator(parser, "|"))
    ISO_TRY(iso_jinja_parse_filter_chain(parser, &node->second));
  return parse_body_to(parser, "endset", &node->body);
}

/* A name that can be given a value. */
static iso_status expect_variable(iso_jinja_parser *parser, iso_jinja_value *out_name) {
  static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
  for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
    if (iso_jinja_at_word(parser, constants[i]))
      return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "cannot assign to that");
  return iso_jinja_expect_name(parser, out_name);
}

/* Parameters up to ")", the "(" already taken. */
static iso_status parse_parameters(iso_jinja_parser *parser, iso_jinja_node **out_items) {
  iso_jinja_node_list items = {0};
  while (!iso_jinja_skip_operator(parser, ")")) {
    if (items.first)
      ISO_TRY(iso_jinja_expect_operator(parser, ","));
    iso_jinja_node *parameter;
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_PARAMETER, &parameter));
    ISO_TRY(expect_variable(parser, &parameter->value));
    if (iso_jinja_skip_operator(parser, "="))
      ISO_TRY(iso_jinja_parse_expression(parser, ISO_JINJA_FORM_FULL, &parameter->first));
    else if (items.last && items.last->first)
      return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA,
                                  "a parameter without a default follows one with a default");
    iso_jinja_node_list_append(&items, parameter);
  }
  *out_items = items.first;
  return ISO_OK;
}

/* A macro's body, whose special names are its own. */
static iso_status parse_macro_body(iso_jinja_parser *parser, const char *end,
                                   iso_jinja_node *macro) {
  uint8_t flags = parser->macro_flags;
  uint32_t loop_depth = parser->loop_depth;
  parser->macro_flags = 0;
  parser->loop_depth = 0;
  ISO_TRY(parse_body_to(parser, end, &macro->body));
  macro->flags = parser->macro_flags;
  parser->macro_flags |= flags; /* a macro around reads whatever one inside it reads */
  parser->loop_depth = loop_depth;
  return ISO_OK;
}

static iso_status parse_macro(iso_jinja_parser *parser, iso_jinja_node *node) {
  ISO_TRY(expect_variable(parser, &node->value));
  ISO_TRY(iso_jinja_expect_operator(parser, "("));
  ISO_TRY(parse_parameters(parser, &node->items));
  return parse_macro_body(parser, "endmacro", node);
}

static iso_status parse_call_block(iso_jinja_parser *parser, iso_jinja_node *node) {
  iso_jinja_node *caller;
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_MACRO, &caller));
  caller->value = iso_jinja_none();
  if (iso_jinja_skip_operator(parser, "("))
    ISO_TRY(parse_parameters(parser, &caller->items));
  ISO_TRY(iso_jinja_parse_expression(parser, ISO_JINJA_FORM_FULL, &node->first));
  if (node->first->kind != ISO_JINJA_NODE_CALL)
    return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "expected a call");
  node->second = caller;
  return parse_macro_body(parser, "endcall", caller);
}

static iso_status parse_filter_block(iso_jinja_parser *parser, iso_jinja_node *node) {
  ISO_TRY(iso_jinja_parse_filter_chain(parser, &node->first));
  return parse_body_to(parser, "endfilter", &node->body);
}

static iso_status parse_with(iso_jinja_parser *parser, iso_jinja_node *node) {
  iso_jinja_node_list pairs = {0};
  while (parser->token->kind != ISO_JINJA_TOKEN_CLOSE_BLOCK) {
    if (pairs.first)
      ISO_TRY(iso_jinja_expect_operator(parser, ","));
    iso_jinja_node *pair;
    ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_PAIR, &pair));
    ISO_TRY(parse_target(parser, &pair->first));
    ISO_TRY(iso_jinja_expect_operator(parser, "="));
    ISO_TRY(iso_jinja_parse_expression(parser, ISO_JINJA_FORM_FULL, &pair->second));
    iso_jinja_node_list_append(&pairs, pair);
  }
  node->items = pairs.first;
  return parse_body_to(parser, "endwith", &node->body);
}

static iso_status parse_generation(iso_jinja_parser *parser, iso_jinja_node *node) {
  return parse_body_to(parser, "endgeneration", &node->body);
}

static iso_status parse_jump(iso_jinja_parser *parser, iso_jinja_node *node) {
  if (parser->loop_depth > 0)
    return ISO_OK;
  return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "'%s' outside a loop",
                              node->kind == ISO_JINJA_NODE_BREAK ? "break" : "continue");
}

static const struct {
  const char *word;
  iso_jinja_node_kind kind;
  iso_status (*parse)(iso_jinja_parser *parser, iso_jinja_node *node);
} tags[] = {
    {"if", ISO_JINJA_NODE_IF, parse_if},
    {"for", ISO_JINJA_NODE_FOR, parse_for},
    {"set", ISO_JINJA_NODE_SET, parse_set},
    {"macro", ISO_JINJA_NODE_MACRO, parse_macro},
    {"call", ISO_JINJA_NODE_CALL_BLOCK, parse_call_block},
    {"filter", ISO_JINJA_NODE_FILTER_BLOCK, parse_filter_block},
    {"with", ISO_JINJA_NODE_WITH, parse_with},
    {"generation", ISO_JINJA_NODE_GENERATION, parse_generation},
    {"break", ISO_JINJA_NODE_BREAK, parse_jump},
    {"continue", ISO_JINJA_NODE_CONTINUE, parse_jump},
};

/* One tag, the word of which is next. */
static iso_status parse_tag(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
    if (!iso_jinja_at_word(parser, tags[i].word))
      continue;
    ISO_TRY(iso_jinja_node_create(parser, tags[i].kind, out_node));
    parser->token++;
    ISO_TRY(tags[i].parse(parser, *out_node));
    return expect_close(parser);
  }
  return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "no such tag here");
}

static iso_status parse_output(iso_jinja_parser *parser, iso_jinja_node **out_node) {
  ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_OUTPUT, out_node));
  ISO_TRY(iso_jinja_parse_tuple(parser, ISO_JINJA_FORM_FULL, &(*out_node)->first));
  if (parser->token->kind != ISO_JINJA_TOKEN_CLOSE_VARIABLE)
    return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "expected '}}'");
  parser->token++;
  return ISO_OK;
}

static bool at_end(const iso_jinja_parser *parser, const char *const *ends) {
  for (; ends && *ends; ends++)
    if (iso_jinja_at_word(parser, *ends))
      return true;
  return false;
}

/* Statements up to the word of a tag in `ends`, which is next; `ends` is NULL at top level,
 * where only the end of the template ends them. */
static iso_status parse_statements(iso_jinja_parser *parser, const char *const *ends,
                                   iso_jinja_node **out_first) {
  iso_jinja_node_list statements = {0};
  for (;;) {
    iso_jinja_node *node = NULL;
    const iso_jinja_token *token = parser->token;
    if (token->kind == ISO_JINJA_TOKEN_END) {
      if (!ends)
        break;
      while (ends[1]) /* the last one is the tag's own end */
        ends++;
      return iso_jinja_parse_fail(parser, ISO_ERROR_CORRUPT_DATA, "expected '%s'", ends[0]);
    }
    if (token->kind == ISO_JINJA_TOKEN_TEXT) {
      ISO_TRY(iso_jinja_node_create(parser, ISO_JINJA_NODE_TEXT, &node));
      node->value = token->value;
      parser->token++;
    } else if (token->kind == ISO_JINJA_TOKEN_OPEN_VARIABLE) {
      parser->token++;
      ISO_TRY(parse_output(parser, &node));
    } else {
      parser->token++;
      if (at_end(parser, ends))
        break;
      ISO_TRY(parse_tag(parser, &node));
    }
    iso_jinja_node_list_append(&statements, node);
  }
  *out_first = statements.first;
  return ISO_OK;
}

iso_status iso_jinja_parse(iso_jinja_session *session, const char *source, size_t length,
                           iso_jinja_node **out_body) {
  iso_jinja_token *tokens;
  ISO_TRY(iso_jinja_tokenize(session, source, length, &tokens));
  iso_jinja_parser parser = {.session = session, .token = tokens};
  return parse_statements(&parser, NULL, out_body);
}
