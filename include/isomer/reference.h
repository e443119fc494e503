/* The reference: one plain function an op, in C, for host memory.
 *
 * It is the oracle of every conformance test and the last resort of a device that lacks a kernel.
 * Sums are kept in double, every scheme is decoded as its format says, and every index is checked
 * before it is used, so that no input can make it touch memory outside the operands. */
#ifndef ISOMER_REFERENCE_H
#define ISOMER_REFERENCE_H

#include <isomer/backend.h>

ISO_BEGIN_DECLS

/* Checks the sizes, schemes, strides and attributes of one launch against ops.def; a kernel may
 * rely on everything it checks:
 *  - operands of n_dims 0 are absent optional ones (so are those past n_inputs);
 *  - the last dimension is contiguous. ACTIVATION operands may have gaps between rows, but
 *    neither overlaps nor negative strides; all other operands are dense;
 *  - only WEIGHT operands have a layout other than plain;
 *  - an aliased output has the dims and scheme of its input, and its buffer and offset.
 * Says nothing about the values of indices. A failure is ISO_ERROR_INVALID_ARGUMENT and names the
 * op and operand. Pure and thread safe. */
ISO_MUST_CHECK ISO_API iso_status iso_op_validate(const iso_op_arguments *arguments);

/* Runs one op on host memory and returns when it is done. `input_addresses[i]` is the address of
 * the first byte of operand i (buffer and offset applied), NULL where absent or empty; no
 * alignment is needed, and no workspace. Outputs must not overlap inputs other than by alias.
 *
 * Validates first. Weights must lie in the plain layout: others are ISO_ERROR_UNSUPPORTED. An id,
 * slot, page or length out of range is ISO_ERROR_INVALID_ARGUMENT and leaves the outputs partly
 * written. Thread safe. */
ISO_MUST_CHECK ISO_API iso_status iso_reference_run(const iso_op_arguments *arguments,
                                                    const void *const *input_addresses,
                                                    void *const *output_addresses);

ISO_END_DECLS
#endif
