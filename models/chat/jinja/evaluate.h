/* Evaluation of a parsed template. */
#ifndef ISOMER_MODELS_CHAT_JINJA_EVALUATE_H
#define ISOMER_MODELS_CHAT_JINJA_EVALUATE_H

#include "models/chat/jinja/call.h"
#include "models/chat/jinja/syntax.h"

typedef struct iso_jinja_joiner {
  iso_jinja_value separator;
  bool used;
} iso_jinja_joiner;

typedef struct iso_jinja_cycler {
  iso_jinja_list *items;
  uint32_t position;
} iso_jinja_cycler;

/* The state of a for loop, which the template sees as `loop`. Items are drawn from `source` only
 * as far as they are asked for, since the loop's filter may depend on what the body does. */
typedef struct iso_jinja_loop {
  iso_jinja_list *source;
  uint32_t source_next;  /* the first source item not yet tried */
  iso_jinja_list *items; /* those that passed the filter; `source` itself without a filter */
  const iso_jinja_node *node;
  struct iso_jinja_scope *outer; /* where the filter is evaluated */
  uint32_t index;                /* of the current item, from zero */
  iso_jinja_value changed;       /* arguments of the latest loop.changed() */
} iso_jinja_loop;

/* Evaluates one expression. */
iso_status iso_jinja_evaluate(iso_jinja_session *session, const iso_jinja_node *node,
                              iso_jinja_value *out_value);
/* Runs a list of statements, which write to session->output, until one breaks or continues a
 * loop (session->flow). */
iso_status iso_jinja_execute(iso_jinja_session *session, const iso_jinja_node *first);

/* evaluate_expression.c */
iso_status iso_jinja_evaluate_arguments(iso_jinja_session *session, const iso_jinja_node *items,
                                        iso_jinja_arguments *out_arguments);
iso_status iso_jinja_append_keyword(iso_jinja_session *session, iso_jinja_arguments *arguments,
                                    iso_jinja_value name, iso_jinja_value value);

/* scope.c */

/* Sets a variable of the innermost scope. */
iso_status iso_jinja_assign_name(iso_jinja_session *session, iso_jinja_value name,
                                 iso_jinja_value value);
/* Assigns to a target: a name, a tuple of targets, or an attribute of a namespace. */
iso_status iso_jinja_assign(iso_jinja_session *session, const iso_jinja_node *target,
                            iso_jinja_value value);
/* A variable's value, a global function, or undefined. */
iso_status iso_jinja_look_up(iso_jinja_session *session, iso_jinja_value name,
                             iso_jinja_value *out_value);
/* Opens a scope inside the current one and makes it current; the caller puts back the old one. */
iso_status iso_jinja_open_scope(iso_jinja_session *session);

/* operators.c */
iso_status iso_jinja_operate(iso_jinja_session *session, iso_jinja_operation operation,
                             iso_jinja_value a, iso_jinja_value b, iso_jinja_value *out_value);
iso_status iso_jinja_compare(iso_jinja_session *session, iso_jinja_operation operation,
                             iso_jinja_value a, iso_jinja_value b, bool *out_holds);
iso_status iso_jinja_negate(iso_jinja_session *session, iso_jinja_value value,
                            iso_jinja_value *out_value);
/* `&`, `<`, `>` and quotes as HTML references, flagged as markup; markup is left alone. */
iso_status iso_jinja_escape(iso_jinja_session *session, iso_jinja_value value,
                            iso_jinja_value *out_markup);

/* access.c */

/* object.name: the object's attribute or method, else its item, else undefined. */
iso_status iso_jinja_get_attribute(iso_jinja_session *session, iso_jinja_value object,
                                   iso_jinja_value name, iso_jinja_value *out_value);
/* object[key]: the item, else the attribute, else undefined. */
iso_status iso_jinja_get_item(iso_jinja_session *session, iso_jinja_value object,
                              iso_jinja_value key, iso_jinja_value *out_value);
/* object[start:stop:step], each an integer or None; fails for what has no slices. */
iso_status iso_jinja_get_slice(iso_jinja_session *session, iso_jinja_value object,
                               iso_jinja_value start, iso_jinja_value stop, iso_jinja_value step,
                               iso_jinja_value *out_value);

/* loop.c */

/* Whether the loop has an item `index`, drawing from the source as needed. */
iso_status iso_jinja_loop_has(iso_jinja_session *session, iso_jinja_loop *loop, uint32_t index,
                              bool *out_has);
/* loop.name; `*out_value` is absent if there is no such attribute. */
iso_status iso_jinja_loop_attribute(iso_jinja_session *session, iso_jinja_loop *loop,
                                    iso_jinja_value name, iso_jinja_value *out_value);

/* formatting.c */

/* Python's `format % arguments`; `values` is a tuple, a dict or one value. */
iso_status iso_jinja_format_percent(iso_jinja_session *session, iso_jinja_value format,
                                    iso_jinja_value values, iso_jinja_value *out_text);
/* Python's format.format(...). */
iso_status iso_jinja_format_braces(iso_jinja_session *session, iso_jinja_value format,
                                   const iso_jinja_arguments *arguments, iso_jinja_value *out_text);

#endif
