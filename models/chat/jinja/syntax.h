/* Syntax: what a template is parsed into, and the parser's face.
 *
 * A template becomes one tree of nodes that lives in the session that parsed it and is never
 * changed afterwards, so any number of threads may render it at once. Nodes of all kinds share
 * one struct; the table beside each kind says which fields it uses. */
#ifndef ISOMER_MODELS_CHAT_JINJA_SYNTAX_H
#define ISOMER_MODELS_CHAT_JINJA_SYNTAX_H

#include "models/chat/jinja/value.h"

typedef enum iso_jinja_node_kind {
  /* expressions */
  ISO_JINJA_NODE_CONSTANT,  /* value */
  ISO_JINJA_NODE_NAME,      /* value: the name */
  ISO_JINJA_NODE_LIST,      /* items */
  ISO_JINJA_NODE_TUPLE,     /* items */
  ISO_JINJA_NODE_DICT,      /* items: PAIRs */
  ISO_JINJA_NODE_PAIR,      /* first: key or target, second: value */
  ISO_JINJA_NODE_NOT,       /* first */
  ISO_JINJA_NODE_NEGATE,    /* first */
  ISO_JINJA_NODE_PLUS,      /* first */
  ISO_JINJA_NODE_AND,       /* first, second */
  ISO_JINJA_NODE_OR,        /* first, second */
  ISO_JINJA_NODE_BINARY,    /* operation, first, second */
  ISO_JINJA_NODE_CONCAT,    /* items */
  ISO_JINJA_NODE_COMPARE,   /* first, items: OPERANDs of a chain */
  ISO_JINJA_NODE_OPERAND,   /* operation, first */
  ISO_JINJA_NODE_CONDITION, /* first: test, second: if true, third: if false, or NULL */
  ISO_JINJA_NODE_ATTRIBUTE, /* first: object, value: name */
  ISO_JINJA_NODE_INDEX,     /* first: object, second: key */
  ISO_JINJA_NODE_SLICE,     /* first: object, items: three, start, stop, step, CONSTANT None if
                               left out */
  ISO_JINJA_NODE_CALL,      /* first: callee, items: ARGUMENTs */
  ISO_JINJA_NODE_ARGUMENT,  /* operation: how it is passed, first, value: keyword */
  ISO_JINJA_NODE_FILTER,    /* value: name, first: input, NULL: the block's text, items, builtin */
  ISO_JINJA_NODE_TEST,      /* value: name, first: input, items: ARGUMENTs, builtin */
  ISO_JINJA_NODE_MEMBER,    /* value: name, second: CONSTANT attribute; a target `name.attribute` */
  /* statements */
  ISO_JINJA_NODE_TEXT,         /* value */
  ISO_JINJA_NODE_OUTPUT,       /* first */
  ISO_JINJA_NODE_IF,           /* first: test, body, otherwise */
  ISO_JINJA_NODE_FOR,          /* first: target, second: iterable, third: filter or NULL, body,
                                  otherwise */
  ISO_JINJA_NODE_SET,          /* first: target, second: value */
  ISO_JINJA_NODE_SET_BLOCK,    /* first: target, second: filter chain or NULL, body */
  ISO_JINJA_NODE_MACRO,        /* value: name, items: parameters, body, flags */
  ISO_JINJA_NODE_PARAMETER,    /* value: name, first: default or NULL */
  ISO_JINJA_NODE_CALL_BLOCK,   /* first: CALL, second: its body as a MACRO */
  ISO_JINJA_NODE_FILTER_BLOCK, /* first: filter chain, body */
  ISO_JINJA_NODE_WITH,         /* items: PAIRs, body */
  ISO_JINJA_NODE_GENERATION,   /* body */
  ISO_JINJA_NODE_BREAK,
  ISO_JINJA_NODE_CONTINUE,
  ISO_JINJA_NODE_KIND_COUNT
} iso_jinja_node_kind;

/* Operators; also, for an ARGUMENT, how it is passed. */
typedef enum iso_jinja_operation {
  ISO_JINJA_ADD,
  ISO_JINJA_SUBTRACT,
  ISO_JINJA_MULTIPLY, /* argument: *value, spread over positions */
  ISO_JINJA_DIVIDE,
  ISO_JINJA_FLOOR_DIVIDE,
  ISO_JINJA_MODULO,
  ISO_JINJA_POWER, /* argument: **value, spread over keywords */
  ISO_JINJA_EQUAL,
  ISO_JINJA_NOT_EQUAL,
  ISO_JINJA_LESS,
  ISO_JINJA_LESS_EQUAL,
  ISO_JINJA_GREATER,
  ISO_JINJA_GREATER_EQUAL,
  ISO_JINJA_IN,
  ISO_JINJA_NOT_IN,
  ISO_JINJA_POSITIONAL, /* argument: value */
  ISO_JINJA_KEYWORD     /* argument: name=value */
} iso_jinja_operation;

/* Flags of a MACRO: special names that its body reads. */
enum { ISO_JINJA_USES_CALLER = 1, ISO_JINJA_USES_KWARGS = 2, ISO_JINJA_USES_VARARGS = 4 };

typedef struct iso_jinja_node {
  uint8_t kind; /* iso_jinja_node_kind */
  uint8_t operation;
  uint8_t flags;
  uint32_t line;
  iso_jinja_value value;
  const struct iso_jinja_builtin *builtin; /* NULL when no builtin has the name */
  struct iso_jinja_node *first, *second, *third;
  struct iso_jinja_node *items, *body, *otherwise; /* first of a list */
  struct iso_jinja_node *next;                     /* in the list that holds this node */
} iso_jinja_node;

/* Parses a template the way transformers has jinja2 parse it: trim_blocks, lstrip_blocks, loop
 * controls and the generation tag. `*out_body` is its first statement, NULL for an empty
 * template, living as long as the session. `source` must live as long, too. Bad syntax and
 * unknown tags are ISO_ERROR_CORRUPT_DATA, recursive loops ISO_ERROR_UNSUPPORTED. */
iso_status iso_jinja_parse(iso_jinja_session *session, const char *source, size_t length,
                           iso_jinja_node **out_body);

#endif
