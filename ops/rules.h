/* What each op demands of its operands and makes of them, derived from the letters of ops.def.
 *
 * Graphs are checked with iso_op_infer() at their bounds, single launches with iso_op_validate()
 * (isomer/reference.h) at actual sizes; both go through the same rules. All functions are pure
 * and thread safe. Beyond the letters:
 *  - only the outermost dimension may be symbolic, and only where rows are counted: '*', T, Q, R;
 *  - those may be empty, every other dimension is at least 1;
 *  - a row of a block scheme is whole blocks. */
#ifndef ISOMER_OPS_RULES_H
#define ISOMER_OPS_RULES_H

#include <isomer/ops.h>

/* The attributes of any op. */
typedef union iso_any_attributes {
  uint32_t size;
#define ISO_OP_BEGIN(name, NAME, tolerance, summary) iso_##name##_attributes name;
#include <isomer/ops.def>
} iso_any_attributes;

/* Copies attributes written by this or another version: fields beyond the writer's size take
 * their defaults. NULL means all defaults. */
void iso_op_read_attributes(iso_op op, const void *attributes, iso_any_attributes *out_attributes);

/* Infers shapes and schemes of the outputs. `input_shapes` and `input_schemes` have the op's
 * n_inputs entries, with a NULL shape (and ISO_SCHEME_COUNT) for an absent optional operand;
 * `attributes` is NULL for the defaults; `activation` is the scheme of ACTIVATION outputs, which
 * gather_rows overrides with its input's. A failure is ISO_ERROR_INVALID_ARGUMENT and names op,
 * operand, what ops.def says and what was given. */
ISO_MUST_CHECK iso_status iso_op_infer(iso_op op, const iso_shape *const *input_shapes,
                                       const iso_scheme *input_schemes, const void *attributes,
                                       iso_scheme activation, iso_shape *out_shapes,
                                       iso_scheme *out_schemes);

#endif
