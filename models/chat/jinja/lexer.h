/* Lexer: a template's source as tokens, with white space already trimmed.
 *
 * The rules are jinja2's with trim_blocks and lstrip_blocks, as transformers sets them:
 *  - the newline after a block or comment tag goes, unless the tag ends in `+`;
 *  - spaces before a block or comment tag that starts its line go, unless the tag starts with `+`;
 *  - a `-` at either end of any tag takes all white space on that side;
 *  - one newline at the very end of the source goes, and CR LF and CR are newlines. */
#ifndef ISOMER_MODELS_CHAT_JINJA_LEXER_H
#define ISOMER_MODELS_CHAT_JINJA_LEXER_H

#include "models/chat/jinja/value.h"

typedef enum iso_jinja_token_kind {
  ISO_JINJA_TOKEN_END,
  ISO_JINJA_TOKEN_TEXT, /* value: text between tags */
  ISO_JINJA_TOKEN_OPEN_VARIABLE,
  ISO_JINJA_TOKEN_CLOSE_VARIABLE,
  ISO_JINJA_TOKEN_OPEN_BLOCK,
  ISO_JINJA_TOKEN_CLOSE_BLOCK,
  ISO_JINJA_TOKEN_NAME,     /* value: the name */
  ISO_JINJA_TOKEN_CONSTANT, /* value: a string, integer or float */
  ISO_JINJA_TOKEN_OPERATOR  /* value: its spelling */
} iso_jinja_token_kind;

typedef struct iso_jinja_token {
  uint8_t kind; /* iso_jinja_token_kind */
  uint32_t line;
  iso_jinja_value value;
} iso_jinja_token;

/* Splits the source; the list ends with an END token and lives in the session. */
iso_status iso_jinja_tokenize(iso_jinja_session *session, const char *source, size_t length,
                              iso_jinja_token **out_tokens);

#endif
