/* Values that templates compute with: Python's, as far as chat templates can see them.
 *
 * A value is 16 bytes and is passed by value. Strings are UTF-8 by address and byte length, need
 * not end in NUL, and are measured and indexed in code points as Python does. Lists, dicts and
 * the rest are shared by reference and live in a session. */
#ifndef ISOMER_MODELS_CHAT_JINJA_VALUE_H
#define ISOMER_MODELS_CHAT_JINJA_VALUE_H

#include <isomer/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct iso_jinja_session iso_jinja_session;
typedef struct iso_jinja_buffer iso_jinja_buffer;

typedef enum iso_jinja_kind {
  ISO_JINJA_ABSENT, /* an argument that was not given; never seen by a template */
  ISO_JINJA_UNDEFINED,
  ISO_JINJA_NONE,
  ISO_JINJA_BOOLEAN,
  ISO_JINJA_INTEGER,
  ISO_JINJA_FLOAT,
  ISO_JINJA_STRING,
  ISO_JINJA_LIST,
  ISO_JINJA_TUPLE,
  ISO_JINJA_RANGE,     /* a list of integers that is neither printed nor added to */
  ISO_JINJA_GENERATOR, /* what can be iterated over once, and nothing else */
  ISO_JINJA_DICT,
  ISO_JINJA_NAMESPACE,
  ISO_JINJA_FUNCTION, /* a global such as range */
  ISO_JINJA_METHOD,   /* a function bound to its object */
  ISO_JINJA_MACRO,
  ISO_JINJA_LOOP,
  ISO_JINJA_CYCLER,
  ISO_JINJA_JOINER,
  ISO_JINJA_KIND_COUNT
} iso_jinja_kind;

enum {
  ISO_JINJA_MARKUP = 1,    /* flag of a string: made by |safe or |escape */
  ISO_JINJA_SENTENCE = 255 /* flag of an undefined: its text is the whole complaint */
};

typedef struct iso_jinja_value {
  uint8_t kind;    /* iso_jinja_kind */
  uint8_t flags;   /* string: ISO_JINJA_MARKUP; undefined: kind of the object that lacks the name */
  uint32_t length; /* string: bytes; undefined: bytes of the name */
  union {
    bool boolean;
    int64_t integer;
    double number;
    const char *string;          /* string: text; undefined: the name that was looked up */
    struct iso_jinja_list *list; /* LIST, TUPLE, RANGE and GENERATOR */
    struct iso_jinja_dict *dict; /* DICT and NAMESPACE */
    const struct iso_jinja_builtin *function;
    struct iso_jinja_method *method;
    struct iso_jinja_macro *macro;
    struct iso_jinja_loop *loop;
    struct iso_jinja_cycler *cycler;
    struct iso_jinja_joiner *joiner;
  };
} iso_jinja_value;

typedef struct iso_jinja_list {
  iso_jinja_value *items;
  uint32_t count, capacity;
} iso_jinja_list;

typedef struct iso_jinja_entry {
  iso_jinja_value key, value;
} iso_jinja_entry;

/* Entries in order of insertion. */
typedef struct iso_jinja_dict {
  iso_jinja_entry *entries;
  uint32_t count, capacity;
} iso_jinja_dict;

typedef struct iso_jinja_variable {
  iso_jinja_value name, value;
} iso_jinja_variable;

static inline iso_jinja_value iso_jinja_none(void) {
  return (iso_jinja_value){.kind = ISO_JINJA_NONE};
}
static inline iso_jinja_value iso_jinja_boolean(bool value) {
  return (iso_jinja_value){.kind = ISO_JINJA_BOOLEAN, .boolean = value};
}
static inline iso_jinja_value iso_jinja_integer(int64_t value) {
  return (iso_jinja_value){.kind = ISO_JINJA_INTEGER, .integer = value};
}
static inline iso_jinja_value iso_jinja_float(double value) {
  return (iso_jinja_value){.kind = ISO_JINJA_FLOAT, .number = value};
}
/* `length` is at most UINT32_MAX; the bytes are borrowed. */
static inline iso_jinja_value iso_jinja_string(const char *bytes, size_t length) {
  return (iso_jinja_value){.kind = ISO_JINJA_STRING, .length = (uint32_t)length, .string = bytes};
}
/* The undefined value that a look-up of `name` in an object of kind `owner` gives; `owner` is
 * ISO_JINJA_ABSENT for a variable. */
static inline iso_jinja_value iso_jinja_undefined(uint8_t owner, iso_jinja_value name) {
  return (iso_jinja_value){.kind = ISO_JINJA_UNDEFINED,
                           .flags = owner,
                           .length = name.kind == ISO_JINJA_STRING ? name.length : 0,
                           .string = name.kind == ISO_JINJA_STRING ? name.string : NULL};
}
/* An undefined value whose use is answered by `sentence`, a literal. */
iso_jinja_value iso_jinja_undefined_because(const char *sentence);

/* values.c */

/* A string value borrowing a literal. */
iso_jinja_value iso_jinja_literal(const char *text);
bool iso_jinja_is_text(iso_jinja_value value, const char *text);
bool iso_jinja_same_text(iso_jinja_value a, iso_jinja_value b); /* two strings */
/* Python's truth of a value. */
bool iso_jinja_is_true(iso_jinja_value value);
static inline bool iso_jinja_is_sequence(iso_jinja_value value) {
  return value.kind == ISO_JINJA_LIST || value.kind == ISO_JINJA_TUPLE ||
         value.kind == ISO_JINJA_RANGE;
}
/* Lists and tuples, which can be added up and have an order. */
static inline bool iso_jinja_is_list(iso_jinja_value value) {
  return value.kind == ISO_JINJA_LIST || value.kind == ISO_JINJA_TUPLE;
}
/* Integers and booleans are integers to Python; false for all else. */
bool iso_jinja_as_integer(iso_jinja_value value, int64_t *out_integer);
/* Integers, booleans and floats. */
bool iso_jinja_as_number(iso_jinja_value value, double *out_number);
/* Whether it is the number that equals nothing and has no order. */
static inline bool iso_jinja_is_nan(iso_jinja_value value) {
  return value.kind == ISO_JINJA_FLOAT && value.number != value.number;
}
/* Python's name of the value's type, such as "str". */
const char *iso_jinja_type_name(iso_jinja_value value);
/* Fails with the reason why an undefined value may not be used. */
iso_status iso_jinja_fail_undefined(iso_jinja_session *session, iso_jinja_value undefined);

/* An empty list or tuple with room for `capacity` items. */
iso_status iso_jinja_list_create(iso_jinja_session *session, iso_jinja_kind kind, uint32_t capacity,
                                 iso_jinja_value *out_value);
iso_status iso_jinja_list_append(iso_jinja_session *session, iso_jinja_list *list,
                                 iso_jinja_value item);
iso_status iso_jinja_dict_create(iso_jinja_session *session, iso_jinja_kind kind,
                                 iso_jinja_value *out_value);
/* The entry's value, or NULL when no key equals `key`. `*out_found` is valid until the dict
 * changes. Fails only where comparing runs out of steps or depth. */
iso_status iso_jinja_dict_find(iso_jinja_session *session, const iso_jinja_dict *dict,
                               iso_jinja_value key, iso_jinja_value **out_found);
/* Fails for what Python cannot hash, which cannot be the key of a dict. */
iso_status iso_jinja_check_hashable(iso_jinja_session *session, iso_jinja_value key);
/* Sets or replaces; fails for a key that Python cannot hash. */
iso_status iso_jinja_dict_set(iso_jinja_session *session, iso_jinja_dict *dict, iso_jinja_value key,
                              iso_jinja_value value);
/* What iterating over `value` yields, as a list: a list's or tuple's own storage, a dict's keys,
 * a string's characters, what a generator has not yet given, nothing for undefined; fails for what
 * Python cannot iterate over. */
iso_status iso_jinja_iterate(iso_jinja_session *session, iso_jinja_value value,
                             iso_jinja_list **out_list);
/* Python's len(), in code points for strings; fails for what has no length. */
iso_status iso_jinja_length(iso_jinja_session *session, iso_jinja_value value, int64_t *out_length);

/* value_compare.c */

/* Python's ==, which never fails for the types themselves. */
iso_status iso_jinja_equal(iso_jinja_session *session, iso_jinja_value a, iso_jinja_value b,
                           bool *out_equal);
/* Negative, zero or positive, as Python orders a and b; fails for types without an order, naming
 * `operation` ("<", ...). */
iso_status iso_jinja_order(iso_jinja_session *session, iso_jinja_value a, iso_jinja_value b,
                           const char *operation, int *out_order);
/* Python's `item in container`. */
iso_status iso_jinja_contains(iso_jinja_session *session, iso_jinja_value container,
                              iso_jinja_value item, bool *out_contains);

/* value_text.c */

/* Appends str(value), as {{ value }} prints it. */
iso_status iso_jinja_print(iso_jinja_session *session, iso_jinja_buffer *buffer,
                           iso_jinja_value value);
/* Appends repr(value). */
iso_status iso_jinja_represent(iso_jinja_session *session, iso_jinja_buffer *buffer,
                               iso_jinja_value value);
/* str(value) as a string value; a string is itself. */
iso_status iso_jinja_to_string(iso_jinja_session *session, iso_jinja_value value,
                               iso_jinja_value *out_string);
/* Appends repr() of a float: the shortest decimal that reads back as the same number. */
iso_status iso_jinja_print_float(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                 double number);

/* value_json.c */

typedef struct iso_jinja_json_style {
  bool ascii;             /* escape everything outside ASCII */
  bool sort_keys;         /* by key */
  bool indented;          /* one item a line, each level `indent` deeper */
  iso_jinja_value indent; /* a string */
  iso_jinja_value item_separator, key_separator;
} iso_jinja_json_style;

/* Appends json.dumps(value). */
iso_status iso_jinja_print_json(iso_jinja_session *session, iso_jinja_buffer *buffer,
                                iso_jinja_value value, const iso_jinja_json_style *style);

#endif
