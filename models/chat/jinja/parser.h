/* What the statement parser and the expression parser share. */
#ifndef ISOMER_MODELS_CHAT_JINJA_PARSER_H
#define ISOMER_MODELS_CHAT_JINJA_PARSER_H

#include "models/chat/jinja/lexer.h"
#include "models/chat/jinja/session.h"
#include "models/chat/jinja/syntax.h"

typedef struct iso_jinja_parser {
  iso_jinja_session *session;
  const iso_jinja_token *token; /* the next one */
  uint32_t loop_depth;          /* for loops around, within the same macro */
  uint8_t macro_flags;          /* special names read so far in the macro being parsed */
} iso_jinja_parser;

/* A list of nodes under construction. */
typedef struct iso_jinja_node_list {
  iso_jinja_node *first, *last;
} iso_jinja_node_list;

void iso_jinja_node_list_append(iso_jinja_node_list *list, iso_jinja_node *node);

/* A new node at the next token's line. */
iso_status iso_jinja_node_create(iso_jinja_parser *parser, iso_jinja_node_kind kind,
                                 iso_jinja_node **out_node);
/* Fails at the next token's line. */
iso_status iso_jinja_parse_fail(iso_jinja_parser *parser, iso_status code, const char *format, ...)
    ISO_PRINTF(3, 4);

bool iso_jinja_at_operator(const iso_jinja_parser *parser, const char *spelling);
bool iso_jinja_at_word(const iso_jinja_parser *parser, const char *word);
/* Takes the next token if it is this one. */
bool iso_jinja_skip_operator(iso_jinja_parser *parser, const char *spelling);
bool iso_jinja_skip_word(iso_jinja_parser *parser, const char *word);
/* Takes the next token, which must be this one. */
iso_status iso_jinja_expect_operator(iso_jinja_parser *parser, const char *spelling);
iso_status iso_jinja_expect_word(iso_jinja_parser *parser, const char *word);
iso_status iso_jinja_expect_name(iso_jinja_parser *parser, iso_jinja_value *out_name);

typedef enum iso_jinja_form {
  ISO_JINJA_FORM_FULL,         /* with inline if */
  ISO_JINJA_FORM_UNCONDITIONAL /* without, where `if` means something else */
} iso_jinja_form;

iso_status iso_jinja_parse_expression(iso_jinja_parser *parser, iso_jinja_form form,
                                      iso_jinja_node **out_node);
/* One expression, or several with commas as a tuple without parentheses. */
iso_status iso_jinja_parse_tuple(iso_jinja_parser *parser, iso_jinja_form form,
                                 iso_jinja_node **out_node);
/* A literal, a name or a bracketed expression. */
iso_status iso_jinja_parse_primary(iso_jinja_parser *parser, iso_jinja_node **out_node);
/* A chain of filters, the name of the first one next; the innermost input is left NULL. */
iso_status iso_jinja_parse_filter_chain(iso_jinja_parser *parser, iso_jinja_node **out_node);

#endif
